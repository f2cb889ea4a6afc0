//! `ibv_post_recv` and `ibv_post_srq_recv` against the builders.

use mlx5_wqe::{DoorbellRecord, Local, Octoword, QpNumber, ReceiveWqe, SrqNext, signature};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use warpbell_proofs::verbs::Options;

use crate::libmlx5::device::{Device, with_device};
use crate::mlx5dv::wqes::{local, segments};

/// The most segments of a receive.
const SEGMENTS: usize = 4;

fn lists() -> impl Strategy<Value = Vec<Local>> {
    prop::collection::vec(local(), 0..=SEGMENTS)
}

/// What a receive says: its octowords up to the end of its list. Behind it libmlx5 leaves what was there.
fn said(octowords: &[Octoword], segments: usize) -> Vec<[u8; 16]> {
    let end = octowords.len().min(segments + 1);
    octowords[..end]
        .iter()
        .map(|octoword| octoword.to_bytes())
        .collect()
}

#[test]
fn receives() {
    with_device("libmlx5::receiving::receives", || {
        let options = Options {
            receives: 128,
            receive_segments: SEGMENTS as u32,
            ..Options::default()
        };
        let mut device = Device::open(&options);
        assert_eq!(device.verbs.receive_stride(), SEGMENTS);
        let mut runner = TestRunner::new(ProptestConfig::default());
        for number in 0..128_u16 {
            let list = lists().new_tree(&mut runner).unwrap().current();
            device
                .verbs
                .receive(number.into(), &segments(&list))
                .unwrap();
            let ours = ReceiveWqe::<SEGMENTS>::scatter(&list)
                .unwrap()
                .to_octowords();
            let slot = usize::from(number) * SEGMENTS;
            let theirs = &device.verbs.receive_ring()[slot..slot + SEGMENTS];
            assert_eq!(
                said(theirs, list.len()),
                said(&ours, list.len()),
                "{list:?}"
            );
            assert_eq!(device.verbs.record()[0], DoorbellRecord::word(number + 1));
        }
        device.close();
    });
}

#[test]
fn shared_receives() {
    with_device("libmlx5::receiving::shared_receives", || {
        // The link takes the place of a segment.
        const STRIDE: usize = 8;
        let options = Options {
            shared: true,
            receives: 100,
            receive_segments: SEGMENTS as u32,
            ..Options::default()
        };
        let mut device = Device::open(&options);
        assert_eq!(device.verbs.receive_stride(), STRIDE);
        let mut runner = TestRunner::new(ProptestConfig::default());
        for number in 0..100_u16 {
            let list = lists().new_tree(&mut runner).unwrap().current();
            device
                .verbs
                .receive(number.into(), &segments(&list))
                .unwrap();
            // Nothing was given back yet, so that the free ones lie in a row.
            let ours = ReceiveWqe::<STRIDE>::linked(number + 1, &list)
                .unwrap()
                .to_octowords();
            let slot = usize::from(number) * STRIDE;
            let theirs = &device.verbs.receive_ring()[slot..slot + STRIDE];
            assert_eq!(
                SrqNext::from_octoword(theirs[0]).next_wqe_index.get(),
                number + 1
            );
            assert_eq!(
                said(theirs, list.len() + 1),
                said(&ours, list.len() + 1),
                "{list:?}"
            );
            assert_eq!(
                device.verbs.shared_record(),
                Some(DoorbellRecord::word(number + 1))
            );
        }
        device.close();
    });
}

#[test]
fn signed_receives() {
    with_device("libmlx5::receiving::signed_receives", || {
        // The signature takes the place of a segment.
        const STRIDE: usize = 8;
        let options = Options {
            signatures: true,
            receives: 128,
            receive_segments: SEGMENTS as u32,
            ..Options::default()
        };
        let mut device = Device::open(&options);
        assert_eq!(device.verbs.receive_stride(), STRIDE);
        let qpn = QpNumber::new(device.verbs.qpn()).unwrap();
        let mut runner = TestRunner::new(ProptestConfig::default());
        for number in 0..128_u16 {
            let list = lists().new_tree(&mut runner).unwrap().current();
            device
                .verbs
                .receive(number.into(), &segments(&list))
                .unwrap();
            // The link of a shared receive has its signature at the same place.
            let mut ours = ReceiveWqe::<STRIDE>::linked(0, &list)
                .unwrap()
                .to_octowords();
            let first = SrqNext {
                signature: signature::of_receive(&ours[..=list.len()], qpn, number),
                ..SrqNext::default()
            };
            ours[0] = first.to_octoword();
            let slot = usize::from(number) * STRIDE;
            let theirs = &device.verbs.receive_ring()[slot..slot + STRIDE];
            assert_eq!(
                said(theirs, list.len() + 1),
                said(&ours, list.len() + 1),
                "{list:?}"
            );
        }
        device.close();
    });
}
