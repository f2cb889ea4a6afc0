//! One UDP socket at one IP address, and the HCAs that it reaches.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::prelude::v1::*;
use std::sync::Arc;

use quinn_udp::{EcnCodepoint, UdpSocketState};
use rustix::net::sockopt;
use warpbell_roce::{
    Bth, BthFlags, BthOpcode, CnpBody, DONT_FRAGMENT, Extended, Headers, Icrc, Ip, Kind,
    MAX_HEADERS, Packet as RocePacket, Psn, Qpn, UdpIp,
};

use super::capture::Capture;
use super::congestion::Flows;
use super::counters::RoceCounters;
use super::error::RoceError;
use super::inbox::{Datagram, Filled, Inbox};
use super::outbox::{Outbox, Sent};
use super::{RoceOptions, mapping, mtu, options as socket_options, route_header};
use crate::engine::packet::{Header, Opcode, Packet, Range as Stretch};
use crate::engine::{DirectMemory, Memory, WireAddress};
use crate::shell::bell::clock_ns;

/// Bytes of a UDP header.
const UDP_HEADER: usize = 8;
/// Bytes of an invariant CRC.
const CRC: usize = 4;
/// Bytes that the system may hold of what has come, if it allows so many: some thousand packets, because nothing slows
/// a sender down but losses.
const RECEIVE_BUFFER: usize = 8 << 20;

/// How long the socket is left alone once it was emptied, in nanoseconds. What a program does with what came, its next
/// request before all, would wait for a look that finds nothing.
const PAUSE_NS: u64 = 1_000;

/// Datagrams that hold nothing for the engine, in a step at most: whoever floods the port takes that share of a step and
/// no more.
const FUTILE: usize = 256;

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
    /// When it was last emptied.
    emptied_ns: u64,
    /// Datagrams of this step that held nothing for the engine.
    futile: usize,
    capture: Option<Capture>,
    /// Its flows, with congestion control.
    flows: Option<Flows>,
}

impl Port {
    /// Opens the socket.
    pub fn open(own: WireAddress, options: RoceOptions) -> Result<Self, RoceError> {
        let RoceOptions {
            address,
            partition_key,
            capture,
            congestion_control,
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
            socket_options::take_without_checksum(&socket)
                .map_err(system("options of a socket"))?;
        }
        // Sets it not to block, and never to fragment.
        let state = UdpSocketState::new((&socket).into()).map_err(system("options of a socket"))?;
        socket_options::take_without_details(&socket).map_err(system("options of a socket"))?;
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
            emptied_ns: 0,
            futile: 0,
            capture,
            flows: congestion_control.then(Flows::default),
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
        let total = total(&headers, length);
        if !self.make_room(peer.address, total, counters) {
            return Some(false);
        }
        if let Some(flows) = &mut self.flows
            && !flows.send(header, total as u64, clock_ns)
        {
            return Some(false);
        }
        // SAFETY: the caller's promise is passed on unchanged.
        unsafe { self.push(peer.address, &headers, payload, length) };
        Some(true)
    }

    /// Makes room for one more packet; false if the system has none.
    fn make_room(&mut self, to: SocketAddr, total: usize, counters: &mut RoceCounters) -> bool {
        let most = self.state.max_gso_segments();
        self.outbox.has_room(to, total, most) || self.flush(counters)
    }

    /// Appends a packet with `length` bytes of payload, for which there is room, to those that go out.
    ///
    /// # Safety
    /// The ranges must be readable.
    unsafe fn push(
        &mut self,
        to: SocketAddr,
        headers: &Headers,
        payload: &[Stretch],
        length: usize,
    ) {
        let total = total(headers, length);
        let number = self.outbox.packets() as u16;
        let front = in_front(self.address, to, number, total);
        let place = self.outbox.push(to, total);
        let mut scratch = [0; MAX_HEADERS];
        let headers = headers.write(&mut scratch);
        let (front_place, rest) = place.split_at_mut(headers.len());
        front_place.copy_from_slice(headers);
        let mut at = rest.as_mut_ptr().expose_provenance() as u64;
        for range in payload {
            // SAFETY: the caller vouches for the source; the ranges fit one after the other. Their owner may be looking
            // at them, or writing there.
            unsafe { DirectMemory.copy(range.address, at, range.length as usize) };
            at += range.length;
        }
        // Of what was copied, because the owner may have written there meanwhile.
        let mut icrc = Icrc::new(&front);
        icrc.update(headers);
        icrc.update(&rest[..length]);
        rest[length..].copy_from_slice(&icrc.trailer(length));
        if let Some(capture) = &mut self.capture {
            capture.packet(&front, place);
        }
    }

    /// Sends what is there; false if the system has no room.
    fn flush(&mut self, counters: &mut RoceCounters) -> bool {
        // Switches may mark packets; without congestion control they drop them.
        let ecn = self.flows.as_ref().map(|_| EcnCodepoint::Ect0);
        match self.outbox.send(&self.socket, &self.state, ecn) {
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
        self.futile = 0;
        if let Some(capture) = &mut self.capture {
            capture.flush();
        }
    }

    /// The next packet that is one; none once so many held no packet that the rest waits for the next step.
    pub fn receive(&mut self, counters: &mut RoceCounters) -> Option<Packet> {
        let mut has_asked = false;
        while self.futile < FUTILE {
            let Some(datagram) = self.inbox.next() else {
                if has_asked || self.is_empty {
                    return None;
                }
                has_asked = true;
                if clock_ns().saturating_sub(self.emptied_ns) < PAUSE_NS {
                    return None;
                }
                match self.inbox.fill(&self.socket, &self.state) {
                    Ok(Filled::Full) => {}
                    Ok(Filled::Some) => (self.is_empty, self.emptied_ns) = (true, clock_ns()),
                    Ok(Filled::Nothing) => self.is_empty = true,
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
                Ok(Taken::Packet(packet)) => {
                    counters.received += 1;
                    if datagram.ecn == Some(EcnCodepoint::Ce) {
                        counters.marked += 1;
                        self.notify(&packet.header, counters);
                    }
                    return Some(packet);
                }
                Ok(Taken::Notification { source, own_qp }) => {
                    counters.notifications_received += 1;
                    self.futile += 1;
                    if let Some(flows) = &mut self.flows {
                        flows.notified(source, own_qp, clock_ns());
                    }
                    continue;
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
            self.futile += 1;
        }
        None
    }

    /// Tells the sender of this packet that its way is congested, if it is time to.
    fn notify(&mut self, header: &Header, counters: &mut RoceCounters) {
        let flow = self.flows.as_mut();
        let peer = self.peers.get(&WireAddress(header.source)).copied();
        let (Some(flows), Some(peer)) = (flow, peer) else {
            return;
        };
        let Some(qp) = flows.notify(header, clock_ns()) else {
            return;
        };
        let bth = Bth {
            partition_key: self.partition_key.into(),
            ..Bth::new(
                BthOpcode::CNP,
                Qpn::from_low_bits(qp),
                Psn::from_low_bits(0),
                BthFlags::BECN,
            )
        };
        let body = CnpBody::default();
        let Ok(headers) = Headers::new(bth, Extended::Cnp { body }, 0) else {
            return;
        };
        // Without room it is lost, as it may be on the way.
        if self.make_room(peer.address, total(&headers, 0), counters) {
            // SAFETY: there is no payload.
            unsafe { self.push(peer.address, &headers, &[], 0) };
            counters.notifications_sent += 1;
        }
    }

    /// What is in a datagram, checked.
    fn take(&self, datagram: &Datagram) -> Result<Taken, Dropped> {
        let bytes = self.inbox.bytes(datagram);
        let Datagram {
            from, number, ecn, ..
        } = *datagram;
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
        if packet.headers.shape().kind == Kind::Cnp {
            return Ok(Taken::Notification {
                source,
                own_qp: packet.headers.bth().destination_qp.get(),
            });
        }
        let mut header = mapping::decode(&packet.headers).ok_or(Dropped::NotUnderstood)?;
        header.source = source.0;
        header.destination = self.own.0;
        if header.opcode == Opcode::Datagram as u8 {
            route_header::set(&mut header, &front, ecn);
        }
        let payload = Stretch {
            address: packet.payload.as_ptr().expose_provenance() as u64,
            length: packet.payload.len() as u64,
        };
        let packet = Packet::new(&header, &[payload]).ok_or(Dropped::Malformed)?;
        Ok(Taken::Packet(packet))
    }
}

/// The bytes of a packet with so many of payload.
fn total(headers: &Headers, length: usize) -> usize {
    headers.length() + length.next_multiple_of(4) + CRC
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

/// What a datagram holds.
enum Taken {
    Packet(Packet),
    /// That HCA was congested by this queue pair.
    Notification {
        source: WireAddress,
        own_qp: u32,
    },
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
