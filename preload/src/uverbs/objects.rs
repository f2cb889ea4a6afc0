//! Domains, memory, queues: numbered, and no more than that as long as there is no engine.

use std::sync::atomic::{AtomicU32, Ordering};

use super::Write;
use crate::abi::{CompletionQueue, MemoryRegion, QueuePair, QueuePairRequest, SharedReceiveQueue};
use crate::attributes::Errno;

/// A number that no object has had before, of 24 bits. Small ones stay free: they are the card's own queues.
pub fn fresh() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0x100);
    // Relaxed: the numbers have to differ, nothing else hangs on them.
    NEXT.fetch_add(1, Ordering::Relaxed) & 0x00ff_ffff
}

/// A queue pair's number. They are counted from where the software HCA's engine counts them, so that a
/// test can put an engine behind queues that it did not make.
fn fresh_queue_pair() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1 << 16);
    // Relaxed: as above.
    NEXT.fetch_add(1, Ordering::Relaxed) & 0x00ff_ffff
}

/// Allocates a protection domain.
pub fn allocate_domain(write: &mut Write<'_, '_>) -> Result<(), Errno> {
    let domain = fresh();
    write.answer(&domain);
    write.answer_driver(&domain);
    Ok(())
}

/// Registers memory: gives it its keys.
pub fn register_memory(write: &mut Write<'_, '_>) -> Result<(), Errno> {
    let region = fresh();
    // A key is an index and a byte that its owner may vary.
    let key = region << 8;
    write.answer(&MemoryRegion {
        mr_handle: region,
        lkey: key,
        rkey: key,
    });
    Ok(())
}

/// Creates a completion queue.
pub fn create_completion_queue(write: &mut Write<'_, '_>, extended: bool) -> Result<(), Errno> {
    // After the pointer to the answer, which the extended form has not, and the user's handle.
    let cqe: u32 = write.input(if extended { 8 } else { 16 })?;
    let number = fresh();
    write.answer(&CompletionQueue {
        cq_handle: number,
        cqe,
        comp_mask: 0,
        response_length: size_of::<CompletionQueue>() as u32,
    });
    write.answer_driver(&[number, 0]);
    Ok(())
}

/// Creates a queue pair.
pub fn create_queue_pair(write: &mut Write<'_, '_>, extended: bool) -> Result<(), Errno> {
    let wanted: QueuePairRequest = write.input(if extended { 8 } else { 16 })?;
    let number = fresh_queue_pair();
    write.answer(&QueuePair {
        qp_handle: number,
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

/// Creates a shared receive queue.
pub fn create_shared_receive_queue(write: &mut Write<'_, '_>) -> Result<(), Errno> {
    // After the pointer to the answer, the user's handle and the domain.
    let [max_wr, max_sge]: [u32; 2] = write.input(20)?;
    let number = fresh();
    write.answer(&SharedReceiveQueue {
        srq_handle: number,
        max_wr,
        max_sge,
        srqn: number,
    });
    write.answer_driver(&[number, 0]);
    Ok(())
}
