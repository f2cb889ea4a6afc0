//! The flush: what is posted to a queue pair in error completes in error (IBTA volume 1, 10.3.1).

use mlx5_wqe::segment::Control;
use zerocopy::FromBytes;

use super::memory::Memory;
use super::queue_pair::{Context, QueuePair};
use super::send_wqe::{FLUSH, SendWqe};
use super::wire::Wire;

impl QueuePair {
    /// Flushes up to `budget` WQEs of each queue; gives how many. In error only.
    pub(super) fn flush<M: Memory, W: Wire>(
        &mut self,
        cx: &mut Context<'_, '_, M, W>,
        budget: usize,
    ) -> usize {
        let depth = 1 << self.attributes.log_send_depth;
        if self.requester.producer.wrapping_sub(self.requester.tail) > depth {
            // The record claims more than the ring holds: each slot is flushed once.
            self.requester.producer = self.requester.tail.wrapping_add(depth);
        }
        let mut flushed = 0;
        while flushed < budget && self.requester.tail != self.requester.producer {
            if cx.completion_queues.is_dead(self.send_cq) {
                self.requester.tail = self.requester.producer;
                break;
            }
            let wqe = self.flushed_wqe(cx.memory);
            self.complete_send(cx, &wqe, Some(FLUSH));
            flushed += 1;
        }
        let sends = flushed;
        while flushed - sends < budget && self.has_receive(cx.memory) {
            if cx.completion_queues.is_dead(self.receive_cq) {
                self.responder.forget_receives();
                break;
            }
            self.fail_receive(cx, FLUSH);
            flushed += 1;
        }
        flushed
    }

    /// The WQE at the tail as far as its flush needs it. Its bytes are not trusted: a size that
    /// cannot be counts as one block, and none goes past the producer index.
    fn flushed_wqe<M: Memory>(&self, memory: &M) -> SendWqe {
        let index = self.requester.tail;
        let [start, _] = self.ring().ranges(index, 0, 16);
        let mut bytes = [0; 16];
        // SAFETY: the owner vouched for the ring when the queue pair was created.
        unsafe { memory.read(start.address, &mut bytes) };
        let control = Control::read_from_bytes(&bytes).ok();
        let posted = self.requester.producer.wrapping_sub(index).min(16) as u8;
        let mut wqe = SendWqe::unread(index);
        if let Some(control) = control {
            wqe.blocks = control.blocks().clamp(1, posted.max(1));
            wqe.opcode = control.opcode();
            wqe.flags = control.fm_ce_se;
        }
        wqe
    }
}
