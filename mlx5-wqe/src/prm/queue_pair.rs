//! Queue pairs: their context, and the commands of their life.

use super::address_path::AddressPath;
use super::bits::Field;
use super::codes::{
    AtomicMode, CommandOpcode, Mtu, OptionalParameters, PathMigration, QpState, ReceiveType,
    SendDoorbellMode, ServiceType, TimestampFormat,
};
use super::record::{self, Command, PrmError, Record, records};
use crate::units::{CqNumber, QpNumber};

/// Declares the commands that bring a queue pair to its next state. They differ in their opcodes alone.
macro_rules! transitions {
    ($($(#[$doc:meta])* $opcode:ident $name:ident = $theirs:literal;)*) => {
        records! {$(
            $(#[$doc])*
            command($opcode => ModifyQpAnswer) $name = $theirs, 272 {
                /// User context; the kernel fills it in.
                uid: u16 = 0x10, 16;
                /// Modifier.
                op_mod: u16 = 0x30, 16;
                /// The queue pair.
                qpn: QpNumber = 0x48, 24;
                /// Which optional fields of the context count.
                opt_param_mask: OptionalParameters = 0x80, 32;
                /// Enhanced connection establishment.
                ece: u32 = 0xa0, 32;
                /// What changes.
                qpc: QpContext = 0xc0, 1856;
            }
        )*}
    };
}

transitions! {
    /// Brings a queue pair from reset to INIT: port, partition key and access rights.
    RST2INIT_QP RstToInit = "rst2init_qp_in";
    /// Brings a queue pair from INIT to ready to receive: the other end and the way to it.
    INIT2RTR_QP InitToRtr = "init2rtr_qp_in";
    /// Brings a queue pair to ready to send: retries and the first packet's number.
    RTR2RTS_QP RtrToRts = "rtr2rts_qp_in";
}

records! {
    /// The context of a queue pair.
    plain QpContext = "qpc", 232 {
        /// State; an answer has it.
        state: QpState = 0x0, 4;
        /// Port of a bond that sends, 0 for the card's choice.
        lag_tx_port_affinity: u8 = 0x4, 4;
        /// Service type.
        st: ServiceType = 0x8, 8;
        /// Path migration; [`PathMigration::MIGRATED`] where there is no alternative path.
        pm_state: PathMigration = 0x13, 2;
        /// 1 pads arriving messages to a cache line.
        end_padding_mode: u8 = 0x1c, 2;
        /// WQEs carry signatures.
        wq_signature: bool = 0x20, 1;
        /// Blocks the loopback of multicast.
        block_lb_mc: bool = 0x21, 1;
        /// Drains the send queue on a data signature error.
        drain_sigerr: bool = 0x25, 1;
        /// Protection domain, 24 bits.
        pd: u32 = 0x28, 24;
        /// Path MTU.
        mtu: Mtu = 0x40, 3;
        /// Logarithm of the longest message in bytes, up to 30.
        log_msg_max: u8 = 0x43, 5;
        /// Logarithm of the receive queue's WQEs.
        log_rq_size: u8 = 0x49, 4;
        /// Logarithm of a receive WQE's bytes, less 4.
        log_rq_stride: u8 = 0x4d, 3;
        /// There is no send queue.
        no_sq: bool = 0x50, 1;
        /// Logarithm of the send queue's basic blocks.
        log_sq_size: u8 = 0x51, 4;
        /// Clock of the CQEs' timestamps.
        ts_format: TimestampFormat = 0x58, 2;
        /// The reserved local key may be used.
        rlky: bool = 0x5b, 1;
        /// Set of counters.
        counter_set_id: u8 = 0x60, 8;
        /// UAR page that holds the doorbells, 24 bits.
        uar_page: u32 = 0x68, 24;
        /// Where the card takes the producer index of the send queue from. Reserved in the kernel's header; gpunetio,
        /// the tests of rdma-core.
        send_dbr_mode: SendDoorbellMode = 0x80, 2;
        /// What CQEs carry as user index, 24 bits.
        user_index: u32 = 0x88, 24;
        /// Logarithm of the rings' page size, less 12.
        log_page_size: u8 = 0xa3, 5;
        /// The other end's QPN.
        remote_qpn: QpNumber = 0xa8, 24;
        /// Path.
        primary_address_path: AddressPath = 0xc0, 352;
        /// Alternative path.
        secondary_address_path: AddressPath = 0x220, 352;
        /// An acknowledgement is asked for every 2^n packets.
        log_ack_req_freq: u8 = 0x380, 4;
        /// Logarithm of the reads and atomics under way as requester.
        log_sra_max: u8 = 0x388, 3;
        /// Tries without an acknowledgement, up to 7.
        retry_count: u8 = 0x38d, 3;
        /// Tries against a receiver that is not ready, 7 for ever.
        rnr_retry: u8 = 0x390, 3;
        /// Fast registration and the reserved key are enabled.
        fre: bool = 0x394, 1;
        /// RNR tries left; an answer has it.
        cur_rnr_retry: u8 = 0x395, 3;
        /// Tries left; an answer has it.
        cur_retry_count: u8 = 0x398, 3;
        /// Packet sequence number of the next packet to send, 24 bits.
        next_send_psn: u32 = 0x3c8, 24;
        /// CQ of the send queue.
        cqn_snd: CqNumber = 0x3e8, 24;
        /// Source QPN that datagrams claim, 24 bits.
        deth_sqpn: u32 = 0x408, 24;
        /// Last packet acknowledged, 24 bits; an answer has it.
        last_acked_psn: u32 = 0x448, 24;
        /// Sequence number of the last message sent, 24 bits; an answer has it.
        ssn: u32 = 0x468, 24;
        /// Logarithm of the reads and atomics under way as responder.
        log_rra_max: u8 = 0x488, 3;
        /// Which atomics the other end may ask for.
        atomic_mode: AtomicMode = 0x48c, 4;
        /// The other end may read.
        rre: bool = 0x490, 1;
        /// The other end may write.
        rwe: bool = 0x491, 1;
        /// The other end may use atomics.
        rae: bool = 0x492, 1;
        /// Offset of the receive queue in its page, in 64 bytes.
        page_offset: u8 = 0x494, 6;
        /// The receive queue runs when another queue enables it.
        cd_slave_receive: bool = 0x49d, 1;
        /// The send queue runs when another queue enables it.
        cd_slave_send: bool = 0x49e, 1;
        /// The queue pair may wait and enable others.
        cd_master: bool = 0x49f, 1;
        /// Code of the time that a sender waits after an RNR NAK.
        min_rnr_nak: u8 = 0x4a3, 5;
        /// Packet sequence number of the next packet to arrive, 24 bits.
        next_rcv_psn: u32 = 0x4a8, 24;
        /// XRC domain, 24 bits.
        xrcd: u32 = 0x4c8, 24;
        /// CQ of the receive queue.
        cqn_rcv: CqNumber = 0x4e8, 24;
        /// Doorbell record: its address, or its offset in the umem.
        dbr_addr: u64 = 0x500, 64;
        /// Queue key of datagrams.
        q_key: u32 = 0x540, 32;
        /// Where receives come from.
        rq_type: ReceiveType = 0x565, 3;
        /// Number of the shared receive queue, 24 bits.
        srqn_rmpn_xrqn: u32 = 0x568, 24;
        /// Sequence number of the message that is arriving, 24 bits; an answer has it.
        rmsn: u32 = 0x588, 24;
        /// Basic blocks that the card has come to; an answer has it.
        hw_sq_wqebb_counter: u16 = 0x5a0, 16;
        /// Basic blocks posted; an answer has it.
        sw_sq_wqebb_counter: u16 = 0x5b0, 16;
        /// Receives taken; an answer has it.
        hw_rq_counter: u32 = 0x5c0, 32;
        /// Receives posted; an answer has it.
        sw_rq_counter: u32 = 0x5e0, 32;
        /// Room for data in requester CQEs.
        cs_req: u8 = 0x630, 8;
        /// Room for data in responder CQEs.
        cs_res: u8 = 0x638, 8;
        /// Access key of a DC target.
        dc_access_key: u64 = 0x640, 64;
        /// The doorbell record is in a umem.
        dbr_umem_valid: bool = 0x683, 1;
        /// Umem of the doorbell record. Reserved in the kernel's header; gpunetio.
        dbr_umem_id: u32 = 0x720, 32;
    }

    /// Creates a queue pair.
    command(CREATE_QP => CreateQpAnswer) CreateQp = "create_qp_in", 272 {
        /// User context; the kernel fills it in.
        uid: u16 = 0x10, 16;
        /// Modifier.
        op_mod: u16 = 0x30, 16;
        /// A number reserved before, or 0.
        input_qpn: QpNumber = 0x48, 24;
        /// Which optional fields of the context count.
        opt_param_mask: OptionalParameters = 0x80, 32;
        /// Enhanced connection establishment.
        ece: u32 = 0xa0, 32;
        /// The context.
        qpc: QpContext = 0xc0, 1856;
        /// Where in the umem the rings begin, in bytes: the receive queue, then the send queue. Reserved in the
        /// kernel's header; DPDK.
        wq_umem_offset: u64 = 0x800, 64;
        /// Umem of the rings. Reserved in the kernel's header; gpunetio.
        wq_umem_id: u32 = 0x840, 32;
        /// The rings are in a umem.
        wq_umem_valid: bool = 0x860, 1;
    }

    /// The answer to [`CreateQp`].
    answer CreateQpAnswer = "create_qp_out", 16 {
        /// The queue pair's number.
        qpn: QpNumber = 0x48, 24;
        /// Enhanced connection establishment.
        ece: u32 = 0x60, 32;
    }

    /// The answer to [`RstToInit`], [`InitToRtr`] and [`RtrToRts`].
    answer ModifyQpAnswer = "rst2init_qp_out", 16 {
        /// Enhanced connection establishment.
        ece: u32 = 0x60, 32;
    }

    /// Puts a queue pair in error: everything under way is flushed.
    command(TO_ERROR_QP => Done) ToError = "qp_2err_in", 16 {
        /// User context; the kernel fills it in.
        uid: u16 = 0x10, 16;
        /// Modifier.
        op_mod: u16 = 0x30, 16;
        /// The queue pair.
        qpn: QpNumber = 0x48, 24;
    }

    /// Resets a queue pair.
    command(TO_RESET_QP => Done) ToReset = "qp_2rst_in", 16 {
        /// User context; the kernel fills it in.
        uid: u16 = 0x10, 16;
        /// Modifier.
        op_mod: u16 = 0x30, 16;
        /// The queue pair.
        qpn: QpNumber = 0x48, 24;
    }

    /// Asks for a queue pair's context.
    command(QUERY_QP => QueryQpAnswer) QueryQp = "query_qp_in", 16 {
        /// Modifier.
        op_mod: u16 = 0x30, 16;
        /// The queue pair.
        qpn: QpNumber = 0x48, 24;
    }

    /// The answer to [`QueryQp`].
    answer QueryQpAnswer = "query_qp_out", 272 {
        /// Which optional fields of the context count.
        opt_param_mask: OptionalParameters = 0x80, 32;
        /// Enhanced connection establishment.
        ece: u32 = 0xa0, 32;
        /// The context.
        qpc: QpContext = 0xc0, 1856;
    }

    /// Destroys a queue pair.
    command(DESTROY_QP => Done) DestroyQp = "destroy_qp_in", 16 {
        /// User context; the kernel fills it in.
        uid: u16 = 0x10, 16;
        /// Modifier.
        op_mod: u16 = 0x30, 16;
        /// The queue pair.
        qpn: QpNumber = 0x48, 24;
    }

    /// The answer of commands that have nothing else to say.
    answer Done = "destroy_qp_out", 16 {
    }
}
