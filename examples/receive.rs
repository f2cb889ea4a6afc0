//! Send and receive: one kernel sends messages, another one takes them out of buffers that it has posted.
//!
//! A write names the place where the data goes. A send does not: the receiver posts buffers, and each message fills the
//! next one. While there is no buffer, the sender's NIC tries again, and nothing is lost.
//!
//! ```console
//! $ cargo example receive                                # on a CPU, with a NIC of software
//! $ cargo example receive --features gpu -- --on gpu     # on an NVIDIA GPU
//! $ cargo example receive -- --buffers 0                 # nobody receives, so that the send queue fills up
//! ```

use core::sync::atomic::Ordering;

use warpbell::wqe::Wqe;
use warpbell::{Deadline, Exclusive, ReceiveQueueHandle, SendQueueHandle, Word64, Words, kernel};
#[cfg(not(target_arch = "nvptx64"))]
use {
    clap::Parser,
    std::error::Error,
    warpbell::PostError,
    warpbell_host_init::{Access, Grid, Launch, NodeArgs, QueuePairConfig, built, entry},
};

const MESSAGES: u64 = 200;
const LIMIT: Deadline = Deadline::after_ms(1000);

#[repr(C)]
#[derive(Clone, Copy)]
struct Sender<'a> {
    queue: SendQueueHandle<'a>,
    /// One word for each message.
    messages: Words<'a>,
    /// How many were sent.
    sent: &'a Word64,
}

#[kernel]
fn send(p: Sender<'_>) {
    let Ok(mut queue) = p.queue.open::<Exclusive>() else {
        return;
    };
    for message in 0..p.messages.len() {
        let Some(local) = p.messages.local(message, 1) else {
            return;
        };
        // `post` waits for room while the ring is full, until the deadline.
        if queue.post(Wqe::send(local).signalled(), LIMIT).is_err() {
            return;
        }
        p.sent.store(message + 1, Ordering::Relaxed);
    }
    // An error stays in the queue, where the host finds it.
    let _ = queue.drain(LIMIT);
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Receiver<'a> {
    queue: ReceiveQueueHandle<'a>,
    /// One word for each buffer.
    buffers: Words<'a>,
    /// The sum of all messages.
    sum: &'a Word64,
}

#[kernel]
fn receive(p: Receiver<'_>) {
    // An error leaves 0 for the host.
    p.sum.store(take(p).unwrap_or(0), Ordering::Relaxed);
}

fn take(p: Receiver<'_>) -> Option<u64> {
    let mut queue = p.queue.open::<Exclusive>().ok()?;
    for buffer in 0..p.buffers.len() {
        queue.try_post(p.buffers.local(buffer, 1)?).ok()?;
    }
    let mut sum = 0;
    for message in 0..MESSAGES {
        // After this wait the next message may be read. Messages fill the buffers in the order of their posts.
        queue.receive(LIMIT).ok()?;
        let buffer = message % p.buffers.len();
        sum += p.buffers.load(buffer)?;
        // The buffer is free for another message.
        queue.try_post(p.buffers.local(buffer, 1)?).ok()?;
    }
    Some(sum)
}

/// One kernel sends messages, another one receives them
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    node: NodeArgs,
    /// How many buffers the receiver posts, at most 64
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(..=64))]
    buffers: u64,
}

#[cfg(not(target_arch = "nvptx64"))]
fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { node, buffers } = Arguments::parse();
    let node = node.open(&built!())?;
    let [near, far] = node.ends()?;
    // A message is one word: 1, 2, 3, …
    let source = near.allocate(8 * MESSAGES as usize, Access::LOCAL_WRITE)?;
    let target = far.allocate(8 * 64, Access::LOCAL_WRITE)?;
    let messages: Vec<u8> = (1..=MESSAGES).flat_map(u64::to_ne_bytes).collect();
    source.write(0, &messages)?;

    // A send needs no access to the other end's memory.
    let (ours, theirs) = near.connected(&far, &QueuePairConfig::default())?;
    let (sent, sum) = (node.shared(Word64::new(0))?, node.shared(Word64::new(0))?);
    let sender = Sender {
        queue: ours.send_queue()?,
        messages: source.words()?,
        sent: &sent,
    };
    let receiver = Receiver {
        queue: theirs.receive_queue()?,
        buffers: target.words()?.part(0, buffers).expect("at most 64"),
        sum: &sum,
    };
    let sender = Launch::new(entry!(send), Grid::ONE_THREAD, sender);
    let receiver = Launch::new(entry!(receive), Grid::ONE_THREAD, receiver);
    match buffers {
        0 => node.run(&[sender], &[&ours])?,
        _ => node.run(&[sender, receiver], &[&ours, &theirs])?,
    }

    if let Some(error) = ours.first_error().or(theirs.first_error()) {
        return Err(error.to_string().into());
    }
    let sent = sent.load(Ordering::Relaxed);
    if sent < MESSAGES {
        let why = PostError::Deadline;
        return Err(format!("{sent} of {MESSAGES} messages were posted: {why}").into());
    }
    assert_eq!(sum.load(Ordering::Relaxed), (1..=MESSAGES).sum::<u64>());
    println!("{MESSAGES} messages came through {buffers} buffers\nTest OK");
    Ok(())
}
