//! Exchanges, for kernels that use [`crate::experts`].

mod config;
mod error;
mod member;
#[cfg(feature = "ranks")]
mod ranks;

pub use config::ExpertsConfig;
pub use error::ExpertsError;
pub use member::ExpertsMember;

use crate::Error;
use crate::team::host::team_of;
use warpbell_host_init::ProtectionDomain;

/// Sets up an exchange whose members are all in this process, one for each domain.
///
/// ```
/// use warpbell_host_init::Node;
/// use warpbell_patterns::Error;
/// use warpbell_patterns::experts::Choice;
/// use warpbell_patterns::experts::host::{ExpertsConfig, experts_of};
///
/// fn main() -> Result<(), Error> {
///     let config = ExpertsConfig { tokens: 4, capacity: 4, ..ExpertsConfig::default() };
///     for member in experts_of(&Node::cpu().domains(2)?, &config)? {
///         member.write_token(0, &[0; 2048])?;
///         member.choose(0, &[Choice::new(7, 0.5), Choice::new(2, 0.5)])?;
///         // For the kernels of this member:
///         let parameters = member.handle();
///         # let _ = parameters;
///     }
///     Ok(())
/// }
/// ```
///
/// # Errors
/// [`ExpertsError`]; those of [`team_of`].
pub fn experts_of(
    domains: &[ProtectionDomain],
    config: &ExpertsConfig,
) -> Result<Vec<ExpertsMember>, Error> {
    let layout = config.layout(domains.len())?;
    let team = team_of(domains, &config.team(&layout))?;
    let member = |(member, domain)| ExpertsMember::new(domain, member, layout, config);
    team.into_iter().zip(domains).map(member).collect()
}
