//! Queues of this process, read as those of another.

use mlx5_wqe::Wqe;

use super::table::VERSION;
use super::*;
use crate::tests::hand::Hand;
use crate::tests::{ALL, PATIENT};
use crate::{Node, QueuePair, QueuePairConfig};

fn config() -> QueuePairConfig {
    QueuePairConfig {
        send_depth: 16,
        receive_depth: 8,
        timers: PATIENT,
        ..QueuePairConfig::granting(ALL)
    }
}

/// Numbers of other tests' queue pairs may be the same: those of one device are not.
fn image(pair: &QueuePair) -> Image {
    let process = Process::attach(std::process::id()).unwrap();
    let own = pair.memory().addresses().send_ring;
    let queues = process.queues().unwrap();
    let queue = queues
        .iter()
        .find(|queue| queue.row.send_ring == own)
        .unwrap();
    assert_eq!(queue.qpn, pair.qpn());
    process.image(queue).unwrap()
}

#[test]
fn a_queue_is_listed_as_long_as_it_lives() {
    let domain = Node::cpu().domain().unwrap();
    let mut pair = domain.queue_pair(&config()).unwrap();
    let ring = pair.memory().addresses().send_ring;
    let is_listed = |ring: u64| {
        let process = Process::attach(std::process::id()).unwrap();
        let queues = process.queues().unwrap();
        queues
            .iter()
            .find(|queue| queue.row.send_ring == ring)
            .copied()
    };
    let queue = is_listed(ring).unwrap();
    assert_eq!((queue.send_depth, queue.receive_depth), (16, Some(8)));
    assert_eq!((queue.qpn, queue.send_cqn), (pair.qpn(), pair.send_cqn()));
    assert_eq!(queue.states_in, Place::Host);
    assert!(queue.has_record && !queue.managed && !queue.collapsed && !queue.common);
    assert_eq!((queue.gid, queue.peer), (domain.device().gid(), None));
    let mut other = domain.queue_pair(&config()).unwrap();
    crate::connect(&mut pair, &mut other).unwrap();
    let peer = is_listed(ring).unwrap().peer;
    assert_eq!(peer, Some((domain.device().gid(), other.qpn())));
    pair.reset().unwrap();
    assert_eq!(is_listed(ring).unwrap().peer, None);
    assert_eq!(is_listed(ring).unwrap().qpn, pair.qpn());
    let before = is_listed(ring).unwrap().row;
    drop(pair);
    // A queue pair of another test may have got the memory, but not in the same row.
    let is_same = |row: Row| (row.qpn, row.sequence) == (before.qpn, before.sequence);
    assert!(is_listed(ring).is_none_or(|queue| !is_same(queue.row)));
    let pairs: Vec<_> = (0..3)
        .map(|_| domain.queue_pair(&config()).unwrap())
        .collect();
    let rings: Vec<_> = pairs
        .iter()
        .map(|pair| pair.memory().addresses().send_ring)
        .collect();
    assert!(rings.iter().all(|ring| is_listed(*ring).is_some()));
}

#[test]
fn an_image_has_what_was_posted_and_completed() {
    let [near, far] = Node::cpu().ends().unwrap();
    let (ours, theirs) = near.connected(&far, &config()).unwrap();
    let mut hand = Hand::new(&ours);
    let fresh = image(&ours);
    assert_eq!((fresh.send_producer, fresh.outstanding()), (0, None));
    let index = hand.post(Wqe::nop().signalled());
    crate::tests::hand::wait("a completion", || {}, || hand.poll());
    let after = image(&ours);
    assert_eq!(after.send_producer, 1);
    assert_eq!(after.newest_completed(), Some(index.0));
    assert_eq!(after.outstanding(), None);
    assert_eq!(after.send_ring[0][7], 1, "a NOP of one segment");
    assert_eq!(after.awaited_receive(), None);
    let progress = after.send_progress().unwrap();
    assert_eq!(progress, ours.send_progress());
    assert_eq!(after.first_errors(), [None, None]);
    let counters = after.counters.expect("a software NIC on the host");
    assert_eq!((counters.completed, counters.errors), (1, 0));
    drop(theirs);
}

#[test]
fn processes_that_are_not_ours_are_refused_by_name() {
    // More than the kernel gives to any process.
    let error = Process::attach(u32::MAX / 2).unwrap_err();
    assert!(matches!(error, LiveError::NoProcess { .. }), "{error}");
    let mut other = std::process::Command::new("sleep")
        .arg("300")
        .spawn()
        .unwrap();
    let error = Process::attach(other.id()).unwrap_err();
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(matches!(error, LiveError::NotOurs { .. }), "{error}");
}

/// Bytes at an address.
struct Bytes(u64, Vec<u8>);

impl Memory for Bytes {
    fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        let start = address.checked_sub(self.0).ok_or(ErrorKind::NotFound)? as usize;
        let from = self
            .1
            .get(start..start + into.len())
            .ok_or(ErrorKind::NotFound)?;
        into.copy_from_slice(from);
        Ok(())
    }
}

#[test]
fn damaged_tables_are_refused_by_name() {
    let at = 0x10_000;
    let header = |version: u64, address: u64, used: u64| {
        let layout = version | (size_of::<Row>() as u64) << 32;
        let words = [layout, address, used, 0, 0, 0];
        let words = words.iter().flat_map(|word| word.to_ne_bytes());
        b"warpbell-queues\0"
            .iter()
            .copied()
            .chain(words)
            .collect::<Vec<_>>()
    };
    let open = |bytes| Process::of_memory(Box::new(Bytes(at, bytes)), at);
    assert!(
        open(header(u64::from(VERSION), at, 0))
            .unwrap()
            .queues()
            .unwrap()
            .is_empty()
    );
    let error = open(header(1, at, 0)).unwrap_err();
    assert!(
        matches!(
            error,
            LiveError::OtherVersion {
                found: 1,
                wanted: 2
            }
        ),
        "{error}"
    );
    for bytes in [
        header(VERSION.into(), at + 8, 0),
        header(VERSION.into(), at, 1 << 40),
        vec![0; 64],
    ] {
        let error = open(bytes).unwrap_err();
        assert!(matches!(error, LiveError::Damaged { .. }), "{error}");
    }
    let error = open(vec![]).unwrap_err();
    assert!(
        matches!(
            error,
            LiveError::Unreadable {
                address: 0x10_000,
                ..
            }
        ),
        "{error}"
    );
    // A row that is in use, of a queue that cannot be.
    let row = Row {
        sequence: 1,
        send_depth_log2: 60,
        ..Row::default()
    };
    let bytes = [
        header(VERSION.into(), at, 1),
        zerocopy::IntoBytes::as_bytes(&row).to_vec(),
    ]
    .concat();
    let error = open(bytes).unwrap().queues().unwrap_err();
    assert!(matches!(error, LiveError::Damaged { .. }), "{error}");
    // One in a GPU's memory.
    let row = Row {
        sequence: 1,
        qpn: 7,
        queues_in: 2,
        ..Row::default()
    };
    let bytes = [
        header(VERSION.into(), at, 1),
        zerocopy::IntoBytes::as_bytes(&row).to_vec(),
    ]
    .concat();
    let process = open(bytes).unwrap();
    let error = process.image(&process.queues().unwrap()[0]).err().unwrap();
    assert_eq!(
        error.to_string(),
        "the ring of queue pair 0x000007 is in GPU memory, which another process cannot read"
    );
    let row = Row {
        completions_in: 1,
        queues_in: 0,
        ..row
    };
    let bytes = [
        header(VERSION.into(), at, 1),
        zerocopy::IntoBytes::as_bytes(&row).to_vec(),
    ];
    let process = open(bytes.concat()).unwrap();
    let error = process.image(&process.queues().unwrap()[0]).err().unwrap();
    assert!(matches!(error, LiveError::Pinned { qpn: 7, .. }), "{error}");
}
