//! The responder: executes the peer's requests in order, once each, and answers them.

mod answer;
mod datagram;
mod receive;
mod unreliable;

use heapless::Deque;
use mlx5_wqe::{CqeOpcode, RemoteKey, Syndrome, VendorCode};

use super::command::{Access, MAX_MESSAGE_LENGTH, MAX_READS, QueuePairState};
use super::memory::Memory;
use super::packet::{Header, Opcode, Packet, PacketFlags, Range, Refusal};
use super::psn;
use super::queue_pair::{Context, Failure, QueuePair};
use super::transfer::{ScatterError, scatter};
use super::wire::Wire;
use mlx5_wqe::decode::{AtomicKind, AtomicOperation};

/// One direction of a queue pair.
#[derive(Debug)]
pub(super) struct Responder {
    /// The PSN of the next packet.
    expected: u32,
    pub(super) min_rnr_timer_ns: u32,
    /// The message of which packets are still to come.
    message: Option<Inbound>,
    /// A packet was refused, and until it comes again those after it are dropped in silence.
    refusing: bool,
    acknowledge: bool,
    refusal: Option<(Refusal, u32)>,
    /// Answers to READs and atomics that are still to go out, oldest first.
    answers: Deque<Due, MAX_READS>,
    /// The newest atomics and what they found, for those that come twice.
    atomics: Deque<(u32, u64), MAX_READS>,
    /// The oldest receive WQE that has not completed; of a shared queue the one taken last.
    pub(super) receive_tail: u16,
    /// A WQE of a shared queue has been taken, and has not completed.
    in_hand: bool,
    /// The producer index of the receive queue, as the doorbell record had it.
    pub(super) receive_producer: u16,
}

/// A message under way.
#[derive(Clone, Copy, Debug)]
enum Inbound {
    /// A SEND, so many bytes of which have arrived.
    Send { done: u64 },
    /// An RDMA WRITE, so many bytes of which have arrived.
    Write {
        address: u64,
        rkey: u32,
        length: u32,
        done: u64,
    },
}

/// An answer that is still to go out.
#[derive(Clone, Copy, Debug)]
struct Due {
    answer: Answer,
    /// To a request that came twice. Its peer may have forgotten it long ago.
    again: bool,
}

/// What is answered.
#[derive(Clone, Copy, Debug)]
enum Answer {
    /// What is left of a READ.
    Read { psn: u32, range: Range, rkey: u32 },
    /// What an atomic found.
    Atomic { psn: u32, value: u64 },
}

impl Answer {
    const fn psn(&self) -> u32 {
        match self {
            Self::Read { psn, .. } | Self::Atomic { psn, .. } => *psn,
        }
    }
}

/// Why a request is not executed.
enum Reject {
    /// It is refused, and may come again.
    NotReady,
    /// It is refused, and the queue pair goes to error.
    Refuse(Refusal),
    /// As above, and the receive WQE in use fails.
    Receive(Refusal, Failure),
    /// The queue pair went to error meanwhile.
    Gone,
}

impl Responder {
    pub(super) const fn new() -> Self {
        Self {
            expected: 0,
            min_rnr_timer_ns: 0,
            message: None,
            refusing: false,
            acknowledge: false,
            refusal: None,
            answers: Deque::new(),
            atomics: Deque::new(),
            receive_tail: 0,
            in_hand: false,
            receive_producer: 0,
        }
    }

    pub(super) const fn start(&mut self, psn: u32, min_rnr_timer_ns: u32) {
        self.expected = psn;
        self.min_rnr_timer_ns = min_rnr_timer_ns;
    }

    /// Takes no request any more; answers that are due still go out.
    pub(super) const fn stop(&mut self) {
        self.message = None;
    }

    pub(super) fn has_answers(&self) -> bool {
        self.acknowledge || self.refusal.is_some() || !self.answers.is_empty()
    }

    /// Whether a message that begins with this PSN is the next one, and nothing was refused.
    pub(super) const fn expects(&self, psn: u32) -> bool {
        self.expected == psn && self.message.is_none() && !self.refusing && self.refusal.is_none()
    }

    /// Counts so many messages of one packet that were executed.
    pub(super) fn count_direct(&mut self, messages: u32) {
        self.expected = psn::add(self.expected, messages);
    }

    /// Whether there is room for one answer more. If need be, one to a request that came twice
    /// makes room: a peer that still wants it asks once more.
    fn has_room(&mut self) -> bool {
        if !self.answers.is_full() {
            return true;
        }
        let mut dropped = false;
        for _ in 0..self.answers.len() {
            let Some(due) = self.answers.pop_front() else {
                break;
            };
            if due.again && !dropped {
                dropped = true;
            } else {
                // There is room: it was just taken off.
                let _ = self.answers.push_back(due);
            }
        }
        dropped
    }

    /// Appends the answer to a new request; false if there are too many.
    fn answer(&mut self, answer: Answer) -> bool {
        let again = false;
        self.has_room() && self.answers.push_back(Due { answer, again }).is_ok()
    }

    /// Appends the answer to a request that came twice, in place of those from its PSN on: the
    /// peer asks for them again, too.
    fn answer_again(&mut self, answer: Answer) {
        self.forget_answers_from(answer.psn());
        let again = true;
        // Without room it is lost, and the peer asks once more.
        let _ = self.answers.push_back(Due { answer, again });
    }

    /// Forgets the answers from `psn` on.
    fn forget_answers_from(&mut self, psn: u32) {
        while self
            .answers
            .back()
            .is_some_and(|due| psn::distance(due.answer.psn(), psn) >= 0)
        {
            self.answers.pop_back();
        }
    }
}

impl QueuePair {
    /// Handles what the peer's requester sent.
    #[inline]
    pub(super) fn handle_request<M: Memory, W: Wire>(
        &mut self,
        cx: &mut Context<'_, '_, M, W>,
        opcode: Opcode,
        packet: &Packet,
    ) {
        let header = &packet.header;
        let ready = matches!(
            self.state,
            QueuePairState::ReadyToReceive | QueuePairState::ReadyToSend
        );
        if !ready || header.psn > psn::MASK {
            return;
        }
        let ahead = psn::distance(header.psn, self.responder.expected);
        if ahead > 0 {
            if !self.responder.refusing {
                self.refuse(Refusal::Sequence);
            }
            return;
        }
        if ahead < 0 {
            self.counters.duplicates += 1;
            self.handle_duplicate(cx, opcode, header);
            return;
        }
        self.responder.refusing = false;
        let executed = match opcode {
            Opcode::Write => self.execute_write(cx, packet),
            Opcode::Send => self.execute_send(cx, packet),
            Opcode::ReadRequest => self.execute_read(cx, header),
            Opcode::Atomic => self.execute_atomic(cx, header),
            _ => return,
        };
        match executed {
            Ok(packets) => {
                self.responder.expected = psn::add(self.responder.expected, packets);
                if header.flags().contains(PacketFlags::ACKNOWLEDGE)
                    && matches!(opcode, Opcode::Write | Opcode::Send)
                {
                    self.responder.acknowledge = true;
                }
            }
            Err(Reject::NotReady) => self.refuse(Refusal::ReceiverNotReady),
            Err(Reject::Refuse(refusal)) => {
                self.refuse(refusal);
                let failure = match refusal {
                    Refusal::RemoteAccess => (Syndrome::REMOTE_ACCESS, VendorCode::REMOTE_ACCESS),
                    _ => (Syndrome::REMOTE_INVALID_REQUEST, VendorCode::REMOTE_REQUEST),
                };
                self.fail_for_peer(cx, failure);
            }
            Err(Reject::Receive(refusal, failure)) => {
                self.refuse(refusal);
                self.fail_receive(cx, failure);
            }
            Err(Reject::Gone) => {}
        }
    }

    /// Refuses the expected packet.
    const fn refuse(&mut self, refusal: Refusal) {
        self.responder.refusal = Some((refusal, self.responder.expected));
        self.responder.refusing = true;
    }

    /// Executes a packet of an RDMA WRITE; gives the PSNs that it takes.
    #[inline]
    fn execute_write<M: Memory, W: Wire>(
        &mut self,
        cx: &mut Context<'_, '_, M, W>,
        packet: &Packet,
    ) -> Result<u32, Reject> {
        const INVALID: Reject = Reject::Refuse(Refusal::InvalidRequest);
        let header = &packet.header;
        let flags = header.flags();
        let first = flags.contains(PacketFlags::FIRST);
        let last = flags.contains(PacketFlags::LAST);
        let (address, rkey, length, done) = match (first, self.responder.message) {
            (true, None) => (header.address, header.rkey, header.length, 0),
            (
                false,
                Some(Inbound::Write {
                    address,
                    rkey,
                    length,
                    done,
                }),
            ) => (address, rkey, length, done),
            _ => return Err(INVALID),
        };
        let range = Range {
            address,
            length: u64::from(length),
        };
        let end = done + packet.payload_length();
        if length > MAX_MESSAGE_LENGTH || end > range.length || last != (end == range.length) {
            return Err(INVALID);
        }
        // A message of no bytes touches no memory, and its key is not looked at.
        if length > 0 {
            self.check_remote(cx, rkey, range, Access::REMOTE_WRITE)?;
        }
        if last && flags.contains(PacketFlags::IMMEDIATE) && !self.take_receive(cx) {
            return Err(Reject::NotReady);
        }
        let mut target = address.wrapping_add(done);
        for source in packet.payload.iter() {
            // SAFETY: the wire vouches for the source until its next `receive`; the target lies
            // in the range just checked, because `end` does.
            unsafe {
                cx.memory
                    .copy(source.address, target, source.length as usize)
            };
            target += source.length;
        }
        self.responder.message = match last {
            true => None,
            false => Some(Inbound::Write {
                address,
                rkey,
                length,
                done: end,
            }),
        };
        if last && flags.contains(PacketFlags::IMMEDIATE) {
            self.complete_receive(cx, header, CqeOpcode::RESPONDER_WRITE_IMMEDIATE, length)?;
        }
        Ok(1)
    }

    /// Executes a packet of a SEND; gives the PSNs that it takes.
    fn execute_send<M: Memory, W: Wire>(
        &mut self,
        cx: &mut Context<'_, '_, M, W>,
        packet: &Packet,
    ) -> Result<u32, Reject> {
        let flags = packet.header.flags();
        let done = match (flags.contains(PacketFlags::FIRST), self.responder.message) {
            (true, None) => 0,
            (false, Some(Inbound::Send { done })) => done,
            _ => return Err(Reject::Refuse(Refusal::InvalidRequest)),
        };
        if !self.take_receive(cx) {
            return Err(Reject::NotReady);
        }
        let end = done + packet.payload_length();
        if end > u64::from(MAX_MESSAGE_LENGTH) {
            return Err(Reject::Refuse(Refusal::InvalidRequest));
        }
        let (segments, pd) = self.receive_segments(cx);
        scatter(
            cx.memory,
            cx.regions,
            pd,
            segments.iter().copied(),
            done,
            &packet.payload,
        )
        .map_err(|error| match error {
            ScatterError::TooSmall => Reject::Receive(
                Refusal::InvalidRequest,
                (Syndrome::LOCAL_LENGTH, VendorCode::NONE),
            ),
            ScatterError::Denied => Reject::Receive(
                Refusal::RemoteOperation,
                (Syndrome::LOCAL_PROTECTION, VendorCode::LOCAL_KEY),
            ),
        })?;
        if !flags.contains(PacketFlags::LAST) {
            self.responder.message = Some(Inbound::Send { done: end });
            return Ok(1);
        }
        self.responder.message = None;
        let opcode = if flags.contains(PacketFlags::INVALIDATE) {
            cx.regions
                .invalidate(
                    self.attributes.protection_domain,
                    RemoteKey(packet.header.immediate),
                )
                .map_err(|_| Reject::Refuse(Refusal::RemoteAccess))?;
            CqeOpcode::RESPONDER_SEND_INVALIDATE
        } else if flags.contains(PacketFlags::IMMEDIATE) {
            CqeOpcode::RESPONDER_SEND_IMMEDIATE
        } else {
            CqeOpcode::RESPONDER_SEND
        };
        self.complete_receive(cx, &packet.header, opcode, end as u32)?;
        Ok(1)
    }

    /// Takes a READ on; gives the PSNs that its answer takes.
    fn execute_read<M: Memory, W: Wire>(
        &mut self,
        cx: &mut Context<'_, '_, M, W>,
        header: &Header,
    ) -> Result<u32, Reject> {
        if self.responder.message.is_some() || header.length > MAX_MESSAGE_LENGTH {
            return Err(Reject::Refuse(Refusal::InvalidRequest));
        }
        let range = Range {
            address: header.address,
            length: u64::from(header.length),
        };
        if range.length > 0 {
            self.check_remote(cx, header.rkey, range, Access::REMOTE_READ)?;
        }
        let answer = Answer::Read {
            psn: header.psn,
            range,
            rkey: header.rkey,
        };
        if !self.responder.answer(answer) {
            return Err(Reject::Refuse(Refusal::InvalidRequest));
        }
        Ok(header.length.div_ceil(self.path_mtu).max(1))
    }

    /// Executes an atomic; gives the PSNs that it takes.
    fn execute_atomic<M: Memory, W: Wire>(
        &mut self,
        cx: &mut Context<'_, '_, M, W>,
        header: &Header,
    ) -> Result<u32, Reject> {
        let kind = match header.detail {
            0 => AtomicKind::CompareSwap,
            1 => AtomicKind::FetchAdd,
            _ => return Err(Reject::Refuse(Refusal::InvalidRequest)),
        };
        let atomic = AtomicOperation {
            kind,
            width: header.width,
            operands: header.operands,
        };
        let width = u64::from(header.width);
        if self.responder.message.is_some()
            || !matches!(width, 4 | 8)
            || !header.address.is_multiple_of(width)
            || !self.responder.has_room()
        {
            return Err(Reject::Refuse(Refusal::InvalidRequest));
        }
        let range = Range {
            address: header.address,
            length: width,
        };
        self.check_remote(cx, header.rkey, range, Access::REMOTE_ATOMIC)?;
        // SAFETY: the range was just checked and is aligned to the width.
        let value = unsafe { execute(cx.memory, header.address, &atomic) };
        if self.responder.atomics.is_full() {
            self.responder.atomics.pop_front();
        }
        // There is room now, and there was for the answer.
        let _ = self.responder.atomics.push_back((header.psn, value));
        self.responder.answer(Answer::Atomic {
            psn: header.psn,
            value,
        });
        Ok(1)
    }

    /// Handles a request that was executed before: its answer must have been lost.
    fn handle_duplicate<M: Memory, W: Wire>(
        &mut self,
        cx: &mut Context<'_, '_, M, W>,
        opcode: Opcode,
        header: &Header,
    ) {
        let answer = match opcode {
            Opcode::Write | Opcode::Send => {
                self.responder.acknowledge = true;
                return;
            }
            Opcode::ReadRequest => {
                let packets = header.length.div_ceil(self.path_mtu).max(1);
                let end = psn::add(header.psn, packets);
                let range = Range {
                    address: header.address,
                    length: u64::from(header.length),
                };
                let known = header.length <= MAX_MESSAGE_LENGTH
                    && psn::distance(end, self.responder.expected) <= 0;
                let allowed = range.length == 0
                    || self
                        .check_remote(cx, header.rkey, range, Access::REMOTE_READ)
                        .is_ok();
                if !known || !allowed {
                    return;
                }
                Answer::Read {
                    psn: header.psn,
                    range,
                    rkey: header.rkey,
                }
            }
            Opcode::Atomic => {
                // The newest first: PSNs come round again.
                let mut atomics = self.responder.atomics.iter().rev();
                let Some(&(psn, value)) = atomics.find(|(psn, _)| *psn == header.psn) else {
                    return;
                };
                Answer::Atomic { psn, value }
            }
            _ => return,
        };
        self.responder.answer_again(answer);
    }

    /// Whether the peer may do this, by its queue pair and by its key.
    #[inline]
    fn check_remote<M, W>(
        &self,
        cx: &Context<'_, '_, M, W>,
        rkey: u32,
        range: Range,
        access: Access,
    ) -> Result<(), Reject> {
        let pd = self.attributes.protection_domain;
        if !self.access.contains(access) || cx.regions.check(pd, rkey, range, access).is_err() {
            return Err(Reject::Refuse(Refusal::RemoteAccess));
        }
        Ok(())
    }
}

/// Runs an atomic on memory; gives what it found.
///
/// # Safety
///
/// `address` must be readable and writable for the atomic's width, and aligned to it.
unsafe fn execute<M: Memory>(memory: &M, address: u64, atomic: &AtomicOperation) -> u64 {
    // SAFETY: the caller vouches for the address.
    unsafe {
        if atomic.width == 4 {
            let mut found = memory.load_u32(address);
            loop {
                let Some(new) = atomic.apply(u64::from(found)) else {
                    return u64::from(found);
                };
                match memory.compare_exchange_u32(address, found, new as u32) {
                    Ok(found) => return u64::from(found),
                    Err(other) => found = other,
                }
            }
        }
        let mut found = memory.load_u64(address);
        loop {
            let Some(new) = atomic.apply(found) else {
                return found;
            };
            match memory.compare_exchange_u64(address, found, new) {
                Ok(found) => return found,
                Err(other) => found = other,
            }
        }
    }
}
