//! What a request does to memory, said a second time: plainly, and by nobody's code but this.

use warpbell::wqe::Local;
use warpbell_kernels::suite::{MessageKind, Request, Verb};

use crate::arena::Image;

/// What a request brings to a receive of the other side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// How it comes.
    pub kind: MessageKind,
    /// What goes into the receive's buffer.
    pub bytes: Vec<u8>,
    /// The length that the completion tells.
    pub length: usize,
    /// Immediate data or key.
    pub immediate: u32,
}

/// Carries a request out on both images; gives what it brings to a receive, if anything.
pub fn apply(request: &Request, ours: &mut Image, theirs: &mut Image) -> Option<Delivery> {
    if !request.present {
        return None;
    }
    let pieces = &request.pieces[..usize::from(request.piece_count)];
    let inline = &request.inline[..request.inline_length as usize];
    let target = request.remote.address;
    let message = |kind, bytes: Vec<u8>, immediate| {
        let length = bytes.len();
        Some(Delivery {
            kind,
            bytes,
            length,
            immediate,
        })
    };
    match request.verb {
        Verb::Write | Verb::WriteGather => theirs.set(target, &ours.gather(pieces)),
        Verb::WriteValue => theirs.set(target, &request.values[0].to_ne_bytes()),
        Verb::WriteInline => theirs.set(target, inline),
        Verb::WriteImmediate | Verb::WriteImmediateOnly => {
            let bytes = ours.gather(pieces);
            theirs.set(target, &bytes);
            return Some(Delivery {
                kind: MessageKind::WriteImmediate,
                length: bytes.len(),
                bytes: Vec::new(),
                immediate: request.immediate,
            });
        }
        Verb::Read | Verb::ReadScatter => {
            let length: usize = pieces.iter().map(|piece| piece.length as usize).sum();
            let bytes = theirs.get(target, length).to_vec();
            ours.scatter(pieces, &bytes);
        }
        Verb::Send | Verb::SendGather => {
            return message(MessageKind::Send, ours.gather(pieces), 0);
        }
        Verb::SendInline => return message(MessageKind::Send, inline.to_vec(), 0),
        Verb::SendEmpty => return message(MessageKind::Send, Vec::new(), 0),
        Verb::SendImmediate => {
            let bytes = ours.gather(pieces);
            return message(MessageKind::SendImmediate, bytes, request.immediate);
        }
        Verb::SendInvalidate => {
            let bytes = ours.gather(pieces);
            return message(MessageKind::SendInvalidate, bytes, request.immediate);
        }
        Verb::FetchAdd
        | Verb::CompareSwap
        | Verb::MaskedFetchAdd4
        | Verb::MaskedFetchAdd8
        | Verb::MaskedCompareSwap4
        | Verb::MaskedCompareSwap8 => atomic(request, pieces, ours, theirs),
        Verb::Nop => {}
    }
    None
}

fn atomic(request: &Request, pieces: &[Local], ours: &mut Image, theirs: &mut Image) {
    let width = match request.verb {
        Verb::MaskedFetchAdd4 | Verb::MaskedCompareSwap4 => 4,
        _ => 8,
    };
    let target = request.remote.address;
    let mut word = [0; 8];
    word[..width].copy_from_slice(theirs.get(target, width));
    let found = u64::from_le_bytes(word);
    let [a, b, c, d] = request.values;
    let new = match request.verb {
        Verb::FetchAdd => found.wrapping_add(a),
        Verb::MaskedFetchAdd4 | Verb::MaskedFetchAdd8 => add_fields(found, a, b),
        Verb::CompareSwap if found == a => b,
        Verb::MaskedCompareSwap4 | Verb::MaskedCompareSwap8 if found & c == a & c => {
            found & !d | b & d
        }
        _ => found,
    };
    theirs.set(target, &new.to_le_bytes()[..width]);
    ours.scatter(pieces, &found.to_le_bytes()[..width]);
}

/// Adds bit by bit; a 1 in `boundary` marks the top bit of a field, out of which nothing is carried.
fn add_fields(a: u64, b: u64, boundary: u64) -> u64 {
    let (mut sum, mut carry) = (0, 0);
    for bit in 0..64 {
        let total = (a >> bit & 1) + (b >> bit & 1) + carry;
        sum |= (total & 1) << bit;
        carry = if boundary >> bit & 1 == 1 {
            0
        } else {
            total >> 1
        };
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::add_fields;

    #[test]
    fn fields_do_not_carry_into_each_other() {
        assert_eq!(add_fields(0xffff_ffff, 1, 0), 0x1_0000_0000);
        assert_eq!(
            add_fields(0xffff_00ff, 0x0001_0001, 0x8000_8000),
            0x0000_0100
        );
        assert_eq!(add_fields(0xff, 0x81, 0x80), 0x80);
    }
}
