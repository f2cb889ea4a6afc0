//! Teams, for kernels that use [`crate::team`]: their windows, queues and channels.

mod config;
mod error;
mod member;
#[cfg(feature = "ranks")]
mod ranks;
pub(crate) mod table;

pub use config::{MAX_MEMBERS, TeamConfig};
pub use error::TeamError;
pub use member::TeamMember;

use crate::Error;
use warpbell_host_init::ProtectionDomain;

/// Sets up a team whose members are all in this process, one for each domain.
///
/// ```
/// use warpbell_host_init::Node;
/// use warpbell_patterns::Error;
/// use warpbell_patterns::team::host::{TeamConfig, team_of};
///
/// fn main() -> Result<(), Error> {
///     let members = team_of(&Node::cpu().domains(4)?, &TeamConfig::default())?;
///     for member in &members {
///         member.write(0, &[member.rank() as u8; 64])?;
///         // For the kernels of this member:
///         let parameters = member.handle();
///         # let _ = parameters;
///     }
///     Ok(())
/// }
/// ```
///
/// # Errors
/// [`TeamError`]; those of [`ProtectionDomain::connected`] and [`ProtectionDomain::allocate`].
pub fn team_of(
    domains: &[ProtectionDomain],
    config: &TeamConfig,
) -> Result<Vec<TeamMember>, Error> {
    let layout = config.layout(domains.len())?;
    let member = |(rank, domain)| TeamMember::new(domain, rank, layout, config);
    let mut members = (0..)
        .zip(domains)
        .map(member)
        .collect::<Result<Vec<_>, Error>>()?;
    for channel in 0..config.channels {
        for own in 0..domains.len() {
            for other in own + 1..domains.len() {
                let (ours, theirs) =
                    domains[own].connected(&domains[other], &config.queue_pair())?;
                members[own].put(channel, other as u32, ours)?;
                members[other].put(channel, own as u32, theirs)?;
            }
        }
    }
    let windows: Vec<_> = members.iter().map(TeamMember::window).collect();
    for member in &mut members {
        member.set_windows(&windows)?;
    }
    Ok(members)
}
