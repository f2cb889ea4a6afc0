//! What the small questions answer, at the edges of their fields. The figures are those of mlx5dv.h and of the kernel's
//! `linux/mlx5/{qp,device,cq}.h`.

use mlx5_wqe::segment::{Control, Data, InlineHeader, RemoteAddress};
use mlx5_wqe::umr::MkeyContext;
use mlx5_wqe::{
    AddressVector, Arrival, BuildError, CqArm, CqNumber, Cqe64, CqeFormat, CqeOpcode, CqeTail,
    Doorbell, Fence, Immediate, Local, LocalKey, Octoword, Opcode, QpNumber, ReceiveWqe, Remote,
    RemoteKey, Syndrome, VendorCode, Wqe, WqeIndex,
};
use zerocopy::{FromZeros, IntoBytes};

/// `MLX5_CQE_*`: each opcode of a CQE, and whether it is one of the two errors.
const CQE_OPCODES: [(u8, bool); 16] = [
    (0, false),
    (1, false),
    (2, false),
    (3, false),
    (4, false),
    (5, false),
    (6, false),
    (7, false),
    (8, false),
    (9, false),
    (10, false),
    (11, false),
    (12, false),
    // MLX5_CQE_REQ_ERR and MLX5_CQE_RESP_ERR.
    (13, true),
    (14, true),
    // MLX5_CQE_INVALID.
    (15, false),
];

/// The last 8 bytes of a CQE as `mlx5_cqe64` lays them out.
fn tail(wqe_opcode: u8, qpn: u32, counter: u16, signature: u8, op_own: u8) -> CqeTail {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&qpn.to_be_bytes());
    bytes[0] = wqe_opcode;
    bytes[4..6].copy_from_slice(&counter.to_be_bytes());
    bytes[6] = signature;
    bytes[7] = op_own;
    CqeTail(u64::from_ne_bytes(bytes))
}

#[test]
fn only_two_opcodes_are_errors() {
    for (opcode, is_error) in CQE_OPCODES {
        for low in 0..16 {
            let tail = tail(0x0a, 0x12_3456, 0x789a, 0xff, opcode << 4 | low);
            assert_eq!(tail.is_error(), is_error, "opcode {opcode}");
        }
    }
}

#[test]
fn the_low_half_of_the_last_byte_is_format_solicited_and_owner() {
    let formats = [
        CqeFormat::Plain,
        CqeFormat::Inline32,
        CqeFormat::Inline64,
        CqeFormat::Compressed,
    ];
    for (opcode, _) in CQE_OPCODES {
        for (at, format) in formats.into_iter().enumerate() {
            for (solicited, owner) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let op_own = opcode << 4 | (at as u8) << 2 | solicited << 1 | owner;
                let tail = tail(0, 0, 0, 0, op_own);
                assert_eq!(tail.cqe_opcode(), CqeOpcode(opcode));
                assert_eq!(tail.format(), format);
                assert_eq!(tail.is_solicited(), solicited == 1);
                assert_eq!(tail.owner(), owner == 1);
                assert_eq!(tail.op_own(), op_own);
                assert_eq!(tail.is_new(true), opcode != 15 && owner == 1);
                assert_eq!(tail.is_new(false), opcode != 15 && owner == 0);
            }
        }
    }
}

/// The counter and the opcode decide; the other 44 bits do not.
#[test]
fn a_success_is_told_by_counter_and_opcode() {
    let index = 0x5a0f;
    let done = tail(0, 0, index, 0, 0);
    for bit in 0..64_u32 {
        let one = 1_u64 << bit;
        let changed = CqeTail((u64::from_be(done.0) ^ one).to_be());
        // mlx5_cqe64: op_own is bits 7:0 of the last 8 bytes, the opcode its high half; wqe_counter is bits 31:16.
        let decides = (4..8).contains(&bit) || (16..32).contains(&bit);
        assert_eq!(
            changed.is_success_of(WqeIndex(index)),
            !decides,
            "bit {bit}"
        );
    }
    for index in [0, 1, 0x00ff, 0xff00, 0xffff] {
        for (opcode, _) in CQE_OPCODES {
            let tail = tail(0x10, 0xab_cdef, index, 0x77, opcode << 4 | 0x0f);
            assert_eq!(tail.is_success_of(WqeIndex(index)), opcode == 0);
            assert!(!tail.is_success_of(WqeIndex(!index)));
        }
    }
}

/// An opcode has 4 bits: what is above does not reach the WQE's counter or the signature.
#[test]
fn a_tail_keeps_its_fields_apart() {
    let built = CqeTail::new(CqeOpcode(0xfd), true, Opcode(0xff), QpNumber::MAX, 0xffff);
    assert_eq!(built, tail(0xff, 0xff_ffff, 0xffff, 0, 0xd1));
    let none = CqeTail::new(CqeOpcode(0), false, Opcode(0), QpNumber::default(), 0);
    assert_eq!(none.0, 0);
}

#[test]
fn only_two_arrivals_bring_an_immediate() {
    let word = Some(Immediate(0x1234_5678));
    let cases = [
        (Arrival::WriteImmediate(Immediate(0x1234_5678)), word),
        (Arrival::SendImmediate(Immediate(0x1234_5678)), word),
        (Arrival::Send, None),
        (Arrival::SendInvalidate(RemoteKey(0x1234_5678)), None),
    ];
    for (arrival, immediate) in cases {
        assert_eq!(arrival.immediate(), immediate);
    }
}

/// `MLX5_EXTENDED_UD_AV` is bit 31 of `dqp_dct`, beside a QPN of 24 bits.
#[test]
fn an_address_vector_is_extended_by_its_top_bit() {
    let mut vector = AddressVector::new_zeroed();
    for (word, is_extended) in [
        (0, false),
        (0x7fff_ffff, false),
        (0x8000_0000, true),
        (0xffff_ffff, true),
    ] {
        vector.dqp_dct.set(word);
        assert_eq!(vector.is_extended(), is_extended, "{word:#x}");
        assert_eq!(vector.qpn().get(), word & 0xff_ffff);
    }
}

/// `MLX5_INLINE_SEG` is bit 31; `MLX5_WQE_INLINE_SEG_BYTE_COUNT_MASK` has 10 bits.
#[test]
fn an_inline_header_is_a_mark_and_a_length() {
    for (length, word) in [
        (0, 0x8000_0000),
        (1, 0x8000_0001),
        (0x2a5, 0x8000_02a5),
        (1023, 0x8000_03ff),
        // One bit more than there is room for.
        (1024, 0x8000_0000),
    ] {
        let header = InlineHeader::new(length);
        assert_eq!(header.byte_count.get(), word);
        assert_eq!(header.length(), word & 0x3ff);
    }
    let mut header = InlineHeader::new(0);
    header.byte_count.set(0xffff_fc55);
    assert_eq!(header.length(), 0x55);
}

/// A data segment: `byte_count`, `lkey`, `addr`; `MLX5_INVALID_LKEY` with no bytes ends a list.
#[test]
fn a_data_segment_is_memory_or_inline_or_an_end() {
    let segment = |byte_count: u32, key: u32| {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&byte_count.to_be_bytes());
        bytes[4..8].copy_from_slice(&key.to_be_bytes());
        bytes[8..].copy_from_slice(&0x1122_3344_5566_7788_u64.to_be_bytes());
        Data::from_octoword(Octoword::from_bytes(bytes))
    };
    for (byte_count, key, is_inline, is_end) in [
        (0, 0x100, false, true),
        (0, 0x101, false, false),
        (1, 0x100, false, false),
        (1, 0x101, false, false),
        (0x7fff_ffff, 0x100, false, false),
        (0x8000_0000, 0x100, true, false),
        (0xffff_ffff, 7, true, false),
    ] {
        let segment = segment(byte_count, key);
        assert_eq!(segment.is_inline(), is_inline, "{byte_count:#x}");
        assert_eq!(segment.is_list_end(), is_end, "{byte_count:#x} {key:#x}");
        let local = Local {
            address: 0x1122_3344_5566_7788,
            length: byte_count,
            key: LocalKey(key),
        };
        assert_eq!(segment.local(), local);
    }
}

/// `mlx5_wqe_ctrl_seg`: each field all ones while the others are zero, and the other way round.
#[test]
fn a_control_segment_keeps_its_fields_apart() {
    let read = |bytes: [u8; 16]| {
        let control = Control::from_octoword(Octoword::from_bytes(bytes));
        (
            control.modifier(),
            control.index().0,
            control.opcode().0,
            control.qpn().get(),
            control.ds(),
            control.immediate().0,
        )
    };
    let ones = (0xff, 0xffff, 0xff, 0xff_ffff, 0x3f, 0xffff_ffff);
    assert_eq!(read([0xff; 16]), ones);
    assert_eq!(read([0; 16]), (0, 0, 0, 0, 0, 0));
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 0xc0 | 8]);
    bytes[12..].copy_from_slice(&[9, 10, 11, 12]);
    assert_eq!(read(bytes), (1, 0x0203, 4, 0x05_0607, 8, 0x090a_0b0c));
    let control = Control::from_octoword(Octoword::from_bytes(bytes));
    assert_eq!(control.invalidated_key(), RemoteKey(0x090a_0b0c));
    // Blocks of 64 bytes, 4 octowords each.
    assert_eq!(control.blocks(), 2);
    let built = Control::new(Opcode(0xff), 0xff, 0xff, 0xffff_ffff).to_octoword();
    let mut expected = [0xff, 0, 0, 0xff, 0, 0, 0, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0];
    expected[12..].fill(0xff);
    assert_eq!(built.to_bytes(), expected);
}

#[test]
fn a_remote_address_is_read_as_it_is_written() {
    let remote = Remote {
        address: 0x1122_3344_5566_7788,
        key: RemoteKey(0x99aa_bbcc),
    };
    let octoword = RemoteAddress::new(remote).to_octoword();
    let bytes = [
        0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0, 0, 0, 0,
    ];
    assert_eq!(octoword.to_bytes(), bytes);
    assert_eq!(RemoteAddress::from_octoword(octoword).remote(), remote);
}

/// `mlx5_cq_arm`: the number of the request in bits 29:28, the command in bit 24, the consumer index below.
#[test]
fn an_arm_keeps_its_fields_apart() {
    let all = CqArm {
        sequence: 0xff,
        solicited_only: true,
        consumer: 0xffff_ffff,
    };
    assert_eq!(u32::from_be(all.word()), 0x31ff_ffff);
    let none = CqArm {
        sequence: 0xfc,
        solicited_only: false,
        consumer: 0xff00_0000,
    };
    assert_eq!(none.word(), 0);
    for (word, sequence, solicited_only, consumer) in [
        (0xffff_ffff_u32, 3, true, 0xff_ffff),
        (0xceff_ffff, 0, false, 0xff_ffff),
        (0xd000_0000, 1, false, 0),
        (0x2100_0001, 2, true, 1),
    ] {
        let arm = CqArm {
            sequence,
            solicited_only,
            consumer,
        };
        assert_eq!(CqArm::from_word(word.to_be()), arm, "{word:#x}");
        let cq = CqNumber::new(0x65_4321).unwrap();
        let doorbell = (u64::from(word) << 32 | 0xaa65_4321).to_be();
        assert_eq!(CqArm::from_doorbell(doorbell), (arm, cq));
    }
}

/// A doorbell's low byte is `ds` in 6 bits; libmlx5 leaves the two above at 0, and they count nothing.
#[test]
fn a_doorbell_tells_the_producer_behind_its_wqe() {
    for (low, blocks) in [(0, 0), (1, 1), (4, 1), (5, 2), (63, 16), (0xc1, 1)] {
        let bytes = [0, 0xff, 0xfe, 0x0a, 0x12, 0x34, 0x56, low];
        let doorbell = Doorbell(u64::from_ne_bytes(bytes));
        assert_eq!(doorbell.index(), WqeIndex(0xfffe));
        assert_eq!(doorbell.opcode(), Opcode::SEND);
        assert_eq!(doorbell.qpn().get(), 0x12_3456);
        assert_eq!(
            doorbell.producer(),
            WqeIndex(0xfffe_u16.wrapping_add(blocks))
        );
    }
}

/// Octowords of so many blocks, 63 at most (`MLX5_WQE_CTRL_DS_MASK`), less control and remote address; inline data less
/// 4 bytes of header.
#[test]
fn limits_follow_from_the_size_of_a_wqe() {
    fn limits<const BLOCKS: usize>() -> [usize; 5] {
        [
            Wqe::<BLOCKS>::MAX_OCTOWORDS,
            Wqe::<BLOCKS>::MAX_RDMA_SEGMENTS,
            Wqe::<BLOCKS>::MAX_SEND_SEGMENTS,
            Wqe::<BLOCKS>::MAX_RDMA_INLINE,
            Wqe::<BLOCKS>::MAX_SEND_INLINE,
        ]
    }
    assert_eq!(limits::<1>(), [4, 2, 3, 28, 44]);
    assert_eq!(limits::<2>(), [8, 6, 7, 92, 108]);
    assert_eq!(limits::<15>(), [60, 58, 59, 924, 940]);
    assert_eq!(limits::<16>(), [63, 61, 62, 972, 988]);
}

/// A receive whose stride is one segment has no room for the end of its list, and needs none.
#[test]
fn a_receive_of_one_octoword_is_its_segment() {
    let buffer = Local {
        address: 0x1000,
        length: 64,
        key: LocalKey(7),
    };
    let [data] = ReceiveWqe::<1>::single(buffer).to_octowords();
    assert_eq!(
        data.to_bytes(),
        [0, 0, 0, 64, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0x10, 0]
    );
    let [_, end] = ReceiveWqe::<2>::single(buffer).to_octowords();
    assert_eq!(end.to_bytes()[..8], [0, 0, 0, 0, 0, 0, 1, 0]);
}

#[test]
fn the_sender_and_the_user_index_have_24_bits() {
    let mut bytes = [0xff; 64];
    bytes[24..28].copy_from_slice(&[0xaa, 0x12, 0x34, 0x56]);
    bytes[32..36].copy_from_slice(&[0xbb, 0x65, 0x43, 0x21]);
    let cqe = Cqe64::from_bytes(bytes);
    assert_eq!(cqe.source_qpn().get(), 0x12_3456);
    assert_eq!(cqe.user_index(), 0x65_4321);
    assert_eq!(cqe.as_error().as_cqe().as_bytes(), bytes);
}

/// `fm_ce_se`: a flag that is set twice is set.
#[test]
fn flags_set_twice_are_set() {
    let once = Wqe::nop().signalled().solicited().fenced(Fence::Fence);
    let twice = once.signalled().solicited().fenced(Fence::Fence);
    assert_eq!(twice.control().fm_ce_se.bits(), 0x40 | 0x08 | 0x02);
    assert_eq!(twice, once);
    let plain = twice.unsignalled().unsignalled().fenced(Fence::None);
    assert_eq!(plain.control().fm_ce_se.bits(), 0x02);
}

/// `MLX5_WQE_MKEY_CONTEXT_FREE` is bit 6 of the first byte.
#[test]
fn a_free_key_is_bit_6() {
    let context = MkeyContext {
        free: MkeyContext::FREE,
        ..MkeyContext::default()
    };
    let [first, ..] = context.to_octowords();
    assert_eq!(first.to_bytes()[..2], [0x40, 0]);
}

#[test]
fn refusals_are_told_in_words() {
    for (error, words) in [
        (
            BuildError::TooManySegments { given: 7, limit: 6 },
            "7 segments given, but the WQE has room for 6",
        ),
        (
            BuildError::EmptySegment,
            "a segment of the list has length 0",
        ),
        (
            BuildError::SegmentTooLong {
                length: 0x8000_0000,
            },
            "a segment of 2147483648 bytes is longer than 2147483647",
        ),
        (
            BuildError::InlineTooLong {
                length: 93,
                limit: 92,
            },
            "93 bytes of inline data, but the WQE has room for 92",
        ),
        (BuildError::EmptyInline, "there are no inline data"),
    ] {
        assert_eq!(error.to_string(), words);
    }
}

#[test]
fn codes_are_debugged_in_hexadecimal() {
    assert_eq!(format!("{:?}", Syndrome(0x15)), "Syndrome(0x15)");
    assert_eq!(format!("{:?}", VendorCode(0xf9)), "VendorCode(0xf9)");
}
