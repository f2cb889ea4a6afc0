//! What the benchmarks measured, as their `--json` documents say it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Algorithm, Case, Parts};
use crate::goal;
use crate::simulate;

/// Why nothing is predicted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file that is no document of its benchmark.
    #[error("{}: {error}", path.display())]
    Document {
        /// Which.
        path: PathBuf,
        /// Why.
        error: serde_json::Error,
    },
    /// A benchmark without the row that a part comes from.
    #[error("{file} has no row of {row}")]
    Missing {
        /// Which file.
        file: &'static str,
        /// Which row.
        row: String,
    },
    /// An all-reduce that nobody could measure.
    #[error("no all-reduce goes like this: {0:?}")]
    Case(Case),
    /// A schedule that does not fit, which no case's should be.
    #[error(transparent)]
    Schedule(#[from] goal::Error),
    /// A part out of range, or a simulation that fails.
    #[error(transparent)]
    Simulate(#[from] simulate::Error),
}

/// An all-reduce and how long it took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Which.
    pub case: Case,
    /// The time of a sum (µs): the median of all documents.
    pub us: f64,
}

/// Where a part comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// Which.
    pub part: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Its value.
    pub value: f64,
    /// The benchmark and its row.
    pub from: String,
}

/// The documents of a folder. A file may have several, one behind the other; medians count.
#[derive(Clone, Debug, Default)]
pub struct Benchmarks {
    inbound: Vec<Arrivals>,
    ladder: Vec<Rungs>,
    posting: Vec<Posting>,
    additions: Vec<Additions>,
    reduced: Vec<Reduced>,
}

#[derive(Clone, Debug, Deserialize)]
struct Arrivals {
    rows: Vec<Inbound>,
}

#[derive(Clone, Debug, Deserialize)]
struct Inbound {
    way: String,
    bytes: u64,
    one_way_ns: f64,
    reader: f64,
}

#[derive(Clone, Debug, Deserialize)]
struct Rungs {
    results: Vec<Rung>,
}

#[derive(Clone, Debug, Deserialize)]
struct Rung {
    bytes: u64,
    median_million_per_s: f64,
}

#[derive(Clone, Debug, Deserialize)]
struct Posting {
    cycles_per_ns: f64,
    rows: Vec<Post>,
}

#[derive(Clone, Debug, Deserialize)]
struct Post {
    case: String,
    lap: String,
    doorbell: String,
    scope: String,
    record: bool,
    cycles: Cycles,
}

#[derive(Clone, Debug, Deserialize)]
struct Cycles {
    median: f64,
}

#[derive(Clone, Debug, Deserialize)]
struct Additions {
    measured: Vec<Addition>,
}

#[derive(Clone, Debug, Deserialize)]
struct Addition {
    ranks: u32,
    blocks: u32,
    bytes: u64,
    in_place: bool,
    us: f64,
}

#[derive(Clone, Debug, Deserialize)]
struct Reduced {
    nic: String,
    series: Series,
    measured: Vec<Sum>,
}

#[derive(Clone, Debug, Deserialize)]
struct Series {
    blocks: u32,
    threads: u32,
    slice: u64,
    rounds: Option<u32>,
}

#[derive(Clone, Debug, Deserialize)]
struct Sum {
    algorithm: Algorithm,
    way: String,
    ranks: u32,
    bytes: u64,
    us_per_sum: f64,
}

const INBOUND: &str = "inbound.json";
const LADDER: &str = "ladder.json";
const POSTING: &str = "posting.json";
const ADDITIONS: &str = "additions.json";
const REDUCED: &str = "allreduce.json";

/// Bytes of a message that costs an engine little but its request.
const SHORT: u64 = 64;
/// Bytes of the message whose rate is that of an engine.
const LONG: u64 = 65_536;
/// How a block of `bench inbound` learns of a message, as one of an all-reduce does.
const FLAG: &str = "flag behind the data";
/// What a repetition of `allreduce` sums at most.
const REPETITION: u64 = 64 << 20;

impl Benchmarks {
    /// Reads a folder.
    ///
    /// # Errors
    ///
    /// [`Error::Read`] or [`Error::Document`].
    pub fn read(folder: &Path) -> Result<Self, Error> {
        Ok(Self {
            inbound: documents(folder, INBOUND)?,
            ladder: documents(folder, LADDER)?,
            posting: documents(folder, POSTING)?,
            additions: documents(folder, ADDITIONS)?,
            reduced: documents(folder, REDUCED)?,
        })
    }

    /// Each all-reduce that blocks drove by posts, with its median.
    pub fn measured(&self) -> Vec<Measured> {
        let mut all: Vec<(Case, Vec<f64>)> = Vec::new();
        for Reduced {
            series, measured, ..
        } in &self.reduced
        {
            for sum in measured.iter().filter(|sum| sum.way == "posted") {
                let usual = (REPETITION / sum.bytes.max(1)).clamp(1, 64) as u32;
                let case = Case {
                    algorithm: sum.algorithm,
                    ranks: sum.ranks,
                    blocks: series.blocks,
                    threads: series.threads,
                    bytes: sum.bytes,
                    slice: series.slice,
                    rounds: series.rounds.unwrap_or(usual),
                };
                match all.iter_mut().find(|(known, _)| *known == case) {
                    Some((_, times)) => times.push(sum.us_per_sum),
                    None => all.push((case, vec![sum.us_per_sum])),
                }
            }
        }
        let medians = all.into_iter().filter_map(|(case, times)| {
            let us = median(times)?;
            Some(Measured { case, us })
        });
        medians.collect()
    }

    /// What the parts of a case cost, where engines and blocks share so many cores (0: each has its own), and where each
    /// comes from.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`].
    pub fn parts(&self, case: &Case, cores: u32) -> Result<(Parts, Vec<Source>), Error> {
        let in_gpu = self.reduced.iter().any(|of| of.nic == "soft-gpu");
        let engines = if in_gpu { 8 } else { 1 };

        // What an engine can do at most: the fastest rung. In a GPU all engines are busy then.
        let engine = f64::from(engines);
        let rate = |bytes: u64| {
            let fastest = self.ladder.iter().filter_map(|document| {
                let rungs = document.results.iter().filter(|rung| rung.bytes == bytes);
                rungs.map(|rung| rung.median_million_per_s).reduce(f64::max)
            });
            found(median(fastest), LADDER, || format!("{bytes} bytes"))
        };
        let (short, long) = (1e3 * engine / rate(SHORT)?, 1e3 * engine / rate(LONG)?);
        let rate = LONG as f64 / (long - short).max(f64::MIN_POSITIVE);
        // A message and its signal.
        let gap = 2.0 * short;

        let (posts, row) = match case.threads {
            ..=32 => (32.0, "warp, one doorbell, exclusive"),
            33..=128 => (128.0, "block of 128, one doorbell"),
            _ => (256.0, "block of 256, one doorbell"),
        };
        let reach = if in_gpu {
            ("device", "gpu")
        } else {
            ("pinned", "system")
        };
        let costs = self.posting.iter().filter_map(|document| {
            let mut rows = document.rows.iter();
            let row = rows.find(|post| {
                let place = (&*post.doorbell, &*post.scope) == reach;
                post.case == row && post.lap == "steady" && !post.record && place
            })?;
            Some(posts * row.cycles.median / document.cycles_per_ns)
        });
        let (doorbell, scope) = reach;
        let row = format!("{row}, without record, steady, {doorbell}, {scope}");
        let post = found(median(costs), POSTING, || row.clone())?;

        let arrival = |of: fn(&Inbound) -> f64| {
            let medians = self.inbound.iter().filter_map(|document| {
                let mut rows = document.rows.iter();
                let row = rows.find(|row| row.bytes == SHORT && row.way == FLAG);
                row.map(of)
            });
            found(median(medians), INBOUND, || {
                format!("{FLAG}, {SHORT} bytes")
            })
        };
        let wait = arrival(|row| row.reader)?;
        let others = post + wait + gap + SHORT as f64 / rate;
        let latency = (arrival(|row| row.one_way_ns)? - others).max(0.0);

        // As many blocks as add at the same time in the all-reduce.
        let busy = match cores {
            0 => case.ranks * case.blocks,
            _ => cores.min(case.ranks * case.blocks),
        };
        // The slope and the start of the line.
        let line = |in_place: bool| {
            let lines = self.additions.iter().filter_map(|document| {
                let wanted =
                    |row: &&Addition| row.ranks * row.blocks == busy && row.in_place == in_place;
                let mut rows = document.measured.iter().filter(wanted);
                let (first, last) = (rows.next()?, rows.next_back()?);
                let slope = 1e3 * (last.us - first.us) / (last.bytes - first.bytes) as f64;
                Some((slope, 1e3 * first.us - slope * first.bytes as f64))
            });
            let (slopes, starts): (Vec<f64>, Vec<f64>) = lines.unzip();
            let both = median(slopes).zip(median(starts));
            found(both, ADDITIONS, || format!("{busy} blocks"))
        };
        let ((add, launch), (add_in_place, _)) = (line(false)?, line(true)?);
        let launch = launch.max(0.0);

        let parts = Parts {
            engines,
            cores,
            gap,
            rate,
            latency,
            post,
            wait,
            add,
            add_in_place,
            launch,
        };
        let (rungs, row) = ("the fastest rung", row.replace(", ", "; "));
        let sources = [
            (
                "engine_gap",
                "ns",
                gap,
                format!("{LADDER}: {SHORT} bytes; {rungs}; twice"),
            ),
            (
                "engine_rate",
                "B/ns",
                rate,
                format!("{LADDER}: {LONG} bytes; {rungs}"),
            ),
            ("post", "ns", post, format!("{POSTING}: {row}")),
            ("wait", "ns", wait, format!("{INBOUND}: {FLAG}; the reader")),
            (
                "latency",
                "ns",
                latency,
                format!("{INBOUND}: {FLAG}; one way without the rest"),
            ),
            (
                "add",
                "ns/B",
                add,
                format!("{ADDITIONS}: {busy} blocks; slope"),
            ),
            (
                "add_in_place",
                "ns/B",
                add_in_place,
                format!("{ADDITIONS}: {busy} blocks; slope"),
            ),
            (
                "launch",
                "ns",
                launch,
                format!("{ADDITIONS}: {busy} blocks; start"),
            ),
        ];
        let sources = sources.map(|(part, unit, value, from)| Source {
            part,
            unit,
            value,
            from,
        });
        Ok((parts, sources.to_vec()))
    }
}

/// All documents of a file.
fn documents<T: DeserializeOwned>(folder: &Path, name: &str) -> Result<Vec<T>, Error> {
    let path = folder.join(name);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => return Err(Error::Read { path, error }),
    };
    let all = serde_json::Deserializer::from_str(&text).into_iter();
    let all: Result<Vec<T>, _> = all.collect();
    all.map_err(|error| Error::Document { path, error })
}

fn found<T>(value: Option<T>, file: &'static str, row: impl Fn() -> String) -> Result<T, Error> {
    value.ok_or_else(|| Error::Missing { file, row: row() })
}

/// The middle one, or the mean of both.
fn median(numbers: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut numbers: Vec<f64> = numbers.into_iter().collect();
    numbers.sort_unstable_by(f64::total_cmp);
    let (lower, upper) = (numbers.len().checked_sub(1)? / 2, numbers.len() / 2);
    Some((numbers[lower] + numbers[upper]) / 2.0)
}
