//! Stencils of several sizes, each in all ways.

use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use warpbell_bench::energy::{Meter, Sources};
use warpbell_bench::origin::Origin;
use warpbell_bench::party::Party;
use warpbell_bench::plot::{self, Curve, Panel};
use warpbell_bench::run::screen::Screen;
use warpbell_host_init::Node;

use super::{Case, HEADER, Measured, Reference, Stencil, Way};
use crate::Error;
use crate::application::{Measurements, Section, Table};
use crate::together::unless_interrupted;

/// Sizes that are measured in several ways, one after the other.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// Cells in each dimension.
    pub sizes: Vec<u32>,
    /// Who exchanges the edges.
    pub ways: Vec<Way>,
    /// How many ranks.
    pub ranks: u32,
    /// Blocks of each rank.
    pub blocks: u32,
    /// Threads of each.
    pub threads: u32,
    /// Steps of a repetition.
    pub steps: u32,
    /// The most repetitions.
    pub repetitions: u64,
    /// Seconds for each size and way.
    pub seconds: f64,
    /// Depth of each queue in blocks of 64 bytes.
    pub depth: u32,
    /// Seed of the cells.
    pub seed: u64,
}

impl Series {
    /// Sizes of 64 to 1,024 without a proxy, on two ranks of so many blocks; on a CPU fewer threads and steps, and none as large.
    pub fn new(node: &Node, blocks: u32) -> Self {
        let (threads, steps, sizes) = match node.gpu() {
            Some(_) => (256, 1000, vec![64, 128, 256, 512, 1024]),
            None => (32, 100, vec![64, 128, 256]),
        };
        Self {
            sizes,
            ways: vec![Way::Host, Way::Notified, Way::Triggered],
            ranks: 2,
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
        (self.ways.len() * self.sizes.len()) as u64
    }

    /// Measures all; with Ctrl-C what there is until then.
    ///
    /// # Errors
    /// What cannot be computed, before anything is measured, and another number of ranks than a launcher has started; what
    /// [`Case::measure`] says.
    pub fn run<S: Stencil>(&self, party: &Party, screen: &Screen) -> Result<Results, Error> {
        let case = |&size: &u32| Case {
            size,
            ranks: self.ranks,
            blocks: self.blocks,
            threads: self.threads,
            steps: self.steps,
            repetitions: self.repetitions,
            limit: Duration::try_from_secs_f64(self.seconds).unwrap_or(Duration::MAX),
            depth: self.depth,
            seed: self.seed,
        };
        let cases: Vec<Case> = self.sizes.iter().map(case).collect();
        let mut all = cases.iter();
        all.try_for_each(|case| S::check(case, &self.ways))?;
        party.own_ranks(self.ranks)?;
        let meter = Meter::of(std::slice::from_ref(party.node()));
        let energy_sources = meter.sources();
        energy_sources.show(screen);
        screen.heading(HEADER);
        // A size's ways come one after the other.
        let mut reference: Option<(u32, Reference)> = None;
        let measurements = Measurements::of(party, &cases, &self.ways, screen, |case, way| {
            screen.step(case.size.to_string());
            let (_, reference) = match &mut reference {
                Some(of) if of.0 == case.size => of,
                _ => reference.insert((case.size, unless_interrupted(party, S::reference(case))?)),
            };
            case.measure::<S>(party, &meter, way, reference)
        })?;
        Ok(Results {
            measurements,
            energy_sources,
        })
    }

    /// Measures all for the report; the smallest size alone and few steps where it is to be quick.
    ///
    /// # Errors
    /// As [`run`](Self::run); a plot that cannot be drawn.
    pub fn section<S: Stencil>(
        mut self,
        node: &Node,
        quick: bool,
        (title, origin): (&str, &Origin),
        screen: &Screen,
    ) -> Result<Section, Error> {
        if quick {
            self.sizes.truncate(1);
            self.steps = 10;
        }
        let results = self.run::<S>(&Party::alone(node), screen)?;
        Ok(Section {
            table: results.table::<S>(),
            verdicts: Vec::new(),
            plot: plot::svg(title, origin, node, &[results.panel::<S>()]),
            wrong: results.wrong(),
            interrupted: results.measurements.interrupted,
            document: json!({ "series": self, "results": results }),
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

impl Results {
    /// The microseconds of a step of that size, if it was measured in that way.
    fn of(&self, size: u32, way: Way) -> Option<f64> {
        let mut all = self.measurements.measured.iter();
        let found = all.find(|result| (result.size, result.way) == (size, way));
        found.map(|result| result.us_per_step)
    }

    /// The sizes that were measured in all ways, but perhaps by proxy, with the microseconds of a step in each.
    fn complete(&self) -> impl Iterator<Item = (u32, [f64; 3])> {
        let last = self.measurements.measured.iter();
        let last = last.filter(|of| of.way == Way::Triggered);
        last.filter_map(move |result| {
            let of = |way| self.of(result.size, way);
            let times = [of(Way::Host)?, of(Way::Notified)?, of(Way::Triggered)?];
            Some((result.size, times))
        })
    }

    /// Ours over the bytes of the cells.
    pub fn panel<S: Stencil>(&self) -> Panel {
        let curves = Way::ALL.map(|way| Curve {
            name: way.name().into(),
            points: self
                .measurements
                .measured
                .iter()
                .filter(|result| result.way == way)
                .map(|result| (S::bytes(result.size) as f64, result.us_per_step))
                .collect(),
        });
        let has_points = |curve: &Curve| !curve.points.is_empty();
        Panel {
            quantity: "time of a step (µs)",
            over: S::WHOSE,
            curves: curves.into_iter().filter(has_points).collect(),
        }
    }

    /// Results that are wrong, and all.
    pub fn wrong(&self) -> (usize, usize) {
        self.measurements.wrong()
    }

    fn table<S: Stencil>(&self) -> Table {
        let proxied = |size| self.of(size, Way::Proxied);
        let by_proxy = self.complete().any(|(size, _)| proxied(size).is_some());
        let columns = [
            S::SIZE,
            "between kernels (µs a step)",
            "notified within (µs a step)",
            "triggered within (µs a step)",
            "between kernels over notified (×)",
            "between kernels over triggered (×)",
        ];
        let rows = self.complete().map(|(size, [host, notified, triggered])| {
            let numbers = [host, notified, triggered, host / notified, host / triggered];
            let numbers = numbers.map(|number| format!("{number:.2}"));
            let more = proxied(size).map_or_else(|| "–".into(), |us| format!("{us:.2}"));
            let cells = [size.to_string()].into_iter().chain(numbers);
            cells.chain(by_proxy.then_some(more)).collect()
        });
        Table {
            columns: columns
                .into_iter()
                .chain(by_proxy.then_some("by proxy (µs a step)"))
                .map(String::from)
                .collect(),
            rows: rows.collect(),
        }
    }
}
