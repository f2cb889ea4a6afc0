//! How a benchmark shows what it does: lines on stdout, or one JSON document; a progress bar on a terminal.

use std::borrow::Cow;
use std::fmt::Display;
use std::process::ExitCode;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
pub use warpbell_stage::screen::bytes;
use warpbell_stage::screen::{self, Screen as Lines};

use crate::run::error::{Error, Nested};
use crate::run::interrupt::ENDED_BY_CTRL_C;

/// Where a benchmark's output goes.
#[derive(Debug)]
pub struct Screen {
    lines: Lines,
    bar: ProgressBar,
}

impl Screen {
    /// Shows lines, or nothing but the document at the end; with a bar of so many steps on stderr, if
    /// that is a terminal.
    pub fn new(json: bool, steps: u64) -> Self {
        Self::with(Lines::new(json), ProgressBar::new(steps))
    }

    /// Shows nothing: for a rank whose results another one shows.
    pub fn silent() -> Self {
        Self::with(Lines::silent(), ProgressBar::hidden())
    }

    fn with(lines: Lines, bar: ProgressBar) -> Self {
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {wide_msg}");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Self { lines, bar }
    }

    /// A step begins.
    pub fn step(&self, what: impl Into<Cow<'static, str>>) {
        self.bar.set_message(what);
        self.bar.inc(1);
    }

    /// A line for a human; on a terminal as many as it needs there.
    pub fn line(&self, line: impl Display) {
        self.bar.suspend(|| self.lines.line(line));
    }

    /// A row of a table, which says so if its results are wrong.
    pub fn row(&self, row: String, verified: bool) {
        self.line(match verified {
            true => row,
            false => format!("{row}  {}", self.lines.mark(false)),
        });
    }

    /// Text for a human behind a label, in as many lines as it needs.
    pub fn wrapped(&self, label: &str, text: &str) {
        self.bar.suspend(|| self.lines.wrapped(label, text));
    }

    /// A line that begins a section.
    pub fn heading(&self, heading: &str) {
        self.bar.suspend(|| self.lines.heading(heading));
    }

    /// Whether a check succeeded, in one word.
    pub fn mark(&self, verified: bool) -> String {
        self.lines.mark(verified)
    }

    /// The end of the steps.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// The document, where one is wanted.
    ///
    /// # Errors
    /// Only a document that is none.
    pub fn document(&self, document: &impl Serialize) -> Result<(), Error> {
        self.lines.document(serde_json::to_string_pretty(document)?);
        Ok(())
    }
}

/// A benchmark's `main`: reads its arguments, runs it, and prints its error in a line. Its status is 0, or 1 after an
/// error, 2 after wrong arguments, 130 after Ctrl-C.
pub fn start<A: Parser, E: Nested>(run: impl FnOnce(A) -> Result<(), E>) -> ExitCode {
    screen::start(run, |error| match error.own() {
        Some(Error::Interrupted) => ENDED_BY_CTRL_C,
        _ => 1,
    })
}
