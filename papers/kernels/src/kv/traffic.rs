//! What a GET costs the network, counted while it is made.

/// Bytes of a packet beside its payload and what the headers below add: Ethernet (14), IPv4 (20), UDP (8) and the base
/// transport header (12) before it, checksums (4 and 4) behind it. RoCE v2, annex A17 of the InfiniBand specification.
pub const PACKET: u64 = 14 + 20 + 8 + 12 + 4 + 4;
/// Bytes of the header that says what a READ or a WRITE is about, in its first packet.
pub const REQUEST: u64 = 16;
/// Bytes of the header of an acknowledgement, and of a READ's first and last packet of data.
pub const ACKNOWLEDGEMENT: u64 = 4;

/// Round trips, requests, packets and bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// How often one end waited for the other.
    pub round_trips: u64,
    /// READs and WRITEs of both ends.
    pub requests: u64,
    /// Packets of both directions. Each WRITE is acknowledged by one, which is the most there can be: a NIC may
    /// acknowledge several by one.
    pub packets: u64,
    /// Their bytes, all headers included.
    pub bytes: u64,
}

impl Traffic {
    /// Adds a READ of so many bytes, at least 1, in packets with a payload of at most `mtu` bytes.
    #[inline(always)]
    pub const fn read(&mut self, bytes: u32, mtu: u32) {
        let answers = packets(bytes, mtu);
        let ends = if answers == 1 { 1 } else { 2 };
        self.requests += 1;
        self.packets += 1 + answers;
        self.bytes += PACKET + REQUEST;
        self.bytes += answers * PACKET + ends * ACKNOWLEDGEMENT + padded(bytes);
    }

    /// Adds a WRITE of so many bytes, at least 1, and its acknowledgement.
    #[inline(always)]
    pub const fn write(&mut self, bytes: u32, mtu: u32) {
        let packets = packets(bytes, mtu);
        self.requests += 1;
        self.packets += packets + 1;
        self.bytes += packets * PACKET + REQUEST + padded(bytes);
        self.bytes += PACKET + ACKNOWLEDGEMENT;
    }
}

/// Packets of a payload.
const fn packets(bytes: u32, mtu: u32) -> u64 {
    match mtu {
        0 => 1,
        _ => bytes.div_ceil(mtu) as u64,
    }
}

/// Payloads are filled up to whole words of 4 bytes.
const fn padded(bytes: u32) -> u64 {
    (bytes as u64).next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the sizes of the packets of a capture: 78 bytes ask for a READ, 66 acknowledge.
    #[test]
    fn packets_are_counted_with_their_headers() {
        for (bytes, mtu, packets, wire) in [
            (1, 1024, 2, 78 + 62 + 4 + 4),
            (64, 1024, 2, 78 + 62 + 4 + 64),
            (1024, 1024, 2, 78 + 62 + 4 + 1024),
            (1025, 1024, 3, 78 + 2 * 66 + 1028),
            (1000, 256, 5, 78 + 66 + 62 + 62 + 66 + 1000),
        ] {
            let mut traffic = Traffic::default();
            traffic.read(bytes, mtu);
            let found = (traffic.requests, traffic.packets, traffic.bytes);
            assert_eq!(found, (1, packets, wire), "a READ of {bytes}");
        }
        for (bytes, mtu, packets, wire) in [
            (8, 1024, 2, 78 + 8 + 66),
            (1025, 1024, 3, 78 + 62 + 1028 + 66),
        ] {
            let mut traffic = Traffic::default();
            traffic.write(bytes, mtu);
            let found = (traffic.requests, traffic.packets, traffic.bytes);
            assert_eq!(found, (1, packets, wire), "a WRITE of {bytes}");
        }
    }
}
