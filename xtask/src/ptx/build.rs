//! Compiles the module of kernels, once for all targets.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::time::Duration;

use super::PtxError;
use super::llvm::Toolchain;
use super::rustc::{AS_RUSTC, GPU, SEPARATOR};
use crate::run;
use crate::tools;
use crate::workspace::{Workspace, cargo_home};

/// How long compiling may take.
pub const DEADLINE: Duration = Duration::from_secs(60 * 60);

/// What rustc compiles with. One target stands for all, the one of the suite: what a target changes before the code
/// generator is the fences' names, and those are changed where code is generated.
pub const FLAGS: [&str; 3] = [
    "-Ctarget-cpu=sm_90",
    "-Ctarget-feature=+ptx86",
    // A jump by a table is a load from constant memory and an indirect branch, where comparisons do.
    "-Cjump-tables=no",
];

/// Compiles the kernels, those of the suite too, to a static library of LLVM's bitcode: a `cdylib` would go through
/// a linker that knows a single target.
pub fn compile(
    workspace: &Workspace,
    toolchain: &Toolchain,
    on_line: impl FnMut(&str),
) -> Result<PathBuf, PtxError> {
    let target_folder = workspace.target.join("ptx/cargo");
    let mut command = tools::nightly(workspace, "cargo");
    command.arg("build");
    let flags = FLAGS.map(str::to_owned);
    of_module(
        &mut command,
        workspace,
        toolchain.sysroot(),
        &flags,
        &target_folder,
    )?;
    let finished = run::capture(command, DEADLINE, on_line)?;
    if !finished.success() {
        return Err(PtxError::Build {
            output: finished.account(),
        });
    }
    Ok(target_folder
        .join(GPU)
        .join("release/libwarpbell_ptx_module.a"))
}

/// What is common to each compiler's call of Cargo for the module of kernels; `sysroot` is the compiler's.
pub fn of_module(
    command: &mut Command,
    workspace: &Workspace,
    sysroot: &Path,
    flags: &[String],
    target_folder: &Path,
) -> Result<(), PtxError> {
    command
        .current_dir(workspace.root.join("ptx/module"))
        .args(["--release", "--locked", "-Zbuild-std=core"])
        .args(["--target", GPU])
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join(SEPARATOR))
        .env("CARGO_TARGET_DIR", target_folder)
        // This program, and not what stands in its file by now: a test step may have built another.
        .env("RUSTC_WRAPPER", format!("/proc/{}/exe", process::id()))
        .env(
            AS_RUSTC,
            remapped_paths(workspace, sysroot)?.join(SEPARATOR),
        );
    Ok(())
}

/// Flags that take the places of this machine out of the panics' locations. They reach rustc by its wrapper, so that
/// no name that Cargo gives depends on them.
fn remapped_paths(workspace: &Workspace, sysroot: &Path) -> Result<Vec<String>, PtxError> {
    let flag = |from: &Path, to: &str| format!("--remap-path-prefix={}={to}", from.display());
    let mut flags = vec![flag(&workspace.root, "")];
    flags.push(flag(&sysroot.join("lib/rustlib/src/rust"), "rust"));
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
