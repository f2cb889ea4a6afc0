//! Every builder against a WQE that is built with the structures and inline functions of mlx5dv.h.

use mlx5_wqe::{
    AddressVector, Fence, Immediate, Local, LocalKey, Octoword, Opcode, QpNumber, Remote,
    RemoteKey, Wqe, WqeBlock, WqeIndex, segment,
};
use proptest::prelude::*;
use warpbell_proofs::facts::Facts;
use warpbell_proofs::mlx5dv;
use warpbell_proofs::request::{Request, Segment, parts};
use zerocopy::IntoBytes;

/// Where and how a WQE is posted.
#[derive(Clone, Copy, Debug)]
struct Placed {
    index: u16,
    qpn: u32,
    signalled: bool,
    solicited: bool,
    fenced: bool,
}

fn placed() -> impl Strategy<Value = Placed> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (any::<u16>(), 0..1_u32 << 24, flags).prop_map(
        |(index, qpn, (signalled, solicited, fenced))| Placed {
            index,
            qpn,
            signalled,
            solicited,
            fenced,
        },
    )
}

pub fn local() -> impl Strategy<Value = Local> {
    (any::<u64>(), 1..=Local::MAX_LENGTH, any::<u32>()).prop_map(|(address, length, key)| Local {
        address,
        length,
        key: LocalKey(key),
    })
}

fn remote() -> impl Strategy<Value = Remote> {
    (any::<u64>(), any::<u32>()).prop_map(|(address, key)| Remote {
        address,
        key: RemoteKey(key),
    })
}

pub fn segments(list: &[Local]) -> Vec<Segment> {
    let segment = |local: &Local| Segment {
        address: local.address,
        length: local.length,
        key: local.key.0,
    };
    list.iter().map(segment).collect()
}

/// The header's side: a request under construction, with the header's own values.
struct Theirs {
    values: Facts,
    request: Request<'static>,
}

impl Theirs {
    fn new(placed: Placed, opcode: &str, immediate: u32) -> Self {
        let values = mlx5dv::values();
        let flag = |set: bool, name: &str| if set { values[name] as u8 } else { 0 };
        let mut request = Request::new();
        request.index = placed.index;
        request.qpn = placed.qpn;
        request.opcode = values[opcode] as u8;
        request.immediate = immediate;
        request.fm_ce_se = flag(placed.signalled, "MLX5_WQE_CTRL_CQ_UPDATE")
            | flag(placed.solicited, "MLX5_WQE_CTRL_SOLICITED")
            | flag(placed.fenced, "MLX5_WQE_CTRL_FENCE");
        Self { values, request }
    }

    fn remote(mut self, remote: Remote) -> Self {
        self.request.parts |= parts::REMOTE;
        self.request.remote_address = remote.address;
        self.request.remote_key = remote.key.0;
        self
    }

    fn atomic(mut self, swap_add: u64, compare: u64) -> Self {
        self.request.parts |= parts::ATOMIC;
        self.request.swap_add = swap_add;
        self.request.compare = compare;
        self
    }

    fn build(self) -> Vec<u8> {
        mlx5dv::build(&self.request)
    }

    fn list(self, list: &[Local]) -> Vec<u8> {
        mlx5dv::build(&self.request.with_segments(&segments(list)))
    }

    fn inline(self, data: &[u8]) -> Vec<u8> {
        mlx5dv::build(&self.request.with_inline(data))
    }
}

/// Our side: the WQE's own bytes, without what pads its last block.
fn ours<const BLOCKS: usize>(placed: Placed, wqe: Wqe<BLOCKS>) -> Vec<u8> {
    let wqe = if placed.signalled {
        wqe.signalled()
    } else {
        wqe
    };
    let wqe = if placed.solicited {
        wqe.solicited()
    } else {
        wqe
    };
    let wqe = if placed.fenced {
        wqe.fenced(Fence::SmallAndFence)
    } else {
        wqe
    };
    let blocks: [WqeBlock; BLOCKS] =
        wqe.place(WqeIndex(placed.index), QpNumber::from_low_bits(placed.qpn));
    let (own, padding) = blocks.as_bytes().split_at(usize::from(wqe.ds()) * 16);
    assert!(padding.iter().all(|byte| *byte == 0));
    own.to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn one_segment(placed in placed(), local in local(), remote in remote(), word: u32) {
        let theirs = |opcode, word| Theirs::new(placed, opcode, word);
        let list = &[local];
        let immediate = Immediate(word);
        prop_assert_eq!(
            ours(placed, Wqe::write(local, remote)),
            theirs("MLX5_OPCODE_RDMA_WRITE", 0).remote(remote).list(list)
        );
        prop_assert_eq!(
            ours(placed, Wqe::write_immediate(local, remote, immediate)),
            theirs("MLX5_OPCODE_RDMA_WRITE_IMM", word).remote(remote).list(list)
        );
        prop_assert_eq!(
            ours(placed, Wqe::read(local, remote)),
            theirs("MLX5_OPCODE_RDMA_READ", 0).remote(remote).list(list)
        );
        prop_assert_eq!(ours(placed, Wqe::send(local)), theirs("MLX5_OPCODE_SEND", 0).list(list));
        prop_assert_eq!(
            ours(placed, Wqe::send_immediate(local, immediate)),
            theirs("MLX5_OPCODE_SEND_IMM", word).list(list)
        );
        prop_assert_eq!(
            ours(placed, Wqe::send_invalidate(local, RemoteKey(word))),
            theirs("MLX5_OPCODE_SEND_INVAL", word).list(list)
        );
    }

    #[test]
    fn no_segment(placed in placed(), remote in remote(), word: u32) {
        let theirs = |opcode, word| Theirs::new(placed, opcode, word);
        prop_assert_eq!(ours(placed, Wqe::nop()), theirs("MLX5_OPCODE_NOP", 0).build());
        prop_assert_eq!(ours(placed, Wqe::send_empty()), theirs("MLX5_OPCODE_SEND", 0).build());
        prop_assert_eq!(
            ours(placed, Wqe::send_immediate_only(Immediate(word))),
            theirs("MLX5_OPCODE_SEND_IMM", word).build()
        );
        prop_assert_eq!(
            ours(placed, Wqe::write_immediate_only(remote, Immediate(word))),
            theirs("MLX5_OPCODE_RDMA_WRITE_IMM", word).remote(remote).build()
        );
    }

    #[test]
    fn atomics(placed in placed(), local in local(), remote in remote(), first: u64, second: u64) {
        let theirs = |opcode| Theirs::new(placed, opcode, 0).remote(remote);
        prop_assert_eq!(
            ours(placed, Wqe::fetch_add(local, remote, first)),
            theirs("MLX5_OPCODE_ATOMIC_FA").atomic(first, 0).list(&[local])
        );
        prop_assert_eq!(
            ours(placed, Wqe::compare_swap(local, remote, first, second)),
            theirs("MLX5_OPCODE_ATOMIC_CS").atomic(second, first).list(&[local])
        );
    }

    #[test]
    fn lists(
        placed in placed(),
        list in prop::collection::vec(local(), 0..=61),
        remote in remote(),
        word: u32,
    ) {
        let theirs = |opcode, word| Theirs::new(placed, opcode, word);
        let immediate = Immediate(word);
        prop_assert_eq!(
            ours(placed, Wqe::<16>::write_gather(&list, remote).unwrap()),
            theirs("MLX5_OPCODE_RDMA_WRITE", 0).remote(remote).list(&list)
        );
        prop_assert_eq!(
            ours(placed, Wqe::<16>::write_immediate_gather(&list, remote, immediate).unwrap()),
            theirs("MLX5_OPCODE_RDMA_WRITE_IMM", word).remote(remote).list(&list)
        );
        prop_assert_eq!(
            ours(placed, Wqe::<16>::read_scatter(&list, remote).unwrap()),
            theirs("MLX5_OPCODE_RDMA_READ", 0).remote(remote).list(&list)
        );
        prop_assert_eq!(
            ours(placed, Wqe::<16>::send_gather(&list).unwrap()),
            theirs("MLX5_OPCODE_SEND", 0).list(&list)
        );
        prop_assert_eq!(
            ours(placed, Wqe::<16>::send_immediate_gather(&list, immediate).unwrap()),
            theirs("MLX5_OPCODE_SEND_IMM", word).list(&list)
        );
    }

    #[test]
    fn inline_data(
        placed in placed(),
        data in prop::collection::vec(any::<u8>(), 1..=Wqe::<16>::MAX_RDMA_INLINE),
        remote in remote(),
        word: u32,
    ) {
        let theirs = |opcode, word| Theirs::new(placed, opcode, word);
        let immediate = Immediate(word);
        prop_assert_eq!(
            ours(placed, Wqe::<16>::write_inline(&data, remote).unwrap()),
            theirs("MLX5_OPCODE_RDMA_WRITE", 0).remote(remote).inline(&data)
        );
        prop_assert_eq!(
            ours(placed, Wqe::<16>::write_immediate_inline(&data, remote, immediate).unwrap()),
            theirs("MLX5_OPCODE_RDMA_WRITE_IMM", word).remote(remote).inline(&data)
        );
        prop_assert_eq!(
            ours(placed, Wqe::<16>::send_inline(&data).unwrap()),
            theirs("MLX5_OPCODE_SEND", 0).inline(&data)
        );
        prop_assert_eq!(
            ours(placed, Wqe::<16>::send_immediate_inline(&data, immediate).unwrap()),
            theirs("MLX5_OPCODE_SEND_IMM", word).inline(&data)
        );
    }

    #[test]
    fn values(placed in placed(), word: u32, bytes: [u8; 28], remote in remote()) {
        let theirs = || Theirs::new(placed, "MLX5_OPCODE_RDMA_WRITE", 0).remote(remote);
        prop_assert_eq!(ours(placed, Wqe::write_value(bytes, remote)), theirs().inline(&bytes));
        prop_assert_eq!(
            ours(placed, Wqe::write_value(word, remote)),
            theirs().inline(&word.to_ne_bytes())
        );
    }

    #[test]
    fn datagrams(placed in placed(), local in local(), path: [u8; 16], number in 0..1_u32 << 24, qkey: u32) {
        let [a, b, c, d, e, f, ..] = path;
        let destination = QpNumber::new(number).unwrap();
        let vector = AddressVector {
            stat_rate_sl: a,
            fl_mlid: b,
            rlid: u16::from_be_bytes([c, d]).into(),
            rmac: [a, b, c, d, e, f],
            tclass: e,
            hop_limit: f,
            grh_gid_fl: qkey.rotate_left(7).into(),
            rgid: path,
            ..AddressVector::datagram(destination, qkey)
        };
        let [first, second, third] = vector.to_octowords();
        let data = segment::Data::new(local).to_octoword();
        let all: [Octoword; 4] = [first, second, third, data];
        let wqe = Wqe::<2>::from_segments(Opcode::SEND, 0, 0, &all, u64::from(local.length)).unwrap();

        let mut theirs = Theirs::new(placed, "MLX5_OPCODE_SEND", 0);
        assert_eq!(theirs.values["MLX5_EXTENDED_UD_AV"], 1 << 31, "the oracle sets bit 31");
        let request = &mut theirs.request;
        request.parts = parts::DATAGRAM;
        request.key = u64::from(qkey) << 32;
        request.destination = number;
        request.stat_rate_sl = a;
        request.fl_mlid = b;
        request.rlid = u16::from_be_bytes([c, d]);
        request.rmac = [a, b, c, d, e, f];
        request.tclass = e;
        request.hop_limit = f;
        request.grh_gid_fl = qkey.rotate_left(7);
        request.rgid = path;
        prop_assert_eq!(ours(placed, wqe), theirs.list(&[local]));
    }
}
