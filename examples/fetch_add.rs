//! Fetch-and-add: all threads of a grid draw numbers from a counter at the other end, and no number is drawn twice.
//!
//! The NIC at the other end adds and gives back the value from before, in one step, whoever else adds at the same time.
//!
//! ```console
//! $ cargo example fetch_add                                # on a CPU, with a NIC of software
//! $ cargo example fetch_add --features gpu -- --on gpu     # on an NVIDIA GPU
//! ```

use warpbell::wqe::{Remote, Wqe};
use warpbell::{Deadline, GpuShared, SendQueueHandle, Words, kernel, thread};
#[cfg(not(target_arch = "nvptx64"))]
use warpbell_host_init::{Access, Error, Grid, Launch, Node, QueuePairConfig, built, entry};

#[repr(C)]
#[derive(Clone, Copy)]
struct Draw<'a> {
    /// One queue for all threads.
    queue: SendQueueHandle<'a>,
    /// The counter at the other end.
    counter: Remote,
    /// Our registered memory: a word for each thread, where the NIC puts the number that the thread has drawn.
    drawn: Words<'a>,
}

#[kernel]
fn draw(p: Draw<'_>) {
    // An error leaves the thread's word as it is, which the host finds.
    let _ = try_draw(p);
}

fn try_draw(p: Draw<'_>) -> Option<()> {
    let limit = Deadline::after_ms(5000);
    let own = p.drawn.local(thread::index().into(), 1)?;
    // `GpuShared`: all threads of all blocks post to this queue at the same time.
    let mut queue = p.queue.open::<GpuShared>().ok()?;
    let add = Wqe::fetch_add(own, p.counter, 1).signalled();
    let ticket = queue.post(add, limit).ok()?;
    // The answer brings data in: after `wait` this thread may read its word.
    queue.wait(ticket, limit).ok()
}

#[cfg(not(target_arch = "nvptx64"))]
fn main() -> Result<(), Error> {
    let node = Node::from_args(built!())?;
    let grid = Grid::new(4, 32);
    let threads = grid.threads() as usize;

    let [near, far] = node.ends()?;
    let drawn = near.allocate(8 * threads, Access::LOCAL_WRITE)?;
    let counter = far.allocate(8, Access::LOCAL_WRITE | Access::REMOTE_ATOMIC)?;
    drawn.write(0, &vec![0xff; 8 * threads])?;
    counter.write(0, &1000_u64.to_ne_bytes())?;
    let config = QueuePairConfig::granting(Access::REMOTE_ATOMIC);
    let (ours, _theirs) = near.connected(&far, &config)?;
    let parameters = Draw {
        queue: ours.send_queue()?,
        counter: counter.remote().at(0, 8)?,
        drawn: drawn.words()?,
    };
    node.run(&[Launch::new(entry!(draw), grid, parameters)], &[&ours])?;

    assert_eq!(ours.first_error(), None);
    let mut numbers = drawn.read_words(0, threads)?;
    numbers.sort_unstable();
    assert!(
        numbers.iter().copied().eq(1000..1000 + threads as u64),
        "{numbers:?}"
    );
    assert_eq!(counter.read_words(0, 1)?, [1000 + threads as u64]);
    println!(
        "{threads} threads have drawn 1000 to {}\nTest OK",
        999 + threads
    );
    Ok(())
}
