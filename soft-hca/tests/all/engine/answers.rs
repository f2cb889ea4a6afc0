//! What the responder's packets say of themselves: their place in their message, and the message sequence number.

use std::cell::RefCell;
use std::rc::Rc;

use mlx5_wqe::{Syndrome, Wqe};
use warpbell_soft_hca::engine::fault::Fate;
use warpbell_soft_hca::engine::packet::{Header, Opcode, PacketFlags};

use super::world::{Connection, Faults, Shape, World, clean, pattern};

/// Where packets start.
const PSN: u32 = 0xff_fffe;

type Log = Rc<RefCell<Vec<Header>>>;

/// Writes down every packet, and loses those of which `lost` says so.
fn logging(lost: impl Fn(&Header, usize) -> bool + 'static) -> (Log, Faults) {
    let log = Log::default();
    let faults = {
        let log = log.clone();
        Box::new(move |header: &Header| {
            let mut log = log.borrow_mut();
            log.push(*header);
            match lost(header, log.len()) {
                true => Fate::Drop,
                false => Fate::Pass,
            }
        })
    };
    (log, faults)
}

fn world(faults: [Faults; 2]) -> World {
    let connection = Connection {
        psn: PSN,
        ..Connection::default()
    };
    World::with(Shape::default(), connection, faults)
}

/// Opcode, packets behind the first PSN, place in the message, message sequence number.
fn said(log: &Log) -> Vec<(Opcode, u32, bool, bool, u32)> {
    let headers = log.borrow();
    let lines = headers.iter().map(|header| {
        let flags = header.flags();
        (
            Opcode::from_number(header.opcode).unwrap(),
            header.psn.wrapping_sub(PSN) & 0xff_ffff,
            flags.contains(PacketFlags::FIRST),
            flags.contains(PacketFlags::LAST),
            header.msn,
        )
    });
    lines.collect()
}

/// A READ takes so many PSNs as its answer has packets; every message counts once it is complete (IBTA volume 1,
/// 9.7.7.1), a READ as soon as it is taken on (C9-148).
#[test]
fn answers_have_their_place_and_the_number_of_messages_before_them() {
    let (log, faults) = logging(|_, _| false);
    let mut world = world([clean(), faults]);
    let here = world.a.region(&pattern(2500, 1));
    let there = world.b.region(&pattern(2500, 2));
    world.b.qp.post_receive(&[there.all()]);
    world
        .a
        .qp
        .post(Wqe::<1>::write(here.all(), there.remote(0)).signalled());
    world.settle();
    world
        .a
        .qp
        .write(Wqe::<1>::read(here.all(), there.remote(0)).signalled());
    world
        .a
        .qp
        .write(Wqe::<1>::fetch_add(here.local(0, 8), there.remote(0), 1).signalled());
    world
        .a
        .qp
        .post(Wqe::<1>::read(here.local(0, 8), there.remote(0)).signalled());
    world.settle();
    world.a.qp.post(Wqe::<1>::send(here.all()).signalled());
    world.settle();
    assert_eq!(world.a.qp.send_cq.drain().len(), 5);
    let (yes, no) = (true, false);
    assert_eq!(
        said(&log),
        [
            (Opcode::Acknowledge, 2, no, no, 1),
            (Opcode::ReadResponse, 3, yes, no, 2),
            (Opcode::ReadResponse, 4, no, no, 2),
            (Opcode::ReadResponse, 5, no, yes, 2),
            (Opcode::AtomicResponse, 6, yes, yes, 3),
            (Opcode::ReadResponse, 7, yes, yes, 4),
            (Opcode::Acknowledge, 10, no, no, 5),
        ]
    );
}

/// What is left of a READ is asked for as a READ of its own, and so answered; nothing counts twice.
#[test]
fn a_read_asked_again_starts_anew_and_counts_once() {
    let (log, faults) =
        logging(|header, count| header.opcode == Opcode::ReadResponse as u8 && count == 2);
    let (requests, asking) = logging(|_, _| false);
    let mut world = world([asking, faults]);
    let here = world.a.region(&[0; 2500]);
    let there = world.b.region(&pattern(2500, 2));
    world
        .a
        .qp
        .post(Wqe::<1>::read(here.all(), there.remote(0)).signalled());
    world.run_for(1_000_000);
    assert_eq!(world.a.qp.send_cq.drain().len(), 1);
    assert_eq!(here.buffer.bytes(), there.buffer.bytes());
    let asked = requests.borrow().clone();
    assert_eq!(asked.len(), 2);
    for request in asked {
        let whole = PacketFlags::FIRST | PacketFlags::LAST | PacketFlags::ACKNOWLEDGE;
        assert_eq!(request.flags(), whole);
    }
    let (yes, no) = (true, false);
    assert_eq!(
        said(&log),
        [
            (Opcode::ReadResponse, 0, yes, no, 1),
            (Opcode::ReadResponse, 1, no, no, 1),
            (Opcode::ReadResponse, 2, no, yes, 1),
            (Opcode::ReadResponse, 1, yes, no, 1),
            (Opcode::ReadResponse, 2, no, yes, 1),
        ]
    );
}

#[test]
fn a_refusal_counts_what_came_before_it() {
    let (log, faults) = logging(|_, _| false);
    let mut world = world([clean(), faults]);
    let here = world.a.region(&[1; 8]);
    let there = world.b.region(&[0; 8]);
    let good = there.remote(0);
    let mut bad = good;
    bad.key.0 ^= 1 << 8;
    for _ in 0..3 {
        world.a.qp.post(Wqe::<1>::write(here.all(), good));
        world.settle();
    }
    world
        .a
        .qp
        .post(Wqe::<1>::write(here.all(), bad).signalled());
    world.settle();
    let cqe = world.a.qp.send_cq.poll().unwrap();
    assert_eq!(cqe.error_word().syndrome(), Syndrome::REMOTE_ACCESS);
    let refusal = (Opcode::Refuse, 3, false, false, 3);
    assert_eq!(said(&log).last(), Some(&refusal));
}
