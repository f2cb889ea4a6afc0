//! Lanes of active messages, and what is registered at their target, for kernels that use [`crate::active`].

mod config;
mod end;
mod error;
mod initiator;
#[cfg(feature = "ranks")]
mod rank;
mod registry;

use crate::active::{Buffer as BufferNumber, Function, InitiatorHandle, TargetHandle};

use crate::Error;
use warpbell_host_init::{MemoryRegion, ProtectionDomain, QueuePair};

pub use config::ActiveConfig;
pub use error::ActiveError;
#[cfg(feature = "ranks")]
pub use rank::ActiveRank;

use end::End;
use initiator::Initiator;
use registry::Registry;

/// Lanes between an initiator and a target in this process, each of a domain of its own or both of one, and the
/// functions and buffers that the target has registered.
///
/// ```
/// use warpbell_patterns::active::Error as Refused;
/// use warpbell::{Deadline, Thread};
/// use warpbell_patterns::active::host::{ActiveConfig, ActiveMessages};
/// use warpbell_host_init::soft::SoftOptions;
/// use warpbell_patterns::Error;
/// use warpbell_host_init::{Device, Nic};
///
/// const ADD: u32 = 3;
///
/// fn main() -> Result<(), Error> {
///     let device = Device::open(Nic::Soft(SoftOptions::default()))?;
///     let (near, far) = (device.protection_domain()?, device.protection_domain()?);
///     let mut active = ActiveMessages::new(&near, &far, &ActiveConfig::default())?;
///     active.register(ADD, 2)?;
///
///     // What a kernel of the initiator does:
///     let limit = Deadline::after_ms(5000);
///     let mut lane = active.initiator().lane::<Thread>(0).expect("a lane");
///     let sum = lane.send(ADD, 0, [40, 2], limit).expect("room");
///     let unknown = lane.send(ADD + 1, 0, [], limit).expect("room");
///
///     // What one of the target does:
///     let mut server = active.target().serve::<Thread>(0).expect("a lane");
///     let task = server.next(limit).expect("a task");
///     let value = (task.argument(0) + task.argument(1)) as u32;
///     server.answer(task, Ok(value), limit).expect("room");
///     assert!(server.next(Deadline::after_ms(100)).is_err(), "the other is refused");
///
///     assert_eq!(lane.wait(sum, limit), Ok(42));
///     let refused = Refused::NotRegistered { function: ADD + 1 };
///     assert_eq!(lane.wait(unknown, limit), Err(refused));
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct ActiveMessages {
    config: ActiveConfig,
    initiator: Initiator,
    target: End,
    domains: [ProtectionDomain; 2],
    registry: Registry,
}

impl ActiveMessages {
    /// Makes and connects the lanes. Nothing is registered yet.
    ///
    /// # Errors
    /// [`Error::Active`] for numbers that are refused; those of [`ProtectionDomain::connected`] and
    /// [`ProtectionDomain::register`].
    pub fn new(
        initiator: &ProtectionDomain,
        target: &ProtectionDomain,
        config: &ActiveConfig,
    ) -> Result<Self, Error> {
        config.check()?;
        let pairs = (0..config.lanes).map(|_| initiator.connected(target, &config.queue_pair()));
        let pairs: Result<(Vec<_>, Vec<_>), warpbell_host_init::Error> = pairs.collect();
        let (near, far) = pairs?;
        let mut active = Self {
            config: *config,
            initiator: Initiator::new(initiator, config, near)?,
            target: End::of_target(target, config, far)?,
            domains: [initiator.clone(), target.clone()],
            registry: Registry::new(target, config)?,
        };
        active.initiator.end.set_remote(active.target.place());
        active.target.set_remote(active.initiator.end.place());
        Ok(active)
    }

    /// How many lanes there are.
    pub fn lanes(&self) -> u32 {
        self.config.lanes
    }

    /// Registers a function of the target's kernels under a number, with so many arguments.
    ///
    /// # Errors
    /// [`ActiveError::NoSuchFunction`] without a place for it; [`ActiveError::FunctionExists`];
    /// [`ActiveError::Arguments`].
    pub fn register(&mut self, function: Function, arguments: u32) -> Result<(), Error> {
        self.registry.register(function, arguments)
    }

    /// Takes a function away: tasks that name it are refused from the next kernels on.
    ///
    /// # Errors
    /// [`ActiveError::NoSuchFunction`].
    pub fn deregister(&mut self, function: Function) -> Result<(), Error> {
        self.registry.deregister(function)
    }

    /// Registers a buffer of `bytes` bytes at the target under a number, all zero, where the queues lie: for payloads.
    ///
    /// # Errors
    /// [`ActiveError::NoSuchBuffer`] without a place for it; [`ActiveError::BufferExists`]; those of
    /// [`ProtectionDomain::register`].
    pub fn register_buffer(&mut self, buffer: BufferNumber, bytes: usize) -> Result<(), Error> {
        let entry = self.registry.register_buffer(buffer, bytes)?;
        self.initiator.describe(buffer as usize, entry)
    }

    /// A buffer of the target.
    ///
    /// # Errors
    /// [`ActiveError::NoSuchBuffer`].
    pub fn buffer(&self, buffer: BufferNumber) -> Result<&MemoryRegion, Error> {
        self.registry.buffer(buffer)
    }

    /// What the kernels of the initiator get. It borrows the lanes, which therefore outlive them and do not change
    /// under them.
    pub fn initiator(&self) -> InitiatorHandle<'_> {
        self.initiator.handle()
    }

    /// What the kernels of the target get, likewise.
    pub fn target(&self) -> TargetHandle<'_> {
        self.registry.handle(&self.target)
    }

    /// Makes a lane usable after an error, with new queue pairs. Messages that were not answered are forgotten at both
    /// ends.
    ///
    /// # Errors
    /// [`ActiveError::NoSuchLane`]; those of [`ProtectionDomain::connected`].
    pub fn renew(&mut self, lane: u32) -> Result<(), Error> {
        let lane = self.config.place_of(lane)?;
        let [near, far] = &self.domains;
        let (near, far) = near.connected(far, &self.config.queue_pair())?;
        self.initiator.end.renew(lane, near)?;
        self.target.renew(lane, far)
    }

    /// The queue pairs of all lanes, at both ends: for a [`Watch`](warpbell_host_init::cuda::Watch) over kernels, and
    /// for what they did.
    pub fn queue_pairs(&self) -> impl Iterator<Item = &QueuePair> {
        self.initiator.end.pairs().iter().chain(self.target.pairs())
    }

    /// Lets a lane fail, as an error would.
    #[cfg(test)]
    pub(crate) fn break_lane(&mut self, lane: u32) {
        self.initiator.end.break_lane(lane as usize);
    }
}
