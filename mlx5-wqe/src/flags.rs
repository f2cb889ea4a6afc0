//! `fm_ce_se`: how a WQE is ordered, whether it completes, and whether the receiver is woken.

use bitflags::bitflags;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Byte 11 of the control segment: fence mode in bits 7:5, completion in 3:2, solicited in 1.
///
/// Source: `MLX5_WQE_CTRL_*` in mlx5dv.h, `MLX5_FENCE_MODE_*` in linux/mlx5/qp.h, completion modes
/// in DPDK's mlx5_prm.h. Fence and completion are fields of several bits, not independent flags.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(transparent)]
pub struct ControlFlags(u8);

bitflags! {
    impl ControlFlags: u8 {
        /// The receiver's completion counts as solicited and may wake it.
        const SOLICITED = 0x02;
        /// A CQE for the first error only.
        const COMPLETION_ON_FIRST_ERROR = 0x04;
        /// A CQE in any case (`CQ_UPDATE`).
        const COMPLETION = 0x08;
        /// A CQE, and an event.
        const COMPLETION_AND_EVENT = 0x0c;
        /// Both bits of the completion field.
        const COMPLETION_FIELD = 0x0c;
        /// [`Fence::InitiatorSmall`].
        const FENCE_INITIATOR_SMALL = 0x20;
        /// [`Fence::Fence`].
        const FENCE_READS_AND_ATOMICS = 0x40;
        /// [`Fence::StrongOrdering`].
        const FENCE_STRONG_ORDERING = 0x60;
        /// [`Fence::SmallAndFence`].
        const FENCE_SMALL_AND_FENCE = 0x80;
        /// All three bits of the fence field.
        const FENCE_FIELD = 0xe0;
    }
}

impl ControlFlags {
    /// True when the WQE leaves a CQE even if it succeeds.
    #[inline(always)]
    pub const fn is_signalled(self) -> bool {
        self.0 & Self::COMPLETION.0 != 0
    }

    /// The fence field, or `None` for a value that has no name.
    #[inline(always)]
    pub const fn fence(self) -> Option<Fence> {
        match self.0 >> 5 {
            0 => Some(Fence::None),
            1 => Some(Fence::InitiatorSmall),
            2 => Some(Fence::Fence),
            3 => Some(Fence::StrongOrdering),
            4 => Some(Fence::SmallAndFence),
            _ => None,
        }
    }
}

/// What a WQE waits for before it starts (`MLX5_FENCE_MODE_*` in linux/mlx5/qp.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Fence {
    /// Nothing.
    #[default]
    None = 0,
    /// Earlier small operations of the initiator (memory registration, invalidation).
    InitiatorSmall = 1,
    /// Earlier reads and atomics of this queue.
    Fence = 2,
    /// Every earlier WQE of this queue.
    StrongOrdering = 3,
    /// `InitiatorSmall` and `Fence` together: what verbs' `IBV_SEND_FENCE` sets.
    SmallAndFence = 4,
}

impl Fence {
    /// The fence in its place in `fm_ce_se`.
    #[inline(always)]
    pub const fn flags(self) -> ControlFlags {
        ControlFlags((self as u8) << 5)
    }
}
