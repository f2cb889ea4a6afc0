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

/// Declares structures, each with its size. Fields in a row that have one type are declared together, as in C.
macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident, $bytes:literal { $($type:ty: $($field:ident),+;)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub struct $name { $($(pub $field: $type,)+)* }

        const _: () = assert!(size_of::<$name>() == $bytes);
    )*};
}

structures! {
    /// `ib_uverbs_get_context_resp`.
    Context, 8 {
        u32: async_fd, num_comp_vectors;
    }

    /// `mlx5_ib_alloc_ucontext_resp`.
    DriverContext, 72 {
        u32: qp_tab_size, bf_reg_size, tot_bfregs, cache_line_size;
        u16: max_sq_desc_sz, max_rq_desc_sz;
        u32: max_send_wqebb, max_recv_wr, max_srq_recv_wr;
        u16: num_ports, flow_action_flags;
        u32: comp_mask, response_length;
        u8: cqe_version, cmds_supp_uhw, eth_min_inline, clock_info_versions;
        u64: hca_core_clock_offset;
        u32: log_uar_size, num_uars_per_page, num_dyn_bfregs, dump_fill_mkey;
    }

    /// `ib_uverbs_query_device_resp`.
    Device, 176 {
        u64: fw_ver;
        [u8; 8]: node_guid, sys_image_guid;
        u64: max_mr_size, page_size_cap;
        u32: vendor_id, vendor_part_id, hw_ver, max_qp, max_qp_wr, device_cap_flags, max_sge,
            max_sge_rd, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom, max_ee_rd_atom,
            max_res_rd_atom, max_qp_init_rd_atom, max_ee_init_rd_atom, atomic_cap, max_ee, max_rdd,
            max_mw, max_raw_ipv6_qp, max_raw_ethy_qp, max_mcast_grp, max_mcast_qp_attach,
            max_total_mcast_qp_attach, max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr,
            max_srq_sge;
        u16: max_pkeys;
        u8: local_ca_ack_delay, phys_port_cnt;
        [u8; 4]: reserved;
    }

    /// The head of `ib_uverbs_ex_query_device_resp`, up to `ib_uverbs_odp_caps`.
    ExtendedDevice, 208 {
        Device: base;
        u32: comp_mask, response_length;
        u64: paging;
        u32: paging_rc, paging_uc, paging_ud, reserved;
    }

    /// `ib_uverbs_query_port_resp`.
    Port, 40 {
        u32: port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr, gid_tbl_len;
        u16: pkey_tbl_len, lid, sm_lid;
        u8: state, max_mtu, active_mtu, lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply,
            active_width, active_speed, phys_state, link_layer, flags, reserved;
    }

    /// `ib_uverbs_reg_mr_resp`.
    MemoryRegion, 12 {
        u32: mr_handle, lkey, rkey;
    }

    /// `ib_uverbs_rereg_mr` after the pointer to the answer.
    RegistrationChange, 40 {
        u32: mr_handle, flags;
        u64: start, length, hca_va;
        u32: pd_handle, access_flags;
    }

    /// `ib_uverbs_rereg_mr_resp`.
    ChangedKeys, 8 {
        u32: lkey, rkey;
    }

    /// `ib_uverbs_ex_create_cq_resp`; the short form is its first 8 bytes.
    CompletionQueue, 16 {
        u32: cq_handle, cqe, comp_mask, response_length;
    }

    /// `ib_uverbs_ex_create_qp_resp`; the short form is its first 32 bytes.
    QueuePair, 40 {
        u32: qp_handle, qpn, max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data,
            reserved, comp_mask, response_length;
    }

    /// What both forms of `ib_uverbs_create_qp` have after `user_handle`.
    QueuePairRequest, 40 {
        u32: pd_handle, send_cq_handle, recv_cq_handle, srq_handle, max_send_wr, max_recv_wr,
            max_send_sge, max_recv_sge, max_inline_data;
        u8: sq_sig_all, qp_type, is_srq, reserved;
    }

    /// `ib_uverbs_create_srq_resp`.
    SharedReceiveQueue, 16 {
        u32: srq_handle, max_wr, max_sge, srqn;
    }

    /// `ib_uverbs_create_ah` from the domain on, after the pointer to the answer and the user's handle.
    AddressHandleRequest, 40 {
        u32: pd_handle, reserved;
        [u8; 16]: dgid;
        u32: flow_label;
        u8: sgid_index, hop_limit, traffic_class, reserved1;
        u16: dlid;
        u8: sl, src_path_bits, static_rate, is_global, port_num, reserved2;
    }

    /// `mlx5_ib_create_ah_resp`.
    DriverAddressHandle, 16 {
        u32: response_length;
        [u8; 6]: dmac, reserved;
    }

    /// `ib_uverbs_reg_mr` after the pointer to the answer.
    MemoryRegionRequest, 32 {
        u64: start, length, hca_va;
        u32: pd_handle, access_flags;
    }

    /// `mlx5_ib_create_cq`.
    DriverCompletionQueueRequest, 32 {
        u64: buf_addr, db_addr;
        u32: cqe_size;
        u8: cqe_comp_en, cqe_comp_res_format;
        u16: flags, uar_page_index, reserved0;
        u32: reserved1;
    }

    /// `ib_uverbs_create_srq` from the domain on, after the pointer to the answer and the user's handle.
    SharedReceiveQueueRequest, 16 {
        u32: pd_handle, max_wr, max_sge, srq_limit;
    }

    /// The part of `mlx5_ib_create_srq` that all versions have.
    DriverSharedReceiveQueueRequest, 24 {
        u64: buf_addr, db_addr;
        u32: flags, reserved;
    }

    /// The part of `mlx5_ib_create_qp` that all versions have.
    DriverQueuePairRequest, 40 {
        u64: buf_addr, db_addr;
        u32: sq_wqe_count, rq_wqe_count, rq_wqe_shift, flags, uidx, bfreg_index;
    }

    /// `ib_uverbs_gid_entry`.
    GidEntry, 32 {
        [u8; 16]: gid;
        u32: gid_index, port_num, gid_type, netdev_ifindex;
    }

    /// `ib_uverbs_qp_dest`.
    Path, 32 {
        [u8; 16]: dgid;
        u32: flow_label;
        u16: dlid, reserved;
        u8: sgid_index, hop_limit, traffic_class, sl, src_path_bits, static_rate, is_global,
            port_num;
    }

    /// `ib_uverbs_query_qp_resp`.
    QueuePairQuery, 128 {
        Path: dest, alt_dest;
        u32: max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data, qkey, rq_psn,
            sq_psn, dest_qp_num, qp_access_flags;
        u16: pkey_index, alt_pkey_index;
        u8: qp_state, cur_qp_state, path_mtu, path_mig_state, sq_draining, max_rd_atomic,
            max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry,
            alt_port_num, alt_timeout, sq_sig_all;
        [u8; 5]: reserved;
    }

    /// `ib_uverbs_destroy_cq_resp`.
    CompletionQueueEnd, 8 {
        u32: comp_events_reported, async_events_reported;
    }

    /// The part of both forms of `ib_uverbs_create_cq` from `user_handle` on.
    CompletionQueueRequest, 24 {
        u64: user_handle;
        u32: cqe, comp_vector;
        i32: comp_channel;
        u32: reserved;
    }

    /// `ib_uverbs_modify_qp`.
    ModifyRequest, 112 {
        Path: dest, alt_dest;
        u32: qp_handle, attr_mask, qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags;
        u16: pkey_index, alt_pkey_index;
        u8: qp_state, cur_qp_state, path_mtu, path_mig_state, en_sqd_async_notify, max_rd_atomic,
            max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry,
            alt_port_num, alt_timeout;
        [u8; 2]: reserved;
    }
}
