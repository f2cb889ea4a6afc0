/* Stands in for the kernel's header, which wants most of the kernel: what linux/mlx5/{qp,cq}.h name of it. */
#ifndef WARPBELL_PROOFS_DRIVER_H
#define WARPBELL_PROOFS_DRIVER_H

#include <linux/mlx5/device.h>
#include <linux/mlx5/doorbell.h>

/* The capabilities, to which an inline function of qp.h points. */
struct mlx5_core_dev {
	struct {
		struct {
			u32 *cur;
		} *hca[1];
	} caps;
};

struct mlx5_eq_comp;
struct mlx5_rsc_debug;
struct mlx5_uars_page;

struct mlx5_core_rsc_common {
	u8 shim;
};

#endif
