//! What drivers use beside the plain queue pair: more send registers of a page, the user index.

use std::sync::atomic::Ordering;

use mlx5_wqe::{Doorbell, DoorbellRecord, UarPage, Wqe, WqeIndex};
use warpbell_soft_hca::engine::QueuePairOptions;

use super::world::{Connection, Shape, World, clean};

fn world(options: QueuePairOptions) -> World {
    let shape = Shape {
        options,
        ..Shape::default()
    };
    World::with(shape, Connection::default(), [clean(), clean()])
}

/// Posts a NOP and rings the register at an offset; whether it was executed.
fn rings(world: &mut World, register: usize) -> bool {
    let qp = &mut world.a.qp;
    qp.write(Wqe::<1>::nop().signalled());
    let word = DoorbellRecord::word(qp.producer);
    qp.record.write(4, &word.to_ne_bytes());
    let doorbell = Doorbell::of_producer(WqeIndex(qp.producer), qp.number);
    let register = qp.uar.atomic_u64(register);
    register.store(doorbell.0, Ordering::Release);
    world.settle();
    world.a.qp.send_cq.poll().is_some()
}

#[test]
fn as_many_registers_are_heard_as_wanted() {
    for send_registers in [0, 1, 2, 4, 8, 255] {
        let mut world = world(QueuePairOptions {
            send_registers,
            ..QueuePairOptions::default()
        });
        let [first, _] = UarPage::DOORBELLS;
        for _ in 0..3 {
            for register in 0..8 {
                let heard = rings(&mut world, first + 0x100 * register);
                let expected = register < usize::from(send_registers.max(1));
                assert_eq!(heard, expected, "register {register} of {send_registers}");
                // What was not heard is with the next ring.
                if !heard {
                    assert!(rings(&mut world, first));
                    assert_eq!(world.a.qp.send_cq.drain().len(), 1);
                }
            }
        }
    }
}

#[test]
fn each_cqe_carries_the_user_index() {
    let mut world = world(QueuePairOptions {
        user_index: 0xab_cdef,
        ..QueuePairOptions::default()
    });
    let source = world.a.region(&[1; 8]);
    let target = world.b.region(&[0; 8]);
    world.b.qp.post_receive(&[target.all()]);
    // The second finds a receive that is too small: an error at both ends.
    world.b.qp.post_receive(&[target.local(0, 4)]);
    for _ in 0..2 {
        world.a.qp.post(Wqe::<1>::send(source.all()).signalled());
    }
    world.settle();
    for qp in [&mut world.a.qp, &mut world.b.qp] {
        let cqes: Vec<_> = [&mut qp.send_cq, &mut qp.receive_cq]
            .into_iter()
            .flat_map(|cq| cq.drain())
            .collect();
        assert_eq!(cqes.len(), 2);
        assert!(!cqes[0].tail().is_error() && cqes[1].tail().is_error());
        assert!(cqes.iter().all(|cqe| cqe.user_index() == 0xab_cdef));
    }
}
