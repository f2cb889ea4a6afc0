//! Pages of doorbells.
//!
//! They are the pages of the device's file: the user maps them, and this library maps them for the engine, so that the
//! engine's mapping stays when the user's goes.

use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::ftruncate;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::open::{self, Open};
use crate::abi::ioctl as abi;
use crate::attributes::{Errno, Request};

/// Bytes of a page.
const PAGE: usize = 4096;
/// Where completion queues are armed.
const ARM_REGISTER: usize = 0x20;
/// How long the engine may take to see a doorbell on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks at a register.
const NAP: Duration = Duration::from_micros(30);

/// A page of doorbells, until it is dropped.
pub struct Page {
    mapping: *mut c_void,
}

// SAFETY: the mapping is the process's, and belongs to this value alone.
unsafe impl Send for Page {}

impl Page {
    /// The page with this number of the device's file.
    fn new(file: c_int, number: u32) -> Result<Self, Errno> {
        // SAFETY: the file is the device's, which stays open during the command.
        let file = unsafe { BorrowedFd::borrow_raw(file) };
        let offset = offset(number);
        ftruncate(file, offset + PAGE as u64).map_err(system)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the system chooses the place.
        let mapping = unsafe {
            mmap(
                ptr::null_mut(),
                PAGE,
                access,
                MapFlags::SHARED,
                file,
                offset,
            )
        };
        Ok(Self {
            mapping: mapping.map_err(system)?,
        })
    }

    /// Where the engine finds it.
    pub fn address(&self) -> u64 {
        self.mapping.expose_provenance() as u64
    }
}

impl Page {
    /// Stores to the register that arms completion queues, once it is free, and waits until the engine has taken that.
    pub fn ring_arm(&self, doorbell: u64) -> Result<(), Errno> {
        let register = self.mapping.cast::<u8>().wrapping_add(ARM_REGISTER);
        // SAFETY: inside the page, aligned to 8; engine and user take it for atomic too.
        let register = unsafe { AtomicU64::from_ptr(register.cast()) };
        let deadline = Instant::now() + PATIENCE;
        let mut rung = false;
        while Instant::now() < deadline {
            if !rung {
                // The record before the register: Release, because the engine reads the record once it is rung.
                let swap =
                    register.compare_exchange(0, doorbell, Ordering::Release, Ordering::Relaxed);
                rung = swap.is_ok();
            } else if register.load(Ordering::Relaxed) != doorbell {
                return Ok(());
            }
            sleep(NAP);
        }
        Err(Errno(libc::EIO))
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`; queues that use the page are destroyed before it.
        let unmapped = unsafe { munmap(self.mapping, PAGE) };
        debug_assert!(unmapped.is_ok(), "a mapping of our own");
    }
}

/// Where a page is in the device's file.
fn offset(number: u32) -> u64 {
    u64::from(number) * PAGE as u64
}

fn system(errno: rustix::io::Errno) -> Errno {
    Errno(errno.raw_os_error())
}

/// Allocates a page: its handle, where and how much to map, and its number.
pub fn allocate(request: &mut Request<'_>, open: &mut Open, file: c_int) -> Result<(), Errno> {
    // A queue names its page with 16 bits.
    let number = (1..=u32::from(u16::MAX)).find(|number| !open.pages.contains_key(number));
    let number = number.ok_or(Errno(libc::ENOMEM))?;
    open.pages.insert(number, Page::new(file, number)?);
    request.answer_handle(abi::UAR_HANDLE, open::fresh());
    request.answer(abi::UAR_MMAP_OFFSET, &offset(number).to_ne_bytes());
    request.answer(abi::UAR_MMAP_LENGTH, &(PAGE as u32).to_ne_bytes());
    request.answer(abi::UAR_PAGE_ID, &number.to_ne_bytes());
    Ok(())
}
