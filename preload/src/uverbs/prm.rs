//! Commands to the card, carried out by the software HCA.

use std::collections::BTreeMap;

use mlx5_wqe::QpNumber;
use mlx5_wqe::prm::{
    AtomicCapabilities, CapabilityQuery, Command, CommandStatus, CreateCq, CreateCqAnswer,
    CreateQp, CreateQpAnswer, Done, HcaCapabilities, HcaCapabilities2, InitToRtr, ModifyQpAnswer,
    Mtu, OptionalParameters, PortType, PrmError, QpState, QueryAtomicCapAnswer, QueryHcaCap,
    QueryHcaCap2Answer, QueryHcaCapAnswer, QueryQp, QueryQpAnswer, QueryRoceCapAnswer, ReceiveType,
    Record, Refusal, RoceCapabilities, RstToInit, RtrToRts, SendDoorbellMode, TimestampFormat,
    TimestampFormats, ToError, ToReset, Transport, command_opcode, opcode,
};
use warpbell_soft_hca::engine::command::{
    MAX_LOG_CQ_DEPTH, MAX_LOG_QUEUE_DEPTH, MAX_MESSAGE_LENGTH, MAX_READS, ack_timeout_ns,
    rnr_timer_ns,
};
use warpbell_soft_hca::engine::{
    Access, CommandError, CompletionQueueAttributes, CrossChannel, QueuePairAttributes,
    QueuePairOptions, QueuePairState, ReadyToReceive, ReadyToSend, ReceiveRing, SendDoorbell,
    Transition,
};

use super::context::{BLUEFLAME_BYTES, P_KEYS};
use super::counters::{self, Counted, MAX_SETS};
use super::devx::{EVENT_QUEUE, Object, QueuePair, misplaced};
use super::modify::take;
use super::open::Open;
use super::queues::SEND_REGISTERS;
use crate::attributes::Errno;
use crate::machine::{Machine, limits};
use crate::port::{Port, port};

/// A command, and the bytes that its answer may have.
pub struct Call<'a> {
    pub command: &'a [u8],
    pub room: usize,
}

/// Why a command was not carried out.
pub enum Failure {
    /// The card refuses it.
    Refused(Refusal),
    /// It did not come to the card.
    System(Errno),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Why the software HCA refuses a command: the low byte of its syndromes, whose high half is "WB".
#[derive(Clone, Copy, Debug)]
pub enum Syndrome {
    /// There is no such command.
    Opcode = 1,
    /// The command is too short.
    Input,
    /// The room for the answer is too small.
    Output,
    /// These capabilities are not told.
    Capabilities,
    /// A queue lies outside the memory that it names, or names none.
    Umem,
    /// There is no such UAR page.
    Uar,
    /// There is no such event queue.
    EventQueue,
    /// Something is asked for that the HCA has not.
    Unsupported,
    /// The path cannot be: port, GID index, MTU, no global route header where one is due.
    Path,
    /// Nobody has the other end's GID.
    Unreachable,
    /// There is no such protection domain.
    Domain,
    /// There is no such completion queue.
    CompletionQueue,
    /// There is no such queue pair, or it is another.
    QueuePair,
    /// The queue pair's state does not allow it.
    State,
    /// A table is full.
    Full,
    /// A number is out of its range.
    Range,
    /// There is no such set of counters.
    CounterSet,
    /// A field is set that this command does not take.
    Field,
}

impl Syndrome {
    /// The refusal with this reason.
    pub fn with(self, status: CommandStatus) -> Refusal {
        let syndrome = 0x5742_0000 | self as u32;
        Refusal { status, syndrome }
    }

    fn bad_parameter(self) -> Refusal {
        self.with(CommandStatus::BAD_PARAMETER)
    }
}

impl Call<'_> {
    /// What is commanded.
    pub fn opcode(&self) -> Option<u16> {
        command_opcode(self.command)
    }

    /// The command, if its answer has room.
    pub fn read<C: Command>(&self) -> Result<C, Failure> {
        if self.room < C::Answer::BYTES {
            return Err(Syndrome::Output
                .with(CommandStatus::BAD_OUTPUT_LENGTH)
                .into());
        }
        C::read(self.command).map_err(|error| match error {
            PrmError::Short { .. } => Syndrome::Input.with(CommandStatus::BAD_INPUT_LENGTH).into(),
            // Nobody reads a command but by its opcode.
            _ => Failure::System(Errno(libc::EINVAL)),
        })
    }
}

/// An answer's bytes.
pub fn bytes(answer: &impl Record) -> Result<Vec<u8>, Failure> {
    fn of<R: Record>(answer: &R) -> Result<Vec<u8>, PrmError> {
        let mut bytes = vec![0; R::BYTES];
        answer.write(&mut bytes)?;
        Ok(bytes)
    }
    // A value of ours that does not fit: the card's own fault.
    of(answer).map_err(|_| Syndrome::Range.with(CommandStatus::INTERNAL).into())
}

/// Gives the engine a command; its refusal is the card's.
pub fn engine<R>(
    machine: &Machine,
    give: impl FnOnce(&mut warpbell_soft_hca::shell::HostEngine<'_>) -> Result<R, CommandError>,
) -> Result<R, Failure> {
    let given = machine.try_command(give).map_err(Failure::System)?;
    given.map_err(|error| {
        let bad_resource = |syndrome: Syndrome| syndrome.with(CommandStatus::BAD_RESOURCE);
        Failure::Refused(match error {
            CommandError::TableFull => Syndrome::Full.with(CommandStatus::NO_RESOURCES),
            CommandError::NoProtectionDomain => bad_resource(Syndrome::Domain),
            CommandError::NoCompletionQueue => bad_resource(Syndrome::CompletionQueue),
            CommandError::NoQueuePair => bad_resource(Syndrome::QueuePair),
            CommandError::DoorbellTaken => bad_resource(Syndrome::Uar),
            CommandError::IllegalTransition { .. } => {
                Syndrome::State.with(CommandStatus::BAD_QP_STATE)
            }
            CommandError::BadMtu => Syndrome::Path.bad_parameter(),
            _ => Syndrome::Range.bad_parameter(),
        })
    })
}

/// Kinds of capabilities of which all are told, and all are 0: tables of flows, memory of the device
/// (`mlx5_cap_type`).
const NOTHING_OF: [u16; 2] = [0x07, 0x0f];

/// The clocks of queue pairs with RoCE. Other send queues have the free-running one (`sq_ts_format`), as some cards do
/// have it: whoever asks the wrong capability is refused.
const QUEUE_PAIR_CLOCKS: TimestampFormats = TimestampFormats::REAL_TIME;

/// Whether queue pairs may have that clock.
fn has_clock(format: TimestampFormat) -> bool {
    let clocks = match port() {
        Port::InfiniBand => TimestampFormats::FREE_RUNNING,
        Port::Ethernet | Port::Down => QUEUE_PAIR_CLOCKS,
    };
    match format {
        TimestampFormat::DEFAULT => true,
        TimestampFormat::FREE_RUNNING => clocks != TimestampFormats::REAL_TIME,
        TimestampFormat::REAL_TIME => clocks != TimestampFormats::FREE_RUNNING,
        _ => false,
    }
}

/// Tells what the card can do.
pub fn query_capabilities(call: &Call<'_>) -> Result<Vec<u8>, Failure> {
    let query: QueryHcaCap = call.read()?;
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
                atomic_req_8B_endianness_mode: 1,
                // Compare and swap, fetch and add, of 8 bytes.
                atomic_operations: 0b11,
                atomic_size_qp: 8,
            },
        });
    }
    if query.op_mod == CapabilityQuery::ROCE_CURRENT {
        return bytes(&QueryRoceCapAnswer {
            roce_cap: RoceCapabilities {
                qp_ts_format: QUEUE_PAIR_CLOCKS,
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
            atomic: true,
            cq_oi: true,
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

/// Where a doorbell record lies.
fn record(open: &Open, umem: u32, offset: u64) -> Result<u64, Failure> {
    let umem = open.umems.get(&umem);
    let place = umem.and_then(|umem| umem.place(offset, RECORD_BYTES));
    place.ok_or(Syndrome::Umem.bad_parameter().into())
}

/// Where a queue's ring lies.
fn ring(open: &Open, umem: u32, offset: u64, bytes: u64) -> Result<u64, Failure> {
    let umem = open.umems.get(&umem);
    let place = umem.and_then(|umem| umem.ring(offset, bytes));
    place.ok_or(Syndrome::Umem.bad_parameter().into())
}

/// The engine's address of a UAR page.
fn page(open: &Open, number: u32) -> Result<u64, Failure> {
    let page = open.pages.get(&number).map(|page| page.address());
    page.ok_or(Syndrome::Uar.with(CommandStatus::BAD_RESOURCE).into())
}

/// Refuses what the HCA has not.
fn refuse_if(unsupported: bool) -> Result<(), Failure> {
    match unsupported {
        true => Err(Syndrome::Unsupported.bad_parameter().into()),
        false => Ok(()),
    }
}

/// Bytes of a doorbell record.
const RECORD_BYTES: u64 = 8;

/// Creates a completion queue.
pub fn create_completion_queue(
    machine: &Machine,
    open: &Open,
    call: &Call<'_>,
) -> Result<(Object, Vec<u8>), Failure> {
    let command: CreateCq = call.read()?;
    let context = &command.cq_context;
    refuse_if(context.cqe_sz != 0 || context.cqe_comp_en || context.apu_cq)?;
    if !command.cq_umem_valid || !context.dbr_umem_valid {
        return Err(Syndrome::Umem.bad_parameter().into());
    }
    if context.c_eqn_or_apu_element != EVENT_QUEUE {
        return Err(Syndrome::EventQueue
            .with(CommandStatus::BAD_RESOURCE)
            .into());
    }
    let ring_bytes = 64 << context.log_cq_size;
    let attributes = CompletionQueueAttributes {
        ring: ring(open, command.cq_umem_id, command.cq_umem_offset, ring_bytes)?,
        log_depth: context.log_cq_size,
        record: record(open, context.dbr_umem_id, context.dbr_addr)?,
        uar: Some(page(open, context.uar_page)?),
        collapsed: context.cc,
        ignore_overrun: context.oi,
    };
    // SAFETY: ring and record lie in umems, which their user keeps until they are deregistered, and that is refused as
    // long as the queue is there; the page is ours.
    let number = engine(machine, |engine| unsafe {
        engine.create_completion_queue(&attributes)
    })?;
    let object = Object::CompletionQueue {
        number,
        umems: [command.cq_umem_id, context.dbr_umem_id],
    };
    Ok((object, bytes(&CreateCqAnswer { cqn: number })?))
}

/// Creates a queue pair.
pub fn create_queue_pair(
    machine: &Machine,
    open: &Open,
    call: &Call<'_>,
) -> Result<(Object, Vec<u8>), Failure> {
    let command: CreateQp = call.read()?;
    let context = &command.qpc;
    let known = [ReceiveType::REGULAR, ReceiveType::NONE];
    refuse_if(context.st != Transport::RC || !known.contains(&context.rq_type))?;
    refuse_if(context.no_sq || context.wq_signature || context.page_offset != 0)?;
    refuse_if(command.input_qpn != QpNumber::default() || context.cd_slave_receive)?;
    refuse_if(!has_clock(context.ts_format))?;
    let mut cross_channel = CrossChannel::empty();
    cross_channel.set(CrossChannel::MASTER, context.cd_master);
    cross_channel.set(CrossChannel::MANAGED_SEND, context.cd_slave_send);
    let doorbells = [
        SendDoorbellMode::WITH_RECORD,
        SendDoorbellMode::WITHOUT_RECORD,
    ];
    refuse_if(!doorbells.contains(&context.send_dbr_mode))?;
    // RST2INIT binds a queue pair to its counters.
    if context.counter_set_id != 0 || !command.opt_param_mask.is_empty() {
        return Err(Syndrome::Field.bad_parameter().into());
    }
    if !command.wq_umem_valid || !context.dbr_umem_valid {
        return Err(Syndrome::Umem.bad_parameter().into());
    }
    let domain = open.domains.get(&context.pd);
    let domain = domain.ok_or(Syndrome::Domain.with(CommandStatus::BAD_RESOURCE))?;
    let send_bytes = 64 << context.log_sq_size;
    // The receive queue comes first, then the send queue.
    let receive_bytes = match context.rq_type {
        ReceiveType::REGULAR => 16 << (context.log_rq_size + context.log_rq_stride),
        _ => 0,
    };
    let rings = ring(
        open,
        command.wq_umem_id,
        command.wq_umem_offset,
        receive_bytes + send_bytes,
    )?;
    let record = record(open, context.dbr_umem_id, context.dbr_addr)?;
    let attributes = QueuePairAttributes {
        protection_domain: *domain,
        send_ring: rings + receive_bytes,
        log_send_depth: context.log_sq_size,
        receive: (receive_bytes != 0).then_some(ReceiveRing {
            ring: rings,
            log_depth: context.log_rq_size,
            log_stride: context.log_rq_stride,
        }),
        record,
        send_doorbell: match context.send_dbr_mode {
            SendDoorbellMode::WITHOUT_RECORD => SendDoorbell::WithoutRecord,
            _ => SendDoorbell::WithRecord,
        },
        uar: page(open, context.uar_page)?,
        send_cq: context.cqn_snd,
        receive_cq: context.cqn_rcv,
        cross_channel,
    };
    let options = QueuePairOptions {
        user_index: context.user_index,
        send_registers: SEND_REGISTERS,
        // RC, which is all that was let through, with receives of its own.
        ..QueuePairOptions::default()
    };
    // SAFETY: as in `create_completion_queue`.
    let number = engine(machine, |engine| unsafe {
        engine.create_queue_pair_with(&attributes, &options)
    })?;
    let object = Object::QueuePair(QueuePair {
        number,
        record,
        umems: [command.wq_umem_id, context.dbr_umem_id],
        set: Box::new(*context),
    });
    let answer = CreateQpAnswer {
        qpn: number,
        ..CreateQpAnswer::default()
    };
    Ok((object, bytes(&answer)?))
}

/// The fields that each step takes if the command's mask says so. Linux sends no others
/// (`opt_mask` of drivers/infiniband/hw/mlx5/qp.c), and firmware may refuse them.
mod optional {
    use mlx5_wqe::prm::OptionalParameters as Optional;

    const ALWAYS: Optional = Optional::ALTERNATIVE_PATH
        .union(Optional::REMOTE_READ)
        .union(Optional::REMOTE_ATOMIC)
        .union(Optional::REMOTE_WRITE);
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
pub fn modify_queue_pair(
    machine: &Machine,
    counted: &mut BTreeMap<u8, Counted>,
    pair: &mut QueuePair,
    call: &Call<'_>,
) -> Result<Vec<u8>, Failure> {
    let mut set = *pair.set;
    let (qpn, transition) = match call.opcode() {
        Some(opcode::RST2INIT_QP) => {
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
            let access = [
                (wanted.rwe, Access::REMOTE_WRITE),
                (wanted.rre, Access::REMOTE_READ),
                (wanted.rae, Access::REMOTE_ATOMIC),
            ];
            let access = access.into_iter().filter(|(granted, _)| *granted);
            let access = access.map(|(_, right)| right).collect();
            (command.qpn, Transition::Init { access })
        }
        Some(opcode::INIT2RTR_QP) => {
            let command: InitToRtr = call.read()?;
            let wanted = &command.qpc;
            only(optional::INIT2RTR, command.opt_param_mask)?;
            let path = &wanted.primary_address_path;
            in_table(path.pkey_index)?;
            reads(wanted.log_rra_max)?;
            let mtu = bytes_of(wanted.mtu);
            // On InfiniBand a LID alone tells no HCA.
            let told = port() != Port::InfiniBand || path.grh;
            let mtu = mtu.filter(|_| path.src_addr_index == 0 && told);
            let path_mtu = mtu.ok_or(Syndrome::Path.bad_parameter())?;
            let (remote_address, _) = machine
                .reach(path.rgid_rip)
                .map_err(|_| Syndrome::Unreachable.bad_parameter())?;
            set = mlx5_wqe::prm::QpContext {
                mtu: wanted.mtu,
                remote_qpn: wanted.remote_qpn,
                next_rcv_psn: wanted.next_rcv_psn,
                min_rnr_nak: wanted.min_rnr_nak,
                log_msg_max: wanted.log_msg_max,
                log_rra_max: wanted.log_rra_max,
                primary_address_path: mlx5_wqe::prm::AddressPath {
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
        Some(opcode::RTR2RTS_QP) => {
            let command: RtrToRts = call.read()?;
            let wanted = &command.qpc;
            only(optional::RTR2RTS, command.opt_param_mask)?;
            reads(wanted.log_sra_max)?;
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
        Some(opcode::TO_ERROR_QP) => (call.read::<ToError>()?.qpn, Transition::Error),
        Some(opcode::TO_RESET_QP) => (call.read::<ToReset>()?.qpn, Transition::Reset),
        other => return Err(misplaced(other)),
    };
    // The command's object and the method's have to be the same one.
    if qpn != pair.number {
        return Err(Failure::System(Errno(libc::EINVAL)));
    }
    if matches!(transition, Transition::Reset) {
        counters::keep(machine, counted, pair)?;
    }
    engine(machine, |engine| take(engine, qpn, pair.record, transition))?;
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
pub fn query_queue_pair(
    machine: &Machine,
    pair: &QueuePair,
    call: &Call<'_>,
) -> Result<Vec<u8>, Failure> {
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
