//! Pages of doorbells.
//!
//! A page is a file in memory: the user maps it, and this library maps it for the engine, so that the engine's mapping
//! stays when the user's goes.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::open::{self, Open};
use crate::abi::ioctl as abi;
use crate::attributes::{Errno, Request};
use crate::next;

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
    file: c_int,
    mapping: *mut c_void,
}

// SAFETY: the mapping is the process's, and belongs to this value alone.
unsafe impl Send for Page {}

impl Page {
    fn new() -> Result<Self, Errno> {
        // SAFETY: the name is a C string.
        let file = unsafe { libc::memfd_create(c"warpbell-uar".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return Err(Errno(libc::EMFILE));
        }
        // From here on dropping it closes the file.
        let mut page = Self {
            file,
            mapping: libc::MAP_FAILED,
        };
        // SAFETY: the file is our own.
        if unsafe { libc::ftruncate(file, PAGE as libc::off_t) } != 0 {
            return Err(Errno(libc::ENOMEM));
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the system chooses the place.
        page.mapping =
            unsafe { next::mmap(ptr::null_mut(), PAGE, access, libc::MAP_SHARED, file, 0) };
        if page.mapping == libc::MAP_FAILED {
            return Err(Errno(libc::ENOMEM));
        }
        Ok(page)
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
        // SAFETY: mapping and file were made by `new`; queues that use the page are destroyed before it.
        unsafe {
            if self.mapping != libc::MAP_FAILED {
                libc::munmap(self.mapping, PAGE);
            }
            next::close(self.file);
        }
    }
}

/// Allocates a page: its handle, where and how much to map, and its number.
pub fn allocate(request: &mut Request<'_>, open: &mut Open) -> Result<(), Errno> {
    let page = Page::new()?;
    // A queue names its page with 16 bits.
    let number = (1..=u32::from(u16::MAX)).find(|number| !open.pages.contains_key(number));
    let number = number.ok_or(Errno(libc::ENOMEM))?;
    open.pages.insert(number, page);
    let offset = u64::from(number) * PAGE as u64;
    request.answer_handle(abi::UAR_HANDLE, open::fresh());
    request.answer(abi::UAR_MMAP_OFFSET, &offset.to_ne_bytes());
    request.answer(abi::UAR_MMAP_LENGTH, &(PAGE as u32).to_ne_bytes());
    request.answer(abi::UAR_PAGE_ID, &number.to_ne_bytes());
    Ok(())
}

/// The file of the page at an offset.
pub fn find(open: &Open, offset: libc::off_t) -> Option<c_int> {
    let number = u32::try_from(offset / PAGE as libc::off_t).ok()?;
    open.pages.get(&number).map(|page| page.file)
}
