//! The commands as values, so that they can travel to an engine that runs elsewhere.

use mlx5_wqe::{CqNumber, LocalKey, QpNumber, Syndrome, VendorCode};

use super::command::{
    Access, CommandError, CompletionQueueAttributes, Keys, ProtectionDomain, QueuePairAttributes,
    QueuePairStatus, Transition,
};
use super::event::Event;
use super::memory::Memory;
use super::wire::Wire;
use super::{Engine, packet::Range};

/// A command; each is the engine's method of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Answered by [`Reply::ProtectionDomain`].
    CreateProtectionDomain,
    /// Answered by [`Reply::Done`].
    DestroyProtectionDomain(ProtectionDomain),
    /// Answered by [`Reply::Keys`].
    RegisterMemory {
        /// The protection domain of the keys.
        protection_domain: ProtectionDomain,
        /// What is registered.
        range: Range,
        /// What may be done with it.
        access: Access,
    },
    /// Answered by [`Reply::Done`].
    DeregisterMemory(LocalKey),
    /// Answered by [`Reply::CompletionQueue`].
    CreateCompletionQueue(CompletionQueueAttributes),
    /// Answered by [`Reply::Done`].
    DestroyCompletionQueue(CqNumber),
    /// Answered by [`Reply::QueuePair`].
    CreateQueuePair(QueuePairAttributes),
    /// Answered by [`Reply::Done`].
    DestroyQueuePair(QpNumber),
    /// Answered by [`Reply::Done`].
    ModifyQueuePair(QpNumber, Transition),
    /// Answered by [`Reply::Status`].
    QueryQueuePair(QpNumber),
    /// Answered by [`Reply::Event`].
    PollEvent,
    /// Answered by [`Reply::Done`].
    FailSend {
        /// Whose send WQE.
        queue_pair: QpNumber,
        /// Which, from now on.
        count: u32,
        /// With which syndrome.
        syndrome: Syndrome,
        /// And which vendor code.
        vendor: VendorCode,
    },
    /// Answered by [`Reply::Done`].
    OverrunCompletionQueue(CqNumber),
}

impl Command {
    /// Whether it names memory that the engine touches from then on.
    pub const fn names_memory(&self) -> bool {
        matches!(
            self,
            Self::RegisterMemory { .. } | Self::CreateCompletionQueue(_) | Self::CreateQueuePair(_)
        )
    }
}

/// The answer to a [`Command`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It is done, and there is nothing to say.
    Done,
    /// A new protection domain.
    ProtectionDomain(ProtectionDomain),
    /// Keys of newly registered memory.
    Keys(Keys),
    /// A new completion queue.
    CompletionQueue(CqNumber),
    /// A new queue pair.
    QueuePair(QpNumber),
    /// How a queue pair is.
    Status(QueuePairStatus),
    /// The next event, if there is one.
    Event(Option<Event>),
}

/// A reply to another command than the one that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reply {0:?} answers another command")]
pub struct WrongReply(pub Reply);

/// What one kind of reply holds.
macro_rules! held_by {
    ($($variant:ident: $type:ty,)*) => {
        $(impl TryFrom<Reply> for $type {
            type Error = WrongReply;

            fn try_from(reply: Reply) -> Result<Self, WrongReply> {
                match reply {
                    Reply::$variant(value) => Ok(value),
                    other => Err(WrongReply(other)),
                }
            }
        })*
    };
}

held_by! {
    ProtectionDomain: ProtectionDomain,
    Keys: Keys,
    CompletionQueue: CqNumber,
    QueuePair: QpNumber,
    Status: QueuePairStatus,
    Event: Option<Event>,
}

impl TryFrom<Reply> for () {
    type Error = WrongReply;

    fn try_from(reply: Reply) -> Result<Self, WrongReply> {
        match reply {
            Reply::Done => Ok(()),
            other => Err(WrongReply(other)),
        }
    }
}

impl<M: Memory, W: Wire> Engine<'_, M, W> {
    /// Carries out a command.
    ///
    /// # Safety
    ///
    /// Memory that the command [names](Command::names_memory) must be as the method of the same
    /// name wants it.
    pub unsafe fn execute(&mut self, command: Command) -> Result<Reply, CommandError> {
        match command {
            Command::CreateProtectionDomain => {
                self.create_protection_domain().map(Reply::ProtectionDomain)
            }
            Command::DestroyProtectionDomain(pd) => {
                self.destroy_protection_domain(pd).map(|()| Reply::Done)
            }
            Command::RegisterMemory {
                protection_domain,
                range: Range { address, length },
                access,
            } => {
                // SAFETY: the caller's promise is passed on unchanged.
                unsafe { self.register_memory(protection_domain, address, length, access) }
                    .map(Reply::Keys)
            }
            Command::DeregisterMemory(key) => self.deregister_memory(key).map(|()| Reply::Done),
            Command::CreateCompletionQueue(attributes) => {
                // SAFETY: the caller's promise is passed on unchanged.
                unsafe { self.create_completion_queue(&attributes) }.map(Reply::CompletionQueue)
            }
            Command::DestroyCompletionQueue(cq) => {
                self.destroy_completion_queue(cq).map(|()| Reply::Done)
            }
            Command::CreateQueuePair(attributes) => {
                // SAFETY: the caller's promise is passed on unchanged.
                unsafe { self.create_queue_pair(&attributes) }.map(Reply::QueuePair)
            }
            Command::DestroyQueuePair(qp) => self.destroy_queue_pair(qp).map(|()| Reply::Done),
            Command::ModifyQueuePair(qp, transition) => {
                self.modify_queue_pair(qp, transition).map(|()| Reply::Done)
            }
            Command::QueryQueuePair(qp) => self.query_queue_pair(qp).map(Reply::Status),
            Command::PollEvent => Ok(Reply::Event(self.poll_event())),
            Command::FailSend {
                queue_pair,
                count,
                syndrome,
                vendor,
            } => self
                .fail_send(queue_pair, count, syndrome, vendor)
                .map(|()| Reply::Done),
            Command::OverrunCompletionQueue(cq) => {
                self.overrun_completion_queue(cq).map(|()| Reply::Done)
            }
        }
    }
}
