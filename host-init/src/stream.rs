//! What a stream of a GPU does by itself, one step behind the other: kernels, and sends that lie in their rings already
//! (GPUDirect Async). [`Node::run_in_order`](crate::Node::run_in_order) takes the steps.

use std::marker::PhantomData;

use mlx5_wqe::{Doorbell, DoorbellRecord, QpNumber, WqeIndex};
use warpbell::SendDoorbell;

use crate::{Launch, QueuePair};

/// A step of a stream. It begins once the step before has ended.
#[derive(Clone, Copy, Debug)]
pub enum Step<'s> {
    /// Runs a kernel.
    Run(&'s Launch<'s>),
    /// Publishes WQEs: the stream writes the doorbell record, then the doorbell. What kernels before it stored is part
    /// of the WQEs' data. The step ends when both words are written; it does not wait for the NIC.
    Send(HeldSend<'s>),
    /// Waits for the CQE of the last of these WQEs, also for one that reports an error.
    Await(HeldSend<'s>),
}

/// WQEs in a send ring that the NIC has not heard of, and the words by which a stream publishes them and finds out that
/// they are done.
#[derive(Clone, Copy, Debug)]
pub struct HeldSend<'q> {
    /// Where the doorbell record lies and what goes there; none for a queue without one.
    pub(crate) record: Option<(u64, u32)>,
    /// The same of the doorbell.
    pub(crate) doorbell: (u64, u64),
    /// The last 8 bytes of the last WQE's CQE.
    pub(crate) tail: u64,
    /// The owner bit of that CQE.
    pub(crate) owner: bool,
    _queue: PhantomData<&'q QueuePair>,
}

impl HeldSend<'_> {
    /// The owner bit in the last 8 bytes of a CQE, of success or error. The entry had the other bit in the lap before,
    /// or since it was made.
    pub(crate) const OWNER: u64 = 1u64.to_be();
}

impl QueuePair {
    /// The WQEs that lie in the send ring before index `end`, for a stream to publish.
    ///
    /// # Safety
    /// The queue's completions are a ring as deep as that of its WQEs, and each WQE is signalled. The blocks before
    /// `end` are in the ring before a stream sends them, and nobody else publishes in the queue until the stream has.
    pub unsafe fn held_send(&self, end: u16) -> HeldSend<'_> {
        let parts = self.send_parts();
        let last = end.wrapping_sub(1);
        let slot = usize::from(last) & ((1 << parts.depth_log2) - 1);
        let record = (
            parts.record.expose_provenance() as u64,
            DoorbellRecord::word(end),
        );
        let qpn = QpNumber::from_low_bits(parts.qpn);
        let doorbell = Doorbell::of_producer(WqeIndex(end), qpn).0;
        // The last of the entry's words.
        let tail = parts
            .completions
            .ring
            .wrapping_add(slot)
            .cast::<u64>()
            .wrapping_add(7);
        HeldSend {
            record: (parts.send_doorbell == SendDoorbell::WithRecord).then_some(record),
            doorbell: (parts.doorbell.expose_provenance() as u64, doorbell),
            tail: tail.expose_provenance() as u64,
            owner: last >> parts.depth_log2 & 1 == 1,
            _queue: PhantomData,
        }
    }
}
