//! Notify: four ranks in a ring, of which each gives the next one data and says that the data is there.
//!
//! A write into remote memory tells nobody that it has arrived. GASPI adds that: a *notification* is a number that
//! arrives behind the data. A GASPI program has *ranks*, its processes. Their registered memory is in *segments*, which
//! have small numbers, so that kernels name neither addresses nor keys.
//!
//! ```console
//! $ cargo example notify                                # on a CPU, with a NIC of software
//! $ cargo example notify --features gpu -- --on gpu     # on an NVIDIA GPU
//! ```

use core::sync::atomic::Ordering;

use warpbell::{Block, Exclusive, Word64, block, kernel};
use warpbell_patterns::gaspi::{Error, GASPI_BLOCK, GaspiHandle};
#[cfg(not(target_arch = "nvptx64"))]
use {
    warpbell_host_init::{Grid, Launch, Node, built, entry},
    warpbell_patterns::gaspi::host::{Gaspi, GaspiConfig},
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
    /// This rank, and its connections to the others.
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
// ANCHOR: host
fn main() -> Result<(), warpbell_patterns::Error> {
    let node = Node::from_args(built!())?;
    // Four ranks, each connected to all others.
    let mut gaspi = Gaspi::new(&node.domains(4)?, &GaspiConfig::default())?;
    gaspi.segment_create(SEGMENT, 2 * HALF as usize)?;
    for rank in 0..4 {
        gaspi.segment_write(rank, SEGMENT, 0, &[rank as u8; HALF as usize])?;
    }

    // One kernel for each rank. They run at the same time, because each waits for another one.
    let received = node.words(4)?;
    let mut launches = Vec::new();
    for rank in 0..4 {
        let parameters = Ring {
            gaspi: gaspi.handle(rank)?,
            received: &received[rank as usize],
        };
        launches.push(Launch::new(entry!(ring), Grid::new(1, 64), parameters));
    }
    node.run(&launches, &[])?;

    for rank in 0..4 {
        let before = (rank + 3) % 4;
        let value = received[rank as usize].load(Ordering::Relaxed);
        assert_eq!(
            value,
            u64::from(before) + 1,
            "the notification of rank {rank}"
        );
        let mut data = [0; HALF as usize];
        gaspi.segment_read(rank, SEGMENT, HALF as usize, &mut data)?;
        assert_eq!(
            data, [before as u8; HALF as usize],
            "the data of rank {rank}"
        );
        println!("rank {rank} has {HALF} bytes of rank {before}");
    }
    println!("Test OK");
    Ok(())
}
// ANCHOR_END: host
