//! `mlx5-wqe` against rdma-core's `infiniband/mlx5dv.h`.

pub mod wqes;

mod headers {
    use crate::values;
    use mlx5_wqe::segment::{Atomic, Control, Data, InlineHeader, RemoteAddress};
    use mlx5_wqe::umr::{Klm, MkeyAccess, MkeyContext, MkeyMask, UmrControl, UmrFlags};
    use mlx5_wqe::{
        AddressVector, Arrival, Completion, ControlFlags, Cqe64, CqeError, CqeOpcode, ErrorCqe,
        Octoword, Opcode, SrqNext, VendorCode,
    };
    use proptest::prelude::*;
    use warpbell_command::decode::{Context, Kind, decode};
    use warpbell_proofs::facts::{assert_same, constants};
    use warpbell_proofs::{layouts, mlx5dv};

    #[test]
    fn layouts_are_the_headers() {
        let ours = layouts! {
            Control = "mlx5_wqe_ctrl_seg" {
                opmod_idx_opcode, qpn_ds, signature, dci_stream = "dci_stream_channel_id", fm_ce_se,
                immediate = "imm",
            }
            RemoteAddress = "mlx5_wqe_raddr_seg" { address = "raddr", key = "rkey", reserved }
            Data = "mlx5_wqe_data_seg" { byte_count, key = "lkey", address = "addr" }
            InlineHeader = "mlx5_wqe_inl_data_seg" { byte_count }
            Atomic = "mlx5_wqe_atomic_seg" { swap_add, compare }
            AddressVector = "mlx5_wqe_av" {
                key, dqp_dct, stat_rate_sl, fl_mlid, rlid, reserved16 = "reserved0", rmac, tclass,
                hop_limit, grh_gid_fl, rgid,
            }
            SrqNext = "mlx5_wqe_srq_next_seg" {
                reserved0 = "rsvd0", next_wqe_index, signature, reserved5 = "rsvd1",
            }
            UmrControl = "mlx5_wqe_umr_ctrl_seg" {
                flags, reserved1 = "rsvd0", klm_octowords, translation_offset, mkey_mask,
            }
            MkeyContext = "mlx5_wqe_mkey_context_seg" {
                free, access_flags, sf, qpn_mkey, flags_pd, start_address = "start_addr", length = "len",
                bsf_octowords = "bsf_octword_size",
                translation_octowords = "translations_octword_size", log_page_size,
            }
            Klm = "mlx5_wqe_umr_klm_seg" { byte_count, mkey, address }
            Cqe64 = "mlx5_cqe64" {
                wqe_id, ml_path, slid, flags_rqpn, hds_ip_ext, l4_header_type = "l4_hdr_type_etc",
                vlan_info, srqn_uidx, immediate = "imm_inval_pkey", app, app_op, app_info,
                byte_count = "byte_cnt", timestamp, opcode_qpn = "sop_drop_qpn", wqe_counter, signature,
                op_own,
            }
            ErrorCqe = "mlx5_err_cqe" {
                reserved0 = "rsvd0", srqn_uidx = "srqn", vendor = "vendor_err_synd", syndrome,
                opcode_qpn = "s_wqe_opcode_qpn", wqe_counter, signature, op_own,
            }
        };
        assert_same(&ours, &mlx5dv::layouts());
    }

    #[test]
    fn values_are_the_headers() {
        let flags = |flags: ControlFlags| u64::from(flags.bits());
        let umr = |flags: UmrFlags| u64::from(flags.bits());
        let access = |flags: MkeyAccess| u64::from(flags.bits());
        let opcode = |opcode: Opcode| u64::from(opcode.0);
        let mut ours = values::common();
        ours.extend(constants([
            ("MLX5_OPCODE_TSO", opcode(Opcode::TSO)),
            ("MLX5_OPCODE_FMR", opcode(Opcode::FMR)),
            ("MLX5_OPCODE_LOCAL_INVAL", opcode(Opcode::LOCAL_INVALIDATE)),
            ("MLX5_OPCODE_TAG_MATCHING", opcode(Opcode::TAG_MATCHING)),
            (
                "MLX5_OPCODE_FLOW_TBL_ACCESS",
                opcode(Opcode::FLOW_TABLE_ACCESS),
            ),
            ("MLX5_OPCODE_MMO", opcode(Opcode::MMO)),
            (
                "MLX5_CQE_VENDOR_SYNDROME_ODP_PFAULT",
                u64::from(VendorCode::PAGE_FAULT.0),
            ),
            ("MLX5_CQE_NO_PACKET", u64::from(CqeOpcode::NO_PACKET.0)),
            (
                "MLX5_WQE_CTRL_FENCE",
                flags(ControlFlags::FENCE_SMALL_AND_FENCE),
            ),
            (
                "MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE",
                flags(ControlFlags::FENCE_INITIATOR_SMALL),
            ),
            ("MLX5_WQE_UMR_CTRL_FLAG_INLINE", umr(UmrFlags::INLINE)),
            (
                "MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE",
                umr(UmrFlags::CHECK_FREE),
            ),
            (
                "MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET",
                umr(UmrFlags::TRANSLATION_OFFSET),
            ),
            ("MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN", umr(UmrFlags::CHECK_QPN)),
            ("MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN", MkeyMask::LENGTH.bits()),
            (
                "MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR",
                MkeyMask::START_ADDRESS.bits(),
            ),
            (
                "MLX5_WQE_UMR_CTRL_MKEY_MASK_SIG_ERR",
                MkeyMask::SIGNATURE_ERROR.bits(),
            ),
            (
                "MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE",
                MkeyMask::BSF_ENABLE.bits(),
            ),
            ("MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY", MkeyMask::MKEY.bits()),
            ("MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN", MkeyMask::QPN.bits()),
            (
                "MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE",
                MkeyMask::ACCESS_LOCAL_WRITE.bits(),
            ),
            (
                "MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ",
                MkeyMask::ACCESS_REMOTE_READ.bits(),
            ),
            (
                "MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE",
                MkeyMask::ACCESS_REMOTE_WRITE.bits(),
            ),
            (
                "MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC",
                MkeyMask::ACCESS_ATOMIC.bits(),
            ),
            ("MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE", MkeyMask::FREE.bits()),
            ("MLX5_WQE_MKEY_CONTEXT_FREE", u64::from(MkeyContext::FREE)),
            (
                "MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC",
                access(MkeyAccess::ATOMIC),
            ),
            (
                "MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE",
                access(MkeyAccess::REMOTE_WRITE),
            ),
            (
                "MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ",
                access(MkeyAccess::REMOTE_READ),
            ),
            (
                "MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE",
                access(MkeyAccess::LOCAL_WRITE),
            ),
            (
                "MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_READ",
                access(MkeyAccess::LOCAL_READ),
            ),
        ]));
        assert_same(&ours, &mlx5dv::values());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Any 64 bytes mean to the header's structures what they mean to ours.
        #[test]
        fn any_cqe_says_the_same(octowords: [[u64; 2]; 4], op_own: u8) {
            let words: [u64; 8] = zerocopy::transmute!(octowords.map(Octoword));
            let mut cqe = Cqe64::from_words(words);
            cqe.op_own = op_own;
            let theirs = mlx5dv::read_cqe(&cqe.to_bytes());

            let tail = cqe.tail();
            prop_assert_eq!(u32::from(tail.cqe_opcode().0), theirs.opcode);
            prop_assert_eq!(tail.format() as u32, theirs.format);
            prop_assert_eq!(u32::from(tail.is_solicited()), theirs.solicited);
            prop_assert_eq!(u32::from(tail.owner()), theirs.owner);
            prop_assert_eq!(u32::from(tail.opcode().0), theirs.wqe_opcode);
            prop_assert_eq!(tail.qpn().get(), theirs.qpn);
            prop_assert_eq!(u32::from(tail.wqe_counter()), theirs.wqe_counter);
            prop_assert_eq!(u32::from(tail.signature()), theirs.signature);
            prop_assert_eq!(cqe.source_qpn().get(), theirs.source_qpn);
            prop_assert_eq!(cqe.user_index(), theirs.user_index);

            match cqe.decode() {
                Ok(Completion::Requester(done)) => {
                    prop_assert_eq!(done.byte_count, theirs.byte_count);
                }
                Ok(Completion::Responder(arrived)) => {
                    prop_assert_eq!(arrived.byte_count, theirs.byte_count);
                    let word = match arrived.kind {
                        Arrival::SendInvalidate(key) => Some(key.0),
                        other => other.immediate().map(|immediate| immediate.0),
                    };
                    prop_assert!(word.is_none_or(|word| word == theirs.immediate));
                }
                Ok(Completion::Error(error)) => {
                    prop_assert_eq!(u32::from(error.syndrome.0), theirs.syndrome);
                    prop_assert_eq!(u32::from(error.vendor.0), theirs.vendor);
                }
                Err(CqeError::Unsupported(opcode)) => {
                    prop_assert_eq!(u32::from(opcode.0), theirs.opcode);
                }
                Err(CqeError::Invalid | CqeError::Compressed) => {}
            }
        }

        /// And so they do to `warpbell decode`.
        #[test]
        fn any_cqe_is_decoded_as_the_header_says(octowords: [[u64; 2]; 4], op_own: u8) {
            let words: [u64; 8] = zerocopy::transmute!(octowords.map(Octoword));
            let mut cqe = Cqe64::from_words(words);
            cqe.op_own = op_own;
            let theirs = mlx5dv::read_cqe(&cqe.to_bytes());

            let report = decode(&cqe.to_bytes(), Some(Kind::Cqe), &Context::default());
            let [found] = &report.structures[..] else {
                panic!("{} structures", report.structures.len());
            };
            let said = |name: &str| {
                let field = found.fields.iter().find(|field| field.name == name);
                field.map(|field| u32::from_str_radix(field.raw.trim_start_matches("0x"), 16))
            };
            let values = mlx5dv::values();
            let is = |name: &str| u64::from(theirs.opcode) == values[name];
            let mut expected = vec![
                ("CQE opcode", theirs.opcode),
                ("solicited", theirs.solicited),
                ("owner", theirs.owner),
                ("user index", theirs.user_index),
                ("WQE opcode", theirs.wqe_opcode),
                ("QPN", theirs.qpn),
                ("WQE counter", theirs.wqe_counter),
                ("signature", theirs.signature),
            ];
            if is("MLX5_CQE_REQ_ERR") || is("MLX5_CQE_RESP_ERR") {
                expected.extend([("syndrome", theirs.syndrome), ("vendor code", theirs.vendor)]);
            } else {
                expected.extend([("byte count", theirs.byte_count), ("immediate", theirs.immediate)]);
            }
            for (name, value) in expected {
                prop_assert_eq!(said(name), Some(Ok(value)), "{}", name);
            }
        }
    }
}
