//! The requester: walks the send queue, sends requests, hears answers, retries.

mod datagram;
mod gate;
mod response;

use heapless::Deque;
use mlx5_wqe::segment::Control;
use mlx5_wqe::{ControlFlags, Fence, Syndrome, VendorCode, WqeIndex};
use zerocopy::FromBytes;

use super::command::{Access, CrossChannel, MAX_READS, QueuePairState, ReadyToSend, Transport};
use super::memory::Memory;
use super::packet::{Header, Opcode, PacketFlags};
use super::psn;
use super::queue_pair::{Context, Failure, QueuePair, SCRATCH, SendWqe};
use super::transfer::{Cutter, Ranges, check_local};
use super::wire::{Busy, Limits, SEND_RANGES, Wire};
use gate::BAD_GATE;
pub(super) use gate::Gate;
use mlx5_wqe::decode::{BLOCK, DecodeError, DecodedWqe, Extra, Operation, decode_for};

/// WQEs that a queue pair has under way at most.
pub const WINDOW: usize = 64;
/// Packets between two that ask for an acknowledgement in the middle of a message.
const ACKNOWLEDGE_EVERY: u32 = 16;
/// PSNs under way at most: their order must stay clear.
const PSN_WINDOW: i32 = 1 << 22;

/// One direction of a queue pair.
#[derive(Debug)]
pub(super) struct Requester {
    /// The producer index, as the doorbell record, or the doorbell, had it.
    pub(super) producer: u16,
    /// The oldest WQE that has not completed.
    pub(super) tail: u16,
    /// The next WQE to be started.
    fetch: u16,
    /// Started and not completed, oldest first.
    in_flight: Deque<InFlight, WINDOW>,
    /// READs and atomics among them.
    reads: usize,
    /// Where sending goes on: an entry of `in_flight` (or its end), and a packet of it.
    cursor: Cursor,
    /// The PSN of the next message.
    next_psn: u32,
    /// The oldest PSN that has not been acknowledged.
    unacknowledged: u32,
    /// The PSN after the newest that has been sent.
    sent_psn: u32,
    settings: ReadyToSend,
    retries_left: u8,
    rnr_retries_left: u8,
    /// When the wait for an answer ends.
    deadline: Option<u64>,
    /// The peer was not ready: nothing is sent before this time.
    pause_until: Option<u64>,
    /// By command: how many WQEs more, and what befalls the next.
    fault: Option<(u32, Failure)>,
    /// The next WQE has to do with other queues: whether it may start is not this one's to know.
    gate: Option<Gate>,
    /// The next WQE is a WAIT whose CQE was not there.
    pub(super) waits: bool,
}

/// A place in the stream of packets.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    entry: usize,
    packet: u32,
}

/// A WQE under way.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    wqe: SendWqe,
    first_psn: u32,
    /// PSNs that it takes; 0 for a NOP.
    packets: u32,
    kind: Kind,
}

/// How a WQE under way ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// By acknowledgement.
    Acknowledged,
    /// By its answer (READ, atomic).
    Answered,
    /// It failed here; reported when all before it are done.
    Failed(Failure),
}

impl InFlight {
    const fn end(&self) -> u32 {
        psn::add(self.first_psn, self.packets)
    }
}

/// Why a WQE does not start or go on.
enum Stop {
    /// Something else must come first.
    Wait,
    /// It fails.
    Fail(SendWqe, Failure),
    /// Other queues decide.
    Gate(Gate),
}

impl Requester {
    pub(super) const fn new() -> Self {
        Self {
            producer: 0,
            tail: 0,
            fetch: 0,
            in_flight: Deque::new(),
            reads: 0,
            cursor: Cursor {
                entry: 0,
                packet: 0,
            },
            next_psn: 0,
            unacknowledged: 0,
            sent_psn: 0,
            settings: ReadyToSend {
                send_psn: 0,
                retry_count: 0,
                rnr_retry: 0,
                ack_timeout_ns: 0,
            },
            retries_left: 0,
            rnr_retries_left: 0,
            deadline: None,
            pause_until: None,
            fault: None,
            gate: None,
            waits: false,
        }
    }

    pub(super) const fn start(&mut self, settings: &ReadyToSend) {
        self.next_psn = settings.send_psn;
        self.unacknowledged = settings.send_psn;
        self.sent_psn = settings.send_psn;
        self.retries_left = settings.retry_count;
        self.rnr_retries_left = settings.rnr_retry;
        self.settings = *settings;
    }

    /// Forgets what is under way: the flush takes over from the tail.
    pub(super) fn stop(&mut self) {
        self.in_flight.clear();
        self.reads = 0;
        self.cursor = Cursor::default();
        self.deadline = None;
        self.pause_until = None;
        self.gate = None;
        self.waits = false;
    }

    pub(super) const fn inject(&mut self, count: u32, failure: Failure) {
        self.fault = Some((count, failure));
    }

    /// Whether nothing is under way, held up, or to fail by command.
    pub(super) fn is_at_rest(&self) -> bool {
        self.in_flight.is_empty()
            && self.unacknowledged == self.next_psn
            && self.pause_until.is_none()
            && self.fault.is_none()
    }

    /// The PSN of the next message.
    pub(super) const fn next_psn(&self) -> u32 {
        self.next_psn
    }

    /// Counts so many WQEs of one block that were executed at rest, as if their packets had been acknowledged.
    pub(super) fn count_direct(&mut self, writes: u32) {
        // Indices have 16 bits, as PSNs have 24.
        self.fetch = self.fetch.wrapping_add(writes as u16);
        self.tail = self.fetch;
        self.next_psn = psn::add(self.next_psn, writes);
        self.unacknowledged = self.next_psn;
        self.sent_psn = self.next_psn;
    }

    /// Goes back to the oldest packet that is not acknowledged.
    fn rewind(&mut self) {
        let packet = self.in_flight.front().map_or(0, |front| {
            psn::distance(self.unacknowledged, front.first_psn).max(0) as u32
        });
        self.cursor = Cursor { entry: 0, packet };
    }

    /// (Re)starts the wait for an answer.
    fn restart_timer(&mut self, now: u64) {
        self.deadline = match self.settings.ack_timeout_ns {
            0 => None,
            _ if self.in_flight.is_empty() => None,
            timeout => Some(now.saturating_add(timeout)),
        };
    }
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
        let ring = self.ring();
        let pd = self.attributes.protection_domain;
        let reliable = self.options.transport == Transport::ReliableConnection;
        let limits = Limits {
            mtu: self.path_mtu,
            // What is copied may come from anywhere.
            ranges: if reliable {
                cx.limits.ranges
            } else {
                SEND_RANGES
            },
        };
        let started = self.requester.in_flight.get(self.requester.cursor.entry);
        let started = started.copied();
        let index = match started {
            Some(entry) if matches!(entry.kind, Kind::Failed(_)) => return Err(Stop::Wait),
            Some(entry) => entry.wqe.index,
            None if self.requester.fetch == self.requester.producer => return Err(Stop::Wait),
            None if self.requester.in_flight.is_full() => return Err(Stop::Wait),
            None => self.requester.fetch,
        };
        let (summary, decoded) = self.fetch_wqe(cx.memory, cx.scratch, index);
        let wqe =
            decoded.map_err(|error| Stop::Fail(summary, (error.syndrome(), VendorCode::NONE)))?;
        if wqe.destination.is_some() && wqe.length > self.path_mtu {
            let failure = (Syndrome::LOCAL_LENGTH, VendorCode::NONE);
            return Err(Stop::Fail(summary, failure));
        }
        let access = match wqe.operation {
            Operation::Read(_) | Operation::Atomic(..) => Access::LOCAL_WRITE,
            _ => Access::empty(),
        };
        let entry = match started {
            Some(entry) if entry.wqe != summary => {
                // Somebody wrote over a WQE under way.
                return Err(Stop::Fail(
                    entry.wqe,
                    (Syndrome::LOCAL_QP_OPERATION, VendorCode::NONE),
                ));
            }
            Some(entry) => entry,
            None => {
                let packets = match wqe.operation {
                    Operation::Nop | Operation::Queue(_) => 0,
                    Operation::Atomic(..) => 1,
                    Operation::Read(_) => wqe.length.div_ceil(limits.mtu).max(1),
                    _ => Cutter::packets(&wqe, ring, index, limits),
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
                InFlight {
                    wqe: summary,
                    first_psn: self.requester.next_psn,
                    packets,
                    kind: match wqe.operation {
                        Operation::Read(_) | Operation::Atomic(..) => Kind::Answered,
                        _ => Kind::Acknowledged,
                    },
                }
            }
        };
        // Also when it goes on: its memory may have been deregistered meanwhile.
        check_local(cx.regions, pd, wqe.data, access).map_err(|_| {
            Stop::Fail(summary, (Syndrome::LOCAL_PROTECTION, VendorCode::LOCAL_KEY))
        })?;
        if started.is_none() {
            self.requester.push(entry, cx.now);
        }
        let template = self.header(cx.address, Opcode::Send, 0);
        let mut cutter = Cutter::new(wqe.data, ring, index, limits);
        cutter.skip(match entry.kind {
            Kind::Acknowledged => self.requester.cursor.packet,
            _ => 0,
        });
        let mut sent = 0;
        while self.requester.cursor.packet < entry.packets {
            if sent == budget {
                return Ok(sent);
            }
            let packet = self.requester.cursor.packet;
            let mut ranges = Ranges::new();
            if entry.kind == Kind::Acknowledged {
                cutter.next_packet(&mut ranges);
                // What came before, before what the peer gets of it.
                cx.memory.settle();
            }
            let mut header = request(&template, &wqe, &entry, packet, self.path_mtu);
            // SAFETY: the ranges were checked against registered memory or lie in the ring. Their
            // owner leaves them alone until the WQE completes; in error, on reset, on destroying
            // and on deregistering they are retracted, or copied at once.
            let accepted = unsafe {
                if reliable {
                    cx.wire.send(&header, &ranges)
                } else if wqe
                    .destination
                    .is_none_or(|vector| datagram::address(&mut header, vector, self.q_key))
                {
                    cx.wire.send_copy(&header, &ranges)
                } else {
                    // Lost, as if there were a network.
                    Ok(())
                }
            };
            if accepted == Err(Busy) {
                return if sent > 0 { Ok(sent) } else { Err(Stop::Wait) };
            }
            sent += 1;
            self.requester.sent(&entry);
        }
        self.requester.cursor = Cursor {
            entry: self.requester.cursor.entry + 1,
            packet: 0,
        };
        if !reliable {
            // What has gone is done.
            self.requester.unacknowledged = entry.end();
        }
        if entry.packets == 0 || !reliable {
            self.settle(cx);
        }
        Ok(sent.max(1))
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

    /// The injected failure, when its WQE has come.
    fn take_fault(&mut self) -> Option<Failure> {
        let (count, failure) = self.fault?;
        self.fault = count.checked_sub(1).map(|count| (count, failure));
        (count == 0).then_some(failure)
    }

    /// Puts a WQE under way.
    fn push(&mut self, entry: InFlight, now: u64) {
        self.fetch = self.fetch.wrapping_add(u16::from(entry.wqe.blocks));
        self.next_psn = entry.end();
        self.reads += usize::from(entry.kind == Kind::Answered);
        // There is room: a full window admits nothing.
        let _ = self.in_flight.push_back(entry);
        if self.deadline.is_none() && self.pause_until.is_none() {
            self.restart_timer(now);
        }
    }

    /// Takes the front, which is done, off.
    fn pop(&mut self) {
        if let Some(front) = self.in_flight.pop_front() {
            self.reads -= usize::from(front.kind == Kind::Answered);
            match self.cursor.entry {
                0 => self.cursor.packet = 0,
                _ => self.cursor.entry -= 1,
            }
        }
        if self.in_flight.is_empty() {
            // Nobody is waited for, and the next one's wait starts afresh.
            self.deadline = None;
        }
    }

    /// Counts the packet at the cursor, or all of a READ, as sent.
    fn sent(&mut self, entry: &InFlight) {
        self.cursor.packet = match entry.kind {
            Kind::Acknowledged => self.cursor.packet + 1,
            _ => entry.packets,
        };
        let sent = psn::add(entry.first_psn, self.cursor.packet);
        if psn::distance(sent, self.sent_psn) > 0 {
            self.sent_psn = sent;
        }
    }

    /// Something was acknowledged: counts and timer start again.
    pub(super) fn progress(&mut self, now: u64) {
        self.retries_left = self.settings.retry_count;
        self.rnr_retries_left = self.settings.rnr_retry;
        if self.pause_until.is_none() {
            self.restart_timer(now);
        }
        if self.cursor.entry == 0
            && let Some(front) = self.in_flight.front()
        {
            let acknowledged = psn::distance(self.unacknowledged, front.first_psn).max(0) as u32;
            self.cursor.packet = self.cursor.packet.max(acknowledged);
        }
    }

    /// Marks the WQE at the cursor, started or not, as failed.
    fn fail(&mut self, wqe: SendWqe, failure: Failure) {
        let kind = Kind::Failed(failure);
        if let Some(entry) = self.in_flight.get_mut(self.cursor.entry) {
            self.reads -= usize::from(entry.kind == Kind::Answered);
            entry.kind = kind;
            return;
        }
        self.fetch = self.fetch.wrapping_add(u16::from(wqe.blocks));
        let first_psn = self.next_psn;
        let entry = InFlight {
            wqe,
            first_psn,
            packets: 0,
            kind,
        };
        // There is room: a full window fetches nothing.
        let _ = self.in_flight.push_back(entry);
    }
}

/// The header of packet number `packet` of a message.
fn request(
    template: &Header,
    wqe: &DecodedWqe<'_>,
    entry: &InFlight,
    packet: u32,
    mtu: u32,
) -> Header {
    let mut header = *template;
    header.psn = psn::add(entry.first_psn, packet);
    header.length = wqe.length;
    let mut flags = PacketFlags::ACKNOWLEDGE;
    let extra = match wqe.operation {
        Operation::Read(remote) => {
            // Asked again, a READ leaves out what has arrived.
            let done = packet * mtu;
            header.opcode = Opcode::ReadRequest as u8;
            header.address = remote.address.wrapping_add(u64::from(done));
            header.rkey = remote.key.0;
            header.length = wqe.length - done;
            Extra::None
        }
        Operation::Atomic(remote, atomic) => {
            header.opcode = Opcode::Atomic as u8;
            header.address = remote.address;
            header.rkey = remote.key.0;
            header.detail = atomic.kind as u8;
            header.width = atomic.width;
            header.operands = atomic.operands;
            Extra::None
        }
        Operation::Write(remote, extra) => {
            header.opcode = Opcode::Write as u8;
            header.address = remote.address;
            header.rkey = remote.key.0;
            extra
        }
        Operation::Send(extra) => extra,
        Operation::Nop | Operation::Queue(_) => Extra::None,
    };
    let last = packet + 1 == entry.packets;
    flags.set(PacketFlags::FIRST, packet == 0);
    flags.set(PacketFlags::LAST, last);
    flags.set(
        PacketFlags::ACKNOWLEDGE,
        last || packet % ACKNOWLEDGE_EVERY == ACKNOWLEDGE_EVERY - 1,
    );
    flags.set(
        PacketFlags::SOLICITED,
        last && wqe.flags.contains(ControlFlags::SOLICITED),
    );
    match extra {
        Extra::Immediate(immediate) if last => {
            header.immediate = immediate.0;
            flags |= PacketFlags::IMMEDIATE;
        }
        Extra::Invalidate(key) if last => {
            header.immediate = key.0;
            flags |= PacketFlags::INVALIDATE;
        }
        _ => {}
    }
    header.flags = flags.bits();
    header
}
