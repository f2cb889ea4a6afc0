//! The sum of all ranks' vectors, at each of them: by a ring or by recursive doubling, with the network in the kernel's hands
//! or in a host's, as in the evaluation of ComP-Net and GPU-TN (LeBeane, thesis defence, 2018).

mod plan;

use warpbell::wqe::Wqe;
use warpbell::{Block, Deadline, Exclusive, SendQueue, Slice, block, kernel, thread};
use warpbell_patterns::trigger::{OwnTag, TriggerHandle};

use crate::path::Path;
use warpbell_kernels::outcome::{Failure, Outcome};
use warpbell_kernels::place::Place;

pub use plan::{Incoming, Outgoing, Plan};

use plan::at_least_one;

/// A slice of what goes in a step, for posts of kernels and of hosts.
#[derive(Clone, Copy, Debug)]
pub struct Message<'p, 'a> {
    /// Who sends what.
    pub plan: &'p Plan,
    /// To the peer.
    pub path: &'p Path<'a>,
    /// Which queue, and which signal at the peer.
    pub queue: u32,
    /// What goes.
    pub what: Outgoing,
    /// Which slice of it.
    pub slice: u32,
    /// What the signal says.
    pub number: u64,
    /// Whether it is the last through its queue: a block that posts waits for it at once. Triggers and hosts wait at their end.
    pub last: bool,
}

impl Message<'_, '_> {
    /// The slice.
    #[inline(always)]
    pub fn write(&self) -> Wqe<1> {
        let (start, words) = self.plan.bounds(self.slice);
        let bytes = |word: u32| 8 * u64::from(word + start);
        let (from, to) = (bytes(self.what.from), bytes(self.what.to));
        self.path.write(from, to, 8 * words)
    }

    /// The signal behind it.
    #[inline(always)]
    pub fn tell(&self) -> Wqe<1> {
        self.path.tell(self.queue, self.number)
    }
}

/// What has come in a step, added by itself, for a host that drives the network; a block for each part.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AllReduceStep {
    /// Who sends what.
    pub plan: Plan,
    /// The rank's memory.
    pub memory: Place,
    /// Its number.
    pub rank: u32,
    /// The round.
    pub round: u32,
    /// The step.
    pub step: u32,
}

/// Adds all slices; none where the plan wants more memory than there is.
#[kernel]
pub fn allreduce_step(p: AllReduceStep) {
    if p.memory.holds(p.plan.memory()).is_err() {
        return;
    }
    let what = p.plan.incoming(p.rank, block::index(), p.round, p.step);
    let mut slice = 0;
    while slice < p.plan.slices() {
        p.plan.add_slice(p.memory, what, slice);
        slice += 1;
    }
}

/// A rank.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Rank<'a> {
    /// Its memory, for the threads.
    pub memory: Place,
    /// To each of its peers. All have the same queues and signals, numbered as [`Plan::ways`] says. None for a rank that
    /// another kernel runs, on another GPU: its blocks return at once.
    pub peers: Slice<'a, Path<'a>>,
    /// Microseconds that it dawdles in a step, before it takes what has come: 0, but for a rank that is to be slow.
    pub delay_us: u64,
}

/// All ranks in one kernel, or in one on each GPU, which drives the network itself: a block of at least 2 threads for each part
/// of rank 0, and so on.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AllReduce<'a> {
    /// Who sends what.
    pub plan: Plan,
    /// The ranks.
    pub ranks: Slice<'a, Rank<'a>>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// The same with operations that are triggered.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AllReduceTriggered<'a> {
    /// The ranks.
    pub all: AllReduce<'a>,
    /// Each rank's, with a tag for each queue.
    pub triggers: Slice<'a, TriggerHandle<'a>>,
}

/// Sums all rounds' vectors; each block posts its part.
#[kernel]
pub fn allreduce_posted(p: AllReduce<'_>) {
    p.outcome.record(|| p.run(Posts));
}

/// Sums all rounds' vectors; each block registers a slice's operation before it looks for what it will send, and triggers it
/// when that is there.
#[kernel]
pub fn allreduce_triggered(p: AllReduceTriggered<'_>) {
    p.all.outcome.record(|| p.all.run(p.triggers));
}

impl<'a> AllReduce<'a> {
    #[inline(always)]
    fn run<S: Senders<'a>>(&self, senders: S) -> Result<(), Failure> {
        let plan = &self.plan;
        let parts = at_least_one(plan.parts);
        let (number, part) = (block::index() / parts, block::index() % parts);
        let Some(&rank) = self.ranks.get(number.into()) else {
            return Ok(());
        };
        rank.memory.holds(plan.memory())?;
        let (steps, slices) = (plan.steps(), plan.slices());
        // Behind the last step there is something to take, and nothing to send.
        let way_of = |step: u32| plan.way(if step < steps { step } else { steps - 1 });
        let (mut round, mut step, mut slice) = (0, 0, 0);
        while round < plan.rounds {
            // A peer's queue is open as long as it is the one to send to: in a ring until the end, and by doubling until
            // the next step, or the next round's first step.
            let opened = round;
            let way = way_of(step);
            let Some(&path) = rank.peers.get(way.into()) else {
                return Ok(());
            };
            let queue = way * parts + part;
            let mut sender = senders.open(number, &path, queue)?;
            while (round < plan.rounds) & (way_of(step) == way) {
                let message = Message {
                    plan,
                    path: &path,
                    queue,
                    what: plan.outgoing(number, part, round, step),
                    slice,
                    number: plan.number(round, step, slice),
                    last: plan.is_last(round, step, slice),
                };
                if step < steps {
                    sender.prepare(message)?;
                }
                if step > 0 {
                    if slice == 0 {
                        dawdle(rank.delay_us);
                    }
                    let before = step - 1;
                    let signal = path.signal(plan.way(before) * parts + part)?;
                    let told = plan.number(round, before, slice);
                    // The slice lies there for all threads: the wait has read the signal that is behind it.
                    signal.wait_together::<Block>(told, path.limit())?;
                    let what = plan.incoming(number, part, round, before);
                    if what.adds {
                        plan.add_slice(rank.memory, what, slice);
                    }
                }
                if step < steps {
                    // Its barrier and fence are behind all threads' sums.
                    sender.send(message)?;
                }
                slice += 1;
                if slice == slices {
                    slice = 0;
                    step += 1;
                }
                if step > steps {
                    step = 0;
                    round += 1;
                }
            }
            // It will not be opened again: all is over, or it was the last round's time with it.
            if (round >= plan.rounds) | (opened + 1 >= plan.rounds) {
                sender.end(path.limit())?;
            }
        }
        Ok(())
    }
}

/// Lets time go by.
#[inline(always)]
fn dawdle(microseconds: u64) {
    let until = match microseconds {
        0 => return,
        _ => thread::clock_ns() + 1000 * microseconds,
    };
    while thread::clock_ns() < until {
        thread::nanosleep(1000);
    }
}

/// How blocks send.
trait Senders<'a>: Copy {
    type One: Sender;
    /// A queue of a rank.
    fn open(self, rank: u32, path: &Path<'a>, queue: u32) -> Result<Self::One, Failure>;
}

/// A block's queue.
trait Sender {
    /// Before the message's bytes are there.
    fn prepare(&mut self, message: Message<'_, '_>) -> Result<(), Failure>;
    /// Sends it. By posts it waits as well until all is sent, if it is the last: a ticket that is kept until the end would be
    /// one register more than there is.
    fn send(&mut self, message: Message<'_, '_>) -> Result<(), Failure>;
    /// Waits until all is sent, unless [`send`](Self::send) has.
    fn end(&mut self, limit: Deadline) -> Result<(), Failure>;
}

/// By posts.
#[derive(Clone, Copy)]
struct Posts;

impl<'a> Senders<'a> for Posts {
    type One = SendQueue<'a, Exclusive, Block>;

    #[inline(always)]
    fn open(self, _: u32, path: &Path<'a>, queue: u32) -> Result<Self::One, Failure> {
        let handle = path.queues.get(queue.into());
        let handle = handle.ok_or(Failure::Open(warpbell::OpenError::NotAHandle { magic: 0 }))?;
        // SAFETY: all threads of the block run this with the same parameters, and make the queue's calls together.
        Ok(unsafe { handle.open_together() }?)
    }
}

impl Sender for SendQueue<'_, Exclusive, Block> {
    #[inline(always)]
    fn prepare(&mut self, _: Message<'_, '_>) -> Result<(), Failure> {
        Ok(())
    }

    #[inline(always)]
    fn send(&mut self, message: Message<'_, '_>) -> Result<(), Failure> {
        // The first two threads have a request each, which go in their order under one doorbell.
        let own = block::thread_index();
        let (write, told) = (message.write(), message.tell());
        // A NOP behind it, to wait for, would be no plain write: software NIC (b) would call all queues back for it, in the
        // midst of what others send.
        let told = if message.last { told.signalled() } else { told };
        let request = if own == 0 { write } else { told };
        let ticket = self.post_if((own < 2).then_some(request), message.path.limit())?;
        if message.last {
            self.wait_outbound(ticket, message.path.limit())?;
        }
        Ok(())
    }

    #[inline(always)]
    fn end(&mut self, _: Deadline) -> Result<(), Failure> {
        Ok(())
    }
}

impl<'a> Senders<'a> for Slice<'a, TriggerHandle<'a>> {
    type One = OwnTag<'a, Block>;

    #[inline(always)]
    fn open(self, rank: u32, _: &Path<'a>, queue: u32) -> Result<Self::One, Failure> {
        let handle = self.get(rank.into());
        let handle = handle.ok_or(Failure::Open(warpbell::OpenError::NotAHandle { magic: 0 }))?;
        Ok(handle.open()?.own::<Block>(queue)?)
    }
}

impl Sender for OwnTag<'_, Block> {
    #[inline(always)]
    fn prepare(&mut self, message: Message<'_, '_>) -> Result<(), Failure> {
        Ok(self.register(1, [message.write(), message.tell()], message.path.limit())?)
    }

    #[inline(always)]
    fn send(&mut self, _: Message<'_, '_>) -> Result<(), Failure> {
        self.trigger();
        Ok(())
    }

    #[inline(always)]
    fn end(&mut self, limit: Deadline) -> Result<(), Failure> {
        Ok(self.wait(limit)?)
    }
}
