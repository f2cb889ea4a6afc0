//! Versioned messages between two processes, over a byte stream with deadlines.
//!
//! ```text
//! 0  magic "WBEX"    4  version u16    6  kind u16    8  length u32    12  JSON, `length` bytes
//! ```
//!
//! Numbers are little-endian. Whatever arrives instead ends in a named error:
//! nothing is allocated before the length was checked, and every wait ends at
//! the deadline.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

const MAGIC: [u8; 4] = *b"WBEX";
const VERSION: u16 = 1;
const HEADER: usize = 12;

/// Longest message body in bytes.
pub const LARGEST_MESSAGE: usize = 64 * 1024;

/// Why two processes could not tell each other about their queues.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// The socket failed.
    #[error(
        "{step} on {path} failed: {source}; check that the path can be used and that no other process listens there"
    )]
    Socket {
        /// What was tried.
        step: &'static str,
        /// The socket's path.
        path: String,
        /// What the system answered.
        source: std::io::Error,
    },
    /// A process of another user is at the other end.
    #[error(
        "the other process runs as user {found}, this one as {expected}; run both as one user, or allow others with Users::Any"
    )]
    OtherUser {
        /// The other process's user ID.
        found: u32,
        /// The user ID of this process.
        expected: u32,
    },
    /// Nothing came, or nothing was taken, in time.
    #[error(
        "the other process did not {what} within {timeout:?}; check that it runs and does the same steps in the same order"
    )]
    TimedOut {
        /// What was waited for.
        what: &'static str,
        /// For how long.
        timeout: Duration,
    },
    /// The other process closed the connection.
    #[error(
        "the other process closed the connection after {done} of {bytes} bytes; see its output"
    )]
    Closed {
        /// Bytes of the message that had come, or gone.
        done: usize,
        /// Bytes of the message.
        bytes: usize,
    },
    /// The stream failed.
    #[error("the connection to the other process failed: {0}; start both processes again")]
    Stream(#[source] std::io::Error),
    /// The bytes are no message of ours.
    #[error(
        "the message starts with {found:02x?} instead of \"WBEX\"; connect to a Warpbell process"
    )]
    NotOurs {
        /// The first four bytes.
        found: [u8; 4],
    },
    /// The other side speaks another version.
    #[error(
        "the other process speaks version {found}, this one {expected}; run the same version on both sides"
    )]
    Version {
        /// Version found.
        found: u16,
        /// Version spoken here.
        expected: u16,
    },
    /// The message is longer than allowed.
    #[error(
        "a message of {bytes} bytes, at most {LARGEST_MESSAGE} are allowed; send less in one exchange"
    )]
    TooLong {
        /// Bytes announced.
        bytes: usize,
    },
    /// The two sides are at different steps.
    #[error(
        "expected a message about {expected}, got kind {found}; do the same steps in the same order on both sides"
    )]
    OutOfStep {
        /// What was expected.
        expected: &'static str,
        /// Kind found.
        found: u16,
    },
    /// The body does not describe what it should.
    #[error("the message about {what} is malformed: {source}; run the same version on both sides")]
    Malformed {
        /// What it was about.
        what: &'static str,
        /// Where the reader stopped.
        source: serde_json::Error,
    },
    /// The two sides are at different barriers.
    #[error(
        "the other process is at barrier {theirs:?}, this one at {ours:?}; do the same steps in the same order on both sides"
    )]
    OtherBarrier {
        /// Name here.
        ours: String,
        /// Name there.
        theirs: String,
    },
}

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Who the other device is.
    Hello = 1,
    /// A queue pair's end.
    Endpoint = 2,
    /// Anything of the user's.
    Data = 3,
    /// A named meeting point.
    Barrier = 4,
}

impl Kind {
    const fn words(self) -> &'static str {
        match self {
            Self::Hello => "the device",
            Self::Endpoint => "a queue pair",
            Self::Data => "the user's data",
            Self::Barrier => "a barrier",
        }
    }
}

/// Sends one message.
pub(crate) fn send<T: Serialize>(
    stream: &UnixStream,
    kind: Kind,
    body: &T,
    timeout: Duration,
) -> Result<(), ExchangeError> {
    let what = kind.words();
    let body =
        serde_json::to_vec(body).map_err(|source| ExchangeError::Malformed { what, source })?;
    if body.len() > LARGEST_MESSAGE {
        return Err(ExchangeError::TooLong { bytes: body.len() });
    }
    let mut message = Vec::with_capacity(HEADER + body.len());
    message.extend_from_slice(&MAGIC);
    message.extend_from_slice(&VERSION.to_le_bytes());
    message.extend_from_slice(&(kind as u16).to_le_bytes());
    message.extend_from_slice(&(body.len() as u32).to_le_bytes());
    message.extend_from_slice(&body);

    let deadline = Instant::now() + timeout;
    let mut sent = 0;
    while sent < message.len() {
        stream
            .set_write_timeout(Some(left(deadline)))
            .map_err(ExchangeError::Stream)?;
        match (&*stream).write(&message[sent..]) {
            Ok(bytes) => sent += bytes,
            Err(error) if is_closed(&error) => {
                return Err(ExchangeError::Closed {
                    done: sent,
                    bytes: message.len(),
                });
            }
            Err(error) => retry(error, deadline, "take a message", timeout)?,
        }
    }
    Ok(())
}

/// Receives one message of the given kind.
pub(crate) fn receive<T: DeserializeOwned>(
    stream: &UnixStream,
    kind: Kind,
    timeout: Duration,
) -> Result<T, ExchangeError> {
    let deadline = Instant::now() + timeout;
    let mut header = [0; HEADER];
    fill(stream, &mut header, deadline, timeout)?;
    let found = [header[0], header[1], header[2], header[3]];
    if found != MAGIC {
        return Err(ExchangeError::NotOurs { found });
    }
    let found = u16::from_le_bytes([header[4], header[5]]);
    if found != VERSION {
        return Err(ExchangeError::Version {
            found,
            expected: VERSION,
        });
    }
    let bytes = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
    if bytes > LARGEST_MESSAGE {
        return Err(ExchangeError::TooLong { bytes });
    }
    let mut body = vec![0; bytes];
    fill(stream, &mut body, deadline, timeout)?;
    let found = u16::from_le_bytes([header[6], header[7]]);
    if found != kind as u16 {
        return Err(ExchangeError::OutOfStep {
            expected: kind.words(),
            found,
        });
    }
    serde_json::from_slice(&body).map_err(|source| ExchangeError::Malformed {
        what: kind.words(),
        source,
    })
}

fn fill(
    stream: &UnixStream,
    into: &mut [u8],
    deadline: Instant,
    timeout: Duration,
) -> Result<(), ExchangeError> {
    let bytes = into.len();
    let closed = |done| ExchangeError::Closed { done, bytes };
    let mut received = 0;
    while received < into.len() {
        stream
            .set_read_timeout(Some(left(deadline)))
            .map_err(ExchangeError::Stream)?;
        match (&*stream).read(&mut into[received..]) {
            Ok(0) => return Err(closed(received)),
            Err(error) if is_closed(&error) => return Err(closed(received)),
            Ok(bytes) => received += bytes,
            Err(error) => retry(error, deadline, "send its part", timeout)?,
        }
    }
    Ok(())
}

/// What is left until the deadline; never zero, which would mean "for ever".
fn left(deadline: Instant) -> Duration {
    deadline
        .saturating_duration_since(Instant::now())
        .max(Duration::from_micros(1))
}

fn is_closed(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
    )
}

fn retry(
    error: std::io::Error,
    deadline: Instant,
    what: &'static str,
    timeout: Duration,
) -> Result<(), ExchangeError> {
    match error.kind() {
        ErrorKind::Interrupted if Instant::now() < deadline => Ok(()),
        ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            Err(ExchangeError::TimedOut { what, timeout })
        }
        _ => Err(ExchangeError::Stream(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// For what is there, on a machine that is busy with other things.
    const PATIENCE: Duration = Duration::from_secs(300);

    /// What `receive` makes of raw bytes followed by the end of the stream.
    fn received(bytes: &[u8]) -> Result<Vec<u32>, ExchangeError> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(bytes).unwrap();
        drop(theirs);
        receive(&ours, Kind::Data, PATIENCE)
    }

    fn message(version: u16, kind: u16, length: u32, body: &[u8]) -> Vec<u8> {
        let mut message = MAGIC.to_vec();
        message.extend_from_slice(&version.to_le_bytes());
        message.extend_from_slice(&kind.to_le_bytes());
        message.extend_from_slice(&length.to_le_bytes());
        message.extend_from_slice(body);
        message
    }

    #[test]
    fn carries_a_message() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        send(&theirs, Kind::Data, &vec![1u32, 2, 3], PATIENCE).unwrap();
        assert_eq!(
            receive::<Vec<u32>>(&ours, Kind::Data, PATIENCE).unwrap(),
            [1, 2, 3]
        );
    }

    #[test]
    fn names_every_kind_of_bad_bytes() {
        use ExchangeError as E;
        assert_matches!(
            received(b"GET / HTTP/1.1\r\n") => Err(E::NotOurs { found }) if found == *b"GET "
        );
        assert_matches!(
            received(&message(9, 3, 2, b"[]")) => Err(E::Version { found: 9, expected: 1 })
        );
        assert_matches!(received(&message(1, 2, 2, b"[]")) => Err(E::OutOfStep { found: 2, .. }));
        assert_matches!(received(&message(1, 3, u32::MAX, b"")) => Err(E::TooLong { .. }));
        assert_matches!(received(&message(1, 3, 2, b"{}")) => Err(E::Malformed { .. }));
        assert_matches!(received(&message(1, 3, 4, b"[1")) => Err(E::Closed { done: 2, bytes: 4 }));
        assert_matches!(received(b"WB") => Err(E::Closed { done: 2, bytes: 12 }));
        assert_eq!(received(&message(1, 3, 2, b"[]")).unwrap(), [0u32; 0]);
    }

    #[test]
    fn a_silent_peer_ends_at_the_deadline() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let soon = Duration::from_millis(50);
        let error = receive::<Vec<u32>>(&ours, Kind::Data, soon).unwrap_err();
        assert_matches!(error => ExchangeError::TimedOut { .. });
    }

    #[test]
    fn refuses_to_send_too_much() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let body = "x".repeat(LARGEST_MESSAGE);
        let error = send(&ours, Kind::Data, &body, PATIENCE).unwrap_err();
        assert_matches!(error => ExchangeError::TooLong { .. });
    }

    proptest! {
        /// No bytes make the reader panic or accept a header that is not ours.
        #[test]
        fn survives_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(received(&bytes).is_err());
        }

        #[test]
        fn survives_any_body(body in proptest::collection::vec(any::<u8>(), 0..64)) {
            let expected: Option<Vec<u32>> = serde_json::from_slice(&body).ok();
            let found = received(&message(1, 3, body.len() as u32, &body)).ok();
            prop_assert_eq!(found, expected);
        }
    }
}
