//! Messages that tell for themselves that they are there, and the flush, with the test in the NIC's place.
#![cfg(not(any(loom, miri)))]

use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use warpbell::wqe::{Local, LocalKey, Opcode, Remote, RemoteKey};
use warpbell::{
    Block, CompletionKind, Deadline, Exclusive, FenceReach, Scope, Signal, Thread, WaitError, Warp,
    Word64, thread,
};
use warpbell_cpu_grid::{Grid, LaneOrder, Options, launch};
use warpbell_patterns::inbound::{Cells, Checksum, FlushHandle, Seal, Sequence};

use crate::common::Rig;

/// Value number `index` of a message.
fn value(sequence: u32, index: u32) -> u32 {
    sequence
        .wrapping_mul(0x9e37_79b9)
        .wrapping_add(index.wrapping_mul(0x0100_0193))
}

fn words(count: usize) -> Vec<Word64> {
    (0..count).map(|_| Word64::new(0)).collect()
}

fn cells<S: Seal, const WORDS: usize>(words: &[Word64]) -> Cells<'_, S, WORDS> {
    let count = (words.len() / WORDS) as u32;
    // SAFETY: the words live as long as the cells, and are atomics.
    unsafe { Cells::new(words.as_ptr(), count, FenceReach::System) }
}

/// Looks once.
fn there<S: Seal, const WORDS: usize>(cells: Cells<'_, S, WORDS>, sequence: u32) -> bool {
    match cells.wait::<Thread>(sequence, Deadline::PASSED) {
        Ok(arrived) => {
            let values = cells.count() * Cells::<'_, S, WORDS>::VALUES;
            for index in 0..values {
                assert_eq!(arrived.get(index), Some(value(sequence, index)), "{index}");
            }
            assert_eq!(arrived.get(values), None);
            true
        }
        Err(error) => {
            assert_eq!(error, WaitError::Deadline);
            false
        }
    }
}

/// Sends messages of so many cells, in pieces of so many bytes that come in random order: a message is there once its
/// last piece is, and not before.
fn in_any_order<S: Seal, const WORDS: usize>(count: usize, piece: usize) {
    let mut random = SmallRng::seed_from_u64(piece as u64);
    let (source, target) = (words(count * WORDS), words(count * WORDS));
    for sequence in [1, 2, 3, u32::MAX, 0] {
        cells::<S, WORDS>(&source).fill::<Thread>(sequence, |index| value(sequence, index));
        let bytes = 8 * source.len();
        let mut pieces: Vec<usize> = (0..bytes).step_by(piece).collect();
        pieces.shuffle(&mut random);
        let mut looked = false;
        for piece_at in pieces {
            for at in piece_at..piece_at + piece {
                let (word, shift) = (at / 8, at % 8 * 8);
                let byte = source[word].load(Ordering::Relaxed) >> shift & 0xff;
                let old = target[word].load(Ordering::Relaxed);
                target[word].store(old & !(0xff << shift) | byte << shift, Ordering::Relaxed);
            }
            let same = |(ours, theirs): (&Word64, &Word64)| {
                ours.load(Ordering::Relaxed) == theirs.load(Ordering::Relaxed)
            };
            let whole = source.iter().zip(&target).all(same);
            looked = there(cells::<S, WORDS>(&target), sequence);
            assert_eq!(looked, whole, "message {sequence}, the piece at {piece_at}");
        }
        assert!(looked);
        assert!(!there(cells::<S, WORDS>(&target), sequence.wrapping_add(1)));
    }
}

#[test]
fn a_sequence_holds_where_its_cells_come_whole() {
    in_any_order::<Sequence, 1>(1, 8);
    in_any_order::<Sequence, 1>(9, 8);
    in_any_order::<Sequence, 8>(1, 64);
    in_any_order::<Sequence, 8>(5, 64);
}

#[test]
fn a_checksum_holds_however_the_bytes_come() {
    in_any_order::<Checksum, 2>(3, 1);
    in_any_order::<Checksum, 8>(2, 4);
    in_any_order::<Checksum, 32>(2, 1);
    in_any_order::<Checksum, 32>(3, 64);
}

/// What a sequence of whole lines does not find.
#[test]
fn a_sequence_does_not_hold_where_a_cell_comes_in_parts() {
    let (source, target) = (words(8), words(8));
    cells::<Sequence, 8>(&source).fill::<Thread>(7, |index| value(7, index));
    target[7].store(source[7].load(Ordering::Relaxed), Ordering::Relaxed);
    let arrived = cells::<Sequence, 8>(&target).wait::<Thread>(7, Deadline::PASSED);
    assert_eq!(arrived.unwrap().get(0), Some(0), "and that is old");
    let sums = [words(8), words(8)];
    cells::<Checksum, 8>(&sums[0]).fill::<Thread>(7, |index| value(7, index));
    sums[1][7].store(sums[0][7].load(Ordering::Relaxed), Ordering::Relaxed);
    assert!(!there(cells::<Checksum, 8>(&sums[1]), 7));
}

#[test]
fn cells_have_room_for_what_they_say() {
    assert_eq!(Cells::<'_, Sequence, 1>::VALUES, 1);
    assert_eq!(Cells::<'_, Sequence, 8>::VALUES, 15);
    assert_eq!(Cells::<'_, Checksum, 2>::VALUES, 2);
    assert_eq!(Cells::<'_, Checksum, 32>::BYTES, 256);
    assert_eq!(Cells::<'_, Checksum, 32>::needed(62), 1);
    assert_eq!(Cells::<'_, Checksum, 32>::needed(63), 2);
}

/// A scope fills a message, and one that waits has all of it, each of its threads.
fn together<C: Scope, S: Seal, const WORDS: usize>(threads: u32, count: usize) {
    for order in [
        LaneOrder::Ascending,
        LaneOrder::Descending,
        LaneOrder::Random(3),
    ] {
        let words = words(count * WORDS);
        let signal = Word64::new(0);
        let kernel = || {
            let cells = cells::<S, WORDS>(&words);
            // SAFETY: the word lives as long as the launch, and is an atomic.
            let signal_word = unsafe { Signal::new(&signal) };
            if thread::index() / threads == 0 {
                cells.fill::<C>(5, |index| value(5, index));
                C::sync();
                if C::leads() {
                    signal.store(9, Ordering::Release);
                }
                return;
            }
            let arrived = cells.wait::<C>(5, Deadline::after_ms(300_000)).unwrap();
            for index in 0..cells.count() * Cells::<'_, S, WORDS>::VALUES {
                assert_eq!(arrived.get(index), Some(value(5, index)));
            }
            let late = cells.wait::<C>(6, Deadline::after_us(10));
            assert_eq!(late.err(), Some(WaitError::Deadline));
            let soon = Deadline::after_ms(300_000);
            assert_eq!(signal_word.wait_together::<C>(9, soon), Ok(9));
            assert_eq!(signal_word.wait_together::<C>(0, Deadline::PASSED), Ok(9));
            let late = signal_word.wait_together::<C>(10, Deadline::after_us(10));
            assert_eq!(late, Err(WaitError::Deadline));
        };
        let dim = Grid::new(2, threads);
        let options = Options {
            order,
            deadline: Some(Duration::from_secs(300)),
        };
        launch(dim, options, kernel).unwrap();
    }
}

#[test]
fn scopes_fill_and_wait_together() {
    together::<Thread, Sequence, 1>(1, 5);
    together::<Thread, Checksum, 32>(1, 2);
    together::<Warp, Sequence, 8>(32, 70);
    together::<Warp, Checksum, 8>(20, 7);
    together::<Block, Sequence, 1>(96, 300);
    together::<Block, Checksum, 32>(70, 100);
}

#[test]
fn a_flush_is_one_read_that_is_waited_for() {
    let into = Local {
        address: 0x1000,
        length: 8,
        key: LocalKey(7),
    };
    let from = Remote {
        address: 0x2000,
        key: RemoteKey(9),
    };
    let rig = Rig::new(2, CompletionKind::Collapsed);
    let handle = |needed| FlushHandle::new(rig.handle(), into, from, needed);
    let mut flush = handle(false).open::<Exclusive>().unwrap();
    assert!(!flush.is_needed());
    assert_eq!(flush.flush(Deadline::PASSED), Ok(()));
    assert_eq!(rig.doorbell_index(), None, "nothing is posted");
    drop(flush);

    let mut flush = handle(true).open::<Exclusive>().unwrap();
    assert!(flush.is_needed());
    let soon = Deadline::after_us(100);
    assert_eq!(flush.flush(soon), Err(WaitError::Deadline));
    assert_eq!(rig.doorbell_index(), Some(1));
    assert_eq!(rig.control(0), (0, Opcode::RDMA_READ));
    assert!(rig.signalled(0));
    assert_eq!(u64::from_be(rig.ring_word(0, 2)), from.address);
    // The second one's, written ahead: it ends with its own completion, not the first one's.
    rig.complete(0, 0);
    assert_eq!(flush.flush(soon), Err(WaitError::Deadline));
    rig.complete(1, 2);
    assert_eq!(flush.flush(soon), Ok(()));
}

/// The CRC of a cell, told apart from any of its single-bit neighbours.
#[test]
fn a_flipped_bit_is_found() {
    let mut random = SmallRng::seed_from_u64(1);
    let target = words(32);
    let cells = cells::<Checksum, 32>(&target);
    for sequence in 1..20 {
        cells.fill::<Thread>(sequence, |index| value(sequence, index));
        for _ in 0..100 {
            let (word, bit) = (random.random_range(0..32), random.random_range(0..64));
            target[word].fetch_xor(1 << bit, Ordering::Relaxed);
            assert!(!there(cells, sequence));
            target[word].fetch_xor(1 << bit, Ordering::Relaxed);
        }
        assert!(there(cells, sequence));
    }
}
