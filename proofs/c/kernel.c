/* What the kernel's include/linux/mlx5/{qp,device,cq,doorbell}.h say: sizes, offsets, values, and the bytes that
 * their inline functions write.
 *
 * Compiled in user space: shims/kernel.h and the headers beside it stand in for the rest of the kernel. */

#include <linux/mlx5/qp.h>
#include <linux/mlx5/cq.h>
#include <linux/mlx5/doorbell.h>

#include "facts.h"

const struct fact kernel_layouts[] = {
	SIZE(mlx5_wqe_ctrl_seg),
	FIELD(mlx5_wqe_ctrl_seg, opmod_idx_opcode),
	FIELD(mlx5_wqe_ctrl_seg, qpn_ds),
	FIELD(mlx5_wqe_ctrl_seg, signature),
	FIELD(mlx5_wqe_ctrl_seg, rsvd),
	FIELD(mlx5_wqe_ctrl_seg, fm_ce_se),
	FIELD(mlx5_wqe_ctrl_seg, imm),
	SIZE(mlx5_wqe_raddr_seg),
	FIELD(mlx5_wqe_raddr_seg, raddr),
	FIELD(mlx5_wqe_raddr_seg, rkey),
	FIELD(mlx5_wqe_raddr_seg, reserved),
	SIZE(mlx5_wqe_data_seg),
	FIELD(mlx5_wqe_data_seg, byte_count),
	FIELD(mlx5_wqe_data_seg, lkey),
	FIELD(mlx5_wqe_data_seg, addr),
	SIZE(mlx5_wqe_inline_seg),
	FIELD(mlx5_wqe_inline_seg, byte_count),
	SIZE(mlx5_wqe_atomic_seg),
	FIELD(mlx5_wqe_atomic_seg, swap_add),
	FIELD(mlx5_wqe_atomic_seg, compare),
	SIZE(mlx5_wqe_masked_atomic_seg),
	FIELD(mlx5_wqe_masked_atomic_seg, swap_add),
	FIELD(mlx5_wqe_masked_atomic_seg, compare),
	FIELD(mlx5_wqe_masked_atomic_seg, swap_add_mask),
	FIELD(mlx5_wqe_masked_atomic_seg, compare_mask),
	SIZE(mlx5_av),
	FIELD(mlx5_av, key),
	FIELD(mlx5_av, dqp_dct),
	FIELD(mlx5_av, stat_rate_sl),
	FIELD(mlx5_av, fl_mlid),
	FIELD(mlx5_av, rlid),
	FIELD(mlx5_av, udp_sport),
	FIELD(mlx5_av, reserved0),
	FIELD(mlx5_av, rmac),
	FIELD(mlx5_av, tclass),
	FIELD(mlx5_av, hop_limit),
	FIELD(mlx5_av, grh_gid_fl),
	FIELD(mlx5_av, rgid),
	SIZE(mlx5_rwqe_sig),
	FIELD(mlx5_rwqe_sig, signature),
	SIZE(mlx5_wqe_umr_ctrl_seg),
	FIELD(mlx5_wqe_umr_ctrl_seg, flags),
	FIELD(mlx5_wqe_umr_ctrl_seg, rsvd0),
	FIELD(mlx5_wqe_umr_ctrl_seg, xlt_octowords),
	FIELD(mlx5_wqe_umr_ctrl_seg, xlt_offset),
	FIELD(mlx5_wqe_umr_ctrl_seg, mkey_mask),
	FIELD(mlx5_wqe_umr_ctrl_seg, xlt_offset_47_16),
	FIELD(mlx5_wqe_umr_ctrl_seg, rsvd1),
	SIZE(mlx5_mkey_seg),
	FIELD(mlx5_mkey_seg, status),
	FIELD(mlx5_mkey_seg, pcie_control),
	FIELD(mlx5_mkey_seg, flags),
	FIELD(mlx5_mkey_seg, version),
	FIELD(mlx5_mkey_seg, qpn_mkey7_0),
	FIELD(mlx5_mkey_seg, rsvd1),
	FIELD(mlx5_mkey_seg, flags_pd),
	FIELD(mlx5_mkey_seg, start_addr),
	FIELD(mlx5_mkey_seg, len),
	FIELD(mlx5_mkey_seg, bsfs_octo_size),
	FIELD(mlx5_mkey_seg, rsvd2),
	FIELD(mlx5_mkey_seg, xlt_oct_size),
	FIELD(mlx5_mkey_seg, rsvd3),
	FIELD(mlx5_mkey_seg, log2_page_size),
	FIELD(mlx5_mkey_seg, rsvd4),
	SIZE(mlx5_klm),
	FIELD(mlx5_klm, bcount),
	FIELD(mlx5_klm, key),
	FIELD(mlx5_klm, va),
	SIZE(mlx5_cqe64),
	FIELD(mlx5_cqe64, wqe_id),
	FIELD(mlx5_cqe64, ml_path),
	FIELD(mlx5_cqe64, slid),
	FIELD(mlx5_cqe64, flags_rqpn),
	FIELD(mlx5_cqe64, hds_ip_ext),
	FIELD(mlx5_cqe64, l4_l3_hdr_type),
	FIELD(mlx5_cqe64, vlan_info),
	FIELD(mlx5_cqe64, srqn),
	FIELD(mlx5_cqe64, immediate),
	FIELD(mlx5_cqe64, inval_rkey),
	FIELD(mlx5_cqe64, byte_cnt),
	FIELD(mlx5_cqe64, timestamp_h),
	FIELD(mlx5_cqe64, timestamp_l),
	FIELD(mlx5_cqe64, sop_drop_qpn),
	FIELD(mlx5_cqe64, wqe_counter),
	FIELD(mlx5_cqe64, signature),
	FIELD(mlx5_cqe64, op_own),
	SIZE(mlx5_err_cqe),
	FIELD(mlx5_err_cqe, rsvd0),
	FIELD(mlx5_err_cqe, srqn),
	FIELD(mlx5_err_cqe, vendor_err_synd),
	FIELD(mlx5_err_cqe, syndrome),
	FIELD(mlx5_err_cqe, s_wqe_opcode_qpn),
	FIELD(mlx5_err_cqe, wqe_counter),
	FIELD(mlx5_err_cqe, signature),
	FIELD(mlx5_err_cqe, op_own),
	SIZE(mlx5_mini_cqe8),
	FIELD(mlx5_mini_cqe8, rx_hash_result),
	FIELD(mlx5_mini_cqe8, byte_cnt),
	END
};

const struct fact kernel_values[] = {
	VALUE(MLX5_RCV_DBR),
	VALUE(MLX5_SND_DBR),
	VALUE(MLX5_CQ_DOORBELL),
	VALUE(MLX5_BF_OFFSET),
	VALUE(MLX5_ADAPTER_PAGE_SIZE),
	VALUE(MLX5_CQ_DB_REQ_NOT_SOL),
	VALUE(MLX5_CQ_DB_REQ_NOT),
	VALUE(MLX5_INVALID_LKEY),
	VALUE(MLX5_EXTENDED_UD_AV),
	VALUE(MLX5_INLINE_SEG),
	VALUE(MLX5_WQE_INLINE_SEG_BYTE_COUNT_MASK),
	VALUE(MLX5_WQE_CTRL_CQ_UPDATE),
	VALUE(MLX5_WQE_CTRL_CQ_UPDATE_AND_EQE),
	VALUE(MLX5_WQE_CTRL_SOLICITED),
	VALUE(MLX5_WQE_CTRL_DS_MASK),
	VALUE(MLX5_SEND_WQE_DS),
	VALUE(MLX5_SEND_WQE_BB),
	VALUE(MLX5_SEND_WQE_MAX_WQEBBS),
	VALUE(MLX5_FENCE_MODE_NONE),
	VALUE(MLX5_FENCE_MODE_INITIATOR_SMALL),
	VALUE(MLX5_FENCE_MODE_FENCE),
	VALUE(MLX5_FENCE_MODE_STRONG_ORDERING),
	VALUE(MLX5_FENCE_MODE_SMALL_AND_FENCE),
	VALUE(MLX5_OPCODE_NOP),
	VALUE(MLX5_OPCODE_SEND_INVAL),
	VALUE(MLX5_OPCODE_RDMA_WRITE),
	VALUE(MLX5_OPCODE_RDMA_WRITE_IMM),
	VALUE(MLX5_OPCODE_SEND),
	VALUE(MLX5_OPCODE_SEND_IMM),
	VALUE(MLX5_OPCODE_LSO),
	VALUE(MLX5_OPCODE_RDMA_READ),
	VALUE(MLX5_OPCODE_ATOMIC_CS),
	VALUE(MLX5_OPCODE_ATOMIC_FA),
	VALUE(MLX5_OPCODE_ATOMIC_MASKED_CS),
	VALUE(MLX5_OPCODE_ATOMIC_MASKED_FA),
	VALUE(MLX5_OPCODE_CONFIG_CMD),
	VALUE(MLX5_OPCODE_SET_PSV),
	VALUE(MLX5_OPCODE_DUMP),
	VALUE(MLX5_OPCODE_UMR),
	VALUE(MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR),
	VALUE(MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR),
	VALUE(MLX5_CQE_SYNDROME_LOCAL_PROT_ERR),
	VALUE(MLX5_CQE_SYNDROME_WR_FLUSH_ERR),
	VALUE(MLX5_CQE_SYNDROME_MW_BIND_ERR),
	VALUE(MLX5_CQE_SYNDROME_BAD_RESP_ERR),
	VALUE(MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR),
	VALUE(MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR),
	VALUE(MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR),
	VALUE(MLX5_CQE_SYNDROME_REMOTE_OP_ERR),
	VALUE(MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR),
	VALUE(MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR),
	VALUE(MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR),
	VALUE(MLX5_CQE_OWNER_MASK),
	VALUE(MLX5_CQE_REQ),
	VALUE(MLX5_CQE_RESP_WR_IMM),
	VALUE(MLX5_CQE_RESP_SEND),
	VALUE(MLX5_CQE_RESP_SEND_IMM),
	VALUE(MLX5_CQE_RESP_SEND_INV),
	VALUE(MLX5_CQE_RESIZE_CQ),
	VALUE(MLX5_CQE_SIG_ERR),
	VALUE(MLX5_CQE_REQ_ERR),
	VALUE(MLX5_CQE_RESP_ERR),
	VALUE(MLX5_CQE_INVALID),
	VALUE(MLX5_NO_INLINE_DATA),
	VALUE(MLX5_INLINE_DATA32_SEG),
	VALUE(MLX5_INLINE_DATA64_SEG),
	VALUE(MLX5_COMPRESSED),
	VALUE(MLX5_MKEY_STATUS_FREE),
	VALUE(MLX5_PERM_LOCAL_READ),
	VALUE(MLX5_PERM_LOCAL_WRITE),
	VALUE(MLX5_PERM_REMOTE_READ),
	VALUE(MLX5_PERM_REMOTE_WRITE),
	VALUE(MLX5_PERM_ATOMIC),
	VALUE(MLX5_MKEY_MASK_LEN),
	VALUE(MLX5_MKEY_MASK_START_ADDR),
	VALUE(MLX5_MKEY_MASK_EN_SIGERR),
	VALUE(MLX5_MKEY_MASK_BSF_EN),
	VALUE(MLX5_MKEY_MASK_KEY),
	VALUE(MLX5_MKEY_MASK_QPN),
	VALUE(MLX5_MKEY_MASK_LW),
	VALUE(MLX5_MKEY_MASK_RR),
	VALUE(MLX5_MKEY_MASK_RW),
	VALUE(MLX5_MKEY_MASK_A),
	VALUE(MLX5_MKEY_MASK_FREE),
	VALUE(MLX5_UMR_TRANSLATION_OFFSET_EN),
	VALUE(MLX5_UMR_CHECK_NOT_FREE),
	VALUE(MLX5_FLAGS_CHECK_FREE),
	VALUE(MLX5_UMR_INLINE),
	END
};

/* Both segments of a masked 8-byte atomic. */
void kernel_masked_atomic(void *at, u64 swap, u64 compare, u64 swap_mask, u64 compare_mask)
{
	struct mlx5_wqe_masked_atomic_seg *segment = at;

	segment->swap_add = cpu_to_be64(swap);
	segment->compare = cpu_to_be64(compare);
	segment->swap_add_mask = cpu_to_be64(swap_mask);
	segment->compare_mask = cpu_to_be64(compare_mask);
}

/* What mlx5_cq_set_ci and mlx5_cq_arm leave in a CQ's doorbell record and in the UAR page. */
void kernel_cq_arm(__be32 record[2], void *uar, u32 cqn, u32 sequence, u32 solicited_only, u32 consumer)
{
	struct mlx5_core_cq cq = {
		.cqn = cqn,
		.set_ci_db = record,
		.arm_db = record + 1,
		.cons_index = consumer,
		.arm_sn = sequence,
	};

	mlx5_cq_set_ci(&cq);
	mlx5_cq_arm(&cq, solicited_only ? MLX5_CQ_DB_REQ_NOT_SOL : MLX5_CQ_DB_REQ_NOT, uar, consumer);
}

u8 kernel_cqe_opcode(void *cqe)
{
	return get_cqe_opcode(cqe);
}

u8 kernel_cqe_format(void *cqe)
{
	return mlx5_get_cqe_format(cqe);
}
