//! Repetitions, medians, tables.
//!
//! A repetition is many short laps, and its figure is their median: a lap in which the operating system ran
//! somebody else does not count, so that a busy machine does little harm. Things that are compared take turns.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use warpbell::Word64;
use warpbell_hw_tests::say::say;

use crate::Error;
use crate::filter::Filter;

/// Measurements of one thing: laps of a repetition, or the repetitions' figures.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Takes one more.
    pub fn push(&mut self, sample: f64) {
        self.0.push(sample);
    }

    /// The middle one, or the mean of the two in the middle.
    pub fn median(&self) -> f64 {
        let sorted = self.sorted();
        let middle = sorted.len() / 2;
        if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            (sorted[middle - 1] + sorted[middle]) / 2.0
        }
    }

    fn sorted(&self) -> Vec<f64> {
        assert!(!self.0.is_empty(), "nothing was measured");
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    /// Repetition by repetition: these over those.
    pub fn over(&self, other: &Self) -> Self {
        let ratio = |(ours, theirs): (&f64, &f64)| ours / theirs;
        Self(self.0.iter().zip(&other.0).map(ratio).collect())
    }
}

/// What a median is to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

impl Goal {
    /// Whether a median reaches it.
    pub fn is_reached(self, median: f64) -> bool {
        match self {
            Self::AtLeast(goal) => median >= goal,
            Self::AtMost(goal) => median <= goal,
        }
    }
}

/// A line of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was measured.
    pub name: String,
    /// Unit of the numbers.
    pub unit: &'static str,
    /// The median over all repetitions.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// The goal, such as `>= 5`, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    /// Whether the median reaches it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reached: Option<bool>,
}

impl Row {
    /// A line without a goal.
    pub fn new(name: impl Into<String>, unit: &'static str, samples: &Samples) -> Self {
        let sorted = samples.sorted();
        Self {
            name: name.into(),
            unit,
            median: samples.median(),
            min: sorted[0],
            max: sorted[sorted.len() - 1],
            goal: None,
            reached: None,
        }
    }

    /// With a goal.
    pub fn goal(mut self, goal: Goal) -> Self {
        self.goal = Some(match goal {
            Goal::AtLeast(value) => format!(">= {value}"),
            Goal::AtMost(value) => format!("<= {value}"),
        });
        self.reached = Some(goal.is_reached(self.median));
        self
    }
}

/// The options of a benchmark that shows medians.
#[derive(Args, Debug)]
pub struct SampleArguments {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// How often everything is measured; the medians are shown
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    pub repetitions: u32,
    /// Which cases are measured.
    #[command(flatten)]
    pub filter: Filter,
}

impl SampleArguments {
    /// Prints what was measured. `used` says how much of the machine was at work.
    ///
    /// # Errors
    /// The filter left no row.
    pub fn print(&self, rows: Vec<Row>, used: &str) -> Result<(), Error> {
        let rows = self.filter.some(rows)?;
        let repetitions = self.repetitions;
        if self.json {
            say(format_args!(
                "{}",
                serde_json::json!({ "repetitions": repetitions, "rows": rows })
            ));
            return Ok(());
        }
        let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
        say(format_args!(
            "{repetitions} repetitions on a machine of {cores} cores; {used}"
        ));
        print_table(&rows);
        Ok(())
    }
}

/// Prints a table for a reader.
fn print_table(rows: &[Row]) {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    say(format_args!(
        "{:width$}  {:>10}  {:>10}  {:>10}  {:<8}  goal",
        "", "median", "min", "max", "unit"
    ));
    for row in rows {
        let verdict = match (&row.goal, row.reached) {
            (Some(goal), Some(true)) => format!("{goal}  ok"),
            (Some(goal), _) => format!("{goal}  below goal"),
            (None, _) => String::new(),
        };
        let [median, min, max] = [row.median, row.min, row.max].map(number);
        let line = format!(
            "{:width$}  {median:>10}  {min:>10}  {max:>10}  {:<8}  {verdict}",
            row.name, row.unit
        );
        say(format_args!("{}", line.trim_end()));
    }
}

/// Three digits or more.
fn number(value: f64) -> String {
    let decimals = match value.abs() {
        big if big >= 100.0 => 0,
        middle if middle >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

/// What kernels stored in words.
pub fn values<'w>(words: impl IntoIterator<Item = &'w Word64>) -> Vec<u64> {
    let load = |word: &Word64| word.load(Ordering::Relaxed);
    words.into_iter().map(load).collect()
}

/// The same, the smallest first.
pub fn sorted<'w>(words: impl IntoIterator<Item = &'w Word64>) -> Vec<u64> {
    let mut sorted = values(words);
    sorted.sort_unstable();
    sorted
}

/// What `work` gives, and the seconds that it took.
pub fn timed<R>(work: impl FnOnce() -> R) -> (R, f64) {
    let started = Instant::now();
    let result = work();
    (result, started.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_ratios() {
        let odd = Samples(vec![3.0, 1.0, 2.0]);
        let even = Samples(vec![4.0, 1.0, 2.0, 3.0]);
        assert_eq!((odd.median(), even.median()), (2.0, 2.5));
        let ratio = odd.over(&Samples(vec![6.0, 1.0, 8.0]));
        assert_eq!(ratio.0, [0.5, 1.0, 0.25]);
        let row = Row::new("", "", &ratio);
        assert_eq!((row.min, row.median, row.max), (0.25, 0.5, 1.0));
    }

    #[test]
    fn goals_have_a_direction() {
        assert!(Goal::AtLeast(2.0).is_reached(2.0) && !Goal::AtLeast(2.0).is_reached(1.9));
        assert!(Goal::AtMost(2.0).is_reached(2.0) && !Goal::AtMost(2.0).is_reached(2.1));
    }
}
