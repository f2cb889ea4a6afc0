//! Grids of several sizes, each in all ways.

use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use super::{Case, HEADER, Measured, Reference, Way};
use crate::Error;
use crate::application::{Application, Extent, Measurements, Section, Table};
use crate::origin::Origin;
use crate::plot::{self, Curve, Panel};
use crate::screen::Screen;
use crate::world::World;

/// For the report.
pub const APPLICATION: Application = Application {
    name: "jacobi",
    title: "Jacobi relaxation with an exchange of edges",
    paper: "LeBeane's evaluation of ComP-Net and GPU-TN: Jacobi's relaxation in two dimensions, the rows divided among nodes, \
        which exchange the rows at their edges in every step: between two kernels by the host (kernel-boundary networking), \
        or within a kernel that stays, through a network processor or by operations that the GPU triggers. Simulated APUs; \
        the figures are pictures that our copy lacks.",
    differs: "No card: the NIC is software. Two ranks in one process, one under the other and round again, each a kernel of \
        several blocks that meet in every step. Sides of 64 to 1,024 cells of 4 bytes for each rank. The host has a thread for \
        each rank. Every cell is compared with a loop on the host, bit by bit, behind each repetition.",
    run,
};

/// The title of the plot.
pub const PLOT: &str = "Jacobi relaxation";

/// Sides that are measured in all ways, one after the other.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// Rows of a rank, and cells of a row.
    pub sides: Vec<u32>,
    /// Blocks of each rank.
    pub blocks: u32,
    /// Threads of each.
    pub threads: u32,
    /// Steps of a repetition.
    pub steps: u32,
    /// The most repetitions.
    pub repetitions: u64,
    /// Seconds for each side and way.
    pub seconds: f64,
    /// Depth of each queue in blocks of 64 bytes.
    pub depth: u32,
    /// Seed of the cells.
    pub seed: u64,
}

impl Series {
    /// Sides of 64 to 1,024; on a CPU fewer blocks and steps, and none as large.
    pub fn new(world: &World) -> Self {
        let (blocks, threads, steps, sides) = match world.gpu() {
            Some(_) => (16, 256, 1000, vec![64, 128, 256, 512, 1024]),
            None => (2, 32, 100, vec![64, 128, 256]),
        };
        Self {
            sides,
            blocks,
            threads,
            steps,
            repetitions: u64::MAX,
            seconds: 1.0,
            depth: 64,
            seed: 1,
        }
    }

    /// How many steps that has, for a screen.
    pub fn measurements(&self) -> u64 {
        Way::ALL.len() as u64 * self.sides.len() as u64
    }

    /// Measures all; with Ctrl-C what there is until then.
    ///
    /// # Errors
    /// Sides that do not divide, before anything is measured; what [`Case::measure`] says.
    pub fn run(&self, world: &World, screen: &Screen) -> Result<Results, Error> {
        let case = |&side: &u32| Case {
            side,
            blocks: self.blocks,
            threads: self.threads,
            steps: self.steps,
            repetitions: self.repetitions,
            limit: Duration::try_from_secs_f64(self.seconds).unwrap_or(Duration::MAX),
            depth: self.depth,
            seed: self.seed,
        };
        let cases: Vec<Case> = self.sides.iter().map(case).collect();
        cases.iter().try_for_each(Case::check)?;
        screen.heading(HEADER);
        // A side's ways come one after the other.
        let mut reference: Option<Reference> = None;
        let results = Measurements::of(&cases, &Way::ALL, screen, |case, way| {
            screen.step(case.side.to_string());
            let reference = match &reference {
                Some(of) if of.side == case.side => of,
                _ => reference.insert(case.reference()?),
            };
            case.measure(world, way, reference)
        })?;
        Ok(Results(results))
    }
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Results(Measurements<Measured>);

impl Results {
    /// The sides that were measured in all ways, with the microseconds of a step in each.
    fn complete(&self) -> impl Iterator<Item = (u32, [f64; 3])> {
        let of = |side: u32, way| {
            let mut all = self.0.measured.iter();
            let found = all.find(|result| (result.side, result.way) == (side, way));
            found.map(|result| result.us_per_step)
        };
        let last = self.0.measured.iter();
        let last = last.filter(|of| of.way == Way::Triggered);
        last.filter_map(move |result| {
            let [host, posted, triggered] = Way::ALL.map(|way| of(result.side, way));
            Some((result.side, [host?, posted?, triggered?]))
        })
    }

    /// Ours over the side of a rank.
    pub fn panel(&self) -> Panel {
        let curves = Way::ALL.map(|way| Curve {
            name: way.name().into(),
            points: self
                .0
                .measured
                .iter()
                .filter(|result| result.way == way)
                .map(|result| {
                    let bytes = 4.0 * f64::from(result.side) * f64::from(result.side);
                    (bytes, result.us_per_step)
                })
                .collect(),
        });
        Panel {
            quantity: "µs a step",
            over: "bytes of a rank's cells",
            curves: curves.to_vec(),
        }
    }

    /// Results that are wrong, and all.
    pub fn wrong(&self) -> (usize, usize) {
        self.0.wrong()
    }

    fn table(&self) -> Table {
        let columns = [
            "side of a rank",
            "between kernels, µs a step",
            "posted within",
            "triggered within",
            "between kernels over posted",
            "between kernels over triggered",
        ];
        let rows = self.complete().map(|(side, [host, posted, triggered])| {
            let numbers = [host, posted, triggered, host / posted, host / triggered];
            let numbers = numbers.map(|number| format!("{number:.2}"));
            [side.to_string()].into_iter().chain(numbers).collect()
        });
        Table {
            columns: columns.map(String::from).to_vec(),
            rows: rows.collect(),
        }
    }
}

fn run(world: &World, extent: Extent, origin: &Origin, screen: &Screen) -> Result<Section, Error> {
    let mut series = Series {
        seconds: extent.seconds,
        ..Series::new(world)
    };
    if extent.quick {
        series.sides.truncate(1);
        series.steps = 10;
    }
    let results = series.run(world, screen)?;
    Ok(Section {
        table: results.table(),
        verdicts: Vec::new(),
        plot: plot::svg(PLOT, origin, world, &[results.panel()])?,
        wrong: results.wrong(),
        interrupted: results.0.interrupted,
        document: json!({ "series": series, "results": results }),
    })
}
