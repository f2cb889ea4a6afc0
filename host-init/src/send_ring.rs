//! A queue pair's send queue as its owner sees it, for crates that build patterns on queue pairs.

use crate::{Error, Placement, QueuePair};

/// Bytes of a WQE's basic block and of a CQE.
const BLOCK: usize = 64;

impl QueuePair {
    /// Where its queues are.
    pub fn placement(&self) -> Placement {
        self.config().placement
    }

    /// Where the state of its queues is, which kernels alone use.
    pub fn state_placement(&self) -> Placement {
        self.config().state_placement
    }

    /// Whether other queues start its send queue: [`managed_send`](crate::QueuePairConfig::managed_send).
    pub fn is_managed(&self) -> bool {
        self.config().managed_send
    }

    /// Whether its send queue may wait for others and start them:
    /// [`cross_channel`](crate::QueuePairConfig::cross_channel).
    pub fn is_cross_channel(&self) -> bool {
        self.config().cross_channel
    }

    /// Whether its doorbell register is a card's own.
    pub fn has_register(&self) -> bool {
        self.send_register().is_some()
    }

    /// Refuses queues, or a doorbell, that a CPU does not reach.
    ///
    /// # Errors
    /// [`Error::OutOfReach`], which names `what` was to be in host memory.
    pub fn require_in_host_memory(&self, what: &'static str) -> Result<(), Error> {
        match self.memory().out_of_reach() {
            None => Ok(()),
            Some(placement) => Err(Error::OutOfReach { what, placement }),
        }
    }

    /// The send queue's producer index as the NIC finds it; none on a GPU that is lost.
    pub fn send_producer(&self) -> Option<u16> {
        Some(self.memory().sends(self.qpn())?.producer)
    }

    /// The CQEs of the send queue as they are now, written or not.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the GPU is lost.
    pub fn read_send_completions(&self) -> Result<Vec<[u8; BLOCK]>, Error> {
        self.memory().read_send_completions()
    }

    /// Stores a block of the send ring.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the GPU is lost.
    ///
    /// # Safety
    /// The NIC does not own the block, and no kernel stores to the ring meanwhile.
    pub unsafe fn write_send(&self, slot: usize, block: &[u8; BLOCK]) -> Result<(), Error> {
        self.memory().write_send(slot, block)
    }

    /// Stores the send queue's word of the doorbell record, then rings the doorbell with these words, as kernels would.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the GPU is lost.
    ///
    /// # Safety
    /// All blocks before the words' index are in the ring, and no kernel has the queue open meanwhile.
    pub unsafe fn publish(&self, record: u32, doorbell: u64) -> Result<(), Error> {
        self.memory().publish(record, doorbell)
    }
}
