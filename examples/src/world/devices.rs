//! The devices of a connection's two ends.

use std::sync::Arc;

use warpbell_host_init::{self as host_init, Device, Drive, SoftOptions};
use warpbell_soft_hca::shell::{Driver, HcaOptions, LateStores, RequestWatch, WatchLimits};

use crate::Error;

/// What opens the devices of both ends of a connection.
#[derive(Clone, Debug)]
pub enum Devices {
    /// Each end has one of its own. One thread drives all, which leaves a core to the kernels where there
    /// are only two.
    Driven {
        /// That thread.
        driver: Arc<Driver>,
        /// Whether somebody looks at their requests.
        watch: bool,
    },
    /// Both ends have the same.
    One(Device),
}

impl Devices {
    /// The device of the next end.
    ///
    /// # Errors
    /// What [`Device::open`] refuses.
    pub fn open(&self) -> Result<Device, Error> {
        self.open_with(None)
    }

    /// The same with a fault: what comes to its memory shows late.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`Error::NoLateStores`] for a NIC that has no such fault.
    pub fn open_with(&self, late_stores: Option<LateStores>) -> Result<Device, Error> {
        match self {
            Self::One(_) if late_stores.is_some() => Err(Error::NoLateStores),
            Self::One(device) => Ok(device.clone()),
            Self::Driven {
                driver,
                watch: watched,
            } => {
                let options = SoftOptions {
                    drive: Drive::Shared(driver.clone()),
                    hca: HcaOptions {
                        late_stores,
                        watch: watched.then(watch),
                        ..HcaOptions::default()
                    },
                    ..SoftOptions::default()
                };
                Ok(Device::open(host_init::Nic::Soft(options))?)
            }
        }
    }
}

/// A watch over the requests of an HCA, which tells of them on stderr.
pub(super) fn watch() -> RequestWatch {
    RequestWatch::telling(WatchLimits::default(), |advice| eprintln!("{advice}"))
}
