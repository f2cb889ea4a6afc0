//! All wires of one HCA: the loopback, and one link for each peer.
//!
//! Links inside the process *lend*: a packet names the sender's memory, nothing
//! is copied before the receiving engine copies it to its destination. Links to
//! another process *copy* into slots of shared memory. A RoCE v2 link to another
//! machine would be one more variant of [`Link`].
//!
//! # When lent memory comes back
//!
//! The engine calls [`Wire::retract`] when a queue pair dies and when memory is
//! deregistered. Packets that nobody has looked at are marked and later skipped;
//! for a packet that a peer's engine has in hand, `retract` waits until the peer
//! gives it back, which it does with its next `receive` or `retract` and at the
//! latest at the end of its step. No circle of waiting HCAs can come up, because
//! an HCA gives back its own packet before it waits for others; the engine does
//! not look at a received payload again once it has called `retract`.

use std::collections::VecDeque;
use std::prelude::v1::*;

use super::ring::{Consumer, Producer, ring};
use super::shared_link::SharedLink;
use crate::engine::WireAddress;
use crate::engine::packet::{Header, Packet, RECEIVE_RANGES, Range};
use crate::engine::wire::{Busy, Limits, Retract, Wire};

/// Largest payload of a packet inside the process, in bytes. Large enough that
/// the cost of a packet vanishes beside the copy, small enough to be fair.
pub(super) const LOCAL_MTU: u32 = 64 * 1024;

/// Packets that a link inside the process holds.
const LOCAL_DEPTH: usize = 256;

/// A packet as it lies in a ring: plain data.
#[derive(Clone, Copy)]
pub(super) struct Lent {
    header: Header,
    ranges: [Range; RECEIVE_RANGES],
    count: u8,
}

impl Lent {
    fn new(header: &Header, payload: &[Range]) -> Self {
        let mut ranges = [Range::default(); RECEIVE_RANGES];
        ranges[..payload.len()].copy_from_slice(payload);
        Self {
            header: *header,
            ranges,
            count: payload.len() as u8,
        }
    }

    fn payload(&self) -> &[Range] {
        &self.ranges[..usize::from(self.count)]
    }

    fn packet(&self) -> Packet {
        let payload = self.payload().iter().copied().collect();
        Packet {
            header: self.header,
            payload,
        }
    }
}

/// Both rings of a link inside the process, as one of its ends sees them.
pub(super) struct LocalLink {
    outgoing: Producer<Lent>,
    incoming: Consumer<Lent>,
}

impl LocalLink {
    /// The two ends of a new link.
    pub fn pair() -> (Self, Self) {
        let (to_second, from_first) = ring(LOCAL_DEPTH);
        let (to_first, from_second) = ring(LOCAL_DEPTH);
        (
            Self {
                outgoing: to_second,
                incoming: from_second,
            },
            Self {
                outgoing: to_first,
                incoming: from_first,
            },
        )
    }
}

/// The way to one peer.
pub(super) enum Link {
    /// Inside this process.
    Local(LocalLink),
    /// To another process of this machine.
    Shared(SharedLink),
}

impl Link {
    fn mtu(&self) -> u32 {
        match self {
            Self::Local(_) => LOCAL_MTU,
            Self::Shared(link) => link.mtu(),
        }
    }

    fn receive(&mut self) -> Option<Packet> {
        match self {
            Self::Local(link) => link.incoming.take().map(|lent| lent.packet()),
            Self::Shared(link) => link.receive(),
        }
    }

    /// The peer is done with whatever it received from us, and we with the rest.
    fn release(&mut self) {
        match self {
            Self::Local(link) => link.incoming.release(),
            Self::Shared(link) => link.release(),
        }
    }

    /// Whether the peer is gone and has left nothing to receive. Asked after
    /// `receive` found nothing.
    fn is_over(&mut self) -> bool {
        match self {
            Self::Local(link) => link.outgoing.is_closed() && link.incoming.is_closed(),
            Self::Shared(link) => link.is_over(),
        }
    }
}

/// The wires of one HCA, as one [`Wire`].
pub struct Links {
    own: WireAddress,
    loopback: VecDeque<Lent>,
    peers: Vec<(WireAddress, Link)>,
    /// Whose turn it is to be received from: 0 is the loopback, then the peers.
    turn: usize,
    /// The link that holds a packet which the engine has in hand.
    in_hand: Option<usize>,
}

impl Links {
    pub(super) fn new(own: WireAddress) -> Self {
        Self {
            own,
            loopback: VecDeque::with_capacity(LOCAL_DEPTH),
            peers: Vec::new(),
            turn: 0,
            in_hand: None,
        }
    }

    /// Adds the way to a peer; false if there is one already.
    pub(super) fn add(&mut self, peer: WireAddress, link: Link) -> bool {
        if self.path_mtu(peer).is_some() {
            return false;
        }
        self.peers.push((peer, link));
        true
    }

    /// Payload bytes of a packet to that HCA; none if no way leads there.
    pub(super) fn path_mtu(&self, peer: WireAddress) -> Option<u32> {
        if peer == self.own {
            return Some(LOCAL_MTU);
        }
        self.peers
            .iter()
            .find(|(address, _)| *address == peer)
            .map(|(_, link)| link.mtu())
    }

    /// Gives back the packet in hand; called at the end of each step too.
    pub(super) fn release(&mut self) {
        if let Some(index) = self.in_hand.take() {
            self.peers[index].1.release();
        }
    }

    /// Forgets a peer that is gone: from now on packets to it are lost, and the
    /// acknowledgement timers of its queue pairs notice.
    fn forget(&mut self, index: usize) {
        let (address, _) = self.peers.swap_remove(index);
        tracing::warn!(own = self.own.0, peer = address.0, "the peer is gone");
    }
}

// SAFETY: lent ranges stay readable because their sender lends them until it
// retracts them, and `retract` waits for packets in hand; copied ranges lie in
// slots that are given back by `release` alone, which runs in the next `receive`
// or after the engine's step.
unsafe impl Wire for Links {
    fn limits(&self) -> Limits {
        Limits {
            mtu: LOCAL_MTU,
            ranges: RECEIVE_RANGES,
        }
    }

    unsafe fn send(&mut self, header: &Header, payload: &[Range]) -> Result<(), Busy> {
        let to = WireAddress(header.destination);
        if to == self.own {
            if self.loopback.len() == LOCAL_DEPTH {
                return Err(Busy);
            }
            self.loopback.push_back(Lent::new(header, payload));
            return Ok(());
        }
        let Some((_, link)) = self.peers.iter_mut().find(|(address, _)| *address == to) else {
            return Ok(());
        };
        let taken = match link {
            Link::Local(link) => {
                link.outgoing.is_closed() || link.outgoing.push(Lent::new(header, payload))
            }
            // SAFETY: the caller vouches for the ranges.
            Link::Shared(link) => unsafe { link.send(header, payload) },
        };
        if taken { Ok(()) } else { Err(Busy) }
    }

    fn receive(&mut self) -> Option<Packet> {
        self.release();
        let turns = self.peers.len() + 1;
        for _ in 0..turns {
            let turn = self.turn % (self.peers.len() + 1);
            self.turn = turn + 1;
            if turn == 0 {
                if let Some(lent) = self.loopback.pop_front() {
                    return Some(lent.packet());
                }
                continue;
            }
            let index = turn - 1;
            let link = &mut self.peers[index].1;
            let mut packet = link.receive();
            if packet.is_none() && link.is_over() {
                // Once more, because the peer may have sent its last packet
                // between the two looks.
                packet = link.receive();
                if packet.is_none() {
                    self.forget(index);
                }
            }
            if packet.is_some() {
                self.in_hand = Some(index);
                return packet;
            }
        }
        None
    }

    fn retract(&mut self, scope: Retract) {
        // Ours before theirs, so that two HCAs that retract at the same moment
        // do not wait for each other.
        self.release();
        self.loopback.retain(|lent| !scope.covers(&lent.packet()));
        for (_, link) in &mut self.peers {
            if let Link::Local(link) = link {
                link.outgoing.retract(|lent| scope.covers(&lent.packet()));
            }
        }
    }
}

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let peers: Vec<_> = self.peers.iter().map(|(address, _)| address.0).collect();
        f.debug_struct("Links")
            .field("own", &self.own.0)
            .field("peers", &peers)
            .finish()
    }
}
