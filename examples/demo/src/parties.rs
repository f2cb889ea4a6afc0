//! The two ends: both in this process, or each at a rank of its own.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use warpbell_host_init::world::ranks::{Config, Environment};
use warpbell_host_init::world::{WireKind, WorldError};
use warpbell_host_init::{Error as HostError, Node, World};
use warpbell_stage::Error;
use warpbell_stage::setup::{End, Ends, between_ranks, config};

/// How long a rank waits for the other one.
const PATIENCE: Duration = Duration::from_secs(300);

/// The two ends, A and B, which are those of ranks 0 and 1.
#[derive(Debug)]
pub enum Parties<'e> {
    /// Both are here.
    Here(&'e Ends),
    /// That of this rank.
    Ranks(&'e End, &'e mut World),
}

impl<'e> Parties<'e> {
    /// An end, and whether it is here: in place of one that is not, the one that is.
    pub fn end(&self, at: usize) -> (&'e End, bool) {
        match self {
            Self::Here(ends) => ([&ends.one, &ends.other][at], true),
            Self::Ranks(end, world) => (end, world.rank() as usize == at),
        }
    }

    /// Whether masked atomics and those of 4 bytes reach the other end: RoCE v2 has no packets for them.
    pub fn masked_atomics(&self) -> bool {
        match self {
            Self::Here(_) => true,
            Self::Ranks(_, world) => world.wire(1 - world.rank()) != Some(WireKind::RoceV2),
        }
    }

    /// Gives all ranks a value, and returns that of each.
    ///
    /// # Errors
    /// As [`World::exchange`].
    pub fn exchange<T: Serialize + DeserializeOwned>(&mut self, ours: T) -> Result<Vec<T>, Error> {
        match self {
            Self::Here(_) => Ok(vec![ours]),
            Self::Ranks(_, world) => Ok(world.exchange(&ours)?),
        }
    }
}

/// The end of this rank, if a launcher has started two, connected with the other one's.
///
/// # Errors
/// [`Error::OtherRanks`] for another number; as [`World::from_env`] and [`World::connect`].
pub fn rank(node: &Node, depth: u32) -> Result<Option<(End, World)>, Error> {
    let started = Config::read(&Environment::of_process());
    let started = started.map_err(WorldError::from).map_err(HostError::from)?;
    if started.size == 1 {
        return Ok(None);
    }
    if started.size != 2 {
        return Err(Error::OtherRanks(started.size));
    }
    let mut world = World::from_env(node, PATIENCE)?;
    let config = between_ranks(node, config(depth));
    let mut pairs = world.connect(world.others(), &config)?.into_values();
    let end = |pair| End::with_pair(node, world.domain().clone(), pair, &config);
    let end = pairs.next().map(end);
    Ok(end.map(|end| (end, world)))
}
