//! By which wires the device reaches others: shared memory to processes of this machine, and RoCE v2 from the addresses
//! that the environment names.

use std::env;
use std::sync::OnceLock;

use thiserror::Error;
use warpbell_soft_hca::shell::roce::{self, Addresses, AddressesError, LocalAddress};

use crate::link_mtu::link_mtu;

/// From where the device speaks RoCE v2: [`Addresses`].
const ADDRESSES: &str = "WARPBELL_ADDRESS";
/// Forces one wire: `shm` or `roce`.
const FORCED: &str = "WARPBELL_WIRE";

/// The wires of this process's device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wires {
    /// Processes of this machine are reached by shared memory.
    pub shared: bool,
    /// The addresses of IPv4, and those of IPv6, that RoCE may have. It takes the first of each that no other process
    /// has.
    pub roce: [Vec<LocalAddress>; 2],
}

/// Why there are no wires.
#[derive(Debug, Error)]
pub enum WiresError {
    #[error("{FORCED} is {0}; it can be shm or roce")]
    UnknownWire(String),
    #[error("{FORCED} is roce, but {ADDRESSES} names no address, network or interface")]
    NoAddress,
    #[error("{ADDRESSES}: {0}")]
    Addresses(#[from] AddressesError),
}

/// The wires that the environment asks for.
///
/// # Errors
/// The environment asks for a wire that cannot be.
pub fn wires() -> &'static Result<Wires, WiresError> {
    static WIRES: OnceLock<Result<Wires, WiresError>> = OnceLock::new();
    WIRES.get_or_init(|| {
        let told = [ADDRESSES, FORCED].map(|name| env::var_os(name).unwrap_or_default());
        let [addresses, forced] = told.each_ref().map(|value| value.to_string_lossy());
        Wires::chosen(&addresses, &forced)
    })
}

impl Wires {
    fn chosen(addresses: &str, forced: &str) -> Result<Self, WiresError> {
        let (shared, wanted) = match forced {
            "" => (true, !addresses.is_empty()),
            "shm" => (true, false),
            "roce" if addresses.is_empty() => return Err(WiresError::NoAddress),
            "roce" => (false, true),
            other => return Err(WiresError::UnknownWire(other.to_owned())),
        };
        let found = match wanted {
            true => addresses.parse::<Addresses>()?.find()?,
            false => Vec::new(),
        };
        let (v6, v4) = found.into_iter().partition(|address| address.ip.is_ipv6());
        Ok(Self {
            shared,
            roce: [v4, v6],
        })
    }

    /// All addresses that RoCE may have.
    fn candidates(&self) -> impl Iterator<Item = &LocalAddress> {
        self.roce.iter().flatten()
    }

    /// The address of each kind that RoCE has unless another process has it.
    pub fn first(&self) -> impl Iterator<Item = &LocalAddress> {
        self.roce.iter().filter_map(|family| family.first())
    }

    /// The largest path MTU that all interfaces of RoCE carry, in bytes; none without RoCE. An interface that carries no
    /// path MTU counts as one with the least: each way over it is refused later.
    pub fn mtu(&self) -> Option<u32> {
        let of_link = |address: &LocalAddress| {
            let link = link_mtu(&address.interface).unwrap_or_default();
            roce::path_mtu_of_link(link, address.ip).unwrap_or(roce::LEAST_MTU)
        };
        self.candidates().map(of_link).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is chosen: whether there is shared memory, and the addresses.
    fn chosen(addresses: &str, forced: &str) -> Result<(bool, Vec<String>), String> {
        let wires = Wires::chosen(addresses, forced).map_err(|e| e.to_string())?;
        let texts = wires.candidates().map(|address| address.ip.to_string());
        Ok((wires.shared, texts.collect()))
    }

    #[test]
    fn a_wire_can_be_forced() {
        let address = vec!["127.0.0.9".to_owned()];
        assert_eq!(chosen("", ""), Ok((true, vec![])));
        assert_eq!(chosen("127.0.0.9", ""), Ok((true, address.clone())));
        assert_eq!(chosen("127.0.0.9", "roce"), Ok((false, address)));
        assert_eq!(chosen("127.0.0.9", "shm"), Ok((true, vec![])));
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (addresses, forced, words) in [
            ("", "roce", "WARPBELL_ADDRESS names no address"),
            ("lo", "ib", "WARPBELL_WIRE is ib"),
            ("none:", "", "WARPBELL_ADDRESS: \"none:\" is no IP address"),
            (
                "192.0.2.1",
                "",
                "WARPBELL_ADDRESS: \"192.0.2.1\" is no address",
            ),
        ] {
            let said = chosen(addresses, forced).unwrap_err();
            assert!(said.contains(words), "{said}");
        }
    }
}
