//! The compiler for GPUs, and what to do where it is not installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::rerun_if_changed;

/// The nightly that kernels are compiled with.
///
/// rustc's target for GPUs builds its own `core`, which a nightly alone does. Older ones than this compile atomic
/// operations without their order.
pub const NIGHTLY: &str = "nightly-2026-10-01";

/// Parts of it that a plain installation lacks, and a file of each below its folder. `*` stands for the host's name.
const PARTS: [(&str, &str); 3] = [
    ("rust-src", "lib/rustlib/src/rust/library/core/src/lib.rs"),
    (
        "llvm-bitcode-linker",
        "lib/rustlib/*/bin/self-contained/llvm-bitcode-linker",
    ),
    ("llvm-tools", "lib/rustlib/*/bin/llvm-link"),
];

/// What is not installed.
#[derive(Debug, PartialEq, Eq)]
pub enum Missing {
    /// rustup.
    Rustup,
    /// The nightly.
    Nightly,
    /// Parts of it, in `folder`.
    Parts {
        names: Vec<&'static str>,
        folder: PathBuf,
    },
}

impl Missing {
    /// Warns the user, and has Cargo run the script again: afterwards all may be there.
    pub fn warn(&self) {
        println!("cargo::warning={self}");
        match self {
            Self::Parts { folder, .. } => rerun_if_changed(folder),
            // A file that is never there counts as changed each time.
            _ => rerun_if_changed(Path::new("the nightly is not installed")),
        }
    }
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = PARTS.map(|(name, _)| name).join(",");
        let install =
            format!("rustup toolchain install {NIGHTLY} --profile minimal --component {all}");
        write!(f, "the program runs on a CPU only, because ")?;
        match self {
            Self::Rustup => write!(
                f,
                "kernels for a GPU are compiled with {NIGHTLY} of rustup, which is not there; install rustup, then run `{install}`"
            ),
            Self::Nightly => write!(f, "{NIGHTLY} is not installed; run `{install}`"),
            Self::Parts { names, .. } => write!(
                f,
                "{NIGHTLY} lacks {}; run `rustup component add --toolchain {NIGHTLY} {}`",
                names.join(" and "),
                names.join(" ")
            ),
        }
    }
}

/// Whether the nightly is there, and whole.
pub fn find() -> Result<(), Missing> {
    let mut command = Command::new("rustup");
    command.args(["run", NIGHTLY, "rustc", "--print", "sysroot"]);
    let output = crate::cargo::cleaned(&mut command).output();
    let output = output.map_err(|_| Missing::Rustup)?;
    if !output.status.success() {
        return Err(Missing::Nightly);
    }
    let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let names = missing_parts(&folder);
    match names.is_empty() {
        true => Ok(()),
        false => Err(Missing::Parts { names, folder }),
    }
}

fn missing_parts(folder: &Path) -> Vec<&'static str> {
    let parts = PARTS.iter();
    let missing = parts.filter(|(_, file)| !is_there(folder, file));
    missing.map(|(name, _)| *name).collect()
}

/// Whether a file is there; `*` in its path is any folder.
fn is_there(folder: &Path, file: &str) -> bool {
    let Some((before, after)) = file.split_once("/*/") else {
        return folder.join(file).exists();
    };
    let Ok(entries) = folder.join(before).read_dir() else {
        return false;
    };
    entries
        .flatten()
        .any(|entry| entry.path().join(after).exists())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_nightly_is_that_of_the_projects_own_kernels() {
        let pinned =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../ptx/module/rust-toolchain.toml");
        let text = fs::read_to_string(pinned).unwrap();
        assert!(text.contains(&format!("channel = \"{NIGHTLY}\"")), "{text}");
        for (name, _) in PARTS {
            assert!(text.contains(&format!("\"{name}\"")), "{name}: {text}");
        }
    }

    #[test]
    fn each_missing_part_is_named_with_its_command() {
        let folder = std::env::temp_dir().join(format!("warpbell-nightly-{}", std::process::id()));
        let put = |file: &str| {
            let path = folder.join(file.replace('*', "x86_64-unknown-linux-gnu"));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        };
        assert_eq!(missing_parts(&folder).len(), PARTS.len());
        put(PARTS[0].1);
        put(PARTS[2].1);
        assert_eq!(missing_parts(&folder), ["llvm-bitcode-linker"]);
        put(PARTS[1].1);
        assert!(missing_parts(&folder).is_empty());
        fs::remove_dir_all(&folder).unwrap();

        let names = vec!["rust-src", "llvm-tools"];
        let missing = Missing::Parts { names, folder };
        let command = "`rustup component add --toolchain nightly-2026-10-01 rust-src llvm-tools`";
        assert!(missing.to_string().ends_with(command), "{missing}");
        let command = "--profile minimal --component rust-src,llvm-bitcode-linker,llvm-tools`";
        for missing in [Missing::Rustup, Missing::Nightly] {
            assert!(missing.to_string().ends_with(command), "{missing}");
        }
    }
}
