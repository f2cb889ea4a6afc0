//! A team of ranks that are the processes of a job.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::member::Part;
use super::{TeamConfig, TeamError, TeamMember};
use crate::Error;
use crate::gaspi::host::told;
use warpbell::wqe::{Remote, RemoteKey};
use warpbell_host_init::World;

/// What a rank tells the others: its configuration, and if it is a member its window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Told {
    rank: u32,
    members: Vec<u32>,
    channels: u32,
    bytes: usize,
    scratch_bytes: usize,
    window: Option<(u64, u32)>,
}

impl Told {
    /// What another rank was told differently.
    fn differs(&self, other: &Self) -> Option<&'static str> {
        [
            (self.members != other.members, "the members"),
            (self.channels != other.channels, "the channels"),
            (self.bytes != other.bytes, "the bytes"),
            (
                self.scratch_bytes != other.scratch_bytes,
                "the bytes of scratch",
            ),
        ]
        .into_iter()
        .find_map(|(differs, what)| differs.then_some(what))
    }
}

impl TeamMember {
    /// Sets up a team of these ranks of a job, whose numbers in the team are their places in the order. All ranks that take
    /// part in the job call this, with the same numbers; those that are no members get none.
    ///
    /// ```
    /// use std::time::Duration;
    /// use warpbell_host_init::{Node, World};
    /// use warpbell_patterns::Error;
    /// use warpbell_patterns::team::host::{TeamConfig, TeamMember};
    ///
    /// # fn main() -> Result<(), Error> {
    /// // No launcher has started this process: it is the only rank.
    /// let mut world = World::from_env(&Node::cpu(), Duration::from_secs(60))?;
    /// let all: Vec<u32> = world.ranks().collect();
    /// let member = TeamMember::join(&mut world, &all, &TeamConfig::default())?;
    /// let member = member.expect("all are members");
    /// assert_eq!((member.rank(), member.ranks()), (0, 1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A member ends before its [`World`] does, and after all others have ended their calls: a
    /// [`World::barrier`] is between.
    ///
    /// # Errors
    /// [`TeamError`]; at all ranks [`TeamError::Disagrees`] if one was given another configuration; those of
    /// [`World::connect`] and [`World::exchange`].
    pub fn join(
        world: &mut World,
        members: &[u32],
        config: &TeamConfig,
    ) -> Result<Option<Self>, Error> {
        let own = world.rank();
        let place = members.iter().position(|&rank| rank == own);
        let checked = check(world, members).and_then(|()| config.layout(members.len()));
        let layout = told(world, checked.map_err(Error::from))?;
        let part = match place {
            None => Ok(None),
            Some(_) => Part::new(world.domain(), layout, config).map(Some),
        };
        let mut part = told(world, part)?;
        let ours = Told {
            rank: own,
            members: members.to_vec(),
            channels: config.channels,
            bytes: config.bytes,
            scratch_bytes: config.scratch_bytes,
            window: part.as_ref().map(|part| {
                let Remote { address, key } = part.window();
                (address, key.0)
            }),
        };
        // Before the queues, whose making needs equal numbers.
        let all: Vec<Told> = world.exchange(&ours)?;
        for theirs in &all {
            if let Some(what) = ours.differs(theirs) {
                let rank = theirs.rank;
                return told(world, Err(TeamError::Disagrees { rank, what }.into()));
            }
        }
        for channel in 0..config.channels {
            let others = members.iter().copied().filter(|&rank| rank != own);
            let others: Vec<u32> = if place.is_some() {
                others.collect()
            } else {
                Vec::new()
            };
            for (rank, pair) in world.connect(others, &config.queue_pair())? {
                let there = members.iter().position(|&member| member == rank);
                if let (Some(part), Some(there)) = (&mut part, there) {
                    part.put(channel, there as u32, pair);
                }
            }
        }
        let window = |rank: &u32| {
            let theirs = all.iter().find(|theirs| theirs.rank == *rank)?;
            let (address, key) = theirs.window?;
            let key = RemoteKey(key);
            Some(Remote { address, key })
        };
        let windows: Option<Vec<_>> = members.iter().map(window).collect();
        let member = match (part, windows, place) {
            (Some(part), Some(windows), Some(place)) => {
                part.member(place as u32, &windows).map(Some)
            }
            _ => Ok(None),
        };
        let member = told(world, member)?;
        // No member puts before all have come so far.
        world.barrier()?;
        Ok(member)
    }
}

/// Refuses members that do not take part in the job, or that are named twice.
fn check(world: &World, members: &[u32]) -> Result<(), TeamError> {
    let there: BTreeSet<u32> = world.others().chain([world.rank()]).collect();
    let mut named = BTreeSet::new();
    for &rank in members {
        if !there.contains(&rank) || !named.insert(rank) {
            return Err(TeamError::Rank { rank });
        }
    }
    Ok(())
}
