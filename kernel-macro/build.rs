//! Tells the crate whether a nightly compiles it: only there a macro can ask for the path of a module, which the
//! names of a GPU's entries have in them. For a GPU nothing else compiles.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rustc-check-cfg=cfg(nightly)");
    println!("cargo:rerun-if-changed=build.rs");
    let rustc = env::var_os("RUSTC").expect("Cargo says which");
    let version = Command::new(rustc).arg("--version").output();
    let is_nightly = |output: &[u8]| String::from_utf8_lossy(output).contains("-nightly");
    if version.is_ok_and(|version| is_nightly(&version.stdout)) {
        println!("cargo:rustc-cfg=nightly");
    }
}
