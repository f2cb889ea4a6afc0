//! What a user chooses: the wire, and the address of a software NIC.

use std::env;
use std::fmt;
#[cfg(feature = "soft")]
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
#[cfg(feature = "soft")]
use warpbell_soft_hca::shell::roce::Addresses;

use super::WorldError;

/// The way from the NIC of one rank to that of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WireKind {
    /// Memory that two processes of one machine and one user share.
    SharedMemory,
    /// RoCE v2 packets of software NICs.
    RoceV2,
    /// The network of the cards.
    Cards,
}

impl fmt::Display for WireKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SharedMemory => "shared memory",
            Self::RoceV2 => "RoCE v2",
            Self::Cards => "cards",
        })
    }
}

/// The variable with addresses.
#[cfg(feature = "soft")]
const ADDRESS: &str = "WARPBELL_ADDRESS";
/// The variable with a wire.
const WIRE: &str = "WARPBELL_WIRE";

/// The variable with a folder for captures.
#[cfg(feature = "soft")]
const CAPTURE: &str = "WARPBELL_CAPTURE";

/// How a [`World`](super::World) is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorldOptions {
    /// How long each step may take, from the first one on: one with the others takes as long as the slowest rank.
    pub timeout: Duration,
    /// The wire between the software NICs of all ranks. By default it is chosen for each two ranks: shared memory within
    /// one machine, otherwise RoCE v2.
    pub wire: Option<WireKind>,
    /// Which IP addresses of this machine a software NIC may listen at for RoCE v2. By default all.
    #[cfg(feature = "soft")]
    pub addresses: Option<Addresses>,
    /// The folder for a capture of RoCE packets, a file for each rank: `rank-0.pcapng`, or
    /// `rank-0-1.pcapng` and so on where that is there already. By default there is none.
    #[cfg(feature = "soft")]
    pub capture: Option<PathBuf>,
}

impl WorldOptions {
    /// With this timeout, and the rest chosen.
    pub const fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            wire: None,
            #[cfg(feature = "soft")]
            addresses: None,
            #[cfg(feature = "soft")]
            capture: None,
        }
    }

    /// With this timeout, and what the variables `WARPBELL_WIRE` (`shm` or `roce`) and `WARPBELL_ADDRESS` say (IP
    /// addresses, networks and interfaces, with commas between them), and `WARPBELL_CAPTURE` (a folder).
    ///
    /// # Errors
    /// [`WorldError::BadValue`] and [`WorldError::BadAddress`].
    pub fn from_env(timeout: Duration) -> Result<Self, WorldError> {
        Self::read(timeout, |variable| {
            let value = env::var_os(variable)?;
            Some(value.to_string_lossy().into_owned())
        })
    }

    fn read(
        timeout: Duration,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, WorldError> {
        // As `warpbell-ranks` has it: one that is set to nothing counts as not set.
        let value = |name| variable(name).filter(|value| !value.is_empty());
        let wire = value(WIRE).map(|value| match &*value {
            "shm" => Ok(WireKind::SharedMemory),
            "roce" => Ok(WireKind::RoceV2),
            _ => Err(WorldError::BadValue {
                variable: WIRE,
                value,
                expected: "shm or roce",
            }),
        });
        #[cfg(feature = "soft")]
        let addresses = value(ADDRESS).map(|value| value.parse());
        Ok(Self {
            timeout,
            wire: wire.transpose()?,
            #[cfg(feature = "soft")]
            addresses: addresses.transpose()?,
            #[cfg(feature = "soft")]
            capture: value(CAPTURE).map(PathBuf::from),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_read_and_wrong_ones_named() {
        let read = |name: &'static str, text: &'static str| {
            WorldOptions::read(Duration::ZERO, |asked| (asked == name).then(|| text.into()))
        };
        let wire = |text| read(WIRE, text).unwrap().wire;
        assert_eq!(wire("shm"), Some(WireKind::SharedMemory));
        assert_eq!(wire("roce"), Some(WireKind::RoceV2));
        assert_eq!(wire(""), None);
        let addresses = read(ADDRESS, "10.0.0.0/8,eth0").unwrap().addresses;
        assert_eq!(addresses, Some("10.0.0.0/8,eth0".parse().unwrap()));
        for (name, text, expected) in [
            (
                WIRE,
                "SHM",
                "WARPBELL_WIRE is \"SHM\"; it must be shm or roce",
            ),
            (
                ADDRESS,
                "10.0.0.0/33",
                "WARPBELL_ADDRESS: \"10.0.0.0/33\" is no IP address",
            ),
        ] {
            let error = read(name, text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
