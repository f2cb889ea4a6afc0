//! A queue pair from state to state.

use std::sync::atomic::{AtomicU32, Ordering};

use mlx5_wqe::QpNumber;
use warpbell_soft_hca::engine::command::{MAX_READS, ack_timeout_ns, rnr_timer_ns};
use warpbell_soft_hca::engine::{
    CommandError, QueuePairState, ReadyToReceive, ReadyToSend, Transition, Transport, WireAddress,
};

use warpbell_soft_hca::shell::HostEngine;

use super::context::{P_KEYS, PORT_MTU};
use super::memory::access;
use super::open::QueuePair as OpenPair;
use super::{Write, gids, transitions};
use crate::abi::{ModifyRequest, QueuePairQuery};
use crate::async_events::{self, Kind};
use crate::attributes::Errno;
use crate::machine::{Machine, machine};

/// Bits of `enum ibv_qp_attr_mask`.
pub mod mask {
    pub const STATE: u32 = 1 << 0;
    pub const CUR_STATE: u32 = 1 << 1;
    pub const ACCESS_FLAGS: u32 = 1 << 3;
    pub const PKEY_INDEX: u32 = 1 << 4;
    pub const PORT: u32 = 1 << 5;
    pub const QKEY: u32 = 1 << 6;
    pub const AV: u32 = 1 << 7;
    pub const PATH_MTU: u32 = 1 << 8;
    pub const TIMEOUT: u32 = 1 << 9;
    pub const RETRY_CNT: u32 = 1 << 10;
    pub const RNR_RETRY: u32 = 1 << 11;
    pub const RQ_PSN: u32 = 1 << 12;
    pub const MAX_QP_RD_ATOMIC: u32 = 1 << 13;
    pub const ALT_PATH: u32 = 1 << 14;
    pub const MIN_RNR_TIMER: u32 = 1 << 15;
    pub const SQ_PSN: u32 = 1 << 16;
    pub const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    pub const PATH_MIG_STATE: u32 = 1 << 18;
    pub const DEST_QPN: u32 = 1 << 20;
}

/// `IBV_MIG_MIGRATED`: there is no path beside the first.
const MIGRATED: u8 = 0;

/// Bits of a PSN, and of a queue pair's number. Linux ignores a request's other bits.
const NUMBER: u32 = 0x00ff_ffff;
/// Bits of the numbers of retries, likewise.
const RETRIES: u8 = 7;

/// Changes a queue pair as the request says, and brings it to the state that it names.
pub fn modify(write: &mut Write<'_, '_>) -> Result<(), Errno> {
    let wanted: ModifyRequest = write.input(0)?;
    let set = |bit| wanted.attr_mask & bit != 0;
    if let Some(machine) = machine()? {
        let open = &*write.open;
        let pair = open.find(&open.queue_pairs, wanted.qp_handle)?;
        let status = machine.command(|engine| engine.query_queue_pair(pair.number))?;
        let from = status.state;
        let to = check(machine, &pair, from, &wanted)?;
        let transition = match (from, to) {
            (QueuePairState::ReadyToSend, QueuePairState::ReadyToSend) => None,
            _ => Some(transition(machine, &pair, &wanted, to)?),
        };
        machine.command(|engine| {
            // Before peers may ask.
            if set(mask::ACCESS_FLAGS) {
                engine.set_access(pair.number, access(wanted.qp_access_flags))?;
            }
            if let Some(transition) = transition {
                take(engine, pair.number, pair.record, transition)?;
            }
            if set(mask::MIN_RNR_TIMER) {
                engine.set_min_rnr_timer(pair.number, rnr_timer_ns(wanted.min_rnr_timer))?;
            }
            if set(mask::QKEY) {
                engine.set_q_key(pair.number, wanted.qkey)?;
            }
            Ok(())
        })?;
        if let Some(pair) = write.open.queue_pairs.get_mut(&wanted.qp_handle) {
            remember(&mut pair.set, &wanted);
        }
    }
    write.done();
    Ok(())
}

/// Refuses requests that Linux's core or its mlx5 driver refuse, or that the engine cannot carry out. Returns the queue
/// pair's next state.
fn check(
    machine: &Machine,
    pair: &OpenPair,
    from: QueuePairState,
    wanted: &ModifyRequest,
) -> Result<QueuePairState, Errno> {
    let set = |bit| wanted.attr_mask & bit != 0;
    if set(mask::AV) {
        let path = &wanted.dest;
        gids::check_path(
            machine.gids(),
            path.port_num,
            path.is_global,
            path.sgid_index,
        )?;
    }
    let to = match set(mask::STATE) {
        true => state(wanted.qp_state)?,
        false => from,
    };
    let is_bad = set(mask::PORT) && wanted.port_num != 1
        || set(mask::PKEY_INDEX) && wanted.pkey_index >= P_KEYS
        || set(mask::CUR_STATE) && state(wanted.cur_qp_state)? != from
        // 256 to 4,096 bytes.
        || set(mask::PATH_MTU) && !(1..=5).contains(&wanted.path_mtu)
        || set(mask::MAX_QP_RD_ATOMIC) && usize::from(wanted.max_rd_atomic) > MAX_READS
        || set(mask::MAX_DEST_RD_ATOMIC) && usize::from(wanted.max_dest_rd_atomic) > MAX_READS
        || !transitions::is_allowed(pair.transport, from, to, wanted.attr_mask);
    if is_bad {
        return Err(Errno(libc::EINVAL));
    }
    if set(mask::ALT_PATH) || set(mask::PATH_MIG_STATE) && wanted.path_mig_state != MIGRATED {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    Ok(to)
}

/// The state of a number of `enum ibv_qp_state`.
fn state(number: u8) -> Result<QueuePairState, Errno> {
    Ok(match number {
        0 => QueuePairState::Reset,
        1 => QueuePairState::Init,
        2 => QueuePairState::ReadyToReceive,
        3 => QueuePairState::ReadyToSend,
        // The send queue is drained, or has an error of its own.
        4 | 5 => return Err(Errno(libc::EOPNOTSUPP)),
        6 => QueuePairState::Error,
        _ => return Err(Errno(libc::EINVAL)),
    })
}

/// Reports a queue pair's attributes and its state.
pub fn query(write: &mut Write<'_, '_>) -> Result<(), Errno> {
    let machine = machine()?.ok_or(Errno(libc::EOPNOTSUPP))?;
    // After the pointer to the answer.
    let handle: u32 = write.input(8)?;
    let pair = write.open.find(&write.open.queue_pairs, handle)?;
    let status = machine.command(|engine| engine.query_queue_pair(pair.number))?;
    // The numbers of `enum ibv_qp_state`.
    let state = match status.state {
        QueuePairState::Reset => 0,
        QueuePairState::Init => 1,
        QueuePairState::ReadyToReceive => 2,
        QueuePairState::ReadyToSend => 3,
        QueuePairState::Error => 6,
    };
    write.answer(&QueuePairQuery {
        qp_state: state,
        cur_qp_state: state,
        ..pair.set
    });
    Ok(())
}

/// Remembers the attributes that a request sets.
fn remember(set: &mut QueuePairQuery, wanted: &ModifyRequest) {
    macro_rules! take {
        ($($bit:ident: $($field:ident)*;)*) => {$(
            if wanted.attr_mask & mask::$bit != 0 {
                $(set.$field = wanted.$field;)*
            }
        )*};
    }
    take! {
        ACCESS_FLAGS: qp_access_flags;
        PKEY_INDEX: pkey_index;
        PORT: port_num;
        QKEY: qkey;
        AV: dest;
        PATH_MTU: path_mtu;
        TIMEOUT: timeout;
        RETRY_CNT: retry_cnt;
        RNR_RETRY: rnr_retry;
        RQ_PSN: rq_psn;
        MAX_QP_RD_ATOMIC: max_rd_atomic;
        MIN_RNR_TIMER: min_rnr_timer;
        SQ_PSN: sq_psn;
        MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
        DEST_QPN: dest_qp_num;
    }
}

/// The engine's transition for a step to a state.
fn transition(
    machine: &Machine,
    pair: &OpenPair,
    wanted: &ModifyRequest,
    to: QueuePairState,
) -> Result<Transition, Errno> {
    Ok(match to {
        QueuePairState::Reset => Transition::Reset,
        QueuePairState::Init => Transition::Init {
            access: access(match wanted.attr_mask & mask::ACCESS_FLAGS {
                0 => pair.set.qp_access_flags,
                _ => wanted.qp_access_flags,
            }),
        },
        QueuePairState::ReadyToReceive if pair.transport == Transport::Datagram => {
            Transition::ReadyToReceive(ReadyToReceive {
                // Nobody in particular.
                remote_address: WireAddress::default(),
                remote_qp: QpNumber::default(),
                receive_psn: 0,
                path_mtu: PORT_MTU,
                min_rnr_timer_ns: 0,
            })
        }
        QueuePairState::ReadyToReceive => {
            ready_to_receive(machine, wanted).map(Transition::ReadyToReceive)?
        }
        QueuePairState::ReadyToSend => Transition::ReadyToSend(ReadyToSend {
            send_psn: wanted.sq_psn & NUMBER,
            retry_count: wanted.retry_cnt & RETRIES,
            rnr_retry: wanted.rnr_retry & RETRIES,
            ack_timeout_ns: ack_timeout_ns(wanted.timeout),
        }),
        QueuePairState::Error => Transition::Error,
    })
}

/// Bytes of a number of `enum ibv_mtu`, which [`check`] has seen: 256 to 4,096.
const fn mtu_bytes(number: u8) -> u32 {
    128 << number
}

fn ready_to_receive(machine: &Machine, wanted: &ModifyRequest) -> Result<ReadyToReceive, Errno> {
    let remote_qp = QpNumber::new(wanted.dest_qp_num & NUMBER).ok_or(Errno(libc::EINVAL))?;
    let (remote_address, path_mtu) = machine.reach(wanted.dest.dgid, mtu_bytes(wanted.path_mtu))?;
    Ok(ReadyToReceive {
        remote_address,
        remote_qp,
        receive_psn: wanted.rq_psn & NUMBER,
        path_mtu,
        min_rnr_timer_ns: rnr_timer_ns(wanted.min_rnr_timer),
    })
}

/// Takes a queue pair from one state to another. A reset zeroes the doorbell record first, as the engine requires. The
/// engine must stand still then: it would flush receives that nobody posted. A change to ERROR by command also reports
/// the last receive.
pub fn take(
    engine: &mut HostEngine<'_>,
    number: QpNumber,
    record: u64,
    transition: Transition,
) -> Result<(), CommandError> {
    if matches!(transition, Transition::Reset) {
        clear(record);
    }
    let before = engine.query_queue_pair(number)?.state;
    engine.modify_queue_pair(number, transition)?;
    if matches!(transition, Transition::Error) && before != QueuePairState::Error {
        async_events::report(number, Kind::LastReceive);
    }
    Ok(())
}

/// Zeroes a queue pair's doorbell record.
fn clear(record: u64) {
    let words = std::ptr::with_exposed_provenance::<[AtomicU32; 2]>(record as usize);
    // SAFETY: its owner keeps the record until the queue pair is destroyed, aligned to 8.
    let words = unsafe { &*words };
    // Relaxed: the engine stands still.
    words
        .iter()
        .for_each(|word| word.store(0, Ordering::Relaxed));
}
