//! A queue pair's receiving half: the receive queue, the message under way, and the answers that are due.

use heapless::Deque;

use super::command::MAX_READS;
use super::packet::{Range, Refusal};
use super::psn;

/// What a queue pair knows of its receive queue, and of its peer's requests.
#[derive(Debug)]
pub(super) struct Responder {
    /// The PSN of the next packet.
    pub(super) expected: u32,
    /// The message sequence number (9.7.7.1): how many of the peer's messages are complete, of which 24 bits count.
    pub(super) msn: u32,
    pub(super) min_rnr_timer_ns: u32,
    /// The message of which packets are still to come.
    pub(super) message: Option<Inbound>,
    /// A packet was refused, and until it comes again those after it are dropped in silence.
    pub(super) refusing: bool,
    pub(super) acknowledge: bool,
    pub(super) refusal: Option<(Refusal, u32)>,
    /// Answers to READs and atomics that are still to go out, oldest first.
    pub(super) answers: Deque<Due, MAX_READS>,
    /// The newest atomics and what they found, for those that come twice.
    pub(super) atomics: Deque<(u32, u64), MAX_READS>,
    /// The oldest receive WQE that has not completed; of a shared queue the one taken last.
    pub(super) receive_tail: u16,
    /// A WQE of a shared queue has been taken, and has not completed.
    pub(super) in_hand: bool,
    /// The producer index of the receive queue, as the doorbell record had it.
    pub(super) receive_producer: u16,
}

/// A message under way.
#[derive(Clone, Copy, Debug)]
pub(super) enum Inbound {
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
pub(super) struct Due {
    pub(super) answer: Answer,
    /// The message sequence number that it carries.
    pub(super) msn: u32,
    /// No packet of it has gone out.
    pub(super) first: bool,
    /// To a request that came twice. Its peer may have forgotten it long ago.
    pub(super) again: bool,
}

/// What is answered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// What is left of a READ.
    Read { psn: u32, range: Range, rkey: u32 },
    /// What an atomic found.
    Atomic { psn: u32, value: u64 },
}

impl Answer {
    pub(super) const fn psn(&self) -> u32 {
        match self {
            Self::Read { psn, .. } | Self::Atomic { psn, .. } => *psn,
        }
    }
}

impl Responder {
    pub(super) const fn new() -> Self {
        Self {
            expected: 0,
            msn: 0,
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

    /// Answers no READ and no atomic any more. That all is done, the peer hears only where none was
    /// left.
    pub(super) fn forget_answers(&mut self) {
        if !self.answers.is_empty() {
            self.answers.clear();
            self.acknowledge = false;
            self.refusal = None;
        }
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
        self.count(messages);
    }

    /// Counts so many messages of the peer's that are complete.
    pub(super) const fn count(&mut self, messages: u32) {
        self.msn = psn::add(self.msn, messages);
    }

    /// Whether there is room for one answer more. If need be, one to a request that came twice
    /// makes room: a peer that still wants it asks once more.
    pub(super) fn has_room(&mut self) -> bool {
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

    /// Appends the answer to a new request, which is complete with that (C9-148); false if there are too many.
    pub(super) fn answer(&mut self, answer: Answer) -> bool {
        let room = self.has_room();
        if room {
            self.count(1);
            self.append(answer, false);
        }
        room
    }

    fn append(&mut self, answer: Answer, again: bool) {
        let due = Due {
            answer,
            msn: self.msn,
            first: true,
            again,
        };
        // Without room it is lost, and the peer asks once more.
        let _ = self.answers.push_back(due);
    }

    /// Appends the answer to a request that came twice, in place of those from its PSN on: the
    /// peer asks for them again, too.
    pub(super) fn answer_again(&mut self, answer: Answer) {
        self.forget_answers_from(answer.psn());
        self.append(answer, true);
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

    /// Leaves what is posted alone: nobody can be told how it ends.
    pub(super) const fn forget_receives(&mut self) {
        self.receive_tail = self.receive_producer;
        self.in_hand = false;
    }
}
