//! Kernels of each kind that the attribute must take.

use std::marker::PhantomData;

use warpbell::wqe::Local;
use warpbell::{SendQueueHandle, kernel};
use warpbell_host_init::{Grid, Launch, entry};

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Parameters<'a> {
    queue: SendQueueHandle<'a>,
    pieces: [Local; 3],
    count: &'a u64,
    _elsewhere: PhantomData<&'a [u8]>,
}

/// Documentation and other attributes stay.
#[inline(never)]
#[kernel]
fn anonymous_lifetime(p: Parameters<'_>, add: u32, factor: f32) {
    let _ = (p.queue, p.pieces, p.count, p._elsewhere, add, factor);
}

#[kernel]
pub unsafe fn named_lifetime<'a>(p: Parameters<'a>, word: *mut u64, old: &'a u64) {
    let _ = p.count;
    // SAFETY: who launches it promises that the word may be written.
    unsafe { *word = *old };
}

#[kernel]
fn nothing() {}

#[kernel]
unsafe fn store(word: *mut u64, value: u64) {
    // SAFETY: who launches it promises that the word may be written.
    unsafe { *word = value };
}

/// A name that belongs to somebody else, in two modules.
#[kernel]
fn memcpy(_to: u64) {}

mod elsewhere {
    #[warpbell::kernel]
    pub fn memcpy(_to: u64) {}
}

#[test]
fn takes_what_can_cross_the_abi() {
    let module = module_path!().replace("::", "$");
    let own = entry!(memcpy).symbol().to_string();
    let (stem, layout) = own.rsplit_once('$').unwrap();
    assert_eq!(stem, format!("warpbell${module}$memcpy"));
    assert!(layout.len() == 16 && u64::from_str_radix(layout, 16).is_ok());
    let other = entry!(elsewhere::memcpy).symbol().to_string();
    assert_eq!(
        other,
        format!("warpbell${module}$elsewhere$memcpy${layout}")
    );
    let _ = Launch::new(entry!(memcpy), Grid::ONE_THREAD, 0);
    let of_a_word = entry!(named_lifetime).symbol();
    assert_ne!(of_a_word, entry!(anonymous_lifetime).symbol());
    nothing();
    let _: for<'a> unsafe fn(Parameters<'a>, *mut u64, &'a u64) = named_lifetime;
    let _: fn(Parameters<'_>, u32, f32) = anonymous_lifetime;
    let mut word = 0;
    // SAFETY: the word is this function's own.
    unsafe { store(&raw mut word, 7) };
    assert_eq!(word, 7);
}
