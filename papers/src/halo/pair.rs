//! Two ranks over a NIC of their own: their cells, and how hosts or kernels take them through all steps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use warpbell::SendQueueHandle;
use warpbell::wqe::Wqe;
use warpbell_bench::cause;
use warpbell_bench::run::launch::LIMIT_US;
use warpbell_bench::run::memory::Memory;
use warpbell_host_init::{Launch, Node, QueuePair, Shared};
use warpbell_kernels::outcome::Outcome;
use warpbell_kernels::place::Place;
use warpbell_paper_kernels::path::Path;
use warpbell_patterns::trigger::TriggerHandle;
use warpbell_patterns::trigger::host::Triggers;

use super::Way;
use crate::Error;
use crate::rig::{End, HostQueue, Rig};

/// Two ranks.
pub struct Pair {
    /// The cells of each.
    pub cells: [Memory; 2],
    node: Node,
    rig: Rig,
    parts: u32,
    bytes: u32,
    /// A tag for each part, where the way takes that.
    pub triggers: Option<[Triggers; 2]>,
}

impl Pair {
    /// Connects two ranks for a way: so many messages of each in every step, each of so many bytes and through a queue of its
    /// own, and so many bytes of cells.
    ///
    /// # Errors
    /// As [`Rig::new`]; no memory.
    pub fn new(
        node: &Node,
        way: Way,
        (parts, bytes): (u32, u32),
        depth: u32,
        cells: usize,
    ) -> Result<Self, Error> {
        let mut rig = Rig::new(node, [way.driver(); 2], parts, depth)?;
        let cells = [rig.near.memory(node, cells)?, rig.far.memory(node, cells)?];
        let triggers = match way {
            Way::Triggered => Some([rig.near.triggers()?, rig.far.triggers()?]),
            Way::Host | Way::Notified => None,
        };
        Ok(Self {
            cells,
            node: node.clone(),
            rig,
            parts,
            bytes,
            triggers,
        })
    }

    /// Sets all signals and cells back to 0.
    pub fn clear(&self) {
        self.rig.clear_signals();
        for cells in &self.cells {
            cells.write(0, &vec![0; cells.len()]);
        }
    }

    /// Whether nothing beside the cells was touched.
    pub fn intact(&self) -> bool {
        self.cells.iter().all(|cells| cells.check_guards().is_ok())
    }

    /// Where a rank's cells begin.
    pub fn start(&self, rank: usize) -> Place {
        // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
        unsafe { self.cells[rank].place() }
    }

    /// Takes both ranks through so many steps: each has a thread of the host, as in two nodes, which launches a step, waits for
    /// its end, posts all messages, and waits for those of the other rank. All queues are open before one begins, and the time
    /// counts from there: a NIC on a GPU calls all queues back for each look at a queue pair's state.
    ///
    /// `launch` gives the step of a rank that comes behind so many steps, `message` what a part sends after so many.
    ///
    /// # Errors
    /// A queue that is open elsewhere, before anything begins; as [`cause::first_cause`] of both: who waits for a rank that failed
    /// then stops waiting.
    pub fn by_hosts<'l>(
        &self,
        steps: u32,
        launch: impl Fn(usize, u32) -> Launch<'l> + Sync,
        message: impl Fn(usize, &Path<'_>, u32, u32) -> [Wqe<1>; 2] + Sync,
    ) -> Result<Duration, Error> {
        let [queues, others] = [self.end(0).host_queues()?, self.end(1).host_queues()?];
        let failed = AtomicBool::new(false);
        let run = |rank, queues| {
            let result = self.by_host((rank, queues), steps, &launch, &message, &failed);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            result
        };
        let began = Instant::now();
        thread::scope(|scope| {
            let other = scope.spawn(|| run(1, others));
            let own = run(0, queues);
            let other = other.join();
            let other = other.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            cause::first_cause([own, other])
        })?;
        Ok(began.elapsed())
    }

    /// Takes a rank with its queues through all steps, or until the other one has failed, which says why.
    fn by_host<'l>(
        &self,
        (rank, mut queues): (usize, Vec<HostQueue<'_>>),
        steps: u32,
        launch: &impl Fn(usize, u32) -> Launch<'l>,
        message: &impl Fn(usize, &Path<'_>, u32, u32) -> [Wqe<1>; 2],
        other_failed: &AtomicBool,
    ) -> Result<(), Error> {
        let (end, path) = (self.end(rank), self.path(rank, &[]));
        for step in 0..steps {
            self.node.run(&[launch(rank, step)], &[])?;
            for (part, queue) in (0..self.parts).zip(&mut queues) {
                queue.post(message(rank, &path, part, step + 1).into_iter())?;
            }
            for part in 0..self.parts {
                let over = || other_failed.load(Ordering::Relaxed);
                if end.wait(part, u64::from(step) + 1, over)?.is_none() {
                    return Ok(());
                }
            }
        }
        queues.iter_mut().try_for_each(|queue| queue.drain())
    }

    /// Runs both ranks' kernels, which take them through so many steps by posts of their own.
    ///
    /// # Errors
    /// A kernel failed.
    pub fn posted(
        &self,
        steps: u32,
        launch: impl for<'r> Fn(usize, Path<'r>, &'r Outcome) -> Launch<'r>,
    ) -> Result<Duration, Error> {
        let handles = [
            self.rig.handles(&self.rig.near)?,
            self.rig.handles(&self.rig.far)?,
        ];
        let outcomes = self.outcomes()?;
        let launches = [0, 1].map(|rank: usize| {
            let path = self.path(rank, &handles[rank]);
            launch(rank, path, &outcomes[rank])
        });
        self.within(steps, &launches, &self.rig.pairs(), &outcomes)
    }

    /// Runs both ranks' kernels, which take them through so many steps by operations that they trigger, a tag for each part.
    ///
    /// # Errors
    /// A kernel failed.
    pub fn triggered(
        &self,
        steps: u32,
        triggers: &[Triggers; 2],
        launch: impl for<'r> Fn(usize, Path<'r>, TriggerHandle<'r>, &'r Outcome) -> Launch<'r>,
    ) -> Result<Duration, Error> {
        let outcomes = self.outcomes()?;
        let pairs: Vec<_> = triggers.iter().flat_map(Triggers::queue_pairs).collect();
        let launches = [0, 1].map(|rank: usize| {
            let (path, tags) = (self.path(rank, &[]), triggers[rank].handle());
            launch(rank, path, tags, &outcomes[rank])
        });
        self.within(steps, &launches, &pairs, &outcomes)
    }

    /// Runs the kernels of both ranks. They may take as long as all waits of all steps may: whoever waits in vain ends itself,
    /// long before a grid's own limit would tell a kernel that is stuck from one that has many steps to go.
    fn within(
        &self,
        steps: u32,
        launches: &[Launch<'_>; 2],
        pairs: &[&QueuePair],
        outcomes: &[Shared<Outcome>; 2],
    ) -> Result<Duration, Error> {
        let began = Instant::now();
        let meant = Duration::from_micros(LIMIT_US).saturating_mul(steps);
        let ran = self.node.run_for(launches, pairs, meant);
        let took = began.elapsed();
        let [first, second] = outcomes;
        cause::ended(
            ran.map_err(Error::from),
            [("the first rank", &**first), ("the second rank", second)],
        )?;
        Ok(took)
    }

    fn outcomes(&self) -> Result<[Shared<Outcome>; 2], Error> {
        Ok([
            self.node.shared(Outcome::new())?,
            self.node.shared(Outcome::new())?,
        ])
    }

    fn end(&self, rank: usize) -> &End {
        match rank {
            0 => &self.rig.near,
            _ => &self.rig.far,
        }
    }

    /// From a rank's cells to the other one's.
    fn path<'a>(&'a self, rank: usize, queues: &'a [SendQueueHandle<'a>]) -> Path<'a> {
        let (end, other) = (self.end(rank), self.end(1 - rank));
        let cells = (&self.cells[rank], &self.cells[1 - rank]);
        let path = end.path(other, queues, cells, self.bytes);
        // As many where the queues are operations that are triggered.
        Path {
            parts: self.parts,
            ..path
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpbell_bench::Error as BenchError;
    use warpbell_host_init::{Grid, entry};
    use warpbell_paper_kernels::stencil::{LEFT, Owner, RIGHT, StencilStep, Strips, stencil_step};

    /// Two ranks of a strip of one cell.
    fn pair() -> Pair {
        let node = Node::cpu();
        Pair::new(&node, Way::Host, (2, 8), 16, Strips::bytes(1, 1)).unwrap()
    }

    fn strips(pair: &Pair, rank: usize) -> Strips {
        Strips {
            start: pair.start(rank),
            cells: 1,
        }
    }

    fn launch<'l>(pair: &Pair, rank: usize, step: u32, grid: Grid) -> Launch<'l> {
        let strips = strips(pair, rank);
        Launch::new(entry!(stencil_step), grid, StencilStep { strips, step })
    }

    fn message(pair: &Pair, rank: usize, path: &Path<'_>, part: u32, step: u32) -> [Wqe<1>; 2] {
        let own = Owner::of(rank as u32, 2);
        let end = if part == 0 { LEFT } else { RIGHT };
        strips(pair, rank).message(path, own, end, step)
    }

    #[test]
    fn a_host_does_not_wait_for_one_that_failed() {
        let pair = pair();
        let message =
            |rank: usize, path: &Path<'_>, part, step| message(&pair, rank, path, part, step);
        // Nothing ever comes from the other rank.
        let launches = |rank, step| launch(&pair, rank, step, Grid::ONE_THREAD);
        let failed = AtomicBool::new(true);
        let queues = pair.end(0).host_queues().unwrap();
        pair.by_host((0, queues), 1, &launches, &message, &failed)
            .unwrap();
        // A kernel that cannot be launched is why the second rank fails, and not that nobody waits for it.
        let none = Grid {
            blocks: 0,
            threads_per_block: 1,
        };
        let launches = |rank, step| match rank {
            0 => launch(&pair, rank, step, Grid::ONE_THREAD),
            _ => launch(&pair, rank, step, none),
        };
        let error = pair.by_hosts(1, launches, message).unwrap_err();
        let silent = matches!(error, Error::Bench(BenchError::Silent { .. }));
        assert!(!silent, "{error}");
    }

    #[test]
    fn no_host_begins_before_all_queues_are_open() {
        let pair = pair();
        let used = pair.rig.far.host_queues().unwrap();
        let launch = |rank, _| unreachable!("rank {rank} begins");
        let message = |rank, _: &Path<'_>, _, _| unreachable!("rank {rank} posts");
        let error = pair.by_hosts(1, launch, message).unwrap_err();
        assert!(error.to_string().contains("open elsewhere"), "{error}");
        drop(used);
    }
}
