//! The functions of the C library that take a path. The device's paths lead into the tree of `sysfs`; all others stay
//! as they are.
//!
//! A program may look for a device by any of them before it asks libibverbs. `open` and `openat` are variadic in C: their
//! optional argument is a fixed one here, as `interpose` explains.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::next::next;
use crate::{device_file, sysfs};

/// Where a path leads, if it is the device's.
fn lead(path: &CStr) -> Option<CString> {
    const OURS: [&[u8]; 3] = [
        b"/dev/infiniband",
        b"/class/infiniband",
        b"/class/infiniband_verbs",
    ];
    let path = path.to_bytes();
    // The tree has sysfs without its first folder, as `SYSFS_PATH` has.
    let inside = match path.strip_prefix(b"/sys") {
        Some(inside) => inside,
        None => path.starts_with(b"/dev").then_some(path)?,
    };
    let is_ours = OURS.iter().any(|folder| {
        let rest = inside.strip_prefix(*folder);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    });
    if !is_ours {
        return None;
    }
    let mut led = sysfs::root()?.as_os_str().to_owned();
    led.push(OsStr::from_bytes(inside));
    CString::new(led.into_vec()).ok()
}

/// Calls a function with the path that a path leads to.
///
/// # Safety
/// The path must be null or a C string.
unsafe fn follow<R>(path: *const c_char, next: impl FnOnce(*const c_char) -> R) -> R {
    let led = if path.is_null() {
        None
    } else {
        // SAFETY: the path is a C string, as the caller says.
        lead(unsafe { CStr::from_ptr(path) })
    };
    next(led.as_ref().map_or(path, |led| led.as_ptr()))
}

/// What a function gives that opens no file.
///
/// # Safety
/// As [`opened`], in whose place it stands.
unsafe fn as_it_is<R>(_: *const c_char, result: R) -> R {
    result
}

/// What a function gives that opened a file: the device, if the path is the device's.
///
/// # Safety
/// The path must be null or a C string.
unsafe fn opened(path: *const c_char, file: c_int) -> c_int {
    // SAFETY: a path that is not null is a C string, as the caller says.
    let is_device = !path.is_null() && unsafe { CStr::from_ptr(path) } == device_file::PATH;
    match file >= 0 && is_device {
        true => device_file::replace(file),
        false => file,
    }
}

/// Declares functions by their arguments before the path and after it; `$then` makes their result.
macro_rules! with_path {
    ($then:ident: $(
        $name:ident($($before:ident: $first:ty)?; $($after:ident: $type:ty),*) -> $result:ty;
    )*) => {$(
        /// The C library's function of this name, but for the device's paths.
        ///
        /// # Safety
        /// As of the C library's function.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name(
            $($before: $first,)? path: *const c_char, $($after: $type),*
        ) -> $result {
            next! {
                /// The function itself.
                $name: fn($($before: $first,)? led: *const c_char, $($after: $type),*) -> $result;
            }
            // SAFETY: the caller keeps to the function's contract.
            unsafe {
                let result = follow(path, |led| $name($($before,)? led, $($after),*));
                $then(path, result)
            }
        }
    )*};
}

with_path! {
    opened:
    open(; flags: c_int, mode: libc::mode_t) -> c_int;
    open64(; flags: c_int, mode: libc::mode_t) -> c_int;
    __open_2(; flags: c_int) -> c_int;
    __open64_2(; flags: c_int) -> c_int;
    openat(folder: c_int; flags: c_int, mode: libc::mode_t) -> c_int;
    openat64(folder: c_int; flags: c_int, mode: libc::mode_t) -> c_int;
}

with_path! {
    as_it_is:
    access(; mode: c_int) -> c_int;
    chdir(;) -> c_int;
    eaccess(; mode: c_int) -> c_int;
    euidaccess(; mode: c_int) -> c_int;
    faccessat(folder: c_int; mode: c_int, flags: c_int) -> c_int;
    stat(; status: *mut c_void) -> c_int;
    stat64(; status: *mut c_void) -> c_int;
    lstat(; status: *mut c_void) -> c_int;
    lstat64(; status: *mut c_void) -> c_int;
    fstatat(folder: c_int; status: *mut c_void, flags: c_int) -> c_int;
    fstatat64(folder: c_int; status: *mut c_void, flags: c_int) -> c_int;
    statx(folder: c_int; flags: c_int, mask: c_uint, status: *mut c_void) -> c_int;
    fopen(; mode: *const c_char) -> *mut c_void;
    fopen64(; mode: *const c_char) -> *mut c_void;
    opendir(;) -> *mut c_void;
    scandir(; list: *mut c_void, chosen: *const c_void, order: *const c_void) -> c_int;
    scandir64(; list: *mut c_void, chosen: *const c_void, order: *const c_void) -> c_int;
    readlink(; target: *mut c_char, size: usize) -> isize;
    readlinkat(folder: c_int; target: *mut c_char, size: usize) -> isize;
    getxattr(; name: *const c_char, value: *mut c_void, size: usize) -> isize;
    lgetxattr(; name: *const c_char, value: *mut c_void, size: usize) -> isize;
    listxattr(; names: *mut c_char, size: usize) -> isize;
    llistxattr(; names: *mut c_char, size: usize) -> isize;
    realpath(; resolved: *mut c_char) -> *mut c_char;
    __realpath_chk(; resolved: *mut c_char, size: usize) -> *mut c_char;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_the_device_lead_elsewhere() {
        for other in [
            c"",
            c"/",
            c"/dev",
            c"/dev/null",
            c"/dev/infiniband0",
            c"/sys",
            c"/sys/class",
            c"/sys/class/infiniband_mad",
            c"/sys/dev/infiniband",
            c"/class/infiniband",
            c"class/infiniband",
        ] {
            assert_eq!(lead(other), None, "{other:?}");
        }
    }
}
