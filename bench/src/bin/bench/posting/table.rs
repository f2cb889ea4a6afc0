//! What was measured, as a table and JSON.

use serde::Serialize;
use warpbell_bench::samples::{Row, Samples};
use warpbell_hw_tests::say::say;

use super::cases::Wanted;
use super::csv::Row as Earlier;

/// The repetitions of one thing.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Figures {
    pub fn of(samples: &Samples) -> Self {
        let Row {
            median, min, max, ..
        } = Row::new("", "", samples);
        Self { median, min, max }
    }
}

/// A row.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    pub case: String,
    /// Whether there is a doorbell record; none of a poll.
    pub record: Option<bool>,
    /// How far the queue has come, or [`EXECUTED`](super::executing::EXECUTED).
    pub lap: &'static str,
    /// Where the doorbell word lies.
    pub doorbell: &'static str,
    /// How far fences reach.
    pub scope: &'static str,
    /// WQEs, or polls, of a repetition.
    pub wqes: u64,
    /// Cycles for each of them.
    pub cycles: Figures,
    /// The same by hand, or without a trace or of a collapsed queue where the case says so.
    pub floor: Option<Figures>,
    /// Cycles over those by hand, repetition by repetition; the median.
    pub ratio: Option<f64>,
    pub million_a_second: f64,
    /// Cycles over those of the same row in another run's file.
    pub against: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reached: Option<bool>,
}

impl Line {
    /// With what is wanted of it.
    pub fn want(mut self, wanted: Option<Wanted>) -> Self {
        let Some(wanted) = wanted else {
            return self;
        };
        let (words, reached) = match wanted {
            Wanted::Ratio(limit) => (
                format!("<= {limit} x floor"),
                self.ratio.is_some_and(|ratio| ratio <= limit),
            ),
            Wanted::Cycles(limit) => (format!("<= {limit}"), self.cycles.median <= limit),
            Wanted::More(limit) => (
                format!("<= floor + {limit}"),
                self.floor
                    .is_some_and(|floor| self.cycles.median <= floor.median + limit),
            ),
            Wanted::Rate(limit) => (format!(">= {limit} M/s"), self.million_a_second >= limit),
        };
        (self.wanted, self.reached) = (Some(words), Some(reached));
        self
    }

    /// With its ratio to another run.
    pub fn against(mut self, earlier: &[Earlier]) -> Self {
        let own = Earlier::from(&self);
        let same = earlier.iter().find(|row| row.key == own.key);
        self.against = same.map(|row| own.cycles / row.cycles);
        self
    }

    /// The name of its kind of doorbell.
    pub fn record(&self) -> &'static str {
        match self.record {
            Some(true) => "with",
            Some(false) => "without",
            None => "",
        }
    }
}

/// For a reader.
pub fn print(lines: &[Line]) {
    let width = lines
        .iter()
        .map(|line| line.case.chars().count())
        .max()
        .unwrap_or(0);
    say(format_args!(
        "{:width$}  {:7}  {:6}  {:8}  {:6}  {:>9}  {:>9}  {:>9}  {:>9}  {:>6}  {:>7}  {:>9}  wanted",
        "",
        "record",
        "lap",
        "doorbell",
        "scope",
        "cycles",
        "min",
        "max",
        "floor",
        "ratio",
        "against",
        "M/s"
    ));
    for line in lines {
        let verdict = match (&line.wanted, line.reached) {
            (Some(wanted), Some(true)) => format!("{wanted}  met"),
            (Some(wanted), _) => format!("{wanted}  missed"),
            (None, _) => String::new(),
        };
        let optional = |value: Option<f64>, decimals| {
            value.map_or("-".into(), |value| format!("{value:.decimals$}"))
        };
        let floor = optional(line.floor.map(|floor| floor.median), 1);
        let ratio = optional(line.ratio, 2);
        let against = optional(line.against, 2);
        let text = format!(
            "{:width$}  {:7}  {:6}  {:8}  {:6}  {:9.1}  {:9.1}  {:9.1}  {floor:>9}  {ratio:>6}  {against:>7}  {:9.2}  {verdict}",
            line.case,
            line.record(),
            line.lap,
            line.doorbell,
            line.scope,
            line.cycles.median,
            line.cycles.min,
            line.cycles.max,
            line.million_a_second,
        );
        say(format_args!("{}", text.trim_end()));
    }
}
