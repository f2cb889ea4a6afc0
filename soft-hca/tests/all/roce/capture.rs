//! Captures, against the description of pcapng and against the packets' CRCs.

use std::path::PathBuf;

use mlx5_wqe::Wqe;
use warpbell_roce::{BthOpcode, Packet, from_ip};
use warpbell_soft_hca::shell::{HcaError, HcaOptions, RoceError, RoceOptions, SoftHca};

use super::world::{ADDRESSES, Way, World};

fn file(name: &str) -> PathBuf {
    let name = format!("warpbell-{}-{name}.pcapng", std::process::id());
    std::env::temp_dir().join(name)
}

/// The blocks of a file: the type of each, and what is in it.
fn blocks(file: &[u8]) -> Vec<(u32, &[u8])> {
    let word = |bytes: &[u8]| u32::from_ne_bytes(bytes.try_into().unwrap());
    let mut rest = file;
    let mut blocks = Vec::new();
    while !rest.is_empty() {
        let length = word(&rest[4..8]) as usize;
        assert_eq!(length % 4, 0);
        let (block, after) = rest.split_at(length);
        assert_eq!(word(&block[length - 4..]) as usize, length);
        blocks.push((word(&block[..4]), &block[8..length - 4]));
        rest = after;
    }
    blocks
}

/// Every packet, sent or received, is in the file when its step has ended.
#[test]
fn a_capture_has_every_packet() {
    for addresses in ADDRESSES {
        let path = file(if addresses[0].is_ipv4() { "4" } else { "6" });
        let mut world = World::new(Way {
            capture: Some(path.clone()),
            ..Way::of(addresses)
        });
        let source = world.a.region(&[5; 9001]);
        let target = world.b.region(&[0; 9001]);
        let write = Wqe::<1>::write(source.all(), target.remote(0));
        world.a.qp.post(write.signalled());
        assert!(!world.sent().tail().is_error());
        let bytes = std::fs::read(&path).unwrap();
        let blocks = blocks(&bytes);
        let kinds: Vec<u32> = blocks.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [0x0a0d_0d0a, 1, 6, 6, 6, 6]);
        let packets = blocks[2..].iter().map(|(_, block)| {
            let length = u32::from_ne_bytes(block[12..16].try_into().unwrap()) as usize;
            let (udp, bytes) = from_ip(&block[20..20 + length]).unwrap();
            assert!(udp.verify(&[bytes]));
            Packet::parse(bytes).unwrap().headers.bth().opcode
        });
        assert_eq!(
            packets.collect::<Vec<_>>(),
            [
                BthOpcode::RC_WRITE_FIRST,
                BthOpcode::RC_WRITE_MIDDLE,
                BthOpcode::RC_WRITE_LAST,
                BthOpcode::RC_ACKNOWLEDGE,
            ]
        );
        std::fs::remove_file(&path).unwrap();
    }
}

/// An HCA that cannot listen leaves the file of an earlier run alone.
#[test]
fn a_file_is_emptied_only_by_an_hca_that_listens() {
    let path = file("kept");
    std::fs::write(&path, "kept").unwrap();
    let other = std::net::UdpSocket::bind(ADDRESSES[0][0]).unwrap();
    let address = other.local_addr().unwrap();
    let options = RoceOptions {
        address,
        capture: Some(path.clone()),
        ..RoceOptions::at(address.ip())
    };
    let refused = SoftHca::new(HcaOptions::default()).listen(options);
    assert!(matches!(
        refused,
        Err(HcaError::Roce(RoceError::AddressTaken(_)))
    ));
    assert_eq!(std::fs::read(&path).unwrap(), b"kept");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_file_that_cannot_be_made_is_named() {
    let path = PathBuf::from("/nowhere/at/all");
    let options = RoceOptions {
        address: ADDRESSES[0][0],
        capture: Some(path.clone()),
        ..RoceOptions::at(ADDRESSES[0][0].ip())
    };
    let error = SoftHca::new(HcaOptions::default())
        .listen(options)
        .unwrap_err();
    let HcaError::Roce(RoceError::Capture { path: named, .. }) = error else {
        panic!("{error}");
    };
    assert_eq!(named, path);
}
