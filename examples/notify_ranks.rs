//! Notify between processes: the ring of `notify`, in which each rank is a process, on one machine or several.
//!
//! ```console
//! $ cargo xtask launch -n 4 -- notify_ranks                # on this machine
//! $ mpirun -np 4 target/debug/examples/notify_ranks        # by Open MPI, srun or torchrun, on one machine or several
//! ```

use core::sync::atomic::Ordering;

use warpbell::{Block, Exclusive, Word64, block, kernel};
use warpbell_patterns::gaspi::{Error, GASPI_BLOCK, GaspiHandle};
#[cfg(not(target_arch = "nvptx64"))]
use {
    warpbell_host_init::{Grid, Launch, Node, World, built, entry},
    warpbell_patterns::gaspi::host::{GaspiConfig, GaspiRank},
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

#[kernel]
fn ring(p: Ring<'_>) {
    // An error leaves 0 for the host.
    let value = pass_on(p.gaspi).unwrap_or(0);
    if block::thread_index() == 0 {
        p.received.store(value.into(), Ordering::Relaxed);
    }
}

/// Gives the first half of the segment to the next rank, and waits for the data of the rank before.
fn pass_on(handle: GaspiHandle<'_>) -> Result<u32, Error> {
    let gaspi = handle.open()?;
    let (own, ranks) = (gaspi.proc_rank(), gaspi.proc_num());
    let mut next = gaspi.queue::<Exclusive, Block>(QUEUE, (own + 1) % ranks)?;
    next.write_notify(SEGMENT, 0, SEGMENT, HALF, HALF, DATA, own + 1, GASPI_BLOCK)?;
    let there = gaspi.notify_waitsome::<Block>(SEGMENT, DATA, 1, GASPI_BLOCK)?;
    let value = gaspi.notify_reset::<Block>(SEGMENT, there)?;
    next.wait(GASPI_BLOCK)?;
    Ok(value)
}

#[cfg(not(target_arch = "nvptx64"))]
fn main() -> Result<(), warpbell_patterns::Error> {
    let node = Node::from_args(built!())?;
    let world = World::from_env(&node, std::time::Duration::from_secs(60))?;
    let (own, ranks) = (world.rank(), world.size());
    if own == 0 {
        println!("{world}");
    }
    // A rank alone is its own neighbour.
    let config = GaspiConfig {
        to_self: ranks == 1,
        ..GaspiConfig::default()
    };
    let mut gaspi = GaspiRank::new(world, &config)?;
    gaspi.segment_create(SEGMENT, 2 * HALF as usize)?;
    gaspi.segment_write(SEGMENT, 0, &[own as u8; HALF as usize])?;
    let received = node.shared(Word64::new(0))?;
    let parameters = Ring {
        gaspi: gaspi.handle(),
        received: &received,
    };
    let launch = Launch::new(entry!(ring), Grid::new(1, 64), parameters);
    node.run(&[launch], &gaspi.queue_pairs().collect::<Vec<_>>())?;

    let before = (own + ranks - 1) % ranks;
    let value = received.load(Ordering::Relaxed);
    assert_eq!(value, u64::from(before) + 1, "the notification");
    let mut data = [0; HALF as usize];
    gaspi.segment_read(SEGMENT, HALF as usize, &mut data)?;
    assert_eq!(data, [before as u8; HALF as usize], "the data");
    println!("rank {own} has {HALF} bytes of rank {before}");
    // Nobody ends while another one still writes to it.
    gaspi.world().barrier()?;
    if own == 0 {
        println!("Test OK");
    }
    Ok(())
}
