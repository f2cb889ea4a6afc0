//! Frames: VLAN tags, what lies behind the packet, and every error.

use warpbell_roce::{FrameError, Ip, from_ethernet, from_ip};

/// An acknowledgement of Linux's soft-RoCE, from the IP header on.
const IPV4: [u8; 48] = [
    0x45, 0, 0, 0x30, 0x5a, 0xee, 0x40, 0, 0x40, 0x11, 0xcb, 0x1e, 10, 77, 0, 11, 10, 77, 0, 12,
    0xc1, 0x21, 0x12, 0xb7, 0, 0x1c, 0, 0, 0x11, 0, 0xff, 0xff, 0, 0, 0, 0x11, 0, 0xc9, 0x12, 0xa3,
    0x1f, 0, 0, 1, 0xc0, 0xf4, 0xbc, 0xe1,
];

fn frame(tags: &[u16], ether_type: u16) -> Vec<u8> {
    let mut frame = vec![0xaa; 12];
    for tag in tags {
        frame.extend(tag.to_be_bytes());
        frame.extend([0, 7]);
    }
    frame.extend(ether_type.to_be_bytes());
    frame.extend(IPV4);
    frame
}

#[test]
fn tags_and_padding_are_skipped() {
    let expected = from_ip(&IPV4).expect("an IP packet");
    assert!(expected.0.verify(&[expected.1]));
    assert!(matches!(
        expected.0.ip,
        Ip::V4 {
            identification: 0x5aee,
            ..
        }
    ));
    for tags in [&[][..], &[0x8100], &[0x88a8, 0x8100]] {
        let mut frame = frame(tags, 0x0800);
        assert_eq!(from_ethernet(&frame), Ok(expected));
        frame.extend([0; 6]);
        assert_eq!(from_ethernet(&frame), Ok(expected));
    }
    let three = frame(&[0x88a8, 0x8100, 0x8100], 0x0800);
    assert_eq!(from_ethernet(&three), Err(FrameError::EtherType(0x8100)));
    // RoCE version 1.
    let other = frame(&[], 0x8915);
    assert_eq!(from_ethernet(&other), Err(FrameError::EtherType(0x8915)));
}

#[test]
fn every_shorter_frame_is_cut_off() {
    let frame = frame(&[0x8100], 0x0800);
    for length in 0..frame.len() {
        assert_eq!(from_ethernet(&frame[..length]), Err(FrameError::CutOff));
    }
}

#[test]
fn every_frame_error_has_its_cause() {
    let with = |at: usize, value| {
        let mut packet = IPV4;
        packet[at] = value;
        from_ip(&packet).map(|_| ()).unwrap_err()
    };
    assert_eq!(with(0, 0x55), FrameError::Version(5));
    assert_eq!(with(0, 0x46), FrameError::HeaderLength(6));
    assert_eq!(with(6, 0x20), FrameError::Fragment);
    assert_eq!(with(6, 0x10), FrameError::Fragment);
    assert_eq!(with(7, 0x01), FrameError::Fragment);
    assert_eq!(with(9, 6), FrameError::Protocol(6));
    assert_eq!(with(3, 19), FrameError::CutOff);
    assert_eq!(with(3, 49), FrameError::CutOff);
    let length = |ip, udp| FrameError::Length { ip, udp };
    assert_eq!(with(25, 0x1d), length(28, 29));
    assert_eq!(with(3, 47), length(27, 28));
}
