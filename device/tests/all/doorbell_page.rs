//! How a CPU rings on each kind of page.
#![cfg(not(loom))]

use warpbell::wqe::Wqe;
use warpbell::{CompletionKind, Deadline, DoorbellPage, Exclusive};

use crate::common::Rig;

/// A card's register gets what a software HCA's memory gets.
#[test]
fn each_page_gets_the_same_doorbell() {
    let rung = [
        DoorbellPage::Memory,
        DoorbellPage::Uncached,
        DoorbellPage::WriteCombining,
    ]
    .map(|page| {
        let rig = Rig::new(3, CompletionKind::Ordinary).on_page(page);
        let mut queue = rig.handle().open::<Exclusive>().unwrap();
        let limit = Deadline::after_ms(1_000);
        for _ in 0..2 {
            let _ = queue.post(Wqe::nop(), limit).unwrap();
        }
        drop(queue);
        rig.take_doorbell()
    });
    assert_eq!(rung, [Some(2); 3]);
}

/// What is ordinary memory here is stored in order, so that no test of values sees a missing fence. The instructions show
/// it: a store fence before the register's store, for the WQEs and the record, and one behind it, for the doorbell.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
#[test]
fn a_write_combining_page_is_rung_between_two_store_fences() {
    let disassembled = std::process::Command::new("objdump")
        .arg("--disassemble=warpbell_gpu::arch::world::ring_register")
        .args(["--demangle=rust", "--no-show-raw-insn"])
        .arg(std::env::current_exe().unwrap())
        .output()
        .expect("objdump of binutils, which Rust's linker needs as well");
    let text = String::from_utf8_lossy(&disassembled.stdout);
    let function = text
        .split("\n\n")
        .find(|function| {
            let name = function.lines().next();
            name.is_some_and(|name| name.contains("::ring_register"))
        })
        .expect("the function that rings a card");
    let places = |wanted: fn(&str) -> bool| -> Vec<usize> {
        let lines = function.lines().enumerate();
        lines
            .filter(|(_, line)| wanted(line))
            .map(|(at, _)| at)
            .collect()
    };
    let fences = places(|line| line.contains("sfence"));
    // The store is a call without optimisation.
    let store = places(|line| {
        line.contains("call   *") || line.contains("::write") || line.contains(",(%r")
    });
    assert_eq!(fences.len(), 2, "{function}");
    assert!(
        store
            .iter()
            .any(|store| (fences[0]..fences[1]).contains(store)),
        "{function}"
    );
}
