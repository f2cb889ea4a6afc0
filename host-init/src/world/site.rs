//! Where a rank runs, and at which address the others reach it.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::MetadataExt;

use if_addrs::{IfAddr, get_if_addrs};
use serde::{Deserialize, Serialize};

use super::options::one_network;
use super::{WireKind, WorldError, WorldOptions};

/// What each rank needs to know of another one to choose the wire to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Site {
    /// What no other machine and no other network namespace has; nothing where the system does not say it. Sockets of the
    /// wire in shared memory belong to a network namespace.
    machine: Option<String>,
    user: u32,
    /// Its IP addresses, and how many bits of each name the network.
    addresses: Vec<(IpAddr, u8)>,
    /// The wire that was asked for, or that cards have.
    wire: Option<WireKind>,
}

impl Site {
    /// This process's.
    pub fn own(wire: Option<WireKind>, options: &WorldOptions) -> Self {
        Self {
            machine: machine(),
            user: rustix::process::geteuid().as_raw(),
            addresses: addresses(options),
            wire,
        }
    }

    fn is_on_machine_of(&self, other: &Self) -> bool {
        self.machine.is_some() && self.machine == other.machine
    }
}

/// The system's start, which has a number of its own (random(4)), and the network namespace.
fn machine() -> Option<String> {
    let start = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let network = fs::metadata("/proc/self/ns/net").ok()?;
    Some(format!("{} {}", start.trim(), network.ino()))
}

/// The addresses of the interfaces, as far as the options allow. Link-local ones say not through which interface. An
/// interface that was just set up may have no carrier yet: those without one count, too.
fn addresses(options: &WorldOptions) -> Vec<(IpAddr, u8)> {
    let interfaces = get_if_addrs().unwrap_or_else(|error| {
        tracing::warn!(%error, "the interfaces of this machine are not known");
        Vec::new()
    });
    let usable = interfaces.into_iter().filter_map(|interface| {
        let address = interface.ip();
        let prefix = match &interface.addr {
            IfAddr::V4(four) => four.prefixlen,
            IfAddr::V6(six) => six.prefixlen,
        };
        let wanted = options.addresses.as_ref();
        let wanted = wanted.is_none_or(|wanted| wanted.contain(&interface.name, address));
        (wanted && !interface.is_link_local()).then_some((address, prefix))
    });
    usable.collect()
}

/// The wires from a rank to all, itself included.
pub(super) fn wires(sites: &[Site], own: u32) -> Result<Vec<WireKind>, WorldError> {
    let first = &sites[0];
    if let Some(rank) = sites.iter().position(|site| site.wire != first.wire) {
        let words = |site: &Site| {
            site.wire
                .map_or("the wire chosen".into(), |w| w.to_string())
        };
        return Err(WorldError::OtherWire {
            rank: rank as u32,
            theirs: words(&sites[rank]),
            ours: words(first),
        });
    }
    let ours = &sites[own as usize];
    let wire = |(rank, site): (usize, &Site)| {
        let shared = ours.is_on_machine_of(site) && ours.user == site.user;
        match first.wire {
            Some(WireKind::SharedMemory) if !shared && rank as u32 != own => {
                let other = rank as u32;
                Err(WorldError::NotOneMachine { rank: own, other })
            }
            Some(wire) => Ok(wire),
            None if shared || rank as u32 == own => Ok(WireKind::SharedMemory),
            None => Ok(WireKind::RoceV2),
        }
    };
    sites.iter().enumerate().map(wire).collect()
}

/// The address at which a rank listens, so that all others reach it.
///
/// Within one machine it is 127.0.0.1, if the options allow. Otherwise it is the rank's own in the first network that all
/// machines share, or without such a network the first that no other machine has. Bridges of containers and virtual
/// machines have one address on many machines.
pub(super) fn address(sites: &[Site], own: u32) -> Result<IpAddr, WorldError> {
    let ours = &sites[own as usize];
    let all = || ours.addresses.iter().map(|(address, _)| *address);
    let chosen = if sites.iter().all(|site| ours.is_on_machine_of(site)) || sites.len() == 1 {
        let loopback = all().find(|&address| address == Ipv4Addr::LOCALHOST);
        loopback.or_else(|| all().next())
    } else {
        let routed = |four| {
            let chosen = sites.iter().map(|site| own_alone(sites, site, four));
            Some(chosen.collect::<Option<Vec<_>>>()?[own as usize])
        };
        let shared = shared_network(sites).map(|chosen| chosen[own as usize]);
        shared.or_else(|| routed(true)).or_else(|| routed(false))
    };
    chosen.ok_or_else(|| {
        let found: Vec<_> = all().map(|address| address.to_string()).collect();
        WorldError::NoAddress {
            rank: own,
            found: found.join(", "),
        }
    })
}

/// Each site's address in the first network, in the order of rank 0, in which all have one.
fn shared_network(sites: &[Site]) -> Option<Vec<IpAddr>> {
    let networks = sites[0].addresses.iter();
    networks
        .filter(|(network, _)| !network.is_loopback())
        .find_map(|&(network, prefix)| {
            let inside = |(address, _): &&(IpAddr, u8)| one_network(network, *address, prefix);
            let of = |site: &Site| Some(site.addresses.iter().find(inside)?.0);
            let chosen: Vec<_> = sites.iter().map(of).collect::<Option<_>>()?;
            let mut owners = HashMap::new();
            let one_machine = |(address, site): (&IpAddr, &Site)| {
                let owner = owners.entry(*address).or_insert_with(|| site.clone());
                owner == site || owner.is_on_machine_of(site)
            };
            let distinct = chosen.iter().zip(sites).all(one_machine);
            distinct.then_some(chosen)
        })
}

/// The first address of a kind that a site has, and no other machine.
fn own_alone(sites: &[Site], site: &Site, four: bool) -> Option<IpAddr> {
    let mut all = site.addresses.iter().map(|(address, _)| *address);
    all.find(|address| {
        let has = |other: &Site| other.addresses.iter().any(|(its, _)| its == address);
        let mut others = sites
            .iter()
            .filter(|other| !site.is_on_machine_of(other) && *other != site);
        address.is_ipv4() == four && !address.is_loopback() && !others.any(has)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A site on a machine, with addresses such as `10.0.0.1/24`.
    fn site(machine: &str, user: u32, addresses: &str) -> Site {
        let address = |text: &str| {
            let (address, prefix) = text.split_once('/').unwrap();
            (address.parse().unwrap(), prefix.parse().unwrap())
        };
        Site {
            machine: (!machine.is_empty()).then(|| machine.into()),
            user,
            addresses: addresses.split_whitespace().map(address).collect(),
            wire: None,
        }
    }

    fn chosen(sites: &[Site]) -> Vec<String> {
        let address = |rank| match address(sites, rank as u32) {
            Ok(address) => address.to_string(),
            Err(error) => error.to_string(),
        };
        (0..sites.len()).map(address).collect()
    }

    #[test]
    fn shared_memory_is_for_one_machine_and_one_user() {
        use WireKind::{RoceV2, SharedMemory};
        let sites = [
            site("a", 1, ""),
            site("a", 1, ""),
            site("a", 2, ""),
            site("b", 1, ""),
            site("", 1, ""),
            site("", 1, ""),
        ];
        let wires = |own| wires(&sites, own).unwrap();
        assert_eq!(
            wires(0)[1..],
            [SharedMemory, RoceV2, RoceV2, RoceV2, RoceV2]
        );
        assert_eq!(wires(4)[..4], [RoceV2; 4]);
        assert_eq!(wires(4)[5], RoceV2);
    }

    #[test]
    fn a_wire_that_is_forced_is_the_same_for_all_or_an_error() {
        let forced = |wire| Site {
            wire,
            ..site("a", 1, "")
        };
        let roce = forced(Some(WireKind::RoceV2));
        let here = [roce.clone(), roce.clone()];
        assert_eq!(wires(&here, 1).unwrap(), [WireKind::RoceV2; 2]);
        let error = wires(&[roce, forced(None)], 0).unwrap_err();
        assert_matches!(error => WorldError::OtherWire { rank: 1, .. });
        let shared = |machine| Site {
            machine: Some(machine),
            ..forced(Some(WireKind::SharedMemory))
        };
        let apart = ["a", "a", "b"].map(|machine| shared(machine.into()));
        assert_matches!(
            wires(&apart, 0) => Err(WorldError::NotOneMachine { rank: 0, other: 2 })
        );
    }

    #[test]
    fn within_a_machine_packets_stay_on_loopback() {
        let here = site("a", 1, "192.168.1.1/24 127.0.0.1/8");
        assert_eq!(chosen(&[here.clone(), here]), ["127.0.0.1"; 2]);
        let named = site("a", 1, "192.168.1.1/24");
        assert_eq!(chosen(&[named.clone(), named]), ["192.168.1.1"; 2]);
    }

    /// The bridge 172.17.0.1 is the same on both machines.
    #[test]
    fn between_machines_the_network_that_all_share_is_taken() {
        let found = chosen(&[
            site(
                "a",
                1,
                "127.0.0.1/8 172.17.0.1/16 192.168.1.1/24 10.0.0.1/16",
            ),
            site(
                "a",
                1,
                "127.0.0.1/8 172.17.0.1/16 192.168.1.1/24 10.0.0.1/16",
            ),
            site(
                "b",
                1,
                "127.0.0.1/8 10.0.9.2/16 172.17.0.1/16 192.168.2.1/24",
            ),
        ]);
        assert_eq!(found, ["10.0.0.1", "10.0.0.1", "10.0.9.2"]);
    }

    #[test]
    fn without_a_shared_network_packets_are_routed_between_addresses_of_one_kind() {
        let sites = [
            site("a", 1, "172.17.0.1/16 fd00:1::1/64 10.0.0.1/24"),
            site("b", 1, "172.17.0.1/16 fd00:2::1/64 10.0.1.1/24"),
            site("c", 1, "172.17.0.1/16 fd00:3::1/64"),
        ];
        assert_eq!(chosen(&sites[..2]), ["10.0.0.1", "10.0.1.1"]);
        assert_eq!(chosen(&sites), ["fd00:1::1", "fd00:2::1", "fd00:3::1"]);
        let none = chosen(&[sites[0].clone(), site("d", 1, "127.0.0.1/8")]);
        assert!(none[1].starts_with("rank 1 has no IP address"), "{none:?}");
        assert!(none[1].contains("127.0.0.1"), "{none:?}");
    }

    #[test]
    fn this_machine_has_a_name_and_loopback() {
        let own = Site::own(None, &WorldOptions::new(std::time::Duration::ZERO));
        assert!(own.is_on_machine_of(&own.clone()));
        assert!(own.addresses.contains(&(Ipv4Addr::LOCALHOST.into(), 8)));
    }
}
