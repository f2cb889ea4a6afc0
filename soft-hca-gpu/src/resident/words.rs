//! Commands and replies as words: pure functions that never panic, whatever the words say.

use mlx5_wqe::{CqNumber, LocalKey, QpNumber, Syndrome, VendorCode, WqeIndex};

use warpbell_soft_hca::engine::packet::Range;
use warpbell_soft_hca::engine::{
    Access, Command, CommandError, CompletionQueueAttributes, CrossChannel, ErrorPlace, Event,
    ProtectionDomain, QueuePairAttributes, QueuePairState, QueuePairStatus, ReadyToReceive,
    ReadyToSend, ReceiveRing, Reply, SendDoorbell, Transition, WireAddress,
};

#[cfg(feature = "std")]
pub(super) mod host;

/// Words that a message has beside its kind.
pub(super) const WORDS: usize = 12;

/// A command or a reply; words that its kind does not need are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    pub kind: u64,
    pub words: [u64; WORDS],
}

/// Why words are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WordError {
    /// The checksum is not that of the words.
    #[error("its checksum is wrong: somebody wrote over it")]
    Torn,
    /// It is not the next in the sequence.
    #[error("it is number {found}, the next is {expected}")]
    OutOfOrder {
        /// Its number.
        found: u64,
        /// The number that it should have.
        expected: u64,
    },
    /// There is no such kind.
    #[error("there is no kind {kind:#x}")]
    UnknownKind {
        /// The kind.
        kind: u64,
    },
    /// A word holds what its field cannot.
    #[error("word {index} holds what its field cannot")]
    BadWord {
        /// Which word, from 0.
        index: u8,
    },
}

/// What a request is answered with.
pub(super) type Answer = Result<Reply, Failure>;

/// Why a request was not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The engine refused it.
    Command(CommandError),
    /// It was no request.
    Words(WordError),
}

/// Writes the words of a message.
struct Writer {
    message: Message,
    next: usize,
}

impl Writer {
    const fn new(kind: u64) -> Self {
        Self {
            message: Message {
                kind,
                words: [0; WORDS],
            },
            next: 0,
        }
    }

    fn put(mut self, word: impl Into<u64>) -> Self {
        if let Some(slot) = self.message.words.get_mut(self.next) {
            *slot = word.into();
        }
        self.next += 1;
        self
    }

    /// A flag, and the value or zero.
    fn option(self, value: Option<u64>) -> Self {
        self.put(value.is_some()).put(value.unwrap_or(0))
    }

    fn end(self) -> Message {
        debug_assert!(self.next <= WORDS);
        self.message
    }
}

/// Reads the words of a message.
struct Reader<'m> {
    words: &'m [u64; WORDS],
    next: usize,
}

impl Reader<'_> {
    fn word(&mut self) -> Result<u64, WordError> {
        let word = self.words.get(self.next).copied();
        self.next += 1;
        word.ok_or(self.bad())
    }

    /// The error of the word last read.
    fn bad(&self) -> WordError {
        WordError::BadWord {
            index: self.next.saturating_sub(1) as u8,
        }
    }

    /// A word as a number of fewer bits.
    fn number<N: TryFrom<u64>>(&mut self) -> Result<N, WordError> {
        let word = self.word()?;
        N::try_from(word).map_err(|_| self.bad())
    }

    fn flag(&mut self) -> Result<bool, WordError> {
        match self.word()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.bad()),
        }
    }

    /// A value that is there if the flag before it says so; zero if not.
    fn option(&mut self) -> Result<Option<u64>, WordError> {
        let there = self.flag()?;
        match (there, self.word()?) {
            (true, word) => Ok(Some(word)),
            (false, 0) => Ok(None),
            (false, _) => Err(self.bad()),
        }
    }

    fn domain(&mut self) -> Result<ProtectionDomain, WordError> {
        self.number().map(ProtectionDomain::from_number)
    }

    fn qp(&mut self) -> Result<QpNumber, WordError> {
        let number = self.number()?;
        QpNumber::new(number).ok_or(self.bad())
    }

    fn cq(&mut self) -> Result<CqNumber, WordError> {
        let number = self.number()?;
        CqNumber::new(number).ok_or(self.bad())
    }

    fn access(&mut self) -> Result<Access, WordError> {
        let bits = self.number()?;
        Access::from_bits(bits).ok_or(self.bad())
    }

    fn queue_pair(&mut self) -> Result<QueuePairAttributes, WordError> {
        let protection_domain = self.domain()?;
        let (send_ring, log_send_depth) = (self.word()?, self.number()?);
        let [record, uar] = [self.word()?, self.word()?];
        let [send_cq, receive_cq] = [self.cq()?, self.cq()?];
        let kind: u8 = self.number()?;
        let cross_channel = CrossChannel::from_bits(kind >> 1).ok_or(self.bad())?;
        Ok(QueuePairAttributes {
            protection_domain,
            send_ring,
            log_send_depth,
            record,
            send_doorbell: match kind & 1 {
                0 => SendDoorbell::WithRecord,
                _ => SendDoorbell::WithoutRecord,
            },
            uar,
            send_cq,
            receive_cq,
            cross_channel,
            receive: match self.option()? {
                None => None,
                Some(ring) => Some(ReceiveRing {
                    ring,
                    log_depth: self.number()?,
                    log_stride: self.number()?,
                }),
            },
        })
    }

    /// The rest of the words must be zero.
    fn end<T>(mut self, value: T) -> Result<T, WordError> {
        while self.next < WORDS {
            if self.word()? != 0 {
                return Err(self.bad());
            }
        }
        Ok(value)
    }
}

fn state_number(state: QueuePairState) -> u64 {
    match state {
        QueuePairState::Reset => 0,
        QueuePairState::Init => 1,
        QueuePairState::ReadyToReceive => 2,
        QueuePairState::ReadyToSend => 3,
        QueuePairState::Error => 4,
    }
}

/// Kinds of requests.
mod request {
    pub const CREATE_DOMAIN: u64 = 1;
    pub const DESTROY_DOMAIN: u64 = 2;
    pub const REGISTER: u64 = 3;
    pub const DEREGISTER: u64 = 4;
    pub const CREATE_CQ: u64 = 5;
    pub const DESTROY_CQ: u64 = 6;
    pub const CREATE_QP: u64 = 7;
    pub const DESTROY_QP: u64 = 8;
    pub const TO_INIT: u64 = 9;
    pub const TO_READY_TO_RECEIVE: u64 = 10;
    pub const TO_READY_TO_SEND: u64 = 11;
    pub const TO_ERROR: u64 = 12;
    pub const TO_RESET: u64 = 13;
    pub const QUERY_QP: u64 = 14;
    pub const POLL_EVENT: u64 = 15;
    pub const FAIL_SEND: u64 = 16;
    pub const OVERRUN_CQ: u64 = 17;
}

/// The command that words are.
pub(super) fn to_command(message: &Message) -> Result<Command, WordError> {
    use request as kind;
    let mut words = Reader {
        words: &message.words,
        next: 0,
    };
    let command = match message.kind {
        kind::CREATE_DOMAIN => Command::CreateProtectionDomain,
        kind::DESTROY_DOMAIN => Command::DestroyProtectionDomain(words.domain()?),
        kind::REGISTER => Command::RegisterMemory {
            protection_domain: words.domain()?,
            range: Range {
                address: words.word()?,
                length: words.word()?,
            },
            access: words.access()?,
        },
        kind::DEREGISTER => Command::DeregisterMemory(LocalKey(words.number()?)),
        kind::CREATE_CQ => Command::CreateCompletionQueue(CompletionQueueAttributes {
            ring: words.word()?,
            log_depth: words.number()?,
            record: words.word()?,
            uar: words.option()?,
            collapsed: words.flag()?,
            ignore_overrun: words.flag()?,
        }),
        kind::DESTROY_CQ => Command::DestroyCompletionQueue(words.cq()?),
        kind::CREATE_QP => Command::CreateQueuePair(words.queue_pair()?),
        kind::DESTROY_QP => Command::DestroyQueuePair(words.qp()?),
        kind::TO_INIT => {
            let qp = words.qp()?;
            let access = words.access()?;
            Command::ModifyQueuePair(qp, Transition::Init { access })
        }
        kind::TO_READY_TO_RECEIVE => Command::ModifyQueuePair(
            words.qp()?,
            Transition::ReadyToReceive(ReadyToReceive {
                remote_address: WireAddress(words.number()?),
                remote_qp: words.qp()?,
                receive_psn: words.number()?,
                path_mtu: words.number()?,
                min_rnr_timer_ns: words.number()?,
            }),
        ),
        kind::TO_READY_TO_SEND => Command::ModifyQueuePair(
            words.qp()?,
            Transition::ReadyToSend(ReadyToSend {
                send_psn: words.number()?,
                retry_count: words.number()?,
                rnr_retry: words.number()?,
                ack_timeout_ns: words.word()?,
            }),
        ),
        kind::TO_ERROR => Command::ModifyQueuePair(words.qp()?, Transition::Error),
        kind::TO_RESET => Command::ModifyQueuePair(words.qp()?, Transition::Reset),
        kind::QUERY_QP => Command::QueryQueuePair(words.qp()?),
        kind::POLL_EVENT => Command::PollEvent,
        kind::FAIL_SEND => Command::FailSend {
            queue_pair: words.qp()?,
            count: words.number()?,
            syndrome: Syndrome(words.number()?),
            vendor: VendorCode(words.number()?),
        },
        kind::OVERRUN_CQ => Command::OverrunCompletionQueue(words.cq()?),
        kind => return Err(WordError::UnknownKind { kind }),
    };
    words.end(command)
}

/// Kinds of replies.
mod reply {
    pub const DONE: u64 = 1;
    pub const DOMAIN: u64 = 2;
    pub const KEYS: u64 = 3;
    pub const CQ: u64 = 4;
    pub const QP: u64 = 5;
    pub const STATUS: u64 = 6;
    pub const NO_EVENT: u64 = 7;
    pub const COMPLETION_EVENT: u64 = 8;
    pub const OVERRUN_EVENT: u64 = 9;
    pub const FATAL_EVENT: u64 = 10;
    pub const REFUSED: u64 = 11;
    pub const NO_REQUEST: u64 = 12;
}

/// The words of an answer.
pub(super) fn from_answer(answer: &Answer) -> Message {
    use reply as kind;
    match answer {
        Ok(Reply::Done) => Writer::new(kind::DONE),
        Ok(Reply::ProtectionDomain(pd)) => Writer::new(kind::DOMAIN).put(pd.number()),
        Ok(Reply::Keys(keys)) => Writer::new(kind::KEYS).put(keys.local.0).put(keys.remote.0),
        Ok(Reply::CompletionQueue(cq)) => Writer::new(kind::CQ).put(cq.get()),
        Ok(Reply::QueuePair(qp)) => Writer::new(kind::QP).put(qp.get()),
        Ok(Reply::Status(status)) => from_status(status),
        Ok(Reply::Event(event)) => match event {
            None => Writer::new(kind::NO_EVENT),
            Some(Event::Completion(cq)) => Writer::new(kind::COMPLETION_EVENT).put(cq.get()),
            Some(Event::Overrun(cq)) => Writer::new(kind::OVERRUN_EVENT).put(cq.get()),
            Some(Event::QueuePairFatal(qp)) => Writer::new(kind::FATAL_EVENT).put(qp.get()),
        },
        Err(Failure::Command(error)) => {
            let (code, state) = command_error_number(*error);
            Writer::new(kind::REFUSED).put(code).put(state)
        }
        Err(Failure::Words(error)) => {
            let (code, first, second) = match *error {
                WordError::Torn => (1, 0, 0),
                WordError::OutOfOrder { found, expected } => (2, found, expected),
                WordError::UnknownKind { kind } => (3, kind, 0),
                WordError::BadWord { index } => (4, u64::from(index), 0),
            };
            Writer::new(kind::NO_REQUEST)
                .put(code as u64)
                .put(first)
                .put(second)
        }
    }
    .end()
}

fn from_status(status: &QueuePairStatus) -> Writer {
    let counters = &status.counters;
    let error = status.first_error.map(|error| {
        let (place, wqe) = match error.place {
            ErrorPlace::Elsewhere => (0, WqeIndex(0)),
            ErrorPlace::Send(wqe) => (1, wqe),
            ErrorPlace::Receive(wqe) => (2, wqe),
            ErrorPlace::CompletionQueue => (3, WqeIndex(0)),
        };
        u64::from(error.syndrome.0)
            | u64::from(error.vendor.0) << 8
            | place << 16
            | u64::from(wqe.0) << 32
    });
    Writer::new(reply::STATUS)
        .put(state_number(status.state))
        .put(counters.completed)
        .put(counters.received)
        .put(counters.errors)
        .put(counters.retries)
        .put(counters.receiver_not_ready)
        .put(counters.duplicates)
        .option(error)
        .put(status.send_index)
        .put(status.receive_index)
}

/// The number of an error, and the state that belongs to it.
fn command_error_number(error: CommandError) -> (u64, u64) {
    let number = match error {
        CommandError::IllegalTransition { from } => return (0, state_number(from)),
        CommandError::TableFull => 1,
        CommandError::NoProtectionDomain => 2,
        CommandError::NoCompletionQueue => 3,
        CommandError::NoQueuePair => 4,
        CommandError::NoRegion => 5,
        CommandError::InUse => 6,
        CommandError::Misaligned => 7,
        CommandError::BadRange => 8,
        CommandError::TooDeep => 9,
        CommandError::BadAccess => 10,
        CommandError::BadPsn => 11,
        CommandError::BadMtu => 12,
        CommandError::BadRetryCount => 13,
        CommandError::NoSharedReceiveQueue => 14,
        CommandError::DoorbellTaken => 15,
    };
    (number, 0)
}
