//! All-reduce: the sum of all ranks' vectors, at each rank, by a ring of processes on one machine or several.
//!
//! The vector has as many chunks as there are ranks. In each step a rank writes a chunk to the next rank, and takes one of
//! the rank before. First it adds what comes to its own chunk, until each rank has the sum of one. Then sums go round.
//!
//! ```console
//! $ cargo xtask launch -n 4 -- allreduce                  # on this machine
//! $ mpirun -np 4 target/debug/examples/allreduce          # by Open MPI, srun or torchrun, on one machine or several
//! $ cargo example allreduce                               # one rank alone, whose vector is the sum
//! ```

use core::sync::atomic::Ordering;

use warpbell::wqe::{Local, Remote, Wqe};
use warpbell::{Deadline, Exclusive, SendQueueHandle, Word64, Words, kernel};
#[cfg(not(target_arch = "nvptx64"))]
use {
    std::{error::Error, time::Duration},
    warpbell_host_init::{
        Access, Grid, Launch, Node, QueuePairConfig, RemoteMemory, World, built, entry,
    },
};

/// Words of a chunk, and its bytes.
const CHUNK: u64 = 1024;
const CHUNK_BYTES: u32 = 8 * CHUNK as u32;

#[repr(C)]
#[derive(Clone, Copy)]
struct AllReduce<'a> {
    rank: u64,
    ranks: u64,
    /// To the next rank.
    queue: SendQueueHandle<'a>,
    /// Our vector, for the NIC and for the kernel.
    source: Local,
    vector: Words<'a>,
    /// The chunks that come and their flags, of each step in a place of its own.
    inbox: Words<'a>,
    flags: Words<'a>,
    /// The same at the next rank.
    next_inbox: Remote,
    next_flags: Remote,
    /// 1 once all is done.
    done: &'a Word64,
}

// ANCHOR: kernel
#[kernel]
fn allreduce(p: AllReduce<'_>) {
    // An error leaves 0 for the host.
    p.done.store(sum(p).is_some().into(), Ordering::Relaxed);
}

fn sum(p: AllReduce<'_>) -> Option<()> {
    let limit = Deadline::after_ms(30_000);
    let mut queue = p.queue.open::<Exclusive>().ok()?;
    let steps = 2 * (p.ranks - 1);
    for step in 0..steps {
        // Each rank sends on what it has taken in the step before.
        let sent = (p.rank + steps + 2 - step) % p.ranks;
        let taken = (sent + p.ranks - 1) % p.ranks;
        let from = p.source.at(8 * CHUNK * sent, CHUNK_BYTES);
        let write = Wqe::write(from, p.next_inbox.at(8 * CHUNK * step));
        let _ = queue.post(write, limit).ok()?;
        let flag = Wqe::write_value(1_u64, p.next_flags.at(8 * step)).signalled();
        let flag = queue.post(flag, limit).ok()?;

        p.flags.signal(step)?.wait(1, limit).ok()?;
        for word in 0..CHUNK {
            let mut value = p.inbox.load(step * CHUNK + word)?;
            let own = taken * CHUNK + word;
            if step < steps / 2 {
                value = value.wrapping_add(p.vector.load(own)?);
            }
            p.vector.store(own, value);
        }
        // The NIC has read what we sent: later steps overwrite it.
        queue.wait(flag, limit).ok()?;
    }
    Some(())
}
// ANCHOR_END: kernel

#[cfg(not(target_arch = "nvptx64"))]
fn main() -> Result<(), Box<dyn Error>> {
    let node = Node::from_args(built!())?;
    let mut world = World::from_env(&node, Duration::from_secs(60))?;
    let (own, size) = (world.rank(), world.size());
    if own == 0 {
        println!("{world}");
    }
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let chunks = |count: u32| {
        world
            .domain()
            .allocate((CHUNK_BYTES * count) as usize, access)
    };
    let (vector, inbox) = (chunks(size)?, chunks(2 * size)?);
    let flags = world.domain().allocate(16 * size as usize, access)?;
    // The neighbours in a ring. In one of two both are the same rank, and alone a rank has none.
    let (next, before) = ((own + 1) % size, (own + size - 1) % size);
    let ring = [next, before].into_iter().filter(|rank| *rank != own);
    let pairs = world.connect(ring, &QueuePairConfig::granting(Access::REMOTE_WRITE))?;
    let theirs: Vec<[RemoteMemory; 2]> = world.exchange(&[inbox.remote(), flags.remote()])?;

    let words = CHUNK * u64::from(size);
    for word in 0..words {
        vector.words()?.store(word, (word + 1) * u64::from(own + 1));
    }
    let done = node.shared(Word64::new(0))?;
    if let Some(pair) = pairs.get(&next) {
        let [next_inbox, next_flags] = theirs[next as usize];
        let parameters = AllReduce {
            rank: own.into(),
            ranks: size.into(),
            queue: pair.send_queue()?,
            source: vector.local(0, CHUNK_BYTES * size)?,
            vector: vector.words()?,
            inbox: inbox.words()?,
            flags: flags.words()?,
            next_inbox: next_inbox.at(0, 2 * CHUNK_BYTES * size)?,
            next_flags: next_flags.at(0, 16 * size)?,
            done: &done,
        };
        let launch = Launch::new(entry!(allreduce), Grid::ONE_THREAD, parameters);
        node.run(&[launch], &[pair])?;
        if let Some(error) = pair.first_error() {
            return Err(error.into());
        }
        assert_eq!(
            done.load(Ordering::Relaxed),
            1,
            "a neighbour did not answer in time"
        );
    }

    // Rank r has (r + 1) times the number of the word, counted from 1.
    let ranks = u64::from(size) * u64::from(size + 1) / 2;
    let found = vector.read_words(0, words as usize)?;
    let expected: Vec<_> = (1..=words).map(|word| word * ranks).collect();
    assert!(found == expected, "the sum is wrong");
    println!("rank {own} has the sum of {size} vectors of {words} words");
    // Nobody ends while another one still writes to it.
    world.barrier()?;
    if own == 0 {
        println!("Test OK");
    }
    Ok(())
}
