//! What comes back to the requester (IBTA volume 1, 9.7.6): acknowledgements, answers, refusals, and silence.

use mlx5_wqe::{Syndrome, VendorCode};

use crate::engine::command::{Access, QueuePairState};
use crate::engine::memory::Memory;
use crate::engine::packet::{Opcode, Packet, Refusal};
use crate::engine::psn;
use crate::engine::queue_pair::{Context, QueuePair};
use crate::engine::send_wqe::Failure;
use crate::engine::sending::{InFlight, Kind};
use crate::engine::transfer::{check_local, scatter};
use crate::engine::wire::Wire;
use mlx5_wqe::decode::{AtomicOperation, DataItem, Operation};

/// The peer answered what it was not asked (11.6.2).
const BAD_RESPONSE: Failure = (Syndrome::BAD_RESPONSE, VendorCode::NONE);

impl QueuePair {
    /// Handles what the peer's responder sent.
    pub(in crate::engine) fn handle_response<M: Memory, W: Wire>(
        &mut self,
        cx: &mut Context<'_, '_, M, W>,
        opcode: Opcode,
        packet: &Packet,
    ) {
        let header = &packet.header;
        if self.state != QueuePairState::ReadyToSend || header.psn > psn::MASK {
            return;
        }
        // What lies before `done` is done.
        let done = match opcode {
            Opcode::Acknowledge => psn::add(header.psn, 1),
            _ => header.psn,
        };
        if psn::distance(header.psn, self.requester.sent_psn) >= 0 {
            // Nothing was asked there yet.
            return;
        }
        if self.acknowledge(cx, done) {
            // The answer to a READ or atomic before it is missing. Others that are under way behind it say the same.
            if !self.requester.has_asked_again {
                self.requester.has_asked_again = true;
                self.try_again(cx);
            }
            return;
        }
        let expected = header.psn == self.requester.unacknowledged;
        let Some(front) = self.requester.in_flight.front().copied() else {
            return;
        };
        match opcode {
            Opcode::ReadResponse | Opcode::AtomicResponse if expected => {
                let taken = match front.kind {
                    Kind::Answered => self.take_answer(cx, &front, opcode, packet),
                    _ => Err(BAD_RESPONSE),
                };
                match taken {
                    Ok(()) => {
                        self.requester.unacknowledged = psn::add(header.psn, 1);
                        self.requester.progress(cx.now);
                        self.settle(cx);
                    }
                    Err(failure) => self.fail_front(cx, failure),
                }
            }
            Opcode::Refuse if expected => {
                if let Some(refusal) = Refusal::from_number(header.detail) {
                    self.handle_refusal(cx, refusal, header.length);
                }
            }
            _ => {}
        }
    }

    /// Stores the answer to the READ or atomic at the front.
    fn take_answer<M: Memory, W: Wire>(
        &mut self,
        cx: &mut Context<'_, '_, M, W>,
        front: &InFlight,
        opcode: Opcode,
        packet: &Packet,
    ) -> Result<(), Failure> {
        const DENIED: Failure = (Syndrome::LOCAL_PROTECTION, VendorCode::LOCAL_KEY);
        let pd = self.attributes.protection_domain;
        let (summary, decoded) = self.fetch_wqe(cx.memory, cx.scratch, front.wqe.index);
        let wqe = decoded
            .ok()
            .filter(|_| summary == front.wqe)
            .ok_or((Syndrome::LOCAL_QP_OPERATION, VendorCode::NONE))?;
        let segments = wqe.data.filter_map(|item| match item {
            DataItem::Memory(local) => Some(local),
            DataItem::Inline { .. } => None,
        });
        match (wqe.operation, opcode) {
            (Operation::Read(_), Opcode::ReadResponse) => {
                let packets = psn::distance(packet.header.psn, front.first_psn) as u64;
                let offset = packets * u64::from(self.limits.mtu);
                let left = u64::from(wqe.length) - offset;
                if packet.payload_length() != left.min(u64::from(self.limits.mtu)) {
                    return Err(BAD_RESPONSE);
                }
                scatter(cx.memory, cx.regions, pd, segments, offset, &packet.payload)
                    .map_err(|_| DENIED)
            }
            (Operation::Atomic(_, atomic), Opcode::AtomicResponse) => {
                check_local(cx.regions, pd, wqe.data, Access::LOCAL_WRITE).map_err(|_| DENIED)?;
                let local = wqe.data.single().ok_or(BAD_RESPONSE)?;
                let [value, ..] = packet.header.operands;
                // SAFETY: just checked; the decoder made sure of the width.
                unsafe { store_result(cx.memory, local.address, atomic, value) };
                Ok(())
            }
            _ => Err(BAD_RESPONSE),
        }
    }

    /// The peer refused the oldest packet (9.7.5.2.2, 9.7.5.2.8).
    fn handle_refusal<M: Memory, W: Wire>(
        &mut self,
        cx: &mut Context<'_, '_, M, W>,
        refusal: Refusal,
        delay_ns: u32,
    ) {
        let failure = match refusal {
            Refusal::Sequence => return self.try_again(cx),
            Refusal::ReceiverNotReady => {
                self.counters.receiver_not_ready += 1;
                let requester = &mut self.requester;
                if requester.pause_until.is_some() {
                    // To what was sent before the wait began: it is no other try.
                    return;
                }
                if requester.rnr_retries_left > 0 {
                    // 7 is for ever.
                    if requester.settings.rnr_retry < 7 {
                        requester.rnr_retries_left -= 1;
                    }
                    requester.pause_until = Some(cx.now.saturating_add(u64::from(delay_ns)));
                    requester.deadline = None;
                    return self.go_back();
                }
                (Syndrome::RNR_RETRY, VendorCode::RECEIVER_NOT_READY)
            }
            Refusal::InvalidRequest => {
                (Syndrome::REMOTE_INVALID_REQUEST, VendorCode::REMOTE_REQUEST)
            }
            Refusal::RemoteAccess => (Syndrome::REMOTE_ACCESS, VendorCode::REMOTE_ACCESS),
            Refusal::RemoteOperation => (Syndrome::REMOTE_OPERATION, VendorCode::NONE),
        };
        self.fail_front(cx, failure);
    }

    /// Completes what is done up to the PSN `done`: a response acknowledges all before it, too (9.7.5.1.2). True if a READ
    /// or atomic before it has no answer.
    #[inline]
    fn acknowledge<M: Memory, W: Wire>(
        &mut self,
        cx: &mut Context<'_, '_, M, W>,
        done: u32,
    ) -> bool {
        let before = self.requester.unacknowledged;
        let mut gap = false;
        while let Some(front) = self.requester.in_flight.front().copied() {
            let requester = &mut self.requester;
            if let Kind::Failed(failure) = front.kind {
                self.fail_front(cx, failure);
                return false;
            }
            let left = psn::distance(front.end(), requester.unacknowledged);
            if left <= 0 {
                requester.pop();
                self.complete_send(cx, &front.wqe, None);
                if self.state != QueuePairState::ReadyToSend {
                    return false;
                }
                continue;
            }
            let news = psn::distance(done, requester.unacknowledged);
            if news <= 0 {
                break;
            }
            if front.kind == Kind::Answered {
                gap = true;
                break;
            }
            requester.unacknowledged = psn::add(requester.unacknowledged, news.min(left) as u32);
        }
        if self.requester.unacknowledged != before {
            self.requester.progress(cx.now);
        }
        gap
    }

    /// Completes what needs no news: NOPs and failures that have come to the front.
    pub(super) fn settle<M: Memory, W: Wire>(&mut self, cx: &mut Context<'_, '_, M, W>) {
        self.acknowledge(cx, self.requester.unacknowledged);
    }

    /// Fails the oldest WQE, and with it the queue pair.
    fn fail_front<M: Memory, W: Wire>(&mut self, cx: &mut Context<'_, '_, M, W>, failure: Failure) {
        if let Some(front) = self.requester.in_flight.pop_front() {
            self.complete_send(cx, &front.wqe, Some(failure));
        }
    }

    fn go_back(&mut self) {
        self.counters.retries += 1;
        self.requester.rewind();
    }

    /// Looks whether an answer is overdue (9.7.6.1.3); gives 1 if so.
    pub(in crate::engine) fn check_timer<M: Memory, W: Wire>(
        &mut self,
        cx: &mut Context<'_, '_, M, W>,
    ) -> usize {
        if self.requester.deadline.is_none_or(|time| cx.now < time) {
            return 0;
        }
        self.spend_retry(cx);
        self.requester.restart_timer(cx.now);
        1
    }

    /// The peer misses a packet: goes back, which is a retry, too, unless nothing was sent since it last went back.
    fn try_again<M: Memory, W: Wire>(&mut self, cx: &mut Context<'_, '_, M, W>) {
        if !self.requester.is_rewound() {
            self.spend_retry(cx);
        }
    }

    /// Goes back once more, or fails where that was done often enough.
    fn spend_retry<M: Memory, W: Wire>(&mut self, cx: &mut Context<'_, '_, M, W>) {
        if self.requester.retries_left == 0 {
            let failure = (Syndrome::TRANSPORT_RETRY, VendorCode::NO_ACKNOWLEDGEMENT);
            self.fail_front(cx, failure);
            return;
        }
        self.requester.retries_left -= 1;
        self.go_back();
    }
}

/// Stores an atomic's result, in one store where it is aligned.
///
/// # Safety
///
/// `address` must be writable for the atomic's width.
unsafe fn store_result<M: Memory>(memory: &M, address: u64, atomic: AtomicOperation, value: u64) {
    // SAFETY: the caller vouches for the range.
    unsafe {
        match atomic.width {
            8 if address.is_multiple_of(8) => memory.store_u64(address, value),
            8 => memory.write(address, &value.to_ne_bytes()),
            _ => memory.write(address, &(value as u32).to_ne_bytes()),
        }
    }
}
