/* What rdma-core's infiniband/mlx5dv.h says: its numbers, and work requests built from its structures. */

#include <string.h>

#include <infiniband/mlx5dv.h>

#include "completion.h"
#include "facts.h"
#include "request.h"

const struct fact mlx5dv_layouts[] = {
	SIZE(mlx5_wqe_ctrl_seg),
	FIELD(mlx5_wqe_ctrl_seg, opmod_idx_opcode),
	FIELD(mlx5_wqe_ctrl_seg, qpn_ds),
	FIELD(mlx5_wqe_ctrl_seg, signature),
	FIELD(mlx5_wqe_ctrl_seg, dci_stream_channel_id),
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
	SIZE(mlx5_wqe_inl_data_seg),
	FIELD(mlx5_wqe_inl_data_seg, byte_count),
	SIZE(mlx5_wqe_atomic_seg),
	FIELD(mlx5_wqe_atomic_seg, swap_add),
	FIELD(mlx5_wqe_atomic_seg, compare),
	SIZE(mlx5_wqe_av),
	FIELD(mlx5_wqe_av, key),
	FIELD(mlx5_wqe_av, dqp_dct),
	FIELD(mlx5_wqe_av, stat_rate_sl),
	FIELD(mlx5_wqe_av, fl_mlid),
	FIELD(mlx5_wqe_av, rlid),
	FIELD(mlx5_wqe_av, reserved0),
	FIELD(mlx5_wqe_av, rmac),
	FIELD(mlx5_wqe_av, tclass),
	FIELD(mlx5_wqe_av, hop_limit),
	FIELD(mlx5_wqe_av, grh_gid_fl),
	FIELD(mlx5_wqe_av, rgid),
	SIZE(mlx5_wqe_srq_next_seg),
	FIELD(mlx5_wqe_srq_next_seg, rsvd0),
	FIELD(mlx5_wqe_srq_next_seg, next_wqe_index),
	FIELD(mlx5_wqe_srq_next_seg, signature),
	FIELD(mlx5_wqe_srq_next_seg, rsvd1),
	SIZE(mlx5_wqe_umr_ctrl_seg),
	FIELD(mlx5_wqe_umr_ctrl_seg, flags),
	FIELD(mlx5_wqe_umr_ctrl_seg, rsvd0),
	FIELD(mlx5_wqe_umr_ctrl_seg, klm_octowords),
	FIELD(mlx5_wqe_umr_ctrl_seg, translation_offset),
	FIELD(mlx5_wqe_umr_ctrl_seg, mkey_mask),
	SIZE(mlx5_wqe_mkey_context_seg),
	FIELD(mlx5_wqe_mkey_context_seg, free),
	FIELD(mlx5_wqe_mkey_context_seg, access_flags),
	FIELD(mlx5_wqe_mkey_context_seg, sf),
	FIELD(mlx5_wqe_mkey_context_seg, qpn_mkey),
	FIELD(mlx5_wqe_mkey_context_seg, flags_pd),
	FIELD(mlx5_wqe_mkey_context_seg, start_addr),
	FIELD(mlx5_wqe_mkey_context_seg, len),
	FIELD(mlx5_wqe_mkey_context_seg, bsf_octword_size),
	FIELD(mlx5_wqe_mkey_context_seg, translations_octword_size),
	FIELD(mlx5_wqe_mkey_context_seg, log_page_size),
	SIZE(mlx5_wqe_umr_klm_seg),
	FIELD(mlx5_wqe_umr_klm_seg, byte_count),
	FIELD(mlx5_wqe_umr_klm_seg, mkey),
	FIELD(mlx5_wqe_umr_klm_seg, address),
	SIZE(mlx5_cqe64),
	FIELD(mlx5_cqe64, wqe_id),
	FIELD(mlx5_cqe64, ml_path),
	FIELD(mlx5_cqe64, slid),
	FIELD(mlx5_cqe64, flags_rqpn),
	FIELD(mlx5_cqe64, hds_ip_ext),
	FIELD(mlx5_cqe64, l4_hdr_type_etc),
	FIELD(mlx5_cqe64, vlan_info),
	FIELD(mlx5_cqe64, srqn_uidx),
	FIELD(mlx5_cqe64, imm_inval_pkey),
	FIELD(mlx5_cqe64, app),
	FIELD(mlx5_cqe64, app_op),
	FIELD(mlx5_cqe64, app_info),
	FIELD(mlx5_cqe64, byte_cnt),
	FIELD(mlx5_cqe64, timestamp),
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
	END
};

const struct fact mlx5dv_values[] = {
	VALUE(MLX5_RCV_DBR),
	VALUE(MLX5_SND_DBR),
	VALUE(MLX5_OPCODE_NOP),
	VALUE(MLX5_OPCODE_SEND_INVAL),
	VALUE(MLX5_OPCODE_RDMA_WRITE),
	VALUE(MLX5_OPCODE_RDMA_WRITE_IMM),
	VALUE(MLX5_OPCODE_SEND),
	VALUE(MLX5_OPCODE_SEND_IMM),
	VALUE(MLX5_OPCODE_TSO),
	VALUE(MLX5_OPCODE_RDMA_READ),
	VALUE(MLX5_OPCODE_ATOMIC_CS),
	VALUE(MLX5_OPCODE_ATOMIC_FA),
	VALUE(MLX5_OPCODE_ATOMIC_MASKED_CS),
	VALUE(MLX5_OPCODE_ATOMIC_MASKED_FA),
	VALUE(MLX5_OPCODE_FMR),
	VALUE(MLX5_OPCODE_LOCAL_INVAL),
	VALUE(MLX5_OPCODE_CONFIG_CMD),
	VALUE(MLX5_OPCODE_SET_PSV),
	VALUE(MLX5_OPCODE_UMR),
	VALUE(MLX5_OPCODE_TAG_MATCHING),
	VALUE(MLX5_OPCODE_FLOW_TBL_ACCESS),
	VALUE(MLX5_OPCODE_MMO),
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
	VALUE(MLX5_CQE_VENDOR_SYNDROME_ODP_PFAULT),
	VALUE(MLX5_CQE_OWNER_MASK),
	VALUE(MLX5_CQE_REQ),
	VALUE(MLX5_CQE_RESP_WR_IMM),
	VALUE(MLX5_CQE_RESP_SEND),
	VALUE(MLX5_CQE_RESP_SEND_IMM),
	VALUE(MLX5_CQE_RESP_SEND_INV),
	VALUE(MLX5_CQE_RESIZE_CQ),
	VALUE(MLX5_CQE_NO_PACKET),
	VALUE(MLX5_CQE_SIG_ERR),
	VALUE(MLX5_CQE_REQ_ERR),
	VALUE(MLX5_CQE_RESP_ERR),
	VALUE(MLX5_CQE_INVALID),
	VALUE(MLX5_CQ_DOORBELL),
	VALUE(MLX5_CQ_DB_REQ_NOT_SOL),
	VALUE(MLX5_CQ_DB_REQ_NOT),
	VALUE(MLX5_INVALID_LKEY),
	VALUE(MLX5_EXTENDED_UD_AV),
	VALUE(MLX5_WQE_CTRL_CQ_UPDATE),
	VALUE(MLX5_WQE_CTRL_SOLICITED),
	VALUE(MLX5_WQE_CTRL_FENCE),
	VALUE(MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE),
	VALUE(MLX5_SEND_WQE_BB),
	VALUE(MLX5_INLINE_SEG),
	VALUE(MLX5_WQE_UMR_CTRL_FLAG_INLINE),
	VALUE(MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE),
	VALUE(MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET),
	VALUE(MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN),
	VALUE(MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN),
	VALUE(MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR),
	VALUE(MLX5_WQE_UMR_CTRL_MKEY_MASK_SIG_ERR),
	VALUE(MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE),
	VALUE(MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY),
	VALUE(MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN),
	VALUE(MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE),
	VALUE(MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ),
	VALUE(MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE),
	VALUE(MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC),
	VALUE(MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE),
	VALUE(MLX5_WQE_MKEY_CONTEXT_FREE),
	VALUE(MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC),
	VALUE(MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE),
	VALUE(MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ),
	VALUE(MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE),
	VALUE(MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_READ),
	END
};

/* Appends 16-byte segments after the control segment. */
static uint8_t *data_segments(uint8_t *at, const struct request *r)
{
	for (uint32_t i = 0; i < r->segments; i++, at += sizeof(struct mlx5_wqe_data_seg))
		mlx5dv_set_data_seg((struct mlx5_wqe_data_seg *)at, r->segment[i].length, r->segment[i].key,
				    r->segment[i].address);
	return at;
}

uint32_t mlx5dv_build(uint8_t *wqe, const struct request *r)
{
	uint8_t *at = wqe + sizeof(struct mlx5_wqe_ctrl_seg);

	if (r->parts & HAS_DATAGRAM) {
		uint8_t rmac[6], rgid[16];

		memcpy(rmac, r->rmac, sizeof(rmac));
		memcpy(rgid, r->rgid, sizeof(rgid));
		mlx5dv_set_dgram_seg((struct mlx5_wqe_datagram_seg *)at, r->key, r->destination, 1,
				     r->stat_rate_sl, r->fl_mlid, r->rlid, rmac, r->tclass, r->hop_limit,
				     r->grh_gid_fl, rgid);
		at += sizeof(struct mlx5_wqe_datagram_seg);
	}
	if (r->parts & HAS_REMOTE) {
		struct mlx5_wqe_raddr_seg *remote = (struct mlx5_wqe_raddr_seg *)at;

		remote->raddr = htobe64(r->remote_address);
		remote->rkey = htobe32(r->remote_key);
		remote->reserved = 0;
		at += sizeof(*remote);
	}
	if (r->parts & HAS_ATOMIC) {
		struct mlx5_wqe_atomic_seg *atomic = (struct mlx5_wqe_atomic_seg *)at;

		atomic->swap_add = htobe64(r->swap_add);
		atomic->compare = htobe64(r->compare);
		at += sizeof(*atomic);
	}
	if (r->parts & HAS_INLINE) {
		struct mlx5_wqe_inl_data_seg *header = (struct mlx5_wqe_inl_data_seg *)at;

		header->byte_count = htobe32(r->inline_length | MLX5_INLINE_SEG);
		memcpy(header + 1, r->inline_data, r->inline_length);
		at += (sizeof(*header) + r->inline_length + 15) / 16 * 16;
	}
	at = data_segments(at, r);
	/* The immediate lies in the segment as it comes; for an invalidation libmlx5 swaps the key. */
	mlx5dv_set_ctrl_seg((struct mlx5_wqe_ctrl_seg *)wqe, r->index, r->opcode, r->modifier, r->qpn,
			    r->fm_ce_se, (at - wqe) / 16, 0, htobe32(r->immediate));
	return at - wqe;
}

void mlx5dv_read_cqe(const void *bytes, struct completion *said)
{
	struct mlx5_cqe64 cqe;
	struct mlx5_err_cqe error;

	memcpy(&cqe, bytes, sizeof(cqe));
	memcpy(&error, bytes, sizeof(error));
	said->opcode = mlx5dv_get_cqe_opcode(&cqe);
	said->format = mlx5dv_get_cqe_format(&cqe);
	said->solicited = mlx5dv_get_cqe_se(&cqe);
	said->owner = mlx5dv_get_cqe_owner(&cqe);
	said->wqe_opcode = be32toh(cqe.sop_drop_qpn) >> 24;
	said->qpn = be32toh(cqe.sop_drop_qpn) & 0xffffff;
	said->source_qpn = be32toh(cqe.flags_rqpn) & 0xffffff;
	said->user_index = be32toh(cqe.srqn_uidx) & 0xffffff;
	said->immediate = be32toh(cqe.imm_inval_pkey);
	said->byte_count = be32toh(cqe.byte_cnt);
	said->wqe_counter = be16toh(cqe.wqe_counter);
	said->signature = cqe.signature;
	said->syndrome = error.syndrome;
	said->vendor = error.vendor_err_synd;
}
