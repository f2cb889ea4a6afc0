//! What a post and a poll cost on a CPU, with no engine: the benchmark plays the NIC, by writing a CQE of everything that
//! was posted.

use std::cell::{Cell, UnsafeCell};
use std::hint::black_box;
use std::sync::atomic::{Ordering, fence};

use warpbell::wqe::{
    CqeOpcode, CqeTail, Local, LocalKey, Opcode, QpNumber, Remote, RemoteKey, Wqe, WqeIndex,
};
use warpbell::{
    CompletionKind, CompletionMember, CompletionParts, CompletionQueueHandle, CompletionQueueParts,
    CompletionQueueState, CompletionSlot, Deadline, DoorbellPage, Exclusive, FenceReach, GpuShared,
    QueueState, RingBlock, SendDoorbell, SendParts, SendQueue, SendQueueHandle, Sharing, Thread,
    Ticket, Traced, Word32, Word64,
};
use warpbell_bench::filter::Filter;
use warpbell_bench::samples::{Goal, Row, Samples, timed};
use warpbell_host_init::Placement;
use warpbell_host_init::trace::TraceMemory;

const DEPTH_LOG2: u8 = 10;
const DEPTH: usize = 1 << DEPTH_LOG2;
/// Posts between two completions: half of the ring.
pub const GROUP: u32 = DEPTH as u32 / 2;
/// Such laps in a repetition.
pub const LAPS: u32 = 512;
const BATCH: u32 = 32;
/// Polls of a lap.
const POLLS: u32 = 64;
/// Names of the cases that a ratio or a goal is about.
const BY_HAND: &str = "post: straight-line by hand";
const POST: &str = "post: Exclusive, Thread";
const TRACED: &str = "post: Exclusive, Thread, traced";
const POLL: &str = "poll: Exclusive, Thread";
const POLL_COLLAPSED: &str = "poll: Exclusive, Thread, collapsed";
const POLL_COMMON: &str = "poll: Exclusive, Thread, completion queue in common";
const POLL_SHARED: &str = "poll: GpuShared, Thread";
const POLL_SHARED_COLLAPSED: &str = "poll: GpuShared, Thread, collapsed";
const QPN: QpNumber = QpNumber::from_low_bits(0x123);

/// The memory of a send queue.
pub struct Rig {
    ring: Vec<UnsafeCell<RingBlock>>,
    record: Word32,
    doorbell: Word64,
    kind: CompletionKind,
    completions: Vec<CompletionSlot>,
    completion_record: Word32,
    /// CQEs that the NIC has written.
    completed: Cell<usize>,
    state: QueueState,
}

impl Rig {
    pub fn new(kind: CompletionKind) -> Self {
        let block = || UnsafeCell::new(RingBlock::zeroed());
        let entries = match kind {
            CompletionKind::Collapsed => 1,
            CompletionKind::Ordinary => DEPTH,
        };
        Self {
            ring: (0..DEPTH).map(|_| block()).collect(),
            record: Word32::new(0),
            doorbell: Word64::new(0),
            kind,
            completions: (0..entries).map(|_| CompletionSlot::invalid()).collect(),
            completion_record: Word32::new(0),
            completed: Cell::new(0),
            state: QueueState::new(),
        }
    }

    fn handle(&self) -> SendQueueHandle<'_> {
        self.handle_with(SendDoorbell::WithRecord)
    }

    pub fn handle_with(&self, send_doorbell: SendDoorbell) -> SendQueueHandle<'_> {
        let parts = SendParts {
            ring: self.ring.as_ptr().cast_mut().cast(),
            record: &self.record,
            doorbell: &self.doorbell,
            completions: CompletionParts {
                ring: self.completions.as_ptr(),
                record: &self.completion_record,
                depth_log2: self.completions.len().ilog2() as u8,
                kind: self.kind,
            },
            state: &self.state,
            qpn: QPN.get(),
            max_message: 1 << 30,
            depth_log2: DEPTH_LOG2,
            reach: FenceReach::System,
            send_doorbell,
            doorbell_page: DoorbellPage::Memory,
        };
        // SAFETY: all of it lives in `self`, which the handle borrows, with the sizes given here.
        unsafe { SendQueueHandle::new(parts) }
    }

    /// The NIC's part: all requests up to number `newest` are done.
    pub fn complete(&self, newest: u32) {
        let (number, entries) = (self.completed.get(), self.completions.len());
        self.completed.set(number + 1);
        let (opcode, owner) = (CqeOpcode::REQUESTER, number / entries % 2 == 1);
        let tail = CqeTail::new(opcode, owner, Opcode::RDMA_WRITE, QPN, newest as u16);
        self.completions[number % entries].words()[7].store(tail.0, Ordering::Release);
    }
}

/// What every way of posting sends: 64 bytes to an address that changes each time.
pub fn request(number: u32) -> (Local, Remote) {
    let local = Local {
        address: black_box(0x10_0000),
        length: 64,
        key: LocalKey(0x1000),
    };
    let remote = Remote {
        address: 0x20_0000 + u64::from(number) * 64,
        key: RemoteKey(0x2000),
    };
    (local, remote)
}

/// Nanoseconds and cycles of a post: the medians of [`LAPS`] laps, in which `post(n)` posts requests n to
/// n + [`GROUP`].
fn repetition(rig: &Rig, first: &mut u32, mut post: impl FnMut(u32)) -> (f64, f64) {
    let (mut times, mut cycles) = (Samples::default(), Samples::default());
    for _ in 0..LAPS {
        let from = *first;
        let counted = counter();
        let ((), seconds) = timed(|| post(from));
        cycles.push((counter() - counted) as f64);
        times.push(seconds);
        *first = from.wrapping_add(GROUP);
        rig.complete(first.wrapping_sub(1));
    }
    let posts = f64::from(GROUP);
    (times.median() * 1e9 / posts, cycles.median() / posts)
}

/// The processor's cycle counter, where it has one that a program may read.
fn counter() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has it.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    return 0;
}

/// A post as one would write it by hand for this one queue: no check of anything.
#[inline(always)]
fn post_by_hand(rig: &Rig, number: u32) {
    let (local, remote) = request(number);
    let index = WqeIndex(number as u16);
    let [block] = Wqe::write(local, remote).place(index, QPN);
    let slot = rig.ring[number as usize % DEPTH].get();
    // SAFETY: nobody else uses the ring; a block is 64 bytes, aligned to 64.
    unsafe { slot.cast::<[warpbell::wqe::Octoword; 4]>().write(block) };
    fence(Ordering::Release);
    let end = number.wrapping_add(1);
    rig.record.store((end & 0xffff).to_be(), Ordering::Relaxed);
    fence(Ordering::Release);
    let ring = u64::from(end & 0xffff) << 40 | u64::from(QPN.get() << 8);
    rig.doorbell.store(ring.to_be(), Ordering::Relaxed);
}

/// One way of posting: its memory, how far it has come, what was measured.
struct Lane<'a> {
    name: &'static str,
    run: Box<dyn FnMut() -> (f64, f64) + 'a>,
    time: Samples,
    cycles: Samples,
}

impl<'a> Lane<'a> {
    fn new(name: &'static str, run: impl FnMut() -> (f64, f64) + 'a) -> Self {
        Self {
            name,
            run: Box::new(run),
            time: Samples::default(),
            cycles: Samples::default(),
        }
    }
}

#[inline(always)]
fn open<S: Sharing>(rig: &Rig) -> SendQueue<'_, S, Thread> {
    // As it comes to a kernel: with nothing known of it.
    black_box(rig.handle()).open().expect("an open queue")
}

fn one_by_one<'a, S: Sharing + 'a>(rig: &'a Rig, name: &'static str) -> Lane<'a> {
    let mut next = 0;
    Lane::new(name, move || {
        repetition(rig, &mut next, |first| {
            // Where a kernel has it: in the function that posts.
            post_group(&mut open::<S>(rig), first);
        })
    })
}

#[inline(always)]
fn post_group<S: Sharing>(queue: &mut SendQueue<'_, S, Thread>, first: u32) {
    for number in first..first.wrapping_add(GROUP) {
        let (local, remote) = request(number);
        let posted = queue.try_post(Wqe::write(local, remote));
        assert!(posted.is_ok(), "a full queue");
    }
}

/// As [`one_by_one`], with a trace. Its memory holds the events of a repetition, and is used again by the next one.
fn traced<'a>(rig: &'a Rig, mut memory: TraceMemory) -> Lane<'a> {
    let mut next = 0;
    Lane::new(TRACED, move || {
        memory.clear().expect("memory of the host");
        let measured = repetition(rig, &mut next, |first| {
            let mut queue = open::<Traced<'_, Exclusive>>(rig);
            queue.trace_into(black_box(memory.buffer()));
            post_group(&mut queue, first);
        });
        assert_eq!(memory.lost().expect("memory of the host"), 0);
        measured
    })
}

fn in_batches<'a, S: Sharing + 'a>(rig: &'a Rig, name: &'static str) -> Lane<'a> {
    let mut next = 0;
    Lane::new(name, move || {
        repetition(rig, &mut next, |first| {
            let mut queue = open::<S>(rig);
            for start in (first..first + GROUP).step_by(BATCH as usize) {
                let batch = queue.batch(BATCH, Deadline::PASSED);
                let mut batch = batch.expect("room in the queue");
                for number in start..start + BATCH {
                    let (local, remote) = request(number);
                    let posted = batch.post(Wqe::write(local, remote));
                    assert!(posted.is_ok(), "a full batch");
                }
            }
        })
    })
}

fn by_hand<'a>(rig: &'a Rig) -> Lane<'a> {
    let mut next = 0;
    Lane::new(BY_HAND, move || {
        repetition(rig, &mut next, |first| {
            for number in first..first.wrapping_add(GROUP) {
                post_by_hand(rig, number);
            }
        })
    })
}

/// Each poll finds a CQE that was not there before.
fn poll_each<'a, S: Sharing + 'a>(rig: &'a Rig, name: &'static str) -> Lane<'a> {
    polls(rig, name, move || {
        |queue: &mut SendQueue<'a, S, Thread>, number, ticket| {
            rig.complete(number);
            queue.wait_outbound(ticket, Deadline::PASSED).is_ok()
        }
    })
}

/// Polls by what `opened` gives for each lap, which completes the request of a number and waits for it.
fn polls<'a, S, P>(rig: &'a Rig, name: &'static str, opened: impl Fn() -> P + 'a) -> Lane<'a>
where
    S: Sharing + 'a,
    P: FnMut(&mut SendQueue<'a, S, Thread>, u32, Ticket) -> bool,
{
    let mut next = 0;
    Lane::new(name, move || {
        let (mut times, mut cycles) = (Samples::default(), Samples::default());
        for _ in 0..LAPS {
            let (mut queue, mut poll) = (open::<S>(rig), opened());
            let tickets: [_; POLLS as usize] = std::array::from_fn(|_| {
                let (local, remote) = request(next);
                let posted = queue.try_post(Wqe::write(local, remote).signalled());
                next = next.wrapping_add(1);
                posted.expect("room in the queue")
            });
            let first = next.wrapping_sub(POLLS);
            let counted = counter();
            let ((), seconds) = timed(|| {
                for (number, ticket) in (first..).zip(tickets) {
                    assert!(poll(&mut queue, number, ticket), "no completion");
                }
            });
            cycles.push((counter() - counted) as f64);
            times.push(seconds);
        }
        let polls = f64::from(POLLS);
        (times.median() * 1e9 / polls, cycles.median() / polls)
    })
}

/// The completion queue of 128 send queues, of which one is used.
struct Common {
    used: Rig,
    others: Vec<CompletionSlot>,
    ring: Vec<CompletionSlot>,
    members: Vec<CompletionMember>,
    state: CompletionQueueState,
    /// CQEs that the NIC has written.
    completed: Cell<u32>,
}

impl Common {
    const QUEUES: u32 = 128;

    fn new() -> Self {
        let others = 1..Self::QUEUES;
        let used = Rig::new(CompletionKind::Collapsed);
        let others: Vec<_> = others.map(|_| CompletionSlot::invalid()).collect();
        let mut members = vec![CompletionMember::FREE; 2 * Self::QUEUES as usize];
        // Numbers that follow each other, as a NIC gives them.
        let entries = [&used.completions[0]].into_iter().chain(&others);
        for (qpn, entry) in (QPN.get()..).zip(entries) {
            assert!(CompletionMember::enter(&mut members, qpn, entry));
        }
        let entries = Self::QUEUES as usize * DEPTH;
        Self {
            used,
            others,
            ring: (0..entries).map(|_| CompletionSlot::invalid()).collect(),
            members,
            state: CompletionQueueState::new(),
            completed: Cell::new(0),
        }
    }

    fn handle(&self) -> CompletionQueueHandle<'_> {
        let parts = CompletionQueueParts {
            ring: self.ring.as_ptr(),
            depth_log2: self.ring.len().ilog2() as u8,
            members: self.members.as_ptr(),
            members_log2: self.members.len().ilog2() as u8,
            state: &self.state,
            reach: FenceReach::System,
        };
        assert_eq!(self.others.len() + 1, Self::QUEUES as usize);
        // SAFETY: all of it lives in `self`, which the handle borrows, with the sizes given here.
        unsafe { CompletionQueueHandle::new(parts) }
    }

    /// The NIC's part: request number `number` is done.
    fn complete(&self, number: u32) {
        let cqe = self.completed.get();
        self.completed.set(cqe.wrapping_add(1));
        // SAFETY: a handle of this version.
        let (slot, owner) = unsafe { self.handle().completion_slot(cqe) };
        let opcode = CqeOpcode::REQUESTER;
        let tail = CqeTail::new(opcode, owner, Opcode::RDMA_WRITE, QPN, number as u16);
        slot.words()[7].store(tail.0, Ordering::Release);
    }
}

/// As [`poll_each`], over a completion queue in common.
fn poll_common(common: &Common) -> Lane<'_> {
    polls(&common.used, POLL_COMMON, move || {
        let completions = black_box(common.handle()).open();
        let mut completions = completions.expect("a good handle");
        move |queue: &mut SendQueue<'_, Exclusive, Thread>, number, ticket| {
            common.complete(number);
            completions.wait(queue, ticket, Deadline::PASSED).is_ok()
        }
    })
}

/// All of it that is wanted; a ratio where both of its ways are.
pub fn measure(repetitions: u32, filter: &Filter) -> Vec<Row> {
    let rigs: [Rig; 6] = std::array::from_fn(|_| Rig::new(CompletionKind::Ordinary));
    let [a, b, c, d, e, f] = &rigs;
    // Each view of a lap ends within a chunk, and has a few events beside its posts.
    let events = (LAPS * 2 * GROUP) as usize;
    let memory = TraceMemory::new(Placement::Host, events).expect("memory of the host");
    let kinds = [CompletionKind::Ordinary, CompletionKind::Collapsed];
    let polled = [kinds, kinds].concat();
    let polled: Vec<_> = polled.into_iter().map(Rig::new).collect();
    let common = Common::new();
    let mut lanes = [
        by_hand(a),
        one_by_one::<Exclusive>(b, POST),
        traced(f, memory),
        in_batches::<Exclusive>(c, "post: Exclusive, Thread, batch of 32"),
        one_by_one::<GpuShared>(d, "post: GpuShared, Thread"),
        in_batches::<GpuShared>(e, "post: GpuShared, Thread, batch of 32"),
        poll_each::<Exclusive>(&polled[0], POLL),
        poll_each::<Exclusive>(&polled[1], POLL_COLLAPSED),
        poll_common(&common),
        poll_each::<GpuShared>(&polled[2], POLL_SHARED),
        poll_each::<GpuShared>(&polled[3], POLL_SHARED_COLLAPSED),
    ];
    let wanted = lanes.each_ref().map(|lane| filter.wants(lane.name));
    for repetition in 0..=repetitions {
        for (lane, _) in lanes.iter_mut().zip(wanted).filter(|(_, wanted)| *wanted) {
            let (time, cycles) = (lane.run)();
            // The first round warms up.
            if repetition > 0 {
                lane.time.push(time);
                lane.cycles.push(cycles);
            }
        }
    }
    let mut rows = Vec::new();
    for (index, lane) in lanes.iter().enumerate() {
        if !wanted[index] {
            continue;
        }
        let row = Row::new(lane.name, "ns", &lane.time);
        rows.push(if lane.name == POST {
            row.goal(Goal::AtMost(60.0))
        } else {
            row
        });
        if cfg!(target_arch = "x86_64") {
            rows.push(Row::new(
                format!("{}, cycles", lane.name),
                "cycles",
                &lane.cycles,
            ));
        }
    }
    for (lane, other, short, goal) in [
        (POST, BY_HAND, "by hand", 1.15),
        (TRACED, POST, "untraced", 1.05),
        (POLL, POLL_COLLAPSED, "collapsed", 1.02),
        (POLL_COMMON, POLL, "its own", 2.0),
        (POLL_SHARED, POLL_SHARED_COLLAPSED, "collapsed", 1.02),
    ] {
        if filter.wants(lane) && filter.wants(other) {
            let [lane_time, other_time] = [lane, other].map(|name| {
                let found = lanes.iter().find(|lane| lane.name == name);
                &found.expect("each name is a lane's").time
            });
            let name = format!("{lane} / {short}");
            let ratio = lane_time.over(other_time);
            rows.push(Row::new(name, "x", &ratio).goal(Goal::AtMost(goal)));
        }
    }
    rows
}
