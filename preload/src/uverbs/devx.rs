//! DEVX: the user's own commands to the card, and the objects that they make.
//!
//! As a kernel does: a command that the card refuses ends in `EREMOTEIO`, and its answer says why.

use std::sync::Arc;

use mlx5_wqe::prm::{CommandOpcode, CommandStatus, EventType, QpContext, ReceiveType};
use mlx5_wqe::{CqNumber, QpNumber};
use warpbell_soft_hca::engine::SharedReceiveQueue;

use super::context::VECTORS;
use super::counters;
use super::open::{self, Open};
use super::prm::{self, Call, Failure, Syndrome};
use crate::abi::ioctl::{self as abi, DevxCommand};
use crate::async_events::Source;
use crate::attributes::{Errno, Request};
use crate::devx_events::{self, Target};
use crate::machine::{Machine, machine};

/// The event queue of completion vector 0.
pub const EVENT_QUEUE: u32 = 1;

/// The command that makes a memory key (`MLX5_CMD_OP_CREATE_MKEY`).
const CREATE_MKEY: CommandOpcode = CommandOpcode(0x200);

/// What a command has made.
#[derive(Debug)]
pub enum Object {
    /// A completion queue.
    CompletionQueue {
        number: CqNumber,
        /// Umems of the ring and of the doorbell record.
        umems: [u32; 2],
    },
    /// A queue pair.
    QueuePair(QueuePair),
    /// A receive memory pool.
    ReceivePool {
        queue: SharedReceiveQueue,
        /// Umems of the ring and of the doorbell record.
        umems: [u32; 2],
    },
    /// A set of counters.
    CounterSet(u8),
}

/// A queue pair.
#[derive(Debug)]
pub struct QueuePair {
    pub number: QpNumber,
    /// Address of its doorbell record.
    pub record: u64,
    /// Umems of the rings and of the doorbell record.
    pub umems: [u32; 2],
    /// What its user has set.
    pub set: Box<QpContext>,
}

impl Object {
    /// Whether it is a queue pair, which goes before its completion queues.
    pub fn is_queue_pair(&self) -> bool {
        matches!(self, Self::QueuePair(_))
    }

    /// Whether a part of it lies in that umem.
    pub fn lives_in(&self, umem: u32) -> bool {
        match self {
            Self::CompletionQueue { umems, .. }
            | Self::ReceivePool { umems, .. }
            | Self::QueuePair(QueuePair { umems, .. }) => umems.contains(&umem),
            Self::CounterSet(_) => false,
        }
    }

    /// The engine's shared receive queue that it is.
    pub fn receive_pool(&self) -> Option<SharedReceiveQueue> {
        match self {
            Self::ReceivePool { queue, .. } => Some(*queue),
            _ => None,
        }
    }

    /// Whether it is a queue pair that takes its receives from a shared queue.
    fn shares_receives(&self) -> bool {
        matches!(self, Self::QueuePair(pair) if pair.set.rq_type == ReceiveType::SHARED)
    }

    /// What has events of it, if anything has.
    fn source(&self) -> Option<Source> {
        match self {
            Self::CompletionQueue { number, .. } => Some((*number).into()),
            Self::QueuePair(pair) => Some(pair.number.into()),
            Self::ReceivePool { .. } | Self::CounterSet(_) => None,
        }
    }

    /// Destroys it.
    pub fn destroy(&self, machine: &Machine) -> Result<(), Errno> {
        match self {
            Self::CompletionQueue { number, .. } => {
                machine.command(|engine| engine.destroy_completion_queue(*number))
            }
            Self::QueuePair(pair) => {
                machine.command(|engine| engine.destroy_queue_pair(pair.number))
            }
            Self::ReceivePool { queue, .. } => {
                machine.command(|engine| engine.destroy_shared_receive_queue(*queue))
            }
            // No part of the engine's.
            Self::CounterSet(_) => Ok(()),
        }?;
        if let Some(source) = self.source() {
            devx_events::remove(source);
        }
        Ok(())
    }
}

/// Carries a method of DEVX out.
pub fn method(request: &mut Request<'_>, open: &mut Open) -> Result<(), Errno> {
    // Without an engine there is nobody to give commands to.
    let machine = machine()?.ok_or(Errno(libc::EOPNOTSUPP))?;
    match (request.object, request.method) {
        (abi::OBJECT_DEVX, abi::METHOD_DEVX_OTHER) => {
            answer(request, abi::DEVX_COMMAND, |call| match call.opcode() {
                Some(CommandOpcode::QUERY_HCA_CAP) => prm::capabilities::query(call),
                other => Err(misplaced(other)),
            })
        }
        (abi::OBJECT_DEVX, abi::METHOD_DEVX_QUERY_EQN) => {
            if request.number(abi::DEVX_VECTOR) >= Some(VECTORS.into()) {
                return Err(Errno(libc::EINVAL));
            }
            request.answer(abi::DEVX_EQN, &EVENT_QUEUE.to_ne_bytes());
            Ok(())
        }
        (abi::OBJECT_DEVX, abi::METHOD_DEVX_SUBSCRIBE_EVENT) => subscribe(request, open),
        (abi::OBJECT_DEVX_OBJ, abi::METHOD_DEVX_OBJ_CREATE) => create(request, open, machine),
        (abi::OBJECT_DEVX_OBJ, abi::METHOD_DEVX_OBJ_DESTROY) => {
            destroy(handle(request)?, open, machine)
        }
        (abi::OBJECT_DEVX_OBJ, abi::METHOD_DEVX_OBJ_MODIFY) => {
            let object = open.objects.get_mut(&handle(request)?);
            let object = object.ok_or(Errno(libc::ENOENT))?;
            let counters = &mut open.counters;
            answer(request, abi::DEVX_OBJ_COMMAND, |call| match object {
                Object::QueuePair(pair) => prm::steps::modify(machine, counters, pair, call),
                _ => Err(misplaced(call.opcode())),
            })
        }
        (abi::OBJECT_DEVX_OBJ, abi::METHOD_DEVX_OBJ_QUERY) => {
            let object = open.objects.get(&handle(request)?);
            let object = object.ok_or(Errno(libc::ENOENT))?;
            answer(request, abi::DEVX_OBJ_COMMAND, |call| {
                match (object, call.opcode()) {
                    (Object::QueuePair(pair), Some(CommandOpcode::QUERY_QP)) => {
                        prm::steps::query(machine, pair, call)
                    }
                    (Object::CounterSet(set), Some(CommandOpcode::QUERY_Q_COUNTER)) => {
                        let counted = open.counters.get(set).copied().unwrap_or_default();
                        counters::query(machine, &open.objects, &counted, *set, call)
                    }
                    (_, other) => Err(misplaced(other)),
                }
            })
        }
        _ => Err(Errno(libc::EOPNOTSUPP)),
    }
}

/// Subscribes to events of an object: a list of numbers of 2 bytes, all of which the object may have. Of those that no
/// object has there are none here.
fn subscribe(request: &Request<'_>, open: &Open) -> Result<(), Errno> {
    let file = request.number(abi::SUBSCRIBE_CHANNEL);
    let channel = file.and_then(|file| open.event_channels.get(&(file as i32)));
    let channel = channel.ok_or(Errno(libc::EBADF))?;
    let object = request.handle(abi::SUBSCRIBE_OBJECT);
    if object.is_none() {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    let object = object.and_then(|object| open.objects.get(&object));
    let object = object.ok_or(Errno(libc::ENOENT))?;
    let source = object.source().ok_or(Errno(libc::EINVAL))?;
    let (events, rest) = request.input(abi::SUBSCRIBE_EVENTS).as_chunks::<2>();
    let events: Vec<_> = events
        .iter()
        .map(|event| u16::from_ne_bytes(*event))
        .collect();
    let known = events.iter().all(|event| devx_events::has(source, *event));
    if events.is_empty() || !rest.is_empty() || !known {
        return Err(Errno(libc::EINVAL));
    }
    let target = match request.number(abi::SUBSCRIBE_FILE) {
        Some(file) => {
            let counter = Target::counter(file as i32);
            counter.map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EINVAL)))?
        }
        None => {
            let cookie = request.number(abi::SUBSCRIBE_COOKIE);
            Target::Channel(channel.clone(), cookie.unwrap_or_default())
        }
    };
    let target = Arc::new(target);
    for event in events {
        // A queue pair with receives of its own may be subscribed to as well, and never has it.
        if event != u16::from(EventType::SRQ_LAST_WQE.0) || object.shares_receives() {
            devx_events::subscribe(source, event as u8, target.clone());
        }
    }
    Ok(())
}

fn handle(request: &Request<'_>) -> Result<u32, Errno> {
    let handle = request.handle(abi::DEVX_OBJ_HANDLE);
    handle.ok_or(Errno(libc::EINVAL))
}

fn destroy(handle: u32, open: &mut Open, machine: &Machine) -> Result<(), Errno> {
    let object = open.objects.get(&handle).ok_or(Errno(libc::ENOENT))?;
    match object {
        Object::QueuePair(pair) => {
            let kept = counters::keep(machine, &mut open.counters, pair);
            kept.map_err(|_| Errno(libc::EIO))?;
        }
        Object::CounterSet(set) => {
            let bound = |object: &Object| matches!(object, Object::QueuePair(pair) if pair.set.counter_set_id == *set);
            if open.objects.values().any(bound) {
                return Err(Errno(libc::EBUSY));
            }
        }
        Object::CompletionQueue { .. } | Object::ReceivePool { .. } => {}
    }
    object.destroy(machine)?;
    if let Some(Object::CounterSet(set)) = open.objects.remove(&handle) {
        open.counters.remove(&set);
    }
    Ok(())
}

fn create(request: &mut Request<'_>, open: &mut Open, machine: &Machine) -> Result<(), Errno> {
    let mut made = None;
    answer(request, abi::DEVX_OBJ_COMMAND, |call| {
        let (object, answer) = match call.opcode() {
            Some(CommandOpcode::CREATE_CQ) => prm::create::completion_queue(machine, open, call)?,
            Some(CommandOpcode::CREATE_QP) => prm::create::queue_pair(machine, open, call)?,
            Some(CommandOpcode::CREATE_RMP) => prm::create::receive_pool(machine, open, call)?,
            Some(CommandOpcode::ALLOC_Q_COUNTER) => counters::allocate(open, call)?,
            // Libmlx5's own use of it, which takes this number for what it is: there are no keys of keys.
            Some(CREATE_MKEY) => return Err(Failure::System(Errno(libc::EOPNOTSUPP))),
            other => return Err(misplaced(other)),
        };
        made = Some(object);
        Ok(answer)
    })?;
    if let Some(object) = made {
        let handle = open::fresh();
        open.objects.insert(handle, object);
        request.answer_handle(abi::DEVX_OBJ_HANDLE, handle);
    }
    Ok(())
}

/// A command that is not one for this method: the user's mistake if it is one for another, and else nothing that the
/// card knows.
pub fn misplaced(found: Option<CommandOpcode>) -> Failure {
    match found {
        None
        | Some(
            CommandOpcode::QUERY_HCA_CAP
            | CommandOpcode::CREATE_CQ
            | CommandOpcode::CREATE_QP
            | CommandOpcode::CREATE_RMP
            | CommandOpcode::ALLOC_Q_COUNTER
            | CommandOpcode::QUERY_Q_COUNTER
            | CommandOpcode::RST2INIT_QP
            | CommandOpcode::INIT2RTR_QP
            | CommandOpcode::RTR2RTS_QP
            | CommandOpcode::TO_ERROR_QP
            | CommandOpcode::TO_RESET_QP
            | CommandOpcode::QUERY_QP
            // Objects are destroyed by a method, not by a command of the user's.
            | CommandOpcode::DESTROY_CQ
            | CommandOpcode::DESTROY_QP
            | CommandOpcode::DESTROY_RMP,
        ) => Failure::System(Errno(libc::EINVAL)),
        Some(_) => Failure::Refused(Syndrome::Opcode.with(CommandStatus::BAD_OPCODE)),
    }
}

/// Answers the command that the request brings.
fn answer(
    request: &mut Request<'_>,
    at: DevxCommand,
    run: impl FnOnce(&Call<'_>) -> Result<Vec<u8>, Failure>,
) -> Result<(), Errno> {
    let call = Call {
        command: request.input(at.command_in),
        room: request.room(at.command_out),
    };
    match run(&call) {
        Ok(answer) => {
            request.answer(at.command_out, &answer);
            Ok(())
        }
        Err(Failure::Refused(refusal)) => {
            request.answer(at.command_out, &refusal.to_bytes());
            Err(Errno(libc::EREMOTEIO))
        }
        Err(Failure::System(errno)) => Err(errno),
    }
}
