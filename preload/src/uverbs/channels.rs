//! Channels of completions, and of DEVX events.

use std::os::fd::IntoRawFd;

use super::Write;
use super::open::Open;
use crate::abi::ioctl as abi;
use crate::attributes::{Errno, Request};
use crate::devx_events;
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

/// Creates a channel of DEVX events, with the same ends.
pub fn create_devx(request: &mut Request<'_>, open: &mut Open) -> Result<(), Errno> {
    machine()?.ok_or(Errno(libc::EOPNOTSUPP))?;
    // There is no event queue whose entries one could pass on.
    if request.number(abi::EVENT_CHANNEL_FLAGS) != Some(abi::EVENT_CHANNEL_WITHOUT_DATA) {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    let (channel, read) = devx_events::Channel::create().map_err(|error| system(&error))?;
    let file = read.into_raw_fd();
    open.event_channels.insert(file, channel);
    request.answer_handle(abi::EVENT_CHANNEL_FILE, file.cast_unsigned());
    Ok(())
}
