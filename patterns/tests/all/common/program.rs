//! A GASPI program as rank 0 sees it: send queues in plain memory, and the test in the place of all others.

use warpbell::{CompletionKind, FenceReach, SendQueueHandle, Word64};
use warpbell_patterns::gaspi::{GaspiHandle, GaspiParts, NotificationEntry, SegmentEntry};

use super::Rig;

/// Segments 0 and 63 are there, the latter without bytes; a model has no room for its notifications.
const SEGMENTS: u64 = if cfg!(loom) { 1 } else { 1 << 63 | 1 };
const PLACES: u32 = if cfg!(loom) { 1 } else { 64 };
/// Bytes of segment 0 at rank 0; at rank r there are 64 more for each r.
pub const BYTES: u64 = 256;
/// Notifications of a segment.
pub const NOTIFICATIONS: u32 = 10;
pub const MAX_TRANSFER: u32 = 128;
/// Milliseconds.
pub const BLOCK_MS: u32 = 20;

/// Rank 0's memory and queues.
pub struct Program {
    ranks: u32,
    /// At `queue * ranks + rank`.
    pub rigs: Vec<Rig>,
    pub words: Vec<Word64>,
    entries: Vec<SegmentEntry>,
    notifications: Vec<NotificationEntry>,
}

/// What a handle points to.
pub struct Tables<'p> {
    program: &'p Program,
    queues: Vec<SendQueueHandle<'p>>,
}

/// Rank `rank`'s segment 0.
pub fn segment_of(rank: u32) -> SegmentEntry {
    SegmentEntry {
        address: 0x10_0000 * u64::from(rank),
        size: BYTES + 64 * u64::from(rank),
        local_key: 0,
        remote_key: 100 + rank,
    }
}

/// Where rank `rank` has its notifications.
pub fn notifications_of(rank: u32) -> NotificationEntry {
    NotificationEntry {
        address: 0x10_0000 * u64::from(rank) + 0x8000,
        remote_key: 200 + rank,
        unused: 0,
    }
}

/// Rank 0's own.
pub const LOCAL_KEY: u32 = 77;
pub const LOCAL_ADDRESS: u64 = 0x4000;

impl Program {
    pub fn new(ranks: u32, queues: u32, depth_log2: u8) -> Self {
        let rigs = (0..queues * ranks).map(|_| Rig::new(depth_log2, CompletionKind::Collapsed));
        let words: Vec<_> = (0..PLACES * NOTIFICATIONS)
            .map(|_| Word64::new(0))
            .collect();
        let own = SegmentEntry {
            address: LOCAL_ADDRESS,
            size: BYTES,
            local_key: LOCAL_KEY,
            remote_key: 100,
        };
        let mut entries = vec![SegmentEntry::default(); (PLACES * ranks) as usize];
        for (rank, entry) in (0..ranks).zip(&mut entries) {
            *entry = if rank == 0 { own } else { segment_of(rank) };
        }
        Self {
            ranks,
            rigs: rigs.collect(),
            words,
            entries,
            notifications: (0..ranks).map(notifications_of).collect(),
        }
    }

    pub fn tables(&self) -> Tables<'_> {
        let places = (0..self.ranks).cycle();
        let queues = self.rigs.iter().zip(places).map(|(rig, rank)| match rank {
            0 => SendQueueHandle::none(),
            _ => rig.handle(),
        });
        Tables {
            program: self,
            queues: queues.collect(),
        }
    }
}

impl Tables<'_> {
    pub fn handle(&self) -> GaspiHandle<'_> {
        let ranks = self.program.ranks;
        let parts = GaspiParts {
            rank: 0,
            ranks,
            queues: self.queues.len() as u32 / ranks,
            segments: SEGMENTS,
            notifications: NOTIFICATIONS,
            transfer_size_max: MAX_TRANSFER,
            block_ms: BLOCK_MS,
            reach: FenceReach::System,
            send_queues: self.queues.as_ptr(),
            segment_entries: self.program.entries.as_ptr(),
            notification_entries: self.program.notifications.as_ptr(),
            notification_words: self.program.words.as_ptr(),
        };
        // SAFETY: the tables are vectors of these lengths, the words are atomics, and all of it lives as long
        // as `self`.
        unsafe { GaspiHandle::new(parts) }
    }
}
