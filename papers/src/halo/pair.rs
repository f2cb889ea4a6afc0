//! Two ranks, of which this process runs both or one: their cells, and how hosts or kernels take them through all steps.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use warpbell::SendQueueHandle;
use warpbell::wqe::Wqe;
use warpbell_bench::cause;
use warpbell_bench::party::Party;
use warpbell_bench::run::launch::LIMIT_US;
use warpbell_host_init::{Launch, Node, QueuePair, Shared};
use warpbell_kernels::outcome::Outcome;
use warpbell_kernels::place::Place;
use warpbell_paper_kernels::path::Path;
use warpbell_patterns::trigger::TriggerHandle;
use warpbell_patterns::trigger::host::Triggers;

use super::Way;
use crate::Error;
use crate::rig::{HostQueue, Member};

/// The ranks of two that this process runs: both, or one of them.
pub struct Pair {
    /// Each with its cells in its memory.
    pub members: Vec<Member>,
    node: Node,
    parts: u32,
    bytes: u32,
}

/// What ranks are called where one fails.
const NAMES: [&str; 2] = ["the first rank", "the second rank"];

impl Pair {
    /// Connects two ranks for a way: so many messages of each in every step, each of so many bytes and through a queue of its
    /// own, and so many bytes of cells.
    ///
    /// # Errors
    /// As [`Member::of_two`].
    pub fn new(
        party: &Party,
        way: Way,
        (parts, bytes): (u32, u32),
        depth: u32,
        cells: usize,
    ) -> Result<Self, Error> {
        Ok(Self {
            members: Member::of_two(party, way.driver(), parts, depth, cells)?,
            node: party.node().clone(),
            parts,
            bytes,
        })
    }

    /// Sets all signals and cells back to 0.
    pub fn clear(&self) {
        for Member { end, memory, .. } in &self.members {
            end.clear_signals();
            memory.write(0, &vec![0; memory.len()]);
        }
    }

    /// Whether nothing beside the cells was touched.
    pub fn intact(&self) -> bool {
        let mut members = self.members.iter();
        members.all(|member| member.memory.check_guards().is_ok())
    }

    /// Takes the ranks through so many steps: each has a thread of the host, as in two nodes, which launches a step, waits for
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
        launch: impl Fn(&Member, u32) -> Launch<'l> + Sync,
        message: impl Fn(&Member, &Path<'_>, u32, u32) -> [Wqe<1>; 2] + Sync,
    ) -> Result<Duration, Error> {
        let queues = self.members.iter().map(|member| member.end.host_queues());
        let queues = queues.collect::<Result<Vec<_>, _>>()?;
        let failed = AtomicBool::new(false);
        let run = |member, queues| {
            let result = self.by_host(member, queues, steps, &launch, &message, &failed);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            result
        };
        let began = Instant::now();
        thread::scope(|scope| {
            let run = &run;
            let start = |(member, queues)| scope.spawn(move || run(member, queues));
            let started: Vec<_> = self.members.iter().zip(queues).map(start).collect();
            let ended = started.into_iter().map(|thread| thread.join());
            let results =
                ended.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            cause::first_cause(results.collect::<Vec<_>>())
        })?;
        Ok(began.elapsed())
    }

    /// Takes a rank with its queues through all steps, or until the other one has failed, which says why.
    fn by_host<'l>(
        &self,
        member: &Member,
        mut queues: Vec<HostQueue<'_>>,
        steps: u32,
        launch: &impl Fn(&Member, u32) -> Launch<'l>,
        message: &impl Fn(&Member, &Path<'_>, u32, u32) -> [Wqe<1>; 2],
        other_failed: &AtomicBool,
    ) -> Result<(), Error> {
        let path = self.path(member, &[]);
        for step in 0..steps {
            self.node.run(&[launch(member, step)], &[])?;
            for (part, queue) in (0..self.parts).zip(&mut queues) {
                queue.post(message(member, &path, part, step + 1).into_iter())?;
            }
            for part in 0..self.parts {
                let over = || other_failed.load(Ordering::Relaxed);
                let come = member.end.wait(part, u64::from(step) + 1, over)?;
                if come.is_none() {
                    return Ok(());
                }
            }
        }
        Ok(queues.iter_mut().try_for_each(HostQueue::drain)?)
    }

    /// Runs the ranks' kernels, which take them through so many steps by posts of their own.
    ///
    /// # Errors
    /// A kernel failed.
    pub fn posted(
        &self,
        steps: u32,
        launch: impl for<'r> Fn(&'r Member, Path<'r>, &'r Outcome) -> Launch<'r>,
    ) -> Result<Duration, Error> {
        let handles = self.members.iter().map(|of| of.handles(&self.node));
        let handles = handles.collect::<Result<Vec<_>, _>>()?;
        let outcomes = self.outcomes()?;
        let ready = self.members.iter().zip(&handles).zip(&outcomes);
        let launches = ready.map(|((member, handles), outcome)| {
            let path = self.path(member, handles);
            launch(member, path, outcome)
        });
        let pairs = self.members.iter().flat_map(|member| member.end.pairs());
        self.within(steps, &launches.collect::<Vec<_>>(), pairs, &outcomes)
    }

    /// Runs the ranks' kernels, which take them through so many steps by operations that they trigger, a tag for each part.
    ///
    /// # Errors
    /// A kernel failed.
    pub fn triggered(
        &self,
        steps: u32,
        launch: impl for<'r> Fn(&'r Member, Path<'r>, TriggerHandle<'r>, &'r Outcome) -> Launch<'r>,
    ) -> Result<Duration, Error> {
        let outcomes = self.outcomes()?;
        let ready = self.members.iter().zip(&outcomes);
        let launches = ready.filter_map(|(member, outcome)| {
            let tags = member.triggers.as_ref()?.handle();
            Some(launch(member, self.path(member, &[]), tags, outcome))
        });
        let triggers = self.members.iter().flat_map(|member| &member.triggers);
        let pairs = triggers.flat_map(Triggers::queue_pairs);
        self.within(steps, &launches.collect::<Vec<_>>(), pairs, &outcomes)
    }

    /// Runs the kernels of the ranks. They may take as long as all waits of all steps may: whoever waits in vain ends itself,
    /// long before a grid's own limit would tell a kernel that is stuck from one that has many steps to go.
    fn within<'p>(
        &self,
        steps: u32,
        launches: &[Launch<'_>],
        pairs: impl Iterator<Item = &'p QueuePair>,
        outcomes: &[Shared<Outcome>],
    ) -> Result<Duration, Error> {
        let pairs: Vec<_> = pairs.collect();
        let began = Instant::now();
        let meant = Duration::from_micros(LIMIT_US).saturating_mul(steps);
        let ran = self.node.run_for(launches, &pairs, meant);
        let took = began.elapsed();
        let kernels = self.members.iter().zip(outcomes);
        let kernels = kernels.map(|(member, outcome)| (NAMES[member.rank], &**outcome));
        cause::ended(ran.map_err(Error::from), kernels)?;
        Ok(took)
    }

    fn outcomes(&self) -> Result<Vec<Shared<Outcome>>, Error> {
        let outcomes = self
            .members
            .iter()
            .map(|_| self.node.shared(Outcome::new()));
        Ok(outcomes.collect::<Result<_, _>>()?)
    }

    /// From a rank's cells to the other one's.
    fn path<'a>(&self, member: &'a Member, queues: &'a [SendQueueHandle<'a>]) -> Path<'a> {
        // As many where the queues are operations that are triggered.
        Path {
            parts: self.parts,
            ..member.path(queues, self.bytes)
        }
    }
}

/// Where a rank's cells begin.
pub fn start(member: &Member) -> Place {
    // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
    unsafe { member.memory.place() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpbell_bench::Error as BenchError;
    use warpbell_host_init::{Grid, entry};
    use warpbell_paper_kernels::stencil::{LEFT, Owner, RIGHT, StencilStep, Strips, stencil_step};

    /// Two ranks of a strip of one cell.
    fn pair() -> Pair {
        let party = Party::alone(&Node::cpu());
        Pair::new(&party, Way::Host, (2, 8), 16, Strips::bytes(1, 1)).unwrap()
    }

    fn strips(member: &Member) -> Strips {
        Strips {
            start: start(member),
            cells: 1,
        }
    }

    fn launch<'l>(member: &Member, step: u32, grid: Grid) -> Launch<'l> {
        let strips = strips(member);
        Launch::new(entry!(stencil_step), grid, StencilStep { strips, step })
    }

    fn message(member: &Member, path: &Path<'_>, part: u32, step: u32) -> [Wqe<1>; 2] {
        let own = Owner::of(member.rank as u32, 2);
        let end = if part == 0 { LEFT } else { RIGHT };
        strips(member).message(path, own, end, step)
    }

    #[test]
    fn a_host_does_not_wait_for_one_that_failed() {
        let pair = pair();
        // Nothing ever comes from the other rank.
        let launches = |member: &Member, step| launch(member, step, Grid::ONE_THREAD);
        let failed = AtomicBool::new(true);
        let first = &pair.members[0];
        let queues = first.end.host_queues().unwrap();
        pair.by_host(first, queues, 1, &launches, &message, &failed)
            .unwrap();
        // A kernel that cannot be launched is why the second rank fails, and not that nobody waits for it.
        let none = Grid::new(0, 1);
        let launches = |member: &Member, step| match member.rank {
            0 => launch(member, step, Grid::ONE_THREAD),
            _ => launch(member, step, none),
        };
        let error = pair.by_hosts(1, launches, message).unwrap_err();
        let silent = matches!(error, Error::Bench(BenchError::Silent { .. }));
        assert!(!silent, "{error}");
    }

    #[test]
    fn no_host_begins_before_all_queues_are_open() {
        let pair = pair();
        let used = pair.members[1].end.host_queues().unwrap();
        let launch = |member: &Member, _| unreachable!("rank {} begins", member.rank);
        let message =
            |member: &Member, _: &Path<'_>, _, _| unreachable!("rank {} posts", member.rank);
        let error = pair.by_hosts(1, launch, message).unwrap_err();
        assert!(error.to_string().contains("open elsewhere"), "{error}");
        drop(used);
    }
}
