//! What a device has room for (`c/bounds.c`).

use std::ffi::c_int;

mod oracle {
    use super::c_int;

    unsafe extern "C" {
        pub fn bounds_fill(kind: u32, found: *mut u32) -> c_int;
    }
}

/// A kind of object of which a device says how many there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Region,
    CompletionQueue,
    Domain,
    SharedReceiveQueue,
    QueuePair,
}

/// Makes objects of a kind until the first device refuses one. Gives how many it says there may be, how many there are,
/// and the error number of the first too many. They stay until the process ends.
///
/// # Panics
/// If there is no device.
pub fn fill(kind: Kind) -> [u32; 3] {
    let mut found = [0; 3];
    // SAFETY: the array has room for three.
    let error = unsafe { oracle::bounds_fill(kind as u32, found.as_mut_ptr()) };
    assert_eq!(error, 0, "the device opens");
    found
}
