//! Damaged WQEs: whatever the bytes, nothing outside registered memory changes, the queue always
//! comes to an end, and what completed before stays completed.

use mlx5_wqe::{CqeOpcode, Immediate, Syndrome, Wqe};
use proptest::prelude::*;
use warpbell_soft_hca::engine::{Access, QueuePairState};

use super::world::{Buffer, TIMEOUT_NS, World, pattern};

/// One byte of the ring, changed.
#[derive(Clone, Debug)]
struct Damage {
    offset: usize,
    xor: u8,
}

fn damage() -> impl Strategy<Value = Vec<Damage>> {
    // The first WQE, one block, stays whole.
    let one = (64usize..64 * 16, 1u8..).prop_map(|(offset, xor)| Damage { offset, xor });
    prop::collection::vec(one, 1..6)
}

fn run(damages: &[Damage]) {
    let mut world = World::new();
    let source = world
        .a
        .register(Buffer::filled(&pattern(512, 1)), Access::empty());
    let results = world.a.region(&[0; 512]);
    let target = world.b.region(&[0; 512]);
    // Registered, but without any right; and not registered at all.
    let barred = world
        .b
        .register(Buffer::filled(&[0x11; 512]), Access::empty());
    let private = Buffer::filled(&[0x22; 512]);
    for _ in 0..3 {
        world.b.qp.post_receive(&[target.local(256, 256)]);
    }
    let qp = &mut world.a.qp;
    let at = target.remote(0);
    let data = source.local(0, 64);
    qp.write(Wqe::<1>::write(source.local(0, 8), target.remote(504)).signalled());
    qp.write(Wqe::<1>::write(data, at).signalled());
    qp.write(Wqe::<1>::read(results.local(0, 64), at).signalled());
    qp.write(Wqe::<1>::fetch_add(results.local(64, 8), at, 1).signalled());
    qp.write(Wqe::<1>::send_immediate(data, Immediate(1)).signalled());
    qp.write(Wqe::<2>::write_inline(&[5; 80], at).unwrap().signalled());
    let list = [
        source.local(0, 10),
        source.local(10, 20),
        source.local(30, 30),
    ];
    qp.write(Wqe::<2>::write_gather(&list, at).unwrap().signalled());
    qp.write(Wqe::<1>::masked_fetch_add_u32(results.local(72, 4), at, 1, 0).signalled());
    qp.write(Wqe::<1>::nop().signalled());
    let mut bytes = qp.ring.bytes();
    for Damage { offset, xor } in damages {
        bytes[*offset] ^= xor;
    }
    qp.ring.write(0, &bytes);
    qp.ring_doorbell();
    // Long enough for every retry.
    world.run_for(20 * TIMEOUT_NS);
    let cqes = world.a.qp.send_cq.drain();
    // The first, undamaged WQE completed; after an error nothing does.
    assert_eq!(cqes[0].tail().cqe_opcode(), CqeOpcode::REQUESTER);
    let errors = cqes.iter().skip_while(|cqe| !cqe.tail().is_error());
    for (position, cqe) in errors.enumerate() {
        assert_eq!(cqe.tail().cqe_opcode(), CqeOpcode::REQUESTER_ERROR);
        let syndrome = cqe.error_word().syndrome();
        assert_eq!(syndrome == Syndrome::FLUSHED, position > 0, "{syndrome:?}");
        assert!(syndrome.describe().is_some(), "{syndrome:?}");
    }
    let status = world.a.engine.query_queue_pair(world.a.qp.number).unwrap();
    match status.first_error {
        None => assert_eq!(status.state, QueuePairState::ReadyToSend),
        Some(_) => assert_eq!(status.state, QueuePairState::Error),
    }
    // Nothing is left over: each WQE completed or failed. (Only a send without a receive waits.)
    if status.counters.receiver_not_ready == 0 {
        assert_eq!(status.send_index, world.a.qp.producer);
    }
    world.check_canaries();
    private.check_canaries();
    assert_eq!(private.bytes(), [0x22; 512]);
    assert_eq!(barred.buffer.bytes(), [0x11; 512]);
    assert_eq!(source.buffer.bytes()[..], pattern(512, 1)[..]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn damaged_wqes_end_in_named_errors_or_do_what_they_say(damages in damage()) {
        run(&damages);
    }
}

/// Every byte of the first 9 WQEs, one at a time, with its highest and lowest bit flipped.
#[test]
fn every_single_byte() {
    for offset in 64..64 * 11 {
        for xor in [1, 0x80] {
            run(&[Damage { offset, xor }]);
        }
    }
}
