//! PCIe as packets (TLPs): how many a transfer takes, and how long they occupy the bus.

use crate::parameters::Parameters;

/// How many packets carry so many bytes, at most `largest` in each. An empty transfer takes none.
pub fn packets(bytes: u64, largest: u64) -> u64 {
    bytes.div_ceil(largest)
}

/// A way of data through a SmartNIC, with the names of the paper on off-path SmartNICs (figure 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Between the network and the host's memory (1).
    Host,
    /// Between the network and the memory of the NIC's own processors (2).
    Soc,
    /// Between the host's memory and that of the NIC's own processors (3).
    HostAndSoc,
}

/// The packets of a transfer on the two channels of a SmartNIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    /// Between the NIC and the switch inside.
    pub pcie1: u64,
    /// Between that switch and the host.
    pub pcie0: u64,
}

impl Channels {
    /// Table 3 of the paper: `bytes` over a path, where a packet carries at most `host` bytes of the host's memory and
    /// `soc` bytes of the processors'. Packets that carry no data are left out, as in the paper.
    pub fn of(path: Path, bytes: u64, host: u64, soc: u64) -> Self {
        let (host, soc) = (packets(bytes, host), packets(bytes, soc));
        match path {
            Path::Host => Self {
                pcie1: host,
                pcie0: host,
            },
            Path::Soc => Self {
                pcie1: soc,
                pcie0: 0,
            },
            Path::HostAndSoc => Self {
                pcie1: host + soc,
                pcie0: host,
            },
        }
    }
}

/// Bytes of a memory request beside its data: 4 double words of header, sequence number and framing, and a CRC (PCIe
/// base specification 4.0, sections 2.2 and 4.2.2).
pub const REQUEST_HEADER: u64 = 24;
/// Bytes of a completion beside its data: its header has 3 double words.
pub const COMPLETION_HEADER: u64 = 20;

/// The packets of one transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    /// Memory reads, which the NIC sends.
    pub requests: u64,
    /// Packets with data: completions of a read, or memory writes.
    pub data: u64,
    /// All bytes in the direction of the data.
    pub bytes: u64,
}

impl Transfer {
    /// A NIC reads memory.
    pub fn read(bytes: u64, parameters: &Parameters) -> Self {
        let data = packets(bytes, parameters.pcie_mtu as u64);
        Self {
            requests: packets(bytes, parameters.pcie_read_request as u64),
            data,
            bytes: bytes + data * COMPLETION_HEADER,
        }
    }

    /// A NIC or a processor writes memory or a register.
    pub fn write(bytes: u64, parameters: &Parameters) -> Self {
        let data = packets(bytes, parameters.pcie_mtu as u64);
        Self {
            requests: 0,
            data,
            bytes: bytes + data * REQUEST_HEADER,
        }
    }

    /// How many packets there are in both directions.
    pub fn packets(&self) -> u64 {
        self.requests + self.data
    }

    /// How long the data occupies the bus (ns).
    pub fn nanoseconds(&self, parameters: &Parameters) -> f64 {
        self.bytes as f64 * 8.0 / parameters.pcie_rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rates of section 3.3 of the paper, in packets a second at 200 Gbit/s. Between SoC and NIC there are 195
    /// million. From there to the switch, and again to the host, there are 49 million each. All 293 million are 6 and
    /// 1.5 times those of the other paths. Section 3.2: 191 Gbit/s to the host are 46.7 million.
    #[test]
    fn packet_rates_are_the_papers() {
        const HOST: u64 = 512;
        const SOC: u64 = 128;
        // The bytes of 200 Gbit/s in a microsecond, so packets are millions a second.
        let second = 25_000;
        let host = Channels::of(Path::Host, second, HOST, SOC);
        let soc = Channels::of(Path::Soc, second, HOST, SOC);
        let both = Channels::of(Path::HostAndSoc, second, HOST, SOC);
        assert!((195..=196).contains(&soc.pcie1));
        assert_eq!((host.pcie1, host.pcie0, soc.pcie0), (49, 49, 0));
        assert_eq!(both.pcie0, 49);
        let all = both.pcie1 + both.pcie0;
        assert!((293..=294).contains(&all), "{all}");
        let times = |other: u64| all as f64 / other as f64;
        assert!((times(host.pcie1) - 6.0).abs() < 0.05);
        assert!((times(soc.pcie1) - 1.5).abs() < 0.05);
        let measured = Channels::of(Path::Host, 191_000 / 8, HOST, SOC);
        assert!((measured.pcie1 as f64 - 46.7).abs() < 0.5);
    }

    /// Table 3 rounds up for each transfer.
    #[test]
    fn a_byte_more_takes_a_packet_more() {
        for (bytes, expected) in [(0, (0, 0)), (1, (2, 1)), (512, (5, 1)), (513, (7, 2))] {
            let channels = Channels::of(Path::HostAndSoc, bytes, 512, 128);
            assert_eq!((channels.pcie1, channels.pcie0), expected, "{bytes}");
        }
    }

    #[test]
    fn a_read_has_requests_and_a_write_has_none() {
        let parameters = Parameters {
            pcie_mtu: 256.0,
            pcie_read_request: 512.0,
            ..Parameters::default()
        };
        let read = Transfer::read(4096, &parameters);
        assert_eq!(
            (read.requests, read.data, read.bytes),
            (8, 16, 4096 + 16 * 20)
        );
        let write = Transfer::write(4096, &parameters);
        assert_eq!(
            (write.requests, write.data, write.bytes),
            (0, 16, 4096 + 16 * 24)
        );
        assert_eq!(Transfer::write(0, &parameters).packets(), 0);
    }
}
