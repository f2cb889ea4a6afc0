//! Active messages: a kernel asks another kernel to run a function, and waits for its answer.
//!
//! The target's kernel runs all the time and looks for tasks. A task names a function by its number and brings its
//! arguments. A *lane* joins one thread, warp or block that asks with one that answers. It has slots for messages that
//! are not answered yet, so that a slow target slows down who asks. The ranks that a launcher has started are a ring: each
//! asks the next one. A process that no launcher has started asks itself.
//!
//! ```console
//! $ cargo example active_message                                # on a CPU, with a NIC of software
//! $ cargo example active_message --features gpu -- --on gpu     # on an NVIDIA GPU
//! $ cargo xtask launch -n 4 -- active_message                   # between processes
//! ```

use core::sync::atomic::Ordering;

use warpbell::{Deadline, Thread, Word64, kernel};
use warpbell_patterns::active::{Error, InitiatorHandle, TargetHandle};
#[cfg(not(target_arch = "nvptx64"))]
use {
    warpbell_host_init::{Grid, Launch, Node, QueuePair, World, built, entry},
    warpbell_patterns::active::host::{ActiveConfig, ActiveMessages, ActiveRank},
};

/// The function's number, under which the host registers it with two arguments.
const MULTIPLY: u32 = 3;
/// A number under which there is no function.
const UNKNOWN: u32 = 4;
const TASKS: u64 = 100;
const LANE: u32 = 0;
const LIMIT: Deadline = Deadline::after_ms(60_000);

#[repr(C)]
#[derive(Clone, Copy)]
struct Asking<'a> {
    initiator: InitiatorHandle<'a>,
    /// The sum of all answers.
    sum: &'a Word64,
}

#[kernel]
fn ask(p: Asking<'_>) {
    // An error leaves 0 for the host.
    p.sum
        .store(sum_of_squares(p.initiator).unwrap_or(0), Ordering::Relaxed);
}

fn sum_of_squares(initiator: InitiatorHandle<'_>) -> Result<u64, Error> {
    let mut lane = initiator.lane::<Thread>(LANE)?;
    // A number without a function is refused with an error that says so. The lane goes on working.
    let sent = lane.send(UNKNOWN, 0, [], LIMIT)?;
    let refused = lane.wait(sent, LIMIT) == Err(Error::NotRegistered { function: UNKNOWN });

    let mut sum = 0;
    for number in 1..=TASKS {
        // The message is a write into a slot at the target. Nothing else is needed to start the task.
        let sent = lane.send(MULTIPLY, 0, [number, number], LIMIT)?;
        sum += u64::from(lane.wait(sent, LIMIT)?);
    }
    Ok(if refused { sum } else { 0 })
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Answering<'a> {
    target: TargetHandle<'a>,
    /// How many tasks were answered.
    answered: &'a Word64,
}

#[kernel]
fn answer(p: Answering<'_>) {
    // An error shows in the count.
    let _ = serve(p);
}

fn serve(p: Answering<'_>) -> Result<(), Error> {
    let mut server = p.target.serve::<Thread>(LANE)?;
    for answered in 1..=TASKS {
        // The refused task never gets here: `next` answers it by itself and looks on.
        let task = server.next(LIMIT)?;
        let result = match task.function() {
            MULTIPLY => Ok((task.argument(0) * task.argument(1)) as u32),
            _ => Err(0),
        };
        server.answer(task, result, LIMIT)?;
        p.answered.store(answered, Ordering::Relaxed);
    }
    Ok(())
}

#[cfg(not(target_arch = "nvptx64"))]
fn main() -> Result<(), warpbell_patterns::Error> {
    let node = Node::from_args(built!())?;
    let mut world = World::from_env(&node, std::time::Duration::from_secs(60))?;
    let (own, ranks, config) = (world.rank(), world.size(), ActiveConfig::default());
    if ranks == 1 {
        let [near, far] = node.ends()?;
        let mut active = ActiveMessages::new(&near, &far, &config)?;
        active.register(MULTIPLY, 2)?;
        run(&node, active.initiator(), active.target(), &[])?;
    } else {
        if own == 0 {
            println!("{world}");
        }
        let (next, before) = ((own + 1) % ranks, (own + ranks - 1) % ranks);
        let mut active = ActiveRank::new(&mut world, [next], &config)?;
        active.register(MULTIPLY, 2)?;
        let pairs: Vec<_> = active.queue_pairs().collect();
        run(
            &node,
            active.initiator(next)?,
            active.target(before)?,
            &pairs,
        )?;
        println!("rank {own} has answers of rank {next}");
        // Nobody ends before all have their answers.
        world.barrier()?;
    }
    if own == 0 {
        println!("{TASKS} tasks answered, one refused\nTest OK");
    }
    Ok(())
}

/// Runs both kernels at the same time, and compares what they have counted.
#[cfg(not(target_arch = "nvptx64"))]
fn run(
    node: &Node,
    initiator: InitiatorHandle<'_>,
    target: TargetHandle<'_>,
    watched: &[&QueuePair],
) -> Result<(), warpbell_patterns::Error> {
    let (sum, answered) = (node.shared(Word64::new(0))?, node.shared(Word64::new(0))?);
    let (sum, answered) = (&*sum, &*answered);
    let (asking, answering) = (Asking { initiator, sum }, Answering { target, answered });
    let launches = [
        Launch::new(entry!(ask), Grid::ONE_THREAD, asking),
        Launch::new(entry!(answer), Grid::ONE_THREAD, answering),
    ];
    node.run(&launches, watched)?;

    assert_eq!(answered.load(Ordering::Relaxed), TASKS);
    let squares = (1..=TASKS).map(|number| number * number);
    assert_eq!(sum.load(Ordering::Relaxed), squares.sum::<u64>());
    Ok(())
}
