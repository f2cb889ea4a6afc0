//! Jacobi's relaxation over two ranks: edges exchanged by the host between kernels, or within a kernel, posted or triggered.

mod series;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use warpbell_host_init::{Buffer, Grid, Launch, Placement, QueuePair, Shared, Triggers, entry};
use warpbell_kernels::jacobi::{
    Cells, DOWN, Jacobi, JacobiStep, JacobiTriggered, UP, WAYS, jacobi_posted, jacobi_step,
    jacobi_triggered,
};
use warpbell_kernels::outcome::Outcome;
use warpbell_kernels::path::Path;
use warpbell_kernels::posting::Place;

use crate::application::Measurement;
use crate::launch::LIMIT_US;
use crate::memory::Memory;
use crate::rig::{self, Driver, End, Rig};
use crate::world::World;
use crate::{Error, interrupt};

pub use series::{APPLICATION, PLOT, Results, Series};

/// Bytes of a cell.
const CELL: u32 = 4;

/// Who exchanges the edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// The host, between two kernels.
    Host,
    /// The kernel's blocks, by posts.
    Posted,
    /// The same, by operations that are registered ahead of each step.
    Triggered,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Host, Self::Posted, Self::Triggered];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "between kernels",
            Self::Posted => "posted within",
            Self::Triggered => "triggered within",
        }
    }
}

/// What is computed, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Rows of a rank, and cells of a row.
    pub side: u32,
    /// Blocks of each rank, at least 2.
    pub blocks: u32,
    /// Threads of each.
    pub threads: u32,
    /// Steps from the cells' start to their comparison.
    pub steps: u32,
    /// The most repetitions of that.
    pub repetitions: u64,
    /// No repetition begins once they have taken so long, with all comparisons.
    pub limit: Duration,
    /// Depth of each queue in blocks of 64 bytes.
    pub depth: u32,
    /// Seed of the cells.
    pub seed: u64,
}

/// What was measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Measured {
    /// Who exchanged the edges.
    pub way: Way,
    /// Rows of a rank.
    pub side: u32,
    /// Steps, of all repetitions.
    pub steps: u64,
    /// How long they took, from the first launch to the last kernel's end.
    pub seconds: f64,
    /// How long one took, in microseconds.
    pub us_per_step: f64,
    /// Every cell was what a loop on the host says, after each repetition, and nothing beside was touched.
    pub verified: bool,
}

/// The columns of [`Measurement::row`].
pub const HEADER: &str = "side    edges              µs a step      steps";

impl Measurement for Measured {
    fn row(&self) -> String {
        format!(
            "{:<7} {:<17} {:>10.2} {:>10}",
            self.side,
            self.way.name(),
            self.us_per_step,
            self.steps,
        )
    }

    fn verified(&self) -> bool {
        self.verified
    }
}

/// The cells of both ranks, one under the other, at their start and after all steps: the same for all ways of a side.
pub struct Reference {
    /// Rows of a rank, and cells of a row.
    pub side: u32,
    start: Vec<f32>,
    expected: Vec<u8>,
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

/// Where a row lies, in bytes.
fn offset(side: u32, step: u32, row: u32) -> usize {
    CELL as usize * Cells::row(side, step, row) as usize
}

/// A rank's memory.
struct Rank {
    cells: Memory,
    arrivals: Buffer,
}

impl Rank {
    fn new(case: &Case, world: &World, end: &End) -> Result<Self, Error> {
        let own = match world.gpu() {
            None => Placement::Host,
            Some(gpu) => Placement::Gpu(gpu),
        };
        Ok(Self {
            cells: end.memory(world, Cells::bytes(case.side))?,
            arrivals: Buffer::placed(own, 8 * case.blocks as usize)?,
        })
    }

    /// Sets all back to the start, where `own` are the rank's rows and `above` and `below` those beside them.
    fn begin(&self, side: u32, own: &[f32], above: &[f32], below: &[f32]) -> Result<(), Error> {
        self.cells.write(0, &vec![0; self.cells.len()]);
        for (row, cells) in [(0, above), (1, own), (side + 1, below)] {
            self.cells.write(offset(side, 0, row), &bytes_of(cells));
        }
        Ok(self.arrivals.write(0, &vec![0; self.arrivals.len()])?)
    }

    fn rows(&self, case: &Case) -> Vec<u8> {
        let bytes = (CELL * case.side * case.side) as usize;
        self.cells.read(offset(case.side, case.steps, 1), bytes)
    }

    fn cells(&self, case: &Case) -> Cells {
        Cells {
            start: Place(self.cells.word(0)),
            side: case.side,
            rows: case.side / case.blocks,
        }
    }
}

impl Case {
    /// Whether each block has as many rows, and both edges a block of their own.
    ///
    /// # Errors
    /// [`Error::Uneven`].
    pub fn check(&self) -> Result<(), Error> {
        let row = u64::from(self.side) * u64::from(CELL);
        match self.side > 0 && self.side.is_multiple_of(self.blocks) {
            true => Ok(()),
            false => Err(Error::Uneven {
                bytes: row * u64::from(self.side),
                parts: self.blocks,
                what: "rows",
                unit: row,
            }),
        }
    }

    fn grid(&self) -> Grid {
        Grid {
            blocks: self.blocks,
            threads_per_block: self.threads,
        }
    }

    /// The cells by a loop on the host, for all ways.
    ///
    /// # Errors
    /// Sides that are not even; Ctrl-C.
    pub fn reference(&self) -> Result<Reference, Error> {
        self.check()?;
        let mut random = SmallRng::seed_from_u64(self.seed);
        let count = 2 * self.side as usize * self.side as usize;
        let start: Vec<f32> = (0..count).map(|_| random.random()).collect();
        Ok(Reference {
            side: self.side,
            expected: bytes_of(&relaxed(&start, self.side as usize, self.steps)?),
            start,
        })
    }

    /// Computes all steps again and again, and compares with the reference of the same case.
    ///
    /// # Errors
    /// Sides that are not even; a kernel or the host failed; Ctrl-C before a repetition was over.
    pub fn measure(
        &self,
        world: &World,
        way: Way,
        reference: &Reference,
    ) -> Result<Measured, Error> {
        self.check()?;
        let driver = match way {
            Way::Host => Driver::Host,
            Way::Posted | Way::Triggered => Driver::Kernel,
        };
        let mut rig = Rig::new(world, [driver; 2], WAYS, self.depth)?;
        let ranks = [
            Rank::new(self, world, &rig.near)?,
            Rank::new(self, world, &rig.far)?,
        ];
        let triggers = match way {
            Way::Triggered => Some([rig.near.triggers()?, rig.far.triggers()?]),
            Way::Host | Way::Posted => None,
        };
        let (began, mut spent, mut repetitions) = (Instant::now(), Duration::ZERO, 0);
        let mut verified = true;
        while repetitions < self.repetitions && (repetitions == 0 || began.elapsed() < self.limit) {
            if interrupt::requested() {
                break;
            }
            self.begin(&rig, &ranks, &reference.start)?;
            spent += match &triggers {
                None if way == Way::Host => self.by_host(world, &rig, &ranks)?,
                None => self.posted(world, &rig, &ranks)?,
                Some(triggers) => self.triggered(world, &rig, &ranks, triggers)?,
            };
            repetitions += 1;
            let found = [ranks[0].rows(self), ranks[1].rows(self)].concat();
            let guarded = ranks.iter().all(|rank| rank.cells.check_guards().is_ok());
            verified &= found == reference.expected && guarded;
        }
        if repetitions == 0 {
            return Err(Error::Interrupted);
        }
        let steps = repetitions * u64::from(self.steps);
        let seconds = spent.as_secs_f64();
        Ok(Measured {
            way,
            side: self.side,
            steps,
            seconds,
            us_per_step: 1e6 * seconds / steps as f64,
            verified,
        })
    }

    fn begin(&self, rig: &Rig, ranks: &[Rank; 2], start: &[f32]) -> Result<(), Error> {
        rig.clear_signals();
        let row = self.side as usize;
        let [upper, lower] = [0, 1].map(|half| &start[half * row * row..][..row * row]);
        let (first, last) = (
            |half: &'_ [f32]| half[..row].to_vec(),
            |half: &'_ [f32]| half[half.len() - row..].to_vec(),
        );
        ranks[0].begin(self.side, upper, &last(lower), &first(lower))?;
        ranks[1].begin(self.side, lower, &last(upper), &first(upper))
    }

    fn by_host(&self, world: &World, rig: &Rig, ranks: &[Rank; 2]) -> Result<Duration, Error> {
        let memories = [&ranks[0].cells, &ranks[1].cells];
        let row = CELL * self.side;
        let paths = [
            rig.near
                .path(&rig.far, &[], (memories[0], memories[1]), row),
            rig.far
                .path(&rig.near, &[], (memories[1], memories[0]), row),
        ];
        let began = Instant::now();
        // As in two nodes, each has a thread of its own.
        let failed = AtomicBool::new(false);
        let run = |end, rank, path| {
            let result = self.rank_by_host(world, end, rank, path, &failed);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            result
        };
        thread::scope(|scope| {
            let other = scope.spawn(|| run(&rig.far, &ranks[1], &paths[1]));
            let own = run(&rig.near, &ranks[0], &paths[0]);
            let other = other.join();
            let other = other.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            rig::first_cause([own, other])
        })?;
        Ok(began.elapsed())
    }

    /// Computes all steps of a rank, or those until the other one has failed, which says why.
    fn rank_by_host(
        &self,
        world: &World,
        end: &End,
        rank: &Rank,
        path: &Path<'_>,
        other_failed: &AtomicBool,
    ) -> Result<(), Error> {
        let cells = rank.cells(self);
        let mut queues = end.host_queues()?;
        for step in 0..self.steps {
            let relax = Launch::new(entry!(jacobi_step), self.grid(), JacobiStep { cells, step });
            world.run(&[relax], &[])?;
            for (way, queue) in [UP, DOWN].into_iter().zip(&mut queues) {
                queue.post(cells.message(path, way, step + 1).into_iter())?;
            }
            for way in [UP, DOWN] {
                let over = || other_failed.load(Ordering::Relaxed);
                if end.wait(way, u64::from(step) + 1, over)?.is_none() {
                    return Ok(());
                }
            }
        }
        queues.iter_mut().try_for_each(|queue| queue.drain())
    }

    fn posted(&self, world: &World, rig: &Rig, ranks: &[Rank; 2]) -> Result<Duration, Error> {
        let handles = [rig.handles(&rig.near)?, rig.handles(&rig.far)?];
        let memories = [&ranks[0].cells, &ranks[1].cells];
        let row = CELL * self.side;
        let there = (memories[0], memories[1]);
        let back = (memories[1], memories[0]);
        let paths = [
            rig.near.path(&rig.far, &handles[0], there, row),
            rig.far.path(&rig.near, &handles[1], back, row),
        ];
        let outcomes = [world.outcome()?, world.outcome()?];
        let launches = [0, 1].map(|index: usize| {
            let rank = self.rank(&ranks[index], paths[index], &outcomes[index]);
            Launch::new(entry!(jacobi_posted), self.grid(), rank)
        });
        run(world, self.steps, &launches, &rig.pairs(), &outcomes)
    }

    fn triggered(
        &self,
        world: &World,
        rig: &Rig,
        ranks: &[Rank; 2],
        triggers: &[Triggers; 2],
    ) -> Result<Duration, Error> {
        let memories = [&ranks[0].cells, &ranks[1].cells];
        let row = CELL * self.side;
        let paths = [
            rig.near
                .path(&rig.far, &[], (memories[0], memories[1]), row),
            rig.far
                .path(&rig.near, &[], (memories[1], memories[0]), row),
        ];
        let pairs: Vec<_> = triggers.iter().flat_map(Triggers::queue_pairs).collect();
        let outcomes = [world.outcome()?, world.outcome()?];
        let launches = [0, 1].map(|index: usize| {
            let parameters = JacobiTriggered {
                rank: self.rank(&ranks[index], paths[index], &outcomes[index]),
                triggers: triggers[index].handle(),
            };
            Launch::new(entry!(jacobi_triggered), self.grid(), parameters)
        });
        run(world, self.steps, &launches, &pairs, &outcomes)
    }

    /// A rank whose kernel exchanges its edges itself.
    fn rank<'r>(&self, rank: &Rank, path: Path<'r>, outcome: &'r Outcome) -> Jacobi<'r> {
        Jacobi {
            cells: rank.cells(self),
            path,
            steps: self.steps,
            arrivals: Place(rank.arrivals.as_ptr().cast()),
            outcome,
        }
    }
}

/// Runs the kernels of both ranks, and gives how long they took.
///
/// They may take as long as all waits of all steps may: whoever waits in vain ends itself, long before a grid's own limit
/// would tell a kernel that is stuck from one that has many steps to go.
fn run(
    world: &World,
    steps: u32,
    launches: &[Launch<'_>; 2],
    pairs: &[&QueuePair],
    outcomes: &[Shared<Outcome>; 2],
) -> Result<Duration, Error> {
    let began = Instant::now();
    let meant = Duration::from_micros(LIMIT_US).saturating_mul(steps);
    let ran = world.run_for(launches, pairs, meant);
    let took = began.elapsed();
    let [upper, lower] = outcomes;
    rig::ended(ran, [("the upper rank", upper), ("the lower rank", lower)])?;
    Ok(took)
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

    #[test]
    fn a_host_does_not_wait_for_one_that_failed() {
        let world = World::cpu().unwrap();
        let case = Case {
            side: 2,
            blocks: 2,
            threads: 1,
            steps: 1,
            repetitions: 1,
            limit: Duration::from_secs(1),
            depth: 16,
            seed: 1,
        };
        let rig = Rig::new(&world, [Driver::Host; 2], WAYS, case.depth).unwrap();
        let ranks = [&rig.near, &rig.far].map(|end| Rank::new(&case, &world, end).unwrap());
        let there = (&ranks[0].cells, &ranks[1].cells);
        let path = rig.near.path(&rig.far, &[], there, CELL * case.side);
        // Nothing ever comes from the other rank.
        let failed = AtomicBool::new(true);
        case.rank_by_host(&world, &rig.near, &ranks[0], &path, &failed)
            .unwrap();
        // A queue that is in use is why the lower rank fails, and not that nobody waits for it.
        let used = rig.far.host_queues().unwrap();
        let error = case.by_host(&world, &rig, &ranks).unwrap_err();
        assert!(error.to_string().contains("open elsewhere"), "{error}");
        drop(used);
    }
}
