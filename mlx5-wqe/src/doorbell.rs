//! How a driver tells the card what it posted and what it consumed.
//!
//! Sources: linux/mlx5/{cq,doorbell,qp}.h, rdma-core `providers/mlx5/{qp,cq}.c`.

use zerocopy::big_endian::U32;

use crate::layout::layouts;
use crate::opcode::Opcode;
use crate::units::{CqNumber, QpNumber, WqeBlock, WqeIndex};
use crate::wqe::first_word;

layouts! {
    /// The doorbell record of a queue pair: 8 bytes in host or GPU memory that the card reads.
    ///
    /// Each half is stored and loaded as one 32-bit word; [`word`](Self::word) gives it.
    plain DoorbellRecord = "`MLX5_RCV_DBR` and `MLX5_SND_DBR` in mlx5dv.h", 8 {
        /// Receive WQEs posted so far, modulo 2^16 (`MLX5_RCV_DBR`). An SRQ uses this half alone.
        receive: U32 = 0;
        /// Blocks posted to the send queue so far, modulo 2^16 (`MLX5_SND_DBR`).
        send: U32 = 4;
    }
}

impl DoorbellRecord {
    /// Either half for a producer index, as a native integer of the bytes as they lie in memory.
    ///
    /// ```
    /// use mlx5_wqe::DoorbellRecord;
    /// assert_eq!(DoorbellRecord::word(0x1234).to_ne_bytes(), [0, 0, 0x12, 0x34]);
    /// ```
    #[inline(always)]
    pub const fn word(producer: u16) -> u32 {
        (producer as u32).to_be()
    }

    /// The producer index in either half.
    #[inline(always)]
    pub const fn producer(word: u32) -> u16 {
        u32::from_be(word) as u16
    }
}

layouts! {
    /// The doorbell record of a completion queue: 8 bytes in host or GPU memory that the card reads.
    plain CqDoorbellRecord = "`providers/mlx5/cq.c` of rdma-core", 8 {
        /// CQEs consumed so far, modulo 2^24.
        consumer: U32 = 0;
        /// The last [`CqArm`].
        arm: U32 = 4;
    }
}

impl CqDoorbellRecord {
    /// The bits of a consumer index.
    pub const CONSUMER_MASK: u32 = 0x00ff_ffff;

    /// The first half for a consumer index, as a native integer of the bytes as they lie in memory.
    #[inline(always)]
    pub const fn consumer_word(consumer: u32) -> u32 {
        (consumer & Self::CONSUMER_MASK).to_be()
    }

    /// The consumer index in the first half.
    #[inline(always)]
    pub const fn consumer(word: u32) -> u32 {
        u32::from_be(word) & Self::CONSUMER_MASK
    }
}

/// A request for an event at a completion queue's next CQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqArm {
    /// Number of the request, modulo 4: it goes up with every event that arrived.
    pub sequence: u8,
    /// Only a solicited CQE (or an error) shall raise the event.
    pub solicited_only: bool,
    /// CQEs consumed so far, modulo 2^24.
    pub consumer: u32,
}

impl CqArm {
    const SOLICITED_ONLY: u32 = 1 << 24;

    /// The second half of the CQ's doorbell record, as a native integer of the bytes in memory.
    #[inline(always)]
    pub const fn word(self) -> u32 {
        let command = if self.solicited_only {
            Self::SOLICITED_ONLY
        } else {
            0
        };
        let consumer = self.consumer & CqDoorbellRecord::CONSUMER_MASK;
        (((self.sequence & 3) as u32) << 28 | command | consumer).to_be()
    }

    /// The request in the second half of the CQ's doorbell record.
    #[inline(always)]
    pub const fn from_word(word: u32) -> Self {
        let word = u32::from_be(word);
        Self {
            sequence: (word >> 28 & 3) as u8,
            solicited_only: word & Self::SOLICITED_ONLY != 0,
            consumer: word & CqDoorbellRecord::CONSUMER_MASK,
        }
    }

    /// What is stored to the UAR's `cq_arm` register, after the record.
    ///
    /// ```
    /// use mlx5_wqe::{CqArm, CqNumber};
    /// let arm = CqArm { sequence: 2, solicited_only: true, consumer: 0x345 };
    /// let doorbell = arm.doorbell(CqNumber::new(0x77).unwrap());
    /// assert_eq!(doorbell.to_ne_bytes(), [0x21, 0, 0x03, 0x45, 0, 0, 0, 0x77]);
    /// ```
    #[inline(always)]
    pub const fn doorbell(self, cq: CqNumber) -> u64 {
        ((u32::from_be(self.word()) as u64) << 32 | cq.get() as u64).to_be()
    }

    /// The request and the queue in what was stored to the `cq_arm` register.
    #[inline(always)]
    pub const fn from_doorbell(doorbell: u64) -> (Self, CqNumber) {
        let doorbell = u64::from_be(doorbell);
        let arm = Self::from_word(((doorbell >> 32) as u32).to_be());
        (arm, CqNumber::from_low_bits(doorbell as u32))
    }
}

/// What is stored to a UAR's send doorbell, as a native integer of the bytes as they lie in memory.
///
/// Drivers differ: libmlx5 stores the last WQE's first 8 bytes, GPU libraries the next index and
/// the QPN. The card takes the producer index from the doorbell record, unless the queue pair has
/// none: see [`producer`](Self::producer).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Doorbell(pub u64);

impl Doorbell {
    /// libmlx5's form: the first 8 bytes of the last WQE posted.
    #[inline(always)]
    pub const fn of_wqe<const BLOCKS: usize>(blocks: &[WqeBlock; BLOCKS]) -> Self {
        Self(first_word(blocks))
    }

    /// The GPU libraries' form: next index and QPN, opcode and `ds` zero.
    #[inline(always)]
    pub const fn of_producer(next: WqeIndex, qpn: QpNumber) -> Self {
        // Each half turned by itself: of the QPN's, which stays, a compiler makes a constant of a loop.
        let halves = [((next.0 as u32) << 8).to_be(), (qpn.get() << 8).to_be()];
        Self(zerocopy::transmute!(halves))
    }

    /// The index, of the last WQE or the next by the form.
    #[inline(always)]
    pub const fn index(self) -> WqeIndex {
        WqeIndex((u64::from_be(self.0) >> 40) as u16)
    }

    /// The producer index, where the card reads no doorbell record (`prm::SendDoorbellMode::WITHOUT_RECORD`).
    ///
    /// gpunetio rings with the next index and `ds` 0, the tests of rdma-core with the last WQE's first 8 bytes. No
    /// manual says how a card reads both; the index behind the blocks that `ds` counts from `index` on is what both
    /// mean.
    ///
    /// ```
    /// use mlx5_wqe::{Doorbell, QpNumber, Wqe, WqeIndex};
    /// let qpn = QpNumber::new(0x77).unwrap();
    /// assert_eq!(Doorbell::of_producer(WqeIndex(8), qpn).producer(), WqeIndex(8));
    /// let blocks = Wqe::<1>::nop().place(WqeIndex(7), qpn);
    /// assert_eq!(Doorbell::of_wqe(&blocks).producer(), WqeIndex(8));
    /// ```
    #[inline(always)]
    pub const fn producer(self) -> WqeIndex {
        let segments = u64::from_be(self.0) as u16 & 0x3f;
        WqeIndex(self.index().0.wrapping_add(segments.div_ceil(4)))
    }

    /// The queue pair.
    #[inline(always)]
    pub const fn qpn(self) -> QpNumber {
        QpNumber::from_low_bits((u64::from_be(self.0) >> 8) as u32)
    }

    /// The last WQE's opcode; 0 in the GPU libraries' form.
    #[inline(always)]
    pub const fn opcode(self) -> Opcode {
        Opcode((u64::from_be(self.0) >> 32) as u8)
    }
}
