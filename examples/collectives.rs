//! Collectives: calls that a kernel makes with kernels of other ranks, to share values and to add them up.
//!
//! A *team* has some ranks, with a window of memory each. All members call the same functions in the same order. The ranks
//! are the processes that a launcher has started; without one, four in this process.
//!
//! ```console
//! $ cargo example collectives                              # on a CPU, with a NIC of software
//! $ cargo example collectives --features gpu -- --on gpu   # on an NVIDIA GPU
//! $ cargo xtask launch -n 4 -- collectives                 # between processes
//! ```

use core::sync::atomic::Ordering;

use warpbell::{Block, Deadline, Word64, block, kernel};
use warpbell_patterns::team::{Algorithm, Error, TeamHandle};
#[cfg(not(target_arch = "nvptx64"))]
use {
    warpbell_host_init::{Grid, Launch, Node, QueuePair, World, built, entry},
    warpbell_patterns::team::host::{TeamConfig, TeamMember, team_of},
};

/// Floats of a vector.
const COUNT: u64 = 1024;
/// Where things lie in a window, in bytes: a vector, the sum of all vectors, one number of each member.
const VECTOR: u64 = 0;
const SUM: u64 = 4 * COUNT;
const NUMBERS: u64 = 2 * SUM;

#[repr(C)]
#[derive(Clone, Copy)]
struct Call<'a> {
    team: TeamHandle<'a>,
    /// 1 if the calls have succeeded, or the error.
    ended: &'a Word64,
}

// ANCHOR: kernel
#[kernel]
fn collectives(p: Call<'_>) {
    let ended = share_and_add(p.team).err().map_or(1, Error::to_bits);
    if block::thread_index() == 0 {
        p.ended.store(ended, Ordering::Relaxed);
    }
}

/// Adds up the vectors of all members, and meanwhile lets each of them know a number of each.
///
/// All threads of the block make each call together, and all get its result.
fn share_and_add(handle: TeamHandle<'_>) -> Result<(), Error> {
    let limit = Deadline::after_ms(10_000);
    let mut team = handle.open::<Block>(0)?;

    // Each member stores a number in its own place. Then all have all numbers.
    let own = NUMBERS / 8 + u64::from(team.rank());
    handle.words().store(own, 100 + u64::from(team.rank()));
    team.all_gather::<u64>(8 * own, NUMBERS, 1, limit)?;

    // The first half of the call sends what it can. Other work may follow. The second half adds and waits.
    let begun = team.begin_all_reduce::<f32>(Algorithm::Ring, VECTOR, SUM, COUNT, limit)?;
    begun.finish(limit)
}
// ANCHOR_END: kernel

#[cfg(not(target_arch = "nvptx64"))]
fn main() -> Result<(), warpbell_patterns::Error> {
    let node = Node::from_args(built!())?;
    let mut world = World::from_env(&node, std::time::Duration::from_secs(60))?;
    let config = TeamConfig::default();
    if (world.rank(), world.size() > 1) == (0, true) {
        println!("{world}");
    }
    // ANCHOR: host
    if world.size() == 1 {
        // Four members in this process. Their kernels run at the same time, because each waits for the others.
        run(&node, &team_of(&node.domains(4)?, &config)?)?;
    } else {
        let all: Vec<u32> = world.ranks().collect();
        let member = TeamMember::join(&mut world, &all, &config)?;
        run(&node, &[member.expect("all are members")])?;
        // Nobody ends while another one still writes to it.
        world.barrier()?;
    }
    // ANCHOR_END: host
    if world.rank() == 0 {
        println!("Test OK");
    }
    Ok(())
}

/// Runs a kernel for each of these members, and compares all that it leaves.
#[cfg(not(target_arch = "nvptx64"))]
fn run(node: &Node, members: &[TeamMember]) -> Result<(), warpbell_patterns::Error> {
    let vector = |rank: u32| (0..COUNT).map(move |at| (rank as f32 + 1.0) * at as f32);
    for member in members {
        let bytes: Vec<u8> = vector(member.rank()).flat_map(f32::to_le_bytes).collect();
        member.write(VECTOR as usize, &bytes)?;
    }
    let ended = node.words(members.len())?;
    let launches: Vec<_> = (members.iter().zip(ended.iter()))
        .map(|(member, ended)| {
            let team = member.handle();
            Launch::new(entry!(collectives), Grid::new(1, 64), Call { team, ended })
        })
        .collect();
    let queue_pairs: Vec<&QueuePair> = members.iter().flat_map(TeamMember::queue_pairs).collect();
    node.run(&launches, &queue_pairs)?;
    for (member, ended) in members.iter().zip(ended.iter()) {
        let (rank, ranks) = (member.rank(), member.ranks());
        let word = ended.load(Ordering::Relaxed);
        assert_eq!((word, Error::from_bits(word)), (1, None), "member {rank}");
        // These floats are whole numbers, so that their sums are exact in any order.
        let sum = (0..COUNT).map(|at| (1..=ranks).sum::<u32>() as f32 * at as f32);
        let wanted: Vec<u8> = sum.flat_map(f32::to_le_bytes).collect();
        let mut found = vec![0; wanted.len()];
        member.read(SUM as usize, &mut found)?;
        assert!(found == wanted, "the sums at member {rank}");
        let wanted: Vec<u8> = (0..u64::from(ranks))
            .flat_map(|of| (100 + of).to_le_bytes())
            .collect();
        let mut found = vec![0; wanted.len()];
        member.read(NUMBERS as usize, &mut found)?;
        assert!(found == wanted, "the numbers at member {rank}");
        println!("rank {rank} has the sums of {ranks} vectors of {COUNT} floats");
    }
    Ok(())
}
