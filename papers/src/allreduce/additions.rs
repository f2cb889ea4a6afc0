//! The additions of an all-reduce by themselves: no rank, no queue, no NIC.
//!
//! A kernel adds what a step would have brought, and the host waits for its end. The time over the bytes of a block is a
//! straight line: its slope is the rate of the additions, and what it begins with is a launch. `cluster predict` reads both.

use std::time::Instant;

use serde::Serialize;
use warpbell_bench::party::Party;
use warpbell_bench::plot::{Curve, Panel};
use warpbell_bench::run::interrupt;
use warpbell_bench::run::memory::{place, words};
use warpbell_bench::run::screen::{self, Screen};
use warpbell_host_init::{Buffer, Launch, Node, entry};
use warpbell_paper_kernels::allreduce::{AllReduceStep, Plan, allreduce_step};

use super::{Element, Series, WORD};
use crate::Error;
use crate::application::{Findings, Measurement, Measurements, Table};

/// Slices of a block, two points of a line, and whether their sums are in place.
const POINTS: [(u32, bool); 4] = [(1, false), (16, false), (1, true), (16, true)];
/// The fewest launches of a point.
const FEWEST: usize = 5;

/// One point of the line.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Addition {
    /// Ranks whose blocks add at the same time.
    pub ranks: u32,
    /// Blocks of each.
    pub blocks: u32,
    /// Threads of each block.
    pub threads: u32,
    /// Bytes that each block adds.
    pub bytes: u64,
    /// Whether sums go where one of their terms is, as in all steps of recursive doubling but the last; else to a place that
    /// no cache has.
    pub in_place: bool,
    /// How often the kernel was launched.
    pub launches: u64,
    /// The median of the time from the launch until the host knows of the end, in microseconds.
    pub us: f64,
    /// Every sum was right.
    pub verified: bool,
}

/// The columns of [`Measurement::row`].
pub const HEADER: &str =
    "ranks  blocks  threads  bytes of a block  in place     launches          µs";

impl Measurement for Addition {
    fn row(&self) -> String {
        format!(
            "{:<6} {:<7} {:<8} {:<17} {:<8} {:>12} {:>11.2}",
            self.ranks,
            self.blocks,
            self.threads,
            screen::bytes(self.bytes),
            if self.in_place { "yes" } else { "no" },
            self.launches,
            self.us
        )
    }

    fn verified(&self) -> bool {
        self.verified
    }
}

/// What came of a series.
#[derive(Clone, Debug, Serialize)]
pub struct Additions {
    #[serde(flatten)]
    measurements: Measurements<Addition>,
}

impl Findings for Additions {
    const PLOT: &str = "Additions of an all-reduce";
    type Measured = Addition;

    fn measurements(&self) -> &Measurements<Addition> {
        &self.measurements
    }

    fn panels(&self) -> Vec<Panel> {
        let curve = |(ranks, in_place): &(u32, bool)| {
            let own = self.measurements.measured.iter();
            let own = own.filter(|of| (of.ranks, of.in_place) == (*ranks, *in_place));
            let place = if *in_place { ", in place" } else { "" };
            Curve {
                name: format!("{ranks} ranks{place}"),
                points: own.map(|of| (of.bytes as f64, of.us)).collect(),
            }
        };
        let mut curves = Vec::new();
        for of in &self.measurements.measured {
            if !curves.contains(&(of.ranks, of.in_place)) {
                curves.push((of.ranks, of.in_place));
            }
        }
        vec![Panel {
            quantity: "time of a launch (µs)",
            over: "bytes of a block",
            curves: curves.iter().map(curve).collect(),
        }]
    }

    fn table(&self) -> Table {
        let columns = [
            "ranks",
            "blocks",
            "bytes of a block",
            "in place",
            "time of a launch (µs)",
        ];
        let row = |of: &Addition| {
            vec![
                of.ranks.to_string(),
                of.blocks.to_string(),
                of.bytes.to_string(),
                of.in_place.to_string(),
                format!("{:.2}", of.us),
            ]
        };
        Table {
            columns: columns.map(String::from).to_vec(),
            rows: self.measurements.measured.iter().map(row).collect(),
        }
    }
}

impl Series {
    /// Measures the additions of each number of ranks by themselves; with Ctrl-C what there is until then.
    ///
    /// # Errors
    /// A grid or a vector that is too large; a kernel that failed.
    pub fn additions(
        &self,
        party: &Party,
        node: &Node,
        screen: &Screen,
    ) -> Result<Additions, Error> {
        screen.heading(HEADER);
        let measure = |&ranks: &u32, point| self.addition(node, ranks, point);
        Ok(Additions {
            measurements: Measurements::of(party, &self.ranks, &POINTS, screen, measure)?,
        })
    }

    fn addition(
        &self,
        node: &Node,
        ranks: u32,
        (slices, in_place): (u32, bool),
    ) -> Result<Addition, Error> {
        let bytes = u64::from(slices) * u64::from(self.slice);
        // As many sums as in an all-reduce: each goes to a place that no cache has.
        let case = self.case(ranks, bytes * u64::from(ranks * self.blocks));
        // The first step of one rank, whose parts are the blocks of all: the last step of two ranks, and none of four.
        let plan = Plan {
            doubling: true,
            floats: self.element == Element::F32,
            ranks: if in_place { 4 } else { 2 },
            parts: ranks * self.blocks,
            words: (case.bytes / u64::from(WORD)) as u32,
            slice: self.slice / WORD,
            rounds: case.rounds,
        };
        case.check(super::Algorithm::Ring)?;
        let memory = Buffer::placed(
            node.nic_placement(),
            WORD as usize * case.words(&plan)? as usize,
        )?;
        let times_of_term = |times: u32| match self.element {
            Element::F32 => (1.5 * times as f32).to_bits(),
            Element::U32 => times.wrapping_mul(7),
        };
        let terms = [times_of_term(1); 2]
            .map(u32::to_ne_bytes)
            .as_flattened()
            .repeat(memory.len() / 8);
        memory.write(0, &terms)?;
        let began = Instant::now();
        let mut times = Vec::new();
        let fewest = FEWEST.max(plan.rounds as usize);
        while times.len() < fewest || began.elapsed().as_secs_f64() < self.seconds {
            interrupt::check()?;
            let step = AllReduceStep {
                plan,
                // SAFETY: the buffer outlives the launch, and nobody but its kernel uses it meanwhile.
                memory: unsafe { place(&memory) },
                rank: 0,
                round: times.len() as u32 % plan.rounds,
                step: 0,
            };
            let launch = Launch::new(entry!(allreduce_step), case.grid(ranks), step);
            let start = Instant::now();
            node.run(&[launch], &[])?;
            times.push(start.elapsed());
        }
        times.sort_unstable();
        let words = words(&memory)?;
        let is_right = |round| {
            let first = plan.incoming(0, 0, round, 0).sum;
            // In place, what was added before is still there.
            let earlier = (0..times.len() as u32)
                .filter(|launch| plan.incoming(0, 0, launch % plan.rounds, 0).sum == first)
                .count();
            let added = if in_place { earlier as u32 } else { 1 };
            let sum = times_of_term(1 + added);
            let right = u64::from(sum) | u64::from(sum) << 32;
            let first = first as usize;
            let sums = &words[first..][..plan.words as usize];
            sums.iter().all(|word| *word == right)
        };
        Ok(Addition {
            ranks,
            blocks: self.blocks,
            threads: self.threads,
            bytes,
            in_place,
            launches: times.len() as u64,
            us: 1e6 * times[times.len() / 2].as_secs_f64(),
            verified: (0..plan.rounds).all(is_right),
        })
    }
}
