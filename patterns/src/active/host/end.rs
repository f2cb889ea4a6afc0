//! One end of all lanes: its queue pairs, and the words that the other end writes.

use crate::active::{ActiveParts, STATE_WORDS};
use warpbell::{SendQueueHandle, Word64};

use super::ActiveConfig;
use crate::Error;
use warpbell_host_init::{
    Access, Buffer, MemoryRegion, Placement, ProtectionDomain, QueuePair, Shared,
};

/// Bytes that a lane keeps at each end.
const STATE: usize = 8 * STATE_WORDS;

#[derive(Debug)]
pub(super) struct End {
    /// In the order of the lanes.
    pub(super) pairs: Vec<QueuePair>,
    /// What `pairs` are to kernels; read once when a lane is opened.
    queues: Shared<[SendQueueHandle<'static>]>,
    /// In the kernels' own memory.
    states: Buffer,
    /// Answers with room for results, or slots, so many bytes for each lane.
    words: MemoryRegion,
    bytes: usize,
}

impl End {
    /// An end without connections, of whose words each lane has so many bytes.
    pub(super) fn new(
        domain: &ProtectionDomain,
        config: &ActiveConfig,
        bytes: usize,
    ) -> Result<Self, Error> {
        let placement = config.queue_pair.placement_in(domain);
        let shared = match placement {
            Placement::Gpu(gpu) => Placement::Pinned(gpu),
            host => host,
        };
        let lanes = config.lanes as usize;
        let pairs = (0..lanes).map(|_| domain.queue_pair(&config.queue_pair()));
        let words = Buffer::placed(placement, lanes * bytes)?;
        Ok(Self {
            pairs: pairs.collect::<Result<_, warpbell_host_init::Error>>()?,
            queues: Shared::slice(shared, lanes, |_| SendQueueHandle::none())?,
            states: Buffer::placed(config.queue_pair.states_in(domain), lanes * STATE)?,
            words: domain.register(words, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?,
            bytes,
        })
    }

    /// Tells kernels of a lane's queue, which is connected.
    pub(super) fn describe(&mut self, lane: usize) -> Result<(), Error> {
        let handle = self.pairs[lane].send_queue()?;
        // SAFETY: only the lifetime changes. The handle leaves through a kernels' handle alone, which borrows all of
        // this, and with it the queue pair.
        self.queues[lane] =
            unsafe { std::mem::transmute::<SendQueueHandle<'_>, SendQueueHandle<'static>>(handle) };
        Ok(())
    }

    /// Makes a lane's words as they were at first.
    pub(super) fn clear(&self, lane: usize) -> Result<(), Error> {
        self.states.write(lane * STATE, &[0; STATE])?;
        Ok(self.words.write(lane * self.bytes, &vec![0; self.bytes])?)
    }

    /// What this end's kernels are told, but for the buffers; the other end's words are `other`'s.
    pub(super) fn parts(&self, config: &ActiveConfig, other: &Self) -> ActiveParts<'_> {
        ActiveParts {
            lanes: config.lanes,
            slots_log2: config.slots.trailing_zeros(),
            max_result: config.max_result,
            queues: self.queues.as_ptr(),
            states: self.states.as_ptr().cast::<Word64>(),
            words: self.words.as_ptr().cast::<Word64>(),
            remote_address: other.words.address(),
            remote_key: other.words.rkey().0,
            buffers: 0,
            buffer_entries: std::ptr::null(),
        }
    }
}
