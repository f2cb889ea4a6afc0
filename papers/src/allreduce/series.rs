//! Vectors of several sizes, summed by several numbers of ranks, in all ways.

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use warpbell_bench::energy::{Meter, Sources};
use warpbell_bench::origin::Origin;
use warpbell_bench::party::Party;
use warpbell_bench::plot::{Curve, Panel};
use warpbell_bench::run::screen::{self, Screen};
use warpbell_host_init::Node;

use super::{Algorithm, Case, Element, HEADER, Measured, Reference, Straggler, Way};
use crate::Error;
use crate::application::{Application, Extent, Findings, Measurements, Section, Table};
use crate::together::unless_interrupted;

/// For the report.
pub const APPLICATION: Application = Application {
    name: "allreduce",
    title: "All-reduce: the sum of all ranks\u{2019} vectors",
    paper: "LeBeane\u{2019}s evaluation of ComP-Net and GPU-TN: the sum of vectors of 64 MB of floats over 2 and more nodes, with \
        the network in the hands of the host between two kernels, of a network processor that kernels hand their messages to, \
        or of operations that the GPU triggers. Simulated APUs; the figures are pictures that our copy lacks.",
    differs: "No card: the NIC is software. All ranks are in one process and on one GPU, the blocks of one kernel (allreduce \
        --gpus has them on several); hosts have a thread for each rank. By a ring and by recursive doubling. Vectors go in \
        slices of 64 KiB at most, each with its signal behind it. Each sum is compared at each rank: the same bits at \
        all, and within 1e-6 of a tree on the host.",
    run,
};

/// What a repetition sums and stores at most.
const REPETITION: u64 = 64 << 20;

/// Sizes that are measured with several numbers of ranks in all ways, one after the other.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// Numbers of ranks.
    pub ranks: Vec<u32>,
    /// Bytes of a vector.
    pub sizes: Vec<u64>,
    /// How sums come about.
    pub algorithms: Vec<Algorithm>,
    /// Who drives the network.
    pub ways: Vec<Way>,
    /// What vectors are made of.
    pub element: Element,
    /// Blocks of each rank.
    pub blocks: u32,
    /// Threads of each.
    pub threads: u32,
    /// Bytes of a message at most.
    pub slice: u32,
    /// Sums of a repetition; by default as many as store 64 MiB, from 1 to 64.
    pub rounds: Option<u32>,
    /// The most repetitions.
    pub repetitions: u64,
    /// Seconds for each measurement.
    pub seconds: f64,
    /// Depth of each queue in blocks of 64 bytes.
    pub depth: u32,
    /// A rank that is slow.
    pub straggler: Option<Straggler>,
    /// Seed of the vectors.
    pub seed: u64,
}

impl Series {
    /// The papers' vectors and smaller ones, with 2, 4 and 8 ranks; on a CPU fewer ranks and blocks, and none as large.
    pub fn new(node: &Node) -> Self {
        let (ranks, blocks, threads, kib) = match node.gpu() {
            Some(_) => (vec![2, 4, 8], 8, 256, [256, 4 << 10, 64 << 10]),
            None => (vec![2, 4], 1, 32, [16, 256, 1 << 10]),
        };
        Self {
            ranks,
            sizes: kib.map(|kib| kib << 10).to_vec(),
            algorithms: Algorithm::value_variants().to_vec(),
            ways: Way::value_variants().to_vec(),
            element: Element::F32,
            blocks,
            threads,
            slice: 64 << 10,
            rounds: None,
            repetitions: u64::MAX,
            seconds: 1.0,
            depth: 128,
            straggler: None,
            seed: 1,
        }
    }

    /// How many measurements that has, for a screen.
    pub fn measurements(&self) -> u64 {
        let cases = self.ranks.len() * self.sizes.len();
        (cases * self.algorithms.len() * self.ways.len()) as u64
    }

    pub(super) fn case(&self, ranks: u32, bytes: u64) -> Case {
        let usual = (REPETITION / bytes.max(1)).clamp(1, 64) as u32;
        Case {
            ranks,
            blocks: self.blocks,
            threads: self.threads,
            bytes,
            element: self.element,
            slice: self.slice,
            rounds: self.rounds.unwrap_or(usual),
            repetitions: self.repetitions,
            limit: Duration::try_from_secs_f64(self.seconds).unwrap_or(Duration::MAX),
            depth: self.depth,
            straggler: self.straggler,
            seed: self.seed,
        }
    }

    /// Measures all, with ranks in these places; with Ctrl-C what there is until then.
    ///
    /// # Errors
    /// What [`Case::check`] and [`Case::check_party`] say, before anything is measured; what [`Case::measure`] says.
    pub fn run(&self, party: &Party, nodes: &[Node], screen: &Screen) -> Result<Results, Error> {
        let sizes = || self.sizes.iter();
        let of = |&ranks| sizes().map(move |&bytes| self.case(ranks, bytes));
        let cases: Vec<Case> = self.ranks.iter().flat_map(of).collect();
        let with = |&algorithm| self.ways.iter().map(move |&way| (algorithm, way));
        let ways: Vec<_> = self.algorithms.iter().flat_map(with).collect();
        for case in &cases {
            let mut algorithms = self.algorithms.iter();
            algorithms.try_for_each(|&algorithm| case.check(algorithm))?;
            case.check_party(party, nodes.len())?;
        }
        let meter = Meter::of(nodes);
        let energy_sources = meter.sources();
        energy_sources.show(screen);
        screen.heading(HEADER);
        // A case's ways come one after the other.
        let mut reference: Option<Reference> = None;
        let measurements =
            Measurements::of(party, &cases, &ways, screen, |case, (algorithm, way)| {
                screen.step(format!("{} × {}", case.ranks, screen::bytes(case.bytes)));
                let reference = match &reference {
                    Some(of) if (of.ranks, of.bytes) == (case.ranks, case.bytes) => of,
                    _ => reference.insert(unless_interrupted(party, Reference::new(case))?),
                };
                case.measure((party, &meter), nodes, algorithm, way, reference)
            })?;
        Ok(Results {
            measurements,
            energy_sources,
        })
    }
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    #[serde(flatten)]
    measurements: Measurements<Measured>,
    energy_sources: Sources,
}

impl Findings for Results {
    const PLOT: &str = "All-reduce";
    type Measured = Measured;

    fn measurements(&self) -> &Measurements<Measured> {
        &self.measurements
    }

    /// Ours over the size of a vector, for the largest number of ranks.
    fn panels(&self) -> Vec<Panel> {
        let measured = || self.measurements.measured.iter();
        let most = measured().map(|of| of.ranks).max();
        let ours = measured().filter(|of| Some(of.ranks) == most);
        let mut curves: Vec<Curve> = Vec::new();
        for result in ours {
            let name = format!("{}, {}", result.algorithm.name(), result.way.name());
            let point = (result.bytes as f64, result.gb_per_s);
            match curves.iter_mut().find(|curve| curve.name == name) {
                Some(curve) => curve.points.push(point),
                None => curves.push(Curve {
                    name,
                    points: vec![point],
                }),
            }
        }
        vec![Panel {
            quantity: "bandwidth with the most ranks (GB/s)",
            over: "vector size (bytes)",
            curves,
        }]
    }

    fn table(&self) -> Table {
        let columns = [
            "ranks",
            "vector size",
            "algorithm",
            "network",
            "time of a sum (µs)",
            "bandwidth (GB/s)",
            "over that by hosts (×)",
        ];
        let by_hosts = |of: &Measured| {
            let mut all = self.measurements.measured.iter();
            let same = |host: &&Measured| {
                (host.way, host.ranks, host.bytes, host.algorithm)
                    == (Way::Host, of.ranks, of.bytes, of.algorithm)
            };
            all.find(same).map(|host| host.us_per_sum)
        };
        let row = |of: &Measured| {
            let ratio = by_hosts(of)
                .map_or_else(|| "–".into(), |host| format!("{:.2}", host / of.us_per_sum));
            let numbers = [
                format!("{:.1}", of.us_per_sum),
                format!("{:.3}", of.gb_per_s),
            ];
            let words = [
                of.ranks.to_string(),
                screen::bytes(of.bytes),
                of.algorithm.name().into(),
                of.way.name().into(),
            ];
            words.into_iter().chain(numbers).chain([ratio]).collect()
        };
        Table {
            columns: columns.map(String::from).to_vec(),
            rows: self.measurements.measured.iter().map(row).collect(),
        }
    }
}

fn run(node: &Node, extent: Extent, origin: &Origin, screen: &Screen) -> Result<Section, Error> {
    let mut series = Series {
        seconds: extent.seconds,
        ..Series::new(node)
    };
    if extent.quick {
        series.ranks.truncate(1);
        series.sizes.truncate(1);
        series.rounds = Some(2);
    }
    let results = series.run(&Party::alone(node), std::slice::from_ref(node), screen)?;
    Ok(results.section(&series, node, origin))
}
