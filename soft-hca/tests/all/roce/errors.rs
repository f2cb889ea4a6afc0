//! Why an HCA does not listen, or reaches nobody.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use warpbell_soft_hca::shell::{HcaError, HcaOptions, RoceError, RoceOptions, SoftHca};

use super::world::{ADDRESSES, listen};

fn hca() -> SoftHca {
    SoftHca::new(HcaOptions::default())
}

fn refused<T: std::fmt::Debug>(result: Result<T, HcaError>) -> RoceError {
    match result {
        Err(HcaError::Roce(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn at(address: SocketAddr) -> RoceOptions {
    RoceOptions {
        address,
        ..RoceOptions::at(address.ip())
    }
}

#[test]
fn the_default_is_the_port_of_roce_and_the_default_partition() {
    let options = RoceOptions::at(Ipv4Addr::LOCALHOST.into());
    assert_eq!(options.address.port(), 4791);
    assert_eq!(options.partition_key, 0xffff);
}

#[test]
fn an_address_that_is_taken_or_not_there_is_named() {
    for [address, _] in ADDRESSES {
        let other = UdpSocket::bind(address).unwrap();
        let taken = other.local_addr().unwrap();
        let error = refused(hca().listen(at(taken)));
        assert!(matches!(error, RoceError::AddressTaken(named) if named == taken));
    }
    // RFC 5737 and 3849: of no machine.
    for address in ["192.0.2.1:0", "[2001:db8::1]:0"] {
        let address = address.parse().unwrap();
        let error = refused(hca().listen(at(address)));
        assert!(matches!(error, RoceError::NoSuchAddress(named) if named == address));
    }
    for address in ["0.0.0.0:0", "[::]:0", "224.0.0.1:0"] {
        let error = refused(hca().listen(at(address.parse().unwrap())));
        assert!(matches!(error, RoceError::NotOneMachine(_)), "{error}");
    }
}

#[test]
fn an_hca_listens_once_at_each_kind_of_address() {
    let hca = hca();
    for [address, _] in ADDRESSES {
        let first = listen(&hca, address, None);
        let error = refused(hca.listen(at(address)));
        assert!(matches!(error, RoceError::ListensAlready(named) if named == first));
    }
}

#[test]
fn a_peer_gets_one_number_and_the_own_address_is_the_own_number() {
    let (hca, other) = (hca(), hca());
    for [ours, theirs] in ADDRESSES {
        let [ours, theirs] = [listen(&hca, ours, None), listen(&other, theirs, None)];
        assert_eq!(hca.reach(ours).unwrap(), hca.address());
        let number = hca.reach(theirs).unwrap();
        assert_ne!(number, hca.address());
        assert_eq!(hca.reach(theirs).unwrap(), number);
        assert_eq!(hca.path_mtu(number).unwrap(), Some(4096));
    }
}

#[test]
fn who_cannot_be_reached_is_named() {
    let hca = hca();
    let peer = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), 4791));
    let error = refused(hca.reach(peer));
    assert!(matches!(error, RoceError::NotListening(named) if named == peer));
    listen(&hca, ADDRESSES[0][0], None);
    let error = refused(hca.reach((Ipv6Addr::LOCALHOST, 4791).into()));
    assert!(matches!(error, RoceError::NotListening(_)), "{error}");
    // No way leads from the loopback device to another machine.
    let peer = "192.0.2.1:4791".parse().unwrap();
    let error = refused(hca.reach(peer));
    assert!(matches!(error, RoceError::Unreachable { peer: named, .. } if named == peer));
    // Also where its IP address is known.
    hca.reach("127.0.0.2:4791".parse().unwrap()).unwrap();
    for peer in ["0.0.0.0:4791", "224.0.0.1:4791", "127.0.0.2:0"] {
        let error = refused(hca.reach(peer.parse().unwrap()));
        assert!(matches!(error, RoceError::NotOneMachine(_)), "{error}");
    }
}
