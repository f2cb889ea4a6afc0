//! The tools that the steps need: finds each one, or installs it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::run::{self, Finished};
use crate::workspace::{Workspace, clean_command};

/// The toolchain of miri, the fuzzer and the nvptx64 check, which stable Rust does not offer.
pub const NIGHTLY: &str = "nightly-2026-10-01";
const NIGHTLY_COMPONENTS: [&str; 3] = ["rust-src", "miri", "llvm-tools"];
const CARGO_FUZZ_VERSION: &str = "0.13.2";

/// How long asking for a tool's version may take.
const PROBE_DEADLINE: Duration = Duration::from_secs(60);
/// How long installing one tool may take.
const INSTALL_DEADLINE: Duration = Duration::from_secs(15 * 60);

/// Something that a step needs besides the stable compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tool {
    Rustfmt,
    Clippy,
    Nightly,
    CargoFuzz,
    CxxCompiler,
}

impl Tool {
    fn name(self) -> String {
        match self {
            Self::Rustfmt => "rustfmt".into(),
            Self::Clippy => "clippy".into(),
            Self::Nightly => format!("{NIGHTLY} ({})", NIGHTLY_COMPONENTS.join(", ")),
            Self::CargoFuzz => format!("cargo-fuzz {CARGO_FUZZ_VERSION}"),
            Self::CxxCompiler => "a C++ compiler".into(),
        }
    }
}

/// Finds and installs tools; remembers which ones are there.
pub struct Toolbox<'a> {
    workspace: &'a Workspace,
    spinner: &'a ProgressBar,
    known: HashMap<Tool, Result<(), String>>,
}

impl<'a> Toolbox<'a> {
    pub fn new(workspace: &'a Workspace, spinner: &'a ProgressBar) -> Self {
        Self {
            workspace,
            spinner,
            known: HashMap::new(),
        }
    }

    /// Makes sure that a tool is there, and says in a line what it installed.
    ///
    /// # Errors
    /// One line that says why the tool is not available.
    pub fn ensure(&mut self, tool: Tool) -> Result<(), String> {
        if let Some(known) = self.known.get(&tool) {
            return known.clone();
        }
        let result = if self.is_there(tool) {
            Ok(())
        } else {
            self.install(tool)
        };
        self.known.insert(tool, result.clone());
        result
    }

    fn is_there(&self, tool: Tool) -> bool {
        let probe = |mut command: Command, args: &[&str]| {
            command.args(args);
            let finished = run::capture(command, PROBE_DEADLINE, |_| {}).ok()?;
            finished.success().then_some(finished.stdout)
        };
        match tool {
            Tool::Rustfmt => probe(self.workspace.cargo(), &["fmt", "--version"]).is_some(),
            Tool::Clippy => probe(self.workspace.cargo(), &["clippy", "--version"]).is_some(),
            Tool::Nightly => {
                let list = ["component", "list", "--installed", "--toolchain", NIGHTLY];
                let starts = |list: &str, component: &&str| {
                    list.lines().any(|line| line.starts_with(*component))
                };
                probe(self.command("rustup"), &list)
                    .is_some_and(|list| NIGHTLY_COMPONENTS.iter().all(|c| starts(&list, c)))
            }
            Tool::CargoFuzz => probe(
                self.command(cargo_fuzz_binary(self.workspace)),
                &["--version"],
            )
            .is_some_and(|version| version.trim().ends_with(CARGO_FUZZ_VERSION)),
            Tool::CxxCompiler => probe(self.command("c++"), &["--version"]).is_some(),
        }
    }

    fn install(&self, tool: Tool) -> Result<(), String> {
        self.spinner
            .set_message(format!("installing {}", tool.name()));
        let started = Instant::now();
        match tool {
            Tool::Rustfmt => self.rustup(&["component", "add", "rustfmt"]),
            Tool::Clippy => self.rustup(&["component", "add", "clippy"]),
            Tool::Nightly => {
                let mut args = vec!["toolchain", "install", NIGHTLY, "--profile", "minimal"];
                args.push("--no-self-update");
                for component in NIGHTLY_COMPONENTS {
                    args.extend(["--component", component]);
                }
                self.rustup(&args)
            }
            Tool::CargoFuzz => {
                let mut command = self.workspace.cargo();
                command
                    .args(["install", "--locked", "--force", "cargo-fuzz"])
                    .args(["--version", CARGO_FUZZ_VERSION])
                    .arg("--root")
                    .arg(tools_folder(self.workspace));
                finish(command)
            }
            Tool::CxxCompiler => self.apt_get("g++"),
        }
        .map_err(|why| format!("{} is missing: {why}", tool.name()))?;
        let seconds = started.elapsed().as_secs();
        let line = format!("installed {} in {seconds} s", tool.name());
        self.spinner.suspend(|| println!("{line}"));
        Ok(())
    }

    fn rustup(&self, args: &[&str]) -> Result<(), String> {
        let mut command = self.command("rustup");
        command.args(args);
        finish(command)
    }

    /// Installs a Debian package, where that is ours to do.
    fn apt_get(&self, package: &str) -> Result<(), String> {
        if !rustix::process::geteuid().is_root() {
            return Err(format!("not root, so run: apt-get install {package}"));
        }
        let mut update = self.command("apt-get");
        update.arg("update");
        finish(update)?;
        let mut install = self.command("apt-get");
        install
            .args(["install", "-y", "--no-install-recommends", package])
            .env("DEBIAN_FRONTEND", "noninteractive");
        finish(install)
    }

    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        clean_command(program, &self.workspace.root)
    }
}

/// A call of the nightly toolchain's cargo, in the workspace's root.
pub fn nightly_cargo(workspace: &Workspace) -> Command {
    nightly(workspace, "cargo")
}

/// A call of `cargo fuzz`, with the nightly toolchain, in the workspace's root.
pub fn cargo_fuzz(workspace: &Workspace) -> Command {
    let mut command = nightly(workspace, cargo_fuzz_binary(workspace));
    command.arg("fuzz");
    command
}

/// Runs a program such that each cargo and rustc below it are the nightly toolchain's.
fn nightly(workspace: &Workspace, program: impl AsRef<OsStr>) -> Command {
    let mut command = clean_command("rustup", &workspace.root);
    command.args(["run", NIGHTLY]).arg(program);
    command
}

/// Where the tools are installed that Cargo builds.
fn tools_folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("tools")
}

fn cargo_fuzz_binary(workspace: &Workspace) -> PathBuf {
    tools_folder(workspace).join("bin/cargo-fuzz")
}

/// Runs an installing command; its error is one line.
fn finish(command: Command) -> Result<(), String> {
    match run::capture(command, INSTALL_DEADLINE, |_| {}) {
        Ok(finished) if finished.success() => Ok(()),
        Ok(finished) => Err(reason(&finished)),
        Err(error) => Err(error.to_string()),
    }
}

/// The line that most likely tells why a command failed: the first error, or else the last line.
fn reason(finished: &Finished) -> String {
    let lines = || finished.output.lines().map(str::trim);
    let error = lines().find(|line| line.starts_with("error") || line.starts_with("E: "));
    error
        .or_else(|| lines().rfind(|line| !line.is_empty()))
        .unwrap_or("it failed without a word")
        .into()
}
