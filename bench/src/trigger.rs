//! Triggered operations: the levels of GPU-TN's listing, what a trigger costs, and chains that the NIC starts itself.

use std::thread;

use crate::nodes;
use crate::run::interrupt;
use crate::run::launch::{LIMIT_US, said};
use crate::run::memory::Memory;
use crate::run::statistics::percentile;
use serde::Serialize;
use warpbell::wqe::Wqe;
use warpbell::{Deadline, SendDoorbell, Slice, Word64};
use warpbell_host_init::{
    Access, Grid, Launch, Node, ProtectionDomain, QueuePair, QueuePairConfig, connect, entry,
};
use warpbell_kernels::outcome::Outcome;
use warpbell_kernels::trigger::{
    JointCost, Listing, TriggerCost, TriggerHops, trigger_cost_joint, trigger_cost_posts,
    trigger_cost_ready, trigger_cost_triggers, trigger_hops_chain, trigger_hops_posts,
    trigger_kernel, trigger_work_groups, trigger_work_items,
};
use warpbell_patterns::Error as PatternError;
use warpbell_patterns::trigger::MAX_THRESHOLD;
use warpbell_patterns::trigger::host::{JointTriggers, TriggerError, Triggers};
use warpbell_soft_hca_gpu::MemoryScope;

use crate::Error;
use crate::samples::sorted;

/// Who triggers an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Each thread its own.
    WorkItem,
    /// Each block its own.
    WorkGroup,
    /// All blocks the same.
    Kernel,
}

impl Level {
    /// In the order of the listing.
    pub const ALL: [Self; 3] = [Self::WorkItem, Self::WorkGroup, Self::Kernel];

    /// Its name there.
    pub fn name(self) -> &'static str {
        match self {
            Self::WorkItem => "work-item level",
            Self::WorkGroup => "work-group level",
            Self::Kernel => "kernel level",
        }
    }
}

/// What came of a level.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sent {
    /// Who triggered.
    pub level: Level,
    /// Operations, each with a tag of its own.
    pub operations: u32,
    /// Triggers that each of them wanted.
    pub threshold: u32,
    /// Bytes that each of them wrote.
    pub bytes: u32,
    /// Every byte arrived, and nothing beside.
    pub verified: bool,
}

/// The sides of the connections.
struct Sides {
    near: ProtectionDomain,
    far: ProtectionDomain,
    config: QueuePairConfig,
}

impl Sides {
    fn new(node: &Node) -> Result<Self, Error> {
        let [near, far] = node.ends()?;
        Ok(Self {
            near,
            far,
            config: QueuePairConfig {
                send_depth: 16,
                receive_depth: 0,
                ..QueuePairConfig::granting(Access::REMOTE_WRITE)
            },
        })
    }

    fn connected(&self) -> Result<(QueuePair, QueuePair), Error> {
        self.connected_as(&self.config)
    }

    /// With a near end of that kind.
    fn connected_as(&self, kind: &QueuePairConfig) -> Result<(QueuePair, QueuePair), Error> {
        let mut near = self.near.queue_pair(kind)?;
        let mut far = self.far.queue_pair(&self.config)?;
        connect(&mut near, &mut far)?;
        Ok((near, far))
    }

    /// A table of so many tags, and the other ends.
    fn triggers(&self, tags: u32) -> Result<(Triggers, Vec<QueuePair>), Error> {
        let pairs = (0..tags).map(|_| self.connected());
        let (near, far) = pairs.collect::<Result<(Vec<_>, Vec<_>), Error>>()?;
        Ok((Triggers::new(near)?, far))
    }

    /// A table of so many tags, each of which may follow the one before, and the other ends.
    fn chain(&self, tags: u32) -> Result<(Triggers, Vec<QueuePair>), Error> {
        let pairs = (0..tags).map(|tag| {
            self.connected_as(&QueuePairConfig {
                cross_channel: tag + 1 < tags,
                managed_send: tag > 0,
                ..self.config
            })
        });
        let (near, far) = pairs.collect::<Result<(Vec<_>, Vec<_>), Error>>()?;
        Ok((Triggers::new(near)?, far))
    }
}

/// Runs a kernel until it has ended.
fn run(
    node: &Node,
    what: &str,
    launch: Launch<'_>,
    queue_pairs: &[&QueuePair],
    outcome: &Outcome,
) -> Result<(), Error> {
    interrupt::check()?;
    node.run(&[launch], queue_pairs)?;
    Ok(said(what, outcome)?)
}

/// Sends a word of each thread of a grid: registers the operations, then launches the kernel that triggers them.
///
/// # Errors
/// Too many tags for the NIC; a kernel that failed.
pub fn send(node: &Node, level: Level, grid: Grid) -> Result<Sent, Error> {
    let sides = Sides::new(node)?;
    let (blocks, threads) = (grid.blocks, grid.threads_per_block);
    let (operations, threshold, words) = match level {
        Level::WorkItem => (blocks * threads, 1, 1),
        Level::WorkGroup => (blocks, 1, threads),
        Level::Kernel => (1, blocks, blocks * threads),
    };
    let (bytes, all) = (8 * words, 8 * (blocks * threads) as usize);
    let buffer = Memory::new(&sides.near, node.nic_placement(), all)?;
    let target = Memory::new(&sides.far, node.nic_placement(), all)?;
    let (mut triggers, _far) = sides.triggers(operations)?;
    for tag in 0..operations {
        let place = (tag * bytes) as usize;
        let write = Wqe::write(buffer.local(place, bytes as usize), target.remote(place));
        triggers.register(tag, threshold, [write])?;
    }
    let outcome = node.shared(Outcome::new())?;
    let parameters = Listing {
        triggers: triggers.handle(),
        tag_base: 0,
        // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
        buffer: unsafe { buffer.place() },
        limit_us: LIMIT_US,
        outcome: &outcome,
    };
    let launch = match level {
        Level::WorkItem => Launch::new(entry!(trigger_work_items), grid, parameters),
        Level::WorkGroup => Launch::new(entry!(trigger_work_groups), grid, parameters),
        Level::Kernel => Launch::new(entry!(trigger_kernel), grid, parameters),
    };
    let pairs: Vec<_> = triggers.queue_pairs().collect();
    run(node, level.name(), launch, &pairs, &outcome)?;
    let expected: Vec<u8> = (0..blocks * threads)
        .flat_map(|index| Listing::value(index).to_ne_bytes())
        .collect();
    Ok(Sent {
        level,
        operations,
        threshold,
        bytes,
        verified: target.check(&expected).is_ok() && buffer.check(&expected).is_ok(),
    })
}

/// What a kernel's thread pays for one write, the clock's own time taken off: the median, in nanoseconds on a CPU, in
/// cycles on a GPU.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Costs {
    /// Built and posted, the queue being the thread's own.
    pub post_exclusive: u64,
    /// Posted to the thread's own queue, in whose ring it lies ready: index and remote address are patched.
    pub post_ready: u64,
    /// Built and posted, the queue being shared by the GPU, as tags are.
    pub post_shared: u64,
    /// A trigger that sends it.
    pub trigger_sending: u64,
    /// The same, the tag having been looked at before.
    pub trigger_sending_looked: u64,
    /// A trigger that sends it, the tag being the thread's own.
    pub trigger_sending_own: u64,
    /// A trigger that counts, because others are missing.
    pub trigger_counting: u64,
    /// The trigger that sends over the post to the shared queue.
    pub sending_ratio: f64,
    /// That whose tag was looked at before over the same.
    pub sending_looked_ratio: f64,
    /// That of the thread's own tag over the post to its own queue.
    pub sending_own_ratio: f64,
    /// The trigger that counts over the same.
    pub counting_ratio: f64,
}

/// How often each is measured.
#[derive(Clone, Copy, Debug)]
pub struct CostCase {
    /// Times that count; at least 1.
    pub rounds: u32,
    /// Times before them that do not.
    pub warm_up: u32,
    /// Bytes of the write: at least 8.
    pub bytes: u32,
    /// Whether the queues have a doorbell record.
    pub send_doorbell: SendDoorbell,
}

impl CostCase {
    /// Measures it; none if the NIC has no queues without a record.
    ///
    /// # Errors
    /// A kernel that failed.
    pub fn measure(&self, node: &Node) -> Result<Option<Costs>, Error> {
        let mut sides = Sides::new(node)?;
        let without = self.send_doorbell == SendDoorbell::WithoutRecord;
        if without && !sides.near.device().limits().without_record {
            return Ok(None);
        }
        sides.config.send_doorbell = self.send_doorbell;
        let (mut triggers, _far) = sides.triggers(2)?;
        let (pair, _other) = sides.connected()?;
        let bytes = self.bytes as usize;
        let source = Memory::new(&sides.near, node.nic_placement(), bytes)?;
        let target = Memory::new(&sides.far, node.nic_placement(), bytes)?;
        let write = Wqe::write(source.local(0, bytes), target.remote(0));
        // More than it ever gets.
        triggers.register(1, MAX_THRESHOLD, [write])?;
        let outcome = node.shared(Outcome::new())?;
        let rounds = self.rounds as usize;
        let cycles = node.words(TriggerCost::WAYS as usize * rounds)?;
        let parameters = TriggerCost {
            triggers: triggers.handle(),
            queue: pair.send_queue()?,
            local: source.local(0, bytes),
            remote: target.remote(0),
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            value: unsafe { source.place() },
            warm_up: self.warm_up,
            rounds: self.rounds,
            limit_us: LIMIT_US,
            cycles: Slice::new(&cycles),
            outcome: &outcome,
        };
        let pairs: Vec<_> = triggers.queue_pairs().chain([&pair]).collect();
        let one = Grid::ONE_THREAD;
        // Several kernels, because what is not needed in one would take its registers.
        for launch in [
            Launch::new(entry!(trigger_cost_posts), one, parameters),
            Launch::new(entry!(trigger_cost_ready), one, parameters),
            Launch::new(entry!(trigger_cost_triggers), one, parameters),
        ] {
            run(node, "the measurement", launch, &pairs, &outcome)?;
        }
        let cost = |way| over(&cycles, rounds, TriggerCost::NOTHING, way);
        let post_shared = cost(TriggerCost::POST_SHARED);
        let trigger_sending = cost(TriggerCost::SENDING);
        let trigger_sending_looked = cost(TriggerCost::SENDING_LOOKED);
        let trigger_counting = cost(TriggerCost::COUNTING);
        let post_exclusive = cost(TriggerCost::POST_EXCLUSIVE);
        let trigger_sending_own = cost(TriggerCost::SENDING_OWN);
        let ratio = |of: u64, over: u64| of as f64 / over.max(1) as f64;
        Ok(Some(Costs {
            post_exclusive,
            post_ready: cost(TriggerCost::POST_READY),
            post_shared,
            trigger_sending,
            trigger_sending_looked,
            trigger_sending_own,
            trigger_counting,
            sending_ratio: ratio(trigger_sending, post_shared),
            sending_looked_ratio: ratio(trigger_sending_looked, post_shared),
            sending_own_ratio: ratio(trigger_sending_own, post_exclusive),
            counting_ratio: ratio(trigger_counting, post_shared),
        }))
    }
}

/// The median of a way's rounds, over that of another way.
fn over(cycles: &[Word64], rounds: usize, other: u64, way: u64) -> u64 {
    let median = |way: u64| {
        let all = cycles.iter().skip(way as usize * rounds).take(rounds);
        percentile(&sorted(all), 50)
    };
    median(way).saturating_sub(median(other))
}

/// What a trigger costs where the host registers while the kernel runs, its words in memory that both reach; the unit and
/// the rest as of [`Costs`].
#[derive(Clone, Copy, Debug, Serialize)]
pub struct JointCosts {
    /// A trigger that sends the write.
    pub sending: u64,
    /// A trigger that counts, because others are missing.
    pub counting: u64,
    /// A trigger that comes before its operation.
    pub early: u64,
}

impl CostCase {
    /// Measures triggers of what the host registers meanwhile, in queues with a record; none if the host cannot ring, as
    /// with a card and kernels on a GPU.
    ///
    /// # Errors
    /// A kernel that failed; a registration that did.
    pub fn measure_joint(&self, node: &Node) -> Result<Option<JointCosts>, Error> {
        let sides = Sides::new(&nodes::reaching(node, MemoryScope::System)?)?;
        let kind = QueuePairConfig {
            placement: Some(node.placement()),
            ..sides.config
        };
        let pairs = (0..3).map(|_| sides.connected_as(&kind));
        let (near, _far) = pairs.collect::<Result<(Vec<_>, Vec<_>), Error>>()?;
        let triggers = match JointTriggers::new(near) {
            Err(PatternError::Trigger(TriggerError::KernelsDoorbell { .. })) => return Ok(None),
            made => made?,
        };
        let bytes = self.bytes as usize;
        let source = Memory::new(&sides.near, node.nic_placement(), bytes)?;
        let target = Memory::new(&sides.far, node.nic_placement(), bytes)?;
        let write = Wqe::write(source.local(0, bytes), target.remote(0));
        let limit = Deadline::after_us(LIMIT_US);
        // More than it ever gets.
        triggers.register(1, MAX_THRESHOLD, [write], limit)?;
        let outcome = node.shared(Outcome::new())?;
        let rounds = self.rounds as usize;
        let cycles = node.words(JointCost::WAYS as usize * rounds)?;
        let parameters = JointCost {
            triggers: triggers.handle(),
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            value: unsafe { source.place() },
            warm_up: self.warm_up,
            rounds: self.rounds,
            limit_us: LIMIT_US,
            cycles: Slice::new(&cycles),
            outcome: &outcome,
        };
        let pairs: Vec<_> = triggers.queue_pairs().collect();
        let launch = Launch::new(entry!(trigger_cost_joint), Grid::ONE_THREAD, parameters);
        thread::scope(|scope| {
            let registering = scope.spawn(|| {
                (0..self.warm_up + self.rounds)
                    .try_for_each(|_| triggers.register(0, 1, [write], limit).map(drop))
            });
            let ran = run(node, "the measurement", launch, &pairs, &outcome);
            let registered = registering.join().expect("a thread that registers");
            ran.and(Ok(registered?))
        })?;
        let cost = |way| over(&cycles, rounds, JointCost::NOTHING, way);
        Ok(Some(JointCosts {
            sending: cost(JointCost::SENDING),
            counting: cost(JointCost::COUNTING),
            early: cost(JointCost::EARLY),
        }))
    }
}

/// What a write takes that goes once the one before is done: the median, over the writes of a chain, in nanoseconds on
/// a CPU, in cycles on a GPU.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Hops {
    /// Writes of a chain, each in a queue of its own.
    pub hops: u32,
    /// Where the NIC starts each, and a kernel triggers the first and waits for the last.
    pub by_nic: u64,
    /// Where a thread posts each, and waits for it.
    pub by_kernel: u64,
    /// The first over the second.
    pub ratio: f64,
    /// Every byte of every hop arrived in each round, and nothing beside.
    pub verified: bool,
}

/// How often a chain is measured.
#[derive(Clone, Copy, Debug)]
pub struct HopCase {
    /// Writes of a chain.
    pub hops: u32,
    /// Chains; at least 1.
    pub rounds: u32,
    /// Bytes of each write.
    pub bytes: u32,
}

impl HopCase {
    /// Measures it; none if the NIC lets no queue start another.
    ///
    /// # Errors
    /// A kernel that failed; too many queue pairs for the NIC.
    pub fn measure(&self, node: &Node) -> Result<Option<Hops>, Error> {
        let sides = Sides::new(node)?;
        if !sides.near.device().limits().cross_channel {
            return Ok(None);
        }
        let (mut triggers, _far) = sides.chain(self.hops)?;
        let (pair, _other) = sides.connected()?;
        let bytes = self.bytes as usize;
        let all = self.hops as usize * bytes;
        let source = Memory::new(&sides.near, node.nic_placement(), bytes)?;
        // What the NIC's chain writes, then what the thread writes.
        let target = Memory::new(&sides.far, node.nic_placement(), 2 * all)?;
        let outcome = node.shared(Outcome::new())?;
        let rounds = self.rounds as usize;
        let cycles = node.words(2 * rounds)?;
        let mut verified = true;
        for round in 0..self.rounds {
            // Others than the round before: each hop has to write all of them.
            let sent: Vec<u8> = (0..bytes)
                .map(|at| (at * 7) as u8 ^ (round as u8).wrapping_add(1))
                .collect();
            source.write(0, &sent);
            for tag in 0..self.hops {
                let place = target.remote(tag as usize * bytes);
                let write = Wqe::write(source.local(0, bytes), place);
                match tag {
                    0 => triggers.register(tag, 1, [write])?,
                    _ => triggers.register_after(tag, tag - 1, [write])?,
                }
            }
            let parameters = TriggerHops {
                triggers: triggers.handle(),
                hops: self.hops,
                queue: pair.send_queue()?,
                local: source.local(0, bytes),
                remote: target.remote(all),
                limit_us: LIMIT_US,
                round: round.into(),
                cycles: Slice::new(&cycles),
                rounds: self.rounds.into(),
                outcome: &outcome,
            };
            let pairs: Vec<_> = triggers.queue_pairs().chain([&pair]).collect();
            for launch in [
                Launch::new(entry!(trigger_hops_chain), Grid::ONE_THREAD, parameters),
                Launch::new(entry!(trigger_hops_posts), Grid::ONE_THREAD, parameters),
            ] {
                run(node, "the chain", launch, &pairs, &outcome)?;
            }
            verified &= target.check(&sent.repeat(2 * self.hops as usize)).is_ok();
        }
        let median = |first: usize| {
            let taken = cycles.iter().skip(first).take(rounds);
            percentile(&sorted(taken), 50) / u64::from(self.hops)
        };
        let (by_nic, by_kernel) = (median(0), median(rounds));
        Ok(Some(Hops {
            hops: self.hops,
            by_nic,
            by_kernel,
            ratio: by_nic as f64 / by_kernel.max(1) as f64,
            verified,
        }))
    }
}
