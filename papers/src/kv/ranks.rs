//! The table at the first rank, and clients at all others.

use warpbell::wqe::Remote;
use warpbell_bench::party::Party;
use warpbell_host_init::{QueuePairConfig, RemoteMemory, World};

use super::{Clients, Filled, Row, Target, Way, queues};
use crate::Error;
use crate::together::together;

/// A rank among them.
pub(super) struct Ranks {
    /// At the first rank.
    target: Option<Target>,
    /// Where table and values begin there.
    there: [Remote; 2],
    config: QueuePairConfig,
    world: World,
}

impl Ranks {
    pub fn new(party: &Party, mut world: World, filled: &Filled) -> Result<Self, Error> {
        let target = match world.rank() {
            0 => Some(Target::new(party.node(), world.domain(), filled)?),
            _ => None,
        };
        let ours = target.as_ref();
        let ours = ours.map(|target| [target.table.shared(), target.values.shared()]);
        let all: Vec<Option<[RemoteMemory; 2]>> = world.exchange(&ours)?;
        let [table, values] = all[0].ok_or_else(Error::other_program)?;
        let lengths = [filled.bytes().len(), filled.values.len()];
        let there = [
            table.at(0, lengths[0] as u32)?,
            values.at(0, lengths[1] as u32)?,
        ];
        Ok(Self {
            target,
            there,
            config: party.queues(queues()),
            world,
        })
    }

    /// Has the clients of all other ranks get, and gives all of them a row of each of these ranks.
    pub fn get(&mut self, party: &Party, clients: &mut Clients) -> Result<Vec<Row>, Error> {
        let others: Vec<u32> = match self.target {
            Some(_) => self.world.others().collect(),
            None => vec![0],
        };
        let mut pairs = Vec::new();
        for _ in 0..clients.case.clients {
            let others = others.iter().copied();
            pairs.extend(self.world.connect(others, &self.config)?.into_values());
        }
        let ours = match self.target {
            Some(_) => Ok(None),
            None => clients
                .get(Way::Reads, |clients, client| {
                    clients.read(client, &pairs, self.there)
                })
                .map(Some),
        };
        let mut rows: Vec<Option<Row>> = together(party, ours)?;
        // All have read by now.
        let target = self.target.as_ref();
        let untouched = target.is_none_or(|target| target.is_untouched(&clients.filled));
        let untouched = self.world.exchange(&untouched)?.into_iter().all(|of| of);
        for (rank, row) in (0..).zip(&mut rows) {
            if let Some(row) = row {
                row.rank = Some(rank);
                row.verified &= untouched;
            }
        }
        Ok(rows.into_iter().flatten().collect())
    }
}
