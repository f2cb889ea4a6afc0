//! Two ranks whose messages go from a memory of one to that of the other.

use warpbell::SendQueueHandle;
use warpbell::wqe::Remote;
use warpbell_bench::party::Party;
use warpbell_bench::run::memory::Memory;
use warpbell_paper_kernels::path::Path;
use warpbell_patterns::trigger::host::Triggers;

use super::{Driver, End, Ends};
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
    /// As [`Ends::new`].
    pub fn of_two(
        party: &Party,
        driver: Driver,
        parts: u32,
        depth: u32,
        bytes: usize,
    ) -> Result<Vec<Self>, Error> {
        let ends = Ends::new(party, party.node(), [driver; 2], [parts, 1], depth)?;
        let memories = ends.each(|end| end.memory(party.node(), bytes))?;
        let targets = memories.each_ref().map(|own| (own.as_ref(), bytes as u32));
        let begin = ends.begin(party, targets)?;
        let here = ends.ends.into_iter().zip(memories).enumerate();
        let mut members: Vec<Self> = here
            .filter_map(|(rank, (end, memory))| {
                Some(Self {
                    rank,
                    end: end?,
                    memory: memory?,
                    triggers: None,
                    there: begin[1 - rank],
                })
            })
            .collect();
        if driver == Driver::Triggered {
            for member in &mut members {
                member.triggers = Some(member.end.triggers()?);
            }
        }
        Ok(members)
    }

    /// From its memory to the other rank's, by queues with these handles: messages of `bytes` bytes.
    pub fn path<'a>(&'a self, queues: &'a [SendQueueHandle<'a>], bytes: u32) -> Path<'a> {
        self.end.path_to(queues, &self.memory, self.there, bytes)
    }
}
