//! The 16-byte segments of a send WQE, as they lie in memory.
//!
//! Sources: `infiniband/mlx5dv.h` for control, remote address, data, inline and atomic segments;
//! NVSHMEM's `ibgda_device.cuh` and NVIDIA's gpunetio for the masked atomics; DPDK's `mlx5_prm.h`
//! and gpunetio for wait and enable.
//!
//! Every integer is big-endian, and every structure may lie at any address, so that a ring's bytes
//! can be looked at in place wherever they came from.

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::flags::ControlFlags;
use crate::layout::assert_layout;
use crate::opcode::Opcode;
use crate::units::{
    CqNumber, Immediate, Local, LocalKey, Octoword, QpNumber, Remote, RemoteKey, WqeIndex,
};
use crate::wqe::BuildError;

/// Gives a 16-byte segment its passage to and from [`Octoword`].
macro_rules! octoword_segment {
    ($($segment:ty),*) => {
        $(impl $segment {
            /// The segment as it is stored.
            #[inline(always)]
            pub const fn to_octoword(self) -> Octoword {
                zerocopy::transmute!(self)
            }

            /// The segment that 16 stored bytes are.
            #[inline(always)]
            pub const fn from_octoword(octoword: Octoword) -> Self {
                zerocopy::transmute!(octoword)
            }
        })*
    };
}

/// Control segment: the first 16 bytes of every send WQE (`mlx5_wqe_ctrl_seg`).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Control {
    /// Opcode modifier in bits 31:24, WQE index in 23:8, opcode in 7:0.
    pub opmod_idx_opcode: U32,
    /// QPN in bits 31:8, size of the WQE in octowords in 5:0.
    pub qpn_ds: U32,
    /// Signature, where the queue has signatures on; else 0.
    pub signature: u8,
    /// Stream of a DC initiator; else 0.
    pub dci_stream: U16,
    /// Fence, completion and solicited.
    pub fm_ce_se: ControlFlags,
    /// Immediate, remote key to invalidate, or mkey of a UMR, by opcode.
    pub immediate: U32,
}

assert_layout!(Control, 16, {
    opmod_idx_opcode: 0, qpn_ds: 4, signature: 8, dci_stream: 9, fm_ce_se: 11, immediate: 12,
});

impl Control {
    /// The bits of `qpn_ds` that count octowords (`MLX5_WQE_CTRL_DS_MASK`).
    pub const DS_MASK: u32 = 0x3f;

    /// A control segment whose index and QPN are still 0. `ds` counts octowords, this one included.
    #[inline(always)]
    pub const fn new(opcode: Opcode, modifier: u8, ds: u8, immediate: u32) -> Self {
        Self {
            opmod_idx_opcode: U32::new((modifier as u32) << 24 | opcode.0 as u32),
            qpn_ds: U32::new(ds as u32 & Self::DS_MASK),
            signature: 0,
            dci_stream: U16::new(0),
            fm_ce_se: ControlFlags::empty(),
            immediate: U32::new(immediate),
        }
    }

    /// What the WQE asks for.
    #[inline(always)]
    pub const fn opcode(self) -> Opcode {
        Opcode(self.opmod_idx_opcode.get() as u8)
    }

    /// The opcode's modifier.
    #[inline(always)]
    pub const fn modifier(self) -> u8 {
        (self.opmod_idx_opcode.get() >> 24) as u8
    }

    /// The WQE's index: its first block.
    #[inline(always)]
    pub const fn index(self) -> WqeIndex {
        WqeIndex((self.opmod_idx_opcode.get() >> 8) as u16)
    }

    /// The queue pair that the WQE was posted to.
    #[inline(always)]
    pub const fn qpn(self) -> QpNumber {
        QpNumber::from_low_bits(self.qpn_ds.get() >> 8)
    }

    /// Size of the WQE in octowords, 0 to 63; a true WQE has at least 1.
    #[inline(always)]
    pub const fn ds(self) -> u8 {
        (self.qpn_ds.get() & Self::DS_MASK) as u8
    }

    /// Size of the WQE in basic blocks.
    #[inline(always)]
    pub const fn blocks(self) -> u8 {
        self.ds().div_ceil(4)
    }

    /// The immediate, for the opcodes that carry one.
    #[inline(always)]
    pub const fn immediate(self) -> Immediate {
        Immediate(self.immediate.get())
    }

    /// The remote key to invalidate, for SEND_INVAL.
    #[inline(always)]
    pub const fn invalidated_key(self) -> RemoteKey {
        RemoteKey(self.immediate.get())
    }
}

/// Remote address segment (`mlx5_wqe_raddr_seg`).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RemoteAddress {
    /// Address at the other end.
    pub address: U64,
    /// Key at the other end.
    pub key: U32,
    /// Zero.
    pub reserved: U32,
}

assert_layout!(RemoteAddress, 16, { address: 0, key: 8, reserved: 12 });

impl RemoteAddress {
    /// The segment for `remote`.
    #[inline(always)]
    pub const fn new(remote: Remote) -> Self {
        Self {
            address: U64::new(remote.address),
            key: U32::new(remote.key.0),
            reserved: U32::new(0),
        }
    }

    /// The memory that the segment names.
    #[inline(always)]
    pub const fn remote(self) -> Remote {
        Remote {
            address: self.address.get(),
            key: RemoteKey(self.key.get()),
        }
    }
}

/// Data segment: one entry of a scatter/gather list (`mlx5_wqe_data_seg`).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Data {
    /// Bytes in bits 30:0, 0 meaning 2^31; bit 31 marks inline data instead.
    pub byte_count: U32,
    /// Local key.
    pub key: U32,
    /// Local address.
    pub address: U64,
}

assert_layout!(Data, 16, { byte_count: 0, key: 4, address: 8 });

impl Data {
    /// The entry that ends a list shorter than its queue's maximum (receive side).
    pub const LIST_END: Self = Self::new(Local {
        address: 0,
        length: 0,
        key: LocalKey::LIST_END,
    });

    /// The segment for `local`.
    #[inline(always)]
    pub const fn new(local: Local) -> Self {
        Self {
            byte_count: U32::new(local.length),
            key: U32::new(local.key.0),
            address: U64::new(local.address),
        }
    }

    /// Whether memory may be an entry of a list, which the card must not read as 2^31 bytes or as inline
    /// data.
    #[inline]
    pub(crate) const fn check_listed(local: Local) -> Result<(), BuildError> {
        match local.length {
            0 => Err(BuildError::EmptySegment),
            1..=Local::MAX_LENGTH => Ok(()),
            length => Err(BuildError::SegmentTooLong { length }),
        }
    }

    /// The memory that the segment names, with the length field as it stands.
    #[inline(always)]
    pub const fn local(self) -> Local {
        Local {
            address: self.address.get(),
            length: self.byte_count.get(),
            key: LocalKey(self.key.get()),
        }
    }

    /// True when this is the end of a list, not memory.
    #[inline(always)]
    pub const fn is_list_end(self) -> bool {
        self.byte_count.get() == 0 && self.key.get() == LocalKey::LIST_END.0
    }

    /// True when the first word is an [`InlineHeader`].
    #[inline(always)]
    pub const fn is_inline(self) -> bool {
        self.byte_count.get() & InlineHeader::MARK != 0
    }
}

/// The word before inline data (`mlx5_wqe_inl_data_seg`); the bytes follow at once, and header and
/// bytes together are padded to 16.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct InlineHeader {
    /// [`InlineHeader::MARK`] and the length in bytes.
    pub byte_count: U32,
}

assert_layout!(InlineHeader, 4, { byte_count: 0 });

impl InlineHeader {
    /// Bit 31: inline data follows (`MLX5_INLINE_SEG`).
    pub const MARK: u32 = 0x8000_0000;
    /// The bits that hold the length (`MLX5_WQE_INLINE_SEG_BYTE_COUNT_MASK` in linux/mlx5/qp.h).
    pub const LENGTH_MASK: u32 = 0x3ff;

    /// The header for `length` bytes, at most 1,023.
    #[inline(always)]
    pub const fn new(length: u32) -> Self {
        Self {
            byte_count: U32::new(Self::MARK | length & Self::LENGTH_MASK),
        }
    }

    /// Length of the inline data in bytes.
    #[inline(always)]
    pub const fn length(self) -> u32 {
        self.byte_count.get() & Self::LENGTH_MASK
    }
}

/// Atomic segment of 8-byte operations (`mlx5_wqe_atomic_seg`).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Atomic {
    /// What to swap in, or what to add.
    pub swap_add: U64,
    /// What to compare with.
    pub compare: U64,
}

assert_layout!(Atomic, 16, { swap_add: 0, compare: 8 });

/// Both segments of a masked 8-byte compare-and-swap (`mlx5_wqe_masked_atomic_seg` in
/// linux/mlx5/qp.h).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct MaskedCompareSwap8 {
    /// What to swap in.
    pub swap: U64,
    /// What to compare with.
    pub compare: U64,
    /// The bits that are swapped.
    pub swap_mask: U64,
    /// The bits that are compared.
    pub compare_mask: U64,
}

assert_layout!(MaskedCompareSwap8, 32, { swap: 0, compare: 8, swap_mask: 16, compare_mask: 24 });

impl MaskedCompareSwap8 {
    /// Both segments as they are stored: the values, then their masks.
    #[inline(always)]
    pub const fn to_octowords(self) -> [Octoword; 2] {
        zerocopy::transmute!(self)
    }
}

/// Segment of a masked 4-byte compare-and-swap (NVSHMEM, gpunetio).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct MaskedCompareSwap4 {
    /// What to swap in.
    pub swap: U32,
    /// What to compare with.
    pub compare: U32,
    /// The bits that are swapped.
    pub swap_mask: U32,
    /// The bits that are compared.
    pub compare_mask: U32,
}

assert_layout!(MaskedCompareSwap4, 16, { swap: 0, compare: 4, swap_mask: 8, compare_mask: 12 });

/// Segment of a masked 8-byte fetch-and-add (NVSHMEM, gpunetio).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct MaskedFetchAdd8 {
    /// What to add.
    pub add: U64,
    /// A 1 marks the top bit of a field: its carry goes nowhere.
    pub field_boundary: U64,
}

assert_layout!(MaskedFetchAdd8, 16, { add: 0, field_boundary: 8 });

/// Segment of a masked 4-byte fetch-and-add (NVSHMEM, gpunetio).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct MaskedFetchAdd4 {
    /// What to add.
    pub add: U32,
    /// A 1 marks the top bit of a field: its carry goes nowhere.
    pub field_boundary: U32,
    /// Zero.
    pub reserved: U64,
}

assert_layout!(MaskedFetchAdd4, 16, { add: 0, field_boundary: 4, reserved: 8 });

/// Segment of WAIT, RECV_EN and SEND_EN (DPDK, gpunetio).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Wait {
    /// Zero.
    pub reserved: U64,
    /// The number of the CQE waited for, or the index of the block up to which the other queue may run.
    pub index: U32,
    /// The queue: a CQN for WAIT, a QPN for the other two.
    pub queue: U32,
}

assert_layout!(Wait, 16, { reserved: 0, index: 8, queue: 12 });

impl Wait {
    /// Waits until completion queue `queue` has the CQE number `index`, from 0.
    #[inline(always)]
    pub const fn completion(queue: CqNumber, index: u32) -> Self {
        Self {
            reserved: U64::new(0),
            index: U32::new(index),
            queue: U32::new(queue.get()),
        }
    }

    /// Lets queue pair `queue` run up to `index`.
    #[inline(always)]
    pub const fn enable(queue: QpNumber, index: u32) -> Self {
        Self {
            reserved: U64::new(0),
            index: U32::new(index),
            queue: U32::new(queue.get()),
        }
    }
}

octoword_segment!(
    Control,
    RemoteAddress,
    Data,
    Atomic,
    MaskedCompareSwap4,
    MaskedFetchAdd4,
    MaskedFetchAdd8,
    Wait
);
