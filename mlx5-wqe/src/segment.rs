//! The segments of a send WQE, as they lie in memory.
//!
//! Sources: `infiniband/mlx5dv.h`, NVSHMEM's `ibgda_device.cuh`, DPDK's `mlx5_prm.h`, and NVIDIA's gpunetio.

use zerocopy::big_endian::{U16, U32, U64};

use crate::flags::ControlFlags;
use crate::layout::layouts;
use crate::opcode::Opcode;
use crate::units::{CqNumber, Immediate, Local, LocalKey, QpNumber, Remote, RemoteKey, WqeIndex};
use crate::wqe::BuildError;

layouts! {
    /// Control segment: the first 16 bytes of every send WQE.
    octoword Control = "`mlx5_wqe_ctrl_seg` in mlx5dv.h", 16 {
        /// Opcode modifier in bits 31:24, WQE index in 23:8, opcode in 7:0.
        opmod_idx_opcode: U32 = 0;
        /// QPN in bits 31:8, size of the WQE in octowords in 5:0.
        qpn_ds: U32 = 4;
        /// Signature, where the queue has signatures on; else 0.
        signature: u8 = 8;
        /// Stream of a DC initiator; else 0.
        dci_stream: U16 = 9;
        /// Fence, completion and solicited.
        fm_ce_se: ControlFlags = 11;
        /// Immediate, remote key to invalidate, or mkey of a UMR, by opcode.
        immediate: U32 = 12;
    }
}

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

layouts! {
    /// Remote address segment.
    octoword RemoteAddress = "`mlx5_wqe_raddr_seg` in mlx5dv.h", 16 {
        /// Address at the other end.
        address: U64 = 0;
        /// Key at the other end.
        key: U32 = 8;
        /// Zero.
        reserved: U32 = 12;
    }
}

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

layouts! {
    /// Data segment: one entry of a scatter/gather list.
    octoword Data = "`mlx5_wqe_data_seg` in mlx5dv.h", 16 {
        /// Bytes in bits 30:0, 0 meaning 2^31; bit 31 marks inline data instead.
        byte_count: U32 = 0;
        /// Local key.
        key: U32 = 4;
        /// Local address.
        address: U64 = 8;
    }
}

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

layouts! {
    /// The word before inline data; the bytes follow at once, and header and
    /// bytes together are padded to 16.
    plain InlineHeader = "`mlx5_wqe_inl_data_seg` in mlx5dv.h", 4 {
        /// [`InlineHeader::MARK`] and the length in bytes.
        byte_count: U32 = 0;
    }
}

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

layouts! {
    /// Atomic segment of 8-byte operations.
    octoword Atomic = "`mlx5_wqe_atomic_seg` in mlx5dv.h", 16 {
        /// What to swap in, or what to add.
        swap_add: U64 = 0;
        /// What to compare with.
        compare: U64 = 8;
    }

    /// Both segments of a masked 8-byte compare-and-swap.
    octowords MaskedCompareSwap8 = "`mlx5_wqe_masked_atomic_seg` in linux/mlx5/qp.h", 32 {
        /// What to swap in.
        swap: U64 = 0;
        /// What to compare with.
        compare: U64 = 8;
        /// The bits that are swapped.
        swap_mask: U64 = 16;
        /// The bits that are compared.
        compare_mask: U64 = 24;
    }

    /// Segment of a masked 4-byte compare-and-swap.
    octoword MaskedCompareSwap4 = "NVSHMEM and gpunetio", 16 {
        /// What to swap in.
        swap: U32 = 0;
        /// What to compare with.
        compare: U32 = 4;
        /// The bits that are swapped.
        swap_mask: U32 = 8;
        /// The bits that are compared.
        compare_mask: U32 = 12;
    }

    /// Segment of a masked 8-byte fetch-and-add.
    octoword MaskedFetchAdd8 = "NVSHMEM and gpunetio", 16 {
        /// What to add.
        add: U64 = 0;
        /// A 1 marks the top bit of a field: its carry goes nowhere.
        field_boundary: U64 = 8;
    }

    /// Segment of a masked 4-byte fetch-and-add.
    octoword MaskedFetchAdd4 = "NVSHMEM and gpunetio", 16 {
        /// What to add.
        add: U32 = 0;
        /// A 1 marks the top bit of a field: its carry goes nowhere.
        field_boundary: U32 = 4;
        /// Zero.
        reserved: U64 = 8;
    }

    /// Segment of WAIT, RECV_EN and SEND_EN.
    octoword Wait = "DPDK and gpunetio", 16 {
        /// Zero.
        reserved: U64 = 0;
        /// The number of the CQE waited for, or the index of the block up to which the other queue may run.
        index: U32 = 8;
        /// The queue: a CQN for WAIT, a QPN for the other two.
        queue: U32 = 12;
    }
}

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
