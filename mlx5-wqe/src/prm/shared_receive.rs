//! Receive memory pools (RMP): receive queues that several queue pairs share, as commands make them.

use super::bits::Field;
use super::codes::{CommandOpcode, RmpState, WqType};
use super::record::{self, Command, PrmError, Record, records};

records! {
    /// The ring of a queue that is not a queue pair's own.
    plain WorkQueue = "wq", 192 {
        /// How its WQEs follow one another.
        wq_type: WqType = 0x0, 4;
        /// WQEs carry signatures.
        wq_signature: bool = 0x4, 1;
        /// The queue runs when another queue enables it.
        cd_slave: bool = 0x7, 1;
        /// Offset of the ring in its page, in 64ths of a page.
        page_offset: u8 = 0x2b, 5;
        /// Receives below which the card warns, 0 for never.
        lwm: u16 = 0x30, 16;
        /// Protection domain, 24 bits.
        pd: u32 = 0x48, 24;
        /// Doorbell record: its address, or its offset in the umem.
        dbr_addr: u64 = 0x80, 64;
        /// Logarithm of a WQE's bytes.
        log_wq_stride: u8 = 0x10c, 4;
        /// Logarithm of the ring's page size, less 12.
        log_wq_pg_sz: u8 = 0x113, 5;
        /// Logarithm of the WQEs.
        log_wq_sz: u8 = 0x11b, 5;
        /// The doorbell record is in a umem.
        dbr_umem_valid: bool = 0x120, 1;
        /// The ring is in a umem.
        wq_umem_valid: bool = 0x121, 1;
        /// Umem of the doorbell record. Reserved in the kernel's header; UCX.
        dbr_umem_id: u32 = 0x140, 32;
        /// Umem of the ring. Reserved in the kernel's header; UCX.
        wq_umem_id: u32 = 0x160, 32;
    }

    /// The context of a receive memory pool.
    plain RmpContext = "rmpc", 240 {
        /// State.
        state: RmpState = 0x8, 4;
        /// WQEs begin with their first data segment, not with the link of a shared receive queue.
        basic_cyclic_rcv_wqe: bool = 0x20, 1;
        /// The ring.
        wq: WorkQueue = 0x180, 1536;
    }

    /// Creates a receive memory pool, for the contexts of queue pairs (`srqn_rmpn_xrqn`).
    command(CREATE_RMP => CreateRmpAnswer) CreateRmp = "create_rmp_in", 272 {
        /// User context; the kernel fills it in.
        uid: u16 = 0x10, 16;
        /// Modifier.
        op_mod: u16 = 0x30, 16;
        /// The context.
        ctx: RmpContext = 0x100, 1920;
    }

    /// The answer to [`CreateRmp`].
    answer CreateRmpAnswer = "create_rmp_out", 16 {
        /// The pool's number, 24 bits.
        rmpn: u32 = 0x48, 24;
    }
}
