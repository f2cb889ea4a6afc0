//! Switches, the links between them, and the ways across.

use std::collections::VecDeque;

/// What is at the other end of a switch's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A node.
    Host(u32),
    /// A switch.
    Switch(u32),
}

/// Why a topology is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Too few nodes for a schedule.
    #[error("the schedule has {ranks} ranks, and the topology has {hosts} nodes")]
    TooFewHosts {
        /// How many ranks.
        ranks: usize,
        /// How many nodes.
        hosts: usize,
    },
    /// No links lead from one node to another.
    #[error("no route leads from node {from} to node {to}")]
    NoRoute {
        /// Where a message starts.
        from: u32,
        /// Where it should arrive.
        to: u32,
    },
    /// A link that is not there.
    #[error("no link joins switches {0} and {1}")]
    NoLink(u32, u32),
    /// A switch with more ports than a route can name.
    #[error("switch {switch} has {ports} ports to other switches; at most 64 are possible")]
    TooManyPorts {
        /// Which.
        switch: u32,
        /// How many.
        ports: usize,
    },
    /// A fat tree that nobody can build.
    #[error("a fat tree of {hosts} nodes; it can have 1 to 65,536")]
    FatTreeSize {
        /// How many nodes.
        hosts: usize,
    },
    /// Something else than SWITCH-SWITCH.
    #[error("expected two switches such as 0-5, found {0}")]
    Syntax(String),
}

/// Nodes, switches and links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// The switch of each node.
    edges: Vec<u32>,
    /// The ports of each switch.
    ports: Vec<Vec<End>>,
}

impl Topology {
    /// Nodes around one switch.
    pub fn star(hosts: usize) -> Self {
        let ports = (0..hosts as u32).map(End::Host).collect();
        Self {
            edges: vec![0; hosts],
            ports: vec![ports],
        }
    }

    /// The smallest fat tree of three layers that has so many nodes, and two at a switch of the edge. With switches of `k` ports it has `k` pods of `k/2`
    /// switches at the edge and `k/2` above them, and `k²/4` switches at the core (Al-Fares and others, SIGCOMM 2008).
    ///
    /// # Errors
    ///
    /// [`Error::FatTreeSize`].
    pub fn fat_tree(hosts: usize) -> Result<Self, Error> {
        if !(1..=65_536).contains(&hosts) {
            return Err(Error::FatTreeSize { hosts });
        }
        let half = (2..).find(|half| 2 * half * half * half >= hosts);
        let half = half.ok_or(Error::FatTreeSize { hosts })?;
        let pods = 2 * half;
        let edge = |pod: usize, number: usize| (pod * half + number) as u32;
        let above = |pod: usize, number: usize| (pods * half + pod * half + number) as u32;
        let core = |row: usize, number: usize| (2 * pods * half + row * half + number) as u32;
        let mut tree = Self {
            edges: (0..hosts).map(|host| (host / half) as u32).collect(),
            ports: vec![Vec::new(); 2 * pods * half + half * half],
        };
        for (host, switch) in tree.edges.iter().enumerate() {
            tree.ports[*switch as usize].push(End::Host(host as u32));
        }
        for pod in 0..pods {
            for upper in 0..half {
                for lower in 0..half {
                    tree.join(edge(pod, lower), above(pod, upper));
                    tree.join(above(pod, upper), core(upper, lower));
                }
            }
        }
        Ok(tree)
    }

    fn join(&mut self, one: u32, other: u32) {
        self.ports[one as usize].push(End::Switch(other));
        self.ports[other as usize].push(End::Switch(one));
    }

    /// Takes a link away.
    ///
    /// # Errors
    ///
    /// [`Error::NoLink`].
    pub fn cut(&mut self, one: u32, other: u32) -> Result<(), Error> {
        for (here, there) in [(one, other), (other, one)] {
            let ports = self.ports.get_mut(here as usize);
            let ports = ports.ok_or(Error::NoLink(one, other))?;
            let place = ports.iter().position(|end| *end == End::Switch(there));
            ports.remove(place.ok_or(Error::NoLink(one, other))?);
        }
        Ok(())
    }

    /// Takes a link away, from SWITCH-SWITCH.
    ///
    /// # Errors
    ///
    /// [`Error::Syntax`] or [`Error::NoLink`].
    pub fn cut_named(&mut self, text: &str) -> Result<(), Error> {
        let pair = text.split_once('-');
        let pair = pair.and_then(|(one, other)| Some((one.parse().ok()?, other.parse().ok()?)));
        let (one, other) = pair.ok_or_else(|| Error::Syntax(text.to_owned()))?;
        self.cut(one, other)
    }

    /// How many nodes there are.
    pub fn hosts(&self) -> usize {
        self.edges.len()
    }

    /// The switch of a node.
    pub fn edge(&self, host: u32) -> u32 {
        self.edges[host as usize]
    }

    /// The ports of each switch.
    pub fn switches(&self) -> &[Vec<End>] {
        &self.ports
    }
}

/// For each switch and each switch with nodes, the ports on shortest ways.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    edges: Vec<u32>,
    /// For each switch the port of each of its nodes.
    hosts: Vec<Vec<(u32, u32)>>,
    /// For each target the ports of each switch, a bit each among those to switches; bit 0 is `first`.
    next: Vec<Vec<u64>>,
    /// For each switch its first port to a switch: nodes come before.
    first: Vec<u32>,
    seed: u64,
}

impl Routes {
    /// Finds all shortest ways. `seed` decides which one a pair of nodes takes where there are several.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyPorts`].
    pub fn new(topology: &Topology, seed: u64) -> Result<Self, Error> {
        let count = topology.ports.len();
        let mut hosts = Vec::with_capacity(count);
        let mut first = Vec::with_capacity(count);
        for (switch, ports) in topology.ports.iter().enumerate() {
            let ends = ports.iter().enumerate();
            let here: Vec<_> = ends
                .filter_map(|(port, end)| match end {
                    End::Host(host) => Some((*host, port as u32)),
                    End::Switch(_) => None,
                })
                .collect();
            let others = ports.len() - here.len();
            if others > 64 {
                return Err(Error::TooManyPorts {
                    switch: switch as u32,
                    ports: others,
                });
            }
            first.push(here.len() as u32);
            hosts.push(here);
        }
        let next = (0..count).map(|target| match hosts[target].is_empty() {
            true => Vec::new(),
            false => ways(topology, &first, target),
        });
        let next = next.collect();
        Ok(Self {
            edges: topology.edges.clone(),
            hosts,
            next,
            first,
            seed,
        })
    }

    /// The port of a switch by which a message leaves, or None if no way leads on.
    pub fn port(&self, switch: u32, from: u32, to: u32) -> Option<u32> {
        let target = self.edges[to as usize];
        if target == switch {
            // Nodes are in order.
            let hosts = &self.hosts[switch as usize];
            let place = hosts.binary_search_by_key(&to, |(host, _)| *host).ok()?;
            return Some(hosts[place].1);
        }
        let ports = self.next[target as usize][switch as usize];
        let count = ports.count_ones();
        if count == 0 {
            return None;
        }
        let flow = u64::from(from) << 32 | u64::from(to);
        // Each switch decides anew, or those of the second layer would all decide as the first.
        let chosen = mix(flow ^ mix(self.seed ^ mix(u64::from(switch)))) % u64::from(count);
        let mut rest = ports;
        for _ in 0..chosen {
            rest &= rest - 1;
        }
        Some(self.first[switch as usize] + rest.trailing_zeros())
    }

    /// The switches from one node to another.
    ///
    /// # Errors
    ///
    /// [`Error::NoRoute`].
    pub fn way(&self, topology: &Topology, from: u32, to: u32) -> Result<Vec<u32>, Error> {
        let mut switch = topology.edge(from);
        let mut way = vec![switch];
        loop {
            let port = self.port(switch, from, to);
            let port = port.ok_or(Error::NoRoute { from, to })?;
            match topology.ports[switch as usize][port as usize] {
                End::Host(_) => return Ok(way),
                End::Switch(next) => switch = next,
            }
            way.push(switch);
        }
    }
}

/// For each switch the ports on shortest ways to a target.
fn ways(topology: &Topology, first: &[u32], target: usize) -> Vec<u64> {
    let mut distance = vec![u32::MAX; topology.ports.len()];
    distance[target] = 0;
    let mut queue = VecDeque::from([target]);
    while let Some(switch) = queue.pop_front() {
        for end in &topology.ports[switch] {
            if let End::Switch(other) = *end
                && distance[other as usize] == u32::MAX
            {
                distance[other as usize] = distance[switch] + 1;
                queue.push_back(other as usize);
            }
        }
    }
    let switches = topology.ports.iter().enumerate();
    let ports = switches.map(|(switch, ports)| {
        let mut mask = 0;
        for (port, end) in ports.iter().enumerate() {
            if let End::Switch(other) = *end
                && distance[switch] != u32::MAX
                && distance[other as usize] != u32::MAX
                && distance[other as usize] + 1 == distance[switch]
            {
                mask |= 1 << (port as u32 - first[switch]);
            }
        }
        mask
    });
    ports.collect()
}

/// A number that looks random, from another (Vigna's SplitMix64).
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1,024 nodes take switches of 16 ports: 128 at the edge, 128 above, 64 at the core, all full.
    #[test]
    fn a_fat_tree_has_its_switches_and_ports() {
        let tree = Topology::fat_tree(1024).unwrap();
        assert_eq!(tree.switches().len(), 128 + 128 + 64);
        assert!(tree.switches().iter().all(|ports| ports.len() == 16));
        let small = Topology::fat_tree(2).unwrap();
        // Switches of 4 ports are the smallest with which two nodes share one.
        assert_eq!((small.hosts(), small.switches().len()), (2, 8 + 8 + 4));
        assert_eq!(small.edge(0), small.edge(1));
        let error = Topology::fat_tree(0).unwrap_err();
        assert_eq!(error, Error::FatTreeSize { hosts: 0 });
    }

    /// A way has one switch within an edge, three within a pod, and five between pods, and ends.
    #[test]
    fn ways_are_shortest() {
        let tree = Topology::fat_tree(128).unwrap();
        let routes = Routes::new(&tree, 1).unwrap();
        let length = |from, to| routes.way(&tree, from, to).unwrap().len();
        assert_eq!((length(0, 3), length(0, 4), length(0, 127)), (1, 3, 5));
        for from in 0..128 {
            for to in (0..128).filter(|to| *to != from) {
                let pods = (from / 16 != to / 16, from / 4 != to / 4);
                let expected = match pods {
                    (true, _) => 5,
                    (false, true) => 3,
                    (false, false) => 1,
                };
                assert_eq!(length(from, to), expected);
            }
        }
    }

    /// All core switches carry some of the traffic from one pod to another, and another seed chooses otherwise.
    #[test]
    fn flows_spread_over_equal_ways() {
        let tree = Topology::fat_tree(1024).unwrap();
        let ways = |seed| {
            let routes = Routes::new(&tree, seed).unwrap();
            let pairs = (0..64).flat_map(|from| (64..128).map(move |to| (from, to)));
            pairs
                .map(|(from, to)| routes.way(&tree, from, to).unwrap()[2])
                .collect::<Vec<_>>()
        };
        let one = ways(1);
        for core in 256..320 {
            let count = one.iter().filter(|switch| **switch == core).count();
            // 64 on average.
            assert!((20..=140).contains(&count), "{core}: {count}");
        }
        assert_ne!(one, ways(2));
        assert_eq!(one, ways(1));
    }

    #[test]
    fn cut_links_are_left_out_and_may_leave_no_route() {
        let mut tree = Topology::fat_tree(16).unwrap();
        // Switches 0 and 1 are the edge of the first pod, 8 and 9 are above them.
        tree.cut_named("0-8").unwrap();
        let routes = Routes::new(&tree, 1).unwrap();
        for to in 2..16 {
            assert_eq!(routes.way(&tree, 0, to).unwrap()[1], 9);
        }
        tree.cut_named("9-0").unwrap();
        let routes = Routes::new(&tree, 1).unwrap();
        assert_eq!(routes.way(&tree, 0, 1).unwrap(), [0]);
        let no = Error::NoRoute { from: 0, to: 2 };
        assert_eq!(routes.way(&tree, 0, 2).unwrap_err(), no);
        assert_eq!(tree.cut_named("0-8").unwrap_err(), Error::NoLink(0, 8));
        assert_eq!(tree.cut_named("0-99").unwrap_err(), Error::NoLink(0, 99));
        let error = tree.cut_named("zero").unwrap_err();
        assert_eq!(error, Error::Syntax("zero".into()));
    }
}
