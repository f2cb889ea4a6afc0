//! Any bytes are a packet that consists of them, or an error by name; any frame is taken apart without a panic, and its
//! packet's CRC depends on each of its bytes that no router changes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpbell_roce::{Headers, MAX_HEADERS, Packet, from_ethernet, from_ip};

fn again(bytes: &[u8]) {
    let Ok(packet) = Packet::parse(bytes) else {
        return;
    };
    let mut scratch = [0; MAX_HEADERS];
    let headers = packet.headers.write(&mut scratch);
    assert_eq!([headers, packet.payload, &packet.trailer].concat(), bytes);

    let bth = *packet.headers.bth();
    let rebuilt = Headers::new(bth, *packet.headers.extended(), packet.payload.len());
    assert_eq!(rebuilt, Ok(packet.headers));
}

fuzz_target!(|input: &[u8]| {
    again(input);
    for frame in [from_ip(input), from_ethernet(input)] {
        let Ok((udp, bytes)) = frame else { continue };
        again(bytes);
        let Some((covered, crc)) = bytes.split_last_chunk::<4>() else {
            continue;
        };
        let right = udp.icrc(&[covered]);
        assert_eq!(udp.verify(&[bytes]), u32::from_le_bytes(*crc) == right);
        // Byte 4 of the BTH counts as ones.
        for at in (0..covered.len()).filter(|&at| at != 4) {
            let mut changed = covered.to_vec();
            changed[at] ^= 1;
            assert_ne!(udp.icrc(&[&changed]), right);
        }
    }
});
