//! Two ranks that exchange data: both in this process, or each in one of its own.

use warpbell::SendQueueHandle;
use warpbell::wqe::Remote;
use warpbell_bench::nodes;
use warpbell_bench::party::Party;
use warpbell_bench::run::memory::Memory;
use warpbell_host_init::RemoteMemory;
use warpbell_paper_kernels::path::{MAX_PARTS, Path};
use warpbell_patterns::trigger::host::Triggers;

use super::{Driver, End, Rig, reach};
use crate::Error;

/// A rank of two in this process.
pub struct Member {
    /// Which one.
    pub rank: usize,
    /// Its end, connected to that of the other rank.
    pub end: End,
    /// What it sends from, and where it receives.
    pub memory: Memory,
    /// Its queues as operations that kernels trigger, a tag for each part, where that is their driver.
    pub triggers: Option<Triggers>,
    /// Where memory and signals of the other rank begin.
    there: [Remote; 2],
}

impl Member {
    /// The ranks that this process runs of two with so many parts, and so many bytes of memory each: both, over a NIC of
    /// their own, or its own, connected to that of the other process.
    ///
    /// # Errors
    /// As [`Rig::new`]; where a launcher has started other than two ranks; what a rank is refused, all hear.
    pub fn of_two(
        party: &Party,
        driver: Driver,
        parts: u32,
        depth: u32,
        bytes: usize,
    ) -> Result<Vec<Self>, Error> {
        party.own_ranks(2)?;
        let node = party.node();
        let nic = nodes::with_queue_pairs(node, reach([driver; 2]), 2 * MAX_PARTS)?;
        let mut members = match party.world(&nic)? {
            None => {
                let Rig { near, far, .. } = Rig::new(node, [driver; 2], parts, depth)?;
                let memories = [near.memory(node, bytes)?, far.memory(node, bytes)?];
                let [first, second] = [near.begin(&memories[0]), far.begin(&memories[1])];
                let [memory, other] = memories;
                vec![
                    Self::new(0, near, memory, second),
                    Self::new(1, far, other, first),
                ]
            }
            Some(mut world) => {
                let (rank, other) = (world.rank(), 1 - world.rank());
                let domain = world.domain().clone();
                let config = party.queues(driver.queues(node, &domain, depth));
                let mut pairs = Vec::new();
                for _ in 0..parts {
                    pairs.extend(world.connect([other], &config)?.into_values());
                }
                let end = End::with_pairs(node, domain, driver, pairs, 1)?;
                let memory = end.memory(node, bytes)?;
                let all: Vec<[RemoteMemory; 2]> =
                    world.exchange(&[memory.shared(), end.signals()])?;
                let [memories, signals] = all[other as usize];
                let there = [memories.at(0, bytes as u32)?, signals.at(0, 8 * parts)?];
                vec![Self::new(rank as usize, end, memory, there)]
            }
        };
        if driver == Driver::Triggered {
            for member in &mut members {
                member.triggers = Some(member.end.triggers()?);
            }
        }
        Ok(members)
    }

    fn new(rank: usize, end: End, memory: Memory, there: [Remote; 2]) -> Self {
        Self {
            rank,
            end,
            memory,
            triggers: None,
            there,
        }
    }

    /// From its memory to the other rank's, by queues with these handles: messages of `bytes` bytes.
    pub fn path<'a>(&'a self, queues: &'a [SendQueueHandle<'a>], bytes: u32) -> Path<'a> {
        self.end.path_to(queues, &self.memory, self.there, bytes)
    }
}
