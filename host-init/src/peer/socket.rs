//! What both sides ask of a socket: whose it is, what has come, and to try again.

use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;

use super::Users;
use crate::frame::ExchangeError;

/// How often a side that waits for the other one looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// What comes next from the other process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peeked {
    Nothing,
    Words,
    End,
}

/// What comes next, without waiting for it, and without taking it.
pub fn peek(socket: &UnixStream) -> Peeked {
    let mut byte = 0u8;
    let (socket, flags) = (socket.as_raw_fd(), libc::MSG_PEEK | libc::MSG_DONTWAIT);
    // SAFETY: the socket is open, and there is room for the one byte that is asked for.
    match unsafe { libc::recv(socket, (&raw mut byte).cast(), 1, flags) } {
        0 => Peeked::End,
        1.. => Peeked::Words,
        _ => match io::Error::last_os_error().kind() {
            ErrorKind::WouldBlock | ErrorKind::Interrupted => Peeked::Nothing,
            _ => Peeked::End,
        },
    }
}

/// The user of this process.
pub fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Refuses a process of a user that is none of these.
pub fn check_user(
    users: Users,
    own: u32,
    socket: &UnixStream,
    path: &Path,
) -> Result<(), ExchangeError> {
    let other = socket_peercred(socket)
        .map_err(io::Error::from)
        .map_err(socket_failed("SO_PEERCRED", path))?;
    let found = other.uid.as_raw();
    if users == Users::Any || found == own {
        Ok(())
    } else {
        Err(ExchangeError::OtherUser {
            found,
            expected: own,
        })
    }
}

/// Why a step with the socket at a path failed.
pub fn socket_failed(
    step: &'static str,
    path: &Path,
) -> impl FnOnce(std::io::Error) -> ExchangeError {
    let path = path.display().to_string();
    move |source| ExchangeError::Socket { step, path, source }
}

/// Tries until something comes, at most `timeout`.
pub fn retried<T>(
    timeout: Duration,
    what: &'static str,
    mut attempt: impl FnMut() -> Result<Option<T>, ExchangeError>,
) -> Result<T, ExchangeError> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(result) = attempt()? {
            return Ok(result);
        }
        if Instant::now() >= deadline {
            return Err(ExchangeError::TimedOut { what, timeout });
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}
