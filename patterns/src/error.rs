//! Why the set-up of a pattern failed.

use std::fmt;

use crate::active::host::ActiveError;
use crate::cpnet::host::CpnetError;
use crate::experts::host::ExpertsError;
use crate::gaspi::host::GaspiError;
use crate::proxy::host::ProxyError;
use crate::team::host::TeamError;
use crate::trigger::host::TriggerError;

/// Why a step of a pattern's set-up failed. Nothing of the step has taken effect, unless the variant's error says
/// otherwise.
///
/// `Debug` gives the same words as `Display`, for programs whose `main` returns the error.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Start-up: memory, queues, connections.
    #[error(transparent)]
    Start(#[from] warpbell_host_init::Error),
    /// Active messages' set-up.
    #[error(transparent)]
    Active(#[from] ActiveError),
    /// ComP-Net's set-up.
    #[error(transparent)]
    Cpnet(#[from] CpnetError),
    /// The set-up of an exchange with experts.
    #[error(transparent)]
    Experts(#[from] ExpertsError),
    /// A GASPI program's set-up.
    #[error(transparent)]
    Gaspi(#[from] GaspiError),
    /// A proxy's set-up.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// A team's set-up.
    #[error(transparent)]
    Team(#[from] TeamError),
    /// Triggered operations' set-up.
    #[error(transparent)]
    Trigger(#[from] TriggerError),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
