//! Large READs and WRITEs in segments, with the test in the NIC's place.
#![cfg(not(any(loom, miri)))]

use std::time::Duration;

use warpbell::wqe::{Local, LocalKey, Opcode, Remote, RemoteKey};
use warpbell::{
    Block, CompletionKind, Deadline, Exclusive, PostError, Scope, SendQueue, Sharing, Thread,
    Ticket, Warp, block,
};
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

const BOTH: [Opcode; 2] = [Opcode::RDMA_READ, Opcode::RDMA_WRITE];

/// Moves bytes by one of the two.
fn moved<S: Sharing, C: Scope>(
    queue: &mut SendQueue<'_, S, C>,
    opcode: Opcode,
    length: u32,
    segment: u32,
) -> Result<Ticket, PostError> {
    let (local, remote) = ends(length);
    match opcode {
        Opcode::RDMA_READ => queue.read_in_segments(local, remote, segment, SOON),
        _ => queue.write_in_segments(local, remote, segment, SOON),
    }
}

/// The requests in the ring from a block on: offset of each at the other end and at this one, its length, and whether it is
/// signalled.
fn requests(rig: &Rig, opcode: Opcode, from: usize, to: usize) -> Vec<(u64, u64, u32, bool)> {
    let request = |block: usize| {
        assert_eq!(rig.control(block), (block as u16, opcode));
        let word = |index| u64::from_be(rig.ring_word(block, index));
        let length = (word(4) >> 32) as u32;
        let signalled = rig.signalled(block);
        (word(2) - 0x9_0000, word(5) - 0x1_0000, length, signalled)
    };
    (from..to).map(request).collect()
}

#[test]
fn a_transfer_goes_in_segments_under_one_doorbell() {
    for opcode in BOTH {
        let rig = Rig::new(5, CompletionKind::Collapsed);
        let mut queue = rig.handle().open::<Exclusive>().unwrap();
        let ticket = moved(&mut queue, opcode, 1000, 300).unwrap();
        assert_eq!(rig.doorbell_index(), Some(4));
        let expected = [(0, 300), (300, 300), (600, 300), (900, 100)];
        // The last one, and the ring's first block, which is in any case.
        let signalled = |offset| offset == 900 || offset == 0;
        let expected = expected.map(|(offset, length)| (offset, offset, length, signalled(offset)));
        assert_eq!(requests(&rig, opcode, 0, 4), expected);
        rig.complete(0, 2);
        assert_eq!(queue.is_done(ticket), Ok(false));
        rig.complete(0, 3);
        assert_eq!(queue.is_done(ticket), Ok(true));

        // Whole: by a segment as long, by a longer one, and by none.
        for (number, segment) in [1000, 5000, 0].into_iter().enumerate() {
            let _ = moved(&mut queue, opcode, 1000, segment).unwrap();
            let whole = requests(&rig, opcode, 4 + number, 5 + number);
            assert_eq!(whole, [(0, 0, 1000, true)]);
        }
    }
}

#[test]
fn what_is_refused_posts_nothing() {
    for opcode in BOTH {
        let rig = Rig::new(4, CompletionKind::Collapsed);
        let mut queue = rig.handle().open::<Exclusive>().unwrap();
        let mut refused = |length, segment| moved(&mut queue, opcode, length, segment).unwrap_err();
        assert_eq!(refused(0, 64), PostError::Empty);
        let many = PostError::TooManyBlocks { asked: 9, limit: 8 };
        assert_eq!(refused(9 * 64, 64), many);
        let bytes = u64::from(MAX_MESSAGE) + 1;
        let limit = MAX_MESSAGE;
        let long = PostError::TooLong { bytes, limit };
        assert_eq!(refused(MAX_MESSAGE + 1, 0), long);
        assert_eq!(rig.doorbell_index(), None);
    }
}

/// A scope posts one transfer, however many threads it has.
fn one_transfer<C: Scope>(opcode: Opcode, threads: u32) {
    let rig = Rig::new(5, CompletionKind::Collapsed);
    let kernel = || {
        // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
        let mut queue = unsafe { rig.handle().open_together::<Exclusive, C>() }.unwrap();
        // Each thread is told.
        let refused = moved(&mut queue, opcode, MAX_MESSAGE + 1, 0);
        assert!(matches!(refused, Err(PostError::TooLong { .. })));
        let _ = moved(&mut queue, opcode, 1000, 400).unwrap();
        block::sync();
    };
    let dim = Grid::new(1, threads);
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
    assert_eq!(requests(&rig, opcode, 0, 3), expected);
}

#[test]
fn a_scope_moves_once() {
    for opcode in BOTH {
        one_transfer::<Thread>(opcode, 1);
        one_transfer::<Warp>(opcode, 32);
        one_transfer::<Block>(opcode, 70);
    }
}
