//! A queue pair from state to state.

use std::sync::atomic::{AtomicU32, Ordering};

use mlx5_wqe::QpNumber;
use warpbell_soft_hca::engine::command::{ack_timeout_ns, rnr_timer_ns};
use warpbell_soft_hca::engine::{
    Access, CommandError, QueuePairState, ReadyToReceive, ReadyToSend, Transition, Transport,
    WireAddress,
};

use warpbell_soft_hca::shell::HostEngine;

use super::Write;
use super::context::{P_KEYS, PORT_MTU};
use super::open::QueuePair as OpenPair;
use crate::abi::{ModifyRequest, QueuePairQuery};
use crate::async_events::{self, Kind};
use crate::attributes::Errno;
use crate::machine::{Machine, machine};

/// Bits of `enum ibv_qp_attr_mask`.
mod mask {
    pub const STATE: u32 = 1 << 0;
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
    pub const MIN_RNR_TIMER: u32 = 1 << 15;
    pub const SQ_PSN: u32 = 1 << 16;
    pub const MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    pub const DEST_QPN: u32 = 1 << 20;
}

/// Brings a queue pair to the state that the request names.
pub fn modify(write: &mut Write<'_, '_>) -> Result<(), Errno> {
    let wanted: ModifyRequest = write.input(0)?;
    let set = |bit| wanted.attr_mask & bit != 0;
    if set(mask::PORT) && wanted.port_num != 1
        || set(mask::PKEY_INDEX) && wanted.pkey_index >= P_KEYS
    {
        return Err(Errno(libc::EINVAL));
    }
    if let Some(machine) = machine()? {
        let pair = write.open.queue_pairs.get_mut(&wanted.qp_handle);
        let pair = pair.ok_or(Errno(libc::EINVAL))?;
        if set(mask::STATE) {
            let transition = transition(machine, pair, &wanted)?;
            let number = pair.number;
            machine.command(|engine| {
                // Of RESET to INIT the rights are a part. Later ones count as soon as peers may ask.
                if set(mask::ACCESS_FLAGS) && !matches!(transition, Transition::Init { .. }) {
                    let access = Access::from_bits_truncate(wanted.qp_access_flags);
                    engine.set_access(number, access)?;
                }
                take(engine, number, pair.record, transition)?;
                match transition {
                    Transition::ReadyToSend(_) if set(mask::MIN_RNR_TIMER) => {
                        engine.set_min_rnr_timer(number, rnr_timer_ns(wanted.min_rnr_timer))
                    }
                    _ => Ok(()),
                }
            })?;
        }
        if set(mask::QKEY) {
            machine.command(|engine| engine.set_q_key(pair.number, wanted.qkey))?;
        }
        remember(&mut pair.set, &wanted);
    }
    write.done();
    Ok(())
}

/// Tells what a queue pair was set to, and the state it is in.
pub fn query(write: &mut Write<'_, '_>) -> Result<(), Errno> {
    let machine = machine()?.ok_or(Errno(libc::EOPNOTSUPP))?;
    // After the pointer to the answer.
    let handle: u32 = write.input(8)?;
    let pair = write.open.queue_pairs.get(&handle);
    let pair = *pair.ok_or(Errno(libc::EINVAL))?;
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

/// Takes over what a request sets.
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

/// The states have the numbers of `enum ibv_qp_state`.
fn transition(
    machine: &Machine,
    pair: &OpenPair,
    wanted: &ModifyRequest,
) -> Result<Transition, Errno> {
    Ok(match wanted.qp_state {
        0 => Transition::Reset,
        1 => Transition::Init {
            // Both have the bits of `ibv_access_flags`.
            access: Access::from_bits_truncate(wanted.qp_access_flags),
        },
        2 if pair.transport == Transport::Datagram => {
            Transition::ReadyToReceive(ReadyToReceive {
                // Nobody in particular.
                remote_address: WireAddress::default(),
                remote_qp: QpNumber::default(),
                receive_psn: 0,
                path_mtu: PORT_MTU,
                min_rnr_timer_ns: 0,
            })
        }
        2 => ready_to_receive(machine, wanted).map(Transition::ReadyToReceive)?,
        3 => Transition::ReadyToSend(ReadyToSend {
            send_psn: wanted.sq_psn,
            retry_count: wanted.retry_cnt,
            rnr_retry: wanted.rnr_retry,
            ack_timeout_ns: ack_timeout_ns(wanted.timeout),
        }),
        6 => Transition::Error,
        _ => return Err(Errno(libc::EOPNOTSUPP)),
    })
}

fn ready_to_receive(machine: &Machine, wanted: &ModifyRequest) -> Result<ReadyToReceive, Errno> {
    let remote_qp = QpNumber::new(wanted.dest_qp_num).ok_or(Errno(libc::EINVAL))?;
    let path = &wanted.dest;
    // On Ethernet there is no other way than by GID.
    if path.is_global == 0 || path.sgid_index != 0 {
        return Err(Errno(libc::EINVAL));
    }
    let (remote_address, path_mtu) = machine.reach(path.dgid)?;
    Ok(ReadyToReceive {
        remote_address,
        remote_qp,
        receive_psn: wanted.rq_psn,
        path_mtu,
        min_rnr_timer_ns: rnr_timer_ns(wanted.min_rnr_timer),
    })
}

/// Takes a queue pair from one state to another. Before a reset its doorbell record is zeroed, as the engine wants it:
/// not before the engine has stopped, which would see receives that nobody posted, and flush them. Of the last receive
/// hears who has one fail by command, too.
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
