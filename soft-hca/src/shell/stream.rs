//! How payloads get into memory that another process reads next: through this core's caches, or past them.
//!
//! What one core has written and another reads goes from cache to cache, and before it is written again, back. Where the
//! two are near each other that is the fastest way. Where they are on different dies or sockets it is by far the
//! slowest (2 GB/s, measured with latencies of 250 ns between the cores), and streaming stores, which go past the caches
//! to memory, reach 9 GB/s. Where one core runs both ends, nothing beats its cache. A virtual machine does not know
//! where its cores are, and its host moves them at any time. So nothing is assumed: both ways are tried again and again,
//! and the faster one is taken.

use super::bell::clock_ns;
use crate::engine::packet::Range;
use crate::engine::{DirectMemory, Memory};

/// Payloads from which streaming may pay, in bytes.
pub(super) const LEAST: u64 = 1024;
/// Packets from one trial to the next: under a millisecond, when they follow each other closely.
const PERIOD: u32 = 1024;
/// Packets of a trial, each way in turn.
const TRIAL: u32 = 8;
/// How much longer the reader takes to fetch from memory what was streamed than the stores took: measured 400 ns beside
/// 80 to 140 for 4 KiB.
const FETCH: u64 = 5;

/// How stores reach memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Through the caches.
    Cached,
    /// Past them.
    Streamed,
}

/// Which way was faster when both were last tried.
#[derive(Debug)]
pub(super) struct Copier {
    faster: Way,
    /// Packets since the beginning of the last trial.
    packets: u32,
    /// The least time of each way in the trial: through the caches, past them.
    least: [u64; 2],
}

impl Copier {
    pub fn new() -> Self {
        Self {
            faster: Way::Cached,
            packets: 0,
            least: [u64::MAX; 2],
        }
    }

    /// Copies the ranges one after the other to `to`, `length` bytes together. Later stores of this thread come after
    /// all of them.
    ///
    /// # Safety
    /// As for [`Memory::copy`].
    pub unsafe fn copy(&mut self, ranges: &[Range], to: u64, length: u64) {
        let way = if length < LEAST {
            Way::Cached
        } else if let Some(way) = self.next() {
            way
        } else {
            let way = self.candidate();
            let start = clock_ns();
            // SAFETY: as below.
            unsafe { copy_all(way, ranges, to) };
            // Packets of a trial may differ in size.
            return self.tried((clock_ns() - start) * 1024 * 1024 / length);
        };
        // SAFETY: the caller's promise is passed on unchanged.
        unsafe { copy_all(way, ranges, to) };
    }

    /// How the next packet goes; none if a way is to be tried with it.
    fn next(&mut self) -> Option<Way> {
        if self.packets < TRIAL {
            return None;
        }
        self.packets = (self.packets + 1) % PERIOD;
        Some(self.faster)
    }

    /// The way to be tried.
    fn candidate(&self) -> Way {
        match self.packets % 2 {
            0 => Way::Cached,
            _ => Way::Streamed,
        }
    }

    /// Takes down how long it took.
    fn tried(&mut self, time: u64) {
        let least = &mut self.least[self.packets as usize % 2];
        // A thread that was interrupted says nothing of the way.
        *least = time.min(*least);
        self.packets += 1;
        if self.packets == TRIAL {
            let [cached, streamed] = std::mem::replace(&mut self.least, [u64::MAX; 2]);
            self.faster = match FETCH * streamed < cached {
                true => Way::Streamed,
                false => Way::Cached,
            };
        }
    }
}

/// # Safety
/// As for [`Copier::copy`].
unsafe fn copy_all(way: Way, ranges: &[Range], mut to: u64) {
    for range in ranges {
        let length = range.length as usize;
        // SAFETY: the caller vouches for the ranges, and for the room at `to`.
        unsafe {
            match way {
                Way::Cached => DirectMemory.copy(range.address, to, length),
                Way::Streamed => stream(range.address, to, length),
            }
        }
        to += range.length;
    }
}

/// # Safety
/// As for [`Memory::copy`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn stream(source: u64, destination: u64, length: usize) {
    const BLOCK: usize = 64;
    // The stores demand 16; on a whole line each fills it at once.
    let head = (destination.wrapping_neg() as usize % BLOCK).min(length);
    let body = (length - head) / BLOCK * BLOCK;
    let tail = head + body;
    let at = |offset: usize| (source + offset as u64, destination + offset as u64);
    for (part, length) in [(0, head), (tail, length - tail)] {
        let (from, to) = at(part);
        // SAFETY: inside the caller's ranges.
        unsafe { DirectMemory.copy(from, to, length) };
    }
    let (from, to) = at(head);
    if body > 0 {
        // SAFETY: inside the caller's ranges; the destination is aligned. To everybody else these are loads and stores
        // of bytes, each of which is atomic by itself.
        unsafe {
            core::arch::asm!(
                "2:",
                "movdqu {a}, [{from}]",
                "movdqu {b}, [{from} + 16]",
                "movdqu {c}, [{from} + 32]",
                "movdqu {d}, [{from} + 48]",
                "movntdq [{to}], {a}",
                "movntdq [{to} + 16], {b}",
                "movntdq [{to} + 32], {c}",
                "movntdq [{to} + 48], {d}",
                "add {from}, 64",
                "add {to}, 64",
                "sub {left}, 64",
                "jnz 2b",
                // These stores before all later ones, because streaming stores keep to no order by themselves and the
                // ring's counter follows.
                "sfence",
                from = inout(reg) from => _,
                to = inout(reg) to => _,
                left = inout(reg) body => _,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack),
            );
        }
    }
}

/// Elsewhere there is one way.
///
/// # Safety
/// As for [`Memory::copy`].
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
unsafe fn stream(source: u64, destination: u64, length: usize) {
    // SAFETY: the caller's promise is passed on unchanged.
    unsafe { DirectMemory.copy(source, destination, length) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;
    use std::vec;

    /// Packets until the next trial, and the way that they go.
    fn until_trial(copier: &mut Copier) -> (u32, Vec<Way>) {
        let mut ways: Vec<Way> = std::iter::from_fn(|| copier.next()).collect();
        let count = ways.len() as u32;
        ways.dedup();
        (count, ways)
    }

    #[test]
    fn takes_the_way_that_was_faster_and_tries_both_again() {
        let mut copier = Copier::new();
        // An interruption in the middle of each way's, and each way the faster one once.
        for (cached, streamed, faster) in [
            (1500, 140, Way::Streamed),
            (105, 80, Way::Cached),
            (501, 100, Way::Streamed),
            (500, 100, Way::Cached),
        ] {
            for number in 0..TRIAL {
                assert_eq!(copier.next(), None);
                let time = match copier.candidate() {
                    Way::Cached => cached,
                    Way::Streamed => streamed,
                };
                copier.tried(if (2..4).contains(&number) {
                    100 * time
                } else {
                    time
                });
            }
            assert_eq!(until_trial(&mut copier), (PERIOD - TRIAL, vec![faster]));
        }
    }

    #[test]
    fn both_ways_move_these_bytes_and_no_others() {
        let source: Vec<u8> = (0..5000u32).map(|at| (at % 251) as u8 + 1).collect();
        let start = source.as_ptr().expose_provenance() as u64;
        let every = if cfg!(miri) { 29 } else { 3 };
        for way in [Way::Cached, Way::Streamed] {
            for first in (0..140).chain(1000..1200).step_by(every) {
                for shift in (0..64).step_by(7) {
                    let mut target = vec![0u8; 5000];
                    let to = target.as_mut_ptr().expose_provenance() as u64 + shift;
                    let ranges = [(start + 3, first), (start + 1500, 1300), (start, 0)];
                    let ranges = ranges.map(|(address, length)| Range { address, length });
                    // SAFETY: all lie inside the two.
                    unsafe { copy_all(way, &ranges, to) };
                    let (first, shift) = (first as usize, shift as usize);
                    let expected = [
                        &vec![0; shift],
                        &source[3..3 + first],
                        &source[1500..2800],
                        &vec![0; 5000 - shift - first - 1300],
                    ];
                    assert!(target == expected.concat(), "{way:?} {first} {shift}");
                }
            }
        }
    }
}
