//! The receive queue: what is posted, and how it completes.

use mlx5_wqe::segment::Data;
use mlx5_wqe::{CqeOpcode, DoorbellRecord, Local, Opcode as WqeOpcode, WqeIndex};
use zerocopy::FromBytes;

use super::Reject;
use crate::engine::command::{ErrorPlace, FirstError, MAX_LOG_RECEIVE_STRIDE, ReceiveRing};
use crate::engine::completion::Completion;
use crate::engine::memory::Memory;
use crate::engine::packet::{Header, PacketFlags};
use crate::engine::queue_pair::{Context, Failure, QueuePair};
use crate::engine::wire::Wire;

impl QueuePair {
    /// Whether a receive WQE is posted. Looks at the record when the ones known are used up.
    pub(in crate::engine) fn has_receive<M: Memory>(&mut self, memory: &M) -> bool {
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

    /// The data segments of the oldest receive WQE.
    pub(super) fn receive_segments<M: Memory>(
        &self,
        memory: &M,
    ) -> heapless::Vec<Local, { 1 << MAX_LOG_RECEIVE_STRIDE }> {
        let mut segments = heapless::Vec::new();
        let Some(ReceiveRing {
            ring,
            log_depth,
            log_stride,
        }) = self.attributes.receive
        else {
            return segments;
        };
        let slot = u64::from(self.responder.receive_tail) & ((1 << log_depth) - 1);
        let start = ring + (slot << (4 + log_stride));
        for entry in 0..1 << log_stride {
            let mut bytes = [0; 16];
            // SAFETY: the owner vouched for the ring when the queue pair was created.
            unsafe { memory.read(start + entry * 16, &mut bytes) };
            let Ok(data) = Data::read_from_bytes(&bytes) else {
                break;
            };
            if data.is_list_end() {
                break;
            }
            // There is room for the largest stride.
            let _ = segments.push(data.local());
        }
        segments
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
            error: None,
        };
        self.responder.receive_tail = self.responder.receive_tail.wrapping_add(1);
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
        self.responder.receive_tail = index.wrapping_add(1);
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
            error: Some((syndrome, vendor)),
        };
        // A dead queue has put this queue pair into error, where it is already.
        let _ = cx
            .completion_queues
            .post(cx.memory, self.receive_cq, &completion);
    }
}
