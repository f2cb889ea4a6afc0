//! All wires of one HCA: the loopback, and one link for each peer.
//!
//! Links inside the process *lend*: a packet names the sender's memory, nothing
//! is copied before the receiving engine copies it to its destination. Links to
//! another process *copy* into slots of shared memory. Other machines are reached
//! by [`Roce`], whose sockets serve many peers each.
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
use std::net::SocketAddr;
use std::prelude::v1::*;

use super::bell::{Bell, Bells};
use super::hca::SoftHca;
use super::local_link::{Copied, LOCAL_DEPTH, LOCAL_MTU, LocalLink};
use super::roce::{Roce, RoceError, RoceOptions};
use super::shared_link::SharedLink;
use crate::engine::WireAddress;
use crate::engine::gid::{self, Gid};
use crate::engine::packet::{Header, Packet, RECEIVE_RANGES, Range};
use crate::engine::wire::{Busy, Limits, Retract, Wire};

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
            Self::Local(link) => link.receive(),
            Self::Shared(link) => link.receive(),
        }
    }

    /// The peer is done with whatever it received from us, and we with the rest.
    fn release(&mut self) {
        match self {
            Self::Local(link) => link.release(),
            Self::Shared(link) => link.release(),
        }
    }

    /// Whether the peer is gone and has left nothing to receive. Asked after
    /// `receive` found nothing.
    fn is_over(&mut self) -> bool {
        match self {
            Self::Local(link) => link.is_over(),
            Self::Shared(link) => link.is_over(),
        }
    }
}

/// The wires of one HCA, as one [`Wire`].
pub struct Links {
    own: WireAddress,
    loopback: VecDeque<Packet>,
    /// Packets to itself whose payload was copied, and the one of them that the engine has in hand.
    copies: VecDeque<Copied>,
    copy: Option<Copied>,
    peers: Vec<(WireAddress, Link)>,
    /// The ways to other machines.
    roce: Roce,
    /// By which the HCA's thread sleeps: those of the links to other processes, and sockets.
    bells: Bells,
    /// Whose turn it is to be received from: 0 is the loopback, 1 other machines, then the peers.
    turn: usize,
    /// The link that holds a packet which the engine has in hand.
    in_hand: Option<usize>,
}

impl Links {
    pub(super) fn new(own: WireAddress) -> Self {
        Self {
            own,
            loopback: VecDeque::with_capacity(LOCAL_DEPTH),
            copies: VecDeque::new(),
            copy: None,
            peers: Vec::new(),
            roce: Roce::default(),
            bells: Bells::default(),
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
        self.hang_bells();
        true
    }

    /// The bells of its links, now and later.
    pub(super) fn bells(&self) -> Bells {
        self.bells.clone()
    }

    fn hang_bells(&self) {
        let bells = self.peers.iter().filter_map(|(_, link)| match link {
            Link::Local(_) => None,
            Link::Shared(link) => Some(link.bell()),
        });
        let sockets = self.roce.sockets().map(Bell::Socket);
        self.bells.set(bells.chain(sockets).collect());
    }

    /// Listens for packets of other machines.
    pub(super) fn listen(&mut self, options: RoceOptions) -> Result<SocketAddr, RoceError> {
        let address = self.roce.listen(self.own, options)?;
        self.hang_bells();
        Ok(address)
    }

    /// The number of the HCA at this address, which is made known if it is not.
    pub(super) fn reach(&mut self, peer: SocketAddr) -> Result<WireAddress, RoceError> {
        if let Some(number) = self.roce.number(peer) {
            return Ok(number);
        }
        let mut number = SoftHca::fresh_address();
        while self.path_mtu(number).is_some() {
            number = SoftHca::fresh_address();
        }
        self.roce.add(peer, number)?;
        Ok(number)
    }

    /// The ways to other machines.
    pub(super) fn roce(&self) -> &Roce {
        &self.roce
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
            .or_else(|| Some(self.roce.limits(peer)?.mtu))
    }

    /// Ends a step: gives back the packet in hand, and sees that other processes hear what was sent.
    pub(super) fn end_step(&mut self) {
        self.release();
        for (_, link) in &mut self.peers {
            if let Link::Shared(link) = link {
                link.end_step();
            }
        }
        self.roce.end_step();
    }

    /// Tells other processes that somebody is about to look for their packets.
    pub(super) fn attend(&self) {
        for (_, link) in &self.peers {
            if let Link::Shared(link) = link {
                link.attend();
            }
        }
    }

    /// Gives back the packet in hand.
    pub(super) fn release(&mut self) {
        if let Some(index) = self.in_hand.take() {
            self.peers[index].1.release();
        }
    }

    /// Forgets a peer that is gone: from now on packets to it are lost, and the
    /// acknowledgement timers of its queue pairs notice.
    fn forget(&mut self, index: usize) {
        let (address, _) = self.peers.swap_remove(index);
        self.hang_bells();
        tracing::warn!(own = self.own.0, peer = address.0, "the peer is gone");
    }
}

// SAFETY: lent ranges stay readable because their sender lends them until it
// retracts them, and `retract` waits for packets in hand; copied ranges lie in
// slots that are given back by `release` alone, which runs in the next `receive`
// or after the engine's step; datagrams lie in buffers that `Roce::receive` alone writes.
unsafe impl Wire for Links {
    fn limits(&self, to: WireAddress) -> Limits {
        let within_the_machine = || Limits {
            // A way that is not there yet may be one of any kind.
            mtu: self.path_mtu(to).unwrap_or(LOCAL_MTU),
            ranges: RECEIVE_RANGES,
            extended_atomics: true,
        };
        self.roce.limits(to).unwrap_or_else(within_the_machine)
    }

    fn find(&self, gid: Gid) -> Option<WireAddress> {
        self.roce.find(gid).or_else(|| gid::address(gid))
    }

    unsafe fn send(&mut self, header: &Header, payload: &[Range]) -> Result<(), Busy> {
        let to = WireAddress(header.destination);
        if to == self.own {
            if self.loopback.len() == LOCAL_DEPTH {
                return Err(Busy);
            }
            self.loopback
                .push_back(Packet::new(header, payload).ok_or(Busy)?);
            return Ok(());
        }
        let Some((_, link)) = self.peers.iter_mut().find(|(address, _)| *address == to) else {
            // SAFETY: the caller vouches for the ranges.
            return unsafe { self.roce.send(header, payload) }
                .then_some(())
                .ok_or(Busy);
        };
        let taken = match link {
            Link::Local(link) => link.lend(Packet::new(header, payload).ok_or(Busy)?),
            // SAFETY: the caller vouches for the ranges.
            Link::Shared(link) => unsafe { link.send(header, payload) },
        };
        if taken { Ok(()) } else { Err(Busy) }
    }

    unsafe fn send_copy(&mut self, header: &Header, payload: &[Range]) -> Result<(), Busy> {
        let to = WireAddress(header.destination);
        if to == self.own {
            if self.copies.len() == LOCAL_DEPTH {
                return Err(Busy);
            }
            // SAFETY: the caller vouches for the ranges.
            self.copies
                .push_back(unsafe { Copied::new(header, payload) });
            return Ok(());
        }
        let Some((_, link)) = self.peers.iter_mut().find(|(address, _)| *address == to) else {
            // SAFETY: as above.
            return unsafe { self.roce.send(header, payload) }
                .then_some(())
                .ok_or(Busy);
        };
        // SAFETY: as above.
        let taken = unsafe {
            match link {
                Link::Local(link) => link.send_copy(header, payload),
                Link::Shared(link) => link.send(header, payload),
            }
        };
        if taken { Ok(()) } else { Err(Busy) }
    }

    fn receive(&mut self) -> Option<Packet> {
        self.release();
        let turns = self.peers.len() + 2;
        for _ in 0..turns {
            // A peer may be gone since the last turn. No remainder: every step comes here, and a division takes 25 cycles.
            let turn = match self.turn < self.peers.len() + 2 {
                true => self.turn,
                false => 0,
            };
            self.turn = turn + 1;
            if turn == 0 {
                let mut packet = self.loopback.pop_front();
                if packet.is_none() && !self.copies.is_empty() {
                    self.copy = self.copies.pop_front();
                    packet = self.copy.as_ref().and_then(Copied::packet);
                }
                if packet.is_some() {
                    return packet;
                }
                continue;
            }
            if turn == 1 {
                let packet = self.roce.receive();
                if packet.is_some() {
                    return packet;
                }
                continue;
            }
            let index = turn - 2;
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
        self.loopback.retain(|packet| !scope.covers(packet));
        for (_, link) in &mut self.peers {
            if let Link::Local(link) = link {
                link.retract(scope);
            }
        }
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.bells.set(Vec::new());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::packet::Opcode;
    use crate::shell::{accept, offer};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;
    use std::vec;

    const A: WireAddress = WireAddress(1);
    const B: WireAddress = WireAddress(2);

    fn local_pair() -> (Links, Links) {
        let (mut a, mut b) = (Links::new(A), Links::new(B));
        let (ours, theirs) = LocalLink::pair();
        assert!(a.add(B, Link::Local(ours)) && b.add(A, Link::Local(theirs)));
        (a, b)
    }

    fn shared_pair() -> (Links, Links) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut a, mut b) = (Links::new(A), Links::new(B));
        let maker = offer(&ours, A, B).unwrap();
        let joiner = accept(&theirs, B, A, Duration::from_secs(300)).unwrap();
        assert!(a.add(B, Link::Shared(maker)) && b.add(A, Link::Shared(joiner)));
        (a, b)
    }

    fn header(from: WireAddress, to: WireAddress, qp: u32, psn: u32) -> Header {
        Header {
            source: from.0,
            destination: to.0,
            source_qp: qp,
            psn,
            opcode: Opcode::Write as u8,
            ..Header::default()
        }
    }

    fn ranges(bytes: &[u8]) -> [Range; 1] {
        let address = bytes.as_ptr().expose_provenance() as u64;
        [Range {
            address,
            length: bytes.len() as u64,
        }]
    }

    fn bytes_of(packet: &Packet) -> Vec<u8> {
        let mut bytes = vec![];
        for range in packet.payload.iter() {
            let from = std::ptr::with_exposed_provenance::<u8>(range.address as usize);
            // SAFETY: the wire keeps the ranges readable until the next receive.
            bytes.extend_from_slice(unsafe {
                std::slice::from_raw_parts(from, range.length as usize)
            });
        }
        bytes
    }

    fn send(links: &mut Links, header: Header, bytes: &[u8]) -> Result<(), Busy> {
        // SAFETY: the tests keep `bytes` alive until received or retracted.
        unsafe { links.send(&header, &ranges(bytes)) }
    }

    #[test]
    fn carries_packets_over_every_kind_of_way() {
        for (mut a, mut b) in [local_pair(), shared_pair()] {
            let (there, back, own) = ([1u8; 100], [2u8; 8192], [3u8; 1]);
            for psn in 0..1000 {
                send(&mut a, header(A, B, 7, psn), &there).unwrap();
                send(&mut b, header(B, A, 8, psn), &back).unwrap();
                b.end_step();
                let packet = b.receive().unwrap();
                assert_eq!(packet.header, header(A, B, 7, psn));
                assert_eq!(bytes_of(&packet), there);
                let packet = a.receive().unwrap();
                assert_eq!(packet.header, header(B, A, 8, psn));
                assert_eq!(bytes_of(&packet), back);
                send(&mut a, header(A, A, 9, psn), &own).unwrap();
                let packet = a.receive().unwrap();
                assert_eq!((packet.header.psn, bytes_of(&packet)), (psn, vec![3]));
                assert!(a.receive().is_none() && b.receive().is_none());
            }
        }
    }

    /// Where a payload was copied, its owner may do with it what he wants, and nothing is taken back from him.
    #[test]
    fn copies_are_the_wire_s_own() {
        for (mut a, mut b) in [local_pair(), shared_pair()] {
            for to in [A, B] {
                for psn in 0..200 {
                    let mut bytes = [psn as u8; 100];
                    let range = ranges(&bytes)[0];
                    let (first, second) = (
                        Range {
                            length: 30,
                            ..range
                        },
                        Range {
                            address: range.address + 30,
                            length: 70,
                        },
                    );
                    let header = header(A, to, 7, psn);
                    // SAFETY: the bytes are there.
                    unsafe { a.send_copy(&header, &[first, second]).unwrap() };
                    bytes.fill(0xff);
                    a.retract(Retract::Payload(ranges(&bytes)[0]));
                    assert_eq!(bytes[0], 0xff);
                }
                let receiver = if to == A { &mut a } else { &mut b };
                for psn in 0..200 {
                    let packet = receiver.receive().unwrap();
                    assert_eq!(packet.header.psn, psn);
                    assert_eq!(bytes_of(&packet), [psn as u8; 100]);
                }
                assert!(receiver.receive().is_none());
            }
            let mut sent = 0;
            // SAFETY: there is no payload.
            while unsafe { a.send_copy(&header(A, B, 7, sent), &[]) }.is_ok() {
                sent += 1;
                assert!(sent < 10_000, "no wire is endless");
            }
        }
    }

    #[test]
    fn gathers_ranges_and_carries_none() {
        for (mut a, mut b) in [local_pair(), shared_pair()] {
            let (first, second) = ([1u8; 3], [2u8; 5]);
            let both = [ranges(&first)[0], ranges(&second)[0]];
            // SAFETY: both arrays outlive the packet.
            unsafe { a.send(&header(A, B, 7, 0), &both).unwrap() };
            assert_eq!(bytes_of(&b.receive().unwrap()), [1, 1, 1, 2, 2, 2, 2, 2]);
            // SAFETY: nothing to read.
            unsafe { a.send(&header(A, B, 7, 1), &[]).unwrap() };
            assert_eq!(b.receive().unwrap().payload_length(), 0);
        }
    }

    #[test]
    fn a_full_way_is_busy_and_no_way_swallows() {
        for (mut a, mut b) in [local_pair(), shared_pair()] {
            let bytes = [0u8; 8];
            let mut sent = 0;
            while send(&mut a, header(A, B, 7, sent), &bytes).is_ok() {
                sent += 1;
                assert!(sent < 10_000, "no wire is endless");
            }
            // The slot in hand comes back with the look at the next packet, or at the end of the step.
            assert!(b.receive().is_some() && b.receive().is_some());
            b.end_step();
            assert!(send(&mut a, header(A, B, 7, sent), &bytes).is_ok());
            assert!(send(&mut a, header(A, WireAddress(99), 7, 0), &bytes).is_ok());
        }
    }

    #[test]
    fn retract_takes_back_what_it_names_and_nothing_else() {
        let (mut a, mut b) = local_pair();
        let bytes = [[0u8; 8], [1; 8], [2; 8]];
        for to in [A, B] {
            for (psn, bytes) in bytes.iter().enumerate() {
                send(
                    &mut a,
                    header(A, to, 7 + (psn as u32 % 2), psn as u32),
                    bytes,
                )
                .unwrap();
            }
        }
        a.retract(Retract::Payload(ranges(&bytes[0])[0]));
        a.retract(Retract::Requests { source_qp: 8 });
        for links in [&mut a, &mut b] {
            let packet = links.receive().expect("the one that nobody named");
            assert_eq!(packet.header.psn, 2);
            assert!(links.receive().is_none());
        }
    }

    #[test]
    fn two_that_retract_with_a_packet_in_hand_do_not_wait_for_each_other() {
        static BYTES: [u8; 8] = [0; 8];
        let (mut a, mut b) = local_pair();
        send(&mut a, header(A, B, 7, 0), &BYTES).unwrap();
        send(&mut b, header(B, A, 7, 0), &BYTES).unwrap();
        assert!(a.receive().is_some() && b.receive().is_some());
        let (done, both) = std::sync::mpsc::channel();
        for mut links in [a, b] {
            let done = done.clone();
            std::thread::spawn(move || {
                links.retract(Retract::Requests { source_qp: 7 });
                done.send(links).unwrap();
            });
        }
        for _ in 0..2 {
            both.recv_timeout(Duration::from_secs(300))
                .expect("no circle of waiting");
        }
    }

    #[test]
    fn a_peer_that_is_gone_is_forgotten_after_its_last_packet() {
        for (shared, (mut a, mut b)) in [(false, local_pair()), (true, shared_pair())] {
            let bytes = [5u8; 8];
            send(&mut b, header(B, A, 7, 0), &bytes).unwrap();
            drop(b);
            // What was lent went with the lender; what was copied still comes.
            assert_eq!(a.receive().is_some(), shared);
            assert!(a.receive().is_none());
            assert_eq!(a.path_mtu(B), None);
            assert!(
                send(&mut a, header(A, B, 7, 0), &bytes).is_ok(),
                "swallowed"
            );
        }
    }

    #[test]
    fn a_peer_process_that_died_is_noticed() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut a = Links::new(A);
        assert!(a.add(B, Link::Shared(offer(&ours, A, B).unwrap())));
        // Its socket closes, and nothing in the shared memory says so.
        drop(theirs);
        for _ in 0..10_000 {
            assert!(a.receive().is_none());
        }
        assert_eq!(a.path_mtu(B), None);
    }
}
