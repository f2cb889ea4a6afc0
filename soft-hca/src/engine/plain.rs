//! Plain writes: one packet, one data segment or inline data, one block of the ring.
//!
//! Whatever is not plain takes the ordinary way: other verbs, more than one packet or data segment, a key
//! that does not fit. So every error and every retry has one place in the code.

use mlx5_wqe::segment::{Control, InlineHeader};
use mlx5_wqe::{ControlFlags, Opcode, QpNumber, Remote, RemoteKey};

use super::memory::Memory;
use super::packet::Range;
use super::transfer::Ring;

/// A block of the send ring: control, remote address and data segment are two words each.
pub type BasicBlock = [u64; 8];

/// Where inline data begin in their block.
const INLINE_AT: u64 = 2 * 16 + size_of::<InlineHeader>() as u64;

/// What a block asks for. Numbers that are always there, and no `Option`: on a GPU, what is set in one of two branches
/// only keeps its registers from one write to the next.
#[derive(Clone, Copy, Debug)]
pub struct PlainWrite {
    /// Whether it is a plain write: of anything else the other fields say nothing.
    pub plain: bool,
    /// Whether it asks for a completion.
    pub signalled: bool,
    /// The data lie in the ring, and want no key.
    pub inline: bool,
    /// The key of data that lie elsewhere.
    pub key: u32,
    /// Where the data are.
    pub source: Range,
    /// Where they go.
    pub remote: Remote,
}

/// The block with this index.
#[inline(always)]
pub(super) fn block<M: Memory>(memory: &M, ring: Ring, index: u16) -> BasicBlock {
    // SAFETY: the owner vouched for the ring when the queue pair was created.
    unsafe { memory.read_block(ring.block(index)) }
}

/// What a block asks for, as the one with this index of this queue pair.
#[inline(always)]
pub fn plain_write(
    block: &BasicBlock,
    index: u16,
    ring: Ring,
    number: QpNumber,
    mtu: u32,
) -> PlainWrite {
    let [
        first,
        second,
        remote_address,
        remote_key,
        data,
        data_address,
        ..,
    ] = block.map(u64::from_be);
    let (word, local_key) = ((data >> 32) as u32, data as u32);
    let inline = word & InlineHeader::MARK != 0;
    let length = word & !InlineHeader::MARK;
    let (address, octowords) = if inline {
        let bytes = size_of::<InlineHeader>() as u32 + length.min(mtu);
        let address = ring.block(index) + INLINE_AT;
        (address, 2 + bytes.div_ceil(16))
    } else {
        (data_address, 3)
    };
    // Modifier 0, index, opcode; number and size, with nothing in the bits between.
    let expected = [
        u32::from(index) << 8 | u32::from(Opcode::RDMA_WRITE.0),
        number.get() << 8 | octowords & Control::DS_MASK,
    ];
    let flags = ControlFlags::from_bits_retain((second >> 32) as u8);
    // A WQE of 3 or 4 octowords lies in one block, all of which was read.
    let plain = [(first >> 32) as u32, first as u32] == expected
        && octowords <= 4
        && length.wrapping_sub(1) < mtu
        && flags.fence().is_some();
    PlainWrite {
        plain,
        signalled: plain && flags.is_signalled(),
        inline,
        key: local_key,
        source: Range {
            address,
            length: length.into(),
        },
        remote: Remote {
            address: remote_address,
            key: RemoteKey((remote_key >> 32) as u32),
        },
    }
}
