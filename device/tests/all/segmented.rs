//! Large READs in segments, with the test in the NIC's place.
#![cfg(not(any(loom, miri)))]

use std::time::Duration;

use warpbell::wqe::{Local, LocalKey, Opcode, Remote, RemoteKey};
use warpbell::{Block, CompletionKind, Deadline, Exclusive, PostError, Scope, Thread, Warp, block};
use warpbell_cpu_grid::{Grid, Options, launch};

use crate::common::{MAX_MESSAGE, Rig};

const SOON: Deadline = Deadline::after_us(100);

fn ends(length: u32) -> (Local, Remote) {
    let local = Local {
        address: 0x1_0000,
        length,
        key: LocalKey(7),
    };
    let remote = Remote {
        address: 0x9_0000,
        key: RemoteKey(9),
    };
    (local, remote)
}

/// The READs in the ring from a block on: offset and length of each at the other end, where they go, and whether they
/// are signalled.
fn reads(rig: &Rig, from: usize, to: usize) -> Vec<(u64, u64, u32, bool)> {
    let read = |block: usize| {
        assert_eq!(rig.control(block), (block as u16, Opcode::RDMA_READ));
        let word = |index| u64::from_be(rig.ring_word(block, index));
        let length = (word(4) >> 32) as u32;
        let signalled = rig.signalled(block);
        (word(2) - 0x9_0000, word(5) - 0x1_0000, length, signalled)
    };
    (from..to).map(read).collect()
}

#[test]
fn a_read_goes_in_segments_under_one_doorbell() {
    let rig = Rig::new(5, CompletionKind::Collapsed);
    let mut queue = rig.handle().open::<Exclusive>().unwrap();
    let (local, remote) = ends(1000);
    let ticket = queue.read_in_segments(local, remote, 300, SOON).unwrap();
    assert_eq!(rig.doorbell_index(), Some(4));
    let expected = [(0, 300), (300, 300), (600, 300), (900, 100)];
    // The last one, and the ring's first block, which is in any case.
    let signalled = |offset| offset == 900 || offset == 0;
    let expected = expected.map(|(offset, length)| (offset, offset, length, signalled(offset)));
    assert_eq!(reads(&rig, 0, 4), expected);
    rig.complete(0, 2);
    assert_eq!(queue.is_done(ticket), Ok(false));
    rig.complete(0, 3);
    assert_eq!(queue.is_done(ticket), Ok(true));

    // Whole: by a segment as long, by a longer one, and by none.
    for (number, segment) in [1000, 5000, 0].into_iter().enumerate() {
        let _ = queue
            .read_in_segments(local, remote, segment, SOON)
            .unwrap();
        assert_eq!(reads(&rig, 4 + number, 5 + number), [(0, 0, 1000, true)]);
    }
}

#[test]
fn what_is_refused_posts_nothing() {
    let rig = Rig::new(4, CompletionKind::Collapsed);
    let mut queue = rig.handle().open::<Exclusive>().unwrap();
    let mut refused = |length, segment| {
        let (local, remote) = ends(length);
        queue
            .read_in_segments(local, remote, segment, SOON)
            .unwrap_err()
    };
    assert_eq!(refused(0, 64), PostError::Empty);
    assert_eq!(
        refused(9 * 64, 64),
        PostError::TooManyBlocks { asked: 9, limit: 8 }
    );
    assert_eq!(
        refused(MAX_MESSAGE + 1, 0),
        PostError::TooLong {
            bytes: u64::from(MAX_MESSAGE) + 1,
            limit: MAX_MESSAGE,
        }
    );
    assert_eq!(rig.doorbell_index(), None);
}

/// A scope posts one transfer, however many threads it has.
fn one_transfer<C: Scope>(threads: u32) {
    let rig = Rig::new(5, CompletionKind::Collapsed);
    let kernel = || {
        // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
        let mut queue = unsafe { rig.handle().open_together::<Exclusive, C>() }.unwrap();
        // Each thread is told.
        let (local, remote) = ends(MAX_MESSAGE + 1);
        let refused = queue.read_in_segments(local, remote, 0, SOON);
        assert!(matches!(refused, Err(PostError::TooLong { .. })));
        let (local, remote) = ends(1000);
        let _ = queue.read_in_segments(local, remote, 400, SOON).unwrap();
        block::sync();
    };
    let dim = Grid {
        blocks: 1,
        threads_per_block: threads,
    };
    let options = Options {
        deadline: Some(Duration::from_secs(300)),
        ..Options::default()
    };
    launch(dim, options, kernel).unwrap();
    assert_eq!(rig.doorbell_index(), Some(3));
    let expected = [
        (0, 0, 400, true),
        (400, 400, 400, false),
        (800, 800, 200, true),
    ];
    assert_eq!(reads(&rig, 0, 3), expected);
}

#[test]
fn a_scope_reads_once() {
    one_transfer::<Thread>(1);
    one_transfer::<Warp>(32);
    one_transfer::<Block>(70);
}
