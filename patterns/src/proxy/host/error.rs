//! What is refused when a proxy is set up.

use warpbell_host_init::Placement;
use warpbell_host_init::cores::CoreError;

use crate::proxy::Unfit;

/// Why a step of a proxy's set-up failed. Nothing of it has taken effect, unless the variant says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// No threads, or too many.
    #[error("{threads} threads; a proxy has 1 to {limit}")]
    Threads {
        /// How many were asked for.
        threads: usize,
        /// The most.
        limit: usize,
    },
    /// The system gives no thread.
    #[error("the system gives no thread for a proxy: {0}")]
    Thread(#[from] std::io::Error),
    /// A thread that cannot stay on its core.
    #[error("a thread of a proxy: {0}")]
    Core(#[from] CoreError),
    /// A queue pair whose send queue kernels have used.
    #[error("kernels have posted to queue pair {qpn:#x}; call `reset` and connect it again")]
    Used {
        /// Which queue pair.
        qpn: u32,
    },
    /// A queue pair that no proxy can serve.
    #[error("no proxy serves queue pair {qpn:#x}: {why}")]
    Unfit {
        /// Which queue pair.
        qpn: u32,
        /// Why.
        why: Unfit,
    },
    /// More queues than there are lines for.
    #[error("there are producer's lines for {queues} queues; make them for more")]
    NoLine {
        /// Queues that have some.
        queues: usize,
    },
    /// Lines that kernels of the queue do not have for themselves.
    #[error(
        "the producer's lines are in {placement}, and the queue's kernels have theirs in {wanted}; make them there"
    )]
    LinesElsewhere {
        /// Where they are.
        placement: Placement,
        /// Where they should be.
        wanted: Placement,
    },
    /// The proxy's thread does not let go of the queue. It keeps the queue pair.
    #[error("the proxy's thread does not let go of queue pair {qpn:#x}, which is lost to it")]
    Stuck {
        /// Which queue pair.
        qpn: u32,
    },
}
