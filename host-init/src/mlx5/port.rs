//! A port, and the way from it to another.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, fs};

use mlx5_wqe::prm::{AddressPath, HcaCapabilities, Mtu};

use super::Mlx5Options;
use super::bindings::{AddressAttributes, GlobalRoute, PortAttributes, values};
use super::context::Context;
use super::error::{Link, Mlx5Error};
use super::gid::{GidChoice, PortGid};
use super::resources::Domain;
use crate::Error;
use crate::state::{CardPort, Endpoint, Gid, GidType};

/// Packets live so long that any data centre is crossed.
const HOP_LIMIT: u8 = 64;

/// Reads and atomics under way in each direction, at most: 16.
const LOG_READS: u8 = 4;

/// What a port's card allows a queue pair in each direction, as a logarithm.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reads {
    asked: u8,
    answered: u8,
}

impl Reads {
    /// As the card has it, as far as anybody uses it.
    pub fn of(card: &HcaCapabilities) -> Self {
        Self {
            asked: LOG_READS.min(card.log_max_ra_req_qp),
            answered: LOG_READS.min(card.log_max_ra_res_qp),
        }
    }

    /// What both ends allow.
    fn with(self, theirs: &CardPort) -> Self {
        let log = |count: u16| count.checked_ilog2().unwrap_or(0) as u8;
        Self {
            asked: self.asked.min(log(theirs.reads_answered)),
            answered: self.answered.min(log(theirs.reads_asked)),
        }
    }

    /// The logarithm as the requester (`log_sra_max`).
    pub fn asked(self) -> u8 {
        self.asked
    }

    /// The logarithm as the responder (`log_rra_max`).
    pub fn answered(self) -> u8 {
        self.answered
    }
}

/// An open card's port, up when it was opened.
#[derive(Debug)]
pub(super) struct Port {
    number: u8,
    link: Link,
    lid: u16,
    mtu: Mtu,
    grh_required: bool,
    gid: PortGid,
    traffic_class: u8,
    service_level: u8,
    /// Index and key.
    partition: (u16, u16),
    router_lid: Option<u16>,
    reads: Reads,
}

/// The way from a port to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub path: AddressPath,
    pub mtu: Mtu,
    pub reads: Reads,
}

impl Port {
    /// The port that the options name.
    pub fn open(
        context: &Arc<Context>,
        options: &Mlx5Options,
        reads: Reads,
    ) -> Result<Self, Mlx5Error> {
        let number = options.port;
        let bad = |state: String, remedy| Mlx5Error::Port {
            name: context.name().into(),
            port: number,
            state,
            remedy,
        };
        let attributes = context.port(number).map_err(|error| {
            bad(
                format!("not there ({error})"),
                "choose one that is, from 1 on",
            )
        })?;
        let link = match attributes.link_layer {
            values::LINK_ETHERNET => Link::Ethernet,
            values::LINK_INFINIBAND => Link::InfiniBand,
            other => {
                let state = format!("neither InfiniBand nor Ethernet (link layer {other})");
                return Err(bad(state, "set its type with `mlxconfig`"));
            }
        };
        if attributes.state != values::PORT_ACTIVE {
            return Err(bad(state_name(attributes.state), up(link)));
        }
        let gids = gids(context, number, &attributes);
        let usual = match link {
            Link::InfiniBand => GidType::InfiniBand,
            Link::Ethernet => GidType::RoceV2,
        };
        let GidChoice {
            index,
            kind,
            address,
        } = options.gid;
        let gid = options.gid.among(&gids, usual);
        let gid = gid.ok_or_else(|| Mlx5Error::NoGid {
            name: context.name().into(),
            port: number,
            kind: kind.or_else(|| index.is_none().then_some(usual)),
            address,
            index,
            found: gids.iter().map(ToString::to_string).collect(),
        })?;
        let index = options.partition_key_index;
        // libmlx5 asks the system for a key; what lies behind the table's end is not asked for.
        let key = (index < attributes.pkey_tbl_len).then(|| context.partition_key(number, index));
        let key = key.flatten().ok_or_else(|| Mlx5Error::NoPartitionKey {
            name: context.name().into(),
            port: number,
            index,
        })?;
        let inherited = || traffic_class(&system_files(), context.name(), number);
        let port = Self {
            number,
            link,
            lid: attributes.lid,
            mtu: Mtu(attributes.active_mtu as u8),
            grh_required: attributes.flags & values::GRH_REQUIRED != 0,
            gid,
            traffic_class: options.traffic_class.or_else(inherited).unwrap_or(0),
            service_level: options.service_level,
            partition: (index, key),
            router_lid: options.router_lid,
            reads,
        };
        tracing::debug!(device = context.name(), ?port, "a card is open");
        Ok(port)
    }

    /// Its number.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// The index of its partition key.
    pub fn partition_key_index(&self) -> u16 {
        self.partition.0
    }

    /// Its address.
    pub fn gid(&self) -> Gid {
        self.gid.gid
    }

    /// What the other end needs to know of it.
    pub fn card_port(&self) -> CardPort {
        CardPort {
            kind: self.gid.kind,
            lid: self.lid,
            mtu: bytes_of(self.mtu),
            partition: self.partition.1,
            reads_asked: 1 << self.reads.asked,
            reads_answered: 1 << self.reads.answered,
        }
    }

    /// What a queue pair and the other end allow each other.
    pub fn reads_with(&self, theirs: &CardPort) -> Reads {
        self.reads.with(theirs)
    }

    /// The way to the other end, whose queue pair and ours vary the UDP source port.
    pub fn way(&self, domain: &Domain, qpn: u32, remote: &Endpoint) -> Result<Way, Error> {
        let fabric = |what| Mlx5Error::OtherFabric {
            what,
            link: self.link,
        };
        let theirs = remote.card.ok_or(fabric("a software HCA"))?;
        if theirs.kind != self.gid.kind {
            return Err(fabric("a port whose packets are of another kind").into());
        }
        if !share_partition(self.partition.1, theirs.partition) {
            let (ours, theirs) = (self.partition.1, theirs.partition);
            return Err(Mlx5Error::OtherPartition { ours, theirs }.into());
        }
        let mtu = mtu_of(theirs.mtu).ok_or(Error::BadEndpoint {
            what: "MTU",
            value: theirs.mtu.into(),
        })?;
        let path = AddressPath {
            src_addr_index: self.gid.index,
            hop_limit: HOP_LIMIT,
            tclass: self.traffic_class,
            vhca_port_num: self.number,
            rgid_rip: remote.gid.0,
            ..AddressPath::default()
        };
        let path = match self.link {
            Link::InfiniBand => self.over_infiniband(path, theirs.lid, remote.gid)?,
            Link::Ethernet => self.over_ethernet(path, domain, qpn, remote)?,
        };
        Ok(Way {
            path,
            mtu: Mtu(self.mtu.0.min(mtu.0)),
            reads: self.reads.with(&theirs),
        })
    }

    /// By LID; with a global route header where the port demands it. To another subnet by the LID of the router, which
    /// finds the way by that header: the other end's LID means somebody else in this subnet.
    fn over_infiniband(
        &self,
        path: AddressPath,
        lid: u16,
        gid: Gid,
    ) -> Result<AddressPath, Mlx5Error> {
        let subnet = |gid: Gid| gid.0[..8].to_owned();
        let routed = subnet(gid) != subnet(self.gid());
        let router = || self.router_lid.ok_or(Mlx5Error::NoRouter { gid });
        Ok(AddressPath {
            rlid: if routed { router()? } else { lid },
            sl: self.service_level,
            grh: self.grh_required || routed,
            ..path
        })
    }

    /// By the MAC address that the system finds for the GID.
    fn over_ethernet(
        &self,
        path: AddressPath,
        domain: &Domain,
        qpn: u32,
        remote: &Endpoint,
    ) -> Result<AddressPath, Error> {
        let [high, low] = [0, 8].map(|at| {
            let half: [u8; 8] = std::array::from_fn(|byte| remote.gid.0[at + byte]);
            u64::from_ne_bytes(half)
        });
        let resolved = domain.resolve(AddressAttributes {
            grh: GlobalRoute {
                dgid: [high, low],
                flow_label: 0,
                sgid_index: self.gid.index,
                hop_limit: HOP_LIMIT,
                traffic_class: self.traffic_class,
            },
            dlid: 0,
            sl: self.service_level,
            src_path_bits: 0,
            static_rate: 0,
            is_global: 1,
            port_num: self.number,
        })?;
        let path = path.with_mac(resolved.rmac);
        Ok(AddressPath {
            eth_prio: self.service_level & 7,
            ..match self.gid.kind {
                GidType::RoceV2 => AddressPath {
                    dscp: self.traffic_class >> 2,
                    udp_sport: udp_source_port(qpn, remote.qpn),
                    ..path
                },
                _ => path,
            }
        })
    }
}

/// Whether two partition keys are of one partition, and one at least is a full member's (bit 15): limited members do not
/// hear each other.
fn share_partition(ours: u16, theirs: u16) -> bool {
    (ours ^ theirs) & 0x7fff == 0 && (ours | theirs) & 0x8000 != 0
}

/// A port's GIDs. The entries that are empty are left out.
fn gids(context: &Context, port: u8, attributes: &PortAttributes) -> Vec<PortGid> {
    // A path names its GID with 8 bits.
    let entries = 0..=u8::MAX;
    let entries = entries.take(usize::try_from(attributes.gid_tbl_len).unwrap_or(0));
    let found = entries.filter_map(|index| {
        let entry = context.gid(port, index.into())?;
        let kind = match entry.gid_type {
            values::GID_INFINIBAND => GidType::InfiniBand,
            values::GID_ROCE_V1 => GidType::RoceV1,
            values::GID_ROCE_V2 => GidType::RoceV2,
            _ => return None,
        };
        let mut gid = [0; 16];
        for (bytes, half) in gid.chunks_exact_mut(8).zip(entry.gid) {
            bytes.copy_from_slice(&half.to_ne_bytes());
        }
        Some(PortGid {
            index,
            kind,
            gid: Gid(gid),
        })
    });
    found.collect()
}

/// `enum ibv_port_state` in words.
fn state_name(state: u32) -> String {
    let known = [
        "without state",
        "down",
        "initialising",
        "armed",
        "active",
        "deferred",
    ];
    let known = known.get(state as usize).copied().map(String::from);
    known.unwrap_or_else(|| format!("in state {state}"))
}

/// How a port comes up.
fn up(link: Link) -> &'static str {
    match link {
        Link::InfiniBand => "plug its cable, and start a subnet manager (`opensm`)",
        Link::Ethernet => "plug its cable, and bring its interface up (`ip link set DEV up`)",
    }
}

fn bytes_of(mtu: Mtu) -> u32 {
    128 << mtu.0.min(5)
}

fn mtu_of(bytes: u32) -> Option<Mtu> {
    let known = bytes.is_power_of_two() && (256..=4096).contains(&bytes);
    known.then(|| Mtu((bytes / 128).ilog2() as u8))
}

/// A UDP source port for a connection: of the dynamic ones, another for each pair of queue pairs, so that the network
/// spreads them over its links. Both ends come to the same one.
fn udp_source_port(ours: u32, theirs: u32) -> u16 {
    /// The golden ratio in 64 bits, whose multiples are spread evenly.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let pair = u64::from(ours.min(theirs)) << 24 | u64::from(ours.max(theirs));
    0xc000 | (pair.wrapping_mul(SPREAD) >> 50) as u16
}

/// Where the system's settings of RDMA devices are.
struct SystemFiles {
    sysfs: PathBuf,
    configfs: PathBuf,
}

fn system_files() -> SystemFiles {
    SystemFiles {
        // Where libibverbs looks.
        sysfs: env::var_os("SYSFS_PATH").map_or_else(|| "/sys".into(), PathBuf::from),
        configfs: "/sys/kernel/config".into(),
    }
}

/// The traffic class that the system sets for a port: for all (`tc/PORT/traffic_class` of NVIDIA's driver), or for
/// what librdmacm connects (`default_roce_tos`).
fn traffic_class(files: &SystemFiles, name: &str, port: u8) -> Option<u8> {
    let number = |path: &Path| {
        let text = fs::read_to_string(path).ok()?;
        // `106`, or `Global tclass=106`.
        let digits = text.trim().rsplit('=').next()?;
        digits.trim().parse().ok()
    };
    let folder = files.sysfs.join("class/infiniband").join(name);
    let global = folder.join(format!("tc/{port}/traffic_class"));
    let ports = files.configfs.join("rdma_cm").join(name);
    let default = ports.join(format!("ports/{port}/default_roce_tos"));
    number(&global).or_else(|| number(&default))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtus_have_codes() {
        for (bytes, code) in [(256, 1), (512, 2), (1024, 3), (2048, 4), (4096, 5)] {
            assert_eq!(mtu_of(bytes), Some(Mtu(code)));
            assert_eq!(bytes_of(Mtu(code)), bytes);
        }
        for none in [0, 128, 300, 8192, u32::MAX] {
            assert_eq!(mtu_of(none), None);
        }
    }

    #[test]
    fn queue_pairs_have_source_ports_of_their_own() {
        let ports: std::collections::BTreeSet<_> = (0..256)
            .map(|pair| udp_source_port(0x100 + pair, 0x4000 + pair))
            .collect();
        assert!(ports.len() > 240, "{} of 256", ports.len());
        assert!(ports.iter().all(|port| *port >= 0xc000));
        assert_eq!(udp_source_port(7, 9), udp_source_port(9, 7));
    }

    #[test]
    fn the_traffic_class_is_inherited() {
        let root = env::temp_dir().join(format!("warpbell-tclass-{}", std::process::id()));
        let files = SystemFiles {
            sysfs: root.join("sys"),
            configfs: root.join("config"),
        };
        let write = |path: PathBuf, text: &str| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(traffic_class(&files, "mlx5_0", 1), None);
        let ports = files.configfs.join("rdma_cm/mlx5_0/ports/1");
        write(ports.join("default_roce_tos"), "104\n");
        assert_eq!(traffic_class(&files, "mlx5_0", 1), Some(104));
        let folder = files.sysfs.join("class/infiniband/mlx5_0/tc/1");
        write(folder.join("traffic_class"), "Global tclass=106\n");
        assert_eq!(traffic_class(&files, "mlx5_0", 1), Some(106));
        assert_eq!(traffic_class(&files, "mlx5_0", 2), None);
        write(folder.join("traffic_class"), "\n");
        assert_eq!(traffic_class(&files, "mlx5_0", 1), Some(104));
        fs::remove_dir_all(root).unwrap();
    }

    fn port(grh_required: bool) -> Port {
        Port {
            number: 1,
            link: Link::InfiniBand,
            lid: 3,
            mtu: Mtu::BYTES_4096,
            grh_required,
            gid: PortGid {
                index: 0,
                kind: GidType::InfiniBand,
                gid: Gid([1; 16]),
            },
            traffic_class: 0,
            service_level: 2,
            partition: (0, 0xffff),
            router_lid: None,
            reads: Reads {
                asked: 4,
                answered: 2,
            },
        }
    }

    #[test]
    fn partitions_have_a_full_member() {
        for (ours, theirs, shared) in [
            (0xffff, 0xffff, true),
            (0xffff, 0x7fff, true),
            (0x7fff, 0x7fff, false),
            (0x8001, 0x8002, false),
            (0x8001, 0x0001, true),
        ] {
            assert_eq!(share_partition(ours, theirs), shared);
            assert_eq!(share_partition(theirs, ours), shared);
        }
    }

    /// Each direction has as many reads under way as both ends allow.
    #[test]
    fn reads_are_what_both_ends_allow() {
        let ours = port(false);
        let theirs = |reads_asked, reads_answered| CardPort {
            reads_asked,
            reads_answered,
            ..ours.card_port()
        };
        let with = |theirs: CardPort| {
            let reads = ours.reads_with(&theirs);
            (reads.asked(), reads.answered())
        };
        assert_eq!(
            (
                ours.card_port().reads_asked,
                ours.card_port().reads_answered
            ),
            (16, 4)
        );
        assert_eq!(with(theirs(16, 16)), (4, 2));
        assert_eq!(with(theirs(1, 1)), (0, 0));
        assert_eq!(with(theirs(2, 9)), (3, 1));
        assert_eq!(with(theirs(0, 0)), (0, 0));
    }

    #[test]
    fn a_global_route_header_is_there_where_it_has_to_be() {
        let mut far = Gid([1; 16]);
        far.0[0] = 2;
        let mut near = Gid([1; 16]);
        near.0[15] = 2;
        for (demanded, gid, expected) in [
            (false, near, false),
            (true, near, true),
            (false, far, true),
            (true, far, true),
        ] {
            let routed = Port {
                router_lid: Some(77),
                ..port(demanded)
            };
            let path = routed.over_infiniband(AddressPath::default(), 9, gid);
            let path = path.unwrap();
            // The other subnet's LIDs mean nothing in this one.
            let lid = if gid == far { 77 } else { 9 };
            assert_eq!((path.grh, path.rlid, path.sl), (expected, lid, 2));
        }
        let lost = port(true).over_infiniband(AddressPath::default(), 9, far);
        assert_matches!(lost => Err(Mlx5Error::NoRouter { gid }) if gid == far);
    }
}
