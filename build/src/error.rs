//! Why a build script fails.

use std::io;
use std::path::PathBuf;

use crate::gpu;

/// Why kernels were not compiled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A GPU that is not known.
    #[error(
        "kernels cannot be compiled for `{name}`; choose one of {}",
        gpu::names()
    )]
    UnknownGpu {
        /// Its name.
        name: String,
    },
    /// The library has a kernel that does not compile.
    #[error(
        "the library does not compile for {gpu}; see the compiler's messages above. Put code for the host behind `#[cfg(not(target_arch = \"nvptx64\"))]`, in the program, or under `[target.'cfg(not(target_arch = \"nvptx64\"))'.dependencies]`"
    )]
    Compile {
        /// The GPU.
        gpu: &'static str,
    },
    /// Cargo compiled, and left no PTX.
    #[error("no PTX in {}; the package needs a library (src/lib.rs) with kernels", folder.display())]
    NoPtx {
        /// Where it should be.
        folder: PathBuf,
    },
    /// Cargo could not be run.
    #[error("cannot run `{command}`: {source}")]
    Run {
        /// What was run.
        command: String,
        /// Why not.
        source: io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A variable is not set that Cargo sets for build scripts.
    #[error("{variable} is not set; call this from a build script (build.rs)")]
    NoBuildScript {
        /// The variable.
        variable: &'static str,
    },
}
