//! The seam between two HCAs.
//!
//! A wire carries packets and nothing more: requests, acknowledgements, retries and their timers
//! belong to the engine. It may drop, delay and reorder packets.

use super::gid::{self, Gid};
use super::packet::{Header, Opcode, Packet, Range, WireAddress};

/// The wire cannot take a packet now; the engine tries again in a later step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the wire is busy")]
pub struct Busy;

/// What one packet may hold, and which packets there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Payload bytes, a power of two of at least 256. A wire inside one address space may well
    /// allow 64 KiB and more; a path MTU (see
    /// [`ReadyToReceive::path_mtu`](super::ReadyToReceive::path_mtu)) must not exceed it.
    pub mtu: u32,
    /// Ranges that a payload may consist of, at least 1. A wire that copies the payload into
    /// packets of its own says [`SEND_RANGES`]; one that borrows says
    /// [`RECEIVE_RANGES`](super::packet::RECEIVE_RANGES).
    pub ranges: usize,
    /// Whether there are packets for atomics of 4 bytes and for masked ones
    /// ([`is_extended`](mlx5_wqe::decode::AtomicOperation::is_extended)).
    pub extended_atomics: bool,
}

/// The most ranges that an engine hands to [`Wire::send`].
pub const SEND_RANGES: usize = 64;

/// Packets whose borrowed payload goes back to its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retract {
    /// Every request (see [`Opcode::is_request`](super::packet::Opcode::is_request)) that this
    /// queue pair of the sender sent.
    Requests {
        /// The queue pair's number.
        source_qp: u32,
    },
    /// Every packet, request or answer, that this queue pair of the sender sent: it leaves its
    /// connection, and the next one must not hear of this one.
    QueuePair {
        /// The queue pair's number.
        source_qp: u32,
    },
    /// Every packet from the sender whose payload has a byte in this range.
    Payload(Range),
}

impl Retract {
    /// Whether this packet, held by a wire on behalf of its sender, is meant.
    pub fn covers(&self, packet: &Packet) -> bool {
        match self {
            Self::Requests { source_qp } => {
                packet.header.source_qp == *source_qp
                    && Opcode::from_number(packet.header.opcode).is_some_and(Opcode::is_request)
            }
            Self::QueuePair { source_qp } => packet.header.source_qp == *source_qp,
            Self::Payload(range) => packet.payload.iter().any(|part| part.overlaps(range)),
        }
    }
}

/// One HCA's end of a wire.
///
/// Packets whose destination is the HCA itself come back to it (loopback).
///
/// # Safety
///
/// *Implementation safety.* The ranges of a packet that [`receive`](Wire::receive) returns must
/// be readable through the receiving engine's [`Memory`](super::Memory) until the next call of
/// `receive` on this end. After [`retract`](Wire::retract) has returned, no payload that it names
/// may be read any more, at no end.
pub unsafe trait Wire {
    /// What a packet to this HCA may hold; the same as long as a way leads there. A queue pair asks when it is connected.
    /// The two ends may differ: a connection takes a path MTU that both have.
    fn limits(&self, to: WireAddress) -> Limits;

    /// The HCA that has this GID, as far as this end knows. Datagrams go to GIDs.
    fn find(&self, gid: Gid) -> Option<WireAddress> {
        gid::address(gid)
    }

    /// Whether each packet that this end sends to its own HCA comes straight back to it, whole and in
    /// order, so that the engine may as well leave it out. Never where packets are to be seen or lost.
    fn loops_back(&self) -> bool {
        false
    }

    /// Sends a packet to the HCA `header.destination`. A destination that does not exist swallows
    /// it: the sender's acknowledgement timer notices.
    ///
    /// A wire either copies the payload or borrows it.
    ///
    /// # Safety
    ///
    /// The ranges must be readable until a `retract` that covers them, and there must be at most
    /// `ranges` of them with at most `mtu` bytes, as
    /// [`limits`](Self::limits) says.
    unsafe fn send(&mut self, header: &Header, payload: &[Range]) -> Result<(), Busy>;

    /// Sends a packet whose payload is its owner's again when this returns: the wire copies it. Packets of queue pairs
    /// that nobody acknowledges go this way.
    ///
    /// A wire that cannot copy, as it is here unless it says otherwise, swallows them.
    ///
    /// # Safety
    ///
    /// The ranges must be readable, and there must be at most [`SEND_RANGES`] of them with at most `mtu` bytes, as
    /// [`limits`](Self::limits) says.
    unsafe fn send_copy(&mut self, header: &Header, payload: &[Range]) -> Result<(), Busy> {
        let _ = (header, payload);
        Ok(())
    }

    /// False if a call of [`receive`](Self::receive) would find nothing; cheaper than that.
    fn may_have_packets(&self) -> bool {
        true
    }

    /// The next packet, if one has come.
    fn receive(&mut self) -> Option<Packet>;

    /// Takes borrowed payloads of packets that this end sent back: such packets are dropped, and
    /// when this returns, nobody reads their payload any more. A wire that copies does nothing.
    fn retract(&mut self, scope: Retract);
}

// SAFETY: forwards every call to a wire that keeps the contract.
unsafe impl<W: Wire + ?Sized> Wire for &mut W {
    fn limits(&self, to: WireAddress) -> Limits {
        (**self).limits(to)
    }

    fn find(&self, gid: Gid) -> Option<WireAddress> {
        (**self).find(gid)
    }

    fn loops_back(&self) -> bool {
        (**self).loops_back()
    }

    unsafe fn send(&mut self, header: &Header, payload: &[Range]) -> Result<(), Busy> {
        // SAFETY: the caller's promise is passed on unchanged.
        unsafe { (**self).send(header, payload) }
    }

    unsafe fn send_copy(&mut self, header: &Header, payload: &[Range]) -> Result<(), Busy> {
        // SAFETY: the caller's promise is passed on unchanged.
        unsafe { (**self).send_copy(header, payload) }
    }

    fn may_have_packets(&self) -> bool {
        (**self).may_have_packets()
    }

    fn receive(&mut self) -> Option<Packet> {
        (**self).receive()
    }

    fn retract(&mut self, scope: Retract) {
        (**self).retract(scope);
    }
}
