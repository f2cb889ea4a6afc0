//! What ends a program early, in one line.

use std::path::PathBuf;

use warpbell_host_init::GpuError;
use warpbell_host_init::args::NodeError;
use warpbell_kernels::outcome::Failure;
use warpbell_ptx::PtxError;

/// Why a program could not go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A step of start-up.
    #[error(transparent)]
    Setup(#[from] warpbell_host_init::Error),
    /// The built-in kernels do not suit the GPU.
    #[error(transparent)]
    Ptx(#[from] PtxError),
    /// A file of kernels that cannot be read.
    #[error("the kernels {} cannot be read: {source}", path.display())]
    UnreadablePtx {
        /// Where it should be.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file without any of the kernels.
    #[error("{} has none of the kernels; cargo xtask ptx builds them", path.display())]
    ForeignPtx {
        /// The file.
        path: PathBuf,
    },
    /// A kernel said why it stopped.
    #[error("{what}: {failure}")]
    Kernel {
        /// What it was to do.
        what: String,
        /// Why it did not.
        failure: Failure,
    },
    /// A launcher has started another number of ranks than two.
    #[error("the program has 2 ranks, and {0} were started; start 2, or none by a launcher")]
    OtherRanks(u32),
    /// Bytes or numbers differ from what they should be.
    #[error("{wrong} of {checks} checks failed")]
    Wrong {
        /// Checks that failed.
        wrong: usize,
        /// Checks made.
        checks: usize,
    },
}

impl From<NodeError> for Error {
    fn from(error: NodeError) -> Self {
        Self::Setup(error.into())
    }
}

impl From<GpuError> for Error {
    fn from(error: GpuError) -> Self {
        Self::Setup(error.into())
    }
}

impl Error {
    /// The error of a run with wrong checks, if there are any.
    ///
    /// # Errors
    /// [`Error::Wrong`] if there are.
    pub fn if_wrong(wrong: usize, checks: usize) -> Result<(), Self> {
        match wrong {
            0 => Ok(()),
            _ => Err(Self::Wrong { wrong, checks }),
        }
    }
}
