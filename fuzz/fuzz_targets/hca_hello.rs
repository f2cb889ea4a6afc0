//! Any 16 bytes are a hello to an HCA or an error, as a second reading of them says.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpbell_soft_hca::engine::WireAddress;
use warpbell_soft_hca::shell::{Wish, understand};

fuzz_target!(|input: (u32, [u8; 16])| {
    let (own, hello) = input;
    let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| hello[at + byte]));
    let understood = understand(WireAddress(own), hello);
    let known = [word(0), word(4)] == [0x5742_6863, 1];
    let peer = WireAddress(word(12));
    match (word(8), peer.0) {
        (1, peer_is) if known && peer_is > own => {
            assert_eq!(understood.unwrap(), (Wish::Join, peer));
        }
        (2, peer_is) if known && peer_is < own => {
            assert_eq!(understood.unwrap(), (Wish::Come, peer));
        }
        _ => assert!(understood.is_err()),
    }
});
