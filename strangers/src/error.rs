//! Why a conversation with a program of others ends.

use std::io;
use std::time::Duration;

/// Why a conversation with a program of others ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host's name has no address.
    #[error("{host} has no address: {source}; check its name")]
    NoHost {
        /// The name.
        host: String,
        /// What the system answered.
        source: io::Error,
    },
    /// Nobody listens there.
    #[error(
        "no server at {host} port {port}: {source}; start the other program there first, and check its port (-p)"
    )]
    NoServer {
        /// The host's name.
        host: String,
        /// The port.
        port: u16,
        /// What the system answered.
        source: io::Error,
    },
    /// The port cannot be listened at.
    #[error("cannot listen on port {port}: {source}; choose another one")]
    Port {
        /// The port.
        port: u16,
        /// What the system answered.
        source: io::Error,
    },
    /// Nobody came, or nobody who came said a word.
    #[error(
        "nobody connected to port {port} and sent a greeting within {patience:?}; start the other program with this host's name and this port (-p)"
    )]
    NoClient {
        /// The port.
        port: u16,
        /// For how long.
        patience: Duration,
    },
    /// The other end says nothing, or does not listen.
    #[error("no {what} within {patience:?}; check that the other end runs the expected program")]
    TimedOut {
        /// What was waited for.
        what: &'static str,
        /// For how long.
        patience: Duration,
    },
    /// The other end has closed the connection.
    #[error(
        "the other end closed the connection after {done} of {bytes} bytes of {what}; see its output"
    )]
    Closed {
        /// What it did not say in full.
        what: &'static str,
        /// Bytes that came.
        done: usize,
        /// Bytes that it has.
        bytes: usize,
    },
    /// The connection failed.
    #[error("the connection failed: {0}; start both ends again")]
    Stream(#[source] io::Error),
    /// The other end says something that the program would not.
    #[error(
        "{what} cannot be {found:?}: {wrong}; check that the other end runs the expected program"
    )]
    Malformed {
        /// What was expected.
        what: &'static str,
        /// What came instead, as text.
        found: String,
        /// What is wrong with it.
        wrong: &'static str,
    },
    /// The other end is of a version whose words are not known.
    #[error(
        "the other end speaks version {found:?} of perftest's messages, but only {known} is known; use perftest {release}"
    )]
    Version {
        /// What it says.
        found: String,
        /// What is known.
        known: &'static str,
        /// The releases that say that.
        release: &'static str,
    },
    /// The other end has no GID, by which alone it could be reached.
    #[error("the other end sends no GID; start it with a GID index (-g 0)")]
    NoGid,
    /// The other end tells of another queue pair than before.
    #[error(
        "the server names queue pair {second:#x} after {first:#x}; start it with one queue pair (no -q)"
    )]
    SecondQueuePair {
        /// The first one's number.
        first: u32,
        /// The number told now.
        second: u32,
    },
    /// The other end does not repeat to the letter what it has told of its queue pair.
    #[error("the server describes its queue pair differently than before; start both ends again")]
    Changed,
}

impl Error {
    /// Words that the program would not say.
    pub(crate) fn malformed(what: &'static str, found: &[u8], wrong: &'static str) -> Self {
        Self::Malformed {
            what,
            found: found.escape_ascii().to_string(),
            wrong,
        }
    }
}
