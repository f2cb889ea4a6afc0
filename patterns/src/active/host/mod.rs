//! Lanes of active messages, and what is registered at their target, for kernels that use [`crate::active`].

mod config;
mod end;
mod error;
mod initiator;
mod launched;
#[cfg(feature = "ranks")]
mod rank;
mod registry;

use crate::active::{Buffer as BufferNumber, Function, InitiatorHandle, TargetHandle};

use crate::Error;
use warpbell_host_init::{MemoryRegion, ProtectionDomain, QueuePair, QueuePairConfig, connect};

pub use config::ActiveConfig;
pub use error::ActiveError;
pub use launched::{TaskKernels, TaskRecord};
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
    /// The same, with the target's queue pairs.
    target_config: ActiveConfig,
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
        Self::with_target(initiator, target, config, config.queue_pair)
    }

    /// The same with other queue pairs at the target: where a thread of the host serves the lanes of a kernel, they and
    /// their state are where that thread reaches them.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_target(
        initiator: &ProtectionDomain,
        target: &ProtectionDomain,
        config: &ActiveConfig,
        target_pairs: QueuePairConfig,
    ) -> Result<Self, Error> {
        let target_config = ActiveConfig {
            queue_pair: target_pairs,
            ..*config
        };
        config.check()?;
        target_config.check()?;
        let domains = [initiator.clone(), target.clone()];
        let pairs = (0..config.lanes).map(|_| pair(&domains, config, &target_config));
        let pairs: Result<(Vec<_>, Vec<_>), Error> = pairs.collect();
        let (near, far) = pairs?;
        let mut active = Self {
            config: *config,
            target_config,
            initiator: Initiator::new(initiator, config, near)?,
            target: End::of_target(target, &target_config, far)?,
            domains,
            registry: Registry::new(target, &target_config)?,
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

    /// The functions that are registered, by number.
    pub fn functions(&self) -> impl Iterator<Item = Function> {
        self.registry.functions()
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
        let (near, far) = pair(&self.domains, &self.config, &self.target_config)?;
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

/// A lane's queue pairs, connected.
fn pair(
    [near, far]: &[ProtectionDomain; 2],
    near_config: &ActiveConfig,
    far_config: &ActiveConfig,
) -> Result<(QueuePair, QueuePair), Error> {
    let mut near = near.queue_pair(&near_config.queue_pair())?;
    let mut far = far.queue_pair(&far_config.queue_pair())?;
    connect(&mut near, &mut far)?;
    Ok((near, far))
}
