//! Messages of several sizes, each in all ways, beside the paper's figures.

use std::time::Duration;

use serde::Serialize;
use warpbell_bench::origin::Origin;
use warpbell_bench::party::Party;
use warpbell_bench::plot::{Curve, Panel};
use warpbell_bench::run::screen::{self, Screen};
use warpbell_host_init::Node;

use super::{Case, HEADER, Measured, Way};
use crate::Error;
use crate::application::{Application, Extent, Findings, Measurements, Section, Table, Verdict};

/// For the report.
pub const APPLICATION: Application = Application {
    name: "overlap",
    title: "Ping-pong of a large message, whole and by block",
    paper: "GPUrdma (Daoud, Watad and Silberstein 2016), section 7: a master on a CPU sends 180 MB to a worker's GPU, which \
        sends them back through 30 queues. The worker is its CPU, without a kernel (GPI-2); a kernel, whose 30 blocks \
        wait for one notification of the whole message and send a 30th each; or one whose blocks are told of their part \
        alone and send it without waiting for the others, after they have looked at every byte. A K40c, a Connect-IB.",
    differs: "No card: the NIC is software. Both ends are kernels, and each changes every word of the message before it sends \
        it on, so that a part that was lost, or came late, would be seen; the paper's CPU sends without a kernel, ours \
        launches one that does this work. 180 MB are MiB here. In all ways a part goes through the queue of its block, in \
        pieces of 64 KiB; the paper's master sends the whole with one queue. So the ways differ in waiting alone.",
    run,
};

/// A figure of the paper.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PaperRow {
    /// Its way in our terms.
    pub way: Way,
    /// What it is there.
    pub name: &'static str,
    /// 10⁹ bits a second, with 180 MB.
    pub gbit_per_s: f64,
}

/// Section 7: a K40c and a Connect-IB.
pub const PAPER: [PaperRow; 3] = [
    row(Way::Host, "paper: GPI-2", 38.0),
    row(Way::Whole, "paper: GPUrdma", 40.5),
    row(Way::Blocks, "paper: GPUrdma by block", 52.0),
];

/// Bytes of the paper's message.
const PAPER_BYTES: u64 = 180 << 20;

const fn row(way: Way, name: &'static str, gbit_per_s: f64) -> PaperRow {
    PaperRow {
        way,
        name,
        gbit_per_s,
    }
}

/// How much more by block is to reach than as a whole.
const WANTED: f64 = 1.2;

/// Sizes that are measured in all ways, one after the other.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// Blocks of each end.
    pub blocks: u32,
    /// Threads of each.
    pub threads: u32,
    /// Bytes of a message.
    pub sizes: Vec<u64>,
    /// Bytes of a work request at most.
    pub chunk: u32,
    /// The most rounds that count.
    pub rounds: u64,
    /// Seconds for each size and way.
    pub seconds: f64,
    /// Depth of each queue in blocks of 64 bytes.
    pub depth: u32,
    /// Seed of the messages.
    pub seed: u64,
}

impl Series {
    /// The paper's message and blocks, and smaller messages; on a CPU fewer blocks, and none as large.
    pub fn new(node: &Node) -> Self {
        let (blocks, threads, kib) = match node.gpu() {
            Some(_) => (30, 256, [1920, 7680, 30 << 10, PAPER_BYTES >> 10]),
            None => (4, 32, [60, 240, 1920, 7680]),
        };
        Self {
            blocks,
            threads,
            sizes: kib.map(|kib| kib << 10).to_vec(),
            chunk: 64 << 10,
            rounds: u64::MAX,
            seconds: 1.0,
            depth: 256,
            seed: 1,
        }
    }

    /// How many steps that has, for a screen.
    pub fn steps(&self) -> u64 {
        Way::ALL.len() as u64 * self.sizes.len() as u64
    }

    /// Measures all; with Ctrl-C what there is until then.
    ///
    /// # Errors
    /// Sizes that do not divide, before anything is measured; what [`Case::measure`] says.
    pub fn run(&self, node: &Node, screen: &Screen) -> Result<Results, Error> {
        let case = |&bytes: &u64| Case {
            blocks: self.blocks,
            threads: self.threads,
            bytes,
            chunk: self.chunk,
            rounds: self.rounds,
            limit: Duration::try_from_secs_f64(self.seconds).unwrap_or(Duration::MAX),
            depth: self.depth,
            seed: self.seed,
        };
        let cases: Vec<Case> = self.sizes.iter().map(case).collect();
        cases.iter().try_for_each(Case::check)?;
        screen.heading(HEADER);
        let results = Measurements::of(
            &Party::alone(node),
            &cases,
            &Way::ALL,
            screen,
            |case, way| {
                screen.step(screen::bytes(case.bytes));
                case.measure(node, way)
            },
        )?;
        Ok(Results(results))
    }
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Results(Measurements<Measured>);

impl Results {
    /// The sizes that were measured in all ways, with what each reached.
    fn complete(&self) -> impl Iterator<Item = (u64, [f64; 3])> {
        let of = |bytes: u64, way| {
            let mut all = self.0.measured.iter();
            let found = all.find(|result| (result.bytes, result.way) == (bytes, way));
            found.map(|result| result.gbit_per_s)
        };
        let last = self.0.measured.iter().filter(|of| of.way == Way::Blocks);
        last.filter_map(move |result| {
            let [host, whole, blocks] = Way::ALL.map(|way| of(result.bytes, way));
            Some((result.bytes, [host?, whole?, blocks?]))
        })
    }
}

impl Findings for Results {
    const PLOT: &str = "Ping-pong, whole and by block";
    type Measured = Measured;

    fn measurements(&self) -> &Measurements<Measured> {
        &self.0
    }

    /// Ours and the paper's.
    fn panels(&self) -> Vec<Panel> {
        let ours = Way::ALL.map(|way| Curve {
            name: way.name().into(),
            points: self
                .0
                .measured
                .iter()
                .filter(|result| result.way == way)
                .map(|result| (result.bytes as f64, result.gbit_per_s))
                .collect(),
        });
        let paper = PAPER.map(|row| Curve {
            name: row.name.into(),
            points: vec![(PAPER_BYTES as f64, row.gbit_per_s)],
        });
        vec![Panel {
            quantity: "bandwidth, both directions (Gbit/s)",
            over: "message size (bytes)",
            curves: ours.into_iter().chain(paper).collect(),
        }]
    }

    /// The largest message, by block over as a whole.
    fn verdicts(&self) -> Vec<Verdict> {
        let largest = self.complete().max_by_key(|(bytes, _)| *bytes);
        let verdict = |(bytes, [_, whole, blocks]): (u64, [f64; 3])| Verdict {
            what: format!(
                "messages of {}, by block over as a whole by kernels",
                screen::bytes(bytes)
            ),
            wanted: WANTED,
            found: blocks / whole,
        };
        largest.map(verdict).into_iter().collect()
    }

    fn table(&self) -> Table {
        let columns = [
            "message size",
            "whole, by the host (Gbit/s)",
            "whole, by kernels (Gbit/s)",
            "by block (Gbit/s)",
            "by kernels over by the host (×)",
            "by block over whole (×)",
        ];
        let row = |name: String, [host, whole, blocks]: [f64; 3]| {
            let numbers = [host, whole, blocks, whole / host, blocks / whole];
            let numbers = numbers.map(|number| format!("{number:.2}"));
            [name].into_iter().chain(numbers).collect()
        };
        let ours = self
            .complete()
            .map(|(bytes, of)| row(screen::bytes(bytes), of));
        let paper = row("paper: 180 MB".into(), PAPER.map(|row| row.gbit_per_s));
        Table {
            columns: columns.map(String::from).to_vec(),
            rows: ours.chain([paper]).collect(),
        }
    }
}

fn run(node: &Node, extent: Extent, origin: &Origin, screen: &Screen) -> Result<Section, Error> {
    let mut series = Series {
        seconds: extent.seconds,
        ..Series::new(node)
    };
    if extent.quick {
        series.sizes.truncate(1);
    }
    let results = series.run(node, screen)?;
    Ok(results.section(&series, node, origin))
}
