//! WQEs of receive queues, plain and shared.

use mlx5_wqe::SrqNext;

use super::fields::{Reader, fields, is_zero, torn, zeros};
use super::segments::{self, Listed, OCTOWORD, read};
use super::{Context, Structure};

/// The receives in these bytes, one a stride; those of a shared queue begin with a link.
pub(super) fn queue(bytes: &[u8], context: &Context, shared: bool) -> Vec<Structure> {
    let receives = bytes.chunks(context.stride).enumerate();
    let receives = receives.map(|(number, receive)| {
        let at = number * context.stride;
        if receive.len() < context.stride {
            return torn("receive WQE", context.stride, receive, at);
        }
        let index = context.index.unwrap_or(0).wrapping_add(number as u32) as u16;
        one(receive, at, context, index, shared)
    });
    receives.collect()
}

fn one(bytes: &[u8], base: usize, context: &Context, index: u16, shared: bool) -> Structure {
    let number = match context.index {
        Some(_) => format!("{index:#06x}"),
        None => format!("in place {index}"),
    };
    let mut reader = Reader::new(bytes, base);
    if is_zero(bytes) {
        reader.field(0, bytes.len(), None, "zeros", "never posted, or cleared");
        return reader.finish(format!("unused receive WQE {number}"), bytes.len());
    }
    let mut at = 0;
    if shared {
        let next: SrqNext = read(&reader, 0);
        zeros!(reader, 0, SrqNext { reserved0 });
        fields!(reader, 0, SrqNext {
            next_wqe_index "next WQE": format!("receive {} of the shared queue", next.next_wqe_index.get());
            signature "signature": if next.signature == 0 { "none" } else { "of a signed queue" };
        });
        zeros!(reader, 0, SrqNext { reserved5 });
        let size = context.log_size.map(|log| 1_u32 << log);
        if let Some(size) = size.filter(|size| u32::from(next.next_wqe_index.get()) >= *size) {
            reader.error(
                2,
                format!("the link leads out of the queue, which has {size} receives"),
            );
        }
        at = OCTOWORD;
    }
    let (mut length, mut segments) = (0_u64, 0);
    while at < bytes.len() {
        let (listed, next) = segments::data(&mut reader, at, bytes.len());
        match listed {
            Listed::Memory(bytes) => {
                length += bytes;
                segments += 1;
            }
            Listed::Inline(_) => reader.error(
                at,
                "inline data in a receive: bit 31 of the length has to be 0",
            ),
            Listed::End => {
                reader.field(
                    next,
                    bytes.len() - next,
                    None,
                    "rest",
                    "behind the list's end: not read",
                );
                at = bytes.len();
                continue;
            }
        }
        at = next;
    }
    if segments == 0 {
        reader.note(
            0,
            "the receive has no memory: it takes messages of 0 bytes alone",
        );
    }
    reader.finish(
        format!(
            "receive WQE {number}: {length} bytes in {segments} segment{}",
            if segments == 1 { "" } else { "s" }
        ),
        bytes.len(),
    )
}
