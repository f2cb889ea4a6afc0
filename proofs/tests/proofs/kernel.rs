//! `mlx5-wqe` against the kernel's `include/linux/mlx5` headers.

mod headers {
    use crate::values;
    use mlx5_wqe::segment::{
        Atomic, Control, Data, InlineHeader, MaskedCompareSwap8, RemoteAddress,
    };
    use mlx5_wqe::umr::{Klm, MkeyAccess, MkeyContext, MkeyMask, UmrControl, UmrFlags};
    use mlx5_wqe::{
        AddressVector, ControlFlags, CqArm, CqDoorbellRecord, CqNumber, Cqe64, CqeFormat, ErrorCqe,
        MAX_WQE_BLOCKS, MiniCqe, Octoword, Opcode, SrqNext, UarPage,
    };
    use proptest::prelude::*;
    use warpbell_proofs::facts::{assert_same, constants};
    use warpbell_proofs::{kernel, layouts};
    use zerocopy::IntoBytes;

    #[test]
    fn layouts_are_the_headers() {
        let mut ours = layouts! {
            Control = "mlx5_wqe_ctrl_seg" {
                opmod_idx_opcode, qpn_ds, signature, dci_stream = "rsvd", fm_ce_se, immediate = "imm",
            }
            RemoteAddress = "mlx5_wqe_raddr_seg" { address = "raddr", key = "rkey", reserved }
            Data = "mlx5_wqe_data_seg" { byte_count, key = "lkey", address = "addr" }
            InlineHeader = "mlx5_wqe_inline_seg" { byte_count }
            Atomic = "mlx5_wqe_atomic_seg" { swap_add, compare }
            MaskedCompareSwap8 = "mlx5_wqe_masked_atomic_seg" {
                swap = "swap_add", compare, swap_mask = "swap_add_mask", compare_mask,
            }
            AddressVector = "mlx5_av" {
                key, dqp_dct, stat_rate_sl, fl_mlid, rlid, rlid = "udp_sport", reserved16 = "reserved0",
                rmac, tclass, hop_limit, grh_gid_fl, rgid,
            }
            SrqNext = "mlx5_rwqe_sig" { signature }
            UmrControl = "mlx5_wqe_umr_ctrl_seg" {
                flags, reserved1 = "rsvd0", klm_octowords = "xlt_octowords",
                translation_offset = "xlt_offset", mkey_mask,
                translation_offset_high = "xlt_offset_47_16", reserved20 = "rsvd1",
            }
            MkeyContext = "mlx5_mkey_seg" {
                free = "status", pcie_control, access_flags = "flags", sf = "version",
                qpn_mkey = "qpn_mkey7_0", reserved8 = "rsvd1", flags_pd, start_address = "start_addr",
                length = "len", bsf_octowords = "bsfs_octo_size", reserved36 = "rsvd2",
                translation_octowords = "xlt_oct_size", reserved56 = "rsvd3",
                log_page_size = "log2_page_size", reserved60 = "rsvd4",
            }
            Klm = "mlx5_klm" { byte_count = "bcount", mkey = "key", address = "va" }
            Cqe64 = "mlx5_cqe64" {
                wqe_id, ml_path, slid, flags_rqpn, hds_ip_ext, l4_header_type = "l4_l3_hdr_type",
                vlan_info, srqn_uidx = "srqn", immediate, immediate = "inval_rkey",
                byte_count = "byte_cnt", opcode_qpn = "sop_drop_qpn", wqe_counter, signature, op_own,
            }
            ErrorCqe = "mlx5_err_cqe" {
                reserved0 = "rsvd0", srqn_uidx = "srqn", vendor = "vendor_err_synd", syndrome,
                opcode_qpn = "s_wqe_opcode_qpn", wqe_counter, signature, op_own,
            }
            MiniCqe = "mlx5_mini_cqe8" { info = "rx_hash_result", byte_count = "byte_cnt" }
        };
        // The kernel has the timestamp in two halves.
        let timestamp = std::mem::offset_of!(Cqe64, timestamp) as u64;
        for (name, offset) in [("timestamp_h", timestamp), ("timestamp_l", timestamp + 4)] {
            ours.insert(format!("mlx5_cqe64.{name}"), offset);
            ours.insert(format!("mlx5_cqe64.{name} size"), 4);
        }
        assert_same(&ours, &kernel::layouts());
    }

    /// Where the kernel's name tells something else than ours or mlx5dv.h's, the line says so.
    #[test]
    fn values_are_the_headers() {
        let flags = |flags: ControlFlags| u64::from(flags.bits());
        let umr = |flags: UmrFlags| u64::from(flags.bits());
        let access = |flags: MkeyAccess| u64::from(flags.bits());
        let opcode = |opcode: Opcode| u64::from(opcode.0);
        let mut ours = values::common();
        ours.extend(constants([
            ("MLX5_BF_OFFSET", UarPage::DOORBELLS[0] as u64),
            ("MLX5_ADAPTER_PAGE_SIZE", UarPage::SIZE as u64),
            (
                "MLX5_WQE_INLINE_SEG_BYTE_COUNT_MASK",
                u64::from(InlineHeader::LENGTH_MASK),
            ),
            (
                "MLX5_WQE_CTRL_CQ_UPDATE_AND_EQE",
                flags(ControlFlags::COMPLETION_AND_EVENT),
            ),
            ("MLX5_WQE_CTRL_DS_MASK", u64::from(Control::DS_MASK)),
            ("MLX5_SEND_WQE_DS", size_of::<Octoword>() as u64),
            ("MLX5_SEND_WQE_MAX_WQEBBS", MAX_WQE_BLOCKS as u64),
            ("MLX5_FENCE_MODE_NONE", 0),
            (
                "MLX5_FENCE_MODE_INITIATOR_SMALL",
                flags(ControlFlags::FENCE_INITIATOR_SMALL),
            ),
            (
                "MLX5_FENCE_MODE_FENCE",
                flags(ControlFlags::FENCE_READS_AND_ATOMICS),
            ),
            (
                "MLX5_FENCE_MODE_STRONG_ORDERING",
                flags(ControlFlags::FENCE_STRONG_ORDERING),
            ),
            (
                "MLX5_FENCE_MODE_SMALL_AND_FENCE",
                flags(ControlFlags::FENCE_SMALL_AND_FENCE),
            ),
            // mlx5dv.h calls it TSO.
            ("MLX5_OPCODE_LSO", opcode(Opcode::TSO)),
            ("MLX5_OPCODE_DUMP", opcode(Opcode::DUMP)),
            ("MLX5_NO_INLINE_DATA", CqeFormat::Plain as u64),
            ("MLX5_INLINE_DATA32_SEG", CqeFormat::Inline32 as u64),
            ("MLX5_INLINE_DATA64_SEG", CqeFormat::Inline64 as u64),
            ("MLX5_COMPRESSED", CqeFormat::Compressed as u64),
            ("MLX5_MKEY_STATUS_FREE", u64::from(MkeyContext::FREE)),
            ("MLX5_PERM_LOCAL_READ", access(MkeyAccess::LOCAL_READ)),
            ("MLX5_PERM_LOCAL_WRITE", access(MkeyAccess::LOCAL_WRITE)),
            ("MLX5_PERM_REMOTE_READ", access(MkeyAccess::REMOTE_READ)),
            ("MLX5_PERM_REMOTE_WRITE", access(MkeyAccess::REMOTE_WRITE)),
            ("MLX5_PERM_ATOMIC", access(MkeyAccess::ATOMIC)),
            ("MLX5_MKEY_MASK_LEN", MkeyMask::LENGTH.bits()),
            ("MLX5_MKEY_MASK_START_ADDR", MkeyMask::START_ADDRESS.bits()),
            ("MLX5_MKEY_MASK_EN_SIGERR", MkeyMask::SIGNATURE_ERROR.bits()),
            ("MLX5_MKEY_MASK_BSF_EN", MkeyMask::BSF_ENABLE.bits()),
            ("MLX5_MKEY_MASK_KEY", MkeyMask::MKEY.bits()),
            ("MLX5_MKEY_MASK_QPN", MkeyMask::QPN.bits()),
            ("MLX5_MKEY_MASK_LW", MkeyMask::ACCESS_LOCAL_WRITE.bits()),
            ("MLX5_MKEY_MASK_RR", MkeyMask::ACCESS_REMOTE_READ.bits()),
            ("MLX5_MKEY_MASK_RW", MkeyMask::ACCESS_REMOTE_WRITE.bits()),
            ("MLX5_MKEY_MASK_A", MkeyMask::ACCESS_ATOMIC.bits()),
            ("MLX5_MKEY_MASK_FREE", MkeyMask::FREE.bits()),
            (
                "MLX5_UMR_TRANSLATION_OFFSET_EN",
                umr(UmrFlags::TRANSLATION_OFFSET),
            ),
            // qp.h and mlx5dv.h call this bit "check free", device.h "check not free", and gives
            // "check free" the bit above.
            ("MLX5_FLAGS_CHECK_FREE", umr(UmrFlags::CHECK_FREE)),
            ("MLX5_UMR_CHECK_NOT_FREE", umr(UmrFlags::CHECK_FREE)),
            ("MLX5_UMR_INLINE", umr(UmrFlags::INLINE)),
        ]));
        assert_same(&ours, &kernel::values());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn masked_atomics_are_the_headers(swap: u64, compare: u64, swap_mask: u64, compare_mask: u64) {
            let ours = MaskedCompareSwap8 {
                swap: swap.into(),
                compare: compare.into(),
                swap_mask: swap_mask.into(),
                compare_mask: compare_mask.into(),
            };
            let theirs = kernel::masked_atomic(swap, compare, swap_mask, compare_mask);
            prop_assert_eq!(ours.as_bytes(), theirs);
        }

        /// The kernel's own functions arm a CQ: the same record, the same register.
        #[test]
        fn arming_is_the_kernels(
            cqn in 0..1_u32 << 24,
            sequence: u32,
            solicited_only: bool,
            consumer: u32,
        ) {
            let arm = CqArm { sequence: (sequence & 3) as u8, solicited_only, consumer };
            let (record, register) = kernel::cq_arm(cqn, sequence, solicited_only, consumer);
            prop_assert_eq!(CqDoorbellRecord::consumer_word(consumer), record[0]);
            prop_assert_eq!(arm.word(), record[1]);
            prop_assert_eq!(arm.doorbell(CqNumber::new(cqn).unwrap()), register);
        }

        #[test]
        fn opcode_and_format_are_the_kernels(op_own: u8) {
            let mut cqe = Cqe64::INVALID;
            cqe.op_own = op_own;
            let tail = cqe.tail();
            let theirs = kernel::cqe_opcode_and_format(&cqe);
            prop_assert_eq!((tail.cqe_opcode().0, tail.format() as u8), theirs);
        }
    }
}
