//! Completion channels.

use std::os::fd::IntoRawFd;

use super::Write;
use crate::attributes::Errno;
use crate::events::Channel;
use crate::machine::{machine, system};

/// Creates a channel. Its user closes the end that it is given; ours stays until the number is given once more, or
/// until the device is closed.
pub fn create(write: &mut Write<'_, '_>) -> Result<(), Errno> {
    // Without an engine there are no events.
    machine()?.ok_or(Errno(libc::EOPNOTSUPP))?;
    let (channel, read) = Channel::create().map_err(|error| system(&error))?;
    let file = read.into_raw_fd();
    write.open.channels.insert(file, channel);
    write.answer(&file);
    Ok(())
}
