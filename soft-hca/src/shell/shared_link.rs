//! A link to another process of this machine: packets with their payload in
//! slots of shared memory.
//!
//! ```text
//! slot:  0 header (80 bytes)   80 payload bytes u32   128 payload
//! ```
//!
//! The slot is copied out header first and checked before anything is believed;
//! a counter, a length or an address that cannot be ends the link.

use std::os::unix::net::UnixStream;
use std::prelude::v1::*;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use zerocopy::{FromBytes, IntoBytes};

use super::bell::Bell;
use super::segment::{Segment, SegmentError};
use super::shared::{self, Consumer, Corrupt, Producer, Shape, Side};
use super::stream::{self, Copier};
use crate::engine::WireAddress;
use crate::engine::packet::{Header, Packet, Range};

const HEADER: usize = size_of::<Header>();
const PAYLOAD_AT: usize = 128;
/// Largest payload of a packet between processes, in bytes.
pub(super) const SHARED_MTU: u32 = 8192;
const SHAPE: Shape = Shape {
    slots: 256,
    slot_bytes: PAYLOAD_AT as u32 + SHARED_MTU,
};
/// Slots that are handed over, and given back, together where they follow each other closely: each look of the other
/// side's at a counter takes its line from this core's cache.
const BATCH: u64 = 8;
/// Empty looks at the ring between two looks whether the peer's end of the line is closed, which cost a system call each.
const LOOKS: u32 = 1024;

/// Makes shared memory for a link, gives it to the process at the other end of
/// `socket`, and opens this side of it.
///
/// `own` and `peer` are the addresses of the two HCAs. The socket carries one message, and is the caller's again.
///
/// # Errors
/// [`SegmentError`] if the system refuses memory or the socket is closed.
pub fn offer(
    socket: &UnixStream,
    own: WireAddress,
    peer: WireAddress,
) -> Result<SharedLink, SegmentError> {
    let segment = shared::create(SHAPE)?;
    let (line, theirs) = UnixStream::pair().map_err(|error| SegmentError::System {
        step: "socketpair",
        source: rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO),
    })?;
    segment.send(socket, &theirs)?;
    SharedLink::open(segment, line, Side::Maker, own, peer)
}

/// Takes the shared memory that the other process [`offer`]s, within `timeout`.
///
/// # Errors
/// [`SegmentError`] if nothing comes in time, or anything but a wire of this
/// version.
pub fn accept(
    socket: &UnixStream,
    own: WireAddress,
    peer: WireAddress,
    timeout: Duration,
) -> Result<SharedLink, SegmentError> {
    let (segment, line) = Segment::receive(socket, timeout)?;
    SharedLink::open(segment, line, Side::Joiner, own, peer)
}

/// One side of a link between two processes.
pub struct SharedLink {
    own: WireAddress,
    peer: WireAddress,
    outgoing: Producer,
    incoming: Consumer,
    copier: Copier,
    /// Empty looks at the ring since the last look at the line.
    looks: u32,
    broken: bool,
}

impl SharedLink {
    fn open(
        segment: Segment,
        line: UnixStream,
        side: Side,
        own: WireAddress,
        peer: WireAddress,
    ) -> Result<Self, SegmentError> {
        let (outgoing, incoming) = shared::open(segment, line, side)?;
        if outgoing.slot_bytes() != SHAPE.slot_bytes as usize {
            return Err(SegmentError::WrongShape {
                slots: SHAPE.slots,
                slot_bytes: outgoing.slot_bytes() as u32,
            });
        }
        Ok(Self {
            own,
            peer,
            outgoing,
            incoming,
            copier: Copier::new(),
            looks: 0,
            broken: false,
        })
    }

    /// The HCA at the other side.
    pub fn peer(&self) -> WireAddress {
        self.peer
    }

    pub(super) fn mtu(&self) -> u32 {
        SHARED_MTU
    }

    /// Copies a packet into the next slot; false if all slots are full. A packet
    /// too long for a slot is lost, as is every packet once the peer is gone. The
    /// other side may hear of it with [`end_step`](Self::end_step) only.
    ///
    /// # Safety
    /// The ranges must be readable.
    pub(super) unsafe fn send(&mut self, header: &Header, payload: &[Range]) -> bool {
        let length: u64 = payload.iter().map(|range| range.length).sum();
        if self.broken || self.outgoing.is_closed() || length > u64::from(SHARED_MTU) {
            return true;
        }
        let slot = match self.outgoing.slot() {
            Ok(Some(slot)) => slot,
            Ok(None) => return false,
            Err(Corrupt) => {
                self.end("its counter of released packets cannot be");
                return true;
            }
        };
        // SAFETY: a slot has `SHAPE.slot_bytes` bytes (checked by `open`), which
        // hold the header, the length and `SHARED_MTU` bytes of payload; the
        // caller vouches for the ranges.
        unsafe {
            slot.copy_from_nonoverlapping(header.as_bytes().as_ptr(), HEADER);
            slot.add(HEADER).cast::<u32>().write_volatile(length as u32);
            // The memory's owner may be looking at it, or writing there.
            let to = slot.add(PAYLOAD_AT).expose_provenance() as u64;
            self.copier.copy(payload, to, length);
        }
        // Only long ones come in numbers; what a short one brings somebody waits for.
        if self.outgoing.fill() >= BATCH || length < stream::LEAST {
            self.outgoing.publish();
        }
        true
    }

    pub(super) fn receive(&mut self) -> Option<Packet> {
        if self.broken {
            return None;
        }
        let slot = match self.incoming.take() {
            Ok(slot) => slot?,
            Err(Corrupt) => {
                self.end("its counter of sent packets cannot be");
                return None;
            }
        };
        self.looks = 0;
        let mut bytes = [0u8; HEADER];
        // SAFETY: a slot has `SHAPE.slot_bytes` bytes. Volatile for the length,
        // so that what is checked is what is used.
        let length = unsafe {
            bytes.as_mut_ptr().copy_from_nonoverlapping(slot, HEADER);
            slot.add(HEADER).cast::<u32>().read_volatile()
        };
        let header = Header::read_from_bytes(&bytes).expect("the array has the header's size");
        if length > SHARED_MTU {
            self.end("a packet is longer than its slot");
            return None;
        }
        if header.source != self.peer.0 || header.destination != self.own.0 {
            self.end("a packet carries addresses of other HCAs");
            return None;
        }
        // SAFETY: inside the slot, as above.
        let address = unsafe { slot.add(PAYLOAD_AT) }.expose_provenance() as u64;
        let range = Range {
            address,
            length: u64::from(length),
        };
        Packet::new(&header, &[range])
    }

    /// The packet received last is no longer needed: its slot goes back to the other side, perhaps with
    /// [`end_step`](Self::end_step) only.
    pub(super) fn release(&mut self) {
        if self.incoming.in_hand() >= BATCH {
            self.incoming.release();
        }
    }

    /// Ends a step of the HCA: the other side gets its slots back, hears what was sent, and its thread is woken if it
    /// has to be.
    pub(super) fn end_step(&mut self) {
        self.incoming.release();
        self.outgoing.end_step();
        self.incoming.words().attended();
    }

    /// Tells the other side that somebody is about to look for its packets.
    pub(super) fn attend(&self) {
        self.incoming.words().attend();
    }

    /// What this side's thread sleeps by.
    pub(super) fn bell(&self) -> Bell {
        self.incoming.bell()
    }

    /// Whether the peer is gone, asked after nothing was received.
    pub(super) fn is_over(&mut self) -> bool {
        if self.broken || self.incoming.is_closed() {
            return true;
        }
        self.looks += 1;
        if self.looks < LOOKS {
            return false;
        }
        self.looks = 0;
        let mut line = [PollFd::new(self.incoming.line(), PollFlags::RDHUP)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let gone = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR;
        rustix::event::poll(&mut line, Some(&now)).is_ok() && line[0].revents().intersects(gone)
    }

    fn end(&mut self, why: &'static str) {
        tracing::error!(own = self.own.0, peer = self.peer.0, why, "the wire is cut");
        self.broken = true;
    }
}

impl std::fmt::Debug for SharedLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedLink")
            .field("own", &self.own.0)
            .field("peer", &self.peer.0)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const A: WireAddress = WireAddress(1);
    const B: WireAddress = WireAddress(2);

    /// A hostile maker's raw ring, and the joiner that reads it.
    fn hostile() -> (Producer, SharedLink) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let segment = shared::create(SHAPE).unwrap();
        let (line, their_line) = UnixStream::pair().unwrap();
        segment.send(&ours, &their_line).unwrap();
        let link = accept(&theirs, B, A, Duration::from_secs(300)).unwrap();
        (shared::open(segment, line, Side::Maker).unwrap().0, link)
    }

    fn put(producer: &mut Producer, bytes: &[u8]) {
        let slot = producer.slot().unwrap().unwrap();
        assert!(bytes.len() <= producer.slot_bytes());
        // SAFETY: the slot is as long as asserted, and ours until published.
        unsafe { slot.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        producer.fill();
        producer.publish();
    }

    fn slot(header: &Header, length: u32) -> Vec<u8> {
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend_from_slice(&length.to_ne_bytes());
        bytes
    }

    fn good() -> Header {
        Header {
            source: A.0,
            destination: B.0,
            ..Header::default()
        }
    }

    #[test]
    fn takes_the_longest_packet_and_cuts_the_wire_at_a_longer_one() {
        let (mut producer, mut link) = hostile();
        put(&mut producer, &slot(&good(), SHARED_MTU));
        assert_eq!(
            link.receive().unwrap().payload_length(),
            u64::from(SHARED_MTU)
        );
        for length in [SHARED_MTU + 1, u32::MAX] {
            let (mut producer, mut link) = hostile();
            put(&mut producer, &slot(&good(), length));
            put(&mut producer, &slot(&good(), 0));
            assert!(link.receive().is_none() && link.is_over());
            assert!(link.receive().is_none(), "nothing is believed after that");
        }
    }

    #[test]
    fn cuts_the_wire_at_addresses_of_others() {
        for (source, destination) in [(3, B.0), (A.0, 3), (B.0, A.0)] {
            let (mut producer, mut link) = hostile();
            let header = Header {
                source,
                destination,
                ..good()
            };
            put(&mut producer, &slot(&header, 0));
            assert!(link.receive().is_none() && link.is_over());
        }
    }

    /// Long packets are handed over, and their slots given back, in batches: what is left of one, with the step's end.
    #[test]
    fn hands_long_packets_over_in_batches_and_the_rest_at_the_end_of_a_step() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut from = offer(&ours, A, B).unwrap();
        let mut to = accept(&theirs, B, A, Duration::from_secs(300)).unwrap();
        let payload: Vec<u8> = (0..SHARED_MTU).map(|at| (at % 251) as u8).collect();
        let send = |from: &mut SharedLink, length: usize| {
            let range = Range {
                address: payload.as_ptr().expose_provenance() as u64,
                length: length as u64,
            };
            // SAFETY: the payload is as long as the longest packet.
            unsafe { from.send(&good(), &[range]) }
        };
        let receive = |to: &mut SharedLink, length: usize| {
            let packet = to.receive()?;
            assert_eq!(packet.payload_length(), length as u64);
            let start = std::ptr::with_exposed_provenance::<u8>(packet.payload[0].address as usize);
            // SAFETY: the packet lies in its slot until it is given back.
            assert!(unsafe { std::slice::from_raw_parts(start, length) } == &payload[..length]);
            to.release();
            Some(())
        };
        let long = SHARED_MTU as usize;
        for _ in 1..BATCH {
            assert!(send(&mut from, long));
        }
        assert_eq!(receive(&mut to, long), None);
        from.end_step();
        for _ in 1..BATCH {
            assert_eq!(receive(&mut to, long), Some(()));
        }
        assert_eq!(receive(&mut to, long), None);
        // A short one waits for nothing.
        assert!(send(&mut from, 64));
        assert_eq!(receive(&mut to, 64), Some(()));
        // All slots, and one more when a batch of them has come back; through trials of both ways, too.
        for _ in 0..SHAPE.slots {
            assert!(send(&mut from, long));
        }
        assert!(!send(&mut from, long));
        assert_eq!(receive(&mut to, long), Some(()));
        assert!(!send(&mut from, long), "one slot given back is none");
        to.end_step();
        assert!(send(&mut from, long));
    }

    proptest! {
        /// Any slot ends in no packet, or in one that lies inside the slot.
        #[test]
        fn survives_any_slot(mut bytes in proptest::collection::vec(any::<u8>(), HEADER + 4), ours: bool) {
            if ours {
                bytes[..8].copy_from_slice(&good().as_bytes()[..8]);
            }
            let (mut producer, mut link) = hostile();
            put(&mut producer, &bytes);
            let packet = link.receive();
            prop_assert!(packet.is_some() || link.is_over());
            if let Some(packet) = packet {
                prop_assert!(packet.payload_length() <= u64::from(SHARED_MTU));
            }
        }
    }
}
