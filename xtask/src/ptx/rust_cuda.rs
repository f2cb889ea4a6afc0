//! Rust-CUDA's compiler, as a checkout has it: from the kernels to LLVM's bitcode.
//!
//! Its backend of rustc is built first, then the kernels. Each crate becomes an archive of bitcode, and all archives
//! together are what rustc's own target gives as one library.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use super::PtxError;
use super::build::{self, DEADLINE};
use super::rustc::GPU;
use crate::run::{self, Finished};
use crate::tools;
use crate::workspace::{Workspace, clean_command};

/// The revision that was tried.
pub const TRIED: &str = "2f4fd1d00b887fc50d5c91acdf07de5ae358997a";
/// Where it is found.
const REPOSITORY: &str = "branch llvm-19-fixes of https://github.com/brandonros/Rust-CUDA";

/// The backend's folder in a checkout, and a feature that the tried revision has.
const BACKEND: &str = "crates/rustc_codegen_nvvm";
const FEATURE: &str = "llvm19";
const LIBRARY: &str = "release/librustc_codegen_nvvm.so";

/// Parts of the nightly that build the backend, which links with its LLVM, and `core`.
pub const COMPONENTS: [&str; 3] = ["rustc-dev", "rust-src", "llvm-tools"];

/// What the backend compiles with. One GPU stands for all, as for rustc.
const FLAGS: [&str; 7] = [
    "-Zunstable-options",
    // The mark of a kernel.
    "-Zcrate-attr=feature(register_tool)",
    "-Zcrate-attr=register_tool(nvvm_internal)",
    "-Zsaturating_float_casts=false",
    // It copies a shuffle into both arms of a branch that follows, and parts the lanes that are to meet there. rustc's
    // newer nightlies leave it out for GPUs.
    "-Zmir-enable-passes=-JumpThreading",
    "-Cpanic=abort",
    "-Cllvm-args=-arch=compute_90",
];

/// A checkout of Rust-CUDA.
#[derive(Debug)]
pub struct Checkout {
    folder: PathBuf,
    /// The nightly that it pins.
    pub nightly: String,
}

impl Checkout {
    /// Looks into a folder.
    ///
    /// # Errors
    /// A folder that is no checkout, or one whose backend has no LLVM 19.
    pub fn find(folder: &Path) -> Result<Self, PtxError> {
        let no_checkout = |lacks: &str| PtxError::NoCheckout {
            folder: folder.to_owned(),
            lacks: lacks.into(),
            tried: format!("{TRIED}, {REPOSITORY}"),
        };
        let folder = folder.canonicalize();
        let folder = folder.map_err(|_| no_checkout("it is not there"))?;
        let manifest = fs::read_to_string(folder.join(BACKEND).join("Cargo.toml"))
            .map_err(|_| no_checkout(&format!("it has no {BACKEND}")))?;
        let has_feature = |line: &str| line.split('=').next().map(str::trim) == Some(FEATURE);
        if !manifest.lines().any(has_feature) {
            return Err(no_checkout(&format!(
                "its backend has no feature {FEATURE}"
            )));
        }
        let toolchain = fs::read_to_string(folder.join("rust-toolchain.toml")).unwrap_or_default();
        let nightly = tools::quoted(&toolchain, "channel").first().copied();
        let nightly =
            nightly.ok_or_else(|| no_checkout("its rust-toolchain.toml names no nightly"))?;
        Ok(Self {
            nightly: nightly.into(),
            folder,
        })
    }

    /// A sentence about a revision that is not the one that was tried.
    pub fn warning(&self) -> Option<String> {
        let mut git = clean_command("git", &self.folder);
        git.args(["rev-parse", "HEAD"]);
        let found = run::capture(git, DEADLINE, |_| {}).ok();
        let found = found.filter(Finished::success);
        let found = found.map_or("unknown".into(), |found| found.stdout.trim().to_owned());
        (found != TRIED).then(|| {
            format!("Rust-CUDA's revision is {found}; what was tried is {TRIED} ({REPOSITORY})")
        })
    }

    /// Functions that LLVM's intrinsics of some widths become.
    fn intrinsics(&self) -> PathBuf {
        self.folder.join(BACKEND).join("libintrinsics.ll")
    }

    /// The folder of a package of Rust-CUDA's.
    pub fn package(&self, name: &str) -> PathBuf {
        self.folder.join("crates").join(name)
    }

    /// The versions that it was built with.
    pub fn lock(&self) -> PathBuf {
        self.folder.join("Cargo.lock")
    }

    /// A program of the nightly.
    fn nightly(&self, workspace: &Workspace, program: &str) -> Command {
        let mut command = clean_command("rustup", &self.folder);
        command.args(["run", &self.nightly, program]);
        self.prepare(workspace, &mut command);
        command
    }

    /// Has a command find the backend, CUDA, LLVM and libclang where they are here.
    pub fn prepare(&self, workspace: &Workspace, command: &mut Command) {
        let cuda = tools::cuda_folder(workspace);
        let libraries = format!(
            "{}:{}",
            backend_folder(workspace).join("release").display(),
            cuda.join("nvvm/lib64").display()
        );
        command
            .env("LD_LIBRARY_PATH", libraries)
            .env("CUDA_PATH", cuda)
            .env("LLVM_CONFIG_19", tools::LLVM_CONFIG)
            .env("LLVM_LINK_SHARED", "1")
            .env("LIBCLANG_PATH", tools::LIBCLANG_FOLDER);
    }

    /// Builds the backend, and gives the library that rustc loads.
    pub fn backend(
        &self,
        workspace: &Workspace,
        on_line: impl FnMut(&str),
    ) -> Result<PathBuf, PtxError> {
        let target = backend_folder(workspace);
        let mut command = self.nightly(workspace, "cargo");
        command
            .args(["build", "--release", "--locked"])
            .args(["-p", "rustc_codegen_nvvm", "--features", FEATURE])
            .env("CARGO_TARGET_DIR", &target);
        let finished = run::capture(command, DEADLINE, on_line)?;
        match finished.success() {
            true => Ok(target.join(LIBRARY)),
            false => Err(PtxError::Backend {
                output: finished.account(),
            }),
        }
    }

    /// Compiles the kernels with the backend, and gives the files with their bitcode.
    pub fn compile(
        &self,
        workspace: &Workspace,
        backend: &Path,
        on_line: impl FnMut(&str),
    ) -> Result<Vec<PathBuf>, PtxError> {
        let mut rustc = self.nightly(workspace, "rustc");
        rustc.args(["--print", "sysroot"]);
        let sysroot = run::capture(rustc, DEADLINE, |_| {})?;
        let mut flags = Vec::from(FLAGS.map(str::to_owned));
        flags.push(format!("-Zcodegen-backend={}", backend.display()));
        let mut command = self.nightly(workspace, "cargo");
        command
            .args(["rustc", "--lib", "--crate-type", "rlib"])
            .arg("--message-format=json-render-diagnostics")
            // Its backend knows neither of these floats.
            .env("CARGO_FEATURE_NO_F16_F128", "1")
            // Archives of bitcode are linked here.
            .env("CARGO_PROFILE_RELEASE_LTO", "off");
        let sysroot = Path::new(sysroot.stdout.trim());
        let target = workspace.target.join("rust-cuda/kernels");
        build::of_module(&mut command, workspace, sysroot, &flags, &target)?;
        let finished = run::capture(command, DEADLINE, on_line)?;
        if !finished.success() {
            return Err(PtxError::Build {
                output: crate::built::without_json(&finished.account()),
            });
        }
        let mut bitcode = vec![self.intrinsics()];
        let unpacked = workspace.target.join("rust-cuda/bitcode");
        if unpacked.exists() {
            fs::remove_dir_all(&unpacked)?;
        }
        for archive in archives(&finished.stdout) {
            unpack(&archive, &unpacked, &mut bitcode)?;
        }
        Ok(bitcode)
    }
}

/// Where the backend is built.
fn backend_folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("rust-cuda/backend")
}

/// A line of Cargo's `--message-format=json`, as far as it matters here.
#[derive(Deserialize)]
struct Artifact {
    filenames: Vec<PathBuf>,
}

/// The archives for a GPU that Cargo says it has made.
fn archives(messages: &str) -> Vec<PathBuf> {
    let artifacts = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Artifact>(line).ok());
    let files = artifacts.flat_map(|artifact| artifact.filenames);
    let is_for_gpu = |file: &PathBuf| {
        file.extension().is_some_and(|kind| kind == "rlib")
            && file.iter().any(|folder| folder == GPU)
    };
    let mut archives = Vec::from_iter(files.filter(is_for_gpu));
    // Cargo names them as they are done.
    archives.sort();
    archives
}

/// Calls tar in a folder.
pub fn tar(folder: &Path, arguments: impl FnOnce(&mut Command)) -> Result<(), PtxError> {
    let mut tar = clean_command("tar", folder);
    arguments(&mut tar);
    let finished = run::capture(tar, DEADLINE, |_| {})?;
    match finished.success() {
        true => Ok(()),
        false => Err(PtxError::Llvm {
            tool: "tar",
            output: finished.account(),
        }),
    }
}

/// Unpacks an archive, which is one of tar's, below a folder and lists its bitcode.
fn unpack(archive: &Path, below: &Path, bitcode: &mut Vec<PathBuf>) -> Result<(), PtxError> {
    let folder = below.join(archive.file_stem().unwrap_or_default());
    fs::create_dir_all(&folder)?;
    tar(&folder, |tar| {
        tar.arg("-xf").arg(archive).args(["--exclude", ".metadata"]);
    })?;
    let files = fs::read_dir(&folder)?.map(|file| Ok(file?.path()));
    let mut files: Vec<PathBuf> = files.collect::<io::Result<_>>()?;
    // A folder has no order of its own, and LLVM names what it links by its place.
    files.sort();
    bitcode.append(&mut files);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(folder: &Path) -> String {
        Checkout::find(folder).unwrap_err().to_string()
    }

    #[test]
    fn a_folder_that_is_no_checkout_is_told_what_it_lacks() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        assert!(refusal(&root.join("none")).contains("it is not there"));
        assert!(refusal(root).contains("it has no crates/rustc_codegen_nvvm"));
        let backend = root.join(BACKEND);
        fs::create_dir_all(&backend).unwrap();
        fs::write(backend.join("Cargo.toml"), "[features]\ndefault = []\n").unwrap();
        assert!(refusal(root).contains("no feature llvm19"));
        fs::write(backend.join("Cargo.toml"), "[features]\nllvm19 = []\n").unwrap();
        assert!(refusal(root).contains("names no nightly"));
        let pinned = "[toolchain]\nchannel = \"nightly-2026-04-02\"\n";
        fs::write(root.join("rust-toolchain.toml"), pinned).unwrap();
        let found = Checkout::find(root).unwrap();
        assert_eq!(found.nightly, "nightly-2026-04-02");
        let warning = found.warning().unwrap();
        assert!(
            warning.contains("unknown") && warning.contains(TRIED),
            "{warning}"
        );
    }

    #[test]
    fn only_archives_for_a_gpu_are_linked() {
        let messages = r#"
{"reason":"compiler-artifact","filenames":["/t/release/deps/libsyn-1.rlib"]}
{"reason":"compiler-artifact","filenames":["/t/nvptx64-nvidia-cuda/release/deps/libcore-2.rlib","/t/nvptx64-nvidia-cuda/release/deps/libcore-2.rmeta"]}
{"reason":"compiler-artifact","filenames":["/t/nvptx64-nvidia-cuda/release/deps/libbitflags-3.rlib"]}
{"reason":"build-finished","success":true}
"#;
        let deps = Path::new("/t/nvptx64-nvidia-cuda/release/deps");
        let expected = ["libbitflags-3.rlib", "libcore-2.rlib"].map(|name| deps.join(name));
        assert_eq!(archives(messages), expected, "in the order of their names");
    }
}
