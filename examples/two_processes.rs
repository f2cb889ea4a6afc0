//! Two processes: each writes a number into the memory of the other one and waits for the number that comes back.
//!
//! The processes meet at a socket and tell each other what only they know: their queue pairs, and where their memory is.
//! From then on the NICs move the data, and no host takes part.
//!
//! ```console
//! $ cargo example two_processes                                # starts the second process by itself
//! $ cargo example two_processes --features gpu -- --on gpu     # the same with kernels on an NVIDIA GPU
//! $ cargo example two_processes -- --listen /tmp/meet          # or one process in each of two terminals
//! $ cargo example two_processes -- --join /tmp/meet
//! ```

use core::sync::atomic::Ordering;

use warpbell::wqe::{Remote, Wqe};
use warpbell::{Deadline, Exclusive, SendQueueHandle, Word64, Words, kernel};
#[cfg(not(target_arch = "nvptx64"))]
use {
    clap::Parser,
    std::{error::Error, path::Path, path::PathBuf, process, time::Duration},
    warpbell_host_init::{
        Access, Grid, Launch, NodeArgs, Peer, QueuePairConfig, RemoteMemory, built, entry,
    },
};

#[repr(C)]
#[derive(Clone, Copy)]
struct Greet<'a> {
    queue: SendQueueHandle<'a>,
    /// Our number.
    number: u64,
    /// Our memory: word 0 for the other's number, word 1 for the flag behind it.
    ours: Words<'a>,
    /// The same at the other process.
    theirs: Remote,
    /// The number that came.
    received: &'a Word64,
}

// ANCHOR: kernel
#[kernel]
fn greet(p: Greet<'_>) {
    // An error leaves 0 for the host.
    p.received
        .store(exchange(p).unwrap_or(0), Ordering::Relaxed);
}

fn exchange(p: Greet<'_>) -> Option<u64> {
    let limit = Deadline::after_ms(5000);
    let mut queue = p.queue.open::<Exclusive>().ok()?;
    // Two writes of 8 bytes, whose data is in the requests themselves. Writes of one queue pair arrive in order: a
    // kernel that sees the flag may read the number.
    let number = Wqe::write_value(p.number, p.theirs);
    let _ = queue.post(number, limit).ok()?;
    let flag = Wqe::write_value(1_u64, p.theirs.at(8)).signalled();
    let flag = queue.post(flag, limit).ok()?;
    // The other process does the same.
    p.ours.signal(1)?.wait(1, limit).ok()?;
    let number = p.ours.load(0);
    // Our own writes are done, too, before the kernel ends.
    queue.wait(flag, limit).ok()?;
    number
}
// ANCHOR_END: kernel

/// Two processes exchange numbers; without --listen and --join, this program starts the second one itself.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    node: NodeArgs,
    /// Waits at this socket for another process
    #[arg(long, value_name = "PATH", conflicts_with = "join")]
    listen: Option<PathBuf>,
    /// Joins the process that listens at this socket
    #[arg(long, value_name = "PATH")]
    join: Option<PathBuf>,
}

#[cfg(not(target_arch = "nvptx64"))]
fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    // ANCHOR: prepare
    let node = arguments.node.open(&built!())?;
    let domain = node.domain()?;
    let memory = domain.allocate(16, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let mut pair = domain.queue_pair(&QueuePairConfig::granting(Access::REMOTE_WRITE))?;
    // ANCHOR_END: prepare

    // ANCHOR: meet
    // Both processes call the same methods in the same order. Each call waits for the other process.
    let (device, patience) = (domain.device(), Duration::from_secs(10));
    let mut second = None;
    let mut peer = match (&arguments.listen, &arguments.join) {
        (_, Some(path)) => Peer::join(device, path, patience)?,
        (Some(path), None) => Peer::listen(device, path, patience)?,
        (None, None) => {
            let path = std::env::temp_dir().join(format!("two_processes-{}", process::id()));
            second = Some(start_second(&path)?);
            Peer::listen(device, &path, patience)?
        }
    };
    peer.connect(&mut pair)?;
    let theirs: RemoteMemory = peer.exchange(&memory.remote())?;
    // ANCHOR_END: meet

    let received = node.shared(Word64::new(0))?;
    let parameters = Greet {
        queue: pair.send_queue()?,
        number: process::id().into(),
        ours: memory.words()?,
        theirs: theirs.at(0, 16)?,
        received: &received,
    };
    let launch = Launch::new(entry!(greet), Grid::ONE_THREAD, parameters);
    node.run(&[launch], &[&pair])?;
    if let Some(error) = pair.first_error() {
        return Err(error.into());
    }

    // Each process asks the other one over the socket, too. The barrier keeps both alive until both have checked.
    let number: u32 = peer.exchange(&process::id())?;
    assert_eq!(received.load(Ordering::Relaxed), u64::from(number));
    peer.barrier("checked")?;
    println!(
        "process {} has the number of process {number}",
        process::id()
    );
    if let Some(mut second) = second {
        assert!(second.wait()?.success(), "the second process failed");
    }
    println!("Test OK");
    Ok(())
}

/// This program once more, with the same options.
#[cfg(not(target_arch = "nvptx64"))]
fn start_second(path: &Path) -> std::io::Result<process::Child> {
    let program = std::env::current_exe()?;
    let mut options = std::env::args_os().skip(1).collect::<Vec<_>>();
    options.extend(["--join".into(), path.into()]);
    process::Command::new(program).args(options).spawn()
}
