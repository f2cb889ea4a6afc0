//! The structures of uverbs that commands take and answer with, in the host's order.
//!
//! Source: rdma/ib_user_verbs.h and rdma/mlx5-abi.h of linux-libc-dev; what an answer does not set is 0.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Numbers of the commands that `INVOKE_WRITE` carries (`ib_uverbs_write_cmds`).
pub mod command {
    /// Bit 31: the extended form.
    pub const EXTENDED: u32 = 1 << 31;

    pub const GET_CONTEXT: u32 = 0;
    pub const QUERY_DEVICE: u32 = 1;
    pub const QUERY_PORT: u32 = 2;
    pub const ALLOC_PD: u32 = 3;
    pub const DEALLOC_PD: u32 = 4;
    pub const CREATE_AH: u32 = 5;
    pub const DESTROY_AH: u32 = 8;
    pub const REG_MR: u32 = 9;
    pub const REREG_MR: u32 = 11;
    pub const DEREG_MR: u32 = 13;
    pub const CREATE_COMP_CHANNEL: u32 = 17;
    pub const CREATE_CQ: u32 = 18;
    pub const DESTROY_CQ: u32 = 20;
    pub const CREATE_QP: u32 = 24;
    pub const QUERY_QP: u32 = 25;
    pub const MODIFY_QP: u32 = 26;
    pub const DESTROY_QP: u32 = 27;
    pub const CREATE_SRQ: u32 = 32;
    pub const DESTROY_SRQ: u32 = 35;
}

/// Objects, methods and attributes of the ioctl (rdma/ib_user_ioctl_cmds.h, rdma/mlx5_user_ioctl_cmds.h).
pub mod ioctl {
    /// Where a driver's own numbers begin.
    const DRIVER: u16 = 1 << 12;

    pub const OBJECT_DEVICE: u16 = 0;
    pub const METHOD_INVOKE_WRITE: u16 = 0;
    pub const METHOD_QUERY_GID_TABLE: u16 = 5;
    pub const METHOD_QUERY_GID_ENTRY: u16 = 6;
    pub const GID_ENTRY_PORT: u16 = 0;
    pub const GID_ENTRY_INDEX: u16 = 1;
    pub const GID_ENTRY: u16 = 3;
    pub const GID_TABLE: u16 = 2;
    pub const GID_TABLE_LENGTH: u16 = 3;
    pub const CORE_IN: u16 = 0;
    pub const CORE_OUT: u16 = 1;
    pub const WRITE_COMMAND: u16 = 2;
    pub const DRIVER_IN: u16 = DRIVER;
    pub const DRIVER_OUT: u16 = DRIVER + 1;

    pub const OBJECT_DEVX: u16 = DRIVER;
    pub const METHOD_DEVX_OTHER: u16 = DRIVER;
    pub const METHOD_DEVX_QUERY_EQN: u16 = DRIVER + 2;
    pub const METHOD_DEVX_SUBSCRIBE_EVENT: u16 = DRIVER + 3;
    pub const SUBSCRIBE_CHANNEL: u16 = DRIVER;
    pub const SUBSCRIBE_OBJECT: u16 = DRIVER + 1;
    pub const SUBSCRIBE_EVENTS: u16 = DRIVER + 2;
    pub const SUBSCRIBE_FILE: u16 = DRIVER + 3;
    pub const SUBSCRIBE_COOKIE: u16 = DRIVER + 4;
    pub const DEVX_COMMAND: DevxCommand = DevxCommand {
        command_in: DRIVER,
        command_out: DRIVER + 1,
    };
    pub const DEVX_VECTOR: u16 = DRIVER;
    pub const DEVX_EQN: u16 = DRIVER + 1;

    pub const OBJECT_DEVX_OBJ: u16 = DRIVER + 1;
    pub const METHOD_DEVX_OBJ_CREATE: u16 = DRIVER;
    pub const METHOD_DEVX_OBJ_DESTROY: u16 = DRIVER + 1;
    pub const METHOD_DEVX_OBJ_MODIFY: u16 = DRIVER + 2;
    pub const METHOD_DEVX_OBJ_QUERY: u16 = DRIVER + 3;
    pub const DEVX_OBJ_HANDLE: u16 = DRIVER;
    pub const DEVX_OBJ_COMMAND: DevxCommand = DevxCommand {
        command_in: DRIVER + 1,
        command_out: DRIVER + 2,
    };

    pub const OBJECT_DEVX_UMEM: u16 = DRIVER + 2;
    pub const METHOD_UMEM_REG: u16 = DRIVER;
    pub const METHOD_UMEM_DEREG: u16 = DRIVER + 1;
    pub const UMEM_HANDLE: u16 = DRIVER;
    pub const UMEM_ADDRESS: u16 = DRIVER + 1;
    pub const UMEM_LENGTH: u16 = DRIVER + 2;
    pub const UMEM_ID: u16 = DRIVER + 4;
    pub const UMEM_PAGE_SIZES: u16 = DRIVER + 5;
    pub const UMEM_DMABUF_FILE: u16 = DRIVER + 6;

    pub const OBJECT_EVENT_CHANNEL: u16 = DRIVER + 5;
    pub const METHOD_EVENT_CHANNEL_ALLOC: u16 = DRIVER;
    pub const EVENT_CHANNEL_FILE: u16 = DRIVER;
    pub const EVENT_CHANNEL_FLAGS: u16 = DRIVER + 1;
    /// An event is its cookie, without the card's entry.
    pub const EVENT_CHANNEL_WITHOUT_DATA: u64 = 1;

    /// Where a method that carries a command has it, and where its answer goes.
    #[derive(Clone, Copy)]
    pub struct DevxCommand {
        pub command_in: u16,
        pub command_out: u16,
    }

    pub const OBJECT_MR: u16 = 7;
    pub const METHOD_ADVISE_MR: u16 = 2;

    pub const OBJECT_UAR: u16 = DRIVER + 8;
    pub const METHOD_UAR_ALLOC: u16 = DRIVER;
    pub const METHOD_UAR_DESTROY: u16 = DRIVER + 1;
    pub const UAR_HANDLE: u16 = DRIVER;
    pub const UAR_MMAP_OFFSET: u16 = DRIVER + 2;
    pub const UAR_MMAP_LENGTH: u16 = DRIVER + 3;
    pub const UAR_PAGE_ID: u16 = DRIVER + 4;
}

/// Declares structures, each with its size.
macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident, $bytes:literal { $($field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub struct $name { $(pub $field: $type,)* }

        const _: () = assert!(size_of::<$name>() == $bytes);
    )*};
}

structures! {
    /// `ib_uverbs_get_context_resp`.
    Context, 8 {
        async_fd: u32,
        num_comp_vectors: u32,
    }

    /// `mlx5_ib_alloc_ucontext_resp`.
    DriverContext, 72 {
        qp_tab_size: u32,
        bf_reg_size: u32,
        tot_bfregs: u32,
        cache_line_size: u32,
        max_sq_desc_sz: u16,
        max_rq_desc_sz: u16,
        max_send_wqebb: u32,
        max_recv_wr: u32,
        max_srq_recv_wr: u32,
        num_ports: u16,
        flow_action_flags: u16,
        comp_mask: u32,
        response_length: u32,
        cqe_version: u8,
        cmds_supp_uhw: u8,
        eth_min_inline: u8,
        clock_info_versions: u8,
        hca_core_clock_offset: u64,
        log_uar_size: u32,
        num_uars_per_page: u32,
        num_dyn_bfregs: u32,
        dump_fill_mkey: u32,
    }

    /// `ib_uverbs_query_device_resp`.
    Device, 176 {
        fw_ver: u64,
        node_guid: [u8; 8],
        sys_image_guid: [u8; 8],
        max_mr_size: u64,
        page_size_cap: u64,
        vendor_id: u32,
        vendor_part_id: u32,
        hw_ver: u32,
        max_qp: u32,
        max_qp_wr: u32,
        device_cap_flags: u32,
        max_sge: u32,
        max_sge_rd: u32,
        max_cq: u32,
        max_cqe: u32,
        max_mr: u32,
        max_pd: u32,
        max_qp_rd_atom: u32,
        max_ee_rd_atom: u32,
        max_res_rd_atom: u32,
        max_qp_init_rd_atom: u32,
        max_ee_init_rd_atom: u32,
        atomic_cap: u32,
        max_ee: u32,
        max_rdd: u32,
        max_mw: u32,
        max_raw_ipv6_qp: u32,
        max_raw_ethy_qp: u32,
        max_mcast_grp: u32,
        max_mcast_qp_attach: u32,
        max_total_mcast_qp_attach: u32,
        max_ah: u32,
        max_fmr: u32,
        max_map_per_fmr: u32,
        max_srq: u32,
        max_srq_wr: u32,
        max_srq_sge: u32,
        max_pkeys: u16,
        local_ca_ack_delay: u8,
        phys_port_cnt: u8,
        reserved: [u8; 4],
    }

    /// The head of `ib_uverbs_ex_query_device_resp`, up to `ib_uverbs_odp_caps`.
    ExtendedDevice, 208 {
        base: Device,
        comp_mask: u32,
        response_length: u32,
        paging: u64,
        paging_rc: u32,
        paging_uc: u32,
        paging_ud: u32,
        reserved: u32,
    }

    /// `ib_uverbs_query_port_resp`.
    Port, 40 {
        port_cap_flags: u32,
        max_msg_sz: u32,
        bad_pkey_cntr: u32,
        qkey_viol_cntr: u32,
        gid_tbl_len: u32,
        pkey_tbl_len: u16,
        lid: u16,
        sm_lid: u16,
        state: u8,
        max_mtu: u8,
        active_mtu: u8,
        lmc: u8,
        max_vl_num: u8,
        sm_sl: u8,
        subnet_timeout: u8,
        init_type_reply: u8,
        active_width: u8,
        active_speed: u8,
        phys_state: u8,
        link_layer: u8,
        flags: u8,
        reserved: u8,
    }

    /// `ib_uverbs_reg_mr_resp`.
    MemoryRegion, 12 {
        mr_handle: u32,
        lkey: u32,
        rkey: u32,
    }

    /// `ib_uverbs_rereg_mr` after the pointer to the answer.
    RegistrationChange, 40 {
        mr_handle: u32,
        flags: u32,
        start: u64,
        length: u64,
        hca_va: u64,
        pd_handle: u32,
        access_flags: u32,
    }

    /// `ib_uverbs_rereg_mr_resp`.
    ChangedKeys, 8 {
        lkey: u32,
        rkey: u32,
    }

    /// `ib_uverbs_ex_create_cq_resp`; the short form is its first 8 bytes.
    CompletionQueue, 16 {
        cq_handle: u32,
        cqe: u32,
        comp_mask: u32,
        response_length: u32,
    }

    /// `ib_uverbs_ex_create_qp_resp`; the short form is its first 32 bytes.
    QueuePair, 40 {
        qp_handle: u32,
        qpn: u32,
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
        reserved: u32,
        comp_mask: u32,
        response_length: u32,
    }

    /// What both forms of `ib_uverbs_create_qp` have after `user_handle`.
    QueuePairRequest, 40 {
        pd_handle: u32,
        send_cq_handle: u32,
        recv_cq_handle: u32,
        srq_handle: u32,
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
        sq_sig_all: u8,
        qp_type: u8,
        is_srq: u8,
        reserved: u8,
    }

    /// `ib_uverbs_create_srq_resp`.
    SharedReceiveQueue, 16 {
        srq_handle: u32,
        max_wr: u32,
        max_sge: u32,
        srqn: u32,
    }

    /// `ib_uverbs_create_ah` from the domain on, after the pointer to the answer and the user's handle.
    AddressHandleRequest, 40 {
        pd_handle: u32,
        reserved: u32,
        dgid: [u8; 16],
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
        reserved1: u8,
        dlid: u16,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
        reserved2: u8,
    }

    /// `mlx5_ib_create_ah_resp`.
    DriverAddressHandle, 16 {
        response_length: u32,
        dmac: [u8; 6],
        reserved: [u8; 6],
    }

    /// `ib_uverbs_reg_mr` after the pointer to the answer.
    MemoryRegionRequest, 32 {
        start: u64,
        length: u64,
        hca_va: u64,
        pd_handle: u32,
        access_flags: u32,
    }

    /// `mlx5_ib_create_cq`.
    DriverCompletionQueueRequest, 32 {
        buf_addr: u64,
        db_addr: u64,
        cqe_size: u32,
        cqe_comp_en: u8,
        cqe_comp_res_format: u8,
        flags: u16,
        uar_page_index: u16,
        reserved0: u16,
        reserved1: u32,
    }

    /// `ib_uverbs_create_srq` from the domain on, after the pointer to the answer and the user's handle.
    SharedReceiveQueueRequest, 16 {
        pd_handle: u32,
        max_wr: u32,
        max_sge: u32,
        srq_limit: u32,
    }

    /// The part of `mlx5_ib_create_srq` that all versions have.
    DriverSharedReceiveQueueRequest, 24 {
        buf_addr: u64,
        db_addr: u64,
        flags: u32,
        reserved: u32,
    }

    /// The part of `mlx5_ib_create_qp` that all versions have.
    DriverQueuePairRequest, 40 {
        buf_addr: u64,
        db_addr: u64,
        sq_wqe_count: u32,
        rq_wqe_count: u32,
        rq_wqe_shift: u32,
        flags: u32,
        uidx: u32,
        bfreg_index: u32,
    }

    /// `ib_uverbs_gid_entry`.
    GidEntry, 32 {
        gid: [u8; 16],
        gid_index: u32,
        port_num: u32,
        gid_type: u32,
        netdev_ifindex: u32,
    }

    /// `ib_uverbs_qp_dest`.
    Path, 32 {
        dgid: [u8; 16],
        flow_label: u32,
        dlid: u16,
        reserved: u16,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
    }

    /// `ib_uverbs_query_qp_resp`.
    QueuePairQuery, 128 {
        dest: Path,
        alt_dest: Path,
        max_send_wr: u32,
        max_recv_wr: u32,
        max_send_sge: u32,
        max_recv_sge: u32,
        max_inline_data: u32,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        pkey_index: u16,
        alt_pkey_index: u16,
        qp_state: u8,
        cur_qp_state: u8,
        path_mtu: u8,
        path_mig_state: u8,
        sq_draining: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        sq_sig_all: u8,
        reserved: [u8; 5],
    }

    /// `ib_uverbs_destroy_cq_resp`.
    CompletionQueueEnd, 8 {
        comp_events_reported: u32,
        async_events_reported: u32,
    }

    /// The part of both forms of `ib_uverbs_create_cq` from `user_handle` on.
    CompletionQueueRequest, 24 {
        user_handle: u64,
        cqe: u32,
        comp_vector: u32,
        comp_channel: i32,
        reserved: u32,
    }

    /// `ib_uverbs_modify_qp`.
    ModifyRequest, 112 {
        dest: Path,
        alt_dest: Path,
        qp_handle: u32,
        attr_mask: u32,
        qkey: u32,
        rq_psn: u32,
        sq_psn: u32,
        dest_qp_num: u32,
        qp_access_flags: u32,
        pkey_index: u16,
        alt_pkey_index: u16,
        qp_state: u8,
        cur_qp_state: u8,
        path_mtu: u8,
        path_mig_state: u8,
        en_sqd_async_notify: u8,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        port_num: u8,
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        alt_port_num: u8,
        alt_timeout: u8,
        reserved: [u8; 2],
    }
}
