//! Starts a program of the workspace as several ranks.

use std::convert::Infallible;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use crate::built::{executable, without_json};
use crate::run::{self, RunError};

use crate::workspace::{Workspace, WorkspaceError, clean_command};

/// How long building the program and the launcher may take.
const BUILD_DEADLINE: Duration = Duration::from_secs(60 * 60);

/// The launcher, and its package.
pub const LAUNCHER: &str = "warpbell-launch";
pub const RANKS: &str = "warpbell-ranks";

/// Why nothing was started.
#[derive(Debug, Error)]
pub enum LaunchError {
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(
        "{0} is neither a file nor an example or program of the workspace; give a path, or a name of `cargo run --example`"
    )]
    Unknown(String),
    #[error("the build failed:\n{0}")]
    Build(String),
    #[error("Cargo did not say where it built {0}")]
    Unbuilt(String),
}

/// What is started, and how.
#[derive(Debug)]
pub struct Launch<'a> {
    pub ranks: u32,
    /// The launcher's options, and their values.
    pub options: [(&'static str, Option<String>); 5],
    pub release: bool,
    /// A path, or the name of an example or a program of the workspace; and its arguments.
    pub program: &'a [String],
}

/// Builds launcher and program, and puts the launcher in this process's place. Comes back only with an error.
pub fn become_launcher(launch: &Launch<'_>) -> Result<Infallible, LaunchError> {
    let workspace = Workspace::load(Path::new("."))?;
    let (program, arguments) = launch
        .program
        .split_first()
        .map_or(("", &[][..]), |(p, a)| (p, a));
    let is_file = Path::new(program).is_file();
    let mut build = workspace.cargo();
    build.args(["build", "--message-format=json-render-diagnostics"]);
    build.args(launch.release.then_some("--release"));
    build.args(["-p", RANKS, "--bin", LAUNCHER]);
    build.args(["--features", &format!("{RANKS}/launch")]);
    if !is_file {
        let (package, kind) =
            find(&workspace, program).ok_or_else(|| LaunchError::Unknown(program.into()))?;
        build.args(["-p", package, &format!("--{kind}"), program]);
    }
    let built = run::capture(build, BUILD_DEADLINE, |_| {})?;
    if !built.success() {
        return Err(LaunchError::Build(without_json(&built.account())));
    }
    let path = |name: &str| {
        let path = executable(&built.stdout, name);
        path.ok_or_else(|| LaunchError::Unbuilt(name.into()))
    };
    let mut command = clean_command(path(LAUNCHER)?, Path::new("."));
    command.args(["-n", &launch.ranks.to_string()]);
    for (option, value) in &launch.options {
        command.args(value.iter().flat_map(|value| [*option, value]));
    }
    let program = if is_file {
        PathBuf::from(program)
    } else {
        path(program)?
    };
    command.arg("--").arg(program).args(arguments);
    let source = command.exec();
    let program = LAUNCHER.into();
    Err(RunError::Start { program, source }.into())
}

/// The package of an example or a program, and which of the two it is. An example goes first.
fn find<'w>(workspace: &'w Workspace, name: &str) -> Option<(&'w str, &'static str)> {
    let has = |kind| {
        let mut packages = workspace.packages();
        packages.find(|package| workspace.targets(package, kind).contains(&name))
    };
    ["example", "bin"]
        .into_iter()
        .find_map(|kind| Some((has(kind)?, kind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_and_programs_are_found_by_name() {
        let workspace = Workspace::load(Path::new(".")).unwrap();
        let find = |name| find(&workspace, name);
        assert_eq!(find("all_to_all"), Some(("warpbell-examples", "example")));
        assert_eq!(find(LAUNCHER), Some((RANKS, "bin")));
        assert_eq!(find("no such"), None);
    }
}
