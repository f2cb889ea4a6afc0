//! By which wires the device reaches others: shared memory to processes of this machine, and RoCE v2 from the addresses
//! that the environment names.

use std::net::IpAddr;
use std::sync::OnceLock;
use std::{env, io};

use if_addrs::{IfAddr, Interface, get_if_addrs};
use thiserror::Error;
use warpbell_soft_hca::shell::roce;

use crate::link_mtu::link_mtu;

/// IP addresses and network interfaces, with commas between them: from where the device speaks RoCE v2.
const ADDRESSES: &str = "WARPBELL_ROCE";
/// Forces one wire: `shm` or `roce`.
const FORCED: &str = "WARPBELL_WIRE";

/// The wires of this process's device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wires {
    /// Processes of this machine are reached by shared memory.
    pub shared: bool,
    /// The addresses of IPv4, and those of IPv6, that RoCE may have. It takes the first of each that no other process
    /// has.
    pub roce: [Vec<Address>; 2],
}

/// An IP address that RoCE may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    pub ip: IpAddr,
    /// The network interface with this address: its name and its index.
    pub interface: String,
    pub index: u32,
}

/// Why there are no wires.
#[derive(Debug, Error)]
pub enum WiresError {
    #[error("{FORCED} is {0}; it can be shm or roce")]
    UnknownWire(String),
    #[error("{FORCED} is roce, but {ADDRESSES} names no address or network interface")]
    NoAddress,
    #[error("{ADDRESSES} names {0}, which is no address or network interface of this machine")]
    NotHere(String),
    #[error("{ADDRESSES} names {0}, whose addresses are all link-local")]
    LinkLocal(String),
    #[error("the system does not list its network interfaces: {0}")]
    Interfaces(#[from] io::Error),
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
        let interfaces = match addresses.is_empty() {
            true => Vec::new(),
            false => get_if_addrs()?,
        };
        Wires::chosen(&addresses, &forced, &interfaces)
    })
}

impl Wires {
    fn chosen(addresses: &str, forced: &str, interfaces: &[Interface]) -> Result<Self, WiresError> {
        let shared = match forced {
            "" | "shm" => true,
            "roce" => false,
            other => return Err(WiresError::UnknownWire(other.to_owned())),
        };
        let mut chosen = Self {
            shared,
            roce: [Vec::new(), Vec::new()],
        };
        if forced != "shm" {
            let names = addresses.split(',').map(str::trim);
            for name in names.filter(|name| !name.is_empty()) {
                for address in named(name, interfaces)? {
                    let family = &mut chosen.roce[usize::from(address.ip.is_ipv6())];
                    if !family.contains(&address) {
                        family.push(address);
                    }
                }
            }
        }
        match chosen.shared || chosen.candidates().next().is_some() {
            true => Ok(chosen),
            false => Err(WiresError::NoAddress),
        }
    }

    /// All addresses that RoCE may have.
    fn candidates(&self) -> impl Iterator<Item = &Address> {
        self.roce.iter().flatten()
    }

    /// The address of each kind that RoCE has unless another process has it.
    pub fn first(&self) -> impl Iterator<Item = &Address> {
        self.roce.iter().filter_map(|family| family.first())
    }

    /// The largest path MTU that all interfaces of RoCE carry, in bytes; none without RoCE. An interface that carries no
    /// path MTU counts as one with the least: each way over it is refused later.
    pub fn mtu(&self) -> Option<u32> {
        let of_link = |address: &Address| {
            let link = link_mtu(&address.interface).unwrap_or_default();
            roce::path_mtu_of_link(link, address.ip).unwrap_or(roce::LEAST_MTU)
        };
        self.candidates().map(of_link).min()
    }
}

/// The addresses that a name stands for: one address, or all those of an interface.
fn named(name: &str, interfaces: &[Interface]) -> Result<Vec<Address>, WiresError> {
    let not_here = || WiresError::NotHere(name.to_owned());
    if let Ok(ip) = name.parse::<IpAddr>() {
        let mut candidates = interfaces.iter();
        let exact = candidates.find(|interface| interface.ip() == ip);
        let found = exact.or_else(|| interfaces.iter().find(|interface| is_in(ip, interface)));
        return Ok(vec![Address::of(found.ok_or_else(not_here)?, ip)]);
    }
    let of_name = || interfaces.iter().filter(|interface| interface.name == name);
    of_name().next().ok_or_else(not_here)?;
    let usable: Vec<_> = of_name()
        .filter(|interface| !is_link_local(interface.ip()))
        .map(|interface| Address::of(interface, interface.ip()))
        .collect();
    match usable.is_empty() {
        true => Err(WiresError::LinkLocal(name.to_owned())),
        false => Ok(usable),
    }
}

impl Address {
    fn of(interface: &Interface, ip: IpAddr) -> Self {
        Self {
            ip,
            interface: interface.name.clone(),
            index: interface.index.unwrap_or_default(),
        }
    }
}

/// Whether it is an address of the loopback's network, which has all of them.
fn is_in(ip: IpAddr, interface: &Interface) -> bool {
    matches!(interface.addr, IfAddr::V4(_)) && interface.ip().is_loopback() && ip.is_loopback()
}

/// Whether an address of IPv6 holds on one link alone. A GID cannot say on which.
fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    use if_addrs::{IfOperStatus, Ifv4Addr, Ifv6Addr};

    fn interface(name: &str, index: u32, ip: &str) -> Interface {
        let addr = match ip.parse().unwrap() {
            IpAddr::V4(ip) => IfAddr::V4(Ifv4Addr {
                ip,
                netmask: Ipv4Addr::new(255, 0, 0, 0),
                prefixlen: 8,
                broadcast: None,
            }),
            IpAddr::V6(ip) => IfAddr::V6(Ifv6Addr {
                ip,
                netmask: Ipv6Addr::UNSPECIFIED,
                prefixlen: 64,
                broadcast: None,
            }),
        };
        Interface {
            name: name.into(),
            addr,
            index: Some(index),
            oper_status: IfOperStatus::Up,
            is_p2p: false,
        }
    }

    fn machine() -> Vec<Interface> {
        vec![
            interface("lo", 1, "127.0.0.1"),
            interface("eth0", 2, "10.0.0.1"),
            interface("eth0", 2, "fe80::1"),
            interface("eth0", 2, "fd00::1"),
            interface("eth0", 2, "10.0.0.2"),
            interface("eth1", 3, "fe80::2"),
        ]
    }

    /// What is chosen: whether there is shared memory, and the addresses with their interfaces.
    fn chosen(addresses: &str, forced: &str) -> Result<(bool, Vec<String>), String> {
        let wires = Wires::chosen(addresses, forced, &machine()).map_err(|e| e.to_string())?;
        let texts = wires.candidates().map(|address| {
            let Address {
                ip,
                interface,
                index,
            } = address;
            format!("{ip} {interface} {index}")
        });
        Ok((wires.shared, texts.collect()))
    }

    #[test]
    fn an_interface_stands_for_its_addresses() {
        let all = ["10.0.0.1 eth0 2", "10.0.0.2 eth0 2", "fd00::1 eth0 2"];
        let all = all.map(str::to_owned).to_vec();
        assert_eq!(chosen("eth0", ""), Ok((true, all.clone())));
        assert_eq!(chosen("eth0", "roce"), Ok((false, all)));
        assert_eq!(chosen("eth0", "shm"), Ok((true, vec![])));
        assert_eq!(chosen("", ""), Ok((true, vec![])));
    }

    #[test]
    fn addresses_are_taken_in_their_order_and_once() {
        let two = ["10.0.0.2 eth0 2", "10.0.0.1 eth0 2", "fd00::1 eth0 2"];
        let two = two.map(str::to_owned).to_vec();
        assert_eq!(chosen("10.0.0.2, eth0,10.0.0.2", ""), Ok((true, two)));
        let loopback = vec!["127.0.0.9 lo 1".to_owned()];
        assert_eq!(chosen("127.0.0.9", ""), Ok((true, loopback)));
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (addresses, forced, words) in [
            ("", "roce", "names no address"),
            (",", "roce", "names no address"),
            ("eth0", "ib", "WARPBELL_WIRE is ib"),
            ("eth7", "", "names eth7"),
            ("10.0.0.3", "", "names 10.0.0.3"),
            ("eth1", "", "all link-local"),
        ] {
            let said = chosen(addresses, forced).unwrap_err();
            assert!(said.contains(words), "{said}");
        }
    }
}
