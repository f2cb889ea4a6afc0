//! Errors: a request fails, kernel and host read why, and the queue pair works again after a reset.
//!
//! Nothing panics and nothing hangs: every error is a value, and every wait has a deadline. A request that fails takes
//! its queue pair to the error state. Later requests are only flushed, until the host resets both ends.
//!
//! ```console
//! $ cargo example error_and_reset                                # on a CPU, with a NIC of software
//! $ cargo example error_and_reset --features gpu -- --on gpu     # on an NVIDIA GPU
//! ```

use core::sync::atomic::Ordering;

use warpbell::wqe::{Local, Remote, Wqe};
use warpbell::{Deadline, Exclusive, SendQueueHandle, WaitError, Word64, kernel};
#[cfg(not(target_arch = "nvptx64"))]
use {
    warpbell::wqe::{RemoteKey, Syndrome},
    warpbell::{Cause, QueueError},
    warpbell_host_init::{
        Access, Error, Grid, Launch, Node, QueuePair, QueuePairConfig, built, connect, entry,
    },
};

#[repr(C)]
#[derive(Clone, Copy)]
struct Write<'a> {
    queue: SendQueueHandle<'a>,
    source: Local,
    target: Remote,
    /// What became of it: [`DONE`], [`LATE`], or the bits of the queue's error.
    outcome: &'a Word64,
}

/// No error has these bits.
const DONE: u64 = 1;
const LATE: u64 = 2;

// ANCHOR: kernel
#[kernel]
fn write(p: Write<'_>) {
    let outcome = match try_write(p) {
        Ok(()) => DONE,
        // An error is one word, so that a kernel can hand it to its host.
        Err(WaitError::Failed(error)) => error.to_bits(),
        Err(_) => LATE,
    };
    p.outcome.store(outcome, Ordering::Relaxed);
}

fn try_write(p: Write<'_>) -> Result<(), WaitError> {
    let mut queue = p
        .queue
        .open::<Exclusive>()
        .map_err(|_| WaitError::Deadline)?;
    // Posts the request, signalled, and waits for its completion.
    queue.carry_out(Wqe::write(p.source, p.target), Deadline::after_ms(1000))
}
// ANCHOR_END: kernel

#[cfg(not(target_arch = "nvptx64"))]
fn main() -> Result<(), Error> {
    let node = Node::from_args(built!())?;
    let [near, far] = node.ends()?;
    let source = near.allocate(64, Access::LOCAL_WRITE)?;
    let target = far.allocate(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    source.write(0, &[7; 64])?;
    let config = QueuePairConfig::granting(Access::REMOTE_WRITE);
    let (mut ours, mut theirs) = near.connected(&far, &config)?;

    // Runs the kernel, and gives what it says.
    let write_to = |ours: &QueuePair, target: Remote| {
        let outcome = node.shared(Word64::new(0))?;
        let parameters = Write {
            queue: ours.send_queue()?,
            source: source.local(0, 64)?,
            target,
            outcome: &outcome,
        };
        let launch = Launch::new(entry!(write), Grid::ONE_THREAD, parameters);
        node.run(&[launch], &[ours])?;
        Ok::<_, Error>(outcome.load(Ordering::Relaxed))
    };

    // ANCHOR: cause
    // A key that the other end has never given away.
    let good = target.remote().at(0, 64)?;
    let key = RemoteKey(!good.key.0);
    let bits = write_to(&ours, Remote { key, ..good })?;
    let error = QueueError::from_bits(bits).expect("an error");
    println!("the kernel read: {error}");

    // The error says what the NIC found, in which request, and where to look.
    let Cause::Completion(completion) = error.cause() else {
        panic!("the NIC did not complete the request");
    };
    assert_eq!(completion.syndrome, Syndrome::REMOTE_ACCESS);
    if let Some(description) = completion.syndrome.describe() {
        println!("what to look at: {}", description.look_at);
    }
    // The host reads the same error, while a kernel runs and afterwards.
    assert_eq!(ours.first_error(), Some(error));
    // ANCHOR_END: cause

    // ANCHOR: reset
    // The borrow checker sees to it that no kernel has a handle of a queue pair that is reset.
    ours.reset()?;
    theirs.reset()?;
    connect(&mut ours, &mut theirs)?;
    assert_eq!(ours.first_error(), None);

    assert_eq!(write_to(&ours, good)?, DONE);
    // ANCHOR_END: reset
    let mut arrived = [0; 64];
    target.read(0, &mut arrived)?;
    assert_eq!(arrived, [7; 64]);
    println!("after the reset the same write succeeds\nTest OK");
    Ok(())
}
