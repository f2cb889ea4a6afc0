//! Triggered operations: the host prepares a write, and the last block that is ready sets it off.
//!
//! The host writes the request into the ring before the kernel starts, under a *tag* with a *threshold*. Each block
//! computes its part of the data and triggers the tag. When the threshold is reached, the doorbell rings. Kernels build
//! no requests and need no addresses.
//!
//! ```console
//! $ cargo example trigger                                # on a CPU, with a NIC of software
//! $ cargo example trigger --features gpu -- --on gpu     # on an NVIDIA GPU
//! ```

use core::sync::atomic::Ordering;

use warpbell::{Block, Deadline, Word64, Words, block, kernel, thread};
use warpbell_patterns::trigger::{Error, TriggerHandle};
#[cfg(not(target_arch = "nvptx64"))]
use {
    warpbell::wqe::Wqe,
    warpbell_host_init::{Access, Grid, Launch, Node, QueuePairConfig, built, entry},
    warpbell_patterns::trigger::host::Triggers,
};

/// The tag, and how many triggers set it off: one for each block.
const TAG: u32 = 0;
const BLOCKS: u32 = 4;

#[repr(C)]
#[derive(Clone, Copy)]
struct Squares<'a> {
    triggers: TriggerHandle<'a>,
    /// Registered memory that the prepared write sends.
    squares: Words<'a>,
    /// Blocks that saw the write done.
    done: &'a Word64,
}

#[kernel]
fn squares(p: Squares<'_>) {
    let index = u64::from(thread::index());
    p.squares.store(index, index * index);
    // An error leaves this block out of the count.
    if set_off(p.triggers).is_ok() && block::thread_index() == 0 {
        p.done.fetch_add(1, Ordering::Relaxed);
    }
}

fn set_off(handle: TriggerHandle<'_>) -> Result<(), Error> {
    let triggers = handle.open()?;
    // All threads of the block call, and their block triggers once. What they all have stored before is sent.
    triggers.trigger::<Block>(TAG)?;
    // The write is done, whichever block has set it off.
    triggers.wait::<Block>(TAG, Deadline::after_ms(5000))
}

#[cfg(not(target_arch = "nvptx64"))]
fn main() -> Result<(), warpbell_patterns::Error> {
    let node = Node::from_args(built!())?;
    let grid = Grid::new(BLOCKS, 64);
    let bytes = 8 * grid.threads() as u32;
    let [near, far] = node.ends()?;
    let source = near.allocate(bytes as usize, Access::LOCAL_WRITE)?;
    let target = far.allocate(bytes as usize, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let config = QueuePairConfig::granting(Access::REMOTE_WRITE);
    let (ours, _theirs) = near.connected(&far, &config)?;

    // Each tag has a queue pair of its own. The write waits there for its triggers.
    let mut triggers = Triggers::new(vec![ours])?;
    let write = Wqe::write(source.local(0, bytes)?, target.remote().at(0, bytes)?);
    triggers.register(TAG, BLOCKS, [write])?;

    let done = node.shared(Word64::new(0))?;
    let parameters = Squares {
        triggers: triggers.handle(),
        squares: source.words()?,
        done: &done,
    };
    node.run(&[Launch::new(entry!(squares), grid, parameters)], &[])?;

    let arrived = target.read_words(0, grid.threads() as usize)?;
    assert_eq!(done.load(Ordering::Relaxed), u64::from(BLOCKS));
    assert!(
        arrived
            .into_iter()
            .eq((0..grid.threads()).map(|index| index * index))
    );
    println!(
        "{BLOCKS} triggers have sent {} squares\nTest OK",
        grid.threads()
    );
    Ok(())
}
