//! libmlx5 and the software HCA's engine on the same rings: libmlx5 posts, the engine works and writes CQEs, and
//! `ibv_poll_cq` reads them.
//!
//! The engine is stepped by hand between libmlx5's calls. It hears one send register of a page, so that libmlx5 is
//! told to use no other.

mod world;

use mlx5_wqe::{Syndrome, VendorCode};
use warpbell_proofs::verbs::{Post, Segment};
use warpbell_soft_hca::engine::{Access, Transition};
use warpbell_soft_hca::shell::{HcaOptions, SoftHca};

use crate::libmlx5::device::with_device;
use crate::libmlx5::polling::status;
use world::{Buffer, World};

#[test]
fn every_verb() {
    with_device("libmlx5::engine::every_verb", || {
        let mut world = World::new(7);
        let sent = b"what libmlx5 posts, the engine moves".repeat(3);
        let all = Access::all();
        let source = world.buffer(0, &sent, all);
        let target = world.buffer(1, &vec![0; sent.len()], all);
        let landing = world.buffer(1, &vec![0; sent.len()], all);
        let counter = world.buffer(1, &7_u64.to_ne_bytes(), all);
        let old = world.buffer(0, &[0; 8], all);
        let length = sent.len() as u32;

        world.post(0, "IBV_WR_RDMA_WRITE", &[source.segment()], Some(&target));
        world.settle();
        let done = world.expect(0, "IBV_WC_SUCCESS");
        assert_eq!(u64::from(done.opcode), world.values["IBV_WC_RDMA_WRITE"]);
        assert_eq!(target.bytes(), sent);

        // A few dozen times inline, so that WQEs cross the ring's end.
        for round in 0..40_u8 {
            let bytes = [round; 150];
            let piece = [Segment {
                address: bytes.as_ptr().expose_provenance() as u64,
                length: 100,
                key: 0,
            }];
            // SAFETY: the bytes are there while the request is posted.
            let mut post =
                unsafe { Post::new(world.values["IBV_WR_RDMA_WRITE"]).with_inline(&piece) };
            post.flags = world.values["IBV_SEND_SIGNALED"] as u32;
            post.remote_address = target.address();
            post.remote_key = target.keys.remote.0;
            world.ends[0].verbs.post_extended(&post).unwrap();
            world.settle();
            world.expect(0, "IBV_WC_SUCCESS");
            assert_eq!(target.bytes()[..100], [round; 100]);
            assert_eq!(target.bytes()[100..], sent[100..]);
        }

        let arrivals = [
            (
                "IBV_WR_RDMA_WRITE_WITH_IMM",
                "IBV_WC_RECV_RDMA_WITH_IMM",
                "IBV_WC_WITH_IMM",
            ),
            ("IBV_WR_SEND", "IBV_WC_RECV", ""),
            ("IBV_WR_SEND_WITH_IMM", "IBV_WC_RECV", "IBV_WC_WITH_IMM"),
        ];
        for (id, (verb, opcode, flag)) in (100..).zip(arrivals) {
            world.ends[1]
                .verbs
                .receive(id, &[landing.segment()])
                .unwrap();
            world.post(0, verb, &[source.segment()], Some(&target));
            world.settle();
            world.expect(0, "IBV_WC_SUCCESS");
            let arrived = world.expect(1, "IBV_WC_SUCCESS");
            assert_eq!((arrived.id, arrived.bytes), (id, length));
            assert_eq!(u64::from(arrived.opcode), world.values[opcode]);
            assert_eq!(
                u64::from(arrived.flags),
                world.values.get(flag).copied().unwrap_or(0)
            );
            assert!(flag.is_empty() || arrived.immediate == 0x1122_3344);
        }
        assert_eq!(landing.bytes(), sent);

        let back = world.buffer(0, &vec![0; sent.len()], all);
        world.post(0, "IBV_WR_RDMA_READ", &[back.segment()], Some(&landing));
        world.settle();
        let done = world.expect(0, "IBV_WC_SUCCESS");
        assert_eq!(u64::from(done.opcode), world.values["IBV_WC_RDMA_READ"]);
        assert_eq!((done.bytes, back.bytes()), (length, sent.clone()));

        let verbs = [
            (
                "IBV_WR_ATOMIC_FETCH_AND_ADD",
                "IBV_WC_FETCH_ADD",
                5,
                0,
                7,
                12,
            ),
            (
                "IBV_WR_ATOMIC_CMP_AND_SWP",
                "IBV_WC_COMP_SWAP",
                12,
                99,
                12,
                99,
            ),
        ];
        for (verb, opcode, compare_add, swap, was, is) in verbs {
            world.post_as(0, verb, &[old.segment()], Some(&counter), |post| {
                (post.compare_add, post.swap) = (compare_add, swap);
            });
            world.settle();
            let done = world.expect(0, "IBV_WC_SUCCESS");
            assert_eq!(
                (u64::from(done.opcode), done.bytes),
                (world.values[opcode], 8)
            );
            let values = [&old, &counter]
                .map(|buffer| u64::from_ne_bytes(buffer.bytes()[..].try_into().unwrap()));
            assert_eq!(values, [was, is]);
        }
        world.expect_nothing();
        world.close();
    });
}

/// A send that invalidates a key: the arrival names it, and it is gone.
#[test]
fn invalidation() {
    with_device("libmlx5::engine::invalidation", || {
        let mut world = World::new(7);
        let source = world.buffer(0, b"sixteen bytes...", Access::all());
        let landing = world.buffer(1, &[0; 16], Access::all());
        let doomed = world.buffer(1, &[0; 16], Access::all());
        let key = doomed.keys.remote.0;
        world.ends[1]
            .verbs
            .receive(1, &[landing.segment()])
            .unwrap();
        world.post_as(
            0,
            "IBV_WR_SEND_WITH_INV",
            &[source.segment()],
            None,
            |post| post.immediate = key,
        );
        world.settle();
        world.expect(0, "IBV_WC_SUCCESS");
        let arrived = world.expect(1, "IBV_WC_SUCCESS");
        assert_eq!(u64::from(arrived.flags), world.values["IBV_WC_WITH_INV"]);
        assert_eq!(arrived.immediate, key);
        world.post(0, "IBV_WR_RDMA_WRITE", &[source.segment()], Some(&doomed));
        world.settle();
        world.expect(0, "IBV_WC_REM_ACCESS_ERR");
        world.close();
    });
}

/// What goes wrong, with the CQEs that the engine writes of itself: the verbs' status at both ends, the vendor's
/// code as a card has it, and the flush of what was posted after.
#[test]
fn true_errors() {
    type Go = fn(&mut World, &[Buffer; 3]);
    struct Case {
        what: &'static str,
        rnr_retry: u8,
        go: Go,
        /// Status and vendor code at the end that posts.
        own: (&'static str, u32),
        /// Status at the other end, where it has one.
        peer: Option<&'static str>,
    }
    let cases = [
        Case {
            what: "a remote key that does not exist",
            rnr_retry: 7,
            go: |world, [own, peer, _]| {
                world.post_as(
                    0,
                    "IBV_WR_RDMA_WRITE",
                    &[own.segment()],
                    Some(peer),
                    |post| {
                        post.remote_key ^= 0x100;
                    },
                );
            },
            own: ("IBV_WC_REM_ACCESS_ERR", 0x88),
            peer: None,
        },
        Case {
            what: "a local key that does not exist",
            rnr_retry: 7,
            go: |world, [own, peer, _]| {
                let mut segment = own.segment();
                segment.key ^= 0x100;
                world.post(0, "IBV_WR_RDMA_WRITE", &[segment], Some(peer));
            },
            own: ("IBV_WC_LOC_PROT_ERR", 0x53),
            peer: None,
        },
        Case {
            what: "an atomic on an address that is no multiple of 8",
            rnr_retry: 7,
            go: |world, [own, peer, _]| {
                let segment = Segment {
                    length: 8,
                    ..own.segment()
                };
                world.post_as(
                    0,
                    "IBV_WR_ATOMIC_FETCH_AND_ADD",
                    &[segment],
                    Some(peer),
                    |post| {
                        post.remote_address |= 4;
                    },
                );
            },
            own: ("IBV_WC_REM_INV_REQ_ERR", 0x8a),
            peer: None,
        },
        Case {
            what: "a receive that is too small",
            rnr_retry: 7,
            go: |world, [own, peer, _]| {
                let small = Segment {
                    length: 8,
                    ..peer.segment()
                };
                world.ends[1].verbs.receive(5, &[small]).unwrap();
                world.post(0, "IBV_WR_SEND", &[own.segment()], None);
            },
            own: ("IBV_WC_REM_INV_REQ_ERR", 0x8a),
            peer: Some("IBV_WC_LOC_LEN_ERR"),
        },
        Case {
            what: "a receive whose memory may not be written",
            rnr_retry: 7,
            go: |world, [own, _, readable]| {
                world.ends[1]
                    .verbs
                    .receive(5, &[readable.segment()])
                    .unwrap();
                world.post(0, "IBV_WR_SEND", &[own.segment()], None);
            },
            own: ("IBV_WC_REM_OP_ERR", 0),
            peer: Some("IBV_WC_LOC_PROT_ERR"),
        },
        Case {
            what: "no receive, and few tries",
            rnr_retry: 2,
            go: |world, [own, _, _]| world.post(0, "IBV_WR_SEND", &[own.segment()], None),
            own: ("IBV_WC_RNR_RETRY_EXC_ERR", 0x87),
            peer: None,
        },
        Case {
            what: "a peer that does not answer",
            rnr_retry: 7,
            go: |world, [own, peer, _]| {
                let gone = world.ends[1].qpn;
                let reset = world
                    .hca
                    .command(|engine| engine.modify_queue_pair(gone, Transition::Reset));
                reset.unwrap().unwrap();
                world.post(0, "IBV_WR_RDMA_WRITE", &[own.segment()], Some(peer));
            },
            own: ("IBV_WC_RETRY_EXC_ERR", 0x81),
            peer: None,
        },
    ];
    with_device("libmlx5::engine::true_errors", || {
        let mut hca = Some(SoftHca::new(HcaOptions::default()));
        let mut worlds = Vec::new();
        for case in cases {
            // One engine for all, so that its queue pairs are numbered on; the old ones stay.
            let mut world = World::on(hca.take().expect("handed on"), case.rnr_retry);
            let own = world.buffer(0, &[1; 64], Access::all());
            let peer = world.buffer(1, &[2; 64], Access::all());
            let readable = world.buffer(1, &[3; 64], Access::REMOTE_READ);
            let buffers = [own, peer, readable];
            (case.go)(&mut world, &buffers);
            // Flushed with the queue.
            world.post_as(0, "IBV_WR_SEND", &[], None, |post| post.id = 2);
            world.ends[0].verbs.receive(3, &[]).unwrap();
            world.settle();

            let (status, vendor) = case.own;
            let polled = world.expect(0, status);
            assert!(
                vendor == 0 || polled.vendor == vendor,
                "{}: vendor code {:#x}",
                case.what,
                polled.vendor
            );
            let mut flushed = [0, 1].map(|_| world.expect(0, "IBV_WC_WR_FLUSH_ERR").id);
            flushed.sort_unstable();
            assert_eq!(flushed, [2, 3], "{}", case.what);
            if let Some(status) = case.peer {
                assert_eq!(world.expect(1, status).id, 5, "{}", case.what);
            }
            world.expect_nothing();
            let World {
                hca: used, ends, ..
            } = world;
            hca = Some(used);
            worlds.push((ends, buffers));
        }
        drop(hca);
        for (ends, _) in worlds {
            for end in ends {
                assert_eq!(end.verbs.close(), Ok(()));
            }
        }
    });
}

/// The engine is told to fail a send with each syndrome that has a name.
#[test]
fn every_named_syndrome() {
    with_device("libmlx5::engine::every_named_syndrome", || {
        let mut hca = Some(SoftHca::new(HcaOptions::default()));
        let mut kept = Vec::new();
        for (number, syndrome) in Syndrome::KNOWN.iter().enumerate() {
            let mut world = World::on(hca.take().expect("handed on"), 7);
            let vendor = VendorCode(0x40 + number as u8);
            let qpn = world.ends[0].qpn;
            let failing = world
                .hca
                .command(|engine| engine.fail_send(qpn, 0, *syndrome, vendor));
            failing.unwrap().unwrap();
            world.post_as(0, "IBV_WR_SEND", &[], None, |post| post.id = 77);
            world.settle();
            let polled = world.expect(0, status(*syndrome));
            assert_eq!(
                (polled.vendor, polled.id),
                (vendor.0.into(), 77),
                "{syndrome}"
            );
            assert_eq!(polled.qpn, qpn.get());
            world.expect_nothing();
            let World {
                hca: used, ends, ..
            } = world;
            hca = Some(used);
            kept.push(ends);
        }
        drop(hca);
        for end in kept.into_iter().flatten() {
            assert_eq!(end.verbs.close(), Ok(()));
        }
    });
}
