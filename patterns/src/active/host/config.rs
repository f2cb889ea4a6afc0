//! How active messages are set up, and which numbers are refused.

use crate::active::{MAX_BUFFER, MAX_FUNCTION, MAX_RESULT, MAX_SLOTS};

use super::ActiveError;
use warpbell_host_init::{Access, QueuePairConfig};

/// The most lanes.
const MAX_LANES: u32 = 1 << 16;

/// The least depth of a lane's queue: a message is four WQEs at most, and WQEs under one doorbell may take half of the
/// ring.
const LEAST_DEPTH: u32 = 8;

/// How active messages are set up. Change what matters, take the rest from `default()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveConfig {
    /// Lanes, each of them one thread's, warp's or block's at either end. Each takes two queue pairs.
    pub lanes: u32,
    /// Slots of each lane, a power of two: messages that are sent and not answered at most.
    pub slots: u32,
    /// Places for functions, from 0.
    pub functions: u32,
    /// Places for the target's buffers, from 0.
    pub buffers: u32,
    /// The longest result that a task may answer with beside its value, in bytes, up to [`MAX_RESULT`]; with 0 there
    /// are none, and a slot has an answer of 8 bytes and nothing else.
    pub max_result: u32,
    /// How the queue pairs are made: depth, completions, doorbells, longest payload, and where queues, slots, answers
    /// and buffers lie. They have no receive queue, whatever stands there.
    pub queue_pair: QueuePairConfig,
}

impl Default for ActiveConfig {
    /// One lane of 64 slots, 64 functions, 16 buffers, no results, in host memory.
    fn default() -> Self {
        Self {
            lanes: 1,
            slots: 64,
            functions: 64,
            buffers: 16,
            max_result: 0,
            queue_pair: QueuePairConfig::default(),
        }
    }
}

impl ActiveConfig {
    /// Refuses numbers that make no lanes.
    pub(super) fn check(&self) -> Result<(), ActiveError> {
        for (what, value, limit) in [
            ("lanes", self.lanes, MAX_LANES),
            ("slots of a lane", self.slots, MAX_SLOTS),
            ("places for functions", self.functions, MAX_FUNCTION + 1),
            ("places for buffers", self.buffers, MAX_BUFFER + 1),
        ] {
            if value == 0 || value > limit {
                return Err(ActiveError::Number { what, value, limit });
            }
        }
        let limit = MAX_RESULT.min(self.queue_pair.max_message);
        if self.max_result > limit {
            return Err(ActiveError::Result {
                bytes: self.max_result,
                limit,
            });
        }
        if !self.slots.is_power_of_two() {
            return Err(ActiveError::Slots { slots: self.slots });
        }
        match self.queue_pair.send_depth {
            depth @ ..LEAST_DEPTH => Err(ActiveError::TooShallow {
                depth,
                least: LEAST_DEPTH,
            }),
            _ => Ok(()),
        }
    }

    /// Where a lane is among all.
    pub(super) fn place_of(&self, lane: u32) -> Result<usize, ActiveError> {
        let lanes = self.lanes;
        match lane < lanes {
            true => Ok(lane as usize),
            false => Err(ActiveError::NoSuchLane { lane, lanes }),
        }
    }

    /// How a queue pair is made.
    pub(super) fn queue_pair(&self) -> QueuePairConfig {
        QueuePairConfig {
            receive_depth: 0,
            // Messages, answers and results are writes.
            access: self.queue_pair.access | Access::REMOTE_WRITE,
            ..self.queue_pair
        }
    }
}
