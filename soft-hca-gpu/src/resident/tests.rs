//! Mailboxes that somebody else writes to, seen from both sides.

use core::sync::atomic::{AtomicBool, Ordering};
use std::prelude::v1::*;
use std::time::Duration;

use mlx5_wqe::{CqNumber, LocalKey, QpNumber, RemoteKey, Syndrome, VendorCode, WqeIndex};
use proptest::option;
use proptest::prelude::*;

use super::mailbox::Slot;
use super::words::host::{from_command, to_answer};
use super::words::{Answer, Failure, Message, WORDS, WordError, from_answer, to_command};
use super::{Client, ClientError, EngineState, Mailbox, Refused, Resident, Round};
use crate::Lender;
use warpbell_soft_hca::engine::packet::Range;
use warpbell_soft_hca::engine::{
    Access, Command, CommandError, CompletionQueueAttributes, Counters, CrossChannel, DirectMemory,
    Engine, ErrorPlace, Event, FirstError, Keys, Loopback, ProtectionDomain, ProtectionDomainSlot,
    QueuePairAttributes, QueuePairState, QueuePairStatus, ReadyToReceive, ReadyToSend, ReceiveRing,
    Reply, SendDoorbell, Storage, Transition, WireAddress,
};

fn qp() -> impl Strategy<Value = QpNumber> {
    any::<u32>().prop_map(QpNumber::from_low_bits)
}

fn cq() -> impl Strategy<Value = CqNumber> {
    any::<u32>().prop_map(CqNumber::from_low_bits)
}

fn domain() -> impl Strategy<Value = ProtectionDomain> {
    any::<u32>().prop_map(ProtectionDomain::from_number)
}

fn access() -> impl Strategy<Value = Access> {
    any::<u32>().prop_map(Access::from_bits_truncate)
}

fn transition() -> impl Strategy<Value = Transition> {
    prop_oneof![
        access().prop_map(|access| Transition::Init { access }),
        (any::<[u32; 4]>(), qp()).prop_map(|([address, psn, mtu, rnr], remote_qp)| {
            Transition::ReadyToReceive(ReadyToReceive {
                remote_address: WireAddress(address),
                remote_qp,
                receive_psn: psn,
                path_mtu: mtu,
                min_rnr_timer_ns: rnr,
            })
        }),
        any::<(u32, u8, u8, u64)>().prop_map(|(send_psn, retry_count, rnr_retry, timeout)| {
            Transition::ReadyToSend(ReadyToSend {
                send_psn,
                retry_count,
                rnr_retry,
                ack_timeout_ns: timeout,
            })
        }),
        Just(Transition::Error),
        Just(Transition::Reset),
    ]
}

fn completion_queue() -> impl Strategy<Value = CompletionQueueAttributes> {
    (any::<(u64, u8, u64)>(), any::<(Option<u64>, bool, bool)>()).prop_map(
        |((ring, log_depth, record), (uar, collapsed, ignore_overrun))| CompletionQueueAttributes {
            ring,
            log_depth,
            record,
            uar,
            collapsed,
            ignore_overrun,
        },
    )
}

fn queue_pair() -> impl Strategy<Value = QueuePairAttributes> {
    let receive = option::of(any::<(u64, u8, u8)>());
    let places = any::<(u64, u8, u64, u64)>();
    let doorbells =
        proptest::sample::select(vec![SendDoorbell::WithRecord, SendDoorbell::WithoutRecord]);
    let cross_channel = (0u8..4).prop_map(CrossChannel::from_bits_truncate);
    (
        domain(),
        places,
        receive,
        cq(),
        cq(),
        doorbells,
        cross_channel,
    )
        .prop_map(
            |(
                protection_domain,
                (send_ring, log_send_depth, record, uar),
                receive,
                send_cq,
                receive_cq,
                send_doorbell,
                cross_channel,
            )| {
                QueuePairAttributes {
                    protection_domain,
                    send_ring,
                    log_send_depth,
                    receive: receive.map(|(ring, log_depth, log_stride)| ReceiveRing {
                        ring,
                        log_depth,
                        log_stride,
                    }),
                    record,
                    send_doorbell,
                    uar,
                    send_cq,
                    receive_cq,
                    cross_channel,
                }
            },
        )
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        Just(Command::CreateProtectionDomain),
        domain().prop_map(Command::DestroyProtectionDomain),
        (domain(), any::<(u64, u64)>(), access()).prop_map(
            |(protection_domain, (address, length), access)| Command::RegisterMemory {
                protection_domain,
                range: Range { address, length },
                access,
            }
        ),
        any::<u32>().prop_map(|key| Command::DeregisterMemory(LocalKey(key))),
        completion_queue().prop_map(Command::CreateCompletionQueue),
        cq().prop_map(Command::DestroyCompletionQueue),
        queue_pair().prop_map(Command::CreateQueuePair),
        qp().prop_map(Command::DestroyQueuePair),
        (qp(), transition()).prop_map(|(qp, step)| Command::ModifyQueuePair(qp, step)),
        qp().prop_map(Command::QueryQueuePair),
        Just(Command::PollEvent),
        (qp(), any::<(u32, u8, u8)>()).prop_map(|(queue_pair, (count, syndrome, vendor))| {
            Command::FailSend {
                queue_pair,
                count,
                syndrome: Syndrome(syndrome),
                vendor: VendorCode(vendor),
            }
        }),
        cq().prop_map(Command::OverrunCompletionQueue),
    ]
}

fn state() -> impl Strategy<Value = QueuePairState> {
    prop_oneof![
        Just(QueuePairState::Reset),
        Just(QueuePairState::Init),
        Just(QueuePairState::ReadyToReceive),
        Just(QueuePairState::ReadyToSend),
        Just(QueuePairState::Error),
    ]
}

fn status() -> impl Strategy<Value = QueuePairStatus> {
    let place = prop_oneof![
        any::<u16>().prop_map(|wqe| ErrorPlace::Send(WqeIndex(wqe))),
        any::<u16>().prop_map(|wqe| ErrorPlace::Receive(WqeIndex(wqe))),
        Just(ErrorPlace::CompletionQueue),
        Just(ErrorPlace::Elsewhere),
    ];
    let error = option::of((any::<u8>(), any::<u8>(), place));
    (state(), any::<[u64; 6]>(), error, any::<(u16, u16)>()).prop_map(
        |(state, [completed, received, errors, retries, rnr, duplicates], error, indices)| {
            QueuePairStatus {
                state,
                counters: Counters {
                    completed,
                    received,
                    errors,
                    retries,
                    receiver_not_ready: rnr,
                    duplicates,
                },
                first_error: error.map(|(syndrome, vendor, place)| FirstError {
                    syndrome: Syndrome(syndrome),
                    vendor: VendorCode(vendor),
                    place,
                }),
                send_index: indices.0,
                receive_index: indices.1,
            }
        },
    )
}

fn command_error() -> impl Strategy<Value = CommandError> {
    let plain = [
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
    prop_oneof![
        proptest::sample::select(plain.to_vec()),
        state().prop_map(|from| CommandError::IllegalTransition { from }),
    ]
}

fn word_error() -> impl Strategy<Value = WordError> {
    prop_oneof![
        Just(WordError::Torn),
        any::<(u64, u64)>().prop_map(|(found, expected)| WordError::OutOfOrder { found, expected }),
        any::<u64>().prop_map(|kind| WordError::UnknownKind { kind }),
        any::<u8>().prop_map(|index| WordError::BadWord { index }),
    ]
}

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        Just(Ok(Reply::Done)),
        domain().prop_map(|pd| Ok(Reply::ProtectionDomain(pd))),
        any::<(u32, u32)>().prop_map(|(local, remote)| {
            let (local, remote) = (LocalKey(local), RemoteKey(remote));
            Ok(Reply::Keys(Keys { local, remote }))
        }),
        cq().prop_map(|cq| Ok(Reply::CompletionQueue(cq))),
        qp().prop_map(|qp| Ok(Reply::QueuePair(qp))),
        status().prop_map(|status| Ok(Reply::Status(status))),
        Just(Ok(Reply::Event(None))),
        cq().prop_map(|cq| Ok(Reply::Event(Some(Event::Completion(cq))))),
        cq().prop_map(|cq| Ok(Reply::Event(Some(Event::Overrun(cq))))),
        qp().prop_map(|qp| Ok(Reply::Event(Some(Event::QueuePairFatal(qp))))),
        command_error().prop_map(|error| Err(Failure::Command(error))),
        word_error().prop_map(|error| Err(Failure::Words(error))),
    ]
}

/// Any words, most of them of a kind that there is, with small numbers that often mean something.
fn message() -> impl Strategy<Value = Message> {
    let word = || prop_oneof![0u64..3, any::<u64>(), any::<u32>().prop_map(u64::from)];
    let kind = prop_oneof![9 => 0u64..20, 1 => any::<u64>()];
    (kind, proptest::array::uniform12(word())).prop_map(|(kind, words)| Message { kind, words })
}

proptest! {
    #[test]
    fn a_command_comes_as_it_went(command in command()) {
        prop_assert_eq!(to_command(&from_command(&command)), Ok(command));
    }

    #[test]
    fn an_answer_comes_as_it_went(answer in answer()) {
        prop_assert_eq!(to_answer(&from_answer(&answer)), Ok(answer));
    }

    /// Words mean one thing or nothing: what is read from them is written as the same words.
    #[test]
    fn words_mean_one_thing_or_nothing(message in message()) {
        match to_command(&message) {
            Ok(command) => prop_assert_eq!(from_command(&command), message),
            Err(error) => prop_assert!(named(error, &message), "{:?}", error),
        }
        match to_answer(&message) {
            Ok(answer) => prop_assert_eq!(from_answer(&answer), message),
            Err(error) => prop_assert!(named(error, &message), "{:?}", error),
        }
    }

    /// One bit of a command's words: another command, or the error of that word.
    #[test]
    fn a_flipped_bit_is_noticed_or_another_command(
        command in command(),
        word in 0..WORDS,
        bit in 0..64,
    ) {
        let mut message = from_command(&command);
        message.words[word] ^= 1u64 << bit;
        if let Ok(other) = to_command(&message) {
            prop_assert_ne!(other, command);
        }
    }

    /// Whatever is in the request, the engine answers it under its number and goes on.
    #[test]
    fn the_engine_survives_every_request(
        requests in proptest::collection::vec((message(), any::<bool>(), 0u64..3), 1..20),
    ) {
        with_resident(|resident, mailbox| {
            let (mut number, mut now) = (0u64, 0);
            for (message, whole, ahead) in requests {
                // A request for memory that is not there is the host's to answer for.
                if to_command(&message).is_ok_and(|command| command.names_memory()) {
                    continue;
                }
                let expected = number + 1;
                number += ahead;
                mailbox.request.put(number, &message);
                if !whole {
                    mailbox.request.spoil();
                }
                let before = mailbox.reply.sequence();
                now += 1_000_000;
                prop_assert_ne!(resident.round(now), Round::Ended);
                if ahead == 0 {
                    prop_assert_eq!(mailbox.reply.sequence(), before);
                    continue;
                }
                prop_assert_eq!(mailbox.reply.sequence(), number);
                let answer = to_answer(&mailbox.reply.get(number).unwrap()).unwrap();
                match (ahead, whole, to_command(&message)) {
                    (2, ..) => {
                        let error = WordError::OutOfOrder { found: number, expected };
                        prop_assert_eq!(answer, Err(Failure::Words(error)));
                    }
                    (_, false, _) => {
                        prop_assert_eq!(answer, Err(Failure::Words(WordError::Torn)));
                    }
                    (_, _, Err(error)) => prop_assert_eq!(answer, Err(Failure::Words(error))),
                    (_, _, Ok(_)) => {
                        prop_assert!(!matches!(answer, Err(Failure::Words(_))), "{:?}", answer);
                    }
                }
            }
            Ok(())
        })?;
    }

    /// Whatever is in the reply, the host names it.
    #[test]
    fn the_host_survives_every_reply(message in message(), whole: bool, state: u64) {
        let result = asked(|reply| {
            reply.put(1, &message);
            if !whole {
                reply.spoil();
            }
        }, EngineState::Running);
        let expected = match (whole, to_answer(&message)) {
            (false, _) => Err(ClientError::BadReply(WordError::Torn)),
            (_, Err(error)) => Err(ClientError::BadReply(error)),
            (_, Ok(Err(Failure::Words(error)))) => Err(ClientError::BadRequest(error)),
            (_, Ok(Err(Failure::Command(error)))) => Err(ClientError::Command(error)),
            (_, Ok(Ok(reply))) => Ok(reply),
        };
        prop_assert_eq!(result, expected);

        // Above all codes that mean something.
        let word = state | 0x80;
        let result = asked(|_| (), EngineState::Unknown(word));
        prop_assert_eq!(result, Err(ClientError::BadState { word }));
    }
}

/// Whether the error is about these words.
fn named(error: WordError, message: &Message) -> bool {
    match error {
        WordError::UnknownKind { kind } => kind == message.kind,
        WordError::BadWord { index } => usize::from(index) < WORDS,
        _ => false,
    }
}

/// The host gives no command to an engine that may still refuse, or whose neighbours' words are not there yet.
#[test]
fn an_engine_that_builds_its_tables_does_not_run_yet() {
    let mailbox = Mailbox::default();
    let limit = Duration::from_millis(5);
    let client = Client::open(&mailbox, limit);
    mailbox.take().unwrap();
    assert_eq!(mailbox.take(), Err(Refused::Taken));
    let late = ClientError::Deadline {
        limit,
        alive: false,
    };
    assert_eq!(client.wait_for_start(), Err(late));
    mailbox.set_state(EngineState::Running);
    assert_eq!(client.wait_for_start(), Ok(()));
}

/// What the host hears when this is the reply to its first command, and this the engine's state.
fn asked(reply: impl FnOnce(&Slot) + Send, state: EngineState) -> Result<Reply, ClientError> {
    let mailbox = Mailbox::default();
    let mut client = Client::open(&mailbox, Duration::from_secs(300));
    mailbox.set_state(state);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while mailbox.request.sequence() == 0 {
                std::thread::yield_now();
            }
            reply(&mailbox.reply);
        });
        // SAFETY: nobody carries it out.
        unsafe { client.execute(Command::PollEvent) }
    })
}

/// An engine with one protection domain, and its mailbox.
fn with_resident<R>(
    test: impl FnOnce(&mut Resident<'_, '_, DirectMemory, Loopback<4>>, &Mailbox) -> R,
) -> R {
    let mailbox = Mailbox::default();
    mailbox.open();
    let mut domains = [ProtectionDomainSlot::default()];
    let storage = Storage {
        protection_domains: &mut domains,
        regions: &mut [],
        revoked: &[],
        completion_queues: &mut [],
        queue_pairs: &mut [],
        uars: &mut [],
    };
    let mut engine = Engine::new(WireAddress(1), DirectMemory, Loopback::new(256), storage);
    let mut resident = Resident::new(&mut engine, Lender::alone(), &mailbox);
    test(&mut resident, &mailbox)
}

/// A late answer is waited for, and not taken for that of the next command.
#[test]
fn a_late_answer_is_not_the_next_commands() {
    with_resident(|resident, mailbox| {
        let mut client = Client::open(mailbox, Duration::from_millis(1));
        let mut ask = |command| {
            // SAFETY: neither command names memory.
            unsafe { client.execute(command) }
        };
        let late = ask(Command::CreateProtectionDomain);
        assert!(matches!(late, Err(ClientError::Deadline { .. })));
        // While that one is not answered, no other is sent.
        let still = ask(Command::QueryQueuePair(QpNumber::MAX));
        assert!(matches!(still, Err(ClientError::Deadline { .. })));
        assert_eq!(mailbox.request.sequence(), 1);

        resident.round(0);
        client.limit = Duration::from_secs(300);
        let answered = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: as above.
                let status = unsafe { client.execute(Command::QueryQueuePair(QpNumber::MAX)) };
                answered.store(true, Ordering::Relaxed);
                assert_eq!(status, Err(ClientError::Command(CommandError::NoQueuePair)));
            });
            let mut now = 0;
            while !answered.load(Ordering::Relaxed) {
                now += 1_000;
                resident.round(now);
                std::thread::yield_now();
            }
        });
    });
}
