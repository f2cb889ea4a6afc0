//! User-mode memory registration: a WQE that rewrites an mkey.
//!
//! A UMR WQE is control, [`UmrControl`] (48 B), [`MkeyContext`] (64 B), then [`Klm`]s of 16 bytes,
//! padded to 64. Source: `mlx5_wqe_umr_ctrl_seg`, `mlx5_wqe_mkey_context_seg` and
//! `mlx5_wqe_umr_klm_seg` in mlx5dv.h, `mlx5_wqe_umr_ctrl_seg` and `mlx5_mkey_seg` in
//! linux/mlx5/{qp,device}.h.

use bitflags::bitflags;
use zerocopy::big_endian::{U16, U32, U64};

use crate::layout::layouts;

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

layouts! {
    /// Control segment of a UMR, after the WQE's own.
    octowords UmrControl = "`mlx5_wqe_umr_ctrl_seg` in mlx5dv.h", 48 {
        /// [`UmrFlags`].
        flags: u8 = 0;
        /// Zero.
        reserved1: [u8; 3] = 1;
        /// Size of the KLMs in octowords.
        klm_octowords: U16 = 4;
        /// Offset of the translation in octowords, low 16 bits; or size of the byte stream format.
        translation_offset: U16 = 6;
        /// [`MkeyMask`].
        mkey_mask: U64 = 8;
        /// Offset of the translation, bits 47:16 (kernel's header only).
        translation_offset_high: U32 = 16;
        /// Zero.
        reserved20: [u8; 28] = 20;
    }

    /// The mkey's new context.
    octowords MkeyContext = "`mlx5_wqe_mkey_context_seg` in mlx5dv.h", 64 {
        /// [`MkeyContext::FREE`] or 0.
        free: u8 = 0;
        /// PCIe control (kernel's header); else zero.
        pcie_control: u8 = 1;
        /// [`MkeyAccess`].
        access_flags: u8 = 2;
        /// Small fence, or version.
        sf: u8 = 3;
        /// QPN in bits 31:8 (all ones: any), the key's variant in 7:0.
        qpn_mkey: U32 = 4;
        /// Zero.
        reserved8: [u8; 4] = 8;
        /// Flags in bits 31:24, protection domain in 23:0.
        flags_pd: U32 = 12;
        /// First address.
        start_address: U64 = 16;
        /// Length in bytes.
        length: U64 = 24;
        /// Size of the byte stream format in octowords.
        bsf_octowords: U32 = 32;
        /// Zero.
        reserved36: [u8; 16] = 36;
        /// Size of the translation in octowords.
        translation_octowords: U32 = 52;
        /// Zero.
        reserved56: [u8; 3] = 56;
        /// Logarithm of the page size.
        log_page_size: u8 = 59;
        /// Zero.
        reserved60: [u8; 4] = 60;
    }

    /// One piece of memory in an mkey's translation.
    octoword Klm = "`mlx5_wqe_umr_klm_seg` in mlx5dv.h", 16 {
        /// Bytes, up to 2 GiB.
        byte_count: U32 = 0;
        /// Key of the region beneath.
        mkey: U32 = 4;
        /// First address.
        address: U64 = 8;
    }
}

impl MkeyContext {
    /// `free` of a key that may not be used (`MLX5_WQE_MKEY_CONTEXT_FREE`).
    pub const FREE: u8 = 1 << 6;
}
