//! Active messages between two kernels of this process: a reduction, and how long it takes until a task starts.

use std::sync::atomic::Ordering;
use warpbell::Slice;

use crate::run::interrupt;
use crate::run::launch::{LIMIT_US, said};
use crate::run::memory::{self, Memory};
use serde::Serialize;
use warpbell_host_init::{
    Buffer, Entry, Grid, Launch, Node, ProtectionDomain, QueuePair, QueuePairConfig, Shared, entry,
};
use warpbell_kernels::active::{
    ACCUMULATE, ARGUMENTS, ActiveAnswer, ActiveRoundTrip, Contribute, Reduce, UNREGISTERED,
    VECTORS, active_answer, active_contribute, active_reduce, active_round_trip_arguments,
    active_round_trip_payload, active_round_trip_value,
};
use warpbell_kernels::outcome::Outcome;
use warpbell_patterns::active::Error as Refused;
use warpbell_patterns::active::host::{ActiveConfig, ActiveMessages};

use crate::Error;
use crate::gaspi::OneWay;
use crate::samples::values;

/// Lanes with the functions of the kernels registered, and the initiator's domain.
fn lanes(
    node: &Node,
    lanes: u32,
    slots: u32,
    bytes: usize,
) -> Result<(ActiveMessages, ProtectionDomain), Error> {
    let [near, far] = node.ends()?;
    let config = ActiveConfig {
        lanes,
        slots,
        functions: 8,
        buffers: 1,
        queue_pair: QueuePairConfig {
            send_depth: (8 * slots).clamp(16, 1024),
            ..QueuePairConfig::default()
        },
        ..ActiveConfig::default()
    };
    let mut active = ActiveMessages::new(&near, &far, &config)?;
    for (function, arguments) in (0..).zip(ARGUMENTS) {
        active.register(function, arguments)?;
    }
    active.register_buffer(VECTORS, bytes)?;
    Ok((active, near))
}

/// Runs the kernels of both ends until they have ended.
fn run(
    node: &Node,
    what: &str,
    launches: [Launch<'_>; 2],
    active: &ActiveMessages,
    outcomes: [&Outcome; 2],
) -> Result<(), Error> {
    interrupt::check()?;
    let pairs: Vec<&QueuePair> = active.queue_pairs().collect();
    node.run(&launches, &pairs)?;
    for outcome in outcomes {
        said(what, outcome)?;
    }
    Ok(())
}

/// Vectors that blocks of the initiator send, and that blocks of the target add up.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ReduceCase {
    /// Blocks at each end, each with a lane.
    pub blocks: u32,
    /// Threads of each block.
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
    /// From the launch of the kernels to their end.
    pub seconds: f64,
    /// All sums, the answers that were looked at and all refusals are what a loop on the host says.
    pub verified: bool,
}

impl ReduceCase {
    /// What the target's blocks have added up after so many messages, by a loop.
    fn sum(&self, block: u32, messages: u32, word: u32) -> u64 {
        (0..messages).fold(0, |sum: u64, message| {
            let addend = Contribute::word(block, message, word);
            sum.wrapping_add(addend.wrapping_mul(Contribute::factor(message)))
        })
    }

    /// Sends and adds up.
    ///
    /// # Errors
    /// Numbers that are refused; a kernel that failed.
    pub fn reduce(&self, node: &Node) -> Result<ReduceResult, Error> {
        let bytes = 8 * self.words as usize * (self.blocks * self.slots) as usize;
        let (active, near) = lanes(node, self.blocks, self.slots, bytes)?;
        let source = Memory::new(&near, node.nic_placement(), bytes)?;
        let sums = Buffer::placed(
            node.nic_placement(),
            8 * (self.blocks * self.words) as usize,
        )?;
        let answers = node.words((self.blocks * self.messages) as usize)?;
        let refusals = node.words(2 * self.blocks as usize)?;
        let outcomes = [node.shared(Outcome::new())?, node.shared(Outcome::new())?];
        let grid = Grid {
            blocks: self.blocks,
            threads_per_block: self.threads,
        };
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
            outcome: &outcomes[0],
        };
        let reduce = Reduce {
            target: active.target(),
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            sums: unsafe { memory::place(&sums) },
            words: self.words,
            stop: interrupt::stop(node.placement())?,
            limit_us: LIMIT_US,
            outcome: &outcomes[1],
        };
        let launches = [
            Launch::new(entry!(active_contribute), grid, contribute),
            Launch::new(entry!(active_reduce), grid, reduce),
        ];
        let began = std::time::Instant::now();
        run(
            node,
            "the reduction",
            launches,
            &active,
            outcomes.each_ref().map(|outcome| &**outcome),
        )?;
        let seconds = began.elapsed().as_secs_f64();

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
        Ok(ReduceResult {
            case: *self,
            tasks: u64::from(self.blocks) * u64::from(self.messages),
            refused: refused as u32,
            seconds,
            verified: bytes_are_right && answered && refused == self.blocks as usize,
        })
    }
}

/// The function that the reduction's vectors name, for the reader.
pub const REDUCES: u32 = ACCUMULATE;

/// Two kernels in turn: a message, its task, which does nothing, and its answer.
#[derive(Clone, Copy, Debug)]
pub struct TaskStarts {
    /// Rounds that count; at least 1.
    pub rounds: u32,
    /// Rounds before them that do not.
    pub warm_up: u32,
    /// Bytes of a payload.
    pub bytes: u32,
}

/// The task saw what was sent, and answered: half a round trip.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Starts {
    /// A task with a value and nothing else.
    pub value: OneWay,
    /// One with two arguments beside it.
    pub arguments: OneWay,
    /// One behind a payload.
    pub payload: OneWay,
}

impl TaskStarts {
    /// How long a task takes to start, from its message's call to the target's, as half of a round trip.
    ///
    /// # Errors
    /// A kernel that failed.
    pub fn measure(&self, node: &Node) -> Result<Starts, Error> {
        Ok(Starts {
            value: self.one_way(node, entry!(active_round_trip_value))?,
            arguments: self.one_way(node, entry!(active_round_trip_arguments))?,
            payload: self.one_way(node, entry!(active_round_trip_payload))?,
        })
    }

    fn one_way(
        &self,
        node: &Node,
        kernel: Entry<fn(ActiveRoundTrip<'_>)>,
    ) -> Result<OneWay, Error> {
        let bytes = self.bytes as usize;
        let (active, near) = lanes(node, 1, 8, bytes)?;
        let source = Memory::new(&near, node.nic_placement(), bytes)?;
        let all = self.warm_up + self.rounds;
        let samples = node.words(all as usize)?;
        let outcomes: [Shared<Outcome>; 2] =
            [node.shared(Outcome::new())?, node.shared(Outcome::new())?];
        let initiator = ActiveRoundTrip {
            initiator: active.initiator(),
            source: source.local(0, bytes),
            rounds: all,
            limit_us: LIMIT_US,
            samples: Slice::new(&samples),
            outcome: &outcomes[0],
        };
        let target = ActiveAnswer {
            target: active.target(),
            stop: interrupt::stop(node.placement())?,
            limit_us: LIMIT_US,
            outcome: &outcomes[1],
        };
        let launches = [
            Launch::new(kernel, Grid::ONE_THREAD, initiator),
            Launch::new(entry!(active_answer), Grid::ONE_THREAD, target),
        ];
        run(
            node,
            "round trips",
            launches,
            &active,
            outcomes.each_ref().map(|outcome| &**outcome),
        )?;
        Ok(OneWay::of(&samples, self.warm_up))
    }
}
