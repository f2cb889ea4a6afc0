//! Ends with a queue pair for each part of an application's data, driven by a kernel or by a thread of the host.

mod alone;
mod driver;
mod ends;
mod member;

use std::thread;
use std::time::{Duration, Instant};

use warpbell::wqe::Remote;
use warpbell::{SendQueueHandle, Signal, Slice};
use warpbell_bench::Error as BenchError;
use warpbell_bench::nodes;
use warpbell_bench::run::launch::LIMIT_US;
use warpbell_bench::run::memory::Memory;
use warpbell_host_init::{
    Device, Node, Peer, ProtectionDomain, QueuePair, RemoteMemory, Shared, connect,
};
use warpbell_paper_kernels::path::{MAX_PARTS, Path};
use warpbell_patterns::proxy::host::{ProxiedQueue, Proxy};
use warpbell_patterns::trigger::host::Triggers;

use crate::Error;
use alone::Completer;

pub use alone::Alone;
pub use driver::{Driver, reach};
pub use ends::Ends;
pub use member::Member;
pub use warpbell_bench::host_queue::HostQueue;

/// An end of all parts.
pub struct End {
    domain: ProtectionDomain,
    pairs: Vec<QueuePair>,
    /// What completes in place of the NIC, if nobody is to carry out what is posted.
    completer: Option<Completer>,
    signals: Memory,
}

/// Two ends, connected part by part.
pub struct Rig {
    /// The end whose kernel begins.
    pub near: End,
    /// The other end.
    pub far: End,
    node: Node,
}

impl Rig {
    /// Connects so many parts between a near and a far end with these drivers, over a NIC of their own, which reaches no
    /// further than they need.
    ///
    /// # Errors
    /// As [`Node::ends`]; too many parts for the NIC; a depth that is none.
    pub fn new(node: &Node, drivers: [Driver; 2], parts: u32, depth: u32) -> Result<Self, Error> {
        Self::with_signals(node, drivers, parts, 1, depth)
    }

    /// The same with so many signals for each part, which lie beside each other.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_signals(
        node: &Node,
        drivers: [Driver; 2],
        parts: u32,
        signals: u32,
        depth: u32,
    ) -> Result<Self, Error> {
        let [near, far] = nodes::with_queue_pairs(node, reach(drivers), 2 * MAX_PARTS)?.ends()?;
        let [mut near, mut far] = [
            End::new(node, near, drivers[0], [parts, signals], depth)?,
            End::new(node, far, drivers[1], [parts, signals], depth)?,
        ];
        for (one, other) in near.pairs.iter_mut().zip(&mut far.pairs) {
            connect(one, other)?;
        }
        Ok(Self {
            near,
            far,
            node: node.clone(),
        })
    }

    /// Sets all signals back, between two runs.
    pub fn clear_signals(&self) {
        self.near.clear_signals();
        self.far.clear_signals();
    }

    /// The queue pairs of both ends, for a watch.
    pub fn pairs(&self) -> Vec<&QueuePair> {
        self.near.pairs.iter().chain(&self.far.pairs).collect()
    }

    /// The kernels' handles of an end's queues.
    ///
    /// # Errors
    /// No memory for them.
    pub fn handles<'r>(&self, end: &'r End) -> Result<Shared<[SendQueueHandle<'r>]>, Error> {
        end.handles(&self.node)
    }
}

impl End {
    /// An end of so many parts, and signals of each, with this driver, in this domain; not connected.
    ///
    /// # Errors
    /// Too many parts for the NIC; a depth that is none; no memory.
    pub fn new(
        node: &Node,
        domain: ProtectionDomain,
        driver: Driver,
        [parts, signals]: [u32; 2],
        depth: u32,
    ) -> Result<Self, Error> {
        let config = driver.queues(node, &domain, depth);
        let pairs = (0..parts).map(|_| domain.queue_pair(&config));
        let pairs = pairs.collect::<Result<Vec<_>, _>>()?;
        Self::with_pairs(node, domain, driver, pairs, signals)
    }

    /// An end of these queue pairs, a part each, with so many signals of each.
    ///
    /// # Errors
    /// No memory.
    pub fn with_pairs(
        node: &Node,
        domain: ProtectionDomain,
        driver: Driver,
        pairs: Vec<QueuePair>,
        signals: u32,
    ) -> Result<Self, Error> {
        let bytes = 8 * pairs.len() * signals as usize;
        let signals = Memory::new(&domain, driver.signals(node), bytes)?;
        Ok(Self {
            domain,
            pairs,
            completer: None,
            signals,
        })
    }

    /// Connects a part of this end with one of another end.
    ///
    /// # Errors
    /// As [`connect`].
    ///
    /// # Panics
    /// For a part that is not there.
    pub fn connect(&mut self, part: u32, other: &mut Self, to: u32) -> Result<(), Error> {
        let (own, theirs) = (
            &mut self.pairs[part as usize],
            &mut other.pairs[to as usize],
        );
        Ok(connect(own, theirs)?)
    }

    /// Connects all parts with those of an end in another process, which does the same.
    ///
    /// # Errors
    /// As [`Peer::connect`].
    pub fn connect_over(&mut self, peer: &mut Peer) -> Result<(), Error> {
        let mut pairs = self.pairs.iter_mut();
        Ok(pairs.try_for_each(|pair| peer.connect(pair))?)
    }

    /// Takes its queues from whatever they are in to where they can be connected anew, and sets all signals back.
    ///
    /// # Errors
    /// As [`QueuePair::reset`].
    pub fn reset(&mut self) -> Result<(), Error> {
        self.pairs.iter_mut().try_for_each(QueuePair::reset)?;
        // Behind the queues, through which the other end could still have told.
        self.clear_signals();
        Ok(())
    }

    /// The device that it is on.
    pub fn device(&self) -> &Device {
        self.domain.device()
    }

    /// What an end in another process needs to know of its signals.
    pub fn signals(&self) -> RemoteMemory {
        self.signals.shared()
    }

    /// Where a memory of this end and its signals begin, for ends of this process.
    pub fn begin(&self, memory: &Memory) -> [Remote; 2] {
        [memory, &self.signals].map(|of| of.remote(0))
    }

    /// The newest number that any of its signals tells.
    pub fn newest(&self) -> u64 {
        let bytes = self.signals.read(0, self.signals.len());
        let (words, _) = bytes.as_chunks();
        let words = words.iter().map(|word| u64::from_ne_bytes(*word));
        words.max().unwrap_or(0)
    }

    /// The newest number that all of its first signals tell, one for each of so many parts.
    pub fn whole(&self, parts: u32) -> u64 {
        let bytes = self.signals.read(0, 8 * parts as usize);
        let (words, _) = bytes.as_chunks();
        let words = words.iter().map(|word| u64::from_ne_bytes(*word));
        words.min().unwrap_or(0)
    }

    /// Sets all signals back, between two runs.
    pub fn clear_signals(&self) {
        self.tell_all(0);
    }

    /// All signals say this number.
    fn tell_all(&self, number: u64) {
        let signals = self.signals.len() / size_of::<u64>();
        self.signals.write(0, &number.to_ne_bytes().repeat(signals));
    }

    /// Its queue pairs, for a watch.
    pub fn pairs(&self) -> &[QueuePair] {
        &self.pairs
    }

    /// The kernels' handles of its queues.
    ///
    /// # Errors
    /// No memory for them.
    pub fn handles(&self, node: &Node) -> Result<Shared<[SendQueueHandle<'_>]>, Error> {
        let handles = self.queues()?;
        let count = handles.len();
        Ok(Shared::slice(node.placement(), count, |at| handles[at])?)
    }

    fn queues(&self) -> Result<Vec<SendQueueHandle<'_>>, Error> {
        let handle = |(index, pair)| match &self.completer {
            None => Ok(QueuePair::send_queue(pair)?),
            Some(completer) => completer.handle(index, pair),
        };
        self.pairs.iter().enumerate().map(handle).collect()
    }

    /// Has a proxy serve its queues; it has none of its own any more.
    ///
    /// # Errors
    /// As [`Proxy::serve`].
    pub fn served(&mut self, node: &Node, proxy: &Proxy) -> Result<Vec<ProxiedQueue>, Error> {
        let pairs = std::mem::take(&mut self.pairs).into_iter();
        let served = pairs.map(|pair| proxy.serve(pair, node.placement()));
        Ok(served.collect::<Result<_, _>>()?)
    }

    /// Registers memory of that end where kernels and NIC reach it.
    ///
    /// # Errors
    /// As [`Memory::new`].
    pub fn memory(&self, node: &Node, bytes: usize) -> Result<Memory, Error> {
        Ok(Memory::new(&self.domain, node.nic_placement(), bytes)?)
    }

    /// The same where the host reaches it, for a host that takes part in what is done with it.
    ///
    /// # Errors
    /// As [`Memory::new`].
    pub fn host_memory(&self, node: &Node, bytes: usize) -> Result<Memory, Error> {
        Ok(Memory::new(&self.domain, node.placement(), bytes)?)
    }

    /// Waits, on the host, until a part's message of that number has come to this end, and gives what its signal says;
    /// nothing once `over` says that none will.
    ///
    /// # Errors
    /// [`BenchError::Silent`] when a kernel would have lost patience, too.
    pub fn wait(
        &self,
        part: u32,
        number: u64,
        over: impl Fn() -> bool,
    ) -> Result<Option<u64>, Error> {
        self.wait_within(part, number, Duration::from_micros(LIMIT_US), over)
    }

    /// The same with a limit of one's own.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_within(
        &self,
        part: u32,
        number: u64,
        limit: Duration,
        over: impl Fn() -> bool,
    ) -> Result<Option<u64>, Error> {
        let limit = Instant::now() + limit;
        loop {
            // Before the look: what came last is seen.
            let (over, late) = (over(), Instant::now() > limit);
            match self.told(part) {
                value if value >= number => return Ok(Some(value)),
                _ if over => return Ok(None),
                _ if late => return Err(BenchError::Silent { part }.into()),
                _ => thread::yield_now(),
            }
        }
    }

    /// What a signal says now, to a host that drives this end.
    pub fn told(&self, signal: u32) -> u64 {
        let word = self.signals.word(8 * signal as usize);
        // SAFETY: the word lives as long as `self`, where the host reaches it, because the host drives this end; only the NIC
        // writes it.
        unsafe { Signal::new(word) }.read()
    }

    /// Its queues, for the host.
    ///
    /// # Errors
    /// A queue that failed before.
    pub fn host_queues(&self) -> Result<Vec<HostQueue<'_>>, Error> {
        let queues = self.queues()?.into_iter().map(HostQueue::of);
        Ok(queues.collect::<Result<_, _>>()?)
    }

    /// Tells this end of a part, as if its message had come.
    #[cfg(test)]
    pub(crate) fn tell(&self, part: usize, number: u64) {
        self.signals.write(8 * part, &number.to_ne_bytes());
    }

    /// Its queues as operations that kernels trigger, a tag for each part; it has no queues of its own any more. Its
    /// driver is [`Driver::Triggered`].
    ///
    /// # Errors
    /// As [`Triggers::new`].
    pub fn triggers(&mut self) -> Result<Triggers, Error> {
        Ok(Triggers::new(std::mem::take(&mut self.pairs))?)
    }

    /// What its kernel, or its host, sends: parts of `bytes` bytes from `source` here to `target` at the other end.
    pub fn path<'a>(
        &'a self,
        other: &Self,
        queues: &'a [SendQueueHandle<'a>],
        (source, target): (&'a Memory, &'a Memory),
        bytes: u32,
    ) -> Path<'a> {
        self.path_to(queues, source, other.begin(target), bytes)
    }

    /// The same to an end in another process, where targets and signals begin there.
    pub fn path_to<'a>(
        &'a self,
        queues: &'a [SendQueueHandle<'a>],
        source: &'a Memory,
        [target, told]: [Remote; 2],
        bytes: u32,
    ) -> Path<'a> {
        Path {
            queues: Slice::new(queues),
            source: source.local(0, bytes as usize),
            target,
            told,
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            signals: unsafe { self.signals.place() },
            bytes,
            parts: self.pairs.len() as u32,
            limit_us: LIMIT_US,
        }
    }
}
