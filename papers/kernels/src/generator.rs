//! The generator's stream of writes.

use warpbell::kernel;
use warpbell::wqe::Wqe;
use warpbell_kernels::bandwidth::{Stream, stream};

/// Writes all messages, and waits for the last one.
#[kernel]
pub fn generator_stream(p: Stream<'_>) {
    stream(&p, Wqe::write);
}
