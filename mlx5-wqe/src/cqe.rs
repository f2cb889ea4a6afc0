//! The entries of a completion queue, as they lie in memory.
//!
//! Sources: `mlx5_cqe64` and `mlx5_err_cqe` in mlx5dv.h, `mlx5_mini_cqe8` in linux/mlx5/device.h;
//! the two hardware syndrome bytes are in gpunetio's and UCX's form of the error CQE.

use zerocopy::big_endian::{U16, U32, U64};

use crate::layout::layouts;
use crate::opcode::{CqeOpcode, Opcode};
use crate::syndrome::{Syndrome, VendorCode};
use crate::units::{QpNumber, WqeIndex};

layouts! {
    /// A CQE of 64 bytes.
    cqe Cqe64 = "`mlx5_cqe64` in mlx5dv.h", 64 {
        /// Not described.
        reserved0: [u8; 2] = 0;
        /// WQE of a striding receive queue.
        wqe_id: U16 = 2;
        /// Not described here: offloads of Ethernet.
        reserved4: [u8; 13] = 4;
        /// Path bits of the LID.
        ml_path: u8 = 17;
        /// Not described here.
        reserved18: [u8; 4] = 18;
        /// Source LID.
        slid: U16 = 22;
        /// Flags in bits 31:24, the sender's QPN in 23:0.
        flags_rqpn: U32 = 24;
        /// Header split and IP extension flags (Ethernet).
        hds_ip_ext: u8 = 28;
        /// Header types (Ethernet).
        l4_header_type: u8 = 29;
        /// VLAN (Ethernet).
        vlan_info: U16 = 30;
        /// User index of the queue pair or SRQ in bits 23:0 (with `cqe_version` 1), else the SRQ's
        /// number.
        srqn_uidx: U32 = 32;
        /// Immediate, or the remote key that was invalidated, or the pkey.
        immediate: U32 = 36;
        /// Application (tag matching and others).
        app: u8 = 40;
        /// The application's opcode.
        app_op: u8 = 41;
        /// The application's information.
        app_info: U16 = 42;
        /// Bytes that arrived.
        byte_count: U32 = 44;
        /// The card's clock.
        timestamp: U64 = 48;
        /// Opcode of the WQE in bits 31:24 (requester), QPN in 23:0.
        opcode_qpn: U32 = 56;
        /// Index of the WQE: the first block of a send, the number of a receive.
        wqe_counter: U16 = 60;
        /// Signature.
        signature: u8 = 62;
        /// CQE opcode in bits 7:4, format in 3:2, solicited in 1, owner in 0.
        op_own: u8 = 63;
    }

    /// A CQE of 64 bytes whose opcode says error.
    cqe ErrorCqe = "`mlx5_err_cqe` in mlx5dv.h", 64 {
        /// Not described.
        reserved0: [u8; 32] = 0;
        /// User index or SRQ number, as in [`Cqe64::srqn_uidx`].
        srqn_uidx: U32 = 32;
        /// Not described.
        reserved36: [u8; 16] = 36;
        /// The hardware's syndrome (gpunetio, UCX); no list of it is public.
        hardware_syndrome: u8 = 52;
        /// The hardware syndrome's type (gpunetio, UCX).
        hardware_type: u8 = 53;
        /// Vendor code.
        vendor: u8 = 54;
        /// Syndrome.
        syndrome: u8 = 55;
        /// Opcode of the WQE in bits 31:24, QPN in 23:0.
        opcode_qpn: U32 = 56;
        /// Index of the WQE.
        wqe_counter: U16 = 60;
        /// Signature.
        signature: u8 = 62;
        /// As in [`Cqe64::op_own`].
        op_own: u8 = 63;
    }

    /// One of the eight small completions in a compressed CQE.
    plain MiniCqe = "`mlx5_mini_cqe8` in linux/mlx5/device.h", 8 {
        /// By the queue's setting: receive hash; checksum and stride index; or WQE index and opcode.
        info: U32 = 0;
        /// Bytes that arrived.
        byte_count: U32 = 4;
    }
}

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
