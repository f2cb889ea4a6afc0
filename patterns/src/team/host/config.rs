//! How a team is set up, and which numbers are refused.

use super::TeamError;
use crate::team::Layout;
use warpbell_host_init::{Access, QueuePairConfig};

/// The most members of a team, and channels of a member.
pub const MAX_MEMBERS: usize = 1024;
const MAX_CHANNELS: usize = 4096;

/// How a team is set up: for all its members alike. Change what matters, take the rest from `default()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TeamConfig {
    /// Channels of each member: one for each warp, block, or block of a grid that has calls under way at the same time.
    pub channels: u32,
    /// Bytes of each window that are the callers'.
    pub bytes: usize,
    /// Bytes of each channel for what comes to be summed.
    pub scratch_bytes: usize,
    /// How the queue pairs are made, one of each channel to each other member. They have no receive queue, whatever stands
    /// there.
    pub queue_pair: QueuePairConfig,
}

impl Default for TeamConfig {
    /// One channel with 64 KiB of scratch, 1 MiB for the callers, and queues of 128 blocks.
    fn default() -> Self {
        Self {
            channels: 1,
            bytes: 1 << 20,
            scratch_bytes: 1 << 16,
            queue_pair: QueuePairConfig::default(),
        }
    }
}

impl TeamConfig {
    /// Where things lie in the windows of so many members; refuses numbers that make no team.
    pub(super) fn layout(&self, members: usize) -> Result<Layout, TeamError> {
        for (what, value, limit) in [
            ("members of a team", members, MAX_MEMBERS),
            ("channels of a member", self.channels as usize, MAX_CHANNELS),
        ] {
            if value == 0 || value > limit {
                return Err(TeamError::Number { what, value, limit });
            }
        }
        for (what, bytes) in [("window", self.bytes), ("scratch", self.scratch_bytes)] {
            if !bytes.is_multiple_of(8) {
                return Err(TeamError::Uneven { what, bytes });
            }
        }
        // A group of WQEs with one doorbell may take half of the ring, and there are groups of two.
        if let depth @ ..4 = self.queue_pair.send_depth {
            return Err(TeamError::TooShallow { depth });
        }
        let words = [self.bytes, self.scratch_bytes].map(|bytes| bytes as u64 / 8);
        Layout::new(members as u32, self.channels, words[0], words[1]).ok_or(TeamError::TooLarge)
    }

    /// What the other members may do with a window.
    pub(super) const ACCESS: Access = Access::all();

    pub(super) fn queue_pair(&self) -> QueuePairConfig {
        QueuePairConfig {
            receive_depth: 0,
            access: self.queue_pair.access | Self::ACCESS,
            ..self.queue_pair
        }
    }
}
