//! Lanes between the processes of a job.

use std::collections::{BTreeMap, BTreeSet};

use crate::active::{Buffer as BufferNumber, BufferEntry, Function, InitiatorHandle, TargetHandle};
use warpbell_host_init::world::WorldError;
use warpbell_host_init::{MemoryRegion, QueuePair, QueuePairConfig, World};

use super::end::{End, Place};
use super::initiator::Initiator;
use super::registry::Registry;
use super::{ActiveConfig, ActiveError};
use crate::Error;
use crate::gaspi::host::told;

/// This process's lanes of active messages to and from other processes of a job, on one machine or several, and the
/// functions and buffers that it has registered for tasks from all of them.
///
/// All ranks make the calls that take a `&mut World` together, in the same order. Each of these waits for the others, at most
/// for the timeout of the `World`, and names a rank that has failed. The other calls are this rank's own.
///
/// ```
/// use std::time::Duration;
/// use warpbell_host_init::{Node, World};
/// use warpbell_patterns::Error;
/// use warpbell_patterns::active::host::{ActiveConfig, ActiveRank};
///
/// const ADD: u32 = 3;
///
/// fn main() -> Result<(), Error> {
///     let mut world = World::from_env(&Node::cpu(), Duration::from_secs(60))?;
///     // Every rank sends tasks to all others.
///     let others = world.others();
///     let mut active = ActiveRank::new(&mut world, others, &ActiveConfig::default())?;
///     active.register(ADD, 2)?;
///     active.register_buffer(0, 4096)?;
///     active.share_buffers(&mut world)?;
///     for other in world.others() {
///         // For the kernels of this rank:
///         let (initiator, target) = (active.initiator(other)?, active.target(other)?);
///         # let _ = (initiator, target);
///     }
///     // The others may still write to this rank's lanes.
///     world.barrier()?;
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct ActiveRank {
    config: ActiveConfig,
    /// By the target's rank.
    initiators: BTreeMap<u32, Initiator>,
    /// By the initiator's rank.
    targets: BTreeMap<u32, End>,
    registry: Registry,
}

impl ActiveRank {
    /// Makes lanes from this rank to each of these targets, and from each rank that names this one as a target. All
    /// ranks have the same numbers of lanes, slots and buffers, and the same longest result. Nothing is registered yet.
    ///
    /// # Errors
    /// [`Error::Active`] for numbers that are refused, or that differ between ranks; those of [`World::connect`] and
    /// [`World::exchange`].
    pub fn new(
        world: &mut World,
        targets: impl IntoIterator<Item = u32>,
        config: &ActiveConfig,
    ) -> Result<Self, Error> {
        told(world, config.check().map_err(Error::from))?;
        let targets: BTreeSet<u32> = targets.into_iter().collect();
        let initiators = initiators_of(world, &targets, config)?;
        let mut lanes = Vec::new();
        for _ in 0..config.lanes {
            lanes.push(connect(world, &targets, &initiators, &config.queue_pair())?);
        }
        let made = Self::with(world, config, &targets, &initiators, lanes);
        let mut made = told(world, made)?;
        let ours = made.places();
        let all: Vec<Places> = world.exchange(&ours)?;
        let all: BTreeMap<u32, Places> = world.ranks().zip(all).collect();
        let learned = made.learn(world.rank(), &all);
        told(world, learned)?;
        Ok(made)
    }

    /// The ends of connected lanes.
    fn with(
        world: &World,
        config: &ActiveConfig,
        targets: &BTreeSet<u32>,
        initiators: &BTreeSet<u32>,
        mut lanes: Vec<Pairs>,
    ) -> Result<Self, Error> {
        let domain = world.domain();
        let mut made = Self {
            config: *config,
            initiators: BTreeMap::new(),
            targets: BTreeMap::new(),
            registry: Registry::new(domain, config)?,
        };
        for &rank in targets {
            let pairs = lanes.iter_mut().filter_map(|lane| lane.to.remove(&rank));
            let initiator = Initiator::new(domain, config, pairs.collect())?;
            made.initiators.insert(rank, initiator);
        }
        for &rank in initiators {
            let pairs = lanes.iter_mut().filter_map(|lane| lane.from.remove(&rank));
            let end = End::of_target(domain, config, pairs.collect())?;
            made.targets.insert(rank, end);
        }
        Ok(made)
    }

    fn places(&self) -> Places {
        let to = self.initiators.iter();
        let from = self.targets.iter();
        (
            to.map(|(rank, initiator)| (*rank, initiator.end.place()))
                .collect(),
            from.map(|(rank, end)| (*rank, end.place())).collect(),
        )
    }

    /// Learns where the others have the other ends' words.
    fn learn(&mut self, own: u32, all: &BTreeMap<u32, Places>) -> Result<(), Error> {
        let missing = |rank| {
            let reason = "no words of a lane".into();
            warpbell_host_init::Error::from(WorldError::Malformed { rank, reason })
        };
        for (&rank, initiator) in &mut self.initiators {
            let theirs = all.get(&rank).and_then(|(_, from)| from.get(&own));
            initiator
                .end
                .set_remote(*theirs.ok_or_else(|| missing(rank))?);
        }
        for (&rank, end) in &mut self.targets {
            let theirs = all.get(&rank).and_then(|(to, _)| to.get(&own));
            end.set_remote(*theirs.ok_or_else(|| missing(rank))?);
        }
        Ok(())
    }

    /// How many lanes there are to each target.
    pub fn lanes(&self) -> u32 {
        self.config.lanes
    }

    /// Registers a function of this rank's kernels under a number, with so many arguments.
    ///
    /// # Errors
    /// As [`ActiveMessages::register`](super::ActiveMessages::register).
    pub fn register(&mut self, function: Function, arguments: u32) -> Result<(), Error> {
        self.registry.register(function, arguments)
    }

    /// Takes a function away: tasks that name it are refused from the next kernels on.
    ///
    /// # Errors
    /// [`ActiveError::NoSuchFunction`].
    pub fn deregister(&mut self, function: Function) -> Result<(), Error> {
        self.registry.deregister(function)
    }

    /// The functions that this rank has registered, by number.
    pub fn functions(&self) -> impl Iterator<Item = Function> {
        self.registry.functions()
    }

    /// Registers a buffer of `bytes` bytes at this rank under a number, all zero, where the queues lie: for payloads.
    /// The others learn of it by [`share_buffers`](Self::share_buffers).
    ///
    /// # Errors
    /// As [`ActiveMessages::register_buffer`](super::ActiveMessages::register_buffer).
    pub fn register_buffer(&mut self, buffer: BufferNumber, bytes: usize) -> Result<(), Error> {
        self.registry.register_buffer(buffer, bytes).map(drop)
    }

    /// A buffer of this rank.
    ///
    /// # Errors
    /// [`ActiveError::NoSuchBuffer`].
    pub fn buffer(&self, buffer: BufferNumber) -> Result<&MemoryRegion, Error> {
        self.registry.buffer(buffer)
    }

    /// Tells all initiators of the buffers that each target has. All ranks call this.
    ///
    /// # Errors
    /// Those of [`World::exchange`].
    pub fn share_buffers(&mut self, world: &mut World) -> Result<(), Error> {
        let ours = self.registry.buffers();
        let ours = ours.map(|(place, entry)| (place, entry.address, entry.size, entry.remote_key));
        let all: Vec<Vec<(usize, u64, u64, u32)>> = world.exchange(&ours.collect())?;
        for (rank, theirs) in world.ranks().zip(all) {
            let Some(initiator) = self.initiators.get_mut(&rank) else {
                continue;
            };
            for (place, address, size, remote_key) in theirs {
                let entry = BufferEntry {
                    address,
                    size,
                    remote_key,
                    unused: 0,
                };
                told(world, initiator.describe(place, entry))?;
            }
        }
        Ok(())
    }

    /// What the kernels of this rank get that send to that target. It borrows the lanes, which therefore outlive them
    /// and do not change under them.
    ///
    /// # Errors
    /// [`ActiveError::NoTarget`].
    pub fn initiator(&self, target: u32) -> Result<InitiatorHandle<'_>, Error> {
        let initiator = self.initiators.get(&target);
        let initiator = initiator.ok_or(ActiveError::NoTarget { rank: target })?;
        Ok(initiator.handle())
    }

    /// What the kernels of this rank get that serve that initiator, likewise.
    ///
    /// # Errors
    /// [`ActiveError::NoInitiator`].
    pub fn target(&self, initiator: u32) -> Result<TargetHandle<'_>, Error> {
        let end = self.targets.get(&initiator);
        let end = end.ok_or(ActiveError::NoInitiator { rank: initiator })?;
        Ok(self.registry.handle(end))
    }

    /// Makes a lane usable after an error, the same lane between all ranks, with new queue pairs. Messages that were not answered are
    /// forgotten at both ends. Kernels must have ended at all ranks, which all call this. Lanes with ranks that do not
    /// take part any more are dropped.
    ///
    /// # Errors
    /// [`ActiveError::NoSuchLane`]; those of [`World::connect`].
    pub fn renew(&mut self, world: &mut World, lane: u32) -> Result<(), Error> {
        let lane = told(world, self.config.place_of(lane).map_err(Error::from))?;
        self.drop_left_out(world);
        let targets = self.initiators.keys().copied().collect();
        let initiators = self.targets.keys().copied().collect();
        let Pairs { to, from } = connect(world, &targets, &initiators, &self.config.queue_pair())?;
        let renewed = self.put(lane, to, from);
        told(world, renewed)?;
        // Nobody sends before the words of the other end are cleared.
        Ok(world.barrier()?)
    }

    fn put(
        &mut self,
        lane: usize,
        to: BTreeMap<u32, QueuePair>,
        from: BTreeMap<u32, QueuePair>,
    ) -> Result<(), Error> {
        for (initiator, pair) in self.initiators.values_mut().zip(to.into_values()) {
            initiator.end.renew(lane, pair)?;
        }
        for (end, pair) in self.targets.values_mut().zip(from.into_values()) {
            end.renew(lane, pair)?;
        }
        Ok(())
    }

    /// Drops the lanes with ranks that do not take part any more, after [`World::shrink`] and before
    /// [`World::take_in`]: from then on this rank's NIC refuses what they send. Such a rank may be alive, and write to lanes
    /// and buffers. A rank that comes back has no lanes: make a new `ActiveRank` at all ranks.
    pub fn drop_left_out(&mut self, world: &World) {
        let left: BTreeSet<u32> = world.ranks().collect();
        self.initiators.retain(|rank, _| left.contains(rank));
        self.targets.retain(|rank, _| left.contains(rank));
    }

    /// The queue pairs of all lanes of this rank: for a [`Watch`](warpbell_host_init::cuda::Watch) over its kernels, and
    /// for what they did.
    pub fn queue_pairs(&self) -> impl Iterator<Item = &QueuePair> {
        let initiators = self.initiators.values().map(|initiator| &initiator.end);
        initiators.chain(self.targets.values()).flat_map(End::pairs)
    }
}

/// Where a rank has the words of its lanes: to its targets, and from its initiators.
type Places = (BTreeMap<u32, Place>, BTreeMap<u32, Place>);

/// One lane's queue pairs at this rank: to its targets, and from its initiators.
struct Pairs {
    to: BTreeMap<u32, QueuePair>,
    from: BTreeMap<u32, QueuePair>,
}

/// The ranks that name this one as a target. All ranks learn of a configuration that is not that of rank 0.
fn initiators_of(
    world: &mut World,
    targets: &BTreeSet<u32>,
    config: &ActiveConfig,
) -> Result<BTreeSet<u32>, Error> {
    let numbers = [
        ("lanes", config.lanes),
        ("slots of a lane", config.slots),
        ("places for buffers", config.buffers),
        ("bytes of the longest result", config.max_result),
    ];
    let ours = (targets.clone(), numbers.map(|(_, number)| number));
    let all: Vec<(BTreeSet<u32>, [u32; 4])> = world.exchange(&ours)?;
    let first = all.first().map_or(ours.1, |(_, numbers)| *numbers);
    let mut initiators = BTreeSet::new();
    for (rank, (targets, theirs)) in world.ranks().zip(all) {
        for (((what, _), theirs), ours) in numbers.into_iter().zip(theirs).zip(first) {
            if theirs != ours {
                return Err(ActiveError::OtherRank {
                    rank,
                    what,
                    theirs,
                    ours,
                }
                .into());
            }
        }
        if targets.contains(&world.rank()) {
            initiators.insert(rank);
        }
    }
    Ok(initiators)
}

/// Connects a lane to each target and from each initiator. Two ranks may be each other's targets: lanes to higher ranks
/// come first, and then those to lower ones.
fn connect(
    world: &mut World,
    targets: &BTreeSet<u32>,
    initiators: &BTreeSet<u32>,
    config: &QueuePairConfig,
) -> Result<Pairs, Error> {
    let own = world.rank();
    let higher = targets.range(own..).chain(initiators.range(..own));
    let mut from = world.connect(higher.copied(), config)?;
    let mut to = from.split_off(&own);
    let lower = targets.range(..own).chain(initiators.range(own..));
    let mut lower = world.connect(lower.copied(), config)?;
    from.append(&mut lower.split_off(&own));
    to.append(&mut lower);
    Ok(Pairs { to, from })
}
