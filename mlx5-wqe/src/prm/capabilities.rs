//! What the card can do.
#![expect(non_snake_case, reason = "fields have the header's names")]

use super::bits::Field;
use super::codes::{CapabilityQuery, CommandOpcode, PortType, TimestampFormats};
use super::record::{self, Command, PrmError, Record, records};

records! {
    /// Asks what the card can do.
    command(QUERY_HCA_CAP => QueryHcaCapAnswer) QueryHcaCap = "query_hca_cap_in", 16 {
        /// Which capabilities.
        op_mod: CapabilityQuery = 0x30, 16;
        /// Asks about the function `function_id`.
        other_function: bool = 0x40, 1;
        /// Another function.
        function_id: u16 = 0x50, 16;
    }

    /// The same question, for [`CapabilityQuery::GENERAL_2_CURRENT`].
    command(QUERY_HCA_CAP => QueryHcaCap2Answer) QueryHcaCap2 = "query_hca_cap_in", 16 {
        /// Which capabilities.
        op_mod: CapabilityQuery = 0x30, 16;
    }

    /// The same question, for [`CapabilityQuery::ROCE_CURRENT`].
    command(QUERY_HCA_CAP => QueryRoceCapAnswer) QueryRoceCap = "query_hca_cap_in", 16 {
        /// Which capabilities.
        op_mod: CapabilityQuery = 0x30, 16;
    }

    /// The same question, for [`CapabilityQuery::ATOMIC_CURRENT`].
    command(QUERY_HCA_CAP => QueryAtomicCapAnswer) QueryAtomicCap = "query_hca_cap_in", 16 {
        /// Which capabilities.
        op_mod: CapabilityQuery = 0x30, 16;
    }

    /// The general capabilities, as far as queues and their users need them.
    plain HcaCapabilities = "cmd_hca_cap", 256 {
        /// There are more of them: [`HcaCapabilities2`].
        hca_cap_2: bool = 0x20, 1;
        /// Number of the virtual card.
        vhca_id: u16 = 0x30, 16;
        /// Logarithm of the most WQEs of a shared receive queue.
        log_max_srq_sz: u8 = 0x80, 8;
        /// Logarithm of the most WQEs of a queue.
        log_max_qp_sz: u8 = 0x88, 8;
        /// DEVX may subscribe to events.
        event_cap: bool = 0x90, 1;
        /// Logarithm of the most queue pairs.
        log_max_qp: u8 = 0x9b, 5;
        /// Enhanced connection establishment.
        ece_support: bool = 0xa3, 1;
        /// Logarithm of the most shared receive queues.
        log_max_srq: u8 = 0xab, 5;
        /// Logarithm of the most entries of a completion queue.
        log_max_cq_sz: u8 = 0xc8, 8;
        /// Logarithm of the most completion queues.
        log_max_cq: u8 = 0xdb, 5;
        /// Writes to host memory may be relaxed.
        relaxed_ordering_write: bool = 0xe8, 1;
        /// Reads of host memory may be relaxed.
        relaxed_ordering_read: bool = 0xe9, 1;
        /// Logarithm of the most memory keys.
        log_max_mkey: u8 = 0xea, 6;
        /// Logarithm of the most pieces of an indirect memory key.
        log_max_klm_list_size: u8 = 0x11a, 6;
        /// UMR takes the high part of a translation's offset.
        umr_extended_translation_offset: bool = 0x118, 1;
        /// Logarithm of the most reads and atomics under way as requester.
        log_max_ra_req_qp: u8 = 0x14a, 6;
        /// Logarithm of the most reads and atomics under way as responder.
        log_max_ra_res_qp: u8 = 0x15a, 6;
        /// Arriving messages can be padded to a cache line.
        end_pad: bool = 0x160, 1;
        /// The card assumes cache lines of 128 bytes.
        cache_line_128byte: bool = 0x164, 1;
        /// Code of the GID table's size: 8 × 2^n.
        gid_table_size: u16 = 0x170, 16;
        /// Sets of counters.
        max_qp_cnt: u16 = 0x186, 10;
        /// Code of the partition key table's size: 128 × 2^n.
        pkey_table_size: u16 = 0x190, 16;
        /// Delay of the card's acknowledgements: 4.096 µs × 2^n.
        local_ca_ack_delay: u8 = 0x1ab, 5;
        /// What the port speaks.
        port_type: PortType = 0x1b6, 2;
        /// Ports.
        num_ports: u8 = 0x1b8, 8;
        /// Logarithm of the longest message in bytes.
        log_max_msg: u8 = 0x1c3, 5;
        /// 1 where CQEs carry the user index, which this crate's users rely on.
        cqe_version: u8 = 0x1fc, 4;
        /// Address vectors may have 16 bytes.
        compact_address_vector: bool = 0x200, 1;
        /// WQEs may carry signatures.
        wq_signature: bool = 0x214, 1;
        /// CQEs may carry data.
        sctr_data_cqe: bool = 0x215, 1;
        /// RoCE.
        roce: bool = 0x21d, 1;
        /// Atomics.
        atomic: bool = 0x21e, 1;
        /// Completion queues may ignore overruns.
        cq_oi: bool = 0x220, 1;
        /// Completion queues may be resized.
        cq_resize: bool = 0x221, 1;
        /// Completion events may be moderated.
        cq_moderation: bool = 0x222, 1;
        /// Queues may wait for and enable others.
        cd: bool = 0x22c, 1;
        /// XRC.
        xrc: bool = 0x23c, 1;
        /// Datagrams.
        ud: bool = 0x23d, 1;
        /// Unreliable connections.
        uc: bool = 0x23e, 1;
        /// Reliable connections.
        rc: bool = 0x23f, 1;
        /// UAR pages have 4 KiB whatever the host's page size.
        uar_4k: bool = 0x240, 1;
        /// The kernel may use umems.
        umem_uid_0: bool = 0x252, 1;
        /// Logarithm of the smallest page size.
        log_pg_sz: u8 = 0x258, 8;
        /// BlueFlame.
        bf: bool = 0x260, 1;
        /// Logarithm of the bytes of a BlueFlame register, both buffers.
        log_bf_reg_size: u8 = 0x26b, 5;
        /// Bytes of the largest send WQE.
        max_wqe_sz_sq: u16 = 0x290, 16;
        /// Bytes of the largest receive WQE.
        max_wqe_sz_rq: u16 = 0x2b0, 16;
        /// Bytes of the largest send WQE of a DC initiator.
        max_wqe_sz_sq_dc: u16 = 0x2d0, 16;
        /// Logarithm of the most protection domains.
        log_max_pd: u8 = 0x32b, 5;
        /// Receive memory pools may have WQEs without a link.
        basic_cyclic_rcv_wqe: bool = 0x380, 1;
        /// Logarithm of the most receive memory pools, 0 for none.
        log_max_rmp: u8 = 0x383, 5;
        /// Kinds of general objects, a bit each.
        general_obj_types: u64 = 0x400, 64;
        /// Clocks of the send queues that are no queue pair's, and of queue pairs without RoCE.
        sq_ts_format: TimestampFormats = 0x440, 2;
        /// Clocks of the receive queues that are no queue pair's.
        rq_ts_format: TimestampFormats = 0x442, 2;
        /// Logarithm of the most DEVX user contexts.
        log_max_uctx: u8 = 0x463, 5;
        /// Logarithm of the most umems.
        log_max_umem: u8 = 0x46b, 5;
        /// Logarithm of the UAR page size, less 12.
        log_uar_page_sz: u16 = 0x490, 16;
        /// The card's clock in kHz.
        device_frequency_khz: u32 = 0x4e0, 32;
        /// UARs of a page.
        num_of_uars_per_page: u32 = 0x520, 32;
        /// The enhanced layout of compressed CQEs.
        enhanced_cqe_compression: bool = 0x5b0, 1;
        /// CQEs of 128 bytes may be compressed.
        cqe_compression_128: bool = 0x5be, 1;
        /// CQEs may be compressed.
        cqe_compression: bool = 0x5bf, 1;
        /// What a DEVX user context may be allowed, a bit each.
        uctx_cap: u32 = 0x6a0, 32;
    }

    /// More general capabilities.
    plain HcaCapabilities2 = "cmd_hca_cap_2", 256 {
        /// Queue pairs may be without a doorbell record, and rung by software
        /// ([`SendDoorbellMode::WITHOUT_RECORD`](super::SendDoorbellMode::WITHOUT_RECORD)). Reserved in the kernel's
        /// header; gpunetio, the tests of rdma-core.
        send_dbr_mode_no_dbr_ext: bool = 0x2e1, 1;
    }

    /// The capabilities of RoCE.
    plain RoceCapabilities = "roce_cap", 256 {
        /// Clocks of queue pairs.
        qp_ts_format: TimestampFormats = 0x1e, 2;
        /// Highest UDP source port of RoCE v2.
        r_roce_max_src_udp_port: u16 = 0xc0, 16;
        /// Lowest UDP source port of RoCE v2.
        r_roce_min_src_udp_port: u16 = 0xd0, 16;
    }

    /// The capabilities of atomics.
    plain AtomicCapabilities = "atomic_caps", 256 {
        /// 1 where fetched words of 8 bytes are in the host's byte order, and not in the network's.
        atomic_req_8B_endianness_mode: u8 = 0x40, 2;
        /// Which atomics, a bit each (`MLX5_ATOMIC_OPS_*`): compare and swap 0, fetch and add 1.
        atomic_operations: u16 = 0x90, 16;
        /// Bytes of an atomic of a queue pair: the sum of those there may be.
        atomic_size_qp: u16 = 0xb0, 16;
    }

    /// The answer to [`QueryAtomicCap`].
    answer QueryAtomicCapAnswer = "query_hca_cap_out", 4112 {
        /// The capabilities.
        atomic_caps: AtomicCapabilities = 0x80, 2048;
    }

    /// The answer to [`QueryRoceCap`].
    answer QueryRoceCapAnswer = "query_hca_cap_out", 4112 {
        /// The capabilities.
        roce_cap: RoceCapabilities = 0x80, 2048;
    }

    /// The answer to [`QueryHcaCap2`].
    answer QueryHcaCap2Answer = "query_hca_cap_out", 4112 {
        /// The capabilities.
        cmd_hca_cap_2: HcaCapabilities2 = 0x80, 2048;
    }

    /// The answer to [`QueryHcaCap`] for the general capabilities.
    answer QueryHcaCapAnswer = "query_hca_cap_out", 4112 {
        /// The capabilities.
        cmd_hca_cap: HcaCapabilities = 0x80, 2048;
    }
}
