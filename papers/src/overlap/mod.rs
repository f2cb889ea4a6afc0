//! A large message back and forth in parts: all together, driven by the host and by kernels, and each part by itself.

mod series;

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use serde::Serialize;
use warpbell::{Slice, Word64};
use warpbell_bench::cause;
use warpbell_bench::run::interrupt;
use warpbell_bench::run::memory::{self, Memory};
use warpbell_host_init::{Buffer, Grid, Launch, Node, Placement, Shared, entry};
use warpbell_kernels::outcome::Outcome;
use warpbell_paper_kernels::overlap::{OverlapEnd, Process, overlap_end, overlap_process};
use warpbell_paper_kernels::path::Path;

use crate::Error;
use crate::application::Measurement;
use crate::rig::{Driver, HostQueue, Rig};

pub use series::{APPLICATION, PAPER, PaperRow, Results, Series};

/// Bytes of a word.
const WORD: u32 = 8;
/// Bytes that go under a doorbell at most: so much of each block's part stays in a GPU's cache between the work on it and the
/// NIC's reading.
const STRETCH: u32 = 256 << 10;
/// How long the kernels of a repetition run, more or less; every word is compared behind each.
const REPETITION: Duration = Duration::from_millis(500);

/// How a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// As a whole; the second end's network is driven by its host.
    Host,
    /// As a whole, by kernels: their blocks meet before they send.
    Whole,
    /// By kernels, each block's part by itself.
    Blocks,
}

impl Way {
    /// In the order of the paper.
    pub const ALL: [Self; 3] = [Self::Host, Self::Whole, Self::Blocks];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "whole, by the host",
            Self::Whole => "whole, by kernels",
            Self::Blocks => "by block",
        }
    }

    fn driver(self) -> Driver {
        match self {
            Self::Host => Driver::Host,
            Self::Whole | Self::Blocks => Driver::Kernel,
        }
    }
}

/// What goes, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Blocks of each end, and parts of the message.
    pub blocks: u32,
    /// Threads of each.
    pub threads: u32,
    /// Bytes of the message.
    pub bytes: u64,
    /// Maximum bytes of a work request, a multiple of 8.
    pub chunk: u32,
    /// The most rounds that count.
    pub rounds: u64,
    /// No repetition begins once rounds have taken so long.
    pub limit: Duration,
    /// Depth of each queue in blocks of 64 bytes.
    pub depth: u32,
    /// Seed of the message.
    pub seed: u64,
}

/// What was measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Measured {
    /// How the message went.
    pub way: Way,
    /// Its bytes.
    pub bytes: u64,
    /// How often it came back.
    pub rounds: u64,
    /// How long that took.
    pub seconds: f64,
    /// What went, both directions together, in 10⁹ bits a second.
    pub gbit_per_s: f64,
    /// Every word at both ends was what it should be, after each repetition, nothing beside was touched, and blocks met as
    /// often as their way says.
    pub verified: bool,
}

/// The columns of [`Measured::row`].
pub const HEADER: &str = "message    way                      Gbit/s     rounds   µs a round";

impl Measurement for Measured {
    fn row(&self) -> String {
        format!(
            "{:<10} {:<20} {:>10.2} {:>10} {:>12.1}",
            warpbell_bench::run::screen::bytes(self.bytes),
            self.way.name(),
            self.gbit_per_s,
            self.rounds,
            1e6 * self.seconds / self.rounds as f64,
        )
    }

    fn verified(&self) -> bool {
        self.verified
    }
}

/// What becomes of a word after so many steps, as factor and addend.
fn after(steps: u64) -> (u64, u64) {
    // One step is an affine map, whatever it is: its values at 0 and 1 tell it.
    let addend = Process::next(0);
    let mut step = (Process::next(1).wrapping_sub(addend), addend);
    let mut all = (1u64, 0u64);
    let mut left = steps;
    while left > 0 {
        if left % 2 == 1 {
            all = (
                all.0.wrapping_mul(step.0),
                all.1.wrapping_mul(step.0).wrapping_add(step.1),
            );
        }
        step = (
            step.0.wrapping_mul(step.0),
            step.1.wrapping_mul(step.0).wrapping_add(step.1),
        );
        left /= 2;
    }
    all
}

/// The message at both ends, and what it should be.
struct Message {
    start: Vec<u64>,
    near: Memory,
    far: Memory,
    /// How often it came back.
    rounds: u64,
}

impl Message {
    fn new(case: &Case, node: &Node, rig: &Rig) -> Result<Self, Error> {
        let mut random = SmallRng::seed_from_u64(case.seed);
        let words = case.bytes / u64::from(WORD);
        let start: Vec<u64> = (0..words).map(|_| random.next_u64()).collect();
        let message = Self {
            near: rig.near.memory(node, case.bytes as usize)?,
            far: rig.far.memory(node, case.bytes as usize)?,
            start,
            rounds: 0,
        };
        let bytes: Vec<u8> = message
            .start
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        message.near.write(0, &bytes);
        Ok(message)
    }

    fn is(&self, memory: &Memory, steps: u64) -> bool {
        let (factor, addend) = after(steps);
        let found = memory.read(0, memory.len());
        let (words, _) = found.as_chunks::<{ WORD as usize }>();
        let right = |(word, start): (&[u8; 8], &u64)| {
            u64::from_ne_bytes(*word) == start.wrapping_mul(factor).wrapping_add(addend)
        };
        words.iter().zip(&self.start).all(right) && memory.check_guards().is_ok()
    }

    /// Whether every word of both ends is right: each end works once in a round, the near one last.
    fn is_right(&self) -> bool {
        self.is(&self.near, 2 * self.rounds) && self.is(&self.far, 2 * self.rounds - 1)
    }
}

/// An end's kernel, and what it leaves.
struct Side {
    arrivals: Buffer,
    times: Shared<[Word64]>,
    outcome: Shared<Outcome>,
}

impl Side {
    fn new(case: &Case, node: &Node) -> Result<Self, Error> {
        let own = match node.gpu() {
            None => Placement::Host,
            Some(gpu) => Placement::Gpu(gpu),
        };
        let blocks = case.blocks as usize;
        Ok(Self {
            arrivals: Buffer::placed(own, WORD as usize * blocks)?,
            times: node.words(2 * blocks)?,
            outcome: node.shared(Outcome::new())?,
        })
    }

    fn end<'s>(&'s self, case: &Case, memory: &Memory, path: Path<'s>) -> OverlapEnd<'s> {
        OverlapEnd {
            process: case.process(memory),
            path,
            begins: 0,
            whole: true,
            rounds: 0,
            chunk: case.chunk,
            group: case.group(),
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            arrivals: unsafe { memory::place(&self.arrivals) },
            times: Slice::new(&self.times),
            outcome: &self.outcome,
        }
    }

    /// Whether each block met the others so often.
    fn met(&self, times: u64) -> Result<bool, Error> {
        let mut bytes = vec![0; self.arrivals.len()];
        self.arrivals.read(0, &mut bytes)?;
        let (words, _) = bytes.as_chunks::<{ WORD as usize }>();
        Ok(words.iter().all(|word| u64::from_ne_bytes(*word) == times))
    }

    /// From the first block's beginning to the last one's end.
    fn seconds(&self) -> f64 {
        let time = |index: usize| self.times[index].load(Ordering::Relaxed);
        let blocks = 0..self.times.len() / 2;
        let began = blocks.clone().map(|block| time(2 * block)).min();
        let ended = blocks.map(|block| time(2 * block + 1)).max();
        (ended.unwrap_or(0) - began.unwrap_or(0)).max(1) as f64 / 1e9
    }
}

impl Case {
    fn part(&self) -> u32 {
        (self.bytes / u64::from(self.blocks)) as u32
    }

    /// Work requests under a doorbell: half a ring, but no more than [`STRETCH`] bytes.
    fn group(&self) -> u32 {
        (STRETCH / self.chunk).min(self.depth / 2).max(1)
    }

    fn grid(&self) -> Grid {
        Grid::new(self.blocks, self.threads)
    }

    fn process(&self, memory: &Memory) -> Process {
        Process {
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            words: unsafe { memory.place() },
            words_of_a_part: self.part() / WORD,
        }
    }

    /// Whether the message has as many words for each block.
    ///
    /// # Errors
    /// [`Error::Uneven`].
    pub fn check(&self) -> Result<(), Error> {
        let part = u64::from(self.blocks * WORD);
        match self.bytes > 0 && self.bytes.is_multiple_of(part) {
            true => Ok(()),
            false => Err(Error::Uneven {
                bytes: self.bytes,
                parts: self.blocks,
                what: "words",
                unit: WORD.into(),
            }),
        }
    }

    /// Sends the message back and forth.
    ///
    /// # Errors
    /// A message that is not even; a kernel or the host failed; Ctrl-C before a round counted.
    pub fn measure(&self, node: &Node, way: Way) -> Result<Measured, Error> {
        self.check()?;
        let rig = Rig::new(
            node,
            [Driver::Kernel, way.driver()],
            self.blocks,
            self.depth,
        )?;
        let mut message = Message::new(self, node, &rig)?;
        // One round ahead, which does not count, but says how many make a repetition.
        let (first, mut verified) = self.repeat(node, &rig, &mut message, way, 1)?;
        let wanted = self.limit.min(REPETITION).as_secs_f64();
        let at_once = (wanted / first).clamp(1.0, 100_000.0) as u64;
        let (mut rounds, mut seconds) = (0, 0.0);
        while rounds < self.rounds && seconds < self.limit.as_secs_f64() {
            if interrupt::requested() {
                break;
            }
            let these = at_once.min(self.rounds - rounds);
            let (took, right) = self.repeat(node, &rig, &mut message, way, these as u32)?;
            seconds += took;
            rounds += these;
            verified &= right;
        }
        if rounds == 0 {
            return Err(warpbell_bench::run::Error::Interrupted.into());
        }
        Ok(Measured {
            way,
            bytes: self.bytes,
            rounds,
            seconds,
            gbit_per_s: (2 * 8 * self.bytes * rounds) as f64 / seconds / 1e9,
            verified,
        })
    }

    /// Some rounds; gives their seconds, and whether all is right then.
    fn repeat(
        &self,
        node: &Node,
        rig: &Rig,
        message: &mut Message,
        way: Way,
        rounds: u32,
    ) -> Result<(f64, bool), Error> {
        rig.clear_signals();
        let sides = [Side::new(self, node)?, Side::new(self, node)?];
        let handles = [rig.handles(&rig.near)?, rig.handles(&rig.far)?];
        let there = (&message.near, &message.far);
        let back = (&message.far, &message.near);
        let there = rig.near.path(&rig.far, &handles[0], there, self.part());
        let back = rig.far.path(&rig.near, &handles[1], back, self.part());
        let near = OverlapEnd {
            begins: 1,
            whole: way != Way::Blocks,
            rounds,
            ..sides[0].end(self, &message.near, there)
        };
        let near_launch = Launch::new(entry!(overlap_end), self.grid(), near);
        let ran = match way {
            Way::Host => self.answer_by_host(node, rig, &message.far, near_launch, back, rounds),
            Way::Whole | Way::Blocks => {
                let far = OverlapEnd {
                    whole: way != Way::Blocks,
                    rounds,
                    ..sides[1].end(self, &message.far, back)
                };
                let far = Launch::new(entry!(overlap_end), self.grid(), far);
                let ran = node.run(&[far, near_launch], &rig.pairs());
                ran.map_err(Error::from)
            }
        };
        let [one, other] = [0, 1].map(|index: usize| &*sides[index].outcome);
        cause::ended(
            ran,
            [("the end that begins", one), ("the other end", other)],
        )?;
        message.rounds += u64::from(rounds);
        // Before each step's work, and behind it.
        let steps = 2 * u64::from(rounds);
        let right = match way {
            Way::Host => sides[0].met(steps)?,
            Way::Whole => sides[0].met(steps)? && sides[1].met(steps)?,
            Way::Blocks => sides[0].met(0)? && sides[1].met(0)?,
        };
        Ok((sides[0].seconds(), right && message.is_right()))
    }

    fn answer_by_host(
        &self,
        node: &Node,
        rig: &Rig,
        memory: &Memory,
        near: Launch<'_>,
        path: Path<'_>,
        rounds: u32,
    ) -> Result<(), Error> {
        let pairs = rig.pairs();
        let near = [near];
        let process = Launch::new(entry!(overlap_process), self.grid(), self.process(memory));
        let process = [process];
        let mut queues = rig.far.host_queues()?;
        thread::scope(|scope| {
            let near = scope.spawn(|| Ok(node.run(&near, &pairs)?));
            let mut answer = || {
                for number in 1..=u64::from(rounds) {
                    for part in 0..self.blocks {
                        if rig.far.wait(part, number, || near.is_finished())?.is_none() {
                            return Ok(());
                        }
                    }
                    node.run(&process, &[])?;
                    for (part, queue) in (0..).zip(&mut queues) {
                        let offset = u64::from(part) * u64::from(self.part());
                        let starts = (0..self.part()).step_by(self.chunk as usize);
                        let pieces: Vec<_> = starts
                            .map(|start| {
                                let place = offset + u64::from(start);
                                path.write(place, place, self.chunk.min(self.part() - start))
                            })
                            .chain([path.tell(part, number)])
                            .collect();
                        for group in pieces.chunks(self.group() as usize) {
                            queue.post(group.iter().copied())?;
                        }
                    }
                }
                Ok(queues.iter_mut().try_for_each(HostQueue::drain)?)
            };
            let answered = answer();
            let near = near.join();
            let near = near.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            cause::first_cause([near, answered])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpbell::WaitError;
    use warpbell_kernels::outcome::Failure;

    #[test]
    fn a_whole_message_waits_for_all_of_its_parts() {
        let node = Node::cpu();
        for (whole, works) in [(true, false), (false, true)] {
            let case = Case {
                blocks: 2,
                threads: 3,
                bytes: 160,
                chunk: 64,
                rounds: 1,
                limit: Duration::from_secs(1),
                depth: 16,
                seed: 1,
            };
            let rig = Rig::new(&node, [Driver::Kernel; 2], 2, case.depth).unwrap();
            let message = Message::new(&case, &node, &rig).unwrap();
            let side = Side::new(&case, &node).unwrap();
            let handles = rig.handles(&rig.far).unwrap();
            let back = (&message.far, &message.near);
            let path = Path {
                limit_us: 100_000,
                ..rig.far.path(&rig.near, &handles, back, case.part())
            };
            // The second part never comes.
            rig.far.tell(0, 1);
            let end = OverlapEnd {
                whole,
                rounds: 1,
                ..side.end(&case, &message.far, path)
            };
            let launch = Launch::new(entry!(overlap_end), case.grid(), end);
            node.run(&[launch], &[]).unwrap();
            let late = Failure::Wait(WaitError::Deadline);
            assert_eq!(side.outcome.result(), Err(late));
            let worked = message.far.read(0, 8) == Process::next(0).to_ne_bytes();
            let sent = message.near.read(0, 8) == Process::next(0).to_ne_bytes();
            assert_eq!((worked, sent), (works, works), "whole: {whole}");
        }
    }

    #[test]
    fn many_steps_are_as_many_single_ones() {
        let mut word = 0x1234_5678_9abc_def1;
        let start: u64 = word;
        for steps in 0..50 {
            let (factor, addend) = after(steps);
            assert_eq!(start.wrapping_mul(factor).wrapping_add(addend), word);
            word = Process::next(word);
        }
    }
}
