//! Ping-pong: two kernels throw a number to each other, and measure how long it flies.
//!
//! Each side writes the number of the round into the other side's memory and waits until the same number comes back.
//! A kernel waits by looking at its own memory: no completion and no host tells it of what has arrived.
//!
//! ```console
//! $ cargo example pingpong                                # on a CPU, with a NIC of software
//! $ cargo example pingpong --features gpu -- --on gpu     # on an NVIDIA GPU
//! $ cargo xtask launch -n 2 -- pingpong                   # between two processes
//! ```

use core::sync::atomic::Ordering;

use warpbell::wqe::{Remote, Wqe};
use warpbell::{Deadline, Exclusive, SendQueueHandle, Word64, Words, kernel, thread};
#[cfg(not(target_arch = "nvptx64"))]
use warpbell_host_init::{
    Access, Error, Grid, Launch, Node, QueuePair, QueuePairConfig, RemoteMemory, World, built,
    entry,
};

#[repr(C)]
#[derive(Clone, Copy)]
struct Player<'a> {
    queue: SendQueueHandle<'a>,
    /// The word that the other side writes.
    ours: Words<'a>,
    /// The other side's word.
    theirs: Remote,
    rounds: u64,
    /// 1 for the player who throws first.
    serves: u32,
    /// How long the game took, in nanoseconds.
    nanoseconds: &'a Word64,
}

#[kernel]
fn play(p: Player<'_>) {
    // An error leaves 0 for the host.
    p.nanoseconds.store(game(p).unwrap_or(0), Ordering::Relaxed);
}

fn game(p: Player<'_>) -> Option<u64> {
    let limit = Deadline::after_ms(5000);
    let mut queue = p.queue.open::<Exclusive>().ok()?;
    let ball = p.ours.signal(0)?;
    let begin = thread::clock_ns();
    for round in 1..=p.rounds {
        if p.serves == 0 {
            ball.wait(round, limit).ok()?;
        }
        // 8 bytes travel in the request itself. It is signalled, though nobody waits for it: completions tell the next
        // posts which slots of the ring are free again.
        let throw = Wqe::write_value(round, p.theirs).signalled();
        let _ = queue.post(throw, limit).ok()?;
        if p.serves == 1 {
            ball.wait(round, limit).ok()?;
        }
    }
    let nanoseconds = thread::clock_ns() - begin;
    // The last throw may still be under way. The kernel must not end before it is done.
    queue.drain(limit).ok()?;
    Some(nanoseconds)
}

#[cfg(not(target_arch = "nvptx64"))]
const ROUNDS: u64 = 1000;

#[cfg(not(target_arch = "nvptx64"))]
fn main() -> Result<(), Error> {
    let node = Node::from_args(built!())?;
    let world = World::from_env(&node, std::time::Duration::from_secs(60))?;
    if world.size() > 1 {
        return between_ranks(&node, world);
    }
    let [near, far] = node.ends()?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let (one, other) = (near.allocate(8, access)?, far.allocate(8, access)?);
    let (first, second) = near.connected(&far, &QueuePairConfig::granting(Access::REMOTE_WRITE))?;

    let times = node.words(2)?;
    let ours = Player {
        queue: first.send_queue()?,
        ours: one.words()?,
        theirs: other.remote().at(0, 8)?,
        rounds: ROUNDS,
        serves: 1,
        nanoseconds: &times[0],
    };
    let theirs = Player {
        queue: second.send_queue()?,
        ours: other.words()?,
        theirs: one.remote().at(0, 8)?,
        serves: 0,
        nanoseconds: &times[1],
        ..ours
    };
    // Both kernels run at the same time.
    let launches = [ours, theirs].map(|player| Launch::new(entry!(play), Grid::ONE_THREAD, player));
    node.run(&launches, &[&first, &second])?;
    let games = [(&first, &times[0]), (&second, &times[1])];
    let [flight, _] = games.map(|(pair, time)| flight(pair, time));
    println!("{ROUNDS} rounds, {flight:.2} µs for each flight\nTest OK");
    Ok(())
}

/// Ranks 0 and 1 play, ranks 2 and 3, and so on: each rank runs one of the two kernels.
#[cfg(not(target_arch = "nvptx64"))]
fn between_ranks(node: &Node, mut world: World) -> Result<(), Error> {
    let own = world.rank();
    let partner = Some(own ^ 1).filter(|partner| *partner < world.size());
    let memory = world
        .domain()
        .allocate(8, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let pairs = world.connect(partner, &QueuePairConfig::granting(Access::REMOTE_WRITE))?;
    let memories: Vec<RemoteMemory> = world.exchange(&memory.remote())?;
    if own == 0 {
        println!("{world}");
    }
    for (&partner, pair) in &pairs {
        let times = node.words(1)?;
        let player = Player {
            queue: pair.send_queue()?,
            ours: memory.words()?,
            theirs: memories[partner as usize].at(0, 8)?,
            rounds: ROUNDS,
            serves: u32::from(own < partner),
            nanoseconds: &times[0],
        };
        let launch = Launch::new(entry!(play), Grid::ONE_THREAD, player);
        node.run(&[launch], &[pair])?;
        let flight = flight(pair, &times[0]);
        println!("rank {own} and rank {partner}: {ROUNDS} rounds, {flight:.2} µs for each flight");
    }
    // Nobody ends while another one still throws.
    world.barrier()?;
    if own == 0 {
        println!("Test OK");
    }
    Ok(())
}

/// How long a number flew, in microseconds. A round is two flights.
#[cfg(not(target_arch = "nvptx64"))]
fn flight(pair: &QueuePair, nanoseconds: &Word64) -> f64 {
    assert_eq!(pair.first_error(), None);
    let nanoseconds = nanoseconds.load(Ordering::Relaxed);
    assert_ne!(nanoseconds, 0, "a ball was lost");
    nanoseconds as f64 / 1000.0 / (2 * ROUNDS) as f64
}
