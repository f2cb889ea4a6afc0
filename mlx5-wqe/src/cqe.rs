//! The entries of a completion queue, as they lie in memory.
//!
//! Sources: `mlx5_cqe64` and `mlx5_err_cqe` in mlx5dv.h, `mlx5_mini_cqe8` in linux/mlx5/device.h;
//! the two hardware syndrome bytes are in gpunetio's and UCX's form of the error CQE.

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::layout::assert_layout;
use crate::opcode::{CqeOpcode, Opcode};
use crate::syndrome::{Syndrome, VendorCode};
use crate::units::{QpNumber, WqeIndex};

/// A CQE of 64 bytes (`mlx5_cqe64`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub struct Cqe64 {
    /// Not described.
    pub reserved0: [u8; 2],
    /// WQE of a striding receive queue.
    pub wqe_id: U16,
    /// Not described here: offloads of Ethernet.
    pub reserved4: [u8; 13],
    /// Path bits of the LID.
    pub ml_path: u8,
    /// Not described here.
    pub reserved18: [u8; 4],
    /// Source LID.
    pub slid: U16,
    /// Flags in bits 31:24, the sender's QPN in 23:0.
    pub flags_rqpn: U32,
    /// Header split and IP extension flags (Ethernet).
    pub hds_ip_ext: u8,
    /// Header types (Ethernet).
    pub l4_header_type: u8,
    /// VLAN (Ethernet).
    pub vlan_info: U16,
    /// User index of the queue pair or SRQ in bits 23:0 (with `cqe_version` 1), else the SRQ's
    /// number.
    pub srqn_uidx: U32,
    /// Immediate, or the remote key that was invalidated, or the pkey.
    pub immediate: U32,
    /// Application (tag matching and others).
    pub app: u8,
    /// The application's opcode.
    pub app_op: u8,
    /// The application's information.
    pub app_info: U16,
    /// Bytes that arrived.
    pub byte_count: U32,
    /// The card's clock.
    pub timestamp: U64,
    /// Opcode of the WQE in bits 31:24 (requester), QPN in 23:0.
    pub opcode_qpn: U32,
    /// Index of the WQE: the first block of a send, the number of a receive.
    pub wqe_counter: U16,
    /// Signature.
    pub signature: u8,
    /// CQE opcode in bits 7:4, format in 3:2, solicited in 1, owner in 0.
    pub op_own: u8,
}

assert_layout!(Cqe64, 64, {
    reserved0: 0, wqe_id: 2, reserved4: 4, ml_path: 17, reserved18: 18, slid: 22, flags_rqpn: 24,
    hds_ip_ext: 28, l4_header_type: 29, vlan_info: 30, srqn_uidx: 32, immediate: 36, app: 40,
    app_op: 41, app_info: 42, byte_count: 44, timestamp: 48, opcode_qpn: 56, wqe_counter: 60,
    signature: 62, op_own: 63,
});

/// A CQE of 64 bytes whose opcode says error (`mlx5_err_cqe`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub struct ErrorCqe {
    /// Not described.
    pub reserved0: [u8; 32],
    /// User index or SRQ number, as in [`Cqe64::srqn_uidx`].
    pub srqn_uidx: U32,
    /// Not described.
    pub reserved36: [u8; 16],
    /// The hardware's syndrome (gpunetio, UCX); no list of it is public.
    pub hardware_syndrome: u8,
    /// The hardware syndrome's type (gpunetio, UCX).
    pub hardware_type: u8,
    /// Vendor code.
    pub vendor: u8,
    /// Syndrome.
    pub syndrome: u8,
    /// Opcode of the WQE in bits 31:24, QPN in 23:0.
    pub opcode_qpn: U32,
    /// Index of the WQE.
    pub wqe_counter: U16,
    /// Signature.
    pub signature: u8,
    /// As in [`Cqe64::op_own`].
    pub op_own: u8,
}

assert_layout!(ErrorCqe, 64, {
    reserved0: 0, srqn_uidx: 32, reserved36: 36, hardware_syndrome: 52, hardware_type: 53,
    vendor: 54, syndrome: 55, opcode_qpn: 56, wqe_counter: 60, signature: 62, op_own: 63,
});

/// One of the eight small completions in a compressed CQE (`mlx5_mini_cqe8`).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct MiniCqe {
    /// By the queue's setting: receive hash; checksum and stride index; or WQE index and opcode.
    pub info: U32,
    /// Bytes that arrived.
    pub byte_count: U32,
}

assert_layout!(MiniCqe, 8, { info: 0, byte_count: 4 });

impl MiniCqe {
    /// The receive hash, where the queue's mini-CQEs carry it.
    pub const fn hash(self) -> u32 {
        self.info.get()
    }

    /// Checksum and stride index, where the queue's mini-CQEs carry them.
    pub const fn checksum_and_stride(self) -> (u16, u16) {
        ((self.info.get() >> 16) as u16, self.info.get() as u16)
    }

    /// WQE index and opcode, in the mini-CQEs of a send queue.
    pub const fn wqe_index_and_opcode(self) -> (WqeIndex, Opcode) {
        (
            WqeIndex((self.info.get() >> 16) as u16),
            Opcode((self.info.get() >> 8) as u8),
        )
    }
}

/// Where a CQE keeps data, bits 3:2 of `op_own`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CqeFormat {
    /// No data.
    Plain = 0,
    /// Up to 32 bytes of the message, in the CQE's first half.
    Inline32 = 1,
    /// Up to 64 bytes of the message, in the 64 bytes before a 128-byte CQE's second half.
    Inline64 = 2,
    /// The entry starts or continues a compressed session: [`MiniCqe`]s follow.
    Compressed = 3,
}

impl Cqe64 {
    /// An entry that was not written yet: `op_own` = 0xf0, all else zero.
    pub const INVALID: Self = Self::from_words([0, 0, 0, 0, 0, 0, 0, CqeTail::INVALID.0]);

    /// From eight native integers of the bytes as they lie in memory.
    #[inline(always)]
    pub const fn from_words(words: [u64; 8]) -> Self {
        zerocopy::transmute!(words)
    }

    /// Eight native integers of the bytes as they lie in memory.
    #[inline(always)]
    pub const fn to_words(self) -> [u64; 8] {
        zerocopy::transmute!(self)
    }

    /// From the bytes in memory order.
    #[inline(always)]
    pub const fn from_bytes(bytes: [u8; 64]) -> Self {
        zerocopy::transmute!(bytes)
    }

    /// The bytes in memory order.
    #[inline(always)]
    pub const fn to_bytes(self) -> [u8; 64] {
        zerocopy::transmute!(self)
    }

    /// The last 8 bytes, which a poll reads first.
    #[inline(always)]
    pub const fn tail(self) -> CqeTail {
        let [_, _, _, _, _, _, _, word] = self.to_words();
        CqeTail(word)
    }

    /// The 8 bytes before the last, where an error CQE keeps its syndrome.
    #[inline(always)]
    pub const fn error_word(self) -> CqeErrorWord {
        let [_, _, _, _, _, _, word, _] = self.to_words();
        CqeErrorWord(word)
    }

    /// The same bytes, read as an error CQE.
    #[inline(always)]
    pub const fn as_error(self) -> ErrorCqe {
        zerocopy::transmute!(self)
    }

    /// The sender's QPN (datagram queues).
    #[inline(always)]
    pub const fn source_qpn(self) -> QpNumber {
        QpNumber::from_low_bits(self.flags_rqpn.get())
    }

    /// User index or SRQ number, 24 bits.
    #[inline(always)]
    pub const fn user_index(self) -> u32 {
        self.srqn_uidx.get() & 0x00ff_ffff
    }
}

impl ErrorCqe {
    /// The same bytes, read as any CQE.
    #[inline(always)]
    pub const fn as_cqe(self) -> Cqe64 {
        zerocopy::transmute!(self)
    }
}

/// The last 8 bytes of a CQE, as a native integer of the bytes as they lie in memory.
///
/// A queue is polled by loading this one word: it says whether the entry is new, and for which WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct CqeTail(pub u64);

impl CqeTail {
    /// The tail of an entry that was not written yet.
    pub const INVALID: Self = Self(0xf0_u64.to_be());

    /// A tail from its parts; signature 0, format plain.
    #[inline(always)]
    pub const fn new(
        opcode: CqeOpcode,
        owner: bool,
        wqe_opcode: Opcode,
        qpn: QpNumber,
        wqe_counter: u16,
    ) -> Self {
        let word = (wqe_opcode.0 as u64) << 56
            | (qpn.get() as u64) << 32
            | (wqe_counter as u64) << 16
            | ((opcode.0 & 0x0f) as u64) << 4
            | owner as u64;
        Self(word.to_be())
    }

    /// True when the entry is new: written at all, and by the pass over the ring that `owner`
    /// names.
    ///
    /// The owner bit of pass `n` (counted from 0) is `n & 1`.
    #[inline(always)]
    pub const fn is_new(self, owner: bool) -> bool {
        self.cqe_opcode().0 != CqeOpcode::INVALID.0 && self.owner() == owner
    }

    /// What the CQE reports, 4 bits.
    #[inline(always)]
    pub const fn cqe_opcode(self) -> CqeOpcode {
        CqeOpcode(self.op_own() >> 4)
    }

    /// True when the CQE reports the success of a send queue's request, that of the WQE at
    /// `index`; in one comparison, for the poll path.
    ///
    /// ```
    /// # use mlx5_wqe::{CqeOpcode, CqeTail, Opcode, QpNumber, WqeIndex};
    /// let tail = |opcode| CqeTail::new(opcode, true, Opcode::SEND, QpNumber::MAX, 0x1234);
    /// assert!(tail(CqeOpcode::REQUESTER).is_success_of(WqeIndex(0x1234)));
    /// assert!(!tail(CqeOpcode::REQUESTER).is_success_of(WqeIndex(0x1235)));
    /// assert!(!tail(CqeOpcode::REQUESTER_ERROR).is_success_of(WqeIndex(0x1234)));
    /// ```
    #[inline(always)]
    pub const fn is_success_of(self, index: WqeIndex) -> bool {
        self.is_success_of_pass(index, None)
    }

    /// The same, and if an owner bit is given, the entry is of the pass over the ring that it
    /// names, as [`is_new`](Self::is_new) has it.
    ///
    /// ```
    /// # use mlx5_wqe::{CqeOpcode, CqeTail, Opcode, QpNumber, WqeIndex};
    /// let odd = CqeTail::new(CqeOpcode::REQUESTER, true, Opcode::SEND, QpNumber::MAX, 0x1234);
    /// assert!(odd.is_success_of_pass(WqeIndex(0x1234), Some(true)));
    /// assert!(!odd.is_success_of_pass(WqeIndex(0x1234), Some(false)));
    /// assert!(!odd.is_success_of_pass(WqeIndex(0x1235), Some(true)));
    /// ```
    #[inline(always)]
    pub const fn is_success_of_pass(self, index: WqeIndex, owner: Option<bool>) -> bool {
        /// The WQE counter and the opcode, without owner, format and signature.
        const COMPARED: u64 = 0xffff_00f0;
        let (compared, owner) = match owner {
            Some(owner) => (COMPARED | 1, owner as u64),
            None => (COMPARED, 0),
        };
        let wanted = (index.0 as u64) << 16 | (CqeOpcode::REQUESTER.0 as u64) << 4 | owner;
        self.0 & compared.to_be() == wanted.to_be()
    }

    /// True when the CQE reports an error, of either side.
    #[inline(always)]
    pub const fn is_error(self) -> bool {
        matches!(
            self.cqe_opcode(),
            CqeOpcode::REQUESTER_ERROR | CqeOpcode::RESPONDER_ERROR
        )
    }

    /// Where the CQE keeps data.
    #[inline(always)]
    pub const fn format(self) -> CqeFormat {
        match self.op_own() >> 2 & 3 {
            0 => CqeFormat::Plain,
            1 => CqeFormat::Inline32,
            2 => CqeFormat::Inline64,
            _ => CqeFormat::Compressed,
        }
    }

    /// True for a solicited completion.
    #[inline(always)]
    pub const fn is_solicited(self) -> bool {
        self.op_own() & 2 != 0
    }

    /// The bit that tells one pass over the ring from the next.
    #[inline(always)]
    pub const fn owner(self) -> bool {
        self.op_own() & 1 != 0
    }

    /// Byte 63 as it stands.
    #[inline(always)]
    pub const fn op_own(self) -> u8 {
        self.0.to_ne_bytes()[7]
    }

    /// The signature byte.
    #[inline(always)]
    pub const fn signature(self) -> u8 {
        (u64::from_be(self.0) >> 8) as u8
    }

    /// The WQE's counter as it stands: first block of a send, number of a receive.
    #[inline(always)]
    pub const fn wqe_counter(self) -> u16 {
        let bytes = self.0.to_ne_bytes();
        u16::from_be_bytes([bytes[4], bytes[5]])
    }

    /// The first block of the send WQE.
    #[inline(always)]
    pub const fn wqe_index(self) -> WqeIndex {
        WqeIndex(self.wqe_counter())
    }

    /// The queue pair.
    #[inline(always)]
    pub const fn qpn(self) -> QpNumber {
        QpNumber::from_low_bits((u64::from_be(self.0) >> 32) as u32)
    }

    /// Opcode of the WQE (requester CQEs and errors).
    #[inline(always)]
    pub const fn opcode(self) -> Opcode {
        Opcode((u64::from_be(self.0) >> 56) as u8)
    }
}

/// Bytes 48 to 55 of an error CQE, as a native integer of the bytes as they lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct CqeErrorWord(pub u64);

impl CqeErrorWord {
    /// The word for a syndrome and a vendor code; hardware syndrome 0.
    #[inline(always)]
    pub const fn new(syndrome: Syndrome, vendor: VendorCode) -> Self {
        Self(((vendor.0 as u64) << 8 | syndrome.0 as u64).to_be())
    }

    /// What went wrong.
    #[inline(always)]
    pub const fn syndrome(self) -> Syndrome {
        Syndrome(u64::from_be(self.0) as u8)
    }

    /// The vendor's code.
    #[inline(always)]
    pub const fn vendor(self) -> VendorCode {
        VendorCode((u64::from_be(self.0) >> 8) as u8)
    }

    /// The hardware's syndrome.
    #[inline(always)]
    pub const fn hardware_syndrome(self) -> u8 {
        (u64::from_be(self.0) >> 24) as u8
    }
}
