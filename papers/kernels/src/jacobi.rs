//! Jacobi's relaxation in two dimensions over two ranks, which exchange the rows at their edges in every step: within the
//! kernel, by notifications or by triggered operations, or at its end by the host, as in the evaluation of ComP-Net and GPU-TN
//! (LeBeane, thesis defence, 2018).

use warpbell::wqe::Wqe;
use warpbell::{Block, Deadline, Exclusive, SendQueue, Ticket, block, kernel, thread};
use warpbell_patterns::trigger::{OwnTag, TriggerHandle};

use crate::meeting::meet;
use crate::path::Path;
use warpbell_kernels::outcome::{Failure, Outcome};
use warpbell_kernels::place::Place;

/// The way of the first row, to the other rank's copy below its last one; and its part, queue and tag.
pub const UP: u32 = 0;
/// The way of the last row, to the other rank's copy above its first one.
pub const DOWN: u32 = 1;
/// How many ways there are.
pub const WAYS: u32 = 2;

/// A rank's cells, twice: what is read in one step is written in the next. Each time they are `side` rows of `side` cells
/// of 4 bytes, with one row more at each end, a copy of the other rank's. A row's last cell is beside its first.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Cells {
    /// The first byte.
    pub start: Place,
    /// Rows, without the copies, and cells of a row.
    pub side: u32,
    /// Rows of a block.
    pub rows: u32,
}

impl Cells {
    /// Bytes for so many rows of as many cells.
    pub const fn bytes(side: u32) -> usize {
        2 * (side as usize + 2) * side as usize * 4
    }

    /// Where a row lies after so many steps, in cells; row 0 is the copy above the first one.
    pub const fn row(side: u32, step: u32, row: u32) -> u32 {
        ((step % 2) * (side + 2) + row) * side
    }

    /// What a cell becomes: the mean of those around it, summed in this order.
    pub const fn next(above: f32, below: f32, left: f32, right: f32) -> f32 {
        (above + below + left + right) * 0.25
    }

    /// Whether all rows are there, the block's among them.
    #[inline(always)]
    fn fits(&self) -> Result<(), Failure> {
        let (side, rows) = (u64::from(self.side), u64::from(self.rows));
        let rows = side.max((u64::from(block::index()) + 1).saturating_mul(rows));
        // Twice as many cells, of which a word has two.
        self.start
            .holds(rows.saturating_add(2).saturating_mul(side.max(1)))
    }

    /// Takes all of the block's rows a step on.
    #[inline(always)]
    fn relax(&self, step: u32) {
        self.relax_rows(step, 0, self.rows);
    }

    /// Takes `count` of the block's rows a step on, from its row `first` on.
    #[inline(always)]
    fn relax_rows(&self, step: u32, first: u32, count: u32) {
        // Never 0, which the compiler does not know: a division by 0 would be a panic.
        let side = self.side.max(1);
        let (old, new) = (Self::row(side, step, 0), Self::row(side, step ^ 1, 0));
        let cell = |at: u32| f32::from_bits(self.start.load_value(old + at));
        let first = (1 + block::index() * self.rows + first) * side;
        let end = first + count * side;
        let mut at = first + block::thread_index();
        while at < end {
            let column = at % side;
            let left = if column == 0 { at + side - 1 } else { at - 1 };
            let right = if column == side - 1 {
                at + 1 - side
            } else {
                at + 1
            };
            let value = Self::next(cell(at - side), cell(at + side), cell(left), cell(right));
            self.start.store_value(new + at, value.to_bits());
            at += block::size();
        }
    }

    /// The row that goes that way after so many steps.
    #[inline(always)]
    pub fn message(&self, path: &Path<'_>, way: u32, step: u32) -> [Wqe<1>; 2] {
        let (from, to) = match way {
            UP => (1, self.side + 1),
            _ => (self.side, 0),
        };
        let offset = |row| 4 * u64::from(Self::row(self.side, step, row));
        let row = path.write(offset(from), offset(to), 4 * self.side);
        [row, path.tell(way, step.into())]
    }
}

/// A step alone, for a host that drives the network.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct JacobiStep {
    /// The rank's.
    pub cells: Cells,
    /// Steps before it.
    pub step: u32,
}

/// Takes all cells a step on; none where they are not all there.
#[kernel]
pub fn jacobi_step(p: JacobiStep) {
    if p.cells.fits().is_ok() {
        p.cells.relax(p.step);
    }
}

/// A rank that drives the network itself, with at least two blocks.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Jacobi<'a> {
    /// The rank's.
    pub cells: Cells,
    /// From its cells to the other rank's; with a queue for each way, unless the operations are triggered.
    pub path: Path<'a>,
    /// How many steps.
    pub steps: u32,
    /// A word for each block, 0 at first, in memory of the kernel's own.
    pub arrivals: Place,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// The same with operations that are triggered.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct JacobiTriggered<'a> {
    /// The rank.
    pub rank: Jacobi<'a>,
    /// A tag for each way.
    pub triggers: TriggerHandle<'a>,
}

/// Computes all steps; the blocks at the edges post their rows, and a notification behind each.
#[kernel]
pub fn jacobi_notified(p: Jacobi<'_>) {
    p.outcome.record(|| {
        p.cells.fits().and_then(|()| match p.edge() {
            // Whole blocks part here: each may come to barriers of its own.
            INNER => p.run(&mut Inner),
            way => {
                let Some(queue) = p.path.queues.get(way.into()) else {
                    return Ok(());
                };
                // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
                let queue = unsafe { queue.open_together::<Exclusive, Block>() }?;
                p.run(&mut Notified {
                    queue,
                    way,
                    newest: None,
                })
            }
        })
    });
}

/// Computes all steps; the blocks at the edges register their row's operation ahead of a step, and trigger it behind.
#[kernel]
pub fn jacobi_triggered(p: JacobiTriggered<'_>) {
    p.rank.outcome.record(|| {
        p.rank.cells.fits().and_then(|()| match p.rank.edge() {
            INNER => p.rank.run(&mut Inner),
            way => {
                let tag = p.triggers.open()?.own::<Block>(way)?;
                p.rank.run(&mut Triggered { tag, way })
            }
        })
    });
}

/// A block without an edge.
const INNER: u32 = WAYS;

impl Jacobi<'_> {
    /// Which way the block's edge goes.
    #[inline(always)]
    fn edge(&self) -> u32 {
        let own = block::index();
        if own == 0 {
            UP
        } else if own + 1 == thread::grid_dim_x() {
            DOWN
        } else {
            INNER
        }
    }

    #[inline(always)]
    fn run<E: Edge>(&self, edge: &mut E) -> Result<(), Failure> {
        let (limit, blocks) = (self.path.limit(), thread::grid_dim_x());
        let rows = self.cells.rows;
        let rest = rows.saturating_sub(1);
        // The row at the edge goes first, so that it is on its way while the rest is computed.
        let (edge_row, rest, rest_rows) = match edge.way() {
            UP => (0, 1, rest),
            DOWN => (rest, 0, rest),
            _ => (0, 0, rows),
        };
        for step in 0..self.steps {
            edge.prepare(self, step + 1)?;
            // The other rank's next row takes the place of the copy that this one is computed from: the other one sends it
            // when it has got this one.
            self.cells.relax_rows(step, edge_row, rows - rest_rows);
            edge.send(self, step + 1)?;
            self.cells.relax_rows(step, rest, rest_rows);
            // All rows of this rank are there, and nobody reads those of the step before any more.
            meet(self.arrivals, blocks, u64::from(step) + 1, limit)?;
            edge.receive(self, step + 1)?;
        }
        edge.end(limit)
    }
}

/// What a block does about its edge in each step.
trait Edge {
    /// Which way its row goes; [`INNER`] without one.
    fn way(&self) -> u32;
    /// Before the row is there.
    fn prepare(&mut self, p: &Jacobi<'_>, step: u32) -> Result<(), Failure>;
    /// Sends the row.
    fn send(&mut self, p: &Jacobi<'_>, step: u32) -> Result<(), Failure>;
    /// Waits for the other rank's.
    fn receive(&mut self, p: &Jacobi<'_>, step: u32) -> Result<(), Failure>;
    /// Waits until all is sent.
    fn end(&mut self, limit: Deadline) -> Result<(), Failure>;
}

struct Inner;

impl Edge for Inner {
    #[inline(always)]
    fn way(&self) -> u32 {
        INNER
    }

    #[inline(always)]
    fn prepare(&mut self, _: &Jacobi<'_>, _: u32) -> Result<(), Failure> {
        Ok(())
    }

    #[inline(always)]
    fn send(&mut self, _: &Jacobi<'_>, _: u32) -> Result<(), Failure> {
        Ok(())
    }

    #[inline(always)]
    fn receive(&mut self, _: &Jacobi<'_>, _: u32) -> Result<(), Failure> {
        Ok(())
    }

    #[inline(always)]
    fn end(&mut self, _: Deadline) -> Result<(), Failure> {
        Ok(())
    }
}

/// Waits for the copy at the edge that sends this way: what the other rank sent the other way.
#[inline(always)]
fn receive(p: &Jacobi<'_>, way: u32, step: u32) -> Result<(), Failure> {
    let signal = p.path.signal(WAYS - 1 - way)?;
    signal.wait_together::<Block>(step.into(), p.path.limit())?;
    Ok(())
}

struct Notified<'a> {
    queue: SendQueue<'a, Exclusive, Block>,
    way: u32,
    /// The last row's notification.
    newest: Option<Ticket>,
}

impl Edge for Notified<'_> {
    #[inline(always)]
    fn way(&self) -> u32 {
        self.way
    }

    #[inline(always)]
    fn prepare(&mut self, _: &Jacobi<'_>, _: u32) -> Result<(), Failure> {
        Ok(())
    }

    #[inline(always)]
    fn send(&mut self, p: &Jacobi<'_>, step: u32) -> Result<(), Failure> {
        let leads = block::thread_index() == 0;
        let [row, told] = p.cells.message(&p.path, self.way, step);
        let mut both = self.queue.batch(2, p.path.limit())?;
        let _ = both.post_if(leads.then_some(row))?;
        // The last one's completion tells of all before it.
        let told = if step == p.steps {
            told.signalled()
        } else {
            told
        };
        let newest = both.post_if(leads.then_some(told))?;
        drop(both);
        self.newest = Some(newest);
        Ok(())
    }

    #[inline(always)]
    fn receive(&mut self, p: &Jacobi<'_>, step: u32) -> Result<(), Failure> {
        receive(p, self.way, step)
    }

    #[inline(always)]
    fn end(&mut self, limit: Deadline) -> Result<(), Failure> {
        match self.newest {
            Some(newest) => Ok(self.queue.wait_outbound(newest, limit)?),
            None => Ok(()),
        }
    }
}

struct Triggered<'a> {
    tag: OwnTag<'a, Block>,
    way: u32,
}

impl Edge for Triggered<'_> {
    #[inline(always)]
    fn way(&self) -> u32 {
        self.way
    }

    #[inline(always)]
    fn prepare(&mut self, p: &Jacobi<'_>, step: u32) -> Result<(), Failure> {
        let operation = p.cells.message(&p.path, self.way, step);
        Ok(self.tag.register(1, operation, p.path.limit())?)
    }

    #[inline(always)]
    fn send(&mut self, _: &Jacobi<'_>, _: u32) -> Result<(), Failure> {
        self.tag.trigger();
        Ok(())
    }

    #[inline(always)]
    fn receive(&mut self, p: &Jacobi<'_>, step: u32) -> Result<(), Failure> {
        receive(p, self.way, step)
    }

    #[inline(always)]
    fn end(&mut self, limit: Deadline) -> Result<(), Failure> {
        Ok(self.tag.wait(limit)?)
    }
}
