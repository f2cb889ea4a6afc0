//! An exchange of ranks that are the processes of a job.

use serde::{Deserialize, Serialize};

use super::{ExpertsConfig, ExpertsError, ExpertsMember};
use crate::Error;
use crate::experts::Layout;
use crate::gaspi::host::told;
use crate::team::host::TeamMember;
use warpbell_host_init::World;

/// What a rank tells the others: its configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Told {
    rank: u32,
    numbers: [u32; NUMBERS.len()],
}

/// What the numbers of a configuration are.
const NUMBERS: [&str; 9] = [
    "the experts",
    "the values of a token",
    "the experts of a token",
    "the tokens of a member",
    "the capacities of an expert",
    "the formats",
    "the rules for an overflow",
    "the modes",
    "the blocks",
];

impl ExpertsMember {
    /// Sets up an exchange of these ranks of a job, whose numbers in it are their places in the order. All ranks that take
    /// part in the job call this, with the same numbers; those that are no members get none.
    ///
    /// A member ends before its [`World`] does, as a [`TeamMember`].
    ///
    /// # Errors
    /// [`ExpertsError`]; at all ranks [`ExpertsError::Disagrees`] if one was given another configuration; those of
    /// [`TeamMember::join`].
    pub fn join(
        world: &mut World,
        members: &[u32],
        config: &ExpertsConfig,
    ) -> Result<Option<Self>, Error> {
        let layout = config.layout(members.len()).map_err(Error::from);
        let layout = told(world, layout)?;
        compare(world, &layout, config.blocks)?;
        let team = TeamMember::join(world, members, &config.team(&layout))?;
        let member = team.map(|team| Self::new(world.domain(), team, layout, config));
        let member = member.transpose();
        let member = told(world, member)?;
        same_round(world, member.as_ref())?;
        Ok(member)
    }

    /// Sets the exchange up again after a rank of it has failed, once a new process has taken its place: rows, choices and
    /// results stay as they are, nobody is masked, and all members are behind the last round that one of them has begun.
    ///
    /// The members that are left call this, and the new process and ranks that are no members call [`join`](Self::join),
    /// as with [`TeamMember::rejoin`].
    ///
    /// # Errors
    /// As [`TeamMember::rejoin`]; [`ExpertsError::Disagrees`].
    pub fn rejoin(&mut self, world: &mut World) -> Result<(), Error> {
        compare(world, self.layout(), self.team().channels())?;
        self.team_mut().rejoin(world)?;
        same_round(world, Some(self))
    }
}

/// Refuses ranks that were given other numbers.
fn compare(world: &mut World, layout: &Layout, blocks: u32) -> Result<(), Error> {
    let shape = layout.shape();
    let ours = Told {
        rank: world.rank(),
        numbers: [
            shape.experts(),
            shape.hidden,
            shape.top_k,
            shape.tokens,
            shape.capacity,
            shape.format as u32,
            shape.overflow as u32,
            shape.mode as u32,
            blocks,
        ],
    };
    let all: Vec<Told> = world.exchange(&ours)?;
    for Told { rank, numbers } in all {
        let differs = (ours.numbers.iter().zip(numbers)).position(|(ours, theirs)| *ours != theirs);
        if let Some(what) = differs.map(|number| NUMBERS[number]) {
            return told(world, Err(ExpertsError::Disagrees { rank, what }.into()));
        }
    }
    Ok(())
}

/// Lets all members go on behind the last round that one of them has begun: what came in it or before is none of a later
/// round's.
fn same_round(world: &mut World, member: Option<&ExpertsMember>) -> Result<(), Error> {
    let ours = member.map_or(Ok(0), ExpertsMember::round);
    let ours = told(world, ours)?;
    let rounds: Vec<u64> = world.exchange(&ours)?;
    if let Some(member) = member {
        let last = rounds.into_iter().max().unwrap_or(ours);
        told(world, member.set_round(last))?;
    }
    // No member sends before all have come so far.
    Ok(world.barrier()?)
}
