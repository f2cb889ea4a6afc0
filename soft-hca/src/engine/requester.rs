//! The requester: walks the send queue, sends requests, hears answers, retries.
//!
//! | what | IBTA volume 1 | where |
//! |---|---|---|
//! | generating request packets, with their PSNs | 9.7 | here |
//! | their headers | 9.2, 9.3 | `request` |
//! | receiving responses; lost ones | 9.7.6 | `response` |
//! | datagrams' route headers | 8.3 | `datagram` |
//!
//! End-to-end credits (9.7.7.2) are not modelled: a peer without a receive refuses, and is asked again. So the
//! requester does not look at message sequence numbers: packets name the PSNs that they answer.

mod datagram;
mod gate;
mod request;
mod response;

use mlx5_wqe::decode::{BLOCK, DecodeError, DecodedWqe, Operation, decode_for};
use mlx5_wqe::segment::Control;
use mlx5_wqe::{AddressVector, Fence, Syndrome, VendorCode, WqeIndex};
use warpbell_gpu::trace;
use zerocopy::FromBytes;

use super::command::{Access, CrossChannel, MAX_READS, QueuePairState, Transport};
use super::memory::Memory;
use super::packet::{Header, Opcode, PacketFlags, WireAddress, payload_length};
use super::protection::Regions;
use super::psn;
use super::queue_pair::{Context, QueuePair};
use super::send_wqe::{Failure, SCRATCH, SendWqe};
use super::sending::{BAD_GATE, Cursor, Gate, InFlight, Kind, Requester};
use super::transfer::{Cutter, Ranges, check_local};
use super::wire::{Busy, Limits, Wire};
use request::request;

/// PSNs under way at most: their order must stay clear, for which 2²³ are the most that may be.
const PSN_WINDOW: i32 = 1 << 22;

/// Why a WQE does not start or go on.
enum Stop {
    /// Something else must come first.
    Wait,
    /// It fails.
    Fail(SendWqe, Failure),
    /// Other queues decide.
    Gate(Gate),
}

/// A request that has started: it has its PSNs, and its WQE was just read.
struct Started<'b> {
    entry: InFlight,
    wqe: DecodedWqe<'b>,
}

impl QueuePair {
    /// Sends what can be sent, up to `budget` packets; gives how much was done.
    pub(super) fn send_requests<M: Memory, W: Wire>(
        &mut self,
        cx: &mut Context<'_, '_, M, W>,
        budget: usize,
    ) -> usize {
        if self.requester.pause_until.is_some_and(|time| cx.now < time) {
            return 0;
        }
        if self.requester.pause_until.take().is_some() {
            self.requester.restart_timer(cx.now);
        }
        let mut done = 0;
        while done < budget && self.state == QueuePairState::ReadyToSend {
            match self.send_message(cx, budget - done) {
                Ok(packets) => done += packets,
                Err(Stop::Wait) => break,
                Err(Stop::Gate(gate)) => {
                    self.requester.gate = Some(gate);
                    break;
                }
                Err(Stop::Fail(wqe, failure)) => {
                    self.requester.fail(wqe, failure);
                    self.settle(cx);
                    return done + 1;
                }
            }
        }
        done
    }

    /// Starts the next WQE, or goes on with the one at the cursor; gives how many packets went
    /// out, at least 1 (a NOP counts).
    fn send_message<M: Memory, W: Wire>(
        &mut self,
        cx: &mut Context<'_, '_, M, W>,
        budget: usize,
    ) -> Result<usize, Stop> {
        let limits = self.limits;
        let (memory, regions) = (cx.memory, &*cx.regions);
        let at_cursor = self.requester.in_flight.get(self.requester.cursor.entry);
        let started = match at_cursor.copied() {
            Some(entry) => self.go_on(memory, regions, cx.scratch, entry)?,
            None => self.start_next(memory, regions, cx.scratch, limits, cx.now)?,
        };
        let entry = started.entry;
        let sent = self.send_packets(memory, cx.wire, cx.address, &started, limits, budget)?;
        if self.requester.cursor.packet < entry.packets {
            return Ok(sent);
        }
        self.requester.cursor = Cursor {
            entry: self.requester.cursor.entry + 1,
            packet: 0,
        };
        let reliable = self.is_reliable();
        if !reliable {
            // What has gone is done.
            self.requester.unacknowledged = entry.end();
        }
        if entry.packets == 0 || !reliable {
            self.settle(cx);
        }
        Ok(sent.max(1))
    }

    /// Puts the next WQE under way, if it may start now: it gets the PSNs of its packets.
    fn start_next<'b, M: Memory>(
        &mut self,
        memory: &M,
        regions: &Regions<'_>,
        scratch: &'b mut [u8; SCRATCH],
        limits: Limits,
        now: u64,
    ) -> Result<Started<'b>, Stop> {
        let requester = &self.requester;
        let index = requester.fetch;
        if index == requester.producer || requester.in_flight.is_full() {
            return Err(Stop::Wait);
        }
        let (summary, wqe) = self.fetch_request(memory, scratch, index)?;
        let packets = match wqe.operation {
            Operation::Nop | Operation::Queue(_) => 0,
            Operation::Atomic(_, atomic) if atomic.is_extended() && !limits.extended_atomics => {
                // A request that its queue pair cannot carry out (11.6.2), as one with an unknown opcode.
                let failure = (Syndrome::LOCAL_QP_OPERATION, VendorCode::NONE);
                return Err(Stop::Fail(summary, failure));
            }
            Operation::Atomic(..) => 1,
            // As many as its answer has.
            Operation::Read(_) => wqe.length.div_ceil(limits.mtu).max(1),
            _ => Cutter::packets(&wqe, self.ring(), index, limits),
        };
        self.requester.admit(&wqe, packets)?;
        if let Operation::Queue(operation) = wqe.operation
            && !self.requester.is_to_fail()
        {
            if !self.attributes.cross_channel.contains(CrossChannel::MASTER) {
                return Err(Stop::Fail(summary, BAD_GATE));
            }
            let wqe = summary;
            return Err(Stop::Gate(Gate { wqe, operation }));
        }
        if let Some(failure) = self.requester.take_fault() {
            return Err(Stop::Fail(summary, failure));
        }
        let entry = InFlight {
            wqe: summary,
            first_psn: self.requester.next_psn,
            packets,
            kind: match wqe.operation {
                Operation::Read(_) | Operation::Atomic(..) => Kind::Answered,
                _ => Kind::Acknowledged,
            },
        };
        let started = Started { entry, wqe };
        self.check_memory(regions, &started)?;
        self.requester.push(entry, now);
        Ok(started)
    }

    /// Reads a WQE again that is under way: what is sent of it, again or for the first time, is what it says now.
    fn go_on<'b, M: Memory>(
        &self,
        memory: &M,
        regions: &Regions<'_>,
        scratch: &'b mut [u8; SCRATCH],
        entry: InFlight,
    ) -> Result<Started<'b>, Stop> {
        if matches!(entry.kind, Kind::Failed(_)) {
            return Err(Stop::Wait);
        }
        let (summary, wqe) = self.fetch_request(memory, scratch, entry.wqe.index)?;
        if entry.wqe != summary {
            // Somebody wrote over a WQE under way.
            let failure = (Syndrome::LOCAL_QP_OPERATION, VendorCode::NONE);
            return Err(Stop::Fail(entry.wqe, failure));
        }
        let started = Started { entry, wqe };
        // Its memory may have been deregistered meanwhile.
        self.check_memory(regions, &started)?;
        Ok(started)
    }

    /// Fetches and decodes a WQE, which fails if it is none, or more than a datagram.
    fn fetch_request<'b, M: Memory>(
        &self,
        memory: &M,
        scratch: &'b mut [u8; SCRATCH],
        index: u16,
    ) -> Result<(SendWqe, DecodedWqe<'b>), Stop> {
        let (summary, decoded) = self.fetch_wqe(memory, scratch, index);
        let wqe =
            decoded.map_err(|error| Stop::Fail(summary, (error.syndrome(), VendorCode::NONE)))?;
        if wqe.destination.is_some() && wqe.length > self.limits.mtu {
            let failure = (Syndrome::LOCAL_LENGTH, VendorCode::NONE);
            return Err(Stop::Fail(summary, failure));
        }
        Ok((summary, wqe))
    }

    /// Whether the keys of a request's own memory allow what the request does there.
    fn check_memory(&self, regions: &Regions<'_>, started: &Started<'_>) -> Result<(), Stop> {
        let access = match started.entry.kind {
            Kind::Answered => Access::LOCAL_WRITE,
            _ => Access::empty(),
        };
        let pd = self.attributes.protection_domain;
        check_local(regions, pd, started.wqe.data, access).map_err(|_| {
            let failure = (Syndrome::LOCAL_PROTECTION, VendorCode::LOCAL_KEY);
            Stop::Fail(started.entry.wqe, failure)
        })
    }

    /// Sends a request's packets from the cursor on, up to `budget`, while the wire has room; gives how many.
    fn send_packets<M: Memory, W: Wire>(
        &mut self,
        memory: &M,
        wire: &mut W,
        address: WireAddress,
        started: &Started<'_>,
        limits: Limits,
        budget: usize,
    ) -> Result<usize, Stop> {
        let Started { entry, wqe } = started;
        let reliable = self.is_reliable();
        let template = self.header(address, Opcode::Send, 0);
        let mut cutter = Cutter::new(wqe.data, self.ring(), entry.wqe.index, limits);
        cutter.skip(match entry.kind {
            Kind::Acknowledged => self.requester.cursor.packet,
            _ => 0,
        });
        let mut sent = 0;
        while self.requester.cursor.packet < entry.packets && sent < budget {
            let packet = self.requester.cursor.packet;
            let mut ranges = Ranges::new();
            if entry.kind == Kind::Acknowledged {
                cutter.next_packet(&mut ranges);
                // What came before, before what the peer gets of it.
                memory.settle();
            }
            let mut header = request(&template, wqe, entry, packet, self.limits.mtu);
            let begin = memory.now();
            // SAFETY: the ranges were checked against registered memory or lie in the ring. Their
            // owner leaves them alone until the WQE completes; in error, on reset, on destroying
            // and on deregistering they are retracted, or copied at once.
            let accepted = unsafe {
                if reliable {
                    wire.send(&header, &ranges)
                } else if self.address_unreliable(&mut header, wqe.destination, wire) {
                    wire.send_copy(&header, &ranges)
                } else {
                    // Lost, as if there were a network.
                    Ok(())
                }
            };
            if accepted == Err(Busy) {
                return if sent > 0 { Ok(sent) } else { Err(Stop::Wait) };
            }
            sent += 1;
            memory.record_at(
                begin,
                trace::Kind::PacketOut,
                self.number,
                payload_length(&ranges) as u32,
            );
            self.requester.sent(entry);
        }
        Ok(sent)
    }

    /// Makes a request's header that of an unreliable connection, or of a datagram; false if no HCA has its GID.
    fn address_unreliable<W: Wire>(
        &self,
        header: &mut Header,
        destination: Option<&AddressVector>,
        wire: &W,
    ) -> bool {
        let Some(vector) = destination else {
            header.flags |= PacketFlags::UNRELIABLE.bits();
            return true;
        };
        let to = wire.find(vector.rgid);
        to.inspect(|to| datagram::address(header, vector, *to, self.q_key))
            .is_some()
    }

    const fn is_reliable(&self) -> bool {
        matches!(self.options.transport, Transport::ReliableConnection)
    }

    /// Copies a WQE out of the ring and decodes it. The summary holds as far as the bytes do.
    fn fetch_wqe<'b, M: Memory>(
        &self,
        memory: &M,
        scratch: &'b mut [u8; SCRATCH],
        index: u16,
    ) -> (SendWqe, Result<DecodedWqe<'b>, DecodeError>) {
        let ring = self.ring();
        let [start, _] = ring.ranges(index, 0, BLOCK as u64);
        // SAFETY: the owner vouched for the ring when the queue pair was created.
        unsafe { memory.read(start.address, &mut scratch[..BLOCK]) };
        memory.record(trace::Kind::Fetch, self.number, index.into());
        let mut summary = SendWqe::unread(index);
        if let Ok((control, _)) = Control::read_from_prefix(&scratch[..]) {
            summary.blocks = control.blocks().max(1);
            summary.opcode = control.opcode();
            summary.flags = control.fm_ce_se;
        }
        let posted = self.requester.producer.wrapping_sub(index);
        let size = usize::from(summary.blocks) * BLOCK;
        let overfull =
            self.requester.producer.wrapping_sub(self.requester.tail) > 1 << ring.log_depth;
        if u16::from(summary.blocks) > posted || overfull {
            // What comes after it must not be looked for past the producer index.
            summary.blocks = posted.min(16) as u8;
            return (summary, Err(DecodeError::PastProducer));
        }
        let rest = ring.ranges(index, BLOCK as u64, (size - BLOCK) as u64);
        let (near, far) = scratch[BLOCK..size].split_at_mut(rest[0].length as usize);
        for (range, bytes) in rest.iter().zip([near, far]) {
            if range.length > 0 {
                // SAFETY: as above; the ranges lie in the ring.
                unsafe { memory.read(range.address, bytes) };
            }
        }
        let decoded = decode_for(
            self.options.transport,
            &scratch[..size],
            WqeIndex(index),
            self.number,
        );
        if let Ok(wqe) = &decoded {
            summary.length = wqe.length;
        }
        (summary, decoded)
    }
}

impl Requester {
    /// Whether a decoded WQE may start now.
    fn admit(&self, wqe: &DecodedWqe<'_>, packets: u32) -> Result<(), Stop> {
        let fenced = match wqe.fence {
            Fence::None => false,
            Fence::StrongOrdering => !self.in_flight.is_empty(),
            Fence::InitiatorSmall | Fence::Fence | Fence::SmallAndFence => self.reads > 0,
        };
        let full = self.reads == MAX_READS
            && matches!(wqe.operation, Operation::Read(_) | Operation::Atomic(..));
        let end = psn::add(self.next_psn, packets);
        let far = psn::distance(end, self.unacknowledged) > PSN_WINDOW;
        // A message alone under way fits: 1 GiB in packets of 256 bytes are 2²² of them, and the
        // extra cuts of a gather list are few.
        if fenced || full || (far && !self.in_flight.is_empty()) {
            return Err(Stop::Wait);
        }
        Ok(())
    }
}
