//! How an exchange is set up, and which numbers are refused.

use super::ExpertsError;
use crate::experts::{Format, Layout, Mode, Overflow, Shape};
use crate::team::host::TeamConfig;
use warpbell_host_init::QueuePairConfig;

/// Values of a token are a multiple of this: two blocks of values that have a scale.
const UNIT: u32 = 256;

/// Requests that a warp posts under one doorbell; twice as many are a ring's least.
const LEAST_DEPTH: u32 = 64;

/// How an exchange is set up: for all its members alike. Change what matters, take the rest from `default()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertsConfig {
    /// Experts of all members: up to 1,024, and a multiple of the members.
    pub experts: u32,
    /// Values of a token: a multiple of 256, up to 8,192.
    pub hidden: u32,
    /// Experts that a token goes to at most: up to 32, and no more than there are.
    pub top_k: u32,
    /// Tokens of a member at most: up to 65,536.
    pub tokens: u32,
    /// Tokens of one member for one expert at most: up to the choices of all tokens.
    pub capacity: u32,
    /// How values travel to the experts.
    pub format: Format,
    /// What becomes of tokens beyond the capacity.
    pub overflow: Overflow,
    /// How tokens travel to the experts, and outputs back.
    pub mode: Mode,
    /// Blocks of a grid at most: each has a queue pair to each other member.
    pub blocks: u32,
    /// How the queue pairs are made. Their depth is 64 or more.
    pub queue_pair: QueuePairConfig,
}

impl Default for ExpertsConfig {
    /// 8 experts; 128 tokens of 1,024 values in bf16, each for up to 2 experts; room for all of them at each expert; the
    /// low-latency mode; one block, and queues of 128 requests.
    fn default() -> Self {
        Self {
            experts: 8,
            hidden: 1024,
            top_k: 2,
            tokens: 128,
            capacity: 128,
            format: Format::Bf16,
            overflow: Overflow::Drop,
            mode: Mode::LowLatency,
            blocks: 1,
            queue_pair: QueuePairConfig::default(),
        }
    }
}

impl ExpertsConfig {
    /// Where things lie in the windows of so many members; refuses numbers that make no exchange.
    ///
    /// # Errors
    /// [`ExpertsError`]; [`team_of`](crate::team::host::team_of) refuses a number of members or blocks.
    pub fn layout(&self, members: usize) -> Result<Layout, ExpertsError> {
        for (what, value, limit) in [
            ("experts", self.experts, 1024),
            ("values of a token", self.hidden, 8192),
            ("experts of a token", self.top_k, self.experts.min(32)),
            ("tokens of a member", self.tokens, 1 << 16),
            (
                "capacity of an expert",
                self.capacity,
                self.tokens.saturating_mul(self.top_k),
            ),
        ] {
            if value == 0 || value > limit {
                return Err(ExpertsError::Number { what, value, limit });
            }
        }
        let members = u32::try_from(members).unwrap_or(u32::MAX).max(1);
        for (what, value, unit) in [
            ("experts", self.experts, members),
            ("values of a token", self.hidden, UNIT),
        ] {
            if !value.is_multiple_of(unit) {
                return Err(ExpertsError::Uneven { what, value, unit });
            }
        }
        if let depth @ ..LEAST_DEPTH = self.queue_pair.send_depth {
            return Err(ExpertsError::TooShallow { depth });
        }
        let shape = Shape {
            ranks: members,
            local: self.experts / members,
            hidden: self.hidden,
            top_k: self.top_k,
            tokens: self.tokens,
            capacity: self.capacity,
            format: self.format,
            overflow: self.overflow,
            mode: self.mode,
        };
        let layout = Layout::new(shape);
        // All rows of an expert travel back in one message, unless pieces do.
        let (what, bytes) = match self.mode {
            Mode::LowLatency => (
                "the rows of an expert",
                u64::from(self.capacity) * 2 * u64::from(self.hidden),
            ),
            Mode::Throughput => ("32 packed tokens", layout.longest_piece()),
        };
        let limit = self.queue_pair.max_message;
        if bytes > limit.into() {
            return Err(ExpertsError::TooLong { what, bytes, limit });
        }
        Ok(layout)
    }

    /// The team in whose windows the exchange lies.
    pub(super) fn team(&self, layout: &Layout) -> TeamConfig {
        TeamConfig {
            channels: self.blocks,
            bytes: 8 * layout.words() as usize,
            scratch_bytes: 0,
            queue_pair: self.queue_pair,
        }
    }
}
