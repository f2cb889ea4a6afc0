//! Programs that run themselves again with `warpbell-preload` under them, and have a device then.

use std::process::Command;
use std::{env, io};

/// Set in the process that has the device.
const INSIDE: &str = "WARPBELL_PROOFS_PRELOADED";

/// Whether this process has the device.
pub fn is_inside() -> bool {
    env::var_os(INSIDE).is_some()
}

/// Whether there is an engine behind the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// What is posted stays as posted.
    Off,
    /// A thread of the process executes it.
    On,
}

/// A call of this program, without arguments, in which it has the device.
///
/// # Errors
/// If the library is not where Cargo builds it: beside this program, as it is one of the package's own.
pub fn again(engine: Engine) -> io::Result<Command> {
    let own = env::current_exe()?;
    let library = own
        .with_file_name("libwarpbell_preload.so")
        .canonicalize()?;
    let mut command = Command::new(own);
    command.env("LD_PRELOAD", library).env(INSIDE, "1");
    match engine {
        Engine::Off => command.env("WARPBELL_ENGINE", "off"),
        Engine::On => command.env_remove("WARPBELL_ENGINE"),
    };
    Ok(command)
}
