//! Where the PTX of a variant lies: in the program, or in a file that many programs share.
//!
//! The programs of a distribution (`--cfg warpbell_dist`) share the files in `share/warpbell`, beside the folder `bin`
//! that they lie in.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::PtxError;

/// Where a distribution has the files, beside its `bin`.
const SHARED: &str = "share/warpbell";
/// The length of what a gzip file ends with: the CRC-32 and the length of its content (RFC 1952).
const TRAILER: usize = 8;

/// The compressed PTX of a variant.
#[derive(Debug)]
#[cfg_attr(
    not(test),
    allow(dead_code, reason = "a build has PTX in one of the two places")
)]
pub enum Stored {
    /// The file's content.
    Here(&'static [u8]),
    /// The file's name, and how it ends: a program runs the PTX that it was built with, and no other.
    Shared(&'static str, [u8; TRAILER]),
}

/// A variant's PTX, from its file.
#[cfg(not(warpbell_dist))]
macro_rules! stored {
    ($file:literal) => {
        $crate::stored::Stored::Here(include_bytes!(concat!("../prebuilt/", $file, ".ptx.gz")))
    };
}
#[cfg(warpbell_dist)]
macro_rules! stored {
    ($file:literal) => {
        $crate::stored::Stored::Shared(
            concat!($file, ".ptx.gz"),
            // The content itself is nowhere in the program.
            const { $crate::stored::trailer(include_bytes!(concat!("../prebuilt/", $file, ".ptx.gz"))) },
        )
    };
}
pub(crate) use stored;

impl Stored {
    /// Gives the compressed PTX to a function.
    ///
    /// # Errors
    /// Those of the function; a shared file that is missing, or of another build.
    pub fn with<R>(
        &self,
        unpack: impl FnOnce(&[u8]) -> Result<R, PtxError>,
    ) -> Result<R, PtxError> {
        match self {
            Self::Here(content) => unpack(content),
            Self::Shared(name, _) => {
                let program = env::current_exe().unwrap_or_default();
                let path = shared(&program).join(name);
                unpack(&self.read(&path)?)
            }
        }
    }

    /// Reads a shared file.
    fn read(&self, path: &Path) -> Result<Vec<u8>, PtxError> {
        let content = fs::read(path).map_err(|error| PtxError::Unreadable {
            path: path.into(),
            why: error.kind(),
        })?;
        match self {
            Self::Shared(_, ending) if !content.ends_with(ending) => {
                Err(PtxError::OtherBuild { path: path.into() })
            }
            _ => Ok(content),
        }
    }
}

/// The folder of shared files that belongs to a program.
fn shared(program: &Path) -> PathBuf {
    let bin = program.ancestors().find(|folder| folder.ends_with("bin"));
    bin.unwrap_or(program).with_file_name(SHARED)
}

/// What a file ends with; zeros if it is shorter.
#[cfg(any(test, warpbell_dist))]
pub const fn trailer(file: &[u8]) -> [u8; TRAILER] {
    match file.last_chunk() {
        Some(trailer) => *trailer,
        None => [0; TRAILER],
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    const FILE: &[u8] = include_bytes!("../prebuilt/soft_nic.sm_90.ptx.gz");
    const STORED: Stored = Stored::Shared("soft_nic.sm_90.ptx.gz", trailer(FILE));

    #[test]
    fn programs_below_bin_share_the_folder_beside_it() {
        for program in ["/opt/warpbell/bin/demo", "/opt/warpbell/bin/papers/kv"] {
            assert_eq!(
                shared(Path::new(program)),
                Path::new("/opt/warpbell/share/warpbell")
            );
        }
        // A folder of that name further up is another one's.
        let nested = Path::new("/home/bin/warpbell/bin/demo");
        assert_eq!(
            shared(nested),
            Path::new("/home/bin/warpbell/share/warpbell")
        );
    }

    #[test]
    fn a_shared_file_is_the_one_that_the_program_was_built_with() {
        let path = Path::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/prebuilt/soft_nic.sm_90.ptx.gz"
        ));
        assert_eq!(STORED.read(path).as_deref(), Ok(FILE));
        let other = path.with_file_name("soft_nic.sm_80.ptx.gz");
        assert_eq!(
            STORED.read(&other),
            Err(PtxError::OtherBuild {
                path: other.clone()
            })
        );
    }

    #[test]
    fn a_missing_file_is_named() {
        // No test lies in a `bin` with files beside it.
        let error = STORED.with(|_| Ok(())).unwrap_err();
        assert!(
            matches!(
                &error,
                PtxError::Unreadable {
                    why: ErrorKind::NotFound,
                    ..
                }
            ),
            "{error:?}"
        );
        let message = error.to_string();
        assert!(
            message.contains("share/warpbell/soft_nic.sm_90.ptx.gz"),
            "{message}"
        );
    }
}
