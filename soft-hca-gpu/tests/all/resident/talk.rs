//! Commands through the mailbox, and the engine's beginning and end.

use std::sync::atomic::Ordering;
use std::time::Duration;

use mlx5_wqe::{CqNumber, LocalKey, QpNumber, Syndrome, VendorCode};
use warpbell_soft_hca::engine::packet::Range;
use warpbell_soft_hca::engine::{
    Access, Command, CommandError, CompletionQueueAttributes, CrossChannel, Event, Keys,
    ProtectionDomain, QueuePairAttributes, QueuePairState, QueuePairStatus, SendDoorbell,
    Transition,
};
use warpbell_soft_hca_gpu::Lender;
use warpbell_soft_hca_gpu::resident::{
    ArgumentParts, Arguments, Client, ClientError, EngineState, MAILBOX_VERSION, Mailbox, Refused,
    Resident, Round, TableSizes,
};

use super::world::{LIMIT, SIZES, TableMemory, header, mailbox, spawn};

/// Carries out a command whose memory is never touched, or lives as long as the test.
fn run<T: TryFrom<warpbell_soft_hca::engine::Reply>>(
    client: &mut Client<&Mailbox>,
    command: Command,
) -> Result<T, ClientError>
where
    ClientError: From<T::Error>,
{
    // SAFETY: no queue pair gets beyond INIT, in which rings and regions are not touched; records
    // and completion queues are the test's own.
    let reply = unsafe { client.execute(command)? };
    Ok(T::try_from(reply)?)
}

/// Rings and records that nobody writes.
#[repr(align(4096))]
struct Rings([u8; 8192]);

#[test]
fn every_command_has_its_reply() {
    let mailbox = mailbox();
    let mut client = Client::open(mailbox, LIMIT);
    let engine = spawn(mailbox, SIZES);
    client.wait_for_start().unwrap();
    let rings = Box::new(Rings([0; 8192]));
    let at = rings.0.as_ptr().expose_provenance() as u64;

    let pd: ProtectionDomain = run(&mut client, Command::CreateProtectionDomain).unwrap();
    let register = Command::RegisterMemory {
        protection_domain: pd,
        range: Range {
            address: at,
            length: 100,
        },
        access: Access::all(),
    };
    let keys: Keys = run(&mut client, register).unwrap();
    let attributes = CompletionQueueAttributes {
        ring: at,
        log_depth: 0,
        record: at + 64,
        uar: None,
        collapsed: true,
        ignore_overrun: true,
    };
    let cq: CqNumber = run(&mut client, Command::CreateCompletionQueue(attributes)).unwrap();
    let attributes = QueuePairAttributes {
        protection_domain: pd,
        send_ring: at + 128,
        log_send_depth: 0,
        receive: None,
        record: at + 192,
        send_doorbell: SendDoorbell::WithRecord,
        uar: at + 4096,
        send_cq: cq,
        receive_cq: cq,
        cross_channel: CrossChannel::empty(),
    };
    let qp: QpNumber = run(&mut client, Command::CreateQueuePair(attributes)).unwrap();
    let init = Transition::Init {
        access: Access::REMOTE_READ,
    };
    run::<()>(&mut client, Command::ModifyQueuePair(qp, init)).unwrap();
    let fail = Command::FailSend {
        queue_pair: qp,
        count: 3,
        syndrome: Syndrome::LOCAL_LENGTH,
        vendor: VendorCode::NONE,
    };
    run::<()>(&mut client, fail).unwrap();
    let status: QueuePairStatus = run(&mut client, Command::QueryQueuePair(qp)).unwrap();
    assert_eq!(status.state, QueuePairState::Init);
    run::<()>(&mut client, Command::OverrunCompletionQueue(cq)).unwrap();
    run::<()>(&mut client, Command::ModifyQueuePair(qp, Transition::Error)).unwrap();
    let event: Option<Event> = run(&mut client, Command::PollEvent).unwrap();
    assert_eq!(event, None);

    let busy = run::<()>(&mut client, Command::DestroyCompletionQueue(cq));
    assert_eq!(busy, Err(ClientError::Command(CommandError::InUse)));
    let illegal = run::<()>(
        &mut client,
        Command::ModifyQueuePair(
            qp,
            Transition::Init {
                access: Access::empty(),
            },
        ),
    );
    let from = QueuePairState::Error;
    let refused = CommandError::IllegalTransition { from };
    assert_eq!(illegal, Err(ClientError::Command(refused)));

    for command in [
        Command::ModifyQueuePair(qp, Transition::Reset),
        Command::DestroyQueuePair(qp),
        Command::DestroyCompletionQueue(cq),
        Command::DeregisterMemory(keys.local),
        Command::DestroyProtectionDomain(pd),
    ] {
        run::<()>(&mut client, command).unwrap();
    }
    let gone = run::<()>(&mut client, Command::DeregisterMemory(LocalKey(1)));
    assert_eq!(gone, Err(ClientError::Command(CommandError::NoRegion)));

    client.stop().unwrap();
    assert_eq!(engine.join().unwrap(), Ok(()));
    assert_eq!(mailbox.state(), EngineState::Ended);
    let late = run::<()>(&mut client, Command::PollEvent);
    assert_eq!(late, Err(ClientError::Ended));
}

/// Also that garbage in the tables' memory does not matter, and that the engine finds its tables
/// where there is room for them.
#[test]
fn tables_have_the_sizes_that_the_host_asked_for() {
    let mailbox = mailbox();
    let mut client = Client::open(mailbox, LIMIT);
    let engine = spawn(mailbox, SIZES);
    for _ in 0..SIZES.protection_domains {
        run::<ProtectionDomain>(&mut client, Command::CreateProtectionDomain).unwrap();
    }
    let full = run::<ProtectionDomain>(&mut client, Command::CreateProtectionDomain);
    assert_eq!(full, Err(ClientError::Command(CommandError::TableFull)));
    client.stop().unwrap();
    assert_eq!(engine.join().unwrap(), Ok(()));
}

#[test]
fn an_engine_that_never_starts_is_a_deadline() {
    let mailbox = Mailbox::default();
    let limit = Duration::from_millis(5);
    let mut client = Client::open(&mailbox, limit);
    let deadline = ClientError::Deadline {
        limit,
        alive: false,
    };
    assert_eq!(client.wait_for_start(), Err(deadline.clone()));
    let silent = run::<()>(&mut client, Command::PollEvent);
    assert_eq!(silent, Err(deadline.clone()));
    assert_eq!(client.stop(), Err(deadline));
}

#[test]
fn the_heart_beats_while_the_engine_runs() {
    let mailbox = Mailbox::default();
    let client = Client::open(&mailbox, LIMIT);
    let mut memory = TableMemory::new(&SIZES);
    let parts = memory.parts(&mailbox, SIZES);
    // SAFETY: mailbox and memory outlive it.
    let mut resident =
        unsafe { Resident::start(&Arguments::new(parts), 0, Lender::alone()).unwrap() };
    client.wait_for_start().unwrap();
    let mut before = client.heartbeat();
    for round in 0..10 {
        assert_eq!(resident.round(round * 1_000_000), Round::Idle);
        assert!(client.heartbeat() > before);
        before = client.heartbeat();
    }
}

#[test]
fn a_stop_before_the_start_ends_it_at_once() {
    let mailbox = mailbox();
    let mut client = Client::open(mailbox, LIMIT);
    mailbox.stop();
    let engine = spawn(mailbox, SIZES);
    client.stop().unwrap();
    assert_eq!(engine.join().unwrap(), Ok(()));
}

fn start(mailbox: &Mailbox, change: impl FnOnce(&mut ArgumentParts)) -> Result<(), Refused> {
    let mut memory = TableMemory::new(&SIZES);
    let mut parts = memory.parts(mailbox, SIZES);
    change(&mut parts);
    // SAFETY: mailbox and memory outlive it; a bad address of the tables is what is refused.
    unsafe { Resident::start(&Arguments::new(parts), 0, Lender::alone()).map(|_| ()) }
}

#[test]
fn what_is_not_a_mailbox_of_this_version_is_refused() {
    let mailbox = Mailbox::default();
    let refused = Refused::NotAMailbox { found: 0 };
    assert_eq!(start(&mailbox, |_| ()), Err(refused));

    let mailbox = Mailbox::default();
    let client = Client::open(&mailbox, LIMIT);
    header(&mailbox).fetch_add(1 << 32, Ordering::Relaxed);
    let found = MAILBOX_VERSION + 1;
    let refused = Refused::Version { found };
    assert_eq!(start(&mailbox, |_| ()), Err(refused));
    assert_eq!(client.wait_for_start(), Err(ClientError::Refused(refused)));
}

#[test]
fn tables_that_are_not_there_are_refused() {
    let refused = Refused::TooSmall {
        needed: SIZES.bytes(1) as u32,
    };
    let spoil: [fn(&mut ArgumentParts); 2] = [
        |parts| parts.tables = std::ptr::null_mut(),
        |parts| parts.tables = parts.tables.wrapping_add(64),
    ];
    for spoil in spoil {
        let mailbox = Mailbox::default();
        let mut client = Client::open(&mailbox, LIMIT);
        assert_eq!(start(&mailbox, spoil), Err(refused));
        assert_eq!(client.wait_for_start(), Err(ClientError::Refused(refused)));
        assert_eq!(client.stop(), Ok(()), "it has ended by itself");
    }
}

/// As when more than one thread of a kernel starts an engine.
#[test]
fn a_mailbox_has_one_engine() {
    let mailbox = mailbox();
    let mut client = Client::open(mailbox, LIMIT);
    let engine = spawn(mailbox, SIZES);
    client.wait_for_start().unwrap();
    assert_eq!(start(mailbox, |_| ()), Err(Refused::Taken));
    run::<ProtectionDomain>(&mut client, Command::CreateProtectionDomain).unwrap();
    client.stop().unwrap();
    assert_eq!(engine.join().unwrap(), Ok(()));
    assert_eq!(start(mailbox, |_| ()), Err(Refused::Taken));
}

#[test]
fn the_default_tables_fit_a_blocks_shared_memory() {
    /// What a block of an H200 has at most, CUDA C++ programming guide, table of compute
    /// capabilities (9.0).
    const SHARED: u64 = 227 << 10;
    assert!(TableSizes::default().bytes(1) <= SHARED);
}
