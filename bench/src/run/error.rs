//! What ends a benchmark early, in one line.

use std::fmt::Display;

use warpbell_host_init::GpuError;
use warpbell_host_init::args::NodeError;
use warpbell_stage::Error as StageError;

/// Why a benchmark could not go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What ends the demo, too.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// A NIC whose requests nobody can look at.
    #[error(
        "only a NIC on a CPU thread can be watched; choose --nic soft, or soft-host with --on gpu"
    )]
    NoWatch,
    /// Ctrl-C.
    #[error("interrupted; the results so far are shown")]
    Interrupted,
    /// The output could not be written as JSON.
    #[error("the result cannot be written: {0}")]
    Json(#[from] serde_json::Error),
}

macro_rules! from_inner {
    ($($inner:ty)*) => {
        $(impl From<$inner> for Error {
            fn from(error: $inner) -> Self {
                Self::Stage(error.into())
            }
        })*
    };
}

from_inner! { warpbell_host_init::Error NodeError GpuError }

impl Error {
    /// The error of a run with wrong checks, if there are any.
    ///
    /// # Errors
    /// [`StageError::Wrong`] if there are.
    pub fn if_wrong(wrong: usize, checks: usize) -> Result<(), Self> {
        Ok(StageError::if_wrong(wrong, checks)?)
    }
}

/// An error that may be one of this crate's: what crates that build on this one end with, too.
pub trait Nested: Display + From<Error> {
    /// This crate's error, if that is what it is.
    fn own(&self) -> Option<&Error>;
}

impl Nested for Error {
    fn own(&self) -> Option<&Error> {
        Some(self)
    }
}
