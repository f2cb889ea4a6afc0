/* What rdma-core's headers say of what is called of libibverbs and libmlx5 to drive a card. */

#include <infiniband/mlx5dv.h>

#include "facts.h"

const struct fact card_layouts[] = {
	/* The library's function fills this structure up to `flags`; its end is newer. */
	FIELD(ibv_port_attr, state),
	FIELD(ibv_port_attr, max_mtu),
	FIELD(ibv_port_attr, active_mtu),
	FIELD(ibv_port_attr, gid_tbl_len),
	FIELD(ibv_port_attr, port_cap_flags),
	FIELD(ibv_port_attr, max_msg_sz),
	FIELD(ibv_port_attr, bad_pkey_cntr),
	FIELD(ibv_port_attr, qkey_viol_cntr),
	FIELD(ibv_port_attr, pkey_tbl_len),
	FIELD(ibv_port_attr, lid),
	FIELD(ibv_port_attr, sm_lid),
	FIELD(ibv_port_attr, lmc),
	FIELD(ibv_port_attr, max_vl_num),
	FIELD(ibv_port_attr, sm_sl),
	FIELD(ibv_port_attr, subnet_timeout),
	FIELD(ibv_port_attr, init_type_reply),
	FIELD(ibv_port_attr, active_width),
	FIELD(ibv_port_attr, active_speed),
	FIELD(ibv_port_attr, phys_state),
	FIELD(ibv_port_attr, link_layer),
	FIELD(ibv_port_attr, flags),
	SIZE(ibv_gid_entry),
	FIELD(ibv_gid_entry, gid),
	FIELD(ibv_gid_entry, gid_index),
	FIELD(ibv_gid_entry, port_num),
	FIELD(ibv_gid_entry, gid_type),
	FIELD(ibv_gid_entry, ndev_ifindex),
	SIZE(ibv_mr),
	FIELD(ibv_mr, context),
	FIELD(ibv_mr, pd),
	FIELD(ibv_mr, addr),
	FIELD(ibv_mr, length),
	FIELD(ibv_mr, handle),
	FIELD(ibv_mr, lkey),
	FIELD(ibv_mr, rkey),
	SIZE(ibv_global_route),
	FIELD(ibv_global_route, dgid),
	FIELD(ibv_global_route, flow_label),
	FIELD(ibv_global_route, sgid_index),
	FIELD(ibv_global_route, hop_limit),
	FIELD(ibv_global_route, traffic_class),
	SIZE(ibv_ah_attr),
	FIELD(ibv_ah_attr, grh),
	FIELD(ibv_ah_attr, dlid),
	FIELD(ibv_ah_attr, sl),
	FIELD(ibv_ah_attr, src_path_bits),
	FIELD(ibv_ah_attr, static_rate),
	FIELD(ibv_ah_attr, is_global),
	FIELD(ibv_ah_attr, port_num),
	SIZE(mlx5dv_context_attr),
	FIELD(mlx5dv_context_attr, flags),
	FIELD(mlx5dv_context_attr, comp_mask),
	SIZE(mlx5dv_pd),
	FIELD(mlx5dv_pd, pdn),
	FIELD(mlx5dv_pd, comp_mask),
	SIZE(mlx5dv_ah),
	FIELD(mlx5dv_ah, av),
	FIELD(mlx5dv_ah, comp_mask),
	SIZE(mlx5dv_obj),
	FIELD(mlx5dv_obj, qp),
	FIELD(mlx5dv_obj, cq),
	FIELD(mlx5dv_obj, srq),
	FIELD(mlx5dv_obj, rwq),
	FIELD(mlx5dv_obj, dm),
	FIELD(mlx5dv_obj, ah),
	FIELD(mlx5dv_obj, pd),
	{ "mlx5dv_obj.pd.in", offsetof(struct mlx5dv_obj, pd.in) },
	{ "mlx5dv_obj.pd.out", offsetof(struct mlx5dv_obj, pd.out) },
	SIZE(mlx5dv_devx_umem),
	FIELD(mlx5dv_devx_umem, umem_id),
	SIZE(mlx5dv_devx_umem_in),
	FIELD(mlx5dv_devx_umem_in, addr),
	FIELD(mlx5dv_devx_umem_in, size),
	FIELD(mlx5dv_devx_umem_in, access),
	FIELD(mlx5dv_devx_umem_in, pgsz_bitmap),
	FIELD(mlx5dv_devx_umem_in, comp_mask),
	FIELD(mlx5dv_devx_umem_in, dmabuf_fd),
	SIZE(mlx5dv_devx_event_channel),
	FIELD(mlx5dv_devx_event_channel, fd),
	SIZE(mlx5dv_devx_uar),
	FIELD(mlx5dv_devx_uar, reg_addr),
	FIELD(mlx5dv_devx_uar, base_addr),
	FIELD(mlx5dv_devx_uar, page_id),
	FIELD(mlx5dv_devx_uar, mmap_off),
	FIELD(mlx5dv_devx_uar, comp_mask),
	END
};

const struct fact card_values[] = {
	VALUE(IBV_PORT_ACTIVE),
	VALUE(IBV_LINK_LAYER_INFINIBAND),
	VALUE(IBV_LINK_LAYER_ETHERNET),
	VALUE(IBV_QPF_GRH_REQUIRED),
	VALUE(IBV_GID_TYPE_IB),
	VALUE(IBV_GID_TYPE_ROCE_V1),
	VALUE(IBV_GID_TYPE_ROCE_V2),
	VALUE(IBV_ACCESS_LOCAL_WRITE),
	VALUE(MLX5DV_CONTEXT_FLAGS_DEVX),
	VALUE(MLX5DV_OBJ_AH),
	VALUE(MLX5DV_OBJ_PD),
	VALUE(MLX5DV_UMEM_MASK_DMABUF),
	VALUE(MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA),
	VALUE(MLX5DV_UAR_ALLOC_TYPE_BF),
	VALUE(MLX5DV_UAR_ALLOC_TYPE_NC),
	END
};

/* Each function's type as host-init has it; the compiler compares it with the header's. */
#pragma GCC diagnostic error "-Wincompatible-pointer-types"
#define FUNCTION(result, name, ...) \
	result (*const card_##name)(__VA_ARGS__) = name

#undef ibv_reg_mr
#undef ibv_query_port

FUNCTION(struct ibv_device **, ibv_get_device_list, int *);
FUNCTION(void, ibv_free_device_list, struct ibv_device **);
FUNCTION(const char *, ibv_get_device_name, struct ibv_device *);
FUNCTION(int, ibv_close_device, struct ibv_context *);
FUNCTION(int, ibv_query_port, struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *);
FUNCTION(int, ibv_query_pkey, struct ibv_context *, uint8_t, int, __be16 *);
FUNCTION(int, _ibv_query_gid_ex, struct ibv_context *, uint32_t, uint32_t, struct ibv_gid_entry *, uint32_t, size_t);
FUNCTION(struct ibv_pd *, ibv_alloc_pd, struct ibv_context *);
FUNCTION(int, ibv_dealloc_pd, struct ibv_pd *);
FUNCTION(struct ibv_mr *, ibv_reg_mr, struct ibv_pd *, void *, size_t, int);
FUNCTION(struct ibv_mr *, ibv_reg_dmabuf_mr, struct ibv_pd *, uint64_t, size_t, uint64_t, int, int);
FUNCTION(int, ibv_dereg_mr, struct ibv_mr *);
FUNCTION(struct ibv_ah *, ibv_create_ah, struct ibv_pd *, struct ibv_ah_attr *);
FUNCTION(int, ibv_destroy_ah, struct ibv_ah *);
FUNCTION(bool, mlx5dv_is_supported, struct ibv_device *);
FUNCTION(struct ibv_context *, mlx5dv_open_device, struct ibv_device *, struct mlx5dv_context_attr *);
FUNCTION(int, mlx5dv_init_obj, struct mlx5dv_obj *, uint64_t);
FUNCTION(int, mlx5dv_devx_general_cmd, struct ibv_context *, const void *, size_t, void *, size_t);
FUNCTION(struct mlx5dv_devx_obj *, mlx5dv_devx_obj_create, struct ibv_context *, const void *, size_t, void *, size_t);
FUNCTION(int, mlx5dv_devx_obj_query, struct mlx5dv_devx_obj *, const void *, size_t, void *, size_t);
FUNCTION(int, mlx5dv_devx_obj_modify, struct mlx5dv_devx_obj *, const void *, size_t, void *, size_t);
FUNCTION(int, mlx5dv_devx_obj_destroy, struct mlx5dv_devx_obj *);
FUNCTION(struct mlx5dv_devx_umem *, mlx5dv_devx_umem_reg_ex, struct ibv_context *, struct mlx5dv_devx_umem_in *);
FUNCTION(int, mlx5dv_devx_umem_dereg, struct mlx5dv_devx_umem *);
FUNCTION(struct mlx5dv_devx_uar *, mlx5dv_devx_alloc_uar, struct ibv_context *, uint32_t);
FUNCTION(void, mlx5dv_devx_free_uar, struct mlx5dv_devx_uar *);
FUNCTION(struct mlx5dv_devx_event_channel *, mlx5dv_devx_create_event_channel, struct ibv_context *, enum mlx5dv_devx_create_event_channel_flags);
FUNCTION(void, mlx5dv_devx_destroy_event_channel, struct mlx5dv_devx_event_channel *);
FUNCTION(int, mlx5dv_devx_subscribe_devx_event, struct mlx5dv_devx_event_channel *, struct mlx5dv_devx_obj *, uint16_t, uint16_t[], uint64_t);
FUNCTION(ssize_t, mlx5dv_devx_get_event, struct mlx5dv_devx_event_channel *, struct mlx5dv_devx_async_event_hdr *, size_t);
FUNCTION(int, mlx5dv_devx_query_eqn, struct ibv_context *, uint32_t, uint32_t *);
