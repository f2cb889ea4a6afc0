//! The way of a queue pair's packets.

use super::bits::Field;
use super::record::{self, PrmError, Record, records};

records! {
    /// Where a queue pair's packets go: the path of its RC connection.
    plain AddressPath = "ads", 44 {
        /// Force loopback.
        fl: bool = 0x0, 1;
        /// Adaptive routing, where the fabric has it.
        free_ar: bool = 0x1, 1;
        /// Index into the port's table of partition keys.
        pkey_index: u16 = 0x10, 16;
        /// Packets carry a global route header (InfiniBand).
        grh: bool = 0x28, 1;
        /// Low bits of the source LID (InfiniBand).
        mlid: u8 = 0x29, 7;
        /// Remote LID (InfiniBand).
        rlid: u16 = 0x30, 16;
        /// How long to wait for an acknowledgement: 4.096 µs × 2^n, 0 for ever.
        ack_timeout: u8 = 0x40, 5;
        /// Index into the port's table of GIDs.
        src_addr_index: u8 = 0x48, 8;
        /// Static rate limit, 0 for none.
        stat_rate: u8 = 0x54, 4;
        /// Hop limit, or time to live.
        hop_limit: u8 = 0x58, 8;
        /// Traffic class of the global route header.
        tclass: u8 = 0x64, 8;
        /// Flow label of the global route header.
        flow_label: u32 = 0x6c, 20;
        /// Remote GID; with RoCE v2 over IPv4 the mapped address.
        rgid_rip: [u8; 16] = 0x80, 128;
        /// Force `dscp`.
        f_dscp: bool = 0x104, 1;
        /// Force `ecn`.
        f_ecn: bool = 0x105, 1;
        /// Force `eth_prio`.
        f_eth_prio: bool = 0x107, 1;
        /// Congestion notification bits.
        ecn: u8 = 0x108, 2;
        /// Differentiated services code point (RoCE v2): the traffic class without its two low bits.
        dscp: u8 = 0x10a, 6;
        /// UDP source port (RoCE v2).
        udp_sport: u16 = 0x110, 16;
        /// Drop eligible (VLAN).
        dei_cfi: bool = 0x120, 1;
        /// Ethernet priority (RoCE).
        eth_prio: u8 = 0x121, 3;
        /// Service level (InfiniBand).
        sl: u8 = 0x124, 4;
        /// Port, 1 the first.
        vhca_port_num: u8 = 0x128, 8;
        /// Remote MAC address, its first two bytes (RoCE).
        rmac_47_32: u16 = 0x130, 16;
        /// Remote MAC address, its last four bytes (RoCE).
        rmac_31_0: u32 = 0x140, 32;
    }
}

impl AddressPath {
    /// The path with the remote MAC address `mac` (RoCE).
    pub const fn with_mac(mut self, mac: [u8; 6]) -> Self {
        let [a, b, c, d, e, f] = mac;
        self.rmac_47_32 = u16::from_be_bytes([a, b]);
        self.rmac_31_0 = u32::from_be_bytes([c, d, e, f]);
        self
    }

    /// The remote MAC address.
    pub const fn mac(&self) -> [u8; 6] {
        let [a, b] = self.rmac_47_32.to_be_bytes();
        let [c, d, e, f] = self.rmac_31_0.to_be_bytes();
        [a, b, c, d, e, f]
    }
}
