//! What a software HCA records of its work.

use std::sync::Arc;

use warpbell::trace::{Kind, ticks};
use warpbell::wqe::{Remote, RemoteKey, Wqe};
use warpbell::{Deadline, Exclusive};
use warpbell_soft_hca::shell::{HcaOptions, HcaTrace};

use super::{ALL, region};
use crate::soft::SoftOptions;
use crate::{Device, Nic, QueuePairConfig};

const LIMIT: Deadline = Deadline::after_ms(300_000);

/// Three packets of at most 64 KiB.
const BYTES: u32 = 150_000;
const PACKETS: [u32; 3] = [65_536, 65_536, 18_928];

/// Has a traced HCA write to itself, once to memory that is there and once with a wrong key. Returns the numbers of the queue
/// pairs.
fn write_twice(trace: &Arc<HcaTrace>) -> [u32; 2] {
    let options = SoftOptions {
        hca: HcaOptions {
            trace: Some(Arc::clone(trace)),
            ..HcaOptions::default()
        },
        ..SoftOptions::default()
    };
    let device = Device::open(Nic::Soft(options)).unwrap();
    let domain = device.protection_domain().unwrap();
    let source = region(&domain, BYTES as usize, 7, ALL);
    let target = region(&domain, BYTES as usize, 0, ALL);
    let config = QueuePairConfig::granting(crate::Access::all());
    let (one, other) = domain.connected(&domain, &config).unwrap();
    let mut queue = one.send_queue().unwrap().open::<Exclusive>().unwrap();
    let right = Remote {
        address: target.address(),
        key: target.rkey(),
    };
    let wrong = Remote {
        key: RemoteKey(!target.rkey().0),
        ..right
    };
    for (remote, bytes, is_right) in [(right, BYTES, true), (wrong, 8, false)] {
        let write = Wqe::write(source.local(0, bytes).unwrap(), remote).signalled();
        let ticket = queue.post(write, LIMIT).unwrap();
        assert_eq!(queue.wait(ticket, LIMIT).is_ok(), is_right);
    }
    [one.qpn(), other.qpn()]
}

/// The order is that of IBTA volume 1: a request's packets, then its acknowledgement, then its completion.
#[test]
fn a_write_is_recorded_from_doorbell_to_cqe() {
    let trace = HcaTrace::new(1000);
    let begin = ticks();
    let [one, other] = write_twice(&trace);
    let end = ticks();
    let [hca] = &trace.hcas()[..] else {
        panic!("one HCA");
    };
    let events: Vec<_> = hca.events().collect();
    assert!(events.is_sorted_by_key(|event| event.ticks));
    assert!(begin <= events[0].ticks && events[events.len() - 1].ticks <= end);
    let of = |qpn: u32| -> Vec<_> {
        let events = events.iter().filter(|event| event.qpn().get() == qpn);
        events
            .map(|event| (event.kind().unwrap(), event.value()))
            .collect()
    };
    let [first, second, third] = PACKETS;
    let requester = [
        (Kind::Doorbell, 1),
        (Kind::Fetch, 0),
        (Kind::PacketOut, first),
        (Kind::PacketOut, second),
        (Kind::PacketOut, third),
        (Kind::PacketIn, 0),
        (Kind::Cqe, 0),
        // Of the one that is refused.
        (Kind::Doorbell, 2),
        (Kind::Fetch, 1),
        (Kind::PacketOut, 8),
        (Kind::PacketIn, 0),
        (Kind::Cqe, 1),
    ];
    assert_eq!(of(one), requester);
    let responder = [
        (Kind::PacketIn, first),
        (Kind::PacketIn, second),
        (Kind::PacketIn, third),
        (Kind::PacketOut, 0),
        (Kind::PacketIn, 8),
        (Kind::PacketOut, 0),
    ];
    assert_eq!(of(other), responder);
    assert_eq!(events.len(), requester.len() + responder.len());
    assert_eq!(hca.lost(), 0);
}

/// The same, without memory for a single event.
#[test]
fn what_finds_no_room_is_counted() {
    let trace = HcaTrace::new(0);
    let _ = write_twice(&trace);
    let hca = &trace.hcas()[0];
    assert_eq!((hca.events().count(), hca.lost()), (0, 18));
}
