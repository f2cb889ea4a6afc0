//! The step for Rust-CUDA: what needs no checkout of it always, and the rest where the environment names one.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use super::{BUILD_DEADLINE, Report, StepError, Steps};
use crate::installs::Installs;
use crate::ptx::rust_cuda::{COMPONENTS, Checkout};
use crate::ptx::{self, by_rust_cuda};
use crate::tools::{Tool, Toolbox};
use crate::workspace::clean_command;

/// Names a checkout of Rust-CUDA.
const CHECKOUT: &str = "WARPBELL_RUST_CUDA";

/// Kernels compiled against cuda_std of crates.io, in a workspace of their own.
const CUDA_STD: &str = "kernels/rust-cuda";

/// A host program with kernels that its build script has Rust-CUDA compile.
const TEMPLATE: &str = "template/rust-cuda";
/// Its files.
const FILES: [&str; 5] = [
    "Cargo.toml",
    "build.rs",
    "src/main.rs",
    "kernels/Cargo.toml",
    "kernels/src/lib.rs",
];
/// Where its manifests say that Rust-CUDA is.
const REPOSITORY: &str = "git = \"https://github.com/Rust-GPU/rust-cuda\"";

/// What the step needs: nothing without a checkout.
pub fn needs() -> &'static [Tool] {
    match checkout() {
        Some(_) => &[Tool::Nightly, Tool::Ptxas, Tool::Llvm, Tool::Cuda],
        None => &[],
    }
}

/// The folder that the environment names.
pub fn checkout() -> Option<PathBuf> {
    env::var_os(CHECKOUT).map(PathBuf::from)
}

/// The folder of the kernels that are checked against cuda_std.
pub fn cuda_std(root: &Path) -> PathBuf {
    root.join(CUDA_STD)
}

/// A file of the template that takes Rust-CUDA's packages from a checkout.
fn from_checkout(text: &str, checkout: &Checkout) -> String {
    let lines = text.lines().map(|line| {
        let package = line.split(' ').next().unwrap_or_default();
        let path = checkout.package(package).display().to_string();
        line.replace(REPOSITORY, &format!("path = {path:?}")) + "\n"
    });
    lines.collect()
}

impl Steps<'_> {
    pub(super) fn rust_cuda(&self, report: &mut Report) -> Result<(), StepError> {
        let mut command = self.workspace.cargo();
        command
            .args(["check", "--locked", "--tests"])
            .current_dir(cuda_std(&self.workspace.root))
            .env("CARGO_TARGET_DIR", self.workspace.target.join("cuda-std"));
        report.check(
            "kernels with cuda_std",
            &self.capture(command, BUILD_DEADLINE)?,
        );
        match checkout() {
            Some(folder) => self.with_checkout(report, &Checkout::find(&folder)?),
            None => {
                report.skip(format!(
                    "{CHECKOUT} names no checkout of Rust-CUDA, so that its compiler did not run"
                ));
                Ok(())
            }
        }
    }

    fn with_checkout(&self, report: &mut Report, checkout: &Checkout) -> Result<(), StepError> {
        let toolbox = Toolbox::new(self.workspace, self.spinner, Installs::chosen(false), &[]);
        if let Err(missing) = toolbox.ensure_nightly(&checkout.nightly, &COMPONENTS) {
            report.fail("Rust-CUDA's nightly", missing.to_string());
            return Ok(());
        }
        let built =
            by_rust_cuda::build(self.workspace, self.spinner, checkout, &ptx::targets(&[]))?;
        report.list("PTX by Rust-CUDA", &built.problems);
        report.list("its record", &built.changes()?);
        report.list("its packed PTX", &built.outdated()?);
        self.template_by_rust_cuda(report, checkout)
    }

    /// Builds the template for Rust-CUDA outside of the repository, with the checkout in the place of its repository.
    fn template_by_rust_cuda(
        &self,
        report: &mut Report,
        checkout: &Checkout,
    ) -> Result<(), StepError> {
        let Some(driver) = self.fake_driver(report)? else {
            return Ok(());
        };
        let root = self.workspace.target.join("template-rust-cuda");
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        let app = root.join("app");
        for file in FILES {
            let to = app.join(file);
            fs::create_dir_all(to.parent().unwrap_or(&app))?;
            let text = fs::read_to_string(self.workspace.root.join(TEMPLATE).join(file))?;
            fs::write(to, from_checkout(&text, checkout))?;
        }
        // The versions that its packages were built with: cuda_std does not compile with newer ones of glam.
        fs::copy(checkout.lock(), app.join("Cargo.lock"))?;
        std::os::unix::fs::symlink(&self.workspace.root, root.join("warpbell"))?;
        let mut command = clean_command("rustup", &app);
        command.args(["run", &checkout.nightly, "cargo", "build"]);
        checkout.prepare(self.workspace, &mut command);
        command
            .env(
                "CARGO_TARGET_DIR",
                self.workspace.target.join("template-target"),
            )
            .env("CUDA_LIBRARY_PATH", &driver);
        report.check(
            "the template for Rust-CUDA",
            &self.capture(command, BUILD_DEADLINE)?,
        );
        Ok(())
    }
}
