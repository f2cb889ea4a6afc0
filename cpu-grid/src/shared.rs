//! A block's shared memory.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use warpbell_gpu::shared::LIMIT_BYTES;

/// What new memory holds, so that a kernel that reads before it writes is seen.
const GARBAGE: u8 = 0xa5;

/// The arrays that the threads of a block have asked for.
#[derive(Default)]
pub(crate) struct SharedMemory(Vec<Array>);

struct Array {
    /// The address that stands for its place in the source.
    place: usize,
    layout: Layout,
    start: NonNull<u8>,
}

// SAFETY: it owns the memory; what kernels do with it is theirs to order.
unsafe impl Send for Array {}

impl SharedMemory {
    /// The array of a place: the same for every thread that asks.
    ///
    /// # Panics
    /// If the arrays need more than a GPU has, together. A panic of a kernel ends its launch.
    pub(crate) fn array(&mut self, place: &'static u8, layout: Layout) -> *mut u8 {
        let place = &raw const *place as usize;
        if let Some(array) = self.0.iter().find(|array| array.place == place) {
            assert_eq!(array.layout, layout, "two arrays at one place");
            return array.start.as_ptr();
        }
        let taken: usize = self.0.iter().map(|array| array.layout.size()).sum();
        assert!(
            taken + layout.size() <= LIMIT_BYTES,
            "{} more bytes of shared memory; a block has {LIMIT_BYTES} and uses {taken}",
            layout.size()
        );
        assert!(layout.size() > 0, "an empty array");
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        // SAFETY: just allocated with this size, and nobody else's yet.
        unsafe { start.write_bytes(GARBAGE, layout.size()) };
        self.0.push(Array {
            place,
            layout,
            start,
        });
        start.as_ptr()
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout; the block's threads have ended.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}
