//! The steps as lines for people, while they run.

use std::io::{self, ErrorKind, Write, stderr, stdout};

use console::Style;

use super::plan::{Call, Nic, Step};
use super::report::{Report, StepReport, Verdict};
use crate::text::wrap;

/// Lines of a failed program's output.
const SHOWN: usize = 12;
/// The margin of all but a step's first line.
const MARGIN: &str = "    ";

/// Where the lines go. Once they cannot be printed any more, nothing is printed, and the steps go on.
pub struct Screen {
    columns: usize,
    /// The steps that were chosen.
    chosen: Vec<Step>,
    to: Box<dyn Write>,
    problem: Option<io::Error>,
}

impl Screen {
    /// Standard output; standard error if a document goes there.
    pub fn new(chosen: Vec<Step>, json: bool, columns: usize) -> Self {
        Self {
            columns,
            chosen,
            to: match json {
                true => Box::new(stderr()),
                false => Box::new(stdout()),
            },
            problem: None,
        }
    }

    fn line(&mut self, text: &str) {
        if self.problem.is_none() {
            let printed = writeln!(self.to, "{text}").and_then(|()| self.to.flush());
            self.problem = printed.err();
        }
    }

    fn wrapped(&mut self, label: &str, text: &str) {
        self.line(&wrap(label, text, self.columns));
    }

    /// Which NIC the doctor's report suggests.
    pub fn chosen(&mut self, nic: &Nic) {
        let why = match nic {
            Nic::Software => "the doctor finds no card",
            Nic::Card(_) => "the doctor's choice",
        };
        self.wrapped(
            "",
            &format!("\nThe NIC of all steps: {nic} ({why}; --nic names another)."),
        );
    }

    /// A step that begins.
    pub fn begin(&mut self, step: Step, call: &Call) {
        self.title(step);
        self.wrapped(&format!("{MARGIN}proves: "), step.proves());
        // In one line, so that it can be pasted.
        self.line(&format!("{MARGIN}$ {call}"));
    }

    fn title(&mut self, step: Step) {
        let steps = self.chosen.len();
        let number = self.chosen.iter().position(|one| *one == step);
        let number = number.map_or(0, |at| at + 1);
        let name = Style::new().bold().apply_to(step.name());
        self.line("");
        self.line(&format!("{number} of {steps}  {name}"));
    }

    /// A step that has ended, or was not run.
    pub fn end(&mut self, report: &StepReport) {
        if report.command.is_none() {
            self.title(report.step);
        }
        let word = word(report.verdict);
        let took = report
            .seconds
            .map(|seconds| format!(" after {seconds:.1} s"));
        let took = took.unwrap_or_default();
        match &report.why {
            None => self.line(&format!("{MARGIN}{word}{took}")),
            Some(why) => self.wrapped(&format!("{MARGIN}{word}{took}: "), why),
        }
        let is_measured = matches!(report.step, Step::Latency | Step::Bandwidth);
        let shown = match report.verdict {
            Verdict::Passed if is_measured => report.output.len(),
            Verdict::Failed => SHOWN,
            _ => 0,
        };
        let from = report.output.len().saturating_sub(shown);
        for line in &report.output[from..] {
            self.line(&format!("{MARGIN}| {line}"));
        }
        if let Some(remedy) = &report.remedy {
            self.wrapped(&format!("{MARGIN}what to do: "), remedy);
        }
    }

    /// What is proven at the end, and what is not.
    pub fn conclude(&mut self, report: &Report) {
        let (proven, open): (Vec<_>, Vec<_>) = report
            .steps
            .iter()
            .partition(|step| step.verdict == Verdict::Passed);
        for (title, steps) in [("Proven:", proven), ("Not proven:", open)] {
            if steps.is_empty() {
                continue;
            }
            self.line("");
            self.line(title);
            for step in steps {
                self.wrapped("  - ", &in_a_line(step));
            }
        }
        self.line("");
        self.wrapped("", &report.conclusion());
        let answer = Style::new().bold().apply_to(&report.answer);
        self.wrapped("", &answer.to_string());
    }

    /// Says where a report is.
    pub fn written(&mut self, file: &str, scrubbed: bool) {
        let with = if scrubbed { "without" } else { "with" };
        // In one line, so that the name can be copied.
        self.line(&format!("Report {with} host names and addresses: {file}"));
    }

    /// Why not all lines were printed. A reader that has gone, such as `head`, is no reason.
    pub fn end_of_output(self) -> Result<(), io::Error> {
        match self.problem {
            Some(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
            _ => Ok(()),
        }
    }
}

/// What a step proves, and why it did not.
pub fn in_a_line(step: &StepReport) -> String {
    let verdict = step.verdict.word();
    match (&step.why, step.verdict) {
        (Some(why), Verdict::Failed) => format!("{} ({verdict}: {why})", step.proves),
        (Some(why), _) => format!("{} ({why})", step.proves),
        (None, _) => step.proves.into(),
    }
}

fn word(verdict: Verdict) -> String {
    let style = match verdict {
        Verdict::Passed => Style::new().green(),
        Verdict::Failed => Style::new().red().bold(),
        Verdict::Skipped | Verdict::Interrupted => Style::new().yellow(),
    };
    style.apply_to(verdict.word()).to_string()
}
