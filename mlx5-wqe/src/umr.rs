//! User-mode memory registration: a WQE that rewrites an mkey.
//!
//! A UMR WQE is control, [`UmrControl`] (48 B), [`MkeyContext`] (64 B), then [`Klm`]s of 16 bytes,
//! padded to 64. Source: `mlx5_wqe_umr_ctrl_seg`, `mlx5_wqe_mkey_context_seg` and
//! `mlx5_wqe_umr_klm_seg` in mlx5dv.h, `mlx5_wqe_umr_ctrl_seg` and `mlx5_mkey_seg` in
//! linux/mlx5/{qp,device}.h.

use bitflags::bitflags;
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::layout::assert_layout;
use crate::units::Octoword;

bitflags! {
    /// `flags` of the UMR control segment (`MLX5_WQE_UMR_CTRL_FLAG_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct UmrFlags: u8 {
        /// The mkey must belong to this queue pair.
        const CHECK_QPN = 1 << 3;
        /// `translation_offset` counts.
        const TRANSLATION_OFFSET = 1 << 4;
        /// The mkey must be free.
        const CHECK_FREE = 1 << 5;
        /// The KLMs are in the WQE.
        const INLINE = 1 << 7;
    }

    /// Which fields of the mkey a UMR changes (`MLX5_WQE_UMR_CTRL_MKEY_MASK_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MkeyMask: u64 {
        /// Length.
        const LENGTH = 1 << 0;
        /// Start address.
        const START_ADDRESS = 1 << 6;
        /// Signature error count.
        const SIGNATURE_ERROR = 1 << 9;
        /// Byte stream format enabled.
        const BSF_ENABLE = 1 << 12;
        /// The key's variant byte.
        const MKEY = 1 << 13;
        /// Queue pair.
        const QPN = 1 << 14;
        /// Local write.
        const ACCESS_LOCAL_WRITE = 1 << 18;
        /// Remote read.
        const ACCESS_REMOTE_READ = 1 << 19;
        /// Remote write.
        const ACCESS_REMOTE_WRITE = 1 << 20;
        /// Atomics.
        const ACCESS_ATOMIC = 1 << 21;
        /// Free state.
        const FREE = 1 << 29;
    }

    /// Access rights of an mkey (`MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_*`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MkeyAccess: u8 {
        /// Local read.
        const LOCAL_READ = 1 << 2;
        /// Local write.
        const LOCAL_WRITE = 1 << 3;
        /// Remote read.
        const REMOTE_READ = 1 << 4;
        /// Remote write.
        const REMOTE_WRITE = 1 << 5;
        /// Atomics.
        const ATOMIC = 1 << 6;
    }
}

/// Control segment of a UMR, after the WQE's own.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct UmrControl {
    /// [`UmrFlags`].
    pub flags: u8,
    /// Zero.
    pub reserved1: [u8; 3],
    /// Size of the KLMs in octowords.
    pub klm_octowords: U16,
    /// Offset of the translation in octowords, low 16 bits; or size of the byte stream format.
    pub translation_offset: U16,
    /// [`MkeyMask`].
    pub mkey_mask: U64,
    /// Offset of the translation, bits 47:16 (kernel's header only).
    pub translation_offset_high: U32,
    /// Zero.
    pub reserved20: [u8; 28],
}

assert_layout!(UmrControl, 48, {
    flags: 0, reserved1: 1, klm_octowords: 4, translation_offset: 6, mkey_mask: 8,
    translation_offset_high: 16, reserved20: 20,
});

/// The mkey's new context.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct MkeyContext {
    /// [`MkeyContext::FREE`] or 0.
    pub free: u8,
    /// PCIe control (kernel's header); else zero.
    pub pcie_control: u8,
    /// [`MkeyAccess`].
    pub access_flags: u8,
    /// Small fence, or version.
    pub sf: u8,
    /// QPN in bits 31:8 (all ones: any), the key's variant in 7:0.
    pub qpn_mkey: U32,
    /// Zero.
    pub reserved8: [u8; 4],
    /// Flags in bits 31:24, protection domain in 23:0.
    pub flags_pd: U32,
    /// First address.
    pub start_address: U64,
    /// Length in bytes.
    pub length: U64,
    /// Size of the byte stream format in octowords.
    pub bsf_octowords: U32,
    /// Zero.
    pub reserved36: [u8; 16],
    /// Size of the translation in octowords.
    pub translation_octowords: U32,
    /// Zero.
    pub reserved56: [u8; 3],
    /// Logarithm of the page size.
    pub log_page_size: u8,
    /// Zero.
    pub reserved60: [u8; 4],
}

assert_layout!(MkeyContext, 64, {
    free: 0, pcie_control: 1, access_flags: 2, sf: 3, qpn_mkey: 4, reserved8: 8, flags_pd: 12,
    start_address: 16, length: 24, bsf_octowords: 32, reserved36: 36, translation_octowords: 52,
    reserved56: 56, log_page_size: 59, reserved60: 60,
});

impl MkeyContext {
    /// `free` of a key that may not be used (`MLX5_WQE_MKEY_CONTEXT_FREE`).
    pub const FREE: u8 = 1 << 6;

    /// The context as it is stored.
    pub const fn to_octowords(self) -> [Octoword; 4] {
        zerocopy::transmute!(self)
    }
}

impl UmrControl {
    /// The segment as it is stored.
    pub const fn to_octowords(self) -> [Octoword; 3] {
        zerocopy::transmute!(self)
    }
}

/// One piece of memory in an mkey's translation.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct Klm {
    /// Bytes, up to 2 GiB.
    pub byte_count: U32,
    /// Key of the region beneath.
    pub mkey: U32,
    /// First address.
    pub address: U64,
}

assert_layout!(Klm, 16, { byte_count: 0, mkey: 4, address: 8 });

impl Klm {
    /// The piece as it is stored.
    pub const fn to_octoword(self) -> Octoword {
        zerocopy::transmute!(self)
    }
}
