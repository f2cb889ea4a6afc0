//! Commands: what they refuse, and by which name.

use mlx5_wqe::{CqNumber, LocalKey, QpNumber, Syndrome, Wqe};
use warpbell_soft_hca::engine::command::{MAX_LOG_CQ_DEPTH, ack_timeout_ns, rnr_timer_ns};
use warpbell_soft_hca::engine::{
    Access, CommandError, CompletionQueueAttributes, CqeSize, CrossChannel, QueuePairAttributes,
    QueuePairState, ReadyToReceive, ReadyToSend, ReceiveRing, SendDoorbell, Transition,
    WireAddress,
};

use super::world::{Buffer, Connection, World};

const INIT: Transition = Transition::Init {
    access: Access::all(),
};

const READY_TO_SEND: ReadyToSend = ReadyToSend {
    send_psn: 0,
    retry_count: 7,
    rnr_retry: 7,
    ack_timeout_ns: 0,
};

const fn ready_to_receive() -> ReadyToReceive {
    ReadyToReceive {
        remote_address: WireAddress(1),
        remote_qp: QpNumber::from_low_bits(1),
        receive_psn: 0,
        path_mtu: 1024,
        min_rnr_timer_ns: 0,
    }
}

#[test]
fn every_transition_from_every_state() {
    use QueuePairState::{Error, Init, ReadyToReceive as Rtr, ReadyToSend as Rts, Reset};
    let to = [
        (INIT, Init),
        (Transition::ReadyToReceive(ready_to_receive()), Rtr),
        (Transition::ReadyToSend(READY_TO_SEND), Rts),
        (Transition::Error, Error),
        (Transition::Reset, Reset),
    ];
    let legal = [
        (Reset, Init),
        (Init, Init),
        (Init, Rtr),
        (Rtr, Rts),
        (Init, Error),
        (Rtr, Error),
        (Rts, Error),
        (Error, Error),
    ];
    let way: [(_, &[usize]); 5] = [
        (Reset, &[]),
        (Init, &[0]),
        (Rtr, &[0, 1]),
        (Rts, &[0, 1, 2]),
        (Error, &[0, 3]),
    ];
    for (from, way) in way {
        for (transition, target) in to {
            let mut world = World::new();
            world.reset();
            let (engine, qp) = (&mut world.a.engine, world.a.qp.number);
            for step in way {
                engine.modify_queue_pair(qp, to[*step].0).unwrap();
            }
            assert_eq!(engine.query_queue_pair(qp).unwrap().state, from);
            let allowed = target == Reset || legal.contains(&(from, target));
            let (expected, after) = match allowed {
                true => (Ok(()), target),
                false => (Err(CommandError::IllegalTransition { from }), from),
            };
            let result = engine.modify_queue_pair(qp, transition);
            assert_eq!(result, expected, "{from:?} to {target:?}");
            assert_eq!(engine.query_queue_pair(qp).unwrap().state, after);
        }
    }
}

#[test]
fn transitions_check_their_fields() {
    let mut world = World::new();
    world.reset();
    let (engine, qp) = (&mut world.a.engine, world.a.qp.number);
    engine.modify_queue_pair(qp, INIT).unwrap();
    let good = ready_to_receive();
    for path_mtu in [0, 128, 1000, 2048] {
        let step = Transition::ReadyToReceive(ReadyToReceive { path_mtu, ..good });
        assert_eq!(
            engine.modify_queue_pair(qp, step),
            Err(CommandError::BadMtu),
            "{path_mtu}"
        );
    }
    let receive_psn = 1 << 24;
    let step = Transition::ReadyToReceive(ReadyToReceive {
        receive_psn,
        ..good
    });
    assert_eq!(
        engine.modify_queue_pair(qp, step),
        Err(CommandError::BadPsn)
    );
    let step = Transition::ReadyToReceive(good);
    engine.modify_queue_pair(qp, step).unwrap();
    let refused = [
        (
            ReadyToSend {
                send_psn: 1 << 24,
                ..READY_TO_SEND
            },
            CommandError::BadPsn,
        ),
        (
            ReadyToSend {
                retry_count: 8,
                ..READY_TO_SEND
            },
            CommandError::BadRetryCount,
        ),
        (
            ReadyToSend {
                rnr_retry: 8,
                ..READY_TO_SEND
            },
            CommandError::BadRetryCount,
        ),
    ];
    for (fields, error) in refused {
        let step = Transition::ReadyToSend(fields);
        assert_eq!(engine.modify_queue_pair(qp, step), Err(error));
    }
}

#[test]
fn memory_registration_checks_range_and_access() {
    let mut world = World::new();
    let pd = world.a.pd;
    let buffer = Buffer::new(64);
    let mut register = |address, length, access| {
        // SAFETY: refused ranges are never touched.
        unsafe { world.a.engine.register_memory(pd, address, length, access) }.map(|_| ())
    };
    let address = buffer.address();
    let empty = Access::empty();
    assert_eq!(register(address, 0, empty), Err(CommandError::BadRange));
    assert_eq!(register(u64::MAX, 2, empty), Err(CommandError::BadRange));
    for access in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
        let refused = register(address, 64, access);
        assert_eq!(refused, Err(CommandError::BadAccess));
    }
    for _ in 0..16 {
        assert_eq!(register(address, 64, empty), Ok(()));
    }
    assert_eq!(register(address, 64, empty), Err(CommandError::TableFull));
}

#[test]
fn objects_in_use_stay() {
    let mut world = World::new();
    let (pd, cq) = (world.a.pd, world.a.qp.send_cq.number);
    let engine = &mut world.a.engine;
    assert_eq!(
        engine.destroy_protection_domain(pd),
        Err(CommandError::InUse)
    );
    assert_eq!(
        engine.destroy_completion_queue(cq),
        Err(CommandError::InUse)
    );
    engine.destroy_queue_pair(world.a.qp.number).unwrap();
    assert_eq!(engine.destroy_completion_queue(cq), Ok(()));
    assert_eq!(
        engine.destroy_completion_queue(cq),
        Err(CommandError::NoCompletionQueue)
    );
    assert_eq!(engine.destroy_protection_domain(pd), Ok(()));
    assert_eq!(
        engine.destroy_protection_domain(pd),
        Err(CommandError::NoProtectionDomain)
    );
}

#[test]
fn handles_of_nothing_are_refused_by_name() {
    let mut world = World::new();
    let engine = &mut world.a.engine;
    let (qp, cq) = (QpNumber::from_low_bits(77), CqNumber::from_low_bits(77));
    let no_queue_pair = CommandError::NoQueuePair;
    assert_eq!(engine.destroy_queue_pair(qp), Err(no_queue_pair));
    assert_eq!(engine.query_queue_pair(qp), Err(no_queue_pair));
    assert_eq!(engine.modify_queue_pair(qp, INIT), Err(no_queue_pair));
    assert_eq!(
        engine.overrun_completion_queue(cq),
        Err(CommandError::NoCompletionQueue)
    );
    assert_eq!(
        engine.deregister_memory(LocalKey(0x100)),
        Err(CommandError::NoRegion)
    );
}

#[test]
fn a_destroyed_queue_pair_s_number_is_not_its_successor_s() {
    let mut world = World::new();
    let old = world.a.qp.number;
    world.a.engine.destroy_queue_pair(old).unwrap();
    world.a.qp = super::world::create_queue_pair(&mut world.a.engine, world.a.pd, world.shape);
    assert_ne!(world.a.qp.number, old);
    world.reset();
    world.connect(Connection::default());
    let source = world.a.region(&[3; 8]);
    let target = world.b.region(&[0; 8]);
    world
        .a
        .qp
        .post(mlx5_wqe::Wqe::<1>::write(source.all(), target.remote(0)).signalled());
    world.settle();
    assert!(!world.a.qp.send_cq.poll().unwrap().tail().is_error());
    assert_eq!(target.buffer.bytes(), [3; 8]);
}

/// A doorbell that names queue pair 0 and producer index 0 would be no doorbell at all.
#[test]
fn no_queue_ever_has_the_number_0() {
    let mut world = World::new();
    let super::world::Node { engine, pd, .. } = &mut world.a;
    for _ in 0..300 {
        let qp = super::world::create_queue_pair(engine, *pd, world.shape);
        let numbers = [
            qp.number.get(),
            qp.send_cq.number.get(),
            qp.receive_cq.number.get(),
        ];
        // The index is below 2^16, the generation above.
        assert!(numbers.iter().all(|number| number >> 16 != 0));
        engine.destroy_queue_pair(qp.number).unwrap();
        for cq in [qp.send_cq, qp.receive_cq] {
            engine.destroy_completion_queue(cq.number).unwrap();
        }
    }
}

#[test]
fn queues_check_alignment_and_depth() {
    let mut world = World::new();
    let (pd, cq) = (world.a.pd, world.a.qp.send_cq.number);
    let engine = &mut world.a.engine;
    let page = Buffer::new(4096).address();
    let good = CompletionQueueAttributes {
        ring: page,
        log_depth: 0,
        record: page,
        uar: None,
        collapsed: false,
        ignore_overrun: false,
    };
    let misaligned = CommandError::Misaligned;
    let refused = [
        (
            CompletionQueueAttributes {
                ring: page + 32,
                ..good
            },
            misaligned,
        ),
        (
            CompletionQueueAttributes {
                record: page + 4,
                ..good
            },
            misaligned,
        ),
        (
            CompletionQueueAttributes {
                uar: Some(page + 64),
                ..good
            },
            misaligned,
        ),
        (
            CompletionQueueAttributes {
                log_depth: MAX_LOG_CQ_DEPTH + 1,
                ..good
            },
            CommandError::TooDeep,
        ),
    ];
    for (attributes, error) in refused {
        // SAFETY: a refused queue is never used.
        let result = unsafe { engine.create_completion_queue(&attributes) };
        assert_eq!(result, Err(error));
    }
    let half = CompletionQueueAttributes {
        ring: page + 64,
        ..good
    };
    // SAFETY: as above.
    let result = unsafe { engine.create_completion_queue_with(&half, CqeSize::Bytes128) };
    assert_eq!(result, Err(misaligned));
    let good = QueuePairAttributes {
        protection_domain: pd,
        send_ring: page,
        log_send_depth: 0,
        receive: None,
        record: page,
        send_doorbell: SendDoorbell::WithRecord,
        uar: page,
        send_cq: cq,
        receive_cq: cq,
        cross_channel: CrossChannel::empty(),
    };
    let ring = |ring, log_depth, log_stride| {
        Some(ReceiveRing {
            ring,
            log_depth,
            log_stride,
        })
    };
    let too_deep = CommandError::TooDeep;
    let with = |change: &dyn Fn(&mut QueuePairAttributes)| {
        let mut attributes = good;
        change(&mut attributes);
        attributes
    };
    let refused = [
        (with(&|qp| qp.send_ring = page + 16), misaligned),
        (with(&|qp| qp.record = page + 4), misaligned),
        (with(&|qp| qp.uar = page + 8), misaligned),
        (with(&|qp| qp.receive = ring(page + 8, 0, 0)), misaligned),
        (with(&|qp| qp.log_send_depth = 16), too_deep),
        (with(&|qp| qp.receive = ring(page, 16, 0)), too_deep),
        (with(&|qp| qp.receive = ring(page, 0, 6)), too_deep),
        (
            with(&|qp| qp.send_cq = CqNumber::from_low_bits(9)),
            CommandError::NoCompletionQueue,
        ),
    ];
    for (attributes, error) in refused {
        // SAFETY: a refused queue pair is never used.
        let result = unsafe { engine.create_queue_pair(&attributes) };
        assert_eq!(result, Err(error));
    }
}

/// A key stays, and opens from then on what it was changed to open.
#[test]
fn registered_memory_changes_under_its_key() {
    let mut world = World::new();
    let source = world.a.region(&[7; 64]);
    let target = world.b.region(&[0; 64]);
    let write = |world: &mut World| {
        let wqe = Wqe::<1>::write(source.all(), target.remote(0)).signalled();
        world.a.qp.post(wqe);
        world.settle();
        let cqe = world.a.qp.send_cq.drain()[0];
        if cqe.tail().is_error() {
            world.reset();
            world.connect(Connection::default());
            world.a.qp.send_cq.drain();
            return Some(cqe.error_word().syndrome());
        }
        None
    };
    assert_eq!(write(&mut world), None);
    let (key, own, whole) = (target.keys.local, world.b.pd, (target.buffer.address(), 64));
    let other = world.b.engine.create_protection_domain().unwrap();
    let read = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let changes = [
        (own, whole, read, Some(Syndrome::REMOTE_ACCESS)),
        (own, whole, Access::all(), None),
        (
            own,
            (whole.0, 63),
            Access::all(),
            Some(Syndrome::REMOTE_ACCESS),
        ),
        (other, whole, Access::all(), Some(Syndrome::REMOTE_ACCESS)),
        (own, whole, Access::all(), None),
    ];
    let change = |world: &mut World, key, domain, (address, length), access| {
        let engine = &mut world.b.engine;
        // SAFETY: the buffer lives as long as the test.
        unsafe { engine.change_memory(key, domain, address, length, access) }
    };
    for (domain, range, access, expected) in changes {
        change(&mut world, key, domain, range, access).unwrap();
        assert_eq!(write(&mut world), expected);
    }
    // What cannot be changes nothing.
    let refused = [
        (
            key,
            own,
            (whole.0, 0),
            Access::all(),
            CommandError::BadRange,
        ),
        (
            key,
            own,
            whole,
            Access::REMOTE_WRITE,
            CommandError::BadAccess,
        ),
        (
            LocalKey(key.0 ^ 1),
            own,
            whole,
            read,
            CommandError::NoRegion,
        ),
    ];
    for (key, domain, range, access, error) in refused {
        assert_eq!(change(&mut world, key, domain, range, access), Err(error));
    }
    assert_eq!(write(&mut world), None);
    // The domain that it left has no user, the one that it is in has.
    world.b.engine.destroy_protection_domain(other).unwrap();
    assert_eq!(
        change(&mut world, key, other, whole, read),
        Err(CommandError::NoProtectionDomain)
    );
}

#[test]
fn infiniband_timer_codes() {
    assert_eq!(ack_timeout_ns(0), 0);
    assert_eq!(ack_timeout_ns(1), 8_192);
    assert_eq!(ack_timeout_ns(14), 67_108_864);
    // From the table of RNR NAK timers in the InfiniBand specification (volume 1, 9.7.5.2.8).
    assert_eq!(rnr_timer_ns(0), 655_360_000);
    assert_eq!(rnr_timer_ns(1), 10_000);
    assert_eq!(rnr_timer_ns(12), 640_000);
    assert_eq!(rnr_timer_ns(31), 491_520_000);
}
