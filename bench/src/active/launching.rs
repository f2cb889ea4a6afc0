//! A target whose tasks launch kernels.

use std::thread;
use std::time::Duration;

use warpbell::Deadline;
use warpbell_host_init::choice::Branches;
use warpbell_host_init::{Buffer, Grid, Launch, Node, QueuePair, Shared, StopWord, entry};
use warpbell_kernels::active::{ACCUMULATE, END, NOTHING, NOTHING_OF_TWO};
use warpbell_kernels::launched::{
    Dispatch, LaunchedWork, active_dispatch, active_launched_accumulate, active_launched_answer,
    active_launched_end, active_launched_nothing,
};
use warpbell_kernels::outcome::{Failure, Outcome};
use warpbell_kernels::place::Place;
use warpbell_patterns::active::Error as Refused;
use warpbell_patterns::active::host::{ActiveMessages, TaskKernels, TaskRecord};

use super::Way;
use crate::Error;
use crate::cause::first_cause;
use crate::run::launch::{LIMIT_US, said};
use crate::run::memory;
use crate::run::{StageError, interrupt};

/// What the tasks' kernels work on.
pub(super) struct Target<'t> {
    pub node: &'t Node,
    pub active: &'t ActiveMessages,
    /// The grid of the kernel that adds a vector up.
    pub grid: Grid,
    /// A vector for each lane.
    pub sums: Place,
    /// Words of a vector.
    pub words: u32,
}

impl Target<'_> {
    /// Runs the initiator's kernel beside what launches its tasks' kernels, until each lane has sent its end.
    pub(super) fn run(
        &self,
        way: Way,
        what: &str,
        initiator: Launch<'_>,
        said_by: &Outcome,
    ) -> Result<(), Error> {
        interrupt::check()?;
        let initiator = [initiator];
        let Self { node, active, .. } = *self;
        // Who dispatches reaches the record.
        let record = TaskRecord::new(match way {
            Way::Host => node.placement(),
            Way::Launched | Way::Resident => node.placement().of_states(),
        })?;
        let stop = StopWord::new(node.placement())?;
        let ended = Buffer::placed(node.placement().of_states(), 8)?;
        let outcomes: [Shared<Outcome>; 2] =
            [node.shared(Outcome::new())?, node.shared(Outcome::new())?];
        let work = LaunchedWork {
            task: record.task(),
            sums: self.sums,
            words: self.words,
            lanes: active.lanes(),
            // SAFETY: this memory outlives the launch; kernels alone use it meanwhile.
            ended: unsafe { memory::place(&ended) },
            stop: stop.stop(),
            outcome: &outcomes[0],
        };
        let dispatch = Dispatch {
            task: record.task(),
            target: active.target(),
            stop: stop.stop(),
            limit_us: LIMIT_US,
            outcome: &outcomes[1],
        };
        let mut kernels = TaskKernels::new();
        for (function, kernel, grid) in [
            (NOTHING, entry!(active_launched_nothing), Grid::ONE_THREAD),
            (
                NOTHING_OF_TWO,
                entry!(active_launched_nothing),
                Grid::ONE_THREAD,
            ),
            (END, entry!(active_launched_end), Grid::ONE_THREAD),
            (ACCUMULATE, entry!(active_launched_accumulate), self.grid),
        ] {
            kernels.register(function, Launch::new(kernel, grid, work))?;
        }
        let answer = || Launch::new(entry!(active_launched_answer), Grid::ONE_THREAD, dispatch);
        let launches = kernels.branches(active.functions(), answer)?;
        let branches = Branches {
            word: record.word(),
            launches: &launches,
        };
        let pairs: Vec<&QueuePair> = active.queue_pairs().collect();
        let ran = match way {
            Way::Host => by_host(node, dispatch, &branches, &initiator, &pairs),
            Way::Launched | Way::Resident => {
                // A block for each lane, so that lanes are looked at beside each other.
                let look = Grid::new(active.lanes(), 1);
                let look = Launch::new(entry!(active_dispatch), look, dispatch);
                let (stop, meant) = (&stop, Duration::ZERO);
                let ran = node.run_choosing(&[look], &branches, stop, &initiator, &pairs, meant);
                ran.map_err(Error::from)
            }
        };
        let said = |outcome| said(what, outcome).map_err(Error::from);
        first_cause([ran, said(&outcomes[1]), said(&outcomes[0]), said(said_by)])
    }
}

/// Runs the initiator's kernel, and launches its tasks' kernels from this thread.
fn by_host(
    node: &Node,
    dispatch: Dispatch<'_>,
    branches: &Branches<'_>,
    initiator: &[Launch<'_>],
    pairs: &[&QueuePair],
) -> Result<(), Error> {
    thread::scope(|scope| {
        let asking = scope.spawn(|| Ok::<_, Error>(node.run(initiator, pairs)?));
        let served = serve(node, dispatch, branches, || asking.is_finished());
        let asked = asking.join();
        let asked = asked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        first_cause([served, asked])
    })
}

/// Looks at all lanes in turn, until all have ended, or nobody is left who could send.
fn serve(
    node: &Node,
    dispatch: Dispatch<'_>,
    branches: &Branches<'_>,
    over: impl Fn() -> bool,
) -> Result<(), Error> {
    let Dispatch {
        task, target, stop, ..
    } = dispatch;
    let failed = |refused: Refused| {
        let (what, failure) = ("the host's dispatcher".into(), Failure::from(refused));
        Error::from(StageError::Kernel { what, failure })
    };
    while !stop.requested() && !over() {
        for lane in 0..target.lanes() {
            match task.find(lane, target, stop, Deadline::PASSED) {
                Ok(()) | Err(Refused::Timeout) => {}
                Err(refused) => return Err(failed(refused)),
            }
            let Some(function) = branches.word.choice().take() else {
                continue;
            };
            // Without the kernel that answers, for which the host does.
            node.run(&branches.launches[function as usize][..1], &[])?;
            let answered = task.answer(target, Deadline::after_us(LIMIT_US));
            answered.map_err(failed)?;
        }
        thread::yield_now();
    }
    Ok(())
}
