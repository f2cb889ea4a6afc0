//! Memory that an engine reads and writes, freed as a whole.

use std::alloc::{Layout, alloc, dealloc};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const PAGE: usize = 4096;

/// One allocation, handed out piece by piece.
pub struct Arena {
    base: *mut u8,
    layout: Layout,
    taken: usize,
}

impl Arena {
    pub fn new(size: usize) -> Self {
        let layout = Layout::from_size_align(size.next_multiple_of(PAGE), PAGE).unwrap();
        // SAFETY: the layout has a size, and all of the allocation is then initialised.
        let base = unsafe {
            let base = alloc(layout);
            assert!(!base.is_null());
            base.write_bytes(0, layout.size());
            base
        };
        let _ = base.expose_provenance();
        Self {
            base,
            layout,
            taken: 0,
        }
    }

    /// Takes fresh bytes; gives their offset.
    pub fn take(&mut self, length: usize, align: usize) -> usize {
        let offset = self.taken.next_multiple_of(align);
        self.taken = offset + length;
        assert!(self.taken <= self.layout.size());
        offset
    }

    pub fn address(&self, offset: usize) -> u64 {
        (self.base.addr() + offset) as u64
    }

    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.layout.size());
        // SAFETY: within the allocation; no engine runs now.
        unsafe { std::ptr::copy(bytes.as_ptr(), self.base.add(offset), bytes.len()) };
    }

    pub fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        assert!(offset + length <= self.layout.size());
        // SAFETY: within the allocation, all of which is initialised; no engine runs now.
        unsafe { std::slice::from_raw_parts(self.base.add(offset), length).to_vec() }
    }

    pub fn store_u32(&self, offset: usize, value: u32) {
        assert!(offset + 4 <= self.layout.size() && offset.is_multiple_of(4));
        // SAFETY: within the allocation, and aligned.
        unsafe { AtomicU32::from_ptr(self.base.add(offset).cast()) }
            .store(value, Ordering::Release);
    }

    pub fn store_u64(&self, offset: usize, value: u64) {
        assert!(offset + 8 <= self.layout.size() && offset.is_multiple_of(8));
        // SAFETY: within the allocation, and aligned.
        unsafe { AtomicU64::from_ptr(self.base.add(offset).cast()) }
            .store(value, Ordering::Release);
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed once.
        unsafe { dealloc(self.base, self.layout) };
    }
}
