//! Puts of many work-groups: straight to the NIC, and by way of a proxy.

use std::sync::atomic::Ordering;

use crate::energy::{Energy, Meter};
use crate::run::interrupt;
use crate::run::launch::{LIMIT_US, said};
use crate::run::memory::{self, Memory};
use crate::run::setup::{End, Ends};
use clap::ValueEnum;
use serde::Serialize;
use warpbell::{SendQueueHandle, Slice, Word64};
use warpbell_host_init::{
    Access, Buffer, Error as StartError, Grid, Launch, Node, QueuePair, QueuePairConfig, Shared,
    entry,
};
use warpbell_kernels::outcome::Outcome;
use warpbell_kernels::proxy::{
    Peer, Puts, Streaming, proxy_put, proxy_put_payload, proxy_put_payload_shared,
    proxy_put_shared, stream_beside_puts,
};
use warpbell_patterns::proxy::host::{ProducerLines, Proxied, ProxiedQueue, Proxy};
use warpbell_soft_hca_gpu::MemoryScope;
use warpbell_soft_hca_gpu::resident::TableSizes;

use crate::Error;
use crate::nodes;
use crate::samples::values;

/// Where a work-group has the words that it reads and writes for each post: its producer's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum ProducerLine {
    /// In registers: the queue is exclusive
    Registers,
    /// In the kernels' memory: the queue is opened as one that work-groups share
    Memory,
    /// In a GPU's memory, and locked in its L2 cache for queues that a proxy serves
    Locked,
}

impl ProducerLine {
    /// Sets cache aside for [`Locked`](Self::Locked) lines. To be called before a NIC starts, which may be a kernel.
    ///
    /// # Errors
    /// [`Error::NoCache`] on a CPU; a GPU that sets none aside.
    pub fn prepare_to_lock(node: &Node) -> Result<(), Error> {
        let gpu = node.gpu().ok_or(Error::NoCache)?;
        Ok(gpu.set_aside_l2(SET_ASIDE).map_err(StartError::from)?)
    }
}

/// Bytes of the L2 cache for the lines: far more than those of 1,024 queues.
const SET_ASIDE: usize = 1 << 20;

/// Work-groups that put.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PutCase {
    /// How many, each with a queue of its own.
    pub groups: u32,
    /// Threads of each.
    pub threads: u32,
    /// Bytes of each put, a multiple of 8. 8 bytes go inline.
    pub bytes: usize,
    /// Puts of each thread.
    pub rounds: u64,
    /// Whether each put is waited for before the next one is posted.
    pub one_at_a_time: bool,
    /// Depth of each queue in blocks of 64 bytes.
    pub depth: u32,
    /// Where the producer's line is.
    pub producer_line: ProducerLine,
    /// Bytes that other threads read again and again meanwhile, a multiple of 8; 0 without such threads.
    pub streamed: usize,
}

/// Who posts to the NIC.
#[derive(Clone, Debug, Serialize)]
pub struct Way {
    /// Threads of the proxy; 0 if the kernel rings the NIC's doorbells.
    pub drain_threads: usize,
    /// Cores that they stay on, taken in turn; where the system puts them if there is none.
    pub cores: Vec<usize>,
    /// Whether producer indices alone are handed over, and the NIC reads the kernels' ring.
    pub indices: bool,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct PutResult {
    /// What was put.
    #[serde(flatten)]
    pub case: PutCase,
    /// Who posted.
    #[serde(flatten)]
    pub way: Way,
    /// Puts of all.
    pub posts: u64,
    /// From the first post to the last completion.
    pub seconds: f64,
    /// How long a work-group took for a round, in microseconds: the mean of all groups. One at a time this is the
    /// latency of a put.
    pub us_per_round: f64,
    /// One over the other.
    pub posts_per_second: f64,
    /// What they took.
    #[serde(flatten)]
    pub energy: Energy,
    /// Doorbells that the proxy rang, 0 without one.
    pub doorbells: u64,
    /// How often the first of the other threads has read its share meanwhile. Those of other blocks may be slower.
    pub passes: u64,
    /// Every word at the other end is what its thread put last.
    pub verified: bool,
}

/// How long puts took, and what was read meanwhile.
struct Times {
    seconds: f64,
    us_per_round: f64,
    passes: u64,
}

/// Where kernels post.
enum Queue {
    Direct(Box<QueuePair>),
    Proxied(ProxiedQueue),
}

impl Queue {
    fn handle(&self) -> Result<SendQueueHandle<'_>, Error> {
        Ok(match self {
            Self::Direct(pair) => pair.send_queue()?,
            Self::Proxied(queue) => queue.send_queue(),
        })
    }

    fn proxied(&self) -> Proxied {
        match self {
            Self::Direct(_) => Proxied::default(),
            Self::Proxied(queue) => queue.proxied(),
        }
    }
}

impl PutCase {
    /// Puts straight to the NIC, or by way of a proxy.
    ///
    /// # Errors
    /// Numbers that are refused; a NIC that is out of a proxy's reach; a machine that locks no lines; a kernel that
    /// failed.
    pub fn run(&self, node: &Node, meter: &Meter, way: &Way) -> Result<PutResult, Error> {
        let proxy = self.proxy(node, way)?;
        let config = QueuePairConfig {
            // Where the proxy's threads reach them, and a NIC that is a kernel, too.
            placement: proxy.as_ref().map(|_| node.placement()),
            send_depth: self.depth,
            receive_depth: 0,
            ..QueuePairConfig::granting(Access::REMOTE_WRITE)
        };
        let reach = match proxy {
            Some(_) => MemoryScope::System,
            None => MemoryScope::Gpu,
        };
        // Both ends are one NIC's, if its engine is a kernel.
        let queue_pairs = TableSizes::default().queue_pairs.max(2 * self.groups);
        let nic = nodes::with_queue_pairs(node, reach, queue_pairs)?;
        let ends = Ends::several(&nic, &config, self.groups as usize)?;
        let (mut queues, mut sources, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for (ends, group) in ends.into_iter().zip(0..) {
            sources.push(ends.one.memory_of(&self.payloads(group))?);
            let memory = ends.other.memory(self.bytes * self.threads as usize)?;
            others.push((ends.other, memory));
            let pair = ends.one.pair;
            queues.push(match &proxy {
                Some(proxy) if way.indices => Queue::Proxied(proxy.serve_indices(pair)?),
                Some(proxy) => Queue::Proxied(proxy.serve(pair, node.placement())?),
                None => Queue::Direct(Box::new(pair)),
            });
        }
        let lines = proxy.as_ref().and_then(Proxy::lines);
        let before = meter.read()?;
        let times = self.put(node, &queues, &sources, &others, lines)?;
        let energy = meter.since(&before)?;
        let posts = u64::from(self.groups * self.threads) * self.rounds;
        Ok(PutResult {
            case: *self,
            way: way.clone(),
            posts,
            seconds: times.seconds,
            us_per_round: times.us_per_round,
            posts_per_second: posts as f64 / times.seconds,
            energy,
            doorbells: queues.iter().map(|queue| queue.proxied().doorbells).sum(),
            passes: times.passes,
            verified: self.verify(&others),
        })
    }

    /// The proxy, if there is one, with a line of memory for each queue.
    fn proxy(&self, node: &Node, way: &Way) -> Result<Option<Proxy>, Error> {
        let cores = way.cores.iter().copied().cycle();
        let proxy = match (way.drain_threads, &way.cores[..]) {
            (0, _) => return Ok(None),
            (threads, []) => Proxy::start(threads)?,
            (threads, _) => Proxy::start_on(&cores.take(threads).collect::<Vec<_>>())?,
        };
        let lines = ProducerLines::new(node.placement(), self.groups as usize)?;
        Ok(Some(proxy.with_lines(lines)))
    }

    /// What the threads of a work-group have to put at first: no two words are alike.
    fn payloads(&self, group: u32) -> Vec<u8> {
        let words = self.bytes / 8 * self.threads as usize;
        (0..words as u64)
            .flat_map(|word| (u64::from(group + 1) << 48 | word).to_ne_bytes())
            .collect()
    }

    /// Runs the kernel; gives how long it took.
    fn put(
        &self,
        node: &Node,
        queues: &[Queue],
        sources: &[Memory],
        others: &[(End, Memory)],
        lines: Option<&ProducerLines>,
    ) -> Result<Times, Error> {
        interrupt::check()?;
        let each = queues.iter().zip(sources).zip(others);
        let peers = each
            .map(|((queue, source), (_, target))| {
                Ok(Peer {
                    queue: queue.handle()?,
                    source: source.region().words()?,
                    target: target.remote(0),
                })
            })
            .collect::<Result<Vec<_>, Error>>()?;
        let peers = Shared::slice(node.placement(), peers.len(), |index| peers[index])?;
        let [begin, end] = [node.words(queues.len())?, node.words(queues.len())?];
        let outcome = node.shared(Outcome::new())?;
        let puts = Puts {
            peers: Slice::new(&peers),
            words: (self.bytes / 8) as u32,
            rounds: self.rounds,
            one_at_a_time: u32::from(self.one_at_a_time),
            limit_us: LIMIT_US,
            begin: Slice::new(&begin),
            end: Slice::new(&end),
            outcome: &outcome,
        };
        let grid = Grid::new(self.groups, self.threads);
        let kernel = match (self.producer_line, self.bytes) {
            (ProducerLine::Registers, 8) => entry!(proxy_put),
            (ProducerLine::Registers, _) => entry!(proxy_put_payload),
            (ProducerLine::Memory | ProducerLine::Locked, 8) => entry!(proxy_put_shared),
            (ProducerLine::Memory | ProducerLine::Locked, _) => entry!(proxy_put_payload_shared),
        };
        let mut launch = Launch::new(kernel, grid, puts);
        if let (ProducerLine::Locked, Some(lines)) = (self.producer_line, lines) {
            launch = launch.persisting(lines.window()?);
        }
        let streamed = match self.streamed {
            0 => None,
            bytes => Some(Buffer::placed(node.placement().of_states(), bytes)?),
        };
        let passes = node.shared(Word64::new(0))?;
        let mut launches = vec![launch];
        if let Some(buffer) = &streamed {
            let streaming = Streaming {
                // SAFETY: it lives until the launch has ended, and nobody writes it.
                memory: unsafe { memory::place(buffer) },
                words: (self.streamed / 8) as u32,
                end: puts.end,
                limit_us: LIMIT_US,
                passes: &passes,
            };
            let grid = match node.gpu() {
                // A block on each multiprocessor, with room for work-groups beside it.
                Some(gpu) => Grid::new(gpu.multiprocessors(), 512),
                None => Grid::ONE_THREAD,
            };
            launches.push(Launch::new(entry!(stream_beside_puts), grid, streaming));
        }
        node.run(&launches, &[])?;
        said("the puts", &outcome)?;
        let (begin, end) = (values(&begin[..]), values(&end[..]));
        let first = begin.iter().min().copied().unwrap_or(0);
        let last = end.iter().max().copied().unwrap_or(0);
        let each = begin.iter().zip(&end).map(|(begin, end)| end - begin);
        let rounds = self.rounds as f64 * f64::from(self.groups);
        // The clock of a GPU may step by a microsecond.
        let seconds = (last - first).max(1) as f64 / 1e9;
        Ok(Times {
            seconds,
            us_per_round: each.sum::<u64>() as f64 / 1e3 / rounds,
            passes: passes.load(Ordering::Relaxed),
        })
    }

    /// Whether every byte is what its thread put last, and nothing beside them has changed.
    fn verify(&self, others: &[(End, Memory)]) -> bool {
        others.iter().zip(0..).all(|((_, memory), group)| {
            let mut expected = self.payloads(group);
            for (payload, thread) in expected.chunks_mut(self.bytes).zip(0..) {
                let last = Puts::last(group, thread, self.rounds);
                payload[..8].copy_from_slice(&last.to_ne_bytes());
            }
            memory.holds(&expected)
        })
    }
}
