//! The nested call of Cargo.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{BuildError, Gpu, INSIDE, NIGHTLY, rerun_if_changed, variable};

const TARGET: &str = "nvptx64-nvidia-cuda";
/// Between flags in `CARGO_ENCODED_RUSTFLAGS`.
const SEPARATOR: &str = "\x1f";
/// Variables of the outer build that the nested one keeps: where Cargo has its files, and how it reaches registries.
const KEPT: [&str; 6] = [
    "CARGO_HOME",
    "CARGO_HTTP_",
    "CARGO_NET_",
    "CARGO_REGISTRIES_",
    "CARGO_REGISTRY_",
    "CARGO_SOURCE_",
];
/// Variables that choose another compiler, or other flags.
const CHOOSING: [&str; 6] = [
    "RUSTC",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTDOC",
    "RUSTFLAGS",
    "RUSTUP_TOOLCHAIN",
];

/// Compiles the library of the package that is being built. Gives the file with the PTX.
pub fn compile(gpu: &Gpu, out: &Path) -> Result<PathBuf, BuildError> {
    let manifest = Path::new(&variable("CARGO_MANIFEST_DIR")?).join("Cargo.toml");
    let folder = out.join("gpu").join(gpu.name);
    let mut command = Command::new("rustup");
    command
        .args(["run", NIGHTLY, "cargo", "rustc", "--lib", "--release"])
        .args(["--crate-type", "cdylib", "--no-default-features"])
        .args(["--target", TARGET, "-Zbuild-std=core"])
        .arg("--manifest-path")
        .arg(&manifest)
        .arg("--target-dir")
        .arg(&folder);
    cleaned(&mut command)
        .env(INSIDE, "1")
        .env("CARGO_ENCODED_RUSTFLAGS", flags(gpu).join(SEPARATOR))
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        .env("CARGO_PROFILE_RELEASE_LTO", "fat")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false");
    let status = command.status().map_err(|source| BuildError::Run {
        command: format!("{command:?}"),
        source,
    })?;
    if !status.success() {
        return Err(BuildError::Compile { gpu: gpu.name });
    }
    let release = folder.join(TARGET).join("release");
    let path = only_ptx(&release).ok_or(BuildError::NoPtx { folder: release })?;
    rerun_if_changed(&manifest);
    if let Ok(list) = fs::read_to_string(path.with_extension("d")) {
        for source in sources(&list) {
            rerun_if_changed(Path::new(&source));
        }
    }
    Ok(path)
}

/// The file with PTX in a folder: one library has one.
fn only_ptx(folder: &Path) -> Option<PathBuf> {
    let files = folder.read_dir().ok()?.flatten();
    let mut files = files.map(|file| file.path());
    files.find(|path| path.extension().is_some_and(|kind| kind == "ptx"))
}

/// What rustc compiles with.
fn flags(gpu: &Gpu) -> [String; 3] {
    [
        format!("-Ctarget-cpu={}", gpu.name),
        format!("-Ctarget-feature=+{}", gpu.ptx),
        // A jump by a table is a load from constant memory and an indirect branch, where comparisons do.
        "-Cjump-tables=no".into(),
    ]
}

/// A command without what the outer Cargo says to its own compiler and to build scripts.
pub fn cleaned(command: &mut Command) -> &mut Command {
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_outer) {
            command.env_remove(name);
        }
    }
    command
}

fn is_outer(name: &str) -> bool {
    let kept = KEPT.iter().any(|kept| name.starts_with(kept));
    CHOOSING.contains(&name) || name.starts_with("CARGO") && !kept
}

/// The files of a list as make has it: `target: file file …`, with a backslash before each blank in a name.
fn sources(list: &str) -> Vec<String> {
    let Some((_, files)) = list.split_once(": ") else {
        return Vec::new();
    };
    let (mut found, mut name) = (Vec::new(), String::new());
    let mut characters = files.trim_end().chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => name.extend(characters.next()),
            ' ' | '\n' => found.push(std::mem::take(&mut name)),
            other => name.push(other),
        }
    }
    found.push(name);
    found.retain(|name| !name.is_empty());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nested_build_forgets_the_outer_one() {
        for name in [
            "RUSTFLAGS",
            "RUSTC",
            "RUSTUP_TOOLCHAIN",
            "CARGO",
            "CARGO_ENCODED_RUSTFLAGS",
            "CARGO_FEATURE_GPU",
            "CARGO_MAKEFLAGS",
            "CARGO_BUILD_TARGET",
        ] {
            assert!(is_outer(name), "{name}");
        }
        for name in [
            "PATH",
            "CARGO_HOME",
            "CARGO_NET_OFFLINE",
            "RUSTUP_HOME",
            "HOME",
        ] {
            assert!(!is_outer(name), "{name}");
        }
    }

    #[test]
    fn sources_are_read_from_a_list_of_make() {
        let list = "/t/a.ptx: /one.rs /two\\ words.rs /three.rs\n";
        assert_eq!(sources(list), ["/one.rs", "/two words.rs", "/three.rs"]);
        assert!(sources("").is_empty() && sources("/t/a.ptx: \n").is_empty());
    }
}
