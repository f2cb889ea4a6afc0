//! Notify: ranks in a ring, of which each gives the next one data and says that the data is there.
//!
//! A write into remote memory tells nobody that it has arrived. GASPI adds that: a *notification* is a number that
//! arrives behind the data. Registered memory is in *segments*, which have small numbers, so that kernels name neither
//! addresses nor keys. The ranks are the processes that a launcher has started; without one, four in this process.
//!
//! ```console
//! $ cargo example notify                                # on a CPU, with a NIC of software
//! $ cargo example notify --features gpu -- --on gpu     # on an NVIDIA GPU
//! $ cargo xtask launch -n 4 -- notify                   # between processes
//! ```

use core::sync::atomic::Ordering;

use warpbell::{Block, Exclusive, Word64, block, kernel};
use warpbell_patterns::gaspi::{Error, GASPI_BLOCK, GaspiHandle};
#[cfg(not(target_arch = "nvptx64"))]
use {
    warpbell_host_init::{Grid, Launch, Node, World, built, entry},
    warpbell_patterns::gaspi::host::{Gaspi, GaspiConfig, GaspiRank},
};

/// Each rank has one segment. The first half is sent, the second half is received.
const SEGMENT: u32 = 0;
const HALF: u64 = 4096;
/// Numbers of the notification and of the queue.
const DATA: u32 = 7;
const QUEUE: u32 = 0;

#[repr(C)]
#[derive(Clone, Copy)]
struct Ring<'a> {
    gaspi: GaspiHandle<'a>,
    /// The value of the notification that it received.
    received: &'a Word64,
}

// ANCHOR: kernel
#[kernel]
fn ring(p: Ring<'_>) {
    // An error leaves 0 for the host.
    let value = pass_on(p.gaspi).unwrap_or(0);
    if block::thread_index() == 0 {
        p.received.store(value.into(), Ordering::Relaxed);
    }
}

/// Gives the first half of the segment to the next rank, and waits for the data of the rank before.
///
/// All threads of the block make each call together. They make one request, and all get its result.
fn pass_on(handle: GaspiHandle<'_>) -> Result<u32, Error> {
    let gaspi = handle.open()?;
    let (own, ranks) = (gaspi.proc_rank(), gaspi.proc_num());

    // The data, and behind it the notification. Its value says who sends; 0 would mean "no notification".
    let mut next = gaspi.queue::<Exclusive, Block>(QUEUE, (own + 1) % ranks)?;
    next.write_notify(SEGMENT, 0, SEGMENT, HALF, HALF, DATA, own + 1, GASPI_BLOCK)?;

    // Once the notification is there, so is the data that was written before it. `notify_reset` takes it away.
    let there = gaspi.notify_waitsome::<Block>(SEGMENT, DATA, 1, GASPI_BLOCK)?;
    let value = gaspi.notify_reset::<Block>(SEGMENT, there)?;

    // After this wait the NIC has read all that was sent: the first half may be overwritten.
    next.wait(GASPI_BLOCK)?;
    Ok(value)
}
// ANCHOR_END: kernel

#[cfg(not(target_arch = "nvptx64"))]
fn main() -> Result<(), warpbell_patterns::Error> {
    let node = Node::from_args(built!())?;
    let world = World::from_env(&node, std::time::Duration::from_secs(60))?;
    match world.size() {
        1 => in_one_process(&node),
        _ => between_processes(&node, world),
    }
}

#[cfg(not(target_arch = "nvptx64"))]
// ANCHOR: host
fn in_one_process(node: &Node) -> Result<(), warpbell_patterns::Error> {
    // Four ranks, each connected to all others.
    let mut gaspi = Gaspi::new(&node.domains(4)?, &GaspiConfig::default())?;
    gaspi.segment_create(SEGMENT, 2 * HALF as usize)?;
    for rank in 0..4 {
        gaspi.segment_write(rank, SEGMENT, 0, &[rank as u8; HALF as usize])?;
    }

    // One kernel for each rank. They run at the same time, because each waits for another one.
    let received = node.words(4)?;
    let mut launches = Vec::new();
    for (rank, received) in (0..).zip(received.iter()) {
        let gaspi = gaspi.handle(rank)?;
        let parameters = Ring { gaspi, received };
        launches.push(Launch::new(entry!(ring), Grid::new(1, 64), parameters));
    }
    node.run(&launches, &[])?;

    for (rank, received) in (0..4).zip(received.iter()) {
        let mut data = [0; HALF as usize];
        gaspi.segment_read(rank, SEGMENT, HALF as usize, &mut data)?;
        check(rank, 4, received, &data);
    }
    println!("Test OK");
    Ok(())
}
// ANCHOR_END: host

#[cfg(not(target_arch = "nvptx64"))]
// ANCHOR: processes
fn between_processes(node: &Node, world: World) -> Result<(), warpbell_patterns::Error> {
    let (own, ranks) = (world.rank(), world.size());
    if own == 0 {
        println!("{world}");
    }
    let mut gaspi = GaspiRank::new(world, &GaspiConfig::default())?;
    gaspi.segment_create(SEGMENT, 2 * HALF as usize)?;
    gaspi.segment_write(SEGMENT, 0, &[own as u8; HALF as usize])?;

    let received = node.shared(Word64::new(0))?;
    let parameters = Ring {
        gaspi: gaspi.handle(),
        received: &received,
    };
    let launch = Launch::new(entry!(ring), Grid::new(1, 64), parameters);
    node.run(&[launch], &gaspi.queue_pairs().collect::<Vec<_>>())?;

    let mut data = [0; HALF as usize];
    gaspi.segment_read(SEGMENT, HALF as usize, &mut data)?;
    check(own, ranks, &received, &data);
    // Nobody ends while another one still writes to it.
    gaspi.world().barrier()?;
    if own == 0 {
        println!("Test OK");
    }
    Ok(())
}
// ANCHOR_END: processes

/// Compares what a rank has received with what the rank before has sent.
#[cfg(not(target_arch = "nvptx64"))]
fn check(rank: u32, ranks: u32, received: &Word64, data: &[u8]) {
    let before = (rank + ranks - 1) % ranks;
    let value = received.load(Ordering::Relaxed);
    assert_eq!(value, u64::from(before) + 1, "the value at rank {rank}");
    let right = data.iter().all(|byte| *byte == before as u8);
    assert!(right, "the data of rank {rank}");
    println!("rank {rank} has {HALF} bytes of rank {before}");
}
