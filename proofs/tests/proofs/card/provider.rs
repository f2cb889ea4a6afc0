//! What `host-init` makes of the device, and what it says of what is not there.

use std::env;
use std::net::IpAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use mlx5_wqe::Wqe;
use warpbell::SendDoorbell;
use warpbell::{Deadline, Exclusive, Processor, Thread};
use warpbell_host_init::mlx5::{CardCounters, CardEvent, GidChoice, Mlx5Error, Mlx5Options};
use warpbell_host_init::soft::SoftOptions;
use warpbell_host_init::state::{CardPort, Endpoint, GidType};
use warpbell_host_init::{
    Access, Buffer, Device, Error, MemoryRegion, Nic, Peer, QueuePair, QueuePairConfig,
    RemoteMemory, State, Timers, connect,
};
use warpbell_patterns::trigger::host::Triggers;
use warpbell_proofs::preloaded::{self, Engine};

const LIMIT: Deadline = Deadline::after_ms(300_000);

/// Runs `body` where there is the device.
pub fn with_engine(name: &str, body: impl FnOnce()) {
    preloaded::test(Engine::On, name, body);
}

fn open(options: Mlx5Options) -> Result<Device, Error> {
    Device::open(Nic::Mlx5(options))
}

fn options() -> Mlx5Options {
    Mlx5Options::new("mlx5_0")
}

fn refused(options: Mlx5Options) -> (Mlx5Error, String) {
    let Err(error) = open(options) else {
        panic!("it opens");
    };
    let text = error.to_string();
    match error {
        Error::Mlx5(error) => (*error, text),
        other => panic!("{other}"),
    }
}

/// What does not fit is named, with what would.
#[test]
fn names_ports_and_gids() {
    with_engine("card::provider::names_ports_and_gids", || {
        let (error, text) = refused(Mlx5Options::new("mlx5_7"));
        assert!(matches!(error, Mlx5Error::NoDevice { .. }));
        assert_eq!(text, "there is no RDMA device mlx5_7; choose one of mlx5_0");
        let port = Mlx5Options {
            port: 2,
            ..options()
        };
        let (error, text) = refused(port);
        assert!(matches!(error, Mlx5Error::Port { port: 2, .. }), "{text}");
        assert!(text.contains("port 2 of mlx5_0 is not there"), "{text}");

        let gid = |gid| Mlx5Options { gid, ..options() };
        let own = open(options()).unwrap().gid();
        let wrong = [
            GidChoice {
                kind: Some(GidType::RoceV1),
                ..GidChoice::default()
            },
            GidChoice {
                address: Some("10.1.2.3".parse().unwrap()),
                ..GidChoice::default()
            },
            GidChoice {
                index: Some(3),
                ..GidChoice::default()
            },
        ];
        let words = [
            "no GID of type RoCE v1; it has",
            "no GID of type RoCE v2 with address 10.1.2.3; it has",
            "no GID at index 3; it has",
        ];
        for (choice, words) in wrong.into_iter().zip(words) {
            let (error, text) = refused(gid(choice));
            assert!(matches!(error, Mlx5Error::NoGid { .. }));
            assert!(
                text.contains(words) && text.contains(&own.to_string()),
                "{text}"
            );
        }
        let right = GidChoice {
            address: Some(IpAddr::from(own.0)),
            kind: Some(GidType::RoceV2),
            index: None,
        };
        assert_eq!(open(gid(right)).unwrap().gid(), own);
    });
}

/// Two queue pairs through their states, an error by command, and again.
#[test]
fn states() {
    with_engine("card::provider::states", || {
        let device = open(options()).unwrap();
        let domain = device.protection_domain().unwrap();
        let config = QueuePairConfig {
            ..QueuePairConfig::granting(Access::all())
        };
        let [mut one, mut other] = [0, 1].map(|_| domain.queue_pair(&config).unwrap());
        for _ in 0..3 {
            assert_eq!(one.state().unwrap(), State::Reset);
            connect(&mut one, &mut other).unwrap();
            assert_eq!(one.state().unwrap(), State::ReadyToSend);
            one.to_error().unwrap();
            assert_eq!(one.state().unwrap(), State::Error);
            let before = one.qpn();
            one.reset().unwrap();
            other.reset().unwrap();
            assert_ne!(one.qpn(), before);
        }
        // Memory comes and goes.
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        for _ in 0..3 {
            let region = domain.register(Buffer::new(100).unwrap(), access).unwrap();
            assert!(region.deregister().unwrap().is_some());
        }
    });
}

/// Other ends that cannot be are refused before the card is asked.
#[test]
fn other_ends() {
    with_engine("card::provider::other_ends", || {
        let device = open(options()).unwrap();
        let domain = device.protection_domain().unwrap();
        let mut pair = domain
            .queue_pair(&QueuePairConfig::granting(Access::all()))
            .unwrap();
        let good = pair.endpoint();
        let port = good.card.unwrap();
        assert_eq!((port.kind, port.lid, port.mtu), (GidType::RoceV2, 0, 4096));
        pair.to_init().unwrap();
        let mut refuse = |remote: Endpoint| {
            let error = pair.to_ready_to_receive(&remote).unwrap_err();
            assert_eq!(pair.state().unwrap(), State::Init);
            error.to_string()
        };
        let with = |card| Endpoint {
            card: Some(card),
            ..good
        };
        for (remote, words) in [
            (
                Endpoint { card: None, ..good },
                "the other end is a software HCA",
            ),
            (
                with(CardPort {
                    kind: GidType::InfiniBand,
                    ..port
                }),
                "a port whose packets are of another kind",
            ),
            (
                with(CardPort { mtu: 300, ..port }),
                "the other end's MTU is 0x12c",
            ),
        ] {
            let text = refuse(remote);
            assert!(text.contains(words), "{text}");
        }
        // Nobody has this GID: the card says so, with its syndrome.
        let mut nobody = good;
        nobody.gid.0[15] ^= 1;
        let text = refuse(nobody);
        assert!(
            text.contains("bad parameter (status 0x03), syndrome 0x5742"),
            "{text}"
        );
        // A smaller MTU there is taken.
        pair.to_ready_to_receive(&with(CardPort { mtu: 1024, ..port }))
            .unwrap();

        let soft = Device::open(Nic::Soft(SoftOptions::default())).unwrap();
        let soft = soft.protection_domain().unwrap();
        let mut there = soft
            .queue_pair(&QueuePairConfig::granting(Access::all()))
            .unwrap();
        let mut here = domain
            .queue_pair(&QueuePairConfig::granting(Access::all()))
            .unwrap();
        let error = connect(&mut here, &mut there).unwrap_err();
        assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    });
}

/// What the joining process finds in its environment: where the other one listens.
const SOCKET: &str = "WARPBELL_PROOFS_SOCKET";

/// Two processes, each with a device of its own, that find each other through a socket.
#[test]
fn two_processes() {
    const NAME: &str = "card::provider::two_processes";
    const PATIENCE: Duration = Duration::from_secs(300);
    with_engine(NAME, || {
        let device = open(options()).unwrap();
        let domain = device.protection_domain().unwrap();
        let mut pair = domain
            .queue_pair(&QueuePairConfig::granting(Access::all()))
            .unwrap();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = domain.register(Buffer::new(64).unwrap(), access).unwrap();
        if let Some(path) = env::var_os(SOCKET) {
            let mut peer = Peer::join(&device, path.as_ref(), PATIENCE).unwrap();
            peer.connect(&mut pair).unwrap();
            let _: RemoteMemory = peer.exchange(&region.remote()).unwrap();
            peer.barrier("written").unwrap();
            let mut arrived = [0; 64];
            region.read(0, &mut arrived).unwrap();
            assert_eq!(arrived, [7; 64]);
            return peer.barrier("checked").unwrap();
        }
        let path = env::temp_dir().join(format!("warpbell-card-{}", std::process::id()));
        let mut other = preloaded::again(Engine::On).unwrap();
        let other = other
            .args(["--exact", NAME, "--nocapture"])
            .env(SOCKET, &path);
        let mut other = other.spawn().unwrap();
        let mut peer = Peer::listen(&device, &path, PATIENCE).unwrap();
        assert_ne!(peer.gid(), device.gid());
        peer.connect(&mut pair).unwrap();
        let theirs: RemoteMemory = peer.exchange(&region.remote()).unwrap();
        region.write(0, &[7; 64]).unwrap();
        write(&pair, &region, &theirs);
        peer.barrier("written").unwrap();
        peer.barrier("checked").unwrap();
        assert!(other.wait().unwrap().success());
    });
}

/// Queue pairs without a doorbell record, by unmodified libmlx5. Its release 44 puts two of our registers on a page, of
/// which the device gives the one at 0x600 to one queue pair: each has a page of its own.
#[test]
fn without_a_doorbell_record() {
    with_engine("card::provider::without_a_doorbell_record", || {
        let device = open(options()).unwrap();
        assert!(device.limits().without_record);
        let domain = device.protection_domain().unwrap();
        let config = QueuePairConfig {
            send_doorbell: SendDoorbell::WithoutRecord,
            ..QueuePairConfig::granting(Access::all())
        };
        let pairs = [(); 4].map(|()| domain.queue_pair(&config).unwrap());
        let [mut one, mut two, mut three, mut four] = pairs;
        connect(&mut one, &mut two).unwrap();
        connect(&mut three, &mut four).unwrap();
        let buffer = Buffer::new(4096).unwrap();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = domain.register(buffer, access).unwrap();
        region.write(0, b"told by the doorbell").unwrap();
        let handles = [&one, &three].map(|pair| pair.send_queue().unwrap());
        let [mut first, mut second] = handles.map(|handle| {
            let queue = handle.open::<Exclusive>();
            queue.unwrap()
        });
        for round in 0..200 {
            let local = region.local(0, 20).unwrap();
            let to = |at| region.remote().at(at, 20).unwrap();
            let wqes = [1024, 2048].map(|at| Wqe::write(local, to(at)).signalled());
            let one = first.post(wqes[0], LIMIT).unwrap();
            let two = second.post(wqes[1], LIMIT).unwrap();
            first.wait_outbound(one, LIMIT).unwrap();
            second.wait_outbound(two, LIMIT).unwrap();
            for at in [1024, 2048] {
                let mut bytes = [0; 20];
                region.read(at, &mut bytes).unwrap();
                assert_eq!(&bytes, b"told by the doorbell", "round {round}");
                region.write(at, &[0; 20]).unwrap();
            }
        }
    });
}

/// Operations that the device starts by itself, one after the other, in queue pairs made for it by unmodified libmlx5.
#[test]
fn chains() {
    with_engine("card::provider::chains", || {
        let device = open(options()).unwrap();
        assert!(device.limits().cross_channel);
        let domain = device.protection_domain().unwrap();
        let end = QueuePairConfig {
            receive_depth: 0,
            ..QueuePairConfig::granting(Access::all())
        };
        let (mut near, mut far) = (Vec::new(), Vec::new());
        for tag in 0..4 {
            let config = QueuePairConfig {
                cross_channel: true,
                managed_send: tag > 0,
                ..end
            };
            let mut here = domain.queue_pair(&config).unwrap();
            let mut there = domain.queue_pair(&end).unwrap();
            connect(&mut here, &mut there).unwrap();
            near.push(here);
            far.push(there);
        }
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = domain.register(Buffer::new(64).unwrap(), access).unwrap();
        // Each copies what the one before has copied.
        let copy = |from: usize| {
            let local = region.local(8 * from, 8).unwrap();
            Wqe::write(local, region.remote().at(8 * from + 8, 8).unwrap())
        };
        let mut triggers = Triggers::new(near).unwrap();
        for round in 1..=100u64 {
            triggers.register(0, 1, [copy(0)]).unwrap();
            for tag in 1..4 {
                triggers
                    .register_after(tag, tag - 1, [copy(tag as usize)])
                    .unwrap();
            }
            region.write(0, &round.to_ne_bytes()).unwrap();
            let handle = triggers.handle().open().unwrap();
            handle.trigger::<Thread>(0).unwrap();
            handle.wait::<Thread>(3, LIMIT).unwrap();
            let mut last = [0; 8];
            region.read(32, &mut last).unwrap();
            assert_eq!(u64::from_ne_bytes(last), round);
        }
        drop(triggers);
        drop(far);
    });
}

/// All queue pairs are bound to a set of counters, which keeps what they met when they are gone.
#[test]
fn counters() {
    with_engine("card::provider::counters", || {
        let device = open(options()).unwrap();
        let counted = || device.counters().unwrap().unwrap().rnr_nak_retry_err;
        let domain = device.protection_domain().unwrap();
        let config = QueuePairConfig {
            timers: Timers {
                rnr_retry: 3,
                rnr_timer: 1,
                ..Timers::default()
            },
            ..QueuePairConfig::granting(Access::all())
        };
        let [mut one, mut other] = [0, 1].map(|_| domain.queue_pair(&config).unwrap());
        connect(&mut one, &mut other).unwrap();
        assert_eq!(counted(), 0);
        // A send that finds no receive: the first try, and three more.
        let region = domain.register(Buffer::new(64).unwrap(), Access::LOCAL_WRITE);
        let handle = one.send_queue().unwrap();
        let mut queue = handle.open::<Exclusive>().unwrap();
        let local = region.as_ref().unwrap().local(0, 64).unwrap();
        let ticket = queue.post(Wqe::send(local).signalled(), LIMIT).unwrap();
        queue.wait_outbound(ticket, LIMIT).unwrap_err();
        assert_eq!(counted(), 4);
        // Another device's are its own.
        let another = open(options()).unwrap();
        assert_eq!(another.counters().unwrap(), Some(CardCounters::default()));
        drop(queue);
        drop((one, other));
        assert_eq!(counted(), 4);
        let soft = Device::open(Nic::Soft(SoftOptions::default())).unwrap();
        assert_eq!(soft.counters().unwrap(), None);
    });
}

/// With the port as the environment has it.
fn with_port(port: &str, name: &str, body: impl FnOnce()) {
    let prepare = |command: &mut Command| {
        command.env("WARPBELL_PORT", port);
    };
    preloaded::test_with(Engine::On, name, prepare, body);
}

/// What a lesser card has not is said when it is opened, or where it is asked for.
#[test]
fn a_lesser_card_is_named() {
    let with = |lacks: &str, name: &str, body: &dyn Fn()| {
        let prepare = |command: &mut Command| {
            command.env("WARPBELL_LACKS", lacks);
        };
        preloaded::test_with(Engine::On, name, prepare, body);
    };
    let name = "card::provider::a_lesser_card_is_named";
    let said = env::var("WARPBELL_LACKS").unwrap_or_default();
    let opening = |wanted: &str| {
        let (error, text) = refused(options());
        assert!(
            matches!(error, Mlx5Error::Lacks { .. }) && text.starts_with(wanted),
            "{text}"
        );
    };
    let cases: [(&str, &dyn Fn()); 3] = [
        ("cq_oi", &|| {
            opening("mlx5_0 has no completion queues that ignore overruns; ")
        }),
        ("host-order", &|| {
            opening("mlx5_0 has no atomics in the host's byte order; ")
        }),
        ("atomic", &|| {
            let domain = open(options()).unwrap().protection_domain().unwrap();
            domain
                .queue_pair(&QueuePairConfig::granting(Access::REMOTE_WRITE))
                .unwrap();
            let error = domain
                .queue_pair(&QueuePairConfig::granting(Access::all()))
                .unwrap_err();
            assert!(
                error
                    .to_string()
                    .starts_with("mlx5_0 has no atomics of 8 bytes; "),
                "{error}"
            );
        }),
    ];
    for (lacks, body) in cases {
        // Inside of the process that is started for it a case runs alone.
        if said.is_empty() || said == lacks {
            with(lacks, name, body);
        }
    }
}

/// By LID, and with the global route header that this port demands.
#[test]
fn infiniband() {
    with_port("infiniband", "card::provider::infiniband", || {
        let (_, text) = refused(Mlx5Options {
            gid: GidChoice {
                kind: Some(GidType::RoceV2),
                ..GidChoice::default()
            },
            ..options()
        });
        assert!(text.contains("no GID of type RoCE v2; it has"), "{text}");
        let device = open(options()).unwrap();
        let domain = device.protection_domain().unwrap();
        let config = QueuePairConfig::granting(Access::all());
        let [mut one, mut other] = [0, 1].map(|_| domain.queue_pair(&config).unwrap());
        let port = one.endpoint().card.unwrap();
        assert_eq!((port.kind, port.lid), (GidType::InfiniBand, 1));
        connect(&mut one, &mut other).unwrap();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let [source, target] = [7, 0].map(|byte| {
            let region = domain.register(Buffer::new(64).unwrap(), access).unwrap();
            region.write(0, &[byte; 64]).unwrap();
            region
        });
        write(&one, &source, &target.remote());
        let mut arrived = [0; 64];
        target.read(0, &mut arrived).unwrap();
        assert_eq!(arrived, [7; 64]);
    });
}

/// An index that the table has not is refused by name; two ends of different partitions do not connect.
#[test]
fn partitions() {
    with_engine("card::provider::partitions", || {
        let (error, text) = refused(Mlx5Options {
            partition_key_index: 1,
            ..options()
        });
        assert!(matches!(error, Mlx5Error::NoPartitionKey { index: 1, .. }));
        assert!(
            text.starts_with("port 1 of mlx5_0 has no partition key at index 1"),
            "{text}"
        );

        let device = open(options()).unwrap();
        let domain = device.protection_domain().unwrap();
        let mut pair = domain.queue_pair(&QueuePairConfig::default()).unwrap();
        let own = pair.endpoint();
        let port = own.card.unwrap();
        assert_eq!(port.partition, 0xffff);
        pair.to_init().unwrap();
        let other = Endpoint {
            card: Some(CardPort {
                partition: 0x8001,
                ..port
            }),
            ..own
        };
        let error = pair.to_ready_to_receive(&other).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the other end has partition key 0x8001, this one 0xffff; use the same key, of which one end at least is a full member (0x8000)"
        );
    });
}

/// Another InfiniBand subnet is behind a router, whose LID takes the place of the other end's.
#[test]
fn other_subnets() {
    with_port("infiniband", "card::provider::other_subnets", || {
        let toward = |router_lid| {
            let device = open(Mlx5Options {
                router_lid,
                ..options()
            });
            let domain = device.unwrap().protection_domain().unwrap();
            let mut pair = domain.queue_pair(&QueuePairConfig::default()).unwrap();
            let mut far = pair.endpoint();
            far.gid.0[0] ^= 1;
            pair.to_init().unwrap();
            pair.to_ready_to_receive(&far).unwrap_err().to_string()
        };
        let unknown = toward(None);
        assert!(
            unknown.contains("is in another subnet") && unknown.contains("router_lid"),
            "{unknown}"
        );
        // The device knows nobody there, and is asked.
        let refused = toward(Some(77));
        assert!(refused.contains("bring a queue pair to RTR"), "{refused}");
    });
}

/// What the other end may not do is told at this end by name, where no completion tells it.
#[test]
fn events() {
    with_engine("card::provider::events", || {
        let device = open(options()).unwrap();
        let domain = device.protection_domain().unwrap();
        // The queue pair takes no WRITE at all; it does, and the memory does not.
        for (granted, on_memory) in [
            (Access::empty(), Access::REMOTE_WRITE),
            (Access::REMOTE_WRITE, Access::empty()),
        ] {
            let config = QueuePairConfig::granting(granted);
            let [mut one, mut other] = [0, 1].map(|_| domain.queue_pair(&config).unwrap());
            connect(&mut one, &mut other).unwrap();
            assert_eq!(device.card_events().unwrap(), []);
            let access = Access::LOCAL_WRITE | on_memory;
            let region = domain.register(Buffer::new(64).unwrap(), access).unwrap();
            let mut queue = one.send_queue().unwrap().open::<Exclusive>().unwrap();
            let remote = region.remote().at(0, 64).unwrap();
            let wqe = Wqe::write(region.local(0, 64).unwrap(), remote).signalled();
            let ticket = queue.post(wqe, LIMIT).unwrap();
            queue.wait_outbound(ticket, LIMIT).unwrap_err();
            drop(queue);
            let deadline = Instant::now() + Duration::from_secs(300);
            let mut events = Vec::new();
            while events.is_empty() && Instant::now() < deadline {
                events = device.card_events().unwrap();
            }
            let qpn = other.qpn();
            let expected = match granted.is_empty() {
                true => CardEvent::InvalidRequest { qpn },
                false => CardEvent::AccessViolation { qpn },
            };
            assert_eq!(events, [expected]);
            // Told once.
            drop((one, other));
            assert_eq!(device.card_events().unwrap(), []);
        }
    });
}

#[test]
fn a_port_that_is_down() {
    with_port("down", "card::provider::a_port_that_is_down", || {
        let (error, text) = refused(options());
        assert!(matches!(error, Mlx5Error::Port { port: 1, .. }));
        assert_eq!(
            text,
            "port 1 of mlx5_0 is down; plug its cable, and bring its interface up (`ip link set DEV up`)"
        );
    });
}

/// Writes 64 bytes, and waits until they have arrived.
pub fn write(from: &QueuePair, source: &MemoryRegion, target: &RemoteMemory) {
    // SAFETY: no kernel opens it on a GPU: there is none but a fake.
    let handle = unsafe { from.send_queue().unwrap().on(Processor::CPU) };
    let mut queue = handle.open::<Exclusive>().unwrap();
    let local = source.local(0, 64).unwrap();
    let remote = target.at(0, 64).unwrap();
    let ticket = queue.post(Wqe::write(local, remote).signalled(), LIMIT);
    queue.wait_outbound(ticket.unwrap(), LIMIT).unwrap();
}

/// What a card does not take is refused, and leaves nothing behind.
#[test]
fn queues_that_cannot_be() {
    with_engine("card::provider::queues_that_cannot_be", || {
        let device = open(options()).unwrap();
        let domain = device.protection_domain().unwrap();
        // More than the tables hold.
        let config = QueuePairConfig {
            send_depth: 1,
            receive_depth: 0,
            ..QueuePairConfig::granting(Access::all())
        };
        let mut pairs = Vec::new();
        let error = loop {
            match domain.queue_pair(&config) {
                Ok(pair) => pairs.push(pair),
                Err(error) => break error,
            }
            assert!(pairs.len() < 1 << 17);
        };
        assert!(pairs.len() > 100, "{}", pairs.len());
        let text = error.to_string();
        assert!(
            text.contains("no resources (status 0x0f), syndrome 0x5742"),
            "{text}"
        );
        assert!(text.contains("use fewer or shallower queues"), "{text}");
        drop(pairs);
        domain.queue_pair(&config).unwrap();
    });
}
