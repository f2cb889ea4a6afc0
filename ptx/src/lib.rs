//! The kernels of `warpbell-kernels` and `warpbell-paper-kernels` as PTX, prebuilt for each kind of GPU.
//!
//! `cargo xtask ptx` builds what lies in `prebuilt` and checks it; `docs/ptx.md` tells how.
//!
//! ```
//! use warpbell_ptx::{Capability, KERNELS};
//!
//! let h200 = Capability { major: 9, minor: 0 };
//! let ptx = KERNELS.text_for(h200)?;
//! assert!(ptx.contains(".target sm_90"));
//! assert!(KERNELS.is_in(&ptx));
//! assert!(KERNELS.kernels().any(|path| path == "warpbell_kernels::pingpong::pingpong"));
//! # Ok::<(), warpbell_ptx::PtxError>(())
//! ```

mod stored;

use std::fmt;
use std::io::{self, Read};
use std::path::PathBuf;

use flate2::read::GzDecoder;
use thiserror::Error;

use stored::{Stored, stored};

/// The compute capability of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Capability {
    /// The number before the point.
    pub major: u32,
    /// The number after it.
    pub minor: u32,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Why there is no PTX for a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PtxError {
    /// The GPU is older than every PTX of the module.
    #[error("the GPU has compute capability {gpu}; the module {module} needs at least {oldest}")]
    TooOld {
        /// The module.
        module: &'static str,
        /// The GPU's capability.
        gpu: Capability,
        /// The oldest GPU that the module is built for.
        oldest: Capability,
    },
    /// What is embedded, or in the file, does not unpack.
    #[error("the prebuilt PTX of the module {module} is damaged")]
    Damaged {
        /// The module.
        module: &'static str,
    },
    /// A distribution's file cannot be read.
    #[error("cannot read the PTX in {}: {why}; keep `bin` and `share` of a distribution together", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: io::ErrorKind,
    },
    /// A distribution's file belongs to other programs.
    #[error("{} is of another build than this program; copy `bin` and `share` together", path.display())]
    OtherBuild {
        /// The file.
        path: PathBuf,
    },
}

/// A PTX module, in a variant for each kind of GPU.
#[derive(Debug)]
pub struct Module {
    name: &'static str,
    /// From the oldest GPU to the newest.
    variants: &'static [Variant],
}

/// A module's PTX for GPUs of a capability and newer ones.
#[derive(Debug)]
struct Variant {
    capability: Capability,
    stored: Stored,
}

/// A variant of a module, from its file.
macro_rules! variant {
    ($major:literal, $minor:literal, $file:literal) => {
        Variant {
            capability: Capability {
                major: $major,
                minor: $minor,
            },
            stored: stored!($file),
        }
    };
}

/// The kernels of examples and benchmarks.
pub static KERNELS: Module = Module {
    name: "kernels",
    variants: &[
        variant!(8, 0, "kernels.sm_80"),
        variant!(9, 0, "kernels.sm_90"),
        variant!(10, 0, "kernels.sm_100"),
    ],
};

/// The software NIC's engine, as a kernel.
pub static SOFT_NIC: Module = Module {
    name: "soft_nic",
    variants: &[
        variant!(8, 0, "soft_nic.sm_80"),
        variant!(9, 0, "soft_nic.sm_90"),
        variant!(10, 0, "soft_nic.sm_100"),
    ],
};

/// The kernels of the papers' applications.
pub static PAPERS: Module = Module {
    name: "papers",
    variants: &[
        variant!(8, 0, "papers.sm_80"),
        variant!(9, 0, "papers.sm_90"),
        variant!(10, 0, "papers.sm_100"),
    ],
};

/// The kernels of the test suite.
pub static SUITE: Module = Module {
    name: "suite",
    variants: &[variant!(9, 0, "suite.sm_90")],
};

/// The SHA-256 of the sources that the PTX was built from, in hexadecimal.
pub fn sources_hash() -> &'static str {
    include_str!("../prebuilt/sources.sha256").trim_end()
}

impl Module {
    /// The module's name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The paths of its kernels: crate, modules, name.
    pub fn kernels(&self) -> impl Iterator<Item = &'static str> {
        let all = include_str!("../prebuilt/kernels.txt").lines();
        let pairs = all.filter_map(|line| line.split_once(' '));
        let name = self.name;
        pairs.filter_map(move |(module, kernel)| (module == name).then_some(kernel))
    }

    /// Whether PTX, which may be a user's own, has a kernel of this module, whatever its parameters are.
    pub fn is_in(&self, ptx: &str) -> bool {
        self.kernels().any(|path| ptx.contains(&entry(path)))
    }

    /// The newest PTX that a GPU can run; the driver compiles it for exactly that GPU.
    ///
    /// # Errors
    /// A GPU that is older than every variant; data that do not unpack; a distribution without its shared files.
    pub fn text_for(&self, gpu: Capability) -> Result<String, PtxError> {
        let module = self.name;
        let usable = |variant: &&Variant| variant.capability <= gpu;
        let Some(variant) = self.variants.iter().rfind(usable) else {
            let oldest = self.variants[0].capability;
            return Err(PtxError::TooOld {
                module,
                gpu,
                oldest,
            });
        };
        variant.stored.with(|compressed| {
            let mut text = String::new();
            GzDecoder::new(compressed)
                .read_to_string(&mut text)
                .map_err(|_| PtxError::Damaged { module })?;
            Ok(text)
        })
    }
}

/// How the entry of a kernel begins in PTX: up to the number for its parameters (`warpbell::Symbol`).
fn entry(path: &str) -> String {
    format!(".visible .entry warpbell${}$", path.replace("::", "$"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpbell_kernels::suite::{Flood, Kernel, Receive, Requests};

    const fn capability(major: u32, minor: u32) -> Capability {
        Capability { major, minor }
    }

    #[test]
    fn a_gpu_gets_the_newest_ptx_that_it_can_run() {
        for (gpu, target) in [
            (capability(8, 0), ".target sm_80"),
            (capability(8, 9), ".target sm_80"),
            (capability(9, 0), ".target sm_90"),
            (capability(10, 0), ".target sm_100"),
            (capability(12, 1), ".target sm_100"),
        ] {
            let text = KERNELS.text_for(gpu).unwrap();
            assert!(text.lines().any(|line| line == target), "{gpu}");
        }
    }

    #[test]
    fn an_older_gpu_is_an_error_that_names_both() {
        let error = KERNELS.text_for(capability(7, 5)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the GPU has compute capability 7.5; the module kernels needs at least 8.0"
        );
    }

    #[test]
    fn damaged_data_are_an_error() {
        static MODULE: Module = Module {
            name: "damaged",
            variants: &[Variant {
                capability: capability(8, 0),
                stored: Stored::Here(b"\x1f\x8b no"),
            }],
        };
        let expected = Err(PtxError::Damaged { module: "damaged" });
        assert_eq!(MODULE.text_for(capability(9, 0)), expected);
    }

    #[test]
    fn every_kernel_of_a_list_is_an_entry_and_the_host_finds_the_panics_place() {
        for module in [&KERNELS, &PAPERS, &SOFT_NIC, &SUITE] {
            let text = module.text_for(capability(9, 0)).unwrap();
            assert!(module.kernels().count() > 0, "{} is empty", module.name());
            for kernel in module.kernels() {
                assert!(text.contains(&entry(kernel)), "{kernel} is missing");
            }
            let entries = text.matches(".visible .entry ").count();
            assert_eq!(entries, module.kernels().count());
            assert!(text.contains(".visible .global .align 8 .b8 WARPBELL_PANIC"));
        }
    }

    #[test]
    fn the_suites_kernels_have_the_entries_that_it_asks_for() {
        let text = SUITE.text_for(capability(9, 0)).unwrap();
        for kernel in [
            Requests::ENTRY.symbol(),
            Flood::ENTRY.symbol(),
            Receive::ENTRY.symbol(),
        ] {
            let entry = format!(".visible .entry {kernel}(");
            assert!(text.contains(&entry), "{kernel} is missing");
        }
    }

    #[test]
    fn a_users_own_ptx_is_known_by_its_kernels() {
        let path = KERNELS.kernels().next().unwrap();
        let own = format!("{}0123456789abcdef(", entry(path));
        assert!(KERNELS.is_in(&own) && !SUITE.is_in(&own));
        assert!(!KERNELS.is_in(".visible .entry checksum("));
    }

    #[test]
    fn the_sources_hash_is_one() {
        let hash = sources_hash();
        assert!(hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
}
