//! A queue pair's sending half: the send queue, the requests under way, and the counts and timers of their retries.

use heapless::Deque;
use mlx5_wqe::decode::QueueOperation;
use mlx5_wqe::{Syndrome, VendorCode};

use super::command::ReadyToSend;
use super::psn;
use super::send_wqe::{Failure, SendWqe};

/// WQEs that a queue pair has under way at most.
pub const WINDOW: usize = 64;

/// What a queue pair knows of its send queue and of the requests under way.
#[derive(Debug)]
pub(super) struct Requester {
    /// The producer index, as the doorbell record, or the doorbell, had it.
    pub(super) producer: u16,
    /// The oldest WQE that has not completed.
    pub(super) tail: u16,
    /// The next WQE to be started.
    pub(super) fetch: u16,
    /// Started and not completed, oldest first.
    pub(super) in_flight: Deque<InFlight, WINDOW>,
    /// READs and atomics among them.
    pub(super) reads: usize,
    /// Where sending goes on: an entry of `in_flight` (or its end), and a packet of it.
    pub(super) cursor: Cursor,
    /// The PSN of the next message.
    pub(super) next_psn: u32,
    /// The oldest PSN that has not been acknowledged.
    pub(super) unacknowledged: u32,
    /// The PSN after the newest that has been sent.
    pub(super) sent_psn: u32,
    pub(super) settings: ReadyToSend,
    pub(super) retries_left: u8,
    /// The oldest answer that is missing was asked for again because later ones came.
    pub(super) has_asked_again: bool,
    pub(super) rnr_retries_left: u8,
    /// When the wait for an answer ends.
    pub(super) deadline: Option<u64>,
    /// The peer was not ready: nothing is sent before this time.
    pub(super) pause_until: Option<u64>,
    /// By command: how many WQEs more, and what befalls the next.
    pub(super) fault: Option<(u32, Failure)>,
    /// The next WQE has to do with other queues: whether it may start is not this one's to know.
    pub(super) gate: Option<Gate>,
    /// The next WQE is a WAIT whose CQE was not there.
    pub(super) waits: bool,
}

/// A place in the stream of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) entry: usize,
    pub(super) packet: u32,
}

/// A WQE under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub(super) wqe: SendWqe,
    pub(super) first_psn: u32,
    /// PSNs that it takes; 0 for a NOP.
    pub(super) packets: u32,
    pub(super) kind: Kind,
}

/// How a WQE under way ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// By acknowledgement.
    Acknowledged,
    /// By its answer (READ, atomic).
    Answered,
    /// It failed here; reported when all before it are done.
    Failed(Failure),
}

impl InFlight {
    /// The PSN behind its last one.
    pub(super) const fn end(&self) -> u32 {
        psn::add(self.first_psn, self.packets)
    }
}

/// What a WAIT or SEND_EN ends with that cannot be carried out.
pub(super) const BAD_GATE: Failure = (Syndrome::LOCAL_QP_OPERATION, VendorCode::NONE);

/// A WAIT or a SEND_EN that is the next to start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gate {
    pub(super) wqe: SendWqe,
    pub(super) operation: QueueOperation,
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
            has_asked_again: false,
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

    /// Where the oldest packet is that is not acknowledged.
    fn oldest(&self) -> Cursor {
        let packet = self.in_flight.front().map_or(0, |front| {
            psn::distance(self.unacknowledged, front.first_psn).max(0) as u32
        });
        Cursor { entry: 0, packet }
    }

    /// Goes back to the oldest packet that is not acknowledged.
    pub(super) fn rewind(&mut self) {
        self.cursor = self.oldest();
    }

    /// Whether that is the next to be sent.
    pub(super) fn is_rewound(&self) -> bool {
        self.cursor == self.oldest()
    }

    /// (Re)starts the wait for an answer.
    pub(super) fn restart_timer(&mut self, now: u64) {
        self.deadline = match self.settings.ack_timeout_ns {
            0 => None,
            _ if self.in_flight.is_empty() => None,
            timeout => Some(now.saturating_add(timeout)),
        };
    }

    /// The injected failure, when its WQE has come.
    pub(super) fn take_fault(&mut self) -> Option<Failure> {
        let (count, failure) = self.fault?;
        self.fault = count.checked_sub(1).map(|count| (count, failure));
        (count == 0).then_some(failure)
    }

    /// Puts a WQE under way.
    pub(super) fn push(&mut self, entry: InFlight, now: u64) {
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
    pub(super) fn pop(&mut self) {
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
    pub(super) fn sent(&mut self, entry: &InFlight) {
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
        self.has_asked_again = false;
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
    pub(super) fn fail(&mut self, wqe: SendWqe, failure: Failure) {
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
