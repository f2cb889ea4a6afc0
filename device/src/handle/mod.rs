//! What a kernel receives: the addresses and sizes of one queue.
//!
//! The host makes a handle once the queue is ready, and passes it to the
//! kernel by value. It is the ABI between the two: `repr(C)`, 64-bit addresses,
//! with a magic number, a version and its own size in front. `open` checks
//! these and the reach once. `docs/abi.md` lists every field.

mod completion_queue;
mod receive;
mod send;

use warpbell_gpu::arch::{Reach, Word32, Word64};

use crate::error::OpenError;
use crate::words::store_relaxed64;

pub use completion_queue::{CompletionQueueHandle, CompletionQueueParts};
pub use receive::{ReceiveParts, ReceiveQueueHandle};
pub use send::{SendParts, SendQueueHandle};

/// Version of the handles' layouts, of all that they lead to but the NIC's own, and of [`QueueState`](crate::QueueState)'s: all change
/// together.
pub const ABI_VERSION: u16 = 7;

/// Largest depth of a ring: the NIC counts blocks modulo 2^16, and a poller
/// can only tell old from new within half of that.
pub const MAX_DEPTH: u32 = 32_768;

/// One 64-byte slot of a completion ring, as eight words that the NIC writes.
#[repr(C, align(64))]
pub struct CompletionSlot {
    pub(crate) words: [Word64; 8],
}

impl CompletionSlot {
    /// A slot that the NIC has not written yet: `op_own = 0xf0`, the rest 0. The host makes it: a slot on a GPU thread's
    /// stack would have no global address.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn invalid() -> Self {
        let slot = Self {
            words: core::array::from_fn(|_| Word64::new(0)),
        };
        slot.invalidate();
        slot
    }

    /// Makes the slot as good as new, while no queue uses it.
    pub fn invalidate(&self) {
        store_relaxed64(&self.words[7], u64::from_be(0xf0), Reach::System);
    }

    /// The slot's words in memory order, for whoever plays the NIC.
    pub const fn words(&self) -> &[Word64; 8] {
        &self.words
    }
}

/// How completions reach the kernel.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionKind {
    /// Every CQE overwrites entry 0 (`cc = 1`); its WQE counter says how far
    /// the queue has come. One load a poll. Send queues only.
    Collapsed = 0,
    /// A ring of CQEs with owner parity and a consumer index that the NIC reads.
    Ordinary = 1,
}

/// How far the fences of a queue reach: as far away as its NIC is.
///
/// It is a fact about the NIC and about where the queue lies, which the host knows.
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FenceReach {
    /// To all who share the memory: a card, a CPU, other GPUs. Right for every NIC.
    #[default]
    System = 0,
    /// To the threads of the GPU that the queue's users run on, because the NIC
    /// is a kernel there. It makes a fence about twice as quick.
    Gpu = 1,
}

impl FenceReach {
    /// The reach of a fence that orders what the NIC brings.
    #[inline(always)]
    pub const fn reach(self) -> Reach {
        Self::of(self as u8)
    }

    /// Refuses a handle's number that is none of these.
    #[inline(always)]
    const fn check(number: u8) -> Result<(), OpenError> {
        if number > Self::Gpu as u8 {
            return Err(OpenError::Reach { found: number });
        }
        Ok(())
    }

    /// The reach of a number that was checked.
    #[inline(always)]
    const fn of(number: u8) -> Reach {
        if number == Self::Gpu as u8 {
            Reach::Gpu
        } else {
            Reach::System
        }
    }
}

/// Where the NIC takes a send queue's producer index from.
///
/// It is a fact about the queue pair, chosen when it is made: kernels post to either kind alike.
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendDoorbell {
    /// The doorbell record, which it reads when the doorbell rings. Every NIC can.
    #[default]
    WithRecord = 0,
    /// The doorbell itself: no record is written, which spares a post one of its two fences.
    WithoutRecord = 1,
}

impl SendDoorbell {
    /// Refuses a handle's number that is none of these.
    #[inline(always)]
    const fn check(number: u8) -> Result<(), OpenError> {
        if number > Self::WithoutRecord as u8 {
            return Err(OpenError::SendDoorbell { found: number });
        }
        Ok(())
    }
}

/// What kind of memory has a send queue's doorbell register.
///
/// It is a fact about the page as a CPU has mapped it. A GPU reaches a card's registers through a mapping of its own,
/// which is never write-combining, and does not look here.
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DoorbellPage {
    /// Ordinary memory, where a software HCA looks at it.
    #[default]
    Memory = 0,
    /// A card's register: each store leaves the CPU by itself, and in order.
    Uncached = 1,
    /// A card's register on a write-combining page (BlueFlame): a store stays in the CPU until something flushes it, and
    /// may leave before older stores.
    WriteCombining = 2,
}

impl DoorbellPage {
    /// The kind of a number that was checked.
    #[inline(always)]
    pub(crate) const fn of(number: u8) -> Self {
        match number {
            0 => Self::Memory,
            1 => Self::Uncached,
            _ => Self::WriteCombining,
        }
    }

    /// Refuses a handle's number that is none of these.
    #[inline(always)]
    const fn check(number: u8) -> Result<(), OpenError> {
        if number > Self::WriteCombining as u8 {
            return Err(OpenError::DoorbellPage { found: number });
        }
        Ok(())
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    magic: u32,
    version: u16,
    size: u16,
}

impl Header {
    const fn of<T>(magic: u32) -> Self {
        Self {
            magic,
            version: ABI_VERSION,
            size: size_of::<T>() as u16,
        }
    }

    #[inline(always)]
    fn check<T>(self, magic: u32) -> Result<(), OpenError> {
        let wanted = Self::of::<T>(magic);
        if self.magic != wanted.magic {
            return Err(OpenError::NotAHandle { magic: self.magic });
        }
        if self.version != wanted.version {
            return Err(OpenError::Version {
                found: self.version,
                wanted: wanted.version,
            });
        }
        if self.size != wanted.size {
            return Err(OpenError::Size {
                found: self.size,
                wanted: wanted.size,
            });
        }
        Ok(())
    }
}

/// Where a queue's completions lie.
#[derive(Clone, Copy, Debug)]
pub struct CompletionParts {
    /// Ring of `1 << depth_log2` CQEs, every one with `op_own = 0xf0` at first.
    pub ring: *const CompletionSlot,
    /// Doorbell record of the completion queue; word 0 takes the consumer index.
    pub record: *const Word32,
    /// Base-2 logarithm of the number of CQEs.
    pub depth_log2: u8,
    /// Collapsed or ordinary.
    pub kind: CompletionKind,
}

/// [`CompletionParts`] inside a handle. The kind is a number, because a handle
/// of another version may hold anything until `open` has checked it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completions {
    pub(crate) ring: *const CompletionSlot,
    pub(crate) record: *const Word32,
    pub(crate) depth_log2: u8,
    kind: u8,
}

impl Completions {
    pub(crate) const fn new(parts: CompletionParts) -> Self {
        Self {
            ring: parts.ring,
            record: parts.record,
            depth_log2: parts.depth_log2,
            kind: parts.kind as u8,
        }
    }

    /// As words, in the order of its bytes on a little-endian machine.
    #[cfg(not(target_arch = "nvptx64"))]
    fn to_words(self) -> [u64; 3] {
        [
            self.ring.expose_provenance() as u64,
            self.record.expose_provenance() as u64,
            u64::from(self.kind) << 8 | u64::from(self.depth_log2),
        ]
    }

    const fn parts(&self) -> CompletionParts {
        CompletionParts {
            ring: self.ring,
            record: self.record,
            depth_log2: self.depth_log2,
            kind: match self.is_collapsed() {
                true => CompletionKind::Collapsed,
                false => CompletionKind::Ordinary,
            },
        }
    }

    /// Whether every CQE lands in entry 0.
    #[inline(always)]
    pub(crate) const fn is_collapsed(&self) -> bool {
        self.kind == CompletionKind::Collapsed as u8
    }
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<CompletionSlot>() == 64);
    assert!(size_of::<Completions>() == 24);
    assert!(core::mem::offset_of!(Completions, record) == 8);
    assert!(core::mem::offset_of!(Completions, depth_log2) == 16);
    assert!(core::mem::offset_of!(Completions, kind) == 17);
};
