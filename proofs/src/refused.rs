//! What a device refuses (`c/refused.c`).

use std::ffi::{CStr, c_char, c_int, c_void};

mod oracle {
    use super::{c_char, c_int, c_void};

    pub type Tell = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char);

    unsafe extern "C" {
        pub fn refused_each(hear: Tell, to: *mut c_void) -> c_int;
    }
}

/// Makes calls with good and bad arguments on the first device. Gives a line for each: what is called with what, a colon,
/// and the name of its error number ("0" if it has none, "?" if it is refused without one).
///
/// # Panics
/// If there is no device.
pub fn calls() -> Vec<String> {
    unsafe extern "C" fn hear(to: *mut c_void, call: *const c_char, end: *const c_char) {
        // SAFETY: it is the list that `calls` has given, which nobody else uses meanwhile.
        let lines = unsafe { &mut *to.cast::<Vec<String>>() };
        // SAFETY: both are C strings.
        let [call, end] = [call, end].map(|text| unsafe { CStr::from_ptr(text) });
        lines.push(format!(
            "{}: {}",
            call.to_string_lossy(),
            end.to_string_lossy()
        ));
    }
    let mut lines = Vec::new();
    // SAFETY: the list outlives the call, which passes it to `hear` alone.
    let error = unsafe { oracle::refused_each(hear, (&raw mut lines).cast()) };
    assert_eq!(error, 0, "the device opens");
    lines
}
