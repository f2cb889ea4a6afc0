//! Pages of doorbells.
//!
//! A page is a file in memory: the user maps it, and this library maps it for the engine, so that the engine's mapping
//! stays when the user's goes.

use std::ffi::{c_int, c_void};
use std::ptr;

use super::open::{self, Open};
use crate::abi::ioctl as abi;
use crate::attributes::{Errno, Request};
use crate::next;

/// Bytes of a page.
const PAGE: usize = 4096;

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
