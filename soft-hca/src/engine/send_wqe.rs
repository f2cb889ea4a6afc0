//! A send WQE as its completion needs it, and how it fails.

use mlx5_wqe::{ControlFlags, Opcode, Syndrome, VendorCode};

/// An error of a WQE.
pub(super) type Failure = (Syndrome, VendorCode);

/// What becomes of the WQEs after a failed one.
pub(super) const FLUSH: Failure = (Syndrome::FLUSHED, VendorCode::FLUSHED);

/// A send WQE as its completion needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SendWqe {
    pub(super) index: u16,
    pub(super) blocks: u8,
    pub(super) opcode: Opcode,
    pub(super) flags: ControlFlags,
    /// Bytes of the message.
    pub(super) length: u32,
}

impl SendWqe {
    /// A WQE of which nothing is known yet.
    pub(super) const fn unread(index: u16) -> Self {
        Self {
            index,
            blocks: 1,
            opcode: Opcode::NOP,
            flags: ControlFlags::empty(),
            length: 0,
        }
    }
}

/// Bytes that the longest WQE takes in the ring.
pub(super) const SCRATCH: usize = 16 * mlx5_wqe::decode::BLOCK;
