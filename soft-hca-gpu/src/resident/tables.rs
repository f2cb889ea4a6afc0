//! The engines' tables in one piece of memory.
//!
//! Host and kernel are built by two compilers, which may lay a structure out in two ways. Both
//! count with the same fixed size for an entry, into which either layout fits.

use core::mem::MaybeUninit;
use core::slice;
use core::sync::atomic::{AtomicU32, Ordering};

use super::{Refused, ResidentEngine};
use warpbell_soft_hca::engine::{
    CompletionQueueSlot, ProtectionDomainSlot, QueuePairSlot, RegionSlot, RevokedKey, Storage,
    UarSlot,
};

/// How many entries each of an engine's tables has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct TableSizes {
    /// Most protection domains.
    pub protection_domains: u32,
    /// Most memory regions.
    pub regions: u32,
    /// Most completion queues.
    pub completion_queues: u32,
    /// Most queue pairs, and as many UAR pages.
    pub queue_pairs: u32,
}

impl Default for TableSizes {
    /// As many as the shared memory of a GPU's block holds: 64 domains, 256 regions, 64 completion
    /// queues, 32 queue pairs.
    fn default() -> Self {
        Self {
            protection_domains: 64,
            regions: 256,
            completion_queues: 64,
            queue_pairs: 32,
        }
    }
}

/// Bytes that each entry counts with.
mod entry {
    pub const PROTECTION_DOMAIN: u64 = 16;
    pub const REGION: u64 = 48;
    pub const REVOKED: u64 = 4;
    pub const COMPLETION_QUEUE: u64 = 128;
    pub const QUEUE_PAIR: u64 = 3072;
    pub const UAR: u64 = 192;
    pub const ENGINE: u64 = 8192;
}

/// The alignment of the whole, and of each table.
const ALIGNMENT: u64 = 128;

impl TableSizes {
    /// Bytes of the tables of so many engines, and of the engines themselves.
    pub const fn bytes(&self, engines: u32) -> u64 {
        self.shared_bytes() + engines as u64 * self.bytes_of_one()
    }

    /// What all engines share, which comes first.
    const fn shared_bytes(&self) -> u64 {
        table(self.regions, entry::REVOKED)
    }

    const fn bytes_of_one(&self) -> u64 {
        entry::ENGINE
            + table(self.protection_domains, entry::PROTECTION_DOMAIN)
            + table(self.regions, entry::REGION)
            + table(self.completion_queues, entry::COMPLETION_QUEUE)
            + table(self.queue_pairs, entry::QUEUE_PAIR)
            + table(self.queue_pairs, entry::UAR)
    }
}

/// Bytes of a table.
const fn table(entries: u32, bytes: u64) -> u64 {
    (entries as u64 * bytes).next_multiple_of(ALIGNMENT)
}

/// Where the engine goes, and its tables.
pub(super) struct Tables<'t> {
    pub engine: &'t mut MaybeUninit<ResidentEngine<'t>>,
    pub storage: Storage<'t>,
}

/// Gives out one piece of the memory after another.
struct Pieces {
    next: *mut u8,
}

impl Pieces {
    /// A table of fresh entries.
    ///
    /// # Safety
    ///
    /// `entries` entries of `bytes` bytes must be left, for as long as `'t`.
    unsafe fn table<'t, T: Default>(&mut self, entries: u32, bytes: u64) -> &'t mut [T] {
        let first = self.next.cast::<T>();
        for index in 0..entries as usize {
            // SAFETY: the caller vouches for the room, and an entry is no larger than `bytes`.
            unsafe { first.add(index).write(T::default()) };
        }
        // SAFETY: as above; a piece lies in one allocation, perhaps at its very end.
        self.next = unsafe { self.next.add(table(entries, bytes) as usize) };
        // SAFETY: just written; no other piece has these bytes.
        unsafe { slice::from_raw_parts_mut(first, entries as usize) }
    }
}

/// Fills the memory of engine number `engine` of `engines` with fresh tables.
///
/// # Safety
///
/// [`TableSizes::bytes`] bytes from `memory` must be valid for as long as `'t`, unless the address is
/// null or not aligned, which is refused. Nobody else may touch them, but for the other engines, each
/// of which has a number of its own. None of them works before all are built.
pub(super) unsafe fn build<'t>(
    memory: *mut u8,
    sizes: &TableSizes,
    (engine, engines): (u32, u32),
) -> Result<Tables<'t>, Refused> {
    const {
        assert!(size_of::<ResidentEngine<'_>>() as u64 <= entry::ENGINE);
        assert!(size_of::<ProtectionDomainSlot>() as u64 <= entry::PROTECTION_DOMAIN);
        assert!(size_of::<RegionSlot>() as u64 <= entry::REGION);
        assert!(size_of::<CompletionQueueSlot>() as u64 <= entry::COMPLETION_QUEUE);
        assert!(size_of::<QueuePairSlot>() as u64 <= entry::QUEUE_PAIR);
        assert!(size_of::<UarSlot>() as u64 <= entry::UAR);
        assert!(size_of::<RevokedKey>() as u64 == entry::REVOKED);
        assert!(align_of::<ResidentEngine<'_>>() as u64 <= ALIGNMENT);
        assert!(align_of::<QueuePairSlot>() as u64 <= ALIGNMENT);
    }
    if memory.is_null() || !(memory as u64).is_multiple_of(ALIGNMENT) {
        let needed = sizes.bytes(engines) as u32;
        return Err(Refused::TooSmall { needed });
    }
    // SAFETY: the caller vouches for the memory, of which the engine takes the first piece and the
    // tables, in the order and the sizes of `bytes`, the others.
    unsafe {
        let words = memory.cast::<u32>();
        for index in 0..sizes.regions as usize {
            // All engines store the same, before any of them looks.
            AtomicU32::from_ptr(words.add(index)).store(0, Ordering::Relaxed);
        }
        let before = sizes.shared_bytes() + u64::from(engine) * sizes.bytes_of_one();
        let memory = memory.add(before as usize);
        let mut pieces = Pieces {
            next: memory.add(entry::ENGINE as usize),
        };
        Ok(Tables {
            engine: &mut *memory.cast(),
            storage: Storage {
                protection_domains: pieces
                    .table(sizes.protection_domains, entry::PROTECTION_DOMAIN),
                regions: pieces.table(sizes.regions, entry::REGION),
                revoked: slice::from_raw_parts(words.cast(), sizes.regions as usize),
                completion_queues: pieces.table(sizes.completion_queues, entry::COMPLETION_QUEUE),
                queue_pairs: pieces.table(sizes.queue_pairs, entry::QUEUE_PAIR),
                uars: pieces.table(sizes.queue_pairs, entry::UAR),
            },
        })
    }
}
