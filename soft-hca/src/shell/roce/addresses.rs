//! Which IP addresses of this machine an HCA may listen at.

use std::borrow::ToOwned;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::prelude::v1::*;
use std::str::FromStr;

use if_addrs::{IfAddr, Interface, get_if_addrs};

/// A choice among the IP addresses of a machine: addresses, networks and interfaces, with commas between them.
///
/// ```
/// use warpbell_soft_hca::shell::roce::Addresses;
///
/// let addresses: Addresses = "127.0.0.1, 127.0.0.0/8".parse()?;
/// let found = addresses.find()?;
/// assert_eq!(found[0].ip.to_string(), "127.0.0.1");
/// # Ok::<(), warpbell_soft_hca::shell::roce::AddressesError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses(Vec<Choice>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Choice {
    /// Those whose first bits, so many, are the ones of this address.
    Network(IpAddr, u8),
    /// Those of the interface with this name.
    Interface(String),
}

/// An IP address of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    /// The address.
    pub ip: IpAddr,
    /// How many of its first bits name its network.
    pub prefix: u8,
    /// The name of the network interface with this address.
    pub interface: String,
    /// The index of this interface.
    pub index: u32,
}

/// Why there are no such addresses.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddressesError {
    /// It cannot name an address, whatever the machine.
    #[error(
        "{0:?} is no IP address, no network such as 10.1.0.0/16, and no name of a network interface"
    )]
    Malformed(String),
    /// This machine has no such address.
    #[error("{0:?} is no address, network or interface of this machine; see `ip address`")]
    NotHere(String),
    /// What is there are link-local addresses, which hold on one link alone; a GID cannot say on which.
    #[error("{0:?} has link-local addresses alone; name others, which `ip address` shows")]
    LinkLocal(String),
    /// The system does not tell.
    #[error("the system does not list its network interfaces: {0}")]
    System(#[from] io::Error),
}

impl LocalAddress {
    /// All addresses of this machine but link-local ones. Interfaces without a carrier count, too: one that was just set
    /// up may get it later.
    ///
    /// # Errors
    /// [`AddressesError::System`].
    pub fn all() -> Result<Vec<Self>, AddressesError> {
        let all = get_if_addrs()?;
        let usable = all.iter().filter(|interface| !interface.is_link_local());
        Ok(usable.map(|all| Self::of(all, all.ip())).collect())
    }

    fn of(interface: &Interface, ip: IpAddr) -> Self {
        Self {
            ip,
            prefix: match &interface.addr {
                IfAddr::V4(four) => four.prefixlen,
                IfAddr::V6(six) => six.prefixlen,
            },
            interface: interface.name.clone(),
            index: interface.index.unwrap_or_default(),
        }
    }
}

impl Addresses {
    /// The addresses of this machine that are meant, each once, in the order in which they are named.
    ///
    /// # Errors
    /// A name that names no address of this machine that could be used.
    pub fn find(&self) -> Result<Vec<LocalAddress>, AddressesError> {
        self.among(&get_if_addrs()?)
    }

    fn among(&self, interfaces: &[Interface]) -> Result<Vec<LocalAddress>, AddressesError> {
        let mut found: Vec<LocalAddress> = Vec::new();
        for choice in &self.0 {
            for address in choice.among(interfaces)? {
                if !found.contains(&address) {
                    found.push(address);
                }
            }
        }
        Ok(found)
    }
}

impl Choice {
    fn among(&self, interfaces: &[Interface]) -> Result<Vec<LocalAddress>, AddressesError> {
        let meant = interfaces.iter().filter(|interface| match self {
            Self::Network(network, prefix) => one_network(*network, interface.ip(), *prefix),
            Self::Interface(name) => *name == interface.name,
        });
        let meant: Vec<_> = meant.collect();
        let usable: Vec<_> = meant
            .iter()
            .filter(|interface| !holds_on_one_link(interface.ip()))
            .map(|interface| LocalAddress::of(interface, interface.ip()))
            .collect();
        match (self, meant.is_empty(), usable.is_empty()) {
            (_, _, false) => Ok(usable),
            (_, false, true) => Err(AddressesError::LinkLocal(self.to_string())),
            // The loopback interface has all addresses of its network, whether they are listed or not.
            (Self::Network(ip, 32), true, _) if ip.is_loopback() => {
                let loopback = interfaces.iter().find(|one| one.is_loopback());
                let loopback = loopback.ok_or_else(|| AddressesError::NotHere(self.to_string()))?;
                Ok(vec![LocalAddress::of(loopback, *ip)])
            }
            (_, true, _) => Err(AddressesError::NotHere(self.to_string())),
        }
    }

    fn read(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Self::Network(address, bits(address).1));
        }
        if let Some((address, prefix)) = text.split_once('/') {
            let address: IpAddr = address.parse().ok()?;
            let prefix = prefix.parse().ok().filter(|&p: &u8| p <= bits(address).1)?;
            return Some(Self::Network(address, prefix));
        }
        // What Linux allows as a name (`dev_valid_name`).
        let named = (1..16).contains(&text.len()) && !text.contains([':', ' ']);
        named.then(|| Self::Interface(text.to_owned()))
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(address, prefix) if *prefix == bits(*address).1 => address.fmt(f),
            Self::Network(address, prefix) => write!(f, "{address}/{prefix}"),
            Self::Interface(name) => f.write_str(name),
        }
    }
}

/// Whether it is a link-local address of IPv6. A GID cannot say on which link.
fn holds_on_one_link(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

impl FromStr for Addresses {
    type Err = AddressesError;

    fn from_str(text: &str) -> Result<Self, AddressesError> {
        let read = |text| Choice::read(text).ok_or_else(|| AddressesError::Malformed(text.into()));
        let names = text.split(',').map(str::trim);
        Ok(Self(names.map(read).collect::<Result<_, _>>()?))
    }
}

/// The bits of an address, from the first on, and how many there are.
fn bits(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

/// Whether two addresses are of one kind and agree in their first bits, so many.
pub fn one_network(one: IpAddr, other: IpAddr, prefix: u8) -> bool {
    let ((ours, length), (theirs, _)) = (bits(one), bits(other));
    let prefix = u32::from(prefix.min(length));
    let behind = |value: u128| value.checked_shr(128 - prefix).unwrap_or(0);
    one.is_ipv4() == other.is_ipv4() && behind(ours) == behind(theirs)
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

    /// The addresses that are meant, with their interfaces, or the error's words.
    fn found(text: &str) -> Result<Vec<String>, String> {
        let machine = [
            interface("lo", 1, "127.0.0.1"),
            interface("eth0", 2, "10.0.0.1"),
            interface("eth0", 2, "fe80::1"),
            interface("eth0", 2, "fd00::1"),
            interface("eth0", 2, "10.0.0.2"),
            interface("eth1", 3, "fe80::2"),
            interface("eth2", 4, "10.0.1.1"),
            interface("eth3", 5, "169.254.1.1"),
        ];
        let addresses: Result<Addresses, _> = text.parse();
        let found = addresses.and_then(|addresses| addresses.among(&machine));
        let words = |address: LocalAddress| {
            let LocalAddress {
                ip,
                prefix,
                interface,
                index,
            } = address;
            format!("{ip}/{prefix} {interface} {index}")
        };
        let found = found.map(|found| found.into_iter().map(words).collect());
        found.map_err(|error| error.to_string())
    }

    #[test]
    fn addresses_networks_and_interfaces_are_found_in_their_order_and_once() {
        let one = "10.0.0.1/8 eth0 2";
        let other = "10.0.0.2/8 eth0 2";
        let six = "fd00::1/64 eth0 2";
        let owned = |texts: &[&str]| Ok(texts.iter().map(|&text| text.into()).collect());
        assert_eq!(found("10.0.0.2"), owned(&[other]));
        assert_eq!(found("eth0"), owned(&[one, six, other]));
        assert_eq!(found("10.0.0.2, eth0,10.0.0.2"), owned(&[other, one, six]));
        assert_eq!(found("10.0.0.9/24"), owned(&[one, other]));
        assert_eq!(found("fd00::/16"), owned(&[six]));
        assert_eq!(found("eth3"), owned(&["169.254.1.1/8 eth3 5"]));
        assert_eq!(found("127.0.0.9"), owned(&["127.0.0.9/8 lo 1"]));
    }

    #[test]
    fn what_names_nothing_is_refused_by_name() {
        for (text, words) in [
            ("10.0.0.3", "\"10.0.0.3\" is no address"),
            ("10.2.0.0/16", "\"10.2.0.0/16\" is no address"),
            ("eth0,eth7", "\"eth7\" is no address"),
            ("fd00::2", "\"fd00::2\" is no address"),
            ("eth1", "\"eth1\" has link-local addresses alone"),
            ("10.0.0.0/33", "\"10.0.0.0/33\" is no IP address"),
            ("eth/0", "\"eth/0\" is no IP address"),
            ("node7:4791", "\"node7:4791\" is no IP address"),
            ("a-name-far-too-long", "\"a-name-far-too-long\" is no"),
            ("eth0,", "\"\" is no IP address"),
        ] {
            let said = found(text).unwrap_err();
            assert!(said.starts_with(words), "{said}");
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
