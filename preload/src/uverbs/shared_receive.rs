//! Shared receive queues.

use warpbell_soft_hca::engine::{ReceiveRing, SharedReceiveAttributes, Topology};

use super::queues::log_of;
use super::{Write, open};
use crate::abi::{DriverSharedReceiveQueueRequest, SharedReceiveQueue, SharedReceiveQueueRequest};
use crate::attributes::Errno;
use crate::machine::machine;

/// `MLX5_SRQ_FLAG_SIGNATURE`.
const SIGNATURES: u32 = 1 << 0;
/// Log₂ of the least stride, in units of 16 bytes: a link and a segment.
const LOG_LEAST_STRIDE: u8 = 1;

/// Creates a shared receive queue.
pub fn create(write: &mut Write<'_, '_>) -> Result<(), Errno> {
    // After the pointer to the answer, and the user's handle.
    let wanted: SharedReceiveQueueRequest = write.input(16)?;
    let handle = open::fresh();
    let mut number = handle;
    if let Some(machine) = machine()? {
        let driver: DriverSharedReceiveQueueRequest = write.driver_input()?;
        if driver.flags & SIGNATURES != 0 || wanted.srq_limit != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let open = &*write.open;
        let depth = wanted.max_wr.checked_add(1).ok_or(Errno(libc::EINVAL))?;
        let units = wanted.max_sge.checked_add(1).ok_or(Errno(libc::EINVAL))?;
        // As libmlx5 has laid it out, and as a kernel works it out again.
        let units = units.checked_next_power_of_two();
        let attributes = SharedReceiveAttributes {
            protection_domain: open.find(&open.domains, wanted.pd_handle)?,
            ring: ReceiveRing {
                ring: driver.buf_addr,
                log_depth: log_of(depth)?,
                log_stride: log_of(units.ok_or(Errno(libc::EINVAL))?)?.max(LOG_LEAST_STRIDE),
            },
            record: driver.db_addr,
            topology: Topology::LinkedList,
        };
        let queue = machine.command(|engine| {
            // SAFETY: libmlx5 keeps ring and record until the queue is destroyed.
            unsafe { engine.create_shared_receive_queue(&attributes) }
        })?;
        write.open.shared_receives.insert(handle, queue);
        number = queue.get();
    }
    write.answer(&SharedReceiveQueue {
        srq_handle: handle,
        max_wr: wanted.max_wr,
        max_sge: wanted.max_sge,
        srqn: number,
    });
    write.answer_driver(&[number, 0]);
    Ok(())
}

/// Destroys a shared receive queue.
pub fn destroy(write: &mut Write<'_, '_>) -> Result<(), Errno> {
    // After the pointer to the answer.
    let handle: u32 = write.input(8)?;
    if let Some(machine) = machine()? {
        let queue = write.open.find(&write.open.shared_receives, handle)?;
        machine.command(|engine| engine.destroy_shared_receive_queue(queue))?;
        write.open.shared_receives.remove(&handle);
    }
    write.done();
    Ok(())
}
