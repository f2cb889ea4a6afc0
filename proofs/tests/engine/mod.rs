//! libmlx5 and the software HCA's engine on the same rings: libmlx5 posts, the engine works and writes CQEs, and
//! `ibv_poll_cq` reads them.
//!
//! The engine is stepped by hand between libmlx5's calls. It hears one send register of a page, so that libmlx5 is
//! told to use no other.

use std::sync::atomic::{AtomicU8, Ordering};

use mlx5_wqe::{QpNumber, Syndrome, VendorCode};
use warpbell_proofs::facts::Facts;
use warpbell_proofs::verbs::{Completion, Options, Post, Segment, Verbs, values};
use warpbell_soft_hca::engine::{
    Access, CompletionQueueAttributes, Keys, ProtectionDomain, QueuePairAttributes, ReadyToReceive,
    ReadyToSend, ReceiveRing, Transition,
};
use warpbell_soft_hca::shell::{HcaOptions, SoftHca};

use crate::device::with_device;
use crate::polling::status;

/// How long the engine waits for an answer, and for a receiver, by the tests' clock.
const ACK_TIMEOUT_NS: u64 = 100_000;
const RNR_TIMER_NS: u32 = 20_000;

/// Registered memory, which the engine reads and writes.
struct Buffer {
    cells: Box<[AtomicU8]>,
    keys: Keys,
}

impl Buffer {
    fn segment(&self) -> Segment {
        Segment {
            address: self.address(),
            length: self.cells.len() as u32,
            key: self.keys.local.0,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        // Relaxed: the engine worked on this thread.
        self.cells
            .iter()
            .map(|cell| cell.load(Ordering::Relaxed))
            .collect()
    }

    fn address(&self) -> u64 {
        self.cells.as_ptr().expose_provenance() as u64
    }
}

/// One queue pair of libmlx5, and the engine's of the same memory.
struct End {
    verbs: Verbs,
    qpn: QpNumber,
    domain: ProtectionDomain,
}

/// Two queue pairs, connected through one engine.
struct World {
    // Stops before the rings go.
    hca: SoftHca,
    clock: u64,
    ends: [End; 2],
    values: Facts,
}

impl World {
    fn new(rnr_retry: u8) -> Self {
        let hca = SoftHca::new(HcaOptions::default());
        Self::on(hca, rnr_retry)
    }

    fn on(hca: SoftHca, rnr_retry: u8) -> Self {
        let ends = [0, 1].map(|_| End::new(&hca));
        let mut world = Self {
            hca,
            clock: 0,
            ends,
            values: values(),
        };
        let [first, second] = [world.ends[0].qpn, world.ends[1].qpn];
        world.connect(first, second, rnr_retry);
        world.connect(second, first, rnr_retry);
        world
    }

    fn connect(&mut self, own: QpNumber, peer: QpNumber, rnr_retry: u8) {
        let steps = [
            Transition::Init {
                access: Access::all(),
            },
            Transition::ReadyToReceive(ReadyToReceive {
                remote_address: self.hca.address(),
                remote_qp: peer,
                receive_psn: 0,
                path_mtu: 4096,
                min_rnr_timer_ns: RNR_TIMER_NS,
            }),
            Transition::ReadyToSend(ReadyToSend {
                send_psn: 0,
                retry_count: 3,
                rnr_retry,
                ack_timeout_ns: ACK_TIMEOUT_NS,
            }),
        ];
        for step in steps {
            let modified = self
                .hca
                .command(|engine| engine.modify_queue_pair(own, step));
            modified.unwrap().unwrap();
        }
    }

    /// Memory of one end, with these bytes and rights.
    fn buffer(&self, end: usize, bytes: &[u8], access: Access) -> Buffer {
        let cells: Box<[_]> = bytes.iter().copied().map(AtomicU8::new).collect();
        let address = cells.as_ptr().expose_provenance() as u64;
        let length = bytes.len() as u64;
        let domain = self.ends[end].domain;
        let keys = self.hca.command(|engine| {
            // SAFETY: the bytes live as long as the world of the test, in which the engine steps.
            unsafe { engine.register_memory(domain, address, length, access) }
        });
        Buffer {
            cells,
            keys: keys.unwrap().unwrap(),
        }
    }

    /// A request of an end, on its way to memory of the other.
    fn post(&mut self, end: usize, verb: &str, segments: &[Segment], remote: Option<&Buffer>) {
        self.post_as(end, verb, segments, remote, |_| {});
    }

    fn post_as(
        &mut self,
        end: usize,
        verb: &str,
        segments: &[Segment],
        remote: Option<&Buffer>,
        change: impl FnOnce(&mut Post<'_>),
    ) {
        let mut post = Post::new(self.values[verb]).with_segments(segments);
        post.flags = self.values["IBV_SEND_SIGNALED"] as u32;
        post.immediate = 0x1122_3344;
        if let Some(remote) = remote {
            post.remote_address = remote.address();
            post.remote_key = remote.keys.remote.0;
        }
        change(&mut post);
        self.ends[end].verbs.post(&post).unwrap();
    }

    /// Lets the engine work until nothing is left to do, and its timers run out.
    fn settle(&mut self) {
        let mut idle = 0;
        while idle < 100 {
            // Past every timer in a few dozen steps.
            self.clock += ACK_TIMEOUT_NS / 4;
            idle = if self.hca.step_at(self.clock).unwrap() == 0 {
                idle + 1
            } else {
                0
            };
        }
    }

    /// What an end polls: status, and the whole.
    #[track_caller]
    fn poll(&mut self, end: usize) -> Completion {
        let polled = self.ends[end]
            .verbs
            .poll()
            .expect("libmlx5 understands the CQE");
        polled.expect("there is a CQE")
    }

    #[track_caller]
    fn expect(&mut self, end: usize, status: &str) -> Completion {
        let polled = self.poll(end);
        assert_eq!(
            u64::from(polled.status),
            self.values[status],
            "{status}: {polled:?}"
        );
        polled
    }

    #[track_caller]
    fn expect_nothing(&mut self) {
        for end in &mut self.ends {
            assert_eq!(end.verbs.poll(), Ok(None));
        }
    }

    fn close(self) {
        // The engine lets go of the rings first.
        let Self { hca, ends, .. } = self;
        drop(hca);
        for end in ends {
            assert_eq!(end.verbs.close(), Ok(()));
        }
    }
}

impl End {
    fn new(hca: &SoftHca) -> Self {
        let verbs = Verbs::open(&Options {
            one_register: true,
            send_segments: 4,
            inline_bytes: 200,
            ..Options::default()
        })
        .unwrap();
        let at = verbs.addresses();
        let log_stride = verbs.receive_stride().ilog2() as u8;
        let made = hca.command(|engine| {
            let domain = engine.create_protection_domain()?;
            let attributes = CompletionQueueAttributes {
                ring: at.completion_ring,
                log_depth: at.completions.ilog2() as u8,
                record: at.completion_record,
                uar: Some(at.completion_uar),
                collapsed: false,
                ignore_overrun: false,
            };
            // SAFETY: libmlx5's rings, records and pages live until the device is closed, after the engine.
            let cq = unsafe { engine.create_completion_queue(&attributes)? };
            let attributes = QueuePairAttributes {
                protection_domain: domain,
                send_ring: at.send_ring,
                log_send_depth: at.send_blocks.ilog2() as u8,
                receive: Some(ReceiveRing {
                    ring: at.receive_ring,
                    log_depth: at.receives.ilog2() as u8,
                    log_stride,
                }),
                record: at.record,
                uar: at.uar,
                send_cq: cq,
                receive_cq: cq,
            };
            // SAFETY: as above.
            let qp = unsafe { engine.create_queue_pair(&attributes)? };
            Ok::<_, warpbell_soft_hca::engine::CommandError>((domain, qp))
        });
        let (domain, qpn) = made.unwrap().unwrap();
        assert_eq!(
            qpn.get(),
            verbs.qpn(),
            "the device numbers queue pairs as the engine does"
        );
        Self { verbs, qpn, domain }
    }
}

#[test]
fn every_verb() {
    with_device("engine::every_verb", || {
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
    with_device("engine::invalidation", || {
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
    with_device("engine::true_errors", || {
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
    with_device("engine::every_named_syndrome", || {
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
