//! Programs that run with `warpbell-preload` under them, and have a device then: these themselves once more, or others.

use std::ffi::OsStr;
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
/// If the library is not where Cargo builds it, with this program.
pub fn again(engine: Engine) -> io::Result<Command> {
    let mut command = under(env::current_exe()?)?;
    command.env(INSIDE, "1");
    match engine {
        Engine::Off => command.env("WARPBELL_ENGINE", "off"),
        Engine::On => command.env_remove("WARPBELL_ENGINE"),
    };
    Ok(command)
}

/// A call of somebody else's program, which has the device and the engine.
///
/// # Errors
/// As [`again`].
pub fn under(program: impl AsRef<OsStr>) -> io::Result<Command> {
    let this = env::current_exe()?;
    // Cargo leaves a dependency's library among the dependencies: beside tests, and below programs.
    let beside = ["libwarpbell_preload.so", "deps/libwarpbell_preload.so"];
    let mut found = beside.map(|path| this.with_file_name(path)).into_iter();
    let library = found.find(|path| path.is_file()).ok_or_else(|| {
        let why = format!("no {} beside {}", beside[0], this.display());
        io::Error::new(io::ErrorKind::NotFound, why)
    })?;
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", library);
    command.env_remove("WARPBELL_ENGINE");
    Ok(command)
}

/// Runs the body of the test with this name where there is the device: in a process of its own, whose failure is the
/// test's.
///
/// # Panics
/// If the test fails there.
pub fn test(engine: Engine, name: &str, body: impl FnOnce()) {
    test_with(engine, name, |_| {}, body);
}

/// The same; `prepare` changes the call of the process.
///
/// # Panics
/// If the test fails there.
pub fn test_with(
    engine: Engine,
    name: &str,
    prepare: impl FnOnce(&mut Command),
    body: impl FnOnce(),
) {
    if is_inside() {
        return body();
    }
    let mut again = again(engine).expect("Cargo builds the library beside the tests");
    prepare(&mut again);
    let output = again
        .args(["--exact", name, "--nocapture"])
        .env("RUST_BACKTRACE", "0")
        .output()
        .expect("the program runs once more");
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complained}");
    assert!(said.contains("1 passed"), "{name} ran no test:\n{said}");
}
