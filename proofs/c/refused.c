/* Calls of libibverbs with good and bad arguments, each with the error number that it ends with. A function for the tests,
 * and with REFUSED_MAIN a program, which runs on any device: on Linux's own soft-RoCE, too (proofs/rxe). */

#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#define PAGE 4096
/* A handle that no object has. */
#define NOBODY 0xfffff0

/* Gets what was called with what, and how it ended: the error number's name, "0", or "?" where it was refused without one. */
typedef void refused_tell(void *to, const char *call, const char *end);

struct device {
	struct ibv_context *context;
	struct ibv_device_attr says;
	struct ibv_port_attr port;
	struct ibv_pd *domain;
	struct ibv_cq *cq;
	union ibv_gid gid;
	refused_tell *tell;
	void *to;
};

/* Refused, and no error number says why. */
#define UNNAMED (-1)

/* Error number of a call that gives a pointer, and of one that gives -1 or the number itself. */
#define MADE(call) (errno = 0, (call) ? 0 : errno ? errno : UNNAMED)
#define DONE(call) (errno = 0, done(call))

static int done(int result)
{
	return result != -1 ? result : errno ? errno : UNNAMED;
}

static void tell(struct device *d, const char *call, int error)
{
	d->tell(d->to, call, error == UNNAMED ? "?" : error ? strerrorname_np(error) : "0");
}

static int open_first(struct device *d)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	d->context = list && list[0] ? ibv_open_device(list[0]) : NULL;
	if (list)
		ibv_free_device_list(list);
	if (!d->context)
		return ENODEV;
	d->domain = ibv_alloc_pd(d->context);
	d->cq = ibv_create_cq(d->context, 16, NULL, NULL, 0);
	if (!d->domain || !d->cq)
		return errno;
	if (ibv_query_device(d->context, &d->says) || ibv_query_port(d->context, 1, &d->port) ||
	    ibv_query_gid(d->context, 1, 0, &d->gid))
		return ENODATA;
	return 0;
}

/* Calls with another handle than the object's own. */
#define WITH_HANDLE(object, other, call)                                                                              \
	({                                                                                                            \
		uint32_t own_ = (object)->handle;                                                                     \
		int error_;                                                                                           \
		(object)->handle = (other);                                                                           \
		error_ = (call);                                                                                      \
		(object)->handle = own_;                                                                              \
		error_;                                                                                               \
	})

static void regions(struct device *d)
{
	int writes = IBV_ACCESS_LOCAL_WRITE;
	char *pages = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *last = (void *)(uintptr_t)-PAGE;

	/* One to write, one to read, and nothing. */
	mprotect(pages + PAGE, PAGE, PROT_READ);
	munmap(pages + 2 * PAGE, PAGE);
	tell(d, "reg_mr, memory to write", MADE(ibv_reg_mr(d->domain, pages, PAGE, writes)));
	tell(d, "reg_mr, memory to read, no right to write", MADE(ibv_reg_mr(d->domain, pages, 2 * PAGE, 0)));
	tell(d, "reg_mr, memory to read, local write", MADE(ibv_reg_mr(d->domain, pages, 2 * PAGE, writes)));
	tell(d, "reg_mr, memory that is unmapped in part", MADE(ibv_reg_mr(d->domain, pages + PAGE, 2 * PAGE, 0)));
	tell(d, "reg_mr, memory that is unmapped", MADE(ibv_reg_mr(d->domain, pages + 2 * PAGE, PAGE, 0)));
	tell(d, "reg_mr, no bytes", MADE(ibv_reg_mr(d->domain, pages, 0, writes)));
	tell(d, "reg_mr, past the last address", MADE(ibv_reg_mr(d->domain, last, 2 * PAGE, writes)));
	tell(d, "reg_mr, remote write without local write",
	     MADE(ibv_reg_mr(d->domain, pages, PAGE, IBV_ACCESS_REMOTE_WRITE)));
	tell(d, "reg_mr, remote atomics without local write",
	     MADE(ibv_reg_mr(d->domain, pages, PAGE, IBV_ACCESS_REMOTE_ATOMIC)));
	tell(d, "reg_mr, a right that has no name", MADE(ibv_reg_mr(d->domain, pages, PAGE, writes | 1 << 12)));
	tell(d, "reg_mr, a domain that is none",
	     WITH_HANDLE(d->domain, NOBODY, MADE(ibv_reg_mr(d->domain, pages, PAGE, writes))));
	tell(d, "reg_mr, a completion queue for a domain",
	     WITH_HANDLE(d->domain, d->cq->handle, MADE(ibv_reg_mr(d->domain, pages, PAGE, writes))));
}

static void questions(struct device *d)
{
	struct ibv_port_attr port;
	struct ibv_gid_entry entry;
	union ibv_gid gid;
	uint16_t p_key;

	tell(d, "query_port, port 0", DONE(ibv_query_port(d->context, 0, &port)));
	tell(d, "query_port, port 2 of 1", DONE(ibv_query_port(d->context, 2, &port)));
	tell(d, "query_gid, port 2 of 1", DONE(ibv_query_gid(d->context, 2, 0, &gid)));
	tell(d, "query_gid, past the table", DONE(ibv_query_gid(d->context, 1, d->port.gid_tbl_len, &gid)));
	tell(d, "query_gid_ex, port 2 of 1", DONE(ibv_query_gid_ex(d->context, 2, 0, &entry, 0)));
	tell(d, "query_gid_ex, past the table", DONE(ibv_query_gid_ex(d->context, 1, d->port.gid_tbl_len, &entry, 0)));
	tell(d, "query_gid_ex, an entry that is empty",
	     DONE(ibv_query_gid_ex(d->context, 1, d->port.gid_tbl_len - 1, &entry, 0)));
	tell(d, "query_pkey, port 2 of 1", DONE(ibv_query_pkey(d->context, 2, 0, &p_key)));
	tell(d, "query_pkey, past the table", DONE(ibv_query_pkey(d->context, 1, d->port.pkey_tbl_len, &p_key)));
}

static void completion_queues(struct device *d)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(d->context);
	struct ibv_cq *cq;
	int fd;

	tell(d, "create_cq, 0 entries", MADE(ibv_create_cq(d->context, 0, NULL, NULL, 0)));
	tell(d, "create_cq, an entry too many", MADE(ibv_create_cq(d->context, d->says.max_cqe + 1, NULL, NULL, 0)));
	tell(d, "create_cq, vector past the last",
	     MADE(ibv_create_cq(d->context, 1, NULL, NULL, d->context->num_comp_vectors)));
	if (!channel)
		return;
	fd = channel->fd;
	channel->fd = STDOUT_FILENO;
	tell(d, "create_cq, a channel that is none", MADE(ibv_create_cq(d->context, 1, NULL, channel, 0)));
	channel->fd = fd;
	cq = ibv_create_cq(d->context, 1, NULL, channel, 0);
	tell(d, "destroy_comp_channel, its queue is there", DONE(ibv_destroy_comp_channel(channel)));
	ibv_destroy_cq(cq);
	ibv_destroy_comp_channel(channel);
}

static struct ibv_qp_init_attr queue_pair(struct device *d, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr wanted = {
		.send_cq = d->cq,
		.recv_cq = d->cq,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = type,
	};

	return wanted;
}

static void queue_pairs(struct device *d)
{
	struct ibv_qp_init_attr wanted;

#define CREATE(name, change)                                                                                          \
	do {                                                                                                          \
		wanted = queue_pair(d, IBV_QPT_RC);                                                                   \
		change;                                                                                               \
		tell(d, "create_qp, " name, MADE(ibv_create_qp(d->domain, &wanted)));                                  \
	} while (0)
	CREATE("RC", );
	CREATE("UC", wanted.qp_type = IBV_QPT_UC);
	CREATE("UD", wanted.qp_type = IBV_QPT_UD);
	CREATE("a transport that is none", wanted.qp_type = 0x55);
	CREATE("a send too many", wanted.cap.max_send_wr = d->says.max_qp_wr + 1);
	CREATE("a receive too many", wanted.cap.max_recv_wr = d->says.max_qp_wr + 1);
	CREATE("a segment too many for sends", wanted.cap.max_send_sge = d->says.max_sge + 1);
	CREATE("far too many segments for receives", wanted.cap.max_recv_sge = 1000);
	CREATE("inline data of 1 MiB", wanted.cap.max_inline_data = 1 << 20);
#undef CREATE
	wanted = queue_pair(d, IBV_QPT_RC);
	tell(d, "create_qp, a domain that is none",
	     WITH_HANDLE(d->domain, NOBODY, MADE(ibv_create_qp(d->domain, &wanted))));
	tell(d, "create_qp, a completion queue that is none",
	     WITH_HANDLE(d->cq, NOBODY, MADE(ibv_create_qp(d->domain, &wanted))));
}

static void shared_queues(struct device *d)
{
	struct ibv_srq_init_attr wanted = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(d->domain, &wanted);

	tell(d, "create_srq, 4 receives", srq ? 0 : errno);
	wanted.attr.max_wr = d->says.max_srq_wr + 1;
	tell(d, "create_srq, a receive too many", MADE(ibv_create_srq(d->domain, &wanted)));
	wanted.attr.max_wr = 4;
	wanted.attr.max_sge = d->says.max_srq_sge + 1;
	tell(d, "create_srq, a segment too many", MADE(ibv_create_srq(d->domain, &wanted)));
	wanted.attr.max_sge = 1;
	tell(d, "create_srq, a domain that is none",
	     WITH_HANDLE(d->domain, NOBODY, MADE(ibv_create_srq(d->domain, &wanted))));
	tell(d, "destroy_srq, a queue that is none", WITH_HANDLE(srq, NOBODY, DONE(ibv_destroy_srq(srq))));
}

/* What each step needs. */
static int mask_of(enum ibv_qp_type type, enum ibv_qp_state to)
{
	int rc = type == IBV_QPT_RC;

	switch (to) {
	case IBV_QPS_INIT:
		return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		       (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	case IBV_QPS_RTR:
		return IBV_QP_STATE |
		       (type == IBV_QPT_UD ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN) |
		       (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0);
	case IBV_QPS_RTS:
		return IBV_QP_STATE | IBV_QP_SQ_PSN |
		       (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0);
	default:
		return IBV_QP_STATE;
	}
}

/* Good values of everything: the queue pair is its own peer. */
static struct ibv_qp_attr attributes(struct device *d, struct ibv_qp *qp, enum ibv_qp_state to)
{
	struct ibv_qp_attr attr = {
		.qp_state = to,
		.port_num = 1,
		.qkey = 7,
		.path_mtu = d->port.active_mtu,
		.dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = 1,
		.max_rd_atomic = 1,
		.min_rnr_timer = 12,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = d->gid, .hop_limit = 1 } },
	};

	return attr;
}

/* A fresh queue pair in a state. */
static struct ibv_qp *brought(struct device *d, enum ibv_qp_type type, enum ibv_qp_state state)
{
	static const enum ibv_qp_state steps[] = { IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS };
	struct ibv_qp_init_attr wanted = queue_pair(d, type);
	struct ibv_qp *qp = ibv_create_qp(d->domain, &wanted);

	for (int step = 0; step < 3 && steps[step] <= state; step++) {
		struct ibv_qp_attr attr = attributes(d, qp, steps[step]);
		int error = ibv_modify_qp(qp, &attr, mask_of(type, steps[step]));

		if (error) {
			fprintf(stderr, "step %d: error %d\n", step, error);
			abort();
		}
	}
	return qp;
}

static void steps(struct device *d)
{
	struct ibv_qp *qp;
	struct ibv_qp_attr attr;
	int mask;

#define STEP(name, transport, from, to, change)                                                                       \
	do {                                                                                                          \
		qp = brought(d, IBV_QPT_##transport, IBV_QPS_##from);                                                 \
		attr = attributes(d, qp, IBV_QPS_##to);                                                               \
		mask = mask_of(IBV_QPT_##transport, IBV_QPS_##to);                                                    \
		change;                                                                                               \
		tell(d, "modify_qp, " #transport " " #from " to " #to name, DONE(ibv_modify_qp(qp, &attr, mask)));     \
		ibv_destroy_qp(qp);                                                                                   \
	} while (0)
	STEP("", RC, RESET, INIT, );
	STEP(", port 0", RC, RESET, INIT, attr.port_num = 0);
	STEP(", port 2 of 1", RC, RESET, INIT, attr.port_num = 2);
	STEP(", P_Key past the table", RC, RESET, INIT, attr.pkey_index = d->port.pkey_tbl_len);
	STEP(", no port", RC, RESET, INIT, mask &= ~IBV_QP_PORT);
	STEP(", no P_Key", RC, RESET, INIT, mask &= ~IBV_QP_PKEY_INDEX);
	STEP(", no rights", RC, RESET, INIT, mask &= ~IBV_QP_ACCESS_FLAGS);
	STEP(", a Q_Key", RC, RESET, INIT, mask |= IBV_QP_QKEY);
	STEP("", UD, RESET, INIT, );
	STEP(", no Q_Key", UD, RESET, INIT, mask &= ~IBV_QP_QKEY);
	STEP(", rights", UD, RESET, INIT, mask |= IBV_QP_ACCESS_FLAGS);
	STEP(", a transition that is none", RC, RESET, RTR, );
	STEP(", a transition that is none", RC, RESET, RTS, );
	STEP(", a transition that is none", RC, INIT, RTS, );
	STEP(", a transition that is none", RC, RTS, INIT, );
	STEP(", a state that is none", RC, RESET, INIT, attr.qp_state = 9);
	STEP(", from a state that it is not in", RC, RESET, INIT, mask |= IBV_QP_CUR_STATE; attr.cur_qp_state = IBV_QPS_RTS);
	STEP("", RC, INIT, INIT, );
	STEP("", RC, INIT, RTR, );
	STEP(", no path", RC, INIT, RTR, mask &= ~IBV_QP_AV);
	STEP(", no PSN", RC, INIT, RTR, mask &= ~IBV_QP_RQ_PSN);
	STEP(", no peer", RC, INIT, RTR, mask &= ~IBV_QP_DEST_QPN);
	STEP(", no MTU", RC, INIT, RTR, mask &= ~IBV_QP_PATH_MTU);
	STEP(", no RNR timer", RC, INIT, RTR, mask &= ~IBV_QP_MIN_RNR_TIMER);
	STEP(", no number of reads", RC, INIT, RTR, mask &= ~IBV_QP_MAX_DEST_RD_ATOMIC);
	STEP(", a timeout too early", RC, INIT, RTR, mask |= IBV_QP_TIMEOUT);
	STEP(", path by port 2 of 1", RC, INIT, RTR, attr.ah_attr.port_num = 2);
	STEP(", path by port 0", RC, INIT, RTR, attr.ah_attr.port_num = 0);
	STEP(", path without a GID", RC, INIT, RTR, attr.ah_attr.is_global = 0);
	STEP(", GID of an empty entry", RC, INIT, RTR, attr.ah_attr.grh.sgid_index = d->port.gid_tbl_len - 1);
	STEP(", GID 255", RC, INIT, RTR, attr.ah_attr.grh.sgid_index = 255);
	STEP(", MTU 0", RC, INIT, RTR, attr.path_mtu = 0);
	STEP(", MTU 6", RC, INIT, RTR, attr.path_mtu = 6);
	STEP(", PSN of 25 bits", RC, INIT, RTR, attr.rq_psn = 1 << 24);
	STEP(", peer of 25 bits", RC, INIT, RTR, attr.dest_qp_num |= 1 << 24);
	STEP(", 255 reads", RC, INIT, RTR, attr.max_dest_rd_atomic = 255);
	STEP(", RNR timer of 6 bits", RC, INIT, RTR, attr.min_rnr_timer = 32);
	STEP("", RC, RTR, RTS, );
	STEP(", no timeout", RC, RTR, RTS, mask &= ~IBV_QP_TIMEOUT);
	STEP(", no PSN", RC, RTR, RTS, mask &= ~IBV_QP_SQ_PSN);
	STEP(", no number of retries", RC, RTR, RTS, mask &= ~IBV_QP_RETRY_CNT);
	STEP(", no number of reads", RC, RTR, RTS, mask &= ~IBV_QP_MAX_QP_RD_ATOMIC);
	STEP(", a path too late", RC, RTR, RTS, mask |= IBV_QP_AV);
	STEP(", timeout of 6 bits", RC, RTR, RTS, attr.timeout = 32);
	STEP(", PSN of 25 bits", RC, RTR, RTS, attr.sq_psn = 1 << 24);
	STEP(", 255 reads", RC, RTR, RTS, attr.max_rd_atomic = 255);
	STEP(", 8 retries", RC, RTR, RTS, attr.retry_cnt = 8);
	STEP("", UC, INIT, RTR, );
	STEP(", a number of reads", UC, INIT, RTR, mask |= IBV_QP_MAX_DEST_RD_ATOMIC);
	STEP("", UD, INIT, RTR, );
	STEP(", a path", UD, INIT, RTR, mask |= IBV_QP_AV);
	STEP("", RC, RTS, RTS, );
	STEP(", other rights, and no state", RC, RTS, RTS, mask = IBV_QP_ACCESS_FLAGS);
	STEP(", a PSN, and no state", RC, RTS, RTS, mask = IBV_QP_RQ_PSN);
	STEP(", another Q_Key, and no state", UD, RTS, RTS, mask = IBV_QP_QKEY);
	STEP("", RC, RTS, ERR, );
	STEP(", a Q_Key", RC, RTS, ERR, mask |= IBV_QP_QKEY);
	STEP("", RC, RTS, RESET, );
	STEP("", RC, RESET, RESET, );
#undef STEP
	qp = brought(d, IBV_QPT_RC, IBV_QPS_RESET);
	attr = attributes(d, qp, IBV_QPS_INIT);
	mask = mask_of(IBV_QPT_RC, IBV_QPS_INIT);
	tell(d, "modify_qp, a queue pair that is none",
	     WITH_HANDLE(qp, NOBODY, DONE(ibv_modify_qp(qp, &attr, mask))));
	ibv_destroy_qp(qp);
}

static void address_handles(struct device *d)
{
	struct ibv_ah_attr attr;

#define CREATE(name, change)                                                                                          \
	do {                                                                                                          \
		struct ibv_ah_attr good = { .is_global = 1, .port_num = 1, .grh = { .dgid = d->gid, .hop_limit = 1 } };\
		attr = good;                                                                                          \
		change;                                                                                               \
		tell(d, "create_ah, " name, MADE(ibv_create_ah(d->domain, &attr)));                                   \
	} while (0)
	CREATE("port 1", );
	CREATE("port 0", attr.port_num = 0);
	CREATE("port 2 of 1", attr.port_num = 2);
	CREATE("GID of an empty entry", attr.grh.sgid_index = d->port.gid_tbl_len - 1);
	CREATE("GID 255", attr.grh.sgid_index = 255);
	CREATE("no GID", attr.is_global = 0);
#undef CREATE
	attr.is_global = 1;
	tell(d, "create_ah, a domain that is none",
	     WITH_HANDLE(d->domain, NOBODY, MADE(ibv_create_ah(d->domain, &attr))));
}

static void in_use(struct device *d)
{
	static char page[PAGE] __attribute__((aligned(PAGE)));
	struct ibv_srq_init_attr receives = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_ah_attr path = { .is_global = 1, .port_num = 1, .grh = { .dgid = d->gid, .hop_limit = 1 } };
	struct ibv_qp_init_attr wanted = queue_pair(d, IBV_QPT_RC);
	struct ibv_pd *domain = ibv_alloc_pd(d->context);
	struct ibv_cq *cq = ibv_create_cq(d->context, 16, NULL, NULL, 0);
	struct ibv_mr *mr = ibv_reg_mr(domain, page, PAGE, 0);
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_ah *ah;

	tell(d, "dealloc_pd, a region is there", DONE(ibv_dealloc_pd(domain)));
	tell(d, "dereg_mr, a region that is none", WITH_HANDLE(mr, NOBODY, DONE(ibv_dereg_mr(mr))));
	ibv_dereg_mr(mr);
	ah = ibv_create_ah(domain, &path);
	tell(d, "dealloc_pd, an address handle is there", DONE(ibv_dealloc_pd(domain)));
	tell(d, "destroy_ah, a handle that is none", WITH_HANDLE(ah, NOBODY, DONE(ibv_destroy_ah(ah))));
	ibv_destroy_ah(ah);
	srq = ibv_create_srq(domain, &receives);
	tell(d, "dealloc_pd, a shared queue is there", DONE(ibv_dealloc_pd(domain)));
	wanted.send_cq = cq;
	wanted.recv_cq = cq;
	wanted.srq = srq;
	qp = ibv_create_qp(domain, &wanted);
	tell(d, "destroy_srq, a queue pair is there", DONE(ibv_destroy_srq(srq)));
	tell(d, "destroy_cq, a queue pair is there", DONE(ibv_destroy_cq(cq)));
	tell(d, "destroy_qp, a queue pair that is none", WITH_HANDLE(qp, NOBODY, DONE(ibv_destroy_qp(qp))));
	ibv_destroy_qp(qp);
	tell(d, "destroy_srq, its queue pair is gone", DONE(ibv_destroy_srq(srq)));
	qp = (wanted.srq = NULL, ibv_create_qp(domain, &wanted));
	tell(d, "dealloc_pd, a queue pair is there", DONE(ibv_dealloc_pd(domain)));
	ibv_destroy_qp(qp);
	tell(d, "destroy_cq, a queue that is none", WITH_HANDLE(cq, NOBODY, DONE(ibv_destroy_cq(cq))));
	tell(d, "destroy_cq, its queue pair is gone", DONE(ibv_destroy_cq(cq)));
	tell(d, "dealloc_pd, a domain that is none", WITH_HANDLE(domain, NOBODY, DONE(ibv_dealloc_pd(domain))));
	tell(d, "dealloc_pd, nothing is there", DONE(ibv_dealloc_pd(domain)));
}

static void posts(struct device *d)
{
	static char page[PAGE] __attribute__((aligned(PAGE)));
	struct ibv_mr *mr = ibv_reg_mr(d->domain, page, PAGE, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge place[40], one = { .addr = (uintptr_t)page, .length = 8, .lkey = mr->lkey };
	struct ibv_send_wr send, *bad_send;
	struct ibv_recv_wr receive, *bad_receive;
	struct ibv_qp *qp;

	for (int at = 0; at < 40; at++)
		place[at] = one;
#define SEND(name, state, change)                                                                                     \
	do {                                                                                                          \
		struct ibv_send_wr good = { .sg_list = place, .num_sge = 1, .opcode = IBV_WR_SEND };                   \
		qp = brought(d, IBV_QPT_RC, IBV_QPS_##state);                                                         \
		send = good;                                                                                          \
		change;                                                                                               \
		tell(d, "post_send, " #state name, DONE(ibv_post_send(qp, &send, &bad_send)));                         \
		ibv_destroy_qp(qp);                                                                                   \
	} while (0)
#define RECEIVE(name, state, change)                                                                                  \
	do {                                                                                                          \
		struct ibv_recv_wr good = { .sg_list = place, .num_sge = 1 };                                         \
		qp = brought(d, IBV_QPT_RC, IBV_QPS_##state);                                                         \
		receive = good;                                                                                       \
		change;                                                                                               \
		tell(d, "post_recv, " #state name, DONE(ibv_post_recv(qp, &receive, &bad_receive)));                   \
		ibv_destroy_qp(qp);                                                                                   \
	} while (0)
	SEND("", RESET, );
	SEND("", INIT, );
	SEND("", RTR, );
	SEND(", a verb that is none", RTS, send.opcode = 0x55);
	SEND(", 40 segments", RTS, send.num_sge = 40);
	SEND(", 4,096 bytes inline", RTS, place[0].length = PAGE; send.send_flags = IBV_SEND_INLINE);
	place[0].length = 8;
	RECEIVE("", RESET, );
	RECEIVE("", INIT, );
	RECEIVE(", 40 segments", INIT, receive.num_sge = 40);
#undef SEND
#undef RECEIVE
	ibv_dereg_mr(mr);
}

static void groups(struct device *d)
{
	union ibv_gid group = { .raw = { 0xff, 0x0e, [15] = 1 } };
	struct ibv_qp *qp = brought(d, IBV_QPT_RC, IBV_QPS_INIT);

	tell(d, "attach_mcast, RC", DONE(ibv_attach_mcast(qp, &group, 0)));
	ibv_destroy_qp(qp);
	qp = brought(d, IBV_QPT_UD, IBV_QPS_INIT);
	tell(d, "attach_mcast, UD, a GID of no group", DONE(ibv_attach_mcast(qp, &d->gid, 0)));
	tell(d, "attach_mcast, UD", DONE(ibv_attach_mcast(qp, &group, 0)));
	tell(d, "detach_mcast, UD, not attached", DONE(ibv_detach_mcast(qp, &d->gid, 0)));
	ibv_detach_mcast(qp, &group, 0);
	ibv_destroy_qp(qp);
}

/* Makes all calls on the first device and tells what each ends with; gives the error number of a device that there is
 * none of. */
int refused_each(refused_tell *hear, void *to)
{
	struct device d = { .tell = hear, .to = to };
	int error = open_first(&d);

	if (error)
		return error;
	regions(&d);
	questions(&d);
	completion_queues(&d);
	queue_pairs(&d);
	shared_queues(&d);
	steps(&d);
	address_handles(&d);
	in_use(&d);
	posts(&d);
	groups(&d);
	return 0;
}

#ifdef REFUSED_MAIN
static void print(void *to, const char *call, const char *end)
{
	(void)to;
	printf("%s: %s\n", call, end);
	fflush(stdout);
}

int main(void)
{
	int error = refused_each(print, NULL);

	if (error)
		fprintf(stderr, "no device: %s\n", strerrorname_np(error));
	return error != 0;
}
#endif
