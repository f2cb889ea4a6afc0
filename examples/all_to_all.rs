//! All to all: the processes of a job, its ranks, each write to all others, on one machine or several.
//!
//! A launcher starts this program many times. The ranks find each other and connect their queues; then each rank's kernel
//! writes a block of bytes into the memory of every other rank, and a flag behind it that says so.
//!
//! ```console
//! $ cargo xtask launch -n 4 -- all_to_all                  # on this machine
//! $ mpirun -np 4 target/debug/examples/all_to_all          # by Open MPI, srun or torchrun, on one machine or several
//! ```

use core::sync::atomic::Ordering;

use warpbell::wqe::{Local, Remote, Wqe};
use warpbell::{Deadline, Exclusive, SendQueueHandle, Slice, Word64, Words, kernel, thread};
#[cfg(not(target_arch = "nvptx64"))]
use {
    std::{error::Error, time::Duration},
    warpbell_host_init::{
        Access, Grid, Launch, Node, QueuePairConfig, RemoteMemory, World, built, entry,
    },
};

/// Another rank.
#[repr(C)]
#[derive(Clone, Copy)]
struct Other<'a> {
    queue: SendQueueHandle<'a>,
    /// What goes to where, and the flag behind it.
    from: Local,
    to: Remote,
    flag: Remote,
    /// Which of our flags the other rank sets.
    ours: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Exchange<'a> {
    others: Slice<'a, Other<'a>>,
    flags: Words<'a>,
    /// How many threads have what they waited for.
    done: &'a Word64,
}

// ANCHOR: kernel
/// Each thread serves another rank.
#[kernel]
fn exchange(p: Exchange<'_>) {
    if let Some(other) = p.others.get(thread::index().into())
        && talk(other, p.flags).is_some()
    {
        p.done.fetch_add(1, Ordering::Relaxed);
    }
}

fn talk(other: &Other<'_>, flags: Words<'_>) -> Option<()> {
    let limit = Deadline::after_ms(30_000);
    let mut queue = other.queue.open::<Exclusive>().ok()?;
    // Writes of one queue pair arrive in order: a kernel that sees the flag may read the block.
    let _ = queue.post(Wqe::write(other.from, other.to), limit).ok()?;
    let flag = Wqe::write_value(1_u64, other.flag).signalled();
    let flag = queue.post(flag, limit).ok()?;
    flags.signal(other.ours)?.wait(1, limit).ok()?;
    queue.wait(flag, limit).ok()?;
    Some(())
}
// ANCHOR_END: kernel

/// Bytes that each rank writes to each other.
#[cfg(not(target_arch = "nvptx64"))]
const BLOCK: usize = 4096;

/// The byte at an offset of what a rank writes to another.
#[cfg(not(target_arch = "nvptx64"))]
fn byte(from: u32, to: u32, offset: usize) -> u8 {
    (31 * from as usize + 7 * to as usize + offset + offset / 256) as u8
}

#[cfg(not(target_arch = "nvptx64"))]
fn main() -> Result<(), Box<dyn Error>> {
    // ANCHOR: world
    let node = Node::from_args(built!())?;
    let mut world = World::from_env(&node, Duration::from_secs(60))?;
    let (own, size) = (world.rank(), world.size());
    if own == 0 {
        println!("{world}");
    }
    // A block and a flag of each rank.
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let outbox = world.domain().allocate(BLOCK * size as usize, access)?;
    let inbox = world.domain().allocate(BLOCK * size as usize, access)?;
    let flags = world.domain().allocate(8 * size as usize, access)?;
    let pairs = world.connect(
        world.others(),
        &QueuePairConfig::granting(Access::REMOTE_WRITE),
    )?;
    let theirs: Vec<[RemoteMemory; 2]> = world.exchange(&[inbox.remote(), flags.remote()])?;
    // ANCHOR_END: world

    let (mut others, mut all) = (Vec::new(), Vec::new());
    for (&rank, pair) in &pairs {
        let block: Vec<_> = (0..BLOCK).map(|offset| byte(own, rank, offset)).collect();
        outbox.write(BLOCK * rank as usize, &block)?;
        let [inbox, flags] = theirs[rank as usize];
        others.push(Other {
            queue: pair.send_queue()?,
            from: outbox.local(BLOCK * rank as usize, BLOCK as u32)?,
            to: inbox.at(BLOCK * own as usize, BLOCK as u32)?,
            flag: flags.at(8 * own as usize, 8)?,
            ours: rank.into(),
        });
        all.push(pair);
    }
    let done = node.shared(Word64::new(0))?;
    if !others.is_empty() {
        let others = node.shared_slice(others.len(), |index| others[index])?;
        let parameters = Exchange {
            others: Slice::new(&others),
            flags: flags.words()?,
            done: &done,
        };
        let grid = Grid::new(1, size - 1);
        node.run(&[Launch::new(entry!(exchange), grid, parameters)], &all)?;
    }
    if let Some(error) = all.iter().find_map(|pair| pair.first_error()) {
        return Err(error.into());
    }
    assert_eq!(done.load(Ordering::Relaxed), u64::from(size - 1));

    for rank in pairs.keys() {
        let mut arrived = [0; BLOCK];
        inbox.read(BLOCK * *rank as usize, &mut arrived)?;
        let right = arrived.iter().enumerate();
        let mut right = right.map(|(offset, found)| *found == byte(*rank, own, offset));
        assert!(
            right.all(|right| right),
            "the block of rank {rank} is wrong"
        );
    }
    println!(
        "rank {own} has {BLOCK} bytes of each of {} others",
        size - 1
    );
    // Nobody ends while another one still writes to it.
    world.barrier()?;
    if own == 0 {
        println!("Test OK");
    }
    Ok(())
}
