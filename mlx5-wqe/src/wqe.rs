//! Whole WQEs, built in registers.

use crate::doorbell::Doorbell;
use crate::flags::{ControlFlags, Fence};
use crate::opcode::{Opcode, modifier};
use crate::segment::{Control, RemoteAddress};
use crate::units::{Local, QpNumber, WqeBlock, WqeIndex};

/// The most basic blocks that one WQE may have (`MLX5_SEND_WQE_MAX_WQEBBS` in linux/mlx5/qp.h).
pub const MAX_WQE_BLOCKS: usize = 16;

/// A whole WQE that fits `BLOCKS` basic blocks of 64 bytes; its index and QPN are still open.
///
/// A WQE is a value: build it, set its flags by value, then [`place`](Self::place) it. Nothing here
/// can panic, and nothing of the one-block forms needs an array in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a WQE does nothing until it is placed and stored"]
pub struct Wqe<const BLOCKS: usize> {
    pub(crate) blocks: [WqeBlock; BLOCKS],
    pub(crate) payload: u64,
}

/// Why a WQE was not built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum BuildError {
    /// The list has more segments than the WQE's blocks have room for.
    #[error("{given} segments given, but the WQE has room for {limit}")]
    TooManySegments {
        /// Segments given.
        given: usize,
        /// Segments that fit.
        limit: usize,
    },
    /// A segment of the list has no bytes; the card would read 2^31.
    #[error("a segment of the list has length 0")]
    EmptySegment,
    /// A segment of the list is longer than [`Local::MAX_LENGTH`].
    #[error("a segment of {length} bytes is longer than {}", Local::MAX_LENGTH)]
    SegmentTooLong {
        /// Bytes given.
        length: u32,
    },
    /// The inline data do not fit the WQE's blocks.
    #[error("{length} bytes of inline data, but the WQE has room for {limit}")]
    InlineTooLong {
        /// Bytes given.
        length: usize,
        /// Bytes that fit.
        limit: usize,
    },
    /// There are no inline data.
    #[error("there are no inline data")]
    EmptyInline,
}

/// What every WQE has.
impl<const BLOCKS: usize> Wqe<BLOCKS> {
    /// Refuses, at compile time, a WQE of no block or of more than the card takes.
    pub(crate) const BLOCKS_ARE_SOUND: () = assert!(
        BLOCKS >= 1 && BLOCKS <= MAX_WQE_BLOCKS,
        "a WQE has 1 to 16 blocks"
    );

    /// Asks for a CQE when the WQE is done.
    #[inline(always)]
    pub const fn signalled(self) -> Self {
        self.with_flags(ControlFlags::empty(), ControlFlags::COMPLETION)
    }

    /// Asks for a CQE only on an error; takes [`signalled`](Self::signalled) back.
    #[inline(always)]
    pub const fn unsignalled(self) -> Self {
        self.with_flags(ControlFlags::COMPLETION, ControlFlags::empty())
    }

    /// Marks the receiver's completion as solicited.
    #[inline(always)]
    pub const fn solicited(self) -> Self {
        self.with_flags(ControlFlags::empty(), ControlFlags::SOLICITED)
    }

    /// Has the WQE wait for earlier ones; replaces a fence set before.
    ///
    /// ```
    /// # use mlx5_wqe::{Fence, Wqe};
    /// let wqe = Wqe::nop().fenced(Fence::SmallAndFence);
    /// assert_eq!(wqe.control().fm_ce_se.bits(), 0x80);
    /// ```
    #[inline(always)]
    pub const fn fenced(self, fence: Fence) -> Self {
        self.with_flags(ControlFlags::FENCE_FIELD, fence.flags())
    }

    /// Takes some flags back, then sets others; in one register, for the post path.
    #[inline(always)]
    const fn with_flags(mut self, without: ControlFlags, with: ControlFlags) -> Self {
        const { Self::BLOCKS_ARE_SOUND };
        let word = &mut self.blocks[0][0].0[1];
        *word = *word & !flags_word(without) | flags_word(with);
        self
    }

    /// The control segment, index and QPN still 0.
    #[inline(always)]
    pub const fn control(&self) -> Control {
        const { Self::BLOCKS_ARE_SOUND };
        Control::from_octoword(self.blocks[0][0])
    }

    /// What the WQE asks for.
    #[inline(always)]
    pub const fn opcode(&self) -> Opcode {
        self.control().opcode()
    }

    /// Size in octowords, the control segment included.
    #[inline(always)]
    pub const fn ds(&self) -> u8 {
        self.control().ds()
    }

    /// Basic blocks that the WQE takes in the ring: 1 to `BLOCKS`.
    #[inline(always)]
    pub const fn blocks(&self) -> u16 {
        self.control().blocks() as u16
    }

    /// True when the WQE leaves a CQE even if it succeeds.
    #[inline(always)]
    pub const fn is_signalled(&self) -> bool {
        self.control().fm_ce_se.is_signalled()
    }

    /// Bytes that the data segments or the inline data carry, all told.
    ///
    /// Where a one-segment form was given a length of 0 this is 0, although the card would read
    /// 2^31: whoever posts the WQE refuses it.
    #[inline(always)]
    pub const fn payload(&self) -> u64 {
        self.payload
    }

    /// Whether data segments or inline data follow the segments that the opcode itself wants.
    ///
    /// With [`payload`](Self::payload) it tells a form that carries none from one that was given an
    /// empty segment.
    #[inline(always)]
    pub const fn carries_data(&self) -> bool {
        let header = match self.opcode() {
            Opcode::SEND | Opcode::SEND_IMMEDIATE | Opcode::SEND_INVALIDATE => 1,
            Opcode::RDMA_WRITE | Opcode::RDMA_WRITE_IMMEDIATE | Opcode::RDMA_READ => 2,
            Opcode::ATOMIC_COMPARE_SWAP
            | Opcode::ATOMIC_FETCH_ADD
            | Opcode::MASKED_COMPARE_SWAP
            | Opcode::MASKED_FETCH_ADD => 3,
            _ => return false,
        };
        self.ds() > header
    }

    /// Where an atomic works in the other end's memory: address, and size in bytes (4 or 8), of
    /// which the address must be a multiple. `None` for anything else.
    #[inline(always)]
    pub const fn atomic_target(&self) -> Option<(u64, u32)> {
        let size = match self.opcode() {
            Opcode::ATOMIC_COMPARE_SWAP | Opcode::ATOMIC_FETCH_ADD => 8,
            Opcode::MASKED_COMPARE_SWAP | Opcode::MASKED_FETCH_ADD => {
                if self.control().modifier() == modifier::ATOMIC_4_BYTES {
                    4
                } else {
                    8
                }
            }
            _ => return None,
        };
        let remote = RemoteAddress::from_octoword(self.blocks[0][1]).remote();
        Some((remote.address, size))
    }

    /// The WQE's bytes for the ring, with the index of its first block and the QPN filled in.
    ///
    /// Only the first [`blocks`](Self::blocks) of them are the WQE; the rest are zero.
    ///
    /// ```
    /// # use mlx5_wqe::{QpNumber, Wqe, WqeIndex};
    /// let qpn = QpNumber::new(0x12_3456).unwrap();
    /// let [block] = Wqe::nop().place(WqeIndex(0x789a), qpn);
    /// assert_eq!(block[0].to_bytes()[..8], [0, 0x78, 0x9a, 0, 0x12, 0x34, 0x56, 1]);
    /// ```
    #[inline(always)]
    pub const fn place(self, index: WqeIndex, qpn: QpNumber) -> [WqeBlock; BLOCKS] {
        const { Self::BLOCKS_ARE_SOUND };
        let mut blocks = self.blocks;
        // Index and QPN stand where a doorbell has them.
        blocks[0][0].0[0] |= Doorbell::of_producer(index, qpn).0;
        blocks
    }
}

/// Flags where the control segment's second 8 bytes have them: in byte 11 of 16.
#[inline(always)]
const fn flags_word(flags: ControlFlags) -> u64 {
    ((flags.bits() as u64) << 32).to_be()
}

/// The first 8 bytes of a placed WQE, as they lie in memory: the doorbell.
#[inline(always)]
pub const fn first_word<const BLOCKS: usize>(blocks: &[WqeBlock; BLOCKS]) -> u64 {
    const { Wqe::<BLOCKS>::BLOCKS_ARE_SOUND };
    blocks[0][0].0[0]
}
