//! One write at a time in a lent queue, which the lane that hears the ring executes by itself.

use std::sync::atomic::Ordering;

use mlx5_wqe::{CqeOpcode, Doorbell, DoorbellRecord, UarPage, WqeIndex};

use super::*;

impl<W: Wire> Rig<W> {
    /// Rings for the WQEs before `producer`, and leaves the record alone.
    fn ring_only(&self, producer: u16) {
        let pair = &self.pairs[0];
        let doorbell = Doorbell::of_producer(WqeIndex(producer), pair.number);
        let register = pair.uar.atomic_u64(UarPage::DOORBELLS[0]);
        register.store(doorbell.0, Ordering::Release);
    }

    /// A ring that the record does not confirm is looked at again and again: this long.
    fn some_rounds(&mut self) {
        for _ in 0..20 {
            self.engine.step_lending(self.now, &mut self.lender);
            self.crew.round();
        }
    }
}

/// A rig whose first queue is lent, and a write for it.
fn lent(shape: Shape) -> (Rig<Loopback<32>>, Wqe<1>) {
    let mut rig = Rig::shaped(Loopback::new(MTU), Access::all(), shape);
    let memory = rig.memory;
    let write = Wqe::<1>::write(memory.local(0, 64), memory.remote(512)).signalled();
    rig.pairs[0].post(write);
    rig.some_rounds();
    (rig, write)
}

#[test]
fn waits_for_the_record() {
    let (mut rig, write) = lent(Shape::default());
    assert_eq!(rig.pairs[0].send_cq.drain().len(), 1);
    rig.pairs[0].write(write);
    rig.ring_only(2);
    rig.some_rounds();
    assert_eq!(rig.pairs[0].send_cq.drain().len(), 0);
    rig.pairs[0].ring_doorbell();
    rig.some_rounds();
    assert_eq!(rig.pairs[0].send_cq.drain().len(), 1);
}

#[test]
fn takes_along_what_the_record_tells_of() {
    let (mut rig, write) = lent(Shape::default());
    rig.pairs[0].write(write);
    rig.pairs[0].write(write);
    let record = rig.pairs[0].record;
    record.write(4, &DoorbellRecord::word(3).to_ne_bytes());
    rig.ring_only(2);
    rig.some_rounds();
    assert_eq!(rig.pairs[0].send_cq.drain().len(), 3);
}

#[test]
fn overwrites_no_completion_that_was_not_polled() {
    let (mut rig, write) = lent(Shape {
        log_cq_depth: 1,
        ..Shape::default()
    });
    for _ in 0..2 {
        rig.pairs[0].post(write);
        rig.some_rounds();
    }
    assert_eq!(rig.pairs[0].send_cq.drain().len(), 2);
}

#[test]
fn asks_each_time_whether_a_key_was_taken_away() {
    let (mut rig, write) = lent(Shape::default());
    let memory = rig.memory;
    rig.pairs[0].post_receive(&[memory.local(AREA, 64)]);
    let send = Wqe::<1>::send_invalidate(memory.local(2 * AREA, 64), memory.keys.remote);
    rig.pairs[1].post(send);
    rig.some_rounds();
    let before = memory.buffer.bytes();
    memory.buffer.write(0, &[7; 64]);
    rig.pairs[0].post(write);
    rig.some_rounds();
    let completions = rig.pairs[0].send_cq.drain();
    let opcodes = completions.iter().map(|cqe| cqe.tail().cqe_opcode());
    let expected = [CqeOpcode::REQUESTER, CqeOpcode::REQUESTER_ERROR];
    assert_eq!(opcodes.collect::<Vec<_>>(), expected);
    assert_eq!(memory.buffer.bytes()[512..576], before[512..576]);
}

#[test]
fn gives_the_queue_back_though_it_rings_each_time() {
    let (mut rig, write) = lent(Shape::default());
    for _ in 0..10 {
        rig.pairs[0].post(write);
        let clear = rig.lender.clear(&mut rig.engine);
        rig.crew.round();
        rig.pairs[0].send_cq.drain();
        if clear {
            return;
        }
    }
    panic!("it is not given back");
}
