//! The host's side of a mailbox.

use std::ops::Deref;
use std::thread;
use std::time::{Duration, Instant};

use super::mailbox::{EngineState, Mailbox, Refused};
use super::words::host::{from_command, to_answer};
use super::words::{Failure, WordError};
use warpbell_soft_hca::engine::{Command, CommandError, Reply, WrongReply};

/// Why a resident engine did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The engine refused the command.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The engine's kernel refused to start.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The engine has ended.
    #[error("the engine has ended; open the device again")]
    Ended,
    /// No answer came in time.
    #[error(
        "the engine did not answer within {limit:?}; {}", 
        if *.alive { "it runs, so that a longer deadline may help" } else { "it stands still: is its kernel running, and has the GPU room for it beside the others?" }
    )]
    Deadline {
        /// How long it was waited for.
        limit: Duration,
        /// Whether the engine's heart has beaten meanwhile.
        alive: bool,
    },
    /// The engine could not read the request.
    #[error("the engine could not read the request: {0}; somebody else writes to the mailbox")]
    BadRequest(#[source] WordError),
    /// The reply could not be read.
    #[error("the engine's reply is none: {0}; somebody else writes to the mailbox")]
    BadReply(#[source] WordError),
    /// The reply answers another command.
    #[error(transparent)]
    WrongReply(#[from] WrongReply),
    /// Engines that are one HCA gave different answers.
    #[error("the engines of one HCA gave different answers to a command; open the device again")]
    Disagree,
    /// A completion queue of a queue pair that another engine than the first one works for already.
    #[error(
        "a completion queue belongs to a queue pair that is connected already; make all queue pairs of a completion queue before you connect one"
    )]
    Elsewhere,
    /// The engine's state is none that it can be in.
    #[error(
        "the engine's state word is {word:#x}, which says nothing; somebody else writes to the mailbox"
    )]
    BadState {
        /// The word.
        word: u64,
    },
}

/// The host's side of a [`Mailbox`], to which `B` is a reference or a box: gives commands one after
/// the other.
#[derive(Debug)]
pub struct Client<B> {
    pub(super) mailbox: B,
    /// The number of the newest request.
    sent: u64,
    /// How long an answer may take.
    pub(super) limit: Duration,
}

impl<B: Deref<Target = Mailbox>> Client<B> {
    /// Opens a mailbox that is all zeros; the engine is started after this. Each answer, and the
    /// engine's start, may take as long as `limit`.
    pub fn open(mailbox: B, limit: Duration) -> Self {
        mailbox.open();
        Self {
            mailbox,
            sent: 0,
            limit,
        }
    }

    /// Waits until the engine runs.
    ///
    /// # Errors
    /// [`ClientError::Refused`] if it refused to start, [`ClientError::Deadline`] if nothing was
    /// heard of it.
    pub fn wait_for_start(&self) -> Result<(), ClientError> {
        self.wait(|| match self.mailbox.state() {
            EngineState::Starting | EngineState::Building => Ok(None),
            _ => self.running().map(Some),
        })
    }

    /// Carries out a command; gives its reply's content.
    ///
    /// # Errors
    /// The engine's refusal, or why there is no answer. After [`ClientError::Deadline`] the command
    /// may still be carried out later; the next one waits for that first.
    ///
    /// # Safety
    /// Memory that the command names must be as the engine's method of its name wants it, for the
    /// machine that the engine runs on.
    pub unsafe fn execute(&mut self, command: Command) -> Result<Reply, ClientError> {
        // An answer that came too late must not be taken for this command's.
        self.wait_for_reply()?;
        // SAFETY: the caller's promise is passed on unchanged.
        unsafe { self.send(&command) };
        self.reply()
    }

    /// Puts a command into the mailbox; the reply to the one before has come.
    ///
    /// # Safety
    /// As for [`execute`](Self::execute).
    pub(super) unsafe fn send(&mut self, command: &Command) {
        self.sent += 1;
        self.mailbox.request.put(self.sent, &from_command(command));
    }

    /// Waits for the reply to the newest command.
    pub(super) fn reply(&self) -> Result<Reply, ClientError> {
        self.wait_for_reply()?;
        let reply = self.mailbox.reply.get(self.sent);
        let answer = reply.and_then(|message| to_answer(&message));
        match answer.map_err(ClientError::BadReply)? {
            Ok(reply) => Ok(reply),
            Err(Failure::Command(error)) => Err(error.into()),
            Err(Failure::Words(error)) => Err(ClientError::BadRequest(error)),
        }
    }

    /// Asks the engine to end, and waits until it has touched its last byte.
    ///
    /// # Errors
    /// [`ClientError::Deadline`]: its memory must not be freed.
    pub fn stop(&mut self) -> Result<(), ClientError> {
        self.mailbox.stop();
        self.wait(|| match self.mailbox.state() {
            EngineState::Ended | EngineState::Refused(_) => Ok(Some(())),
            EngineState::Starting | EngineState::Building | EngineState::Running => Ok(None),
            EngineState::Unknown(word) => Err(ClientError::BadState { word }),
        })
    }

    /// The engine's heartbeat, for a watchdog: while it grows, the engine runs.
    pub fn heartbeat(&self) -> u64 {
        self.mailbox.heartbeat()
    }

    /// Waits until the newest command is answered.
    pub(super) fn wait_for_reply(&self) -> Result<(), ClientError> {
        self.wait(|| {
            if self.mailbox.reply.sequence() == self.sent {
                return Ok(Some(()));
            }
            self.running().map(|()| None)
        })
    }

    /// That the engine runs, or what else.
    fn running(&self) -> Result<(), ClientError> {
        match self.mailbox.state() {
            EngineState::Starting | EngineState::Building | EngineState::Running => Ok(()),
            EngineState::Ended => Err(ClientError::Ended),
            EngineState::Refused(refused) => Err(refused.into()),
            EngineState::Unknown(word) => Err(ClientError::BadState { word }),
        }
    }

    /// Looks until there is something, an error, or no time left.
    fn wait<T>(
        &self,
        mut look: impl FnMut() -> Result<Option<T>, ClientError>,
    ) -> Result<T, ClientError> {
        /// Looks before a wait counts as long.
        const YIELDS: u32 = 64;
        /// How long a long wait sleeps between two looks.
        const NAP: Duration = Duration::from_micros(20);
        let begin = Instant::now();
        let heartbeat = self.mailbox.heartbeat();
        let mut looks = 0;
        loop {
            // The clock first: a thread that was away for long still gets a look after it.
            let late = begin.elapsed() >= self.limit;
            if let Some(found) = look()? {
                return Ok(found);
            }
            if late {
                return Err(ClientError::Deadline {
                    limit: self.limit,
                    alive: self.mailbox.heartbeat() != heartbeat,
                });
            }
            looks += 1;
            match looks < YIELDS {
                true => thread::yield_now(),
                false => thread::sleep(NAP),
            }
        }
    }
}
