//! A work-group's context, and the calls with it.

use mlx5_wqe::{Remote, Wqe};

use super::{CpnetHandle, Error, Pe, SymmetricChar};
use crate::together::{Led, by_leader};
use warpbell::{Block, Deadline, Exclusive, block};

/// A work-group's context (`cpnet_ctx_t`): its queues, of which one is open at a time. All threads of the block have
/// one, and make each call together.
pub struct CpnetCtx<'a> {
    handle: CpnetHandle<'a>,
    group: u32,
    /// Where the open queue leads.
    pe: Pe,
    queue: Led<'a, Exclusive, Block>,
}

/// Takes the queues of this work-group, which is the block's index in the grid. It opens the one to the next PE: a put
/// to another PE changes to that PE's queue.
///
/// # Errors
/// [`Error::NoGroup`], [`Error::InUse`], [`Error::Handle`], [`Error::Failed`].
#[inline(always)]
pub fn cpnet_ctx_create(handle: CpnetHandle<'_>) -> Result<CpnetCtx<'_>, Error> {
    let group = block::index();
    let next = handle.pe() + 1;
    let pe = if next < handle.pes() { next } else { 0 };
    Ok(CpnetCtx {
        handle,
        group,
        pe,
        queue: Led::open(handle.queue(group, pe)?)?,
    })
}

/// Puts a byte into the heap of a PE. What the threads of the work-group stored before, and put to this PE, comes
/// before it.
///
/// # Errors
/// [`Error::NoPe`]; [`Error::Late`] if the queue had no room until the deadline; [`Error::Failed`]; those of
/// [`cpnet_ctx_create`] for another PE than the last one.
#[inline(always)]
pub fn cpnet_shmem_char_p(
    ctx: &mut CpnetCtx<'_>,
    to: SymmetricChar<'_>,
    value: u8,
    pe: Pe,
    limit: Deadline,
) -> Result<(), Error> {
    let target = ctx.handle.heap(pe)?.at(to.offset());
    if pe != ctx.pe {
        ctx.queue = Led::open(ctx.handle.queue(ctx.group, pe)?)?;
        ctx.pe = pe;
    }
    by_leader!(Block, put(&mut ctx.queue, target, value, limit)).map(drop)
}

/// Waits until a byte of this PE's heap has this value. What came through the same queue before it may be read then.
///
/// # Errors
/// [`Error::Late`].
#[inline(always)]
pub fn cpnet_shmem_char_wait_until(
    at: SymmetricChar<'_>,
    value: u8,
    limit: Deadline,
) -> Result<(), Error> {
    by_leader!(Block, at.wait(value, limit)).map(drop)
}

/// Waits until all puts of this work-group are complete, to all PEs, and gives its queues back.
///
/// # Errors
/// [`Error::Late`]; [`Error::Failed`].
#[inline(always)]
pub fn cpnet_ctx_destroy(ctx: CpnetCtx<'_>, limit: Deadline) -> Result<(), Error> {
    let CpnetCtx {
        handle,
        group,
        queue,
        ..
    } = ctx;
    // Closed first, because the leader opens each queue in turn.
    drop(queue);
    by_leader!(Block, complete(&handle, group, limit)).map(drop)
}

#[inline(always)]
fn put(
    queue: &mut Led<'_, Exclusive, Block>,
    target: Remote,
    value: u8,
    limit: Deadline,
) -> Result<u32, Error> {
    let _ = queue.post(Wqe::write_value(value, target).signalled(), limit)?;
    Ok(0)
}

#[inline(always)]
fn complete(handle: &CpnetHandle<'_>, group: u32, limit: Deadline) -> Result<u32, Error> {
    let limit = limit.fixed();
    for pe in 0..handle.pes() {
        let mut queue = handle.queue(group, pe)?.open::<Exclusive>()?;
        queue.wait_all(limit)?;
    }
    Ok(0)
}
