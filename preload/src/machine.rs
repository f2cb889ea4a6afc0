//! The software HCA behind the device: one for the process, which a thread drives.

use std::sync::OnceLock;

use warpbell_soft_hca::engine::{CommandError, WireAddress};
use warpbell_soft_hca::shell::{Driver, HcaError, HcaOptions, HostEngine, SoftHca};

use crate::attributes::Errno;

/// Where it says `off`, there is no engine: what is posted stays as posted.
const VARIABLE: &str = "WARPBELL_ENGINE";

/// The HCA and its thread.
pub struct Machine {
    hca: SoftHca,
    _driver: Driver,
}

/// The process's HCA, started by the first call; none where the environment wants none.
pub fn machine() -> Result<Option<&'static Machine>, Errno> {
    static MACHINE: OnceLock<Result<Option<Machine>, Errno>> = OnceLock::new();
    let started = MACHINE.get_or_init(|| {
        if std::env::var_os(VARIABLE).is_some_and(|value| value == "off") {
            return Ok(None);
        }
        let hca = SoftHca::new(HcaOptions::default());
        let driver = Driver::spawn().map_err(|error| errno(&error))?;
        driver.drive(&hca);
        Ok(Some(Machine {
            hca,
            _driver: driver,
        }))
    });
    started.as_ref().map(Option::as_ref).map_err(|error| *error)
}

impl Machine {
    /// Gives the engine commands.
    pub fn command<R>(
        &self,
        give: impl FnOnce(&mut HostEngine<'_>) -> Result<R, CommandError>,
    ) -> Result<R, Errno> {
        let given = self.hca.command(give).map_err(|error| errno(&error))?;
        given.map_err(refusal)
    }

    /// Its address on its wires.
    pub fn address(&self) -> WireAddress {
        self.hca.address()
    }

    /// The largest packet that it sends to itself, in bytes.
    pub fn own_mtu(&self) -> Result<u32, Errno> {
        let mtu = self
            .hca
            .path_mtu(self.hca.address())
            .map_err(|error| errno(&error))?;
        mtu.ok_or(Errno(libc::EHOSTUNREACH))
    }
}

/// The error number of an HCA that did not do what it was asked to.
fn errno(error: &HcaError) -> Errno {
    Errno(match error {
        HcaError::Thread(_) => libc::EAGAIN,
        _ => libc::EIO,
    })
}

/// The error number of a command that the engine refused.
fn refusal(error: CommandError) -> Errno {
    Errno(match error {
        CommandError::TableFull => libc::ENOMEM,
        CommandError::InUse => libc::EBUSY,
        _ => libc::EINVAL,
    })
}
