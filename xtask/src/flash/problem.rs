//! What can be wrong with a node.

use thiserror::Error;

use super::doctor::Missing;
use crate::run::RunError;

/// Why a node was not flashed, or cannot run programs.
#[derive(Debug, Error)]
pub enum Problem {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("stopped by Ctrl-C")]
    Stopped,
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    #[error(
        "its host key is not known: connect once by ssh and compare the key, or add it to known_hosts"
    )]
    HostKeyUnknown,
    #[error(
        "it has another host key than known_hosts says: somebody may have taken its place, or it was installed again"
    )]
    HostKeyChanged,
    #[error("no login without a password: {0}")]
    Login(String),
    #[error("no answer after {0} s")]
    Silent(u64),
    #[error("it says: {0}")]
    Remote(String),
    #[error("it answers {0:?}, which this version does not know")]
    Answer(String),
    #[error("it lacks {0}")]
    Lacks(String),
    #[error("it is {found}, and the programs are for {needed}")]
    Machine { found: String, needed: String },
    #[error("its glibc is {found}, and the programs need {needed} or newer")]
    Glibc { found: String, needed: String },
    #[error("{folder} is not a copy of `cargo xtask flash`; it is left alone")]
    Other { folder: String },
    #[error(
        "{folder} has the layout {found} of another version; remove it with that version's --clean"
    )]
    Layout { folder: String, found: String },
    #[error("another flash is at work in its folder: {0}")]
    Busy(String),
    #[error(
        "{folder} is also another node's, in a file system that they share; give each node a `folder`"
    )]
    Shared { folder: String },
    #[error("it has {free} KiB free, and the copy needs {needed} KiB")]
    Full { free: u64, needed: u64 },
    #[error("the doctor's report is not understood: {0}")]
    Doctor(#[from] serde_json::Error),
    #[error("it lacks what its GPU or NIC needs:{}", list(.0))]
    Missing(Vec<Missing>),
}

fn list(missing: &[Missing]) -> String {
    missing.iter().map(|one| format!("\n    {one}")).collect()
}
