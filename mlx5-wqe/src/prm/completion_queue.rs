//! Completion queues: their context, and the commands of their life.

use super::bits::Field;
use super::codes::{CommandOpcode, CqNotification, CqStatus};
use super::queue_pair::Done;
use super::record::{self, Command, PrmError, Record, records};
use crate::units::CqNumber;

records! {
    /// The context of a completion queue.
    plain CqContext = "cqc", 64 {
        /// Status; an answer has it.
        status: CqStatus = 0x0, 4;
        /// The doorbell record is in a umem.
        dbr_umem_valid: bool = 0x6, 1;
        /// Another processor of the card consumes the queue.
        apu_cq: bool = 0x7, 1;
        /// 0 for CQEs of 64 bytes, 1 for 128.
        cqe_sz: u8 = 0x8, 3;
        /// Collapsed: every CQE lands in the first entry.
        cc: bool = 0xb, 1;
        /// A solicited CQE raises an event at once.
        scqe_break_moderation_en: bool = 0xd, 1;
        /// Overruns are ignored.
        oi: bool = 0xe, 1;
        /// 0 starts the moderation's clock at an event, 1 at a CQE.
        cq_period_mode: u8 = 0xf, 2;
        /// CQEs are compressed.
        cqe_comp_en: bool = 0x11, 1;
        /// What the small entries of compressed CQEs carry.
        mini_cqe_res_format: u8 = 0x12, 2;
        /// Whether the queue is armed; an answer has it.
        st: CqNotification = 0x14, 4;
        /// 1 for the enhanced layout of compressed CQEs.
        cqe_compression_layout: u8 = 0x1e, 2;
        /// Umem of the doorbell record. Reserved in the kernel's header; gpunetio.
        dbr_umem_id: u32 = 0x20, 32;
        /// Offset of the ring in its page, in 64 bytes.
        page_offset: u8 = 0x54, 6;
        /// Logarithm of the entries.
        log_cq_size: u8 = 0x63, 5;
        /// UAR page through which the queue is armed, 24 bits.
        uar_page: u32 = 0x68, 24;
        /// Moderation: microseconds before an event.
        cq_period: u16 = 0x84, 12;
        /// Moderation: CQEs before an event.
        cq_max_count: u16 = 0x90, 16;
        /// Event queue that the completion events go to.
        c_eqn_or_apu_element: u32 = 0xa0, 32;
        /// Logarithm of the ring's page size, less 12.
        log_page_size: u8 = 0xc3, 5;
        /// Index of the last event, 24 bits; an answer has it.
        last_notified_index: u32 = 0x108, 24;
        /// Index of the last solicited CQE, 24 bits; an answer has it.
        last_solicit_index: u32 = 0x128, 24;
        /// CQEs consumed, 24 bits; an answer has it.
        consumer_counter: u32 = 0x148, 24;
        /// CQEs written, 24 bits; an answer has it.
        producer_counter: u32 = 0x168, 24;
        /// Doorbell record: its address, or its offset in the umem.
        dbr_addr: u64 = 0x1c0, 64;
    }

    /// Creates a completion queue.
    command(CREATE_CQ => CreateCqAnswer) CreateCq = "create_cq_in", 272 {
        /// User context; the kernel fills it in.
        uid: u16 = 0x10, 16;
        /// Modifier.
        op_mod: u16 = 0x30, 16;
        /// The context.
        cq_context: CqContext = 0x80, 512;
        /// Where in the umem the ring begins, in bytes. Reserved in the kernel's header; DPDK.
        cq_umem_offset: u64 = 0x280, 64;
        /// Umem of the ring. Reserved in the kernel's header; gpunetio.
        cq_umem_id: u32 = 0x2c0, 32;
        /// The ring is in a umem.
        cq_umem_valid: bool = 0x2e0, 1;
    }

    /// The answer to [`CreateCq`].
    answer CreateCqAnswer = "create_cq_out", 16 {
        /// The completion queue's number.
        cqn: CqNumber = 0x48, 24;
    }

    /// Destroys a completion queue.
    command(DESTROY_CQ => Done) DestroyCq = "destroy_cq_in", 16 {
        /// User context; the kernel fills it in.
        uid: u16 = 0x10, 16;
        /// Modifier.
        op_mod: u16 = 0x30, 16;
        /// The completion queue.
        cqn: CqNumber = 0x48, 24;
    }
}
