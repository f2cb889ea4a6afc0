//! Two ends in this process, connected.

use warpbell_host_init::{Access, Device, ProtectionDomain, QueuePair, QueuePairConfig, connect};

use crate::Error;
use crate::memory::Memory;
use crate::world::{Devices, World};

/// One end of a connection.
#[derive(Debug)]
pub struct End {
    /// Where its memory is registered.
    pub domain: ProtectionDomain,
    /// Its queues.
    pub pair: QueuePair,
    /// Where its kernels run.
    pub world: World,
    receive_depth: u32,
}

impl End {
    /// Makes a queue pair of this device.
    ///
    /// # Errors
    /// What [`ProtectionDomain::queue_pair`] refuses.
    pub fn new(world: &World, device: &Device, config: &QueuePairConfig) -> Result<Self, Error> {
        let domain = device.protection_domain()?;
        let pair = domain.queue_pair(config)?;
        Ok(Self {
            domain,
            pair,
            world: *world,
            receive_depth: config.receive_depth,
        })
    }

    /// Registers memory that this end's kernels and its NIC reach.
    ///
    /// # Errors
    /// As [`Memory::new`].
    pub fn memory(&self, bytes: usize) -> Result<Memory, Error> {
        Ok(Memory::new(
            &self.domain,
            self.world.nic_placement(),
            bytes,
        )?)
    }

    /// How many receives its queue holds.
    pub fn receive_depth(&self) -> u64 {
        self.receive_depth.into()
    }
}

/// Two ends, connected.
#[derive(Debug)]
pub struct Ends {
    /// One end.
    pub one: End,
    /// The other end.
    pub other: End,
    devices: Devices,
    config: QueuePairConfig,
}

impl Ends {
    /// Opens and connects them.
    ///
    /// # Errors
    /// As [`World::devices`], [`Devices::open`], [`End::new`] and [`connect`].
    pub fn new(world: &World, config: &QueuePairConfig) -> Result<Self, Error> {
        let devices = world.devices()?;
        Self::between(
            world,
            &devices,
            [&devices.open()?, &devices.open()?],
            config,
        )
    }

    /// The same so many times, between the same two devices.
    ///
    /// # Errors
    /// As [`Devices::open`], [`End::new`] and [`connect`].
    pub fn several(
        world: &World,
        devices: &Devices,
        config: &QueuePairConfig,
        count: usize,
    ) -> Result<Vec<Self>, Error> {
        let (near, far) = (devices.open()?, devices.open()?);
        let ends = || Self::between(world, devices, [&near, &far], config);
        (0..count).map(|_| ends()).collect()
    }

    fn between(
        world: &World,
        devices: &Devices,
        [near, far]: [&Device; 2],
        config: &QueuePairConfig,
    ) -> Result<Self, Error> {
        let mut one = End::new(world, near, config)?;
        let mut other = End::new(world, far, config)?;
        connect(&mut one.pair, &mut other.pair)?;
        Ok(Self {
            one,
            other,
            devices: devices.clone(),
            config: *config,
        })
    }

    /// Where the kernels of both run.
    pub fn world(&self) -> &World {
        &self.one.world
    }

    /// Resets both queue pairs and connects them again.
    ///
    /// # Errors
    /// A device has stopped.
    pub fn reset(&mut self) -> Result<(), Error> {
        self.one.pair.reset()?;
        self.other.pair.reset()?;
        connect(&mut self.one.pair, &mut self.other.pair)?;
        Ok(())
    }

    /// Takes the second end away, so that nobody answers the first one.
    ///
    /// # Errors
    /// A device has stopped.
    pub fn lose_other(&mut self) -> Result<(), Error> {
        match self.other.domain.device().soft_hca() {
            Some(hca) => hca.kill(),
            // Its device is the first end's, too.
            None => self.other.pair.reset()?,
        }
        Ok(())
    }

    /// Gives the first end another peer.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn replace_other(&mut self) -> Result<(), Error> {
        self.other = End::new(&self.one.world, &self.devices.open()?, &self.config)?;
        self.one.pair.reset()?;
        connect(&mut self.one.pair, &mut self.other.pair)?;
        Ok(())
    }
}

/// A configuration with rings of this depth where kernels and NIC reach them, and room for receives in pieces.
pub fn config(world: &World, depth: u32) -> QueuePairConfig {
    QueuePairConfig {
        placement: world.nic_placement(),
        send_depth: depth,
        receive_depth: depth,
        receive_segments: warpbell_kernels::demo::PIECES as u32,
        // The other end writes, reads and adds.
        ..QueuePairConfig::granting(
            Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
        )
    }
}
