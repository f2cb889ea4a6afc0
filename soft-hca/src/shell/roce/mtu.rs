//! How long packets may be on the way to a peer.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use rustix::net::sockopt;
use warpbell_roce::{Bth, ImmDt, Reth};

use super::error::RoceError;

/// The path MTUs of RoCE, in bytes of payload (annex A17).
const MTUS: [u32; 5] = [4096, 2048, 1024, 512, 256];

/// Headers and CRC of the longest packet with a payload, behind the IP header: UDP, BTH, RETH, immediate data, CRC.
const OVERHEAD: u32 = (8 + size_of::<Bth>() + size_of::<Reth>() + size_of::<ImmDt>() + 4) as u32;

/// The least path MTU, in bytes of payload.
pub const LEAST_MTU: u32 = 256;

/// The largest path MTU, in bytes of payload, over a link whose IP packets have at most `link` bytes, between addresses
/// of this kind. None if the link carries not even [`LEAST_MTU`].
pub fn path_mtu_of_link(link: u32, kind: IpAddr) -> Option<u32> {
    largest(link, overhead(kind))
}

/// The path MTU on the way from `own` to `peer`: the largest whose packets the interface there carries.
pub(super) fn path_mtu(own: SocketAddr, peer: SocketAddr) -> Result<u32, RoceError> {
    let overhead = overhead(peer.ip());
    let mtu = interface_mtu(own, peer)?;
    largest(mtu, overhead).ok_or(RoceError::MtuTooSmall {
        peer,
        mtu,
        least: LEAST_MTU + overhead,
    })
}

/// What of an IP packet is not payload, at most.
const fn overhead(kind: IpAddr) -> u32 {
    OVERHEAD
        + match kind {
            IpAddr::V4(_) => 20,
            IpAddr::V6(_) => 40,
        }
}

fn largest(mtu: u32, overhead: u32) -> Option<u32> {
    MTUS.into_iter().find(|payload| payload + overhead <= mtu)
}

/// The bytes of the longest IP packet on the way, as far as this machine knows.
fn interface_mtu(own: SocketAddr, peer: SocketAddr) -> Result<u32, RoceError> {
    let system = |step| {
        move |source| RoceError::System {
            step,
            address: own,
            source,
        }
    };
    let mut any_port = own;
    any_port.set_port(0);
    let probe = UdpSocket::bind(any_port).map_err(system("bind of a socket"))?;
    // Looks for the route, and sends nothing.
    probe
        .connect(peer)
        .map_err(|source| RoceError::Unreachable { peer, source })?;
    let mtu = match peer {
        SocketAddr::V4(_) => sockopt::ip_mtu(&probe),
        SocketAddr::V6(_) => sockopt::ipv6_mtu(&probe),
    };
    mtu.map_err(|errno| system("look at the MTU")(errno.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a link of 1,500 bytes Linux's soft-RoCE has 1,024, too.
    #[test]
    fn the_path_mtu_is_the_largest_that_fits() {
        let overhead = 64;
        assert_eq!(OVERHEAD + 20, overhead);
        for (mtu, expected) in [
            (319, None),
            (320, Some(256)),
            (575, Some(256)),
            (576, Some(512)),
            (1500, Some(1024)),
            (4159, Some(2048)),
            (4160, Some(4096)),
            (65_536, Some(4096)),
        ] {
            assert_eq!(largest(mtu, overhead), expected, "{mtu}");
            let [v4, v6] = ["10.0.0.1", "fd00::1"].map(|kind| kind.parse().unwrap());
            assert_eq!(path_mtu_of_link(mtu, v4), expected, "{mtu}");
            assert_eq!(path_mtu_of_link(mtu + 20, v6), expected, "{mtu}");
        }
    }
}
