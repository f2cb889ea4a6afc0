/* Stands in for the kernel's header: what linux/mlx5/{device,qp}.h name of it. */
#ifndef WARPBELL_PROOFS_IB_VERBS_H
#define WARPBELL_PROOFS_IB_VERBS_H

struct ib_ah {
	unsigned char shim;
};
struct ib_grh {
	unsigned char shim;
};

#endif
