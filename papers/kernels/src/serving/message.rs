//! A message of many work requests, and which of them goes through which queue.

use warpbell::wqe::Wqe;

use crate::path::Path;

/// A message in parts, which have a queue each, in pieces of one work request each.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// Bytes of it: at least 8 for each part.
    pub bytes: u32,
    /// Bytes of a piece at most.
    pub piece: u32,
}

impl Message {
    /// Bytes of each part but the last one, a multiple of 8.
    pub const fn part(&self, parts: u32) -> u32 {
        self.bytes.div_ceil(at_least_one(8 * parts)) * 8
    }

    /// Pieces of a part, the largest one.
    pub const fn pieces(&self, parts: u32) -> u32 {
        self.part(parts).div_ceil(at_least_one(self.piece))
    }

    /// First byte and bytes of piece number `piece` of a part; no bytes where the part is over.
    #[inline(always)]
    const fn span(&self, parts: u32, part: u32, piece: u32) -> (u32, u32) {
        let first = part * self.part(parts);
        let left = self.bytes.saturating_sub(first);
        let part = if left < self.part(parts) {
            left
        } else {
            self.part(parts)
        };
        let start = piece.saturating_mul(self.piece);
        let left = part.saturating_sub(start);
        let bytes = if left < self.piece { left } else { self.piece };
        (first.saturating_add(start), bytes)
    }

    /// Piece number `piece` of a part, of message number `from` at this end; none where the part is over.
    #[inline(always)]
    pub fn write(&self, path: &Path<'_>, part: u32, from: u32, piece: u32) -> Option<Wqe<1>> {
        let (start, bytes) = self.span(path.parts, part, piece);
        let source = u64::from(from) * u64::from(self.bytes) + u64::from(start);
        (bytes > 0).then(|| path.write(source, start.into(), bytes))
    }
}

/// The same, but for 0, by which nobody divides.
const fn at_least_one(number: u32) -> u32 {
    if number == 0 { 1 } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_of_all_parts_are_the_message_and_each_byte_lies_in_one() {
        for (bytes, piece, parts) in [
            (8, 8, 1),
            (1000, 64, 3),
            (4096, 4096, 4),
            (200_704, 65_536, 8),
            (136, 8, 4),
        ] {
            let message = Message { bytes, piece };
            let mut next = 0;
            for part in 0..parts {
                assert_eq!(part * message.part(parts), next, "{message:?}");
                for number in 0..message.pieces(parts) {
                    let (start, bytes) = message.span(parts, part, number);
                    assert!(bytes <= piece && (bytes == 0 || start == next));
                    next += bytes;
                }
                assert_eq!(message.span(parts, part, message.pieces(parts)).1, 0);
            }
            assert_eq!(next, bytes, "{message:?}");
        }
        assert_eq!(message_of(64).span(1, 0, u32::MAX).1, 0);
    }

    fn message_of(bytes: u32) -> Message {
        Message { bytes, piece: 8 }
    }
}
