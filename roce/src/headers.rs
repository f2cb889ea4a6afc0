//! The headers, as they lie in a packet.

use zerocopy::big_endian::{U16, U32, U64};

use crate::opcode::BthOpcode;
use crate::syndrome::AethSyndrome;
use crate::units::{Msn, Psn, Qpn};

/// Declares headers: the section of IBTA volume 1, the size in bytes, and the offset of each field in bytes. Size and
/// offsets are asserted at compile time.
macro_rules! headers {
    ($(
        $(#[$doc:meta])*
        $name:ident = $section:literal, $bytes:literal {
            $($(#[$field_doc:meta])* $field:ident: $type:ty = $offset:literal;)*
        }
    )*) => {$(
        $(#[$doc])*
        #[doc = concat!("\n\nIBTA volume 1, ", $section, "; ", $bytes, " bytes.")]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
        #[derive(zerocopy::KnownLayout, zerocopy::Unaligned)]
        #[repr(C)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        const _: () = {
            assert!(size_of::<$name>() == $bytes);
            $(assert!(core::mem::offset_of!($name, $field) == $offset);)*
        };
    )*};
}

headers! {
    /// Base transport header (BTH), the first of every packet.
    Bth = "9.2", 12 {
        /// What the packet is, and which headers follow.
        opcode: BthOpcode = 0;
        /// Solicited event in bit 7, MigReq in 6, pad count in 5:4, transport header version in 3:0.
        se_m_pad_tver: u8 = 1;
        /// The partition key (P_Key).
        partition_key: U16 = 2;
        /// FECN in bit 7, BECN in 6; the rest is reserved. The invariant CRC leaves this byte out.
        fecn_becn: u8 = 4;
        /// The queue pair that the packet goes to.
        destination_qp: Qpn = 5;
        /// AckReq in bit 7; the rest is reserved.
        ack_request: u8 = 8;
        /// The packet sequence number.
        psn: Psn = 9;
    }

    /// Datagram extended transport header (DETH).
    Deth = "9.3", 8 {
        /// The queue key (Q_Key).
        queue_key: U32 = 0;
        /// Reserved.
        reserved: u8 = 4;
        /// The queue pair that the packet comes from.
        source_qp: Qpn = 5;
    }

    /// RDMA extended transport header (RETH).
    Reth = "9.3", 16 {
        /// The remote virtual address.
        virtual_address: U64 = 0;
        /// The key of the remote memory (R_Key).
        remote_key: U32 = 8;
        /// The length of the whole operation in bytes (DMA length).
        length: U32 = 12;
    }

    /// ACK extended transport header (AETH).
    Aeth = "9.3", 4 {
        /// Acknowledgement, or the reason why there is none.
        syndrome: AethSyndrome = 0;
        /// The messages that the responder has completed.
        msn: Msn = 1;
    }

    /// Atomic extended transport header (AtomicETH): an operation on 8 bytes.
    AtomicEth = "9.3", 28 {
        /// The remote virtual address.
        virtual_address: U64 = 0;
        /// The key of the remote memory (R_Key).
        remote_key: U32 = 8;
        /// The value to store (CmpSwap) or to add (FetchAdd).
        swap_or_add: U64 = 12;
        /// The value to compare with (CmpSwap).
        compare: U64 = 20;
    }

    /// Atomic ACK extended transport header (AtomicAckETH).
    AtomicAckEth = "9.3", 8 {
        /// The value before the operation.
        original: U64 = 0;
    }

    /// Immediate data (ImmDt).
    ImmDt = "9.3", 4 {
        /// The 32 bits, which are the application's.
        data: U32 = 0;
    }

    /// Invalidate extended transport header (IETH).
    Ieth = "9.3", 4 {
        /// The key to invalidate (R_Key).
        remote_key: U32 = 0;
    }

    /// What follows the BTH of a congestion notification packet (CNP).
    CnpBody = "A17.9.3", 16 {
        /// Reserved, zero.
        reserved: [u8; 16] = 0;
    }
}

bitflags::bitflags! {
    /// The flags of a [`Bth`]. The bits are those of its bytes 1, 4 and 8.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct BthFlags: u32 {
        /// The completion at the responder is a solicited event (SE).
        const SOLICITED_EVENT = 0x80_00_00;
        /// The path's migration state is *migrated* (MigReq).
        const MIG_REQ = 0x40_00_00;
        /// Forward explicit congestion notification (FECN).
        const FECN = 0x80_00;
        /// Backward explicit congestion notification (BECN), set in a CNP.
        const BECN = 0x40_00;
        /// The requester wants an acknowledgement (AckReq).
        const ACK_REQUEST = 0x80;
    }
}

impl Bth {
    /// The default partition key, of full membership.
    pub const DEFAULT_PARTITION_KEY: u16 = 0xffff;

    /// A header of the default partition, without pad.
    #[inline]
    pub const fn new(opcode: BthOpcode, destination_qp: Qpn, psn: Psn, flags: BthFlags) -> Self {
        Self {
            opcode,
            se_m_pad_tver: (flags.bits() >> 16) as u8,
            partition_key: U16::new(Self::DEFAULT_PARTITION_KEY),
            fecn_becn: (flags.bits() >> 8) as u8,
            destination_qp,
            ack_request: flags.bits() as u8,
            psn,
        }
    }

    /// The flags.
    #[inline]
    pub const fn flags(&self) -> BthFlags {
        BthFlags::from_bits_truncate(
            (self.se_m_pad_tver as u32) << 16
                | (self.fecn_becn as u32) << 8
                | self.ack_request as u32,
        )
    }

    /// How many bytes fill the payload up to a multiple of 4: 0 to 3.
    #[inline]
    pub const fn pad_count(&self) -> usize {
        (self.se_m_pad_tver >> 4 & 3) as usize
    }

    /// The same header with the pad count that a payload of `length` bytes needs.
    #[inline]
    pub const fn padded_for(mut self, length: usize) -> Self {
        self.se_m_pad_tver = self.se_m_pad_tver & !0x30 | ((length.wrapping_neg() & 3) << 4) as u8;
        self
    }

    /// The version of the transport headers (TVer). There is only version 0.
    #[inline]
    pub const fn transport_version(&self) -> u8 {
        self.se_m_pad_tver & 0x0f
    }
}
