//! Runs a program on a cluster.
//!
//! A message occupies each link of its way for the time that its bytes and headers take. Its head goes on as soon as a
//! link is free, and its tail follows (virtual cut-through). Links serve messages in the order in which their heads
//! come; buffers are never full, and nothing is lost.
//!
//! With `engines` all nodes are on one machine with a software NIC: a switch hands each message to an engine, and `cores`
//! may limit how many engines and `calc`s run at the same time.

mod machine;
mod node;
mod switch;
mod time;

use std::sync::{Arc, Mutex, PoisonError};

use nexosim::ports::{EventSinkReader, Output, SinkState, event_queue};
use nexosim::simulation::{Address, Mailbox, SimInit};
use nexosim::time::MonotonicTime;
use serde::{Deserialize, Serialize};

use self::machine::Machine;
use self::node::Node;
use self::switch::Switch;
pub use self::time::Time;
use crate::driver::{Costs, Driver};
use crate::goal::{Operation, Program, Rank};
use crate::parameters::{self, Parameters};
use crate::topology::{self, End, Routes, Topology};

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Nodes, switches and links.
    pub topology: Topology,
    /// What everything costs.
    pub parameters: Parameters,
    /// Who drives the network.
    pub driver: Driver,
    /// Decides which of several ways a pair of nodes takes.
    pub seed: u64,
}

/// Why a simulation fails.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A parameter out of range.
    #[error(transparent)]
    Parameters(#[from] parameters::Error),
    /// A topology that is too small, or has no route.
    #[error(transparent)]
    Topology(#[from] topology::Error),
    /// The engine ended.
    #[error("the simulation engine failed: {0}")]
    Engine(String),
    /// A rank that ends after all time that can be counted.
    #[error("rank {0} takes longer than 213 days, the longest time that can be simulated")]
    TooLong(u32),
    /// Ranks that never ended. A checked program and an engine without faults always end.
    #[error("{0} ranks did not end")]
    Unfinished(usize),
}

/// What a rank has done in the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Which.
    pub rank: u32,
    /// The end of its last operation.
    pub end: Time,
    /// The end of its kernel.
    pub finish: Time,
    /// Messages that it sent.
    pub messages: u64,
    /// Packets on its PCIe bus.
    pub packets: u64,
}

/// The end of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Each rank's report, in order.
    pub ranks: Vec<Report>,
}

impl Outcome {
    /// When the last operation of all ended.
    pub fn end(&self) -> Time {
        let ends = self.ranks.iter().map(|report| report.end);
        ends.max().unwrap_or_default()
    }

    /// When the last kernel of all ended.
    pub fn finish(&self) -> Time {
        let ends = self.ranks.iter().map(|report| report.finish);
        ends.max().unwrap_or_default()
    }

    /// All messages.
    pub fn messages(&self) -> u64 {
        self.ranks.iter().map(|report| report.messages).sum()
    }

    /// All packets on all PCIe buses.
    pub fn packets(&self) -> u64 {
        self.ranks.iter().map(|report| report.packets).sum()
    }
}

/// What all models read.
#[derive(Debug, Default)]
struct Shared {
    program: Program,
    parameters: Parameters,
    costs: Costs,
    routes: Routes,
    /// The engine has one thread, so that nobody ever waits for it.
    machine: Mutex<Machine>,
}

impl Shared {
    /// Whether a rank's NIC sends an operation's message by itself.
    fn relays(&self, rank: &Rank, operation: u32) -> bool {
        self.costs.chain.is_some() && rank.relays[operation as usize]
    }

    /// Asks the machine that all ranks share.
    fn machine<R>(&self, ask: impl FnOnce(&mut Machine) -> R) -> R {
        ask(&mut self.machine.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A message on its way.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Flight {
    from: u32,
    to: u32,
    /// The receive at its target.
    receive: u32,
    bytes: u64,
    /// When its head is at the next model.
    head: Time,
    /// How long it occupies a link.
    duration: Time,
}

/// Runs a program to its end.
///
/// # Errors
///
/// A parameter out of range, a topology with too few nodes or without a route, a program that takes too long, or an
/// error of the engine.
pub fn run(cluster: &Cluster, program: Program) -> Result<Outcome, Error> {
    cluster.parameters.check()?;
    let ranks = program.ranks.len();
    let hosts = cluster.topology.hosts();
    if ranks > hosts {
        return Err(topology::Error::TooFewHosts { ranks, hosts }.into());
    }
    let routes = Routes::new(&cluster.topology, cluster.seed)?;
    check_ways(&cluster.topology, &routes, &program)?;
    let shared = Arc::new(Shared {
        costs: Costs::of(cluster.driver, &cluster.parameters),
        machine: Mutex::new(Machine::new(&cluster.parameters)),
        parameters: cluster.parameters.clone(),
        program,
        routes,
    });

    let switches = cluster.topology.switches();
    let boxes = switches.iter().map(|ports| mailbox(ports.len()));
    let switch_boxes: Vec<Mailbox<Switch>> = boxes.collect();
    let switch_addresses = addresses(&switch_boxes);
    let edges = (0..ranks as u32).map(|rank| cluster.topology.edge(rank) as usize);
    let boxes = edges.clone().map(|edge| mailbox(switches[edge].len()));
    let node_boxes: Vec<Mailbox<Node>> = boxes.collect();
    let node_addresses = addresses(&node_boxes);

    let (sink, mut reports) = event_queue(SinkState::Enabled);
    let mut bench = SimInit::with_num_threads(1);
    for ((rank, mailbox), edge) in node_boxes.into_iter().enumerate().zip(edges) {
        let mut node = Node::new(rank as u32, Arc::clone(&shared));
        node.link.connect(Switch::arrive, &switch_addresses[edge]);
        node.report.connect_sink(sink.clone());
        bench = bench.add_model(node, mailbox, "node");
    }
    for (number, mailbox) in switch_boxes.into_iter().enumerate() {
        let mut switch = Switch::new(number as u32, Arc::clone(&shared));
        for end in &switches[number] {
            let mut link = Output::new();
            match *end {
                End::Switch(other) => {
                    link.connect(Switch::arrive, &switch_addresses[other as usize]);
                }
                // A node without a rank gets no messages.
                End::Host(host) => {
                    if let Some(node) = node_addresses.get(host as usize) {
                        link.connect(Node::arrive, node);
                    }
                }
            }
            switch.add(link);
        }
        bench = bench.add_model(switch, mailbox, "switch");
    }

    let failed = |error: &dyn std::fmt::Display| Error::Engine(error.to_string());
    let simulation = bench.init(MonotonicTime::EPOCH);
    let mut simulation = simulation.map_err(|error| failed(&error))?;
    simulation.run().map_err(|error| failed(&error))?;
    let mut ended: Vec<Report> = std::iter::from_fn(|| reports.try_read()).collect();
    if ended.len() < ranks {
        return Err(Error::Unfinished(ranks - ended.len()));
    }
    ended.sort_by_key(|report| report.rank);
    let late = |report: &&Report| report.end.max(report.finish) == Time::LAST;
    if let Some(late) = ended.iter().find(late) {
        return Err(Error::TooLong(late.rank));
    }
    Ok(Outcome { ranks: ended })
}

/// A mailbox with room for one message of each link in an instant. A switch therefore never waits for a node or for the
/// switch above it, and no two models wait for each other.
fn mailbox<M: nexosim::model::Model>(ports: usize) -> Mailbox<M> {
    Mailbox::with_capacity(ports.max(16))
}

fn addresses<M: nexosim::model::Model>(boxes: &[Mailbox<M>]) -> Vec<Address<M>> {
    boxes.iter().map(Mailbox::address).collect()
}

/// Looks for a way for each pair of ranks that exchange messages.
fn check_ways(topology: &Topology, routes: &Routes, program: &Program) -> Result<(), Error> {
    for (from, rank) in program.ranks.iter().enumerate() {
        let targets = rank
            .operations
            .iter()
            .filter_map(|operation| match operation {
                Operation::Send { to, .. } => Some(*to),
                _ => None,
            });
        let mut targets: Vec<u32> = targets.collect();
        targets.sort_unstable();
        targets.dedup();
        for to in targets {
            routes.way(topology, from as u32, to)?;
        }
    }
    Ok(())
}
