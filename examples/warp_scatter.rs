//! Scatter: all threads write their own 64 bytes; threads, warps or blocks post together.
//!
//! Posts of a warp or a block make one reservation and ring the doorbell once. On a GPU that is what makes posts cheap.
//! Sharing and scope are types: `GpuShared` says that all blocks use the queue, `Warp` says who calls it together.
//!
//! ```console
//! $ cargo example warp_scatter                                # on a CPU, with a NIC of software
//! $ cargo example warp_scatter --features gpu -- --on gpu     # on an NVIDIA GPU
//! $ cargo example warp_scatter -- --depth 32                  # a ring that is too small
//! ```

use warpbell::wqe::{Local, Remote, Wqe};
use warpbell::{
    Block, Deadline, GpuShared, PostError, Scope, SendQueueHandle, Slice, Thread, Warp, Word64,
    kernel, thread,
};
#[cfg(not(target_arch = "nvptx64"))]
use {
    clap::Parser,
    std::{error::Error, sync::atomic::Ordering},
    warpbell_host_init::{Access, Grid, Launch, NodeArgs, QueuePairConfig, built, entry},
};

/// Bytes of each thread.
const PIECE: u32 = 64;

#[repr(C)]
#[derive(Clone, Copy)]
struct Scatter<'a> {
    queue: SendQueueHandle<'a>,
    source: Local,
    target: Remote,
    /// If the ring is too small for a post: how many blocks it was asked for, and how many it takes.
    refused: Slice<'a, Word64>,
}

#[kernel]
fn by_thread(p: Scatter<'_>) {
    scatter::<Thread>(p);
}

#[kernel]
fn by_warp(p: Scatter<'_>) {
    scatter::<Warp>(p);
}

#[kernel]
fn by_block(p: Scatter<'_>) {
    scatter::<Block>(p);
}

fn scatter<C: Scope>(p: Scatter<'_>) {
    let limit = Deadline::after_ms(5000);
    // SAFETY: all threads of the grid run this function with the same queue. Their requests differ in addresses alone,
    // so that those of a warp or a block get the same answers, and take the same branches.
    let Ok(mut queue) = (unsafe { p.queue.open_together::<GpuShared, C>() }) else {
        return;
    };
    let offset = u64::from(PIECE * thread::index());
    let write = Wqe::write(p.source.at(offset, PIECE), p.target.at(offset)).signalled();
    // Waits for room in the ring, if need be. Of a group's requests only the last one reports that it is done.
    match queue.post(write, limit) {
        Ok(ticket) => {
            // Nothing comes in: `wait_outbound` leaves out the fence that `wait` has. The host sees a failure.
            let _ = queue.wait_outbound(ticket, limit);
        }
        Err(PostError::TooManyBlocks { asked, limit }) => {
            p.refused.store(0, asked.into());
            p.refused.store(1, limit.into());
        }
        Err(_) => {}
    }
}

/// All threads write their own 64 bytes, posted by threads, warps and blocks
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    node: NodeArgs,
    /// Depth of the send queue in blocks of 64 bytes, a power of two; a post takes half of it at most
    #[arg(long, default_value_t = 128)]
    depth: u32,
}

#[cfg(not(target_arch = "nvptx64"))]
fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let node = arguments.node.open(&built!())?;
    let grid = Grid::new(4, 64);
    let bytes = PIECE * grid.threads() as u32;

    let [near, far] = node.ends()?;
    let source = near.allocate(bytes as usize, Access::LOCAL_WRITE)?;
    let target = far.allocate(bytes as usize, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let config = QueuePairConfig {
        send_depth: arguments.depth,
        ..QueuePairConfig::granting(Access::REMOTE_WRITE)
    };
    let (ours, _theirs) = near.connected(&far, &config)?;
    let refused = node.words(2)?;
    let parameters = Scatter {
        queue: ours.send_queue()?,
        source: source.local(0, bytes)?,
        target: target.remote().at(0, bytes)?,
        refused: Slice::new(&refused),
    };

    for (way, kernel, seed) in [
        ("thread", entry!(by_thread), 1),
        ("warp", entry!(by_warp), 2),
        ("block", entry!(by_block), 3),
    ] {
        let data: Vec<u8> = (0..bytes).map(|index| (seed * index / 7) as u8).collect();
        source.write(0, &data)?;
        node.run(&[Launch::new(kernel, grid, parameters)], &[&ours])?;
        if let Some(error) = ours.first_error() {
            return Err(error.to_string().into());
        }
        let [asked, limit] = [0, 1].map(|word: usize| refused[word].load(Ordering::Relaxed) as u32);
        if asked > 0 {
            let error = PostError::TooManyBlocks { asked, limit };
            return Err(format!("a {way}'s post is refused: {error}").into());
        }
        let mut arrived = vec![0; data.len()];
        target.read(0, &mut arrived)?;
        assert!(arrived == data, "not all bytes arrived");
        println!(
            "each {way} posts: {bytes} bytes of {} threads arrived",
            grid.threads()
        );
    }
    println!("Test OK");
    Ok(())
}
