use std::marker::PhantomData;

use warpbell::wqe::Local;
use warpbell::{SendQueueHandle, kernel};

#[repr(C)]
#[derive(Clone, Copy)]
struct Parameters<'a> {
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
    unsafe { *word = *old };
}

#[kernel]
fn nothing() {}

#[kernel]
unsafe fn store(word: *mut u64, value: u64) {
    unsafe { *word = value };
}

fn main() {
    nothing();
    let _: for<'a> unsafe fn(Parameters<'a>, *mut u64, &'a u64) = named_lifetime;
    let _: fn(Parameters<'_>, u32, f32) = anonymous_lifetime;
    let mut word = 0;
    unsafe { store(&raw mut word, 7) };
    assert_eq!(word, 7);
}
