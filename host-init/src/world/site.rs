//! Where a rank runs, and by which wires it reaches the others.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};
#[cfg(feature = "soft")]
use warpbell_soft_hca::shell::roce::LocalAddress;

use super::{WireKind, WorldError, WorldOptions};

/// What each rank needs to know of another one to choose the wire to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Site {
    /// What no other machine and no other network namespace has; nothing where the system does not say it. Sockets of the
    /// wire in shared memory belong to a network namespace.
    machine: Option<String>,
    user: u32,
    /// Whether its NIC can be reached in shared memory, or is not open yet.
    pub shares: bool,
    /// Its IP addresses, and how many bits of each name the network.
    pub addresses: Vec<(IpAddr, u8)>,
    /// The wire that was asked for, or that cards have.
    wire: Option<WireKind>,
}

impl Site {
    /// This process's.
    pub fn own(wire: Option<WireKind>, options: &WorldOptions) -> Result<Self, WorldError> {
        Ok(Self {
            machine: machine(),
            user: rustix::process::geteuid().as_raw(),
            shares: true,
            addresses: addresses(options)?,
            wire,
        })
    }

    pub fn is_on_machine_of(&self, other: &Self) -> bool {
        self.machine.is_some() && self.machine == other.machine
    }
}

/// The system's start, which has a number of its own (random(4)), and the network namespace.
fn machine() -> Option<String> {
    let start = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let network = fs::metadata("/proc/self/ns/net").ok()?;
    Some(format!("{} {}", start.trim(), network.ino()))
}

/// The addresses that the options allow, and how many bits of each name the network.
#[cfg(feature = "soft")]
fn addresses(options: &WorldOptions) -> Result<Vec<(IpAddr, u8)>, WorldError> {
    let addresses = match &options.addresses {
        Some(addresses) => addresses.find()?,
        None => LocalAddress::all().unwrap_or_else(|error| {
            tracing::warn!(%error, "the addresses of this machine are not known");
            Vec::new()
        }),
    };
    let addresses = addresses.into_iter();
    Ok(addresses.map(|found| (found.ip, found.prefix)).collect())
}

/// Cards have none of their own.
#[cfg(not(feature = "soft"))]
fn addresses(_: &WorldOptions) -> Result<Vec<(IpAddr, u8)>, WorldError> {
    Ok(Vec::new())
}

/// The sites of ranks, by rank. Rank 0 is always among them.
pub(super) type Sites = BTreeMap<u32, Site>;

/// The wires from a rank to all, itself included.
pub(super) fn wires(sites: &Sites, own: u32) -> Result<BTreeMap<u32, WireKind>, WorldError> {
    let first = &sites[&0];
    if let Some((&rank, other)) = sites.iter().find(|(_, site)| site.wire != first.wire) {
        let words = |site: &Site| {
            site.wire
                .map_or("the wire chosen".into(), |w| w.to_string())
        };
        return Err(WorldError::OtherWire {
            rank,
            theirs: words(other),
            ours: words(first),
        });
    }
    let ours = &sites[&own];
    let wire = |(&other, site): (&u32, &Site)| {
        let one_machine = ours.is_on_machine_of(site) && ours.user == site.user;
        let shared = one_machine && ours.shares && site.shares;
        let wire = match first.wire {
            Some(WireKind::SharedMemory) if !shared && other != own => {
                return Err(WorldError::NotOneMachine { rank: own, other });
            }
            Some(wire) => wire,
            None if shared || other == own => WireKind::SharedMemory,
            None => WireKind::RoceV2,
        };
        Ok((other, wire))
    };
    sites.iter().map(wire).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// A site on a machine, with addresses such as `10.0.0.1/24`.
    pub fn site(machine: &str, user: u32, addresses: &str) -> Site {
        let address = |text: &str| {
            let (address, prefix) = text.split_once('/').unwrap();
            (address.parse().unwrap(), prefix.parse().unwrap())
        };
        Site {
            machine: (!machine.is_empty()).then(|| machine.into()),
            user,
            shares: true,
            addresses: addresses.split_whitespace().map(address).collect(),
            wire: None,
        }
    }

    pub fn by_rank(sites: &[Site]) -> Sites {
        (0..).zip(sites.iter().cloned()).collect()
    }

    fn wires(sites: &[Site], own: u32) -> Result<Vec<WireKind>, WorldError> {
        let wires = super::wires(&by_rank(sites), own)?;
        Ok(wires.into_values().collect())
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
        // A NIC that is open already, and that other processes cannot reach.
        let apart = [
            sites[0].clone(),
            Site {
                shares: false,
                ..sites[1].clone()
            },
        ];
        assert_eq!(super::wires(&by_rank(&apart), 0).unwrap()[&1], RoceV2);
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
    fn this_machine_has_a_name_and_loopback() {
        let own = Site::own(None, &WorldOptions::new(std::time::Duration::ZERO)).unwrap();
        assert!(own.is_on_machine_of(&own.clone()));
        assert!(own.addresses.contains(&(Ipv4Addr::LOCALHOST.into(), 8)));
    }
}
