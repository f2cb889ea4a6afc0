//! Completion queues and queue pairs.

use std::sync::atomic::{AtomicU32, Ordering};

use warpbell_soft_hca::engine::{
    CompletionQueueAttributes, CqeSize, CrossChannel, QueuePairAttributes, QueuePairOptions,
    ReceiveRing, SendDoorbell, Transport,
};

use super::context;
use super::open::{self, Open};
use super::{Write, open::QueuePair as OpenPair};
use crate::abi::{
    CompletionQueue, CompletionQueueEnd, CompletionQueueRequest, DriverCompletionQueueRequest,
    DriverQueuePairRequest, QueuePair, QueuePairQuery, QueuePairRequest,
};
use crate::async_events;
use crate::attributes::Errno;
use crate::events;
use crate::machine::{Machine, machine};

/// `IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN`.
const CQ_IGNORES_OVERRUN: u32 = 1 << 1;
/// `MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX`.
const CQ_HAS_PAGE: u16 = 1 << 1;
/// `MLX5_QP_FLAG_SIGNATURE`.
const QP_SIGNATURES: u32 = 1 << 0;
/// Two pairs in a page: `MLX5_NUM_NON_FP_BFREGS_PER_UAR` registers of BlueFlame, in each of which libmlx5 writes to both
/// buffers in turn.
pub const SEND_REGISTERS: u8 = 4;

/// The transport of a number of `enum ibv_qp_type`, where the engine has it.
fn transport(kind: u8) -> Result<Transport, Errno> {
    Ok(match kind {
        2 => Transport::ReliableConnection,
        3 => Transport::UnreliableConnection,
        4 => Transport::Datagram,
        _ => return Err(Errno(libc::EOPNOTSUPP)),
    })
}

/// The logarithm of a queue's depth, which libmlx5 makes a power of two.
pub fn log_of(depth: u32) -> Result<u8, Errno> {
    if !depth.is_power_of_two() {
        return Err(Errno(libc::EINVAL));
    }
    Ok(depth.ilog2() as u8)
}

/// The engine's address of a page of doorbells.
fn page(open: &Open, number: u32) -> Result<u64, Errno> {
    let page = open.pages.get(&number).ok_or(Errno(libc::EINVAL))?;
    Ok(page.address())
}

/// Creates a completion queue.
pub fn create_completion_queue(write: &mut Write<'_, '_>, extended: bool) -> Result<(), Errno> {
    // After the pointer to the answer, which the extended form has not.
    let wanted: CompletionQueueRequest = write.input(if extended { 0 } else { 8 })?;
    let cqe = wanted.cqe;
    if wanted.comp_vector >= context::VECTORS {
        return Err(Errno(libc::EINVAL));
    }
    let flags: u32 = if extended { write.input(24)? } else { 0 };
    if flags & !CQ_IGNORES_OVERRUN != 0 {
        // Timestamps.
        return Err(Errno(libc::EOPNOTSUPP));
    }
    let handle = open::fresh();
    let mut number = handle;
    if let Some(machine) = machine()? {
        let driver: DriverCompletionQueueRequest = write.driver_input()?;
        if driver.cqe_comp_en != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let cqe_size = match driver.cqe_size {
            64 => CqeSize::Bytes64,
            128 => CqeSize::Bytes128,
            _ => return Err(Errno(libc::EINVAL)),
        };
        let uar = if driver.flags & CQ_HAS_PAGE != 0 {
            Some(page(write.open, driver.uar_page_index.into())?)
        } else {
            None
        };
        let channel = if wanted.comp_channel < 0 {
            None
        } else {
            let channel = write.open.channels.get(&wanted.comp_channel);
            Some(channel.ok_or(Errno(libc::EBADF))?.clone())
        };
        let attributes = CompletionQueueAttributes {
            ring: driver.buf_addr,
            // The last entry's number was given.
            log_depth: log_of(cqe.wrapping_add(1))?,
            record: driver.db_addr,
            uar,
            collapsed: false,
            ignore_overrun: flags & CQ_IGNORES_OVERRUN != 0,
        };
        // SAFETY: libmlx5 keeps ring and record until the queue is destroyed; the page is ours.
        let queue = machine.command(|engine| unsafe {
            engine.create_completion_queue_with(&attributes, cqe_size)
        })?;
        write.open.completion_queues.insert(handle, queue);
        if let Some(channel) = channel {
            let page = write.open.pages.get(&driver.uar_page_index.into());
            // SAFETY: libmlx5 keeps the record until the queue is destroyed, and then it is taken out.
            unsafe {
                events::prepare(queue, driver.db_addr, page.ok_or(Errno(libc::EINVAL))?)?;
                events::add(queue, driver.db_addr, channel, wanted.user_handle);
            }
        }
        if let Some(events) = &write.open.events {
            async_events::add(queue, events.clone(), wanted.user_handle, false);
        }
        number = queue.get();
    }
    write.answer(&CompletionQueue {
        cq_handle: handle,
        cqe,
        comp_mask: 0,
        response_length: size_of::<CompletionQueue>() as u32,
    });
    write.answer_driver(&[number, 0]);
    Ok(())
}

/// Destroys a completion queue.
pub fn destroy_completion_queue(write: &mut Write<'_, '_>) -> Result<(), Errno> {
    // After the pointer to the answer.
    let handle: u32 = write.input(8)?;
    if let Some(machine) = machine()? {
        let queue = write.open.find(&write.open.completion_queues, handle)?;
        machine.command(|engine| engine.destroy_completion_queue(queue))?;
        write.open.completion_queues.remove(&handle);
        write.answer(&CompletionQueueEnd {
            comp_events_reported: events::remove(queue),
            async_events_reported: async_events::remove(queue),
        });
        return Ok(());
    }
    write.done();
    Ok(())
}

/// Creates a queue pair.
pub fn create_queue_pair(write: &mut Write<'_, '_>, extended: bool) -> Result<(), Errno> {
    // After the pointer to the answer, which the extended form has not.
    let start = if extended { 0 } else { 8 };
    let user_handle = write.input(start)?;
    let wanted: QueuePairRequest = write.input(start + 8)?;
    let handle = open::fresh();
    let number = match machine()? {
        Some(machine) => {
            let pair = create_in_engine(machine, write, &wanted)?;
            write.open.queue_pairs.insert(handle, pair);
            if let Some(events) = &write.open.events {
                let shares = wanted.is_srq != 0;
                async_events::add(pair.number, events.clone(), user_handle, shares);
            }
            pair.number.get()
        }
        None => fresh_number(),
    };
    write.answer(&QueuePair {
        qp_handle: handle,
        qpn: number,
        max_send_wr: wanted.max_send_wr,
        max_recv_wr: wanted.max_recv_wr,
        max_send_sge: wanted.max_send_sge,
        max_recv_sge: wanted.max_recv_sge,
        max_inline_data: wanted.max_inline_data,
        response_length: size_of::<QueuePair>() as u32,
        ..QueuePair::default()
    });
    write.answer_driver(&[0_u8; 0]);
    Ok(())
}

fn create_in_engine(
    machine: &Machine,
    write: &Write<'_, '_>,
    wanted: &QueuePairRequest,
) -> Result<OpenPair, Errno> {
    let driver: DriverQueuePairRequest = write.driver_input()?;
    if driver.flags & QP_SIGNATURES != 0 || driver.sq_wqe_count == 0 {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    let open = &*write.open;
    let protection_domain = open.find(&open.domains, wanted.pd_handle)?;
    let queue = |handle| open.find(&open.completion_queues, handle);
    // The receive queue comes first, then the send queue.
    let receive = if driver.rq_wqe_count == 0 {
        None
    } else {
        let log_stride = driver
            .rq_wqe_shift
            .checked_sub(4)
            .ok_or(Errno(libc::EINVAL))?;
        Some(ReceiveRing {
            ring: driver.buf_addr,
            log_depth: log_of(driver.rq_wqe_count)?,
            log_stride: log_stride as u8,
        })
    };
    let receive_bytes = u64::from(driver.rq_wqe_count) << driver.rq_wqe_shift.min(31);
    let attributes = QueuePairAttributes {
        protection_domain,
        send_ring: driver.buf_addr.wrapping_add(receive_bytes),
        log_send_depth: log_of(driver.sq_wqe_count)?,
        receive,
        record: driver.db_addr,
        send_doorbell: SendDoorbell::WithRecord,
        uar: page(open, driver.bfreg_index)?,
        send_cq: queue(wanted.send_cq_handle)?,
        receive_cq: queue(wanted.recv_cq_handle)?,
        cross_channel: CrossChannel::empty(),
    };
    let options = QueuePairOptions {
        transport: transport(wanted.qp_type)?,
        user_index: driver.uidx,
        send_registers: SEND_REGISTERS,
        shared_receive_queue: match wanted.is_srq {
            0 => None,
            _ => Some(open.find(&open.shared_receives, wanted.srq_handle)?),
        },
    };
    let number = machine.command(|engine| {
        // SAFETY: libmlx5 keeps rings and record until the queue pair is destroyed; the page is ours.
        unsafe { engine.create_queue_pair_with(&attributes, &options) }
    })?;
    Ok(OpenPair {
        number,
        transport: options.transport,
        record: driver.db_addr,
        set: QueuePairQuery {
            max_send_wr: wanted.max_send_wr,
            // What there is, which may be more than was asked for.
            max_recv_wr: driver.rq_wqe_count,
            max_send_sge: wanted.max_send_sge,
            max_recv_sge: wanted.max_recv_sge,
            max_inline_data: wanted.max_inline_data,
            sq_sig_all: wanted.sq_sig_all,
            ..QueuePairQuery::default()
        },
    })
}

/// The number of a queue pair without an engine. They are counted from where the engine counts them, so that
/// a test can put an engine behind queues that it did not make.
fn fresh_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1 << 16);
    // Relaxed: the numbers have to differ, nothing else hangs on them.
    NEXT.fetch_add(1, Ordering::Relaxed) & 0x00ff_ffff
}

/// Destroys a queue pair.
pub fn destroy_queue_pair(write: &mut Write<'_, '_>) -> Result<(), Errno> {
    // After the pointer to the answer.
    let handle: u32 = write.input(8)?;
    if let Some(machine) = machine()? {
        let pair = write.open.find(&write.open.queue_pairs, handle)?;
        machine.command(|engine| engine.destroy_queue_pair(pair.number))?;
        write.open.queue_pairs.remove(&handle);
        write.answer(&async_events::remove(pair.number));
        return Ok(());
    }
    write.done();
    Ok(())
}
