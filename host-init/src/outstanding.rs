//! What a send queue waits for, read from its memory.

use std::fmt;

use mlx5_wqe::{Cqe64, CqeOpcode, Opcode, QpNumber, WqeIndex};
use warpbell_soft_hca::engine::decode::decode;

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
    /// The producer index of its doorbell record.
    pub producer: u16,
}

/// The newest WQE that a completion queue tells of, among the last `depth` before `producer`.
fn newest(completions: &[[u8; 64]], producer: u16, depth: usize) -> Option<u16> {
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

    /// Blocks of a WQE: its first block says how many segments of 16 bytes it has.
    fn blocks(&self, index: u16) -> u16 {
        let segments = self.block(index)[7] & 0x3f;
        u16::from(segments.div_ceil(4).max(1))
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
