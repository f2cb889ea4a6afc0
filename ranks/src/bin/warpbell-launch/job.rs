//! What a launcher tells the launcher on another host, and what that one answers. Each is a line of JSON.

use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;

use serde::{Deserialize, Serialize};

/// Signs of life that each side sends in the time of silence.
pub const SIGNS: u32 = 4;

/// The ranks that one machine starts. It holds the secret, so it has no `Debug`.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The ranks of this machine.
    pub ranks: Range<u32>,
    /// How many ranks all machines have.
    pub size: u32,
    /// Where rank 0 listens, as in `WARPBELL_ROOT`.
    pub root: String,
    pub secret: String,
    pub folder: OsString,
    /// The user's variables for Warpbell.
    pub variables: Vec<(OsString, OsString)>,
    /// The program and its arguments.
    pub program: Vec<OsString>,
}

/// The variables of this process that begin with `WARPBELL_`.
pub fn local_variables() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"WARPBELL_"))
}

/// A message as a line.
pub fn line(message: &impl Serialize) -> Vec<u8> {
    let json = serde_json::to_vec(message);
    let mut line = json.expect("a message has only numbers, strings and bytes");
    line.push(b'\n');
    line
}

/// What a host answers. A rank's lines begin with `[`, these with `{` or `"`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Answer {
    /// The launcher runs there, has this version, and this TCP port is free.
    Ready { version: String, port: u16 },
    /// The first rank that failed, or what could not be started; the status for a shell.
    Failed { status: u8, words: String },
    /// All ranks ended well.
    Done,
    /// A sign of life.
    Alive,
}

/// The launcher accepts only answers of this version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
