//! The acknowledgement timer: it runs while something is unanswered, and never otherwise.

use mlx5_wqe::{Syndrome, Wqe};

use super::world::{Connection, TIMEOUT_NS, World};

/// A queue pair that has been idle for longer than the timeout starts a fresh wait, whatever it
/// did last: with no retry left to spend, an old deadline would end it at once.
#[test]
fn no_deadline_is_left_when_nothing_is_under_way() {
    for last in ["read", "atomic", "nop", "write"] {
        let mut world = World::connected(Connection {
            retry_count: 0,
            ..Connection::default()
        });
        let local = world.a.region(&[1; 8]);
        let remote = world.b.region(&[2; 8]);
        let write = Wqe::<1>::write(local.all(), remote.remote(0)).signalled();
        world.a.qp.post(match last {
            "read" => Wqe::<1>::read(local.all(), remote.remote(0)).signalled(),
            "atomic" => Wqe::<1>::fetch_add(local.all(), remote.remote(0), 1).signalled(),
            "nop" => Wqe::<1>::nop().signalled(),
            _ => write,
        });
        world.settle();
        world.run_for(2 * TIMEOUT_NS);
        world.a.qp.post(write);
        // The answer takes a while, but far less than the timeout.
        for _ in 0..10 {
            world.now += TIMEOUT_NS / 100;
            world.a.engine.step(world.now);
        }
        world.settle();
        let cqes = world.a.qp.send_cq.drain();
        let errors = cqes.iter().filter(|cqe| cqe.tail().is_error()).count();
        assert_eq!((cqes.len(), errors), (2, 0), "a write after a {last}");
        let status = world.a.engine.query_queue_pair(world.a.qp.number);
        assert_eq!(status.unwrap().counters.retries, 0, "after a {last}");
    }
}

/// The peer is silent, and the user keeps posting.
#[test]
fn what_is_posted_later_does_not_put_the_deadline_off() {
    let mut world = World::connected(Connection {
        retry_count: 0,
        ..Connection::default()
    });
    let local = world.a.region(&[1; 8]);
    let remote = world.b.region(&[2; 8]);
    for _ in 0..4 {
        world
            .a
            .qp
            .post(Wqe::<1>::write(local.all(), remote.remote(0)));
        for _ in 0..5 {
            world.now += TIMEOUT_NS / 10;
            world.a.engine.step(world.now);
        }
    }
    let cqe = world.a.qp.send_cq.poll().expect("an error");
    assert_eq!(cqe.error_word().syndrome(), Syndrome::TRANSPORT_RETRY);
}

/// 0 is for ever.
#[test]
fn without_a_timeout_nothing_is_late() {
    let mut world = World::connected(Connection {
        ack_timeout_ns: 0,
        ..Connection::default()
    });
    let local = world.a.region(&[1; 8]);
    let remote = world.b.region(&[2; 8]);
    let write = Wqe::<1>::write(local.all(), remote.remote(0));
    world.a.qp.post(write.signalled());
    // The peer is silent for long.
    for _ in 0..10 {
        world.now += 100 * TIMEOUT_NS;
        world.a.engine.step(world.now);
    }
    assert!(world.a.qp.send_cq.poll().is_none());
    let status = world.a.engine.query_queue_pair(world.a.qp.number);
    assert_eq!(status.unwrap().counters.retries, 0);
    world.settle();
    assert!(!world.a.qp.send_cq.poll().unwrap().tail().is_error());
}
