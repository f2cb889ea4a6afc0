//! What a user chooses: the wire, and the address of a software NIC.

use std::env;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

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

/// Which IP addresses of a machine count.
///
/// ```
/// use warpbell_host_init::world::Addresses;
///
/// let network: Addresses = "10.1.0.0/16".parse()?;
/// assert_eq!(network, Addresses::Network([10, 1, 0, 0].into(), 16));
/// # Ok::<(), warpbell_host_init::world::WorldError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// Those whose first bits, so many, are the ones of this address.
    Network(IpAddr, u8),
    /// Those of this interface.
    Interface(String),
}

/// The bits of an address, from the first on, and how many there are.
fn bits(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

/// Whether two addresses are in one network, whose prefix has so many bits.
pub(super) fn one_network(one: IpAddr, other: IpAddr, prefix: u8) -> bool {
    let ((ours, length), (theirs, _)) = (bits(one), bits(other));
    let prefix = u32::from(prefix.min(length));
    let behind = |value: u128| value.checked_shr(128 - prefix).unwrap_or(0);
    one.is_ipv4() == other.is_ipv4() && behind(ours) == behind(theirs)
}

impl Addresses {
    /// Whether an interface's address is one of them.
    pub(super) fn contain(&self, interface: &str, address: IpAddr) -> bool {
        match self {
            Self::Network(network, prefix) => one_network(*network, address, *prefix),
            Self::Interface(name) => name == interface,
        }
    }
}

/// The variable with addresses.
const ADDRESS: &str = "WARPBELL_ADDRESS";
/// The variable with a wire.
const WIRE: &str = "WARPBELL_WIRE";

impl FromStr for Addresses {
    type Err = WorldError;

    /// Reads an address, a network such as `10.1.0.0/16`, or the name of an interface.
    fn from_str(text: &str) -> Result<Self, WorldError> {
        let bad = || WorldError::BadValue {
            variable: ADDRESS,
            value: text.into(),
            expected: "an IP address, a network such as 10.1.0.0/16, or the name of an interface",
        };
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Network(address, bits(address).1));
        }
        if let Some((address, prefix)) = text.split_once('/') {
            let address: IpAddr = address.parse().map_err(|_| bad())?;
            let prefix = prefix.parse().ok().filter(|&p: &u8| p <= bits(address).1);
            return Ok(Self::Network(address, prefix.ok_or_else(bad)?));
        }
        // What Linux allows as a name (`dev_valid_name`).
        let named = (1..16).contains(&text.len()) && !text.contains([':', ' ']);
        named.then(|| Self::Interface(text.into())).ok_or_else(bad)
    }
}

/// How a [`World`](super::World) is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorldOptions {
    /// How long each step may take, from the first one on: one with the others takes as long as the slowest rank.
    pub timeout: Duration,
    /// The wire between the software NICs of all ranks. By default it is chosen for each two ranks: shared memory within
    /// one machine, otherwise RoCE v2.
    pub wire: Option<WireKind>,
    /// Which IP addresses of this machine a software NIC may listen at for RoCE v2. By default all.
    pub addresses: Option<Addresses>,
}

impl WorldOptions {
    /// With this timeout, and the rest chosen.
    pub const fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            wire: None,
            addresses: None,
        }
    }

    /// With this timeout, and what the variables `WARPBELL_WIRE` (`shm` or `roce`) and `WARPBELL_ADDRESS` say (an IP
    /// address, a network or an interface).
    ///
    /// # Errors
    /// [`WorldError::BadValue`].
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
        let addresses = value(ADDRESS).map(|value| value.parse());
        Ok(Self {
            timeout,
            wire: wire.transpose()?,
            addresses: addresses.transpose()?,
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
        let addresses = |text| read(ADDRESS, text).unwrap().addresses.unwrap();
        for (text, expected) in [
            ("10.0.0.1", Addresses::Network([10, 0, 0, 1].into(), 32)),
            ("10.0.0.0/8", Addresses::Network([10, 0, 0, 0].into(), 8)),
            ("::1", Addresses::Network("::1".parse().unwrap(), 128)),
            ("eth0", Addresses::Interface("eth0".into())),
        ] {
            assert_eq!(addresses(text), expected, "{text}");
        }
        for (name, text, expected) in [
            (
                WIRE,
                "SHM",
                "WARPBELL_WIRE is \"SHM\"; it must be shm or roce",
            ),
            (
                ADDRESS,
                "10.0.0.0/33",
                "WARPBELL_ADDRESS is \"10.0.0.0/33\"",
            ),
            (ADDRESS, "eth/0", "WARPBELL_ADDRESS is \"eth/0\""),
            (ADDRESS, "node7:4791", "WARPBELL_ADDRESS is \"node7:4791\""),
            (ADDRESS, "a-name-far-too-long", "WARPBELL_ADDRESS is"),
        ] {
            let error = read(name, text).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn a_prefix_says_which_addresses_are_in_one_network() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        for (one, other, prefix, same) in [
            ("10.0.0.1", "10.0.255.1", 16, true),
            ("10.0.0.1", "10.1.0.1", 16, false),
            ("10.0.0.1", "11.0.0.1", 0, true),
            ("10.0.0.1", "10.0.0.2", 32, false),
            ("10.0.0.1", "10.0.0.1", 32, true),
            ("fd00::1", "fd00::2", 64, true),
            ("fd00::1", "fd00::2", 128, false),
            ("::", "0.0.0.0", 0, false),
        ] {
            let found = one_network(ip(one), ip(other), prefix);
            assert_eq!(found, same, "{one} {other} {prefix}");
        }
    }
}
