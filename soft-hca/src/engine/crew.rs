//! Lanes that serve the doorbells of lent queues.
//!
//! Each lane listens to one doorbell register. Where one rings, all of them execute the queue's plain writes
//! together, a WQE each (`burst`). They work beside the engine, which lends the queues, and calls them back when
//! something else is to be done: the two meet at a [`Desk`].

mod burst;

use super::desk::{Desk, Signal, Wanted, call, in_turn, seat};
use super::lanes::Lanes;
use super::memory::Memory;
use super::packet::Range;
use burst::Verdict;

/// Whether a key opens a range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opens {
    Yes,
    No,
    /// It has to be looked up.
    Unknown,
}

/// What came of a crew's [`round`](Crew::round).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// There was something to do.
    Something,
    /// There was nothing to do: the lanes may pause.
    Nothing,
    /// The engine has ended, and so may they.
    Over,
}

/// One lane of a crew. All lanes call the same methods in the same order.
#[derive(Debug)]
pub struct Crew<'d, 't, M, L> {
    desk: &'d Desk<'t>,
    lanes: L,
    memory: M,
    /// The register that this lane listens to while the loan in the seat of its number is the crew's.
    register: Option<u64>,
    /// The last ring that it heard there, 0 if none was.
    heard: u64,
    /// Queues of which more is known to be posted: bit n is seat n.
    pending: u32,
    /// The era of the keys that are known.
    era: u32,
}

impl<'d, 't, M: Memory, L: Lanes> Crew<'d, 't, M, L> {
    /// Makes the calling thread one of the lanes at `desk`.
    ///
    /// # Safety
    ///
    /// The desk has one crew, whose lanes are as many as it was set up for. Each has a memory that reaches what the
    /// engine's does.
    #[inline(always)]
    pub const unsafe fn new(desk: &'d Desk<'t>, lanes: L, memory: M) -> Self {
        Self {
            desk,
            lanes,
            memory,
            register: None,
            heard: 0,
            pending: 0,
            era: 0,
        }
    }

    /// Does what the engine calls for, and executes what is posted to the lent queues, up to a WQE a lane of each.
    #[inline(always)]
    pub fn round(&mut self) -> Served {
        // Each lane may find another call: what one of them has heard is for all.
        let call = self.desk.call.peek();
        if self.lanes.ballot(call == call::CLOSE) != 0 {
            return Served::Over;
        }
        if self.lanes.ballot(call == call::RECALL) != 0 {
            self.give_back();
        }
        let received = self.receive();
        match self.serve() || received {
            true => Served::Something,
            false => Served::Nothing,
        }
    }

    /// Gives all loans back.
    #[inline(always)]
    fn give_back(&mut self) {
        // What all have stored, and lane 0 in the seats, before each tells of it.
        self.lanes.sync();
        if self.register.take().is_some()
            && let Some(seat) = self.desk.seat(self.lanes.index() as usize)
        {
            seat.state.tell(seat::BACK);
        }
        self.pending = 0;
    }

    /// Receives loans that have come; whether there was one.
    #[inline(always)]
    fn receive(&mut self) -> bool {
        let lanes = self.lanes;
        let index = lanes.index() as usize;
        let place = match self.register {
            None if index < self.desk.open() => self.desk.seat(index),
            _ => None,
        };
        let state = place.map_or(seat::FREE, |seat| seat.state.peek());
        let place = place.filter(|_| matches!(state, seat::LENT | seat::KEYED));
        let came = lanes.ballot(place.is_some());
        if came == 0 {
            return false;
        }
        Signal::acquire();
        // SAFETY: the engine has just lent it, and nobody of the crew changes it meanwhile.
        let loan = place.map(|seat| unsafe { seat.loan() });
        let waiting = loan.is_some_and(|loan| loan.producer != loan.tail);
        self.register = self.register.or(loan.map(|loan| loan.register));
        if loan.is_some() {
            self.heard = 0;
        }
        self.pending |= lanes.ballot(waiting);
        // All loans that are out at the same time are of one era.
        let era = loan.map_or(0, |loan| loan.era);
        let era = lanes.broadcast(era.into(), came.trailing_zeros()) as u32;
        if era != self.era {
            self.era = era;
            in_turn(lanes, 1, || self.desk.forget_keys());
        }
        let keyed = lanes.ballot(place.is_some() && state == seat::KEYED);
        in_turn(lanes, keyed, || {
            if let Some(seat) = place {
                // SAFETY: as its state says.
                self.desk.keep(unsafe { seat.given_key() });
            }
        });
        true
    }

    /// The ring at this lane's register that it has not heard yet.
    #[inline(always)]
    fn ring(&self) -> Option<u64> {
        // SAFETY: the owner vouched for the page when the queue pair was created.
        let value = unsafe { self.memory.peek_u64(self.register?) };
        // 0 is what the engine leaves behind. No two rings that count are alike: 65,536 blocks lie between
        // them, more than a ring has.
        (value != 0 && value != self.heard).then_some(value)
    }

    /// Executes what is posted; false if nothing was to be done.
    #[inline(always)]
    fn serve(&mut self) -> bool {
        let lanes = self.lanes;
        let ring = self.ring();
        let rung = lanes.ballot(ring.is_some());
        let mut waiting = rung | self.pending;
        if waiting == 0 {
            return false;
        }
        let ring = ring.unwrap_or_default();
        while waiting != 0 {
            let which = waiting.trailing_zeros();
            waiting &= waiting - 1;
            let heard = match rung >> which & 1 {
                0 => None,
                _ => Some(lanes.broadcast(ring, which)),
            };
            let Some(seat) = self.desk.seat(which as usize) else {
                break;
            };
            let done = self.burst(seat, heard);
            let bit = 1 << which;
            self.pending = (self.pending & !bit) | if done.more { bit } else { 0 };
            let mine = lanes.index() == which;
            if let Some(heard) = heard
                && done.confirmed
                && mine
            {
                self.heard = heard;
            }
            if done.verdict == Verdict::Executed {
                continue;
            }
            self.pending &= !bit;
            if mine {
                self.register = None;
            }
            // What all have stored before lane 0 tells of it.
            lanes.sync();
            if lanes.index() == 0 {
                match done.wanted {
                    // SAFETY: the loan is the crew's.
                    Some(wanted) if done.verdict == Verdict::Unknown => unsafe { seat.ask(wanted) },
                    _ => seat.state.tell(seat::NOT_PLAIN),
                }
            }
        }
        true
    }

    /// Whether a key opens a range.
    #[inline(always)]
    fn opens(&self, wanted: Wanted, range: Range) -> Opens {
        match self.desk.key(wanted) {
            Some(window) if window.holds(range) => Opens::Yes,
            Some(_) => Opens::No,
            None => Opens::Unknown,
        }
    }
}
