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
            // Without a bridge the tree is a virtual machine's, and tells nothing.
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
        Place {
            host_bridge: host_bridge.into(),
            bridges: bridges
                .iter()
                .map(|bridge| bridge.parse().unwrap())
                .collect(),
            numa_node,
        }
    }

    #[test]
    fn tells_each_distance() {
        let gpu = place(
            "pci0000:15",
            &["0000:15:01.0", "0000:16:00.0", "0000:17:00.0"],
            Some(0),
        );
        let expect = |host_bridge, bridges: &[&str], node, distance| {
            let nic = place(host_bridge, bridges, node);
            assert_eq!(Distance::between(&gpu, &nic), distance);
            assert_eq!(Distance::between(&nic, &gpu), distance);
        };
        expect(
            "pci0000:15",
            &["0000:15:01.0", "0000:16:00.0", "0000:17:01.0"],
            Some(0),
            Distance::SameSwitch,
        );
        expect(
            "pci0000:15",
            &["0000:15:01.0", "0000:16:01.0"],
            Some(0),
            Distance::SameRootPort,
        );
        expect("pci0000:15", &["0000:15:03.0"], Some(0), Distance::SameNode);
        expect("pci0000:15", &["0000:15:03.0"], None, Distance::SameNode);
        expect("pci0000:26", &["0000:26:01.0"], Some(0), Distance::SameNode);
        expect(
            "pci0000:97",
            &["0000:97:01.0"],
            Some(1),
            Distance::AcrossNodes,
        );
        expect("pci0000:97", &["0000:97:01.0"], None, Distance::Unknown);
        expect("pci0000:15", &[], Some(0), Distance::Unknown);
        // The same bridge under another host bridge is another bridge.
        expect(
            "pci0001:15",
            &["0000:15:01.0", "0000:16:00.0"],
            Some(1),
            Distance::AcrossNodes,
        );
    }

    #[test]
    fn names_the_bridges_on_the_way() {
        let gpu = place(
            "pci0000:15",
            &["0000:15:01.0", "0000:16:00.0", "0000:17:00.0"],
            None,
        );
        let nic = place(
            "pci0000:15",
            &["0000:15:01.0", "0000:16:00.0", "0000:17:01.0"],
            None,
        );
        let names = |a, b| -> Vec<_> {
            bridges_between(a, b)
                .iter()
                .map(Address::to_string)
                .collect()
        };
        assert_eq!(names(&gpu, &nic), ["0000:17:00.0", "0000:17:01.0"]);
        let far = place("pci0000:97", &["0000:97:01.0"], None);
        assert_eq!(
            names(&gpu, &far),
            [
                "0000:17:00.0",
                "0000:16:00.0",
                "0000:15:01.0",
                "0000:97:01.0"
            ]
        );
    }
}
