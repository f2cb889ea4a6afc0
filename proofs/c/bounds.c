/* What a device has room for, by the calls of libibverbs. */

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include <infiniband/verbs.h>

#define PAGE 4096

struct device {
	struct ibv_context *context;
	struct ibv_pd *domain;
	struct ibv_cq *cq;
};

static int open_first(struct device *d)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	d->context = list && list[0] ? ibv_open_device(list[0]) : NULL;
	if (list)
		ibv_free_device_list(list);
	if (!d->context)
		return ENODEV;
	d->domain = ibv_alloc_pd(d->context);
	d->cq = ibv_create_cq(d->context, 1, NULL, NULL, 0);
	return d->domain && d->cq ? 0 : errno;
}

static struct ibv_qp *queue_pair(struct device *d)
{
	struct ibv_qp_init_attr wanted = {
		.send_cq = d->cq,
		.recv_cq = d->cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	return ibv_create_qp(d->domain, &wanted);
}

/* Makes objects of a kind until one is refused: how many the device says there may be, how many there are, and the
 * errno of the first too many. Destroys none. */
int bounds_fill(uint32_t kind, uint32_t found[3])
{
	static char page[PAGE] __attribute__((aligned(PAGE)));
	struct ibv_srq_init_attr receives = { .attr = { .max_wr = 1, .max_sge = 1 } };
	struct ibv_device_attr says;
	struct device d;
	void *made;
	int error = open_first(&d);

	if (error || (error = ibv_query_device(d.context, &says)))
		return error;
	/* The first domain and completion queue are there. */
	found[1] = kind == 1 || kind == 2 ? 1 : 0;
	do {
		errno = 0;
		switch (kind) {
		case 0:
			found[0] = says.max_mr;
			made = ibv_reg_mr(d.domain, page, PAGE, 0);
			break;
		case 1:
			found[0] = says.max_cq;
			made = ibv_create_cq(d.context, 1, NULL, NULL, 0);
			break;
		case 2:
			found[0] = says.max_pd;
			made = ibv_alloc_pd(d.context);
			break;
		case 3:
			found[0] = says.max_srq;
			made = ibv_create_srq(d.domain, &receives);
			break;
		default:
			found[0] = says.max_qp;
			made = queue_pair(&d);
		}
		found[1] += made != NULL;
	} while (made && found[1] <= found[0]);
	found[2] = errno;
	return 0;
}
