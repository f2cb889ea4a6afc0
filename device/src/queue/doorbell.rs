//! The one place with fences, doorbell record and doorbell.
//!
//! The fences reach as far as the handle says. The words themselves are stored
//! with system scope, the widest, which asks nothing of a fence.
//!
//! Of a queue without a doorbell record the doorbell is all that the NIC sees: one
//! fence and one store, whatever the policy.

use crate::arch::{Reach, fence_release, ring_doorbell, store_relaxed32};
use crate::handle::{ReceiveQueueHandle, SendQueueHandle};

/// Calls `publish` with a reach that the compiler knows: one branch, and each
/// fence behind it is one instruction. Otherwise a GPU has the fences of both
/// reaches in its way, and those that do not count cost time, too.
#[inline(always)]
fn within<R>(reach: Reach, publish: impl Fn(Reach) -> R) -> R {
    match reach {
        // A CPU's fences know no reach.
        Reach::Gpu if cfg!(target_arch = "nvptx64") => publish(Reach::Gpu),
        _ => publish(Reach::System),
    }
}

/// When the doorbell is rung: [`Now`] or [`EarlyAndAfter`]. Several requests
/// share one doorbell through [`SendQueue::batch`](crate::SendQueue::batch).
pub trait Doorbell: sealed::Sealed {
    /// Publishes everything before block `end`.
    fn publish(handle: &SendQueueHandle<'_>, end: u64);
}

/// Record, then doorbell: what the manuals ask for, and the default.
#[derive(Clone, Copy, Debug)]
pub enum Now {}

/// Doorbell, record, doorbell again: the NIC starts to fetch while the record
/// is still on its way. Where the first ring is early, the NIC finds the old
/// producer index in the record and nothing to do; the second ring is the one
/// that counts. Without a record it is [`Now`].
#[derive(Clone, Copy, Debug)]
pub enum EarlyAndAfter {}

impl Doorbell for Now {
    #[inline(always)]
    fn publish(handle: &SendQueueHandle<'_>, end: u64) {
        within(handle.reach(), |reach| {
            if !handle.has_record() {
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
}

impl Doorbell for EarlyAndAfter {
    #[inline(always)]
    fn publish(handle: &SendQueueHandle<'_>, end: u64) {
        within(handle.reach(), |reach| {
            if !handle.has_record() {
                return publish_by_doorbell(handle, end, reach);
            }
            // The WQEs before doorbell and record, because either may make the NIC
            // fetch them.
            fence_release(reach);
            ring(handle, end);
            store_record(handle, end);
            // The record before the second doorbell, because that is the one after
            // which the NIC must see the new index.
            fence_release(reach);
            ring(handle, end);
        });
    }
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
    store_relaxed32(record, (end as u16 as u32).to_be(), Reach::System);
}

#[inline(always)]
fn store_record(handle: &SendQueueHandle<'_>, end: u64) {
    // SAFETY: the handle's pointers are valid, by the promise of its `new`.
    let record = unsafe { &*handle.record };
    store_relaxed32(record, (end as u16 as u32).to_be(), Reach::System);
}

#[inline(always)]
fn ring(handle: &SendQueueHandle<'_>, end: u64) {
    // SAFETY: the handle's pointers are valid, by the promise of its `new`.
    let doorbell = unsafe { &*handle.doorbell };
    ring_doorbell(doorbell, doorbell_word(handle.qpn, end));
}

/// The doorbell's eight bytes: `{producer index << 8, QPN << 8}`, big-endian.
/// The NIC looks at QPN and index only (NVSHMEM and gpunetio ring like this); with
/// `ds` 0 behind the QPN, the index is the producer index where there is no record.
#[inline(always)]
const fn doorbell_word(qpn: u32, end: u64) -> u64 {
    let index = (end as u16 as u64) << 8;
    (index << 32 | (qpn << 8) as u64).to_be()
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Now {}
    impl Sealed for super::EarlyAndAfter {}
}

#[cfg(test)]
mod tests {
    use super::doorbell_word;

    #[test]
    fn doorbell_bytes() {
        assert_eq!(
            doorbell_word(0x0012_3456, 0x1_abcd).to_ne_bytes(),
            [0x00, 0xab, 0xcd, 0x00, 0x12, 0x34, 0x56, 0x00]
        );
    }
}
