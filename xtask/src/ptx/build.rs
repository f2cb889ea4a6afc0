//! Compiles the module of kernels for one target.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::rustc::{AS_RUSTC, GPU, SEPARATOR};
use super::{PtxError, Target};
use crate::run;
use crate::tools;
use crate::workspace::Workspace;

/// How long compiling for one target may take on two slow cores.
const DEADLINE: Duration = Duration::from_secs(15 * 60);

/// Compiles the kernels to PTX, and gives its text.
pub fn compile(
    workspace: &Workspace,
    target: &Target,
    on_line: impl FnMut(&str),
) -> Result<String, PtxError> {
    let folder = workspace.root.join("ptx/module");
    // One for each target, because Cargo lets one build at a time into a folder.
    let target_folder = workspace.target.join("ptx/cargo").join(target.name);
    let mut command = tools::nightly(workspace, "cargo");
    command
        .current_dir(&folder)
        .args(["build", "--release", "--locked", "-Zbuild-std=core"])
        .args(["--target", GPU]);
    if target.suite {
        command.args(["--features", "suite"]);
    }
    let flags = [
        format!("-Ctarget-cpu={}", target.name),
        format!("-Ctarget-feature=+{}", target.isa),
        // A jump by a table is a load from constant memory and an indirect branch, where comparisons do.
        "-Cjump-tables=no".into(),
    ];
    command
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join(SEPARATOR))
        .env("CARGO_TARGET_DIR", &target_folder)
        .env("RUSTC_WRAPPER", env::current_exe()?)
        .env(AS_RUSTC, remapped_paths(workspace)?.join(SEPARATOR));
    let finished = run::capture(command, DEADLINE, on_line)?;
    if !finished.success() {
        return Err(PtxError::Build {
            target: target.name,
            output: finished.account(),
        });
    }
    let ptx = target_folder
        .join(GPU)
        .join("release/warpbell_ptx_module.ptx");
    Ok(fs::read_to_string(ptx)?)
}

/// Flags that take the places of this machine out of the panics' locations. They reach rustc by its wrapper, so that
/// no name that Cargo gives depends on them.
fn remapped_paths(workspace: &Workspace) -> Result<Vec<String>, PtxError> {
    let flag = |from: &Path, to: &str| format!("--remap-path-prefix={}={to}", from.display());
    let mut flags = vec![flag(&workspace.root, "")];
    flags.push(flag(
        &sysroot(workspace)?.join("lib/rustlib/src/rust"),
        "rust",
    ));
    // Each registry has a folder of its own, named after its address.
    if let Some(registries) =
        cargo_home().and_then(|home| fs::read_dir(home.join("registry/src")).ok())
    {
        for registry in registries {
            flags.push(flag(&registry?.path(), "registry"));
        }
    }
    Ok(flags)
}

fn cargo_home() -> Option<PathBuf> {
    let own = env::var_os("CARGO_HOME").map(PathBuf::from);
    own.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")))
}

/// Where the nightly toolchain lies.
fn sysroot(workspace: &Workspace) -> Result<PathBuf, PtxError> {
    let mut command: Command = tools::nightly(workspace, "rustc");
    command.args(["--print", "sysroot"]);
    let finished = run::capture(command, DEADLINE, |_| {})?;
    Ok(PathBuf::from(finished.stdout.trim()))
}
