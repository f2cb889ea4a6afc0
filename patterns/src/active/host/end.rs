//! One end of all lanes: its queue pairs, and the words that the other end writes.

use crate::active::{ActiveParts, SLOT_BYTES, STATE_WORDS, answer_bytes};
use warpbell::{SendQueueHandle, Word64};

use super::ActiveConfig;
use super::registry::Table;
use crate::Error;
use warpbell_host_init::{Access, Buffer, MemoryRegion, ProtectionDomain, QueuePair, Shared};

/// Bytes that a lane keeps at each end.
const STATE: usize = 8 * STATE_WORDS;

/// Where an end has its words: their address, and the key for them.
pub(super) type Place = (u64, u32);

#[derive(Debug)]
pub(super) struct End {
    config: ActiveConfig,
    /// In the order of the lanes.
    pairs: Vec<QueuePair>,
    /// What `pairs` are to kernels; read once when a lane is opened.
    queues: Shared<[SendQueueHandle<'static>]>,
    /// In the kernels' own memory.
    states: Buffer,
    /// Answers with room for results, or slots, so many bytes for each lane.
    words: MemoryRegion,
    bytes: usize,
    /// The other end's words.
    remote: Place,
}

impl End {
    /// An initiator's end, whose words are answers. There is a connected queue pair for each lane.
    pub(super) fn of_initiator(
        domain: &ProtectionDomain,
        config: &ActiveConfig,
        pairs: Vec<QueuePair>,
    ) -> Result<Self, Error> {
        Self::new(domain, config, pairs, answer_bytes(config.max_result))
    }

    /// A target's end, whose words are slots.
    pub(super) fn of_target(
        domain: &ProtectionDomain,
        config: &ActiveConfig,
        pairs: Vec<QueuePair>,
    ) -> Result<Self, Error> {
        Self::new(domain, config, pairs, SLOT_BYTES)
    }

    /// An end with so many bytes of words for each slot.
    fn new(
        domain: &ProtectionDomain,
        config: &ActiveConfig,
        pairs: Vec<QueuePair>,
        bytes: u64,
    ) -> Result<Self, Error> {
        let bytes = config.slots as usize * bytes as usize;
        let placement = config.queue_pair.placement_in(domain);
        let lanes = pairs.len();
        let words = Buffer::placed(placement, lanes * bytes)?;
        let mut end = Self {
            config: *config,
            pairs,
            queues: Shared::slice(placement.of_host(), lanes, |_| SendQueueHandle::none())?,
            states: Buffer::placed(config.queue_pair.states_in(domain), lanes * STATE)?,
            words: domain.register(words, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?,
            bytes,
            remote: (0, 0),
        };
        (0..lanes).try_for_each(|lane| end.describe(lane))?;
        Ok(end)
    }

    /// Where the words of this end are.
    pub(super) fn place(&self) -> Place {
        (self.words.address(), self.words.rkey().0)
    }

    /// Learns where the other end has its words. Before, no kernel may have this end.
    pub(super) fn set_remote(&mut self, remote: Place) {
        self.remote = remote;
    }

    /// In the order of the lanes.
    pub(super) fn pairs(&self) -> &[QueuePair] {
        &self.pairs
    }

    /// Takes a connected queue pair for a lane, in place of the one before, and makes the lane's words as they were at
    /// first.
    pub(super) fn renew(&mut self, lane: usize, pair: QueuePair) -> Result<(), Error> {
        self.pairs[lane] = pair;
        self.describe(lane)?;
        self.states.write(lane * STATE, &[0; STATE])?;
        Ok(self.words.write(lane * self.bytes, &vec![0; self.bytes])?)
    }

    /// Lets a lane fail, as an error would.
    #[cfg(test)]
    pub(super) fn break_lane(&mut self, lane: usize) {
        self.pairs[lane].to_error().expect("a device");
    }

    /// Tells kernels of a lane's queue.
    fn describe(&mut self, lane: usize) -> Result<(), Error> {
        let handle = self.pairs[lane].send_queue()?;
        // SAFETY: only the lifetime changes. The handle leaves through a kernels' handle alone, which borrows all of
        // this, and with it the queue pair.
        self.queues[lane] =
            unsafe { std::mem::transmute::<SendQueueHandle<'_>, SendQueueHandle<'static>>(handle) };
        Ok(())
    }

    /// What this end's kernels are told, with the target's buffers as in this table.
    pub(super) fn parts<'a>(&'a self, buffers: &'a Table) -> ActiveParts<'a> {
        ActiveParts {
            lanes: self.config.lanes,
            slots_log2: self.config.slots.trailing_zeros(),
            max_result: self.config.max_result,
            queues: self.queues.as_ptr(),
            states: self.states.as_ptr().cast::<Word64>(),
            words: self.words.as_ptr().cast::<Word64>(),
            remote_address: self.remote.0,
            remote_key: self.remote.1,
            buffers: self.config.buffers,
            buffer_entries: buffers.first().cast(),
        }
    }
}
