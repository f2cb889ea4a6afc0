//! The software HCA behind the device: one for the process, which a thread drives.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock};
use std::{env, process, thread};

use mlx5_wqe::QpNumber;
use warpbell_soft_hca::engine::{CommandError, Event, WireAddress};
use warpbell_soft_hca::shell::gid::{self, Gid};
use warpbell_soft_hca::shell::roce::LocalAddress;
use warpbell_soft_hca::shell::{
    Driver, Events, HcaError, HcaOptions, HostEngine, Peers, RoceError, RoceOptions, SoftHca,
};

use crate::async_events::{self, Kind};
use crate::attributes::Errno;
use crate::events;
use crate::wires::wires;

/// Where it says `off`, there is no engine: what is posted stays as posted.
const VARIABLE: &str = "WARPBELL_ENGINE";
/// A folder: each process captures its RoCE packets there.
const CAPTURE: &str = "WARPBELL_CAPTURE";

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
    /// Processes of this machine, unless RoCE is forced.
    peers: Option<Arc<Peers>>,
    gids: Vec<PortGid>,
}

/// An entry of the port's table of GIDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortGid {
    pub gid: Gid,
    /// The index of the network interface with this address; 0 if there is none.
    pub interface: u32,
}

static MACHINE: OnceLock<Result<Option<Machine>, Errno>> = OnceLock::new();

/// Set in a process that was forked off: the HCA's memory, which both share, is its parent's to work on.
static FORKED: AtomicBool = AtomicBool::new(false);

/// The process's HCA, started by the first call; none where the environment wants none.
pub fn machine() -> Result<Option<&'static Machine>, Errno> {
    let started = MACHINE.get_or_init(|| {
        if env::var_os(VARIABLE).is_some_and(|value| value == "off") {
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
    let wires = wires().as_ref().map_err(|error| {
        complain(error);
        Errno(libc::ENODEV)
    })?;
    let listens = wires.shared.then(Peers::listen).transpose();
    let listens = listens.map_err(|error| system(&error))?;
    let (failed, failures) = mpsc::channel();
    let hca = Arc::new(SoftHca::new(HcaOptions {
        address: listens.as_ref().map(|(address, _)| *address),
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
    let mut gids = Vec::new();
    let mut peers = None;
    if let Some((address, listener)) = listens {
        let served = Peers::serve(hca.clone(), listener).map_err(|error| system(&error))?;
        peers = Some(served);
        gids.push(PortGid {
            gid: gid::of(address),
            interface: 0,
        });
    }
    for family in wires.roce.iter().filter(|family| !family.is_empty()) {
        gids.push(listen(&hca, family)?);
    }
    let asked = hca.clone();
    thread::Builder::new()
        .name("warpbell-events".into())
        .spawn(move || tell_errors(&asked, &failures))
        .map_err(|error| system(&error))?;
    Ok(Machine {
        hca,
        _driver: driver,
        peers,
        gids,
    })
}

/// Listens for RoCE at the first of these addresses that no other process has.
fn listen(hca: &SoftHca, family: &[LocalAddress]) -> Result<PortGid, Errno> {
    let mut refused = Errno(libc::ENODEV);
    for (left, address) in (0..family.len()).rev().zip(family) {
        let options = RoceOptions {
            capture: capture_file(address.ip),
            ..RoceOptions::at(address.ip)
        };
        match hca.listen(options) {
            Ok(_) => {
                return Ok(PortGid {
                    gid: roce_gid(address.ip),
                    interface: address.index,
                });
            }
            Err(HcaError::Roce(RoceError::AddressTaken(_))) if left > 0 => {}
            Err(error) => {
                complain(&error);
                refused = match error {
                    HcaError::Roce(RoceError::AddressTaken(_)) => Errno(libc::EADDRINUSE),
                    HcaError::Roce(_) => Errno(libc::EADDRNOTAVAIL),
                    other => errno(&other),
                };
                break;
            }
        }
    }
    Err(refused)
}

/// Where a process of this number writes its RoCE packets of this kind of address, if the environment asks for it.
fn capture_file(kind: IpAddr) -> Option<PathBuf> {
    let folder = env::var_os(CAPTURE).filter(|folder| !folder.is_empty())?;
    let kind = if kind.is_ipv4() { "ipv4" } else { "ipv6" };
    Some(Path::new(&folder).join(format!("{}-{kind}.pcapng", process::id())))
}

/// Says why there is no device, because the program gets a number alone.
fn complain(error: &dyn std::error::Error) {
    eprintln!("warpbell: no device: {error}");
}

/// The GID of an IP address: that of IPv4 is mapped into IPv6 (annex A17 of the InfiniBand specification).
pub const fn roce_gid(ip: IpAddr) -> Gid {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
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

    /// The port's GIDs: the one that tells the HCA's address to processes of this machine, and those of its IP addresses.
    pub fn gids(&self) -> &[PortGid] {
        &self.gids
    }

    /// The HCA that has a GID, with a way to it, and the path MTU in bytes. An HCA of this machine is reached by shared
    /// memory, with the link's largest packets; one with an IP address by RoCE, with packets of `mtu` bytes.
    ///
    /// # Errors
    /// EHOSTUNREACH if nobody is known to have the GID; EINVAL if the way does not carry such packets.
    pub fn reach(&self, gid: Gid, mtu: u32) -> Result<(WireAddress, u32), Errno> {
        let unreachable = Errno(libc::EHOSTUNREACH);
        let of_way = |peer| {
            let most = self.hca.path_mtu(peer).map_err(|error| errno(&error))?;
            most.ok_or(unreachable)
        };
        if let Some(peer) = gid::address(gid) {
            let peers = self.peers.as_ref().ok_or(unreachable)?;
            // Whatever the reason: nobody answers there.
            peers.reach(peer).map_err(|_| unreachable)?;
            return Ok((peer, of_way(peer)?));
        }
        let peer = RoceOptions::at(Ipv6Addr::from(gid).to_canonical()).address;
        let peer = self.hca.reach(peer).map_err(|error| match error {
            HcaError::Roce(_) => unreachable,
            other => errno(&other),
        })?;
        match mtu <= of_way(peer)? {
            true => Ok((peer, mtu)),
            false => Err(Errno(libc::EINVAL)),
        }
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
