/* What the kernel's include/linux/mlx5/mlx5_ifc.h says: where each field of a command lies, how MLX5_SET writes it
 * and MLX5_GET reads it; and whole commands, written as the kernel's drivers write theirs. */

#include <string.h>

#include <linux/mlx5/device.h>
#include <linux/mlx5/qp.h>

#include "connection.h"
#include "facts.h"

struct field {
	const char *record;
	const char *name;
	uint64_t offset;
	uint64_t width;
	void (*set)(void *record, uint64_t value);
	uint64_t (*get)(const void *record);
};

#define SIZED(typ)
#define NUMBER(typ, fld) \
	static void set_##typ##_##fld(void *p, uint64_t v) { MLX5_SET(typ, p, fld, v); } \
	static uint64_t get_##typ##_##fld(const void *p) { return MLX5_GET(typ, p, fld); }
#define WIDE(typ, fld) \
	static void set_##typ##_##fld(void *p, uint64_t v) { MLX5_SET64(typ, p, fld, v); } \
	static uint64_t get_##typ##_##fld(const void *p) { return MLX5_GET64(typ, p, fld); }
#define PART(typ, fld)
#include "prm_fields.h"
#undef SIZED
#undef NUMBER
#undef WIDE
#undef PART

#define SIZED(typ)
#define PLACE(typ, fld) #typ, #fld, __mlx5_bit_off(typ, fld), __mlx5_bit_sz(typ, fld)
#define NUMBER(typ, fld) { PLACE(typ, fld), set_##typ##_##fld, get_##typ##_##fld },
#define WIDE(typ, fld) NUMBER(typ, fld)
#define PART(typ, fld) { PLACE(typ, fld), NULL, NULL },
const struct field prm_fields[] = {
#include "prm_fields.h"
	/* Within a union. */
	{ "query_hca_cap_out", "cmd_hca_cap", __mlx5_bit_off(query_hca_cap_out, capability.cmd_hca_cap),
	  __mlx5_bit_sz(query_hca_cap_out, capability.cmd_hca_cap), NULL, NULL },
	{ NULL }
};
#undef SIZED
#undef NUMBER
#undef WIDE
#undef PART

#define SIZED(typ) { #typ, MLX5_ST_SZ_BYTES(typ) },
#define NUMBER(typ, fld)
#define WIDE(typ, fld)
#define PART(typ, fld)
const struct fact prm_sizes[] = {
#include "prm_fields.h"
	END
};

/* Runs of bits that the header leaves reserved, and in which fields of ours lie: in bits. */
#define RESERVED(typ, fld) \
	{ #typ "." #fld, __mlx5_bit_off(typ, fld) }, \
	{ #typ "." #fld " size", __mlx5_bit_sz(typ, fld) }
const struct fact prm_reserved[] = {
	RESERVED(create_qp_in, reserved_at_800),
	RESERVED(create_cq_in, reserved_at_280),
	RESERVED(cqc, reserved_at_20),
	RESERVED(wq, reserved_at_140),
	RESERVED(qpc, reserved_at_684),
	RESERVED(qpc, reserved_at_80),
	RESERVED(cmd_hca_cap_2, reserved_at_260),
	END
};

const struct fact prm_values[] = {
	VALUE(MLX5_CMD_OP_QUERY_HCA_CAP),
	VALUE(MLX5_CMD_OP_CREATE_CQ),
	VALUE(MLX5_CMD_OP_DESTROY_CQ),
	VALUE(MLX5_CMD_OP_CREATE_QP),
	VALUE(MLX5_CMD_OP_DESTROY_QP),
	VALUE(MLX5_CMD_OP_RST2INIT_QP),
	VALUE(MLX5_CMD_OP_INIT2RTR_QP),
	VALUE(MLX5_CMD_OP_RTR2RTS_QP),
	VALUE(MLX5_CMD_OP_2ERR_QP),
	VALUE(MLX5_CMD_OP_2RST_QP),
	VALUE(MLX5_CMD_OP_QUERY_QP),
	VALUE(MLX5_CMD_OP_ALLOC_Q_COUNTER),
	VALUE(MLX5_CMD_OP_QUERY_Q_COUNTER),
	VALUE(MLX5_CMD_OP_CREATE_RMP),
	VALUE(MLX5_CMD_OP_DESTROY_RMP),
	VALUE(MLX5_CMD_OP_ALLOC_UAR),
	VALUE(MLX5_CMD_OP_DEALLOC_UAR),
	VALUE(MLX5_CMD_OP_CREATE_UMEM),
	VALUE(MLX5_CMD_OP_DESTROY_UMEM),
	VALUE(MLX5_CMD_STAT_OK),
	VALUE(MLX5_CMD_STAT_INT_ERR),
	VALUE(MLX5_CMD_STAT_BAD_OP_ERR),
	VALUE(MLX5_CMD_STAT_BAD_PARAM_ERR),
	VALUE(MLX5_CMD_STAT_BAD_SYS_STATE_ERR),
	VALUE(MLX5_CMD_STAT_BAD_RES_ERR),
	VALUE(MLX5_CMD_STAT_RES_BUSY),
	VALUE(MLX5_CMD_STAT_LIM_ERR),
	VALUE(MLX5_CMD_STAT_BAD_RES_STATE_ERR),
	VALUE(MLX5_CMD_STAT_IX_ERR),
	VALUE(MLX5_CMD_STAT_NO_RES_ERR),
	VALUE(MLX5_CMD_STAT_BAD_QP_STATE_ERR),
	VALUE(MLX5_CMD_STAT_BAD_PKT_ERR),
	VALUE(MLX5_CMD_STAT_BAD_SIZE_OUTS_CQES_ERR),
	VALUE(MLX5_CMD_STAT_BAD_INP_LEN_ERR),
	VALUE(MLX5_CMD_STAT_BAD_OUTP_LEN_ERR),
	VALUE(MLX5_QPC_STATE_RST),
	VALUE(MLX5_QPC_STATE_INIT),
	VALUE(MLX5_QPC_STATE_RTR),
	VALUE(MLX5_QPC_STATE_RTS),
	VALUE(MLX5_QPC_STATE_SQER),
	VALUE(MLX5_QPC_STATE_ERR),
	VALUE(MLX5_QPC_STATE_SQD),
	VALUE(MLX5_QPC_STATE_SUSPENDED),
	VALUE(MLX5_QPC_ST_RC),
	VALUE(MLX5_QPC_ST_UC),
	VALUE(MLX5_QPC_ST_UD),
	VALUE(MLX5_QPC_ST_XRC),
	VALUE(MLX5_QPC_ST_DCI),
	VALUE(MLX5_QPC_ST_QP0),
	VALUE(MLX5_QPC_ST_QP1),
	VALUE(MLX5_QPC_ST_RAW_DATAGRAM),
	VALUE(MLX5_QPC_ST_REG_UMR),
	VALUE(MLX5_QPC_PM_STATE_ARMED),
	VALUE(MLX5_QPC_PM_STATE_REARM),
	VALUE(MLX5_QPC_PM_STATE_MIGRATED),
	VALUE(MLX5_QPC_MTU_256_BYTES),
	VALUE(MLX5_QPC_MTU_512_BYTES),
	VALUE(MLX5_QPC_MTU_1K_BYTES),
	VALUE(MLX5_QPC_MTU_2K_BYTES),
	VALUE(MLX5_QPC_MTU_4K_BYTES),
	VALUE(MLX5_QPC_ATOMIC_MODE_IB_SPEC),
	VALUE(MLX5_QPC_ATOMIC_MODE_ONLY_8B),
	VALUE(MLX5_QPC_ATOMIC_MODE_UP_TO_8B),
	VALUE(MLX5_QPC_ATOMIC_MODE_UP_TO_16B),
	VALUE(MLX5_QPC_ATOMIC_MODE_UP_TO_32B),
	VALUE(MLX5_QPC_ATOMIC_MODE_UP_TO_64B),
	VALUE(MLX5_QPC_ATOMIC_MODE_UP_TO_128B),
	VALUE(MLX5_QPC_ATOMIC_MODE_UP_TO_256B),
	VALUE(MLX5_NON_ZERO_RQ),
	VALUE(MLX5_SRQ_RQ),
	VALUE(MLX5_CRQ_RQ),
	VALUE(MLX5_ZERO_LEN_RQ),
	VALUE(MLX5_CQC_STATUS_OK),
	VALUE(MLX5_CQC_STATUS_CQ_OVERFLOW),
	VALUE(MLX5_CQC_STATUS_CQ_WRITE_FAIL),
	VALUE(MLX5_CQC_ST_SOLICITED_NOTIFICATION_REQUEST_ARMED),
	VALUE(MLX5_CQC_ST_NOTIFICATION_REQUEST_ARMED),
	VALUE(MLX5_CQC_ST_FIRED),
	VALUE(MLX5_CAP_PORT_TYPE_IB),
	VALUE(MLX5_CAP_PORT_TYPE_ETH),
	VALUE(MLX5_CAP_GENERAL << 1 | HCA_CAP_OPMOD_GET_MAX),
	VALUE(MLX5_CAP_GENERAL << 1 | HCA_CAP_OPMOD_GET_CUR),
	VALUE(MLX5_CAP_ATOMIC << 1 | HCA_CAP_OPMOD_GET_CUR),
	VALUE(MLX5_CAP_ROCE << 1 | HCA_CAP_OPMOD_GET_CUR),
	VALUE(MLX5_CAP_GENERAL_2 << 1 | HCA_CAP_OPMOD_GET_CUR),
	VALUE(MLX5_EVENT_TYPE_CQ_ERROR),
	VALUE(MLX5_EVENT_TYPE_WQ_CATAS_ERROR),
	VALUE(MLX5_EVENT_TYPE_WQ_INVAL_REQ_ERROR),
	VALUE(MLX5_EVENT_TYPE_WQ_ACCESS_ERROR),
	VALUE(MLX5_EVENT_TYPE_SRQ_LAST_WQE),
	VALUE(MLX5_WQ_TYPE_LINKED_LIST),
	VALUE(MLX5_WQ_TYPE_CYCLIC),
	VALUE(MLX5_WQ_TYPE_LINKED_LIST_STRIDING_RQ),
	VALUE(MLX5_WQ_TYPE_CYCLIC_STRIDING_RQ),
	VALUE(MLX5_RMPC_STATE_RDY),
	VALUE(MLX5_RMPC_STATE_ERR),
	VALUE(MLX5_TIMESTAMP_FORMAT_FREE_RUNNING),
	VALUE(MLX5_TIMESTAMP_FORMAT_DEFAULT),
	VALUE(MLX5_TIMESTAMP_FORMAT_REAL_TIME),
	VALUE(MLX5_TIMESTAMP_FORMAT_CAP_FREE_RUNNING),
	VALUE(MLX5_TIMESTAMP_FORMAT_CAP_REAL_TIME),
	VALUE(MLX5_TIMESTAMP_FORMAT_CAP_FREE_RUNNING_AND_REAL_TIME),
	VALUE(MLX5_QP_OPTPAR_ALT_ADDR_PATH),
	VALUE(MLX5_QP_OPTPAR_RRE),
	VALUE(MLX5_QP_OPTPAR_RAE),
	VALUE(MLX5_QP_OPTPAR_RWE),
	VALUE(MLX5_QP_OPTPAR_PKEY_INDEX),
	VALUE(MLX5_QP_OPTPAR_Q_KEY),
	VALUE(MLX5_QP_OPTPAR_RNR_TIMEOUT),
	VALUE(MLX5_QP_OPTPAR_PRIMARY_ADDR_PATH),
	VALUE(MLX5_QP_OPTPAR_SRA_MAX),
	VALUE(MLX5_QP_OPTPAR_RRA_MAX),
	VALUE(MLX5_QP_OPTPAR_PM_STATE),
	VALUE(MLX5_QP_OPTPAR_RETRY_COUNT),
	VALUE(MLX5_QP_OPTPAR_RNR_RETRY),
	VALUE(MLX5_QP_OPTPAR_ACK_TIMEOUT),
	VALUE(MLX5_QP_OPTPAR_LAG_TX_AFF),
	VALUE(MLX5_QP_OPTPAR_COUNTER_SET_ID),
	END
};

void prm_create_cq(void *in, const struct connection *c)
{
	void *cqc = MLX5_ADDR_OF(create_cq_in, in, cq_context);

	MLX5_SET(create_cq_in, in, opcode, MLX5_CMD_OP_CREATE_CQ);
	MLX5_SET(create_cq_in, in, cq_umem_valid, 1);
	MLX5_SET(cqc, cqc, dbr_umem_valid, 1);
	MLX5_SET(cqc, cqc, cc, 1);
	MLX5_SET(cqc, cqc, oi, 1);
	MLX5_SET(cqc, cqc, log_cq_size, c->log_size);
	MLX5_SET(cqc, cqc, uar_page, c->uar);
	MLX5_SET(cqc, cqc, c_eqn_or_apu_element, c->eqn);
	MLX5_SET64(cqc, cqc, dbr_addr, c->record);
}

void prm_create_qp(void *in, const struct connection *c)
{
	void *qpc = MLX5_ADDR_OF(create_qp_in, in, qpc);

	MLX5_SET(create_qp_in, in, opcode, MLX5_CMD_OP_CREATE_QP);
	MLX5_SET(create_qp_in, in, wq_umem_valid, 1);
	MLX5_SET(qpc, qpc, st, MLX5_QPC_ST_RC);
	MLX5_SET(qpc, qpc, pm_state, MLX5_QPC_PM_STATE_MIGRATED);
	MLX5_SET(qpc, qpc, pd, c->pd);
	MLX5_SET(qpc, qpc, uar_page, c->uar);
	MLX5_SET(qpc, qpc, user_index, c->user_index);
	MLX5_SET(qpc, qpc, cqn_snd, c->cqn);
	MLX5_SET(qpc, qpc, cqn_rcv, c->cqn);
	MLX5_SET(qpc, qpc, log_sq_size, c->log_size);
	MLX5_SET(qpc, qpc, rq_type, MLX5_ZERO_LEN_RQ);
	MLX5_SET(qpc, qpc, dbr_umem_valid, 1);
	MLX5_SET64(qpc, qpc, dbr_addr, c->record);
}

void prm_rst2init(void *in, const struct connection *c)
{
	void *qpc = MLX5_ADDR_OF(rst2init_qp_in, in, qpc);
	void *path = MLX5_ADDR_OF(qpc, qpc, primary_address_path);

	MLX5_SET(rst2init_qp_in, in, opcode, MLX5_CMD_OP_RST2INIT_QP);
	MLX5_SET(rst2init_qp_in, in, qpn, c->qpn);
	MLX5_SET(rst2init_qp_in, in, opt_param_mask,
		 MLX5_QP_OPTPAR_RRE | MLX5_QP_OPTPAR_RWE | MLX5_QP_OPTPAR_RAE);
	MLX5_SET(qpc, qpc, pm_state, MLX5_QPC_PM_STATE_MIGRATED);
	MLX5_SET(qpc, qpc, rre, 1);
	MLX5_SET(qpc, qpc, rwe, 1);
	MLX5_SET(qpc, qpc, rae, 1);
	MLX5_SET(qpc, qpc, atomic_mode, MLX5_QPC_ATOMIC_MODE_UP_TO_8B);
	MLX5_SET(ads, path, vhca_port_num, c->port);
	MLX5_SET(ads, path, pkey_index, c->pkey_index);
}

void prm_init2rtr(void *in, const struct connection *c)
{
	void *qpc = MLX5_ADDR_OF(init2rtr_qp_in, in, qpc);
	void *path = MLX5_ADDR_OF(qpc, qpc, primary_address_path);

	MLX5_SET(init2rtr_qp_in, in, opcode, MLX5_CMD_OP_INIT2RTR_QP);
	MLX5_SET(init2rtr_qp_in, in, qpn, c->qpn);
	MLX5_SET(qpc, qpc, mtu, MLX5_QPC_MTU_4K_BYTES);
	MLX5_SET(qpc, qpc, log_msg_max, 30);
	MLX5_SET(qpc, qpc, remote_qpn, c->remote_qpn);
	MLX5_SET(qpc, qpc, next_rcv_psn, c->psn);
	MLX5_SET(qpc, qpc, min_rnr_nak, c->min_rnr_nak);
	MLX5_SET(qpc, qpc, log_rra_max, c->log_reads);
	MLX5_SET(ads, path, vhca_port_num, c->port);
	MLX5_SET(ads, path, src_addr_index, c->gid_index);
	MLX5_SET(ads, path, hop_limit, c->hop_limit);
	if (c->ethernet) {
		MLX5_SET(ads, path, eth_prio, c->service_level & 7);
		MLX5_SET(ads, path, dscp, c->traffic_class >> 2);
		MLX5_SET(ads, path, udp_sport, c->udp_sport);
		memcpy(MLX5_ADDR_OF(ads, path, rmac_47_32), c->mac, sizeof(c->mac));
	} else {
		MLX5_SET(ads, path, grh, 1);
		MLX5_SET(ads, path, rlid, c->lid);
		MLX5_SET(ads, path, sl, c->service_level);
		MLX5_SET(ads, path, tclass, c->traffic_class);
		MLX5_SET(ads, path, flow_label, c->flow_label);
	}
	memcpy(MLX5_ADDR_OF(ads, path, rgid_rip), c->gid, sizeof(c->gid));
}

void prm_rtr2rts(void *in, const struct connection *c)
{
	void *qpc = MLX5_ADDR_OF(rtr2rts_qp_in, in, qpc);
	void *path = MLX5_ADDR_OF(qpc, qpc, primary_address_path);

	MLX5_SET(rtr2rts_qp_in, in, opcode, MLX5_CMD_OP_RTR2RTS_QP);
	MLX5_SET(rtr2rts_qp_in, in, qpn, c->qpn);
	MLX5_SET(qpc, qpc, log_sra_max, c->log_reads);
	MLX5_SET(qpc, qpc, next_send_psn, c->psn);
	MLX5_SET(qpc, qpc, retry_count, 7);
	MLX5_SET(qpc, qpc, rnr_retry, 7);
	MLX5_SET(ads, path, ack_timeout, c->ack_timeout);
	MLX5_SET(ads, path, vhca_port_num, c->port);
}
