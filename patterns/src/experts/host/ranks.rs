//! An exchange of ranks that are the processes of a job.

use serde::{Deserialize, Serialize};

use super::{ExpertsConfig, ExpertsError, ExpertsMember};
use crate::Error;
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
const NUMBERS: [&str; 8] = [
    "the experts",
    "the values of a token",
    "the experts of a token",
    "the tokens of a member",
    "the capacities of an expert",
    "the formats",
    "the rules for an overflow",
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
        let ours = Told {
            rank: world.rank(),
            numbers: [
                config.experts,
                config.hidden,
                config.top_k,
                config.tokens,
                config.capacity,
                config.format as u32,
                config.overflow as u32,
                config.blocks,
            ],
        };
        let all: Vec<Told> = world.exchange(&ours)?;
        for Told { rank, numbers } in all {
            let differs =
                (ours.numbers.iter().zip(numbers)).position(|(ours, theirs)| *ours != theirs);
            if let Some(what) = differs.map(|number| NUMBERS[number]) {
                return told(world, Err(ExpertsError::Disagrees { rank, what }.into()));
            }
        }
        let Some(team) = TeamMember::join(world, members, &config.team(&layout))? else {
            world.barrier()?;
            return Ok(None);
        };
        let member = told(world, Self::new(world.domain(), team, layout, config))?;
        // No member sends before all have come so far.
        world.barrier()?;
        Ok(Some(member))
    }
}
