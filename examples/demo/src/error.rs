//! What ends the demo early, in one line.

use std::path::PathBuf;

use warpbell_host_init::GpuError;
use warpbell_host_init::args::NodeError;
use warpbell_kernels::outcome::Failure;
use warpbell_ptx::PtxError;

/// Why the demo could not go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Setup(#[from] warpbell_host_init::Error),
    /// The built-in kernels do not suit the GPU.
    #[error(transparent)]
    Ptx(#[from] PtxError),
    #[error("the kernels {} cannot be read: {source}", path.display())]
    UnreadablePtx {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{} has none of the kernels; cargo xtask ptx builds them", path.display())]
    ForeignPtx { path: PathBuf },
    /// A kernel said why it stopped.
    #[error("{what}: {failure}")]
    Kernel { what: String, failure: Failure },
    #[error("{wrong} of {checks} checks failed")]
    Wrong { wrong: usize, checks: usize },
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
