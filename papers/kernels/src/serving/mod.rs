//! Pictures that come over the network, are made larger, and go back: a server that drives the network itself, and stays or is
//! launched for each; the network's computation alone for a host that drives; and the client of all. From a paper on
//! GPU-driven RDMA for inference serving, section 5.2.

mod client;
mod message;
mod server;

use warpbell::{Deadline, kernel};

use crate::meeting::met_before;
use crate::network::Network;
use warpbell_kernels::outcome::Outcome;

pub use client::{GREY_LEVEL, ServingClient, TOLERANCE, is_near, serving_client};
pub use message::Message;
pub use server::{Copied, ServingServer, serving_server};

/// What a signal says behind the last request.
pub const END: u64 = u64::MAX;

/// The network alone.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Inference<'a> {
    /// What computes.
    pub network: Network,
    /// Microseconds that each wait may take.
    pub limit_us: u64,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Makes a picture larger.
///
/// # Safety
/// The network's places are what [`Network`] asks for.
///
/// ```
/// use warpbell_paper_kernels::serving::{Inference, serving_inference};
/// let known: warpbell::Entry<unsafe fn(Inference<'static>)> = serving_inference::ENTRY;
/// ```
///
/// ```compile_fail,E0308
/// use warpbell_paper_kernels::serving::{Inference, serving_inference};
/// let known: warpbell::Entry<fn(Inference<'static>)> = serving_inference::ENTRY;
/// ```
#[kernel]
pub unsafe fn serving_inference(p: Inference<'_>) {
    let mut met = met_before(p.network.arrivals);
    // SAFETY: the caller's promise.
    let ended = unsafe { p.network.run(&mut met, Deadline::after_us(p.limit_us)) };
    // Not all of it in the closure: Rust-CUDA then leaves the closure a function, which takes `p` by local memory.
    p.outcome.record(|| Ok(ended?));
}
