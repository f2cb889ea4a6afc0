//! Several rates, each with both receivers.

use std::time::Duration;

use serde::Serialize;
use warpbell_bench::origin::Origin;
use warpbell_bench::party::Party;
use warpbell_bench::plot::{Curve, Panel};
use warpbell_bench::run::screen::Screen;
use warpbell_host_init::Node;

use super::{Case, HEADER, Measured, Search, name};
use crate::Error;
use crate::application::{Application, Extent, Findings, Measurements, Section, Table, Verdict};
use crate::rig::Driver;

/// For the report.
pub const APPLICATION: Application = Application {
    name: "daq",
    title: "Data acquisition",
    paper: "NaNet (Ammendola and others 2017): a card writes a detector\u{2019}s events into a GPU\u{2019}s memory, a kernel \
        seeks rings in them, and the card sends what was found on to the trigger of NA62, all within 1 ms. Its CPU is told \
        of events, launches a kernel for each batch and has the result sent; or a kernel that stays, of one thread, sees \
        the card\u{2019}s event queue in the GPU\u{2019}s memory and rings its doorbell. A K20x; the kernel only waits for \
        200 µs. The figure of latencies is a picture that our copy lacks.",
    differs: "No card: the NIC is software. Detector and trigger are blocks of a kernel beside the receiver, the same for \
        both. Event and entry of the event queue are two writes under one doorbell, as that card\u{2019}s are. In each event \
        up to three rings are sought among up to 64 hits, and compared with what the same search found ahead. \
        How many of the rings there are it finds is counted apart. The time is from the \
        moment in which an event is there, sent or not, until the trigger has the primitive, by the clock of one GPU, which \
        steps by up to a microsecond.",
    run,
};

/// How far below the classic receiver's each percentile of the one that stays is to be, at least.
const WANTED: f64 = 1.0;

/// Rates that are measured with both receivers, one after the other.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// Ways from the detector to the receiver.
    pub ways: u32,
    /// Slots of a way's receive ring, a power of two.
    pub slots: u32,
    /// Who drives the receivers' networks, one after the other.
    pub drivers: Vec<Driver>,
    /// Events a second.
    pub rates: Vec<u64>,
    /// The most events at a rate.
    pub events: u64,
    /// Warm-up events, which do not count; at most a tenth of all.
    pub warm_up: u64,
    /// Seconds for each rate and receiver.
    pub seconds: f64,
    /// Whether an event without a slot is dropped; else it is held.
    pub drops: bool,
    /// Microseconds that a host waits for more events of a batch.
    pub gather_us: u64,
    /// Microseconds that each event takes at least.
    pub stand_in_us: u64,
    /// Seed of the events.
    pub seed: u64,
}

impl Series {
    /// Up to 100,000 events a second on a GPU, through 16 ways; on a CPU fewer.
    pub fn new(node: &Node) -> Self {
        let (ways, rates) = match node.gpu() {
            Some(_) => (16, vec![1_000, 10_000, 100_000]),
            None => (2, vec![500, 2_000]),
        };
        Self {
            ways,
            slots: 64,
            drivers: vec![Driver::Host, Driver::Kernel],
            rates,
            events: u64::MAX,
            warm_up: 100,
            seconds: 1.0,
            drops: false,
            gather_us: 0,
            stand_in_us: 0,
            seed: 1,
        }
    }

    /// How many steps that has, for a screen.
    pub fn steps(&self) -> u64 {
        (self.drivers.len() * self.rates.len()) as u64
    }

    /// Measures all; with Ctrl-C what there is until then. Of two ranks the first one has what was measured.
    ///
    /// # Errors
    /// Other than two ranks that a launcher has started; what [`Case::measure`] says.
    pub fn run(&self, party: &Party, screen: &Screen) -> Result<Results, Error> {
        let case = |&rate: &u64| Case {
            ways: self.ways,
            slots: self.slots,
            rate,
            events: self.events,
            warm_up: self.warm_up,
            limit: Duration::try_from_secs_f64(self.seconds).unwrap_or(Duration::MAX),
            drops: self.drops,
            gather: Duration::from_micros(self.gather_us),
            at_least: Duration::from_micros(self.stand_in_us),
            seed: self.seed,
        };
        let cases: Vec<Case> = self.rates.iter().map(case).collect();
        party.own_ranks(2)?;
        let search = match party.rank() {
            0 => Some(Search::new(party.node(), self.seed)?),
            _ => None,
        };
        if let Some(search) = &search {
            search
                .lines()
                .into_iter()
                .for_each(|line| screen.line(line));
        }
        screen.heading(HEADER);
        let measurements =
            Measurements::of(party, &cases, &self.drivers, screen, |case, driver| {
                screen.step(format!("{} events/s", case.rate));
                case.measure(party, party.node(), driver)
            })?;
        for line in measurements.measured.iter().filter_map(Measured::overload) {
            screen.line(line);
        }
        Ok(Results {
            measurements,
            search,
        })
    }
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    #[serde(flatten)]
    measurements: Measurements<Measured>,
    /// How well the search does; the second one of two ranks does not know.
    search: Option<Search>,
}

impl Results {
    /// What both receivers had at each rate.
    fn pairs(&self) -> impl Iterator<Item = (&Measured, &Measured)> {
        let of = |driver| {
            let all = self.measurements.measured.iter();
            all.filter(move |result| result.driver == driver)
        };
        of(Driver::Host).zip(of(Driver::Kernel))
    }
}

impl Findings for Results {
    const PLOT: &str = "Data acquisition";
    type Measured = Measured;

    fn measurements(&self) -> &Measurements<Measured> {
        &self.measurements
    }

    /// How long the slowest of so many events takes.
    fn panels(&self) -> Vec<Panel> {
        let curve = |of: &Measured| Curve {
            name: format!("{}, {} events/s", name(of.driver), of.rate),
            points: of
                .distribution
                .one_of
                .iter()
                .map(|&(events, us)| (events as f64, us))
                .collect(),
        };
        vec![Panel {
            quantity: "latency (µs)",
            over: "events of which one takes longer",
            curves: self.measurements.measured.iter().map(curve).collect(),
        }]
    }

    /// Each percentile of the classic receiver over that of the one that stays: the least, at each rate.
    fn verdicts(&self) -> Vec<Verdict> {
        let verdict = |(classic, persistent): (&Measured, &Measured)| {
            let [classic, stays] = [classic, persistent].map(|of| of.distribution.percentiles());
            let ratios = classic.iter().zip(stays).map(|(one, other)| one / other);
            Verdict {
                what: format!(
                    "{} events/s, classic over persistent at the closest of five percentiles",
                    persistent.rate
                ),
                wanted: WANTED,
                found: ratios.fold(f64::INFINITY, f64::min),
            }
        };
        self.pairs().map(verdict).collect()
    }

    fn table(&self) -> Table {
        let columns = [
            "events/s",
            "receiver",
            "p50 (µs)",
            "p90 (µs)",
            "p99 (µs)",
            "p99.9 (µs)",
            "longest (µs)",
            "behind 800 µs",
            "behind 1 ms",
            "dropped",
            "held",
            "lost",
            "events",
        ];
        let rows = self.measurements.measured.iter().map(|of| {
            let percentiles = of.distribution.percentiles();
            let counts = [of.late, of.too_late, of.dropped, of.held, of.lost, of.sent];
            [of.rate.to_string(), name(of.driver).into()]
                .into_iter()
                .chain(percentiles.map(|us| format!("{us:.1}")))
                .chain(counts.map(|count| count.to_string()))
                .collect()
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
        series.rates.truncate(1);
    }
    let results = series.run(&Party::alone(node), screen)?;
    Ok(results.section(&series, node, origin))
}
