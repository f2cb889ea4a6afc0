//! A ring that is filled once: a post patches what changes in a WQE that lies there already.

use mlx5_wqe::{Opcode, Wqe, WqeIndex};
use warpbell_gpu::arch::{Reach, Word64};

use crate::Deadline;
use crate::error::{PostError, WaitError};
use crate::queue::lanes::Lanes;
use crate::queue::ledger::Ledger;
use crate::queue::{Exclusive, SendQueue, Thread, Ticket};
use crate::words::store_relaxed64;

/// A queue in each of whose slots the same WQE lies: [`SendQueue::ready`].
///
/// As GPUrdma proposes (Daoud, Watad and Silberstein 2016, WQE reuse). What differs from one post to the next is the
/// index, which repeats itself only after 2^16 blocks, and with [`post_to`](Self::post_to) the remote address: words of
/// 8 bytes, in place of 64 bytes that are built and stored. Flags stay as they are, because the slots in which a WQE is
/// signalled in any case are the same in every lap.
///
/// Until it is dropped the queue posts nothing else.
pub struct Ready<'q, 'a> {
    queue: &'q mut SendQueue<'a, Exclusive, Thread>,
    /// The WQE's first word, but for the index.
    first: u64,
    signalled: bool,
    /// Whether an address in the other end's memory stands behind the control segment, and of what it is a multiple.
    has_remote: bool,
    alignment: u64,
}

/// Words of 8 bytes in a block: the control segment's first one, and the remote address.
const CONTROL: usize = 0;
const REMOTE_ADDRESS: usize = 2;

impl<'a> SendQueue<'a, Exclusive, Thread> {
    /// Fills the ring with a WQE, once all that was posted before is done.
    ///
    /// # Errors
    /// What is wrong with the WQE; `Deadline` if what was posted is not done by then; the queue has failed. Nothing was
    /// posted then.
    #[inline(always)]
    pub fn ready(&mut self, wqe: Wqe<1>, deadline: Deadline) -> Result<Ready<'_, 'a>, PostError> {
        let template = Some(wqe);
        let group = self.gather(&template);
        let _ = self.answer(Ticket::NOTHING, &template, &group)?;
        // All slots are free then: the NIC has read what was posted.
        match self.drain(deadline) {
            Ok(()) => {}
            Err(WaitError::Failed(error)) => return Err(PostError::Failed(error)),
            Err(_) => return Err(PostError::Deadline),
        }
        let start = self.producer.ledger.published(self.producer.state);
        let before = self.signalled;
        for number in start..start + u64::from(self.depth()) {
            let marked = self.may_be_marked(number, 1);
            let _ = self.fill(number, marked, &template, &group);
        }
        // None of them is posted.
        self.signalled = before;
        let [block] = wqe.place(WqeIndex(0), self.qpn());
        Ok(Ready {
            first: block[0].0[0],
            signalled: wqe.is_signalled(),
            has_remote: has_remote(wqe.opcode()),
            alignment: wqe.atomic_target().map_or(1, |(_, size)| size as u64),
            queue: self,
        })
    }
}

impl Ready<'_, '_> {
    /// Posts the WQE and rings the doorbell; waits for room until the deadline.
    ///
    /// # Errors
    /// `Deadline`; the queue has failed. Nothing was posted then.
    #[inline(always)]
    pub fn post(&mut self, deadline: Deadline) -> Result<Ticket, PostError> {
        let start = self.queue.reserve_together(1, deadline)?;
        Ok(self.publish(start))
    }

    /// Posts the WQE with another remote address; the key stays. Without one it is [`post`](Self::post).
    ///
    /// # Errors
    /// As for [`post`](Self::post); `Misaligned` for an atomic's address.
    #[inline(always)]
    pub fn post_to(&mut self, address: u64, deadline: Deadline) -> Result<Ticket, PostError> {
        if address & (self.alignment - 1) != 0 {
            return Err(PostError::Misaligned { address });
        }
        let start = self.queue.reserve_together(1, deadline)?;
        if self.has_remote {
            self.store(start, REMOTE_ADDRESS, address.to_be());
        }
        Ok(self.publish(start))
    }

    /// Waits as [`SendQueue::wait`] does.
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn wait(&mut self, ticket: Ticket, deadline: Deadline) -> Result<(), WaitError> {
        self.queue.wait(ticket, deadline)
    }

    #[inline(always)]
    fn publish(&mut self, start: u64) -> Ticket {
        let ring = self.queue.producer.ring;
        let index = (ring.index(start).0 as u64) << 40;
        self.store(start, CONTROL, self.first | index.to_be());
        if self.signalled || ring.must_signal(start, 1) {
            self.queue.signalled = start + 1;
        }
        self.queue.publish(Some(start), start + 1, Lanes::alone());
        Ticket::of(start)
    }

    /// Stores a word of a block.
    #[inline(always)]
    fn store(&self, number: u64, word: usize, value: u64) {
        let first: *const Word64 = self.queue.slot(number).cast_const().cast();
        // SAFETY: a block is eight words. It is reserved and not yet published, so that neither the NIC nor another
        // thread touches it.
        let word = unsafe { &*first.add(word) };
        store_relaxed64(word, value, Reach::System);
    }
}

/// Whether WQEs of that kind have a remote address behind the control segment.
const fn has_remote(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::RDMA_WRITE
            | Opcode::RDMA_WRITE_IMMEDIATE
            | Opcode::RDMA_READ
            | Opcode::ATOMIC_COMPARE_SWAP
            | Opcode::ATOMIC_FETCH_ADD
            | Opcode::MASKED_COMPARE_SWAP
            | Opcode::MASKED_FETCH_ADD
    )
}
