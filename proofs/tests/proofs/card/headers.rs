//! The bindings against rdma-core's headers.

use std::mem::offset_of;

use warpbell_proofs::facts::{assert_same, constants};
use warpbell_proofs::{card, layouts};

use crate::card::bindings::{
    AddressAttributes, AddressHandle, ContextAttributes, Domain, EventChannel, GidEntry,
    GlobalRoute, MemoryRegion, Objects, PortAttributes, Uar, Umem, UmemAttributes, values,
};

#[test]
fn layouts_are_the_headers() {
    let mut ours = layouts! {
        PortAttributes = "ibv_port_attr" {
            state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, bad_pkey_cntr,
            qkey_viol_cntr, pkey_tbl_len, lid, sm_lid, lmc, max_vl_num, sm_sl, subnet_timeout,
            init_type_reply, active_width, active_speed, phys_state, link_layer, flags,
        }
        GidEntry = "ibv_gid_entry" { gid, gid_index, port_num, gid_type, ndev_ifindex }
        MemoryRegion = "ibv_mr" { context, pd, addr, length, handle, lkey, rkey }
        GlobalRoute = "ibv_global_route" { dgid, flow_label, sgid_index, hop_limit, traffic_class }
        AddressAttributes = "ibv_ah_attr" {
            grh, dlid, sl, src_path_bits, static_rate, is_global, port_num,
        }
        ContextAttributes = "mlx5dv_context_attr" { flags, comp_mask }
        Domain = "mlx5dv_pd" { pdn, comp_mask }
        AddressHandle = "mlx5dv_ah" { av, comp_mask }
        Objects = "mlx5dv_obj" { qp, cq, srq, rwq, dm, ah, pd }
        Umem = "mlx5dv_devx_umem" { umem_id }
        UmemAttributes = "mlx5dv_devx_umem_in" {
            addr, size, access, pgsz_bitmap, comp_mask, dmabuf_fd,
        }
        EventChannel = "mlx5dv_devx_event_channel" { fd }
        Uar = "mlx5dv_devx_uar" { reg_addr, base_addr, page_id, mmap_off, comp_mask }
    };
    // The library's function fills ours; the header's goes on behind it.
    ours.remove("ibv_port_attr");
    ours.extend(constants([
        ("mlx5dv_obj.pd.in", offset_of!(Objects, pd.input) as u64),
        ("mlx5dv_obj.pd.out", offset_of!(Objects, pd.output) as u64),
    ]));
    assert_same(&ours, &card::layouts());
}

#[test]
fn values_are_the_headers() {
    let ours = constants([
        ("IBV_PORT_ACTIVE", values::PORT_ACTIVE.into()),
        ("IBV_LINK_LAYER_INFINIBAND", values::LINK_INFINIBAND.into()),
        ("IBV_LINK_LAYER_ETHERNET", values::LINK_ETHERNET.into()),
        ("IBV_QPF_GRH_REQUIRED", values::GRH_REQUIRED.into()),
        ("IBV_GID_TYPE_IB", values::GID_INFINIBAND.into()),
        ("IBV_GID_TYPE_ROCE_V1", values::GID_ROCE_V1.into()),
        ("IBV_GID_TYPE_ROCE_V2", values::GID_ROCE_V2.into()),
        ("IBV_ACCESS_LOCAL_WRITE", values::LOCAL_WRITE.into()),
        ("MLX5DV_CONTEXT_FLAGS_DEVX", values::CONTEXT_DEVX.into()),
        ("MLX5DV_OBJ_AH", values::OBJECT_AH),
        ("MLX5DV_OBJ_PD", values::OBJECT_PD),
        ("MLX5DV_UMEM_MASK_DMABUF", values::UMEM_DMABUF),
        (
            "MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA",
            values::EVENT_CHANNEL_WITHOUT_DATA as u64,
        ),
        ("MLX5DV_UAR_ALLOC_TYPE_BF", values::UAR_BLUEFLAME.into()),
        ("MLX5DV_UAR_ALLOC_TYPE_NC", values::UAR_NON_CACHED.into()),
    ]);
    assert_same(&ours, &card::values());
}
