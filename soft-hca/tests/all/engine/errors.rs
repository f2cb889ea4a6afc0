//! Every error of the facts table, with the CQE that it ends in.

use mlx5_wqe::{Cqe64, Immediate, Opcode, Remote, RemoteKey, Syndrome, VendorCode, Wqe};
use warpbell_soft_hca::engine::{Access, ErrorPlace, Event, QueuePairState, Transition};

use super::world::{Buffer, Connection, RNR_NS, Region, World, pattern};

/// What an error CQE says: CQE opcode, syndrome, vendor code, WQE index.
type Said = (u8, u8, u8, u16);

fn said(cqe: &Cqe64) -> Said {
    let (word, tail) = (cqe.error_word(), cqe.tail());
    (
        tail.cqe_opcode().0,
        word.syndrome().0,
        word.vendor().0,
        tail.wqe_counter(),
    )
}

fn all_said(cqes: &[Cqe64]) -> Vec<Said> {
    cqes.iter().map(said).collect()
}

/// Posts a WQE between two others: the first completes, the second fails with this syndrome and
/// vendor code, the third is flushed, and no byte of `untouched` changes.
#[track_caller]
fn fails_with<const BLOCKS: usize>(
    mut world: World,
    wqe: Wqe<BLOCKS>,
    expected: (u8, u8),
    untouched: &[Region],
) -> World {
    let before: Vec<_> = untouched
        .iter()
        .map(|region| region.buffer.bytes())
        .collect();
    let first = world.a.qp.write(Wqe::<1>::nop().signalled());
    let failing = world.a.qp.write(wqe);
    let last = world.a.qp.post(Wqe::<1>::nop());
    world.settle();
    let cqes = world.a.qp.send_cq.drain();
    let (syndrome, vendor) = expected;
    assert_eq!(
        all_said(&cqes),
        [
            (0, 0, 0, first.0),
            (13, syndrome, vendor, failing.0),
            (13, 0x05, 0xf9, last.0)
        ]
    );
    assert_eq!(cqes[1].tail().opcode(), wqe.opcode());
    assert_eq!(cqes[1].tail().qpn(), world.a.qp.number);
    let status = world.a.engine.query_queue_pair(world.a.qp.number).unwrap();
    assert_eq!(status.state, QueuePairState::Error);
    let error = status.first_error.unwrap();
    assert_eq!((error.syndrome.0, error.vendor.0), expected);
    assert_eq!(error.place, ErrorPlace::Send(failing));
    assert_eq!(status.counters.completed, 1);
    assert_eq!(status.counters.errors, 2);
    let event = Event::QueuePairFatal(world.a.qp.number);
    assert_eq!(world.a.engine.poll_event(), Some(event));
    assert_eq!(world.a.engine.poll_event(), None);
    for (region, before) in untouched.iter().zip(before) {
        assert_eq!(region.buffer.bytes(), before);
    }
    world.check_canaries();
    world
}

/// A world with a region at each end.
fn ends(access: [Access; 2]) -> (World, Region, Region) {
    let mut world = World::new();
    let [here, there] = access;
    let local = world.a.register(Buffer::filled(&pattern(64, 1)), here);
    let remote = world.b.register(Buffer::filled(&pattern(64, 2)), there);
    (world, local, remote)
}

const ALL: Access = Access::all();
const LOCAL_PROTECTION: (u8, u8) = (0x04, 0x53);
const REMOTE_INVALID: (u8, u8) = (0x12, 0x8a);
const REMOTE_ACCESS: (u8, u8) = (0x13, 0x88);

#[test]
fn local_key_range_and_access() {
    let (world, local, remote) = ends([ALL; 2]);
    let past = local.local(1, 64);
    let wqe = Wqe::<1>::write(past, remote.remote(0));
    fails_with(world, wqe, LOCAL_PROTECTION, &[local, remote]);

    let (world, local, remote) = ends([ALL; 2]);
    let before = mlx5_wqe::Local {
        address: local.buffer.address() - 1,
        ..local.local(0, 8)
    };
    let wqe = Wqe::<1>::send(before);
    fails_with(world, wqe, LOCAL_PROTECTION, &[local, remote]);

    let (world, local, remote) = ends([ALL; 2]);
    let mut stale = local.all();
    stale.key.0 ^= 1;
    let wqe = Wqe::<1>::write(stale, remote.remote(0));
    fails_with(world, wqe, LOCAL_PROTECTION, &[local, remote]);

    // A READ writes here.
    let (world, local, remote) = ends([Access::REMOTE_READ, ALL]);
    let wqe = Wqe::<1>::read(local.all(), remote.remote(0));
    fails_with(world, wqe, LOCAL_PROTECTION, &[local, remote]);

    // So does an atomic.
    let (world, local, remote) = ends([Access::empty(), ALL]);
    let wqe = Wqe::<1>::fetch_add(local.local(0, 8), remote.remote(0), 1);
    fails_with(world, wqe, LOCAL_PROTECTION, &[local, remote]);
}

#[test]
fn a_good_segment_before_a_bad_one_moves_nothing() {
    let (world, local, remote) = ends([ALL; 2]);
    let list = [local.local(0, 8), local.local(60, 8)];
    let wqe = Wqe::<1>::write_gather(&list, remote.remote(0)).unwrap();
    fails_with(world, wqe, LOCAL_PROTECTION, &[local, remote]);
}

#[test]
fn a_local_key_of_another_protection_domain() {
    let (mut world, local, remote) = ends([ALL; 2]);
    let other = world.a.engine.create_protection_domain().unwrap();
    let buffer = Buffer::new(64);
    // SAFETY: the buffer lives as long as the test.
    let keys = unsafe {
        world
            .a
            .engine
            .register_memory(other, buffer.address(), 64, ALL)
    };
    let foreign = Region {
        buffer,
        keys: keys.unwrap(),
    };
    let wqe = Wqe::<1>::write(foreign.all(), remote.remote(0));
    fails_with(world, wqe, LOCAL_PROTECTION, &[local, remote, foreign]);
}

#[test]
fn a_key_of_deregistered_memory() {
    let (mut world, local, remote) = ends([ALL; 2]);
    world.a.engine.deregister_memory(local.keys.local).unwrap();
    // The slot's next user has another key.
    let next = world.a.region(&[7; 64]);
    assert_ne!(next.keys, local.keys);
    let wqe = Wqe::<1>::write(local.all(), remote.remote(0));
    fails_with(world, wqe, LOCAL_PROTECTION, &[local, remote]);

    let (mut world, local, remote) = ends([ALL; 2]);
    world.b.engine.deregister_memory(remote.keys.local).unwrap();
    let wqe = Wqe::<1>::write(local.all(), remote.remote(0));
    fails_with(world, wqe, REMOTE_ACCESS, &[local, remote]);
}

#[test]
fn remote_key_range_and_access() {
    let (world, local, remote) = ends([ALL; 2]);
    let wqe = Wqe::<1>::write(local.all(), remote.remote(1));
    fails_with(world, wqe, REMOTE_ACCESS, &[local, remote]);

    let (world, local, remote) = ends([ALL; 2]);
    let wqe = Wqe::<1>::read(local.all(), remote.remote(1));
    fails_with(world, wqe, REMOTE_ACCESS, &[local, remote]);

    let (world, local, remote) = ends([ALL; 2]);
    let wrong = Remote {
        key: RemoteKey(remote.keys.remote.0 ^ 0x40),
        ..remote.remote(0)
    };
    let wqe = Wqe::<1>::write(local.all(), wrong);
    fails_with(world, wqe, REMOTE_ACCESS, &[local, remote]);

    // An address so high that its end wraps.
    let (world, local, remote) = ends([ALL; 2]);
    let high = Remote {
        address: u64::MAX - 7,
        ..remote.remote(0)
    };
    let wqe = Wqe::<1>::write(local.all(), high);
    fails_with(world, wqe, REMOTE_ACCESS, &[local, remote]);

    let readable = Access::REMOTE_READ | Access::LOCAL_WRITE;
    let (world, local, remote) = ends([ALL, readable]);
    let wqe = Wqe::<1>::write(local.all(), remote.remote(0));
    fails_with(world, wqe, REMOTE_ACCESS, &[local, remote]);

    let writable = Access::REMOTE_WRITE | Access::LOCAL_WRITE;
    let (world, local, remote) = ends([ALL, writable]);
    let wqe = Wqe::<1>::read(local.all(), remote.remote(0));
    fails_with(world, wqe, REMOTE_ACCESS, &[local, remote]);

    let (world, local, remote) = ends([ALL, writable]);
    let wqe = Wqe::<1>::fetch_add(local.local(0, 8), remote.remote(0), 1);
    let world = fails_with(world, wqe, REMOTE_ACCESS, &[local, remote]);
    // The peer's queue pair is in error too.
    let mut engine = world.b.engine;
    let status = engine.query_queue_pair(world.b.qp.number).unwrap();
    assert_eq!(status.state, QueuePairState::Error);
    let error = status.first_error.unwrap();
    assert_eq!((error.syndrome.0, error.vendor.0), REMOTE_ACCESS);
    let event = Event::QueuePairFatal(world.b.qp.number);
    assert_eq!(engine.poll_event(), Some(event));
}

/// Such a request is invalid, whatever its key, and if it moves no byte (IBTA volume 1, 9.7.4.1).
#[test]
fn a_queue_pair_that_does_not_allow_it() {
    type Ask = fn(&Region, Remote) -> Wqe<1>;
    let asked: [(Access, Ask); 4] = [
        (Access::REMOTE_WRITE, |local, remote| {
            Wqe::write(local.all(), remote)
        }),
        (Access::REMOTE_WRITE, |_, remote| {
            Wqe::write_immediate_only(remote, Immediate(1))
        }),
        (Access::REMOTE_READ, |local, remote| {
            Wqe::read(local.all(), remote)
        }),
        (Access::REMOTE_ATOMIC, |local, remote| {
            Wqe::fetch_add(local.local(0, 8), remote, 1)
        }),
    ];
    for (needed, ask) in asked {
        for known in [true, false] {
            let mut world = World::connected(Connection {
                access: ALL.difference(needed),
                ..Connection::default()
            });
            let local = world.a.region(&[1; 64]);
            let remote = world.b.region(&[2; 64]);
            let key = match known {
                true => remote.keys.remote,
                false => RemoteKey(remote.keys.remote.0 ^ 0x40),
            };
            let place = Remote {
                key,
                ..remote.remote(0)
            };
            world.b.qp.post_receive(&[]);
            let wqe = ask(&local, place);
            fails_with(world, wqe, REMOTE_INVALID, &[local, remote]);
        }
    }
}

#[test]
fn misaligned_atomics() {
    let (world, local, remote) = ends([ALL; 2]);
    let wqe = Wqe::<1>::fetch_add(local.local(0, 8), remote.remote(4), 1);
    fails_with(world, wqe, REMOTE_INVALID, &[local, remote]);

    let (world, local, remote) = ends([ALL; 2]);
    let wqe = Wqe::<1>::masked_fetch_add_u32(local.local(0, 4), remote.remote(2), 1, 0);
    fails_with(world, wqe, REMOTE_INVALID, &[local, remote]);
}

#[test]
fn too_long_for_any_message() {
    let (world, local, remote) = ends([ALL; 2]);
    let wqe = Wqe::<1>::write(local.local(0, (1 << 30) + 1), remote.remote(0));
    fails_with(world, wqe, (0x01, 0x00), &[local, remote]);

    // A segment of 0 bytes means 2 GiB.
    let (world, local, remote) = ends([ALL; 2]);
    let wqe = Wqe::<1>::write(local.local(0, 0), remote.remote(0));
    fails_with(world, wqe, (0x01, 0x00), &[local, remote]);
}

#[test]
fn a_receive_that_is_too_small() {
    let (mut world, local, _) = ends([ALL; 2]);
    let small = world.b.region(&[0; 128]);
    world
        .b
        .qp
        .post_receive(&[small.local(0, 10), small.local(10, 20)]);
    world.b.qp.post_receive(&[small.all()]);
    let wqe = Wqe::<1>::send(local.local(0, 31));
    let mut world = fails_with(world, wqe, REMOTE_INVALID, &[]);
    let cqes = world.b.qp.receive_cq.drain();
    assert_eq!(all_said(&cqes), [(14, 0x01, 0x00, 0), (14, 0x05, 0xf9, 1)]);
    // Nothing past the segments.
    assert_eq!(small.buffer.bytes()[30..], [0; 98]);
}

#[test]
fn a_receive_that_just_fits() {
    let (mut world, local, _) = ends([ALL; 2]);
    let target = world.b.region(&[0; 64]);
    world
        .b
        .qp
        .post_receive(&[target.local(0, 10), target.local(10, 20)]);
    world
        .a
        .qp
        .post(Wqe::<1>::send(local.local(0, 30)).signalled());
    world.settle();
    assert!(!world.a.qp.send_cq.poll().unwrap().tail().is_error());
    assert_eq!(target.buffer.bytes()[..30], pattern(64, 1)[..30]);
}

#[test]
fn a_receive_with_a_bad_key() {
    let (mut world, local, _) = ends([ALL; 2]);
    let target = world.b.region(&[0; 64]);
    let unwritable = world.b.register(Buffer::new(64), Access::REMOTE_READ);
    world
        .b
        .qp
        .post_receive(&[target.local(0, 8), unwritable.local(0, 8)]);
    let wqe = Wqe::<1>::send(local.local(0, 16));
    let mut world = fails_with(world, wqe, (0x14, 0x00), &[unwritable]);
    let cqes = world.b.qp.receive_cq.drain();
    assert_eq!(all_said(&cqes), [(14, 0x04, 0x53, 0)]);
}

#[test]
fn no_receive_waits_and_goes_on_or_gives_up() {
    // For ever: the send waits until the receive comes.
    let (mut world, local, _) = ends([ALL; 2]);
    let target = world.b.region(&[0; 64]);
    world.a.qp.post(Wqe::<1>::send(local.all()).signalled());
    world.run_for(50 * u64::from(RNR_NS));
    assert!(world.a.qp.send_cq.poll().is_none());
    let status = world.a.engine.query_queue_pair(world.a.qp.number).unwrap();
    let refusals = status.counters.receiver_not_ready;
    assert!((30..=50).contains(&refusals), "{refusals} RNR NAKs");
    world.b.qp.post_receive(&[target.all()]);
    world.settle();
    assert!(!world.a.qp.send_cq.poll().unwrap().tail().is_error());
    assert_eq!(target.buffer.bytes(), pattern(64, 1));

    // Twice, then 0x16.
    let mut world = World::connected(Connection {
        rnr_retry: 2,
        ..Connection::default()
    });
    let local = world.a.region(&[1; 8]);
    let index = world
        .a
        .qp
        .post(Wqe::<1>::send_immediate(local.all(), Immediate(1)));
    world.run_for(10 * u64::from(RNR_NS));
    let cqes = world.a.qp.send_cq.drain();
    assert_eq!(all_said(&cqes), [(13, 0x16, 0x87, index.0)]);
    let status = world.a.engine.query_queue_pair(world.a.qp.number).unwrap();
    assert_eq!(status.counters.receiver_not_ready, 3);
}

/// What is set after INIT holds: the rights of peers, and how long they wait for a receive.
#[test]
fn rights_and_waits_can_be_set_later() {
    for (rights, allowed) in [(Access::REMOTE_READ, false), (Access::REMOTE_WRITE, true)] {
        let (mut world, local, remote) = ends([ALL; 2]);
        let peer = world.b.qp.number;
        world.b.engine.set_access(peer, rights).unwrap();
        let write = Wqe::<1>::write(local.all(), remote.remote(0));
        world.a.qp.post(write.signalled());
        world.settle();
        let cqe = world.a.qp.send_cq.poll().expect("a completion");
        assert_eq!(!cqe.tail().is_error(), allowed);
        assert_eq!(remote.buffer.bytes() == pattern(64, 1), allowed);
    }

    let (mut world, local, _) = ends([ALL; 2]);
    let peer = world.b.qp.number;
    let long = 10 * RNR_NS;
    world.b.engine.set_min_rnr_timer(peer, long).unwrap();
    world.a.qp.post(Wqe::<1>::send(local.all()).signalled());
    world.run_for(5 * u64::from(long));
    let status = world.a.engine.query_queue_pair(world.a.qp.number).unwrap();
    let refusals = status.counters.receiver_not_ready;
    assert!((3..=5).contains(&refusals), "{refusals} RNR NAKs");
}

#[test]
fn a_peer_in_the_wrong_state_ends_in_0x15() {
    let (mut world, local, remote) = ends([ALL; 2]);
    let peer = world.b.qp.number;
    world.b.qp.reset();
    world
        .b
        .engine
        .modify_queue_pair(peer, Transition::Reset)
        .unwrap();
    let index = world
        .a
        .qp
        .post(Wqe::<1>::write(local.all(), remote.remote(0)));
    world.run_for(20 * super::world::TIMEOUT_NS);
    let cqes = world.a.qp.send_cq.drain();
    assert_eq!(all_said(&cqes), [(13, 0x15, 0x81, index.0)]);
}

#[test]
fn an_injected_error_strikes_the_wqe_that_it_names() {
    let (mut world, local, remote) = ends([ALL; 2]);
    let qp = world.a.qp.number;
    let (syndrome, vendor) = (Syndrome(0x22), VendorCode(0x77));
    world.a.engine.fail_send(qp, 2, syndrome, vendor).unwrap();
    let write = Wqe::<1>::write(local.local(0, 8), remote.remote(0)).signalled();
    for _ in 0..4 {
        world.a.qp.post(write);
    }
    world.settle();
    let cqes = world.a.qp.send_cq.drain();
    assert_eq!(
        all_said(&cqes),
        [
            (0, 0, 0, 0),
            (0, 0, 0, 1),
            (13, 0x22, 0x77, 2),
            (13, 0x05, 0xf9, 3)
        ]
    );
}

#[test]
fn nothing_goes_out_behind_a_wqe_that_failed() {
    let (mut world, local, remote) = ends([ALL; 2]);
    let qp = world.a.qp.number;
    let (syndrome, vendor) = (Syndrome(0x22), VendorCode(0x77));
    world.a.engine.fail_send(qp, 1, syndrome, vendor).unwrap();
    let write = Wqe::<1>::write(local.local(0, 8), remote.remote(0));
    for _ in 0..3 {
        world.a.qp.post(write);
    }
    // The peer is silent, so that the first one is under way and the failure of the second waits.
    for _ in 0..5 {
        world.now += 100;
        world.a.engine.step(world.now);
    }
    assert_eq!(world.in_the_air(), 1);
}

#[test]
fn error_by_command_flushes_both_queues_and_reset_makes_it_new() {
    let (mut world, local, remote) = ends([ALL; 2]);
    let qp = world.a.qp.number;
    world.a.qp.post_receive(&[local.all()]);
    world
        .a
        .engine
        .modify_queue_pair(qp, Transition::Error)
        .unwrap();
    world
        .a
        .qp
        .post(Wqe::<1>::write(local.all(), remote.remote(0)));
    world.settle();
    assert_eq!(all_said(&world.a.qp.send_cq.drain()), [(13, 0x05, 0xf9, 0)]);
    // A receive posted in error is flushed too, without a doorbell.
    world.a.qp.post_receive(&[local.all()]);
    world.settle();
    assert_eq!(
        all_said(&world.a.qp.receive_cq.drain()),
        [(14, 0x05, 0xf9, 0), (14, 0x05, 0xf9, 1)]
    );
    assert_eq!(world.a.engine.poll_event(), None);
    world.reset();
    world.connect(Connection::default());
    let index = world
        .a
        .qp
        .post(Wqe::<1>::write(local.all(), remote.remote(0)).signalled());
    world.settle();
    assert_eq!(all_said(&world.a.qp.send_cq.drain()), [(0, 0, 0, index.0)]);
    assert_eq!(remote.buffer.bytes(), pattern(64, 1));
}

#[test]
fn completion_modes_decide_which_errors_leave_a_cqe() {
    let (mut world, local, remote) = ends([ALL; 2]);
    // Byte 11 of the control segment, bits 3:2: 1 wants a CQE for the first error only.
    let first_error_only = |world: &World, slot: usize| world.a.qp.ring.write(slot * 64 + 11, &[4]);
    let bad = Wqe::<1>::write(local.local(1, 64), remote.remote(0));
    world.a.qp.write(Wqe::<1>::nop());
    first_error_only(&world, 0);
    world.a.qp.write(bad);
    first_error_only(&world, 1);
    world.a.qp.write(bad);
    first_error_only(&world, 2);
    world.a.qp.write(bad);
    world.a.qp.ring_doorbell();
    world.settle();
    assert_eq!(
        all_said(&world.a.qp.send_cq.drain()),
        [(13, 0x04, 0x53, 1), (13, 0x05, 0xf9, 3)]
    );
}

#[test]
fn unsupported_and_malformed_wqes() {
    use mlx5_wqe::CqNumber;
    let wait = Wqe::<1>::wait(CqNumber::from_low_bits(1), 0);
    fails_with(World::new(), wait, (0x02, 0x00), &[]);

    // Offsets and bytes in the second block that make a write malformed.
    let mutations: [(&str, usize, u8); 7] = [
        ("index", 2, 9),
        ("QPN", 6, 0x55),
        ("ds of 0", 7, 0),
        ("ds past the producer", 7, 63),
        ("opcode", 3, Opcode::UMR.0),
        ("modifier", 0, 3),
        ("fence", 11, 7 << 5),
    ];
    for (name, offset, byte) in mutations {
        let (mut world, local, remote) = ends([ALL; 2]);
        let before = remote.buffer.bytes();
        world.a.qp.write(Wqe::<1>::nop().signalled());
        world
            .a
            .qp
            .write(Wqe::<1>::write(local.all(), remote.remote(0)));
        world.a.qp.ring.write(64 + offset, &[byte]);
        world.a.qp.ring_doorbell();
        world.settle();
        let cqes = world.a.qp.send_cq.drain();
        let expected = [(0, 0, 0, 0), (13, 0x02, 0x00, 1)];
        assert_eq!(all_said(&cqes), expected, "{name}");
        assert_eq!(remote.buffer.bytes(), before, "{name}");
    }
}

#[test]
fn a_producer_index_past_the_ring() {
    let (mut world, local, remote) = ends([ALL; 2]);
    let write = Wqe::<1>::write(local.all(), remote.remote(0));
    for _ in 0..17 {
        world.a.qp.write(write);
    }
    world.a.qp.ring_doorbell();
    world.settle();
    let cqes = world.a.qp.send_cq.drain();
    assert_eq!(said(&cqes[0]), (13, 0x02, 0x00, 0));
    // Each of the ring's 16 blocks is flushed once at most.
    assert!(cqes.len() <= 17, "{} CQEs", cqes.len());
    assert_eq!(remote.buffer.bytes(), pattern(64, 2));
}
