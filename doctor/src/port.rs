//! The ports of a NIC: link and GIDs.

use std::net::Ipv6Addr;

use super::finding::{Check, Finding, Subject, quoted};
use super::nic::Nic;
use super::system::{ReadError, System};

/// How many GIDs of a port are looked at, and how many are shown.
const GIDS_LIMIT: usize = 256;
const GIDS_SHOWN: usize = 4;

const ROCE_V2: &str = "RoCE v2";

/// A GID of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Gid {
    index: u32,
    address: Ipv6Addr,
    /// On Ethernet `RoCE v2` or `IB/RoCE v1`, where the kernel tells.
    kind: Option<String>,
    /// The network interface that it comes from.
    netdev: Option<String>,
}

/// Examines every port of a NIC.
pub fn examine(system: &System, nic: &Nic) -> Vec<Finding> {
    let names = system.names(nic.file("ports")).unwrap_or_default();
    let mut ports: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    ports.sort_unstable();
    let examine = |port: &u32| {
        let subject = Subject::Port {
            nic: nic.name.clone(),
            port: *port,
        };
        let folder = nic.file(&format!("ports/{port}"));
        let ethernet = system.text(format!("{folder}/link_layer")).as_deref() == Ok("Ethernet");
        let gids = gids(system, &folder, ethernet);
        let netdev = gids.iter().find_map(|gid| gid.netdev.clone());
        let netdev = netdev.or_else(|| {
            system
                .names(nic.file("device/net"))
                .ok()?
                .into_iter()
                .next()
        });
        [
            link(system, &subject, nic, &folder, ethernet, netdev.as_deref()),
            judge_gids(&subject, &gids, ethernet, netdev.as_deref()),
        ]
    };
    ports.iter().flat_map(examine).collect()
}

fn link(
    system: &System,
    subject: &Subject,
    nic: &Nic,
    folder: &str,
    ethernet: bool,
    netdev: Option<&str>,
) -> Finding {
    let check = Check::Link;
    let text = |name: &str| system.text(format!("{folder}/{name}"));
    let watch = format!("sudo mlxlink -d {}", quoted(&nic.name));
    let state = match text("state") {
        Ok(state) => state,
        Err(error) => return subject.unknown(check, format!("state: {error}"), watch),
    };
    let layer = text("link_layer").unwrap_or_else(|_| "unknown layer".into());
    let rate = text("rate").unwrap_or_else(|_| "unknown rate".into());
    // The kernel writes a number and a name, such as `4: ACTIVE`.
    let (number, name) = state.split_once(": ").unwrap_or((&state, &state));
    match number {
        "4" => subject.ok(check, format!("{name}, {layer}, {rate}")),
        "1" => {
            let physical = text("phys_state").unwrap_or_default();
            let physical = physical
                .split_once(": ")
                .map_or("unknown", |(_, name)| name);
            let remedy = match netdev.filter(|_| ethernet) {
                Some(netdev) => format!("sudo ip link set dev {} up; {watch}", quoted(netdev)),
                None => format!("{watch}  # cable, module, the switch's port"),
            };
            subject.missing(check, format!("{name} ({physical}), {layer}"), remedy)
        }
        "2" | "3" if !ethernet => subject.missing(
            check,
            format!("{name}, {layer}: no subnet manager has set it up"),
            "sudo systemctl start opensm  # on one node of the subnet, or in its switch",
        ),
        _ => subject.unknown(check, format!("state {state}, {layer}"), watch),
    }
}

fn judge_gids(subject: &Subject, gids: &[Gid], ethernet: bool, netdev: Option<&str>) -> Finding {
    let check = Check::Gids;
    if !ethernet {
        return if gids.is_empty() {
            subject.missing(
                check,
                "none",
                "sudo systemctl start opensm  # on one node of the subnet",
            )
        } else {
            subject.ok(check, listed(gids))
        };
    }
    let is_v2 = |gid: &&Gid| gid.kind.as_deref() == Some(ROCE_V2);
    let v2: Vec<_> = gids.iter().filter(is_v2).cloned().collect();
    let remedy = format!(
        "sudo ip address add ADDRESS/PREFIX dev {}",
        quoted(netdev.unwrap_or("NETDEV"))
    );
    if v2.iter().any(|gid| !gid.address.is_unicast_link_local()) {
        subject.ok(check, listed(&v2))
    } else if !v2.is_empty() {
        subject.ok(
            check,
            format!("{}; link-local only: no router forwards them", listed(&v2)),
        )
    } else if gids.iter().any(|gid| gid.kind.is_none()) {
        let remedy = "show_gids  # or: ibv_devinfo -v";
        subject.unknown(check, format!("{}, of unknown type", listed(gids)), remedy)
    } else if gids.is_empty() {
        subject.missing(check, "none", remedy)
    } else {
        subject.missing(check, format!("none of RoCE v2; {}", listed(gids)), remedy)
    }
}

/// GIDs in words, such as `3: RoCE v2 192.0.2.5 (ens1f0np0)`.
fn listed(gids: &[Gid]) -> String {
    let shown = gids.iter().take(GIDS_SHOWN).map(|gid| {
        let kind = gid
            .kind
            .as_deref()
            .map_or_else(String::new, |kind| format!("{kind} "));
        let address = match gid.address.to_ipv4_mapped() {
            Some(address) => address.to_string(),
            None => gid.address.to_string(),
        };
        let netdev = gid.netdev.as_deref();
        let netdev = netdev.map_or_else(String::new, |netdev| format!(" ({netdev})"));
        format!("{}: {kind}{address}{netdev}", gid.index)
    });
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if gids.len() > GIDS_SHOWN {
        text += &format!(" and {} more", gids.len() - GIDS_SHOWN);
    }
    text
}

/// The GIDs of a port that are in use.
fn gids(system: &System, folder: &str, ethernet: bool) -> Vec<Gid> {
    let names = system.names(format!("{folder}/gids")).unwrap_or_default();
    let mut indices: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    indices.sort_unstable();
    indices.truncate(GIDS_LIMIT);
    let gid = |index: u32| {
        let address: Ipv6Addr = system
            .text(format!("{folder}/gids/{index}"))
            .ok()?
            .parse()
            .ok()?;
        let attribute = |name: &str| -> Result<String, ReadError> {
            system.text(format!("{folder}/gid_attrs/{name}/{index}"))
        };
        let set = |text: Result<String, ReadError>| text.ok().filter(|text| !text.is_empty());
        (!address.is_unspecified()).then(|| Gid {
            index,
            address,
            kind: set(attribute("types")).filter(|_| ethernet),
            netdev: set(attribute("ndevs")),
        })
    };
    indices.into_iter().filter_map(gid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::State;
    use crate::tree::Tree;

    const PORT: &str = "sys/class/infiniband/mlx5_0/ports/1";

    fn nic() -> Nic {
        Nic {
            name: "mlx5_0".into(),
            rdma: true,
            address: None,
            mlx5: true,
        }
    }

    const LINK_LOCAL: &str = "fe80:0000:0000:0000:0a00:27ff:fe00:0001";
    /// 192.0.2.5.
    const IPV4: &str = "0000:0000:0000:0000:0000:ffff:c000:0205";

    /// The findings of a port with this state and link layer: link, GIDs.
    fn examined(tree: &Tree, state: &str, layer: &str) -> (Finding, Finding) {
        tree.file(&format!("{PORT}/state"), state);
        tree.file(&format!("{PORT}/link_layer"), layer);
        tree.file(&format!("{PORT}/rate"), "400 Gb/sec (4X NDR)\n");
        let mut findings = examine(&tree.system(), &nic()).into_iter();
        (findings.next().unwrap(), findings.next().unwrap())
    }

    fn gid(tree: &Tree, index: u32, address: &str, kind: &str) {
        tree.file(&format!("{PORT}/gids/{index}"), address);
        tree.file(&format!("{PORT}/gid_attrs/types/{index}"), kind);
        tree.file(&format!("{PORT}/gid_attrs/ndevs/{index}"), "ens1f0np0\n");
    }

    #[test]
    fn each_state_of_a_link_has_its_remedy() {
        let tree = Tree::empty();
        let link = |state, layer| examined(&tree, state, layer).0;
        let active = link("4: ACTIVE\n", "InfiniBand\n");
        assert_eq!(active.value, "ACTIVE, InfiniBand, 400 Gb/sec (4X NDR)");
        link("2: INIT", "InfiniBand").expect_remedy("opensm");
        link("1: DOWN", "InfiniBand").expect_remedy("cable");
        tree.folder("sys/class/infiniband/mlx5_0/device/net/ens1f0np0");
        link("1: DOWN", "Ethernet").expect_remedy("ip link set dev ens1f0np0 up");
        assert_eq!(link("7: STRANGE", "Ethernet").state, State::Unknown);
        assert_eq!(link("", "").state, State::Unknown);
    }

    #[test]
    fn roce_needs_a_gid_of_version_2() {
        let tree = Tree::empty();
        let gids = || examined(&tree, "4: ACTIVE", "Ethernet").1;
        assert_eq!(gids().state, State::Missing);
        gid(&tree, 0, LINK_LOCAL, "IB/RoCE v1\n");
        let found = gids();
        assert_eq!(found.state, State::Missing);
        assert_eq!(
            found.remedy.as_deref(),
            Some("sudo ip address add ADDRESS/PREFIX dev ens1f0np0")
        );
        gid(&tree, 1, LINK_LOCAL, "RoCE v2\n");
        let found = gids();
        assert_eq!(found.state, State::Ok);
        assert!(found.value.contains("link-local only"));
        gid(&tree, 10, IPV4, "RoCE v2\n");
        let Finding { state, value, .. } = gids();
        assert_eq!(state, State::Ok);
        let told = "10: RoCE v2 192.0.2.5 (ens1f0np0)";
        assert!(value.ends_with(told), "{value}");
    }

    #[test]
    fn infiniband_takes_any_gid_that_is_set() {
        let tree = Tree::empty();
        let gids = || examined(&tree, "4: ACTIVE", "InfiniBand").1;
        let set = |index, gid| tree.file(&format!("{PORT}/gids/{index}"), gid);
        set(0, "0000:0000:0000:0000:0000:0000:0000:0000\n");
        set(1, "garbage");
        assert_eq!(gids().state, State::Missing);
        set(0, "fe80:0000:0000:0000:9803:9b03:0098:6a4c\n");
        // The kernel has a type for these too, but there is no choice of it.
        tree.file(&format!("{PORT}/gid_attrs/types/0"), "IB/RoCE v1\n");
        assert_eq!(gids().value, "0: fe80::9803:9b03:98:6a4c");
    }

    #[test]
    fn a_table_of_gids_is_cut() {
        let tree = Tree::empty();
        for index in 0..300 {
            gid(&tree, index, IPV4, "RoCE v2\n");
        }
        let found = examined(&tree, "4: ACTIVE", "Ethernet").1;
        assert!(found.value.ends_with("and 252 more"), "{}", found.value);
    }
}
