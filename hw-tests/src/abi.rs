//! A handle's fields by their documented offsets: for tests that play a host of another version, or a kernel
//! that writes where it should not.

use std::sync::atomic::{AtomicU32, Ordering};

use warpbell::{ReceiveQueueHandle, SendQueueHandle};

/// Where the header has its version and its size, and where the magic number starts.
pub const MAGIC: usize = 0;
/// Offset of the version.
pub const VERSION: usize = 4;
/// Offset of the size.
pub const SIZE: usize = 6;
/// Offset of the reach of fences.
pub const REACH: usize = 73;

const RING: usize = 16;
/// Of a receive queue's handle.
const RECEIVE_COMPLETION_RECORD: usize = 48;

/// Offset of where the NIC takes the producer index from.
pub const SEND_DOORBELL: usize = 74;

/// The handle with one byte of its header, its reach or its kind of doorbell changed.
pub fn with_byte(handle: SendQueueHandle<'_>, offset: usize, byte: u8) -> SendQueueHandle<'_> {
    assert!(
        offset < 8 || [REACH, SEND_DOORBELL].contains(&offset),
        "only the integers that `open` checks may take any value"
    );
    let mut copy = handle;
    // SAFETY: inside the handle, and part of an integer.
    unsafe { (&raw mut copy).cast::<u8>().add(offset).write(byte) };
    copy
}

/// The number of the reach of fences.
pub fn reach(handle: &SendQueueHandle<'_>) -> u8 {
    // SAFETY: inside the handle, which is `repr(C)` and has an integer there.
    unsafe { (&raw const *handle).cast::<u8>().add(REACH).read() }
}

fn pointer<H, T>(handle: &H, offset: usize) -> *mut T {
    // SAFETY: a handle is `repr(C)`, and has an address at each offset above.
    unsafe {
        (&raw const *handle)
            .cast::<u8>()
            .add(offset)
            .cast::<*mut T>()
            .read()
    }
}

/// Changes bytes of a WQE in the ring, as a stray write would, while the NIC stands still.
///
/// # Safety
/// No kernel uses the queue, the NIC does not run, and the range lies in the ring.
pub unsafe fn patch_ring(handle: &SendQueueHandle<'_>, offset: usize, bytes: &[u8]) {
    let ring = pointer::<_, u8>(handle, RING);
    // SAFETY: the caller's promise.
    unsafe { ring.add(offset).copy_from(bytes.as_ptr(), bytes.len()) };
}

/// Writes the consumer index that the NIC looks at when it is out of room for CQEs.
///
/// # Safety
/// No kernel uses the queue.
pub unsafe fn set_consumer_index(handle: &ReceiveQueueHandle<'_>, index: u32) {
    let record = pointer::<_, u32>(handle, RECEIVE_COMPLETION_RECORD);
    // SAFETY: the caller's promise; the NIC reads the word as an atomic.
    unsafe { AtomicU32::from_ptr(record) }.store(index.to_be(), Ordering::Release);
}
