//! Warps and blocks that post together, with the test in the NIC's place.
#![cfg(not(any(loom, miri)))]

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use warpbell::wqe::{Local, LocalKey, Opcode, Remote, RemoteKey, Syndrome, Wqe};
use warpbell::{
    Block, BlockShared, CompletionKind, Deadline, Exclusive, GpuShared, OpenError, PostError,
    Scope, Sharing, Thread, WaitError, Warp, block, thread, warp,
};
use warpbell_cpu_grid::{Grid, LaneOrder, Options, launch};

use crate::common::Rig;

const SOON: Deadline = Deadline::after_ms(20);

const ORDERS: [LaneOrder; 3] = [
    LaneOrder::Ascending,
    LaneOrder::Descending,
    LaneOrder::Random(1),
];

/// Runs a kernel on one block.
fn run(threads_per_block: u32, order: LaneOrder, kernel: impl Fn() + Sync) {
    let dim = Grid::new(1, threads_per_block);
    let options = Options {
        order,
        deadline: Some(Duration::from_secs(300)),
    };
    launch(dim, options, kernel).unwrap();
}

/// Runs a kernel on one block once for each order of lanes.
fn run_thrice(threads_per_block: u32, kernel: impl Fn() + Sync) {
    for order in ORDERS {
        run(threads_per_block, order, &kernel);
    }
}

/// A write that tells by its remote address who posted it.
fn write(from: u32) -> Wqe<1> {
    let local = Local {
        address: 0x1000,
        length: 8,
        key: LocalKey(7),
    };
    let remote = Remote {
        address: from as u64,
        key: RemoteKey(9),
    };
    Wqe::write(local, remote)
}

/// Who posted the WQEs in the ring, in order.
fn posters(rig: &Rig, blocks: usize) -> Vec<u64> {
    (0..blocks)
        .map(|block| {
            assert_eq!(rig.control(block), (block as u16, Opcode::RDMA_WRITE));
            u64::from_be(rig.ring_word(block, 2))
        })
        .collect()
}

/// Every thread of a group posts once; one doorbell, in order of rank, the last
/// one signalled, and the ticket is the group's.
fn group<S: Sharing, C: Scope>(threads: u32) {
    for order in ORDERS {
        let rig = Rig::new(12, CompletionKind::Collapsed);
        run(threads, order, || group_kernel::<S, C>(&rig, threads));
    }
}

fn group_kernel<S: Sharing, C: Scope>(rig: &Rig, threads: u32) {
    // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
    let mut queue = unsafe { rig.handle().open_together::<S, C>() }.unwrap();
    let me = block::thread_index();
    // Odd threads only, then all.
    let odd = queue
        .post_if((me % 2 == 1).then(|| write(me)), SOON)
        .unwrap();
    let all = queue.post(write(me).signalled(), SOON).unwrap();
    assert!(all > odd);
    block::sync();
    let (odds, total) = (threads / 2, threads / 2 + threads);
    if me == 0 {
        assert_eq!(rig.doorbell_index(), Some(total as u16));
        assert_eq!(rig.producer_index(), total as u16);
        let posted = posters(rig, total as usize);
        let expected: Vec<u64> = (0..threads as u64)
            .filter(|me| me % 2 == 1)
            .chain(0..threads as u64)
            .collect();
        assert_eq!(posted, expected);
        let signalled = (0..total as usize).filter(|&block| rig.signalled(block));
        // The last of the second group, and what falls on a quarter.
        let expected = (0..total as usize).filter(|&block| block % 1024 == 0);
        let expected: BTreeSet<usize> = expected.chain([total as usize - 1]).collect();
        assert_eq!(signalled.collect::<BTreeSet<_>>(), expected);
    }
    block::sync();
    assert_eq!(queue.wait(all, SOON), Err(WaitError::Deadline));
    if me == 0 {
        rig.complete(0, odds as u16 - 1);
    }
    block::sync();
    assert_eq!(queue.is_done(odd), Ok(true));
    assert_eq!(queue.is_done(all), Ok(false));
    block::sync();
    if me == 0 {
        rig.complete(0, total as u16 - 1);
    }
    assert_eq!(queue.wait(all, Deadline::after_ms(300_000)), Ok(()));
}

#[test]
fn a_warp_posts_together() {
    group::<Exclusive, Warp>(32);
    group::<BlockShared, Warp>(32);
    group::<GpuShared, Warp>(32);
    group::<Exclusive, Warp>(20);
}

#[test]
fn a_block_posts_together() {
    group::<Exclusive, Block>(256);
    group::<BlockShared, Block>(100);
    group::<GpuShared, Block>(1024);
    // As many of a block as a warp has lanes, which are no warp.
    group::<BlockShared, Block>(64);
}

/// A thread whose WQE is refused is told so; the others' are posted.
#[test]
fn a_bad_lane_harms_nobody() {
    let rig = Rig::new(10, CompletionKind::Collapsed);
    let refused = Mutex::new(0);
    run_thrice(32, || {
        // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
        let mut queue = unsafe { rig.handle().open_together::<Exclusive, Warp>() }.unwrap();
        let bad = warp::lane_id() == 3;
        let wqe = if bad {
            Wqe::send(Local::default())
        } else {
            write(0)
        };
        match queue.post(wqe, SOON) {
            Err(PostError::Empty) if bad => *refused.lock().unwrap() += 1,
            Ok(_) if !bad => {}
            other => panic!("lane {}: {other:?}", warp::lane_id()),
        }
        // The whole group is refused alike.
        let huge = queue.batch(513, SOON).err();
        let limit = 512;
        assert_eq!(huge, Some(PostError::TooManyBlocks { asked: 513, limit }));
    });
    assert_eq!(*refused.lock().unwrap(), 3);
    assert_eq!(rig.producer_index(), 3 * 31);
}

/// A group takes half of the ring at most, however much of it is free.
#[test]
fn a_group_too_large_for_the_ring_is_refused() {
    fn refused<S: Sharing>() {
        let rig = Rig::new(5, CompletionKind::Collapsed);
        run_thrice(32, || {
            // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
            let mut queue = unsafe { rig.handle().open_together::<S, Warp>() }.unwrap();
            let (asked, limit) = (32, 16);
            assert_eq!(
                queue.post(write(0), SOON),
                Err(PostError::TooManyBlocks { asked, limit })
            );
        });
        assert_eq!(rig.doorbell_index(), None, "nothing was posted");
    }
    refused::<Exclusive>();
    refused::<BlockShared>();
    refused::<GpuShared>();
}

/// Where no thread has a WQE, nothing is posted, and that is done.
#[test]
fn a_group_of_nobody_posts_nothing() {
    fn nobody<S: Sharing, C: Scope>(threads: u32) {
        let rig = Rig::new(8, CompletionKind::Collapsed);
        run_thrice(threads, || {
            // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
            let mut queue = unsafe { rig.handle().open_together::<S, C>() }.unwrap();
            let ticket = queue.post_if::<1>(None, SOON).unwrap();
            assert_eq!(queue.wait(ticket, Deadline::PASSED), Ok(()));
            // And behind others.
            let _ = queue.post(write(0), SOON).unwrap();
            let _ = queue.post_if::<1>(None, SOON).unwrap();
        });
        assert_eq!(u32::from(rig.producer_index()), 3 * threads);
        let index = rig.doorbell_index().map(u32::from);
        assert_eq!(index, Some(3 * threads));
    }
    nobody::<Exclusive, Warp>(32);
    nobody::<GpuShared, Warp>(32);
    nobody::<Exclusive, Block>(40);
    nobody::<BlockShared, Block>(40);
}

/// Warps that share a queue: who posts behind another begins where that one ended, and then where it ended itself.
#[test]
fn warps_take_turns() {
    const TURNS: [u32; 6] = [0, 1, 1, 0, 0, 1];
    let rig = Rig::new(10, CompletionKind::Collapsed);
    run_thrice(64, || {
        let own = thread::thread_idx_x() / 32;
        // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
        let mut queue = unsafe { rig.handle().open_together::<GpuShared, Warp>() }.unwrap();
        let first = rig.producer_index() as usize;
        block::sync();
        for turn in TURNS {
            if turn == own {
                let _ = queue.post(write(own), SOON).unwrap();
            }
            block::sync();
        }
        if thread::thread_idx_x() == 0 {
            let posted = (first..rig.producer_index() as usize)
                .map(|block| u64::from_be(rig.ring_word(block, 2)));
            let expected = TURNS.iter().flat_map(|&turn| [u64::from(turn); 32]);
            assert!(posted.eq(expected));
        }
        block::sync();
    });
}

/// A batch of a warp: each post is the warp's, one doorbell at the end.
#[test]
fn a_warp_batches() {
    let rig = Rig::new(10, CompletionKind::Collapsed);
    run_thrice(32, || {
        // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
        let mut queue = unsafe { rig.handle().open_together::<GpuShared, Warp>() }.unwrap();
        let before = rig.producer_index();
        warp::sync();
        let mut batch = queue.batch(70, SOON).unwrap();
        for round in 0..2 {
            let _ = batch.post(write(round)).unwrap();
        }
        assert_eq!(batch.room(), 6);
        assert_eq!(rig.producer_index(), before);
        warp::sync();
        drop(batch);
        warp::sync();
        assert_eq!(rig.producer_index(), before + 70, "six NOPs fill the batch");
        warp::sync();
    });
}

/// Threads that share a queue, each on its own: every WQE arrives once.
fn threads_share<S: Sharing>(threads: u32) {
    let rig = Rig::new(12, CompletionKind::Collapsed);
    run_thrice(threads, || {
        let mut queue = rig.handle().open::<S>().unwrap();
        let _ = queue.post(write(thread::thread_idx_x()), SOON).unwrap();
    });
    let total = 3 * threads as usize;
    assert_eq!(rig.producer_index() as usize, total);
    let mut posted = posters(&rig, total);
    posted.sort_unstable();
    let expected: Vec<u64> = (0..threads as u64).flat_map(|me| [me; 3]).collect();
    assert_eq!(posted, expected);
}

#[test]
fn threads_share_a_queue() {
    threads_share::<BlockShared>(32);
    threads_share::<GpuShared>(1024);
}

/// Who brings no WQE, or a refused one, does not decide for the group whether
/// it is reported: whoever asks for a completion does.
fn asks<S: Sharing, C: Scope>(threads: u32) {
    let rig = Rig::new(12, CompletionKind::Collapsed);
    run(threads, LaneOrder::Ascending, || {
        // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
        let mut queue = unsafe { rig.handle().open_together::<S, C>() }.unwrap();
        let me = block::thread_index();
        // Past the block that is signalled in any case.
        let _ = queue.post(write(me), SOON).unwrap();
        let silent = queue.post_if((me % 2 == 1).then(|| write(me)), SOON);
        let silent = silent.unwrap();
        assert_eq!(queue.wait(silent, SOON), Err(WaitError::NotSignalled));
        let one_asks = match me {
            0 => None,
            1 => Some(write(me).signalled()),
            _ => Some(write(me)),
        };
        let loud = queue.post_if(one_asks, SOON).unwrap();
        assert_eq!(queue.wait(loud, SOON), Err(WaitError::Deadline));
    });
    // All but the last group's end is silent.
    let total = threads + threads / 2 + threads - 1;
    let signalled: Vec<usize> = (0..total as usize)
        .filter(|&block| rig.signalled(block))
        .collect();
    assert_eq!(signalled, [0, total as usize - 1]);
}

#[test]
fn whoever_asks_is_answered() {
    asks::<Exclusive, Warp>(32);
    asks::<GpuShared, Warp>(32);
    asks::<Exclusive, Block>(100);
}

/// An error that becomes known while a warp opens the queue: all lanes learn the same.
#[test]
fn a_warp_opens_or_not_together() {
    for order in ORDERS {
        let rig = Rig::new(6, CompletionKind::Collapsed);
        let mut before = rig.handle().open::<GpuShared>().unwrap();
        let ticket = before.try_post(Wqe::nop().signalled()).unwrap();
        rig.fail(0, 0, Syndrome::REMOTE_ACCESS, 0x88);
        let before = Mutex::new(before);
        let opened = AtomicU32::new(0);
        run(32, order, || {
            if warp::lane_id() == 5 {
                assert!(before.lock().unwrap().is_done(ticket).is_err());
            }
            // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
            match unsafe { rig.handle().open_together::<GpuShared, Warp>() } {
                Ok(_) => {
                    opened.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => assert!(matches!(error, OpenError::Failed(_))),
            }
        });
        assert!([0, 32].contains(&opened.into_inner()));
    }
}

/// A queue shared by a block is that block's: another block's ordering would
/// not reach it.
#[test]
fn a_block_shares_with_no_other() {
    let rig = Rig::new(6, CompletionKind::Collapsed);
    let dim = Grid::new(2, 2);
    let step = AtomicU32::new(0);
    let wait_for = |least: u32| {
        let mut wait = Deadline::after_ms(300_000).wait();
        while step.load(Ordering::Relaxed) < least {
            assert!(!wait.expired(), "step {least} never came");
        }
    };
    launch(dim, Options::default(), || {
        let open = || rig.handle().open::<BlockShared>();
        if thread::block_idx_x() == 0 {
            let queue = open();
            assert!(queue.is_ok());
            step.fetch_add(1, Ordering::Relaxed);
            wait_for(4);
            drop(queue);
            step.fetch_add(1, Ordering::Relaxed);
        } else {
            wait_for(2);
            assert_eq!(open().err(), Some(OpenError::InUse));
            let gpu_wide = rig.handle().open::<GpuShared>();
            assert_eq!(gpu_wide.err(), Some(OpenError::InUse));
            step.fetch_add(1, Ordering::Relaxed);
            wait_for(6);
            assert!(open().is_ok(), "it is free again");
            let _gpu_wide = rig.handle().open::<GpuShared>().unwrap();
            assert_eq!(open().err(), Some(OpenError::InUse));
        }
    })
    .unwrap();
    assert!(rig.handle().open::<Exclusive>().is_ok());
}

/// A full queue answers all threads of a warp alike.
#[test]
fn no_room_for_a_warp() {
    let rig = Rig::new(6, CompletionKind::Collapsed);
    run(32, LaneOrder::Ascending, || {
        // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
        let mut queue = unsafe { rig.handle().open_together::<Exclusive, Warp>() }.unwrap();
        let first = queue.try_post(write(1)).unwrap();
        let _ = queue.try_post(write(2)).unwrap();
        assert_eq!(queue.try_post(write(3)), Err(PostError::NoRoom));
        assert_eq!(
            queue.post(write(3), Deadline::after_us(50)),
            Err(PostError::Deadline)
        );
        if warp::lane_id() == 0 {
            rig.complete(0, 31);
        }
        warp::sync();
        let _ = queue.try_post(write(3)).unwrap();
        assert_eq!(queue.is_done(first), Ok(true));
    });
    assert_eq!(rig.producer_index(), 96);
}

/// After an error nobody posts, though the leader had found room for more. That is so whether the error comes with the
/// news that was waited for, or in its place.
fn failed<S: Sharing, C: Scope>(threads: u32) {
    for waits_for_done in [true, false] {
        let rig = Rig::new(10, CompletionKind::Collapsed);
        run(threads, LaneOrder::Ascending, || {
            // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
            let mut queue = unsafe { rig.handle().open_together::<S, C>() }.unwrap();
            let done = queue.try_post(write(0).signalled()).unwrap();
            let failed = queue.try_post(write(1).signalled()).unwrap();
            if block::thread_index() == 0 {
                let index = 2 * threads as u16 - 1;
                rig.fail(0, index, Syndrome::REMOTE_ACCESS, 0x88);
            }
            block::sync();
            if waits_for_done {
                assert_eq!(queue.wait(done, SOON), Ok(()));
            } else {
                let told = queue.wait(failed, SOON);
                assert!(matches!(told, Err(WaitError::Failed(_))), "{told:?}");
            }
            let refused = queue.try_post(write(2));
            assert!(matches!(refused, Err(PostError::Failed(_))), "{refused:?}");
        });
        assert_eq!(u32::from(rig.producer_index()), 2 * threads);
    }
}

#[test]
fn nobody_posts_after_an_error() {
    failed::<Exclusive, Thread>(1);
    failed::<GpuShared, Thread>(1);
    failed::<Exclusive, Warp>(32);
    failed::<GpuShared, Warp>(32);
    failed::<Exclusive, Block>(64);
    failed::<BlockShared, Block>(64);
}

/// Two whole warps and one of six lanes.
#[test]
fn a_scope_numbers_its_threads() {
    fn place<C: Scope>() -> (u32, u32, bool) {
        (C::size(), C::rank(), C::leads())
    }
    run(70, LaneOrder::Ascending, || {
        let me = block::thread_index();
        let lane = me % 32;
        let lanes = if me < 64 { 32 } else { 6 };
        assert_eq!(place::<Thread>(), (1, 0, true));
        assert_eq!(place::<Warp>(), (lanes, lane, lane == 0));
        assert_eq!(place::<Block>(), (70, me, me == 0));
    });
}

/// Each WQE of a group has room for the largest: a shorter one leaves a NOP behind it.
fn padded<S: Sharing, C: Scope>(threads: u32) {
    let remote = Remote {
        address: 0,
        key: RemoteKey(9),
    };
    let [short, long] = [8, 40].map(|bytes| {
        let bytes = &[5; 40][..bytes];
        Wqe::<2>::write_inline(bytes, remote).unwrap()
    });
    let rig = Rig::new(10, CompletionKind::Collapsed);
    run(threads, LaneOrder::Ascending, || {
        // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
        let mut queue = unsafe { rig.handle().open_together::<S, C>() }.unwrap();
        for _ in 0..2 {
            let own = match block::thread_index() % 2 {
                0 => short,
                _ => long,
            };
            let _ = queue.post(own, SOON).unwrap();
        }
    });
    let blocks = 4 * threads as usize;
    assert_eq!(usize::from(rig.producer_index()), blocks);
    for block in (0..blocks).step_by(2) {
        let (index, next) = (block as u16, block as u16 + 1);
        assert_eq!(rig.control(block), (index, Opcode::RDMA_WRITE));
        if block % 4 == 0 {
            assert_eq!(rig.control(block + 1), (next, Opcode::NOP));
        } else {
            // The last 12 of 40 bytes inline lie here.
            assert_eq!(rig.ring_word(block + 1, 1) as u32, 0x0505_0505);
        }
    }
}

#[test]
fn a_group_is_padded_to_its_largest_wqe() {
    padded::<Exclusive, Warp>(32);
    padded::<GpuShared, Warp>(32);
    padded::<Exclusive, Block>(64);
    padded::<BlockShared, Block>(64);
}

/// Without a look at the credit, too, one thread reserves for all, and each view goes on where the one before it ended.
fn unchecked<S: Sharing, C: Scope>(threads: u32) {
    let rig = Rig::new(10, CompletionKind::Collapsed);
    run_thrice(threads, || {
        // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
        let mut queue = unsafe { rig.handle().open_together::<S, C>() }.unwrap();
        for _ in 0..2 {
            let me = block::thread_index();
            // SAFETY: the ring has room for all.
            let _ = unsafe { queue.post_unchecked(write(me)) }.unwrap();
        }
    });
    let total = 6 * threads as usize;
    assert_eq!(usize::from(rig.producer_index()), total);
    let expected = (0..6).flat_map(|_| 0..u64::from(threads));
    assert!(posters(&rig, total).into_iter().eq(expected));
}

#[test]
fn a_group_posts_without_a_look_at_the_credit() {
    unchecked::<Exclusive, Warp>(32);
    unchecked::<GpuShared, Warp>(32);
    unchecked::<BlockShared, Block>(64);
}

/// Threads of a scope that bring different queues get an error, all of them, and claim none.
fn apart<C: Scope>(threads: u32) {
    let rigs = [0, 1].map(|_| Rig::new(8, CompletionKind::Collapsed));
    run_thrice(threads, || {
        let part = block::thread_index() >= threads / 2;
        // SAFETY: no queue comes of it that a call could be made on.
        let opened = unsafe {
            rigs[usize::from(part)]
                .handle()
                .open_together::<Exclusive, C>()
        };
        assert_eq!(opened.err(), Some(OpenError::Apart));
    });
    for rig in &rigs {
        rig.handle().open::<Exclusive>().expect("nobody has it");
    }
}

#[test]
fn a_warp_opens_one_queue() {
    apart::<Warp>(32);
    apart::<Warp>(20);
}

#[test]
fn a_block_opens_one_queue() {
    apart::<Block>(96);
}
