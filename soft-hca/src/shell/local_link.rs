//! The link between two HCAs of one process: it lends payloads, and copies those of queue pairs that nobody acknowledges.

use std::collections::VecDeque;
use std::prelude::v1::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::vec;

use super::ring::{Consumer, Producer, ring};
use crate::engine::packet::{Header, Packet, Range};
use crate::engine::wire::Retract;
use crate::engine::{DirectMemory, Memory};

/// Largest payload of a packet inside the process, in bytes. Large enough that
/// the cost of a packet vanishes beside the copy, small enough to be fair.
pub(super) const LOCAL_MTU: u32 = 64 * 1024;

/// Packets that a link inside the process holds.
pub(super) const LOCAL_DEPTH: usize = 256;

/// A packet's payload where it was copied, in one piece.
pub(super) struct Copied {
    header: Header,
    payload: Box<[u8]>,
}

impl Copied {
    /// # Safety
    /// The ranges must be readable.
    pub unsafe fn new(header: &Header, payload: &[Range]) -> Self {
        let length: u64 = payload.iter().map(|range| range.length).sum();
        let mut bytes = vec![0; length as usize].into_boxed_slice();
        let mut to = bytes.as_mut_ptr().expose_provenance() as u64;
        for range in payload {
            // SAFETY: the caller vouches for the source; the ranges fit one after the other. Their owner may be
            // looking at them, or writing there.
            unsafe { DirectMemory.copy(range.address, to, range.length as usize) };
            to += range.length;
        }
        Self {
            header: *header,
            payload: bytes,
        }
    }

    /// The packet, to be read as long as the copy is there.
    pub fn packet(&self) -> Option<Packet> {
        let range = Range {
            address: self.payload.as_ptr().expose_provenance() as u64,
            length: self.payload.len() as u64,
        };
        Packet::new(&self.header, &[range])
    }
}

/// Copied packets under way in one direction of a link inside the process.
#[derive(Default)]
struct Copies {
    /// How many there are, so that nobody locks for none.
    count: AtomicUsize,
    packets: Mutex<VecDeque<Copied>>,
}

impl Copies {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Copied>> {
        // Nothing panics with the lock held.
        self.packets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a packet; false if there is no room.
    fn push(&self, copied: Copied) -> bool {
        let mut packets = self.lock();
        let room = packets.len() < LOCAL_DEPTH;
        if room {
            packets.push_back(copied);
            // Relaxed, here and below: who sees an old count looks again, and the lock orders the packets.
            self.count.store(packets.len(), Ordering::Relaxed);
        }
        room
    }

    fn pop(&self) -> Option<Copied> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut packets = self.lock();
        let first = packets.pop_front();
        self.count.store(packets.len(), Ordering::Relaxed);
        first
    }
}

/// Both rings of a link inside the process, as one of its ends sees them.
pub(super) struct LocalLink {
    outgoing: Producer<Packet>,
    incoming: Consumer<Packet>,
    copies_out: Arc<Copies>,
    copies_in: Arc<Copies>,
    /// What the engine has in hand of them.
    copy: Option<Copied>,
}

impl LocalLink {
    /// The two ends of a new link.
    pub fn pair() -> (Self, Self) {
        let (to_second, from_first) = ring(LOCAL_DEPTH);
        let (to_first, from_second) = ring(LOCAL_DEPTH);
        let copies = [(); 2].map(|()| Arc::<Copies>::default());
        let [there, back] = &copies;
        (
            Self {
                outgoing: to_second,
                incoming: from_second,
                copies_out: there.clone(),
                copies_in: back.clone(),
                copy: None,
            },
            Self {
                outgoing: to_first,
                incoming: from_first,
                copies_out: back.clone(),
                copies_in: there.clone(),
                copy: None,
            },
        )
    }

    /// Lends a packet to the peer; false if the link is full. If the peer is gone, the packet is lost.
    pub fn lend(&mut self, packet: Packet) -> bool {
        self.outgoing.is_closed() || self.outgoing.push(packet)
    }

    /// Sends a packet with a copy of its payload, as [`lend`](Self::lend) does.
    ///
    /// # Safety
    /// The ranges must be readable.
    pub unsafe fn send_copy(&mut self, header: &Header, payload: &[Range]) -> bool {
        // SAFETY: the caller's promise is passed on unchanged.
        self.outgoing.is_closed()
            || self
                .copies_out
                .push(unsafe { Copied::new(header, payload) })
    }

    /// Takes back the lent packets that this covers.
    pub fn retract(&mut self, scope: Retract) {
        self.outgoing.retract(|packet| scope.covers(packet));
    }

    /// The next packet, in hand until [`release`](Self::release).
    pub fn receive(&mut self) -> Option<Packet> {
        let lent = self.incoming.take();
        if lent.is_some() {
            return lent;
        }
        self.copy = self.copies_in.pop();
        self.copy.as_ref()?.packet()
    }

    /// Gives back the packet in hand.
    pub fn release(&mut self) {
        self.incoming.release();
        self.copy = None;
    }

    /// Whether the peer is gone and has left nothing to receive. Asked after `receive` found nothing.
    pub fn is_over(&self) -> bool {
        self.outgoing.is_closed() && self.incoming.is_closed()
    }
}
