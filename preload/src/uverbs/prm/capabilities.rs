//! What the card can do.

use mlx5_wqe::prm::{
    AtomicCapabilities, CapabilityQuery, Done, HcaCapabilities, HcaCapabilities2, PortType,
    QueryAtomicCapAnswer, QueryHcaCap, QueryHcaCap2Answer, QueryHcaCapAnswer, QueryRoceCapAnswer,
    Record, RoceCapabilities, TimestampFormat, TimestampFormats,
};
use warpbell_soft_hca::engine::command::{
    MAX_LOG_CQ_DEPTH, MAX_LOG_QUEUE_DEPTH, MAX_MESSAGE_LENGTH, MAX_READS,
};

use super::super::context::BLUEFLAME_BYTES;
use super::super::counters::MAX_SETS;
use super::{Call, Failure, Syndrome, bytes};
use crate::lacks::Lack;
use crate::machine::limits;
use crate::port::{Port, port};

/// Kinds of capabilities of which all are told, and all are 0: tables of flows, memory of the device
/// (`mlx5_cap_type`).
const NOTHING_OF: [u16; 2] = [0x07, 0x0f];

/// The clocks of queue pairs with RoCE: what the programs count on that ask no capability. Other send queues have
/// another one, as some cards do have it: whoever asks the wrong capability is refused.
const ROCE_CLOCKS: TimestampFormats = TimestampFormats::FREE_RUNNING;
const OTHER_CLOCKS: TimestampFormats = TimestampFormats::REAL_TIME;

/// Whether queue pairs may have that clock.
pub fn has_clock(format: TimestampFormat) -> bool {
    let clocks = match port() {
        Port::InfiniBand => OTHER_CLOCKS,
        Port::Ethernet | Port::Down => ROCE_CLOCKS,
    };
    match format {
        TimestampFormat::DEFAULT => true,
        TimestampFormat::FREE_RUNNING => clocks != TimestampFormats::REAL_TIME,
        TimestampFormat::REAL_TIME => clocks != TimestampFormats::FREE_RUNNING,
        _ => false,
    }
}

/// Tells what the card can do.
pub fn query(call: &Call<'_>) -> Result<Vec<u8>, Failure> {
    // As much is told as there is room for: rdma-core's tests of DEVX ask a card for the first fields alone.
    let query: QueryHcaCap = call.read_with_room(Done::BYTES + 1)?;
    let general = [
        CapabilityQuery::GENERAL_MAXIMUM,
        CapabilityQuery::GENERAL_CURRENT,
    ];
    if NOTHING_OF.contains(&(query.op_mod.0 >> 1)) {
        return bytes(&QueryHcaCapAnswer::default());
    }
    if query.op_mod == CapabilityQuery::ATOMIC_CURRENT {
        return bytes(&QueryAtomicCapAnswer {
            atomic_caps: AtomicCapabilities {
                atomic_req_8B_endianness_mode: Lack::HostOrder.is_there().into(),
                // Compare and swap, fetch and add, of 8 bytes.
                atomic_operations: 0b11,
                atomic_size_qp: 8,
            },
        });
    }
    if query.op_mod == CapabilityQuery::ROCE_CURRENT {
        return bytes(&QueryRoceCapAnswer {
            roce_cap: RoceCapabilities {
                qp_ts_format: ROCE_CLOCKS,
                ..RoceCapabilities::default()
            },
        });
    }
    if query.op_mod == CapabilityQuery::GENERAL_2_CURRENT {
        return bytes(&QueryHcaCap2Answer {
            cmd_hca_cap_2: HcaCapabilities2 {
                send_dbr_mode_no_dbr_ext: true,
            },
        });
    }
    if !general.contains(&query.op_mod) {
        return Err(Syndrome::Capabilities.bad_parameter().into());
    }
    bytes(&QueryHcaCapAnswer {
        cmd_hca_cap: HcaCapabilities {
            hca_cap_2: true,
            log_max_qp_sz: MAX_LOG_QUEUE_DEPTH,
            log_max_qp: limits::QUEUE_PAIRS.ilog2() as u8,
            log_max_cq_sz: MAX_LOG_CQ_DEPTH,
            log_max_cq: limits::COMPLETION_QUEUES.ilog2() as u8,
            log_max_mkey: limits::REGIONS.ilog2() as u8,
            log_max_pd: limits::PROTECTION_DOMAINS.ilog2() as u8,
            log_max_rmp: limits::SHARED_RECEIVE_QUEUES.ilog2() as u8,
            log_max_umem: 16,
            log_max_ra_req_qp: MAX_READS.ilog2() as u8,
            log_max_ra_res_qp: MAX_READS.ilog2() as u8,
            max_qp_cnt: MAX_SETS.into(),
            log_max_msg: MAX_MESSAGE_LENGTH.ilog2() as u8,
            port_type: match port() {
                Port::InfiniBand => PortType::INFINIBAND,
                Port::Ethernet | Port::Down => PortType::ETHERNET,
            },
            num_ports: 1,
            roce: port() != Port::InfiniBand,
            cqe_version: 1,
            sq_ts_format: OTHER_CLOCKS,
            atomic: Lack::Atomics.is_there(),
            cq_oi: Lack::IgnoredOverruns.is_there(),
            cd: true,
            rc: true,
            uar_4k: true,
            log_bf_reg_size: BLUEFLAME_BYTES.ilog2() as u8,
            num_of_uars_per_page: 1,
            log_pg_sz: 12,
            max_wqe_sz_sq: 1024,
            max_wqe_sz_rq: 512,
            ..HcaCapabilities::default()
        },
    })
}
