//! Who executes plain writes in the engine's place, if anybody does.
//!
//! An engine on a CPU does all by itself, with [`NoDispatch`], which is nothing. An engine on a GPU lends queues to the
//! threads beside it (`warpbell-soft-hca-gpu`). While a queue is lent, the engine does nothing that may concern the
//! queue: it calls all loans back first, and goes on with something else until they have come.

use super::Engine;
use super::memory::Memory;
use super::wire::Wire;

/// What becomes of a queue pair that has work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The engine does the work.
    Engine,
    /// Nobody does for now: the queue pair waits for its next turn.
    Later,
    /// Its send queue was [lent](Engine::lend).
    Lent,
}

/// What a [step](Engine::step_with) asks about queues that are lent.
pub trait Dispatch<'t> {
    /// At a step's begin: gives the engine [back](Engine::take_back) what has been returned. The number of things done.
    fn collect<M: Memory, W: Wire>(&mut self, engine: &mut Engine<'t, M, W>) -> usize;

    /// Calls all loans back. True if none is out, so that the engine may do anything.
    fn recall(&mut self) -> bool;

    /// Whether loans are called back and still out: no queue pair has a turn then.
    fn is_waiting(&self) -> bool;

    /// The turn of the queue pair with this table index.
    fn turn<M: Memory, W: Wire>(&mut self, engine: &mut Engine<'t, M, W>, index: u32) -> Turn;

    /// At a step's end: whether the first in the line of queue pairs goes to its end.
    fn finish(&mut self) -> bool;
}

/// No dispatch: the engine does all by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDispatch;

impl<'t> Dispatch<'t> for NoDispatch {
    #[inline(always)]
    fn collect<M: Memory, W: Wire>(&mut self, _engine: &mut Engine<'t, M, W>) -> usize {
        0
    }

    #[inline(always)]
    fn recall(&mut self) -> bool {
        true
    }

    #[inline(always)]
    fn is_waiting(&self) -> bool {
        false
    }

    #[inline(always)]
    fn turn<M: Memory, W: Wire>(&mut self, _engine: &mut Engine<'t, M, W>, _index: u32) -> Turn {
        Turn::Engine
    }

    #[inline(always)]
    fn finish(&mut self) -> bool {
        true
    }
}
