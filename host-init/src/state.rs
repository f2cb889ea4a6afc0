//! States of a queue pair, and what its ends tell each other.
//!
//! ```
//! use warpbell_host_init::{Node, QueuePairConfig, State};
//!
//! let pair = Node::cpu().domain()?.queue_pair(&QueuePairConfig::default())?;
//! assert_eq!(pair.state()?, State::Reset);
//! println!("the other end needs: {:?}", pair.endpoint());
//! # Ok::<(), warpbell_host_init::Error>(())
//! ```

use std::fmt;

use mlx5_wqe::{Syndrome, VendorCode, WqeIndex};
use serde::{Deserialize, Serialize};

/// The states of a queue pair.
///
/// ```text
/// Reset ──to_init──▶ Init ──to_ready_to_receive──▶ ReadyToReceive ──to_ready_to_send──▶ ReadyToSend
///   ▲                  │                                │                                   │
///   │                  └────────────── to_error, or an error ──────────────▶ Error ◀────────┘
///   └───────────────────────────── reset, from every state
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Does nothing.
    Reset,
    /// Receives may be posted.
    Init,
    /// Answers the other end's requests.
    ReadyToReceive,
    /// Executes requests too.
    ReadyToSend,
    /// Flushes every work request.
    Error,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::ReadyToReceive => "RTR",
            Self::ReadyToSend => "RTS",
            Self::Error => "ERROR",
        })
    }
}

/// The address of a device among all devices that can reach each other: 16 bytes
/// in the order of the wire, as in an InfiniBand GRH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Gid(pub [u8; 16]);

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::net::Ipv6Addr::from(self.0).fmt(f)
    }
}

/// What the other end needs to know of a card's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardPort {
    /// What kind of packets carry the GID.
    pub kind: GidType,
    /// Its address within the subnet; 0 on Ethernet.
    pub lid: u16,
    /// The most bytes of a packet: 256 to 4,096. Both ends use the smaller one of theirs.
    pub mtu: u32,
    /// Its partition key.
    pub partition: u16,
    /// Reads and atomics that a queue pair may have under way at this end. The other one answers no fewer, or fewer are
    /// under way.
    pub reads_asked: u16,
    /// Reads and atomics under way that a queue pair answers at this end.
    pub reads_answered: u16,
}

/// What kind of packets carry a GID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GidType {
    /// InfiniBand's.
    InfiniBand,
    /// RoCE version 1: Ethernet frames that no router forwards.
    RoceV1,
    /// RoCE version 2: UDP over IPv4 or IPv6.
    RoceV2,
}

impl fmt::Display for GidType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InfiniBand => "InfiniBand",
            Self::RoceV1 => "RoCE v1",
            Self::RoceV2 => "RoCE v2",
        })
    }
}

/// What the other end needs to know of a queue pair to connect to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// The device.
    pub gid: Gid,
    /// Number of the queue pair, 24 bits.
    pub qpn: u32,
    /// Sequence number of the first packet that it sends, 24 bits.
    pub psn: u32,
    /// What a card's port adds; none of a software HCA.
    pub card: Option<CardPort>,
}

/// The first error of a queue pair, as its device saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{syndrome}, {vendor}, {place}")]
pub struct NicError {
    /// What kind of error it is.
    pub syndrome: Syndrome,
    /// The vendor's finer code.
    pub vendor: VendorCode,
    /// Where it struck.
    pub place: ErrorPlace,
}

/// Where a queue pair's first error struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorPlace {
    /// At this WQE of the send queue.
    Send(WqeIndex),
    /// At this WQE of the receive queue.
    Receive(WqeIndex),
    /// At a completion queue, which overran. It takes no completion any more, so
    /// that a kernel only sees its deadline pass: make the completion queue
    /// deeper, or let it ignore overruns.
    CompletionQueue,
    /// At the other end, or by a command of the host.
    Elsewhere,
}

impl fmt::Display for ErrorPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send(wqe) => write!(f, "at send WQE {wqe}"),
            Self::Receive(wqe) => write!(f, "at receive WQE {wqe}"),
            Self::CompletionQueue => f.write_str(
                "because a completion queue overran: make it deeper, or let it ignore overruns",
            ),
            Self::Elsewhere => f.write_str("caused by the other end or by the host"),
        }
    }
}
