//! Puts of many work-groups: straight to the NIC, and by way of a proxy.

use crate::energy::{Energy, Meter};
use crate::run::interrupt;
use crate::run::launch::{LIMIT_US, said};
use crate::run::memory::Memory;
use crate::run::setup::{End, Ends};
use serde::Serialize;
use warpbell::{SendQueueHandle, Slice};
use warpbell_host_init::{Access, Grid, Launch, Node, QueuePair, QueuePairConfig, Shared, entry};
use warpbell_kernels::outcome::Outcome;
use warpbell_kernels::proxy::{Peer, Puts, proxy_put};
use warpbell_patterns::proxy::host::{Proxied, ProxiedQueue, Proxy};
use warpbell_soft_hca_gpu::MemoryScope;

use crate::Error;
use crate::nodes;
use crate::samples::values;

/// Work-groups that put.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PutCase {
    /// How many, each with a queue of its own.
    pub groups: u32,
    /// Threads of each.
    pub threads: u32,
    /// Puts of each thread.
    pub rounds: u64,
    /// Whether each put is waited for before the next one is posted.
    pub one_at_a_time: bool,
    /// Depth of each queue in blocks of 64 bytes.
    pub depth: u32,
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
    /// Every word at the other end is what its thread put last.
    pub verified: bool,
}

/// How long puts took.
struct Times {
    seconds: f64,
    us_per_round: f64,
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
    /// Numbers that are refused; a NIC that is out of a proxy's reach; a kernel that failed.
    pub fn run(&self, node: &Node, meter: &Meter, way: &Way) -> Result<PutResult, Error> {
        let cores = way.cores.iter().copied().cycle();
        let proxy = match (way.drain_threads, &way.cores[..]) {
            (0, _) => None,
            (threads, []) => Some(Proxy::start(threads)?),
            (threads, _) => Some(Proxy::start_on(&cores.take(threads).collect::<Vec<_>>())?),
        };
        let config = QueuePairConfig {
            // Where the proxy's threads reach them, and a NIC that is a kernel, too.
            placement: proxy.as_ref().map(|_| node.placement()),
            send_depth: self.depth,
            receive_depth: 0,
            ..QueuePairConfig::granting(Access::REMOTE_WRITE)
        };
        let nic = match proxy {
            Some(_) => nodes::reaching(node, MemoryScope::System)?,
            None => node.clone(),
        };
        let ends = Ends::several(&nic, &config, self.groups as usize)?;
        let mut queues = Vec::new();
        let mut others = Vec::new();
        for ends in ends {
            let memory = ends.other.memory(8 * self.threads as usize)?;
            others.push((ends.other, memory));
            let pair = ends.one.pair;
            queues.push(match &proxy {
                Some(proxy) if way.indices => Queue::Proxied(proxy.serve_indices(pair)?),
                Some(proxy) => Queue::Proxied(proxy.serve(pair, node.placement())?),
                None => Queue::Direct(Box::new(pair)),
            });
        }
        let before = meter.read()?;
        let Times {
            seconds,
            us_per_round,
        } = self.put(node, &queues, &others)?;
        let energy = meter.since(&before)?;
        let posts = u64::from(self.groups * self.threads) * self.rounds;
        Ok(PutResult {
            case: *self,
            way: way.clone(),
            posts,
            seconds,
            us_per_round,
            posts_per_second: posts as f64 / seconds,
            energy,
            doorbells: queues.iter().map(|queue| queue.proxied().doorbells).sum(),
            verified: self.verify(&others)?,
        })
    }

    /// Runs the kernel; gives how long it took.
    fn put(&self, node: &Node, queues: &[Queue], others: &[(End, Memory)]) -> Result<Times, Error> {
        interrupt::check()?;
        let peers = queues
            .iter()
            .zip(others)
            .map(|(queue, (_, memory))| {
                Ok(Peer {
                    queue: queue.handle()?,
                    target: memory.remote(0),
                })
            })
            .collect::<Result<Vec<_>, Error>>()?;
        let peers = Shared::slice(node.placement(), peers.len(), |index| peers[index])?;
        let [begin, end] = [node.words(queues.len())?, node.words(queues.len())?];
        let outcome = node.shared(Outcome::new())?;
        let puts = Puts {
            peers: Slice::new(&peers),
            rounds: self.rounds,
            one_at_a_time: u32::from(self.one_at_a_time),
            limit_us: LIMIT_US,
            begin: Slice::new(&begin),
            end: Slice::new(&end),
            outcome: &outcome,
        };
        let grid = Grid {
            blocks: self.groups,
            threads_per_block: self.threads,
        };
        node.run(&[Launch::new(entry!(proxy_put), grid, puts)], &[])?;
        said("the puts", &outcome)?;
        let (begin, end) = (values(&begin[..]), values(&end[..]));
        let first = begin.iter().min().copied().unwrap_or(0);
        let last = end.iter().max().copied().unwrap_or(0);
        let each = begin.iter().zip(&end).map(|(begin, end)| end - begin);
        let rounds = self.rounds as f64 * f64::from(self.groups);
        Ok(Times {
            // The clock of a GPU may step by a microsecond.
            seconds: (last - first).max(1) as f64 / 1e9,
            us_per_round: each.sum::<u64>() as f64 / 1e3 / rounds,
        })
    }

    /// Whether every word is what its thread put last, and nothing beside them has changed.
    fn verify(&self, others: &[(End, Memory)]) -> Result<bool, Error> {
        let good = others.iter().zip(0..).all(|((_, memory), group)| {
            let expected: Vec<u8> = (0..self.threads)
                .flat_map(|thread| Puts::last(group, thread, self.rounds).to_ne_bytes())
                .collect();
            memory.check(&expected).is_ok()
        });
        Ok(good)
    }
}
