//! What a completion costs where each queue has a completion queue of its own, and where many have one in common.

use warpbell::wqe::{CqeOpcode, CqeTail, Local, Opcode, QpNumber, Remote, Wqe};
use warpbell::{
    CompletionQueueHandle, CompletionSlot, Deadline, Exclusive, Scope, SendQueue, SendQueueHandle,
    Slice, Thread, Ticket, Warp, Word64, WordExt, kernel, thread,
};

/// For what succeeds at once, or beside a NIC.
const PATIENCE: Deadline = Deadline::after_ms(120_000);

/// In place of a number: something failed.
pub const FAILED: u64 = u64::MAX;

/// What a poll finds.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollKind {
    /// No CQE.
    Empty,
    /// The CQE of its queue, in the ring.
    Own,
    /// The CQE of another queue, in the ring.
    Others,
    /// 31 CQEs of another queue, then that of its queue, in the ring.
    Batch,
    /// The CQE of its queue, which another poll has found.
    Found,
}

/// Polls of one warp, or of one thread. The NIC stands still: the kernel writes each CQE itself.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Polls<'a> {
    /// The queue that is polled for, unused so far.
    pub queue: SendQueueHandle<'a>,
    /// Number of the queue pair that other CQEs are of.
    pub other: u32,
    /// What each poll finds.
    pub kind: PollKind,
    /// Whether a warp polls.
    pub by_warp: bool,
    /// Takes the cycles of each poll, or [`FAILED`].
    pub cycles: Slice<'a, Word64>,
}

/// The same over a completion queue in common.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CommonPolls<'a> {
    /// The polls.
    pub polls: Polls<'a>,
    /// The completion queue, unused so far.
    pub completions: CompletionQueueHandle<'a>,
}

/// Polls a queue with a completion queue of its own.
#[kernel]
pub fn completions_own_polls(p: Polls<'_>) {
    match p.by_warp {
        true => own_polls::<Warp>(&p),
        false => own_polls::<Thread>(&p),
    }
}

/// Polls a queue over a completion queue in common.
#[kernel]
pub fn completions_common_polls(p: CommonPolls<'_>) {
    match p.polls.by_warp {
        true => common_polls::<Warp>(&p),
        false => common_polls::<Thread>(&p),
    }
}

fn own_polls<C: Scope>(p: &Polls<'_>) {
    // The slot is of this queue's ring, whose lap gives the owner bit.
    let depth_log2 = p.queue.parts().completions.depth_log2;
    // SAFETY: the host passes a handle of this version.
    let place = |number: u32| unsafe { p.queue.completion_slot(number) };
    let place = |number: u32| (place(number), number >> depth_log2 & 1 == 1);
    p.each::<C>(
        place,
        |queue, ticket| queue.is_done(ticket) == Ok(true),
        || {},
    );
}

fn common_polls<C: Scope>(p: &CommonPolls<'_>) {
    // SAFETY: all threads of the scope run this together.
    let opened = [(); 2].map(|()| unsafe { p.completions.open_together::<C>() });
    let [Ok(mut completions), Ok(mut others)] = opened else {
        return;
    };
    // SAFETY: the host passes a handle of this version.
    let place = |number: u32| unsafe { p.completions.completion_slot(number) };
    let is_done = |queue: &mut SendQueue<'_, Exclusive, C>, ticket| {
        completions.is_done(queue, ticket) == Ok(true)
    };
    p.polls.each::<C>(place, is_done, || others.poll());
}

impl<'a> Polls<'a> {
    /// Measures `is_done` once for each place of `cycles`; `place` says where CQEs go, and `find` polls as another would.
    #[inline(always)]
    fn each<C: Scope>(
        &self,
        place: impl Fn(u32) -> (&'a CompletionSlot, bool),
        mut is_done: impl FnMut(&mut SendQueue<'a, Exclusive, C>, Ticket) -> bool,
        mut find: impl FnMut(),
    ) {
        // SAFETY: all threads of the scope run this together.
        let Ok(mut queue) = (unsafe { self.queue.open_together::<Exclusive, C>() }) else {
            return;
        };
        let own = self.queue.parts().qpn;
        let mut number = 0;
        for round in 0..self.cycles.len() {
            let nop = C::leads().then(|| Wqe::nop().signalled());
            let Ok(ticket) = queue.post_if(nop, PATIENCE) else {
                return;
            };
            match self.kind {
                PollKind::Empty => {}
                PollKind::Own => write::<C>(&place, &mut number, own, round),
                PollKind::Others => write::<C>(&place, &mut number, self.other, round),
                PollKind::Batch => {
                    for _ in 1..32 {
                        write::<C>(&place, &mut number, self.other, round);
                    }
                    write::<C>(&place, &mut number, own, round);
                }
                PollKind::Found => {
                    write::<C>(&place, &mut number, own, round);
                    find();
                }
            }
            let at_once = !matches!(self.kind, PollKind::Empty | PollKind::Others);
            for look in 0..2 {
                let began = thread::cycles();
                let done = is_done(&mut queue, ticket);
                let took = thread::cycles() - began;
                if C::leads() && look == 0 {
                    self.cycles.store(round, took);
                }
                if done != (at_once | (look == 1)) {
                    if C::leads() {
                        self.cycles.store(round, FAILED);
                    }
                    return;
                }
                if done {
                    break;
                }
                write::<C>(&place, &mut number, own, round);
            }
        }
    }
}

/// Writes the CQE of the NOP in block `index`, as the NIC does, to its place among all CQEs. All threads of the scope call
/// it. No closure does it: a kernel has it in several places.
#[inline(always)]
fn write<'a, C: Scope>(
    place: &impl Fn(u32) -> (&'a CompletionSlot, bool),
    number: &mut u32,
    qpn: u32,
    index: u64,
) {
    if C::leads() {
        let (slot, owner) = place(*number);
        let (opcode, qpn) = (CqeOpcode::REQUESTER, QpNumber::from_low_bits(qpn));
        let tail = CqeTail::new(opcode, owner, Opcode::NOP, qpn, index as u16);
        slot.words()[7].store_relaxed(tail.0);
    }
    *number += 1;
    C::sync();
}

/// Every thread has a queue, writes 8 bytes and waits, again and again.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// One queue for each thread.
    pub queues: Slice<'a, SendQueueHandle<'a>>,
    /// What is written.
    pub local: Local,
    /// Where it goes.
    pub remote: Remote,
    /// For how long, in nanoseconds.
    pub for_ns: u64,
    /// Takes how many writes each thread has completed, or [`FAILED`].
    pub counts: Slice<'a, Word64>,
}

/// The same over a completion queue in common.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CommonLoad<'a> {
    /// The load.
    pub load: Load<'a>,
    /// The completion queue.
    pub completions: CompletionQueueHandle<'a>,
}

/// Loads queues with a completion queue each.
#[kernel]
pub fn completions_own_load(p: Load<'_>) {
    p.run(|queue, wqe| {
        let ticket = queue.post(wqe, PATIENCE);
        ticket.is_ok_and(|ticket| queue.wait(ticket, PATIENCE).is_ok())
    });
}

/// Loads queues over a completion queue in common.
#[kernel]
pub fn completions_common_load(p: CommonLoad<'_>) {
    let Ok(mut completions) = p.completions.open() else {
        return;
    };
    p.load.run(|queue, wqe| {
        let ticket = completions.post(queue, wqe, PATIENCE);
        ticket.is_ok_and(|ticket| completions.wait(queue, ticket, PATIENCE).is_ok())
    });
}

impl<'a> Load<'a> {
    #[inline(always)]
    fn run(&self, mut write: impl FnMut(&mut SendQueue<'a, Exclusive, Thread>, Wqe<1>) -> bool) {
        let index = u64::from(thread::index());
        let opened = self.queues.get(index).map(|queue| queue.open());
        let Some(Ok(mut queue)) = opened else {
            return;
        };
        let mut count = 0;
        let end = thread::clock_ns() + self.for_ns;
        while thread::clock_ns() < end {
            if !write(&mut queue, Wqe::write(self.local, self.remote).signalled()) {
                count = FAILED;
                break;
            }
            count += 1;
        }
        self.counts.store(index, count);
    }
}
