//! How far a GPU and a NIC are from each other on PCI Express.

use super::pci::{Address, Place};

/// From near to far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// One PCIe switch, or a chain of them, is above both: traffic turns round there.
    SameSwitch,
    /// One root port is above both, and no switch.
    SameRootPort,
    /// Through the root complex of one NUMA node.
    SameNode,
    /// Through two NUMA nodes, mostly two sockets.
    AcrossNodes,
    /// The machine does not tell.
    Unknown,
}

impl Distance {
    /// The distance between two functions.
    pub fn between(a: &Place, b: &Place) -> Self {
        match (common_bridges(a, b), a.numa_node, b.numa_node) {
            (2.., ..) => Self::SameSwitch,
            (1, ..) => Self::SameRootPort,
            // A tree without bridges is a virtual machine's, and does not show the distance.
            (0, ..) if a.bridges.is_empty() || b.bridges.is_empty() => Self::Unknown,
            (0, Some(a), Some(b)) if a == b => Self::SameNode,
            (0, Some(_), Some(_)) => Self::AcrossNodes,
            (0, ..) if a.host_bridge == b.host_bridge => Self::SameNode,
            (0, ..) => Self::Unknown,
        }
    }

    /// In words, with nvidia-smi's name for it.
    pub fn words(self) -> &'static str {
        match self {
            Self::SameSwitch => "same switch (PIX or PXB)",
            Self::SameRootPort => "same root port",
            Self::SameNode => "same NUMA node, through the CPU (PHB or NODE)",
            Self::AcrossNodes => "across sockets or NUMA nodes (SYS)",
            Self::Unknown => "unknown",
        }
    }

    /// Whether traffic turns round below the root complex.
    pub fn turns_below_the_root(self) -> bool {
        matches!(self, Self::SameSwitch | Self::SameRootPort)
    }
}

/// The bridges that only one of the two is below, in the order of the way from `a` to `b`.
pub fn bridges_between(a: &Place, b: &Place) -> Vec<Address> {
    let common = common_bridges(a, b);
    let up = a.bridges.iter().skip(common).rev();
    up.chain(b.bridges.iter().skip(common)).copied().collect()
}

/// How many bridges are above both.
fn common_bridges(a: &Place, b: &Place) -> usize {
    if a.host_bridge != b.host_bridge {
        return 0;
    }
    let both = a.bridges.iter().zip(&b.bridges);
    both.take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(host_bridge: &str, bridges: &[&str], numa_node: Option<u32>) -> Place {
        let bridges = bridges.iter().map(|bridge| bridge.parse().unwrap());
        Place {
            host_bridge: host_bridge.into(),
            bridges: bridges.collect(),
            numa_node,
        }
    }

    /// Below two switches, and a neighbour of it.
    const GPU: [&str; 3] = ["0000:15:01.0", "0000:16:00.0", "0000:17:00.0"];
    const NIC: [&str; 3] = ["0000:15:01.0", "0000:16:00.0", "0000:17:01.0"];

    #[test]
    fn tells_each_distance() {
        use Distance::{AcrossNodes, SameNode, SameRootPort, SameSwitch, Unknown};
        let gpu = place("pci0000:15", &GPU, Some(0));
        let cases: [(_, &[_], _, _); 9] = [
            ("pci0000:15", &NIC, Some(0), SameSwitch),
            (
                "pci0000:15",
                &["0000:15:01.0", "0000:16:01.0"],
                Some(0),
                SameRootPort,
            ),
            ("pci0000:15", &["0000:15:03.0"], Some(0), SameNode),
            ("pci0000:15", &["0000:15:03.0"], None, SameNode),
            ("pci0000:26", &["0000:26:01.0"], Some(0), SameNode),
            ("pci0000:97", &["0000:97:01.0"], Some(1), AcrossNodes),
            ("pci0000:97", &["0000:97:01.0"], None, Unknown),
            ("pci0000:15", &[], Some(0), Unknown),
            // The same bridge under another host bridge is another bridge.
            ("pci0001:15", &GPU[..2], Some(1), AcrossNodes),
        ];
        for (host_bridge, bridges, node, distance) in cases {
            let nic = place(host_bridge, bridges, node);
            assert_eq!(Distance::between(&gpu, &nic), distance, "{bridges:?}");
            assert_eq!(Distance::between(&nic, &gpu), distance, "{bridges:?}");
        }
    }

    #[test]
    fn names_the_bridges_on_the_way() {
        let [gpu, nic] = [GPU, NIC].map(|bridges| place("pci0000:15", &bridges, None));
        let names = |a, b| {
            let between = bridges_between(a, b);
            Vec::from_iter(between.iter().map(Address::to_string))
        };
        assert_eq!(names(&gpu, &nic), ["0000:17:00.0", "0000:17:01.0"]);
        let far = place("pci0000:97", &["0000:97:01.0"], None);
        let [one, two, three] = GPU;
        assert_eq!(names(&gpu, &far), [three, two, one, "0000:97:01.0"]);
    }
}
