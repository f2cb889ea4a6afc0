//! Every builder against an oracle that writes the header's layout byte by byte.

use mlx5_wqe::segment::{Control, Data};
use mlx5_wqe::{
    BuildError, CqNumber, Doorbell, Fence, Immediate, Local, LocalKey, Masked, Octoword, Opcode,
    QpNumber, ReceiveWqe, Remote, RemoteKey, Wqe, WqeBlock, WqeIndex, first_word, signature,
};
use proptest::prelude::*;
use zerocopy::IntoBytes;

/// The bytes of a WQE, written at the offsets that mlx5dv.h gives.
struct Oracle {
    bytes: Vec<u8>,
    /// Octowords written so far.
    ds: usize,
}

impl Oracle {
    /// `mlx5_wqe_ctrl_seg`, its `ds` still open.
    fn control(placed: &Placed, opmod: u8, opcode: u8, immediate: u32) -> Self {
        let mut bytes = vec![0; 16];
        bytes[0] = opmod;
        bytes[1..3].copy_from_slice(&placed.index.to_be_bytes());
        bytes[3] = opcode;
        bytes[4..7].copy_from_slice(&placed.qpn.to_be_bytes()[1..]);
        bytes[11] = placed.flags();
        bytes[12..16].copy_from_slice(&immediate.to_be_bytes());
        Self { bytes, ds: 1 }
    }

    /// Appends fields, and pads them to 16 bytes.
    fn push(mut self, fields: &[&[u8]]) -> Self {
        for field in fields {
            self.bytes.extend_from_slice(field);
        }
        self.bytes.resize(self.bytes.len().next_multiple_of(16), 0);
        self.ds = self.bytes.len() / 16;
        self
    }

    /// `mlx5_wqe_raddr_seg`.
    fn remote(self, remote: Remote) -> Self {
        self.push(&[
            &remote.address.to_be_bytes(),
            &remote.key.0.to_be_bytes(),
            &[0; 4],
        ])
    }

    /// `mlx5_wqe_data_seg`.
    fn data(self, local: Local) -> Self {
        self.push(&[
            &local.length.to_be_bytes(),
            &local.key.0.to_be_bytes(),
            &local.address.to_be_bytes(),
        ])
    }

    fn list(self, list: &[Local]) -> Self {
        list.iter().fold(self, |oracle, local| oracle.data(*local))
    }

    /// `mlx5_wqe_inl_data_seg` and the bytes after it.
    fn inline(self, data: &[u8]) -> Self {
        self.push(&[&(data.len() as u32 | 0x8000_0000).to_be_bytes(), data])
    }

    /// The bytes with `ds`, padded to whole blocks.
    fn finish(mut self, blocks: usize) -> Vec<u8> {
        self.bytes[7] = self.ds as u8;
        self.bytes.resize(blocks * 64, 0);
        self.bytes
    }
}

/// Where and how a WQE is posted.
#[derive(Clone, Copy, Debug)]
struct Placed {
    index: u16,
    qpn: u32,
    signalled: bool,
    solicited: bool,
    fence: Fence,
}

impl Placed {
    fn flags(&self) -> u8 {
        let fence = match self.fence {
            Fence::None => 0x00,
            Fence::InitiatorSmall => 0x20,
            Fence::Fence => 0x40,
            Fence::StrongOrdering => 0x60,
            Fence::SmallAndFence => 0x80,
        };
        fence | if self.signalled { 0x08 } else { 0 } | if self.solicited { 0x02 } else { 0 }
    }

    fn place<const B: usize>(&self, wqe: Wqe<B>) -> [WqeBlock; B] {
        let wqe = if self.signalled { wqe.signalled() } else { wqe };
        let wqe = if self.solicited { wqe.solicited() } else { wqe };
        let wqe = wqe.fenced(Fence::StrongOrdering).fenced(self.fence);
        assert_eq!(wqe.is_signalled(), self.signalled);
        wqe.place(WqeIndex(self.index), QpNumber::new(self.qpn).unwrap())
    }

    /// Checks one WQE: its bytes, and what it says of itself.
    fn check<const B: usize>(&self, wqe: Wqe<B>, oracle: Oracle, payload: u64) {
        let opcode = Opcode(oracle.bytes[3]);
        let ds = oracle.ds;
        let expected = oracle.finish(B);
        let blocks = self.place(wqe);
        assert_eq!(blocks.as_bytes(), expected);
        assert_eq!(wqe.opcode(), opcode);
        assert_eq!(wqe.ds() as usize, ds);
        assert_eq!(wqe.blocks() as usize, ds.div_ceil(4));
        assert_eq!(wqe.payload(), payload);

        assert_eq!(first_word(&blocks).to_ne_bytes(), expected[..8]);
        let doorbell = Doorbell::of_wqe(&blocks);
        assert_eq!(doorbell.index(), WqeIndex(self.index));
        assert_eq!(doorbell.qpn().get(), self.qpn);
        assert_eq!(doorbell.opcode(), opcode);
        let control = Control::from_octoword(blocks[0][0]);
        assert_eq!(control.index(), WqeIndex(self.index));
        assert_eq!(control.qpn().get(), self.qpn);
        assert_eq!(control.fm_ce_se.fence(), Some(self.fence));
    }
}

/// The longest inline data. Under miri, where each byte takes its time, they still fill more than two blocks.
const LONGEST_INLINE: usize = if cfg!(miri) { 160 } else { 972 };

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn placed() -> impl Strategy<Value = Placed> {
    let fence = prop_oneof![
        Just(Fence::None),
        Just(Fence::InitiatorSmall),
        Just(Fence::Fence),
        Just(Fence::StrongOrdering),
        Just(Fence::SmallAndFence),
    ];
    (
        any::<u16>(),
        0..1_u32 << 24,
        any::<bool>(),
        any::<bool>(),
        fence,
    )
        .prop_map(|(index, qpn, signalled, solicited, fence)| Placed {
            index,
            qpn,
            signalled,
            solicited,
            fence,
        })
}

prop_compose! {
    fn local()(address: u64, length in 1..=Local::MAX_LENGTH, key: u32) -> Local {
        Local { address, length, key: LocalKey(key) }
    }
}

prop_compose! {
    fn remote()(address: u64, key: u32) -> Remote {
        Remote { address, key: RemoteKey(key) }
    }
}

fn total(list: &[Local]) -> u64 {
    list.iter().map(|local| local.length as u64).sum()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn one_segment(p in placed(), l in local(), r in remote(), imm: u32) {
        let bytes = l.length as u64;
        let control = |opcode, immediate| Oracle::control(&p, 0, opcode, immediate);
        p.check(Wqe::write(l, r), control(0x08, 0).remote(r).data(l), bytes);
        p.check(
            Wqe::write_immediate(l, r, Immediate(imm)),
            control(0x09, imm).remote(r).data(l),
            bytes,
        );
        p.check(Wqe::read(l, r), control(0x10, 0).remote(r).data(l), bytes);
        p.check(Wqe::send(l), control(0x0a, 0).data(l), bytes);
        p.check(Wqe::send_immediate(l, Immediate(imm)), control(0x0b, imm).data(l), bytes);
        p.check(Wqe::send_invalidate(l, RemoteKey(imm)), control(0x01, imm).data(l), bytes);
    }

    #[test]
    fn no_segment(p in placed(), r in remote(), imm: u32, index: u32, number in 0..1_u32 << 24) {
        let control = |opcode, immediate| Oracle::control(&p, 0, opcode, immediate);
        p.check(Wqe::nop(), control(0x00, 0), 0);
        p.check(Wqe::write_immediate_only(r, Immediate(imm)), control(0x09, imm).remote(r), 0);
        p.check(Wqe::send_empty(), control(0x0a, 0), 0);
        p.check(Wqe::send_immediate_only(Immediate(imm)), control(0x0b, imm), 0);
        let wait = [&[0; 8][..], &index.to_be_bytes(), &number.to_be_bytes()];
        let cq = CqNumber::new(number).unwrap();
        let qp = QpNumber::new(number).unwrap();
        p.check(Wqe::wait(cq, index), control(0x0f, 0).push(&wait), 0);
        p.check(Wqe::receive_enable(qp, index), control(0x16, 0).push(&wait), 0);
        p.check(Wqe::send_enable(qp, index), control(0x17, 0).push(&wait), 0);
    }

    #[test]
    fn atomics(p in placed(), l in local(), r in remote(), a: u64, b: u64, c: u64, d: u64) {
        let bytes = l.length as u64;
        let control = |opmod, opcode| Oracle::control(&p, opmod, opcode, 0).remote(r);
        p.check(
            Wqe::fetch_add(l, r, a),
            control(0, 0x12).push(&[&a.to_be_bytes(), &[0; 8]]).data(l),
            bytes,
        );
        p.check(
            Wqe::compare_swap(l, r, a, b),
            control(0, 0x11).push(&[&b.to_be_bytes(), &a.to_be_bytes()]).data(l),
            bytes,
        );
        p.check(
            Wqe::masked_fetch_add_u64(l, r, a, b),
            control(9, 0x15).push(&[&a.to_be_bytes(), &b.to_be_bytes()]).data(l),
            bytes,
        );
        p.check(
            Wqe::masked_compare_swap_u64(
                l,
                r,
                Masked { value: a, mask: b },
                Masked { value: c, mask: d },
            ),
            control(9, 0x14)
                .push(&[&c.to_be_bytes(), &a.to_be_bytes(), &d.to_be_bytes(), &b.to_be_bytes()])
                .data(l),
            bytes,
        );
        let [a, b, c, d] = [a, b, c, d].map(|value| value as u32);
        p.check(
            Wqe::masked_fetch_add_u32(l, r, a, b),
            control(8, 0x15).push(&[&a.to_be_bytes(), &b.to_be_bytes(), &[0; 8]]).data(l),
            bytes,
        );
        p.check(
            Wqe::masked_compare_swap_u32(
                l,
                r,
                Masked { value: a, mask: b },
                Masked { value: c, mask: d },
            ),
            control(8, 0x14)
                .push(&[&c.to_be_bytes(), &a.to_be_bytes(), &d.to_be_bytes(), &b.to_be_bytes()])
                .data(l),
            bytes,
        );
    }

    #[test]
    fn values(p in placed(), r in remote(), bytes: [u8; 28], word: u64) {
        let control = || Oracle::control(&p, 0, 0x08, 0).remote(r);
        p.check(Wqe::write_value(bytes, r), control().inline(&bytes), 28);
        p.check(Wqe::write_value(word, r), control().inline(&word.to_ne_bytes()), 8);
        p.check(Wqe::write_value(bytes[0], r), control().inline(&bytes[..1]), 1);
        let twelve: [u8; 12] = bytes[..12].try_into().unwrap();
        p.check(Wqe::write_value(twelve, r), control().inline(&twelve), 12);
        let thirteen: [u8; 13] = bytes[..13].try_into().unwrap();
        p.check(Wqe::write_value(thirteen, r), control().inline(&thirteen), 13);
    }

    #[test]
    fn lists(
        p in placed(),
        list in proptest::collection::vec(local(), 0..=14),
        r in remote(),
        imm: u32,
    ) {
        let control = |opcode, immediate| Oracle::control(&p, 0, opcode, immediate);
        let bytes = total(&list);
        p.check(
            Wqe::<4>::write_gather(&list, r).unwrap(),
            control(0x08, 0).remote(r).list(&list),
            bytes,
        );
        p.check(
            Wqe::<4>::write_immediate_gather(&list, r, Immediate(imm)).unwrap(),
            control(0x09, imm).remote(r).list(&list),
            bytes,
        );
        p.check(
            Wqe::<4>::read_scatter(&list, r).unwrap(),
            control(0x10, 0).remote(r).list(&list),
            bytes,
        );
        p.check(Wqe::<4>::send_gather(&list).unwrap(), control(0x0a, 0).list(&list), bytes);
        p.check(
            Wqe::<4>::send_immediate_gather(&list, Immediate(imm)).unwrap(),
            control(0x0b, imm).list(&list),
            bytes,
        );
    }

    #[test]
    fn inline(
        p in placed(),
        data in proptest::collection::vec(any::<u8>(), 1..=LONGEST_INLINE),
        r in remote(),
        imm: u32,
    ) {
        let control = |opcode, immediate| Oracle::control(&p, 0, opcode, immediate);
        let bytes = data.len() as u64;
        p.check(
            Wqe::<16>::write_inline(&data, r).unwrap(),
            control(0x08, 0).remote(r).inline(&data),
            bytes,
        );
        p.check(
            Wqe::<16>::write_immediate_inline(&data, r, Immediate(imm)).unwrap(),
            control(0x09, imm).remote(r).inline(&data),
            bytes,
        );
        p.check(Wqe::<16>::send_inline(&data).unwrap(), control(0x0a, 0).inline(&data), bytes);
        p.check(
            Wqe::<16>::send_immediate_inline(&data, Immediate(imm)).unwrap(),
            control(0x0b, imm).inline(&data),
            bytes,
        );
    }

    #[test]
    fn any_segments(
        p in placed(),
        opmod: u8,
        opcode: u8,
        imm: u32,
        segments in proptest::collection::vec(any::<[u64; 2]>().prop_map(Octoword), 0..=7),
    ) {
        let wqe = Wqe::<2>::from_segments(Opcode(opcode), opmod, imm, &segments, 5).unwrap();
        let oracle = Oracle::control(&p, opmod, opcode, imm).push(&[segments.as_bytes()]);
        p.check(wqe, oracle, 5);
    }

    #[test]
    fn receives(list in proptest::collection::vec(local(), 0..=4), next: u16) {
        let segments = |first: &[u8]| {
            let mut oracle = Oracle { bytes: first.to_vec(), ds: 0 }.list(&list);
            if oracle.bytes.len() < 64 {
                let end = Local { address: 0, length: 0, key: LocalKey(0x100) };
                oracle = oracle.data(end);
            }
            oracle.bytes.resize(64, 0);
            oracle.bytes
        };
        let wqe = ReceiveWqe::<4>::scatter(&list).unwrap();
        let octowords = wqe.to_octowords();
        prop_assert_eq!(octowords.as_bytes(), segments(&[]));
        if let [only] = list[..] {
            prop_assert_eq!(ReceiveWqe::<4>::single(only), wqe);
        }

        let linked = ReceiveWqe::<4>::linked(next, &list);
        if list.len() == 4 {
            prop_assert_eq!(linked, Err(BuildError::TooManySegments { given: 4, limit: 3 }));
        } else {
            let mut first = [0; 16];
            first[2..4].copy_from_slice(&next.to_be_bytes());
            let octowords = linked.unwrap().to_octowords();
            prop_assert_eq!(octowords.as_bytes(), segments(&first));
        }
    }

    /// The signature makes the XOR of the whole WQE 0xff, and touches no other byte.
    #[test]
    fn signatures(p in placed(), list in proptest::collection::vec(local(), 0..=6), r in remote()) {
        let plain = p.place(Wqe::<2>::write_gather(&list, r).unwrap());
        let signed = signature::signed(plain);
        let xor = signed.as_bytes().iter().fold(0, |sum, byte| sum ^ byte);
        prop_assert_eq!(xor, 0xff);
        prop_assert_eq!(signature::of_send(signed.as_flattened()), 0);
        prop_assert_eq!(signature::signed(signed), signed);
        let mut cleared = signed.as_bytes().to_vec();
        cleared[8] = 0;
        prop_assert_eq!(plain.as_bytes(), cleared);

        let octowords = ReceiveWqe::<8>::linked(0, &list).unwrap().to_octowords();
        let bytes = octowords.as_bytes().iter().copied();
        let numbers = p.qpn.to_be_bytes().into_iter().chain(p.index.to_be_bytes());
        let expected = !bytes.chain(numbers).fold(0, |sum, byte| sum ^ byte);
        let qpn = QpNumber::new(p.qpn).unwrap();
        prop_assert_eq!(signature::of_receive(&octowords, qpn, p.index), expected);
    }

    /// Indices wrap at 2^16, wherever a WQE starts and however long it is.
    #[test]
    fn index_wraps(start: u16, blocks: u16, log_depth in 0..=15_u32) {
        let after = WqeIndex(start).advance(blocks);
        prop_assert_eq!(after.0 as u32, (start as u32 + blocks as u32) % 65_536);
        prop_assert_eq!(after.distance_from(WqeIndex(start)), blocks);
        let mask = (1 << log_depth) - 1;
        let slot = (start as u32 & mask) + (blocks as u32 & mask);
        prop_assert_eq!(after.0 as u32 & mask, slot & mask);
    }
}

const LOCAL: Local = Local {
    address: 0x1000,
    length: 64,
    key: LocalKey(1),
};
const REMOTE: Remote = Remote {
    address: 0x2000,
    key: RemoteKey(2),
};

#[test]
fn lists_are_refused() {
    let empty = Local { length: 0, ..LOCAL };
    let long = Local {
        length: 0x8000_0000,
        ..LOCAL
    };
    let segment_too_long = BuildError::SegmentTooLong {
        length: 0x8000_0000,
    };
    for at in 0..2 {
        let mut list = [LOCAL; 2];
        list[at] = empty;
        assert_eq!(
            Wqe::<1>::write_gather(&list, REMOTE),
            Err(BuildError::EmptySegment)
        );
        assert_eq!(Wqe::<1>::send_gather(&list), Err(BuildError::EmptySegment));
        assert_eq!(
            ReceiveWqe::<2>::scatter(&list),
            Err(BuildError::EmptySegment)
        );
        list[at] = long;
        assert_eq!(Wqe::<1>::read_scatter(&list, REMOTE), Err(segment_too_long));
        assert_eq!(ReceiveWqe::<2>::scatter(&list), Err(segment_too_long));
    }
    assert_eq!(
        Wqe::<1>::write_gather(&[LOCAL; 3], REMOTE),
        Err(BuildError::TooManySegments {
            given: 3,
            limit: Wqe::<1>::MAX_RDMA_SEGMENTS
        })
    );
    assert_eq!(
        Wqe::<16>::send_gather(&[LOCAL; 63]),
        Err(BuildError::TooManySegments {
            given: 63,
            limit: Wqe::<16>::MAX_SEND_SEGMENTS
        })
    );
    assert_eq!(Wqe::<16>::send_gather(&[LOCAL; 62]).unwrap().ds(), 63);
}

#[test]
fn inline_data_are_refused() {
    assert_eq!(
        Wqe::<1>::write_inline(&[], REMOTE),
        Err(BuildError::EmptyInline)
    );
    assert_eq!(Wqe::<1>::send_inline(&[]), Err(BuildError::EmptyInline));
    assert_eq!(
        Wqe::<1>::write_inline(&[0; 29], REMOTE),
        Err(BuildError::InlineTooLong {
            length: 29,
            limit: Wqe::<1>::MAX_RDMA_INLINE
        })
    );
    assert_eq!(
        Wqe::<1>::send_inline(&[0; 45]),
        Err(BuildError::InlineTooLong {
            length: 45,
            limit: Wqe::<1>::MAX_SEND_INLINE
        })
    );
    assert!(Wqe::<1>::write_inline(&[0; 28], REMOTE).is_ok());
    assert!(Wqe::<1>::send_inline(&[0; 44]).is_ok());
    // 63 octowords: ds has 6 bits, so that the last octoword of 16 blocks stays free.
    assert_eq!(Wqe::<16>::write_inline(&[0; 972], REMOTE).unwrap().ds(), 63);
    assert_eq!(
        Wqe::<16>::write_inline(&[0; 973], REMOTE),
        Err(BuildError::InlineTooLong {
            length: 973,
            limit: 972
        })
    );
}

/// A length of 0 reaches whoever posts the WQE: the card would read 2^31.
#[test]
fn zero_length_stays_visible() {
    let empty = Local { length: 0, ..LOCAL };
    for wqe in [
        Wqe::write(empty, REMOTE),
        Wqe::read(empty, REMOTE),
        Wqe::send(empty),
        Wqe::fetch_add(empty, REMOTE, 1),
    ] {
        assert_eq!(wqe.payload(), 0);
    }
}

/// Everything on the one-block path can be had at compile time.
#[test]
fn builders_fold() {
    const PLACED: [WqeBlock; 1] = match QpNumber::new(0x123) {
        Some(qpn) => Wqe::write(LOCAL, REMOTE)
            .signalled()
            .place(WqeIndex(0xffff), qpn),
        None => panic!(),
    };
    let [[control, _, data, _]] = PLACED;
    assert_eq!(
        control.to_bytes(),
        [0, 0xff, 0xff, 8, 0, 1, 0x23, 3, 0, 0, 0, 8, 0, 0, 0, 0]
    );
    assert_eq!(Data::from_octoword(data).local(), LOCAL);
}

#[test]
fn data_and_atomic_targets() {
    let masked = Masked { value: 1, mask: 1 };
    let wide = Masked { value: 1, mask: 1 };
    for wqe in [
        Wqe::write(LOCAL, REMOTE),
        Wqe::read(LOCAL, REMOTE),
        Wqe::send(LOCAL),
    ] {
        assert!(wqe.carries_data());
        assert_eq!(wqe.atomic_target(), None);
    }
    for wqe in [
        Wqe::nop(),
        Wqe::send_empty(),
        Wqe::write_immediate_only(REMOTE, Immediate(1)),
        Wqe::wait(CqNumber::new(1).unwrap(), 1),
    ] {
        assert!(!wqe.carries_data());
        assert_eq!(wqe.atomic_target(), None);
    }
    let eight = Some((REMOTE.address, 8));
    let four = Some((REMOTE.address, 4));
    assert_eq!(Wqe::fetch_add(LOCAL, REMOTE, 1).atomic_target(), eight);
    assert_eq!(
        Wqe::compare_swap(LOCAL, REMOTE, 1, 2).atomic_target(),
        eight
    );
    assert_eq!(
        Wqe::masked_fetch_add_u64(LOCAL, REMOTE, 1, 2).atomic_target(),
        eight
    );
    assert_eq!(
        Wqe::masked_fetch_add_u32(LOCAL, REMOTE, 1, 2).atomic_target(),
        four
    );
    assert_eq!(
        Wqe::masked_compare_swap_u32(LOCAL, REMOTE, masked, masked).atomic_target(),
        four
    );
    assert_eq!(
        Wqe::masked_compare_swap_u64(LOCAL, REMOTE, wide, wide).atomic_target(),
        eight
    );
    assert!(Wqe::fetch_add(LOCAL, REMOTE, 1).carries_data());
}
