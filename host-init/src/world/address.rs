//! At which address the others reach a rank.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr};

use warpbell_soft_hca::shell::roce::one_network;

use super::WorldError;
use super::site::{Site, Sites};

/// The address at which a rank listens, so that all others reach it.
///
/// Within one machine it is 127.0.0.1, if the options allow. Otherwise it is the rank's own in the first network that all
/// machines share, or without such a network the first that no other machine has. Bridges of containers and virtual
/// machines have one address on many machines.
pub(super) fn of(sites: &Sites, own: u32) -> Result<IpAddr, WorldError> {
    let ours = &sites[&own];
    let all = || ours.addresses.iter().map(|(address, _)| *address);
    let chosen = if sites.values().all(|site| ours.is_on_machine_of(site)) || sites.len() == 1 {
        let loopback = all().find(|&address| address == Ipv4Addr::LOCALHOST);
        loopback.or_else(|| all().next())
    } else {
        let routed = |four| {
            let mut chosen = sites.values().map(|site| own_alone(sites, site, four));
            let all_have_one = chosen.all(|address| address.is_some());
            all_have_one.then(|| own_alone(sites, ours, four)).flatten()
        };
        let shared = shared_network(sites).map(|chosen| chosen[&own]);
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

/// Refuses a rank that has only loopback addresses while another rank is on another machine. If all ranks start on one
/// machine, they listen on loopback, and a rank that comes back elsewhere cannot reach them.
pub(super) fn none_is_confined(sites: &Sites) -> Result<(), WorldError> {
    for (&rank, site) in sites {
        let mut addresses = site.addresses.iter().map(|(address, _)| address);
        let confined = !site.addresses.is_empty() && addresses.all(IpAddr::is_loopback);
        // Equal sites may be one machine, where the system does not say which it is.
        let elsewhere =
            |(_, other): &(&u32, &Site)| *other != site && !site.is_on_machine_of(other);
        if confined && let Some((&other, _)) = sites.iter().find(elsewhere) {
            let found: Vec<_> = site
                .addresses
                .iter()
                .map(|(ip, _)| ip.to_string())
                .collect();
            let found = found.join(", ");
            return Err(WorldError::Loopback { rank, found, other });
        }
    }
    Ok(())
}

/// Each site's address in the first network, in the order of rank 0, in which all have one.
fn shared_network(sites: &Sites) -> Option<BTreeMap<u32, IpAddr>> {
    let networks = sites[&0].addresses.iter();
    networks
        .filter(|(network, _)| !network.is_loopback())
        .find_map(|&(network, prefix)| {
            let inside = |(address, _): &&(IpAddr, u8)| one_network(network, *address, prefix);
            let of =
                |(rank, site): (&u32, &Site)| Some((*rank, site.addresses.iter().find(inside)?.0));
            let chosen: BTreeMap<_, _> = sites.iter().map(of).collect::<Option<_>>()?;
            let mut owners = HashMap::new();
            let one_machine = |(address, site): (&IpAddr, &Site)| {
                let owner = owners.entry(*address).or_insert_with(|| site.clone());
                owner == site || owner.is_on_machine_of(site)
            };
            let distinct = chosen.values().zip(sites.values()).all(one_machine);
            distinct.then_some(chosen)
        })
}

/// The first address of a kind that a site has, and no other machine.
fn own_alone(sites: &Sites, site: &Site, four: bool) -> Option<IpAddr> {
    let mut all = site.addresses.iter().map(|(address, _)| *address);
    all.find(|address| {
        let has = |other: &Site| other.addresses.iter().any(|(its, _)| its == address);
        let mut others = sites
            .values()
            .filter(|other| !site.is_on_machine_of(other) && *other != site);
        address.is_ipv4() == four && !address.is_loopback() && !others.any(has)
    })
}

#[cfg(test)]
mod tests {
    use super::super::site::tests::{by_rank, site};
    use super::*;

    fn chosen(sites: &[Site]) -> Vec<String> {
        let address = |rank| match of(&by_rank(sites), rank as u32) {
            Ok(address) => address.to_string(),
            Err(error) => error.to_string(),
        };
        (0..sites.len()).map(address).collect()
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

    /// Ranks that listen on loopback, and one that comes back on another machine.
    #[test]
    fn a_rank_on_loopback_is_named_if_another_machine_is_to_reach_it() {
        let here = site("a", 1, "127.0.0.1/8");
        let back = site("b", 1, "127.0.0.1/8 10.0.0.2/24");
        let checked = |sites: &[Site]| match none_is_confined(&by_rank(sites)) {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        };
        let error = checked(&[here.clone(), here.clone(), back.clone()]);
        assert!(error.starts_with(
            "rank 0 can be reached only within its machine, at 127.0.0.1, and rank 2 is"
        ));
        assert!(error.contains("WARPBELL_ADDRESS"));
        let named = site("a", 1, "10.0.0.1/24");
        for sites in [
            [here.clone(), here.clone()],
            [here.clone(), site("a", 1, "127.0.0.1/8 10.0.0.1/24")],
            [named, back.clone()],
            [back.clone(), back.clone()],
            [site("", 1, "127.0.0.1/8"), site("", 1, "127.0.0.1/8")],
        ] {
            assert_eq!(checked(&sites), "");
        }
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
}
