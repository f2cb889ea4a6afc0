//! The driver's errors as values.

use std::ffi::CStr;

use super::GpuError;
use super::sys::{self, CUresult};

/// The driver's result of `call` as a value.
pub(super) fn check(call: &'static str, result: CUresult) -> Result<(), GpuError> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        error => Err(GpuError::Driver {
            call,
            why: describe(error),
        }),
    }
}

/// The driver's name for an error, and what it says about it.
pub(super) fn describe(error: CUresult) -> String {
    type Describe = unsafe fn(CUresult, *mut *const std::ffi::c_char) -> CUresult;
    let say = |describe: Describe| {
        let mut text = std::ptr::null();
        // SAFETY: the driver sets the pointer to a string that it never frees, or leaves it alone.
        let found = unsafe { describe(error, &raw mut text) };
        // SAFETY: as above.
        let text = (found == CUresult::CUDA_SUCCESS && !text.is_null())
            .then(|| unsafe { CStr::from_ptr(text) });
        text.map(|text| text.to_string_lossy().into_owned())
    };
    let name = say(sys::cuGetErrorName).unwrap_or_else(|| format!("error {}", error.0));
    match say(sys::cuGetErrorString) {
        Some(text) => format!("{name}, {text}"),
        None => name,
    }
}
