//! A program of verbs and nothing else: libmlx5 over the device of `warpbell-preload`, whose engine runs on a thread.

mod bounds;
mod events;
mod paths;
mod refused;

use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use warpbell_proofs::facts::Facts;
use warpbell_proofs::verbs::{Completion, Options, Post, Segment, Verbs, values};

use crate::libmlx5::device::with_engine;

/// How long a completion may take on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(300);

/// Registered memory.
struct Buffer {
    cells: Box<[AtomicU8]>,
    keys: [u32; 2],
}

impl Buffer {
    fn of(verbs: &mut Verbs, bytes: &[u8]) -> Self {
        let cells: Box<[_]> = bytes.iter().copied().map(AtomicU8::new).collect();
        let start = cells.as_ptr().cast_mut().cast::<c_void>();
        // SAFETY: the cells outlive the device: the tests close it first. They are atomic.
        let keys = unsafe { verbs.register(start, bytes.len() as u64) }.unwrap();
        Self { cells, keys }
    }

    fn segment(&self) -> Segment {
        Segment {
            address: self.cells.as_ptr() as u64,
            length: self.cells.len() as u32,
            key: self.keys[0],
        }
    }

    fn bytes(&self) -> Vec<u8> {
        // Relaxed: the completion was polled, which was written after the bytes.
        self.cells
            .iter()
            .map(|cell| cell.load(Ordering::Relaxed))
            .collect()
    }
}

/// Two queue pairs, each through a device that was opened for it.
fn pair() -> [Verbs; 2] {
    pair_with(false)
}

/// The same, perhaps with shared receive queues.
fn pair_with(shared: bool) -> [Verbs; 2] {
    let options = Options {
        unconnected: true,
        inline_bytes: 200,
        shared,
        ..Options::default()
    };
    let mut pair = [0, 1].map(|_| Verbs::open(&options).unwrap());
    connect(&mut pair);
    pair
}

fn connect(pair: &mut [Verbs; 2]) {
    let numbers = [pair[0].qpn(), pair[1].qpn()];
    pair[0].connect(numbers[1]).unwrap();
    pair[1].connect(numbers[0]).unwrap();
}

fn request<'a>(
    values: &Facts,
    verb: &str,
    list: &'a [Segment],
    remote: Option<&Buffer>,
) -> Post<'a> {
    let mut post = Post::new(values[verb]).with_segments(list);
    post.flags = values["IBV_SEND_SIGNALED"] as u32;
    post.immediate = 0xcafe_f00d;
    if let Some(remote) = remote {
        post.remote_address = remote.segment().address;
        post.remote_key = remote.keys[1];
    }
    post
}

/// Polls until there is a completion.
#[track_caller]
fn wait(verbs: &mut Verbs) -> Completion {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(polled) = verbs.poll().expect("libmlx5 understands the CQE") {
            return polled;
        }
        std::thread::yield_now();
    }
    panic!("no completion within {PATIENCE:?}");
}

#[track_caller]
fn expect(values: &Facts, verbs: &mut Verbs, status: &str) -> Completion {
    let polled = wait(verbs);
    assert_eq!(
        u64::from(polled.status),
        values[status],
        "{status}: {polled:?}"
    );
    polled
}

#[test]
fn traffic() {
    with_engine("libmlx5::whole::traffic", || {
        let values = values();
        let mut pair = pair();
        let sent = b"unmodified libmlx5, and no card".repeat(50);
        let source = Buffer::of(&mut pair[0], &sent);
        let target = Buffer::of(&mut pair[1], &vec![0; sent.len()]);
        let list = [source.segment()];

        // More than the rings hold, both ways of posting in turn.
        for round in 0..200_u64 {
            let mut post = request(&values, "IBV_WR_RDMA_WRITE", &list, Some(&target));
            post.id = round;
            if round % 2 == 0 {
                pair[0].post(&post).unwrap();
            } else {
                pair[0].post_extended(&post).unwrap();
            }
            assert_eq!(expect(&values, &mut pair[0], "IBV_WC_SUCCESS").id, round);
        }
        assert_eq!(target.bytes(), sent);

        for round in 0..50_u64 {
            pair[1].receive(round, &[target.segment()]).unwrap();
            pair[0]
                .post(&request(&values, "IBV_WR_SEND_WITH_IMM", &list, None))
                .unwrap();
            expect(&values, &mut pair[0], "IBV_WC_SUCCESS");
            let arrived = expect(&values, &mut pair[1], "IBV_WC_SUCCESS");
            assert_eq!((arrived.id, arrived.bytes as usize), (round, sent.len()));
            assert_eq!(arrived.immediate, 0xcafe_f00d);
        }

        let back = Buffer::of(&mut pair[0], &vec![0; sent.len()]);
        let list = [back.segment()];
        pair[0]
            .post(&request(&values, "IBV_WR_RDMA_READ", &list, Some(&target)))
            .unwrap();
        expect(&values, &mut pair[0], "IBV_WC_SUCCESS");
        assert_eq!(back.bytes(), sent);
        for verbs in pair {
            assert_eq!(verbs.close(), Ok(()));
        }
    });
}

/// Whoever posts and polls does the engine's work meanwhile: its thread would not be there that soon.
#[test]
fn helped() {
    with_engine("libmlx5::whole::helped", || {
        const ROUNDS: usize = 1000;
        let values = values();
        let mut pair = pair();
        let source = Buffer::of(&mut pair[0], &[7; 64]);
        let target = Buffer::of(&mut pair[1], &[0; 64]);
        let list = [source.segment()];
        let mut at_once = 0;
        for _ in 0..ROUNDS {
            pair[0]
                .post(&request(&values, "IBV_WR_RDMA_WRITE", &list, Some(&target)))
                .unwrap();
            let soon = (0..8).find_map(|_| pair[0].poll().unwrap());
            at_once += usize::from(soon.is_some());
            let polled = soon.unwrap_or_else(|| wait(&mut pair[0]));
            assert_eq!(u64::from(polled.status), values["IBV_WC_SUCCESS"]);
        }
        // Now and then the thread was at it.
        assert!(at_once > ROUNDS / 2, "{at_once} of {ROUNDS}");
        for verbs in pair {
            assert_eq!(verbs.close(), Ok(()));
        }
    });
}

/// A process that was forked off has a copy of the engine, which must not listen to the doorbells that both share.
#[test]
fn forked() {
    with_engine("libmlx5::whole::forked", || {
        let values = values();
        let mut pair = pair();
        let source = Buffer::of(&mut pair[0], &[7; 64]);
        let target = Buffer::of(&mut pair[1], &[0; 64]);
        let list = [source.segment()];
        // SAFETY: the child only polls, which takes no lock that another thread may have held, and is killed.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            // SAFETY: it ends the child if the parent does not.
            unsafe { libc::alarm(30) };
            loop {
                let _ = pair[1].poll();
            }
        }
        for _ in 0..2000 {
            pair[0]
                .post(&request(&values, "IBV_WR_RDMA_WRITE", &list, Some(&target)))
                .unwrap();
            expect(&values, &mut pair[0], "IBV_WC_SUCCESS");
        }
        // SAFETY: the child is ours, and nobody has waited for it.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        for verbs in pair {
            assert_eq!(verbs.close(), Ok(()));
        }
    });
}

/// Receives of a shared queue, more than it holds; libmlx5 links those that have completed behind the others.
#[test]
fn shared_receives() {
    with_engine("libmlx5::whole::shared_receives", || {
        let values = values();
        let mut pair = pair_with(true);
        let source = Buffer::of(&mut pair[0], &[7; 64]);
        let targets = [0_u64, 1, 2].map(|_| Buffer::of(&mut pair[1], &[0; 64]));
        let list = [source.segment()];
        for (id, target) in (0..).zip(&targets) {
            pair[1].receive(id, &[target.segment()]).unwrap();
        }
        for round in 0..300_u64 {
            pair[0]
                .post(&request(&values, "IBV_WR_SEND_WITH_IMM", &list, None))
                .unwrap();
            expect(&values, &mut pair[0], "IBV_WC_SUCCESS");
            let arrived = expect(&values, &mut pair[1], "IBV_WC_SUCCESS");
            assert_eq!((arrived.id, arrived.bytes), (round, 64));
            let target = &targets[round as usize % targets.len()];
            assert_eq!(target.bytes(), [7; 64]);
            pair[1].receive(round + 3, &[target.segment()]).unwrap();
        }
        for verbs in pair {
            assert_eq!(verbs.close(), Ok(()));
        }
    });
}

/// An error, reset, and the same queue pairs again.
#[test]
fn recovery() {
    with_engine("libmlx5::whole::recovery", || {
        let values = values();
        let mut pair = pair();
        let source = Buffer::of(&mut pair[0], &[7; 64]);
        let target = Buffer::of(&mut pair[1], &[0; 64]);
        let list = [source.segment()];
        for _ in 0..3 {
            let mut wrong = request(&values, "IBV_WR_RDMA_WRITE", &list, Some(&target));
            wrong.remote_key ^= 0x100;
            pair[0].post(&wrong).unwrap();
            assert_eq!(
                expect(&values, &mut pair[0], "IBV_WC_REM_ACCESS_ERR").vendor,
                0x88
            );
            for verbs in &mut pair {
                verbs.stop(false).unwrap();
            }
            connect(&mut pair);
            pair[0]
                .post(&request(&values, "IBV_WR_RDMA_WRITE", &list, Some(&target)))
                .unwrap();
            expect(&values, &mut pair[0], "IBV_WC_SUCCESS");
            assert_eq!(target.bytes(), [7; 64]);
        }
        // In error by command: what is posted is flushed.
        pair[0].stop(true).unwrap();
        pair[0].receive(9, &[]).unwrap();
        assert_eq!(expect(&values, &mut pair[0], "IBV_WC_WR_FLUSH_ERR").id, 9);
        for verbs in pair {
            assert_eq!(verbs.close(), Ok(()));
        }
    });
}

/// `ibv_query_qp` tells what was set, and where the queue pair is.
#[test]
fn queries() {
    with_engine("libmlx5::whole::queries", || {
        let values = values();
        let mut pair = pair();
        let state = |name: &str| values[name] as u32;
        let rights = state("IBV_ACCESS_REMOTE_WRITE")
            | state("IBV_ACCESS_REMOTE_READ")
            | state("IBV_ACCESS_REMOTE_ATOMIC");
        let peer = pair[1].qpn();
        assert_eq!(pair[0].query(), Ok([state("IBV_QPS_RTS"), peer, rights]));
        // In error by itself, not by command.
        let source = Buffer::of(&mut pair[0], &[7; 64]);
        let target = Buffer::of(&mut pair[1], &[0; 64]);
        let list = [source.segment()];
        let mut wrong = request(&values, "IBV_WR_RDMA_WRITE", &list, Some(&target));
        wrong.remote_key ^= 0x100;
        pair[0].post(&wrong).unwrap();
        expect(&values, &mut pair[0], "IBV_WC_REM_ACCESS_ERR");
        assert_eq!(pair[0].query().unwrap()[0], state("IBV_QPS_ERR"));
        pair[0].stop(false).unwrap();
        assert_eq!(pair[0].query().unwrap()[0], state("IBV_QPS_RESET"));
        for verbs in pair {
            assert_eq!(verbs.close(), Ok(()));
        }
    });
}

/// A program closes its device and destroys nothing: its queue pair is gone, and its peer hears nothing any more.
#[test]
fn abandoned() {
    with_engine("libmlx5::whole::abandoned", || {
        let values = values();
        let [mut first, second] = pair();
        let source = Buffer::of(&mut first, &[7; 64]);
        let list = [source.segment()];
        second.abandon().unwrap();
        first
            .post(&request(&values, "IBV_WR_SEND", &list, None))
            .unwrap();
        assert_eq!(
            expect(&values, &mut first, "IBV_WC_RETRY_EXC_ERR").vendor,
            0x81
        );
        assert_eq!(first.close(), Ok(()));
        // The next program finds the device as it was.
        for verbs in pair() {
            assert_eq!(verbs.close(), Ok(()));
        }
    });
}

/// What the engine has not is refused with a number, and the device lives on.
#[test]
fn refusals() {
    with_engine("libmlx5::whole::refusals", || {
        let unsupported = |options: Options| Verbs::open(&options).err();
        let signed = Options {
            signatures: true,
            ..Options::default()
        };
        // EOPNOTSUPP on Linux.
        assert_eq!(unsupported(signed), Some(95));
        // The device has one vector: EINVAL.
        let vector = Options {
            vector: 1,
            ..Options::default()
        };
        assert_eq!(unsupported(vector), Some(22));
        let mut pair = pair();
        // A state that may not follow: EINVAL.
        assert_eq!(pair[0].connect(0x1234), Err(22));
        for verbs in pair {
            assert_eq!(verbs.close(), Ok(()));
        }
    });
}
