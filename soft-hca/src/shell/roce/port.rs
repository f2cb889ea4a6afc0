//! One UDP socket at one IP address, and the HCAs that it reaches.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::prelude::v1::*;
use std::sync::Arc;

use quinn_udp::UdpSocketState;
use rustix::net::sockopt;
use warpbell_roce::{DONT_FRAGMENT, Icrc, Ip, MAX_HEADERS, Packet as RocePacket, UdpIp};

use super::capture::Capture;
use super::counters::RoceCounters;
use super::error::RoceError;
use super::inbox::{Datagram, Inbox};
use super::outbox::{Outbox, Sent};
use super::{RoceOptions, checksum, mapping, mtu, route_header};
use crate::engine::packet::{Header, Opcode, Packet, Range as Stretch};
use crate::engine::{DirectMemory, Memory, WireAddress};

/// Bytes of a UDP header.
const UDP_HEADER: usize = 8;
/// Bytes of an invariant CRC.
const CRC: usize = 4;
/// Bytes that the system may hold of what has come, if it allows so many: some thousand packets, because nothing slows
/// a sender down but losses.
const RECEIVE_BUFFER: usize = 8 << 20;

/// An HCA that a port reaches.
#[derive(Clone, Copy)]
struct Peer {
    address: SocketAddr,
    mtu: u32,
}

/// A UDP socket at one address, and the HCAs that it reaches.
pub(super) struct Port {
    own: WireAddress,
    address: SocketAddr,
    partition_key: u16,
    socket: Arc<UdpSocket>,
    state: UdpSocketState,
    peers: HashMap<WireAddress, Peer>,
    /// By IP address and UDP port, and by IP address and 0, because a RoCE packet may come from any UDP port.
    numbers: HashMap<(IpAddr, u16), WireAddress>,
    outbox: Outbox,
    inbox: Inbox,
    /// The socket was found empty in this step.
    is_empty: bool,
    capture: Option<Capture>,
}

impl Port {
    /// Opens the socket.
    pub fn open(own: WireAddress, options: RoceOptions) -> Result<Self, RoceError> {
        let RoceOptions {
            address,
            partition_key,
            capture,
        } = options;
        if address.ip().is_unspecified() || address.ip().is_multicast() {
            return Err(RoceError::NotOneMachine(address));
        }
        let socket = UdpSocket::bind(address).map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => RoceError::AddressTaken(address),
            io::ErrorKind::AddrNotAvailable => RoceError::NoSuchAddress(address),
            _ => RoceError::System {
                step: "bind of a socket",
                address,
                source,
            },
        })?;
        let system = |step| {
            move |source| RoceError::System {
                step,
                address,
                source,
            }
        };
        // A process without CAP_NET_ADMIN gets a buffer within the system's limit.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER));
        if address.is_ipv6() {
            checksum::take_without(&socket).map_err(system("options of a socket"))?;
        }
        // Sets it not to block, and never to fragment.
        let state = UdpSocketState::new((&socket).into()).map_err(system("options of a socket"))?;
        let address = socket
            .local_addr()
            .map_err(system("look at a socket's address"))?;
        // Last, because it empties a file that is there.
        let capture = capture
            .map(|path| match Capture::create(&path) {
                Ok(capture) => Ok(capture),
                Err(source) => Err(RoceError::Capture { path, source }),
            })
            .transpose()?;
        Ok(Self {
            own,
            address,
            partition_key,
            socket: Arc::new(socket),
            state,
            peers: HashMap::new(),
            numbers: HashMap::new(),
            outbox: Outbox::new(),
            inbox: Inbox::new(),
            is_empty: false,
            capture,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the HCA's thread sleeps by.
    pub fn socket(&self) -> Arc<UdpSocket> {
        self.socket.clone()
    }

    /// The number of the HCA at this address, if it is known, or the own one.
    pub fn number(&self, peer: SocketAddr) -> Option<WireAddress> {
        if peer == self.address {
            return Some(self.own);
        }
        // Port 0 stands for any, and is nobody's address.
        let known = self.numbers.get(&(peer.ip(), peer.port())).copied();
        known.filter(|_| peer.port() != 0)
    }

    /// The number of an HCA with this GID, if one is known, or the own one.
    pub fn find(&self, gid: [u8; 16]) -> Option<WireAddress> {
        let address = std::net::Ipv6Addr::from(gid).to_canonical();
        let peer = self.numbers.get(&(address, 0)).copied();
        peer.or_else(|| (address == self.address.ip()).then_some(self.own))
    }

    /// Makes the HCA at `peer` known under a number.
    pub fn add(&mut self, peer: SocketAddr, number: WireAddress) -> Result<(), RoceError> {
        let mtu = mtu::path_mtu(self.address, peer)?;
        self.peers.insert(number, Peer { address: peer, mtu });
        self.numbers.insert((peer.ip(), peer.port()), number);
        self.numbers.entry((peer.ip(), 0)).or_insert(number);
        Ok(())
    }

    /// The path MTU to that HCA, in bytes; none if it is not known here.
    pub fn path_mtu(&self, peer: WireAddress) -> Option<u32> {
        self.peers.get(&peer).map(|peer| peer.mtu)
    }

    /// Copies a packet to those that go out with the end of the step; none if it goes to no HCA of this port's, false if
    /// the system has no room.
    ///
    /// # Safety
    /// The ranges must be readable.
    pub unsafe fn send(
        &mut self,
        header: &Header,
        payload: &[Stretch],
        counters: &mut RoceCounters,
    ) -> Option<bool> {
        let peer = *self.peers.get(&WireAddress(header.destination))?;
        let length: u64 = payload.iter().map(|range| range.length).sum();
        let packet = (length <= u64::from(peer.mtu))
            .then(|| mapping::encode(header, self.partition_key, length as usize))
            .flatten();
        let Some(headers) = packet else {
            counters.unsendable += 1;
            return Some(true);
        };
        let length = length as usize;
        let total = headers.length() + length.next_multiple_of(4) + CRC;
        let most = self.state.max_gso_segments();
        if !self.outbox.has_room(peer.address, total, most) && !self.flush(counters) {
            return Some(false);
        }
        let number = self.outbox.packets() as u16;
        let front = in_front(self.address, peer.address, number, total);
        let place = self.outbox.push(peer.address, total);
        let mut scratch = [0; MAX_HEADERS];
        let headers = headers.write(&mut scratch);
        let (front_place, rest) = place.split_at_mut(headers.len());
        front_place.copy_from_slice(headers);
        let mut to = rest.as_mut_ptr().expose_provenance() as u64;
        for range in payload {
            // SAFETY: the caller vouches for the source; the ranges fit one after the other. Their owner may be looking
            // at them, or writing there.
            unsafe { DirectMemory.copy(range.address, to, range.length as usize) };
            to += range.length;
        }
        // Of what was copied, because the owner may have written there meanwhile.
        let mut icrc = Icrc::new(&front);
        icrc.update(headers);
        icrc.update(&rest[..length]);
        rest[length..].copy_from_slice(&icrc.trailer(length));
        if let Some(capture) = &mut self.capture {
            capture.packet(&front, place);
        }
        Some(true)
    }

    /// Sends what is there; false if the system has no room.
    fn flush(&mut self, counters: &mut RoceCounters) -> bool {
        match self.outbox.send(&self.socket, &self.state) {
            Sent::Packets(packets) => counters.sent += packets,
            Sent::Refused(packets) => counters.send_errors += packets,
            Sent::Later => return false,
        }
        true
    }

    /// Ends a step of the HCA: what was sent goes out, and the next step asks the system for packets again.
    pub fn end_step(&mut self, counters: &mut RoceCounters) {
        self.flush(counters);
        self.is_empty = false;
        if let Some(capture) = &mut self.capture {
            capture.flush();
        }
    }

    /// The next packet that is one; after a look at a bounded number of datagrams none.
    pub fn receive(&mut self, counters: &mut RoceCounters) -> Option<Packet> {
        let mut has_asked = false;
        loop {
            let Some(datagram) = self.inbox.next() else {
                if has_asked || self.is_empty {
                    return None;
                }
                has_asked = true;
                match self.inbox.fill(&self.socket, &self.state) {
                    Ok(more) => self.is_empty = !more,
                    Err(error) => {
                        tracing::debug!(address = %self.address, %error, "nothing received");
                        counters.receive_errors += 1;
                        self.is_empty = true;
                    }
                }
                continue;
            };
            if let Some(capture) = &mut self.capture {
                let bytes = self.inbox.bytes(&datagram);
                let Datagram { from, number, .. } = datagram;
                capture.packet(&in_front(from, self.address, number, bytes.len()), bytes);
            }
            let dropped = match self.take(&datagram) {
                Ok(packet) => {
                    counters.received += 1;
                    return Some(packet);
                }
                Err(dropped) => dropped,
            };
            *match dropped {
                Dropped::UnknownSource => &mut counters.unknown_source,
                Dropped::Malformed => &mut counters.malformed,
                Dropped::WrongCrc => &mut counters.wrong_crc,
                Dropped::WrongPartitionKey => &mut counters.wrong_partition_key,
                Dropped::NotUnderstood => &mut counters.not_understood,
            } += 1;
        }
    }

    /// The packet in a datagram, checked.
    fn take(&self, datagram: &Datagram) -> Result<Packet, Dropped> {
        let bytes = self.inbox.bytes(datagram);
        let Datagram { from, number, .. } = *datagram;
        let ip = from.ip();
        let exact = self.numbers.get(&(ip, from.port()));
        let source = exact.or_else(|| self.numbers.get(&(ip, 0)));
        let source = *source.ok_or(Dropped::UnknownSource)?;
        let packet = RocePacket::parse(bytes).map_err(|_| Dropped::Malformed)?;
        // The identification is a guess that holds for HCAs like this one, and the others are tried.
        let front = in_front(from, self.address, number, bytes.len());
        if !front.verify_unidentified(&[bytes]) {
            return Err(Dropped::WrongCrc);
        }
        let key = packet.headers.bth().partition_key.get();
        if !is_of_partition(self.partition_key, key) {
            return Err(Dropped::WrongPartitionKey);
        }
        let mut header = mapping::decode(&packet.headers).ok_or(Dropped::NotUnderstood)?;
        header.source = source.0;
        header.destination = self.own.0;
        if header.opcode == Opcode::Datagram as u8 {
            route_header::set(&mut header, &front);
        }
        let payload = Stretch {
            address: packet.payload.as_ptr().expose_provenance() as u64,
            length: packet.payload.len() as u64,
        };
        Packet::new(&header, &[payload]).ok_or(Dropped::Malformed)
    }
}

/// The fields of the headers in front of a packet that the CRC covers.
fn in_front(from: SocketAddr, to: SocketAddr, number: u16, length: usize) -> UdpIp {
    let ip = match (from.ip(), to.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Ip::V4 {
            source,
            destination,
            identification: number,
            flags_and_offset: DONT_FRAGMENT,
        },
        (source, destination) => Ip::V6 {
            source: route_header::gid(source).into(),
            destination: route_header::gid(destination).into(),
        },
    };
    UdpIp {
        ip,
        source_port: from.port(),
        destination_port: to.port(),
        udp_length: (UDP_HEADER + length) as u16,
    }
}

/// Why a datagram is dropped.
enum Dropped {
    UnknownSource,
    Malformed,
    WrongCrc,
    WrongPartitionKey,
    NotUnderstood,
}

/// Whether two keys are of one partition, and not both of limited members (IBTA volume 1, 10.9).
const fn is_of_partition(ours: u16, theirs: u16) -> bool {
    const FULL: u16 = 1 << 15;
    (ours ^ theirs) & !FULL == 0 && (ours | theirs) & FULL != 0
}

#[cfg(test)]
mod tests {
    use super::is_of_partition;

    #[test]
    fn limited_members_of_a_partition_do_not_hear_each_other() {
        for (ours, theirs, same) in [
            (0xffff, 0xffff, true),
            (0xffff, 0x7fff, true),
            (0x7fff, 0xffff, true),
            (0x7fff, 0x7fff, false),
            (0xffff, 0xfffe, false),
            (0x8001, 0x0001, true),
            (0x8001, 0xffff, false),
        ] {
            assert_eq!(is_of_partition(ours, theirs), same, "{ours:x} {theirs:x}");
        }
    }
}
