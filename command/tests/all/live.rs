//! Queues of this process, as `warpbell decode --pid` and `warpbell top` see them.

use std::os::unix::fs::FileExt;
use std::process::{self, Command};

use clap::Parser;
use warpbell::wqe::{CqNumber, Wqe};
use warpbell::{Deadline, Exclusive};
use warpbell_command::arguments::Arguments;
use warpbell_command::live::LiveReport;
use warpbell_command::top::{Line, Screen, Side, State, Watch, page};
use warpbell_host_init::soft::{Drive, SoftOptions};
use warpbell_host_init::{
    Access, Device, Nic, ProtectionDomain, QueuePair, QueuePairConfig, connect,
};

use crate::field;

/// A device that stands still until it is told to step, so that what is under way stays under way.
pub fn domain() -> (Device, ProtectionDomain) {
    let options = SoftOptions {
        drive: Drive::ByHand,
        ..SoftOptions::default()
    };
    let device = Device::open(Nic::Soft(options)).unwrap();
    let domain = device.protection_domain().unwrap();
    (device, domain)
}

pub fn pairs(
    domain: &ProtectionDomain,
    change: impl FnOnce(&mut QueuePairConfig),
) -> [QueuePair; 2] {
    let mut config = QueuePairConfig {
        send_depth: 8,
        receive_depth: 4,
        ..QueuePairConfig::granting(Access::all())
    };
    change(&mut config);
    let mut pairs = [0, 1].map(|_| domain.queue_pair(&config).unwrap());
    let [one, other] = &mut pairs;
    connect(one, other).unwrap();
    pairs
}

pub fn step_until(device: &Device, done: impl Fn() -> bool) {
    let hca = device.soft_hca().unwrap();
    for _ in 0..1_000_000 {
        if done() {
            return;
        }
        hca.step().unwrap();
    }
    panic!("the device does not come to it");
}

/// The line of a queue among those of the other tests, which run in the same process.
pub fn line(screen: &Screen, pair: &QueuePair, side: Side) -> Line {
    let ring = pair.send_parts().ring as u64;
    let mut lines = screen.queues.iter();
    let found = lines.find(|line| line.send_ring == ring && line.queue == side);
    found.expect("the queue is listed").clone()
}

pub fn look(pair: &QueuePair, side: Side) -> Line {
    line(
        &Watch::begin(process::id()).unwrap().look().unwrap(),
        pair,
        side,
    )
}

#[test]
fn a_write_is_seen_from_its_post_to_its_end() {
    let (device, domain) = domain();
    let [ours, theirs] = pairs(&domain, |_| {});
    let region = domain.allocate(4096, Access::all()).unwrap();
    let remote = region.remote().at(64, 8).unwrap();
    assert_eq!(look(&ours, Side::Send).waits_for, "nothing was posted yet");
    let mut queue = ours.send_queue().unwrap().open::<Exclusive>().unwrap();
    let write = Wqe::write(region.local(0, 8).unwrap(), remote);
    let ticket = queue.try_post(write.signalled()).unwrap();

    let mut watch = Watch::begin(process::id()).unwrap();
    let first = line(&watch.look().unwrap(), &ours, Side::Send);
    assert_eq!(
        (first.state, first.producer, first.consumer),
        (State::Waiting, Some(1), Some(0))
    );
    assert_eq!((first.depth, first.credit), (8, Some(7)));
    let oldest = first.oldest.unwrap();
    assert_eq!(oldest.opcode.as_deref(), Some("RDMA_WRITE"));
    assert_eq!((oldest.index, oldest.bytes), (0, Some(8)));
    assert_eq!(oldest.remote_address, Some(remote.address));
    assert_eq!(
        first.waits_for,
        format!(
            "waits for an acknowledgement or answer of queue pair {:#08x} of this process: there is no CQE",
            theirs.qpn()
        )
    );
    // Its age counts from the first look.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let later = line(&watch.look().unwrap(), &ours, Side::Send)
        .oldest
        .unwrap();
    assert!(oldest.seen_ms == 0 && later.seen_ms >= 20, "{later:?}");

    let report = live(&ours);
    let under_way = part(&report, &ours, "send WQEs under way");
    assert_eq!(field(&under_way[0], "opcode").0, "0x08");
    assert_eq!(
        field(&under_way[0], "remote address").0,
        format!("{:#018x}", remote.address)
    );
    let record = part(&report, &ours, "doorbell record");
    assert_eq!(field(&record[0], "blocks posted").0, "0x0001");

    let deadline = Deadline::after_ms(0);
    let done = || look(&ours, Side::Send).state == State::Idle;
    step_until(&device, done);
    queue.wait(ticket, deadline).unwrap();
    let last = look(&ours, Side::Send);
    assert_eq!(
        last.waits_for,
        "nothing is under way: all that was posted is done"
    );
    assert_eq!(
        (last.consumer, last.credit, last.oldest),
        (Some(1), Some(8), None)
    );
    let report = live(&ours);
    let cqes = part(
        &report,
        &ours,
        "CQEs of the send queue: the newest, and errors",
    );
    assert!(
        cqes[0].title.contains("RDMA_WRITE in send WQE 0x0000"),
        "{}",
        cqes[0].title
    );
    drop(theirs);
}

/// The report on this process's queue pairs of a number.
fn live(pair: &QueuePair) -> LiveReport {
    LiveReport::read(process::id(), pair.qpn()).unwrap()
}

fn part<'a>(
    report: &'a LiveReport,
    pair: &QueuePair,
    name: &str,
) -> &'a [warpbell_command::decode::Structure] {
    let ring = pair.send_parts().ring as u64;
    let queue = report
        .queues
        .iter()
        .find(|queue| queue.send_ring == ring)
        .unwrap();
    let part = queue.parts.iter().find(|part| part.name == name);
    &part.expect("the part is there").report.structures
}

#[test]
fn what_a_queue_waits_for_is_told_from_its_memory() {
    let (device, domain) = domain();
    let region = domain.allocate(4096, Access::all()).unwrap();
    let [ours, theirs] = pairs(&domain, |config| config.cross_channel = true);
    let mut queue = ours.send_queue().unwrap().open::<Exclusive>().unwrap();
    let other = CqNumber::new(theirs.send_cqn()).unwrap();
    let _ = queue.try_post(Wqe::wait(other, 5).signalled()).unwrap();
    let waits = look(&ours, Side::Send).waits_for;
    assert_eq!(
        waits,
        format!("waits for CQE 5 of completion queue {other}")
    );

    let [ours, theirs] = pairs(&domain, |_| {});
    let mut queue = ours.send_queue().unwrap().open::<Exclusive>().unwrap();
    // The first WQE of a ring is signalled, whoever asks for it.
    let _ = queue.try_post(Wqe::nop()).unwrap();
    step_until(&device, || look(&ours, Side::Send).state == State::Idle);
    let send = Wqe::send(region.local(0, 8).unwrap());
    let _ = queue.try_post(send).unwrap();
    let waits = look(&ours, Side::Send).waits_for;
    assert!(
        waits.starts_with("no CQE: none of the WQEs under way is signalled"),
        "{waits}"
    );
    let _ = queue.try_post(send.signalled()).unwrap();
    let waits = look(&ours, Side::Send).waits_for;
    let other = format!("queue pair {:#08x} of this process", theirs.qpn());
    assert_eq!(
        waits,
        format!("waits for a receive (RNR): the other end, {other}, has none posted")
    );

    let mut receives = theirs.receive_queue().unwrap().open::<Exclusive>().unwrap();
    let waits = look(&theirs, Side::Receive);
    assert!(
        waits.state == State::Idle && waits.waits_for.contains("no receive is posted"),
        "{waits:?}"
    );
    receives.try_post(region.local(64, 64).unwrap()).unwrap();
    let waits = look(&theirs, Side::Receive);
    assert_eq!((waits.producer, waits.credit), (Some(1), Some(3)));
    assert_eq!(waits.waits_for, "waits for a message of the other end");
    let report = live(&theirs);
    let posted = part(&report, &theirs, "receive WQEs that wait");
    assert_eq!(field(&posted[0], "length").1, "64 bytes");
    let waits = look(&ours, Side::Send).waits_for;
    assert!(
        waits.starts_with(&format!(
            "waits for an acknowledgement or answer of {other}"
        )),
        "{waits}"
    );
    // Nothing is known of the other end's receives once it is not of this process.
    let number = theirs.qpn();
    drop(receives);
    drop(theirs);
    let waits = look(&ours, Side::Send).waits_for;
    let other = format!(
        "waits for the other end, queue pair {number:#08x} of {}",
        device.gid()
    );
    assert!(
        waits.starts_with(&other) && waits.ends_with("or has no receive posted (RNR)"),
        "{waits}"
    );
}

#[test]
fn a_failed_queue_says_its_cause() {
    let (device, domain) = domain();
    let [ours, theirs] = pairs(&domain, |_| {});
    let region = domain.allocate(4096, Access::all()).unwrap();
    let mut remote = region.remote().at(0, 8).unwrap();
    remote.key.0 ^= 0x100;
    let mut queue = ours.send_queue().unwrap().open::<Exclusive>().unwrap();
    let local = region.local(0, 8).unwrap();
    for _ in 0..2 {
        let write = Wqe::write(local, remote).signalled();
        let _ = queue.try_post(write).unwrap();
    }
    step_until(&device, || look(&ours, Side::Send).state == State::Failed);
    step_until(&device, || look(&ours, Side::Send).consumer == Some(2));
    let failed = look(&ours, Side::Send);
    assert!(
        failed
            .waits_for
            .starts_with("failed: remote access error (syndrome 0x13)"),
        "{failed:?}"
    );
    assert!(failed.waits_for.contains("Compare rkey"), "{failed:?}");
    drop(theirs);
}

/// The blocks of a batch are reserved, and published when it ends.
#[test]
fn blocks_that_are_not_published_are_told() {
    let (_device, domain) = domain();
    let [ours, _theirs] = pairs(&domain, |_| {});
    let mut queue = ours
        .send_queue()
        .unwrap()
        .open::<warpbell::GpuShared>()
        .unwrap();
    let batch = queue.batch(2, Deadline::after_ms(1_000)).unwrap();
    let open = look(&ours, Side::Send);
    assert_eq!(open.state, State::Waiting);
    assert!(
        open.waits_for
            .starts_with("2 blocks are reserved and not published"),
        "{open:?}"
    );
    drop(batch);
}

#[test]
fn pages_fit_a_terminal() {
    let (_device, domain) = domain();
    let [ours, _theirs] = pairs(&domain, |_| {});
    let region = domain.allocate(4096, Access::all()).unwrap();
    let mut queue = ours.send_queue().unwrap().open::<Exclusive>().unwrap();
    let write = Wqe::write_immediate(
        region.local(0, 8).unwrap(),
        region.remote().at(64, 8).unwrap(),
        warpbell::wqe::Immediate(1),
    );
    let _ = queue.try_post(write.signalled()).unwrap();
    let screen = Watch::begin(process::id()).unwrap().look().unwrap();
    let text = page(&screen, 80);
    for line in text.lines() {
        assert!(console::measure_text_width(line) <= 80, "{line}");
    }
    assert!(text.contains("RDMA_WRITE_IMM"), "{text}");
    let json = serde_json::to_value(&screen).unwrap();
    assert_eq!(
        (&json["format"], &json["pid"]),
        (&1.into(), &process::id().into())
    );
    let names = [
        "qpn",
        "send_ring",
        "queue",
        "depth",
        "producer",
        "consumer",
        "credit",
        "oldest",
        "state",
        "waits_for",
    ];
    let own = json["queues"].as_array().unwrap();
    assert!(
        own.iter()
            .all(|line| names.iter().all(|name| line.get(name).is_some())),
        "{json}"
    );
}

fn error(arguments: &[&str]) -> String {
    let arguments = Arguments::parse_from([&["warpbell"], arguments].concat());
    arguments
        .run(80, &mut String::new())
        .unwrap_err()
        .to_string()
}

#[test]
fn processes_and_queues_that_are_not_there_are_named() {
    // More than the kernel gives to any process.
    assert_eq!(
        error(&["top", "2000000000"]),
        "there is no process 2000000000"
    );
    assert_eq!(
        error(&["decode", "--pid", "2000000000", "--qpn", "1"]),
        "there is no process 2000000000"
    );
    let mut other = Command::new("sleep").arg("300").spawn().unwrap();
    let id = other.id().to_string();
    let said = error(&["top", &id]);
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(said.contains("has no queues of Warpbell"), "{said}");
    let (_device, domain) = domain();
    let _pairs = pairs(&domain, |_| {});
    let own = process::id().to_string();
    let said = error(&["decode", "--pid", &own, "--qpn", "0xfffff0"]);
    assert!(
        said.starts_with(&format!(
            "process {own} has no queue pair 0xfffff0; it has 0x"
        )),
        "{said}"
    );
}

#[test]
fn the_program_shows_the_queues_of_a_process() {
    let (_device, domain) = domain();
    let [ours, _theirs] = pairs(&domain, |_| {});
    let (own, qpn) = (process::id().to_string(), ours.qpn().to_string());
    let mut out = String::new();
    for (arguments, text) in [
        (
            &["decode", "--pid", &own, "--qpn", &qpn][..],
            "doorbell record: 8 bytes as doorbell-record",
        ),
        (&["top", &own, "--once"], "QPN       queue"),
        (&["top", &own, "--once", "--json"], "\"waits_for\""),
        (
            &["decode", "--pid", &own, "--qpn", &qpn, "--json"],
            "\"parts\"",
        ),
    ] {
        let arguments = Arguments::parse_from([&["warpbell"], arguments].concat());
        arguments.run(80, &mut out).unwrap();
        assert!(out.contains(text), "{out}");
        out.clear();
    }
}

/// Writes this process's private memory to a file as the kernel dumps a process, but for the registers.
fn dump_self(file: &std::path::Path) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let memory = std::fs::File::open("/proc/self/mem").unwrap();
    let mut segments = Vec::new();
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (range, rights) = (words.next().unwrap(), words.next().unwrap());
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|digits| u64::from_str_radix(digits, 16).unwrap());
        let mut bytes = vec![0; (end - start) as usize];
        if rights == "rw-p" && memory.read_exact_at(&mut bytes, start).is_ok() {
            segments.push((start, bytes));
        }
    }
    let mut headers = Vec::new();
    let mut offset = 64 + 56 * segments.len() as u64;
    for (start, bytes) in &segments {
        let len = bytes.len() as u64;
        // PT_LOAD, readable and writable; then offset, addresses, sizes, alignment.
        headers.extend([1_u32, 6].map(u32::to_le_bytes).concat());
        headers.extend(
            [offset, *start, 0, len, len, 4096]
                .map(u64::to_le_bytes)
                .concat(),
        );
        offset += len;
    }
    // A little-endian ELF file of 64 bits; a core of an x86-64; program headers at 64.
    let mut out = [
        &b"\x7fELF\x02\x01\x01"[..],
        &[0; 9],
        &[4, 0, 62, 0, 1, 0, 0, 0],
    ]
    .concat();
    out.extend([0_u64, 64, 0].map(u64::to_le_bytes).concat());
    out.extend(0_u32.to_le_bytes());
    out.extend(
        [64, 56, segments.len() as u16, 0, 0, 0]
            .map(u16::to_le_bytes)
            .concat(),
    );
    out.extend(headers);
    out.extend(segments.iter().flat_map(|(_, bytes)| bytes));
    std::fs::write(file, out).unwrap();
}

#[test]
fn a_core_dump_is_decoded() {
    let (_device, domain) = domain();
    let [ours, _theirs] = pairs(&domain, |_| {});
    let mut queue = ours.send_queue().unwrap().open::<Exclusive>().unwrap();
    let _ = queue.try_post(Wqe::nop().signalled()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("core");
    dump_self(&file);
    let report = LiveReport::of_core(&file, ours.qpn()).unwrap();
    let found = part(&report, &ours, "send WQEs under way");
    assert!(
        found[0].title.starts_with("send WQE 0x0000: NOP"),
        "{}",
        found[0].title
    );

    let path = file.to_str().unwrap();
    let said = error(&["decode", "--core", path, "--qpn", "0xfffff0"]);
    assert!(
        said.contains("core has no queue pair 0xfffff0; it has 0x"),
        "{said}"
    );
    // A torn dump: its headers alone; and files that are none.
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..4096]).unwrap();
    let said = error(&["decode", "--core", path, "--qpn", "1"]);
    assert!(
        said.contains("the dump holds no table of Warpbell's queues"),
        "{said}"
    );
    std::fs::write(&file, &whole[..70]).unwrap();
    let said = error(&["decode", "--core", path, "--qpn", "1"]);
    assert!(
        said.contains("is no core dump of a 64-bit process: "),
        "{said}"
    );
    let said = error(&["decode", "--core", "/proc/self/exe", "--qpn", "1"]);
    assert_eq!(
        said,
        "/proc/self/exe is no core dump of a 64-bit process, but another ELF file"
    );
    let said = error(&["decode", "--core", "/there/is/none", "--qpn", "1"]);
    assert!(
        said.starts_with("cannot read /there/is/none: No such file"),
        "{said}"
    );
}
