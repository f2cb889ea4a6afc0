//! The functions of the C library that this library takes over and that take no path (those are in `paths`): the
//! device's file descriptors are ours, all else goes on to the C library.
//!
//! `open`, `openat` and `ioctl` are variadic in C. Their one optional argument is taken as a fixed one here: on the
//! platforms of Linux that this runs on a variadic call passes it in the same register, and where the caller gave
//! none, what is in the register is handed on and nobody looks at it.

use std::arch::naked_asm;
use std::ffi::{c_int, c_ulong, c_void};
use std::slice;

use crate::attributes::RDMA_VERBS_IOCTL;
use crate::{device_file, libmlx5, machine, netlink, next, sysfs, uverbs};

/// Sets errno, and gives what a failing function returns.
pub fn fail(errno: c_int) -> c_int {
    // SAFETY: the C library gives a pointer to this thread's errno.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// Before the program's `main`: tells libibverbs where the device is to be found.
#[cfg_attr(not(test), used, unsafe(link_section = ".init_array"))]
pub static START: extern "C" fn() = {
    extern "C" fn start() {
        sysfs::announce();
    }
    start
};

/// The C library's `fstat`; of the device it tells what `stat` tells of its path.
///
/// # Safety
/// As of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fstat(file: c_int, status: *mut c_void) -> c_int {
    // SAFETY: the caller keeps to the contract of `fstat`.
    let result = unsafe { next::fstat(file, status) };
    if result != 0 {
        return result;
    }
    // SAFETY: the structure was filled just now.
    let links = unsafe { (*status.cast::<libc::stat>()).st_nlink };
    match links == 0 && device_file::is_device_or_duplicate(file) {
        // SAFETY: as above; the stand-in is a C string.
        true => unsafe { next::stat(device_file::STAND_IN.as_ptr(), status) },
        false => result,
    }
}

/// The same in the structure of large files, which on 64-bit machines is the same one.
///
/// # Safety
/// As of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fstat64(file: c_int, status: *mut c_void) -> c_int {
    // SAFETY: the caller keeps to the contract of `fstat64`.
    unsafe { fstat(file, status) }
}

/// The C library's `close`, which also ends the device.
///
/// # Safety
/// As of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn close(file: c_int) -> c_int {
    if device_file::is_device(file) {
        device_file::remove(file);
        uverbs::close(file);
    }
    netlink::remove(file);
    // SAFETY: the caller keeps to the contract of `close`.
    unsafe { next::close(file) }
}

/// The C library's `ioctl`, but for the device.
///
/// # Safety
/// As of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn ioctl(file: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    if !device_file::is_device(file) {
        // SAFETY: the caller keeps to the contract of `ioctl`.
        let result = unsafe { next::ioctl(file, request, argument) };
        // SAFETY: the C library gives a pointer to this thread's errno.
        let not_there = result < 0 && unsafe { *libc::__errno_location() } == libc::ENOTTY;
        if not_there && request == RDMA_VERBS_IOCTL {
            // No RDMA device: a duplicate of one of ours (`ibv_import_device`).
            return fail(libc::EOPNOTSUPP);
        }
        return result;
    }
    // SAFETY: the caller gives what a uverbs device takes.
    match unsafe { uverbs::ioctl(file, request, argument) } {
        Ok(()) => 0,
        Err(errno) => fail(errno.0),
    }
}

/// The C library's `socket`, but for RDMA netlink.
///
/// # Safety
/// As of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if (domain, protocol) != (libc::AF_NETLINK, netlink::PROTOCOL) {
        // SAFETY: the caller keeps to the contract of `socket`.
        return unsafe { next::socket(domain, kind, protocol) };
    }
    // SAFETY: likewise.
    let file = unsafe { next::socket(domain, kind, netlink::IN_ITS_PLACE) };
    if file >= 0 {
        netlink::add(file);
    }
    file
}

/// The C library's `sendto`, but for RDMA netlink.
///
/// # Safety
/// As of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sendto(
    file: c_int,
    bytes: *const c_void,
    length: usize,
    flags: c_int,
    to: *const c_void,
    to_length: libc::socklen_t,
) -> isize {
    if !netlink::is_ours(file) {
        // SAFETY: the caller keeps to the contract of `sendto`.
        return unsafe { next::sendto(file, bytes, length, flags, to, to_length) };
    }
    // SAFETY: the caller has as many bytes there.
    ask(file, unsafe { slice::from_raw_parts(bytes.cast(), length) })
}

/// The C library's `sendmsg`, but for RDMA netlink.
///
/// # Safety
/// As of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sendmsg(file: c_int, message: *const libc::msghdr, flags: c_int) -> isize {
    if !netlink::is_ours(file) {
        // SAFETY: the caller keeps to the contract of `sendmsg`.
        return unsafe { next::sendmsg(file, message, flags) };
    }
    // SAFETY: the caller's message has as many pieces, each with as many bytes.
    let pieces = unsafe {
        let pieces = slice::from_raw_parts((*message).msg_iov, (*message).msg_iovlen);
        let piece =
            |piece: &libc::iovec| slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len);
        pieces.iter().map(piece).collect::<Vec<_>>()
    };
    ask(file, &pieces.concat())
}

/// Sends a request of RDMA netlink, with what the sending functions return.
fn ask(file: c_int, request: &[u8]) -> isize {
    match netlink::answer(file, request) {
        Ok(()) => request.len().cast_signed(),
        Err(error) => fail(machine::system(&error).0) as isize,
    }
}

/// The C library's `pthread_spin_unlock`, after which the calling thread does a step of the HCA.
///
/// libmlx5 leaves a spin lock after it has rung a doorbell and whenever a completion queue was polled: moments at which
/// a card would be at work, and at which this thread wants something of it. On few cores the HCA's own thread would have
/// to take the core from this one first, for which it has to wait for a timer.
///
/// Of other callers' locks this only passes the call on.
///
/// # Safety
/// As of the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub unsafe extern "C" fn pthread_spin_unlock(lock: *mut libc::pthread_spinlock_t) -> c_int {
    // The return address becomes the second argument.
    #[cfg(target_arch = "x86_64")]
    naked_asm!("mov rsi, [rsp]", "jmp {}", sym leave_spin_lock);
    #[cfg(target_arch = "aarch64")]
    naked_asm!("mov x1, x30", "b {}", sym leave_spin_lock);
}

/// # Safety
/// As of `pthread_spin_unlock`; `caller` is where its caller goes on.
unsafe extern "C" fn leave_spin_lock(lock: *mut libc::pthread_spinlock_t, caller: usize) -> c_int {
    // SAFETY: the caller keeps to the contract of `pthread_spin_unlock`.
    let result = unsafe { next::pthread_spin_unlock(lock) };
    if libmlx5::contains(caller) {
        machine::help();
    }
    result
}
