//! Pictures that come over the network, are put through a network of layers, and whose answers go back: a server that
//! drives the network itself, as a kernel that stays or as kernels of a graph, and the client of all. From a paper on
//! GPU-driven RDMA for inference serving, section 5.2 and listing 1.

mod client;
mod message;
mod server;

pub use client::{GREY_LEVEL, ServingClient, TOLERANCE, is_near, serving_client};
pub use message::Message;
pub use server::{
    Copied, ServingServer, serving_process, serving_send, serving_server, serving_wait,
};

/// What a signal says behind the last request.
pub const END: u64 = u64::MAX;
