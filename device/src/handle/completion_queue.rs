//! The handle of a completion queue that many send queues have in common.

use core::marker::PhantomData;

use warpbell_gpu::arch::Reach;

use super::{CompletionKind, CompletionParts, CompletionSlot, Completions, FenceReach, Header};
use crate::error::OpenError;
use crate::processor::Processor;
use crate::queue::{CompletionMember, completion};
use crate::state::CompletionQueueState;

/// "WBCQ", as it reads in memory on a little-endian machine.
const COMPLETION_MAGIC: u32 = u32::from_le_bytes(*b"WBCQ");

/// Where a completion queue lies that many send queues have in common.
#[derive(Clone, Copy, Debug)]
pub struct CompletionQueueParts {
    /// Ring of `1 << depth_log2` CQEs, every one with `op_own = 0xf0` at first; the NIC ignores overruns.
    pub ring: *const CompletionSlot,
    /// Base-2 logarithm of the number of CQEs.
    pub depth_log2: u8,
    /// Table of `1 << members_log2` places, as [`CompletionMember::enter`] filled it.
    pub members: *const CompletionMember,
    /// Base-2 logarithm of the table's places, at least 1.
    pub members_log2: u8,
    /// The completion queue's device-side state, zeroed.
    pub state: *const CompletionQueueState,
    /// How far the fences of its queues reach.
    pub reach: FenceReach,
}

/// What a kernel needs to know of a completion queue that many send queues have in common.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CompletionQueueHandle<'a> {
    header: Header,
    pub(crate) completions: Completions,
    pub(crate) members: *const CompletionMember,
    pub(crate) state: *const CompletionQueueState,
    pub(crate) members_log2: u8,
    reach: u8,
    unused: u16,
    pub(crate) processor: Processor,
    _lifetime: PhantomData<&'a CompletionQueueState>,
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<CompletionQueueHandle>() == 56);
    assert!(core::mem::offset_of!(CompletionQueueHandle, completions) == 8);
    assert!(core::mem::offset_of!(CompletionQueueHandle, members) == 32);
    assert!(core::mem::offset_of!(CompletionQueueHandle, state) == 40);
    assert!(core::mem::offset_of!(CompletionQueueHandle, members_log2) == 48);
    assert!(core::mem::offset_of!(CompletionQueueHandle, reach) == 49);
    assert!(core::mem::offset_of!(CompletionQueueHandle, processor) == 52);
};

// SAFETY: as for `SendQueueHandle`.
unsafe impl Send for CompletionQueueHandle<'_> {}
// SAFETY: as for `SendQueueHandle`.
unsafe impl Sync for CompletionQueueHandle<'_> {}

impl<'a> CompletionQueueHandle<'a> {
    /// Makes the handle of a completion queue that many send queues have in common.
    ///
    /// # Safety
    /// For the lifetime `'a`, every pointer of `parts` is valid for the sizes that `parts` gives, aligned to its type,
    /// and reachable by every thread that gets the handle; so is each entry that the table leads to, which is the one
    /// entry of the completions of that queue's handle. Nothing but `warpbell` and the NIC writes there, and nobody
    /// writes the table. Every queue pair whose send completions go to the ring is in the table. The ring has at least
    /// as many entries as all their send rings have blocks together, and 32 where warps poll. The reach is that of
    /// these queues' handles, and what [`SendQueueHandle::new`](crate::SendQueueHandle::new) asks for it holds; threads of
    /// several processors never open it at the same time, which [`on`](Self::on) has `open` check.
    pub const unsafe fn new(parts: CompletionQueueParts) -> Self {
        Self {
            header: Header::of::<Self>(COMPLETION_MAGIC),
            completions: Completions::new(CompletionParts {
                ring: parts.ring,
                // Nobody writes a consumer index, because the NIC ignores overruns.
                record: core::ptr::null(),
                depth_log2: parts.depth_log2,
                kind: CompletionKind::Ordinary,
            }),
            members: parts.members,
            state: parts.state,
            members_log2: parts.members_log2,
            reach: parts.reach as u8,
            unused: 0,
            processor: Processor::UNKNOWN,
            _lifetime: PhantomData,
        }
    }

    /// The handle for kernels of one processor, as [`SendQueueHandle::on`](crate::SendQueueHandle::on).
    ///
    /// # Safety
    /// As there.
    pub const unsafe fn on(self, processor: Processor) -> Self {
        Self { processor, ..self }
    }

    /// Checks magic, version, size and the reach of fences.
    #[inline(always)]
    pub fn check(&self) -> Result<(), OpenError> {
        self.header.check::<Self>(COMPLETION_MAGIC)?;
        FenceReach::check(self.reach)
    }

    /// The entry that CQE number `number` goes to, and its owner bit, for whoever plays the NIC.
    ///
    /// # Safety
    /// [`check`](Self::check) has accepted the handle.
    #[inline(always)]
    pub unsafe fn completion_slot(&self, number: u32) -> (&'a CompletionSlot, bool) {
        let owner = number >> self.completions.depth_log2 & 1 == 1;
        (completion::slot(&self.completions, number), owner)
    }

    /// As [`SendQueueHandle::reach`](crate::SendQueueHandle::reach).
    #[inline(always)]
    pub(crate) const fn reach(&self) -> Reach {
        FenceReach::of(self.reach)
    }
}
