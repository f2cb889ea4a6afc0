//! `ibv_post_send` and `ibv_wr_*` against the builders: the same ring, record and doorbell.

mod asked;
mod decoded;
mod warpbell;

use mlx5_wqe::{
    AddressVector, Completion, Doorbell, DoorbellRecord, Local, LocalKey, Octoword, Opcode,
    QpNumber, Requester, Wqe, WqeBlock, WqeIndex, segment, signature,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use warpbell_proofs::facts::Facts;
use warpbell_proofs::mlx5dv;
use warpbell_proofs::verbs::{Options, Path, Post, Segment, values};

use crate::libmlx5::device::{Device, with_device};
use asked::{Asked, INLINE, Payload, SEGMENTS, Verb, asked};

/// Of so many posts one is decoded.
const DECODED: u64 = 7;

/// A queue that is posted to, and compared block by block.
struct Compared {
    device: Device,
    values: Facts,
    /// The values of mlx5dv.h.
    header: Facts,
    signed: bool,
    /// Blocks posted so far.
    index: u16,
    posted: u64,
    /// Posts that went through BlueFlame, and across the ring's end.
    blueflame: u64,
    wrapped: u64,
    /// Posts of inline data across the ring's end.
    wrapped_inline: u64,
}

impl Compared {
    fn open(options: &Options) -> Self {
        Self {
            device: Device::open(options),
            values: values(),
            header: mlx5dv::values(),
            signed: options.signatures,
            index: 0,
            posted: 0,
            blueflame: 0,
            wrapped: 0,
            wrapped_inline: 0,
        }
    }

    /// Has libmlx5 post a request, and compares everything that it left with our WQE.
    fn check(
        &mut self,
        wqe: Wqe<16>,
        extended: bool,
        with_post: impl FnOnce(&Facts, &mut dyn FnMut(&Post<'_>)),
    ) {
        let verbs = &mut self.device.verbs;
        verbs.send_ring().fill([Octoword::ZERO; 4]);
        verbs
            .doorbells()
            .into_iter()
            .for_each(|register| *register = [[Octoword::ZERO; 4]; 4]);
        let id = self.posted;
        with_post(&self.values, &mut |post| {
            let mut post = *post;
            post.id = id;
            let posted = if extended {
                verbs.post_extended(&post)
            } else {
                verbs.post(&post)
            };
            assert_eq!(posted, Ok(()));
        });
        self.posted += 1;

        let qpn = QpNumber::new(verbs.qpn()).unwrap();
        let placed = wqe.place(WqeIndex(self.index), qpn);
        let mut placed = if self.signed {
            signature::signed(placed)
        } else {
            placed
        };
        let ring = verbs.send_ring();
        let slot = usize::from(self.index) % ring.len();
        let wraps = slot + usize::from(wqe.blocks()) > ring.len();
        self.wrapped += u64::from(wraps);
        if self.signed && wraps {
            // Across the ring's end libmlx5 signs the bytes behind the ring, not those at its start.
            placed[0][0] = with_signature_of(placed[0][0], ring[slot][0]);
        }
        let blocks = &placed[..usize::from(wqe.blocks())];

        let mut expected = vec![[Octoword::ZERO; 4]; ring.len()];
        for (number, block) in blocks.iter().enumerate() {
            expected[(usize::from(self.index) + number) % ring.len()] = *block;
        }
        assert_same_blocks(ring, &expected);

        let next = self.index.wrapping_add(wqe.blocks());
        assert_eq!(verbs.record()[1], DoorbellRecord::word(next));

        // Registers are taken in turn; the other one stays as it was.
        let turn = usize::from(id % 2 == 1);
        let [first, second] = verbs.doorbells();
        let (rung, other) = if turn == 0 {
            (first, second)
        } else {
            (second, first)
        };
        assert_eq!(*other, [[Octoword::ZERO; 4]; 4], "the other register");
        let mut alone = [[Octoword::ZERO; 4]; 4];
        alone[0][0].0[0] = Doorbell::of_wqe(&placed).0;
        if *rung != alone {
            self.blueflame += 1;
            let mut whole = [[Octoword::ZERO; 4]; 4];
            for (to, from) in whole.iter_mut().zip(blocks) {
                *to = *from;
            }
            assert_same_blocks(&*rung, &whole);
        }

        let done = self.device.complete(Completion::Requester(Requester {
            qpn,
            wqe_index: WqeIndex(self.index),
            opcode: wqe.opcode(),
            byte_count: 8,
        }));
        assert_eq!(
            (done.id, u64::from(done.status)),
            (id, self.values["IBV_WC_SUCCESS"])
        );
        assert_eq!(done.qpn, qpn.get());
        let opcode = match wqe.opcode() {
            Opcode::RDMA_WRITE | Opcode::RDMA_WRITE_IMMEDIATE => "IBV_WC_RDMA_WRITE",
            Opcode::SEND | Opcode::SEND_IMMEDIATE | Opcode::SEND_INVALIDATE => "IBV_WC_SEND",
            Opcode::RDMA_READ => "IBV_WC_RDMA_READ",
            Opcode::ATOMIC_COMPARE_SWAP => "IBV_WC_COMP_SWAP",
            Opcode::ATOMIC_FETCH_ADD => "IBV_WC_FETCH_ADD",
            other => panic!("{other} is not posted here"),
        };
        assert_eq!(u64::from(done.opcode), self.values[opcode]);
        self.index = next;
    }

    fn check_asked(&mut self, asked: &Asked) {
        let (wrapped, index) = (self.wrapped, self.index);
        self.check(asked.wqe(), asked.extended, |values, post| {
            asked.with_post(values, |request| post(request));
        });
        if matches!(asked.data, Payload::Inline(..)) {
            self.wrapped_inline += self.wrapped - wrapped;
        }
        // To decode a ring takes longer than all the rest.
        if self.posted.is_multiple_of(DECODED) {
            let verbs = &mut self.device.verbs;
            let place = decoded::Place {
                index,
                qpn: verbs.qpn(),
                signed: self.signed,
            };
            decoded::check(verbs.send_ring(), place, asked, &self.header);
        }
    }
}

/// A control segment with the signature of another.
fn with_signature_of(ours: Octoword, theirs: Octoword) -> Octoword {
    let mut control = segment::Control::from_octoword(ours);
    control.signature = segment::Control::from_octoword(theirs).signature;
    control.to_octoword()
}

#[track_caller]
fn assert_same_blocks(theirs: &[WqeBlock], ours: &[WqeBlock]) {
    for (number, (theirs, ours)) in theirs.iter().zip(ours).enumerate() {
        let [theirs, ours] = [theirs, ours].map(|block| block.map(Octoword::to_bytes));
        assert_eq!(theirs, ours, "block {number}: libmlx5's, ours");
    }
    assert_eq!(theirs.len(), ours.len());
}

/// Tells the request under which a test failed.
struct Context<'a>(&'a Asked);

impl Drop for Context<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("while posting {:?}", self.0);
        }
    }
}

/// Posts random requests to one queue, so that its ring goes round and round, until `enough`.
fn post_many(options: &Options, verbs: Vec<Verb>, enough: impl Fn(&Compared) -> bool) -> Compared {
    let mut compared = Compared::open(options);
    let mut runner = TestRunner::new(ProptestConfig::default());
    let requests = asked(verbs);
    while !enough(&compared) {
        let asked = requests.new_tree(&mut runner).expect("a request").current();
        let _context = Context(&asked);
        compared.check_asked(&asked);
    }
    compared
}

const ALL: [Verb; 8] = [
    Verb::Write,
    Verb::WriteImmediate,
    Verb::Send,
    Verb::SendImmediate,
    Verb::SendInvalidate,
    Verb::Read,
    Verb::CompareSwap,
    Verb::FetchAdd,
];

fn options() -> Options {
    Options {
        send_segments: SEGMENTS as u32,
        inline_bytes: INLINE as u32,
        ..Options::default()
    }
}

#[test]
fn every_verb() {
    with_device("libmlx5::posting::every_verb", || {
        for verb in ALL {
            let compared = post_many(&options(), vec![verb], |compared| compared.posted == 400);
            let one_block = matches!(verb, Verb::CompareSwap | Verb::FetchAdd);
            assert_eq!(
                compared.wrapped > 0,
                !one_block,
                "{verb:?} across the ring's end"
            );
            compared.device.close();
        }
    });
}

/// All verbs in turn, past the end of the 16-bit index; some by BlueFlame, some across the ring's end.
#[test]
fn past_the_end_of_the_index() {
    with_device("libmlx5::posting::past_the_end_of_the_index", || {
        let past = std::cell::Cell::new(false);
        let compared = post_many(&options(), ALL.to_vec(), |compared| {
            // One request has at most six blocks.
            past.set(past.get() || compared.index > 65_400);
            past.get() && compared.index > 100 && compared.index < 65_000
        });
        assert!(compared.blueflame > 0 && compared.blueflame < compared.posted);
        let (wrapped, inline) = (compared.wrapped, compared.wrapped_inline);
        assert!(
            inline > 50 && wrapped > inline,
            "{wrapped} across the end, {inline} inline"
        );
        compared.device.close();
    });
}

#[test]
fn with_signatures() {
    with_device("libmlx5::posting::with_signatures", || {
        let options = Options {
            signatures: true,
            ..options()
        };
        let compared = post_many(&options, ALL.to_vec(), |compared| compared.posted == 1000);
        assert!(compared.wrapped < compared.posted / 10);
        compared.device.close();
    });
}

/// The UDP source port that a flow label stands for (RoCE v2): its halves folded, among the dynamic ports.
fn udp_source_port(flow_label: u32) -> u16 {
    let folded = flow_label & 0x3fff ^ flow_label >> 14 & 0x3f;
    0xc000 | folded as u16
}

#[test]
fn datagrams() {
    with_device("libmlx5::posting::datagrams", || {
        let mut gid = [0; 16];
        gid[..2].copy_from_slice(&[0xfe, 0x80]);
        gid[8..].copy_from_slice(&[0x02, 0x11, 0x22, 0xff, 0xfe, 0x33, 0x44, 0x55]);
        let path = Path {
            flow_label: 0x000a_bcde,
            service_level: 5,
            hop_limit: 64,
            traffic_class: 0x68,
            reserved: 0,
            gid,
        };
        let options = Options {
            datagrams: true,
            path,
            ..options()
        };
        let mut compared = Compared::open(&options);
        let local = Local {
            address: 0x7f00_1234_5678,
            length: 1000,
            key: LocalKey(0x1122_3344),
        };
        for (extended, number) in [(false, 0x12_3456), (true, 0xff_ffff), (false, 1), (true, 2)] {
            let vector = AddressVector {
                // On Ethernet the priority has a bit below it.
                stat_rate_sl: 5 << 1,
                rlid: udp_source_port(path.flow_label).into(),
                rmac: [0x00, 0x11, 0x22, 0x33, 0x44, 0x55],
                tclass: 0x68,
                hop_limit: 64,
                // The first GID of this end; that there is a GRH is only said on InfiniBand.
                grh_gid_fl: path.flow_label.into(),
                rgid: gid,
                ..AddressVector::datagram(QpNumber::new(number).unwrap(), 0x8765_4321)
            };
            let [first, second, third] = vector.to_octowords();
            let data = segment::Data::new(local).to_octoword();
            let wqe = Wqe::from_segments(Opcode::SEND, 0, 0, &[first, second, third, data], 1000);
            compared.check(wqe.unwrap(), extended, |values, post| {
                let list = [Segment {
                    address: local.address,
                    length: local.length,
                    key: local.key.0,
                }];
                let mut request = Post::new(values["IBV_WR_SEND"]);
                request.destination = number;
                request.queue_key = 0x8765_4321;
                post(&request.with_segments(&list));
            });
        }
        compared.device.close();
    });
}
