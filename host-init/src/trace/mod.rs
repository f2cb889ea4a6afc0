//! Traces: what queues and NICs did, and when, on one clock.
//!
//! A [`Trace`] has memory for the events of kernels, and gives a node whose NICs of software record, too. A kernel whose
//! queue is [`Traced`](warpbell::Traced) records into [`Trace::buffer`]. After the run [`Trace::stop`] gives a
//! [`Recording`]: all events with times of the host's clock. With the feature `perfetto` a recording is written as a file
//! that [Perfetto](https://ui.perfetto.dev) shows.
//!
//! ```
//! use warpbell::trace::{Buffer, Kind};
//! use warpbell::wqe::Wqe;
//! use warpbell::{Deadline, Exclusive, SendQueueHandle, Traced, kernel};
//! use warpbell_host_init::trace::Trace;
//! use warpbell_host_init::{Error, Grid, Launch, Node, QueuePairConfig, entry};
//!
//! #[repr(C)]
//! #[derive(Clone, Copy)]
//! struct Parameters<'a> {
//!     queue: SendQueueHandle<'a>,
//!     trace: Buffer<'a>,
//! }
//!
//! #[kernel]
//! fn post(p: Parameters<'_>) {
//!     let mut queue = p.queue.open::<Traced<Exclusive>>().expect("a good handle");
//!     queue.trace_into(p.trace);
//!     let limit = Deadline::after_ms(1000);
//!     let ticket = queue.post(Wqe::nop().signalled(), limit).expect("room");
//!     queue.wait(ticket, limit).expect("a completion");
//! }
//!
//! fn main() -> Result<(), Error> {
//!     let trace = Trace::start(&Node::cpu(), 1, 1000)?;
//!     let node = trace.node();
//!     let [near, far] = node.ends()?;
//!     let (ours, _theirs) = near.connected(&far, &QueuePairConfig::default())?;
//!     let parameters = Parameters { queue: ours.send_queue()?, trace: trace.buffer(0) };
//!     node.run(&[Launch::new(entry!(post), Grid::ONE_THREAD, parameters)], &[])?;
//!     let recording = trace.stop()?;
//!     let has = |kind| recording.events().any(|(_, event)| event.kind() == Some(kind));
//!     assert!(has(Kind::Publish) && has(Kind::Doorbell) && has(Kind::Cqe) && has(Kind::Completion));
//!     assert_eq!(recording.lost(), 0);
//!     Ok(())
//! }
//! ```
//!
//! # What it costs
//!
//! `docs/trace.md` has the numbers, and what is not recorded.

mod clock;
#[cfg(feature = "cuda")]
mod gpu_clock;
mod memory;
#[cfg(feature = "perfetto")]
mod perfetto;

use std::fmt;
#[cfg(feature = "soft")]
use std::sync::Arc;

use warpbell::trace::{Buffer, Event};
#[cfg(feature = "soft")]
use warpbell_soft_hca::shell::HcaTrace;

use clock::{Clock, CpuClock, Reading};
#[cfg(feature = "cuda")]
use gpu_clock::GpuClock;
pub use memory::TraceMemory;

#[cfg(feature = "soft")]
use crate::Nic;
use crate::{Error, Kernels, Node};

/// A trace under way.
#[derive(Debug)]
pub struct Trace {
    node: Node,
    /// Of each end.
    kernels: Vec<TraceMemory>,
    #[cfg(feature = "soft")]
    nics: Option<Arc<HcaTrace>>,
    cpu: CpuClock,
    began: Reading,
    /// The GPU's clock, if kernels run there, and its first reading.
    #[cfg(feature = "cuda")]
    gpu: Option<(GpuClock, Reading)>,
}

impl Trace {
    /// Begins a trace of so many ends of connections, as [`Node::domains`] opens them. At each there is room for at least
    /// so many events of one writer, and as many of the NIC. A writer is a view of a queue; each further one takes up to
    /// [`CHUNK`](warpbell::trace::CHUNK) places of its own.
    ///
    /// An end's events lie apart, because two NICs of software give their queue pairs the same numbers. Kernels on a GPU
    /// record in its own memory. A NIC records if it is one of software on the host. Begin before kernels run that stay: a
    /// GPU's clock is read by a kernel, which the driver may not load while others run.
    ///
    /// # Errors
    /// As [`Buffer::placed`](crate::Buffer::placed); [`Error::NoClock`] for a GPU that does not tell its time.
    pub fn start(node: &Node, ends: usize, events: usize) -> Result<Self, Error> {
        let memory = |_| TraceMemory::new(node.placement().of_states(), events);
        let kernels = (0..ends).map(memory).collect::<Result<_, _>>()?;
        #[cfg(feature = "soft")]
        let (node, nics) = recording_nic(node, events)?;
        let cpu = CpuClock::start();
        Ok(Self {
            #[cfg(feature = "cuda")]
            gpu: match node.kernels() {
                Kernels::Cpu(_) => None,
                Kernels::Gpu(module) => {
                    let clock = GpuClock::load(module.gpu())?;
                    let reading = clock.read(&cpu)?;
                    Some((clock, reading))
                }
            },
            node: node.clone(),
            kernels,
            #[cfg(feature = "soft")]
            nics,
            began: cpu.read(),
            cpu,
        })
    }

    /// The node, whose NICs record.
    pub fn node(&self) -> Node {
        self.node.clone()
    }

    /// Where the kernels of an end record.
    ///
    /// # Panics
    /// If there are fewer ends.
    pub fn buffer(&self, end: usize) -> Buffer<'_> {
        self.kernels[end].buffer()
    }

    /// Ends the trace. Kernels have ended by now; what a NIC still does is recorded up to now.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the events cannot be read; [`Error::NoClock`].
    pub fn stop(self) -> Result<Recording, Error> {
        let cpu = Clock::new(self.began, self.cpu.read());
        let clock = match self.node.kernels() {
            Kernels::Cpu(_) => cpu,
            #[cfg(feature = "cuda")]
            Kernels::Gpu(_) => match &self.gpu {
                Some((clock, first)) => Clock::new(*first, clock.read(&self.cpu)?),
                None => cpu,
            },
            #[cfg(not(feature = "cuda"))]
            Kernels::Gpu(module) => match *module {},
        };
        let mut sources = Vec::new();
        for (end, kernels) in self.kernels.iter().enumerate() {
            let name = format!("kernels {end}: {}", self.node.kernels());
            let (events, lost) = (kernels.events()?, kernels.lost()?);
            sources.push(Source::new(name, end, clock, events, lost));
        }
        #[cfg(feature = "soft")]
        for (end, nic) in self.nics.iter().flat_map(|nics| nics.hcas()).enumerate() {
            let name = format!("NIC {end}: {}", self.node.nic_name());
            let (events, lost) = (nic.events().collect(), nic.lost());
            sources.push(Source::new(name, end, cpu, events, lost));
        }
        Ok(Recording { sources })
    }
}

/// The node with NICs that record, if they can.
#[cfg(feature = "soft")]
fn recording_nic(node: &Node, events: usize) -> Result<(Node, Option<Arc<HcaTrace>>), Error> {
    let Nic::Soft(options) = node.nic() else {
        return Ok((node.clone(), None));
    };
    let trace = HcaTrace::new(events);
    let mut options = options.clone();
    options.hca.trace = Some(Arc::clone(&trace));
    Ok((node.with_nic(Nic::Soft(options))?, Some(trace)))
}

/// What was recorded, on the host's clock.
#[derive(Debug)]
pub struct Recording {
    sources: Vec<Source>,
}

impl Recording {
    /// Who recorded: the kernels of each end, then each NIC that did.
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// All events with their times in nanoseconds since the Unix epoch: by source, and in order of time.
    pub fn events(&self) -> impl Iterator<Item = (u64, Event)> + '_ {
        self.sources
            .iter()
            .flat_map(|source| source.events.iter().copied())
    }

    /// Events that found no room.
    pub fn lost(&self) -> u64 {
        self.sources.iter().map(|source| source.lost).sum()
    }
}

/// The events of an end's kernels, or of its NIC.
pub struct Source {
    name: String,
    end: usize,
    events: Vec<(u64, Event)>,
    lost: u64,
    clock_error_ns: u64,
}

impl Source {
    fn new(name: String, end: usize, clock: Clock, events: Vec<Event>, lost: u64) -> Self {
        let timed = |event: Event| (clock.unix_ns(event.ticks), event);
        let mut events: Vec<_> = events.into_iter().map(timed).collect();
        // Stable: what one writer recorded at one time stays in its order.
        events.sort_by_key(|(time, _)| *time);
        Self {
            name,
            end,
            events,
            lost,
            clock_error_ns: clock.error_ns(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// At which end. Queue pairs of two ends may have the same number.
    pub const fn end(&self) -> usize {
        self.end
    }

    /// Its events with their times in nanoseconds since the Unix epoch, in order of time.
    pub fn events(&self) -> &[(u64, Event)] {
        &self.events
    }

    /// Events that found no room.
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// By how much its clock may be off from the host's, in nanoseconds, at the beginning and at the end. A GPU's timer
    /// also steps, by up to a microsecond.
    pub const fn clock_error_ns(&self) -> u64 {
        self.clock_error_ns
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("name", &self.name)
            .field("events", &self.events.len())
            .field("lost", &self.lost)
            .field("clock_error_ns", &self.clock_error_ns)
            .finish()
    }
}
