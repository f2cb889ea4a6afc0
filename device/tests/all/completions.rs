//! A ring of completions whose consumer index nobody tells the NIC, against a plain model: what has completed, and the
//! cause of an error, for views that post, look and sleep in random order.
#![cfg(not(loom))]

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use warpbell::wqe::{Remote, RemoteKey, Syndrome, Wqe};
use warpbell::{
    BlockShared, Cause, CompletionKind, Deadline, Exclusive, GpuShared, PostError, QueueError,
    SendQueue, Sharing, Thread, Ticket,
};

use crate::common::Rig;

const FLUSH_VENDOR: u8 = 0xf9;
const VENDOR: u8 = 0x88;

/// What the NIC has done.
struct Nic<'a> {
    rig: &'a Rig,
    /// CQEs written.
    cqes: usize,
    /// The block behind the last WQE that it went through, and behind the last one posted.
    head: u64,
    posted: u64,
    /// The newest block of which a CQE says that it is complete.
    newest: Option<u64>,
    failed: Option<u16>,
}

impl Nic<'_> {
    /// Takes note of posts up to the doorbell record's index.
    fn listen(&mut self) {
        let ahead = self.rig.producer_index().wrapping_sub(self.posted as u16);
        self.posted += u64::from(ahead);
    }

    /// Goes through up to `count` WQEs.
    fn run(&mut self, count: usize) {
        self.listen();
        for _ in 0..count {
            if self.head == self.posted {
                return;
            }
            let (block, index) = (self.head as usize, self.head as u16);
            let segments = u64::from_be(self.rig.ring_word(block, 0)) & 0x3f;
            if self.failed.is_some() {
                // Flushed, whether or not it asks for a CQE.
                self.rig
                    .fail(self.cqes, index, Syndrome::FLUSHED, FLUSH_VENDOR);
                self.cqes += 1;
            } else if self.rig.signalled(block) {
                self.rig.complete(self.cqes, index);
                self.cqes += 1;
                self.newest = Some(self.head);
            }
            self.head += segments.div_ceil(4);
        }
    }

    /// Fails the next WQE.
    fn fail(&mut self) {
        let index = self.head as u16;
        self.rig
            .fail(self.cqes, index, Syndrome::REMOTE_ACCESS, VENDOR);
        self.cqes += 1;
        self.failed = Some(index);
        let segments = u64::from_be(self.rig.ring_word(self.head as usize, 0)) & 0x3f;
        self.head += segments.div_ceil(4);
    }
}

/// Posts a WQE of a block or two, if there is room; gives its first block.
fn post<S: Sharing>(
    queue: &mut SendQueue<'_, S, Thread>,
    random: &mut SmallRng,
    nic: &mut Nic<'_>,
) -> Result<Option<(u64, Ticket)>, QueueError> {
    nic.listen();
    let start = nic.posted;
    let there = Remote {
        address: 0,
        key: RemoteKey(9),
    };
    let signalled = random.random_bool(0.4);
    let posted = if queue.depth() >= 8 && random.random_bool(0.2) {
        let wqe = Wqe::<2>::write_inline(&[5; 40], there).unwrap();
        queue.try_post(if signalled { wqe.signalled() } else { wqe })
    } else {
        let wqe = Wqe::nop();
        queue.try_post(if signalled { wqe.signalled() } else { wqe })
    };
    match posted {
        Ok(ticket) => Ok(Some((start, ticket))),
        Err(PostError::NoRoom) => Ok(None),
        Err(PostError::Failed(error)) => Err(error),
        Err(other) => panic!("{other}"),
    }
}

/// So many operations of so many views, then an error in the midst of requests under way.
fn episode<S: Sharing>(log2: u8, views: usize, operations: u32, seed: u64) {
    let rig = Rig::new(log2, CompletionKind::Ordinary);
    let mut nic = Nic {
        rig: &rig,
        cqes: 0,
        head: 0,
        posted: 0,
        newest: None,
        failed: None,
    };
    let mut random = SmallRng::seed_from_u64(seed);
    let mut queues: Vec<_> = (0..views)
        .map(|_| rig.handle().open::<S>().unwrap())
        .collect();
    let mut tickets: Vec<(u64, Ticket)> = Vec::new();
    for _ in 0..operations {
        // Most of the time one view is at it, as if it were alone.
        let view = match random.random_bool(0.1) {
            true => random.random_range(0..views),
            false => 0,
        };
        let queue = &mut queues[view];
        match random.random_range(0..5) {
            0 | 1 => {
                for _ in 0..random.random_range(1..=16) {
                    let posted = post(queue, &mut random, &mut nic).expect("no error yet");
                    let Some(posted) = posted else {
                        break;
                    };
                    if tickets.len() == 64 {
                        let _ = tickets.remove(0);
                    }
                    tickets.push(posted);
                }
            }
            2 => {
                // Nothing, one, or all.
                let most = random.random_range(0..4) * random.random_range(0..40);
                nic.run(most);
            }
            _ if tickets.is_empty() => {}
            _ => {
                // Mostly the newest.
                let back = match random.random_bool(0.7) {
                    true => 0,
                    false => random.random_range(0..tickets.len()),
                };
                let (block, ticket) = tickets[tickets.len() - 1 - back];
                let done = nic.newest.is_some_and(|newest| newest >= block);
                assert_eq!(
                    queue.is_done(ticket),
                    Ok(done),
                    "block {block}, view {view}, seed {seed}, depth 2^{log2}"
                );
            }
        }
    }
    // A request fails; all behind it are flushed, and so is what views post that do not know yet.
    nic.listen();
    while nic.head == nic.posted {
        let queue = &mut queues[0];
        let posted = post(queue, &mut random, &mut nic).expect("no error yet");
        assert!(posted.is_some(), "no room in an idle queue");
        tickets.extend(posted);
        nic.listen();
    }
    nic.fail();
    nic.run(usize::MAX);
    for queue in &mut queues {
        // Without a look at what has completed, until there is no more room.
        for _ in 0..1 << log2 {
            if !matches!(post(queue, &mut random, &mut nic), Ok(Some(_))) {
                break;
            }
            nic.run(usize::MAX);
        }
    }
    let failed = nic.failed.expect("a failed request");
    for queue in &mut queues {
        let error = queue
            .drain(Deadline::PASSED)
            .expect_err("a failed queue drains nothing");
        let error = match error {
            warpbell::WaitError::Failed(error) => error,
            _ => rig.state.first_error().expect("an error"),
        };
        let Cause::Completion(completion) = error.cause() else {
            panic!("{error}");
        };
        assert_eq!(
            (
                completion.syndrome,
                completion.vendor.0,
                completion.wqe_index.0
            ),
            (Syndrome::REMOTE_ACCESS, VENDOR, failed),
            "seed {seed}, depth 2^{log2}"
        );
    }
    // What was complete before the error stays complete.
    for (block, ticket) in tickets {
        if nic.newest.is_some_and(|newest| newest >= block) {
            for queue in &mut queues {
                assert_eq!(queue.is_done(ticket), Ok(true), "block {block}");
            }
        }
    }
}

/// All depths, so that entries, owner bits and 16-bit indices wrap at different moments.
#[test]
fn what_completes_is_found_and_the_cause_of_an_error_stays() {
    for log2 in if cfg!(miri) { 0..=2 } else { 0..=15 } {
        let operations = if cfg!(miri) { 40 } else { 20_000 };
        let seed = u64::from(log2);
        episode::<Exclusive>(log2, 1, operations, seed);
        episode::<BlockShared>(log2, 1, operations, 100 + seed);
        episode::<GpuShared>(log2, 3, operations, 200 + seed);
        // Errors at many moments.
        for seed in 0..if cfg!(miri) { 2 } else { 50 } {
            let operations = 40 + seed as u32;
            episode::<Exclusive>(log2, 1, operations, 1000 + seed);
            episode::<GpuShared>(log2, 3, operations, 2000 + seed);
        }
    }
}
