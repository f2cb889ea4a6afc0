//! What the responder sends (IBTA volume 1, 9.7.5): answers first, then the refusal or the acknowledgement that follows
//! them.

use mlx5_wqe::{Syndrome, VendorCode};
use warpbell_gpu::trace;

use crate::engine::memory::Memory;
use crate::engine::packet::{Header, Opcode, PacketFlags, Range, Refusal, payload_length};
use crate::engine::psn;
use crate::engine::queue_pair::{Context, QueuePair};
use crate::engine::receiving::{Answer, Due};
use crate::engine::wire::{Busy, Wire};

impl QueuePair {
    /// Sends up to `budget` packets of answers, then the refusal and the acknowledgement that are
    /// due; gives how many packets went out.
    pub(in crate::engine) fn send_answers<M: Memory, W: Wire>(
        &mut self,
        cx: &mut Context<'_, '_, M, W>,
        budget: usize,
    ) -> usize {
        let mut sent = 0;
        while let Some(due) = self.responder.answers.front().copied() {
            let Due { answer, .. } = due;
            if sent == budget {
                return sent;
            }
            let mut header = self.header(cx.address, Opcode::AtomicResponse, answer.psn());
            header.msn = due.msn;
            let mut flags = PacketFlags::LAST;
            flags.set(PacketFlags::FIRST, due.first);
            let mut payload = None;
            match answer {
                Answer::Atomic { value, .. } => header.operands[0] = value,
                // 9.7.5.1.3.
                Answer::Read { range, rkey, .. } => {
                    // Again for each packet: the memory may be deregistered at any time.
                    if !self.may_read(cx, rkey, range) {
                        self.responder.answers.clear();
                        self.responder.refusal = Some((Refusal::RemoteAccess, answer.psn()));
                        self.fail_for_peer(
                            cx,
                            (Syndrome::REMOTE_ACCESS, VendorCode::REMOTE_ACCESS),
                        );
                        break;
                    }
                    header.opcode = Opcode::ReadResponse as u8;
                    let last = range.length <= u64::from(self.limits.mtu);
                    flags.set(PacketFlags::LAST, last);
                    payload = Some(Range {
                        address: range.address,
                        length: range.length.min(u64::from(self.limits.mtu)),
                    });
                }
            }
            header.flags = flags.bits();
            let payload = payload.filter(|range| range.length > 0);
            if payload.is_some() {
                // What came before the READ, before what it takes.
                cx.memory.settle();
            }
            // SAFETY: the range was just checked against registered memory, and is retracted when
            // that is deregistered.
            if unsafe { self.answer(cx, &header, payload.as_slice()) }.is_err() {
                return sent;
            }
            sent += 1;
            self.answer_sent();
        }
        // Only now: an acknowledgement or refusal means that all before it was answered (9.7.5.1.2).
        if let Some((refusal, psn)) = self.responder.refusal {
            let mut header = self.header(cx.address, Opcode::Refuse, psn);
            header.msn = self.responder.msn;
            header.detail = refusal as u8;
            header.length = self.responder.min_rnr_timer_ns;
            // SAFETY: there is no payload.
            if unsafe { self.answer(cx, &header, &[]) }.is_err() {
                return sent;
            }
            self.responder.refusal = None;
            self.responder.acknowledge = false;
            sent += 1;
        }
        if self.responder.acknowledge {
            let psn = psn::add(self.responder.expected, psn::MASK);
            let mut header = self.header(cx.address, Opcode::Acknowledge, psn);
            header.msn = self.responder.msn;
            // SAFETY: there is no payload.
            if unsafe { self.answer(cx, &header, &[]) }.is_err() {
                return sent;
            }
            self.responder.acknowledge = false;
            sent += 1;
        }
        sent
    }

    /// Sends a packet.
    ///
    /// # Safety
    /// As for [`Wire::send`].
    unsafe fn answer<M: Memory, W: Wire>(
        &self,
        cx: &mut Context<'_, '_, M, W>,
        header: &Header,
        payload: &[Range],
    ) -> Result<(), Busy> {
        let begin = cx.memory.now();
        // SAFETY: the caller's promise is passed on unchanged.
        unsafe { cx.wire.send(header, payload)? };
        let length = payload_length(payload) as u32;
        cx.memory
            .record_at(begin, trace::Kind::PacketOut, self.number, length);
        Ok(())
    }

    /// Takes one packet off the oldest answer.
    fn answer_sent(&mut self) {
        let mtu = u64::from(self.limits.mtu);
        if let Some(due) = self.responder.answers.front_mut()
            && let Answer::Read { psn, range, .. } = &mut due.answer
            && range.length > mtu
        {
            due.first = false;
            *psn = psn::add(*psn, 1);
            range.address += mtu;
            range.length -= mtu;
            return;
        }
        self.responder.answers.pop_front();
    }
}
