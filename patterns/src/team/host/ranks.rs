//! A team of ranks that are the processes of a job.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{TeamConfig, TeamError, TeamMember};
use crate::Error;
use crate::gaspi::host::told;
use warpbell::wqe::{Remote, RemoteKey};
use warpbell_host_init::World;

/// What a team of a job's ranks was set up with; nothing for a team in one process.
#[derive(Debug, Default)]
pub(super) struct Terms {
    members: Vec<u32>,
    config: TeamConfig,
}

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
        let place = members.iter().position(|&rank| rank == world.rank());
        let checked = check(world, members).and_then(|()| config.layout(members.len()));
        let layout = told(world, checked.map_err(Error::from))?;
        let new = |place| Self::new(world.domain(), place as u32, layout, config);
        let made = place.map(new).transpose();
        let mut member = told(world, made)?;
        if let Some(member) = &mut member {
            member.terms = Terms {
                members: members.to_vec(),
                config: *config,
            };
        }
        meet(world, members, config, member.as_mut())?;
        Ok(member)
    }

    /// Sets the team up again after a rank of it has failed, once a new process has taken its place: this member keeps its
    /// window, where it was, with the callers' bytes in it. All queues are made anew, what was under way on them is lost,
    /// and the team counts calls from the first one on; nobody is masked.
    ///
    /// The members that are left call this, after [`World::shrink`] and [`World::take_in`]; the new process and the ranks
    /// that are no members call [`join`](Self::join) with the numbers of the start. No kernel of this member runs
    /// meanwhile. If it fails, because one more rank has failed, the member has no queues, and may rejoin later.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use warpbell_host_init::World;
    /// use warpbell_patterns::Error;
    /// use warpbell_patterns::team::host::TeamMember;
    ///
    /// /// A kernel's call has failed, because a member is late or a queue to it has failed.
    /// fn replace(world: &mut World, member: &mut TeamMember) -> Result<(), Error> {
    ///     let patience = Duration::from_secs(600);
    ///     for rank in world.shrink(Duration::from_secs(60))? {
    ///         world.take_in(rank, patience)?;
    ///     }
    ///     member.rejoin(world)
    /// }
    /// ```
    ///
    /// # Errors
    /// [`TeamError::OtherJob`]; [`TeamError::Rank`] for a member that was not taken in; otherwise as [`join`](Self::join).
    pub fn rejoin(&mut self, world: &mut World) -> Result<(), Error> {
        let Terms { members, config } = &self.terms;
        let (members, config) = (members.clone(), *config);
        let ours = !members.is_empty() && self.is_of(world.domain());
        let checked = match ours {
            true => check(world, &members),
            false => Err(TeamError::OtherJob),
        };
        told(world, checked.map_err(Error::from))?;
        // Before the others know this member again, none of whom writes here until all have come.
        let cleared = self.clear();
        told(world, cleared)?;
        let met = meet(world, &members, &config, Some(self));
        if met.is_err() {
            self.clear()?;
        }
        met
    }
}

/// The steps that all ranks make together: they compare what they were given, connect all channels, and learn where the
/// windows are.
fn meet(
    world: &mut World,
    members: &[u32],
    config: &TeamConfig,
    mut member: Option<&mut TeamMember>,
) -> Result<(), Error> {
    let own = world.rank();
    let ours = Told {
        rank: own,
        members: members.to_vec(),
        channels: config.channels,
        bytes: config.bytes,
        scratch_bytes: config.scratch_bytes,
        window: member.as_ref().map(|member| {
            let Remote { address, key } = member.window();
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
    let others = members.iter().copied().filter(|&rank| rank != own);
    let others: Vec<u32> = match member {
        Some(_) => others.collect(),
        None => Vec::new(),
    };
    for channel in 0..config.channels {
        for (rank, pair) in world.connect(others.iter().copied(), &config.queue_pair())? {
            let there = members.iter().position(|&member| member == rank);
            if let (Some(member), Some(there)) = (&mut member, there) {
                told(world, member.put(channel, there as u32, pair))?;
            }
        }
    }
    if let Some(member) = member {
        let window = |&rank: &u32| {
            let theirs = all.iter().find(|theirs| theirs.rank == rank);
            let window = theirs.and_then(|theirs| theirs.window);
            let (address, key) = window.ok_or(TeamError::Rank { rank })?;
            let key = RemoteKey(key);
            Ok(Remote { address, key })
        };
        let windows: Result<Vec<_>, TeamError> = members.iter().map(window).collect();
        let set = windows.map_err(Error::from);
        let set = set.and_then(|windows| member.set_windows(&windows));
        told(world, set)?;
    }
    // No member puts before all have come so far.
    Ok(world.barrier()?)
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
