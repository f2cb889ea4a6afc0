//! Lost, late and doubled packets: data arrives exactly once, or the queue pair says 0x15.

use mlx5_wqe::{CqeOpcode, Immediate, Syndrome, Wqe};
use proptest::prelude::*;
use warpbell_soft_hca::engine::fault::{Rates, Seeded};

use super::world::{Connection, Shape, World, clean, faulty, pattern};

/// Runs every verb, several times over, through faults in both directions.
fn every_verb_through(faults: [Seeded; 2], psn: u32) {
    let shape = Shape {
        mtu: 256,
        ..Shape::default()
    };
    let connection = Connection {
        psn,
        ..Connection::default()
    };
    let mut world = World::with(shape, connection, faults.map(faulty));
    let data = pattern(2000, 9);
    let source = world.a.region(&data);
    let back = world.a.region(&[0; 2000]);
    let results = world.a.region(&[0; 64]);
    let written = world.b.region(&[0; 2000]);
    let received = world.b.region(&[0; 4000]);
    let counter = world.b.region(&[0; 8]);
    const ROUNDS: u64 = 3;
    let mut failed = None;
    let mut completed = 0;
    for round in 0..ROUNDS {
        let base = (round % 2) * 2000;
        world.b.qp.post_receive(&[received.local(base, 2000)]);
        world.b.qp.post_receive(&[]);
        let qp = &mut world.a.qp;
        qp.write(Wqe::<1>::write(source.all(), written.remote(0)).signalled());
        qp.write(Wqe::<1>::fetch_add(results.local(0, 8), counter.remote(0), 1).signalled());
        qp.write(Wqe::<1>::read(back.all(), written.remote(0)).signalled());
        qp.write(Wqe::<1>::send(source.all()).signalled());
        qp.write(
            Wqe::<1>::write_immediate(source.all(), written.remote(0), Immediate(round as u32))
                .signalled(),
        );
        qp.write(Wqe::<1>::fetch_add(results.local(8, 8), counter.remote(0), 1).signalled());
        qp.post(Wqe::<1>::nop().signalled());
        // Far more than all retries together take.
        for _ in 0..400 {
            world.run_for(100_000);
            for cqe in world.a.qp.send_cq.drain() {
                if !cqe.tail().is_error() {
                    assert_eq!(failed, None, "a WQE completed after a failed one");
                    completed += 1;
                } else if failed.is_none() {
                    failed = Some(cqe.error_word().syndrome());
                }
            }
            if failed.is_some() || completed == 7 * (round + 1) {
                break;
            }
        }
        if failed.is_some() {
            break;
        }
        assert_eq!(completed, 7 * (round + 1), "neither done nor failed");
        assert_eq!(written.buffer.bytes(), data);
        assert_eq!(back.buffer.bytes(), data);
        assert_eq!(
            received.buffer.bytes()[base as usize..][..2000],
            data,
            "round {round}"
        );
        // Each addition happened once, whatever was repeated.
        assert_eq!(counter.buffer.u64_at(0), 2 * (round + 1));
        assert_eq!(results.buffer.u64_at(0), 2 * round);
        assert_eq!(results.buffer.u64_at(8), 2 * round + 1);
        let arrivals = world.b.qp.receive_cq.drain();
        let opcodes: Vec<_> = arrivals.iter().map(|cqe| cqe.tail().cqe_opcode()).collect();
        assert_eq!(
            opcodes,
            [
                CqeOpcode::RESPONDER_SEND,
                CqeOpcode::RESPONDER_WRITE_IMMEDIATE
            ]
        );
        assert_eq!(arrivals[1].immediate.get(), round as u32);
    }
    if let Some(syndrome) = failed {
        assert_eq!(syndrome, Syndrome::TRANSPORT_RETRY);
    }
    world.check_canaries();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn data_arrives_once_or_the_queue_pair_fails(
        seeds in any::<[u64; 2]>(),
        drop in 0u32..250,
        delay in 0u32..200,
        duplicate in 0u32..200,
        longest_delay in 1u32..60,
        psn in prop_oneof![0u32..=0xff_ffff, 0xff_ff00u32..=0xff_ffff],
    ) {
        let rates = Rates { drop, delay, duplicate, longest_delay };
        every_verb_through(seeds.map(|seed| Seeded::new(seed, rates)), psn);
    }
}

#[test]
fn a_peer_that_is_gone_ends_in_0x15_after_the_retries() {
    let nothing = Rates {
        drop: 1000,
        ..Rates::default()
    };
    let connection = Connection {
        retry_count: 3,
        ..Connection::default()
    };
    let faults = [faulty(Seeded::new(1, nothing)), clean()];
    let mut world = World::with(Shape::default(), connection, faults);
    let source = world.a.region(&[1; 8]);
    let target = world.b.region(&[0; 8]);
    world
        .a
        .qp
        .post(Wqe::<1>::write(source.all(), target.remote(0)));
    // One wait, and one for each retry.
    world.run_for(3 * super::world::TIMEOUT_NS);
    assert!(world.a.qp.send_cq.poll().is_none());
    world.run_for(2 * super::world::TIMEOUT_NS);
    let cqe = world.a.qp.send_cq.poll().expect("an error");
    assert_eq!(cqe.tail().cqe_opcode(), CqeOpcode::REQUESTER_ERROR);
    assert_eq!(cqe.error_word().syndrome().0, 0x15);
    assert_eq!(cqe.error_word().vendor().0, 0x81);
    let qp = world.a.qp.number;
    assert_eq!(
        world
            .a
            .engine
            .query_queue_pair(qp)
            .unwrap()
            .counters
            .retries,
        3
    );
    assert_eq!(target.buffer.bytes(), [0; 8]);
}

#[test]
fn the_wire_holds_nothing_of_a_queue_pair_in_reset() {
    let mut world = World::connected(Connection::default());
    let source = world.a.region(&pattern(2000, 1));
    let target = world.b.region(&[0; 2000]);
    let write = Wqe::<1>::write(source.all(), target.remote(0));
    world.a.qp.post(write);
    world.now += 1;
    world.a.engine.step(world.now);
    assert_eq!(world.in_the_air(), 2);
    world.reset();
    assert_eq!(world.in_the_air(), 0);
}
