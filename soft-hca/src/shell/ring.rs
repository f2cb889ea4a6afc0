//! A bounded lock-free ring between one producer and one consumer of a process,
//! whose producer can take back what the consumer has not finished.
//!
//! Each slot has a state of its own, and no counter is shared:
//!
//! ```text
//!          push            take             release
//!   FREE ────────▶ FULL ────────▶ TAKEN ────────────▶ FREE
//!                    │ retract                          ▲
//!                    └────────▶ RETRACTED ──────────────┘ skipped by take
//! ```
//!
//! Entries name memory that the producer's side lends. [`Producer::retract`]
//! takes entries back that are `FULL` and waits for those that are `TAKEN`, so
//! that the memory can be freed as soon as it returns. The wait is short and
//! cannot go in a circle, because a consumer releases what it took at the end of
//! each of its steps, and before it retracts anything itself.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::prelude::v1::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

const FREE: u8 = 0;
const FULL: u8 = 1;
const TAKEN: u8 = 2;
const RETRACTED: u8 = 3;

/// Aligned to two cache lines, so that the two sides meet in a slot only where
/// they must (the adjacent-line prefetcher works on pairs).
#[repr(align(128))]
struct Slot<T> {
    state: AtomicU8,
    entry: UnsafeCell<MaybeUninit<T>>,
}

struct Shared<T> {
    slots: Box<[Slot<T>]>,
    producer_gone: AtomicBool,
    consumer_gone: AtomicBool,
}

// SAFETY: an entry is written by the producer while its slot is FREE, and only
// read, by both sides, from FULL until it is FREE again; `state` hands it over
// with release and acquire. `T: Send + Sync` lets both threads look at it.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    fn slot(&self, count: u64) -> &Slot<T> {
        &self.slots[(count & (self.slots.len() as u64 - 1)) as usize]
    }
}

/// The side that fills the ring.
pub(super) struct Producer<T: Copy> {
    shared: Arc<Shared<T>>,
    pushed: u64,
}

/// The side that empties the ring.
pub(super) struct Consumer<T: Copy> {
    shared: Arc<Shared<T>>,
    released: u64,
    /// Slots passed by [`Consumer::take`]; those from `released` on are TAKEN, or
    /// were retracted.
    taken: u64,
}

/// Makes a ring of `capacity` entries, a power of two.
pub(super) fn ring<T: Copy + Send + Sync>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    assert!(
        capacity.is_power_of_two(),
        "a ring's capacity is a power of two"
    );
    let empty = || Slot {
        state: AtomicU8::new(FREE),
        entry: UnsafeCell::new(MaybeUninit::uninit()),
    };
    let shared = Arc::new(Shared {
        slots: (0..capacity).map(|_| empty()).collect(),
        producer_gone: AtomicBool::new(false),
        consumer_gone: AtomicBool::new(false),
    });
    let producer = Producer {
        shared: shared.clone(),
        pushed: 0,
    };
    (
        producer,
        Consumer {
            shared,
            released: 0,
            taken: 0,
        },
    )
}

impl<T: Copy> Producer<T> {
    /// Appends an entry; false if the ring is full.
    pub fn push(&mut self, entry: T) -> bool {
        let slot = self.shared.slot(self.pushed);
        // The consumer's last read of the slot before our write into it, because
        // both touch the same memory: acquire pairs with `release`.
        if slot.state.load(Ordering::Acquire) != FREE {
            return false;
        }
        // SAFETY: the slot is FREE, so the consumer does not look at its entry,
        // and there is only one producer (`&mut self`).
        unsafe { (*slot.entry.get()).write(entry) };
        // The entry before the state, because the consumer reads the entry as
        // soon as it sees FULL.
        slot.state.store(FULL, Ordering::Release);
        self.pushed += 1;
        true
    }

    /// Whether the consumer is gone, so that nobody will read the ring again.
    pub fn is_closed(&self) -> bool {
        self.shared.consumer_gone.load(Ordering::Acquire)
    }

    /// Takes back every entry that `matches`: when this returns, the consumer
    /// uses none of them, and never will.
    pub fn retract(&mut self, mut matches: impl FnMut(&T) -> bool) {
        let capacity = self.shared.slots.len() as u64;
        for count in self.pushed.saturating_sub(capacity)..self.pushed {
            let slot = self.shared.slot(count);
            if slot.state.load(Ordering::Acquire) == FREE {
                continue;
            }
            // SAFETY: `push` has written this slot (its count lies below
            // `pushed`), and since then nobody has: we are the only writer.
            let entry = unsafe { (*slot.entry.get()).assume_init_ref() };
            if !matches(entry) {
                continue;
            }
            // Acquire on failure: the consumer's last use of the memory that the
            // entry names before our return, because our caller may free it.
            let found =
                slot.state
                    .compare_exchange(FULL, RETRACTED, Ordering::AcqRel, Ordering::Acquire);
            if found == Err(TAKEN) {
                self.wait_for_release(slot);
            }
        }
    }

    fn wait_for_release(&self, slot: &Slot<T>) {
        let mut turns = 0u32;
        while slot.state.load(Ordering::Acquire) == TAKEN && !self.is_closed() {
            turns += 1;
            if turns < 100 {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}

impl<T: Copy> Consumer<T> {
    /// Copies the next entry out. The memory that it names stays lent until
    /// [`Consumer::release`].
    pub fn take(&mut self) -> Option<T> {
        if self.taken - self.released == self.shared.slots.len() as u64 {
            return None;
        }
        loop {
            let slot = self.shared.slot(self.taken);
            // A plain load first, so that an empty ring costs no exchange.
            let state = match slot.state.load(Ordering::Relaxed) {
                FULL => slot.state.compare_exchange(
                    FULL,
                    TAKEN,
                    // The state before the entry, because the producer wrote
                    // them in the opposite order.
                    Ordering::Acquire,
                    Ordering::Relaxed,
                ),
                other => Err(other),
            };
            match state {
                Ok(_) => {
                    self.taken += 1;
                    // SAFETY: the slot was FULL, so its entry is written, and
                    // the producer does not write it before it is FREE.
                    return Some(unsafe { (*slot.entry.get()).assume_init_read() });
                }
                Err(RETRACTED) => {
                    slot.state.store(FREE, Ordering::Release);
                    self.taken += 1;
                }
                Err(_) => return None,
            }
        }
    }

    /// Gives back every entry taken so far: their slots may be filled again, and
    /// the memory that they name is no longer used here.
    pub fn release(&mut self) {
        for count in self.released..self.taken {
            let slot = self.shared.slot(count);
            // A retracted slot was freed when it was passed, and may be full again.
            if slot.state.load(Ordering::Relaxed) == TAKEN {
                // Our use of the entry and of the memory before the state,
                // because the producer refills the slot, and its owner frees the
                // memory, as soon as it sees FREE.
                slot.state.store(FREE, Ordering::Release);
            }
        }
        self.released = self.taken;
    }

    /// Whether the producer is gone, so that nothing new will come.
    pub fn is_closed(&self) -> bool {
        self.shared.producer_gone.load(Ordering::Acquire)
    }
}

impl<T: Copy> Drop for Producer<T> {
    /// Takes everything back, so that the memory lent may go too.
    fn drop(&mut self) {
        self.retract(|_| true);
        self.shared.producer_gone.store(true, Ordering::Release);
    }
}

impl<T: Copy> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.release();
        self.shared.consumer_gone.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn keeps_order_and_says_full() {
        let (mut producer, mut consumer) = ring(4);
        for round in 0..10 {
            for entry in 0..4 {
                assert!(producer.push(round * 4 + entry));
            }
            assert!(!producer.push(99));
            for entry in 0..4 {
                assert_eq!(consumer.take(), Some(round * 4 + entry));
            }
            assert_eq!(consumer.take(), None);
            assert!(!producer.push(99), "taken slots are not free yet");
            consumer.release();
        }
    }

    #[test]
    fn retracted_entries_are_skipped_and_their_slots_come_back() {
        let (mut producer, mut consumer) = ring(8);
        for round in 0..10 {
            for entry in 0..8 {
                assert!(producer.push(entry), "round {round}");
            }
            producer.retract(|entry| entry % 2 == 1);
            let left: Vec<_> = std::iter::from_fn(|| consumer.take()).collect();
            assert_eq!(left, [0, 2, 4, 6]);
            consumer.release();
        }
    }

    #[test]
    fn dropping_the_producer_takes_everything_back() {
        let (mut producer, mut consumer) = ring(8);
        assert!(producer.push(1));
        drop(producer);
        assert!(consumer.is_closed());
        assert_eq!(consumer.take(), None);
    }

    #[test]
    fn a_gone_consumer_lets_go_of_what_it_took() {
        let (mut producer, mut consumer) = ring(8);
        assert!(producer.push(1));
        assert_eq!(consumer.take(), Some(1));
        drop(consumer);
        assert!(producer.is_closed());
        producer.retract(|_| true);
    }

    #[test]
    fn retract_waits_for_an_entry_in_hand() {
        static GIVEN_BACK: AtomicBool = AtomicBool::new(false);
        let (mut producer, mut consumer) = ring(8);
        assert!(producer.push(1));
        assert_eq!(consumer.take(), Some(1));
        let lender = thread::spawn(move || {
            producer.retract(|_| true);
            GIVEN_BACK.load(Ordering::Acquire)
        });
        // Long enough for the lender to come to the wait; a slow one only makes
        // the test weaker.
        thread::sleep(std::time::Duration::from_millis(20));
        assert!(!lender.is_finished());
        GIVEN_BACK.store(true, Ordering::Release);
        consumer.release();
        assert!(
            lender.join().unwrap(),
            "returned before the entry came back"
        );
    }

    /// The producer frees each piece of memory right after retracting it; a
    /// consumer that still read it would see the poison (and miri the race).
    #[test]
    fn memory_may_be_freed_after_retract() {
        const ROUNDS: u64 = if cfg!(miri) { 50 } else { 5_000 };
        let (mut producer, mut consumer) = ring::<(u64, usize)>(8);
        let reader = thread::spawn(move || {
            while !consumer.is_closed() {
                while let Some((expected, address)) = consumer.take() {
                    let memory = std::ptr::with_exposed_provenance::<u64>(address);
                    // SAFETY: lent until `release`; that is what is tested.
                    assert_eq!(unsafe { memory.read_volatile() }, expected);
                }
                consumer.release();
                thread::yield_now();
            }
        });
        for round in 0..ROUNDS {
            let memory = Box::into_raw(Box::new(round));
            let address = memory.expose_provenance();
            while !producer.push((round, address)) {
                assert!(!producer.is_closed(), "the reader saw other bytes");
                thread::yield_now();
            }
            if round % 3 == 0 {
                thread::yield_now();
            }
            producer.retract(|entry| entry.1 == address);
            // SAFETY: made by `into_raw` above, and nobody reads it any more.
            unsafe {
                memory.write_volatile(u64::MAX);
                drop(Box::from_raw(memory));
            }
        }
        drop(producer);
        reader.join().unwrap();
    }
}
