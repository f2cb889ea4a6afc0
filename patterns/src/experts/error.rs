//! Why a call did not succeed.

use crate::team;
use crate::together::error_words;
use warpbell::QueueError;

/// Why a call did not succeed. All threads of the grid get the same error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The grid has more blocks than the member has channels.
    #[error("the grid's blocks need more channels than there are, from channel {channel} on")]
    NoChannel {
        /// Where they begin.
        channel: u32,
    },
    /// Another grid has the exchange open.
    #[error("the exchange is open elsewhere")]
    InUse,
    /// The handle is of another version or for another processor.
    #[error("the handle leads to no queue of this processor")]
    Handle,
    /// The grid's blocks are not whole warps.
    #[error("blocks of {threads} threads; the exchange wants a multiple of 32")]
    Threads {
        /// Threads of a block.
        threads: u32,
    },
    /// The exchange was set up for the other mode.
    #[error("the exchange was set up for the other mode")]
    Mode,
    /// Another call is due: each round is `dispatch_begin`, `dispatch_finish`, `combine_begin`, `combine_finish`.
    #[error("another call is due")]
    Order,
    /// Not all blocks of the grid came to the call in time.
    #[error("not all blocks of the grid came to the call in time")]
    Blocks,
    /// More tokens than a member may have.
    #[error("{tokens} tokens are more than the exchange was set up for")]
    Tokens {
        /// How many.
        tokens: u32,
    },
    /// There is no such expert.
    #[error("there is no expert {expert}")]
    Expert {
        /// The number.
        expert: u32,
    },
    /// More tokens for an expert than it has slots for, where the exchange refuses that.
    #[error("more tokens for expert {expert} than its capacity")]
    Overflow {
        /// The number.
        expert: u32,
    },
    /// A queue to a member has failed.
    #[error("a queue has failed: {0}")]
    Failed(QueueError),
}

error_words! {
    Error:
    1 => NoChannel { channel },
    2 => InUse,
    3 => Handle,
    4 => Threads { threads },
    5 => Order,
    6 => Blocks,
    7 => Tokens { tokens },
    8 => Expert { expert },
    9 => Overflow { expert },
    10 => Mode,
}

impl From<team::Error> for Error {
    #[inline(always)]
    fn from(error: team::Error) -> Self {
        match error {
            team::Error::NoChannel { channel } => Self::NoChannel { channel },
            team::Error::InUse => Self::InUse,
            team::Error::Blocks => Self::Blocks,
            team::Error::Failed(error) => Self::Failed(error),
            // Opening and meeting give no other.
            _ => Self::Handle,
        }
    }
}
