//! The CUDA side under a driver that is a fake. `cust.rs` has a binary of its own: it links with that driver.

mod fake;
mod gpu;
mod graph;
