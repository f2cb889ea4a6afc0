//! Packets on their way out: as many as the system takes in one call.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::prelude::v1::*;
use std::vec;

use quinn_udp::{EcnCodepoint, Transmit, UdpSocketState};

/// Bytes that the system takes in one call at most, with room for the headers that it adds.
const MOST: usize = 65_535 - 64;

/// Packets for one address, all of one length but for the last, which may be shorter: the system cuts them apart
/// (segmentation offload).
pub(super) struct Outbox {
    bytes: Box<[u8]>,
    used: usize,
    /// The address, and the length of the first packet.
    batch: Option<(SocketAddr, usize)>,
    packets: usize,
    /// The last packet is shorter: no other may follow.
    full: bool,
}

impl Outbox {
    pub fn new() -> Self {
        Self {
            bytes: vec![0; MOST].into_boxed_slice(),
            used: 0,
            batch: None,
            packets: 0,
            full: false,
        }
    }

    /// Whether a packet of this length may go with those that are there; `most` may go together.
    pub fn has_room(&self, to: SocketAddr, length: usize, most: usize) -> bool {
        self.batch.is_none_or(|(address, first)| {
            !self.full
                && address == to
                && length <= first
                && self.packets < most
                && self.used + length <= MOST
        })
    }

    /// The packets that are there. The next one has this number in its IPv4 identification, because the system counts
    /// the packets of a call from 0.
    pub fn packets(&self) -> usize {
        self.packets
    }

    /// Appends a packet of this length, for which there is room; gives where to write it.
    pub fn push(&mut self, to: SocketAddr, length: usize) -> &mut [u8] {
        let (_, first) = *self.batch.get_or_insert((to, length));
        self.full = length < first;
        self.packets += 1;
        let start = self.used;
        self.used += length;
        &mut self.bytes[start..self.used]
    }

    /// Sends all packets, with this mark for switches. They stay where the system has no room now, and are gone where it refuses them.
    pub fn send(
        &mut self,
        socket: &UdpSocket,
        state: &UdpSocketState,
        ecn: Option<EcnCodepoint>,
    ) -> Sent {
        let Some((destination, segment)) = self.batch else {
            return Sent::Packets(0);
        };
        let transmit = Transmit {
            destination,
            ecn,
            contents: &self.bytes[..self.used],
            segment_size: Some(segment),
            src_ip: None,
        };
        let packets = self.packets as u64;
        let sent = match state.try_send(socket.into(), &transmit) {
            Ok(()) => Sent::Packets(packets),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Sent::Later,
            Err(error) => {
                tracing::debug!(%destination, %error, packets, "packets are lost");
                Sent::Refused(packets)
            }
        };
        self.batch = None;
        (self.used, self.packets, self.full) = (0, 0, false);
        sent
    }
}

/// What became of the packets in an outbox.
pub(super) enum Sent {
    /// So many went out.
    Packets(u64),
    /// The system has no room now.
    Later,
    /// The system refused so many.
    Refused(u64),
}
