//! A connection whose waits all have a deadline.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

/// Bytes that are read at a time.
const READ: usize = 16 * 1024;

/// When a wait ends that starts now. A timeout that no clock can hold ends in a year.
pub(crate) fn deadline(timeout: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    Instant::now() + timeout.min(YEAR)
}

/// Waits until one of the sockets is ready, or until the deadline.
pub(crate) fn wait(sockets: &mut [PollFd<'_>], until: Option<Instant>) -> io::Result<()> {
    let left = until.map(|until| {
        let left = until.saturating_duration_since(Instant::now());
        Timespec::try_from(left).expect("a deadline is at most a year away")
    });
    match poll(sockets, left.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What came next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Came {
    Bytes,
    Nothing,
    End,
}

/// A connection.
pub(crate) struct Stream {
    pub socket: OwnedFd,
    /// What has come and is not read yet.
    pub inbox: Vec<u8>,
}

impl Stream {
    pub(crate) fn new(socket: impl Into<OwnedFd>) -> Self {
        Self {
            socket: socket.into(),
            inbox: Vec::new(),
        }
    }

    /// Sends as many bytes as the system takes now.
    pub(crate) fn send_some(&self, bytes: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match send(&self.socket, bytes, flags) {
            Ok(sent) => Ok(sent),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes some of what has come; at most `most` bytes are then in the inbox.
    pub(crate) fn receive_some(&mut self, most: usize) -> Came {
        let start = self.inbox.len();
        self.inbox.resize(most.min(start + READ).max(start), 0);
        let received = recv(&self.socket, &mut self.inbox[start..], RecvFlags::DONTWAIT);
        let (came, bytes) = match received {
            Ok((0, _)) => (Came::End, 0),
            Ok((bytes, _)) => (Came::Bytes, bytes),
            Err(Errno::AGAIN | Errno::INTR) => (Came::Nothing, 0),
            Err(_) => (Came::End, 0),
        };
        self.inbox.truncate(start + bytes);
        came
    }

    pub(crate) fn send(&self, mut bytes: &[u8], until: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.send_some(bytes)? {
                0 => self.wait_for(PollFlags::OUT, until)?,
                sent => bytes = &bytes[sent..],
            }
        }
        Ok(())
    }

    /// Waits for some bytes. The error is `TimedOut` at the deadline.
    pub(crate) fn receive(&mut self, most: usize, until: Instant) -> io::Result<()> {
        loop {
            match self.receive_some(most) {
                Came::Bytes => return Ok(()),
                Came::Nothing => self.wait_for(PollFlags::IN, until)?,
                Came::End => {
                    let end = "the connection was closed";
                    return Err(io::Error::new(ErrorKind::UnexpectedEof, end));
                }
            }
        }
    }

    fn wait_for(&self, flags: PollFlags, until: Instant) -> io::Result<()> {
        if Instant::now() >= until {
            return Err(io::Error::new(ErrorKind::TimedOut, "no answer in time"));
        }
        wait(&mut [PollFd::new(&self.socket, flags)], Some(until))
    }
}
