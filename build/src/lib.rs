//! Compiles a crate's kernels to PTX, called from its build script.
//!
//! A package with a library of kernels and a program that launches them has one line in `main` of its `build.rs`:
//!
//! ```no_run
//! warpbell_build::compile();
//! ```
//!
//! and this in its `Cargo.toml`, so that a GPU's compiler sees the kernels and nothing of the host:
//!
//! ```toml
//! [features]
//! gpu = []
//!
//! [dependencies]
//! warpbell = "0.1"
//!
//! [target.'cfg(not(target_arch = "nvptx64"))'.dependencies]
//! warpbell-host-init = "0.1"
//!
//! [build-dependencies]
//! warpbell-build = "0.1"
//! ```
//!
//! With the feature `gpu` the library is compiled once more, for GPUs, with the [nightly](NIGHTLY) that has been tested.
//! The program loads the result with `warpbell_host_init::built!()`. Without the feature nothing is compiled, and the
//! program runs on a CPU alone. So it does where the nightly is not installed: a warning says how to install it.
//!
//! | what is wrong | what happens |
//! |---|---|
//! | the nightly, or a part of it, is not installed | a warning with the command that installs it; a program for a CPU |
//! | a kernel does not compile | the build fails with the compiler's own message |
//! | a GPU that [`compile_for`] does not know | the build fails, and names the GPUs it knows |

mod cargo;
mod error;
mod gpu;
mod nightly;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::exit;

pub use error::BuildError;
pub use nightly::NIGHTLY;

use gpu::Gpu;

/// GPUs that [`compile`] compiles for; newer ones run it, too.
const USUAL: [&str; 1] = ["sm_90"];
/// Set where the library is compiled for a GPU: its build script, which runs again then, has nothing to do.
const INSIDE: &str = "WARPBELL_BUILD_INSIDE";

/// Compiles the package's library for GPUs of compute capability 9.0 and newer, if the feature `gpu` is on.
///
/// Ends the build script with a message if that fails.
pub fn compile() {
    compile_for(&USUAL);
}

/// The same for other GPUs, such as `&["sm_80", "sm_90"]`: a program takes the newest that its GPU runs.
pub fn compile_for(gpus: &[&str]) {
    if env::var_os(INSIDE).is_some() {
        return;
    }
    if let Err(error) = try_compile(gpus) {
        eprintln!("error: {error}");
        exit(1);
    }
}

/// Compiles if the feature `gpu` is on and the nightly is there, and lists the results for `built!()`.
fn try_compile(gpus: &[&str]) -> Result<(), BuildError> {
    let gpus = gpu::find(gpus)?;
    let out = PathBuf::from(variable("OUT_DIR")?);
    let mut compiled = Vec::new();
    if env::var_os("CARGO_FEATURE_GPU").is_some() {
        match nightly::find() {
            Ok(()) => {
                for gpu in gpus {
                    compiled.push(cargo::compile(gpu, &out)?);
                }
            }
            Err(missing) => missing.warn(),
        }
    } else {
        // Features run the script again by themselves.
        println!("cargo::rerun-if-changed=build.rs");
    }
    let list = out.join("warpbell_kernels.rs");
    fs::write(&list, texts(&compiled)).map_err(|source| BuildError::Write { path: list, source })
}

/// A Rust expression: the texts of these files.
fn texts(files: &[PathBuf]) -> String {
    let include = |path: &PathBuf| format!("include_str!({:?}), ", path.display().to_string());
    format!("&[{}]\n", files.iter().map(include).collect::<String>())
}

/// A variable that Cargo sets for build scripts.
fn variable(name: &'static str) -> Result<String, BuildError> {
    env::var(name).map_err(|_| BuildError::NoBuildScript { variable: name })
}

/// Has Cargo run the build script again once a file has changed.
fn rerun_if_changed(path: &Path) {
    println!("cargo::rerun-if-changed={}", path.display());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_texts_is_an_expression() {
        assert_eq!(texts(&[]), "&[]\n");
        let files = ["/a b/one.ptx", "/two\\.ptx"].map(PathBuf::from);
        let list = r#"&[include_str!("/a b/one.ptx"), include_str!("/two\\.ptx"), ]"#;
        assert_eq!(texts(&files).trim_end(), list);
    }
}
