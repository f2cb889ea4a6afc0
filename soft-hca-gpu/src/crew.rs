//! Lanes that serve the doorbells of lent queues.
//!
//! Each lane listens to one doorbell register. Where one rings, the lane executes the queue's plain write by itself
//! if there is but one (`alone`), and otherwise all of them do together, a WQE each (`burst`). They work beside the
//! engine, which lends the queues, and calls them back when something else is to be done: the two meet at a
//! [`Desk`].

mod alone;
mod burst;
mod front;
mod open;

use core::mem;

use crate::desk::{Desk, Seat, Signal, call, in_turn, seat};
use crate::lanes::Lanes;
use crate::memory::LaneMemory;
use alone::Done;
use burst::Verdict;
use front::Front;

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
    /// The seat of this lane's number, if the crew looks at it.
    seat: Option<&'d Seat<'t>>,
    /// Its state; that of a free one, if the crew does not look at it.
    state: &'d Signal,
    /// The register that this lane listens to while the loan in the seat of its number is the crew's; 0 otherwise.
    register: u64,
    /// The last ring that was heard there, 0 if none was.
    heard: u64,
    /// Where the WQE lies that the next ring tells of, unless it is `stale`.
    front: Front,
    /// Others have executed WQEs of this lane's loan: where the next one lies is looked up when there is time for it,
    /// or has to be.
    stale: bool,
    /// Queues of which more is known to be posted: bit n is seat n.
    pending: u32,
    /// The era of the keys that are known.
    era: u32,
}

impl<'d, 't, M: LaneMemory, L: Lanes> Crew<'d, 't, M, L> {
    /// Makes the calling thread one of the lanes at `desk`.
    ///
    /// # Safety
    ///
    /// The desk has one crew, whose lanes are as many as it was set up for. Each has a memory that reaches what the
    /// engine's does.
    #[inline(always)]
    pub unsafe fn new(desk: &'d Desk<'t>, lanes: L, memory: M) -> Self {
        let place = lanes.index();
        let open = place < desk.open();
        let seat = open.then(|| desk.seat(place as usize)).flatten();
        Self {
            desk,
            lanes,
            memory,
            seat,
            state: seat.map_or(&desk.free, |seat| &seat.state),
            register: 0,
            heard: 0,
            front: Front::NOWHERE,
            stale: false,
            pending: 0,
            era: 0,
        }
    }
}

impl<M: LaneMemory, L: Lanes> Crew<'_, '_, M, L> {
    /// Does what the engine calls for, and executes what is posted to the lent queues, up to a WQE a lane of each.
    #[inline(always)]
    pub fn round(&mut self) -> Served {
        let lanes = self.lanes;
        // All looks before the first question: a round with nothing to do takes the time of the longest.
        let ring = self.listen();
        let call = self.desk.call.peek();
        let offer = self.offer();
        // No two rings that count are alike: 65,536 blocks lie between them, more than a ring has.
        let rung = (ring != self.heard) & (ring != 0);
        let called = (call == call::CLOSE) | (call == call::RECALL) & (self.register != 0);
        let other = called | (offer != seat::FREE);
        let news = lanes.ballot(other | rung);
        let others = lanes.ballot(other);
        if news | self.pending == 0 {
            if self.stale {
                self.look_up_front();
            }
            return Served::Nothing;
        }
        if others != 0 {
            // Each lane may find another call: what one of them has heard is for all.
            if lanes.ballot(called) != 0 {
                if lanes.ballot(call == call::CLOSE) != 0 {
                    return Served::Over;
                }
                self.give_back();
                return Served::Something;
            }
            self.receive(offer);
        }
        // A lane that was offered a loan has none yet, and so no ring.
        self.serve(ring, news & !others);
        Served::Something
    }

    /// Gives all loans back.
    #[inline(always)]
    fn give_back(&mut self) {
        // What all have stored, and lane 0 in the seats, before each tells of it.
        self.lanes.sync();
        let register = mem::take(&mut self.register);
        if register != 0
            && let Some(seat) = self.seat
        {
            seat.state.tell(seat::BACK);
        }
        self.pending = 0;
    }

    /// The state of the seat of this lane's number, if a loan waits there to be received; else that of a free one.
    #[inline(always)]
    fn offer(&self) -> u32 {
        let state = self.state.peek();
        let offered = (state == seat::LENT) | (state == seat::KEYED);
        match offered & (self.register == 0) {
            true => state,
            false => seat::FREE,
        }
    }

    /// Receives the loans that lanes were offered.
    #[inline(always)]
    fn receive(&mut self, offer: u32) {
        let lanes = self.lanes;
        let came = lanes.ballot(offer != seat::FREE);
        if came == 0 {
            return;
        }
        Signal::acquire();
        let place = match offer {
            seat::FREE => None,
            _ => self.seat,
        };
        // SAFETY: the engine has just lent it, and nobody of the crew changes it meanwhile.
        let lent = place.map(|seat| unsafe { (seat.loan(), seat.era()) });
        let loan = lent.map(|(loan, _)| loan);
        let waiting = loan.is_some_and(|loan| loan.producer != loan.tail);
        if let Some(loan) = loan {
            (self.register, self.heard) = (loan.register.address, loan.register.heard);
            (self.front, self.stale) = (Front::of(loan), false);
        }
        self.pending |= lanes.ballot(waiting);
        // All loans that are out at the same time are of one era.
        let era = lent.map_or(0, |(_, era)| era);
        let era = lanes.broadcast(era.into(), came.trailing_zeros()) as u32;
        if era != self.era {
            self.era = era;
            in_turn(lanes, 1, || self.desk.forget_keys());
        }
        let keyed = lanes.ballot(offer == seat::KEYED);
        in_turn(lanes, keyed, || {
            if let Some(seat) = place {
                // SAFETY: as its state says.
                self.desk.keep(unsafe { seat.given_key() });
            }
        });
    }

    /// Finds out where the WQE lies that the next ring tells of. All lanes have met since another one changed the loan.
    #[inline(always)]
    fn look_up_front(&mut self) {
        if self.register != 0
            && let Some(seat) = self.seat
        {
            // SAFETY: the loan is the crew's.
            self.front = Front::of(unsafe { seat.loan() });
        }
        self.stale = false;
    }

    /// What stands in this lane's register; 0 if it has none.
    #[inline(always)]
    fn listen(&self) -> u64 {
        match self.register {
            0 => 0,
            // SAFETY: the owner vouched for the page when the queue pair was created.
            register => unsafe { self.memory.peek_u64(register) },
        }
    }

    /// Executes what is posted, as the rings tell that the lanes have found.
    #[inline(always)]
    fn serve(&mut self, ring: u64, rung: u32) {
        let lanes = self.lanes;
        let mine = rung & !self.pending;
        let done = match mine >> lanes.index() & 1 {
            0 => Done::Nothing,
            _ => {
                if self.stale {
                    self.look_up_front();
                }
                self.alone(ring)
            }
        };
        let served = lanes.ballot(done != Done::Nothing);
        self.pending |= lanes.ballot(done == Done::AndMore);
        if done != Done::Nothing {
            self.heard = ring;
        }
        let rung = rung & !served;
        let ring = match rung >> lanes.index() & 1 {
            0 => 0,
            _ => ring,
        };
        let mut waiting = rung | self.pending;
        while waiting != 0 {
            let which = waiting.trailing_zeros();
            waiting &= waiting - 1;
            // A lane whose ring does not count brings 0.
            let heard = lanes.broadcast(ring, which);
            let Some(seat) = self.desk.seat(which as usize) else {
                break;
            };
            let done = self.burst(seat, heard);
            let bit = 1 << which;
            self.pending = (self.pending & !bit) | if done.more { bit } else { 0 };
            let mine = lanes.index() == which;
            if mine & (ring != 0) & done.confirmed {
                self.heard = ring;
            }
            self.stale |= mine;
            if done.verdict == Verdict::Executed {
                continue;
            }
            self.pending &= !bit;
            if mine {
                self.register = 0;
            }
            // What all have stored before lane 0 tells of it.
            lanes.sync();
            if lanes.index() == 0 {
                match done.verdict {
                    // SAFETY: the loan is the crew's.
                    Verdict::Unknown => unsafe { seat.ask(done.wanted) },
                    _ => seat.state.tell(seat::NOT_PLAIN),
                }
            }
        }
        // What lane 0 has stored in the seats, before the others look there.
        lanes.sync();
    }
}
