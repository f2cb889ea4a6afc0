//! Two ends that exchange data: both in this process, or each in one of its own.

use warpbell::SendQueueHandle;
use warpbell::wqe::Remote;
use warpbell_bench::nodes;
use warpbell_bench::party::Party;
use warpbell_bench::run::memory::Memory;
use warpbell_host_init::{Node, QueuePair, RemoteMemory, Shared};
use warpbell_paper_kernels::path::MAX_PARTS;

use super::{Driver, End, Rig, reach};
use crate::Error;

/// The ends of two that this process has: both, or that of its rank, where a launcher has started two.
pub struct Ends {
    /// That of the first rank, and that of the second.
    pub ends: [Option<End>; 2],
    /// Bytes of the signals of each.
    signals: u32,
}

impl Ends {
    /// Connects so many parts, with so many signals of each, between two ends with these drivers: over a NIC of their own, which
    /// reaches no further than they need.
    ///
    /// # Errors
    /// As [`Rig::with_signals`]; where a launcher has started other than two ranks; what a rank is refused, all hear.
    pub fn new(
        party: &Party,
        node: &Node,
        drivers: [Driver; 2],
        [parts, signals]: [u32; 2],
        depth: u32,
    ) -> Result<Self, Error> {
        party.own_ranks(2)?;
        let bytes = 8 * parts * signals;
        let nic = nodes::with_queue_pairs(node, reach(drivers), 2 * MAX_PARTS)?;
        let Some(mut world) = party.world(&nic)? else {
            let Rig { near, far, .. } = Rig::with_signals(node, drivers, parts, signals, depth)?;
            let ends = [Some(near), Some(far)];
            return Ok(Self {
                ends,
                signals: bytes,
            });
        };
        let rank = world.rank() as usize;
        let domain = world.domain().clone();
        let config = party.queues(drivers[rank].queues(node, &domain, depth));
        let mut pairs = Vec::new();
        for _ in 0..parts {
            pairs.extend(world.connect(world.others(), &config)?.into_values());
        }
        let mut ends = [None, None];
        ends[rank] = Some(End::with_pairs(
            node,
            domain,
            drivers[rank],
            pairs,
            signals,
        )?);
        Ok(Self {
            ends,
            signals: bytes,
        })
    }

    /// Makes something for each end that is here.
    ///
    /// # Errors
    /// What `make` says.
    pub fn each<'e, T>(
        &'e self,
        mut make: impl FnMut(&'e End) -> Result<T, Error>,
    ) -> Result<[Option<T>; 2], Error> {
        let [near, far] = &self.ends;
        let mut made = |end: &'e Option<End>| end.as_ref().map(&mut make).transpose();
        Ok([made(near)?, made(far)?])
    }

    /// Where messages to each end and its signals begin. `targets` are the memories of the ends that are here, to which messages
    /// come, and how many bytes they have at least, wherever they are.
    ///
    /// # Errors
    /// An end that is nowhere, or has less memory; another rank failed.
    pub fn begin(
        &self,
        party: &Party,
        targets: [(Option<&Memory>, u32); 2],
    ) -> Result<[[Remote; 2]; 2], Error> {
        let ours = [0, 1].map(|end: usize| {
            let signals = self.ends[end].as_ref()?.signals();
            Some([targets[end].0?.shared(), signals])
        });
        let all: Vec<[Option<[RemoteMemory; 2]>; 2]> = party.exchange(ours)?;
        let begin = |end: usize| {
            let shared = all.iter().find_map(|of| of[end]);
            let [target, signals] = shared.ok_or_else(Error::other_program)?;
            Ok::<_, Error>([target.at(0, targets[end].1)?, signals.at(0, self.signals)?])
        };
        Ok([begin(0)?, begin(1)?])
    }

    /// The kernels' handles of the queues of each end.
    ///
    /// # Errors
    /// No memory for them.
    pub fn handles(
        &self,
        node: &Node,
    ) -> Result<[Option<Shared<[SendQueueHandle<'_>]>>; 2], Error> {
        self.each(|end| end.handles(node))
    }

    /// The queue pairs of the ends that are here, for a watch.
    pub fn pairs(&self) -> Vec<&QueuePair> {
        self.ends.iter().flatten().flat_map(End::pairs).collect()
    }
}
