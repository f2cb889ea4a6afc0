//! What a send queue waits for, read from its memory.

use std::fmt;

use mlx5_wqe::decode::decode;
use mlx5_wqe::{Cqe64, CqeOpcode, Opcode, QpNumber, WqeIndex};

/// A request whose completion the kernel has not been told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outstanding {
    /// The queue pair.
    pub qpn: u32,
    /// The request's WQE.
    pub wqe: WqeIndex,
    /// What it is to do.
    pub opcode: Opcode,
    /// Bytes of its message; none if the WQE is no request that a NIC knows.
    pub bytes: Option<u32>,
    /// Which of the ring's blocks it begins in.
    pub slot: u32,
    /// Blocks of the ring.
    pub depth: u32,
    /// Index of the block behind the last one posted.
    pub posted: WqeIndex,
}

impl fmt::Display for Outstanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            qpn,
            wqe,
            opcode,
            bytes,
            slot,
            depth,
            posted,
        } = self;
        let bytes = bytes.map_or_else(|| "length unknown".into(), |bytes| format!("{bytes} bytes"));
        write!(
            f,
            "queue pair {qpn:#x} waits for WQE {wqe} ({opcode}, {bytes}) in slot {slot} of {depth}, posted up to {posted}"
        )
    }
}

/// A receive that waits for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwaitedReceive {
    /// The queue pair.
    pub qpn: u32,
    /// The receive that the next message fills.
    pub receive: WqeIndex,
    /// Index behind the last one posted.
    pub posted: WqeIndex,
}

impl fmt::Display for AwaitedReceive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            qpn,
            receive,
            posted,
        } = self;
        write!(
            f,
            "queue pair {qpn:#x} waits for a message into receive {receive}, posted up to {posted}"
        )
    }
}

/// A send queue as it lies in memory.
pub(crate) struct SendQueueImage {
    /// Its blocks.
    pub ring: Vec<[u8; 64]>,
    /// Its completion queue's entries.
    pub completions: Vec<[u8; 64]>,
    /// The producer index, of its doorbell record or [from the ring](stored_in).
    pub producer: u16,
}

/// The newest WQE that a completion queue tells of, among the last `depth` before `producer`.
pub(crate) fn newest(completions: &[[u8; 64]], producer: u16, depth: usize) -> Option<u16> {
    // From a WQE to the end of what was posted.
    let behind = |index: u16| match producer.wrapping_sub(index) {
        0 => 1 << 16,
        count => usize::from(count),
    };
    completions
        .iter()
        .map(|bytes| Cqe64::from_bytes(*bytes).tail())
        .filter(|tail| tail.cqe_opcode() != CqeOpcode::INVALID)
        .map(|tail| tail.wqe_counter())
        .filter(|&index| behind(index) <= depth)
        .min_by_key(|&index| behind(index))
}

/// Blocks of the WQE that begins with this one: its first block says how many segments of 16 bytes it has.
fn blocks_of(first: &[u8; 64]) -> u16 {
    let segments = first[7] & 0x3f;
    u16::from(segments.div_ceil(4).max(1))
}

/// The index behind the last WQE in a ring, whether or not the NIC was told of it: that of a queue without a doorbell
/// record. 0 for a ring without any.
pub(crate) fn stored_in(ring: &[[u8; 64]], qpn: u32) -> u16 {
    let begins = |index: u16| {
        let block = &ring[index as usize % ring.len()];
        (block[1..3] == index.to_be_bytes() && block[4..7] == qpn.to_be_bytes()[1..])
            .then(|| blocks_of(block))
    };
    let mut last = ring.iter().enumerate().filter_map(|(slot, block)| {
        let index = u16::from_be_bytes([block[1], block[2]]);
        let here = index as usize % ring.len() == slot;
        let next = index.wrapping_add(begins(index).filter(|_| here)?);
        // Where the next one begins, this is not the last.
        begins(next).is_none().then_some(next)
    });
    last.next().unwrap_or(0)
}

/// The receive that the next message fills, if one is posted.
pub(crate) fn awaited_receive(
    qpn: u32,
    completions: &[[u8; 64]],
    producer: u16,
    depth: usize,
) -> Option<AwaitedReceive> {
    // A receive queue completes in order; without a completion so far, its first.
    let next = newest(completions, producer, depth).map_or(0, |index| index.wrapping_add(1));
    (next != producer).then_some(AwaitedReceive {
        qpn,
        receive: WqeIndex(next),
        posted: WqeIndex(producer),
    })
}

impl SendQueueImage {
    pub fn outstanding(&self, qpn: u32) -> Option<Outstanding> {
        // Without a completion so far, the first request since the queue was made.
        let oldest = match newest(&self.completions, self.producer, self.ring.len()) {
            Some(index) => index.wrapping_add(self.blocks(index)),
            None => 0,
        };
        (oldest != self.producer).then(|| Outstanding {
            qpn,
            wqe: WqeIndex(oldest),
            opcode: Opcode(self.block(oldest)[3]),
            bytes: self.message_bytes(qpn, oldest),
            slot: (oldest as usize % self.ring.len()) as u32,
            depth: self.ring.len() as u32,
            posted: WqeIndex(self.producer),
        })
    }

    /// Bytes of a WQE's message.
    fn message_bytes(&self, qpn: u32, index: u16) -> Option<u32> {
        let blocks = (0..self.blocks(index)).map(|block| *self.block(index.wrapping_add(block)));
        let bytes: Vec<u8> = blocks.flatten().collect();
        let qpn = QpNumber::from_low_bits(qpn);
        let decoded = decode(&bytes, WqeIndex(index), qpn).ok()?;
        Some(decoded.length)
    }

    fn block(&self, index: u16) -> &[u8; 64] {
        &self.ring[index as usize % self.ring.len()]
    }

    /// Blocks of a WQE.
    fn blocks(&self, index: u16) -> u16 {
        blocks_of(self.block(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring in which WQE number n has the opcode n, modulo 64, and so many segments.
    fn image(depth: usize, producer: u16, segments: u8) -> SendQueueImage {
        let mut ring = vec![[0; 64]; depth];
        for (index, block) in ring.iter_mut().enumerate() {
            block[3] = index as u8 & 0x3f;
            block[7] = segments;
        }
        SendQueueImage {
            ring,
            completions: vec![Cqe64::INVALID.to_bytes()],
            producer,
        }
    }

    fn complete(image: &mut SendQueueImage, entry: usize, index: u16) {
        let cqe = &mut image.completions[entry];
        cqe[60..62].copy_from_slice(&index.to_be_bytes());
        cqe[63] = 0;
    }

    fn oldest(image: &SendQueueImage) -> Option<u16> {
        image.outstanding(7).map(|request| request.wqe.0)
    }

    #[test]
    fn the_oldest_request_without_a_completion_is_named() {
        let mut image = image(16, 0, 4);
        assert_eq!(oldest(&image), None);
        image.producer = 5;
        assert_eq!(oldest(&image), Some(0));
        complete(&mut image, 0, 2);
        let request = image.outstanding(7).unwrap();
        assert_eq!(
            (request.wqe.0, request.opcode.0, request.posted.0),
            (3, 3, 5)
        );
        let text = request.to_string();
        assert!(text.contains("queue pair 0x7 waits for WQE"), "{text}");
        complete(&mut image, 0, 4);
        assert_eq!(oldest(&image), None);
    }

    #[test]
    fn a_request_of_several_blocks_counts_as_one() {
        let mut image = image(16, 8, 7);
        complete(&mut image, 0, 2);
        assert_eq!(oldest(&image), Some(4));
        complete(&mut image, 0, 6);
        assert_eq!(oldest(&image), None);
    }

    /// The ring of a queue without a record, as WQEs of one, two or three blocks fill it more than once.
    #[test]
    fn the_end_of_what_lies_in_a_ring() {
        const QPN: u32 = 0x12_3456;
        for depth in [1usize, 2, 8, 64] {
            let mut ring = vec![[0; 64]; depth];
            assert_eq!(stored_in(&ring, QPN), 0);
            let mut index = 0xff00_u16;
            for number in 0..2_000_u32 {
                let blocks = (1 + number % 3).min((depth as u32 / 4).max(1)) as u16;
                for block in 0..blocks {
                    // Data that look like no control segment.
                    ring[index.wrapping_add(block) as usize % depth] = [0xa5; 64];
                }
                let first = &mut ring[index as usize % depth];
                first[1..3].copy_from_slice(&index.to_be_bytes());
                first[4..7].copy_from_slice(&QPN.to_be_bytes()[1..]);
                first[7] = (4 * blocks) as u8;
                index = index.wrapping_add(blocks);
                assert_eq!(stored_in(&ring, QPN), index, "depth {depth}");
            }
        }
    }

    #[test]
    fn the_receive_behind_the_last_message_is_named() {
        let mut image = image(4, 0, 4);
        image.completions = vec![Cqe64::INVALID.to_bytes(); 4];
        let awaited = |image: &SendQueueImage, producer| {
            let receive = awaited_receive(7, &image.completions, producer, 4);
            receive.map(|receive| (receive.receive.0, receive.posted.0))
        };
        assert_eq!(awaited(&image, 0), None, "nothing is posted");
        assert_eq!(awaited(&image, 3), Some((0, 3)), "nothing has come");
        complete(&mut image, 0, 0);
        complete(&mut image, 1, 1);
        assert_eq!(awaited(&image, 3), Some((2, 3)));
        complete(&mut image, 2, 2);
        assert_eq!(awaited(&image, 3), None, "all are filled");
        complete(&mut image, 3, 0xffff);
        complete(&mut image, 0, 0xfffe);
        image.completions[1] = Cqe64::INVALID.to_bytes();
        image.completions[2] = Cqe64::INVALID.to_bytes();
        assert_eq!(awaited(&image, 2), Some((0, 2)), "past the wrap");
    }

    #[test]
    fn indices_wrap_and_old_entries_do_not_count() {
        let mut image = image(4, 2, 4);
        image.completions = vec![Cqe64::INVALID.to_bytes(); 4];
        complete(&mut image, 0, 0xfffe);
        complete(&mut image, 1, 0xffff);
        complete(&mut image, 2, 0xfff0);
        assert_eq!(oldest(&image), Some(0));
        complete(&mut image, 3, 0);
        assert_eq!(oldest(&image), Some(1));
    }
}
