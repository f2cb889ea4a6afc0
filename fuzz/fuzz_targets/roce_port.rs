//! Any datagrams to the port of an HCA that listens for RoCE packets, from its peer and from a stranger, with right CRCs and
//! wrong ones: each is counted, none touches memory without remote rights, and what the HCA says is good RoCE to its peer.
#![no_main]

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use libfuzzer_sys::fuzz_target;
use warpbell::wqe::{Remote, Wqe};
use warpbell::{Deadline, Exclusive};
use warpbell_host_init::soft::{Drive, SoftOptions};
use warpbell_host_init::state::{Endpoint, Gid, State};
use warpbell_host_init::{
    Access, MemoryRegion, Nic, Node, ProtectionDomain, QueuePair, QueuePairConfig,
};
use warpbell_roce::{DONT_FRAGMENT, Ip, Packet, UdpIp};
use warpbell_soft_hca::shell::{RoceCounters, RoceOptions, SoftHca, gid};

/// What lies in memory that nobody may touch.
const SECRET: u8 = 0x5a;
/// Datagrams of an input at most.
const MOST: usize = 8;
/// A word of the peer's that this HCA's requests name.
const THEIRS: Remote = Remote {
    address: 0x1000,
    key: warpbell::wqe::RemoteKey(0x77),
};

/// An HCA with a queue pair and requests under way, its peer and a stranger.
struct World {
    queue_pair: QueuePair,
    target: MemoryRegion,
    secret: MemoryRegion,
    address: SocketAddr,
    peer: UdpSocket,
    stranger: UdpSocket,
    domain: ProtectionDomain,
}

fn socket(last: u8) -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, last), 0)).expect("a socket");
    socket.set_nonblocking(true).expect("an option");
    socket
}

impl World {
    fn new() -> Self {
        let options = SoftOptions {
            drive: Drive::ByHand,
            ..SoftOptions::default()
        };
        let node = Node::cpu().with_nic(Nic::Soft(options));
        let domain = node.expect("a node").domain().expect("a domain");
        let [target, secret] = [Access::all(), Access::LOCAL_WRITE]
            .map(|access| domain.allocate(4096, access).expect("memory"));
        secret.write(0, &[SECRET; 4096]).expect("in range");
        let [peer, stranger] = [2, 3].map(socket);
        let options = RoceOptions {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            ..RoceOptions::at(Ipv4Addr::LOCALHOST.into())
        };
        let config = QueuePairConfig {
            receive_depth: 0,
            ..QueuePairConfig::granting(Access::all())
        };
        let mut queue_pair = domain.queue_pair(&config).expect("a queue pair");
        let hca = domain.device().soft_hca().expect("a software HCA");
        let address = hca.listen(options).expect("an address");
        let name = hca.reach(peer.local_addr().expect("bound")).expect("a way");
        let other = Endpoint {
            gid: Gid(gid::of(name)),
            qpn: 0x11,
            ..queue_pair.endpoint()
        };
        queue_pair.connect(&other).expect("two endpoints");
        let handle = queue_pair.send_queue().expect("a send queue");
        let mut queue = handle.open::<Exclusive>().expect("an open queue");
        let local = secret.local(0, 8).expect("in range");
        for request in [
            Wqe::write(local, THEIRS),
            Wqe::read(target.local(0, 8).expect("in range"), THEIRS),
        ] {
            let _ = queue
                .post(request.signalled(), Deadline::PASSED)
                .expect("room");
        }
        drop(queue);
        Self {
            queue_pair,
            target,
            secret,
            address,
            peer,
            stranger,
            domain,
        }
    }

    fn hca(&self) -> &SoftHca {
        self.domain.device().soft_hca().expect("a software HCA")
    }

    fn counters(&self) -> RoceCounters {
        self.hca().roce_counters().expect("it lives")
    }

    /// Sends what an input says, with some of its fields as this world has them.
    fn send(&self, how: u8, ahead: u8, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        let [own_qp, psn] = [self.queue_pair.qpn(), self.queue_pair.endpoint().psn];
        let mut put = |at: usize, value: &[u8]| {
            if let Some(place) = bytes.get_mut(at..at + value.len()) {
                place.copy_from_slice(value);
            }
        };
        if how & 1 != 0 {
            put(2, &[0xff, 0xff]);
            put(5, &own_qp.to_be_bytes()[1..]);
        }
        if how & 2 != 0 {
            let psn = psn.wrapping_add_signed(i32::from(ahead as i8));
            put(9, &psn.to_be_bytes()[1..]);
        }
        let region = if how & 4 != 0 {
            &self.target
        } else {
            &self.secret
        };
        if how & 8 != 0 {
            put(12, &region.address().to_be_bytes());
            put(20, &region.rkey().0.to_be_bytes());
        }
        let from = if how & 16 != 0 {
            &self.stranger
        } else {
            &self.peer
        };
        if how & 32 != 0 {
            let crc = front(from, self.address, bytes.len() + 4).icrc(&[&bytes]);
            bytes.extend(crc.to_le_bytes());
        }
        // An empty datagram is taken and not counted.
        if bytes.is_empty() {
            return;
        }
        let before = self.counters().arrived();
        from.send_to(&bytes, self.address).expect("sent");
        for step in 0.. {
            self.hca().step().expect("it lives");
            if self.counters().arrived() > before {
                break;
            }
            assert!(step < 1_000_000, "it is not counted");
        }
    }

    fn check(&self) {
        let mut bytes = [0; 4096];
        self.secret.read(0, &mut bytes).expect("in range");
        assert!(bytes == [SECRET; 4096]);
        let mut room = [0; 1 << 13];
        while let Ok((length, from)) = self.peer.recv_from(&mut room) {
            assert_eq!(from, self.address);
            let said = &room[..length];
            Packet::parse(said).expect("a packet");
        }
        assert!(self.stranger.recv_from(&mut room).is_err());
    }
}

/// The headers in front of a packet to this address.
fn front(from: &UdpSocket, to: SocketAddr, length: usize) -> UdpIp {
    let from = from.local_addr().expect("bound");
    let (SocketAddr::V4(source), SocketAddr::V4(destination)) = (from, to) else {
        unreachable!("addresses of IPv4")
    };
    UdpIp {
        ip: Ip::V4 {
            source: *source.ip(),
            destination: *destination.ip(),
            identification: 0,
            flags_and_offset: DONT_FRAGMENT,
        },
        source_port: from.port(),
        destination_port: to.port(),
        udp_length: (8 + length) as u16,
    }
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

fuzz_target!(|input: &[u8]| {
    WORLD.with_borrow_mut(|world| {
        let now = world.get_or_insert_with(World::new);
        let mut rest = input;
        for _ in 0..MOST {
            let [how, ahead, length, tail @ ..] = rest else {
                break;
            };
            let (bytes, tail) = tail.split_at(usize::from(*length).min(tail.len()));
            now.send(*how, *ahead, bytes);
            rest = tail;
        }
        now.check();
        // What the peer did to the queue pair is over with it.
        if now.queue_pair.state().expect("it lives") != State::ReadyToSend {
            *world = None;
        }
    });
});
