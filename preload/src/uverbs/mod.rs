//! What a command does.

mod address_handle;
mod context;
mod objects;
mod uar;

use std::ffi::{c_ulong, c_void};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::{command, ioctl as abi};
use crate::attributes::{Errno, RDMA_VERBS_IOCTL, Request};

/// Carries an ioctl of the device out.
///
/// # Safety
/// The argument must be what libibverbs gives a uverbs device.
pub unsafe fn ioctl(number: c_ulong, argument: *mut c_void) -> Result<(), Errno> {
    if number != RDMA_VERBS_IOCTL {
        return Err(Errno(libc::ENOTTY));
    }
    // SAFETY: the caller says that the argument is such a request.
    let mut request = unsafe { Request::from_argument(argument) }?;
    match (request.object, request.method) {
        (abi::OBJECT_DEVICE, abi::METHOD_INVOKE_WRITE) => Write(&mut request).run(),
        (abi::OBJECT_UAR, abi::METHOD_UAR_ALLOC) => {
            uar::allocate(&mut request);
            Ok(())
        }
        (abi::OBJECT_UAR, abi::METHOD_UAR_DESTROY) => Ok(()),
        // libibverbs then falls back to the plain structures of INVOKE_WRITE.
        _ => Err(Errno(libc::EPROTONOSUPPORT)),
    }
}

/// A command in the plain structures that were once written to the device: `INVOKE_WRITE`.
struct Write<'a, 'b>(&'a mut Request<'b>);

impl Write<'_, '_> {
    fn run(mut self) -> Result<(), Errno> {
        let number = self.0.number(abi::WRITE_COMMAND);
        let number = number.and_then(|number| u32::try_from(number).ok());
        let Some(number) = number else {
            return Err(Errno(libc::EINVAL));
        };
        // So libibverbs finds out that there is INVOKE_WRITE at all.
        if self.0.input(abi::CORE_IN).is_empty() && self.0.number(abi::CORE_OUT).is_none() {
            return Err(Errno(libc::ENOSPC));
        }
        let extended = number & command::EXTENDED != 0;
        match number & !command::EXTENDED {
            command::GET_CONTEXT => context::get(&mut self),
            command::QUERY_DEVICE => context::query_device(&mut self, extended),
            command::QUERY_PORT => context::query_port(&mut self),
            command::ALLOC_PD => objects::allocate_domain(&mut self),
            command::REG_MR => objects::register_memory(&mut self),
            command::CREATE_CQ => objects::create_completion_queue(&mut self, extended),
            command::CREATE_QP => objects::create_queue_pair(&mut self, extended),
            command::CREATE_SRQ => objects::create_shared_receive_queue(&mut self),
            command::CREATE_AH => address_handle::create(&mut self),
            command::MODIFY_QP
            | command::DEALLOC_PD
            | command::DEREG_MR
            | command::DESTROY_CQ
            | command::DESTROY_QP
            | command::DESTROY_SRQ
            | command::DESTROY_AH => {
                // Nothing is kept of them yet; an answer of zeros says that no event is outstanding.
                self.answer(&[0_u8; 0]);
                Ok(())
            }
            _ => Err(Errno(libc::EOPNOTSUPP)),
        }
    }

    /// A structure at an offset of what came in.
    fn input<T: FromBytes + KnownLayout + Immutable>(&self, offset: usize) -> Result<T, Errno> {
        let bytes = self.0.input(abi::CORE_IN).get(offset..);
        let read = bytes.and_then(|bytes| T::read_from_prefix(bytes).ok());
        read.map(|(value, _)| value).ok_or(Errno(libc::EINVAL))
    }

    /// Answers in the structure that all drivers share.
    fn answer<T: IntoBytes + Immutable + ?Sized>(&mut self, answer: &T) {
        self.0.answer(abi::CORE_OUT, answer.as_bytes());
    }

    /// Answers in the structure of mlx5's own.
    fn answer_driver<T: IntoBytes + Immutable + ?Sized>(&mut self, answer: &T) {
        self.0.answer(abi::DRIVER_OUT, answer.as_bytes());
    }
}
