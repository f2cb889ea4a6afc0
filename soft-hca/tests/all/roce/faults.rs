//! Lost, late and doubled packets on a wire of sockets: everything arrives once.

use mlx5_wqe::{CqeOpcode, Immediate, Wqe};
use warpbell_soft_hca::engine::fault::{Rates, Seeded};
use warpbell_soft_hca::shell::Faults;

use super::world::{ADDRESSES, Way, World};
use crate::engine::world::pattern;

const LENGTH: usize = 20_000;

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
        let data = pattern(LENGTH, 9);
        let source = world.a.region(&data);
        let written = world.b.region(&[0; LENGTH]);
        let counter = world.b.region(&[0; 8]);
        let results = world.a.region(&[0; 8]);
        for round in 0..5 {
            let back = world.a.region(&[0; LENGTH]);
            let received = world.b.region(&[0; LENGTH]);
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
            assert!(back.buffer.bytes() == data && received.buffer.bytes() == data);
            assert_eq!(results.buffer.u64_at(0), round, "an atomic ran once");
            assert_eq!(counter.buffer.u64_at(0), round + 1);
            let cqe = world.received();
            assert_eq!(cqe.tail().cqe_opcode(), CqeOpcode::RESPONDER_SEND);
            let cqe = world.received();
            assert_eq!(
                cqe.tail().cqe_opcode(),
                CqeOpcode::RESPONDER_WRITE_IMMEDIATE
            );
            assert_eq!(u64::from(cqe.immediate.get()), round);
            world.rest();
            assert!(world.b.qp.receive_cq.poll().is_none(), "once each");
        }
        let number = world.a.qp.number;
        let status = world
            .a
            .hca
            .command(|engine| engine.query_queue_pair(number));
        assert!(status.unwrap().unwrap().counters.retries > 0, "a good wire");
        world.check();
    }
}
