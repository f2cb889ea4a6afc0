//! Two of libmlx5's queue pairs, connected through one engine that is stepped by hand.

use std::sync::atomic::{AtomicU8, Ordering};

use mlx5_wqe::QpNumber;
use warpbell_proofs::facts::Facts;
use warpbell_proofs::verbs::{Completion, Options, Post, Segment, Verbs, values};
use warpbell_soft_hca::engine::{
    Access, CommandError, CompletionQueueAttributes, CrossChannel, Keys, ProtectionDomain,
    QueuePairAttributes, ReadyToReceive, ReadyToSend, ReceiveRing, SendDoorbell, Transition,
};
use warpbell_soft_hca::shell::{HcaOptions, SoftHca};

/// How long the engine waits for an answer, and for a receiver, by the tests' clock.
pub const ACK_TIMEOUT_NS: u64 = 100_000;
pub const RNR_TIMER_NS: u32 = 20_000;

/// Registered memory, which the engine reads and writes.
pub struct Buffer {
    pub cells: Box<[AtomicU8]>,
    pub keys: Keys,
}

impl Buffer {
    pub fn segment(&self) -> Segment {
        Segment {
            address: self.address(),
            length: self.cells.len() as u32,
            key: self.keys.local.0,
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        // Relaxed: the engine worked on this thread.
        self.cells
            .iter()
            .map(|cell| cell.load(Ordering::Relaxed))
            .collect()
    }

    pub fn address(&self) -> u64 {
        self.cells.as_ptr().expose_provenance() as u64
    }
}

/// One queue pair of libmlx5, and the engine's of the same memory.
pub struct End {
    pub verbs: Verbs,
    pub qpn: QpNumber,
    pub domain: ProtectionDomain,
}

/// Two queue pairs, connected through one engine.
pub struct World {
    // Stops before the rings go.
    pub hca: SoftHca,
    pub clock: u64,
    pub ends: [End; 2],
    pub values: Facts,
}

impl World {
    pub fn new(rnr_retry: u8) -> Self {
        let hca = SoftHca::new(HcaOptions::default());
        Self::on(hca, rnr_retry)
    }

    pub fn on(hca: SoftHca, rnr_retry: u8) -> Self {
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

    pub fn connect(&mut self, own: QpNumber, peer: QpNumber, rnr_retry: u8) {
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
    pub fn buffer(&self, end: usize, bytes: &[u8], access: Access) -> Buffer {
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
    pub fn post(&mut self, end: usize, verb: &str, segments: &[Segment], remote: Option<&Buffer>) {
        self.post_as(end, verb, segments, remote, |_| {});
    }

    pub fn post_as(
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
    pub fn settle(&mut self) {
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
    pub fn poll(&mut self, end: usize) -> Completion {
        let polled = self.ends[end]
            .verbs
            .poll()
            .expect("libmlx5 understands the CQE");
        polled.expect("there is a CQE")
    }

    #[track_caller]
    pub fn expect(&mut self, end: usize, status: &str) -> Completion {
        let polled = self.poll(end);
        assert_eq!(
            u64::from(polled.status),
            self.values[status],
            "{status}: {polled:?}"
        );
        polled
    }

    #[track_caller]
    pub fn expect_nothing(&mut self) {
        for end in &mut self.ends {
            assert_eq!(end.verbs.poll(), Ok(None));
        }
    }

    pub fn close(self) {
        // The engine lets go of the rings first.
        let Self { hca, ends, .. } = self;
        drop(hca);
        for end in ends {
            assert_eq!(end.verbs.close(), Ok(()));
        }
    }
}

impl End {
    pub fn new(hca: &SoftHca) -> Self {
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
                send_doorbell: SendDoorbell::WithRecord,
                uar: at.uar,
                send_cq: cq,
                receive_cq: cq,
                cross_channel: CrossChannel::empty(),
            };
            // SAFETY: as above.
            let qp = unsafe { engine.create_queue_pair(&attributes)? };
            Ok::<_, CommandError>((domain, qp))
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
