//! Networks with pictures of several sizes, each in all ways.

use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;
use warpbell_bench::Error as BenchError;
use warpbell_bench::origin::Origin;
use warpbell_bench::party::Party;
use warpbell_bench::plot::{Curve, Panel};
use warpbell_bench::run::screen::Screen;
use warpbell_bench::run::{Error as RunError, StageError, interrupt};
use warpbell_host_init::{Error as HostError, GpuError, Node};

use super::model::Picture;
use super::{Architecture, Case, HEADER, Measured, Moment, Way, size};
use crate::Error;
use crate::application::{Application, Extent, Findings, Measurements, Section, Table, Verdict};

/// How often what the kernel takes is to be in what the host takes: the paper halves it.
pub const WANTED: f64 = 2.0;
/// How often what a host that sleeps has of a core is to be in one core: a hundredth.
pub const WANTED_ASLEEP: f64 = 100.0;
/// The least share of a core that is told from none, in hundredths.
const LEAST_PERCENT: f64 = 1e-4;

/// For the report.
pub const APPLICATION: Application = Application {
    name: "serving",
    title: "Inference serving without the CPU",
    paper: "A paper on GPU-driven RDMA for inference serving (ConnectX-6, A100), section 5.2: a superresolution model, compiled by \
        TVM, answers requests that come by RDMA. CPU-mediated: from the NIC to RAM, to the GPU, computed, back to RAM, to \
        the NIC. GPU-driven: a graph of kernels that waits for the input, computes, sends and launches itself again, while \
        the host sleeps. Its figure 6 halves the total, of which our copy has no bars; its figure 7 has a core at 100 % where \
        the host synchronises, and at 0 % where it sleeps.",
    differs: "No card: the NIC is software, and the client is a block of a kernel. Beside the paper\u{2019}s graph of four kernels \
        (wait, process, send, launch again) there is one kernel that stays; the blocks of either meet between the layers. \
        The network has ESPCN\u{2019}s shape (5 × 5 to 64 channels, 3 × 3 to 32, \
        3 × 3 to 9, which become 3 × 3 pixels), rectified between the layers, weights from a seed, single precision without \
        tensor cores. The paper does not say how large its pictures are; those of 224 × 224 are what such a model is \
        published with. Every value of every answer is compared with a loop on the host, within a thousandth.",
    run,
};

/// Pictures that are served in all ways, one size after the other.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// The networks that answer, one after the other.
    pub architectures: Vec<Architecture>,
    /// Rows of a picture, and pixels of a row.
    pub sides: Vec<u32>,
    /// A picture that is served with its size, in place of these sides.
    #[serde(skip)]
    pub picture: Option<Picture>,
    /// Who drives the server's network, one after the other, and one that cannot is an error; by default those who can
    /// of [`Way::usual`].
    #[serde(skip)]
    pub ways: Option<Vec<Way>>,
    /// Blocks of the server.
    pub blocks: u32,
    /// Threads of each.
    pub threads: u32,
    /// Queues that a message goes through.
    pub parts: u32,
    /// Bytes of a work request at most.
    pub piece: u32,
    /// Requests before those that count.
    pub warm_up: u32,
    /// The most requests that count.
    pub rounds: u32,
    /// Seconds for each side and way.
    pub seconds: f64,
    /// Requests a second; none for each as soon as the one before is answered.
    pub rate: Option<f64>,
    /// Seconds of each moment of a curve over time, if there is to be one.
    pub every: Option<f64>,
    /// Depth of each queue in blocks of 64 bytes.
    pub depth: u32,
    /// Seed of weights and pictures.
    pub seed: u64,
    /// Whether to measure each driver alone, too.
    pub driver_alone: bool,
}

impl Series {
    /// Sides of 56 to 224; on a CPU smaller ones, fewer blocks and threads.
    pub fn new(node: &Node) -> Self {
        // On a GPU, pictures of 224 × 224 have 98 tiles for 256 threads each.
        let (blocks, threads, parts, sides) = match node.gpu() {
            Some(_) => (98, 256, 8, vec![56, 112, 224]),
            None => (2, 32, 2, vec![16, 32, 64]),
        };
        Self {
            architectures: vec![Architecture::Superresolution],
            sides,
            picture: None,
            ways: None,
            blocks,
            threads,
            parts,
            piece: 16 << 10,
            warm_up: 10,
            rounds: u32::MAX / 2,
            seconds: 1.0,
            rate: None,
            every: None,
            depth: 256,
            seed: 1,
            driver_alone: false,
        }
    }

    /// What a network serves of pictures of that size.
    pub fn case(&self, architecture: Architecture, (width, height): (u32, u32)) -> Case {
        let duration = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        Case {
            architecture,
            width,
            height,
            blocks: self.blocks,
            threads: self.threads,
            parts: self.parts,
            piece: self.piece,
            warm_up: self.warm_up,
            rounds: self.rounds,
            limit: duration(self.seconds),
            rate: self.rate,
            every: self.every.map(duration),
            depth: self.depth,
            seed: self.seed,
        }
    }

    /// How large the pictures are, one after the other.
    pub fn sizes(&self) -> Vec<(u32, u32)> {
        match &self.picture {
            Some(picture) => vec![(picture.width as u32, picture.height() as u32)],
            None => self.sides.iter().map(|&side| (side, side)).collect(),
        }
    }

    /// What of it can be measured here.
    ///
    /// # Errors
    /// Blocks, threads or queues that do not suffice, or no device runtime for a graph that was asked for.
    pub fn possible(self, node: &Node) -> Result<Possible, Error> {
        self.cases().iter().try_for_each(|case| case.check(node))?;
        let ways = self.ways.clone();
        let ways = ways.unwrap_or_else(|| Way::usual(node));
        self.possible_of(ways, node, |node| Ok(node.able_to_repeat()?))
    }

    /// The same of these ways, where `able` says where graphs can be, or why they cannot.
    fn possible_of(
        self,
        mut ways: Vec<Way>,
        node: &Node,
        able: impl Fn(&Node) -> Result<Node, Error>,
    ) -> Result<Possible, Error> {
        let (node, left_out) = match ways.contains(&Way::Graph) {
            false => (node.clone(), None),
            true => match able(node) {
                Ok(node) => (node, None),
                Err(error) => (node.clone(), Some(self.leave_out(error)?)),
            },
        };
        if left_out.is_some() {
            ways.retain(|&way| way != Way::Graph);
        }
        Ok(Possible {
            series: self,
            ways,
            node,
            left_out,
        })
    }

    /// That there is no graph, in words, if CUDA's device runtime is not there or cannot be linked, and nobody has
    /// asked for one.
    fn leave_out(&self, error: Error) -> Result<String, Error> {
        match error {
            Error::Bench(BenchError::Run(RunError::Stage(StageError::Setup(HostError::Gpu(
                why @ GpuError::NoDeviceRuntime { .. },
            )))))
                if self.ways.is_none() =>
            {
                Ok(format!("{}: left out, because {why}", Way::Graph.name()))
            }
            error => Err(error),
        }
    }

    fn cases(&self) -> Vec<Case> {
        let of = |&architecture| {
            let sizes = self.sizes().into_iter();
            sizes.map(move |size| self.case(architecture, size))
        };
        self.architectures.iter().flat_map(of).collect()
    }
}

/// A series in the ways that are possible.
#[derive(Debug, Serialize)]
pub struct Possible {
    #[serde(flatten)]
    series: Series,
    /// Who drives the server's network, one after the other.
    ways: Vec<Way>,
    /// Where they are.
    #[serde(skip)]
    node: Node,
    /// Which way is not possible here, and why.
    #[serde(skip)]
    left_out: Option<String>,
}

impl Possible {
    /// How many measurements that are, for a screen.
    pub fn measurements(&self) -> u64 {
        (self.ways.len() * self.series.cases().len()) as u64
    }

    /// Measures all; with Ctrl-C what there is until then. Of two ranks the first one has what was measured.
    ///
    /// # Errors
    /// Other than two ranks that a launcher has started, or any for a driver alone; what [`Case::measure`] says.
    pub fn run(&self, party: &Party, screen: &Screen) -> Result<Results, Error> {
        let Self { series, node, .. } = self;
        party.own_ranks(2)?;
        if series.driver_alone && party.size().is_some() {
            return Err(Error::AloneAmongRanks);
        }
        self.left_out.iter().for_each(|words| screen.line(words));
        screen.heading(HEADER);
        let mut answer = None;
        let measured =
            Measurements::of(party, &series.cases(), &self.ways, screen, |case, way| {
                let size = size(case.width, case.height);
                screen.step(format!(
                    "{}, {size}, {}",
                    case.architecture.name(),
                    way.name()
                ));
                let picture = series.picture.as_ref();
                let Some((measured, last)) = case.measure(party, node, way, picture)? else {
                    return Ok(None);
                };
                answer = Some(last);
                Ok(Some(match series.driver_alone && !interrupt::requested() {
                    true => case.measure_alone(node, picture, measured)?,
                    false => measured,
                }))
            })?;
        Ok(Results {
            measured,
            left_out: self.left_out.clone(),
            answer,
        })
    }
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    #[serde(flatten)]
    measured: Measurements<Measured>,
    /// Which way was not possible here, and why.
    left_out: Option<String>,
    /// The first picture's last answer of the last measurement.
    #[serde(skip)]
    pub answer: Option<Picture>,
}

impl Results {
    /// What was measured of a network with the largest picture.
    fn largest(&self, architecture: Architecture, way: Way) -> Option<&Measured> {
        let all = self.measured.measured.iter();
        let mut largest: Vec<_> = all
            .filter(|result| (result.architecture, result.way) == (architecture, way))
            .collect();
        largest.sort_by_key(|result| result.bytes);
        largest.pop()
    }

    /// The networks and ways of which something was measured.
    fn curves(&self) -> Vec<(Architecture, Way)> {
        let mut all = Vec::new();
        for result in &self.measured.measured {
            let both = (result.architecture, result.way);
            if !all.contains(&both) {
                all.push(both);
            }
        }
        all
    }

    /// All moments, as lines of values with commas between them.
    pub fn csv(&self) -> String {
        let mut text = String::from(
            "network,driven by,width,height,seconds,requests,mean (µs),longest (µs),of a core (%)\n",
        );
        for result in &self.measured.measured {
            for moment in &result.over_time {
                let _ = writeln!(
                    text,
                    "{},\"{}\",{},{},{:.3},{},{:.1},{:.1},{:.3}",
                    result.architecture.name(),
                    result.way.name(),
                    result.width,
                    result.height,
                    moment.seconds,
                    moment.requests,
                    moment.mean_us,
                    moment.longest_us,
                    moment.core_percent,
                );
            }
        }
        text
    }
}

impl Findings for Results {
    const PLOT: &str = "Inference serving";
    type Measured = Measured;

    fn measurements(&self) -> &Measurements<Measured> {
        &self.measured
    }

    /// What a request takes in all ways, how long the slowest of so many takes with the largest picture, and with it
    /// latency and the thread's share of a core over time.
    fn panels(&self) -> Vec<Panel> {
        let all = &self.measured.measured;
        let panel = |quantity, over, points: &dyn Fn(Architecture, Way) -> Vec<(f64, f64)>| {
            let curve = |(architecture, way): (Architecture, Way)| Curve {
                name: format!("{}, driven by the {}", architecture.name(), way.name()),
                points: points(architecture, way),
            };
            let curves: Vec<_> = self.curves().into_iter().map(curve).collect();
            Panel {
                quantity,
                over,
                curves,
            }
        };
        let means = panel(
            "from post to answer (µs)",
            "picture size (bytes)",
            &|architecture, way| {
                let results = all
                    .iter()
                    .filter(|result| (result.architecture, result.way) == (architecture, way));
                let points = results.map(|result| (result.bytes as f64, result.total_us));
                points.collect()
            },
        );
        let largest = |points: fn(&Measured) -> Vec<(f64, f64)>| {
            move |architecture, way| self.largest(architecture, way).map_or(Vec::new(), points)
        };
        let slowest = panel(
            "latency (µs)",
            "requests of which one takes longer, largest picture",
            &largest(|result| {
                let steps = result.distribution.one_of.iter();
                steps.map(|&(requests, us)| (requests as f64, us)).collect()
            }),
        );
        let over_time = panel(
            "latency (µs)",
            "time (s), largest picture",
            &largest(|result| {
                let moments = result.over_time.iter().filter(|moment| moment.requests > 0);
                moments
                    .map(|moment| (moment.seconds, moment.mean_us))
                    .collect()
            }),
        );
        let core = panel(
            "of a core (%)",
            "time (s), largest picture",
            &largest(|result| {
                let moments = result.over_time.iter();
                // A logarithmic axis has no 0.
                let least = |moment: &Moment| moment.core_percent.max(LEAST_PERCENT);
                moments
                    .map(|moment| (moment.seconds, least(moment)))
                    .collect()
            }),
        );
        // Of one request nothing can be said of two, and moments are there only where they were asked for.
        let drawn = |panel: &Panel| panel.curves.iter().any(|curve| !curve.points.is_empty());
        let behind = [slowest, over_time, core].into_iter().filter(drawn);
        [means].into_iter().chain(behind).collect()
    }

    /// The largest picture of the paper's network: what the host takes over what the kernel takes, and a core over what
    /// a host that sleeps has; the first of the drivers alone, too, if that was measured.
    fn verdicts(&self) -> Vec<Verdict> {
        let of = |way| self.largest(Architecture::Superresolution, way);
        let asleep = [(Way::Asleep, "kernel"), (Way::Graph, "graph")];
        let asleep = asleep.map(|(way, name)| of(way).map(|result| (name, result)));
        let asleep = asleep.iter().flatten();
        let total = |host: &Measured| {
            let size = size(host.width, host.height);
            let over = asleep.clone().flat_map(|(name, result)| {
                let verdict = |how, found| Verdict {
                    what: format!(
                        "pictures of {size}, {how}driven by the host over driven by the {name}"
                    ),
                    wanted: WANTED,
                    found,
                };
                let alone = host.driver_alone.zip(result.driver_alone);
                let alone = alone.map(|(host, own)| verdict("drivers alone, ", host.us / own.us));
                let with = verdict("", host.total_us / result.total_us);
                [with].into_iter().chain(alone)
            });
            over.collect::<Vec<_>>()
        };
        let mut verdicts = of(Way::Host).map_or_else(Vec::new, total);
        verdicts.extend(asleep.clone().map(|(name, result)| Verdict {
            what: format!("one core over what the host has of it that sleeps beside the {name}"),
            wanted: WANTED_ASLEEP,
            found: 100.0 / result.core_percent.max(LEAST_PERCENT),
        }));
        verdicts
    }

    fn table(&self) -> Table {
        let columns = [
            "network",
            "picture size",
            "driven by",
            "total (µs)",
            "wait (µs)",
            "copy in (µs)",
            "compute (µs)",
            "copy out (µs)",
            "send (µs)",
            "median (µs)",
            "90 % (µs)",
            "99 % (µs)",
            "99.9 % (µs)",
            "longest (µs)",
            "requests/s",
            "of a core (%)",
        ];
        let rows = self.measured.measured.iter().map(|result| {
            let us = |value: f64| format!("{value:.1}");
            let shares = [
                result.total_us,
                result.wait_us,
                result.copy_in_us,
                result.compute_us,
                result.copy_out_us,
                result.send_us,
            ];
            let figures = shares.into_iter().chain(result.distribution.percentiles());
            let size = size(result.width, result.height);
            let network = result.architecture.name().into();
            [network, size, result.way.name().into()]
                .into_iter()
                .chain(figures.chain([result.per_s]).map(us))
                .chain([format!("{:.2}", result.core_percent)])
                .collect()
        });
        let left_out = self.left_out.iter().map(|words| {
            let mut row = vec![String::new(); columns.len()];
            row[2].clone_from(words);
            row
        });
        Table {
            columns: columns.map(String::from).to_vec(),
            rows: rows.chain(left_out).collect(),
        }
    }
}

fn run(node: &Node, extent: Extent, origin: &Origin, screen: &Screen) -> Result<Section, Error> {
    let mut series = Series {
        seconds: extent.seconds,
        ..Series::new(node)
    };
    if extent.quick {
        series.sides.truncate(1);
    }
    let series = series.possible(node)?;
    let results = series.run(&Party::alone(node), screen)?;
    Ok(results.section(&series, node, origin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_graph_that_nobody_asked_for_is_left_out_without_a_device_runtime() {
        fn none() -> GpuError {
            GpuError::NoDeviceRuntime {
                path: "nowhere".into(),
                why: "it is not there".into(),
            }
        }
        let node = Node::cpu();
        let possible_of = |ways: Option<Vec<Way>>, error: fn() -> GpuError| {
            let series = Series {
                ways,
                ..Series::new(&node)
            };
            series.possible_of(Way::ALL.to_vec(), &node, |_| {
                Err(RunError::from(error()).into())
            })
        };
        let usual = possible_of(None, none).unwrap();
        let words = usual.left_out.as_ref().unwrap();
        assert!(words.starts_with("graph, host asleep: left out"), "{words}");
        assert!(words.contains("nowhere"), "{words}");
        assert_eq!(usual.measurements(), 3 * usual.series.sides.len() as u64);
        let document = json!(usual);
        assert_eq!(document["ways"], json!(["host", "asleep", "spinning"]));
        assert_eq!(document["sides"], json!(usual.series.sides));
        let other = possible_of(None, || GpuError::Lost).unwrap_err();
        assert!(matches!(
            other,
            Error::Bench(BenchError::Run(RunError::Stage(StageError::Setup(
                HostError::Gpu(GpuError::Lost)
            ))))
        ));
        assert!(possible_of(Some(Way::ALL.to_vec()), none).is_err());
    }

    #[test]
    fn a_way_that_was_left_out_is_in_the_table() {
        let results = Results {
            measured: Measurements {
                measured: Vec::new(),
                interrupted: false,
            },
            left_out: Some("graph: left out".into()),
            answer: None,
        };
        let Table { columns, rows } = results.table();
        assert_eq!(rows.len(), 1);
        assert_eq!(
            (rows[0].len(), &*rows[0][2]),
            (columns.len(), "graph: left out")
        );
    }
}
