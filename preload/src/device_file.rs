//! Which file descriptors are the device.
//!
//! Each is a file in memory whose pages are those of the doorbells, at the offsets that the device tells its user: the
//! system itself maps them, also for who calls it past the C library.

use std::ffi::{CStr, c_int};
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{Errno, FdFlags, fcntl_getfd};

use crate::descriptors::Descriptors;
use crate::interpose::fail;
use crate::next;

/// Where libibverbs looks for the device.
pub const PATH: &CStr = c"/dev/infiniband/uverbs0";
/// What its path leads to, and what its files pretend to be: libibverbs compares the device number with that in sysfs.
pub const STAND_IN: &CStr = c"/dev/null";
/// The stand-in's device number, as sysfs writes it.
pub const STAND_IN_NUMBER: &str = "1:3";
/// The same as netlink writes it: the major number above the minor's low 8 bits.
pub const STAND_IN_CODE: u64 = 0x103;

/// The name of its files, and how the system shows it.
const NAME: &CStr = c"warpbell-uverbs0";
const SHOWN: &CStr = c"/memfd:warpbell-uverbs0 (deleted)";

static OPEN: Descriptors = Descriptors::new();

/// Makes the file behind an open descriptor the device's, under the same number. As `open` does, it gives -1 and sets
/// errno where it cannot.
pub fn replace(file: c_int) -> c_int {
    match replaced(file) {
        Ok(()) => file,
        Err(errno) => {
            // SAFETY: the caller has opened the file, and nobody else knows it yet.
            unsafe { next::close(file) };
            fail(errno.raw_os_error())
        }
    }
}

fn replaced(file: c_int) -> Result<(), Errno> {
    let memory = memfd_create(NAME, MemfdFlags::CLOEXEC)?;
    // SAFETY: the caller has opened the file, and nobody else closes it.
    let opened = unsafe { BorrowedFd::borrow_raw(file) };
    let flags = match fcntl_getfd(opened)?.contains(FdFlags::CLOEXEC) {
        true => libc::O_CLOEXEC,
        false => 0,
    };
    // SAFETY: both descriptors are open.
    if unsafe { libc::dup3(memory.as_raw_fd(), file, flags) } < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    OPEN.add(file).then_some(()).ok_or(Errno::MFILE)
}

/// Makes a file descriptor the device no longer.
pub fn remove(file: c_int) {
    OPEN.remove(file);
}

/// Whether a file descriptor is the device.
pub fn is_device(file: c_int) -> bool {
    OPEN.has(file)
}

/// Whether a file descriptor is the device, or another one of such a file (`dup`, or from another process), by which
/// nothing can be commanded.
pub fn is_device_or_duplicate(file: c_int) -> bool {
    let shown = || rustix::fs::readlink(format!("/proc/self/fd/{file}"), Vec::new());
    is_device(file) || shown().is_ok_and(|shown| shown.as_c_str() == SHOWN)
}
