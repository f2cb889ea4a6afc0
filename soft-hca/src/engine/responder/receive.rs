//! The receive queue: what is posted, and how it completes.

use mlx5_wqe::segment::Data;
use mlx5_wqe::{CqeOpcode, DoorbellRecord, Local, Opcode as WqeOpcode, WqeIndex};
use zerocopy::FromBytes;

use super::{Reject, datagram};
use crate::engine::command::{ErrorPlace, FirstError, MAX_LOG_RECEIVE_STRIDE, ProtectionDomain};
use crate::engine::completion::Completion;
use crate::engine::memory::Memory;
use crate::engine::packet::{Header, PacketFlags};
use crate::engine::queue_pair::{Context, QueuePair};
use crate::engine::send_wqe::Failure;
use crate::engine::shared_receive::ReceivePlace;
use crate::engine::wire::Wire;

/// The data segments of a receive WQE.
pub(super) type Segments = heapless::Vec<Local, { 1 << MAX_LOG_RECEIVE_STRIDE }>;

impl QueuePair {
    /// Whether a receive WQE is posted; of a shared queue, whether one was taken. Looks at the record when the ones known are used up.
    pub(in crate::engine) fn has_receive<M: Memory>(&mut self, memory: &M) -> bool {
        if self.options.shared_receive_queue.is_some() {
            return self.responder.in_hand;
        }
        if self.attributes.receive.is_none() {
            return false;
        }
        let responder = &mut self.responder;
        if responder.receive_tail == responder.receive_producer {
            // SAFETY: the owner vouched for the record when the queue pair was created. Acquire:
            // the WQEs were written before the record, and are read after it.
            let word = unsafe { memory.load_u32(self.attributes.record) };
            responder.receive_producer = DoorbellRecord::producer(word);
        }
        responder.receive_tail != responder.receive_producer
    }

    /// Whether there is a receive WQE for a message, taken off the shared queue where there is one.
    pub(super) fn take_receive<M: Memory, W: Wire>(
        &mut self,
        cx: &mut Context<'_, '_, M, W>,
    ) -> bool {
        let Some(queue) = self.options.shared_receive_queue else {
            return self.has_receive(cx.memory);
        };
        // A message of several packets keeps the one that its first took.
        if !self.responder.in_hand
            && let Some(index) = cx.shared_receives.take(cx.memory, queue)
        {
            self.responder.receive_tail = index;
            self.responder.in_hand = true;
        }
        self.responder.in_hand
    }

    /// Where the receive WQE in use has its data segments.
    fn receive_place<M, W>(&self, cx: &mut Context<'_, '_, M, W>) -> Option<ReceivePlace> {
        let index = self.responder.receive_tail;
        if let Some(queue) = self.options.shared_receive_queue {
            return cx.shared_receives.place(queue, index);
        }
        let ring = self.attributes.receive?;
        let slot = u64::from(index) & ((1 << ring.log_depth) - 1);
        Some(ReceivePlace {
            address: ring.ring + (slot << (4 + ring.log_stride)),
            segments: 1 << ring.log_stride,
            protection_domain: self.attributes.protection_domain,
        })
    }

    /// The data segments of the receive WQE in use, and the protection domain of their keys.
    pub(super) fn receive_segments<M: Memory, W>(
        &self,
        cx: &mut Context<'_, '_, M, W>,
    ) -> (Segments, ProtectionDomain) {
        let mut segments = Segments::new();
        let Some(place) = self.receive_place(cx) else {
            return (segments, self.attributes.protection_domain);
        };
        for entry in 0..u64::from(place.segments) {
            let mut bytes = [0; 16];
            // SAFETY: the owner vouched for the ring when the queue was created.
            unsafe { cx.memory.read(place.address + entry * 16, &mut bytes) };
            let Ok(data) = Data::read_from_bytes(&bytes) else {
                break;
            };
            if data.is_list_end() {
                break;
            }
            // There is room for the largest stride.
            let _ = segments.push(data.local());
        }
        (segments, place.protection_domain)
    }

    /// Moves past the receive WQE in use.
    fn pass_receive(&mut self) {
        if self.options.shared_receive_queue.is_some() {
            self.responder.in_hand = false;
        } else {
            self.responder.receive_tail = self.responder.receive_tail.wrapping_add(1);
        }
    }

    /// Writes the CQE of the oldest receive WQE and moves past it.
    pub(super) fn complete_receive<M: Memory, W: Wire>(
        &mut self,
        cx: &mut Context<'_, '_, M, W>,
        header: &Header,
        opcode: CqeOpcode,
        length: u32,
    ) -> Result<(), Reject> {
        let completion = Completion {
            qpn: self.number,
            opcode,
            wqe_opcode: WqeOpcode::NOP,
            wqe_counter: self.responder.receive_tail,
            byte_count: length,
            immediate: header.immediate,
            solicited: header.flags().contains(PacketFlags::SOLICITED),
            user_index: self.options.user_index,
            source: datagram::source(header),
            error: None,
        };
        self.pass_receive();
        let posted = cx
            .completion_queues
            .post(cx.memory, self.receive_cq, &completion);
        if posted.is_err() {
            self.fail_for_completion_queue(cx);
            return Err(Reject::Gone);
        }
        self.counters.received += 1;
        Ok(())
    }

    /// Fails the oldest receive WQE, and with it the queue pair.
    pub(in crate::engine) fn fail_receive<M: Memory, W: Wire>(
        &mut self,
        cx: &mut Context<'_, '_, M, W>,
        (syndrome, vendor): Failure,
    ) {
        let index = self.responder.receive_tail;
        self.pass_receive();
        self.counters.errors += 1;
        let error = FirstError {
            syndrome,
            vendor,
            place: ErrorPlace::Receive(WqeIndex(index)),
        };
        self.enter_error(cx, error);
        let completion = Completion {
            qpn: self.number,
            opcode: CqeOpcode::RESPONDER_ERROR,
            wqe_opcode: WqeOpcode::NOP,
            wqe_counter: index,
            byte_count: 0,
            immediate: 0,
            solicited: false,
            user_index: self.options.user_index,
            source: 0,
            error: Some((syndrome, vendor)),
        };
        // A dead queue has put this queue pair into error, where it is already.
        let _ = cx
            .completion_queues
            .post(cx.memory, self.receive_cq, &completion);
    }
}
