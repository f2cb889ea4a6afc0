//! The whole of our post path against libmlx5's: `warpbell` posts to one of libmlx5's queue pairs what libmlx5 posts to
//! another.

use ::warpbell::{Exclusive, SendQueue, Thread};
use mlx5_wqe::{Doorbell, Local, WqeIndex};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use warpbell_proofs::ours::Ours;
use warpbell_proofs::verbs::Verbs;

use super::asked::{Asked, Payload, Verb, asked};
use super::{ALL, Compared, Context, options};
use crate::libmlx5::device::with_device;

/// The request as `warpbell` takes it: a message below the card's longest, an atomic where one may be. All are
/// signalled, because `warpbell` signals one in a while unasked.
fn acceptable(asked: Asked) -> Asked {
    let shorter = |local: Local| Local {
        length: local.length % (1 << 20) + 1,
        ..local
    };
    let mut asked = Asked {
        signalled: true,
        ..asked
    };
    if matches!(asked.verb, Verb::CompareSwap | Verb::FetchAdd) {
        asked.remote.address &= !7;
    } else if let Payload::List(list) = &mut asked.data {
        list.iter_mut().for_each(|local| *local = shorter(*local));
    }
    asked
}

/// A block of a ring with the QPN of its first segment taken out, if it begins a WQE.
fn without_qpn(mut block: [u64; 8], qpn: u32, first: bool) -> [u64; 8] {
    if first {
        block[0] ^= (u64::from(qpn) << 8).to_be();
    }
    block
}

#[test]
fn the_same_ring() {
    with_device("libmlx5::posting::warpbell::the_same_ring", || {
        let mut theirs = Compared::open(&options());
        let ours = Ours::new(Verbs::open(&options()).unwrap());
        let mut queue: SendQueue<'_, Exclusive, Thread> = ours.handle().open().unwrap();
        let requests = asked(ALL.to_vec());
        let mut runner = TestRunner::new(ProptestConfig::default());
        let mut wrapped = false;
        // Past the end of the index.
        while !(wrapped && theirs.index > 1000) {
            let asked = acceptable(requests.new_tree(&mut runner).unwrap().current());
            let _context = Context(&asked);
            let (from, blocks) = (theirs.index, asked.wqe().blocks());
            theirs.check_asked(&asked);
            assert!(queue.try_post(asked.wqe()).is_ok());
            wrapped |= theirs.index < from;

            let their_qpn = theirs.device.verbs.qpn();
            let ring = theirs.device.verbs.send_ring();
            for number in 0..blocks {
                let index = WqeIndex(from).advance(number);
                let their_block = zerocopy::transmute!(ring[usize::from(index.0) % ring.len()]);
                assert_eq!(
                    without_qpn(ours.block(index), ours.qpn().get(), number == 0),
                    without_qpn(their_block, their_qpn, number == 0),
                    "block {number}"
                );
            }
            assert_eq!(ours.record(), theirs.device.verbs.record());
            // The GPU libraries' form, not libmlx5's: the card looks at index and QPN alone.
            let rung = Doorbell::of_producer(WqeIndex(theirs.index), ours.qpn());
            assert_eq!(ours.doorbell(), rung.0);
            ours.complete(WqeIndex(from));
        }
        theirs.device.close();
        drop(queue);
        assert_eq!(ours.close(), Ok(()));
    });
}
