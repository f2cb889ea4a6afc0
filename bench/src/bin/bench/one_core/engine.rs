//! The engine on one core: both ends are stepped by hand on this thread.

use std::hint::black_box;
use std::ptr;

use warpbell::wqe::{Local, Remote, Wqe};
use warpbell::{Deadline, Exclusive, SendQueue, Sharing, Thread, Ticket, Traced};
use warpbell_bench::filter::Filter;
use warpbell_bench::samples::{Goal, Row, Samples, timed};
use warpbell_host_init::trace::TraceMemory;
use warpbell_host_init::{Access, Placement, QueuePairConfig};
use warpbell_hw_tests::arena::Arena;
use warpbell_hw_tests::sides::{ALL_ACCESS, Pair, Sides};

/// Blocks of the queue in use; half of it is under way at a time.
const DEPTH: u32 = 1024;
const GROUP: u32 = DEPTH / 2;
/// Groups of small writes in a repetition.
const LAPS: u32 = 128;
/// Bytes of a large write, and how many of them are under way at a time.
const LARGE: usize = 1 << 20;
const LARGE_GROUP: u32 = 4;
/// Groups of large writes in a repetition.
const LARGE_LAPS: u32 = 9;
/// Queues of which one is in use.
const QUEUES: [usize; 4] = [1, 16, 256, 1024];
/// Groups of small writes in a repetition for each of those.
const SHARE: u32 = 16;
/// Writes in a repetition where each has a doorbell of its own and is waited for.
const SINGLES: u32 = 2048;

const NOW: Deadline = Deadline::PASSED;

type Queue<'a, S> = SendQueue<'a, S, Thread>;

/// Two HCAs with some queue pairs, of which the first is used.
struct Rig {
    sides: Sides,
    used: Pair,
    source: Arena,
    target: Arena,
    // Kept because they are there to be in the way.
    _idle: Vec<Pair>,
}

impl Rig {
    fn new(queues: usize, bytes: usize) -> Self {
        let sides = Sides::by_hand();
        let config = |send_depth| QueuePairConfig {
            send_depth,
            receive_depth: 0,
            ..QueuePairConfig::granting(Access::REMOTE_WRITE)
        };
        // The one in use is neither the first nor the last of the tables.
        let idle = |count: usize| {
            (0..count)
                .map(|_| sides.pair(&config(16)))
                .collect::<Vec<_>>()
        };
        let mut before = idle((queues - 1) / 2);
        let used = sides.pair(&config(DEPTH));
        before.extend(idle(queues - 1 - before.len()));
        Self {
            used,
            source: sides.ours.arena(bytes, ALL_ACCESS, 1),
            target: sides.theirs.arena(bytes, ALL_ACCESS, 2),
            _idle: before,
            sides,
        }
    }

    fn queue<S: Sharing>(&self) -> Queue<'_, S> {
        let handle = self.used.ours.send_queue().expect("a send queue");
        handle.open().expect("an open queue")
    }

    fn write(&self, bytes: u32) -> (Local, Remote) {
        (self.source.local(0, bytes), self.target.remote(0))
    }

    /// Steps both ends until a request is done.
    fn step_until<S: Sharing>(&self, queue: &mut Queue<'_, S>, ticket: Ticket) {
        let (ours, theirs) = (self.sides.ours.hca(), self.sides.theirs.hca());
        while queue.is_done(ticket) != Ok(true) {
            ours.step().expect("a step");
            theirs.step().expect("a step");
        }
    }

    /// Posts a group of writes under one doorbell, of which only the last is signalled by us.
    fn post<S: Sharing>(
        &self,
        queue: &mut Queue<'_, S>,
        count: u32,
        (local, remote): (Local, Remote),
    ) -> Ticket {
        let mut batch = queue.batch(count, NOW).expect("room");
        for _ in 1..count {
            let _ = batch.post(Wqe::write(local, remote)).expect("room");
        }
        batch
            .post(Wqe::write(local, remote).signalled())
            .expect("room")
    }

    /// Nanoseconds that the engine takes for one of `group` writes of `bytes` bytes under one doorbell, and
    /// the same with its posting: the medians of `laps` such groups.
    fn stream(&self, laps: u32, group: u32, bytes: u32) -> (f64, f64) {
        self.stream_by(self.queue::<Exclusive>(), laps, group, bytes)
    }

    /// The same by a queue that is open.
    fn stream_by<S: Sharing>(
        &self,
        mut queue: Queue<'_, S>,
        laps: u32,
        group: u32,
        bytes: u32,
    ) -> (f64, f64) {
        let (mut engine, mut all) = (Samples::default(), Samples::default());
        let write = self.write(bytes);
        for _ in 0..laps {
            let (seconds_of_engine, seconds) = timed(|| {
                let ticket = self.post(&mut queue, group, write);
                timed(|| self.step_until(&mut queue, ticket)).1
            });
            engine.push(seconds_of_engine);
            all.push(seconds);
        }
        let nanoseconds = |laps: Samples| laps.median() * 1e9 / f64::from(group);
        (nanoseconds(engine), nanoseconds(all))
    }
}

/// What is measured in one go.
type Part = (&'static str, fn(u32) -> Vec<Row>);

const PARTS: [Part; 4] = [
    ("engine: 8-byte writes", small_writes),
    ("engine: traced 8-byte writes", traced_writes),
    ("engine: 1 MiB writes", large_writes),
    ("engine: many queues", many_queues),
];

/// All of it that is wanted.
pub fn measure(repetitions: u32, filter: &Filter) -> Vec<Row> {
    let wanted = PARTS.into_iter().filter(|(name, _)| filter.wants(name));
    wanted.flat_map(|(_, part)| part(repetitions)).collect()
}

fn small_writes(repetitions: u32) -> Vec<Row> {
    let rig = Rig::new(1, 4096);
    let (mut engine, mut all) = (Samples::default(), Samples::default());
    rig.stream(SHARE, GROUP, 8);
    for _ in 0..repetitions {
        let (nanoseconds, with_posting) = rig.stream(LAPS, GROUP, 8);
        engine.push(1e3 / nanoseconds);
        all.push(1e3 / with_posting);
    }
    vec![
        Row::new("engine: unsignalled 8-byte writes", "M/s", &engine).goal(Goal::AtLeast(5.0)),
        Row::new("engine: the same with posting", "M/s", &all),
    ]
}

/// Writes one at a time, each with a doorbell of its own, by a queue with a trace and by one without.
fn traced_writes(repetitions: u32) -> Vec<Row> {
    // Of each write a doorbell, a completion, and perhaps a reservation.
    let memory = TraceMemory::new(Placement::Host, 4 * SINGLES as usize);
    let mut memory = memory.expect("memory of the host");
    let rig = Rig::new(1, 4096);
    let (mut with, mut without) = (Samples::default(), Samples::default());
    for repetition in 0..=repetitions {
        memory.clear().expect("memory of the host");
        let mut queue = rig.queue::<Traced<'_, Exclusive>>();
        queue.trace_into(memory.buffer());
        let (_, traced) = rig.stream_by(queue, SINGLES, 1, 8);
        let (_, untraced) = rig.stream(SINGLES, 1, 8);
        assert_eq!(memory.lost().expect("memory of the host"), 0);
        // The first round warms up.
        if repetition > 0 {
            with.push(traced);
            without.push(untraced);
        }
    }
    let ratio = with.over(&without);
    vec![
        Row::new("engine: a WQE with posting, one at a time", "ns", &without),
        Row::new("engine: the same, traced", "ns", &with),
        Row::new("engine: traced / untraced", "x", &ratio).goal(Goal::AtMost(1.05)),
    ]
}

fn large_writes(repetitions: u32) -> Vec<Row> {
    let rig = Rig::new(1, LARGE);
    let (mut engine, mut copy) = (Samples::default(), Samples::default());
    rig.stream(1, LARGE_GROUP, LARGE as u32);
    for _ in 0..repetitions {
        let (nanoseconds, _) = rig.stream(LARGE_LAPS, LARGE_GROUP, LARGE as u32);
        engine.push(LARGE as f64 / nanoseconds);
        let mut laps = Samples::default();
        for _ in 0..LARGE_LAPS {
            let copies = || (0..LARGE_GROUP).for_each(|_| copy_once(&rig));
            laps.push(timed(copies).1);
        }
        let bytes = f64::from(LARGE_GROUP) * LARGE as f64;
        copy.push(bytes / laps.median() / 1e9);
    }
    let ratio = engine.over(&copy);
    vec![
        Row::new("engine: 1 MiB writes", "GB/s", &engine),
        Row::new("memcpy: 1 MiB", "GB/s", &copy),
        Row::new("engine / memcpy", "x", &ratio).goal(Goal::AtLeast(0.7)),
    ]
}

/// What a large write does, by the shortest way.
fn copy_once(rig: &Rig) {
    let source: *const u8 = black_box(rig.source.region().as_ptr());
    let target = black_box(rig.target.region().as_ptr());
    // SAFETY: two regions of this size, and the HCAs stand still.
    unsafe { ptr::copy_nonoverlapping(source, target, LARGE) };
}

fn many_queues(repetitions: u32) -> Vec<Row> {
    let rigs = QUEUES.map(|queues| Rig::new(queues, 4096));
    let mut streams = QUEUES.map(|_| Samples::default());
    let mut singles = QUEUES.map(|_| Samples::default());
    for repetition in 0..=repetitions {
        for (index, rig) in rigs.iter().enumerate() {
            let (stream, _) = rig.stream(SHARE, GROUP, 8);
            let (single, _) = rig.stream(SINGLES, 1, 8);
            // The first round warms up.
            if repetition > 0 {
                streams[index].push(stream);
                singles[index].push(single);
            }
        }
    }
    let mut rows = Vec::new();
    for (what, samples) in [("in a stream", &streams), ("one at a time", &singles)] {
        for (queues, samples) in QUEUES.iter().zip(samples) {
            let name = format!("engine: a WQE {what}, {queues} queues");
            rows.push(Row::new(name, "ns", samples));
        }
        let spread = spread(samples);
        let name = format!("most / least {what}");
        rows.push(Row::new(name, "x", &spread).goal(Goal::AtMost(1.5)));
    }
    rows
}

/// The largest median over the smallest.
fn spread(samples: &[Samples]) -> Samples {
    let medians: Vec<f64> = samples.iter().map(Samples::median).collect();
    let most = medians.iter().copied().fold(f64::MIN, f64::max);
    let least = medians.iter().copied().fold(f64::MAX, f64::min);
    let mut spread = Samples::default();
    spread.push(most / least);
    spread
}
