//! A queue pair from state to state.

use std::sync::atomic::{AtomicU32, Ordering};

use mlx5_wqe::QpNumber;
use warpbell_soft_hca::engine::command::{ack_timeout_ns, rnr_timer_ns};
use warpbell_soft_hca::engine::{Access, ReadyToReceive, ReadyToSend, Transition};

use super::Write;
use crate::abi::ModifyRequest;
use crate::attributes::Errno;
use crate::machine::{Machine, machine};

/// `IBV_QP_STATE` of the mask: the state is to change.
const STATE: u32 = 1 << 0;

/// Brings a queue pair to the state that the request names.
pub fn modify(write: &mut Write<'_, '_>) -> Result<(), Errno> {
    let wanted: ModifyRequest = write.input(0)?;
    if let Some(machine) = machine()?
        && wanted.attr_mask & STATE != 0
    {
        let pair = write.open.queue_pairs.get(&wanted.qp_handle);
        let pair = *pair.ok_or(Errno(libc::EINVAL))?;
        let transition = transition(machine, &wanted)?;
        if matches!(transition, Transition::Reset) {
            clear(pair.record);
        }
        machine.command(|engine| engine.modify_queue_pair(pair.number, transition))?;
    }
    write.done();
    Ok(())
}

/// The states have the numbers of `enum ibv_qp_state`.
fn transition(machine: &Machine, wanted: &ModifyRequest) -> Result<Transition, Errno> {
    Ok(match wanted.qp_state {
        0 => Transition::Reset,
        1 => Transition::Init {
            // Both have the bits of `ibv_access_flags`.
            access: Access::from_bits_truncate(wanted.qp_access_flags),
        },
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

/// Zeroes a queue pair's doorbell record, which the engine wants before a reset, and libmlx5 does after.
fn clear(record: u64) {
    let words = std::ptr::with_exposed_provenance::<[AtomicU32; 2]>(record as usize);
    // SAFETY: libmlx5 keeps the record until the queue pair is destroyed, aligned to 8.
    let words = unsafe { &*words };
    // Relaxed: the engine's lock is taken after, by the command that resets.
    words
        .iter()
        .for_each(|word| word.store(0, Ordering::Relaxed));
}
