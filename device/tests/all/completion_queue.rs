//! Many send queues over one completion queue, with the test in the NIC's place.
#![cfg(not(loom))]

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use warpbell::wqe::{CqeOpcode, Syndrome, Wqe};
use warpbell::{
    Cause, CompletionMember, CompletionQueue, CompletionSlot, Deadline, Exclusive, GpuShared,
    OpenError, PostError, Processor, QueueError, SendQueue, Sharing, Strays, Thread, Ticket,
    WaitError,
};

use crate::common::completion_queue::Common;

const SOON: Deadline = Deadline::after_us(5);
/// For what succeeds, on a machine that is busy.
const PATIENCE: Deadline = Deadline::after_ms(60_000);
const FLUSH_VENDOR: u8 = 0xf9;
const VENDOR: u8 = 0x88;

/// What the NIC has done with a queue.
#[derive(Default)]
struct Done {
    posted: u64,
    /// Behind the last block whose completion is written.
    completed: u64,
}

fn syndrome(error: QueueError) -> (Syndrome, u8, u16) {
    let Cause::Completion(error) = error.cause() else {
        panic!("{error}");
    };
    (error.syndrome, error.vendor.0, error.wqe_index.0)
}

/// So many operations on views of all queues, in random order, beside a NIC that completes in random order.
fn episode<S: Sharing>(queues: u32, depth_log2: u8, ring: usize, operations: u32, seed: u64) {
    let rig = Common::new(queues, depth_log2, ring);
    let mut random = SmallRng::seed_from_u64(seed);
    let mut views: Vec<SendQueue<'_, S, Thread>> = (rig.queues.iter())
        .map(|queue| queue.handle().open().unwrap())
        .collect();
    // Two readers, as two warps would be.
    let mut readers = [rig.handle().open().unwrap(), rig.handle().open().unwrap()];
    let mut done: Vec<Done> = (0..queues).map(|_| Done::default()).collect();
    let mut tickets: Vec<Vec<(u64, Ticket)>> = vec![Vec::new(); queues as usize];
    for _ in 0..operations {
        let at = random.random_range(0..queues as usize);
        let (queue, done) = (&mut views[at], &mut done[at]);
        let reader = &mut readers[random.random_range(0..2)];
        match random.random_range(0..4) {
            0 | 1 => {
                let posted = reader.post(queue, Wqe::nop().signalled(), Deadline::PASSED);
                match posted {
                    Ok(ticket) => {
                        if tickets[at].len() == 1 << depth_log2 {
                            let _ = tickets[at].remove(0);
                        }
                        tickets[at].push((done.posted, ticket));
                        done.posted += 1;
                    }
                    Err(PostError::Deadline) => {
                        let under_way = done.posted - done.completed;
                        assert_eq!(under_way, 1 << depth_log2, "room was there, seed {seed}");
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            2 => {
                let most = done.posted - done.completed;
                for _ in 0..random.random_range(0..=most) {
                    rig.complete(at as u32, done.completed as u16);
                    done.completed += 1;
                }
            }
            _ if tickets[at].is_empty() => {}
            _ => {
                let any = random.random_range(0..tickets[at].len());
                let (block, ticket) = tickets[at][any];
                // A look takes 32 CQEs, and others' may be before ours.
                for _ in 0..ring.div_ceil(32) {
                    reader.poll();
                }
                let found = reader.is_done(queue, ticket);
                let wanted = done.completed > block;
                assert_eq!(found, Ok(wanted), "block {block} of {at}, seed {seed}");
            }
        }
    }
    // Nothing is lost: all that was posted completes, and every view learns of it.
    for (at, (queue, done)) in views.iter_mut().zip(&mut done).enumerate() {
        for index in done.completed..done.posted {
            rig.complete(at as u32, index as u16);
        }
        if let Some(&(_, last)) = tickets[at].last() {
            assert_eq!(
                readers[at % 2].wait(queue, last, PATIENCE),
                Ok(()),
                "queue {at}"
            );
        }
    }
    assert_eq!(rig.state.strays(), Strays::default());
    let written: u64 = done.iter().map(|done| done.posted).sum();
    readers[0].poll();
    assert_eq!(rig.state.taken(), written, "each CQE is taken once");
}

#[test]
fn each_queue_learns_of_its_own_completions_alone() {
    let operations = if cfg!(miri) { 60 } else { 20_000 };
    for (seed, (queues, depth_log2, ring)) in
        [(1, 0, 1), (2, 0, 2), (3, 1, 8), (5, 3, 64), (40, 2, 256)]
            .into_iter()
            .enumerate()
    {
        episode::<Exclusive>(queues, depth_log2, ring, operations, seed as u64);
        episode::<GpuShared>(queues, depth_log2, ring, operations, 100 + seed as u64);
    }
}

/// The 16-bit index of a queue wraps, and the ring with it.
#[test]
#[cfg_attr(miri, ignore = "the same code as without the wrap")]
fn indices_and_laps_wrap() {
    episode::<Exclusive>(2, 4, 32, 600_000, 7);
}

/// Posts a group to each of two queues; the first fails in the midst of its group.
fn fail(reader: &mut CompletionQueue<'_, Thread>, rig: &Common, one_batch: bool) {
    let open = |index: usize| rig.queues[index].handle().open::<Exclusive>().unwrap();
    let (mut first, mut second) = (open(0), open(1));
    let post = |queue: &mut SendQueue<'_, Exclusive, Thread>| {
        [(); 4].map(|()| queue.try_post(Wqe::nop().signalled()).unwrap())
    };
    let (failing, sound) = (post(&mut first), post(&mut second));
    rig.complete(0, 0);
    rig.complete(1, 0);
    rig.complete(0, 1);
    rig.fail(0, 2, Syndrome::REMOTE_ACCESS, VENDOR);
    if !one_batch {
        reader.poll();
    }
    rig.fail(0, 3, Syndrome::FLUSHED, FLUSH_VENDOR);
    for index in 1..4 {
        rig.complete(1, index);
    }
    reader.poll();
    // Through the other queue's wait alone.
    for ticket in sound {
        assert_eq!(reader.wait(&mut second, ticket, PATIENCE), Ok(()));
    }
    for ticket in &failing[..2] {
        assert_eq!(reader.is_done(&mut first, *ticket), Ok(true));
    }
    for ticket in &failing[2..] {
        let Err(WaitError::Failed(error)) = reader.wait(&mut first, *ticket, SOON) else {
            panic!("a failed request is done");
        };
        assert_eq!(syndrome(error), (Syndrome::REMOTE_ACCESS, VENDOR, 2));
    }
    let refused = reader.post(&mut first, Wqe::nop(), SOON);
    assert!(matches!(refused, Err(PostError::Failed(_))), "{refused:?}");
    let posted = reader.post(&mut second, Wqe::nop().signalled(), PATIENCE);
    rig.complete(1, 4);
    assert_eq!(reader.wait(&mut second, posted.unwrap(), PATIENCE), Ok(()));
}

#[test]
fn an_error_stays_with_its_queue_and_keeps_its_cause() {
    for one_batch in [false, true] {
        let rig = Common::new(2, 3, 16);
        fail(&mut rig.handle().open().unwrap(), &rig, one_batch);
    }
}

#[test]
fn a_completion_of_nobody_is_counted_with_its_number() {
    let rig = Common::new(2, 1, 4);
    let mut reader = rig.handle().open().unwrap();
    let mut queue = rig.queues[1].handle().open::<Exclusive>().unwrap();
    let ticket = queue.try_post(Wqe::nop().signalled()).unwrap();
    rig.write(CqeOpcode::REQUESTER, 0x77, 0, 0);
    rig.write(CqeOpcode::REQUESTER_ERROR, 0x78, 0, 0);
    rig.complete(1, 0);
    assert_eq!(reader.wait(&mut queue, ticket, PATIENCE), Ok(()));
    let wanted = Strays {
        count: 2,
        newest: 0x78,
    };
    assert_eq!((reader.strays(), rig.state.strays()), (wanted, wanted));
}

#[test]
fn a_wait_ends_with_its_deadline_and_what_is_not_signalled_gets_one_look() {
    let rig = Common::new(2, 2, 8);
    let mut reader = rig.handle().open().unwrap();
    let mut queue = rig.queues[0].handle().open::<Exclusive>().unwrap();
    // Block 0 is signalled in any case.
    let first = queue.try_post(Wqe::nop()).unwrap();
    assert_eq!(
        reader.wait(&mut queue, first, SOON),
        Err(WaitError::Deadline)
    );
    rig.complete(0, 0);
    // Found by another reader.
    rig.handle().open().unwrap().poll();
    assert_eq!(reader.wait(&mut queue, first, Deadline::PASSED), Ok(()));
    let rig = Common::new(1, 3, 8);
    let mut queue = rig.queues[0].handle().open::<Exclusive>().unwrap();
    let [_, unsignalled] = [(); 2].map(|()| queue.try_post(Wqe::nop()).unwrap());
    let mut reader = rig.handle().open().unwrap();
    let long = Deadline::after_ms(3_600_000);
    let found = reader.wait(&mut queue, unsignalled, long);
    assert_eq!(found, Err(WaitError::NotSignalled));
}

#[test]
fn a_handle_is_checked() {
    let rig = Common::new(1, 0, 1);
    // SAFETY: nobody else has the queue.
    let elsewhere = unsafe { rig.handle().on(Processor::gpu(3)) };
    assert_eq!(elsewhere.open().err(), Some(OpenError::Elsewhere));
    let with_byte = |offset: usize, byte: u8| {
        let mut handle = rig.handle();
        // SAFETY: inside the handle, and part of an integer that `open` checks.
        unsafe { (&raw mut handle).cast::<u8>().add(offset).write(byte) };
        handle.open().err()
    };
    assert_eq!(
        with_byte(0, 0),
        Some(OpenError::NotAHandle {
            magic: u32::from_le_bytes(*b"\0BCQ")
        })
    );
    let version = with_byte(4, 0xee).map(|error| matches!(error, OpenError::Version { .. }));
    assert_eq!(version, Some(true));
    let size = with_byte(6, 1).map(|error| matches!(error, OpenError::Size { found: 1, .. }));
    assert_eq!(size, Some(true));
    assert_eq!(with_byte(49, 2), Some(OpenError::Reach { found: 2 }));
}

#[test]
fn a_table_takes_all_but_one_of_its_places() {
    let mut table = [CompletionMember::FREE; 8];
    let entries: [_; 8] = std::array::from_fn(|_| CompletionSlot::invalid());
    for (qpn, entry) in (0..7).zip(&entries) {
        assert!(CompletionMember::enter(&mut table, qpn * 8, entry));
    }
    let full = !CompletionMember::enter(&mut table, 99, &entries[7]);
    assert!(full, "a search would not end");
    let mut found: Vec<_> = table.iter().map(|member| member.words()).collect();
    found.sort_unstable();
    let wanted = (0..7).zip(&entries).map(|(qpn, entry)| {
        let entry = std::ptr::from_ref(entry).addr() as u64;
        [qpn * 8, entry]
    });
    let mut wanted: Vec<_> = wanted.chain([[0, 0]]).collect();
    wanted.sort_unstable();
    assert_eq!(found, wanted);
}

/// Warps and blocks, whose leaders read for all.
#[cfg(not(miri))]
mod groups {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use warpbell::{Block, Scope, Warp, block, warp};
    use warpbell_cpu_grid::{Grid, LaneOrder, Options, launch};

    use super::*;

    fn run(grid: Grid, order: LaneOrder, kernel: impl Fn() + Sync) {
        let options = Options {
            order,
            deadline: Some(Duration::from_secs(300)),
        };
        launch(grid, options, kernel).unwrap();
    }

    /// A scope posts to its queue, and completions of others come first.
    fn in_scope<C: Scope>(threads: u32, order: LaneOrder) {
        let rig = Common::new(5, 6, 512);
        let rounds = if threads == 32 { 30 } else { 10 };
        let grid = Grid::new(1, threads);
        run(grid, order, || {
            let handle = rig.queues[2].handle();
            // SAFETY: all threads of the scope make all calls together.
            let mut queue = unsafe { handle.open_together::<Exclusive, C>() }.unwrap();
            // SAFETY: as above.
            let mut reader = unsafe { rig.handle().open_together::<C>() }.unwrap();
            for round in 0..rounds {
                let wqe = C::leads().then(|| Wqe::nop().signalled());
                let ticket = queue.post_if(wqe, PATIENCE).unwrap();
                assert_eq!(reader.is_done(&mut queue, ticket), Ok(false));
                C::sync();
                if C::leads() {
                    for other in [0, 1, 3, 4].into_iter().cycle().take(40) {
                        rig.complete(other, round);
                    }
                    rig.complete(2, round);
                }
                C::sync();
                assert_eq!(reader.wait(&mut queue, ticket, PATIENCE), Ok(()));
            }
        });
        assert_eq!(rig.state.taken(), u64::from(rounds) * 41);
        // What was given to others shows there.
        for other in [0, 1, 3, 4] {
            let tail = rig.queues[other].entry().words()[7].load(Ordering::Relaxed);
            let tail = warpbell::wqe::CqeTail(tail);
            assert_eq!(tail.qpn().get(), Common::qpn(other as u32));
            assert_eq!(tail.wqe_counter(), rounds - 1);
        }
    }

    #[test]
    fn a_warp_takes_32_at_once_and_a_block_by_its_leader() {
        for order in [
            LaneOrder::Ascending,
            LaneOrder::Descending,
            LaneOrder::Random(3),
        ] {
            in_scope::<Warp>(32, order);
            in_scope::<Warp>(20, order);
            in_scope::<Block>(70, order);
        }
    }

    /// In one look of a warp: successes, the error, what is flushed behind it, and other queues' between them.
    #[test]
    fn a_warp_keeps_the_first_error_of_each_queue() {
        let rig = Common::new(3, 4, 64);
        for index in 0..4 {
            rig.complete(0, index);
            rig.complete(1, index);
        }
        rig.fail(1, 4, Syndrome::REMOTE_ACCESS, VENDOR);
        for index in 5..9 {
            rig.fail(1, index, Syndrome::FLUSHED, FLUSH_VENDOR);
            rig.complete(0, index - 1);
        }
        rig.write(CqeOpcode::REQUESTER, 0x77, 0, 0);
        let grid = Grid::new(1, 32);
        run(grid, LaneOrder::Descending, || {
            // SAFETY: the warp's lanes make all calls together.
            let mut reader = unsafe { rig.handle().open_together::<Warp>() }.unwrap();
            reader.poll();
        });
        let stray = Strays {
            count: 1,
            newest: 0x77,
        };
        assert_eq!((rig.state.taken(), rig.state.strays()), (18, stray));
        let newest = |queue: usize| {
            let word = rig.queues[queue].entry().words()[7].load(Ordering::Relaxed);
            let tail = warpbell::wqe::CqeTail(word);
            (tail.cqe_opcode(), tail.wqe_counter())
        };
        assert_eq!(newest(0), (CqeOpcode::REQUESTER, 7));
        assert_eq!(newest(1), (CqeOpcode::REQUESTER_ERROR, 4));
        assert_eq!(newest(2).0, CqeOpcode::INVALID);
    }

    /// Warps of several blocks, each with a queue of its own, beside a block that plays the NIC.
    #[test]
    fn warps_read_for_each_other() {
        const WARPS: u32 = 3;
        const BLOCKS: u32 = 2;
        const ROUNDS: u16 = 200;
        let rig = Common::new(WARPS * BLOCKS, 2, 32);
        let left = AtomicU32::new(WARPS * BLOCKS);
        let grid = Grid::new(BLOCKS + 1, 32 * WARPS);
        run(grid, LaneOrder::Random(5), || {
            if block::index() == BLOCKS {
                if block::thread_index() != 0 {
                    return;
                }
                let mut posted = [0; (WARPS * BLOCKS) as usize];
                let mut wait = Deadline::after_ms(300_000).wait();
                while left.load(Ordering::Acquire) != 0 {
                    assert!(!wait.expired(), "the warps wait");
                    for (index, posted) in (0..).zip(&mut posted) {
                        let end = rig.queues[index as usize].producer_index();
                        while *posted != end {
                            rig.complete(index, *posted);
                            *posted = posted.wrapping_add(1);
                        }
                    }
                }
                return;
            }
            let own = block::index() * WARPS + block::thread_index() / 32;
            let handle = rig.queues[own as usize].handle();
            // SAFETY: the warp's lanes make all calls together.
            let mut queue = unsafe { handle.open_together::<Exclusive, Warp>() }.unwrap();
            // SAFETY: as above.
            let mut reader = unsafe { rig.handle().open_together::<Warp>() }.unwrap();
            let long = Deadline::after_ms(300_000);
            for _ in 0..ROUNDS {
                let wqe = Warp::leads().then(|| Wqe::nop().signalled());
                let ticket = queue.post_if(wqe, long).unwrap();
                reader.wait(&mut queue, ticket, long).unwrap();
            }
            drop(queue);
            if warp::lane_id() == 0 {
                left.fetch_sub(1, Ordering::Release);
            }
        });
        let all = u64::from(WARPS * BLOCKS) * u64::from(ROUNDS);
        assert_eq!(
            (rig.state.taken(), rig.state.strays()),
            (all, Strays::default())
        );
        for queue in &rig.queues {
            assert_eq!(queue.state.progress().completed, u64::from(ROUNDS));
        }
    }
}
