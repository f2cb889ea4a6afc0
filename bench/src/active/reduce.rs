//! A reduction by tasks: vectors that blocks of the initiator send, each with a task that adds it up at the target.

use std::sync::atomic::Ordering;

use serde::Serialize;
use warpbell::Slice;
use warpbell_host_init::{Buffer, Grid, Launch, Node, entry};
use warpbell_kernels::active::{
    Contribute, Reduce, UNREGISTERED, active_contribute, active_reduce,
};
use warpbell_kernels::outcome::Outcome;
use warpbell_patterns::active::Error as Refused;

use super::launching::Target;
use super::{Way, run};
use crate::Error;
use crate::run::interrupt;
use crate::run::launch::LIMIT_US;
use crate::run::memory::{self, Memory};
use crate::samples::values;

/// Vectors that blocks of the initiator send, and that blocks of the target add up.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ReduceCase {
    /// Blocks of the initiator, each with a lane.
    pub blocks: u32,
    /// Threads of each block, and of each task.
    pub threads: u32,
    /// Words of a vector.
    pub words: u32,
    /// Slots of each lane, a power of two.
    pub slots: u32,
    /// Vectors that each block sends.
    pub messages: u32,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ReduceResult {
    /// What was sent.
    #[serde(flatten)]
    pub case: ReduceCase,
    /// Tasks that ran.
    pub tasks: u64,
    /// Messages with a function that is not registered, one of each block, all of which were refused by that name.
    pub refused: u32,
    /// From the first vector's message to the last one's answer.
    pub seconds: f64,
    /// All sums, the answers that were looked at and all refusals are what a loop on the host says.
    pub verified: bool,
}

impl ReduceResult {
    /// Time for each vector, in microseconds.
    pub fn us_per_vector(&self) -> f64 {
        1e6 * self.seconds / self.tasks as f64
    }
}

impl ReduceCase {
    /// What the target has added up of a block's vectors after so many messages, by a loop.
    fn sum(&self, block: u32, messages: u32, word: u32) -> u64 {
        (0..messages).fold(0, |sum: u64, message| {
            let addend = Contribute::word(block, message, word);
            sum.wrapping_add(addend.wrapping_mul(Contribute::factor(message)))
        })
    }

    /// Sends and adds up, on a node for the way ([`Way::on`]).
    ///
    /// # Errors
    /// Numbers that are refused; a kernel that failed.
    pub fn reduce(&self, node: &Node, way: Way) -> Result<ReduceResult, Error> {
        let bytes = 8 * self.words as usize * (self.blocks * self.slots) as usize;
        let (active, near) = way.lanes(node, self.blocks, self.slots, bytes)?;
        let source = Memory::new(&near, node.nic_placement(), bytes)?;
        let sums = Buffer::placed(
            node.nic_placement(),
            8 * (self.blocks * self.words) as usize,
        )?;
        let answers = node.words((self.blocks * self.messages) as usize)?;
        let refusals = node.words(2 * self.blocks as usize)?;
        let times = node.words(2 * self.blocks as usize)?;
        let outcomes = [node.shared(Outcome::new())?, node.shared(Outcome::new())?];
        let grid = Grid::new(self.blocks, self.threads);
        let contribute = Contribute {
            initiator: active.initiator(),
            source: source.local(0, bytes),
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            vectors: unsafe { source.place() },
            words: self.words,
            slots: self.slots,
            messages: self.messages,
            limit_us: LIMIT_US,
            answers: Slice::new(&answers),
            refusals: Slice::new(&refusals),
            times: Slice::new(&times),
            outcome: &outcomes[0],
        };
        let contribute = Launch::new(entry!(active_contribute), grid, contribute);
        // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
        let place = unsafe { memory::place(&sums) };
        let what = "the reduction";
        if way == Way::Resident {
            let reduce = Reduce {
                target: active.target(),
                sums: place,
                words: self.words,
                stop: interrupt::stop(node.placement())?,
                limit_us: LIMIT_US,
                outcome: &outcomes[1],
            };
            let reduce = Launch::new(entry!(active_reduce), grid, reduce);
            let said_by = outcomes.each_ref().map(|outcome| &**outcome);
            run(node, what, [contribute, reduce], &active, said_by)?;
        } else {
            let target = Target {
                node,
                active: &active,
                grid: Grid::new(1, self.threads),
                sums: place,
                words: self.words,
            };
            target.run(way, what, contribute, &outcomes[0])?;
        }

        let mut found = vec![0; sums.len()];
        sums.read(0, &mut found)?;
        let expected: Vec<u8> = (0..self.blocks)
            .flat_map(|block| (0..self.words).map(move |word| (block, word)))
            .flat_map(|(block, word)| self.sum(block, self.messages, word).to_ne_bytes())
            .collect();
        let answered = (0..self.blocks).all(|block| {
            (0..self.messages).all(|message| {
                let looked_at = message % self.slots == 0 || message + 1 == self.messages;
                let found = &answers[(block * self.messages + message) as usize];
                let sum = self.sum(block, message + 1, 0) as u32;
                !looked_at || found.load(Ordering::Relaxed) == u64::from(sum)
            })
        });
        let not_registered = Refused::NotRegistered {
            function: UNREGISTERED,
        };
        let refused = values(&refusals[..])
            .chunks_exact(2)
            .filter(|pair| **pair == [not_registered.to_bits(), 1])
            .count();
        let bytes_are_right = found == expected && source.check_guards().is_ok();
        let times = values(&times[..]);
        let (begins, ends) = (times.iter().step_by(2), times.iter().skip(1).step_by(2));
        let nanoseconds = ends.max().zip(begins.min());
        let nanoseconds = nanoseconds.map_or(0, |(end, begin)| end.saturating_sub(*begin));
        Ok(ReduceResult {
            case: *self,
            tasks: u64::from(self.blocks) * u64::from(self.messages),
            refused: refused as u32,
            seconds: nanoseconds as f64 / 1e9,
            verified: bytes_are_right && answered && refused == self.blocks as usize,
        })
    }
}
