//! The engine's side of a desk: what is lent there, and how it comes back.

use crate::desk::{Desk, Signal, call, seat};
use warpbell_soft_hca::engine::dispatch::{Dispatch, Turn};
use warpbell_soft_hca::engine::loan::Loan;
use warpbell_soft_hca::engine::{Engine, Memory, Wire};

/// What an engine has lent to its crew.
#[derive(Debug)]
pub struct Lender<'d, 't> {
    /// None if it has no crew.
    desk: Option<&'d Desk<'t>>,
    /// Seats whose loans are out: bit n is seat n.
    out: u32,
    /// All are called back: nothing is lent until something that waits for them was done.
    recalling: bool,
    /// Which keys loans of now may be used with; they are of this era.
    era: u32,
}

impl<'d, 't> Lender<'d, 't> {
    /// That of an engine without a crew.
    pub const fn alone() -> Self {
        Self {
            desk: None,
            out: 0,
            recalling: false,
            era: 0,
        }
    }

    /// The engine's side of `desk`.
    ///
    /// # Safety
    ///
    /// The desk has one engine, which alone comes with the only lender; nothing was lent there before.
    pub const unsafe fn new(desk: &'d Desk<'t>) -> Self {
        Self {
            desk: Some(desk),
            ..Self::alone()
        }
    }

    /// Calls all loans back, and takes those that have come; true once none is out, so that the engine may carry out
    /// any command.
    pub fn clear<M: Memory, W: Wire>(&mut self, engine: &mut Engine<'t, M, W>) -> bool {
        self.collect(engine);
        // A key that the crew knows may mean something else afterwards.
        self.era = self.era.wrapping_add(1);
        let clear = self.recall();
        self.recalling = !clear;
        clear
    }

    /// Lets the crew go; nothing is lent.
    pub fn close(&self) {
        if let Some(desk) = self.desk {
            desk.call.tell(call::CLOSE);
        }
    }

    /// Whether all loans have been called back, and have come: they can be lent again once that is over.
    const fn has_recalled(&self) -> bool {
        self.recalling && self.out == 0
    }

    /// A free seat, if there is one and no loan is called back.
    fn free_seat(&self) -> Option<u32> {
        let open = self.desk.map_or(0, Desk::open);
        let index = (!self.out).trailing_zeros();
        (index < open && !self.recalling).then_some(index)
    }

    /// Lends at a seat that was found free.
    fn lend(&mut self, index: u32, loan: Loan) {
        let Some(desk) = self.desk else {
            return;
        };
        if self.out == 0 {
            desk.call.tell(call::NONE);
        }
        if let Some(seat) = desk.seat(index as usize) {
            self.out |= 1 << index;
            // SAFETY: the seat is free, and this the engine's side.
            unsafe { seat.lend(loan, self.era) };
        }
    }
}

impl<'t> Dispatch<'t> for Lender<'_, 't> {
    /// Takes back what the crew has given back, and answers its questions; gives how many.
    #[inline]
    fn collect<M: Memory, W: Wire>(&mut self, engine: &mut Engine<'t, M, W>) -> usize {
        let (Some(desk), mut waiting) = (self.desk, self.out) else {
            return 0;
        };
        let mut done = 0;
        while waiting != 0 {
            let index = waiting.trailing_zeros();
            waiting &= waiting - 1;
            let Some(seat) = desk.seat(index as usize) else {
                break;
            };
            let state = seat.state.peek();
            if !matches!(state, seat::BACK | seat::NOT_PLAIN | seat::WANTS_KEY) {
                continue;
            }
            done += 1;
            Signal::acquire();
            let wants_key = state == seat::WANTS_KEY && !self.recalling;
            // SAFETY: the crew has given it back, and said that a question lies there.
            if wants_key && unsafe { seat.answer(|wanted| engine.window(wanted)) } {
                continue;
            }
            // SAFETY: the crew has given it back.
            let loan = unsafe { seat.loan() };
            // A key that is none is an error, which has its place among what is not plain. So has a key that was asked for
            // in vain: a queue that is lent again and again, and called back each time before it knows its keys, would
            // never get on.
            engine.take_back(loan, state != seat::BACK);
            self.out &= !(1 << index);
        }
        done
    }

    /// Calls all loans back; whether none is out.
    #[inline]
    fn recall(&mut self) -> bool {
        if self.out != 0 && !self.recalling {
            self.recalling = true;
            if let Some(desk) = self.desk {
                desk.call.tell(call::RECALL);
            }
        }
        self.out == 0
    }

    /// Whether loans are waited for.
    #[inline]
    fn is_waiting(&self) -> bool {
        self.recalling && self.out != 0
    }

    /// Lends the queue if there is a seat for it; else the engine has it, once no loan is out.
    #[inline]
    fn turn<M: Memory, W: Wire>(&mut self, engine: &mut Engine<'t, M, W>, index: u32) -> Turn {
        if let Some(seat) = self.free_seat()
            && let Some(loan) = engine.lend(index)
        {
            self.lend(seat, loan);
            return Turn::Lent;
        }
        match self.recall() {
            // What was called back for the sake of another is lent again in the next step: cut into packets, it would
            // take long, and its packets would keep all others from being lent.
            true if self.has_recalled() && engine.may_lend(index) => Turn::Later,
            true => Turn::Engine,
            false => Turn::Later,
        }
    }

    #[inline]
    fn finish(&mut self) -> bool {
        // What was called back is in turn behind what waited for a seat, and stays so: turned once more, as many queues as
        // there are seats would have them for ever.
        let turns = !self.has_recalled();
        // Something was done that waited for the loans.
        self.recalling = self.is_waiting();
        turns
    }
}
