//! Ranks: the processes of a job, on one machine or several, with connected queues.
//!
//! A launcher starts the same program many times: mpirun, srun, torchrun, or `warpbell-launch`. The
//! processes find each other ([`ranks`] says what a user sets), each opens the NIC of its node, and a [`World`] connects
//! them. After that, as always, kernels move the data.
//!
//! ```no_run
//! use std::time::Duration;
//! use warpbell_host_init::{Access, Node, QueuePairConfig, RemoteMemory, World};
//!
//! let mut world = World::from_env(&Node::cpu(), Duration::from_secs(60))?;
//! let memory = world.domain().allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//! let config = QueuePairConfig::granting(Access::REMOTE_WRITE);
//! let pairs = world.connect(world.others(), &config)?;
//! let memories: Vec<RemoteMemory> = world.exchange(&memory.remote())?;
//! for (&rank, pair) in &pairs {
//!     println!("to rank {rank}: {:?} and {:?}", pair.send_queue()?, memories[rank as usize]);
//! }
//! // The others may still read and write this rank's memory.
//! world.barrier()?;
//! # Ok::<(), warpbell_host_init::Error>(())
//! ```
//!
//! # Which wire
//!
//! | the two NICs are | the wire |
//! |---|---|
//! | cards | their own network |
//! | of software, in processes of one machine, one network namespace and one user | shared memory |
//! | of software, otherwise | RoCE v2: UDP, at a port that the system chooses |
//!
//! `WARPBELL_WIRE=shm` or `WARPBELL_WIRE=roce` forces one, for all ranks the same. For RoCE v2 each rank listens at an
//! address in a network that all machines share. `WARPBELL_ADDRESS` names an address, a network (`10.1.0.0/16`) or an
//! interface (`eth1`), or several with commas between them, if not all are good. [`WorldOptions`] has both.
//!
//! The packets of RoCE v2 are not authenticated, as those of a card are not: whoever sees them can write to registered
//! memory. Use networks that belong to the job.
//!
//! # Several devices on a machine
//!
//! `--nic mlx5_0,mlx5_1` of `NodeArgs` (feature `clap`) has a card for each rank of a machine: the first rank takes the
//! first, and so on. A program that chooses by itself joins the ranks first, and then opens the node by
//! [`local_rank`](ranks::Bootstrap::local_rank):
//!
//! ```no_run
//! use std::time::Duration;
//! use warpbell_host_init::mlx5::Mlx5Options;
//! use warpbell_host_init::world::ranks::{Bootstrap, Rendezvous};
//! use warpbell_host_init::world::WorldOptions;
//! use warpbell_host_init::{Nic, Node, World};
//!
//! let limit = Duration::from_secs(60);
//! let ranks = Rendezvous::from_env(limit)?;
//! let card = Mlx5Options::new(format!("mlx5_{}", ranks.local_rank()));
//! let node = Node::cpu().with_nic(Nic::Mlx5(card))?;
//! let world = World::with(ranks, &node, &WorldOptions::from_env(limit)?)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # When a rank fails
//!
//! Every wait has the deadline of [`WorldOptions::timeout`]. If a rank dies or fails before all have finished, the next
//! step of all others ends in an error that names this rank; a kernel that writes to it gets an error on the queue pair to
//! it, once the retries of [`Timers`](crate::Timers) are over. Then:
//!
//! | step | who | what |
//! |---|---|---|
//! | [`World::check`], [`World::failed`] | each rank, when it likes | why the next step would fail, and which ranks have failed; do not wait |
//! | [`World::shrink`] | all ranks that are left | they agree on who they are; later steps are theirs |
//! | [`World::take_in`] | all ranks that take part | a new process with the number of a rank that failed takes part again |
//!
//! ```no_run
//! # use std::time::Duration;
//! # use warpbell_host_init::{Error, World};
//! # fn go_on(world: &mut World) -> Result<(), Error> {
//! let limit = Duration::from_secs(60);
//! if world.barrier().is_err() {
//!     for rank in world.shrink(limit)? {
//!         println!("going on without rank {rank}, until it is started again");
//!         world.take_in(rank, Duration::from_secs(600))?;
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Rank 0 serves all others: if its process ends, the job ends.

#[cfg(feature = "soft")]
mod address;
mod error;
mod faults;
mod gather;
mod links;
mod options;
mod site;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use warpbell_ranks::{Bootstrap, Config, Environment, Rendezvous};

pub use warpbell_ranks as ranks;

pub use error::WorldError;
pub use options::{WireKind, WorldOptions};
#[cfg(feature = "soft")]
pub use warpbell_soft_hca::shell::roce::{Addresses, AddressesError};

use crate::state::{CardPort, Endpoint};
use crate::{Error, Node, ProtectionDomain, QueuePair, QueuePairConfig};
use links::Links;

/// How often a wire is tried before it counts as not there. On a machine with many ranks the other process may answer
/// late.
const ATTEMPTS: u32 = 5;

/// All ranks of a job, seen from one of them: its place among them, and its NIC, which reaches all others.
///
/// All ranks make the same calls in the same order. Each call waits for the others, at most for the timeout given at the
/// start. `Display` says in a line how the ranks were started and which wires there are, for rank 0 to print.
///
/// ```
/// use std::time::Duration;
/// use warpbell_host_init::{Node, QueuePairConfig, World};
///
/// // No launcher has started this process: it is the only rank.
/// let mut world = World::from_env(&Node::cpu(), Duration::from_secs(60))?;
/// if world.rank() == 0 {
///     println!("{world}");
/// }
/// let pairs = world.connect(world.others(), &QueuePairConfig::default())?;
/// assert_eq!(pairs.len() + 1, world.size() as usize);
/// # Ok::<(), warpbell_host_init::Error>(())
/// ```
pub struct World {
    bootstrap: Box<dyn Bootstrap + Send>,
    links: Links,
    timeout: Duration,
    /// How the ranks were started, as far as this is known.
    started: Option<String>,
}

/// A queue pair for one other rank.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    rank: u32,
    qpn: u32,
    psn: u32,
    card: Option<CardPort>,
}

impl World {
    /// Finds the other ranks by the variables that the launcher has set, opens the node's NIC, and makes wires to all. A
    /// process that no launcher has started is the only rank.
    ///
    /// # Errors
    /// [`Error::World`]: the variables contradict each other, a rank did not come in time, or failed; those of
    /// [`Node::domain`].
    pub fn from_env(node: &Node, timeout: Duration) -> Result<Self, Error> {
        let config = Config::read(&Environment::of_process()).map_err(WorldError::from)?;
        let mut ranks = Rendezvous::join(&config, timeout).map_err(WorldError::from)?;
        // The others learn of a wrong value here.
        let options = WorldOptions::from_env(timeout);
        let options = options.inspect_err(|error| ranks.abort(&error.to_string()))?;
        let mut world = Self::with(ranks, node, &options)?;
        world.started = Some(config.to_string());
        Ok(world)
    }

    /// The same with ranks that know each other already.
    ///
    /// # Errors
    /// As [`from_env`](Self::from_env).
    pub fn with(
        mut bootstrap: impl Bootstrap + Send + 'static,
        node: &Node,
        options: &WorldOptions,
    ) -> Result<Self, Error> {
        match Links::open(&mut bootstrap, node, options) {
            Ok(links) => Ok(Self {
                bootstrap: Box::new(bootstrap),
                links,
                timeout: options.timeout,
                started: None,
            }),
            Err(error) => {
                abort_for(&mut bootstrap, &error);
                Err(error)
            }
        }
    }

    /// The number of this rank, from 0.
    pub fn rank(&self) -> u32 {
        self.bootstrap.rank()
    }

    /// How many ranks the job has, those that have failed included.
    pub fn size(&self) -> u32 {
        self.bootstrap.size()
    }

    /// The number of this rank among those of its machine, from 0.
    pub fn local_rank(&self) -> u32 {
        self.bootstrap.local_rank()
    }

    /// All ranks that take part but this one.
    pub fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let own = self.rank();
        self.ranks().filter(move |&rank| rank != own)
    }

    /// Where memory is registered and queue pairs are made. Its device is this rank's NIC.
    pub fn domain(&self) -> &ProtectionDomain {
        &self.links.domain
    }

    /// The wire to another rank; none to this one, and to one that does not take part.
    pub fn wire(&self, rank: u32) -> Option<WireKind> {
        let other = Some(rank).filter(|&rank| rank != self.rank())?;
        Some(self.links.peers.get(&other)?.0)
    }

    /// Gives all ranks a value, and returns those of all, by rank: for example the
    /// [`RemoteMemory`](crate::RemoteMemory) of regions. At most 16 MiB as JSON. Ranks that do not take part have no value:
    /// then the values are in the order of [`ranks`](Self::ranks).
    ///
    /// # Errors
    /// [`Error::World`] if a rank does not take part, or gives something else than a `T`.
    pub fn exchange<T: Serialize + DeserializeOwned>(&mut self, ours: &T) -> Result<Vec<T>, Error> {
        let all = gather::values(&mut *self.bootstrap, ours, self.timeout);
        self.checked(all.map_err(Error::from))
    }

    /// Waits until all ranks are here.
    ///
    /// # Errors
    /// [`Error::World`] if one does not come in time.
    pub fn barrier(&mut self) -> Result<(), Error> {
        let there = self.bootstrap.barrier(self.timeout);
        Ok(there.map_err(WorldError::from)?)
    }

    /// Waits until these ranks are here, of which this is one. They alone make the call, with the same ranks.
    ///
    /// # Errors
    /// [`Error::World`] if one does not come in time, or does not take part.
    pub fn barrier_of(&mut self, ranks: impl IntoIterator<Item = u32>) -> Result<(), Error> {
        let ranks: Vec<u32> = ranks.into_iter().collect();
        let there = self.bootstrap.barrier_of(&ranks, self.timeout);
        Ok(there.map_err(WorldError::from)?)
    }

    /// Lets the current or next step of each rank fail with this reason. The process may end right after it.
    pub fn abort(&mut self, reason: &str) {
        self.bootstrap.abort(reason);
    }

    /// Makes queue pairs to these other ranks, one for each, and connects them. Each of two neighbours must name the
    /// other; a rank named twice counts once. All ranks that take part call this, those without neighbours, too.
    ///
    /// When it returns, all queue pairs of all ranks are in RTS.
    ///
    /// # Errors
    /// [`WorldError::OneSided`] on all ranks, if one of two does not name the other; [`WorldError::NoNeighbour`] for this
    /// rank itself or one that there is not, [`WorldError::LeftOut`] for one that does not take part;
    /// [`WorldError::Ranks`] for one that is gone, [`WorldError::Connect`] for one that is there and cannot be connected;
    /// those of [`ProtectionDomain::queue_pair`].
    pub fn connect(
        &mut self,
        neighbours: impl IntoIterator<Item = u32>,
        config: &QueuePairConfig,
    ) -> Result<BTreeMap<u32, QueuePair>, Error> {
        let pairs = self.connect_to(neighbours.into_iter().collect(), config);
        self.checked(pairs)
    }

    fn connect_to(
        &mut self,
        neighbours: BTreeSet<u32>,
        config: &QueuePairConfig,
    ) -> Result<BTreeMap<u32, QueuePair>, Error> {
        let (own, size) = (self.rank(), self.size());
        let wrong = |rank: &&u32| **rank >= size || **rank == own;
        if let Some(&neighbour) = neighbours.iter().find(wrong) {
            let (rank, neighbour) = (own, neighbour);
            return Err(WorldError::NoNeighbour {
                rank,
                neighbour,
                size,
            }
            .into());
        }
        if let Some(&rank) = neighbours.iter().find(|&&rank| self.wire(rank).is_none()) {
            return Err(WorldError::LeftOut { rank }.into());
        }
        let made = neighbours
            .iter()
            .map(|&rank| Ok((rank, self.domain().queue_pair(config)?)));
        let mut pairs: BTreeMap<_, _> = made.collect::<Result<_, Error>>()?;
        let ours = pairs.iter().map(|(&rank, pair)| {
            let Endpoint { qpn, psn, card, .. } = pair.endpoint();
            End {
                rank,
                qpn,
                psn,
                card,
            }
        });
        let ours: Vec<_> = ours.collect();
        let ends = gather::by_rank(&mut *self.bootstrap, &ours, self.timeout)?;
        check_ends(&ends)?;
        let theirs: BTreeMap<u32, &End> = ends
            .iter()
            .filter_map(|(rank, ends)| Some((*rank, ends.iter().find(|end| end.rank == own)?)))
            .collect();
        // A link in shared memory is made by the end with the higher GID, see `Peers`. If the other one would ask it to,
        // both would wait for answers at the same time.
        let ours = self.domain().device().gid();
        for makes_links in [true, false] {
            for (rank, pair) in &mut pairs {
                let (_, contact) = &self.links.peers[rank];
                if (ours.0 > contact.gid.0) != makes_links {
                    continue;
                }
                let connected = self.connect_one(*rank, pair, theirs[rank]);
                if connected.is_err() && makes_links {
                    // If the other rank is gone, this says so. The ranks that are there come to the barrier behind this loop.
                    self.barrier()?;
                }
                connected?;
            }
            // The first time: all links are there. The second time: nobody sends before the other end answers.
            self.barrier()?;
        }
        Ok(pairs)
    }

    fn connect_one(&self, rank: u32, pair: &mut QueuePair, end: &End) -> Result<(), WorldError> {
        let (wire, _) = self.links.peers[&rank];
        let connect = |pair: &mut QueuePair| {
            let &End { qpn, psn, card, .. } = end;
            let gid = self.links.gid_of(rank)?;
            pair.connect(&Endpoint {
                gid,
                qpn,
                psn,
                card,
            })
        };
        let began = Instant::now();
        let mut result = connect(pair);
        for _ in 1..ATTEMPTS {
            let unreachable = matches!(result, Err(Error::Unreachable { .. }));
            if !unreachable || began.elapsed() > self.timeout {
                break;
            }
            result = connect(pair);
        }
        result.map_err(|source| WorldError::Connect {
            rank,
            wire,
            source: source.into(),
        })
    }

    /// Before an error of this rank alone is returned, the others learn of it.
    fn checked<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &result {
            abort_for(&mut *self.bootstrap, error);
        }
        result
    }
}

fn abort_for(bootstrap: &mut dyn Bootstrap, error: &Error) {
    if !matches!(error, Error::World(error) if gather::is_known(error)) {
        bootstrap.abort(&error.to_string());
    }
}

/// Whether each of two neighbours names the other.
fn check_ends(ends: &BTreeMap<u32, Vec<End>>) -> Result<(), WorldError> {
    for (&rank, ours) in ends {
        for &End { rank: other, .. } in ours {
            let theirs = ends.get(&other);
            if !theirs.is_some_and(|theirs| theirs.iter().any(|end| end.rank == rank)) {
                return Err(WorldError::OneSided { rank, other });
            }
        }
    }
    Ok(())
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.size();
        match &self.started {
            Some(started) => f.write_str(started)?,
            None => write!(f, "{size} rank{}", if size == 1 { "" } else { "s" })?,
        }
        for kind in [WireKind::SharedMemory, WireKind::RoceV2, WireKind::Cards] {
            let count = self
                .others()
                .filter(|&rank| self.wire(rank) == Some(kind))
                .count();
            if count > 0 {
                let plural = if count == 1 { "" } else { "s" };
                write!(f, "; {count} rank{plural} by {kind}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("rank", &self.rank())
            .field("size", &self.size())
            .field("domain", self.domain())
            .finish_non_exhaustive()
    }
}
