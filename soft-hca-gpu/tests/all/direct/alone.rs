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
            self.engine.step_with(self.now, &mut self.lender);
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
fn executes_what_the_record_alone_tells_of() {
    let (mut rig, write) = lent(Shape::default());
    assert_eq!(rig.pairs[0].send_cq.drain().len(), 1);
    rig.pairs[0].write(write);
    let record = rig.pairs[0].record;
    record.write(4, &DoorbellRecord::word(2).to_ne_bytes());
    // An old ring.
    rig.ring_only(0);
    rig.some_rounds();
    assert_eq!(rig.pairs[0].send_cq.drain().len(), 1);
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

/// Lends the queue, lets the peer take the memory's key away, and posts a write that wants it.
fn write_with_a_key_taken_away(write: impl FnOnce(&Region) -> Wqe<1>) {
    let (mut rig, _) = lent(Shape::default());
    let memory = rig.memory;
    rig.pairs[0].post_receive(&[memory.local(AREA, 64)]);
    let send = Wqe::<1>::send_invalidate(memory.local(2 * AREA, 64), memory.keys.remote);
    rig.pairs[1].post(send);
    rig.some_rounds();
    let before = memory.buffer.bytes();
    memory.buffer.write(0, &[7; 64]);
    rig.pairs[0].post(write(&memory));
    rig.some_rounds();
    let completions = rig.pairs[0].send_cq.drain();
    let opcodes = completions.iter().map(|cqe| cqe.tail().cqe_opcode());
    let expected = [CqeOpcode::REQUESTER, CqeOpcode::REQUESTER_ERROR];
    assert_eq!(opcodes.collect::<Vec<_>>(), expected);
    assert_eq!(memory.buffer.bytes()[512..576], before[512..576]);
}

#[test]
fn asks_each_time_whether_a_key_was_taken_away() {
    write_with_a_key_taken_away(|memory| {
        Wqe::<1>::write(memory.local(0, 64), memory.remote(512)).signalled()
    });
}

#[test]
fn asks_each_time_whether_the_peers_key_was_taken_away() {
    // Inline data want no key of their own.
    write_with_a_key_taken_away(|memory| {
        Wqe::<1>::write_value(7u64, memory.remote(512)).signalled()
    });
}

#[test]
fn opens_nothing_to_another_protection_domain() {
    let wire = Loopback::<32>::new(MTU);
    let mut domain = None;
    let mut rig = Rig::in_domains(wire, Access::all(), Shape::default(), |engine| {
        let domains = [(); 2].map(|()| engine.create_protection_domain().unwrap());
        domain = Some(domains[1]);
        domains
    });
    let ours = rig.memory;
    let buffer = Buffer::filled(&pattern(BYTES, 3));
    // SAFETY: the buffer lives as long as the test.
    let keys = unsafe {
        let (address, length) = (buffer.address(), BYTES as u64);
        rig.engine
            .register_memory(domain.unwrap(), address, length, Access::all())
    };
    let theirs = Region {
        buffer,
        keys: keys.unwrap(),
    };
    let mut outcome = |index: usize, local, remote| {
        let pair: &mut Qp = &mut rig.pairs[index];
        pair.post(Wqe::<1>::write(local, remote).signalled());
        rig.some_rounds();
        let completions = rig.pairs[index].send_cq.drain();
        completions.last().map(|cqe| cqe.tail().cqe_opcode())
    };
    // Twice, the second time by the crew, which learns the keys.
    for _ in 0..2 {
        let seen = outcome(0, ours.local(0, 64), theirs.remote(0));
        assert_eq!(seen, Some(CqeOpcode::REQUESTER));
        let seen = outcome(1, theirs.local(0, 64), ours.remote(0));
        assert_eq!(seen, Some(CqeOpcode::REQUESTER));
    }
    let before = ours.buffer.bytes();
    // Our key from their domain.
    let seen = outcome(1, ours.local(512, 64), ours.remote(0));
    assert_eq!(seen, Some(CqeOpcode::REQUESTER_ERROR));
    assert_eq!(ours.buffer.bytes(), before);
}

#[test]
fn leaves_what_is_not_small_to_all_lanes() {
    for length in [3, 24, 63, 100] {
        let (mut rig, _) = lent(Shape::default());
        let memory = rig.memory;
        let write = Wqe::<1>::write(memory.local(1, length), memory.remote(512)).signalled();
        rig.pairs[0].post(write);
        rig.some_rounds();
        assert_eq!(rig.pairs[0].send_cq.drain().len(), 2, "{length} bytes");
        let (bytes, length) = (memory.buffer.bytes(), length as usize);
        assert_eq!(bytes[512..][..length], bytes[1..][..length]);
    }
}

/// Whoever polls what lay in the ring goes on to read the payload that was written before it.
#[test]
fn orders_inline_data_behind_earlier_payloads() {
    let (mut rig, _) = lent(Shape::default());
    let memory = rig.memory;
    let (payload, polled) = (memory.remote(512), memory.remote(768));
    let words = Wqe::<1>::write_value([1u64, 2, 3], polled).signalled();
    let part = Wqe::<1>::write_value([1u64, 2], polled).signalled();
    let word = Wqe::<1>::write_value(1u64, polled).signalled();
    // Without a completion, which would order them, too.
    let write = Wqe::<1>::write(memory.local(0, 64), payload);
    for inline in [words, part, word] {
        for doorbells in 1..=2 {
            rig.stores.lock().unwrap().clear();
            rig.pairs[0].write(write);
            if doorbells == 2 {
                rig.pairs[0].ring_doorbell();
                rig.some_rounds();
            }
            rig.pairs[0].post(inline);
            rig.some_rounds();
            let stores = rig.stores.lock().unwrap();
            let at = |what| {
                stores
                    .iter()
                    .position(|&stored| stored == (0, what))
                    .unwrap()
            };
            let (first, then) = (
                at(Stored::At(payload.address)),
                at(Stored::At(polled.address)),
            );
            let between = &stores[first..then];
            assert!(between.contains(&(0, Stored::Released)), "{stores:?}");
        }
    }
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
