//! Lost, late and doubled packets on a wire of sockets: everything arrives once.

use mlx5_wqe::{CqeOpcode, Immediate, Wqe};
use warpbell_soft_hca::engine::fault::{Rates, Seeded};
use warpbell_soft_hca::shell::Faults;

use std::time::{Duration, Instant};

use super::relay::Fates;
use super::world::{ADDRESSES, Way, World};
use crate::engine::world::pattern;

const LENGTH: usize = 20_000;
/// Rounds through a relay in the suite, and the variable with the seconds that a longer run takes.
const ROUNDS: u64 = 100;
const SECONDS: &str = "WARPBELL_RELAY_SECONDS";

/// Requests of every kind, until it is enough: each is carried out once.
fn exchange(world: &mut World, mut is_enough: impl FnMut(u64) -> bool) {
    let data = pattern(LENGTH, 9);
    let source = world.a.region(&data);
    let written = world.b.region(&[0; LENGTH]);
    let received = world.b.region(&[0; LENGTH]);
    let back = world.a.region(&[0; LENGTH]);
    let counter = world.b.region(&[0; 8]);
    let results = world.a.region(&[0; 8]);
    for round in 0.. {
        if is_enough(round) {
            break;
        }
        for region in [&written, &received, &back] {
            region.buffer.write(0, &[0; LENGTH]);
        }
        world.b.qp.post_receive(&[received.all()]);
        world.b.qp.post_receive(&[]);
        let qp = &mut world.a.qp;
        let to = written.remote(0);
        qp.write(Wqe::<1>::fetch_add(results.all(), counter.remote(0), 1).signalled());
        qp.write(Wqe::<1>::send(source.all()).signalled());
        let immediate = Immediate(round as u32);
        qp.write(Wqe::<1>::write_immediate(source.all(), to, immediate).signalled());
        qp.post(Wqe::<1>::read(back.all(), to).signalled());
        for _ in 0..4 {
            let cqe = world.sent();
            assert!(
                !cqe.tail().is_error(),
                "round {round}: {:?}",
                cqe.error_word()
            );
        }
        for region in [&written, &received, &back] {
            assert!(region.buffer.bytes() == data, "round {round}");
        }
        assert_eq!(results.buffer.u64_at(0), round, "an atomic ran once");
        assert_eq!(counter.buffer.u64_at(0), round + 1);
        let cqe = world.received();
        assert_eq!(cqe.tail().cqe_opcode(), CqeOpcode::RESPONDER_SEND);
        let cqe = world.received();
        assert_eq!(
            cqe.tail().cqe_opcode(),
            CqeOpcode::RESPONDER_WRITE_IMMEDIATE
        );
        assert_eq!(cqe.immediate.get(), round as u32);
        world.rest();
        assert!(world.b.qp.receive_cq.poll().is_none(), "once each");
    }
}

/// How often A went back.
fn retries(world: &World) -> u64 {
    let number = world.a.qp.number;
    let status = world
        .a
        .hca
        .command(|engine| engine.query_queue_pair(number));
    status.unwrap().unwrap().counters.retries
}

#[test]
fn every_message_arrives_once_through_a_bad_wire() {
    let rates = Rates {
        drop: 40,
        delay: 60,
        duplicate: 60,
        longest_delay: 20,
    };
    for (seed, addresses) in (1..).zip(ADDRESSES) {
        let faults = [seed, !seed].map(|seed| Some(Faults::new(Seeded::new(seed, rates))));
        let mut world = World::new(Way {
            mtu: 1024,
            psn: 0xff_fff0,
            faults,
            ..Way::of(addresses)
        });
        exchange(&mut world, |round| round == 5);
        assert!(retries(&world) > 0, "a good wire");
        world.check();
    }
}

/// Loss, duplication, damage and reordering together, outside of the HCAs. `WARPBELL_RELAY_SECONDS` says for how long.
#[test]
fn every_message_arrives_once_through_a_bad_relay() {
    let seconds = std::env::var(SECONDS).ok();
    let seconds = seconds.map(|seconds| seconds.parse().expect("a number of seconds"));
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let fates = Fates {
        lost: 10,
        doubled: 10,
        damaged: 1,
        late: 50,
        marked: 0,
    };
    let way = Way {
        mtu: 1024,
        psn: 0xff_fff0,
        ..Way::of(ADDRESSES[1])
    };
    let mut world = World::through(way, fates);
    let mut rounds = 0;
    exchange(&mut world, |round| {
        rounds = round;
        end.map_or(round == ROUNDS, |end| Instant::now() >= end)
    });
    assert!(retries(&world) > 0, "a good wire");
    let damaged = world.relay.as_ref().map_or(0, |relay| relay.damaged);
    let counters = [&world.a, &world.b].map(|node| node.hca.roce_counters().unwrap());
    let wrong = counters.map(|counters| counters.wrong_crc + counters.malformed);
    assert!(wrong.iter().sum::<u64>() <= damaged, "{counters:?}");
    assert!(damaged > 0, "nothing was damaged");
    println!("{rounds} rounds, {damaged} packets damaged: {counters:?}");
}
