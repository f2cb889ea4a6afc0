//! The engine's side of a desk: what is lent there, and how it comes back.

use super::Engine;
use super::desk::{Desk, Signal, call, seat};
use super::loan::Loan;
use super::memory::Memory;
use super::wire::Wire;

/// What an engine has lent to its crew.
#[derive(Debug)]
pub struct Lender<'d, 't> {
    /// None if it has no crew.
    desk: Option<&'d Desk<'t>>,
    /// Seats whose loans are out: bit n is seat n.
    out: u32,
    /// All are called back: nothing is lent until something that waits for them was done.
    recalling: bool,
    /// Which keys loans of now may be used with; see [`Loan::era`].
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

    /// Takes back what the crew has given back, and answers its questions; gives how many.
    #[inline]
    pub(super) fn collect<M: Memory, W: Wire>(&mut self, engine: &mut Engine<'t, M, W>) -> usize {
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
    pub(super) fn recall(&mut self) -> bool {
        if self.out != 0 && !self.recalling {
            self.recalling = true;
            if let Some(desk) = self.desk {
                desk.call.tell(call::RECALL);
            }
        }
        self.out == 0
    }

    /// Whether loans are waited for.
    pub(super) const fn is_waiting(&self) -> bool {
        self.recalling && self.out != 0
    }

    /// Whether all loans have been called back, and have come: they can be lent again once that is over.
    pub(super) const fn has_recalled(&self) -> bool {
        self.recalling && self.out == 0
    }

    /// Something was done that waited for the loans.
    pub(super) const fn resume(&mut self) {
        self.recalling = self.is_waiting();
    }

    /// A free seat, if there is one and no loan is called back.
    pub(super) fn free_seat(&self) -> Option<u32> {
        let open = self.desk.map_or(0, Desk::open);
        let index = (!self.out).trailing_zeros();
        (index < open && !self.recalling).then_some(index)
    }

    /// Lends at a seat that was found free.
    pub(super) fn lend(&mut self, index: u32, mut loan: Loan) {
        let Some(desk) = self.desk else {
            return;
        };
        loan.era = self.era;
        if self.out == 0 {
            desk.call.tell(call::NONE);
        }
        if let Some(seat) = desk.seat(index as usize) {
            self.out |= 1 << index;
            // SAFETY: the seat is free, and this the engine's side.
            unsafe { seat.lend(loan) };
        }
    }
}
