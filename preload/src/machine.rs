//! The software HCA behind the device: one for the process, which a thread drives.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;

use mlx5_wqe::QpNumber;
use warpbell_soft_hca::engine::{CommandError, Event, WireAddress};
use warpbell_soft_hca::shell::gid::{self, Gid};
use warpbell_soft_hca::shell::{Driver, Events, HcaError, HcaOptions, HostEngine, Peers, SoftHca};

use crate::async_events::{self, Kind};
use crate::attributes::Errno;
use crate::events;

/// Where it says `off`, there is no engine: what is posted stays as posted.
const VARIABLE: &str = "WARPBELL_ENGINE";

/// How many of each kind of object there may be, all files of the process together: what the HCA has tables for, and what
/// the device says of itself.
pub mod limits {
    pub const PROTECTION_DOMAINS: usize = 1 << 8;
    pub const REGIONS: usize = 1 << 12;
    pub const COMPLETION_QUEUES: usize = 1 << 12;
    pub const SHARED_RECEIVE_QUEUES: usize = 1 << 10;
    pub const QUEUE_PAIRS: usize = 1 << 11;
}

/// Steps without anything to do after which a polling thread lets others have its core: some 20 µs. Where both ends of a
/// conversation share a core, the other end could not answer before the time slice is over, some milliseconds.
const PATIENCE: u32 = 64;

/// The HCA, its thread, and its peers.
pub struct Machine {
    hca: Arc<SoftHca>,
    _driver: Driver,
    peers: Arc<Peers>,
}

static MACHINE: OnceLock<Result<Option<Machine>, Errno>> = OnceLock::new();

/// Set in a process that was forked off: the HCA's memory, which both share, is its parent's to work on.
static FORKED: AtomicBool = AtomicBool::new(false);

/// The process's HCA, started by the first call; none where the environment wants none.
pub fn machine() -> Result<Option<&'static Machine>, Errno> {
    let started = MACHINE.get_or_init(|| {
        if std::env::var_os(VARIABLE).is_some_and(|value| value == "off") {
            return Ok(None);
        }
        start().map(Some)
    });
    started.as_ref().map(Option::as_ref).map_err(|error| *error)
}

/// Lets the calling thread do a step of the HCA, if there is one and nobody is at work on it. It never waits for others;
/// a thread that has polled for long without anything to do lets others have its core.
pub fn help() {
    thread_local! {
        /// Steps of this thread since the last one that did something, or since it let others go first.
        static IDLE: Cell<u32> = const { Cell::new(0) };
    }
    let Some(Ok(Some(machine))) = MACHINE.get() else {
        return;
    };
    if FORKED.load(Ordering::Relaxed) {
        return;
    }
    let idle = match machine.hca.help() {
        0 => IDLE.get() + 1,
        _ => 0,
    };
    IDLE.set(idle % PATIENCE);
    if idle == PATIENCE {
        thread::yield_now();
    }
}

fn start() -> Result<Machine, Errno> {
    extern "C" fn forked() {
        FORKED.store(true, Ordering::Relaxed);
    }
    // SAFETY: what the child calls does nothing but store a word.
    let refused = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    if refused != 0 {
        return Err(Errno(refused));
    }
    let (address, listener) = Peers::listen().map_err(|error| system(&error))?;
    let (failed, failures) = mpsc::channel();
    let hca = Arc::new(SoftHca::new(HcaOptions {
        address: Some(address),
        events: Some(Events::new(move |event| hear(event, &failed))),
        protection_domains: limits::PROTECTION_DOMAINS,
        regions: limits::REGIONS,
        completion_queues: limits::COMPLETION_QUEUES,
        shared_receive_queues: limits::SHARED_RECEIVE_QUEUES,
        queue_pairs: limits::QUEUE_PAIRS,
        ..HcaOptions::default()
    }));
    let driver = Driver::spawn_beside_spinners().map_err(|error| errno(&error))?;
    driver.drive(&hca);
    let peers = Peers::serve(hca.clone(), listener).map_err(|error| system(&error))?;
    let asked = hca.clone();
    thread::Builder::new()
        .name("warpbell-events".into())
        .spawn(move || tell_errors(&asked, &failures))
        .map_err(|error| system(&error))?;
    Ok(Machine {
        hca,
        _driver: driver,
        peers,
    })
}

/// Hears the engine's events. It may not ask the engine: queue pairs that have failed go to [`tell_errors`].
fn hear(event: Event, failed: &Sender<QpNumber>) {
    match event {
        Event::Completion(number) => events::hear(number),
        Event::Overrun(number) => async_events::report(number, Kind::CompletionQueueError),
        // Without a thread that asks nobody is told.
        Event::QueuePairFatal(number) => drop(failed.send(number)),
    }
}

/// Asks of each queue pair that has failed what its first error was, and tells it. One that has been reset or
/// destroyed since has none.
fn tell_errors(hca: &SoftHca, failures: &Receiver<QpNumber>) {
    for number in failures {
        if let Ok(Ok(status)) = hca.command(|engine| engine.query_queue_pair(number))
            && let Some(error) = status.first_error
        {
            async_events::report_error(number, &error);
        }
    }
}

impl Machine {
    /// Gives the engine commands.
    pub fn command<R>(
        &self,
        give: impl FnOnce(&mut HostEngine<'_>) -> Result<R, CommandError>,
    ) -> Result<R, Errno> {
        self.try_command(give)?.map_err(refusal)
    }

    /// The same; why the engine refuses is told in its own words.
    pub fn try_command<R>(
        &self,
        give: impl FnOnce(&mut HostEngine<'_>) -> Result<R, CommandError>,
    ) -> Result<Result<R, CommandError>, Errno> {
        self.hca.command(give).map_err(|error| errno(&error))
    }

    /// The port's GID, which tells the HCA's address.
    pub fn gid(&self) -> Gid {
        gid::of(self.hca.address())
    }

    /// The HCA that has a GID, with a link to it, and the link's largest packet in bytes.
    pub fn reach(&self, gid: Gid) -> Result<(WireAddress, u32), Errno> {
        let unreachable = Errno(libc::EHOSTUNREACH);
        let peer = gid::address(gid).ok_or(unreachable)?;
        // Whatever the reason: nobody answers there.
        self.peers.reach(peer).map_err(|_| unreachable)?;
        let mtu = self.hca.path_mtu(peer).map_err(|error| errno(&error))?;
        Ok((peer, mtu.ok_or(unreachable)?))
    }
}

/// The error number of an HCA that did not do what it was asked to.
fn errno(error: &HcaError) -> Errno {
    Errno(match error {
        HcaError::Thread(_) => libc::EAGAIN,
        _ => libc::EIO,
    })
}

/// The error number of a system call that failed.
pub fn system(error: &io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EIO))
}

/// The error number of a command that the engine refused.
fn refusal(error: CommandError) -> Errno {
    Errno(match error {
        CommandError::TableFull => libc::ENOMEM,
        CommandError::InUse => libc::EBUSY,
        _ => libc::EINVAL,
    })
}
