//! The one place with fences, doorbell record and doorbell.
//!
//! The fences reach as far as the handle says. The words themselves are stored
//! with system scope, the widest, which asks nothing of a fence.
//!
//! Of a queue without a doorbell record the doorbell is all that the NIC sees: one
//! fence and one store.

use mlx5_wqe::{DoorbellRecord, QpNumber, WqeIndex};
use warpbell_gpu::arch::{Reach, fence_acquire_release, fence_release, ring_doorbell};
use warpbell_gpu::tuned;

#[cfg(not(any(target_arch = "nvptx64", loom)))]
use crate::handle::DoorbellPage;
use crate::handle::{ReceiveQueueHandle, SendQueueHandle};
use crate::words::store_relaxed32;

/// Calls `publish` with the handle's reach as one that the compiler knows: one
/// branch, and each fence behind it is one instruction. Otherwise a GPU has the
/// fences of both reaches in its way, and those that do not count cost time, too.
#[inline(always)]
fn within<R>(handle: &SendQueueHandle<'_>, publish: impl Fn(Reach) -> R) -> R {
    // A CPU's fences know no reach.
    if !cfg!(target_arch = "nvptx64") {
        return publish(Reach::System);
    }
    match handle.reach() {
        Reach::Gpu => publish(Reach::Gpu),
        _ => publish(Reach::System),
    }
}

/// Publishes everything before block `end`: record, then doorbell, as the manuals ask.
#[inline(always)]
pub(super) fn publish(handle: &SendQueueHandle<'_>, end: u64) {
    within(handle, |reach| {
        if !has_record(handle) {
            // Out of the way on a CPU, where the question is dearer than the fence that it spares.
            #[cfg(not(target_arch = "nvptx64"))]
            core::hint::cold_path();
            return publish_by_doorbell(handle, end, reach);
        }
        // The WQEs before the record, because the NIC fetches up to the
        // record's index.
        fence_release(reach);
        store_record(handle, end);
        // The record before the doorbell, because the NIC reads the record when
        // the doorbell rings, and never again until the next one.
        fence_release(reach);
        ring(handle, end);
    });
}

/// Publishes everything before block `end` as [`publish`] does, where others stored WQEs and data, if `due`, which is asked
/// last, says that it is this thread's to publish; gives what it said. `ordered` says that an acquire and a release fence
/// of the GPU's reach lie between what others stored and this; otherwise this thread finds, by a relaxed access, what the
/// others released.
#[inline(always)]
pub(super) fn publish_found(
    handle: &SendQueueHandle<'_>,
    end: u64,
    ordered: bool,
    due: impl Fn() -> bool,
) -> bool {
    // A NIC outside of the GPU wants a fence that reaches it in any case.
    let ordered = ordered & (handle.reach() == Reach::Gpu);
    within(handle, |reach| {
        if !ordered {
            // What was found before the WQEs and data that it stands for, and all of these, and this thread's data, before
            // record and doorbell, because the NIC fetches up to their index. Ahead of the question, because what it asks
            // for is then on its way as long as the fence lasts.
            fence_acquire_release(reach);
        }
        let due = due();
        if due {
            publish_ordered(handle, end, reach);
        }
        due
    })
}

/// Record, if there is one, and doorbell, of WQEs and data that are ordered before whatever this thread stores.
#[inline(always)]
fn publish_ordered(handle: &SendQueueHandle<'_>, end: u64, reach: Reach) {
    if handle.has_record() {
        store_record(handle, end);
        // The record before the doorbell, because the NIC reads the record when the doorbell rings, and never again
        // until the next one.
        fence_release(reach);
    }
    ring(handle, end);
}

/// Publishes where the NIC reads no record.
#[inline(always)]
fn publish_by_doorbell(handle: &SendQueueHandle<'_>, end: u64, reach: Reach) {
    // The WQEs before the doorbell, because the NIC fetches up to the doorbell's
    // index. There is no second fence, because no record has to be there first.
    fence_release(reach);
    ring(handle, end);
}

/// Publishes receive WQEs before number `end`: a receive queue has no doorbell.
#[inline(always)]
pub(super) fn publish_receives(handle: &ReceiveQueueHandle<'_>, end: u64) {
    // The WQEs before the record, because the NIC fetches up to its index as
    // soon as a message arrives.
    fence_release(handle.reach());
    // SAFETY: the handle's pointers are valid, by the promise of its `new`.
    let record = unsafe { &*handle.record };
    store_relaxed32(record, DoorbellRecord::word(end as u16), Reach::System);
}

/// Whether the NIC reads a doorbell record. Asked for each post, by a predicate that is no [known one](tuned) before a
/// loop of posts.
#[inline(always)]
fn has_record(handle: &SendQueueHandle<'_>) -> bool {
    tuned::narrow(u32::from(handle.has_record())) != 0
}

#[inline(always)]
fn store_record(handle: &SendQueueHandle<'_>, end: u64) {
    // SAFETY: the handle's pointers are valid, by the promise of its `new`.
    let record = unsafe { &*handle.record };
    store_relaxed32(record, DoorbellRecord::word(end as u16), Reach::System);
}

#[inline(always)]
fn ring(handle: &SendQueueHandle<'_>, end: u64) {
    let qpn = QpNumber::from_low_bits(handle.qpn);
    // The NIC looks at QPN and index only (NVSHMEM and gpunetio ring like this); with `ds` 0 behind the QPN, the
    // index is the producer index where there is no record.
    let value = mlx5_wqe::Doorbell::of_producer(WqeIndex(end as u16), qpn).0;
    #[cfg(not(any(target_arch = "nvptx64", loom)))]
    if handle.doorbell_page != DoorbellPage::Memory as u8 {
        // A card's register: out of the way of software HCAs, whose posts cost a few nanoseconds.
        core::hint::cold_path();
        let combines = handle.doorbell_page == DoorbellPage::WriteCombining as u8;
        // SAFETY: by the promise of the handle's `new` this is a card's register, mapped as long as the handle lives.
        unsafe { warpbell_gpu::arch::ring_register(handle.doorbell, value, combines) };
        return;
    }
    // SAFETY: the handle's pointers are valid and in global memory, by the promise of its `new`.
    unsafe { ring_doorbell(&*handle.doorbell, value) };
}
