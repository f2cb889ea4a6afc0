//! Proves that a proxy carries each request out exactly once, in every mode, whoever shares the queue; that ComP-Net's
//! example pings by its own calls; and that a full ring, a proxy that refuses, stops or dies ends in errors with a
//! name, without a loss of what it took, and with a queue that works again.
//!
//! Queues are in pinned memory, because the proxy reads them, even where the NIC is a kernel and could have them in the
//! GPU's.

use std::panic::resume_unwind;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use warpbell::wqe::Opcode;
use warpbell::{PostError, WaitError};
use warpbell_cpu_grid::Grid;
use warpbell_host_init::{Kernels, Launch, Nic, QueuePair, QueuePairConfig, connect, entry};
use warpbell_hw_tests::arena::{Arena, Image};
use warpbell_hw_tests::flood::Flooding;
use warpbell_hw_tests::here;
use warpbell_hw_tests::machine::Machine;
use warpbell_hw_tests::post::{Posting, ample, expect_done};
use warpbell_hw_tests::run::run;
use warpbell_hw_tests::say::say;
use warpbell_hw_tests::sides::{ALL_ACCESS, Pair, Sides};
use warpbell_kernels::outcome::{Failure, Outcome};
use warpbell_kernels::suite::{
    CpnetPing, Ending, Mode, Request, ScopeKind, SharingKind, Verb, Waiting, suite_cpnet_ping,
};
use warpbell_patterns::cpnet::host::{CpnetConfig, cpnet_init_all, cpnet_shmalloc};
use warpbell_patterns::proxy::host::{ProxiedQueue, Proxy};
use warpbell_patterns::proxy::{Entry, Fault};
use warpbell_soft_hca_gpu::MemoryScope;

/// Blocks of 64 bytes: far fewer than requests.
const DEPTH: u32 = 8;
/// Values of 8 bytes at the other end.
const VALUES: usize = 2000;
/// How long a post may take that is to find no room.
const BRIEFLY: Duration = Duration::from_millis(20);

pub fn test(machine: &Machine) -> ExitCode {
    run(machine, Duration::from_secs(600), |progress| {
        let node = here::node();
        if matches!(node.nic(), Nic::Mlx5(_)) && !node.nic_placement().is_host() {
            say(
                "         left out, because a card would write data to the GPU's memory, and completions to the host's",
            );
            return;
        }
        let bench = Flooding::between(sides());
        for kernels in here::in_each_order() {
            for mode in Mode::ALL {
                progress.step(format!("{kernels}, {mode:?}"));
                for indices in [false, true] {
                    flood(&bench, kernels, mode, indices);
                }
            }
        }
        progress.step("ComP-Net's ping");
        pings();
        progress.step("a full ring");
        full();
        progress.step("a request that is refused");
        ends(Fault::Refused);
        progress.step("a thread that dies");
        ends(Fault::Died);
        progress.step("a thread that hangs");
        ends(Fault::Hung);
        progress.step("a proxy that is stopped");
        stopped();
    })
}

/// Both sides, where the NIC reaches the proxy's queues.
fn sides() -> Sides {
    Sides::reaching(MemoryScope::System)
}

/// Queues that the proxy reaches.
fn config(depth: u32) -> QueuePairConfig {
    QueuePairConfig {
        send_depth: depth,
        placement: Some(here::kernels().placement()),
        ..QueuePairConfig::default()
    }
}

/// A grid in which several views of the queue meet, where the mode allows it.
const fn crowd(mode: Mode) -> (Grid, u32, u32) {
    // A group of n threads takes n blocks at once, which may be half of the ring.
    let (grid, depth) = match (mode.sharing, mode.scope) {
        (SharingKind::Exclusive, ScopeKind::Thread) => (Grid::new(1, 1), DEPTH),
        (SharingKind::Exclusive, ScopeKind::Warp) => (Grid::new(1, 32), 64),
        (SharingKind::Exclusive, ScopeKind::Block) => (Grid::new(1, 50), 128),
        (SharingKind::BlockShared, ScopeKind::Thread) => (Grid::new(1, 64), DEPTH),
        (SharingKind::GpuShared, ScopeKind::Thread) => (Grid::new(4, 50), DEPTH),
        (SharingKind::GpuShared, _) => (Grid::new(4, 50), 128),
        (SharingKind::BlockShared, _) => (Grid::new(1, 90), 256),
    };
    let rounds = 1000 / (grid.blocks * grid.threads_per_block);
    (grid, depth, if rounds < 5 { 5 } else { rounds })
}

/// Whole WQEs, or indices alone.
fn flood(bench: &Flooding, kernels: Kernels, mode: Mode, indices: bool) {
    let (grid, depth, rounds) = crowd(mode);
    let pair = bench.sides.pair(&config(depth));
    let proxy = Proxy::start(1).expect("a thread");
    let queue = match indices {
        false => proxy.serve(pair.ours, kernels.placement()),
        true => proxy.serve_indices(pair.ours),
    };
    let queue = queue.expect("a queue");
    let what = format!("{kernels}, {mode:?}, {grid:?}, indices: {indices}");
    bench.flood(kernels, grid, mode, rounds, queue.send_queue(), &what);
    assert_eq!(queue.first_error(), None, "{what}");
}

/// Work-groups of one PE ping their counterparts at another one. Each byte is compared, those beside theirs too.
fn pings() {
    let grid = Grid::new(4, 40);
    // Past 256, where a byte begins anew.
    let rounds = 300;
    let (sides, proxy) = (sides(), Proxy::start(2).expect("threads"));
    let domains = [&sides.ours, &sides.theirs].map(|side| side.domain.clone());
    let options = CpnetConfig {
        heap_bytes: 4096,
        queue_pair: config(DEPTH),
    };
    let groups = grid.blocks as usize;
    let pes = cpnet_init_all(&proxy, &domains, groups, &options).expect("two PEs");
    let bytes = |round| (0..grid.blocks).map(move |group| CpnetPing::value(group, round));
    let canary = [0xa5; 8];
    let places = pes.iter().map(|cpnet| {
        let places = [8, groups, 8].map(|bytes| cpnet_shmalloc(cpnet, bytes).expect("room"));
        let before = bytes(0).collect::<Vec<_>>();
        for (place, bytes) in places.into_iter().zip([&canary[..], &before, &canary]) {
            cpnet.write(place, bytes).expect("inside");
        }
        places
    });
    let places: Vec<_> = places.collect();
    let outcomes = here::shared(2, |_| Outcome::new());
    let launches = [0, 1].map(|pe| {
        let parameters = CpnetPing {
            cpnet: pes[pe].handle(),
            wg_buffer: places[pe][1],
            peer: 1 - pe as u32,
            initiates: u32::from(pe == 0),
            rounds,
            limit_us: ample().as_micros() as u64,
            outcome: &outcomes[pe],
        };
        Launch::new(entry!(suite_cpnet_ping), grid, parameters)
    });
    here::node().run(&launches, &[]).expect("both kernels");
    for ((cpnet, places), outcome) in pes.iter().zip(&places).zip(&outcomes[..]) {
        assert_eq!(outcome.result(), Ok(()), "PE {}", cpnet.pe());
        let after = bytes(rounds).collect::<Vec<_>>();
        for (place, expected) in places.iter().zip([&canary[..], &after, &canary]) {
            let mut found = vec![0; expected.len()];
            cpnet.read(*place, &mut found).expect("inside");
            assert_eq!(found, expected, "PE {}", cpnet.pe());
        }
        let posts = cpnet.queues().iter().map(|queue| queue.proxied().posts);
        assert_eq!(posts.sum::<u64>(), u64::from(grid.blocks * rounds));
    }
}

/// Both ends of one connection, and values at the other one.
struct Ends {
    /// Keeps the devices.
    _nodes: Sides,
    theirs: QueuePair,
    values: Arena,
}

impl Ends {
    fn new() -> (Self, QueuePair) {
        let sides = sides();
        let Pair { ours, theirs } = sides.pair(&config(DEPTH));
        let values = sides.theirs.arena(8 * VALUES, ALL_ACCESS, 1);
        let ends = Self {
            values,
            theirs,
            _nodes: sides,
        };
        (ends, ours)
    }

    /// Has a queue pair back after an error, and serves it again, reset and connected to its other end.
    fn renew(&mut self, queue: ProxiedQueue, proxy: &Proxy) -> ProxiedQueue {
        let mut ours = queue.release().expect("the queue pair");
        ours.reset().expect("a reset");
        self.theirs.reset().expect("a reset");
        connect(&mut ours, &mut self.theirs).expect("a connection");
        serve(proxy, ours, |_| true)
    }

    /// Writes a number of its own to a place of its own.
    fn write(&self, place: usize) -> Request {
        Request::new(Verb::WriteValue)
            .remote(self.values.remote(8 * place as i64))
            .values([number(place), 0, 0, 0])
    }

    /// The numbers in these places are there, and nothing else has changed.
    #[track_caller]
    fn check(&self, image: &mut Image, places: impl IntoIterator<Item = usize>, what: &str) {
        for place in places {
            let address = self.values.address() + 8 * place as u64;
            image.set(address, &number(place).to_le_bytes());
        }
        self.values.check(image, what);
    }
}

fn number(place: usize) -> u64 {
    0x5eed_0000_0000 + place as u64
}

fn serve(
    proxy: &Proxy,
    pair: QueuePair,
    allow: impl FnMut(Entry<'_>) -> bool + Send + 'static,
) -> ProxiedQueue {
    let placement = here::kernels().placement();
    proxy.serve_if(pair, placement, allow).expect("a queue")
}

/// Waits for what another thread does.
#[track_caller]
fn eventually(what: &str, done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < ample(), "{what} never comes");
        thread::yield_now();
    }
}

/// A ring that nobody empties takes as many requests as it has blocks, and no more; all of them are carried out later.
fn full() {
    let (ends, ours) = Ends::new();
    let mut image = ends.values.image();
    let depth = DEPTH as usize;
    let proxy = Proxy::start(1).expect("a thread");
    let open = Arc::new(AtomicBool::new(false));
    let gate = Arc::clone(&open);
    let queue = serve(&proxy, ours, move |_| {
        eventually("the gate", || gate.load(Ordering::Relaxed));
        true
    });
    let requests: Vec<_> = (0..depth + 4).map(|place| ends.write(place)).collect();
    let late = Ending::Failed(Failure::Post(PostError::Deadline));
    let found = Posting::with(Waiting::Never, BRIEFLY).post(queue.send_queue(), &requests);
    assert_eq!(found[..depth], vec![Ending::Done; depth]);
    assert_eq!(found[depth..], [late; 4]);
    // Not a question of time, with a patience of none.
    let now = Ending::Failed(Failure::Post(PostError::NoRoom));
    let found =
        Posting::with(Waiting::Never, Duration::ZERO).post(queue.send_queue(), &requests[..1]);
    assert_eq!(found, [now]);
    ends.check(&mut image, [], "behind the gate");

    open.store(true, Ordering::Relaxed);
    let more = Posting::with(Waiting::Each, ample()).post(queue.send_queue(), &requests[depth..]);
    expect_done(&more, "room again");
    ends.check(&mut image, 0..depth + 4, "a full ring");
    assert_eq!(queue.proxied().posts, depth as u64 + 4);
}

/// The service ends at the second request; what came before it is done, and nothing behind it is.
fn ends(fault: Fault) {
    let (mut ends, ours) = Ends::new();
    let mut image = ends.values.image();
    // One that dies or hangs is replaced.
    let proxy = Proxy::start(1).expect("a thread");
    let queue = serve(&proxy, ours, move |entry| {
        let allowed = entry.control().opcode() == Opcode::RDMA_WRITE;
        match fault {
            _ if allowed => {}
            // A panic that prints nothing.
            Fault::Died => resume_unwind(Box::new("on purpose")),
            // For longer than all of it takes.
            Fault::Hung => thread::sleep(Duration::from_secs(3600)),
            _ => {}
        }
        allowed
    });
    let requests = [ends.write(0), Request::new(Verb::Nop), ends.write(1)];
    let found = Posting::with(Waiting::Each, ample()).post(queue.send_queue(), &requests);
    assert_eq!(found[0], Ending::Done);
    let Ending::Failed(Failure::Wait(WaitError::Failed(error))) = found[1] else {
        panic!("{:?} instead of {fault:?}", found[1]);
    };
    assert_eq!(Fault::of(error), Some(fault), "{error}");
    let refused = Ending::Failed(Failure::Post(PostError::Failed(error)));
    assert_eq!(found[2], refused);
    assert_eq!(queue.first_error(), Some(error));
    ends.check(&mut image, [0], "before the end");

    let queue = ends.renew(queue, &proxy);
    let requests: Vec<_> = (0..50).map(|place| ends.write(place)).collect();
    let found = Posting::with(Waiting::Each, ample()).post(queue.send_queue(), &requests);
    expect_done(&found, "after the end");
    ends.check(&mut image, 0..50, "after the end");
}

/// A proxy that is stopped under a kernel: what the kernel was told is done is there, and nothing else.
fn stopped() {
    let (mut ends, ours) = Ends::new();
    let mut image = ends.values.image();
    let proxy = Proxy::start(1).expect("a thread");
    let queue = serve(&proxy, ours, |_| true);
    let requests: Vec<_> = (0..VALUES).map(|place| ends.write(place)).collect();
    let found = thread::scope(|scope| {
        scope.spawn(|| {
            eventually("a completion", || queue.proxied().completions > 20);
            drop(proxy);
        });
        Posting::with(Waiting::Each, ample()).post(queue.send_queue(), &requests)
    });
    let done = found
        .iter()
        .take_while(|ending| **ending == Ending::Done)
        .count();
    for (place, ending) in found.iter().enumerate().skip(done) {
        let Ending::Failed(failure) = ending else {
            panic!("place {place}: {ending:?} behind a failure");
        };
        let fault = failure.queue_error().and_then(Fault::of);
        assert_eq!(fault, Some(Fault::Stopped), "place {place}: {failure}");
    }
    ends.check(&mut image, 0..done, "stopped");

    let proxy = Proxy::start(1).expect("a thread");
    let queue = ends.renew(queue, &proxy);
    let found = Posting::with(Waiting::Each, ample()).post(queue.send_queue(), &requests[..50]);
    expect_done(&found, "after the stop");
    ends.check(&mut image, 0..50, "after the stop");
}
