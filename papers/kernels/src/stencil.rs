//! A stencil in one dimension, as the GPUrdma paper sketches it in its figure 6: over GASPI, whose notifications the blocks
//! send themselves; by operations that they trigger; and a step alone, for a host that exchanges the edges.

use warpbell::wqe::Wqe;
use warpbell::{Block, Exclusive, block, kernel, thread};
use warpbell_patterns::gaspi::{GASPI_BLOCK, GaspiHandle};
use warpbell_patterns::trigger::{OwnTag, TriggerHandle};

use crate::path::Path;
use warpbell_kernels::gaspi::{expect, words_of};
use warpbell_kernels::outcome::{Failure, Outcome};
use warpbell_kernels::place::Place;

/// The segment of all ranks, which has their strips.
const SEGMENT: u32 = 0;

/// The left end of a strip. Ends are numbers, because an array of them that is gone through would lie in a GPU's local
/// memory.
pub const LEFT: u32 = 0;
/// The right end.
pub const RIGHT: u32 = 1;
/// How many ends a strip has.
pub const ENDS: u32 = 2;

/// Whose a strip is. They are dealt out to the ranks in turn, so that both neighbours of each are at other ranks, as in the
/// figure, whatever the blocks; the last one is beside the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The rank.
    pub rank: u32,
    /// Its block.
    pub block: u32,
}

impl Owner {
    /// Whose the strip of that number is, among so many ranks.
    #[inline(always)]
    pub fn of(strip: u32, ranks: u32) -> Self {
        // Never 0, which the compiler does not know: a division by 0 would be a panic.
        let ranks = ranks.max(1);
        Self {
            rank: strip % ranks,
            block: strip / ranks,
        }
    }

    /// Whose the strip beside that end is, among so many ranks of so many blocks.
    #[inline(always)]
    pub fn beside(self, end: u32, ranks: u32, blocks: u32) -> Self {
        let strips = (ranks * blocks).max(1);
        let own = self.block * ranks + self.rank;
        let step = if end == LEFT { strips - 1 } else { 1 };
        Self::of((own + step) % strips, ranks)
    }
}

/// The strips of a rank's blocks, one for each, twice: what is read in one step is written in the next. A strip is its cells
/// of 8 bytes with one more at each end, a copy of the neighbour's.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Strips {
    /// The first byte.
    pub start: Place,
    /// Cells of a strip, without the copies.
    pub cells: u32,
}

impl Strips {
    /// Bytes for so many blocks.
    pub const fn bytes(blocks: u32, cells: u32) -> usize {
        8 * 2 * blocks as usize * (cells as usize + 2)
    }

    /// Where a block's cell lies after so many steps, in bytes; cell 0 is the copy on the left.
    pub const fn offset(cells: u32, block: u32, step: u32, cell: u32) -> u64 {
        let strip = 2 * block + step % 2;
        8 * (strip as u64 * (cells as u64 + 2) + cell as u64)
    }

    /// What a cell becomes.
    pub const fn next(left: u64, own: u64, right: u64) -> u64 {
        left.wrapping_add(own.wrapping_mul(3)).wrapping_sub(right)
    }

    /// The block's strip, twice.
    #[inline(always)]
    fn of_block(&self) -> Result<Place, Failure> {
        let words = 2 * (u64::from(self.cells) + 2);
        let first = u64::from(block::index()).saturating_mul(words);
        self.start.part(first, words)
    }

    /// Takes the block's strip a step on, with all its threads.
    #[inline(always)]
    fn advance(&self, own: Place, step: u32) {
        let strip = |step| (Self::offset(self.cells, 0, step, 0) / 8) as u32;
        let (old, new) = (strip(step), strip(step ^ 1));
        let value = |cell: u32| own.load(old + cell);
        let mut cell = 1 + block::thread_index();
        while cell <= self.cells {
            let value = Self::next(value(cell - 1), value(cell), value(cell + 1));
            own.store(new + cell, value);
            cell += block::size();
        }
    }

    /// What goes over an end of a strip: the cell there, to the copy at the other end of the strip beside it. Where both lie
    /// after so many steps, in bytes.
    #[inline(always)]
    fn edge(cells: u32, own: u32, end: u32, beside: u32, step: u32) -> (u64, u64) {
        let (from, to) = if end == LEFT {
            (1, cells + 1)
        } else {
            (cells, 0)
        };
        let offset = |block, cell| Self::offset(cells, block, step, cell);
        (offset(own, from), offset(beside, to))
    }

    /// The same of one of two ranks as requests: the cell, and behind it the word that tells of it.
    #[inline(always)]
    pub fn message(&self, path: &Path<'_>, own: Owner, end: u32, step: u32) -> [Wqe<1>; 2] {
        let beside = own.beside(end, 2, path.parts / ENDS).block;
        let (from, to) = Self::edge(self.cells, own.block, end, beside, step);
        let told = ENDS * beside + (ENDS - 1 - end);
        [
            path.write(from, to, path.bytes),
            path.tell(told, step.into()),
        ]
    }
}

/// A rank whose blocks exchange their edges over GASPI.
///
/// Each block has a strip of segment 0, and uses queue `2 * block` towards the strip on its left, `2 * block + 1` towards
/// the one on its right.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Stencil<'a> {
    /// The rank.
    pub gaspi: GaspiHandle<'a>,
    /// Cells of a strip, without the copies.
    pub cells: u32,
    /// How many steps.
    pub steps: u32,
    /// What became of it.
    pub outcome: &'a Outcome,
}

impl Stencil<'_> {
    /// Notifications of so many blocks.
    pub const fn notifications(blocks: u32) -> u32 {
        2 * ENDS * blocks
    }

    /// Says that a block's copy at that end is there after so many steps. Two numbers in turn: the neighbour may be one
    /// step ahead.
    const fn notification(block: u32, end: u32, step: u32) -> u32 {
        2 * ENDS * block + ENDS * (step % 2) + end
    }
}

/// Computes all steps, with all threads of each block.
#[kernel]
pub fn gaspi_stencil(p: Stencil<'_>) {
    p.outcome.record(|| stencil(p));
}

#[inline(always)]
fn stencil(p: Stencil<'_>) -> Result<(), Failure> {
    let gaspi = p.gaspi.open()?;
    let own = Owner {
        rank: gaspi.proc_rank(),
        block: block::index(),
    };
    let strips = Strips {
        start: words_of(gaspi, SEGMENT)?,
        cells: p.cells,
    };
    let words = strips.of_block()?;
    let beside = |end| own.beside(end, gaspi.proc_num(), thread::grid_dim_x());
    let (left, right) = (beside(LEFT), beside(RIGHT));
    let mut to_left = gaspi.queue::<Exclusive, Block>(2 * own.block, left.rank)?;
    let mut to_right = gaspi.queue::<Exclusive, Block>(2 * own.block + 1, right.rank)?;
    for step in 0..p.steps {
        let next = step + 1;
        strips.advance(words, step);
        // Our first cell is the copy at their right end, our last one that at their left.
        let (from, to) = Strips::edge(p.cells, own.block, LEFT, left.block, next);
        let told = Stencil::notification(left.block, RIGHT, next);
        to_left.write_notify(SEGMENT, from, SEGMENT, to, 8, told, next, GASPI_BLOCK)?;
        let (from, to) = Strips::edge(p.cells, own.block, RIGHT, right.block, next);
        let told = Stencil::notification(right.block, LEFT, next);
        to_right.write_notify(SEGMENT, from, SEGMENT, to, 8, told, next, GASPI_BLOCK)?;
        for end in LEFT..=RIGHT {
            let told = Stencil::notification(own.block, end, next);
            expect::<Block>(gaspi, SEGMENT, told, next)?;
        }
    }
    to_left.wait(GASPI_BLOCK)?;
    Ok(to_right.wait(GASPI_BLOCK)?)
}

/// A step alone, for a host that drives the network.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StencilStep {
    /// The rank's.
    pub strips: Strips,
    /// Steps before it.
    pub step: u32,
}

/// Takes all strips a step on. One that is not there is left alone.
#[kernel]
pub fn stencil_step(p: StencilStep) {
    if let Ok(own) = p.strips.of_block() {
        p.strips.advance(own, p.step);
    }
}

/// One of two ranks whose blocks trigger operations: a tag for each end of each strip.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StencilTriggered<'a> {
    /// The rank's.
    pub strips: Strips,
    /// Which of both it is.
    pub rank: u32,
    /// How many steps.
    pub steps: u32,
    /// From its strips to the other rank's, a part for each end.
    pub path: Path<'a>,
    /// A tag for each part.
    pub triggers: TriggerHandle<'a>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Computes all steps; each block registers what goes over its ends ahead of a step, and triggers it behind.
#[kernel]
pub fn stencil_triggered(p: StencilTriggered<'_>) {
    p.outcome.record(|| p.run());
}

impl StencilTriggered<'_> {
    #[inline(always)]
    fn run(&self) -> Result<(), Failure> {
        let words = self.strips.of_block()?;
        let (triggers, first) = (self.triggers.open()?, ENDS * block::index());
        let mut to_left = triggers.own::<Block>(first + LEFT)?;
        let mut to_right = triggers.own::<Block>(first + RIGHT)?;
        // A function of its own, so that the tags are given back in one place: a GPU would call what is in several.
        self.exchange(words, &mut to_left, &mut to_right)
    }

    #[inline(always)]
    fn exchange(
        &self,
        words: Place,
        to_left: &mut OwnTag<'_, Block>,
        to_right: &mut OwnTag<'_, Block>,
    ) -> Result<(), Failure> {
        let (path, limit) = (&self.path, self.path.limit());
        let (rank, block) = (self.rank, block::index());
        let own = Owner { rank, block };
        for step in 0..self.steps {
            let next = step + 1;
            let message = |end| self.strips.message(path, own, end, next);
            to_left.register(1, message(LEFT), limit)?;
            to_right.register(1, message(RIGHT), limit)?;
            self.strips.advance(words, step);
            to_left.trigger();
            to_right.trigger();
            for end in LEFT..=RIGHT {
                let told = path.signal(ENDS * block + end)?;
                told.wait_together::<Block>(next.into(), limit)?;
            }
        }
        to_left.wait(limit)?;
        Ok(to_right.wait(limit)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strips_form_a_ring_and_each_lies_between_two_of_other_ranks() {
        for (ranks, blocks) in [(1, 1), (1, 3), (2, 1), (2, 4), (3, 2), (5, 1)] {
            let strips = ranks * blocks;
            for strip in 0..strips {
                let own = Owner::of(strip, ranks);
                assert!(own.rank < ranks && own.block < blocks);
                let [left, right] = [LEFT, RIGHT].map(|end| own.beside(end, ranks, blocks));
                assert_eq!(left, Owner::of((strip + strips - 1) % strips, ranks));
                assert_eq!(right, Owner::of((strip + 1) % strips, ranks));
                assert_eq!(left.beside(RIGHT, ranks, blocks), own);
                let others = left.rank != own.rank && right.rank != own.rank;
                assert_eq!(others, ranks > 1, "{own:?} of {ranks} × {blocks}");
            }
        }
    }

    #[test]
    fn an_edge_goes_to_the_copy_at_the_other_end_beside_it() {
        let offset = |block, cell| Strips::offset(10, block, 3, cell);
        assert_eq!(
            Strips::edge(10, 4, LEFT, 2, 3),
            (offset(4, 1), offset(2, 11))
        );
        assert_eq!(
            Strips::edge(10, 4, RIGHT, 5, 3),
            (offset(4, 10), offset(5, 0))
        );
        // Nothing of one strip or step lies in another, and all of it in the bytes.
        let last = Strips::offset(10, 5, 1, 11) + 8;
        assert_eq!(last, Strips::bytes(6, 10) as u64);
        assert_eq!(offset(2, 11) + 8, Strips::offset(10, 3, 0, 0));
    }
}
