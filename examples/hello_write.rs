//! Hello: a kernel writes a greeting into memory of the other end.
//!
//! This is the smallest program. The host registers memory, connects two ends and starts the kernel. The kernel posts
//! one RDMA write and waits until the NIC has carried it out.
//!
//! ```console
//! $ cargo example hello_write                                # on a CPU, with a NIC of software
//! $ cargo example hello_write --features gpu -- --on gpu     # on an NVIDIA GPU
//! ```

use warpbell::wqe::{Local, Remote, Wqe};
use warpbell::{Deadline, Exclusive, SendQueueHandle, kernel};
#[cfg(not(target_arch = "nvptx64"))]
use warpbell_host_init::{Access, Error, Grid, Launch, Node, QueuePairConfig, built, entry};

// ANCHOR: parameters
/// What the host gives the kernel. `repr(C)` gives it the same layout on host and GPU.
#[repr(C)]
#[derive(Clone, Copy)]
struct Hello<'a> {
    /// The queue that leads to the other end.
    queue: SendQueueHandle<'a>,
    /// Where the greeting is: address, length and key of our own memory.
    greeting: Local,
    /// Where it goes: address and key of memory at the other end.
    target: Remote,
}
// ANCHOR_END: parameters

// ANCHOR: kernel
/// The kernel. The same source runs on a CPU and on a GPU.
#[kernel]
fn hello(p: Hello<'_>) {
    // No wait is for ever: each has a deadline.
    let limit = Deadline::after_ms(1000);
    // `Exclusive`: this thread has the queue to itself, so that posts need no atomics.
    let Ok(mut queue) = p.queue.open::<Exclusive>() else {
        return;
    };
    // A signalled request reports that it is done. `post` writes the request into the queue and rings the doorbell.
    let write = Wqe::write(p.greeting, p.target).signalled();
    if let Ok(ticket) = queue.post(write, limit) {
        // A failure does not get lost here: the queue keeps its first error, and the host finds it there.
        let _ = queue.wait(ticket, limit);
    }
}
// ANCHOR_END: kernel

// ANCHOR: host
/// The host.
#[cfg(not(target_arch = "nvptx64"))]
fn main() -> Result<(), Error> {
    // Where kernels run and which NIC they use: the command line says so (--on, --nic). `built!()` is the kernels that
    // the build script compiled for a GPU, if it did.
    let node = Node::from_args(built!())?;
    // Both ends of the connection are in this process. The tutorial's next pages have them in two.
    let [near, far] = node.ends()?;

    // Memory that NICs may use is registered first. The far end allows others to write to it.
    let source = near.allocate(4096, Access::LOCAL_WRITE)?;
    let target = far.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    source.write(0, b"hello from a kernel")?;

    // Two connected queue pairs. The far one lets the near one write, too.
    let (ours, _theirs) = near.connected(&far, &QueuePairConfig::granting(Access::REMOTE_WRITE))?;
    let parameters = Hello {
        queue: ours.send_queue()?,
        greeting: source.local(0, 19)?,
        target: target.remote().at(0, 19)?,
    };

    // One block of one thread. `run` returns once the kernel has ended.
    node.run(
        &[Launch::new(entry!(hello), Grid::ONE_THREAD, parameters)],
        &[&ours],
    )?;

    assert_eq!(ours.first_error(), None);
    let mut arrived = [0; 19];
    target.read(0, &mut arrived)?;
    assert_eq!(&arrived, b"hello from a kernel");
    println!("arrived: {}\nTest OK", arrived.escape_ascii());
    Ok(())
}
// ANCHOR_END: host
