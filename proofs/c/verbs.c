/* A program of libibverbs and libmlx5, as anybody writes one: opens the first device, makes a queue pair, posts to
 * it, and polls. The caller looks at the rings. */

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include "facts.h"
#include "verbs.h"

struct verbs {
	struct ibv_context *context;
	struct ibv_pd *domain;
	struct ibv_cq *cq;
	struct ibv_mr *memory[4];
	struct ibv_srq *srq;
	struct ibv_ah *ah;
	struct ibv_qp *qp;
	struct ibv_qp_ex *qp_ex;
	struct mlx5dv_qp qp_rings;
	struct mlx5dv_cq cq_rings;
	struct mlx5dv_srq srq_rings;
};

const struct fact verbs_values[] = {
	VALUE(IBV_WC_SUCCESS),
	VALUE(IBV_WC_LOC_LEN_ERR),
	VALUE(IBV_WC_LOC_QP_OP_ERR),
	VALUE(IBV_WC_LOC_PROT_ERR),
	VALUE(IBV_WC_WR_FLUSH_ERR),
	VALUE(IBV_WC_MW_BIND_ERR),
	VALUE(IBV_WC_BAD_RESP_ERR),
	VALUE(IBV_WC_LOC_ACCESS_ERR),
	VALUE(IBV_WC_REM_INV_REQ_ERR),
	VALUE(IBV_WC_REM_ACCESS_ERR),
	VALUE(IBV_WC_REM_OP_ERR),
	VALUE(IBV_WC_RETRY_EXC_ERR),
	VALUE(IBV_WC_RNR_RETRY_EXC_ERR),
	VALUE(IBV_WC_REM_ABORT_ERR),
	VALUE(IBV_WC_GENERAL_ERR),
	VALUE(IBV_WC_SEND),
	VALUE(IBV_WC_RDMA_WRITE),
	VALUE(IBV_WC_RDMA_READ),
	VALUE(IBV_WC_COMP_SWAP),
	VALUE(IBV_WC_FETCH_ADD),
	VALUE(IBV_WC_RECV),
	VALUE(IBV_WC_RECV_RDMA_WITH_IMM),
	VALUE(IBV_WC_WITH_IMM),
	VALUE(IBV_WC_WITH_INV),
	VALUE(IBV_WR_RDMA_WRITE),
	VALUE(IBV_WR_RDMA_WRITE_WITH_IMM),
	VALUE(IBV_WR_SEND),
	VALUE(IBV_WR_SEND_WITH_IMM),
	VALUE(IBV_WR_SEND_WITH_INV),
	VALUE(IBV_WR_RDMA_READ),
	VALUE(IBV_WR_ATOMIC_CMP_AND_SWP),
	VALUE(IBV_WR_ATOMIC_FETCH_AND_ADD),
	VALUE(IBV_SEND_SIGNALED),
	VALUE(IBV_SEND_SOLICITED),
	VALUE(IBV_SEND_FENCE),
	VALUE(IBV_QPS_RESET),
	VALUE(IBV_QPS_RTS),
	VALUE(IBV_QPS_ERR),
	VALUE(IBV_ACCESS_REMOTE_WRITE),
	VALUE(IBV_ACCESS_REMOTE_READ),
	VALUE(IBV_ACCESS_REMOTE_ATOMIC),
	VALUE(IBV_EVENT_CQ_ERR),
	VALUE(IBV_EVENT_QP_FATAL),
	VALUE(IBV_EVENT_QP_REQ_ERR),
	VALUE(IBV_EVENT_QP_ACCESS_ERR),
	END
};

static int make_ready(struct verbs *v, int datagrams, uint32_t destination)
{
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qkey = 0x11111111,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};
	struct ibv_qp_attr receive = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = destination,
		.max_dest_rd_atomic = 1,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh.hop_limit = 64 },
	};
	struct ibv_qp_attr send = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1,
	};
	int error;

	/* The other end is a queue pair of the same device. */
	if (ibv_query_gid(v->context, 1, 0, &receive.ah_attr.grh.dgid))
		return EIO;
	error = ibv_modify_qp(v->qp, &init,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			      (datagrams ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
	if (!error)
		error = ibv_modify_qp(v->qp, &receive,
				      datagrams ? IBV_QP_STATE :
				      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (!error)
		error = ibv_modify_qp(v->qp, &send,
				      datagrams ? IBV_QP_STATE | IBV_QP_SQ_PSN :
				      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
	return error;
}

static int open_all(struct verbs *v, const struct verbs_options *o)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = o->receives, .max_sge = o->receive_segments } };
	struct ibv_qp_init_attr_ex qp = {
		.cap = {
			.max_send_wr = o->sends,
			.max_recv_wr = o->shared ? 0 : o->receives,
			.max_send_sge = o->send_segments,
			.max_recv_sge = o->shared ? 0 : o->receive_segments,
			.max_inline_data = o->inline_bytes,
		},
		.qp_type = o->datagrams ? IBV_QPT_UD : IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
	};
	struct mlx5dv_obj objects = { };

	if (!list)
		return errno;
	/* libmlx5 looks at it when it opens a device. */
	if (o->one_register)
		setenv("MLX5_SHUT_UP_BF", "1", 1);
	else
		unsetenv("MLX5_SHUT_UP_BF");
	if (list[0])
		v->context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	if (!v->context)
		return ENODEV;
	v->domain = ibv_alloc_pd(v->context);
	v->cq = ibv_create_cq(v->context, o->completions, NULL, NULL, o->vector);
	if (!v->domain || !v->cq)
		return errno;
	if (o->shared) {
		v->srq = ibv_create_srq(v->domain, &srq);
		if (!v->srq)
			return errno;
	}
	if (!o->datagrams)
		qp.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
				     IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_READ |
				     IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				     IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	qp.pd = v->domain;
	qp.send_cq = v->cq;
	qp.recv_cq = v->cq;
	qp.srq = v->srq;
	/* libmlx5 looks at it when it makes a queue pair. */
	if (o->signatures)
		setenv("MLX5_QP_SIGNATURE", "1", 1);
	else
		unsetenv("MLX5_QP_SIGNATURE");
	v->qp = ibv_create_qp_ex(v->context, &qp);
	if (!v->qp)
		return errno;
	v->qp_ex = ibv_qp_to_qp_ex(v->qp);
	if (o->datagrams) {
		struct ibv_ah_attr path = {
			.is_global = 1, .port_num = 1, .sl = o->path.service_level,
			.static_rate = 0,
			.grh = {
				.sgid_index = 0,
				.hop_limit = o->path.hop_limit,
				.traffic_class = o->path.traffic_class,
				.flow_label = o->path.flow_label,
			},
		};

		memcpy(path.grh.dgid.raw, o->path.gid, sizeof(o->path.gid));
		v->ah = ibv_create_ah(v->domain, &path);
		if (!v->ah)
			return errno;
	}
	objects.qp.in = v->qp;
	objects.qp.out = &v->qp_rings;
	objects.cq.in = v->cq;
	objects.cq.out = &v->cq_rings;
	objects.srq.in = v->srq;
	objects.srq.out = &v->srq_rings;
	if (mlx5dv_init_obj(&objects, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ | (v->srq ? MLX5DV_OBJ_SRQ : 0)))
		return EINVAL;
	return o->unconnected ? 0 : make_ready(v, o->datagrams, 0x1234);
}

struct verbs *verbs_open(const struct verbs_options *options, int *error)
{
	struct verbs *v = calloc(1, sizeof(*v));

	*error = v ? open_all(v, options) : ENOMEM;
	if (*error) {
		verbs_close(v);
		return NULL;
	}
	return v;
}

int verbs_close(struct verbs *v)
{
	int error = 0;

	if (!v)
		return 0;
	if (v->qp)
		error |= ibv_destroy_qp(v->qp);
	for (int i = 0; i < 4; i++)
		if (v->memory[i])
			error |= ibv_dereg_mr(v->memory[i]);
	if (v->ah)
		error |= ibv_destroy_ah(v->ah);
	if (v->srq)
		error |= ibv_destroy_srq(v->srq);
	if (v->cq)
		error |= ibv_destroy_cq(v->cq);
	if (v->domain)
		error |= ibv_dealloc_pd(v->domain);
	if (v->context)
		error |= ibv_close_device(v->context);
	free(v);
	return error;
}

int verbs_abandon(struct verbs *v)
{
	return ibv_close_device(v->context);
}

int verbs_connect(struct verbs *v, uint32_t destination)
{
	return make_ready(v, 0, destination);
}

int verbs_stop(struct verbs *v, int error)
{
	struct ibv_qp_attr attr = { .qp_state = error ? IBV_QPS_ERR : IBV_QPS_RESET };

	return ibv_modify_qp(v->qp, &attr, IBV_QP_STATE);
}

int verbs_query(struct verbs *v, uint32_t found[3])
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	int error = ibv_query_qp(v->qp, &attr, IBV_QP_STATE | IBV_QP_DEST_QPN | IBV_QP_ACCESS_FLAGS, &init);

	found[0] = attr.qp_state;
	found[1] = attr.dest_qp_num;
	found[2] = attr.qp_access_flags;
	return error;
}

int verbs_register(struct verbs *v, void *start, uint64_t length, uint32_t keys[2])
{
	for (int i = 0; i < 4; i++) {
		if (v->memory[i])
			continue;
		v->memory[i] = ibv_reg_mr(v->domain, start, length,
					  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
					  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
		if (!v->memory[i])
			return errno;
		keys[0] = v->memory[i]->lkey;
		keys[1] = v->memory[i]->rkey;
		return 0;
	}
	return ENOMEM;
}

void verbs_rings(const struct verbs *v, struct verbs_rings *rings)
{
	*rings = (struct verbs_rings) {
		.send = v->qp_rings.sq.buf,
		.receive = v->srq ? v->srq_rings.buf : v->qp_rings.rq.buf,
		.record = v->qp_rings.dbrec,
		.shared_record = v->srq ? v->srq_rings.dbrec : NULL,
		.doorbell = v->qp_rings.bf.reg,
		.completions = v->cq_rings.buf,
		.completion_record = v->cq_rings.dbrec,
		.completion_uar = v->cq_rings.cq_uar,
		.send_blocks = v->qp_rings.sq.wqe_cnt,
		.receive_stride = v->srq ? v->srq_rings.stride : v->qp_rings.rq.stride,
		.receive_count = v->srq ? v->srq_rings.tail + 1 : v->qp_rings.rq.wqe_cnt,
		.doorbell_bytes = v->qp_rings.bf.size,
		.completion_count = v->cq_rings.cqe_cnt,
		.qpn = v->qp->qp_num,
		.cqn = v->cq_rings.cqn,
	};
}

int verbs_post(struct verbs *v, const struct verbs_post *p)
{
	struct ibv_sge list[64];
	struct ibv_send_wr wr = {
		.wr_id = p->id,
		.sg_list = list,
		.num_sge = p->segments,
		.opcode = p->opcode,
		.send_flags = p->flags | (p->inline_data ? IBV_SEND_INLINE : 0),
	}, *bad;

	for (uint32_t i = 0; i < p->segments; i++)
		list[i] = (struct ibv_sge) {
			.addr = p->segment[i].address, .length = p->segment[i].length, .lkey = p->segment[i].key,
		};
	if (p->opcode == IBV_WR_SEND_WITH_INV)
		wr.invalidate_rkey = p->immediate;
	else
		wr.imm_data = htobe32(p->immediate);
	if (v->ah) {
		wr.wr.ud.ah = v->ah;
		wr.wr.ud.remote_qpn = p->destination;
		wr.wr.ud.remote_qkey = p->queue_key;
	} else if (p->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || p->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = p->remote_address;
		wr.wr.atomic.rkey = p->remote_key;
		wr.wr.atomic.compare_add = p->compare_add;
		wr.wr.atomic.swap = p->swap;
	} else {
		wr.wr.rdma.remote_addr = p->remote_address;
		wr.wr.rdma.rkey = p->remote_key;
	}
	return ibv_post_send(v->qp, &wr, &bad);
}

int verbs_post_extended(struct verbs *v, const struct verbs_post *p)
{
	struct ibv_qp_ex *qp = v->qp_ex;
	struct ibv_sge list[64];
	struct ibv_data_buf buffers[64];

	for (uint32_t i = 0; i < p->segments; i++) {
		list[i] = (struct ibv_sge) {
			.addr = p->segment[i].address, .length = p->segment[i].length, .lkey = p->segment[i].key,
		};
		buffers[i] = (struct ibv_data_buf) {
			.addr = (void *)(uintptr_t)p->segment[i].address, .length = p->segment[i].length,
		};
	}
	ibv_wr_start(qp);
	qp->wr_id = p->id;
	qp->wr_flags = p->flags;
	switch (p->opcode) {
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(qp, p->remote_key, p->remote_address);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(qp, p->remote_key, p->remote_address, htobe32(p->immediate));
		break;
	case IBV_WR_SEND:
		ibv_wr_send(qp);
		break;
	case IBV_WR_SEND_WITH_IMM:
		ibv_wr_send_imm(qp, htobe32(p->immediate));
		break;
	case IBV_WR_SEND_WITH_INV:
		ibv_wr_send_inv(qp, p->immediate);
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(qp, p->remote_key, p->remote_address);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(qp, p->remote_key, p->remote_address, p->compare_add, p->swap);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		ibv_wr_atomic_fetch_add(qp, p->remote_key, p->remote_address, p->compare_add);
		break;
	default:
		ibv_wr_abort(qp);
		return EINVAL;
	}
	if (v->ah)
		ibv_wr_set_ud_addr(qp, v->ah, p->destination, p->queue_key);
	if (p->inline_data && p->segments == 1)
		ibv_wr_set_inline_data(qp, buffers[0].addr, buffers[0].length);
	else if (p->inline_data)
		ibv_wr_set_inline_data_list(qp, p->segments, buffers);
	else if (p->segments == 1)
		ibv_wr_set_sge(qp, list[0].lkey, list[0].addr, list[0].length);
	else
		ibv_wr_set_sge_list(qp, p->segments, list);
	return ibv_wr_complete(qp);
}

int verbs_write_many(struct verbs *v, const struct verbs_segment *local, uint64_t remote_address, uint32_t remote_key,
		     uint32_t count, int extended)
{
	struct ibv_sge list = { .addr = local->address, .length = local->length, .lkey = local->key };
	struct ibv_send_wr wr = {
		.sg_list = &list,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma.rkey = remote_key,
	}, *bad;
	struct ibv_qp_ex *qp = v->qp_ex;
	int error = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t remote = remote_address + (uint64_t)i * local->length;

		if (extended) {
			ibv_wr_start(qp);
			qp->wr_id = i;
			qp->wr_flags = IBV_SEND_SIGNALED;
			ibv_wr_rdma_write(qp, remote_key, remote);
			ibv_wr_set_sge(qp, list.lkey, list.addr, list.length);
			error |= ibv_wr_complete(qp);
		} else {
			wr.wr_id = i;
			wr.wr.rdma.remote_addr = remote;
			error |= ibv_post_send(v->qp, &wr, &bad);
		}
	}
	return error;
}

int verbs_receive(struct verbs *v, uint64_t id, uint32_t segments, const struct verbs_segment *segment)
{
	struct ibv_sge list[64];
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = list, .num_sge = segments }, *bad;

	for (uint32_t i = 0; i < segments; i++)
		list[i] = (struct ibv_sge) {
			.addr = segment[i].address, .length = segment[i].length, .lkey = segment[i].key,
		};
	return v->srq ? ibv_post_srq_recv(v->srq, &wr, &bad) : ibv_post_recv(v->qp, &wr, &bad);
}

int verbs_poll(struct verbs *v, struct verbs_completion *said)
{
	struct ibv_wc wc = { };
	int polled = ibv_poll_cq(v->cq, 1, &wc);

	*said = (struct verbs_completion) {
		.id = wc.wr_id,
		.status = wc.status,
		.opcode = wc.opcode,
		.vendor = wc.vendor_err,
		.bytes = wc.byte_len,
		.qpn = wc.qp_num,
		.flags = wc.wc_flags,
		.immediate = wc.wc_flags & IBV_WC_WITH_INV ? wc.invalidated_rkey : be32toh(wc.imm_data),
	};
	return polled;
}

int verbs_arm(struct verbs *v, int solicited_only)
{
	return ibv_req_notify_cq(v->cq, solicited_only);
}

int verbs_event(struct verbs *v, int milliseconds, uint32_t *kind)
{
	struct pollfd waiting = { .fd = v->context->async_fd, .events = POLLIN };
	struct ibv_async_event event;
	int ours;

	if (poll(&waiting, 1, milliseconds) != 1)
		return ETIMEDOUT;
	if (ibv_get_async_event(v->context, &event))
		return errno;
	*kind = event.event_type;
	ours = event.event_type == IBV_EVENT_CQ_ERR ? event.element.cq == v->cq : event.element.qp == v->qp;
	ibv_ack_async_event(&event);
	return ours ? 0 : ENOENT;
}
