//! The functions of the C library that this library takes over, as the program would have had them.

use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};

/// Looks a function up behind this library.
///
/// # Safety
/// `F` must be the type of the function of that name.
pub unsafe fn find<F: Copy>(name: &CStr) -> F {
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        // The C library has all of these; without one there is no way on.
        std::process::abort();
    }
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: it is a function of that name, whose type the caller answers for.
    unsafe { std::mem::transmute_copy(&found) }
}

macro_rules! next {
    ($($(#[$doc:meta])* $name:ident: fn($($argument:ident: $type:ty),* $(,)?) -> $result:ty;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As of the C library's function.
        pub unsafe fn $name($($argument: $type),*) -> $result {
            type Function = unsafe extern "C" fn($($type),*) -> $result;
            static NEXT: std::sync::OnceLock<Function> = std::sync::OnceLock::new();
            const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(
                concat!(stringify!($name), "\0").as_bytes(),
            ) {
                Ok(name) => name,
                Err(_) => panic!("a name without an end"),
            };
            // SAFETY: this is the function's type.
            let next = NEXT.get_or_init(|| unsafe { $crate::next::find(NAME) });
            // SAFETY: the caller keeps to the function's contract.
            unsafe { next($($argument),*) }
        }
    )*};
}

pub(crate) use next;

next! {
    /// Tells of a file by its path.
    stat: fn(path: *const c_char, status: *mut c_void) -> c_int;
    /// Tells of an open file.
    fstat: fn(file: c_int, status: *mut c_void) -> c_int;
    /// Closes a file.
    close: fn(file: c_int) -> c_int;
    /// Gives a device a command.
    ioctl: fn(file: c_int, request: c_ulong, argument: *mut c_void) -> c_int;
    /// Leaves a spin lock.
    pthread_spin_unlock: fn(lock: *mut libc::pthread_spinlock_t) -> c_int;
    /// Opens a socket.
    socket: fn(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    /// Sends bytes.
    sendto: fn(
        file: c_int, bytes: *const c_void, length: usize, flags: c_int, to: *const c_void, to_length: libc::socklen_t,
    ) -> isize;
    /// Sends bytes in pieces.
    sendmsg: fn(file: c_int, message: *const libc::msghdr, flags: c_int) -> isize;
}
