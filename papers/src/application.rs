//! What the applications of the papers have in common: what each shows, as text and in the report.

use std::fmt::Debug;

use serde::Serialize;
use serde_json::{Value, json};
use warpbell_bench::origin::Origin;
use warpbell_bench::party::Party;
use warpbell_bench::plot::{self, Output, Panel};
use warpbell_bench::run::interrupt::ended_early;
use warpbell_bench::run::screen::Screen;
use warpbell_bench::setting::Setting;
use warpbell_host_init::Node;

use crate::Error;

/// An application, for the report.
pub struct Application {
    /// Its binary, where it has one of its own.
    pub name: &'static str,
    /// What it is.
    pub title: &'static str,
    /// Where it is from, and what was done there.
    pub paper: &'static str,
    /// What differs here.
    pub differs: &'static str,
    /// Runs it as its binary does by default, but for the extent.
    pub run: fn(&Node, Extent, &Origin, &Screen) -> Result<Section, Error>,
}

/// How much of an application a report runs.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Seconds for each measurement.
    pub seconds: f64,
    /// The smallest size alone.
    pub quick: bool,
}

/// All of them, in the order of the report.
pub const ALL: [Application; 8] = [
    crate::matvec::APPLICATION,
    crate::overlap::APPLICATION,
    crate::jacobi::APPLICATION,
    crate::stencil::APPLICATION,
    crate::allreduce::APPLICATION,
    crate::daq::APPLICATION,
    crate::serving::APPLICATION,
    crate::generator::APPLICATION,
];

/// What came of a run.
#[derive(Debug)]
pub struct Section {
    /// Ours beside the paper's.
    pub table: Table,
    /// What was wanted, and what is.
    pub verdicts: Vec<Verdict>,
    /// The plot, if there was something to draw.
    pub plot: Option<String>,
    /// The same as a document.
    pub document: Value,
    /// Results that are wrong, and all results.
    pub wrong: (usize, usize),
    /// Whether Ctrl-C ended it early.
    pub interrupted: bool,
}

/// What was measured once.
pub trait Measurement {
    /// A row of a table, for a human.
    fn row(&self) -> String;
    /// Whether all of its results are right.
    fn verified(&self) -> bool;
}

/// What an application's measurements gave.
#[derive(Clone, Debug, Serialize)]
pub struct Measurements<M> {
    /// A size after the other, each in all of its ways.
    pub measured: Vec<M>,
    /// Whether Ctrl-C ended it.
    pub interrupted: bool,
}

impl<M: Measurement> Measurements<M> {
    /// Measures each case in each way, and shows a row of each; with Ctrl-C at any rank what there is until then. A
    /// rank that has no part in what all measured may have nothing.
    ///
    /// # Errors
    /// Those of `measure`, but Ctrl-C; ranks with other cases or ways.
    pub fn of<C: Debug, W: Copy + Debug, R: Into<Option<M>>>(
        party: &Party,
        cases: &[C],
        ways: &[W],
        screen: &Screen,
        mut measure: impl FnMut(&C, W) -> Result<R, Error>,
    ) -> Result<Self, Error> {
        // Ranks choose them alone, by their options and by what their machines have.
        let ours = format!("{cases:?}, {ways:?}");
        if party
            .exchange(ours.clone())?
            .iter()
            .any(|theirs| *theirs != ours)
        {
            return Err(Error::other_program());
        }
        let mut measured = Vec::new();
        let mut all = cases
            .iter()
            .flat_map(|case| ways.iter().map(move |&way| (case, way)));
        let step = |(case, way)| {
            party.check()?;
            if let Some(result) = measure(case, way)?.into() {
                screen.row(result.row(), result.verified());
                measured.push(result);
            }
            Ok(())
        };
        let ended = all.try_for_each(step);
        let ended = ended.and_then(|()| Ok(party.check()?));
        Ok(Self {
            interrupted: ended_early::<Error>(ended)?,
            measured,
        })
    }

    /// Those that are wrong, and all.
    pub fn wrong(&self) -> (usize, usize) {
        let wrong = self.measured.iter().filter(|result| !result.verified());
        (wrong.count(), self.measured.len())
    }
}

/// What came of an application's series. As a document it is what was measured.
pub trait Findings: Serialize + Sized {
    /// The title of the plot.
    const PLOT: &str;
    /// What was measured each time.
    type Measured: Measurement;

    /// All measurements.
    fn measurements(&self) -> &Measurements<Self::Measured>;

    /// Ours beside the paper's.
    fn table(&self) -> Table;

    /// What is drawn.
    fn panels(&self) -> Vec<Panel>;

    /// What was wanted, and what is.
    fn verdicts(&self) -> Vec<Verdict> {
        Vec::new()
    }

    /// The same for the report.
    fn section(&self, series: &impl Serialize, node: &Node, origin: &Origin) -> Section {
        let measurements = self.measurements();
        Section {
            table: self.table(),
            verdicts: self.verdicts(),
            plot: plot::svg(Self::PLOT, origin, node, &self.panels()),
            wrong: measurements.wrong(),
            interrupted: measurements.interrupted,
            document: json!({ "series": series, "results": self }),
        }
    }

    /// The end of a binary, behind the last row: verdicts; the document, with more in it; the plot.
    ///
    /// # Errors
    /// As [`Output::end`].
    fn end(
        &self,
        setting: &Setting,
        series: &impl Serialize,
        more: Value,
        screen: &Screen,
        output: &Output,
    ) -> Result<(), Error> {
        screen.finish();
        let verdicts = self.verdicts();
        if !verdicts.is_empty() {
            screen.line("");
        }
        for verdict in &verdicts {
            screen.line(verdict.words());
        }
        screen.document(&Document {
            setting,
            series,
            results: self,
            more,
        })?;
        let wrong = self.measurements().wrong();
        output.end(Self::PLOT, setting, &self.panels(), wrong)
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'d, S, R> {
    #[serde(flatten)]
    setting: &'d Setting,
    series: &'d S,
    #[serde(flatten)]
    results: &'d R,
    #[serde(flatten)]
    more: Value,
}

/// A table of the report.
#[derive(Debug, Default)]
pub struct Table {
    /// What its columns are.
    pub columns: Vec<String>,
    /// As many words each.
    pub rows: Vec<Vec<String>>,
}

/// A ratio that is wanted.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// Of what.
    pub what: String,
    /// At least this.
    pub wanted: f64,
    /// What was measured.
    pub found: f64,
}

impl Verdict {
    /// Whether it is reached.
    pub fn met(&self) -> bool {
        self.found >= self.wanted
    }

    /// In a sentence.
    pub fn words(&self) -> String {
        let Self {
            what,
            wanted,
            found,
        } = self;
        let met = if self.met() { "met" } else { "missed" };
        format!("{what}: {found:.2} ×, target {wanted} ×: {met}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpbell_bench::Error as BenchError;

    impl Measurement for (u32, char) {
        fn row(&self) -> String {
            format!("{self:?}")
        }

        fn verified(&self) -> bool {
            self.0 != 2
        }
    }

    #[test]
    fn each_case_is_measured_in_each_way_until_one_is_interrupted() {
        let (party, screen) = (Party::alone(&Node::cpu()), Screen::new(true, 0));
        let all = |broken: fn() -> Error| {
            Measurements::of(
                &party,
                &[1, 2, 3],
                &['a', 'b'],
                &screen,
                |&case, way| match (case, way) {
                    (3, 'b') => Err(broken()),
                    measured => Ok(measured),
                },
            )
        };
        let found = all(|| warpbell_bench::run::Error::Interrupted.into()).unwrap();
        let expected = [(1, 'a'), (1, 'b'), (2, 'a'), (2, 'b'), (3, 'a')];
        assert_eq!(found.measured, expected);
        assert!(found.interrupted);
        assert_eq!(found.wrong(), (2, 5));
        let alone = all(|| BenchError::Alone.into());
        assert!(matches!(alone, Err(Error::Bench(BenchError::Alone))));
    }

    #[test]
    fn a_verdict_says_whether_it_is_reached() {
        let verdict = |found| Verdict {
            what: "kernel over host".into(),
            wanted: 4.5,
            found,
        };
        assert!(verdict(4.5).met() && !verdict(4.49).met());
        assert_eq!(
            verdict(1.5).words(),
            "kernel over host: 1.50 ×, target 4.5 ×: missed"
        );
    }
}
