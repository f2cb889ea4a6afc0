//! A put behind an empty kernel, as in GPU-TN's latency microbenchmark, in four ways: when it is visible at the other
//! end, counted from the call that launches the kernel, and what happened before.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use warpbell::wqe::{Wqe, WqeIndex};
use warpbell::{Deadline, Exclusive, Slice, Word64, WordExt, held};
use warpbell_host_init::stream::Step;
use warpbell_host_init::{
    Access, Grid, Launch, Node, Placement, ProtectionDomain, QueuePair, QueuePairConfig, Shared,
    connect, entry,
};
use warpbell_kernels::outcome::{Failure, Outcome};
use warpbell_kernels::put::{Put, put_nothing, put_posted, put_triggered};
use warpbell_patterns::trigger::host::Triggers;
use warpbell_soft_hca_gpu::MemoryScope;

use crate::Error;
use crate::nodes;
use crate::run::StageError;
use crate::run::interrupt;
use crate::run::launch::{LIMIT_US, said};
use crate::run::memory::Memory;
use crate::run::statistics::percentile;

/// Who sends the put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// The host, which waits for the kernel's end and posts.
    Host,
    /// The kernel's stream, which publishes what the host has put into the ring (GPUDirect Async).
    Stream,
    /// The kernel, which triggers what the host has registered (GPU-TN).
    Triggered,
    /// The kernel, which builds and posts it.
    Kernel,
}

impl Way {
    /// From the host to the kernel.
    pub const ALL: [Self; 4] = [Self::Host, Self::Stream, Self::Triggered, Self::Kernel];

    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host-driven",
            Self::Stream => "stream-ordered",
            Self::Triggered => "triggered",
            Self::Kernel => "in-kernel",
        }
    }
}

/// A time line: nanoseconds since the call that launches the kernel, as the host sees them.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Line {
    /// The kernel has begun.
    pub begun_ns: u64,
    /// The kernel is about to end.
    pub ended_ns: u64,
    /// The host knows that all is over that it waits for: the kernel, and in a stream the put, too.
    pub returned_ns: u64,
    /// The doorbell is rung, as whoever rang it told; none for a stream, which tells nobody.
    pub sent_ns: Option<u64>,
    /// The last word of the put is at the other end.
    pub visible_ns: u64,
}

/// What came of a way.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Puts {
    /// Who sent.
    pub way: Way,
    /// Puts that count.
    pub rounds: u32,
    /// The median of each point.
    pub median: Line,
    /// Every byte of every put arrived, and nothing beside.
    pub verified: bool,
}

/// How often it is measured.
#[derive(Clone, Copy, Debug)]
pub struct PutCase {
    /// Puts that count; at least 1.
    pub rounds: u32,
    /// Puts before them that do not.
    pub warm_up: u32,
    /// Bytes of each: a multiple of 8, and at least 8.
    pub bytes: u32,
}

impl PutCase {
    /// Measures a way; none for a stream where kernels run on a CPU, which has none.
    ///
    /// # Errors
    /// A kernel that failed; a put that did not arrive.
    pub fn measure(&self, node: &Node, way: Way) -> Result<Option<Puts>, Error> {
        if way == Way::Stream && node.gpu().is_none() {
            return Ok(None);
        }
        let mut bed = Bed::new(node, way, self.bytes as usize)?;
        let mut lines = Vec::new();
        let mut verified = true;
        for round in 1..=u64::from(self.warm_up) + u64::from(self.rounds) {
            interrupt::check()?;
            let (line, good) = bed.put(round)?;
            verified &= good;
            if round > self.warm_up.into() {
                lines.push(line);
            }
        }
        let median = |point: &dyn Fn(&Line) -> u64| {
            let mut all: Vec<_> = lines.iter().map(point).collect();
            all.sort_unstable();
            percentile(&all, 50)
        };
        let sent = lines[0].sent_ns.is_some();
        Ok(Some(Puts {
            way,
            rounds: self.rounds,
            median: Line {
                begun_ns: median(&|line| line.begun_ns),
                ended_ns: median(&|line| line.ended_ns),
                returned_ns: median(&|line| line.returned_ns),
                sent_ns: sent.then(|| median(&|line| line.sent_ns.unwrap_or(0))),
                visible_ns: median(&|line| line.visible_ns),
            },
            verified,
        }))
    }
}

/// Two ends, with what is put and where, in memory that the host reaches.
struct Bed<'n> {
    node: &'n Node,
    way: Way,
    pair: QueuePair,
    triggers: Triggers,
    _far: [QueuePair; 2],
    source: Memory,
    target: Memory,
    marks: Shared<[Word64]>,
    outcome: Shared<Outcome>,
}

impl<'n> Bed<'n> {
    fn new(node: &'n Node, way: Way, bytes: usize) -> Result<Self, Error> {
        // The other end's memory is the host's, which watches it.
        let [near, far] = nodes::reaching(node, MemoryScope::System)?.ends()?;
        let config = QueuePairConfig {
            // Who stores the WQEs is near them.
            placement: Some(match way {
                Way::Host | Way::Stream => node.placement(),
                Way::Triggered | Way::Kernel => node.nic_placement(),
            }),
            send_depth: 16,
            receive_depth: 0,
            ..QueuePairConfig::granting(Access::REMOTE_WRITE)
        };
        let posted = QueuePairConfig {
            state_placement: (way == Way::Host).then_some(Placement::Host),
            ..config
        };
        let connected = |config: &QueuePairConfig| connected(&near, &far, config);
        let (pair, first) = connected(&posted)?;
        let (triggered, second) = connected(&config)?;
        Ok(Self {
            node,
            way,
            pair,
            triggers: Triggers::new(vec![triggered])?,
            _far: [first, second],
            source: Memory::new(&near, node.placement(), bytes)?,
            target: Memory::new(&far, node.placement(), bytes)?,
            marks: node.words(Put::MARKS as usize)?,
            outcome: node.shared(Outcome::new())?,
        })
    }

    /// Puts once. Gives the time line, and whether every byte arrived.
    fn put(&mut self, round: u64) -> Result<(Line, bool), Error> {
        let bytes = self.source.len();
        let data = round.to_ne_bytes().repeat(bytes / 8);
        self.source.write(0, &data);
        let write = Wqe::write(self.source.local(0, bytes), self.target.remote(0));
        if self.way == Way::Triggered {
            // The CQE of the put before may still be on its way.
            let mut registered = Ok(());
            within_limit(|| {
                registered = self.triggers.register(0, 1, [write]);
                registered.is_ok()
            });
            registered?;
        }
        let end = match self.way {
            // SAFETY: the stream has awaited all puts before, and nobody else uses the queue.
            Way::Stream => unsafe {
                let start = WqeIndex((round - 1) as u16);
                held::hold(self.pair.held_queue()?, start, [write])
                    .map_err(failed)?
                    .0
            },
            _ => 0,
        };
        let over = AtomicBool::new(false);
        let ready = Barrier::new(2);
        let (posts, seen) = thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                ready.wait();
                self.watch(round, &over)
            });
            ready.wait();
            let start = Instant::now();
            let posts = self.launch(round, write, end, start);
            over.store(posts.is_err(), Ordering::Relaxed);
            let seen = watcher.join().expect("the watcher only looks");
            (
                posts,
                seen.map(|at| at.map(|at| (at - start).as_nanos() as u64)),
            )
        });
        let (returned_ns, posted_ns) = posts?;
        said(self.way.name(), &self.outcome)?;
        let [begun, sent, ended, visible] = seen;
        let good = within_limit(|| self.target.holds(&data));
        let line = Line {
            begun_ns: begun.unwrap_or(0),
            ended_ns: ended.unwrap_or(0),
            returned_ns,
            sent_ns: posted_ns.or(sent),
            visible_ns: visible.unwrap_or(0),
        };
        Ok((line, good && visible.is_some()))
    }

    /// Launches the kernel and sees to the put; gives when that returned, and when the host had posted, if it did.
    fn launch(
        &self,
        round: u64,
        write: Wqe<1>,
        end: u16,
        start: Instant,
    ) -> Result<(u64, Option<u64>), Error> {
        let bytes = self.source.len();
        let parameters = Put {
            triggers: self.triggers.handle(),
            queue: self.pair.send_queue()?,
            local: self.source.local(0, bytes),
            remote: self.target.remote(0),
            marks: Slice::new(&self.marks),
            round,
            limit_us: LIMIT_US,
            outcome: &self.outcome,
        };
        let one = Grid::ONE_THREAD;
        let launch = match self.way {
            Way::Host | Way::Stream => Launch::new(entry!(put_nothing), one, parameters),
            Way::Triggered => Launch::new(entry!(put_triggered), one, parameters),
            Way::Kernel => Launch::new(entry!(put_posted), one, parameters),
        };
        let pairs: Vec<_> = self.triggers.queue_pairs().chain([&self.pair]).collect();
        let now = || start.elapsed().as_nanos() as u64;
        if self.way == Way::Stream {
            // SAFETY: the completions are a ring of the same depth, by default; the put lies before that index, and the
            // stream alone publishes it.
            let held = unsafe { self.pair.held_send(end) };
            let steps = [Step::Run(&launch), Step::Send(held), Step::Await(held)];
            self.node.run_in_order(&steps, &pairs)?;
            return Ok((now(), None));
        }
        if self.way != Way::Host {
            self.node.run(&[launch], &pairs)?;
            return Ok((now(), None));
        }
        let mut queue = self
            .pair
            .send_queue()?
            .open::<Exclusive>()
            .map_err(failed)?;
        self.node.run(&[launch], &pairs)?;
        let returned = now();
        let limit = Deadline::after_us(LIMIT_US);
        let ticket = queue.post(write.signalled(), limit).map_err(failed)?;
        let posted = now();
        queue.wait(ticket, limit).map_err(failed)?;
        Ok((returned, Some(posted)))
    }

    /// When the words of a round came: the kernel's marks, and the last word of the put. Ends once all are there that
    /// this way has, or none will come.
    fn watch(&self, round: u64, over: &AtomicBool) -> [Option<Instant>; 4] {
        // SAFETY: the word lives as long as `self`, in memory that the host reaches; only the NIC writes it.
        let last = unsafe { &*self.target.word(self.target.len() - 8) };
        let [begun, sent, ended] = [Put::BEGUN, Put::SENT, Put::ENDED].map(|mark| mark as usize);
        let words = [
            &self.marks[begun],
            &self.marks[sent],
            &self.marks[ended],
            last,
        ];
        let by_kernel = matches!(self.way, Way::Triggered | Way::Kernel);
        let mut seen = [None; 4];
        within_limit(|| {
            // Before the look: what came last is seen.
            let over = over.load(Ordering::Relaxed);
            // The last first, and one moment for all: what came before a word that is seen is seen no later.
            let mut there = [false; 4];
            for (word, there) in words.iter().zip(&mut there).rev() {
                *there = word.load_acquire() == round;
            }
            let now = Instant::now();
            for (seen, there) in seen.iter_mut().zip(there) {
                *seen = seen.or(there.then_some(now));
            }
            let wanted = [true, by_kernel, true, true];
            over || wanted
                .iter()
                .zip(&seen)
                .all(|(wanted, seen)| !wanted || seen.is_some())
        });
        seen
    }
}

/// Connects a queue pair with one at the other end.
fn connected(
    near: &ProtectionDomain,
    far: &ProtectionDomain,
    config: &QueuePairConfig,
) -> Result<(QueuePair, QueuePair), Error> {
    let (mut near, mut far) = (near.queue_pair(config)?, far.queue_pair(config)?);
    connect(&mut near, &mut far)?;
    Ok((near, far))
}

/// Asks again and again, for as long as a kernel would wait; whether the answer was yes.
pub(crate) fn within_limit(mut done: impl FnMut() -> bool) -> bool {
    let limit = Instant::now() + Duration::from_micros(LIMIT_US);
    loop {
        let late = Instant::now() > limit;
        if done() {
            return true;
        }
        if late {
            return false;
        }
        thread::yield_now();
    }
}

/// What the host's own post refuses.
pub(crate) fn failed(error: impl Into<Failure>) -> Error {
    let what = "what the host posts".into();
    let failure = error.into();
    crate::run::Error::from(StageError::Kernel { what, failure }).into()
}
