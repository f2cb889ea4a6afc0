//! What is refused when triggered operations are set up.

use crate::trigger::{Error, Tag};

/// Why a step of triggered operations' set-up was refused. Nothing of it has taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TriggerError {
    /// No tags, or too many.
    #[error("{tags} tags; a table has 1 to {limit}")]
    Tags {
        /// How many were asked for.
        tags: usize,
        /// The most.
        limit: u32,
    },
    /// There is no such tag.
    #[error("there is no tag {tag}; there are {tags}, from 0")]
    NoSuchTag {
        /// The number.
        tag: Tag,
        /// How many there are.
        tags: u32,
    },
    /// A queue that has not a completion for each block.
    #[error(
        "the queue pair of tag {tag} has more or fewer completions than blocks; make it with Completions::ORDINARY"
    )]
    OtherCompletions {
        /// The tag.
        tag: Tag,
    },
    /// A queue that was used before.
    #[error("the queue pair of tag {tag} was used before; reset it and connect it anew")]
    Used {
        /// The tag.
        tag: Tag,
    },
    /// Queues for kernels of different processors.
    #[error("the queue pair of tag {tag} is for other kernels than that of tag 0")]
    Elsewhere {
        /// The tag.
        tag: Tag,
    },
    /// The triggers came before the operation, and the card's doorbell is the kernels' to ring.
    #[error("tag {tag} has its triggers already; let a kernel register the operation")]
    Due {
        /// The tag.
        tag: Tag,
    },
    /// A card's doorbell register that is mapped for a GPU's kernels, where the host has to ring, too.
    #[error(
        "the doorbell of tag {tag} is a card's register, mapped for a GPU's kernels; the host cannot ring it while they run"
    )]
    KernelsDoorbell {
        /// The tag.
        tag: Tag,
    },
    /// An operation of a queue that only kernels' triggers start cannot be started by another.
    #[error(
        "the queue pair of tag {tag} is started by triggers; make it with `managed_send` for an operation that follows another"
    )]
    NotManaged {
        /// The tag.
        tag: Tag,
    },
    /// A queue that may not start others.
    #[error("the queue pair of tag {tag} may start no other; make it with `cross_channel`")]
    NotCrossChannel {
        /// The tag.
        tag: Tag,
    },
    /// Queues of different devices do not start each other.
    #[error("the queue pairs of tags {tag} and {after} belong to different devices")]
    OtherDevice {
        /// The tag.
        tag: Tag,
        /// The one before.
        after: Tag,
    },
    /// There is no operation that has not gone, behind which another could go.
    #[error("tag {tag} has no operation that waits for its triggers; register that first")]
    Gone {
        /// The tag.
        tag: Tag,
    },
    /// A kernel registered operations, whose completions the host has not counted.
    #[error(
        "kernels registered operations of tag {tag}, so that nobody knows its completions' numbers; renew it"
    )]
    Uncounted {
        /// The tag.
        tag: Tag,
    },
    /// What kernels would be told as well.
    #[error("the operation of tag {tag} was not registered: {error}")]
    Refused {
        /// The tag.
        tag: Tag,
        /// Why.
        error: Error,
    },
}
