//! RoCE v2: packets to HCAs of other machines, in UDP datagrams to port 4791.
//!
//! An HCA [listens](SoftHca::listen) at an IP address, and [reaches](SoftHca::reach) others by theirs. Each of them gets a
//! [`WireAddress`] that this HCA alone knows.
//!
//! # What holds
//!
//! - The packets are those of the InfiniBand specification (volume 1, and annex A17), over IPv4 and IPv6. Transports are
//!   RC, UC and UD. [`warpbell_roce`] has the bytes.
//! - The path MTU is the largest of 256 to 4,096 bytes whose packets the interface on the way carries. The two ends of a
//!   connection must agree on one.
//! - Each packet has an invariant CRC, and each packet that comes is checked. Over IPv4 the CRC covers the identification,
//!   which a UDP socket does not see. The CRC must be right for one of all identifications, so that one damaged packet in
//!   65,536 passes.
//! - The sender of a packet is the HCA known at its IP address and UDP port. If none is known there, it is the HCA that was
//!   first made known at this IP address, because other senders use any UDP source port.
//! - All packets of an HCA have one UDP source port, at which it listens, so that routers with several ways choose one way
//!   for all. Cards take a port for each flow. Here the port tells apart the HCAs of one IP address, as ranks on one machine
//!   are: RC packets do not say which queue pair sends. Peers may have any port.
//! - Packets are marked as ECN-capable. A packet that a switch has marked is answered by a congestion notification, one in
//!   50 µs for each queue pair, and notifications slow the queue pair down that they name (DCQCN). A queue pair over RC or
//!   UC that has sent nothing back yet, not even an acknowledgement, does not know whom to notify.
//!   [`RoceOptions::congestion_control`] switches all of that off.
//! - A step looks at 256 datagrams at most that hold nothing for the engine. So a flood of garbage takes a bounded share of
//!   a step. The system drops packets once its buffer is full, those of peers, too.
//! - What cannot be used is counted ([`RoceCounters`]) and dropped: the sender's acknowledgement timer notices.
//!
//! # What does not
//!
//! - Datagrams are not slowed down by themselves: a notification names a queue pair, and slows it down to that HCA.
//! - Whoever can send from the IP address of a peer can forge packets: RoCE has no secret but keys, PSNs and queue pair
//!   numbers.
//! - Atomics of 4 bytes and masked ones have no packets. Over this wire they end in a local QP operation error.
//! - The traffic class and hop limit of an address vector are not used. Of a packet that has come, the socket's library
//!   shows the mark for congestion alone: the traffic class of a global route header has this mark, and its hop limit is 64.

mod addresses;
mod capture;
mod congestion;
mod counters;
mod error;
mod inbox;
mod mapping;
mod mtu;
mod options;
mod outbox;
mod port;
mod route_header;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::prelude::v1::*;
use std::sync::Arc;

use warpbell_roce::{Bth, UDP_PORT};

pub use addresses::{Addresses, AddressesError, LocalAddress, one_network};
pub use counters::RoceCounters;
pub use error::RoceError;
pub use mtu::{LEAST_MTU, path_mtu_of_link};
use port::Port;

use super::hca::{HcaError, SoftHca};
use crate::engine::WireAddress;
use crate::engine::gid::Gid;
use crate::engine::packet::{Header, Packet, Range};
use crate::engine::wire::{Limits, SEND_RANGES};

/// How an HCA listens for RoCE packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoceOptions {
    /// The IP address, which an interface of this machine must have, and the UDP port. With port 0 the system chooses
    /// one.
    pub address: SocketAddr,
    /// The key of the partition. Packets of others are dropped.
    pub partition_key: u16,
    /// A capture file (pcapng) for tshark and wireshark. Received packets are written before they are checked, sent ones
    /// before the system takes them. An existing file is emptied. Over IPv4 the UDP checksum is left out, and the
    /// identification of packets that come is a guess. ECN marks are left out.
    pub capture: Option<PathBuf>,
    /// Whether switches may mark packets where they are congested (ECN), marked packets are answered by congestion
    /// notifications, and notifications slow a queue pair down (DCQCN). True by default.
    pub congestion_control: bool,
}

impl RoceOptions {
    /// At UDP port 4791 of this address, in the default partition.
    pub const fn at(address: IpAddr) -> Self {
        Self {
            address: SocketAddr::new(address, UDP_PORT),
            partition_key: Bth::DEFAULT_PARTITION_KEY,
            capture: None,
            congestion_control: true,
        }
    }
}

impl SoftHca {
    /// Listens for RoCE packets; gives the address with its port. An HCA listens at one address of IPv4 and one of IPv6 at
    /// most, until it stops.
    ///
    /// # Errors
    /// [`HcaError::Roce`] if the address is not this machine's, or is taken; and as [`command`](Self::command).
    pub fn listen(&self, options: RoceOptions) -> Result<SocketAddr, HcaError> {
        Ok(self.with_links(|links| links.listen(options))??)
    }

    /// Makes the HCA at this address known, if it is not yet; gives the number by which queue pairs of this HCA name it.
    /// Nothing is sent: whether anybody answers there, only a request tells.
    ///
    /// # Errors
    /// [`HcaError::Roce`] if this HCA does not listen, or no route leads there; and as [`command`](Self::command).
    pub fn reach(&self, peer: SocketAddr) -> Result<WireAddress, HcaError> {
        Ok(self.with_links(|links| links.reach(peer))??)
    }

    /// What became of RoCE packets so far.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub fn roce_counters(&self) -> Result<RoceCounters, HcaError> {
        self.with_links(|links| links.roce().counters)
    }
}

/// The ways of an HCA to those of other machines.
#[derive(Default)]
pub(super) struct Roce {
    /// One of each kind of address at most.
    ports: Vec<Port>,
    pub counters: RoceCounters,
    /// Whose turn it is to be received from.
    turn: usize,
}

impl Roce {
    /// Listens at an address.
    pub fn listen(
        &mut self,
        own: WireAddress,
        options: RoceOptions,
    ) -> Result<SocketAddr, RoceError> {
        if let Some(port) = self.port_for(options.address) {
            return Err(RoceError::ListensAlready(port.address()));
        }
        let port = Port::open(own, options)?;
        let address = port.address();
        self.ports.push(port);
        Ok(address)
    }

    /// The number of the HCA at this address, if it is known.
    pub fn number(&self, peer: SocketAddr) -> Option<WireAddress> {
        self.ports.iter().find_map(|port| port.number(peer))
    }

    /// Makes the HCA at this address known under a number that no other has.
    pub fn add(&mut self, peer: SocketAddr, number: WireAddress) -> Result<(), RoceError> {
        let ip = peer.ip();
        if ip.is_unspecified() || ip.is_multicast() || peer.port() == 0 {
            return Err(RoceError::NotOneMachine(peer));
        }
        let port = self.port_for(peer).ok_or(RoceError::NotListening(peer))?;
        port.add(peer, number)
    }

    /// The port of the same kind of address.
    fn port_for(&mut self, address: SocketAddr) -> Option<&mut Port> {
        self.ports
            .iter_mut()
            .find(|port| port.address().is_ipv4() == address.is_ipv4())
    }

    /// What a packet to that HCA may hold; none if it is not known.
    pub fn limits(&self, to: WireAddress) -> Option<Limits> {
        let mtu = self.ports.iter().find_map(|port| port.path_mtu(to))?;
        Some(Limits {
            mtu,
            ranges: SEND_RANGES,
            extended_atomics: false,
        })
    }

    /// The number of an HCA with this GID, if one is known.
    pub fn find(&self, gid: Gid) -> Option<WireAddress> {
        self.ports.iter().find_map(|port| port.find(gid))
    }

    /// What the HCA's thread sleeps by.
    pub fn sockets(&self) -> impl Iterator<Item = Arc<UdpSocket>> {
        self.ports.iter().map(Port::socket)
    }

    /// Copies a packet; false if there is no room now. A packet to an HCA that is not known is lost.
    ///
    /// # Safety
    /// The ranges must be readable.
    pub unsafe fn send(&mut self, header: &Header, payload: &[Range]) -> bool {
        let counters = &mut self.counters;
        self.ports
            .iter_mut()
            // SAFETY: the caller's promise is passed on unchanged.
            .find_map(|port| unsafe { port.send(header, payload, counters) })
            .unwrap_or(true)
    }

    /// The next packet, which lies where it is until the next call.
    pub fn receive(&mut self) -> Option<Packet> {
        for _ in 0..self.ports.len() {
            self.turn = (self.turn + 1) % self.ports.len();
            let packet = self.ports[self.turn].receive(&mut self.counters);
            if packet.is_some() {
                return packet;
            }
        }
        None
    }

    /// Ends a step of the HCA: what was sent goes out.
    pub fn end_step(&mut self) {
        for port in &mut self.ports {
            port.end_step(&mut self.counters);
        }
    }
}
