//! Two software HCAs in this process, connected.

use std::sync::Arc;

use warpbell_host_init::{
    Device, Drive, Nic, ProtectionDomain, QueuePair, QueuePairConfig, SoftOptions, connect,
};
use warpbell_soft_hca::shell::Driver;

use crate::Error;
use crate::memory::Memory;
use crate::world::World;

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
    /// Opens a software HCA and makes a queue pair.
    ///
    /// # Errors
    /// What [`Device::open`] and [`ProtectionDomain::queue_pair`] refuse.
    pub fn new(world: &World, drive: Drive, config: &QueuePairConfig) -> Result<Self, Error> {
        let options = SoftOptions {
            drive,
            ..SoftOptions::default()
        };
        let domain = Device::open(Nic::Soft(options))?.protection_domain()?;
        let config = QueuePairConfig {
            placement: world.placement(),
            ..*config
        };
        let pair = domain.queue_pair(&config)?;
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
        Ok(Memory::new(&self.domain, self.world.placement(), bytes)?)
    }

    /// How many receives its queue holds.
    pub fn receive_depth(&self) -> u64 {
        self.receive_depth.into()
    }
}

/// Two ends, each with a software HCA of its own.
#[derive(Debug)]
pub struct Ends {
    /// One end.
    pub one: End,
    /// The other end.
    pub other: End,
    driver: Arc<Driver>,
    config: QueuePairConfig,
}

impl Ends {
    /// Opens and connects them. One thread drives both HCAs, which leaves a core to the kernels where
    /// there are only two.
    ///
    /// # Errors
    /// As [`End::new`] and [`connect`].
    pub fn new(world: &World, config: &QueuePairConfig) -> Result<Self, Error> {
        let driver = Arc::new(Driver::spawn()?);
        let end = || End::new(world, Drive::Shared(driver.clone()), config);
        let (mut one, mut other) = (end()?, end()?);
        connect(&mut one.pair, &mut other.pair)?;
        Ok(Self {
            one,
            other,
            driver,
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

    /// Gives the first end another peer, on an HCA of its own.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn replace_other(&mut self) -> Result<(), Error> {
        let drive = Drive::Shared(self.driver.clone());
        self.other = End::new(&self.one.world, drive, &self.config)?;
        self.one.pair.reset()?;
        connect(&mut self.one.pair, &mut self.other.pair)?;
        Ok(())
    }
}

/// A configuration with rings of this depth, and room for receives in pieces.
pub fn config(depth: u32) -> QueuePairConfig {
    QueuePairConfig {
        send_depth: depth,
        receive_depth: depth,
        receive_segments: warpbell_kernels::demo::PIECES as u32,
        ..QueuePairConfig::default()
    }
}
