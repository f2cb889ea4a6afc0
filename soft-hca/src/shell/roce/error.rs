//! Why an HCA does not listen, or does not reach another.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why an HCA does not listen for RoCE packets, or does not reach another HCA by them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RoceError {
    /// Another socket has the address and port.
    #[error(
        "another socket has {0}; Linux's RoCE modules (rdma_rxe, for example) take UDP port 4791, too"
    )]
    AddressTaken(SocketAddr),
    /// No interface of this machine has the address.
    #[error("no interface of this machine has the address {0}; see `ip address`")]
    NoSuchAddress(SocketAddr),
    /// The address names no single machine, or no port.
    #[error("{0} is not the address and port of one machine")]
    NotOneMachine(SocketAddr),
    /// The HCA listens at an address of this kind already.
    #[error("the HCA listens at {0} already; one address of IPv4 and one of IPv6 are possible")]
    ListensAlready(SocketAddr),
    /// The HCA does not listen at an address of this kind.
    #[error("the HCA listens at no address from which it could reach {0}")]
    NotListening(SocketAddr),
    /// No route leads there.
    #[error("no route leads to {peer}: {source}; see `ip route get`")]
    Unreachable {
        /// Where the packets would go.
        peer: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The way there does not carry the smallest packets of RoCE.
    #[error("the way to {peer} carries IP packets of {mtu} bytes; RoCE needs {least}")]
    MtuTooSmall {
        /// Where the packets would go.
        peer: SocketAddr,
        /// The longest IP packet on the way, in bytes.
        mtu: u32,
        /// The longest IP packet of a path MTU of 256, in bytes.
        least: u32,
    },
    /// The file for a capture could not be made.
    #[error("no capture to {}: {source}", .path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused something else.
    #[error("{step} at {address}: {source}")]
    System {
        /// What was tried.
        step: &'static str,
        /// Where.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}
