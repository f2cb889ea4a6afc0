//! What is refused when triggered operations are set up.

use warpbell::trigger::{Error, Tag};

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
    /// A queue whose completions do not tell of its newest operation alone.
    #[error(
        "the queue pair of tag {tag} has a ring of completions; make it with Completions::Collapsed"
    )]
    NotCollapsed {
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
    /// What kernels would be told as well.
    #[error("the operation of tag {tag} was not registered: {error}")]
    Refused {
        /// The tag.
        tag: Tag,
        /// Why.
        error: Error,
    },
}
