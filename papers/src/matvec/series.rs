//! Batches of several sizes, each by both drivers, beside the paper's table.

use std::time::Duration;

use serde::Serialize;
use warpbell_bench::origin::Origin;
use warpbell_bench::party::Party;
use warpbell_bench::plot::{Curve, Panel};
use warpbell_bench::run::interrupt;
use warpbell_bench::run::screen::{self, Screen};
use warpbell_host_init::Node;
use warpbell_paper_kernels::matvec::VECTOR_BYTES;

use super::{Case, HEADER, Measured};
use crate::Error;
use crate::application::{Application, Extent, Findings, Measurements, Section, Table, Verdict};
use crate::rig::Driver;

/// A row of the paper's table 3.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PaperRow {
    /// Bytes of a batch: its KB taken as KiB, which divide by its 30 blocks.
    pub bytes: u64,
    /// 10⁶ vectors a second where the host drives (GPI-2); none where the scan is not legible.
    pub host: Option<f64>,
    /// Where the kernel does (GPUrdma).
    pub kernel: f64,
}

/// GPUrdma's table 3: a K40c and a Connect-IB.
pub const PAPER: [PaperRow; 6] = [
    row(60, Some(4.9), 22.4),
    row(120, Some(9.2), 35.9),
    row(240, None, 48.1),
    row(480, Some(26.5), 55.6),
    row(960, Some(37.9), 57.7),
    row(1920, Some(46.3), 60.0),
];

const fn row(kib: u64, host: Option<f64>, kernel: f64) -> PaperRow {
    PaperRow {
        bytes: kib << 10,
        host,
        kernel,
    }
}

/// How much more the kernel is to reach than the host with the smallest batch: what the paper says of its own.
pub const WANTED: f64 = 4.5;

/// For the report.
pub const APPLICATION: Application = Application {
    name: "matvec",
    title: "Multi-matrix-vector product",
    paper: "GPUrdma (Daoud, Watad and Silberstein 2016), section 7 and table 3: a master on a CPU sends batches of vectors \
        of 32 floats; a worker multiplies each by one matrix of 32 × 32 floats and sends the products back, then the next \
        batch comes. The worker's network is driven by its CPU, which launches a kernel for each batch (GPI-2), or by the \
        30 blocks of one kernel, which hold the matrix in shared memory all the time (GPUrdma). A K40c, a Connect-IB.",
    differs: "No card: the NIC is software. The client is a block of a kernel beside the server's, not a CPU in another \
        machine, and sends a part of a batch to each block, with a signal of its own, where the paper's master sends one \
        message; it is the same for both drivers. Blocks have 256 threads on a GPU, not 1,024. Each product is compared \
        with a loop on the host, bit by bit, while the next batch is under way. The paper's KB are KiB here, which \
        divide by 30 blocks; its figure for GPI-2 with 240 KB is not legible in our copy.",
    run,
};

/// Sizes that are measured by both drivers, one after the other.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// Blocks of the server; none for [as many as suit each batch](usual_blocks).
    pub blocks: Option<u32>,
    /// Threads of each.
    pub threads: u32,
    /// Bytes of a batch.
    pub sizes: Vec<u64>,
    /// Batches before those that count.
    pub warm_up: u32,
    /// The most batches that count.
    pub rounds: u32,
    /// Seconds for each size and driver.
    pub seconds: f64,
    /// Depth of each queue in blocks of 64 bytes.
    pub depth: u32,
    /// Seed of matrix and vectors.
    pub seed: u64,
    /// Whether to measure each driver alone, too.
    pub driver_alone: bool,
}

impl Series {
    /// The paper's sizes; on a CPU with few threads.
    pub fn new(node: &Node) -> Self {
        Self {
            blocks: None,
            threads: match node.gpu() {
                Some(_) => 256,
                None => 32,
            },
            sizes: PAPER.map(|row| row.bytes).to_vec(),
            warm_up: 10,
            rounds: u32::MAX / 2,
            seconds: 1.0,
            depth: 64,
            seed: 1,
            driver_alone: false,
        }
    }

    /// How many steps that has, for a screen.
    pub fn steps(&self) -> u64 {
        2 * self.sizes.len() as u64
    }

    /// Measures all; with Ctrl-C what there is until then.
    ///
    /// # Errors
    /// Sizes that do not divide, before anything is measured; what [`Case::measure`] says.
    pub fn run(&self, node: &Node, screen: &Screen) -> Result<Results, Error> {
        let most = match node.gpu() {
            Some(_) => MOST_BLOCKS,
            None => CPU_BLOCKS,
        };
        let case = |&bytes: &u64| Case {
            blocks: self.blocks.unwrap_or_else(|| usual_blocks(bytes, most)),
            threads: self.threads,
            bytes,
            warm_up: self.warm_up,
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
            &[Driver::Host, Driver::Kernel],
            screen,
            |case, driver| {
                screen.step(screen::bytes(case.bytes));
                let measured = case.measure(node, driver)?;
                match self.driver_alone && !interrupt::requested() {
                    true => case.measure_alone(node, measured),
                    false => Ok(measured),
                }
            },
        )?;
        Ok(Results(results))
    }
}

/// Blocks at most, where nobody says how many: the paper's; and on a CPU.
const MOST_BLOCKS: u32 = 30;
const CPU_BLOCKS: u32 = 4;
/// Parts at least, where vectors divide: one for each engine of the software NIC. Each is two requests, there and back, which
/// take an engine longer than what a block multiplies.
const FEWEST_BLOCKS: u64 = 8;
/// Vectors of a block at most, where blocks suffice: 60 KiB, which that NIC copies as one message.
const VECTORS_OF_A_BLOCK: u64 = 480;

/// How many blocks suit a batch: as few as engines have to do and as messages allow, a number that divides its vectors, and
/// no more than `most`.
pub fn usual_blocks(bytes: u64, most: u32) -> u32 {
    let vectors = bytes / u64::from(VECTOR_BYTES);
    let wanted = vectors.div_ceil(VECTORS_OF_A_BLOCK).max(FEWEST_BLOCKS);
    let wanted = wanted.min(vectors.clamp(1, most.into())) as u32;
    let divides = |blocks: &u32| vectors.is_multiple_of((*blocks).into());
    (1..=wanted).rev().find(divides).unwrap_or(1)
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Results(Measurements<Measured>);

impl Results {
    fn of(&self, bytes: u64, driver: Driver) -> Option<&Measured> {
        let mut all = self.0.measured.iter();
        all.find(|result| (result.bytes, result.driver) == (bytes, driver))
    }

    /// The sizes that both drivers had, with what both reached.
    fn pairs(&self) -> impl Iterator<Item = (&Measured, &Measured)> {
        let by_host = self
            .0
            .measured
            .iter()
            .filter(|of| of.driver == Driver::Host);
        by_host.filter_map(|host| Some((host, self.of(host.bytes, Driver::Kernel)?)))
    }
}

impl Findings for Results {
    const PLOT: &str = "Matrix-vector product";
    type Measured = Measured;

    fn measurements(&self) -> &Measurements<Measured> {
        &self.0
    }

    /// Ours and the paper's.
    fn panels(&self) -> Vec<Panel> {
        let ours = |name: &str, driver| Curve {
            name: name.into(),
            points: self
                .0
                .measured
                .iter()
                .filter(|result| result.driver == driver)
                .map(|result| (result.bytes as f64, result.million_per_s))
                .collect(),
        };
        let paper = |name: &str, of: fn(&PaperRow) -> Option<f64>| Curve {
            name: name.into(),
            points: PAPER
                .iter()
                .filter_map(|row| Some((row.bytes as f64, of(row)?)))
                .collect(),
        };
        vec![Panel {
            quantity: "throughput (10⁶ vectors/s)",
            over: "batch size (bytes)",
            curves: vec![
                ours("driven by the host", Driver::Host),
                ours("driven by the kernel", Driver::Kernel),
                paper("paper: GPI-2", |row| row.host),
                paper("paper: GPUrdma", |row| Some(row.kernel)),
            ],
        }]
    }

    /// The smallest batch, kernel over host; and what that would be of the drivers alone, if it was measured.
    fn verdicts(&self) -> Vec<Verdict> {
        let Some((host, kernel)) = self.pairs().min_by_key(|(host, _)| host.bytes) else {
            return Vec::new();
        };
        let verdict = |how, found| Verdict {
            what: format!(
                "batches of {}, {how}driven by the kernel over driven by the host",
                screen::bytes(host.bytes)
            ),
            wanted: WANTED,
            found,
        };
        let alone = host.driver_alone.zip(kernel.driver_alone);
        let alone = alone.map(|(host, kernel)| verdict("drivers alone, ", host.us / kernel.us));
        let found = kernel.million_per_s / host.million_per_s;
        [verdict("", found)].into_iter().chain(alone).collect()
    }

    fn table(&self) -> Table {
        let columns = [
            "batch size",
            "blocks",
            "host (10⁶ vectors/s)",
            "kernel (10⁶ vectors/s)",
            "kernel over host (×)",
            "paper: GPI-2 (10⁶ vectors/s)",
            "paper: GPUrdma (10⁶ vectors/s)",
            "paper: GPUrdma over GPI-2 (×)",
            "longest batch: host, kernel (µs)",
        ];
        let rows = self.pairs().map(|(host, kernel)| {
            let paper = PAPER.iter().find(|row| row.bytes == host.bytes);
            let number =
                |value: Option<f64>| value.map_or("–".into(), |value| format!("{value:.1}"));
            let theirs = paper.and_then(|row| Some(row.kernel / row.host?));
            vec![
                screen::bytes(host.bytes),
                host.blocks.to_string(),
                format!("{:.2}", host.million_per_s),
                format!("{:.2}", kernel.million_per_s),
                format!("{:.2}", kernel.million_per_s / host.million_per_s),
                number(paper.and_then(|row| row.host)),
                number(paper.map(|row| row.kernel)),
                number(theirs),
                format!("{:.0}, {:.0}", host.longest_us, kernel.longest_us),
            ]
        });
        Table {
            columns: columns.map(String::from).to_vec(),
            rows: rows.collect(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_as_few_as_suffice_and_have_as_many_vectors_each() {
        let blocks = PAPER.map(|row| usual_blocks(row.bytes, MOST_BLOCKS));
        assert_eq!(blocks, [8, 8, 8, 8, 16, 30]);
        let vector = u64::from(VECTOR_BYTES);
        // 1,210 is twice 5 times 11 times 11; a single vector; none whole.
        assert_eq!(usual_blocks(1210 * vector, MOST_BLOCKS), 5);
        assert_eq!(usual_blocks(vector, MOST_BLOCKS), 1);
        assert_eq!(usual_blocks(vector - 1, MOST_BLOCKS), 1);
        assert_eq!(usual_blocks(1 << 20, CPU_BLOCKS), 4);
    }
}
