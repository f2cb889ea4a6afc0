//! A relay between two HCAs, which loses, doubles, damages and delays packets, and marks them as congested.
//!
//! Each HCA takes a socket of the relay's for the other. So the relay puts a new CRC behind each packet, before it damages
//! any.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rustix::net::sockopt;

use super::world::front;

/// The ECN field of a packet that met congestion (RFC 3168, 5).
const CONGESTED: u32 = 3;
/// Bytes of an invariant CRC.
const CRC: usize = 4;
/// The byte of a BTH that routers may change, which the CRC does not cover.
const MASKED: usize = 4;

/// What befalls packets, each in so many of a thousand.
#[derive(Clone, Copy, Default)]
pub struct Fates {
    pub lost: u32,
    pub doubled: u32,
    pub damaged: u32,
    /// Overtaken by up to eight packets that come later.
    pub late: u32,
    pub marked: u32,
}

pub struct Relay {
    /// Each faces the HCA with the same index.
    sockets: [UdpSocket; 2],
    ends: [SocketAddr; 2],
    /// Late packets to each HCA, with the number of packets that overtake them.
    late: [VecDeque<(u32, Vec<u8>)>; 2],
    fates: Fates,
    random: SmallRng,
    /// Packets that were damaged.
    pub damaged: u64,
}

impl Relay {
    /// Between HCAs at these addresses of IPv6, over which the CRC finds all damage.
    pub fn new(ends: [SocketAddr; 2], fates: Fates, seed: u64) -> Self {
        let sockets = ends.map(|end| {
            assert!(end.is_ipv6());
            let socket = UdpSocket::bind((end.ip(), 0)).unwrap();
            socket.set_nonblocking(true).unwrap();
            // Only the fates lose packets.
            let _ = sockopt::set_socket_recv_buffer_size_force(&socket, 8 << 20);
            socket
        });
        Self {
            sockets,
            ends,
            late: Default::default(),
            fates,
            random: SmallRng::seed_from_u64(seed),
            damaged: 0,
        }
    }

    /// What this HCA, the first or the second, takes for the other.
    pub fn facing(&self, end: usize) -> SocketAddr {
        self.sockets[end].local_addr().unwrap()
    }

    /// Passes on what has come.
    pub fn step(&mut self) {
        let mut bytes = vec![0; 1 << 16];
        for from in [0, 1] {
            loop {
                match self.sockets[from].recv_from(&mut bytes) {
                    Ok((length, address)) => {
                        assert_eq!(address, self.ends[from]);
                        self.pass(1 - from, &bytes[..length]);
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    fn happens(&mut self, of_thousand: u32) -> bool {
        self.random.random_range(0..1000) < of_thousand
    }

    /// Decides what becomes of a packet to that HCA.
    fn pass(&mut self, to: usize, bytes: &[u8]) {
        if self.happens(self.fates.lost) {
            return;
        }
        let packet = &bytes[..bytes.len() - CRC];
        let front = front(self.facing(to), self.ends[to], 0, bytes.len());
        let mut packet = [packet, &front.icrc(&[packet]).to_le_bytes()].concat();
        let times = 1 + u32::from(self.happens(self.fates.doubled));
        if self.happens(self.fates.damaged) {
            let mut at = self.random.random_range(0..packet.len() - 1);
            at += usize::from(at >= MASKED);
            packet[at] ^= 1 << self.random.random_range(0..8);
            self.damaged += u64::from(times);
        }
        for _ in 0..times {
            if self.happens(self.fates.late) {
                let others = self.random.random_range(1..=8);
                self.late[to].push_back((others, packet.clone()));
                continue;
            }
            self.send(to, &packet);
            let late = std::mem::take(&mut self.late[to]);
            for (others, packet) in late {
                match others - 1 {
                    0 => self.send(to, &packet),
                    left => self.late[to].push_back((left, packet)),
                }
            }
        }
    }

    fn send(&mut self, to: usize, packet: &[u8]) {
        let class = match self.happens(self.fates.marked) {
            true => CONGESTED,
            false => 0,
        };
        let socket = &self.sockets[to];
        sockopt::set_ipv6_tclass(socket, class).unwrap();
        socket.send_to(packet, self.ends[to]).unwrap();
    }
}
