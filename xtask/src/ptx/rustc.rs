//! This program in the place of rustc, so that the PTX does not depend on where the sources lie.
//!
//! Cargo tells rustc a hash (`-C metadata`) that mixes in the paths of the packages, the standard library's
//! among them. It becomes part of every mangled name and decides in which order functions come. For the GPU
//! each crate's name takes its place: there is but one crate of a name.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Set where Cargo runs this program as its RUSTC_WRAPPER, to more flags for the GPU.
pub const AS_RUSTC: &str = "WARPBELL_XTASK_AS_RUSTC";

/// What stands between flags in an environment variable.
pub const SEPARATOR: &str = "\x1f";

/// The GPU's target, as rustc calls it.
pub const GPU: &str = "nvptx64-nvidia-cuda";

/// Becomes the rustc that the first argument names; returns only if that cannot be started.
pub fn become_rustc(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut arguments: Vec<OsString> = arguments.collect();
    if arguments.is_empty() {
        eprintln!("error: {AS_RUSTC} is set, but there is no rustc to run");
        return ExitCode::FAILURE;
    }
    let rustc = arguments.remove(0);
    let flags = env::var(AS_RUSTC).unwrap_or_default();
    change(&mut arguments, &flags);
    let error = Command::new(&rustc).args(arguments).exec();
    eprintln!("error: cannot start {}: {error}", rustc.display());
    ExitCode::FAILURE
}

/// Puts the crate's name in the place of the hash and adds the flags, in a call for the GPU.
fn change(arguments: &mut Vec<OsString>, flags: &str) {
    let follows = |what: &str| {
        let at = arguments.iter().position(|argument| argument == what)?;
        arguments.get(at + 1)?.to_str().map(str::to_owned)
    };
    let (Some(GPU), Some(name)) = (follows("--target").as_deref(), follows("--crate-name")) else {
        return;
    };
    for argument in arguments.iter_mut() {
        if argument
            .to_str()
            .is_some_and(|text| text.starts_with("metadata="))
        {
            *argument = format!("metadata={name}").into();
        }
    }
    let flags = flags.split(SEPARATOR).filter(|flag| !flag.is_empty());
    arguments.extend(flags.map(OsString::from));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(call: &str) -> String {
        let mut arguments: Vec<OsString> = call.split(' ').map(OsString::from).collect();
        change(&mut arguments, "--a=b\x1f--c");
        let words: Vec<_> = arguments
            .iter()
            .map(|word| word.to_str().unwrap())
            .collect();
        words.join(" ")
    }

    #[test]
    fn only_a_call_for_the_gpu_is_changed() {
        let host = "--crate-name syn a.rs -C metadata=12 -C extra-filename=-34";
        assert_eq!(changed(host), host);
        let gpu = format!("{host} --target {GPU}");
        let named = gpu.replace("metadata=12", "metadata=syn");
        assert_eq!(changed(&gpu), format!("{named} --a=b --c"));
        let probe = format!("- --print cfg --target {GPU}");
        assert_eq!(changed(&probe), probe);
    }
}
