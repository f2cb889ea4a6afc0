//! Opening the device, and what it says of itself.

use std::os::fd::IntoRawFd;

use warpbell_soft_hca::engine::command::MAX_READS;

use super::Write;
use crate::abi::{Context, Device, DriverContext, ExtendedDevice, Port};
use crate::async_events::Channel;
use crate::attributes::Errno;
use crate::libmlx5;
use crate::machine::{limits, machine, system};
use crate::port::{NODE_GUID, Port as Kind, port};
use crate::wires::{Wires, wires};

/// Bytes of a BlueFlame register, both its buffers.
pub const BLUEFLAME_BYTES: u32 = 0x200;
/// `IBV_ODP_SUPPORT`: the engine's accesses are a thread's of the process, so that nothing is ever pinned.
const PAGES_ON_DEMAND: u64 = 1 << 0;
/// `enum ibv_odp_transport_cap_bits`: send, receive, write, read, atomics, shared receives.
const PAGED_VERBS: u32 = (1 << 6) - 1;
/// Entries of the table of GIDs, of which the first are used.
pub const GIDS: u32 = 16;
/// Entries of the table of P_Keys.
pub const P_KEYS: u16 = 1;
/// Completion vectors.
pub const VECTORS: u32 = 1;
/// The port's MTU in bytes, which bounds a datagram.
pub const PORT_MTU: u32 = 4096;
/// The deepest queue, in basic blocks or receives.
const MAX_DEPTH: u32 = 1 << 15;

/// Opens the device: what libmlx5 sizes its queues by.
pub fn get(write: &mut Write<'_, '_>) -> Result<(), Errno> {
    // The engine starts with the device.
    machine()?;
    libmlx5::find();
    let (channel, read) = Channel::create().map_err(|error| system(&error))?;
    write.open.events = Some(channel);
    // Its user closes it with the device.
    let async_fd = read.into_raw_fd() as u32;
    write.answer(&Context {
        async_fd,
        num_comp_vectors: VECTORS,
    });
    write.answer_driver(&DriverContext {
        qp_tab_size: 1 << 17,
        bf_reg_size: BLUEFLAME_BYTES,
        // None: UAR pages are asked for one by one.
        tot_bfregs: 0,
        cache_line_size: 64,
        max_sq_desc_sz: 1024,
        max_rq_desc_sz: 512,
        max_send_wqebb: MAX_DEPTH,
        max_recv_wr: MAX_DEPTH,
        max_srq_recv_wr: MAX_DEPTH,
        num_ports: 1,
        response_length: size_of::<DriverContext>() as u32,
        // CQEs carry the user index.
        cqe_version: 1,
        // QUERY_DEVICE and CREATE_AH have an answer of mlx5's own.
        cmds_supp_uhw: 1 << 0 | 1 << 1,
        // MLX5_USER_INLINE_MODE_NONE.
        eth_min_inline: 1,
        log_uar_size: 12,
        num_uars_per_page: 1,
        num_dyn_bfregs: 1024,
        ..DriverContext::default()
    });
    Ok(())
}

/// What the device can do.
pub fn query_device(write: &mut Write<'_, '_>, extended: bool) -> Result<(), Errno> {
    let device = Device {
        node_guid: NODE_GUID,
        sys_image_guid: NODE_GUID,
        max_mr_size: u64::MAX,
        page_size_cap: !0xfff,
        vendor_id: 0x02c9,
        vendor_part_id: 0x1017,
        max_qp: limits::QUEUE_PAIRS as u32,
        max_qp_wr: MAX_DEPTH,
        max_sge: 30,
        max_sge_rd: 30,
        max_cq: limits::COMPLETION_QUEUES as u32,
        max_cqe: (1 << 22) - 1,
        max_mr: limits::REGIONS as u32,
        max_pd: limits::PROTECTION_DOMAINS as u32,
        max_qp_rd_atom: MAX_READS as u32,
        max_res_rd_atom: 1 << 20,
        max_qp_init_rd_atom: MAX_READS as u32,
        // IB_ATOMIC_HCA.
        atomic_cap: 1,
        max_ah: 1 << 16,
        max_srq: limits::SHARED_RECEIVE_QUEUES as u32,
        max_srq_wr: MAX_DEPTH - 1,
        max_srq_sge: 31,
        max_pkeys: P_KEYS,
        phys_port_cnt: 1,
        ..Device::default()
    };
    if extended {
        write.answer(&ExtendedDevice {
            base: device,
            comp_mask: 0,
            response_length: size_of::<ExtendedDevice>() as u32,
            paging: PAGES_ON_DEMAND,
            paging_rc: PAGED_VERBS,
            paging_ud: PAGED_VERBS & 1,
            ..ExtendedDevice::default()
        });
    } else {
        write.answer(&device);
    }
    Ok(())
}

/// The number of an MTU in `enum ibv_mtu`, from 1 for 256 bytes.
const fn mtu_number(bytes: u32) -> u8 {
    (bytes.ilog2() - 7) as u8
}

/// The MTU in bytes that every wire has.
fn port_mtu() -> u32 {
    let of_roce = wires().as_ref().ok().and_then(Wires::mtu);
    of_roce.unwrap_or(PORT_MTU)
}

/// The one port.
pub fn query_port(write: &mut Write<'_, '_>) -> Result<(), Errno> {
    // After the pointer to the answer.
    let number: u8 = write.input(8)?;
    if number != 1 {
        return Err(Errno(libc::EINVAL));
    }
    let (state, phys_state) = port().states();
    let (link_layer, flags) = match port() {
        // IBV_LINK_LAYER_ETHERNET.
        Kind::Ethernet | Kind::Down => (2, 0),
        // IBV_LINK_LAYER_INFINIBAND, IB_UVERBS_QPF_GRH_REQUIRED.
        Kind::InfiniBand => (1, 1),
    };
    write.answer(&Port {
        max_msg_sz: 1 << 30,
        gid_tbl_len: GIDS,
        pkey_tbl_len: P_KEYS,
        lid: port().lid(),
        state,
        phys_state,
        max_mtu: mtu_number(PORT_MTU),
        active_mtu: mtu_number(port_mtu()),
        max_vl_num: 1,
        // 4 lanes at 25 Gbit/s.
        active_width: 2,
        active_speed: 32,
        link_layer,
        flags,
        ..Port::default()
    });
    Ok(())
}
