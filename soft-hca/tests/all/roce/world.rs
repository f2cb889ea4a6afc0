//! Two HCAs on sockets, and their users. They take turns on one thread, by the system's clock.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use mlx5_wqe::{Cqe64, QpNumber};
use warpbell_roce::{DONT_FRAGMENT, Ip, UdpIp};
use warpbell_soft_hca::engine::{
    Access, ProtectionDomain, QueuePairOptions, Transport, WireAddress,
};
use warpbell_soft_hca::shell::{Faults, HcaOptions, RoceOptions, SoftHca};

use super::relay::{Fates, Relay};
use crate::engine::world::{
    Buffer, Connection, Qp, Region, Shape, connect_queue_pair, create_queue_pair,
};

/// Longer than anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// The acknowledgement timeout.
const TIMEOUT_NS: u64 = 100_000_000;
/// The path MTU of the loopback device.
pub const MTU: u32 = 4096;
/// What befalls packets at a relay follows from it.
const SEED: u64 = 1;
pub const Q_KEY: u32 = 0x1122_3344;

/// Of each kind the addresses of two HCAs; the system chooses the ports.
pub const ADDRESSES: [[SocketAddr; 2]; 2] = {
    const fn at(ip: IpAddr) -> SocketAddr {
        SocketAddr::new(ip, 0)
    }
    [
        [
            at(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            at(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2))),
        ],
        [at(IpAddr::V6(Ipv6Addr::LOCALHOST)); 2],
    ]
};

pub fn listen(hca: &SoftHca, address: SocketAddr, capture: Option<PathBuf>) -> SocketAddr {
    let options = RoceOptions {
        address,
        capture,
        ..RoceOptions::at(address.ip())
    };
    hca.listen(options).unwrap()
}

/// An HCA with a queue pair.
pub struct Node {
    pub hca: SoftHca,
    /// Where it listens.
    pub address: SocketAddr,
    pub pd: ProtectionDomain,
    pub qp: Qp,
}

impl Node {
    pub fn new(address: SocketAddr, transport: Transport) -> Self {
        Self::with(address, transport, None, None)
    }

    fn with(
        address: SocketAddr,
        transport: Transport,
        faults: Option<Faults>,
        capture: Option<PathBuf>,
    ) -> Self {
        let hca = SoftHca::new(HcaOptions {
            faults,
            ..HcaOptions::default()
        });
        let address = listen(&hca, address, capture);
        Self::of(hca, address, transport)
    }

    /// One that listens in a way of its own.
    pub fn listening(options: RoceOptions, transport: Transport) -> Self {
        let hca = SoftHca::new(HcaOptions::default());
        let address = hca.listen(options).unwrap();
        Self::of(hca, address, transport)
    }

    fn of(hca: SoftHca, address: SocketAddr, transport: Transport) -> Self {
        let shape = Shape {
            options: QueuePairOptions {
                transport,
                ..QueuePairOptions::default()
            },
            ..Shape::default()
        };
        let (pd, qp) = hca
            .command(|engine| {
                let pd = engine.create_protection_domain().unwrap();
                (pd, create_queue_pair(engine, pd, shape))
            })
            .unwrap();
        Self {
            hca,
            address,
            pd,
            qp,
        }
    }

    /// Connects its queue pair.
    pub fn connect(&self, peer: WireAddress, qp: QpNumber, mtu: u32, with: Connection) {
        let own = self.qp.number;
        self.hca
            .command(|engine| {
                connect_queue_pair(engine, own, (peer, qp), mtu, with);
                engine.set_q_key(own, Q_KEY).unwrap();
            })
            .unwrap();
    }

    /// Memory with every right.
    pub fn region(&self, bytes: &[u8]) -> Region {
        let buffer = Buffer::filled(bytes);
        let (address, length) = (buffer.address(), buffer.length as u64);
        let keys = self
            .hca
            .command(|engine| {
                // SAFETY: the buffer lives as long as the test.
                unsafe { engine.register_memory(self.pd, address, length, Access::all()) }
            })
            .unwrap();
        Region {
            buffer,
            keys: keys.unwrap(),
        }
    }
}

/// How two HCAs are connected.
#[derive(Clone)]
pub struct Way {
    pub addresses: [SocketAddr; 2],
    pub transport: Transport,
    pub mtu: u32,
    pub psn: u32,
    pub faults: [Option<Faults>; 2],
    /// The file to which A writes its packets.
    pub capture: Option<PathBuf>,
}

impl Way {
    pub fn of(addresses: [SocketAddr; 2]) -> Self {
        Self {
            addresses,
            transport: Transport::ReliableConnection,
            mtu: MTU,
            psn: 7,
            faults: [None, None],
            capture: None,
        }
    }
}

/// Two HCAs whose queue pairs are connected.
pub struct World {
    pub a: Node,
    pub b: Node,
    /// Between the two, if somebody is.
    pub relay: Option<Relay>,
}

impl World {
    pub fn new(way: Way) -> Self {
        Self::with(way, None)
    }

    /// Two HCAs with a relay between them.
    pub fn through(way: Way, fates: Fates) -> Self {
        Self::with(way, Some(fates))
    }

    fn with(way: Way, fates: Option<Fates>) -> Self {
        let [first, second] = way.faults;
        let a = Node::with(way.addresses[0], way.transport, first, way.capture);
        let b = Node::with(way.addresses[1], way.transport, second, None);
        let relay = fates.map(|fates| Relay::new([a.address, b.address], fates, SEED));
        let peers = match &relay {
            Some(relay) => [relay.facing(0), relay.facing(1)],
            None => [b.address, a.address],
        };
        let names = [
            a.hca.reach(peers[0]).unwrap(),
            b.hca.reach(peers[1]).unwrap(),
        ];
        let with = Connection {
            psn: way.psn,
            // Retries come one in a step at most, and each step of one is followed by one of the other.
            ack_timeout_ns: TIMEOUT_NS,
            ..Connection::default()
        };
        a.connect(names[0], b.qp.number, way.mtu, with);
        b.connect(names[1], a.qp.number, way.mtu, with);
        Self { a, b, relay }
    }

    pub fn step(&mut self) -> usize {
        if let Some(relay) = &mut self.relay {
            relay.step();
        }
        self.a.hca.step().unwrap() + self.b.hca.step().unwrap()
    }

    /// Steps both until `done` gives something.
    #[track_caller]
    pub fn until<T>(&mut self, mut done: impl FnMut(&mut Self) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.step();
            if let Some(result) = done(self) {
                return result;
            }
            assert!(
                Instant::now() < deadline,
                "nothing comes: {:?} {:?}",
                self.a.hca.roce_counters(),
                self.b.hca.roce_counters()
            );
        }
    }

    /// The next completion of A's requests.
    #[track_caller]
    pub fn sent(&mut self) -> Cqe64 {
        self.until(|world| world.a.qp.send_cq.poll())
    }

    /// The next completion of B's receives.
    #[track_caller]
    pub fn received(&mut self) -> Cqe64 {
        self.until(|world| world.b.qp.receive_cq.poll())
    }

    /// A few steps, in which nothing ought to happen.
    pub fn rest(&mut self) {
        for _ in 0..50 {
            self.step();
        }
    }

    /// Neither HCA dropped a packet or met an error.
    #[track_caller]
    pub fn check(&self) {
        for node in [&self.a, &self.b] {
            let counters = node.hca.roce_counters().unwrap();
            let mut good = warpbell_soft_hca::shell::RoceCounters::default();
            (good.sent, good.received) = (counters.sent, counters.received);
            assert_eq!(counters, good);
        }
    }
}

/// A socket that plays the peer of an HCA, packet by packet.
pub struct Stranger {
    pub socket: UdpSocket,
    pub address: SocketAddr,
}

impl Stranger {
    pub fn new(address: SocketAddr) -> Self {
        let socket = UdpSocket::bind(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let address = socket.local_addr().unwrap();
        Self { socket, address }
    }

    /// Makes itself the peer of this HCA's queue pair, as queue pair `number`.
    pub fn meet(&self, node: &Node, number: u32, mtu: u32, psn: u32) {
        let name = node.hca.reach(self.address).unwrap();
        let with = Connection {
            psn,
            // It may not answer.
            ack_timeout_ns: 0,
            ..Connection::default()
        };
        node.connect(name, QpNumber::new(number).unwrap(), mtu, with);
    }

    /// The next datagram that an HCA sends, which is stepped until there is one.
    pub fn answer(&self, from: &Node) -> Vec<u8> {
        self.socket.set_nonblocking(true).unwrap();
        let mut bytes = vec![0; 1 << 16];
        let deadline = Instant::now() + PATIENCE;
        loop {
            from.hca.step().unwrap();
            if let Ok(length) = self.socket.recv(&mut bytes) {
                self.socket.set_nonblocking(false).unwrap();
                bytes.truncate(length);
                return bytes;
            }
            assert!(Instant::now() < deadline, "no answer");
        }
    }

    /// A packet from this HCA: its bytes up to the pad, and the CRC.
    pub fn sealed_by(&self, from: &Node, packet: &[u8]) -> Vec<u8> {
        let front = front(from.address, self.address, 0, packet.len() + 4);
        [packet, &front.icrc(&[packet]).to_le_bytes()].concat()
    }

    /// A packet to this HCA: its bytes up to the pad, and the CRC.
    pub fn seal(&self, to: &Node, packet: &[u8]) -> Vec<u8> {
        let front = front(self.address, to.address, 0, packet.len() + 4);
        [packet, &front.icrc(&[packet]).to_le_bytes()].concat()
    }

    /// A send that was executed before, with this PSN: it is acknowledged, and nothing else happens.
    pub fn duplicate(&self, to: &Node, psn: u8) -> Vec<u8> {
        let qpn = to.qp.number.get().to_be_bytes();
        let packet = [&[0x04, 0, 0xff, 0xff, 0], &qpn[1..], &[0x80, 0, 0, psn]].concat();
        self.seal(to, &packet)
    }

    /// Sends a datagram, which lies in the other's socket when this returns.
    pub fn send(&self, to: &Node, bytes: &[u8]) {
        self.socket.send_to(bytes, to.address).unwrap();
    }

    pub fn receive(&self) -> Vec<u8> {
        let mut bytes = vec![0; 1 << 16];
        let length = self.socket.recv(&mut bytes).unwrap();
        bytes.truncate(length);
        bytes
    }
}

/// The fields of the headers in front of a packet of `length` bytes that its CRC covers.
pub fn front(from: SocketAddr, to: SocketAddr, identification: u16, length: usize) -> UdpIp {
    let ip = match (from, to) {
        (SocketAddr::V4(from), SocketAddr::V4(to)) => Ip::V4 {
            source: *from.ip(),
            destination: *to.ip(),
            identification,
            flags_and_offset: DONT_FRAGMENT,
        },
        (SocketAddr::V6(from), SocketAddr::V6(to)) => Ip::V6 {
            source: *from.ip(),
            destination: *to.ip(),
        },
        _ => unreachable!("addresses of two kinds"),
    };
    UdpIp {
        ip,
        source_port: from.port(),
        destination_port: to.port(),
        udp_length: (8 + length) as u16,
    }
}
