//! Jacobi's relaxation over two ranks: edges exchanged by the host between kernels, or within a kernel, notified, triggered or by a proxy.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use warpbell_bench::origin::Origin;
use warpbell_bench::party::Party;
use warpbell_bench::run::screen::Screen;
use warpbell_bench::run::{interrupt, memory};
use warpbell_host_init::{Buffer, Grid, Launch, Node, Placement, entry};
use warpbell_kernels::outcome::Outcome;
use warpbell_paper_kernels::jacobi::{
    Cells, Jacobi, JacobiStep, JacobiTriggered, WAYS, jacobi_notified, jacobi_step,
    jacobi_triggered,
};
use warpbell_paper_kernels::path::Path;

use crate::Error;
use crate::application::{Application, Extent, Section};
use crate::halo::{self, Case, Pair, Ranks, Reference, Series, Stencil, Way};
use crate::rig::Member;

/// For the report.
pub const APPLICATION: Application = Application {
    name: "jacobi",
    title: "Jacobi relaxation with an exchange of edges",
    paper: "LeBeane's evaluation of ComP-Net and GPU-TN: Jacobi's relaxation in two dimensions, the rows divided among nodes, \
        which exchange the rows at their edges in every step: between two kernels by the host (kernel-boundary networking), \
        or within a kernel that stays, through a network processor or by operations that the GPU triggers. Simulated APUs; \
        the figures are pictures that our copy lacks.",
    differs: "No card: the NIC is software. Two ranks in one process, one under the other and round again, each a kernel of \
        several blocks that meet in every step. Sides of 64 to 1,024 cells of 4 bytes for each rank. The host has a thread for \
        each rank. Within a kernel a row goes with a notification behind it, or by an operation that is triggered; or a thread of the host posts it for the kernel. Every cell \
        is compared with a loop on the host, bit by bit, behind each repetition.",
    run,
};

/// The title of the plot.
pub const PLOT: &str = "Jacobi relaxation";

/// Bytes of a cell.
const CELL: u32 = 4;

/// Sides of 64 to 1,024 in all ways; on a CPU fewer blocks, and none as large.
pub fn series(node: &Node) -> Series {
    let blocks = match node.gpu() {
        Some(_) => 16,
        None => 2,
    };
    Series {
        ways: Way::ALL.to_vec(),
        ..Series::new(node, blocks)
    }
}

/// Two ranks of `size` rows of as many cells, one under the other and round again.
pub struct Relaxation;

impl Stencil for Relaxation {
    const SIZE: &'static str = "side of a rank (cells)";
    const WHOSE: &'static str = "size of a rank's cells (bytes)";

    fn bytes(size: u32) -> u64 {
        u64::from(CELL) * u64::from(size) * u64::from(size)
    }

    /// Each block has as many rows, and both edges a block of their own.
    fn check(case: &Case, _: &[Way]) -> Result<(), Error> {
        match case.size > 0 && case.size.is_multiple_of(case.blocks) {
            true => Ok(()),
            false => Err(Error::Uneven {
                bytes: Self::bytes(case.size),
                parts: case.blocks,
                what: "rows",
                unit: row(case).into(),
            }),
        }
    }

    fn reference(case: &Case) -> Result<Reference, Error> {
        let mut random = SmallRng::seed_from_u64(case.seed);
        let count = 2 * case.size as usize * case.size as usize;
        let start: Vec<f32> = (0..count).map(|_| random.random()).collect();
        Ok(Reference {
            expected: bytes_of(&relaxed(&start, case.size as usize, case.steps)?),
            start: bytes_of(&start),
        })
    }

    fn ranks(case: &Case, party: &Party, way: Way) -> Result<Box<dyn Ranks>, Error> {
        let pair = Pair::new(
            party,
            way,
            (WAYS, row(case)),
            case.depth,
            Cells::bytes(case.size),
        )?;
        let own = match party.node().gpu() {
            None => Placement::Host,
            Some(gpu) => Placement::Gpu(gpu),
        };
        let arrivals = || Buffer::placed(own, 8 * case.blocks as usize);
        Ok(Box::new(Relaxing {
            case: *case,
            way,
            pair,
            arrivals: [arrivals()?, arrivals()?],
        }))
    }
}

/// The cells of both ranks, in rows of at least 2, after so many steps, by a loop.
///
/// # Errors
/// Ctrl-C before a step.
fn relaxed(start: &[f32], side: usize, steps: u32) -> Result<Vec<f32>, Error> {
    let (mut old, mut new) = (start.to_vec(), start.to_vec());
    let rows = start.len() / side;
    for _ in 0..steps {
        interrupt::check()?;
        for (row, becomes) in new.chunks_exact_mut(side).enumerate() {
            let row_at = |row: usize| &old[row % rows * side..][..side];
            let (above, own, below) = (row_at(row + rows - 1), row_at(row), row_at(row + 1));
            // Without a division for each cell, which would cost more than all else: only a row's ends go round.
            let beside = own.iter().zip(&own[2..]);
            let across = above[1..].iter().zip(&below[1..]);
            for (cell, (beside, across)) in becomes[1..].iter_mut().zip(beside.zip(across)) {
                *cell = Cells::next(*across.0, *across.1, *beside.0, *beside.1);
            }
            let last = side - 1;
            becomes[0] = Cells::next(above[0], below[0], own[last], own[1]);
            becomes[last] = Cells::next(above[last], below[last], own[last - 1], own[0]);
        }
        std::mem::swap(&mut old, &mut new);
    }
    Ok(old)
}

fn bytes_of(cells: &[f32]) -> Vec<u8> {
    cells.iter().flat_map(|cell| cell.to_ne_bytes()).collect()
}

/// Bytes of a row.
fn row(case: &Case) -> u32 {
    CELL * case.size
}

/// Both ranks, or one of them.
struct Relaxing {
    case: Case,
    way: Way,
    pair: Pair,
    /// Where each rank's blocks meet.
    arrivals: [Buffer; 2],
}

impl Ranks for Relaxing {
    fn begin(&self, start: &[u8]) -> Result<(), Error> {
        self.pair.clear();
        let (row, half) = (row(&self.case) as usize, start.len() / 2);
        for member in &self.pair.members {
            let rank = member.rank;
            let (own, other) = (
                &start[rank * half..][..half],
                &start[(1 - rank) * half..][..half],
            );
            // The rows beside them, above the first one and below the last.
            let around = [
                (0, &other[half - row..]),
                (self.case.size + 1, &other[..row]),
            ];
            for (first, rows) in around.into_iter().chain([(1, own)]) {
                member.memory.write(self.offset(0, first), rows);
            }
            let arrivals = &self.arrivals[rank];
            arrivals.write(0, &vec![0; arrivals.len()])?;
        }
        Ok(())
    }

    fn run(&self) -> Result<Duration, Error> {
        let steps = self.case.steps;
        match self.way {
            Way::Host => {
                let launch = |member: &Member, step| {
                    let cells = self.cells_of(member);
                    let parameters = JacobiStep { cells, step };
                    Launch::new(entry!(jacobi_step), self.grid(), parameters)
                };
                let message = |member: &Member, path: &Path<'_>, way, step| {
                    self.cells_of(member).message(path, way, step)
                };
                self.pair.by_hosts(steps, launch, message)
            }
            Way::Notified | Way::Proxied => self.pair.posted(steps, |member, path, outcome| {
                let rank = self.rank(member, path, outcome);
                Launch::new(entry!(jacobi_notified), self.grid(), rank)
            }),
            Way::Triggered => self
                .pair
                .triggered(steps, |member, path, triggers, outcome| {
                    let rank = self.rank(member, path, outcome);
                    let parameters = JacobiTriggered { rank, triggers };
                    Launch::new(entry!(jacobi_triggered), self.grid(), parameters)
                }),
        }
    }

    fn are_right(&self, expected: &[u8]) -> Result<bool, Error> {
        let bytes = Relaxation::bytes(self.case.size) as usize;
        let first = self.offset(self.case.steps, 1);
        let mut members = self.pair.members.iter();
        let right = members.all(|Member { rank, memory, .. }| {
            memory.read(first, bytes) == expected[rank * bytes..][..bytes]
        });
        Ok(right && self.pair.intact())
    }
}

impl Relaxing {
    /// Where a row lies after so many steps, in bytes.
    fn offset(&self, step: u32, row: u32) -> usize {
        CELL as usize * Cells::row(self.case.size, step, row) as usize
    }

    fn grid(&self) -> Grid {
        Grid::new(self.case.blocks, self.case.threads)
    }

    fn cells_of(&self, member: &Member) -> Cells {
        Cells {
            start: halo::start(member),
            side: self.case.size,
            rows: self.case.size / self.case.blocks,
        }
    }

    /// A rank whose kernel exchanges its edges itself.
    fn rank<'r>(&self, member: &Member, path: Path<'r>, outcome: &'r Outcome) -> Jacobi<'r> {
        Jacobi {
            cells: self.cells_of(member),
            path,
            steps: self.case.steps,
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            arrivals: unsafe { memory::place(&self.arrivals[member.rank]) },
            outcome,
        }
    }
}

fn run(node: &Node, extent: Extent, origin: &Origin, screen: &Screen) -> Result<Section, Error> {
    let series = Series {
        seconds: extent.seconds,
        ..series(node)
    };
    series.section::<Relaxation>(node, extent.quick, (PLOT, origin), screen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_becomes_the_mean_of_those_around_it_across_all_edges() {
        // Two ranks of 3 rows of 3 cells; a cell in the corner reaches all four edges.
        let mut start = vec![0.0; 18];
        start[0] = 8.0;
        let found = relaxed(&start, 3, 1).unwrap();
        let mut expected = vec![0.0; 18];
        // Right, left around, below, above around.
        for cell in [1, 2, 3, 15] {
            expected[cell] = 2.0;
        }
        assert_eq!(found, expected);
    }

    #[test]
    fn a_step_sums_above_below_left_and_right_in_this_order() {
        let mut random = SmallRng::seed_from_u64(1);
        for side in [2, 3, 9] {
            let rows = 2 * side;
            let start: Vec<f32> = (0..rows * side).map(|_| random.random()).collect();
            let at = |row: usize, column: usize| start[row % rows * side + column % side];
            let expected = |cell: usize| {
                let (row, column) = (cell / side, cell % side);
                let (above, below) = (at(row + rows - 1, column), at(row + 1, column));
                let (left, right) = (at(row, column + side - 1), at(row, column + 1));
                (above + below + left + right) * 0.25
            };
            let expected: Vec<f32> = (0..start.len()).map(expected).collect();
            assert_eq!(relaxed(&start, side, 1).unwrap(), expected, "{side}");
        }
    }
}
