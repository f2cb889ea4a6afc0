//! Queue pairs with one completion queue in common, on CPU threads with the NICs of software.

use std::sync::atomic::Ordering;

use mlx5_wqe::{Local, Remote, RemoteKey, Syndrome, Wqe};
use warpbell::{
    Cause, CompletionQueueHandle, Deadline, Exclusive, SendQueueHandle, Slice, Strays, WaitError,
    Warp, Word64, thread,
};

use super::node::nodes;
use super::resident::resident;
use super::{ALL, PATIENT, bytes_of, region, threaded};
use crate::{
    Completions, Error, Grid, Launch, MemoryRegion, ProtectionDomain, QueuePair, QueuePairConfig,
    connect, entry,
};

const LIMIT: Deadline = Deadline::after_ms(300_000);

/// Queues of 8 blocks without receive queues.
fn config() -> QueuePairConfig {
    QueuePairConfig {
        send_depth: 8,
        receive_depth: 0,
        timers: PATIENT,
        ..QueuePairConfig::granting(ALL)
    }
}

/// Connects each queue pair with one of another domain.
fn connected(
    pairs: &mut [QueuePair],
    far: &ProtectionDomain,
    config: &QueuePairConfig,
) -> Vec<QueuePair> {
    let connect_one = |ours| {
        let mut theirs = far.queue_pair(config).unwrap();
        connect(ours, &mut theirs).unwrap();
        theirs
    };
    pairs.iter_mut().map(connect_one).collect()
}

/// Two domains on a device each, on threads of their own.
fn ends() -> [ProtectionDomain; 2] {
    [threaded(), threaded()].map(|device| device.protection_domain().unwrap())
}

fn add(found: &MemoryRegion, counters: &MemoryRegion, place: usize) -> Wqe<1> {
    let found = found.local(8 * place, 8).unwrap();
    let counter = counters.remote().at(8 * place, 8).unwrap();
    Wqe::fetch_add(found, counter, 1).signalled()
}

fn word(region: &MemoryRegion, place: usize) -> u64 {
    let mut bytes = [0; 8];
    region.read(8 * place, &mut bytes).unwrap();
    u64::from_ne_bytes(bytes)
}

/// Threads with two queues each: each request is done once and in order, whoever reads its CQE. The ring has room for
/// the CQEs of all queues and no more, so it wraps often.
#[test]
fn threads_find_each_others_completions() {
    find_each_others_completions(ends(), 2_000);
}

/// A NIC of several engines carries out all queue pairs of a completion queue in one of them.
#[test]
fn engines_do_not_share_a_completion_queue() {
    let device = resident();
    find_each_others_completions([(); 2].map(|()| device.protection_domain().unwrap()), 100);
}

fn find_each_others_completions([near, far]: [ProtectionDomain; 2], rounds: u64) {
    const THREADS: usize = 4;
    let queues = 2 * THREADS;
    let (common, mut pairs) = near
        .queue_pairs_with_common_completions(&config(), queues as u32)
        .unwrap();
    assert_eq!(common.depth(), 64);
    let _others = connected(&mut pairs, &far, &config());
    let found = region(&near, 8 * queues, 0xff, ALL);
    let counters = region(&far, 8 * queues, 0, ALL);
    std::thread::scope(|scope| {
        for own in pairs.chunks(2).enumerate() {
            let (pairs, common, found, counters) = (&pairs, &common, &found, &counters);
            scope.spawn(move || {
                let (at, own) = own;
                let mut completions = common.handle(pairs).unwrap().open().unwrap();
                let mut queues: Vec<_> = (own.iter())
                    .map(|pair| pair.send_queue().unwrap().open::<Exclusive>().unwrap())
                    .collect();
                let mut last = [None; 2];
                for round in 0..rounds {
                    for (index, queue) in queues.iter_mut().enumerate() {
                        let wqe = add(found, counters, 2 * at + index);
                        last[index] = Some(completions.post(queue, wqe, LIMIT).unwrap());
                    }
                    // Now and then to the end, and mostly with requests under way.
                    if round % 7 == 0 {
                        let queue = (round % 2) as usize;
                        let ticket = last[queue].unwrap();
                        completions.wait(&mut queues[queue], ticket, LIMIT).unwrap();
                        assert_eq!(word(found, 2 * at + queue), round, "an order of its own");
                    }
                }
                for (queue, last) in queues.iter_mut().zip(last) {
                    completions.wait(queue, last.unwrap(), LIMIT).unwrap();
                }
            });
        }
    });
    for queue in 0..queues {
        assert_eq!(word(&counters, queue), rounds);
        assert_eq!(word(&found, queue), rounds - 1);
    }
    common.handle(&pairs).unwrap().open().unwrap().poll();
    assert_eq!(common.taken(), rounds * queues as u64, "each CQE once");
    assert_eq!(common.strays(), Strays::default());
}

/// One queue's request is refused by the other end. It keeps the cause, what is behind it is flushed, and the other
/// queues go on.
#[test]
fn an_error_is_its_queues_alone() {
    let [near, far] = ends();
    let (common, mut pairs) = near
        .queue_pairs_with_common_completions(&config(), 3)
        .unwrap();
    let _others = connected(&mut pairs, &far, &config());
    let source = region(&near, 64, 7, ALL);
    let target = region(&far, 64 * 3, 0, ALL);
    let mut completions = common.handle(&pairs).unwrap().open().unwrap();
    let mut queues: Vec<_> = (pairs.iter())
        .map(|pair| pair.send_queue().unwrap().open::<Exclusive>().unwrap())
        .collect();
    let write = |queue: usize| {
        let there = target.remote().at(64 * queue, 64).unwrap();
        Wqe::write(source.local(0, 64).unwrap(), there).signalled()
    };
    let bad = Remote {
        address: 0,
        key: RemoteKey(0xdead),
    };
    let bad = Wqe::write(source.local(0, 64).unwrap(), bad).signalled();
    let before = completions.post(&mut queues[1], write(1), LIMIT).unwrap();
    let failed = completions.post(&mut queues[1], bad, LIMIT).unwrap();
    let flushed = completions.post(&mut queues[1], write(1), LIMIT);
    for queue in [0, 2] {
        for _ in 0..20 {
            let ticket = completions
                .post(&mut queues[queue], write(queue), LIMIT)
                .unwrap();
            completions.wait(&mut queues[queue], ticket, LIMIT).unwrap();
        }
    }
    assert_eq!(completions.wait(&mut queues[1], before, LIMIT), Ok(()));
    for ticket in [failed].into_iter().chain(flushed) {
        let found = completions.wait(&mut queues[1], ticket, LIMIT);
        let Err(WaitError::Failed(error)) = found else {
            panic!("{found:?}");
        };
        let Cause::Completion(cause) = error.cause() else {
            panic!("{error}");
        };
        assert_eq!(cause.syndrome, Syndrome::REMOTE_ACCESS);
        assert_eq!((cause.wqe_index.0, cause.qpn.get()), (1, pairs[1].qpn()));
    }
    drop(queues);
    assert!(pairs[0].first_error().is_none() && pairs[1].first_error().is_some());
    assert_eq!(bytes_of(&target), [7; 64 * 3]);
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Adds<'a> {
    completions: CompletionQueueHandle<'a>,
    queues: Slice<'a, SendQueueHandle<'a>>,
    found: Local,
    counters: Remote,
    rounds: u64,
    done: &'a Word64,
}

/// Each warp has a queue of its own.
#[warpbell::kernel]
fn adds(p: Adds<'_>) {
    let own = thread::index() / thread::warp_size();
    let handle = p.queues.get(own.into()).expect("a queue for each warp");
    // SAFETY: the lanes of a warp make all calls together.
    let mut queue = unsafe { handle.open_together::<Exclusive, Warp>() }.expect("a good handle");
    // SAFETY: as above.
    let mut completions = unsafe { p.completions.open_together::<Warp>() }.expect("a good handle");
    let at = |address: u64| address + 8 * u64::from(own);
    let found = Local {
        address: at(p.found.address),
        length: 8,
        ..p.found
    };
    let counter = Remote {
        address: at(p.counters.address),
        ..p.counters
    };
    for _ in 0..p.rounds {
        // Every lane adds 1; the last one's completion is that of all.
        let add = Wqe::fetch_add(found, counter, 1).signalled();
        let ticket = completions.post(&mut queue, add, LIMIT).expect("room");
        completions
            .wait(&mut queue, ticket, LIMIT)
            .expect("an answer");
    }
    if warpbell::warp::lane_id() == 0 {
        p.done.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn warps_of_every_nic_share_it() {
    const WARPS: u32 = 6;
    const ROUNDS: u64 = 20;
    for node in nodes() {
        let [near, far] = node.ends().unwrap();
        let config = QueuePairConfig {
            send_depth: 64,
            ..config()
        };
        let (common, mut pairs) = near
            .queue_pairs_with_common_completions(&config, WARPS)
            .unwrap();
        let others = connected(&mut pairs, &far, &config);
        let bytes = 8 * WARPS as usize;
        let found = near.allocate(bytes, ALL).unwrap();
        let counters = far.allocate(bytes, ALL).unwrap();
        let queues = node
            .shared_slice(pairs.len(), |queue| pairs[queue].send_queue().unwrap())
            .unwrap();
        let done = node.words(1).unwrap();
        let parameters = Adds {
            completions: common.handle(&pairs).unwrap(),
            queues: Slice::new(&queues),
            found: found.local(0, bytes as u32).unwrap(),
            counters: counters.remote().at(0, bytes as u32).unwrap(),
            rounds: ROUNDS,
            done: &done[0],
        };
        let grid = Grid::new(2, 32 * WARPS / 2);
        let launch = Launch::new(entry!(adds), grid, parameters);
        let watched: Vec<_> = pairs.iter().chain(&others).collect();
        node.run(&[launch], &watched).unwrap();
        assert_eq!(done[0].load(Ordering::Relaxed), u64::from(WARPS));
        for warp in 0..WARPS as usize {
            assert_eq!(word(&counters, warp), 32 * ROUNDS, "{:?}", node.nic());
        }
        assert_eq!(common.strays(), Strays::default());
    }
}

#[test]
fn what_does_not_fit_has_its_error() {
    let [near, far] = ends();
    let refused = |config: QueuePairConfig, count| {
        let made = near.queue_pairs_with_common_completions(&config, count);
        made.expect_err("refused")
    };
    let with = |send_completions| QueuePairConfig {
        send_completions,
        ..config()
    };
    assert_matches!(refused(with(Completions::Collapsed), 2) => Error::CollapsedCommon);
    assert_matches!(
        refused(with(Completions::Ordinary { depth: Some(32) }), 5) =>
            Error::CompletionQueueTooSmall { what: "common", depth: 32, needed: 40 }
    );
    assert_matches!(refused(config(), 0) => Error::DepthOutOfRange { depth: 0, .. });
    assert_matches!(refused(config(), u32::MAX) => Error::DepthOutOfRange { .. });
    let limit = near.device().limits().max_completion_depth;
    assert!(
        matches!(refused(config(), limit / 8 + 1), Error::DepthOutOfRange { limit: found, .. } if found == limit)
    );

    let (common, mut pairs) = near
        .queue_pairs_with_common_completions(&with(Completions::Ordinary { depth: Some(128) }), 3)
        .unwrap();
    assert_eq!(common.depth(), 128);
    assert_matches!(pairs[1].reset() => Err(Error::CommonReset { .. }));
    let (_, foreign) = near
        .queue_pairs_with_common_completions(&config(), 3)
        .unwrap();
    let own = far.queue_pair(&config()).unwrap();
    assert!(common.handle(&pairs).is_ok());
    let refused = |pairs: Vec<&QueuePair>| match common.handle(pairs) {
        Err(Error::NotItsQueuePairs {
            wanted: 3, found, ..
        }) => found,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(vec![]), 0);
    assert_eq!(refused(pairs[..2].iter().collect()), 2);
    assert_eq!(refused(foreign.iter().collect()), 0);
    assert_eq!(refused(vec![&pairs[0], &pairs[1], &pairs[1]]), 2);
    assert_eq!(refused(pairs.iter().chain([&own]).collect()), 3);
}

/// The ring stays as long as a queue pair may write to it, in whatever order all are dropped.
#[test]
fn the_ring_outlives_its_queue_pairs() {
    let [near, far] = ends();
    for order in 0..3 {
        let (common, mut pairs) = near
            .queue_pairs_with_common_completions(&config(), 2)
            .unwrap();
        let _others = connected(&mut pairs, &far, &config());
        let last = pairs.pop().unwrap();
        match order {
            0 => drop(common),
            1 => {
                drop(last);
                assert_eq!(common.keepers(), 2, "a queue pair is still there");
                drop(pairs);
                assert_eq!(common.keepers(), 1, "the device would not let go of one");
            }
            _ => drop(last),
        }
    }
}

/// Nothing of it stays in a device: one among the kernels has room for few.
#[test]
fn what_is_dropped_makes_room() {
    for node in nodes() {
        let domain = node.domain().unwrap();
        for _ in 0..100 {
            let made = domain.queue_pairs_with_common_completions(&config(), 8);
            let (common, pairs) = made.unwrap();
            drop((common, pairs));
        }
    }
}

/// A queue pair takes an entry, in place of a ring; without a receive queue it takes no more than two lines beside it.
#[test]
fn an_entry_takes_the_place_of_a_ring() {
    let [near, _] = ends();
    let (common, pairs) = near
        .queue_pairs_with_common_completions(&config(), 4)
        .unwrap();
    assert_eq!(pairs[0].completion_bytes(), 3 * 64);
    let own = near.queue_pair(&config()).unwrap();
    assert_eq!(own.completion_bytes(), 8 * 64 + 2 * 64);
    // Ring and record; state, and a table of 8 places.
    assert_eq!(common.bytes(), (32 * 64 + 64) + (128 + 8 * 16));
}
