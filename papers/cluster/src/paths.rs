//! What the paths of an off-path SmartNIC carry, alone and together, and what a batch under one doorbell gains there.
//!
//! Sections and numbers are those of paper 002. Its SmartNIC has a network and two channels of PCIe, each with two
//! directions. A flow takes its rate from each direction that it crosses. So a rate is the least capacity that others
//! have left.

use std::fmt::Write as _;

use crate::parameters::Parameters;
use crate::pcie::{COMPLETION_HEADER, Path, REQUEST_HEADER};

/// Bits that the network carries in a nanosecond, in one direction (table 1).
pub const NETWORK: f64 = 200.0;
/// Bits that a channel of PCIe carries in a nanosecond, in one direction (table 1).
pub const PCIE: f64 = 256.0;
/// The most data of a packet to or from the host's memory (table 3).
const HOST_MTU: f64 = 512.0;
/// The most data of a packet to or from the memory of the NIC's own processors (table 3).
const SOC_MTU: f64 = 128.0;

/// What a flow does to the host's memory, or to that of the NIC's own processors where it ends there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Writes it. On [`Path::HostAndSoc`] data goes to the host.
    Into,
    /// Reads it. On [`Path::HostAndSoc`] data goes to the NIC's own processors.
    OutOf,
}

/// Data on a path, in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Its way.
    pub path: Path,
    /// Where its data goes.
    pub direction: Direction,
}

/// A flow's load on each direction, for each bit of its data: of the network, of PCIe1 and of PCIe0. The first of a
/// pair leads to the memories, the second to the network.
type Load = [[f64; 2]; 3];

impl Flow {
    /// Its load. `headers` adds the bytes of packets that are no data.
    fn load(self, headers: bool) -> Load {
        let header = |bytes: f64, largest: f64| match headers {
            true => 1.0 + bytes / largest,
            false => 1.0,
        };
        let p = Parameters::default();
        let network = header(p.link_header, p.link_mtu);
        let write = |mtu| header(REQUEST_HEADER as f64, mtu);
        let read = |mtu| header(COMPLETION_HEADER as f64, mtu);
        match (self.path, self.direction) {
            (Path::Host, Direction::Into) => [
                [network, 0.0],
                [write(HOST_MTU), 0.0],
                [write(HOST_MTU), 0.0],
            ],
            (Path::Host, Direction::OutOf) => {
                [[0.0, network], [0.0, read(HOST_MTU)], [0.0, read(HOST_MTU)]]
            }
            (Path::Soc, Direction::Into) => [[network, 0.0], [write(SOC_MTU), 0.0], [0.0, 0.0]],
            (Path::Soc, Direction::OutOf) => [[0.0, network], [0.0, read(SOC_MTU)], [0.0, 0.0]],
            // The NIC reads one memory and writes the other, so data crosses PCIe1 twice (section 3.3).
            (Path::HostAndSoc, Direction::Into) => [
                [0.0, 0.0],
                [write(HOST_MTU), read(SOC_MTU)],
                [write(HOST_MTU), 0.0],
            ],
            (Path::HostAndSoc, Direction::OutOf) => [
                [0.0, 0.0],
                [write(SOC_MTU), read(HOST_MTU)],
                [0.0, read(HOST_MTU)],
            ],
        }
    }
}

/// The rate of each flow (Gbit/s). The first takes all it can, and each other takes what the flows before it left.
pub fn rates(flows: &[Flow], headers: bool) -> Vec<f64> {
    let mut left = [[NETWORK; 2], [PCIE; 2], [PCIE; 2]];
    let rate = |flow: &Flow| {
        let load = flow.load(headers);
        let capacities = left.as_flattened_mut().iter_mut();
        let links: Vec<_> = capacities.zip(load.as_flattened()).collect();
        let crossed = links.iter().filter(|(_, load)| **load > 0.0);
        let rate = crossed.map(|(left, load)| **left / **load);
        let rate = rate.fold(f64::INFINITY, f64::min);
        for (left, load) in links {
            // Rounding may leave less than nothing.
            *left = (*left - rate * load).max(0.0);
        }
        rate
    };
    flows.iter().map(rate).collect()
}

/// What the switch and PCIe1 add to the latency of a request (ns): the least and the most. One way adds 150 to 200 ns
/// (section 3.1). A WRITE goes that way once, a READ twice (figure 3). On [`Path::HostAndSoc`] each goes it twice as
/// often.
pub fn added_latency(path: Path, read: bool) -> (f64, f64) {
    let ways = if read { 2.0 } else { 1.0 };
    let ways = match path {
        Path::Host | Path::Soc => ways,
        Path::HostAndSoc => 2.0 * ways,
    };
    (150.0 * ways, 200.0 * ways)
}

/// What a batch of WQEs under one doorbell costs, in units of a post with a doorbell of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Batching {
    /// For each batch: the doorbell, and the way to the first WQE.
    pub batch: f64,
    /// For each WQE: the NIC fetches it.
    pub wqe: f64,
}

impl Batching {
    /// The NIC's own processors post, and the ring is in their memory. A batch of 16 gains 2.7 times, and one of 80
    /// gains 4.6 times (section 3.3, advice 4).
    pub fn soc() -> Self {
        Self::through((16.0, 2.7), (80.0, 4.6))
    }

    /// The host posts, and the ring is in its memory. A batch of 16 loses 9 %, and one of 48 loses 6 % (section 3.3,
    /// advice 4).
    pub fn host() -> Self {
        Self::through((16.0, 0.91), (48.0, 0.94))
    }

    /// From two measured gains, each with the length of its batch.
    fn through((short, short_gain): (f64, f64), (long, long_gain): (f64, f64)) -> Self {
        let wqe = (long / long_gain - short / short_gain) / (long - short);
        Self {
            batch: short / short_gain - short * wqe,
            wqe,
        }
    }

    /// How many times the rate of posts without batches. Below 1 a batch harms.
    pub fn gain(self, length: u32) -> f64 {
        let length = f64::from(length);
        length / (self.batch + self.wqe * length)
    }

    /// The shortest batch that gains; none where fetching a WQE costs more than a doorbell.
    pub fn shortest(self) -> Option<u32> {
        let shortest = self.batch / (1.0 - self.wqe);
        (self.wqe < 1.0).then(|| shortest.floor() as u32 + 1)
    }
}

/// The flows of the table, with their names.
fn cases() -> Vec<(&'static str, Vec<Flow>)> {
    let flow = |path, direction| Flow { path, direction };
    let into = |path| flow(path, Direction::Into);
    let out_of = |path| flow(path, Direction::OutOf);
    let (one, two, three) = (Path::Host, Path::Soc, Path::HostAndSoc);
    vec![
        ("1 write", vec![into(one)]),
        ("1 write + 1 read", vec![into(one), out_of(one)]),
        ("2 write", vec![into(two)]),
        ("2 write + 2 read", vec![into(two), out_of(two)]),
        ("3 to host", vec![into(three)]),
        ("3 to SoC", vec![out_of(three)]),
        ("3 to host + 3 to SoC", vec![into(three), out_of(three)]),
        ("1 write + 2 write", vec![into(one), into(two)]),
        ("1 write + 2 read", vec![into(one), out_of(two)]),
        ("1 write + 3 to host", vec![into(one), into(three)]),
        ("1 write + 3 to SoC", vec![into(one), out_of(three)]),
        ("1 read + 3 to host", vec![out_of(one), into(three)]),
        ("1 read + 3 to SoC", vec![out_of(one), out_of(three)]),
        ("2 write + 3 to host", vec![into(two), into(three)]),
        ("2 read + 3 to SoC", vec![out_of(two), out_of(three)]),
        (
            "1 write + 1 read + 3 to SoC",
            vec![into(one), out_of(one), out_of(three)],
        ),
    ]
}

/// The table that `cluster paths` prints, as CSV.
pub fn table(headers: bool) -> String {
    let mut table = "flows,rate of each (Gbit/s),together (Gbit/s)\n".to_owned();
    // A String takes everything.
    for (name, flows) in cases() {
        let rates = rates(&flows, headers);
        let each: Vec<_> = rates.iter().map(|rate| format!("{rate:.1}")).collect();
        let all: f64 = rates.iter().sum();
        let _ = writeln!(table, "{name},{},{all:.1}", each.join(" + "));
    }
    table += "\npath,verb,added latency (ns)\n";
    for (number, path) in [(1, Path::Host), (2, Path::Soc), (3, Path::HostAndSoc)] {
        for (verb, read) in [("WRITE", false), ("READ", true)] {
            let (least, most) = added_latency(path, read);
            let _ = writeln!(table, "{number},{verb},{least} to {most}");
        }
    }
    table += "\nWQEs of a batch,gain by the SoC (ratio),gain by the host (ratio)\n";
    for length in [1, 4, 16, 32, 48, 80] {
        let [soc, host] = [Batching::soc(), Batching::host()].map(|by| by.gain(length));
        let _ = writeln!(table, "{length},{soc:.2},{host:.2}");
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn together(name: &str, headers: bool) -> f64 {
        let cases = cases();
        let (_, flows) = cases.iter().find(|case| case.0 == name).unwrap();
        rates(flows, headers).iter().sum()
    }

    /// Limits of sections 3.1 to 3.3 and 4: 200 Gbit/s in one direction, 400 in both, and 256 for path 3 in one
    /// direction and in both.
    #[test]
    fn limits_are_the_papers() {
        for (name, limit) in [
            ("1 write", 200.0),
            ("1 write + 1 read", 400.0),
            ("2 write", 200.0),
            ("2 write + 2 read", 400.0),
            ("3 to host", 256.0),
            ("3 to SoC", 256.0),
            ("3 to host + 3 to SoC", 256.0),
            ("1 write + 2 write", 200.0),
            ("1 write + 2 read", 400.0),
            ("1 write + 3 to host", 256.0),
            ("1 write + 3 to SoC", 256.0),
            ("1 read + 3 to host", 256.0),
            ("1 read + 3 to SoC", 256.0),
            ("2 write + 3 to host", 256.0),
            ("2 read + 3 to SoC", 256.0),
            ("1 write + 1 read + 3 to SoC", 456.0),
        ] {
            assert_eq!(together(name, false), limit, "{name}");
        }
    }

    /// The rule of section 4: where the network is full, traffic between host and SoC may have P - N, or 56 Gbit/s.
    #[test]
    fn path_3_may_have_what_the_network_leaves_of_pcie() {
        let flow = |path, direction| Flow { path, direction };
        for last in [Direction::Into, Direction::OutOf] {
            let flows = [
                flow(Path::Host, Direction::Into),
                flow(Path::Host, Direction::OutOf),
                flow(Path::HostAndSoc, last),
            ];
            assert_eq!(rates(&flows, false), [200.0, 200.0, 56.0]);
        }
        // Path 3 first takes from the network what path 1 would have: 256 Gbit/s and no more.
        let flows = [
            flow(Path::HostAndSoc, Direction::OutOf),
            flow(Path::Host, Direction::Into),
        ];
        assert_eq!(rates(&flows, false), [256.0, 0.0]);
    }

    /// Headers explain part of what the paper measured (section 3.3): 191 Gbit/s on path 1 and 204 on path 3. A packet
    /// of 4,096 bytes has 82 more, and a write of 128 bytes to the SoC has 24 more.
    #[test]
    fn headers_explain_part_of_the_measured_rates() {
        let one = together("1 write", true);
        assert!((one - 200.0 * 4096.0 / 4178.0).abs() < 1e-9, "{one}");
        assert!((1.0..1.03).contains(&(one / 191.0)), "{one}");
        let three = together("3 to SoC", true);
        assert!((three - 256.0 * 128.0 / 152.0).abs() < 1e-9, "{three}");
        assert!((1.0..1.06).contains(&(three / 204.0)), "{three}");
    }

    /// Section 3.1 measured 0.6 µs for READs and 0.4 µs for WRITEs on path 1. The switch explains 38 to 67 % of
    /// that. The rest is in no text.
    #[test]
    fn the_switch_explains_part_of_the_measured_latency() {
        let part = |read, measured| {
            let (least, most) = added_latency(Path::Host, read);
            (least / measured, most / measured)
        };
        assert_eq!(part(true, 600.0), (0.5, 2.0 / 3.0));
        assert_eq!(part(false, 400.0), (0.375, 0.5));
    }

    /// Advice 4 of section 3.3: a batch of 32 by the host loses 7 %. The model has the losses of 16 and 48 alone.
    #[test]
    fn a_batch_between_two_others_loses_what_the_paper_measured() {
        let host = Batching::host();
        assert!((host.gain(32) - 0.93).abs() < 0.005, "{host:?}");
        assert_eq!(host.shortest(), None);
        let soc = Batching::soc();
        assert!((soc.gain(16) - 2.7).abs() < 1e-9 && (soc.gain(80) - 4.6).abs() < 1e-9);
        let shortest = soc.shortest().unwrap();
        assert!(soc.gain(shortest) > 1.0 && soc.gain(shortest - 1) <= 1.0);
    }
}
