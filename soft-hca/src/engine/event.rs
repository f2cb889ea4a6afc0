//! What an engine reports beside completions.

use mlx5_wqe::{CqNumber, QpNumber};

/// An event, given by [`Engine::poll_event`](super::Engine::poll_event).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A completion came to an armed completion queue, which is no longer armed.
    Completion(CqNumber),
    /// A completion queue was full when a CQE came: no CQE will come to it any more, and every
    /// queue pair that uses it goes to error.
    Overrun(CqNumber),
    /// A queue pair went to error; [`Engine::query_queue_pair`](super::Engine::query_queue_pair)
    /// names its first error.
    QueuePairFatal(QpNumber),
}
