//! The address vector of datagram and DC WQEs.
//!
//! Source: `mlx5_wqe_av` in mlx5dv.h, `mlx5_av` in linux/mlx5/qp.h.

use zerocopy::big_endian::{U16, U32, U64};

use crate::layout::layouts;
use crate::units::QpNumber;

layouts! {
    /// Where a datagram goes: 48 bytes after the control segment; the first 16 alone when not extended.
    octowords AddressVector = "`mlx5_wqe_av` in mlx5dv.h", 48 {
        /// DC access key; or, of a UD queue, the Q_Key in bits 63:32.
        key: U64 = 0;
        /// Destination QPN or DCT number in bits 23:0, [`AddressVector::EXTENDED`] in bit 31.
        dqp_dct: U32 = 8;
        /// Static rate in bits 7:4, service level or Ethernet priority in 3:0.
        stat_rate_sl: u8 = 12;
        /// Force loopback in bit 7, source LID's low bits in 6:0.
        fl_mlid: u8 = 13;
        /// Remote LID, or the UDP source port (RoCE v2).
        rlid: U16 = 14;
        /// Zero.
        reserved16: [u8; 4] = 16;
        /// Remote MAC address (RoCE).
        rmac: [u8; 6] = 20;
        /// Traffic class.
        tclass: u8 = 26;
        /// Hop limit.
        hop_limit: u8 = 27;
        /// GRH present in bit 30, source GID's index in 27:20, flow label in 19:0.
        grh_gid_fl: U32 = 28;
        /// Remote GID.
        rgid: [u8; 16] = 32;
    }
}

impl AddressVector {
    /// Bit 31 of `dqp_dct`: all 48 bytes are there (`MLX5_EXTENDED_UD_AV`).
    pub const EXTENDED: u32 = 0x8000_0000;

    /// A vector to queue pair `qpn` under `qkey`, extended, its path still zero.
    #[inline]
    pub const fn datagram(qpn: QpNumber, qkey: u32) -> Self {
        Self {
            key: U64::new((qkey as u64) << 32),
            dqp_dct: U32::new(qpn.get() | Self::EXTENDED),
            stat_rate_sl: 0,
            fl_mlid: 0,
            rlid: U16::new(0),
            reserved16: [0; 4],
            rmac: [0; 6],
            tclass: 0,
            hop_limit: 0,
            grh_gid_fl: U32::new(0),
            rgid: [0; 16],
        }
    }

    /// The destination.
    #[inline]
    pub const fn qpn(self) -> QpNumber {
        QpNumber::from_low_bits(self.dqp_dct.get())
    }

    /// The Q_Key of a UD queue.
    #[inline]
    pub const fn qkey(self) -> u32 {
        (self.key.get() >> 32) as u32
    }

    /// True when all 48 bytes are there.
    #[inline]
    pub const fn is_extended(self) -> bool {
        self.dqp_dct.get() & Self::EXTENDED != 0
    }
}
