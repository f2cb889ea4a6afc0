//! The wires from a rank's NIC to those of the others.

use std::collections::BTreeMap;
use std::net::SocketAddr;
#[cfg(feature = "soft")]
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use warpbell_ranks::Bootstrap;
#[cfg(feature = "soft")]
use warpbell_soft_hca::shell::{RoceOptions, SoftHca, gid};

use super::site::{self, Site, Sites};
use super::{WireKind, WorldOptions, gather};
#[cfg(feature = "soft")]
use super::{WorldError, address};
#[cfg(feature = "soft")]
use crate::Device;
#[cfg(feature = "soft")]
use crate::soft::{SoftOptions, refused};
use crate::state::Gid;
use crate::{Error, Nic, Node, ProtectionDomain};

/// How the NIC of a rank is reached.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Contact {
    pub gid: Gid,
    /// Where it listens for RoCE packets, if it does.
    roce: Option<SocketAddr>,
}

/// A rank's NIC, and the ways to the others.
pub(super) struct Links {
    pub domain: ProtectionDomain,
    /// What others need to know of this process now that its NIC is open.
    site: Site,
    contact: Contact,
    options: WorldOptions,
    /// By rank: the wire there, and how it is reached.
    pub peers: BTreeMap<u32, (WireKind, Contact)>,
}

impl Links {
    /// Opens the NIC, and learns how all are reached.
    pub fn open(
        bootstrap: &mut dyn Bootstrap,
        node: &Node,
        options: &WorldOptions,
    ) -> Result<Self, Error> {
        let own = bootstrap.rank();
        let wire = match node.nic() {
            #[cfg(feature = "soft")]
            Nic::Soft(_) => options.wire,
            #[cfg(feature = "soft")]
            Nic::SoftGpu(_) if bootstrap.size() > 1 => {
                let (rank, nic) = (own, node.nic_name());
                return Err(WorldError::NoWire { rank, nic }.into());
            }
            #[cfg(feature = "soft")]
            Nic::SoftGpu(_) => None,
            #[cfg(feature = "mlx5")]
            Nic::Mlx5(_) => Some(WireKind::Cards),
        };
        let mut site = Site::own(wire, options)?;
        let sites = gather::by_rank(bootstrap, &site, options.timeout)?;
        let wires = site::wires(&sites, own)?;
        site.shares = leads_to_others(&wires, own, WireKind::SharedMemory);
        let domain = open_for(node, &mut site)?;
        let (gid, roce) = (domain.device().gid(), None);
        let mut links = Self {
            domain,
            site,
            contact: Contact { gid, roce },
            options: options.clone(),
            peers: BTreeMap::new(),
        };
        links.make(bootstrap, &sites, options.timeout)?;
        Ok(links)
    }

    /// Learns how a process is reached that came later. All call it, the new one [`open`](Self::open).
    pub fn renew(&mut self, bootstrap: &mut dyn Bootstrap, timeout: Duration) -> Result<(), Error> {
        let sites = gather::by_rank(bootstrap, &self.site, timeout)?;
        self.make(bootstrap, &sites, timeout)
    }

    fn make(
        &mut self,
        bootstrap: &mut dyn Bootstrap,
        sites: &Sites,
        timeout: Duration,
    ) -> Result<(), Error> {
        let own = bootstrap.rank();
        let wires = site::wires(sites, own)?;
        #[cfg(feature = "soft")]
        if leads_to_others(&wires, own, WireKind::RoceV2) {
            address::none_is_confined(sites)?;
            if self.contact.roce.is_none() {
                self.listen(sites, own)?;
            }
        }
        let contacts = gather::by_rank(bootstrap, &self.contact, timeout)?;
        let peers = contacts.into_iter();
        self.peers = peers
            .map(|(rank, contact)| (rank, (wires[&rank], contact)))
            .collect();
        Ok(())
    }

    /// Listens for RoCE packets. From then on this process has one address for all who come.
    #[cfg(feature = "soft")]
    fn listen(&mut self, sites: &Sites, own: u32) -> Result<(), Error> {
        let hca = software(self.domain.device())?;
        let ip = address::of(sites, own)?;
        let capture = self.options.capture.as_deref();
        // Several ranks of a machine have one address.
        let options = RoceOptions {
            address: SocketAddr::new(ip, 0),
            capture: capture.map(|folder| capture_file(folder, own)),
            ..RoceOptions::at(ip)
        };
        let address = hca.listen(options);
        self.contact.roce = Some(address.map_err(refused("listen for RoCE packets"))?);
        self.site.addresses.retain(|(address, _)| *address == ip);
        Ok(())
    }

    /// The GID by which queue pairs of this NIC name that of another rank.
    pub fn gid_of(&self, rank: u32) -> Result<Gid, Error> {
        match self.peers[&rank] {
            #[cfg(feature = "soft")]
            (WireKind::RoceV2, contact) => reach(self.domain.device(), contact),
            (_, contact) => Ok(contact.gid),
        }
    }
}

fn leads_to_others(wires: &BTreeMap<u32, WireKind>, own: u32, wanted: WireKind) -> bool {
    let mut wires = wires.iter();
    wires.any(|(rank, wire)| *rank != own && *wire == wanted)
}

/// The first name for a rank's capture that no file has: a program may make several worlds, and a rank may come back.
#[cfg(feature = "soft")]
fn capture_file(folder: &Path, rank: u32) -> PathBuf {
    let mut path = folder.join(format!("rank-{rank}.pcapng"));
    let mut number = 1;
    while path.exists() {
        path.set_file_name(format!("rank-{rank}-{number}.pcapng"));
        number += 1;
    }
    path
}

/// Opens the NIC for the wires of a site.
#[cfg(feature = "soft")]
fn open_for(node: &Node, site: &mut Site) -> Result<ProtectionDomain, Error> {
    let Nic::Soft(options) = node.nic() else {
        return node.domain();
    };
    site.shares |= options.reachable;
    let options = SoftOptions {
        reachable: site.shares,
        ..options.clone()
    };
    node.with_nic(Nic::Soft(options))?.domain()
}

#[cfg(not(feature = "soft"))]
fn open_for(node: &Node, _: &mut Site) -> Result<ProtectionDomain, Error> {
    node.domain()
}

#[cfg(feature = "soft")]
fn software(device: &Device) -> Result<&SoftHca, Error> {
    let gid = device.gid();
    device.soft_hca().ok_or(Error::Unreachable { gid })
}

/// Makes another rank's NIC known; gives the GID by which queue pairs of this device name it.
#[cfg(feature = "soft")]
fn reach(device: &Device, Contact { gid, roce }: Contact) -> Result<Gid, Error> {
    let address = roce.ok_or(Error::Unreachable { gid })?;
    let number = software(device)?.reach(address);
    Ok(Gid(gid::of(number.map_err(refused("reach another rank"))?)))
}
