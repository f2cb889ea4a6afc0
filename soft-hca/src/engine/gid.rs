//! GIDs that tell an HCA's address: the link-local one of a MAC address (EUI-64) that carries it.

use super::packet::WireAddress;

/// A port's GID.
pub type Gid = [u8; 16];

/// The first half of a link-local GID.
const LINK_LOCAL: [u8; 8] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0];

/// The GID of the HCA with this address. Its MAC address is 00:00 and the address.
pub fn of(address: WireAddress) -> Gid {
    let [a, b, c, d] = address.0.to_be_bytes();
    let mut gid = [0; 16];
    gid[..8].copy_from_slice(&LINK_LOCAL);
    // The second bit is the other way round than in the MAC address.
    gid[8..].copy_from_slice(&[2, 0, a, 0xff, 0xfe, b, c, d]);
    gid
}

/// The address of the HCA that has this GID; none if no HCA has it.
pub fn address(gid: Gid) -> Option<WireAddress> {
    let [.., a, _, _, b, c, d] = gid;
    let address = WireAddress(u32::from_be_bytes([a, b, c, d]));
    (of(address) == gid).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gid_tells_the_address_and_others_do_not() {
        for number in [0, 1, 0x1234_5678, u32::MAX] {
            let gid = of(WireAddress(number));
            assert_eq!(address(gid), Some(WireAddress(number)));
            for byte in [0, 7, 8, 9, 11, 12] {
                let mut other = gid;
                other[byte] ^= 1;
                assert_eq!(address(other), None);
            }
        }
        assert_eq!(
            of(WireAddress(0x1234_5678)),
            [
                0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0x12, 0xff, 0xfe, 0x34, 0x56, 0x78
            ]
        );
    }
}
