//! How a GASPI program is made, and which numbers are refused.

use std::time::Duration;

use super::GaspiError;
use warpbell_host_init::{Access, QueuePairConfig};

/// The most ranks of a program. Each has a queue pair for each queue to each other.
pub const MAX_RANKS: u32 = 1024;

/// The most queues of a rank, places for segments, and notifications of a segment.
const MAX_QUEUES: u32 = 1024;
const MAX_SEGMENTS: u32 = u64::BITS;
const MAX_NOTIFICATIONS: u32 = 1 << 20;

/// How a GASPI program is made. Change what matters, take the rest from `default()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GaspiConfig {
    /// Queues of each rank, each a queue pair for each other rank. A queue that a block has to itself is the
    /// quickest.
    pub queues: u32,
    /// Places for segments, 64 at most.
    pub segments: u32,
    /// Notifications of each segment, 8 bytes each, for all places from the beginning on.
    pub notifications: u32,
    /// Each rank has a connection to itself, too, which takes two queue pairs more for each queue.
    pub to_self: bool,
    /// When `GASPI_BLOCK` gives up, because a kernel that waits for ever takes its GPU along.
    pub block_limit: Duration,
    /// How the queue pairs are made: depth, completions, doorbells, longest transfer, and where queues and segments
    /// lie. They have no receive queue, whatever stands there.
    pub queue_pair: QueuePairConfig,
}

impl Default for GaspiConfig {
    /// One queue of 128 blocks; 8 segments of 4,096 notifications; without connections to the own rank; a minute; in
    /// host memory.
    fn default() -> Self {
        Self {
            queues: 1,
            segments: 8,
            notifications: 4096,
            to_self: false,
            block_limit: Duration::from_secs(60),
            queue_pair: QueuePairConfig::default(),
        }
    }
}

impl GaspiConfig {
    /// Refuses numbers that make no program of so many ranks.
    pub(super) fn check(&self, ranks: usize) -> Result<(), GaspiError> {
        if ranks == 0 || ranks > MAX_RANKS as usize {
            return Err(GaspiError::Ranks {
                ranks,
                limit: MAX_RANKS,
            });
        }
        for (what, value, limit) in [
            ("queues of a rank", self.queues, MAX_QUEUES),
            ("places for segments", self.segments, MAX_SEGMENTS),
            (
                "notifications of a segment",
                self.notifications,
                MAX_NOTIFICATIONS,
            ),
        ] {
            if value == 0 || value > limit {
                return Err(GaspiError::Number { what, value, limit });
            }
        }
        // A group of WQEs with one doorbell may take half of the ring, and `write_notify` posts two.
        match self.queue_pair.send_depth {
            depth @ ..4 => Err(GaspiError::TooShallow { depth }),
            _ => Ok(()),
        }
    }

    /// How a queue pair is made.
    pub(super) fn queue_pair(&self) -> QueuePairConfig {
        QueuePairConfig {
            receive_depth: 0,
            // What the other ranks may do to segments.
            access: self.queue_pair.access | Access::REMOTE_WRITE | Access::REMOTE_READ,
            ..self.queue_pair
        }
    }

    /// Milliseconds after which blocking ends: 1 at least.
    pub(super) fn block_ms(&self) -> u32 {
        let milliseconds = self.block_limit.as_millis();
        u32::try_from(milliseconds).unwrap_or(u32::MAX).max(1)
    }
}
