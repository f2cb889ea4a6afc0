//! An initiator's end, with what its kernels know of the target's buffers.

use crate::active::{BufferEntry, InitiatorHandle};

use super::ActiveConfig;
use super::end::End;
use super::registry::Table;
use crate::Error;
use warpbell_host_init::{ProtectionDomain, QueuePair};

#[derive(Debug)]
pub(super) struct Initiator {
    pub(super) end: End,
    buffers: Table,
    max_message: u32,
}

impl Initiator {
    /// With a connected queue pair for each lane, and no buffers.
    pub(super) fn new(
        domain: &ProtectionDomain,
        config: &ActiveConfig,
        pairs: Vec<QueuePair>,
    ) -> Result<Self, Error> {
        Ok(Self {
            end: End::of_initiator(domain, config, pairs)?,
            buffers: Table::of_buffers(domain, config)?,
            max_message: config.queue_pair.max_message,
        })
    }

    /// Tells kernels of a buffer of the target.
    pub(super) fn describe(&mut self, buffer: usize, entry: BufferEntry) -> Result<(), Error> {
        self.buffers.set(buffer, &entry.to_words())
    }

    pub(super) fn handle(&self) -> InitiatorHandle<'_> {
        let parts = self.end.parts(&self.buffers);
        // SAFETY: queues, states and words have a place for each lane, in memory that `self` owns, and the table one for
        // each buffer; they change through `&mut self` only. The queue pairs are not handed out.
        unsafe { InitiatorHandle::new(parts, self.max_message) }
    }
}
