//! A driver written by hand: it posts WQEs and reads CQEs in plain view, so that
//! these tests rest on the layouts alone.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mlx5_wqe::{
    Completion, CqDoorbellRecord, Cqe64, DoorbellRecord, Local, ReceiveWqe, Wqe, WqeIndex,
    first_word,
};

use crate::QueuePair;
use warpbell::SendDoorbell;

/// One end's queues, with ordinary completions of the same depth.
pub struct Hand<'q> {
    pair: &'q QueuePair,
    posted: u16,
    received: u16,
    send_completions: u32,
    receive_completions: u32,
}

impl<'q> Hand<'q> {
    pub fn new(pair: &'q QueuePair) -> Self {
        Self {
            pair,
            posted: 0,
            received: 0,
            send_completions: 0,
            receive_completions: 0,
        }
    }

    /// Posts a WQE of one block and rings the doorbell; gives its index.
    pub fn post(&mut self, wqe: Wqe<1>) -> WqeIndex {
        let memory = self.pair.memory();
        let index = WqeIndex(self.posted);
        let qpn = mlx5_wqe::QpNumber::new(self.pair.qpn()).unwrap();
        let blocks = wqe.place(index, qpn);
        let slot = usize::from(self.posted) & ((1 << memory.config().send_depth_log2) - 1);
        self.posted = self.posted.wrapping_add(1);
        // SAFETY: the slot lies in the ring; record and doorbell are aligned words
        // of the queue pair's memory, which only this driver and the NIC use.
        unsafe {
            memory
                .send_ring()
                .cast::<mlx5_wqe::WqeBlock>()
                .add(slot)
                .write_volatile(blocks[0]);
            if memory.config().send_doorbell == SendDoorbell::WithRecord {
                // The WQE before the record, because the NIC reads up to the record.
                AtomicU32::from_ptr(memory.record().cast::<u32>().cast_mut().add(1))
                    .store(DoorbellRecord::word(self.posted), Ordering::Release);
            }
            // Record and WQE before the doorbell, because the doorbell makes the NIC look.
            AtomicU64::from_ptr(memory.doorbell().cast::<u64>().cast_mut())
                .store(first_word(&blocks), Ordering::Release);
        }
        index
    }

    /// Posts a receive WQE of one segment.
    pub fn post_receive(&mut self, local: Local) {
        let memory = self.pair.memory();
        let receive = memory.config().receive.unwrap();
        assert_eq!(
            receive.stride_log2, 0,
            "this driver scatters to one segment"
        );
        let slot = usize::from(self.received) & ((1 << receive.depth_log2) - 1);
        self.received = self.received.wrapping_add(1);
        let wqe = ReceiveWqe::<1>::single(local).to_octowords();
        // SAFETY: as in `post`.
        unsafe {
            memory
                .receive_ring()
                .cast::<mlx5_wqe::Octoword>()
                .add(slot)
                .write_volatile(wqe[0]);
            // The WQE before the record, because the NIC reads up to the record.
            AtomicU32::from_ptr(memory.record().cast::<u32>().cast_mut())
                .store(DoorbellRecord::word(self.received), Ordering::Release);
        }
    }

    /// The next completion of the send queue.
    pub fn poll(&mut self) -> Option<Completion> {
        let (ring, record) = self.pair.memory().send_completions();
        let depth_log2 = self.pair.memory().config().send_completions.depth_log2;
        let consumed = &mut self.send_completions;
        poll(ring.cast(), record.cast(), depth_log2, consumed)
    }

    /// The next completion of the receive queue.
    pub fn poll_receive(&mut self) -> Option<Completion> {
        let (ring, record) = self.pair.memory().receive_completions();
        let receive = self.pair.memory().config().receive.unwrap();
        let depth_log2 = receive.completions.depth_log2;
        let consumed = &mut self.receive_completions;
        poll(ring.cast(), record.cast(), depth_log2, consumed)
    }
}

fn poll(
    ring: *const u64,
    record: *const u32,
    depth_log2: u8,
    consumed: &mut u32,
) -> Option<Completion> {
    let depth = 1u32 << depth_log2;
    let slot = (*consumed & (depth - 1)) as usize;
    let owner = *consumed & depth != 0;
    // SAFETY: the slot lies in the ring, whose words the NIC writes one by one.
    let word = |index: usize| unsafe {
        AtomicU64::from_ptr(ring.add(slot * 8 + index).cast_mut()).load(Ordering::Acquire)
    };
    // The last word before the others, because the NIC writes it last.
    let last = word(7);
    let mut words = [0, 0, 0, 0, 0, 0, 0, last];
    if !Cqe64::from_words(words).tail().is_new(owner) {
        return None;
    }
    for (index, into) in words[..7].iter_mut().enumerate() {
        *into = word(index);
    }
    *consumed += 1;
    // SAFETY: the record is an aligned word of the queue pair's memory.
    unsafe { AtomicU32::from_ptr(record.cast_mut()) }.store(
        CqDoorbellRecord::consumer_word(*consumed),
        Ordering::Release,
    );
    Some(
        Cqe64::from_words(words)
            .decode()
            .expect("a CQE that is new says something"),
    )
}

/// Repeats `look` until it gives something, for at most five minutes; `between`
/// makes devices run that stand still by themselves.
pub fn wait<T>(what: &str, mut between: impl FnMut(), mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(300);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        between();
        std::thread::yield_now();
    }
}
