//! Nobody waits for ever because somebody else is busy.

use std::cell::Cell;
use std::rc::Rc;

use mlx5_wqe::Wqe;
use warpbell_soft_hca::engine::WireAddress;
use warpbell_soft_hca::engine::fault::Fate;
use warpbell_soft_hca::engine::packet::{Header, Opcode};

use super::world::{
    Buffer, Connection, Qp, Region, Shape, World, clean, connect, connect_queue_pair,
    create_queue_pair,
};

/// Two HCAs with some queue pairs each, connected in pairs.
struct Crowd {
    world: World,
    qps: Vec<Qp>,
    source: Region,
    target: Region,
}

impl Crowd {
    fn new(pairs: usize, bytes: usize) -> Self {
        let shape = Shape {
            queue_pairs: pairs + 1,
            ..Shape::default()
        };
        let mut world = World::with(shape, Connection::default(), [clean(), clean()]);
        let mut qps = Vec::new();
        for _ in 0..pairs {
            let (a, b) = (&mut world.a, &mut world.b);
            let ours = create_queue_pair(&mut a.engine, a.pd, shape);
            let theirs = create_queue_pair(&mut b.engine, b.pd, shape);
            let with = Connection::default();
            let (us, them) = (
                (WireAddress(0), ours.number),
                (WireAddress(1), theirs.number),
            );
            connect_queue_pair(&mut a.engine, ours.number, them, shape.mtu, with);
            connect_queue_pair(&mut b.engine, theirs.number, us, shape.mtu, with);
            qps.push(ours);
        }
        let source = world.a.region(&vec![1; bytes]);
        let target = world.b.region(&vec![0; bytes]);
        Self {
            world,
            qps,
            source,
            target,
        }
    }
}

#[test]
fn queue_pairs_share_a_wire_that_is_always_full() {
    // Each message has 16 packets, each queue pair 128 of them to send, and the wire holds 100.
    let mut crowd = Crowd::new(6, 16 * 1024);
    let write = Wqe::<1>::write(crowd.source.all(), crowd.target.remote(0)).signalled();
    let mut done = vec![0_u32; crowd.qps.len()];
    for qp in &mut crowd.qps {
        for _ in 0..8 {
            qp.post(write);
        }
    }
    for _ in 0..600 {
        crowd.world.step();
        for (qp, done) in crowd.qps.iter_mut().zip(&mut done) {
            for cqe in qp.send_cq.drain() {
                assert!(!cqe.tail().is_error());
                *done += 1;
                qp.post(write);
            }
        }
    }
    let (least, most) = (done.iter().min().unwrap(), done.iter().max().unwrap());
    assert!(*least > 0 && most <= &(2 * least), "{done:?}");
}

/// The peer is gone, and its wire takes packets without end: a long answer still goes out in
/// pieces, so that the others of this HCA get their turn in between.
#[test]
fn a_long_answer_goes_out_over_many_steps() {
    const LENGTH: u32 = 1 << 20;
    let shape = Shape {
        mtu: 256,
        ..Shape::default()
    };
    let sent = Rc::new(Cell::new(0));
    let count = {
        let sent = sent.clone();
        Box::new(move |_: &Header| {
            sent.set(sent.get() + 1);
            Fate::Pass
        })
    };
    let mut world = World::with(shape, Connection::default(), [clean(), count]);
    world.reset();
    let (gone, with) = (WireAddress(9), Connection::default());
    let peer = (gone, world.a.qp.number);
    connect(&mut world.b, peer, shape.mtu, with);
    let source = world.b.region(&vec![0; LENGTH as usize]);
    let read = Header {
        destination: 1,
        source: gone.0,
        destination_qp: world.b.qp.number.get(),
        source_qp: world.a.qp.number.get(),
        psn: with.psn,
        opcode: Opcode::ReadRequest as u8,
        address: source.buffer.address(),
        rkey: source.keys.remote.0,
        length: LENGTH,
        ..Header::default()
    };
    world.inject(read, Buffer::new(0));
    let mut before = 0;
    for _ in 0..LENGTH / shape.mtu {
        world.b.engine.step(world.now);
        assert!(sent.get() - before <= 64, "{} packets", sent.get() - before);
        before = sent.get();
    }
    assert_eq!(sent.get(), LENGTH / shape.mtu);
}

/// The steps of the first HCA until it hears of `rung`'s next WQE.
fn steps_until_heard(
    crowd: &mut Crowd,
    rung: usize,
    mut before_each: impl FnMut(&mut Crowd),
) -> usize {
    let write = Wqe::<1>::write(crowd.source.all(), crowd.target.remote(0)).signalled();
    crowd.qps[rung].post(write);
    for steps in 1..10_000 {
        before_each(crowd);
        crowd.world.step();
        if crowd.qps[rung].send_cq.poll().is_some() {
            return steps;
        }
    }
    panic!("never heard");
}

#[test]
fn a_ring_is_heard_among_many_idle_pages() {
    const PAIRS: usize = 100;
    let mut crowd = Crowd::new(PAIRS, 8);
    crowd.world.settle();
    // Nobody else has anything to do: heard at once, and answered in the next step.
    for rung in [0, 50, 99] {
        let steps = steps_until_heard(&mut crowd, rung, |_| ());
        assert!(steps <= 2, "{rung}: {steps} steps");
        crowd.world.run_for(1_000_000);
    }
    // Somebody else always has: heard after as many steps as there are pages.
    for rung in [1, 51, 99] {
        let write = Wqe::<1>::write(crowd.source.all(), crowd.target.remote(0)).signalled();
        let steps = steps_until_heard(&mut crowd, rung, |crowd| {
            crowd.qps[20].send_cq.drain();
            crowd.qps[20].post(write);
        });
        assert!(steps <= PAIRS + 2, "{steps} steps");
    }
}
