//! Which of a port's addresses a queue pair uses.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use crate::state::{Gid, GidType};

/// Which GID to use. What is left out is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GidChoice {
    /// That of this index, whatever its type and address.
    pub index: Option<u8>,
    /// One of this type; InfiniBand's on InfiniBand and RoCE v2 on Ethernet, if left out.
    pub kind: Option<GidType>,
    /// The one that is, or carries, this address.
    pub address: Option<IpAddr>,
}

/// An entry of a port's table of GIDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PortGid {
    pub index: u8,
    pub kind: GidType,
    pub gid: Gid,
}

impl fmt::Display for PortGid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, index {})", self.gid, self.kind, self.index)
    }
}

impl PortGid {
    /// How far packets to this address travel: an address of IPv4 (the usual one of a data centre), one of IPv6, one
    /// of the link alone.
    fn rank(&self) -> u8 {
        let address = Ipv6Addr::from(self.gid.0);
        match address.to_ipv4_mapped() {
            Some(_) => 2,
            None if address.is_unicast_link_local() => 0,
            None => 1,
        }
    }

    fn has(&self, address: IpAddr) -> bool {
        let own = Ipv6Addr::from(self.gid.0);
        match address {
            IpAddr::V4(address) => own == address.to_ipv6_mapped(),
            IpAddr::V6(address) => own == address,
        }
    }
}

impl GidChoice {
    /// The GID among those of a port: of the best that fit, the first. `usual` is the type that counts if none is
    /// asked for.
    pub(super) fn among(&self, gids: &[PortGid], usual: GidType) -> Option<PortGid> {
        let fits = |gid: &&PortGid| match self.index {
            Some(index) => gid.index == index,
            None => {
                gid.kind == self.kind.unwrap_or(usual)
                    && self.address.is_none_or(|address| gid.has(address))
            }
        };
        let rank = |gid: &PortGid| (gid.rank(), u8::MAX - gid.index);
        gids.iter().filter(fits).copied().max_by_key(rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Vec<PortGid> {
        let gid = |index, kind, address: &str| PortGid {
            index,
            kind,
            gid: Gid(address.parse::<Ipv6Addr>().unwrap().octets()),
        };
        vec![
            gid(0, GidType::RoceV1, "fe80::2"),
            gid(1, GidType::RoceV2, "fe80::2"),
            gid(2, GidType::RoceV1, "::ffff:10.0.0.1"),
            gid(3, GidType::RoceV2, "::ffff:10.0.0.1"),
            gid(4, GidType::RoceV2, "2001:db8::1"),
            gid(5, GidType::RoceV2, "::ffff:10.0.0.2"),
        ]
    }

    #[test]
    fn type_and_address_choose() {
        let chosen = |choice: GidChoice| {
            let found = choice.among(&table(), GidType::RoceV2);
            found.map(|gid| gid.index)
        };
        let by_address = |address: &str| GidChoice {
            address: Some(address.parse().unwrap()),
            ..GidChoice::default()
        };
        assert_eq!(chosen(GidChoice::default()), Some(3), "IPv4 before IPv6");
        assert_eq!(chosen(by_address("10.0.0.2")), Some(5));
        assert_eq!(chosen(by_address("2001:db8::1")), Some(4));
        assert_eq!(chosen(by_address("fe80::2")), Some(1));
        assert_eq!(chosen(by_address("10.0.0.3")), None);
        let old = GidChoice {
            kind: Some(GidType::RoceV1),
            ..GidChoice::default()
        };
        assert_eq!(chosen(old), Some(2));
        let by_index = |index| GidChoice {
            index: Some(index),
            ..old
        };
        assert_eq!(
            chosen(by_index(1)),
            Some(1),
            "an index is asked for as it is"
        );
        assert_eq!(chosen(by_index(9)), None);
        let none = GidChoice {
            kind: Some(GidType::InfiniBand),
            ..GidChoice::default()
        };
        assert_eq!(chosen(none), None);
    }
}
