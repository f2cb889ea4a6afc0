//! The WQE decoder: what builders build is understood, what is malformed is named.

use mlx5_wqe::decode::{
    AtomicKind, AtomicOperation, DataItem, DecodeError, Extra, Operation, QueueOperation, decode,
};
use mlx5_wqe::{
    CqNumber, Fence, Immediate, Local, LocalKey, Masked, Octoword, Opcode, QpNumber, Remote,
    RemoteKey, Wqe, WqeIndex, segment,
};
use proptest::prelude::*;

const INDEX: WqeIndex = WqeIndex(0xfffe);
const QPN: QpNumber = QpNumber::from_low_bits(0xab_cdef);
const LOCAL: Local = Local {
    address: 0x1234_5678_9abc_def0,
    length: 8,
    key: LocalKey(0x0102_0304),
};
const REMOTE: Remote = Remote {
    address: 0x0fed_cba9_8765_4321,
    key: RemoteKey(0x0a0b_0c0d),
};

fn bytes<const BLOCKS: usize>(wqe: Wqe<BLOCKS>) -> Vec<u8> {
    let blocks = wqe.place(INDEX, QPN);
    blocks
        .as_flattened()
        .iter()
        .flat_map(|word| word.to_bytes())
        .collect()
}

fn operation<const BLOCKS: usize>(wqe: Wqe<BLOCKS>) -> Operation {
    decode(&bytes(wqe), INDEX, QPN).unwrap().operation
}

fn atomic(kind: AtomicKind, width: u8, operands: [u64; 4]) -> Operation {
    Operation::Atomic(
        REMOTE,
        AtomicOperation {
            kind,
            width,
            operands,
        },
    )
}

#[test]
fn what_builders_build() {
    let immediate = Immediate(0x5566_7788);
    let extra = Extra::Immediate(immediate);
    assert_eq!(operation(Wqe::<1>::nop()), Operation::Nop);
    assert_eq!(
        operation(Wqe::<1>::write(LOCAL, REMOTE)),
        Operation::Write(REMOTE, Extra::None)
    );
    assert_eq!(
        operation(Wqe::<1>::write_immediate(LOCAL, REMOTE, immediate)),
        Operation::Write(REMOTE, extra)
    );
    assert_eq!(
        operation(Wqe::<1>::read(LOCAL, REMOTE)),
        Operation::Read(REMOTE)
    );
    assert_eq!(
        operation(Wqe::<1>::send_immediate(LOCAL, immediate)),
        Operation::Send(extra)
    );
    assert_eq!(
        operation(Wqe::<1>::send_invalidate(LOCAL, REMOTE.key)),
        Operation::Send(Extra::Invalidate(REMOTE.key))
    );
    assert_eq!(
        operation(Wqe::<1>::compare_swap(LOCAL, REMOTE, 3, 4)),
        atomic(AtomicKind::CompareSwap, 8, [4, 3, u64::MAX, u64::MAX])
    );
    assert_eq!(
        operation(Wqe::<1>::fetch_add(LOCAL, REMOTE, 5)),
        atomic(AtomicKind::FetchAdd, 8, [5, 0, 0, 0])
    );
    let masked = |value, mask| Masked { value, mask };
    assert_eq!(
        operation(Wqe::<2>::masked_compare_swap_u64(
            LOCAL,
            REMOTE,
            masked(1, 2),
            masked(3, 4)
        )),
        atomic(AtomicKind::CompareSwap, 8, [3, 1, 4, 2])
    );
    let four = Local { length: 4, ..LOCAL };
    assert_eq!(
        operation(Wqe::<1>::masked_fetch_add_u32(four, REMOTE, 6, 7)),
        atomic(AtomicKind::FetchAdd, 4, [6, 0, 7, 0])
    );
    let wqe = Wqe::<1>::send(LOCAL)
        .signalled()
        .solicited()
        .fenced(Fence::SmallAndFence);
    let bytes = bytes(wqe);
    let decoded = decode(&bytes, INDEX, QPN).unwrap();
    assert_eq!(decoded.fence, Fence::SmallAndFence);
    assert!(decoded.flags.is_signalled());
    assert_eq!(decoded.length, 8);
    assert_eq!(decoded.data.collect::<Vec<_>>(), [DataItem::Memory(LOCAL)]);
}

#[test]
fn inline_data_and_memory_may_alternate() {
    let header = segment::InlineHeader::new(5).byte_count.get().to_be_bytes();
    let mut inline = [0; 16];
    inline[..4].copy_from_slice(&header);
    let segments = [
        segment::Data::new(LOCAL).to_octoword(),
        Octoword::from_bytes(inline),
        segment::Data::new(LOCAL).to_octoword(),
    ];
    let wqe = Wqe::<1>::from_segments(Opcode::SEND, 0, 0, &segments, 0).unwrap();
    let bytes = bytes(wqe);
    let decoded = decode(&bytes, INDEX, QPN).unwrap();
    assert_eq!(decoded.length, 21);
    assert_eq!(
        decoded.data.collect::<Vec<_>>(),
        [
            DataItem::Memory(LOCAL),
            DataItem::Inline {
                offset: 36,
                length: 5
            },
            DataItem::Memory(LOCAL)
        ]
    );
}

const CQN: CqNumber = CqNumber::from_low_bits(0x12_3456);
const OTHER: QpNumber = QpNumber::from_low_bits(0x65_4321);

#[test]
fn what_concerns_queues_alone_is_understood() {
    let wait = QueueOperation::Wait {
        queue: CQN,
        number: 0xfedc_ba98,
    };
    let enable = QueueOperation::SendEnable {
        queue: OTHER,
        end: 0x1_0007,
    };
    for (wqe, expected) in [
        (Wqe::<1>::wait(CQN, 0xfedc_ba98), wait),
        (Wqe::<1>::send_enable(OTHER, 0x1_0007), enable),
    ] {
        let bytes = bytes(wqe);
        let decoded = decode(&bytes, INDEX, QPN).unwrap();
        assert_eq!(decoded.operation, Operation::Queue(expected));
        assert_eq!((decoded.length, decoded.blocks), (0, 1));
        assert_eq!(decoded.data.count(), 0);
    }
}

#[test]
fn what_is_malformed_is_named() {
    let good = bytes(Wqe::<1>::write(LOCAL, REMOTE));
    let fetch_add = bytes(Wqe::<1>::fetch_add(LOCAL, REMOTE, 1));
    let read = bytes(Wqe::<1>::read(LOCAL, REMOTE));
    let wait = bytes(Wqe::<1>::wait(CQN, 7));
    let enable = bytes(Wqe::<1>::send_enable(OTHER, 7));
    let with = |wqe: &[u8], offset: usize, value: u8| {
        let mut bytes = wqe.to_vec();
        bytes[offset] = value;
        decode(&bytes, INDEX, QPN).map(|_| ())
    };
    assert_eq!(with(&good, 0, 0), Ok(()));
    let cases = [
        (with(&good, 1, 0), DecodeError::WrongIndex),
        (with(&good, 6, 0), DecodeError::WrongQueue),
        (with(&good, 7, 0), DecodeError::Empty),
        (with(&good, 7, 5), DecodeError::Truncated),
        (with(&good, 7, 1), DecodeError::SegmentPastEnd),
        (with(&fetch_add, 7, 2), DecodeError::SegmentPastEnd),
        (with(&good, 3, 0x0e), DecodeError::UnsupportedOpcode),
        (with(&good, 0, 0x08), DecodeError::UnsupportedModifier),
        (with(&fetch_add, 3, 0x14), DecodeError::UnsupportedModifier),
        (with(&good, 11, 0xa0), DecodeError::ReservedFence),
        // Bit 31 of the byte count makes inline data of the segment.
        (with(&read, 32, 0x80), DecodeError::InlineDestination),
        (with(&good, 32, 0x41), DecodeError::TooLong),
        (with(&fetch_add, 7, 3), DecodeError::AtomicResult),
        (with(&fetch_add, 51, 4), DecodeError::AtomicResult),
        (with(&wait, 7, 1), DecodeError::SegmentPastEnd),
        (with(&wait, 28, 1), DecodeError::UnknownQueue),
        (with(&enable, 28, 1), DecodeError::UnknownQueue),
        (with(&enable, 3, 0x16), DecodeError::UnsupportedOpcode),
    ];
    for (position, (found, expected)) in cases.into_iter().enumerate() {
        assert_eq!(found, Err(expected), "case {position}");
    }
    assert_eq!(
        decode(&good[..15], INDEX, QPN).map(|_| ()),
        Err(DecodeError::Truncated)
    );
    // 13 bytes inline do not fit beside their header of 4 in one octoword.
    let mut inline = good.clone();
    inline[32..36].copy_from_slice(&0x8000_000d_u32.to_be_bytes());
    assert_eq!(
        decode(&inline, INDEX, QPN).map(|_| ()),
        Err(DecodeError::SegmentPastEnd)
    );
    // Nor does a length that its field of 10 bits would hide.
    inline[32..36].copy_from_slice(&0x8000_0400_u32.to_be_bytes());
    assert_eq!(
        decode(&inline, INDEX, QPN).map(|_| ()),
        Err(DecodeError::SegmentPastEnd)
    );
}

proptest! {
    /// Carries stop at the boundary: compared with an addition bit by bit.
    #[test]
    fn fetch_add_by_fields(found: u64, add: u64, boundary: u64) {
        let (mut sum, mut carry) = (0, 0);
        for bit in 0..64 {
            let total = (found >> bit & 1) + (add >> bit & 1) + carry;
            sum |= (total & 1) << bit;
            carry = if boundary >> bit & 1 == 1 { 0 } else { total >> 1 };
        }
        let operation = AtomicOperation {
            kind: AtomicKind::FetchAdd,
            width: 8,
            operands: [add, 0, boundary, 0],
        };
        prop_assert_eq!(operation.apply(found), Some(sum));
    }
}
