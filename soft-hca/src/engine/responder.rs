//! The responder: executes the peer's requests in order, once each, and answers them.
//!
//! | what | IBTA volume 1 | where |
//! |---|---|---|
//! | receiving inbound requests, and their validation | 9.7.4, 9.7.4.1 | here |
//! | generating responses | 9.7.5 | `answer` |
//! | what is wrong with a request | 9.9.3 | here |
//! | unreliable service | 9.8 | `unreliable`, `datagram` |

mod answer;
mod datagram;
mod receive;
mod unreliable;

use mlx5_wqe::{CqeOpcode, RemoteKey, Syndrome, VendorCode};

use super::command::{Access, MAX_MESSAGE_LENGTH, QueuePairState};
use super::memory::Memory;
use super::packet::{Header, Opcode, Packet, PacketFlags, Range, Refusal};
use super::psn;
use super::queue_pair::{Context, QueuePair};
use super::receiving::{Answer, Inbound};
use super::send_wqe::Failure;
use super::transfer::{ScatterError, scatter};
use super::wire::Wire;
use mlx5_wqe::decode::{AtomicKind, AtomicOperation};

/// Why a request is not executed.
enum Reject {
    /// It is refused, and may come again.
    NotReady,
    /// It is refused, and the queue pair goes to error.
    Refuse(Refusal),
    /// As above, and the receive WQE in use fails.
    Receive(Refusal, Failure),
    /// The receive WQE in use fails, and the queue pair goes to error, but the peer is not told.
    Silent(Failure),
    /// The queue pair went to error meanwhile.
    Gone,
}

impl QueuePair {
    /// Handles what the peer's requester sent: validates its PSN first (9.7.4.1).
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
        // Nobody is told any more that this packet is missing, or that it has to come again.
        self.responder.refusal = None;
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
                if matches!(opcode, Opcode::Write | Opcode::Send) {
                    let flags = header.flags();
                    self.responder.acknowledge |= flags.contains(PacketFlags::ACKNOWLEDGE);
                    self.responder
                        .count(u32::from(flags.contains(PacketFlags::LAST)));
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
            Err(Reject::Silent(failure)) => self.fail_receive(cx, failure),
            Err(Reject::Gone) => {}
        }
    }

    /// Refuses the expected packet: a NAK (9.7.5.2.2), or an RNR NAK (9.7.5.2.8).
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
        self.check_enabled(Access::REMOTE_WRITE)?;
        let range = Range {
            address,
            length: u64::from(length),
        };
        let payload = packet.payload_length();
        let end = done + payload;
        // No message is longer than 2³¹ bytes (C9-94), nor than this engine's limit.
        if length > MAX_MESSAGE_LENGTH
            || !Self::is_cut_well(flags, payload)
            || end > range.length
            || last != (end == range.length)
        {
            return Err(INVALID);
        }
        // A message of no bytes touches no memory, and its key is not looked at (C9-88).
        if length > 0 {
            self.check_key(cx, rkey, range, Access::REMOTE_WRITE)?;
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
        let payload = packet.payload_length();
        if !Self::is_cut_well(flags, payload) {
            return Err(Reject::Refuse(Refusal::InvalidRequest));
        }
        if !self.take_receive(cx) {
            return Err(Reject::NotReady);
        }
        let end = done + payload;
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
                // The message itself has arrived (9.9.6.3, class J).
                .map_err(|_| Reject::Silent((Syndrome::MEMORY_WINDOW_BIND, VendorCode::NONE)))?;
            CqeOpcode::RESPONDER_SEND_INVALIDATE
        } else if flags.contains(PacketFlags::IMMEDIATE) {
            CqeOpcode::RESPONDER_SEND_IMMEDIATE
        } else {
            CqeOpcode::RESPONDER_SEND
        };
        self.complete_receive(cx, &packet.header, opcode, end as u32)?;
        Ok(1)
    }

    /// Takes a READ on (9.4.4); gives the PSNs that its answer takes.
    fn execute_read<M: Memory, W: Wire>(
        &mut self,
        cx: &mut Context<'_, '_, M, W>,
        header: &Header,
    ) -> Result<u32, Reject> {
        if self.responder.message.is_some() || header.length > MAX_MESSAGE_LENGTH {
            return Err(Reject::Refuse(Refusal::InvalidRequest));
        }
        self.check_enabled(Access::REMOTE_READ)?;
        let range = Range {
            address: header.address,
            length: u64::from(header.length),
        };
        if range.length > 0 {
            self.check_key(cx, header.rkey, range, Access::REMOTE_READ)?;
        }
        let answer = Answer::Read {
            psn: header.psn,
            range,
            rkey: header.rkey,
        };
        if !self.responder.answer(answer) {
            return Err(Reject::Refuse(Refusal::InvalidRequest));
        }
        Ok(header.length.div_ceil(self.limits.mtu).max(1))
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
        self.check_enabled(Access::REMOTE_ATOMIC)?;
        let range = Range {
            address: header.address,
            length: width,
        };
        self.check_key(cx, header.rkey, range, Access::REMOTE_ATOMIC)?;
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

    /// Handles a request that was executed before: its answer must have been lost. A WRITE or SEND is acknowledged
    /// again and not executed (C9-105).
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
                let packets = header.length.div_ceil(self.limits.mtu).max(1);
                let end = psn::add(header.psn, packets);
                let range = Range {
                    address: header.address,
                    length: u64::from(header.length),
                };
                let known = header.length <= MAX_MESSAGE_LENGTH
                    && psn::distance(end, self.responder.expected) <= 0;
                if !known || !self.may_read(cx, header.rkey, range) {
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

    /// Whether a part of a message has bytes, unless it is all of the message (C9-92). How many it has at most is the
    /// wire's to say: its two ends need not have agreed on a path MTU.
    #[inline]
    fn is_cut_well(flags: PacketFlags, payload: u64) -> bool {
        payload > 0 || flags.contains(PacketFlags::FIRST.union(PacketFlags::LAST))
    }

    /// Whether this queue pair carries out such requests at all; one that it does not is invalid, whatever its key
    /// (9.7.4.1).
    #[inline]
    fn check_enabled(&self, access: Access) -> Result<(), Reject> {
        if !self.access.contains(access) {
            return Err(Reject::Refuse(Refusal::InvalidRequest));
        }
        Ok(())
    }

    /// Whether the peer's key opens this (9.7.4.1.5).
    #[inline]
    fn check_key<M, W>(
        &self,
        cx: &Context<'_, '_, M, W>,
        rkey: u32,
        range: Range,
        access: Access,
    ) -> Result<(), Reject> {
        let pd = self.attributes.protection_domain;
        if cx.regions.check(pd, rkey, range, access).is_err() {
            return Err(Reject::Refuse(Refusal::RemoteAccess));
        }
        Ok(())
    }

    /// Whether a READ that was taken on may go on: rights and keys can be taken back at any time.
    fn may_read<M, W>(&self, cx: &Context<'_, '_, M, W>, rkey: u32, range: Range) -> bool {
        let access = Access::REMOTE_READ;
        range.length == 0
            || (self.access.contains(access) && self.check_key(cx, rkey, range, access).is_ok())
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
