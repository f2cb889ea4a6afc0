//! A tag's words in memory that kernels and host reach: a trigger, and a wait.

use warpbell_gpu::arch::{Reach, Word64, fence_acquire_release, fence_full};

use super::words::{Offer, Tally};
use crate::trigger::Error;
use crate::trigger::counter::Counter;
use crate::trigger::entry::ended;
use crate::words::{fetch_add_relaxed64, load_acquire64, load_relaxed64};
use warpbell::held::{self, Outcome};
use warpbell::{Deadline, SendQueueHandle};

/// How far all but the kernels' additions reaches: the host looks at what kernels do.
pub(super) const EVERYWHERE: Reach = Reach::System;
/// How far the kernels' additions reach. CUDA promises that one of system scope is atomic only where GPU and host have
/// atomics in common, which they have not behind PCIe. Only threads of one processor add. The host only loads, behind
/// fences of the system's scope; that it sees additions of the GPU's scope rests on the hardware, not on CUDA's promise.
const AMONG_KERNELS: Reach = Reach::Gpu;

/// The words of a tag, 32 bytes, in memory that kernels and host reach: a `Tally`, an `Offer`, and what the host
/// alone knows. Fresh ones are 0.
///
/// Kernels alone store to the first word, the host alone to the others.
#[repr(C, align(32))]
#[derive(Debug)]
pub struct JointTag {
    tally: Word64,
    pub(super) offer: Word64,
    /// [`CLOSED`], and what `register` says.
    pub(super) host: Word64,
    unused: Word64,
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<JointTag>() == 32);
    assert!(core::mem::offset_of!(JointTag, offer) == 8);
    assert!(core::mem::offset_of!(JointTag, host) == 16);
};

/// The host registers nothing more.
pub(super) const CLOSED: u64 = 1;

impl JointTag {
    /// A tag that nobody has triggered, and under which nothing was registered.
    pub fn new() -> Self {
        Self {
            tally: Word64::new(0),
            offer: Word64::new(0),
            host: Word64::new(0),
            unused: Word64::new(0),
        }
    }

    /// Counts a trigger, and sends the operation if it was the last one missing. Gives its number.
    #[inline(always)]
    pub(super) fn trigger(&self, queue: &SendQueueHandle<'_>) -> u32 {
        let seen = Offer(Counter::from_bits(load_relaxed64(&self.offer, EVERYWHERE)));
        // What `seen` tells of, the WQEs, before record and doorbell; and this thread's data before its trigger, because
        // another thread or the host may publish, for a NIC anywhere.
        fence_acquire_release(EVERYWHERE);
        let found = Tally(fetch_add_relaxed64(
            &self.tally,
            Tally::ENTER,
            AMONG_KERNELS,
        ));
        let number = found.number();
        let (mut offer, mut before) = (seen, found);
        if !offer.takes(number) {
            // The addition before this look at the offer, because the host stores its offer before it looks at the count:
            // with a full fence on either side, one of the two sees the other.
            fence_full(EVERYWHERE);
            // Acquire: that the operation before went by a trigger, before what this one says of itself.
            offer = self.offer();
            if offer.ends_with(number) {
                // That one may have been said since the addition, and nobody says it now but this thread.
                before = self.tally();
            }
        }
        let rings = offer.ends_with(number);
        // Before the doorbell (the fence in `publish_found`), because the host reads it once the operation is done, too.
        // What it says follows from the look, so that it needs no fence behind that.
        fetch_add_relaxed64(&self.tally, before.leave(rings), AMONG_KERNELS);
        if rings {
            // SAFETY: the handle is good, by the promise of `JointHandle::new`; the host has registered the operation up to
            // here, and the last trigger that it wants is this thread's alone, which has said that it rings.
            unsafe { held::publish_found(queue, offer.end(), false, || true) };
        }
        number
    }

    /// Waits until the operation is done that takes the trigger of that number, be it registered or not.
    #[inline(always)]
    pub(super) fn wait(
        &self,
        queue: &SendQueueHandle<'_>,
        number: u32,
        deadline: Deadline,
    ) -> Result<(), Error> {
        let mut wait = deadline.wait();
        let mut late = false;
        loop {
            // Before the offer, because the host closes behind its last one.
            let closed = load_acquire64(&self.host, EVERYWHERE) & CLOSED != 0;
            let offer = self.offer();
            let is_offered = offer.takes(number);
            let outcome = if !is_offered {
                Outcome::UnderWay
            } else if offer.has_taken(number) {
                // The newest one is registered only once those before are done.
                Outcome::Done
            } else {
                // SAFETY: the handle is good, and its completions are such a ring, by the promise of `JointHandle::new`;
                // `hold` signals each WQE.
                unsafe { held::outcome(queue, offer.end()) }
            };
            if !is_offered && closed {
                return Err(Error::Closed);
            }
            if !is_offered && late {
                return Err(Error::NotRegistered);
            }
            if outcome != Outcome::UnderWay || late {
                return ended(queue, outcome, || self.counter());
            }
            late = wait.expired();
        }
    }

    /// Its counter and threshold, as they are now.
    #[inline(always)]
    pub fn counter(&self) -> Counter {
        // The offer first: no operation is in it whose triggers before it are not in the tally.
        let offer = self.offer();
        offer.counter(self.tally())
    }

    #[inline(always)]
    pub(super) fn offer(&self) -> Offer {
        Offer(Counter::from_bits(load_acquire64(&self.offer, EVERYWHERE)))
    }

    #[inline(always)]
    pub(super) fn tally(&self) -> Tally {
        Tally(load_acquire64(&self.tally, EVERYWHERE))
    }
}

impl Default for JointTag {
    fn default() -> Self {
        Self::new()
    }
}
