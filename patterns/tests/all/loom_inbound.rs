//! Data and what tells of them, in every interleaving that loom finds: whoever was told reads no old data; and twins
//! without an order, in which loom must find the fault.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::Ordering;
use loom::thread;
use warpbell::{Deadline, FenceReach, LeftOut, Signal, Thread, Word64};
use warpbell_patterns::inbound::{Cells, Checksum, Seal, Sequence};

use crate::common::model::model;

const NEW: u32 = 0x0102_0304;

/// A message of one cell, on its way from one place to another.
struct Message {
    sent: [Word64; 2],
    arrived: [Word64; 2],
}

fn cells<S: Seal, const WORDS: usize>(words: &[Word64; 2]) -> Cells<'_, S, WORDS> {
    // SAFETY: the words live as long as the cells, and are atomics.
    unsafe { Cells::new(words.as_ptr(), 2 / WORDS as u32, FenceReach::System) }
}

/// The NIC stores the message's two words, the second with this order; a reader looks meanwhile.
fn comes<S: Seal, const WORDS: usize>(without: Option<LeftOut>, order: Ordering) {
    model(without, move || {
        let message = Arc::new(Message {
            sent: [0, 1].map(|_| Word64::new(0)),
            arrived: [0, 1].map(|_| Word64::new(0)),
        });
        cells::<S, WORDS>(&message.sent).fill::<Thread>(1, |index| NEW + index);
        let nic = Arc::clone(&message);
        let nic = thread::spawn(move || {
            for (word, order) in [(0, Ordering::Relaxed), (1, order)] {
                let bytes = nic.sent[word].load(Ordering::Relaxed);
                nic.arrived[word].store(bytes, order);
            }
        });
        let target = cells::<S, WORDS>(&message.arrived);
        let look = || {
            if let Ok(arrived) = target.wait::<Thread>(1, Deadline::PASSED) {
                for index in 0..target.count() * Cells::<'_, S, WORDS>::VALUES {
                    assert_eq!(arrived.get(index), Some(NEW + index), "old data");
                }
                return true;
            }
            false
        };
        look();
        nic.join().unwrap();
        assert!(look(), "nothing came");
    });
}

#[test]
fn a_sequence_in_each_word_wants_no_order() {
    comes::<Sequence, 1>(None, Ordering::Relaxed);
}

#[test]
fn a_checksum_wants_no_order() {
    comes::<Checksum, 2>(None, Ordering::Relaxed);
}

#[test]
fn a_sequence_behind_a_line_holds_where_lines_come_in_order() {
    comes::<Sequence, 2>(None, Ordering::Release);
}

#[test]
#[should_panic(expected = "old data")]
fn a_sequence_behind_a_line_wants_its_order() {
    comes::<Sequence, 2>(None, Ordering::Relaxed);
}

#[test]
#[should_panic(expected = "old data")]
fn a_sequence_behind_a_line_wants_the_fence() {
    comes::<Sequence, 2>(Some(LeftOut::Acquire), Ordering::Release);
}

/// The NIC stores data, then a word behind them with this order; a reader goes by the word.
fn signalled(order: Ordering) {
    model(None, move || {
        let words = Arc::new([Word64::new(0), Word64::new(0)]);
        let nic = Arc::clone(&words);
        let nic = thread::spawn(move || {
            nic[0].store(7, Ordering::Relaxed);
            nic[1].store(3, order);
        });
        // SAFETY: the word lives as long as the signal, and is an atomic.
        let signal = unsafe { Signal::new(&words[1]) };
        let told = signal.wait_together::<Thread>(3, Deadline::PASSED);
        if told == Ok(3) {
            assert_eq!(words[0].load(Ordering::Relaxed), 7, "old data");
        }
        nic.join().unwrap();
    });
}

#[test]
fn a_signal_orders_what_came_before_it() {
    signalled(Ordering::Release);
}

#[test]
#[should_panic(expected = "old data")]
fn a_signal_wants_the_nics_order() {
    signalled(Ordering::Relaxed);
}
