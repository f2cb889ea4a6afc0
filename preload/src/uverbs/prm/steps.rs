//! A queue pair's steps, and what it was set to.

use std::collections::BTreeMap;

use mlx5_wqe::prm::{
    AddressPath, CommandOpcode, CommandStatus, Done, InitToRtr, ModifyQpAnswer, Mtu,
    OptionalParameters, QpContext, QpState, QueryQp, QueryQpAnswer, RstToInit, RtrToRts, ToError,
    ToReset,
};
use warpbell_soft_hca::engine::command::{MAX_READS, ack_timeout_ns, rnr_timer_ns};
use warpbell_soft_hca::engine::{Access, QueuePairState, ReadyToReceive, ReadyToSend, Transition};

use super::super::context::P_KEYS;
use super::super::counters::{self, Counted};
use super::super::devx::{QueuePair, misplaced};
use super::super::modify::take;
use super::{Call, Failure, Syndrome, bytes, engine};
use crate::attributes::Errno;
use crate::machine::Machine;
use crate::port::{Port, port};

/// The fields that each step takes if the command's mask says so. Linux sends no others
/// (`opt_mask` of drivers/infiniband/hw/mlx5/qp.c), and firmware may refuse them.
mod optional {
    use mlx5_wqe::prm::OptionalParameters as Optional;

    /// What peers may do.
    pub const RIGHTS: Optional = Optional::REMOTE_READ
        .union(Optional::REMOTE_ATOMIC)
        .union(Optional::REMOTE_WRITE);
    const ALWAYS: Optional = RIGHTS.union(Optional::ALTERNATIVE_PATH);
    pub const RST2INIT: Optional = Optional::empty();
    pub const INIT2RTR: Optional = ALWAYS.union(Optional::PKEY_INDEX).union(Optional::LAG_PORT);
    pub const RTR2RTS: Optional = ALWAYS
        .union(Optional::PM_STATE)
        .union(Optional::RNR_TIMEOUT);
}

/// Refuses optional fields that a step does not take.
fn only(allowed: OptionalParameters, asked: OptionalParameters) -> Result<(), Failure> {
    match allowed.contains(asked) {
        true => Ok(()),
        false => Err(Syndrome::Field.bad_parameter().into()),
    }
}

/// What peers may do, as a context has it.
fn rights(context: &QpContext) -> Access {
    let rights = [
        (context.rwe, Access::REMOTE_WRITE),
        (context.rre, Access::REMOTE_READ),
        (context.rae, Access::REMOTE_ATOMIC),
    ];
    let granted = rights.into_iter().filter(|(granted, _)| *granted);
    granted.map(|(_, right)| right).collect()
}

/// Takes the optional rights over that the mask names.
fn take_rights(set: &mut QpContext, wanted: &QpContext, mask: OptionalParameters) {
    let named = |right, new, old| if mask.contains(right) { new } else { old };
    set.rre = named(OptionalParameters::REMOTE_READ, wanted.rre, set.rre);
    set.rae = named(OptionalParameters::REMOTE_ATOMIC, wanted.rae, set.rae);
    set.rwe = named(OptionalParameters::REMOTE_WRITE, wanted.rwe, set.rwe);
}

/// Refuses an index that the table of partition keys has not.
fn in_table(pkey_index: u16) -> Result<(), Failure> {
    match pkey_index < P_KEYS {
        true => Ok(()),
        false => Err(Syndrome::Path.with(CommandStatus::BAD_INDEX).into()),
    }
}

/// Refuses more reads and atomics under way than there may be.
fn reads(log: u8) -> Result<(), Failure> {
    match log <= MAX_READS.ilog2() as u8 {
        true => Ok(()),
        false => Err(Syndrome::Range.bad_parameter().into()),
    }
}

/// Brings a queue pair to another state.
pub fn modify(
    machine: &Machine,
    counted: &mut BTreeMap<u8, Counted>,
    pair: &mut QueuePair,
    call: &Call<'_>,
) -> Result<Vec<u8>, Failure> {
    let mut set = *pair.set;
    let (qpn, transition) = match call.opcode() {
        Some(CommandOpcode::RST2INIT_QP) => {
            let command: RstToInit = call.read()?;
            let wanted = &command.qpc;
            only(optional::RST2INIT, command.opt_param_mask)?;
            if wanted.primary_address_path.vhca_port_num != 1 {
                return Err(Syndrome::Path.bad_parameter().into());
            }
            in_table(wanted.primary_address_path.pkey_index)?;
            let counters = wanted.counter_set_id;
            if counters != 0 && !counted.contains_key(&counters) {
                return Err(Syndrome::CounterSet
                    .with(CommandStatus::BAD_RESOURCE)
                    .into());
            }
            set.counter_set_id = counters;
            (set.rwe, set.rre, set.rae) = (wanted.rwe, wanted.rre, wanted.rae);
            set.primary_address_path.vhca_port_num = 1;
            let access = rights(&set);
            (command.qpn, Transition::Init { access })
        }
        Some(CommandOpcode::INIT2RTR_QP) => {
            let command: InitToRtr = call.read()?;
            let wanted = &command.qpc;
            only(optional::INIT2RTR, command.opt_param_mask)?;
            let path = &wanted.primary_address_path;
            in_table(path.pkey_index)?;
            reads(wanted.log_rra_max)?;
            let mtu = bytes_of(wanted.mtu);
            // On InfiniBand a LID alone tells no HCA.
            let told = port() != Port::InfiniBand || path.grh;
            let mtu =
                mtu.filter(|_| usize::from(path.src_addr_index) < machine.gids().len() && told);
            let path_mtu = mtu.ok_or(Syndrome::Path.bad_parameter())?;
            let (remote_address, _) =
                machine
                    .reach(path.rgid_rip, path_mtu)
                    .map_err(|error| match error {
                        Errno(libc::EINVAL) => Syndrome::Path.bad_parameter(),
                        _ => Syndrome::Unreachable.bad_parameter(),
                    })?;
            take_rights(&mut set, wanted, command.opt_param_mask);
            set = QpContext {
                mtu: wanted.mtu,
                remote_qpn: wanted.remote_qpn,
                next_rcv_psn: wanted.next_rcv_psn,
                min_rnr_nak: wanted.min_rnr_nak,
                log_msg_max: wanted.log_msg_max,
                log_rra_max: wanted.log_rra_max,
                primary_address_path: AddressPath {
                    vhca_port_num: 1,
                    ..*path
                },
                ..set
            };
            let ready = ReadyToReceive {
                remote_address,
                remote_qp: wanted.remote_qpn,
                receive_psn: wanted.next_rcv_psn,
                path_mtu,
                min_rnr_timer_ns: rnr_timer_ns(wanted.min_rnr_nak),
            };
            (command.qpn, Transition::ReadyToReceive(ready))
        }
        Some(CommandOpcode::RTR2RTS_QP) => {
            let command: RtrToRts = call.read()?;
            let wanted = &command.qpc;
            only(optional::RTR2RTS, command.opt_param_mask)?;
            reads(wanted.log_sra_max)?;
            take_rights(&mut set, wanted, command.opt_param_mask);
            if command
                .opt_param_mask
                .contains(OptionalParameters::RNR_TIMEOUT)
            {
                set.min_rnr_nak = wanted.min_rnr_nak;
            }
            set.next_send_psn = wanted.next_send_psn;
            (set.retry_count, set.rnr_retry) = (wanted.retry_count, wanted.rnr_retry);
            set.log_sra_max = wanted.log_sra_max;
            let timeout = wanted.primary_address_path.ack_timeout;
            set.primary_address_path.ack_timeout = timeout;
            let ready = ReadyToSend {
                send_psn: wanted.next_send_psn,
                retry_count: wanted.retry_count,
                rnr_retry: wanted.rnr_retry,
                ack_timeout_ns: ack_timeout_ns(timeout),
            };
            (command.qpn, Transition::ReadyToSend(ready))
        }
        Some(CommandOpcode::TO_ERROR_QP) => (call.read::<ToError>()?.qpn, Transition::Error),
        Some(CommandOpcode::TO_RESET_QP) => (call.read::<ToReset>()?.qpn, Transition::Reset),
        other => return Err(misplaced(other)),
    };
    // The command's object and the method's have to be the same one.
    if qpn != pair.number {
        return Err(Failure::System(Errno(libc::EINVAL)));
    }
    if matches!(transition, Transition::Reset) {
        counters::keep(machine, counted, pair)?;
    }
    engine(machine, |engine| {
        match transition {
            // Before the step: peers may ask as soon as it is taken.
            Transition::ReadyToReceive(_) | Transition::ReadyToSend(_) => {
                engine.set_access(qpn, rights(&set))?;
            }
            _ => {}
        }
        take(engine, qpn, pair.record, transition)?;
        match transition {
            Transition::ReadyToSend(_) => {
                engine.set_min_rnr_timer(qpn, rnr_timer_ns(set.min_rnr_nak))
            }
            _ => Ok(()),
        }
    })?;
    *pair.set = set;
    match transition {
        Transition::Error | Transition::Reset => bytes(&Done {}),
        _ => bytes(&ModifyQpAnswer::default()),
    }
}

/// Bytes of a packet.
fn bytes_of(mtu: Mtu) -> Option<u32> {
    let known = (Mtu::BYTES_256.0..=Mtu::BYTES_4096.0).contains(&mtu.0);
    known.then(|| 128 << mtu.0)
}

/// Tells what a queue pair was set to, and its state.
pub fn query(machine: &Machine, pair: &QueuePair, call: &Call<'_>) -> Result<Vec<u8>, Failure> {
    let command: QueryQp = call.read()?;
    if command.qpn != pair.number {
        return Err(Failure::System(Errno(libc::EINVAL)));
    }
    let status = engine(machine, |engine| engine.query_queue_pair(pair.number))?;
    let mut context = *pair.set;
    context.state = match status.state {
        QueuePairState::Reset => QpState::RST,
        QueuePairState::Init => QpState::INIT,
        QueuePairState::ReadyToReceive => QpState::RTR,
        QueuePairState::ReadyToSend => QpState::RTS,
        QueuePairState::Error => QpState::ERR,
    };
    context.hw_sq_wqebb_counter = status.send_index;
    bytes(&QueryQpAnswer {
        qpc: context,
        ..QueryQpAnswer::default()
    })
}
