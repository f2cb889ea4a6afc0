//! Triggered operations in kernels: the three levels of GPU-TN's listing, what a trigger costs beside a post, and a chain
//! of writes that the NIC starts itself beside the same by a kernel.

use warpbell::wqe::{Local, Remote, Wqe};
use warpbell::{
    Block, Deadline, Exclusive, GpuShared, SendQueueHandle, Sharing, Slice, Thread, Word64, block,
    kernel, thread,
};
use warpbell_patterns::trigger::{Error, JointHandle, JointTriggers, Tag, TriggerHandle};

use crate::outcome::{Failure, Outcome};
use crate::place::Place;

/// A kernel of the listing: work on a buffer, then a trigger.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Listing<'a> {
    /// The tags.
    pub triggers: TriggerHandle<'a>,
    /// The first tag of the kernel's.
    pub tag_base: Tag,
    /// A word for each thread, one behind the other, which the operations send.
    pub buffer: Place,
    /// Microseconds that the operation may take.
    pub limit_us: u64,
    /// What became of it.
    pub outcome: &'a Outcome,
}

impl Listing<'_> {
    /// What the thread of that index puts into the buffer.
    pub const fn value(index: u32) -> u64 {
        0x7a66_0000_0000_0001 + 3 * index as u64
    }

    /// The work. All threads of a block find their words there, or none does.
    #[inline(always)]
    fn work(&self) -> Result<(), Failure> {
        let words = (u64::from(block::index()) + 1) * u64::from(block::size());
        self.buffer.holds(words)?;
        let index = thread::index();
        self.buffer.store(index, Self::value(index));
        Ok(())
    }

    #[inline(always)]
    fn limit(&self) -> Deadline {
        Deadline::after_us(self.limit_us)
    }
}

/// Work-item level: each thread has an operation, and triggers it.
#[kernel]
pub fn trigger_work_items(p: Listing<'_>) {
    p.outcome.record(|| {
        let triggers = p.triggers.open()?;
        p.work()?;
        let tag = p.tag_base + thread::index();
        triggers.trigger::<Thread>(tag)?;
        Ok(triggers.wait::<Thread>(tag, p.limit())?)
    });
}

/// Work-group level: each block has an operation; once all its threads are done, one of them triggers it.
#[kernel]
pub fn trigger_work_groups(p: Listing<'_>) {
    p.outcome.record(|| {
        let triggers = p.triggers.open()?;
        p.work()?;
        let tag = p.tag_base + block::index();
        triggers.trigger::<Block>(tag)?;
        Ok(triggers.wait::<Block>(tag, p.limit())?)
    });
}

/// Kernel level: there is one operation, which every block triggers; it goes with the last of them.
#[kernel]
pub fn trigger_kernel(p: Listing<'_>) {
    p.outcome.record(|| {
        let triggers = p.triggers.open()?;
        p.work()?;
        triggers.trigger::<Block>(p.tag_base)?;
        Ok(triggers.wait::<Block>(p.tag_base, p.limit())?)
    });
}

/// A write, sent in several ways by one thread, one at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TriggerCost<'a> {
    /// Tag 0 is sent by each trigger, tag 1 only counts.
    pub triggers: TriggerHandle<'a>,
    /// Where the same write is posted.
    pub queue: SendQueueHandle<'a>,
    /// What is written: at least 8 bytes, of which the first 8 change.
    pub local: Local,
    /// Where.
    pub remote: Remote,
    /// The first 8 of them.
    pub value: Place,
    /// Writes before those that count.
    pub warm_up: u32,
    /// Writes that count.
    pub rounds: u32,
    /// Microseconds that a wait may take.
    pub limit_us: u64,
    /// Takes the cycles of each write that counts: those of [`TriggerCost::NOTHING`], then those of the next.
    pub cycles: Slice<'a, Word64>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

impl TriggerCost<'_> {
    /// The clock, and the store of the value.
    pub const NOTHING: u64 = 0;
    /// A write that is built and posted through a queue that is this thread's.
    pub const POST_EXCLUSIVE: u64 = 1;
    /// The same through a queue that the GPU shares, as it does its tags.
    pub const POST_SHARED: u64 = 2;
    /// A trigger that sends the write.
    pub const SENDING: u64 = 3;
    /// One that counts.
    pub const COUNTING: u64 = 4;
    /// A write that lies in the ring of the thread's own queue already, and is posted to another address.
    pub const POST_READY: u64 = 5;
    /// A trigger that sends the write, the tag being this thread's.
    pub const SENDING_OWN: u64 = 6;
    /// A trigger that sends the write, the tag having been looked at before.
    pub const SENDING_LOOKED: u64 = 7;
    /// Cycles of the work between a look and its trigger, which do not count.
    const WORK: u64 = 1000;
    /// How many ways there are.
    pub const WAYS: u64 = 8;

    #[inline(always)]
    fn write(&self) -> Wqe<1> {
        Wqe::write(self.local, self.remote).signalled()
    }

    /// The word of what is sent. With it goes its length, so that nobody asks for that beside the clock.
    #[inline(always)]
    fn value(&self) -> Result<Place, Failure> {
        self.value.part(0, 1)
    }

    /// The time at which a write begins: with what is to be sent.
    #[inline(always)]
    fn begin(value: Place, round: u32) -> u64 {
        let began = thread::cycles();
        value.store(0, round.into());
        began
    }

    /// What a kernel does between a look and the trigger: the clock goes on for as long as a look takes, and longer.
    #[inline(always)]
    fn work() {
        let began = thread::cycles();
        while thread::cycles() - began < Self::WORK {}
    }

    /// Notes what a write took that began then.
    #[inline(always)]
    fn note(&self, way: u64, round: u32, cycles: u64) {
        if let Some(round) = round.checked_sub(self.warm_up) {
            let place = way * u64::from(self.rounds) + u64::from(round);
            self.cycles.store(place, cycles);
        }
    }

    #[inline(always)]
    fn all(&self) -> u32 {
        self.warm_up + self.rounds
    }

    #[inline(always)]
    fn post<S: Sharing>(&self, way: u64) -> Result<(), Failure> {
        let (limit, value) = (Deadline::after_us(self.limit_us), self.value()?);
        let mut queue = self.queue.open::<S>()?;
        for round in 0..self.all() {
            let began = Self::begin(value, round);
            let ticket = queue.post(self.write(), limit)?;
            let cycles = thread::cycles() - began;
            queue.wait(ticket, limit)?;
            self.note(way, round, cycles);
        }
        Ok(())
    }

    #[inline(always)]
    fn post_ready(&self) -> Result<(), Failure> {
        let (limit, value) = (Deadline::after_us(self.limit_us), self.value()?);
        let mut queue = self.queue.open::<Exclusive>()?;
        let mut ready = queue.ready(self.write(), limit)?;
        for round in 0..self.all() {
            let began = Self::begin(value, round);
            let ticket = ready.post_to(self.remote.address, limit)?;
            let cycles = thread::cycles() - began;
            ready.wait(ticket, limit)?;
            self.note(Self::POST_READY, round, cycles);
        }
        Ok(())
    }

    #[inline(always)]
    fn trigger(&self) -> Result<(), Failure> {
        let (limit, value) = (Deadline::after_us(self.limit_us), self.value()?);
        let triggers = self.triggers.open()?;
        for round in 0..self.all() {
            triggers.register::<Thread, 1>(0, 1, [self.write()], limit)?;
            let began = Self::begin(value, round);
            triggers.trigger::<Thread>(0)?;
            let cycles = thread::cycles() - began;
            triggers.wait::<Thread>(0, limit)?;
            self.note(Self::SENDING, round, cycles);
        }
        for round in 0..self.all() {
            triggers.register::<Thread, 1>(0, 1, [self.write()], limit)?;
            let look = triggers.look::<Thread>(0)?;
            Self::work();
            let began = Self::begin(value, round);
            look.trigger();
            let cycles = thread::cycles() - began;
            triggers.wait::<Thread>(0, limit)?;
            self.note(Self::SENDING_LOOKED, round, cycles);
        }
        let mut own = triggers.own::<Thread>(0)?;
        for round in 0..self.all() {
            own.register(1, [self.write()], limit)?;
            let began = Self::begin(value, round);
            own.trigger();
            let cycles = thread::cycles() - began;
            own.wait(limit)?;
            self.note(Self::SENDING_OWN, round, cycles);
        }
        for round in 0..self.all() {
            let began = Self::begin(value, round);
            triggers.trigger::<Thread>(1)?;
            self.note(Self::COUNTING, round, thread::cycles() - began);
        }
        Ok(())
    }
}

/// Measures the clock and the posts.
#[kernel]
pub fn trigger_cost_posts(p: TriggerCost<'_>) {
    p.outcome.record(|| {
        let value = p.value()?;
        for round in 0..p.all() {
            let began = TriggerCost::begin(value, round);
            p.note(TriggerCost::NOTHING, round, thread::cycles() - began);
        }
        p.post::<Exclusive>(TriggerCost::POST_EXCLUSIVE)?;
        p.post::<GpuShared>(TriggerCost::POST_SHARED)
    });
}

/// Measures posts from a ring that is filled once.
#[kernel]
pub fn trigger_cost_ready(p: TriggerCost<'_>) {
    p.outcome.record(|| p.post_ready());
}

/// Measures triggers.
#[kernel]
pub fn trigger_cost_triggers(p: TriggerCost<'_>) {
    p.outcome.record(|| p.trigger());
}

/// Triggers of what the host registers while the kernel runs, by one thread.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct JointCost<'a> {
    /// Under tag 0 the host registers an operation that wants one trigger, again and again; under tag 1 one that is never
    /// sent; under tag 2 none.
    pub triggers: JointHandle<'a>,
    /// What is written: its first word changes.
    pub value: Place,
    /// Triggers of each kind before those that count.
    pub warm_up: u32,
    /// Triggers that count.
    pub rounds: u32,
    /// Microseconds that a wait may take.
    pub limit_us: u64,
    /// Takes the cycles of each trigger that counts: those of [`JointCost::NOTHING`], then those of the next.
    pub cycles: Slice<'a, Word64>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

impl JointCost<'_> {
    /// The clock, and the store of the value.
    pub const NOTHING: u64 = 0;
    /// A trigger that sends.
    pub const SENDING: u64 = 1;
    /// One that counts.
    pub const COUNTING: u64 = 2;
    /// One that comes before its operation.
    pub const EARLY: u64 = 3;
    /// How many ways there are.
    pub const WAYS: u64 = 4;

    #[inline(always)]
    fn trigger(&self) -> Result<(), Failure> {
        let (limit, value) = (Deadline::after_us(self.limit_us), self.value.part(0, 1)?);
        let triggers = self.triggers.open()?;
        for round in 0..self.all() {
            let began = TriggerCost::begin(value, round);
            self.note(Self::NOTHING, round, thread::cycles() - began);
        }
        for round in 0..self.all() {
            self.await_operation(triggers, limit)?;
            let began = TriggerCost::begin(value, round);
            let ticket = triggers.trigger::<Thread>(0)?;
            let cycles = thread::cycles() - began;
            triggers.wait(ticket, limit)?;
            self.note(Self::SENDING, round, cycles);
        }
        for round in 0..self.all() {
            let began = TriggerCost::begin(value, round);
            let _ = triggers.trigger::<Thread>(1)?;
            self.note(Self::COUNTING, round, thread::cycles() - began);
        }
        for round in 0..self.all() {
            let began = TriggerCost::begin(value, round);
            let _ = triggers.trigger::<Thread>(2)?;
            self.note(Self::EARLY, round, thread::cycles() - began);
        }
        Ok(())
    }

    /// Waits until the host has registered the next operation of tag 0.
    #[inline(always)]
    fn await_operation(&self, triggers: JointTriggers<'_>, limit: Deadline) -> Result<(), Failure> {
        let mut wait = limit.wait();
        while triggers.counter(0)?.missing() == 0 {
            if wait.expired() {
                return Err(Error::NotRegistered.into());
            }
        }
        Ok(())
    }

    /// Notes what a trigger took.
    #[inline(always)]
    fn note(&self, way: u64, round: u32, cycles: u64) {
        if let Some(round) = round.checked_sub(self.warm_up) {
            let place = way * u64::from(self.rounds) + u64::from(round);
            self.cycles.store(place, cycles);
        }
    }

    #[inline(always)]
    fn all(&self) -> u32 {
        self.warm_up + self.rounds
    }
}

/// Measures triggers of what the host registers meanwhile.
#[kernel]
pub fn trigger_cost_joint(p: JointCost<'_>) {
    p.outcome.record(|| p.trigger());
}

/// Writes one after the other, each once the one before is done: by the NIC, and by a thread.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TriggerHops<'a> {
    /// Tag 0 is triggered; each of the others follows the one before it.
    pub triggers: TriggerHandle<'a>,
    /// How many writes there are, and tags.
    pub hops: u32,
    /// Where the same writes are posted.
    pub queue: SendQueueHandle<'a>,
    /// What is written.
    pub local: Local,
    /// Where the first goes; each goes behind the one before.
    pub remote: Remote,
    /// Microseconds that it may take.
    pub limit_us: u64,
    /// Which measurement this is.
    pub round: u64,
    /// Takes the cycles of all writes: of the NIC's in each round, then of the thread's.
    pub cycles: Slice<'a, Word64>,
    /// How many rounds there are.
    pub rounds: u64,
    /// What became of it.
    pub outcome: &'a Outcome,
}

impl TriggerHops<'_> {
    #[inline(always)]
    fn chain(&self) -> Result<(), Failure> {
        let triggers = self.triggers.open()?;
        let began = thread::cycles();
        triggers.trigger::<Thread>(0)?;
        triggers.wait::<Thread>(self.hops - 1, Deadline::after_us(self.limit_us))?;
        self.cycles.store(self.round, thread::cycles() - began);
        Ok(())
    }

    #[inline(always)]
    fn posts(&self) -> Result<(), Failure> {
        let limit = Deadline::after_us(self.limit_us);
        let mut queue = self.queue.open::<Exclusive>()?;
        let began = thread::cycles();
        for hop in 0..self.hops {
            let remote = self
                .remote
                .at(u64::from(hop) * u64::from(self.local.length));
            let write = Wqe::write(self.local, remote).signalled();
            let ticket = queue.post(write, limit)?;
            queue.wait(ticket, limit)?;
        }
        self.cycles
            .store(self.rounds + self.round, thread::cycles() - began);
        Ok(())
    }
}

/// Triggers a chain, and waits for its end.
#[kernel]
pub fn trigger_hops_chain(p: TriggerHops<'_>) {
    p.outcome.record(|| p.chain());
}

/// Posts the same writes, and waits for each.
#[kernel]
pub fn trigger_hops_posts(p: TriggerHops<'_>) {
    p.outcome.record(|| p.posts());
}
