//! What a kernel receives: a table of tags.

use core::marker::PhantomData;

use super::entry::TriggerEntry;
use super::error::Error;
use super::table::Triggers;
use warpbell::ABI_VERSION;
use warpbell::processor::Processor;

/// "WBTR", as it reads in memory on a little-endian machine.
const MAGIC: u32 = u32::from_le_bytes(*b"WBTR");

/// A table of tags, for kernels. `repr(C)`, 24 bytes: the host hands it over by value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TriggerHandle<'a> {
    magic: u32,
    version: u16,
    size: u16,
    tags: u32,
    processor: Processor,
    entries: *const TriggerEntry<'a>,
    _lifetime: PhantomData<&'a TriggerEntry<'a>>,
}

const _: () = {
    assert!(size_of::<TriggerHandle>() == 24);
    assert!(core::mem::offset_of!(TriggerHandle, tags) == 8);
    assert!(core::mem::offset_of!(TriggerHandle, entries) == 16);
};

// SAFETY: it names a table that every thread of a grid may use (the promise of `new`).
unsafe impl Send for TriggerHandle<'_> {}
// SAFETY: as for `Send`; the handle is never written.
unsafe impl Sync for TriggerHandle<'_> {}

impl<'a> TriggerHandle<'a> {
    /// Makes the handle of a table.
    ///
    /// # Safety
    /// For the lifetime `'a` there are `tags` entries from `entries` on, in memory on which all threads that get the
    /// handle have atomics in common, made by [`TriggerEntry::new`] for queues that live as long, and nothing but these
    /// threads' calls touches them.
    pub const unsafe fn new(entries: *const TriggerEntry<'a>, tags: u32) -> Self {
        Self {
            magic: MAGIC,
            version: ABI_VERSION,
            size: size_of::<Self>() as u16,
            tags,
            processor: Processor::UNKNOWN,
            entries,
            _lifetime: PhantomData,
        }
    }

    /// The handle for threads of one processor: elsewhere `open` refuses it.
    ///
    /// # Safety
    /// No thread of another processor uses the table through another handle at the same time.
    pub const unsafe fn on(self, processor: Processor) -> Self {
        Self { processor, ..self }
    }

    /// Checks magic, version, size and processor, and gives the calls.
    ///
    /// # Errors
    /// [`Error::Handle`], [`Error::Elsewhere`].
    #[inline(always)]
    pub fn open(self) -> Result<Triggers<'a>, Error> {
        let good = self.magic == MAGIC
            && self.version == ABI_VERSION
            && self.size as usize == size_of::<Self>();
        if !good {
            return Err(Error::Handle);
        }
        if !self.processor.admits(Processor::here()) {
            return Err(Error::Elsewhere);
        }
        // SAFETY: the promise of `new`.
        Ok(unsafe { Triggers::new(self.entries, self.tags) })
    }
}
