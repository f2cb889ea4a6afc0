//! What a command does.

mod address_handle;
mod channels;
mod context;
mod counters;
mod devx;
mod gids;
mod mapped;
mod memory;
mod modify;
mod open;
mod prm;
mod queues;
mod shared_receive;
mod transitions;
mod uar;
mod umem;

use std::ffi::{c_int, c_ulong, c_void};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::{command, ioctl as abi};
use crate::attributes::{Errno, RDMA_VERBS_IOCTL, Request};
use open::Open;
pub use uar::Page;

/// Carries an ioctl of the device out.
///
/// # Safety
/// The argument must be what libibverbs gives a uverbs device, and memory that it names must stay until the object
/// made of it is destroyed.
pub unsafe fn ioctl(file: c_int, number: c_ulong, argument: *mut c_void) -> Result<(), Errno> {
    if number != RDMA_VERBS_IOCTL {
        return Err(Errno(libc::ENOTTY));
    }
    // SAFETY: the caller says that the argument is such a request.
    let mut request = unsafe { Request::from_argument(argument) }?;
    open::with(file, |open| match (request.object, request.method) {
        (abi::OBJECT_DEVICE, abi::METHOD_INVOKE_WRITE) => {
            let request = &mut request;
            Write { request, open }.run()
        }
        (abi::OBJECT_DEVICE, abi::METHOD_QUERY_GID_ENTRY) => gids::entry(&mut request),
        (abi::OBJECT_DEVICE, abi::METHOD_QUERY_GID_TABLE) => gids::table(&mut request),
        (abi::OBJECT_UAR, abi::METHOD_UAR_ALLOC) => uar::allocate(&mut request, open, file),
        (abi::OBJECT_UAR, abi::METHOD_UAR_DESTROY) => Ok(()),
        // Pages come when they are touched, with or without advice.
        (abi::OBJECT_MR, abi::METHOD_ADVISE_MR) => Ok(()),
        (abi::OBJECT_EVENT_CHANNEL, abi::METHOD_EVENT_CHANNEL_ALLOC) => {
            channels::create_devx(&mut request, open)
        }
        (abi::OBJECT_DEVX | abi::OBJECT_DEVX_OBJ, _) => devx::method(&mut request, open),
        (abi::OBJECT_DEVX_UMEM, abi::METHOD_UMEM_REG) => umem::register(&mut request, open),
        (abi::OBJECT_DEVX_UMEM, abi::METHOD_UMEM_DEREG) => umem::deregister(&request, open),
        // libibverbs then falls back to the plain structures of INVOKE_WRITE.
        _ => Err(Errno(libc::EPROTONOSUPPORT)),
    })
}

/// The device is closed: what was made through this file goes.
pub fn close(file: c_int) {
    open::close(file);
}

/// A command in the plain structures that were once written to the device: `INVOKE_WRITE`.
struct Write<'a, 'b> {
    request: &'a mut Request<'b>,
    open: &'a mut Open,
}

impl Write<'_, '_> {
    fn run(mut self) -> Result<(), Errno> {
        let number = self.request.number(abi::WRITE_COMMAND);
        let number = number.and_then(|number| u32::try_from(number).ok());
        let Some(number) = number else {
            return Err(Errno(libc::EINVAL));
        };
        // So libibverbs finds out that there is INVOKE_WRITE at all.
        let core_in = self.request.input(abi::CORE_IN);
        if core_in.is_empty() && self.request.number(abi::CORE_OUT).is_none() {
            return Err(Errno(libc::ENOSPC));
        }
        let extended = number & command::EXTENDED != 0;
        match number & !command::EXTENDED {
            command::GET_CONTEXT => context::get(&mut self),
            command::QUERY_DEVICE => context::query_device(&mut self, extended),
            command::QUERY_PORT => context::query_port(&mut self),
            command::ALLOC_PD => memory::allocate_domain(&mut self),
            command::DEALLOC_PD => memory::free_domain(&mut self),
            command::REG_MR => memory::register(&mut self),
            command::REREG_MR => memory::change(&mut self),
            command::DEREG_MR => memory::deregister(&mut self),
            command::CREATE_COMP_CHANNEL => channels::create(&mut self),
            command::CREATE_CQ => queues::create_completion_queue(&mut self, extended),
            command::DESTROY_CQ => queues::destroy_completion_queue(&mut self),
            command::CREATE_QP => queues::create_queue_pair(&mut self, extended),
            command::QUERY_QP => modify::query(&mut self),
            command::MODIFY_QP => modify::modify(&mut self),
            command::DESTROY_QP => queues::destroy_queue_pair(&mut self),
            command::CREATE_SRQ => shared_receive::create(&mut self),
            command::CREATE_AH => address_handle::create(&mut self),
            command::DESTROY_SRQ => shared_receive::destroy(&mut self),
            command::DESTROY_AH => address_handle::destroy(&mut self),
            _ => Err(Errno(libc::EOPNOTSUPP)),
        }
    }

    /// A structure at an offset of what came in.
    fn input<T: FromBytes + KnownLayout + Immutable>(&self, offset: usize) -> Result<T, Errno> {
        part(self.request.input(abi::CORE_IN), offset)
    }

    /// The structure of mlx5's own that came in.
    fn driver_input<T: FromBytes + KnownLayout + Immutable>(&self) -> Result<T, Errno> {
        part(self.request.input(abi::DRIVER_IN), 0)
    }

    /// Answers in the structure that all drivers share.
    fn answer<T: IntoBytes + Immutable + ?Sized>(&mut self, answer: &T) {
        self.request.answer(abi::CORE_OUT, answer.as_bytes());
    }

    /// Answers in the structure of mlx5's own.
    fn answer_driver<T: IntoBytes + Immutable + ?Sized>(&mut self, answer: &T) {
        self.request.answer(abi::DRIVER_OUT, answer.as_bytes());
    }

    /// Answers with zeros, which say of a destroyed object that no event of it is outstanding.
    fn done(&mut self) {
        self.answer(&[0_u8; 0]);
    }
}

fn part<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8], offset: usize) -> Result<T, Errno> {
    let read = bytes
        .get(offset..)
        .and_then(|bytes| T::read_from_prefix(bytes).ok());
    read.map(|(value, _)| value).ok_or(Errno(libc::EINVAL))
}
