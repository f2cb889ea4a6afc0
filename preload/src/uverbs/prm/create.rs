//! Queues that commands make.

use mlx5_wqe::QpNumber;
use mlx5_wqe::prm::{
    CommandStatus, CreateCq, CreateCqAnswer, CreateQp, CreateQpAnswer, CreateRmp, CreateRmpAnswer,
    ReceiveType, RmpState, SendDoorbellMode, ServiceType, WqType,
};
use warpbell_soft_hca::engine::{
    CompletionQueueAttributes, CqeSize, CrossChannel, QueuePairAttributes, QueuePairOptions,
    ReceiveRing, SendDoorbell, SharedReceiveAttributes, Topology,
};

use super::super::devx::{EVENT_QUEUE, Object, QueuePair};
use super::super::open::Open;
use super::super::queues::SEND_REGISTERS;
use super::capabilities::has_clock;
use super::{Call, Failure, Syndrome, bytes, engine};
use crate::machine::Machine;

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
pub fn completion_queue(
    machine: &Machine,
    open: &Open,
    call: &Call<'_>,
) -> Result<(Object, Vec<u8>), Failure> {
    let command: CreateCq = call.read()?;
    let context = &command.cq_context;
    refuse_if(context.cqe_comp_en || context.apu_cq)?;
    // 2 means 128 bytes as well, of which data fill no more than the second half (`CQE_STRIDE_128_PAD`).
    let cqe_size = match context.cqe_sz {
        0 => CqeSize::Bytes64,
        1 | 2 => CqeSize::Bytes128,
        _ => return Err(Syndrome::Range.bad_parameter().into()),
    };
    if context.c_eqn_or_apu_element != EVENT_QUEUE {
        return Err(Syndrome::EventQueue
            .with(CommandStatus::BAD_RESOURCE)
            .into());
    }
    let ring_bytes = 1 << (context.log_cq_size + cqe_size.log_bytes());
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
        engine.create_completion_queue_with(&attributes, cqe_size)
    })?;
    let object = Object::CompletionQueue {
        number,
        umems: [command.cq_umem_id, context.dbr_umem_id],
    };
    Ok((object, bytes(&CreateCqAnswer { cqn: number })?))
}

/// Creates a receive memory pool: a shared receive queue.
pub fn receive_pool(
    machine: &Machine,
    open: &Open,
    call: &Call<'_>,
) -> Result<(Object, Vec<u8>), Failure> {
    let command: CreateRmp = call.read()?;
    let ring_of = &command.ctx.wq;
    refuse_if(command.ctx.basic_cyclic_rcv_wqe || ring_of.wq_signature || ring_of.cd_slave)?;
    refuse_if(ring_of.lwm != 0 || ring_of.page_offset != 0)?;
    if command.ctx.state != RmpState::RDY {
        return Err(Syndrome::State.bad_parameter().into());
    }
    let topology = match ring_of.wq_type {
        WqType::LINKED_LIST => Topology::LinkedList,
        WqType::CYCLIC => Topology::Cyclic,
        _ => return Err(Syndrome::Unsupported.bad_parameter().into()),
    };
    let domain = open.domains.get(&ring_of.pd);
    let domain = domain.ok_or(Syndrome::Domain.with(CommandStatus::BAD_RESOURCE))?;
    let log_stride = ring_of.log_wq_stride.checked_sub(4);
    let log_stride = log_stride.ok_or(Syndrome::Range.bad_parameter())?;
    let bytes_of_ring = 1 << (ring_of.log_wq_stride + ring_of.log_wq_sz);
    let attributes = SharedReceiveAttributes {
        protection_domain: *domain,
        ring: ReceiveRing {
            ring: ring(open, ring_of.wq_umem_id, 0, bytes_of_ring)?,
            log_depth: ring_of.log_wq_sz,
            log_stride,
        },
        record: record(open, ring_of.dbr_umem_id, ring_of.dbr_addr)?,
        topology,
    };
    // SAFETY: as in `completion_queue`.
    let queue = engine(machine, |engine| unsafe {
        engine.create_shared_receive_queue(&attributes)
    })?;
    let object = Object::ReceivePool {
        queue,
        umems: [ring_of.wq_umem_id, ring_of.dbr_umem_id],
    };
    Ok((object, bytes(&CreateRmpAnswer { rmpn: queue.get() })?))
}

/// Creates a queue pair.
pub fn queue_pair(
    machine: &Machine,
    open: &Open,
    call: &Call<'_>,
) -> Result<(Object, Vec<u8>), Failure> {
    let command: CreateQp = call.read()?;
    let context = &command.qpc;
    let known = [ReceiveType::REGULAR, ReceiveType::SHARED, ReceiveType::NONE];
    refuse_if(context.st != ServiceType::RC || !known.contains(&context.rq_type))?;
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
    let shared_receive_queue = match context.rq_type {
        ReceiveType::SHARED => {
            let number = context.srqn_rmpn_xrqn;
            let of_verbs = open.shared_receives.values();
            let of_devx = open.objects.values().filter_map(Object::receive_pool);
            let mut queues = of_verbs.copied().chain(of_devx);
            let queue = queues.find(|queue| queue.get() == number);
            let none = Syndrome::SharedReceiveQueue.with(CommandStatus::BAD_RESOURCE);
            Some(queue.ok_or(none)?)
        }
        _ => None,
    };
    let options = QueuePairOptions {
        user_index: context.user_index,
        send_registers: SEND_REGISTERS,
        shared_receive_queue,
        // RC, which is all that was let through.
        ..QueuePairOptions::default()
    };
    // SAFETY: as in `completion_queue`.
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
