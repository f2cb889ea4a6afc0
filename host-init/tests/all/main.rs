//! The CUDA side under a driver that is a fake, traces, and what `#[warpbell::kernel]` takes and refuses. `cust.rs` has a binary
//! of its own: it links with that driver.

mod accepted;
mod fake;
mod gpu;
mod graph;
mod l2;
mod refused;
mod stream;
mod trace;
