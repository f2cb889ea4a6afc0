//! What a traced queue records, with the test in the NIC's place.
#![cfg(not(loom))]

use warpbell::trace::{Buffer, CHUNK, Chunk, Event, Kind, Span, WAIT_FOR_ROOM, WAIT_IN_VAIN};
use warpbell::wqe::{Syndrome, Wqe};
use warpbell::{
    CompletionKind, Deadline, Exclusive, GpuShared, PostError, Sharing, Traced, WaitError, Word64,
};
#[cfg(not(miri))]
use warpbell::{Warp, warp};
#[cfg(not(miri))]
use warpbell_cpu_grid::{Grid, Options, launch};

use crate::common::{QPN, Rig};

const SOON: Deadline = Deadline::after_us(5);

/// A buffer's memory.
struct Memory {
    asked: Word64,
    chunks: Vec<Chunk>,
}

impl Memory {
    fn new(chunks: usize) -> Self {
        Self {
            asked: Word64::new(0),
            chunks: (0..chunks).map(|_| Chunk::empty()).collect(),
        }
    }

    fn buffer(&self) -> Buffer<'_> {
        Buffer::new(&self.asked, &self.chunks)
    }

    fn events(&self) -> Vec<Event> {
        let events: Vec<_> = self.chunks.iter().flat_map(Chunk::events).collect();
        assert!(events.iter().all(|event| event.qpn().get() == QPN));
        events
    }

    /// Kind and value of each event.
    fn kinds(&self) -> Vec<(Kind, u32)> {
        let kind = |event: &Event| (event.kind().unwrap(), event.value());
        self.events().iter().map(kind).collect()
    }
}

fn span(start: u16, blocks: u16) -> u32 {
    Span { start, blocks }.to_value()
}

#[test]
fn events_of_an_exclusive_queue() {
    events::<Exclusive>();
}

#[test]
fn events_of_a_shared_queue() {
    events::<GpuShared>();
}

/// In the order in which they happen. A queue's first post asks what is free.
fn events<S: Sharing>() {
    for kind in [CompletionKind::Collapsed, CompletionKind::Ordinary] {
        let (rig, memory) = (Rig::new(3, kind), Memory::new(2));
        let mut queue = rig.handle().open::<Traced<S>>().unwrap();
        let _ = queue.try_post(Wqe::nop()).unwrap();
        assert_eq!(memory.kinds(), [], "nobody asked for a trace yet");
        queue.trace_into(memory.buffer());

        // A batch of a WQE of two blocks and one of a block.
        let long = Wqe::<2>::write_inline(&[5; 40], Default::default()).unwrap();
        let mut batch = queue.batch(3, SOON).unwrap();
        let _ = batch.post(long).unwrap();
        let ticket = batch.post(Wqe::nop().signalled()).unwrap();
        drop(batch);
        assert_eq!(queue.is_done(ticket), Ok(false));
        assert_eq!(queue.wait(ticket, SOON), Err(WaitError::Deadline));
        rig.complete(0, 3);
        assert_eq!(queue.wait(ticket, SOON), Ok(()));
        assert_eq!(queue.is_done(ticket), Ok(true), "no news");
        let first = [
            (Kind::Reserve, span(1, 3)),
            (Kind::Publish, span(1, 3)),
            (Kind::WaitBegin, 3),
            (Kind::WaitEnd, 3 | WAIT_IN_VAIN),
            (Kind::Completion, 3),
        ];
        let found = memory.kinds();
        // An exclusive queue knows of free blocks from its first post on, up to the ring's second quarter.
        assert_eq!(found, first, "{kind:?}");

        // The ring fills up, and a post waits in vain.
        for _ in 4..12 {
            let _ = queue.try_post(Wqe::nop()).unwrap();
        }
        let seen = memory.kinds().len();
        assert_eq!(queue.try_post(Wqe::nop()), Err(PostError::NoRoom));
        assert_eq!(memory.kinds().len(), seen, "a look is no wait");
        assert_eq!(queue.post(Wqe::nop(), SOON), Err(PostError::Deadline));
        let found = memory.kinds().split_off(first.len());
        let published = found.iter().filter(|(kind, _)| *kind == Kind::Publish);
        let expected: Vec<_> = (4..12).map(|at| (Kind::Publish, span(at, 1))).collect();
        assert!(published.eq(&expected), "{kind:?}: {found:?}");
        let waited = [
            (Kind::WaitBegin, WAIT_FOR_ROOM),
            (Kind::WaitEnd, WAIT_FOR_ROOM | WAIT_IN_VAIN),
        ];
        assert!(found.ends_with(&waited), "{kind:?}: {found:?}");

        // The queue fails, which is told once.
        let seen = memory.kinds().len();
        rig.fail(1, 5, Syndrome::LOCAL_PROTECTION, 7);
        for _ in 0..2 {
            let failed = queue.post(Wqe::nop(), SOON);
            assert!(matches!(failed, Err(PostError::Failed(_))), "{failed:?}");
        }
        let found = memory.kinds().split_off(seen);
        let syndrome = u32::from(Syndrome::LOCAL_PROTECTION.0);
        let error = (Kind::Error, 5 << 16 | 7 << 8 | syndrome);
        let count = |wanted| found.iter().filter(|found| **found == wanted).count();
        assert_eq!(
            (count(error), count((Kind::Completion, 4))),
            (1, 1),
            "{found:?}"
        );

        let times: Vec<_> = memory.events().iter().map(|event| event.ticks).collect();
        assert!(times.is_sorted(), "{times:?}");
        assert_eq!(memory.buffer().lost(), 0);
    }
}

/// Posts into free blocks that are known record what is published, and the loss is counted.
#[test]
fn a_post_is_one_event_and_none_is_lost_uncounted() {
    let (rig, memory) = (Rig::new(4, CompletionKind::Ordinary), Memory::new(1));
    let mut queue = rig.handle().open::<Traced<Exclusive>>().unwrap();
    queue.trace_into(memory.buffer());
    let posts = 4 * CHUNK;
    for number in 0..posts {
        let ticket = queue.try_post(Wqe::nop().signalled()).unwrap();
        rig.complete(number, number as u16);
        assert_eq!(queue.is_done(ticket), Ok(true));
    }
    let kept = memory.kinds();
    let count = |wanted| kept.iter().filter(|(kind, _)| *kind == wanted).count();
    assert_eq!(kept.len(), CHUNK);
    assert!(count(Kind::Publish) >= CHUNK / 3, "{kept:?}");
    assert!(count(Kind::Completion) >= CHUNK / 3, "{kept:?}");
    // Each post and its completion, and two reservations in a quarter of the ring: that of the block that is signalled in
    // any case is one of its own.
    let quarters = posts / 4;
    let all = (2 * posts + 2 * quarters) as u64;
    assert_eq!(memory.buffer().lost(), all - CHUNK as u64);
}

/// A warp's leader records for all, and a receive queue's events say that they are one's.
// Miri has no coroutines.
#[cfg(not(miri))]
#[test]
fn a_warp_records_once() {
    let (rig, memory) = (Rig::new(7, CompletionKind::Collapsed), Memory::new(40));
    let grid = Grid::new(1, 32);
    launch(grid, Options::default(), || {
        // SAFETY: all lanes make the calls together.
        let queue = unsafe { rig.handle().open_together::<Traced<Exclusive>, Warp>() };
        let mut queue = queue.unwrap();
        queue.trace_into(memory.buffer());
        for _ in 0..2 {
            let ticket = queue.post(Wqe::nop().signalled(), SOON).unwrap();
            if warp::lane_id() == 0 {
                rig.complete(0, rig.producer_index().wrapping_sub(1));
            }
            queue.wait(ticket, SOON).unwrap();
        }
    })
    .unwrap();
    let expected = [
        (Kind::Reserve, span(0, 32)),
        (Kind::Publish, span(0, 32)),
        (Kind::Completion, 31),
        (Kind::Publish, span(32, 32)),
        (Kind::Completion, 63),
    ];
    assert_eq!(memory.kinds(), expected);
}
