//! Groups of ranks with barriers of their own, and the state vector.

use std::collections::{BTreeMap, BTreeSet};

use super::rank::told;
use super::{GaspiError, GaspiRank};
use crate::Error;
use crate::gaspi::Rank;

/// Number of a group.
pub type GroupId = u32;

/// The group of all ranks (`GASPI_GROUP_ALL`). It is always there.
pub const GASPI_GROUP_ALL: GroupId = 0;

/// Whether a rank works, as far as another one knows (`gaspi_state_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankState {
    /// `GASPI_STATE_HEALTHY`.
    Healthy,
    /// `GASPI_STATE_CORRUPT`: it has failed, or a queue to it has.
    Corrupt,
}

#[derive(Debug, Default)]
struct Group {
    ranks: BTreeSet<Rank>,
    committed: bool,
}

/// The groups of a rank, but the one of all.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: BTreeMap<GroupId, Group>,
    /// How many there have been. No number is used twice.
    made: u32,
}

impl Groups {
    fn group(&mut self, group: GroupId) -> Result<&mut Group, GaspiError> {
        let found = self.groups.get_mut(&group);
        found.ok_or(GaspiError::NoSuchGroup { group })
    }

    /// A group that can still change.
    fn open(&mut self, group: GroupId) -> Result<&mut Group, GaspiError> {
        let found = self.group(group)?;
        match found.committed {
            true => Err(GaspiError::GroupCommitted { group }),
            false => Ok(found),
        }
    }
}

impl GaspiRank {
    /// The states of all ranks, by rank (`gaspi_state_vec_get`). Does not wait. A rank that has failed stays corrupt until
    /// a new process takes its place in the [`World`](warpbell_host_init::World).
    pub fn state_vec_get(&mut self) -> Vec<RankState> {
        let failed = self.world.failed();
        let state = |rank| match failed.contains(&rank) || self.process.has_failed(rank as usize) {
            true => RankState::Corrupt,
            false => RankState::Healthy,
        };
        (0..self.world.size()).map(state).collect()
    }

    /// Makes a group without ranks (`gaspi_group_create`). Only this rank knows of it until it is committed.
    pub fn group_create(&mut self) -> GroupId {
        self.groups.made += 1;
        let number = GASPI_GROUP_ALL + self.groups.made;
        self.groups.groups.insert(number, Group::default());
        number
    }

    /// Adds a rank to a group that is not committed (`gaspi_group_add`).
    ///
    /// # Errors
    /// [`GaspiError::NoSuchGroup`], [`GaspiError::GroupCommitted`], [`GaspiError::NoSuchRank`].
    pub fn group_add(&mut self, group: GroupId, rank: Rank) -> Result<(), Error> {
        let ranks = self.world.size();
        let open = self.groups.open(group)?;
        if rank >= ranks {
            return Err(GaspiError::NoSuchRank { rank, ranks }.into());
        }
        open.ranks.insert(rank);
        Ok(())
    }

    /// Waits until all ranks of a group have made it, with the same ranks (`gaspi_group_commit`). They alone call this.
    ///
    /// # Errors
    /// [`GaspiError::NoSuchGroup`], [`GaspiError::GroupCommitted`]; those of
    /// [`World::barrier_of`](warpbell_host_init::World::barrier_of).
    pub fn group_commit(&mut self, group: GroupId) -> Result<(), Error> {
        let open = self.groups.open(group).map(|open| open.ranks.clone());
        let ranks = told(&mut self.world, open.map_err(Error::from))?;
        let met = self.world.barrier_of(ranks).map_err(Error::from);
        told(&mut self.world, met)?;
        self.groups.group(group)?.committed = true;
        Ok(())
    }

    /// Forgets a group (`gaspi_group_delete`).
    ///
    /// # Errors
    /// [`GaspiError::NoSuchGroup`], also for [`GASPI_GROUP_ALL`].
    pub fn group_delete(&mut self, group: GroupId) -> Result<(), Error> {
        let gone = self.groups.groups.remove(&group);
        gone.ok_or(GaspiError::NoSuchGroup { group })?;
        Ok(())
    }

    /// How many groups there are, with that of all (`gaspi_group_num`).
    pub fn group_num(&self) -> u32 {
        1 + self.groups.groups.len() as u32
    }

    /// The ranks of a group, in order (`gaspi_group_ranks`, `gaspi_group_size`). Those of [`GASPI_GROUP_ALL`] are the ranks
    /// that take part in the [`World`](warpbell_host_init::World).
    ///
    /// # Errors
    /// [`GaspiError::NoSuchGroup`].
    pub fn group_ranks(&mut self, group: GroupId) -> Result<Vec<Rank>, Error> {
        if group == GASPI_GROUP_ALL {
            return Ok(self.world.ranks().collect());
        }
        Ok(self.groups.group(group)?.ranks.iter().copied().collect())
    }

    /// Waits until all ranks of a group are here, which is committed (`gaspi_barrier`).
    ///
    /// # Errors
    /// [`GaspiError::NoSuchGroup`], [`GaspiError::GroupNotCommitted`]; those of
    /// [`World::barrier_of`](warpbell_host_init::World::barrier_of), and at once if a rank has failed.
    pub fn barrier(&mut self, group: GroupId) -> Result<(), Error> {
        if group == GASPI_GROUP_ALL {
            return Ok(self.world.barrier()?);
        }
        let found = self.groups.group(group);
        let ranks = found.and_then(|found| match found.committed {
            true => Ok(found.ranks.clone()),
            false => Err(GaspiError::GroupNotCommitted { group }),
        });
        let ranks = told(&mut self.world, ranks.map_err(Error::from))?;
        let met = self.world.barrier_of(ranks).map_err(Error::from);
        told(&mut self.world, met)
    }
}
