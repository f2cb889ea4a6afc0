//! Traces of kernels and their NIC.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use warpbell::trace::Trace as _;
use warpbell::trace::{Buffer, CHUNK, Event, Kind, Span};
use warpbell::wqe::{Local, QpNumber, Remote, Wqe};
use warpbell::{Deadline, Exclusive, GpuShared, SendQueueHandle, Traced, Warp, kernel, thread};
use warpbell_host_init::cuda::Module;
use warpbell_host_init::soft::SoftOptions;
use warpbell_host_init::trace::{Recording, Trace};
use warpbell_host_init::{
    Access, Entry, Error, Grid, Kernels, Launch, Nic, Node, QueuePairConfig, entry,
};

use crate::fake::{module, with_fake};

const LIMIT: Deadline = Deadline::after_ms(300_000);

#[repr(C)]
#[derive(Clone, Copy)]
struct Parameters<'a> {
    queue: SendQueueHandle<'a>,
    trace: Buffer<'a>,
    local: Local,
    remote: Remote,
    writes: u32,
    done: &'a AtomicU64,
}

impl Parameters<'_> {
    fn write(&self) -> Wqe<1> {
        Wqe::write(self.local, self.remote).signalled()
    }
}

/// One thread, a write after the other.
#[kernel]
fn one_by_one(p: Parameters<'_>) {
    let mut queue = p.queue.open::<Traced<Exclusive>>().unwrap();
    queue.trace_into(p.trace);
    for _ in 0..p.writes {
        let ticket = queue.post(p.write(), LIMIT).unwrap();
        queue.wait(ticket, LIMIT).unwrap();
        p.done.fetch_add(1, Ordering::Relaxed);
    }
}

/// All threads share the queue, and post each for itself.
#[kernel]
fn shared(p: Parameters<'_>) {
    let mut queue = p.queue.open::<Traced<GpuShared>>().unwrap();
    queue.trace_into(p.trace);
    for _ in 0..p.writes {
        let ticket = queue.post(p.write(), LIMIT).unwrap();
        queue.wait(ticket, LIMIT).unwrap();
        p.done.fetch_add(1, Ordering::Relaxed);
    }
}

/// A warp, 32 writes under a doorbell.
#[kernel]
fn warp(p: Parameters<'_>) {
    // SAFETY: all lanes make the calls together.
    let queue = unsafe { p.queue.open_together::<Traced<Exclusive>, Warp>() };
    let mut queue = queue.unwrap();
    queue.trace_into(p.trace);
    for _ in 0..p.writes {
        let ticket = queue.post(p.write(), LIMIT).unwrap();
        queue.wait(ticket, LIMIT).unwrap();
        p.done.fetch_add(1, Ordering::Relaxed);
    }
    thread::sync_threads();
}

/// Runs a kernel with so many writes a thread and room for so many events. Returns the queue pair's number, too.
fn traced(
    entry: Entry<fn(Parameters<'_>)>,
    grid: Grid,
    writes: u32,
    events: usize,
) -> (Recording, u32) {
    let trace = Trace::start(&Node::cpu(), 1, events).unwrap();
    let node = trace.node();
    let [near, far] = node.ends().unwrap();
    let source = near.allocate(4096, Access::LOCAL_WRITE).unwrap();
    let target = far.allocate(4096, Access::all()).unwrap();
    let config = QueuePairConfig::granting(Access::REMOTE_WRITE);
    let (ours, _theirs) = near.connected(&far, &config).unwrap();
    let done = node.shared(AtomicU64::new(0)).unwrap();
    let parameters = Parameters {
        queue: ours.send_queue().unwrap(),
        trace: trace.buffer(0),
        local: source.local(0, 8).unwrap(),
        remote: target.remote().at(0, 8).unwrap(),
        writes,
        done: &done,
    };
    node.run(&[Launch::new(entry, grid, parameters)], &[&ours])
        .unwrap();
    let threads = u64::from(grid.blocks * grid.threads_per_block);
    assert_eq!(done.load(Ordering::Relaxed), threads * u64::from(writes));
    let number = ours.qpn();
    (trace.stop().unwrap(), number)
}

/// The events of a queue: of the kernels (0), of their NIC (1), or of the other end's NIC (2).
fn of(recording: &Recording, source: usize, qpn: u32) -> Vec<(u64, Event)> {
    let events = recording.sources()[source].events().iter().copied();
    events
        .filter(|(_, event)| event.qpn().get() == qpn)
        .collect()
}

fn count(events: &[(u64, Event)], kind: Kind) -> usize {
    let is_it = |(_, event): &&(u64, Event)| event.kind() == Some(kind);
    events.iter().filter(is_it).count()
}

/// Each request's way, on one clock: published, seen, read, sent, answered, completed, found.
#[test]
fn the_way_of_each_request_is_in_order() {
    const WRITES: u32 = 300;
    // By how much an event may seem early, because a processor reads its clock ahead of loads.
    const EARLY_NS: u64 = 1_000;
    let (recording, qpn) = traced(entry!(one_by_one), Grid::ONE_THREAD, WRITES, 100_000);
    assert_eq!(recording.lost(), 0);
    let (kernel, nic) = (of(&recording, 0, qpn), of(&recording, 1, qpn));
    for kind in [Kind::Publish, Kind::Completion] {
        assert_eq!(count(&kernel, kind), WRITES as usize, "{kind:?}");
    }
    assert_eq!(
        count(&kernel, Kind::WaitBegin),
        count(&kernel, Kind::WaitEnd)
    );
    assert_eq!(count(&kernel, Kind::Error), 0);
    for kind in [Kind::Fetch, Kind::PacketOut, Kind::Cqe] {
        assert_eq!(count(&nic, kind), WRITES as usize, "{kind:?}");
    }
    // Both clocks are the CPU's. What the readings of it were off by moves all of its times alike.
    let time = |events: &[(u64, Event)], kind, value: u32| {
        let found = events
            .iter()
            .find(|(_, event)| event.kind() == Some(kind) && event.value() == value);
        found.unwrap_or_else(|| panic!("no {kind:?} of {value}")).0
    };
    for index in 0..WRITES {
        let start = index as u16;
        let published = time(&kernel, Kind::Publish, Span { start, blocks: 1 }.to_value());
        let read = time(&nic, Kind::Fetch, index);
        let written = time(&nic, Kind::Cqe, index);
        let found = time(&kernel, Kind::Completion, index);
        for (earlier, later) in [(published, read), (read, written), (written, found)] {
            assert!(
                earlier <= later + EARLY_NS,
                "{index}: {published} {read} {written} {found}"
            );
        }
    }
}

#[test]
fn all_views_of_a_shared_queue_record() {
    const THREADS: u32 = 64;
    const WRITES: u32 = 10;
    let (recording, qpn) = traced(entry!(shared), Grid::new(2, THREADS / 2), WRITES, 100_000);
    assert_eq!(recording.lost(), 0);
    let kernel = of(&recording, 0, qpn);
    // Each block was published once, under whatever doorbells.
    let mut published = vec![0; (THREADS * WRITES) as usize];
    for (_, event) in &kernel {
        if event.kind() == Some(Kind::Publish) {
            let span = Span::of_value(event.value());
            let start = usize::from(span.start);
            published[start..start + usize::from(span.blocks)]
                .iter_mut()
                .for_each(|count| *count += 1);
        }
    }
    assert!(published.iter().all(|count| *count == 1), "{published:?}");
    assert_eq!(
        count(&kernel, Kind::WaitBegin),
        count(&kernel, Kind::WaitEnd)
    );
}

#[test]
fn a_warp_publishes_once_for_all() {
    const WRITES: u32 = 20;
    let (recording, qpn) = traced(entry!(warp), Grid::new(1, 32), WRITES, 100_000);
    let (kernel, nic) = (of(&recording, 0, qpn), of(&recording, 1, qpn));
    assert_eq!(count(&kernel, Kind::Publish), WRITES as usize);
    assert_eq!(count(&nic, Kind::Fetch), (32 * WRITES) as usize);
}

/// What finds no room is counted, for kernels and NIC.
#[test]
fn a_full_trace_counts_what_is_lost() {
    const WRITES: u32 = 1000;
    let (whole, qpn) = traced(entry!(one_by_one), Grid::ONE_THREAD, WRITES, 100_000);
    let (cut, _) = traced(entry!(one_by_one), Grid::ONE_THREAD, WRITES, CHUNK);
    for source in &cut.sources()[..2] {
        assert_eq!(source.events().len(), CHUNK);
        // Beside these each wait may have an event or none.
        let least = 2 * u64::from(WRITES) - CHUNK as u64;
        assert!(source.lost() >= least, "{source:?}");
    }
    assert!(whole.events().any(|(_, event)| event.qpn().get() == qpn));
    assert_eq!(whole.lost(), 0);
}

/// A GPU's clock of another rate is brought to the host's, and a GPU's memory is read.
#[test]
fn a_gpus_events_are_on_the_hosts_clock() {
    with_fake("trace::a_gpus_events_are_on_the_hosts_clock", "", || {
        let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = || now().unwrap().as_nanos() as u64;
        let trace = Trace::start(&gpu(), 1, 100).unwrap();
        // The fake GPU's memory is the host's.
        let writer = trace.buffer(0).writer();
        let mut times = Vec::new();
        for value in 0..50 {
            let before = now();
            writer.record_at(fake_time(), Kind::Publish, QpNumber::MAX, value);
            times.push((before, now()));
        }
        let recording = trace.stop().unwrap();
        let [kernels] = recording.sources() else {
            panic!("no NIC was opened: {recording:?}");
        };
        let values = kernels.events().iter().map(|(_, event)| event.value());
        assert!(values.eq(0..50));
        // Each clock may be off, and the system's is read beside another one.
        let error = kernels.clock_error_ns() + 1_000_000;
        for ((time, _), (before, after)) in kernels.events().iter().zip(times) {
            let range = before - error..after + error;
            assert!(range.contains(time), "{time} in {range:?}");
        }
    });
}

#[test]
fn a_gpu_that_does_not_tell_its_time_is_an_error() {
    let name = "trace::a_gpu_that_does_not_tell_its_time_is_an_error";
    with_fake(name, "mute", || {
        let refused = Trace::start(&gpu(), 1, 100);
        assert!(matches!(refused, Err(Error::NoClock)), "{refused:?}");
    });
}

/// A fake GPU, with a NIC on the host.
fn gpu() -> Node {
    let module: &Module = Box::leak(Box::new(module()));
    Node::new(Kernels::Gpu(module), Nic::Soft(SoftOptions::default())).unwrap()
}

/// What the fake GPU's clock shows.
fn fake_time() -> u64 {
    // SAFETY: nothing runs when it is loaded, and the function is declared so there.
    unsafe {
        let driver = libloading::Library::new("libcuda.so.1").unwrap();
        let time = driver.get::<extern "C" fn() -> u64>(b"fakeTime\0");
        time.unwrap()()
    }
}

/// Perfetto's own messages read the file, and find each event. `WARPBELL_PERFETTO` names a Python that has them.
#[cfg(feature = "perfetto")]
#[test]
#[ignore = "needs a Python with perfetto, which WARPBELL_PERFETTO names"]
fn perfetto_agrees() {
    use std::collections::BTreeMap;

    const WRITES: u32 = 500;
    let python = std::env::var_os("WARPBELL_PERFETTO").expect("WARPBELL_PERFETTO names a Python");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/perfetto_counts.py");
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("{}.perfetto-trace", std::process::id()));
    let (recording, _) = traced(entry!(one_by_one), Grid::ONE_THREAD, WRITES, 100_000);
    recording.write_perfetto(&file).unwrap();
    let output = std::process::Command::new(python)
        .arg(script)
        .arg(&file)
        .output();
    let output = output.unwrap();
    std::fs::remove_file(&file).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| {
        let (what, count) = line.rsplit_once(' ').unwrap();
        (what.to_owned(), count.parse::<usize>().unwrap())
    };
    let found: BTreeMap<_, _> = printed.lines().map(line).collect();

    let mut expected = BTreeMap::new();
    let mut expect = |what: String| *expected.entry(what).or_insert(0) += 1;
    for (_, event) in recording.events() {
        let kind = event.kind().unwrap();
        match kind {
            Kind::Publish => expect("TYPE_SLICE_BEGIN Publish".into()),
            // No ring is full: each write is waited for.
            Kind::WaitBegin => expect("TYPE_SLICE_BEGIN Wait".into()),
            Kind::WaitEnd => expect("TYPE_SLICE_END -".into()),
            _ => expect(format!("TYPE_INSTANT {kind:?}")),
        }
        if kind == Kind::Completion {
            // Each ends the slice of its write.
            expect("TYPE_SLICE_END -".into());
        }
        if matches!(kind, Kind::Publish | Kind::Completion) {
            expect("TYPE_COUNTER -".into());
        }
    }
    assert_eq!(found, expected);
    assert_eq!(found["TYPE_SLICE_BEGIN Publish"], WRITES as usize);
}
