//! Trace: what a kernel's queue and the NIC did, and when, as a picture.
//!
//! The kernel's queue is `Traced`: it records its doorbells, waits and completions into memory that the host lends. A NIC
//! of software records what it does, too. Open the file that this program writes at <https://ui.perfetto.dev>, which shows
//! it without sending it anywhere.
//!
//! ```console
//! $ cargo example trace                                # on a CPU, with a NIC of software
//! $ cargo example trace --features gpu -- --on gpu     # on an NVIDIA GPU
//! $ cargo example trace -- --file /tmp/mine            # to another file
//! ```

use warpbell::trace::Buffer;
use warpbell::wqe::{Local, Remote, Wqe};
use warpbell::{Deadline, Exclusive, SendQueueHandle, Traced, kernel};
#[cfg(not(target_arch = "nvptx64"))]
use {
    clap::Parser,
    std::error::Error,
    std::path::PathBuf,
    warpbell::trace::{Event, Kind},
    warpbell_host_init::trace::Trace,
    warpbell_host_init::{Access, Grid, Launch, NodeArgs, QueuePairConfig, built, entry},
};

#[repr(C)]
#[derive(Clone, Copy)]
struct Writes<'a> {
    queue: SendQueueHandle<'a>,
    /// Where the queue's events go.
    trace: Buffer<'a>,
    source: Local,
    target: Remote,
    rounds: u32,
    /// Writes in a round, each with a doorbell of its own.
    writes: u32,
}

#[kernel]
fn write(p: Writes<'_>) {
    let limit = Deadline::after_ms(1000);
    // `Exclusive` without a trace is the same code with not an instruction more.
    let Ok(mut queue) = p.queue.open::<Traced<Exclusive>>() else {
        return;
    };
    queue.trace_into(p.trace);
    for number in 1..=p.rounds * p.writes {
        // While the ring is full, this waits for room.
        let write = Wqe::write(p.source, p.target).signalled();
        let Ok(ticket) = queue.post(write, limit) else {
            return;
        };
        // A round ends with a wait. An error stays in the queue, where the host finds it.
        if number.is_multiple_of(p.writes) && queue.wait(ticket, limit).is_err() {
            return;
        }
    }
}

/// A kernel and its NIC, traced
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    node: NodeArgs,
    /// Where the trace goes
    #[arg(long, value_name = "FILE", default_value = "trace.perfetto-trace")]
    file: PathBuf,
}

#[cfg(not(target_arch = "nvptx64"))]
fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { node, file } = Arguments::parse();
    const BYTES: u32 = 4096;
    // Before anything else: this node's NICs record, if they are of software and on the host.
    let trace = Trace::start(&node.open(&built!())?, 1, 10_000)?;
    let node = trace.node();
    let [near, far] = node.ends()?;
    let source = near.allocate(BYTES as usize, Access::LOCAL_WRITE)?;
    let target = far.allocate(BYTES as usize, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    // A small ring, so that the kernel has to wait for room now and then.
    let config = QueuePairConfig {
        send_depth: 16,
        ..QueuePairConfig::granting(Access::REMOTE_WRITE)
    };
    let (ours, _theirs) = near.connected(&far, &config)?;
    let parameters = Writes {
        queue: ours.send_queue()?,
        trace: trace.buffer(0),
        source: source.local(0, BYTES)?,
        target: target.remote().at(0, BYTES)?,
        rounds: 5,
        writes: 40,
    };
    let launch = Launch::new(entry!(write), Grid::ONE_THREAD, parameters);
    node.run(&[launch], &[&ours])?;
    assert_eq!(ours.first_error(), None);

    // All events, on the host's clock.
    let recording = trace.stop()?;
    for source in recording.sources() {
        let events = source.events().len();
        println!("{}: {events} events, {} lost", source.name(), source.lost());
    }
    let is_doorbell = |(_, event): &(u64, Event)| event.kind() == Some(Kind::Publish);
    assert_eq!(recording.events().filter(is_doorbell).count(), 5 * 40);
    recording.write_perfetto(&file)?;
    println!(
        "open {} at https://ui.perfetto.dev\nTest OK",
        file.display()
    );
    Ok(())
}
