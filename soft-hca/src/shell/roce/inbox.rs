//! Datagrams that have come: as many as the system gives in one call.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::prelude::v1::*;
use std::vec;

use quinn_udp::{EcnCodepoint, RecvMeta, UdpSocketState};

/// Buffers for one call at most.
const BUFFERS: usize = 8;
/// Bytes of each: the longest datagram, or as many as the system puts together (receive offload).
const BYTES: usize = 1 << 16;

/// A datagram that has come.
pub(super) struct Datagram {
    /// Where it comes from.
    pub from: SocketAddr,
    /// How many came before it in one piece: what the system numbers them from 0 with if they were sent in one piece, too.
    pub number: u16,
    /// Its mark for congestion, if it has one.
    pub ecn: Option<EcnCodepoint>,
    /// Where it lies until the next [`fill`](Inbox::fill).
    place: Range<usize>,
}

/// What a call gave.
pub(super) enum Filled {
    /// As much as a call can give: there may be more.
    Full,
    /// Less: there is nothing more, or it waits for the next step.
    Some,
    Nothing,
}

/// Datagrams that have come and were not looked at.
pub(super) struct Inbox {
    bytes: Box<[u8]>,
    metas: [RecvMeta; BUFFERS],
    /// Buffers for the next call. A call with more buffers than datagrams looks once more in vain, and delays a lone packet.
    /// So a call that found nothing is followed by one with one buffer, and any other by one with twice as many as it filled.
    asked: usize,
    filled: usize,
    /// The buffer to be looked at next, and the first byte there.
    buffer: usize,
    at: usize,
}

impl Inbox {
    pub fn new() -> Self {
        Self {
            bytes: vec![0; BUFFERS * BYTES].into_boxed_slice(),
            metas: [RecvMeta::default(); BUFFERS],
            asked: 1,
            filled: 0,
            buffer: 0,
            at: 0,
        }
    }

    /// Asks the system for datagrams, once those that were there have been taken.
    pub fn fill(&mut self, socket: &UdpSocket, state: &UdpSocketState) -> io::Result<Filled> {
        (self.filled, self.buffer, self.at) = (0, 0, 0);
        let mut buffers = self.bytes.chunks_exact_mut(BYTES).map(IoSliceMut::new);
        let mut buffers: [IoSliceMut<'_>; BUFFERS] =
            std::array::from_fn(|_| buffers.next().unwrap_or_else(|| IoSliceMut::new(&mut [])));
        let (buffers, metas) = (&mut buffers[..self.asked], &mut self.metas[..self.asked]);
        self.filled = match state.recv(socket.into(), buffers, metas) {
            Ok(filled) => filled,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        self.asked = (2 * self.filled).clamp(1, BUFFERS);
        Ok(match self.filled {
            0 => Filled::Nothing,
            BUFFERS => Filled::Full,
            _ => Filled::Some,
        })
    }

    /// Takes the next datagram.
    pub fn next(&mut self) -> Option<Datagram> {
        while self.buffer < self.filled {
            let meta = &self.metas[self.buffer];
            if self.at >= meta.len {
                (self.buffer, self.at) = (self.buffer + 1, 0);
                continue;
            }
            let start = self.buffer * BYTES + self.at;
            let length = meta.stride.clamp(1, meta.len - self.at);
            let number = (self.at / meta.stride.max(1)) as u16;
            self.at += length;
            return Some(Datagram {
                from: meta.addr,
                number,
                ecn: meta.ecn,
                place: start..start + length,
            });
        }
        None
    }

    /// The bytes of a datagram.
    pub fn bytes(&self, datagram: &Datagram) -> &[u8] {
        &self.bytes[datagram.place.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn more_buffers_wait_for_those_who_send_more() {
        let [from, to] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let state = UdpSocketState::new((&to).into()).unwrap();
        let address = to.local_addr().unwrap();
        let mut inbox = Inbox::new();
        for _ in 0..2 {
            for number in 0..20 {
                from.send_to(&[number], address).unwrap();
            }
            let mut numbers = Vec::new();
            let mut calls = Vec::new();
            while calls.last() != Some(&0) {
                inbox.fill(&to, &state).unwrap();
                let before = numbers.len();
                while let Some(datagram) = inbox.next() {
                    numbers.extend_from_slice(inbox.bytes(&datagram));
                }
                calls.push(numbers.len() - before);
            }
            assert_eq!(calls, [1, 2, 4, 8, 5, 0]);
            assert_eq!(numbers, (0..20).collect::<Vec<u8>>());
        }
    }
}
