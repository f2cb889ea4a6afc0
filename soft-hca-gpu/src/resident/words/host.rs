//! The host's half: commands into words, words into answers.

use mlx5_wqe::RemoteKey;

use super::*;
use warpbell_soft_hca::engine::{Counters, FirstError, Keys};

/// The states by their numbers.
const STATES: [QueuePairState; 5] = [
    QueuePairState::Reset,
    QueuePairState::Init,
    QueuePairState::ReadyToReceive,
    QueuePairState::ReadyToSend,
    QueuePairState::Error,
];

fn to_state(words: &mut Reader<'_>) -> Result<QueuePairState, WordError> {
    let word = words.word()?;
    STATES
        .get(usize::try_from(word).unwrap_or(usize::MAX))
        .copied()
        .ok_or(words.bad())
}

/// The words of a command.
pub(in crate::resident) fn from_command(command: &Command) -> Message {
    use request as kind;
    match *command {
        Command::CreateProtectionDomain => Writer::new(kind::CREATE_DOMAIN),
        Command::DestroyProtectionDomain(pd) => Writer::new(kind::DESTROY_DOMAIN).put(pd.number()),
        Command::RegisterMemory {
            protection_domain,
            range,
            access,
        } => Writer::new(kind::REGISTER)
            .put(protection_domain.number())
            .put(range.address)
            .put(range.length)
            .put(access.bits()),
        Command::DeregisterMemory(key) => Writer::new(kind::DEREGISTER).put(key.0),
        Command::CreateCompletionQueue(attributes) => Writer::new(kind::CREATE_CQ)
            .put(attributes.ring)
            .put(attributes.log_depth)
            .put(attributes.record)
            .option(attributes.uar)
            .put(attributes.collapsed)
            .put(attributes.ignore_overrun),
        Command::DestroyCompletionQueue(cq) => Writer::new(kind::DESTROY_CQ).put(cq.get()),
        Command::CreateQueuePair(attributes) => {
            let receive = attributes.receive;
            Writer::new(kind::CREATE_QP)
                .put(attributes.protection_domain.number())
                .put(attributes.send_ring)
                .put(attributes.log_send_depth)
                .put(attributes.record)
                .put(attributes.uar)
                .put(attributes.send_cq.get())
                .put(attributes.receive_cq.get())
                .put(
                    attributes.cross_channel.bits() << 1
                        | u8::from(attributes.send_doorbell == SendDoorbell::WithoutRecord),
                )
                .option(receive.map(|receive| receive.ring))
                .put(receive.map_or(0, |receive| receive.log_depth))
                .put(receive.map_or(0, |receive| receive.log_stride))
        }
        Command::DestroyQueuePair(qp) => Writer::new(kind::DESTROY_QP).put(qp.get()),
        Command::ModifyQueuePair(qp, transition) => match transition {
            Transition::Init { access } => {
                Writer::new(kind::TO_INIT).put(qp.get()).put(access.bits())
            }
            Transition::ReadyToReceive(attributes) => Writer::new(kind::TO_READY_TO_RECEIVE)
                .put(qp.get())
                .put(attributes.remote_address.0)
                .put(attributes.remote_qp.get())
                .put(attributes.receive_psn)
                .put(attributes.path_mtu)
                .put(attributes.min_rnr_timer_ns),
            Transition::ReadyToSend(attributes) => Writer::new(kind::TO_READY_TO_SEND)
                .put(qp.get())
                .put(attributes.send_psn)
                .put(attributes.retry_count)
                .put(attributes.rnr_retry)
                .put(attributes.ack_timeout_ns),
            Transition::Error => Writer::new(kind::TO_ERROR).put(qp.get()),
            Transition::Reset => Writer::new(kind::TO_RESET).put(qp.get()),
        },
        Command::QueryQueuePair(qp) => Writer::new(kind::QUERY_QP).put(qp.get()),
        Command::PollEvent => Writer::new(kind::POLL_EVENT),
        Command::FailSend {
            queue_pair,
            count,
            syndrome,
            vendor,
        } => Writer::new(kind::FAIL_SEND)
            .put(queue_pair.get())
            .put(count)
            .put(syndrome.0)
            .put(vendor.0),
        Command::OverrunCompletionQueue(cq) => Writer::new(kind::OVERRUN_CQ).put(cq.get()),
    }
    .end()
}

/// The answer that words are.
pub(in crate::resident) fn to_answer(message: &Message) -> Result<Answer, WordError> {
    use reply as kind;
    let mut words = Reader {
        words: &message.words,
        next: 0,
    };
    let reply = match message.kind {
        kind::DONE => Reply::Done,
        kind::DOMAIN => Reply::ProtectionDomain(words.domain()?),
        kind::KEYS => Reply::Keys(Keys {
            local: LocalKey(words.number()?),
            remote: RemoteKey(words.number()?),
        }),
        kind::CQ => Reply::CompletionQueue(words.cq()?),
        kind::QP => Reply::QueuePair(words.qp()?),
        kind::STATUS => Reply::Status(to_status(&mut words)?),
        kind::NO_EVENT => Reply::Event(None),
        kind::COMPLETION_EVENT => Reply::Event(Some(Event::Completion(words.cq()?))),
        kind::OVERRUN_EVENT => Reply::Event(Some(Event::Overrun(words.cq()?))),
        kind::FATAL_EVENT => Reply::Event(Some(Event::QueuePairFatal(words.qp()?))),
        kind::REFUSED => {
            let error = to_command_error(&mut words)?;
            return words.end(Err(Failure::Command(error)));
        }
        kind::NO_REQUEST => {
            let error = to_word_error(&mut words)?;
            return words.end(Err(Failure::Words(error)));
        }
        kind => return Err(WordError::UnknownKind { kind }),
    };
    words.end(Ok(reply))
}

fn to_status(words: &mut Reader<'_>) -> Result<QueuePairStatus, WordError> {
    let state = to_state(words)?;
    let counters = Counters {
        completed: words.word()?,
        received: words.word()?,
        errors: words.word()?,
        retries: words.word()?,
        receiver_not_ready: words.word()?,
        duplicates: words.word()?,
    };
    /// Bits of an error's word that mean something.
    const ERROR_BITS: u64 = 0xffff_0003_ffff;
    let first_error = match words.option()? {
        None => None,
        Some(error) if error & !ERROR_BITS != 0 => return Err(words.bad()),
        Some(error) => {
            let wqe = WqeIndex((error >> 32) as u16);
            let place = match error >> 16 & 3 {
                1 => ErrorPlace::Send(wqe),
                2 => ErrorPlace::Receive(wqe),
                _ if wqe.0 != 0 => return Err(words.bad()),
                0 => ErrorPlace::Elsewhere,
                _ => ErrorPlace::CompletionQueue,
            };
            Some(FirstError {
                syndrome: Syndrome(error as u8),
                vendor: VendorCode((error >> 8) as u8),
                place,
            })
        }
    };
    Ok(QueuePairStatus {
        state,
        counters,
        first_error,
        send_index: words.number()?,
        receive_index: words.number()?,
    })
}

fn to_word_error(words: &mut Reader<'_>) -> Result<WordError, WordError> {
    Ok(match words.word()? {
        1 => WordError::Torn,
        2 => WordError::OutOfOrder {
            found: words.word()?,
            expected: words.word()?,
        },
        3 => WordError::UnknownKind {
            kind: words.word()?,
        },
        4 => WordError::BadWord {
            index: words.number()?,
        },
        _ => return Err(words.bad()),
    })
}

/// The commands' errors by their numbers, which start from 1; 0 is an illegal transition.
const COMMAND_ERRORS: [CommandError; 15] = [
    CommandError::TableFull,
    CommandError::NoProtectionDomain,
    CommandError::NoCompletionQueue,
    CommandError::NoQueuePair,
    CommandError::NoRegion,
    CommandError::InUse,
    CommandError::Misaligned,
    CommandError::BadRange,
    CommandError::TooDeep,
    CommandError::BadAccess,
    CommandError::BadPsn,
    CommandError::BadMtu,
    CommandError::BadRetryCount,
    CommandError::NoSharedReceiveQueue,
    CommandError::DoorbellTaken,
];

fn to_command_error(words: &mut Reader<'_>) -> Result<CommandError, WordError> {
    let number: u8 = words.number()?;
    if number == 0 {
        let from = to_state(words)?;
        return Ok(CommandError::IllegalTransition { from });
    }
    COMMAND_ERRORS
        .get(usize::from(number) - 1)
        .copied()
        .ok_or(words.bad())
}
