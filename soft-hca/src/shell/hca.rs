//! One software HCA on a host: an engine with its tables, its wires and a clock.

use std::any::Any;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::prelude::v1::*;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use super::bell::{self, Bell, Bells};
use super::links::{Link, Links};
use super::local_link::LocalLink;
use super::memory::{HostMemory, LateStores};
use super::roce::RoceError;
use super::segment::SegmentError;
use super::shared_link::SharedLink;
use super::trace::HcaTrace;
use super::watch::RequestWatch;
use super::wire::{Faults, HostWire};
use crate::engine::{
    CommandError, CompletionQueueSlot, Engine, Event, Memory, ProtectionDomainSlot, QueuePairSlot,
    RegionSlot, RevokedKey, SharedReceiveSlot, Storage, UarSlot, WireAddress, WrongReply,
};

/// The engine of an HCA on a host, with tables of lifetime `'t`: addresses are this process's
/// pointers.
pub type HostEngine<'t> = Engine<'t, HostMemory, HostWire>;

/// Why an HCA did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HcaError {
    /// It has been killed, or its owner dropped it.
    #[error("the HCA has stopped; open the device again")]
    Stopped,
    /// Its engine has panicked: a defect of this crate.
    #[error("the HCA's engine has panicked ({0}); please report it, and open the device again")]
    Panicked(String),
    /// The engine refused a command.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The way to an engine that runs as a kernel: an error of `warpbell-soft-hca-gpu`.
    #[error(transparent)]
    Resident(Box<dyn core::error::Error + Send + Sync>),
    /// A link to this peer exists already.
    #[error("HCA {own:#x} has a link to {peer:#x} already; one is enough for all queue pairs")]
    LinkedAlready {
        /// This HCA.
        own: u32,
        /// The peer.
        peer: u32,
    },
    /// Two processes could not share memory.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The system gave no thread.
    #[error("no thread for the HCA: {0}; check the limit of threads")]
    Thread(#[source] std::io::Error),
    /// The system gave nothing by which other processes would reach it.
    #[error(
        "no socket or thread for other processes to reach the HCA: {0}; check the limits of both"
    )]
    Peers(#[source] std::io::Error),
    /// The HCA does not listen for RoCE packets, or does not reach another.
    #[error(transparent)]
    Roce(#[from] RoceError),
}

impl From<WrongReply> for HcaError {
    fn from(wrong: WrongReply) -> Self {
        Self::Resident(wrong.into())
    }
}

/// Hears the events of an HCA's engine, as they come.
#[derive(Clone)]
pub struct Events(Arc<dyn Fn(Event) + Send + Sync>);

impl Events {
    /// Calls this for each event, between two steps. It must return soon, and must not call the HCA: that would wait
    /// for itself.
    pub fn new(hear: impl Fn(Event) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hear))
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Events")
    }
}

/// How an HCA is made.
#[derive(Clone, Debug)]
pub struct HcaOptions {
    /// Its address on the wires; by default a number that no other HCA has.
    pub address: Option<WireAddress>,
    /// Most protection domains.
    pub protection_domains: usize,
    /// Most memory regions.
    pub regions: usize,
    /// Most completion queues.
    pub completion_queues: usize,
    /// Most shared receive queues.
    pub shared_receive_queues: usize,
    /// Most queue pairs.
    pub queue_pairs: usize,
    /// What befalls the packets that it sends; nothing by default.
    pub faults: Option<Faults>,
    /// What befalls the payloads that it stores; nothing by default.
    pub late_stores: Option<LateStores>,
    /// Looks at the requests that it sends; nobody by default, which costs nothing.
    pub watch: Option<RequestWatch>,
    /// Keeps what it does; nobody by default, which costs next to nothing.
    pub trace: Option<Arc<HcaTrace>>,
    /// Who hears its events. Without anybody they wait for
    /// [`poll_event`](crate::engine::Engine::poll_event).
    pub events: Option<Events>,
}

impl Default for HcaOptions {
    fn default() -> Self {
        Self {
            address: None,
            protection_domains: 256,
            regions: 4096,
            completion_queues: 4096,
            shared_receive_queues: 1024,
            queue_pairs: 2048,
            faults: None,
            late_stores: None,
            watch: None,
            trace: None,
            events: None,
        }
    }
}

/// The engine's tables, at addresses that do not change.
struct Tables {
    protection_domains: Box<[ProtectionDomainSlot]>,
    regions: Box<[RegionSlot]>,
    revoked: Box<[RevokedKey]>,
    completion_queues: Box<[CompletionQueueSlot]>,
    shared_receive_queues: Box<[SharedReceiveSlot]>,
    queue_pairs: Box<[QueuePairSlot]>,
    uars: Box<[UarSlot]>,
}

fn table<T: Default>(entries: usize) -> Box<[T]> {
    (0..entries).map(|_| T::default()).collect()
}

/// An engine together with the tables that it borrows.
struct Machine {
    engine: ManuallyDrop<HostEngine<'static>>,
    tables: *mut Tables,
    events: Option<Events>,
}

// SAFETY: the tables belong to this value alone, and are plain data.
unsafe impl Send for Machine {}

impl Machine {
    fn new(address: WireAddress, wire: HostWire, options: HcaOptions) -> Self {
        let tables = Box::into_raw(Box::new(Tables {
            protection_domains: table(options.protection_domains),
            regions: table(options.regions),
            revoked: table(options.regions),
            completion_queues: table(options.completion_queues),
            shared_receive_queues: table(options.shared_receive_queues),
            queue_pairs: table(options.queue_pairs),
            // Each queue pair may have a page of its own.
            uars: table(options.queue_pairs),
        }));
        // SAFETY: just made, freed by `drop` alone once the engine, the only
        // user of these borrows, is gone.
        let borrowed: &'static mut Tables = unsafe { &mut *tables };
        let storage = Storage {
            protection_domains: &mut borrowed.protection_domains,
            regions: &mut borrowed.regions,
            revoked: &borrowed.revoked,
            completion_queues: &mut borrowed.completion_queues,
            queue_pairs: &mut borrowed.queue_pairs,
            uars: &mut borrowed.uars,
        };
        let memory = HostMemory::new(options.late_stores, options.trace);
        let mut engine = Engine::new(address, memory, wire, storage);
        engine.lend_shared_receive_queues(&mut borrowed.shared_receive_queues);
        engine.start_keys(SoftHca::random());
        Self {
            engine: ManuallyDrop::new(engine),
            tables,
            events: options.events,
        }
    }

    fn with_links<R>(&mut self, f: impl FnOnce(&mut Links) -> R) -> R {
        // SAFETY: the wire stays; only its links change.
        unsafe { self.engine.wire() }.with_links(f)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: each is dropped once, here, the engine before the tables that
        // it borrows; `tables` came from `into_raw`.
        unsafe {
            ManuallyDrop::drop(&mut self.engine);
            drop(Box::from_raw(self.tables));
        }
    }
}

/// Either the machine, or why there is none any more.
enum State {
    Alive(Box<Machine>),
    Stopped,
    Panicked(String),
}

impl State {
    fn error(&self) -> HcaError {
        match self {
            Self::Panicked(message) => HcaError::Panicked(message.clone()),
            _ => HcaError::Stopped,
        }
    }
}

/// What the owner of an HCA and the thread that drives it share.
pub(super) struct Seat {
    state: Mutex<State>,
    /// Commands that wait for the lock: the driving thread lets them pass.
    waiting: AtomicU32,
    /// By which the driving thread sleeps.
    bells: Bells,
    /// Somebody has helped since the driving thread last asked.
    helped: AtomicBool,
    /// Somebody wanted to help and found another at work: that one looks once more.
    missed: AtomicBool,
}

impl Seat {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // Panics are caught below, while the state is whole.
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        state
    }

    pub fn has_stopped(&self) -> bool {
        !matches!(*self.lock(), State::Alive(_))
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// A step from the driving thread. None once the HCA has stopped.
    pub fn drive(&self) -> Option<usize> {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            // A lock does not queue: without this, the thread would take it
            // again before the command wakes up.
            std::thread::yield_now();
            return Some(0);
        }
        match self.try_lock() {
            Some(mut state) => guarded(&mut state, |machine| step(machine, bell::clock_ns())).ok(),
            None => Some(0),
        }
    }

    /// A step from another thread, unless the HCA is busy; gives the number of things done.
    fn help(&self) -> usize {
        // As in `drive`; who gives a command is at work on the HCA himself.
        if self.waiting.load(Ordering::Relaxed) > 0 {
            return 0;
        }
        let state = self.try_lock().or_else(|| {
            self.missed.store(true, Ordering::Relaxed);
            // The word before another look at the lock, because who holds it gives it back before he looks at the
            // word: one of the two sees the other. See `is_due`.
            fence(Ordering::SeqCst);
            self.try_lock()
        });
        let Some(mut state) = state else {
            return 0;
        };
        let done = guarded(&mut state, |machine| {
            machine.with_links(|links| links.attend());
            step(machine, bell::clock_ns())
        });
        self.helped.store(true, Ordering::Relaxed);
        // An HCA that has stopped does nothing.
        done.unwrap_or(0)
    }

    /// Whether somebody would have helped while the driving thread was at work. That one asks after each step, and
    /// before it sleeps.
    pub fn is_due(&self) -> bool {
        // See `help`.
        fence(Ordering::SeqCst);
        self.missed.swap(false, Ordering::Relaxed)
    }

    /// Whether somebody is at work on the HCA.
    pub fn is_busy(&self) -> bool {
        matches!(self.state.try_lock(), Err(TryLockError::WouldBlock))
    }

    /// Whether somebody has helped since this was last asked.
    pub fn was_helped(&self) -> bool {
        self.helped.swap(false, Ordering::Relaxed)
    }

    /// Appends what the driving thread sleeps by, sockets only if these are wanted.
    pub fn bells(&self, bells: &mut Vec<Bell>, sockets: bool) {
        self.bells.extend(bells, sockets);
    }
}

fn step(machine: &mut Machine, now: u64) -> usize {
    // What is late counts as something to do: its time passes in steps.
    let late = machine.engine.memory().advance(now);
    let done = machine.engine.step(now) + late;
    if let Some(Events(hear)) = &machine.events {
        while let Some(event) = machine.engine.poll_event() {
            hear(event);
        }
    }
    machine.with_links(|links| links.end_step());
    done
}

/// Runs `f` on a living machine; a panic ends the machine, not the thread.
fn guarded<R>(state: &mut State, f: impl FnOnce(&mut Machine) -> R) -> Result<R, HcaError> {
    let State::Alive(machine) = state else {
        return Err(state.error());
    };
    match catch_unwind(AssertUnwindSafe(|| f(machine))) {
        Ok(result) => Ok(result),
        Err(panic) => {
            let message = words(panic.as_ref());
            tracing::error!(message, "the HCA's engine has panicked");
            *state = State::Panicked(message);
            Err(state.error())
        }
    }
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into())
}

/// A software HCA.
///
/// It stands still until somebody calls [`step`](Self::step), or a
/// [`Driver`](super::Driver) drives it on a thread. Commands act at once in both
/// cases: they run between two steps, on the caller's thread.
///
/// Dropping it stops it, as [`kill`](Self::kill) does.
pub struct SoftHca {
    address: WireAddress,
    seat: Arc<Seat>,
}

impl SoftHca {
    /// A new HCA, without any object or link.
    pub fn new(mut options: HcaOptions) -> Self {
        let address = options.address.unwrap_or_else(Self::fresh_address);
        let links = Links::new(address);
        let bells = links.bells();
        let wire = HostWire::new(links, options.faults.take(), options.watch.take());
        let machine = Machine::new(address, wire, options);
        let seat = Seat {
            state: Mutex::new(State::Alive(Box::new(machine))),
            waiting: AtomicU32::new(0),
            bells,
            helped: AtomicBool::new(false),
            missed: AtomicBool::new(false),
        };
        Self {
            address,
            seat: Arc::new(seat),
        }
    }

    /// Its address on its wires.
    pub fn address(&self) -> WireAddress {
        self.address
    }

    /// An address that no other HCA of this machine is likely to have, and that does not follow from addresses given
    /// before: another user who knows those cannot take this one first.
    pub fn fresh_address() -> WireAddress {
        WireAddress(Self::random())
    }

    /// 32 bits that nobody outside of this process can foresee.
    pub fn random() -> u32 {
        RandomState::new().hash_one("warpbell") as u32
    }

    pub(super) fn seat(&self) -> &Arc<Seat> {
        &self.seat
    }

    /// Runs a command on the engine, between two steps.
    ///
    /// The engine's lifetime is the command's alone, so that an engine stays with its tables:
    ///
    /// ```compile_fail
    /// use warpbell_soft_hca::shell::{HcaOptions, SoftHca};
    ///
    /// let one = SoftHca::new(HcaOptions::default());
    /// let other = SoftHca::new(HcaOptions::default());
    /// let swap = one.command(|ours| other.command(|theirs| std::mem::swap(ours, theirs)));
    /// ```
    ///
    /// It must not call the same HCA again: that would wait for itself.
    ///
    /// # Errors
    /// [`HcaError::Stopped`] or [`HcaError::Panicked`] if there is no engine any more.
    pub fn command<R>(
        &self,
        command: impl FnOnce(&mut HostEngine<'_>) -> R,
    ) -> Result<R, HcaError> {
        guarded(&mut self.seat.lock(), |machine| {
            // Memory may be free after a command.
            machine.engine.memory().settle();
            let result = command(&mut machine.engine);
            // It may have stepped the engine.
            machine.with_links(|links| links.end_step());
            result
        })
    }

    /// Does one bounded piece of work, now by the clock; gives the number of
    /// things done.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub fn step(&self) -> Result<usize, HcaError> {
        self.step_at(bell::clock_ns())
    }

    /// Does a [`step`](Self::step) beside the thread that drives it, if nobody is at work on it: for a thread that has
    /// just posted, or waits for a completion. It never waits; gives the number of things done.
    ///
    /// As long as somebody helps, the driving thread looks at the doorbells less often.
    pub fn help(&self) -> usize {
        self.seat.help()
    }

    /// As [`step`](Self::step), with a clock of the caller's, in nanoseconds. It
    /// must not go back, so nobody mixes it with `step` or with a driver.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub fn step_at(&self, now_ns: u64) -> Result<usize, HcaError> {
        guarded(&mut self.seat.lock(), |machine| step(machine, now_ns))
    }

    /// Stops it for ever, as if the machine had lost its power: queues stay as
    /// they are, peers get no answer. All memory that it used is free after this.
    pub fn kill(&self) {
        let mut state = self.seat.lock();
        if matches!(*state, State::Alive(_)) {
            *state = State::Stopped;
        }
    }

    /// Makes the link between two HCAs of this process, if there is none yet.
    /// An HCA reaches itself without one.
    ///
    /// # Errors
    /// As [`command`](Self::command), for either of the two.
    pub fn link(&self, other: &Self) -> Result<(), HcaError> {
        /// Linking takes two commands, between which nobody may link the same two.
        static LINKING: Mutex<()> = Mutex::new(());
        let _alone = LINKING.lock().unwrap_or_else(PoisonError::into_inner);
        if self.path_mtu(other.address)?.is_some() {
            return Ok(());
        }
        let (ours, theirs) = LocalLink::pair();
        self.add(other.address, Link::Local(ours))?;
        other.add(self.address, Link::Local(theirs))
    }

    /// Adds a link to an HCA of another process, see [`offer`](super::offer) and
    /// [`accept`](super::accept).
    ///
    /// # Errors
    /// [`HcaError::LinkedAlready`], and as [`command`](Self::command).
    pub fn attach(&self, link: SharedLink) -> Result<(), HcaError> {
        self.add(link.peer(), Link::Shared(link))
    }

    /// Largest payload of a packet to that HCA, in bytes; none if no link leads
    /// there (any more).
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub fn path_mtu(&self, peer: WireAddress) -> Result<Option<u32>, HcaError> {
        self.with_links(|links| links.path_mtu(peer))
    }

    pub(super) fn with_links<R>(&self, f: impl FnOnce(&mut Links) -> R) -> Result<R, HcaError> {
        guarded(&mut self.seat.lock(), |machine| machine.with_links(f))
    }

    fn add(&self, peer: WireAddress, link: Link) -> Result<(), HcaError> {
        let added = self.with_links(|links| links.add(peer, link))?;
        if added {
            Ok(())
        } else {
            Err(HcaError::LinkedAlready {
                own: self.address.0,
                peer: peer.0,
            })
        }
    }
}

impl Drop for SoftHca {
    fn drop(&mut self) {
        self.kill();
    }
}

impl std::fmt::Debug for SoftHca {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SoftHca")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::Driver;
    use std::time::{Duration, Instant};

    #[test]
    fn addresses_differ() {
        let hcas = [0; 100].map(|_| SoftHca::new(HcaOptions::default()));
        for (index, one) in hcas.iter().enumerate() {
            for other in &hcas[..index] {
                assert_ne!(one.address(), other.address());
            }
        }
    }

    #[test]
    fn a_panic_ends_the_hca_and_not_the_thread() {
        let hca = SoftHca::new(HcaOptions::default());
        let panic = hca
            .command(|_| std::panic!("deliberate {}", 7))
            .unwrap_err();
        for error in [
            panic,
            hca.command(|_| ()).unwrap_err(),
            hca.step().unwrap_err(),
        ] {
            assert!(
                matches!(&error, HcaError::Panicked(message) if message == "deliberate 7"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_killed_hca_answers_stopped_and_is_forgotten_by_its_peer() {
        let (one, other) = (
            SoftHca::new(HcaOptions::default()),
            SoftHca::new(HcaOptions::default()),
        );
        one.link(&other).unwrap();
        one.link(&other).unwrap();
        assert!(one.path_mtu(other.address()).unwrap().is_some());
        other.kill();
        assert!(matches!(other.command(|_| ()), Err(HcaError::Stopped)));
        assert!(matches!(one.link(&other), Ok(())), "still known");
        one.step().unwrap();
        assert_eq!(one.path_mtu(other.address()).unwrap(), None);
        assert!(matches!(one.link(&other), Err(HcaError::Stopped)));
    }

    /// Whoever links first: both get the one link, whole.
    #[test]
    fn two_threads_that_link_the_same_hcas_get_one_link() {
        for _ in 0..300 {
            let (one, other) = (
                SoftHca::new(HcaOptions::default()),
                SoftHca::new(HcaOptions::default()),
            );
            let start = std::sync::Barrier::new(2);
            let link = |from: &SoftHca, to: &SoftHca| {
                start.wait();
                from.link(to)
            };
            std::thread::scope(|scope| {
                let there = scope.spawn(|| link(&one, &other));
                let back = scope.spawn(|| link(&other, &one));
                there.join().unwrap().unwrap();
                back.join().unwrap().unwrap();
            });
            for _ in 0..2 {
                one.step().unwrap();
                other.step().unwrap();
            }
            assert!(one.path_mtu(other.address()).unwrap().is_some());
            assert!(other.path_mtu(one.address()).unwrap().is_some());
        }
    }

    #[test]
    fn a_table_that_is_full_says_so() {
        let options = HcaOptions {
            protection_domains: 2,
            ..HcaOptions::default()
        };
        let hca = SoftHca::new(options);
        let create = || {
            hca.command(|engine| engine.create_protection_domain())
                .unwrap()
        };
        assert!(create().is_ok() && create().is_ok());
        assert_eq!(create(), Err(CommandError::TableFull));
    }

    /// The thread holds the lock most of the time; a command still gets its turn.
    #[test]
    fn commands_do_not_starve_while_a_thread_drives() {
        let driver = Driver::spawn().unwrap();
        let hca = SoftHca::new(HcaOptions::default());
        driver.drive(&hca);
        let (done, finished) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    hca.command(|_| ()).unwrap();
                }
                done.send(()).unwrap();
            });
            finished
                .recv_timeout(Duration::from_secs(300))
                .expect("every command gets its turn");
        });
    }

    /// Who helps never waits, and what he came for is not forgotten.
    #[test]
    fn help_that_finds_another_at_work_is_remembered_by_that_one() {
        let hca = SoftHca::new(HcaOptions::default());
        hca.help();
        assert!(hca.seat.was_helped() && !hca.seat.was_helped());
        assert!(!hca.seat.is_due());
        hca.command(|_| std::thread::scope(|scope| drop(scope.spawn(|| hca.help()))))
            .unwrap();
        assert!(!hca.seat.was_helped());
        assert!(hca.seat.is_due() && !hca.seat.is_due());
        hca.kill();
        hca.help();
    }

    #[test]
    fn a_driver_lets_go_of_an_hca_that_stopped() {
        let driver = Driver::spawn().unwrap();
        let hca = SoftHca::new(HcaOptions::default());
        driver.drive(&hca);
        let seat = Arc::downgrade(hca.seat());
        drop(hca);
        let deadline = Instant::now() + Duration::from_secs(300);
        while seat.strong_count() > 0 {
            assert!(Instant::now() < deadline, "the driver keeps it");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
