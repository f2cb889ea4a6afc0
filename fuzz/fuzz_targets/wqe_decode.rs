//! Any bytes decode to a WQE or a named error; a WQE stays inside its bytes, and says of them what
//! a second, naive reading says.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mlx5_wqe::decode::{AtomicKind, DataItem, DecodeError, Operation, QueueOperation, decode};
use mlx5_wqe::{QpNumber, WqeIndex};
use warpbell_soft_hca::engine::command::MAX_MESSAGE_LENGTH;

/// Fetch-and-add bit by bit: a carry goes to the next bit unless the boundary has this one.
fn fetch_add(found: u64, add: u64, boundary: u64) -> u64 {
    let (mut sum, mut carry) = (0, 0);
    for bit in 0..64 {
        let total = (found >> bit & 1) + (add >> bit & 1) + carry;
        sum |= (total & 1) << bit;
        carry = if boundary >> bit & 1 == 1 {
            0
        } else {
            total >> 1
        };
    }
    sum
}

fuzz_target!(|input: (u64, &[u8])| {
    let (found, bytes) = input;
    let word = |at: usize| {
        let bytes = bytes.get(at..at + 4).unwrap_or(&[0; 4]);
        u32::from_be_bytes(bytes.try_into().unwrap())
    };
    // Index and QPN are taken from the bytes: with others nearly nothing would be decoded.
    let index = WqeIndex((word(0) >> 8) as u16);
    let qpn = QpNumber::from_low_bits(word(4) >> 8);
    let ds = (word(4) & 0x3f) as usize;
    let wqe = match decode(bytes, index, qpn) {
        Ok(wqe) => wqe,
        Err(error) => {
            let syndrome = if error == DecodeError::TooLong { 1 } else { 2 };
            assert_eq!(error.syndrome().0, syndrome);
            return;
        }
    };
    let size = ds * 16;
    assert!(bytes.len() >= size && (1..=63).contains(&ds));
    assert_eq!(usize::from(wqe.blocks), ds.div_ceil(4));
    assert_eq!(wqe.opcode.0, bytes[3]);
    assert_eq!(wqe.flags.bits(), bytes[11]);

    // The same with nothing behind it; not with a byte missing, nor in another place or queue.
    assert_eq!(
        decode(&bytes[..size], index, qpn).map(|wqe| wqe.length),
        Ok(wqe.length)
    );
    let refused = |bytes, index, qpn| decode(bytes, index, qpn).map(|_| ()).unwrap_err();
    assert_eq!(
        refused(&bytes[..size - 1], index, qpn),
        DecodeError::Truncated
    );
    assert_eq!(
        refused(bytes, index.advance(1), qpn),
        DecodeError::WrongIndex
    );
    let other = QpNumber::from_low_bits(qpn.get() ^ 1);
    assert_eq!(refused(bytes, index, other), DecodeError::WrongQueue);

    // Segments, read a second time.
    let segments = match wqe.operation {
        Operation::Nop => size,
        Operation::Queue(operation) => {
            let (opcode, queue, number) = match operation {
                QueueOperation::Wait { queue, number } => (0x0f, queue.get(), number),
                QueueOperation::SendEnable { queue, end } => (0x17, queue.get(), end),
            };
            assert_eq!((bytes[3], word(28), word(24)), (opcode, queue, number));
            size
        }
        Operation::Send(_) => 16,
        Operation::Write(..) | Operation::Read(_) => 32,
        Operation::Atomic(_, atomic) => match (atomic.kind, atomic.width, bytes[3]) {
            (AtomicKind::CompareSwap, 8, 0x14) => 64,
            _ => 48,
        },
    };
    let (mut at, mut total) = (segments, 0);
    for item in wqe.data {
        let count = word(at);
        match item {
            DataItem::Inline { offset, length } => {
                assert_eq!(count, length as u32 | 0x8000_0000);
                assert_eq!(offset, at + 4);
                assert!(offset + length <= size);
                assert!(matches!(
                    wqe.operation,
                    Operation::Send(_) | Operation::Write(..)
                ));
                at = (offset + length).next_multiple_of(16);
            }
            DataItem::Memory(local) => {
                assert_eq!((local.length, local.key.0), (count, word(at + 4)));
                at += 16;
            }
        }
        total += item.length();
    }
    assert_eq!(at, size);
    assert_eq!(total, u64::from(wqe.length));
    assert!(wqe.length <= MAX_MESSAGE_LENGTH);

    if let Operation::Atomic(_, atomic) = wqe.operation {
        assert_eq!(total, u64::from(atomic.width));
        let mask = if atomic.width == 4 {
            u64::from(u32::MAX)
        } else {
            u64::MAX
        };
        assert!(atomic.operands.iter().all(|operand| operand & !mask == 0));
        let [value, compare, swap_mask, compare_mask] = atomic.operands;
        let found = found & mask;
        let expected = match atomic.kind {
            AtomicKind::FetchAdd => Some(fetch_add(found, value, swap_mask)),
            AtomicKind::CompareSwap if found & compare_mask == compare & compare_mask => {
                Some(found & !swap_mask | value & swap_mask)
            }
            AtomicKind::CompareSwap => None,
        };
        assert_eq!(atomic.apply(found), expected);
    }
});
