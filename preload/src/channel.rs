//! Channels: pipes in which users read of events, each of the same number of bytes.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use rustix::pipe::{PipeFlags, pipe_with};

/// The inner side of a channel of events of `BYTES` bytes, without waiting both to write and to read.
#[derive(Clone, Debug)]
pub struct Channel<const BYTES: usize>(Arc<File>);

impl<const BYTES: usize> Channel<BYTES> {
    /// A new channel, and the end that its user reads.
    pub fn create() -> io::Result<(Self, OwnedFd)> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        // Opened once more: how the user's end waits is the user's business.
        let inner = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(format!("/proc/self/fd/{}", write.as_raw_fd()))?;
        Ok((Self(Arc::new(inner)), read))
    }

    /// Whether the event has found room.
    pub fn report(&self, event: [u8; BYTES]) -> bool {
        // Whole or not at all, as pipes are. Not by the C library: its `write` is a place where a thread may be
        // cancelled, and this may be one of the program's in the middle of a step.
        rustix::io::write(&self.0, &event) == Ok(BYTES)
    }

    /// Takes back the events that nobody has read and that `whose` says yes to; how many.
    pub fn take_back(&self, whose: impl Fn(&[u8; BYTES]) -> bool) -> u32 {
        let mut waiting = Vec::new();
        let mut event = [0; BYTES];
        while (&*self.0).read_exact(&mut event).is_ok() {
            waiting.push(event);
        }
        let all = waiting.len();
        waiting.retain(|event| !whose(event));
        for event in &waiting {
            // There was room for it before.
            self.report(*event);
        }
        (all - waiting.len()) as u32
    }
}
