//! Shared receive queues: rings whose WQEs are a linked list, from which several queue pairs take.
//!
//! A WQE begins with a segment that names the next one ([`SrqNext`]). Its user appends to the list, in whatever order
//! the WQEs become free, and counts them in the doorbell record; the first is WQE 0. In a [cyclic](Topology::Cyclic)
//! queue the segment is there as well, and nobody reads it.

use mlx5_wqe::{DoorbellRecord, Octoword, SrqNext};

use super::command::{
    CommandError, MAX_LOG_QUEUE_DEPTH, MAX_LOG_RECEIVE_STRIDE, ProtectionDomain,
    SharedReceiveAttributes, SharedReceiveQueue, Topology,
};
use super::completion::{NUMBER_INDEX_BITS, next_generation, number_index};
use super::memory::Memory;

/// An entry of the engine's table of shared receive queues.
#[derive(Debug, Default)]
pub struct SharedReceiveSlot {
    generation: u8,
    queue: Option<Queue>,
}

#[derive(Debug)]
struct Queue {
    number: SharedReceiveQueue,
    attributes: SharedReceiveAttributes,
    /// Queue pairs that take from it.
    users: u32,
    /// The WQE at the list's front; of a cyclic queue's nothing.
    front: u16,
    /// WQEs taken, and posted as the record had it, both modulo 2¹⁶.
    taken: u16,
    posted: u16,
}

/// The table of shared receive queues.
#[derive(Debug)]
pub(super) struct SharedReceives<'t>(pub(super) &'t mut [SharedReceiveSlot]);

/// Where a receive WQE has its data segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceivePlace {
    /// Address of the first.
    pub(super) address: u64,
    /// How many there is room for.
    pub(super) segments: u8,
    pub(super) protection_domain: ProtectionDomain,
}

impl SharedReceives<'_> {
    pub(super) fn create(
        &mut self,
        attributes: &SharedReceiveAttributes,
    ) -> Result<SharedReceiveQueue, CommandError> {
        let ring = &attributes.ring;
        let strides = 1..=MAX_LOG_RECEIVE_STRIDE;
        if ring.log_depth > MAX_LOG_QUEUE_DEPTH || !strides.contains(&ring.log_stride) {
            return Err(CommandError::TooDeep);
        }
        if !ring.ring.is_multiple_of(16) || !attributes.record.is_multiple_of(8) {
            return Err(CommandError::Misaligned);
        }
        let index = self
            .0
            .iter()
            .take(1 << NUMBER_INDEX_BITS)
            .position(|slot| slot.queue.is_none())
            .ok_or(CommandError::TableFull)?;
        let slot = &mut self.0[index];
        slot.generation = next_generation(slot.generation);
        let number =
            SharedReceiveQueue(u32::from(slot.generation) << NUMBER_INDEX_BITS | index as u32);
        slot.queue = Some(Queue {
            number,
            attributes: *attributes,
            users: 0,
            front: 0,
            taken: 0,
            posted: 0,
        });
        Ok(number)
    }

    /// Takes a queue without users out of the table; gives its protection domain. None if there is no such queue.
    pub(super) fn destroy(
        &mut self,
        number: SharedReceiveQueue,
    ) -> Option<Result<ProtectionDomain, CommandError>> {
        let slot = self.0.get_mut(number_index(number.0))?;
        let queue = slot.queue.as_ref().filter(|queue| queue.number == number)?;
        if queue.users > 0 {
            return Some(Err(CommandError::InUse));
        }
        let domain = queue.attributes.protection_domain;
        slot.queue = None;
        Some(Ok(domain))
    }

    /// Counts one more user; false if there is no such queue.
    pub(super) fn hold(&mut self, number: SharedReceiveQueue) -> bool {
        let queue = self.queue(number);
        let known = queue.is_some();
        if let Some(queue) = queue {
            queue.users += 1;
        }
        known
    }

    /// Counts one user less.
    pub(super) fn release(&mut self, number: SharedReceiveQueue) {
        if let Some(queue) = self.queue(number) {
            queue.users -= 1;
        }
    }

    /// Takes the WQE at the list's front; gives its index, which a cyclic queue counts past its ring.
    pub(super) fn take<M: Memory>(
        &mut self,
        memory: &M,
        number: SharedReceiveQueue,
    ) -> Option<u16> {
        let queue = self.queue(number)?;
        if queue.taken == queue.posted {
            // SAFETY: the owner vouched for the record when the queue was created. Acquire: the
            // WQEs and their links were written before the record, and are read after it.
            let word = unsafe { memory.load_u32(queue.attributes.record) };
            queue.posted = DoorbellRecord::producer(word);
            if queue.taken == queue.posted {
                return None;
            }
        }
        let taken = queue.taken;
        queue.taken = taken.wrapping_add(1);
        if queue.attributes.topology == Topology::Cyclic {
            return Some(taken);
        }
        let index = queue.front;
        let mut bytes = [0; 16];
        // SAFETY: the owner vouched for the ring, in which the WQE lies.
        unsafe { memory.read(queue.wqe(index), &mut bytes) };
        let next = SrqNext::from_octoword(Octoword::from_bytes(bytes)).next_wqe_index;
        // Whatever the link says, what is read of it lies in the ring.
        queue.front = queue.attributes.ring.slot(next.get());
        Some(index)
    }

    /// Where a WQE that was taken has its segments.
    pub(super) fn place(&mut self, number: SharedReceiveQueue, index: u16) -> Option<ReceivePlace> {
        let queue = self.queue(number)?;
        Some(ReceivePlace {
            address: queue.wqe(index) + size_of::<SrqNext>() as u64,
            segments: (1 << queue.attributes.ring.log_stride) - 1,
            protection_domain: queue.attributes.protection_domain,
        })
    }

    fn queue(&mut self, number: SharedReceiveQueue) -> Option<&mut Queue> {
        let queue = self.0.get_mut(number_index(number.0))?.queue.as_mut();
        queue.filter(|queue| queue.number == number)
    }
}

impl Queue {
    /// Address of a WQE.
    const fn wqe(&self, index: u16) -> u64 {
        let ring = &self.attributes.ring;
        ring.ring + ((ring.slot(index) as u64) << (4 + ring.log_stride))
    }
}
