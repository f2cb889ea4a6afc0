//! The commands: objects made, changed, asked about and destroyed. Each acts at once.

use mlx5_wqe::{CqNumber, LocalKey, QpNumber, Syndrome, VendorCode};

use super::Engine;
use super::command::{
    Access, CommandError, CompletionQueueAttributes, Counters, CqeSize, Keys, MAX_LOG_QUEUE_DEPTH,
    MAX_LOG_RECEIVE_STRIDE, ProtectionDomain, QueuePairAttributes, QueuePairOptions,
    QueuePairState, QueuePairStatus, SendDoorbell, SharedReceiveAttributes, SharedReceiveQueue,
    Transition,
};
use super::completion::{NUMBER_INDEX_BITS, next_generation, number_index};
use super::memory::Memory;
use super::packet::Range;
use super::queue_pair::QueuePair;
use super::wire::{Retract, Wire};

impl<M: Memory, W: Wire> Engine<'_, M, W> {
    /// Creates a protection domain.
    pub fn create_protection_domain(&mut self) -> Result<ProtectionDomain, CommandError> {
        self.protection_domains.create()
    }

    /// Destroys a protection domain that no memory and no queue pair uses.
    pub fn destroy_protection_domain(&mut self, pd: ProtectionDomain) -> Result<(), CommandError> {
        self.protection_domains.destroy(pd)
    }

    /// Registers `length` bytes from `address`.
    ///
    /// # Safety
    ///
    /// The range must be valid for what `access` allows until it is deregistered.
    pub unsafe fn register_memory(
        &mut self,
        pd: ProtectionDomain,
        address: u64,
        length: u64,
        access: Access,
    ) -> Result<Keys, CommandError> {
        self.protection_domains.hold(pd)?;
        let keys = self.regions.register(pd, Range { address, length }, access);
        if keys.is_err() {
            self.protection_domains.release(pd);
        }
        keys
    }

    /// Changes what a key opens, as if it had been registered so: nobody touches what it opened before when this
    /// returns.
    ///
    /// # Safety
    ///
    /// As of [`register_memory`](Self::register_memory).
    pub unsafe fn change_memory(
        &mut self,
        key: LocalKey,
        pd: ProtectionDomain,
        address: u64,
        length: u64,
        access: Access,
    ) -> Result<(), CommandError> {
        self.protection_domains.hold(pd)?;
        let changed = self
            .regions
            .change(key, pd, Range { address, length }, access);
        let Ok(old) = changed else {
            self.protection_domains.release(pd);
            return changed.map(|_| ());
        };
        self.protection_domains.release(old.protection_domain);
        self.wire.retract(Retract::Payload(old.range));
        Ok(())
    }

    /// Deregisters memory: its keys mean nothing any more, and nobody touches it when this
    /// returns.
    pub fn deregister_memory(&mut self, key: LocalKey) -> Result<(), CommandError> {
        let region = self.regions.deregister(key)?;
        self.protection_domains.release(region.protection_domain);
        // Packets not yet taken by their receiver may borrow it.
        self.wire.retract(Retract::Payload(region.range));
        Ok(())
    }

    /// Creates a completion queue.
    ///
    /// # Safety
    ///
    /// Ring, record and UAR page must be valid until the queue is destroyed.
    pub unsafe fn create_completion_queue(
        &mut self,
        attributes: &CompletionQueueAttributes,
    ) -> Result<CqNumber, CommandError> {
        // SAFETY: the caller's promise is passed on unchanged.
        unsafe { self.create_completion_queue_with(attributes, CqeSize::default()) }
    }

    /// The same, with entries of either size: no [`Command`](super::Command) carries it.
    ///
    /// # Safety
    ///
    /// As of [`create_completion_queue`](Self::create_completion_queue).
    pub unsafe fn create_completion_queue_with(
        &mut self,
        attributes: &CompletionQueueAttributes,
        cqe_size: CqeSize,
    ) -> Result<CqNumber, CommandError> {
        self.completion_queues.check(attributes, cqe_size)?;
        let uar = attributes
            .uar
            .map(|page| self.uars.hold(page))
            .transpose()?;
        let (number, index) = self.completion_queues.create(attributes, cqe_size, uar)?;
        if let Some(uar) = uar {
            self.uars
                .add_completion_queue(uar, &mut self.completion_queues, index);
        }
        Ok(number)
    }

    /// Destroys a completion queue that no queue pair uses.
    pub fn destroy_completion_queue(&mut self, cq: CqNumber) -> Result<(), CommandError> {
        let (index, uar) = self.completion_queues.destroy(cq)?;
        if let Some(uar) = uar {
            self.uars
                .remove_completion_queue(uar, &mut self.completion_queues, index);
        }
        self.tell_waiting();
        Ok(())
    }

    /// Creates a shared receive queue. Only an engine that was
    /// [lent a table](Self::lend_shared_receive_queues) for them has any.
    ///
    /// # Safety
    ///
    /// Ring and record must be valid until the queue is destroyed.
    pub unsafe fn create_shared_receive_queue(
        &mut self,
        attributes: &SharedReceiveAttributes,
    ) -> Result<SharedReceiveQueue, CommandError> {
        self.protection_domains.hold(attributes.protection_domain)?;
        self.shared_receives.create(attributes).inspect_err(|_| {
            self.protection_domains
                .release(attributes.protection_domain);
        })
    }

    /// Destroys a shared receive queue that no queue pair uses.
    pub fn destroy_shared_receive_queue(
        &mut self,
        queue: SharedReceiveQueue,
    ) -> Result<(), CommandError> {
        let domain = self
            .shared_receives
            .destroy(queue)
            .ok_or(CommandError::NoSharedReceiveQueue)??;
        self.protection_domains.release(domain);
        Ok(())
    }

    /// Creates a queue pair, in RESET.
    ///
    /// # Safety
    ///
    /// Rings, record and UAR page must be valid until the queue pair is destroyed.
    pub unsafe fn create_queue_pair(
        &mut self,
        attributes: &QueuePairAttributes,
    ) -> Result<QpNumber, CommandError> {
        // SAFETY: the caller's promise is passed on unchanged.
        unsafe { self.create_queue_pair_with(attributes, &QueuePairOptions::default()) }
    }

    /// The same, with more than a queue pair of every engine has: no [`Command`](super::Command) carries it.
    ///
    /// # Safety
    ///
    /// As of [`create_queue_pair`](Self::create_queue_pair).
    pub unsafe fn create_queue_pair_with(
        &mut self,
        attributes: &QueuePairAttributes,
        options: &QueuePairOptions,
    ) -> Result<QpNumber, CommandError> {
        if attributes.log_send_depth > MAX_LOG_QUEUE_DEPTH {
            return Err(CommandError::TooDeep);
        }
        let mut aligned =
            attributes.send_ring.is_multiple_of(64) && attributes.record.is_multiple_of(8);
        if let Some(receive) = attributes.receive {
            if receive.log_depth > MAX_LOG_QUEUE_DEPTH
                || receive.log_stride > MAX_LOG_RECEIVE_STRIDE
            {
                return Err(CommandError::TooDeep);
            }
            aligned &= receive.ring.is_multiple_of(16);
        }
        if !aligned {
            return Err(CommandError::Misaligned);
        }
        let send_cq = self.completion_queues.index(attributes.send_cq)?;
        let receive_cq = self.completion_queues.index(attributes.receive_cq)?;
        let index = self
            .queue_pairs
            .iter()
            .take(1 << NUMBER_INDEX_BITS)
            .position(|slot| slot.pair.is_none())
            .ok_or(CommandError::TableFull)?;
        self.protection_domains.hold(attributes.protection_domain)?;
        let uar = self.uars.hold(attributes.uar).inspect_err(|_| {
            self.protection_domains
                .release(attributes.protection_domain)
        })?;
        let without_record = attributes.send_doorbell == SendDoorbell::WithoutRecord;
        let claimed = match without_record {
            true => self.uars.claim(uar),
            false => Ok(()),
        };
        let held = claimed.and_then(|()| match options.shared_receive_queue {
            Some(queue) if !self.shared_receives.hold(queue) => {
                if without_record {
                    self.uars.disclaim(uar);
                }
                Err(CommandError::NoSharedReceiveQueue)
            }
            _ => Ok(()),
        });
        if let Err(error) = held {
            self.uars.release(uar);
            self.protection_domains
                .release(attributes.protection_domain);
            return Err(error);
        }
        self.completion_queues.hold(send_cq);
        self.completion_queues.hold(receive_cq);
        let slot = &mut self.queue_pairs[index];
        slot.generation = next_generation(slot.generation);
        let number =
            QpNumber::from_low_bits(u32::from(slot.generation) << NUMBER_INDEX_BITS | index as u32);
        slot.pair = Some(QueuePair::new(
            number,
            (attributes, options),
            uar,
            send_cq,
            receive_cq,
        ));
        self.used = self.used.max(index + 1);
        Ok(number)
    }

    /// Destroys a queue pair. Its unfinished WQEs complete no more.
    pub fn destroy_queue_pair(&mut self, qp: QpNumber) -> Result<(), CommandError> {
        let index = self.index(qp)?;
        let (Some(pair), mut cx) = self.split(index) else {
            return Err(CommandError::NoQueuePair);
        };
        pair.forget_packets(&mut cx);
        let (uar, pd) = (pair.uar, pair.attributes.protection_domain);
        let shared = pair.options.shared_receive_queue;
        let doorbell = pair.attributes.send_doorbell;
        let queues = [pair.send_cq, pair.receive_cq];
        for queue in queues {
            self.completion_queues.release(queue);
        }
        if let Some(queue) = shared {
            self.shared_receives.release(queue);
        }
        self.protection_domains.release(pd);
        self.uars.remove_queue_pair(uar, self.queue_pairs, index);
        if doorbell == SendDoorbell::WithoutRecord {
            self.uars.disclaim(uar);
        }
        self.uars.release(uar);
        self.queue_pairs[index as usize].pair = None;
        self.wake_waiting();
        Ok(())
    }

    /// Takes a queue pair from one state to another.
    pub fn modify_queue_pair(
        &mut self,
        qp: QpNumber,
        transition: Transition,
    ) -> Result<(), CommandError> {
        let index = self.index(qp)?;
        let (Some(pair), mut cx) = self.split(index) else {
            return Err(CommandError::NoQueuePair);
        };
        pair.modify(&mut cx, transition)?;
        let (uar, state) = (pair.uar, pair.state);
        // In error, what is posted is flushed without a further doorbell.
        if state == QueuePairState::Error {
            pair.look_at_record(cx.memory);
            self.active
                .push(self.queue_pairs, index, |slot| &mut slot.active);
        }
        // Elsewhere doorbells are ignored.
        if matches!(state, QueuePairState::ReadyToSend | QueuePairState::Error) {
            self.uars
                .add_queue_pair(&self.memory, uar, self.queue_pairs, index);
        } else {
            self.uars.remove_queue_pair(uar, self.queue_pairs, index);
        }
        if state == QueuePairState::Reset {
            self.wake_waiting();
        }
        Ok(())
    }

    /// Sets the key that datagrams to a queue pair must carry, and that those from it carry whose address vector leaves
    /// it to the queue pair (bit 31 of its key). RESET forgets it.
    pub fn set_q_key(&mut self, qp: QpNumber, q_key: u32) -> Result<(), CommandError> {
        let index = self.index(qp)?;
        if let (Some(pair), _) = self.split(index) {
            pair.q_key = q_key;
        }
        Ok(())
    }

    /// Sets what peers may do through a queue pair, in any state. RESET forgets it.
    pub fn set_access(&mut self, qp: QpNumber, access: Access) -> Result<(), CommandError> {
        let index = self.index(qp)?;
        if let (Some(pair), _) = self.split(index) {
            pair.access = access;
        }
        Ok(())
    }

    /// Sets how long a peer shall wait that finds no receive, in any state. RESET forgets it.
    pub fn set_min_rnr_timer(&mut self, qp: QpNumber, ns: u32) -> Result<(), CommandError> {
        let index = self.index(qp)?;
        if let (Some(pair), _) = self.split(index) {
            pair.responder.min_rnr_timer_ns = ns;
        }
        Ok(())
    }

    /// State, counters and first error of a queue pair.
    pub fn query_queue_pair(&self, qp: QpNumber) -> Result<QueuePairStatus, CommandError> {
        let slot = &self.queue_pairs[self.index(qp)? as usize];
        slot.pair
            .as_ref()
            .map(QueuePair::status)
            .ok_or(CommandError::NoQueuePair)
    }

    /// The counters of a queue pair, where they lie until it is destroyed.
    pub fn counters(&self, qp: QpNumber) -> Result<&Counters, CommandError> {
        let slot = &self.queue_pairs[self.index(qp)? as usize];
        let pair = slot.pair.as_ref().ok_or(CommandError::NoQueuePair)?;
        Ok(&pair.counters)
    }

    /// Makes the `count`-th send WQE from now on (0 is the next to be fetched) fail with this
    /// syndrome and vendor code, unexecuted. A second call replaces the first; RESET forgets it.
    pub fn fail_send(
        &mut self,
        qp: QpNumber,
        count: u32,
        syndrome: Syndrome,
        vendor: VendorCode,
    ) -> Result<(), CommandError> {
        let index = self.index(qp)?;
        if let (Some(pair), _) = self.split(index) {
            pair.requester.inject(count, (syndrome, vendor));
        }
        Ok(())
    }

    /// Makes a completion queue behave as if it were full when its next CQE comes.
    pub fn overrun_completion_queue(&mut self, cq: CqNumber) -> Result<(), CommandError> {
        self.completion_queues.fill(cq)
    }

    /// The table index of a queue pair.
    pub(super) fn index(&self, number: QpNumber) -> Result<u32, CommandError> {
        let index = number_index(number.get());
        self.queue_pairs
            .get(index)
            .and_then(|slot| slot.pair.as_ref())
            .filter(|pair| pair.number == number)
            .map(|_| index as u32)
            .ok_or(CommandError::NoQueuePair)
    }
}
