//! The report as a table for people.

use std::fmt::{self, Display, Formatter};

use console::{Style, style};
use textwrap::{Options, WordSplitter};

use super::finding::{Finding, State, Subject};
use super::report::Report;

/// The widest name of a check, in columns.
const NAME_WIDTH: usize = 16;

/// A report that prints itself as a table, coloured where it goes to a terminal.
pub struct Table<'a> {
    pub report: &'a Report,
    /// Columns that values and risks are wrapped to. Remedies are lines to paste, and stay whole.
    pub columns: usize,
}

impl Display for Table<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { report, columns } = *self;
        let mut heading: Option<&Subject> = None;
        let mut farther = 0;
        for found in &report.findings {
            if let Subject::Pair { gpu, nic } = &found.subject
                && !report.is_nearest(*gpu, nic)
            {
                farther += 1;
                continue;
            }
            if heading != Some(&found.subject) {
                let gap = if heading.is_some() { "\n" } else { "" };
                writeln!(f, "{gap}{}", style(title(&found.subject)).bold())?;
                heading = Some(&found.subject);
            }
            line(f, found, columns)?;
        }
        if farther > 0 {
            let text = format!("{farther} more lines on pairs that are farther apart: --json");
            writeln!(f)?;
            writeln!(f, "{}", wrap("", &text, columns))?;
        }
        verdict(f, report, columns)
    }
}

fn title(subject: &Subject) -> String {
    match subject {
        Subject::Node => "Node".into(),
        Subject::Gpu { gpu } => format!("GPU {gpu}"),
        Subject::Nic { nic } => format!("NIC {nic}"),
        Subject::Port { nic, port } => format!("NIC {nic}, port {port}"),
        Subject::Pair { gpu, nic } => format!("GPU {gpu} with NIC {nic}"),
    }
}

fn line(f: &mut Formatter<'_>, found: &Finding, columns: usize) -> fmt::Result {
    let (word, colour) = match found.state {
        State::Ok => ("ok", Style::new().green()),
        State::Missing => ("missing", Style::new().red()),
        State::Unknown => ("unknown", Style::new().yellow()),
    };
    // What is not needed is no alarm.
    let colour = if found.needed { colour } else { colour.dim() };
    let name = found.check.title();
    let word = colour.apply_to(format!("{word:<8}"));
    let note = match found.state {
        State::Missing if !found.needed => " (not needed)",
        State::Unknown if !found.needed => " (does not count)",
        _ => "",
    };
    let label = format!("  {word} {name:<NAME_WIDTH$} ");
    writeln!(
        f,
        "{}",
        wrap(&label, &format!("{}{note}", found.value), columns)
    )?;
    if let Some(risk) = found.risk {
        let label = format!("{:11}{} ", "", style("risk:").yellow());
        writeln!(f, "{}", wrap(&label, risk, columns))?;
    }
    match &found.remedy {
        Some(remedy) => writeln!(f, "{:11}{} {remedy}", "", style("→").dim()),
        None => Ok(()),
    }
}

fn verdict(f: &mut Formatter<'_>, report: &Report, columns: usize) -> fmt::Result {
    writeln!(f)?;
    if report.ready {
        for pair in report.pairs.iter().filter(|pair| pair.ready) {
            let distance = pair.distance.words();
            let text = format!("GPU {} with NIC {}: {distance}", pair.gpu, pair.nic);
            writeln!(f, "{}", wrap("ready: ", &text, columns))?;
        }
        return Ok(());
    }
    let needed = |state| {
        let needed = report.findings.iter().filter(|found| found.needed);
        needed.filter(|found| found.state == state).count()
    };
    let (missing, unknown) = (needed(State::Missing), needed(State::Unknown));
    let text = format!("of the needed items, {missing} missing and {unknown} unknown");
    writeln!(f, "{}", wrap("not ready: ", &text, columns))?;
    let alternative = "(the software NIC needs none of this: cargo demo)";
    writeln!(f, "{}", wrap("", alternative, columns))
}

/// Text of whole words behind a label, its further lines as far to the right.
fn wrap(label: &str, text: &str, columns: usize) -> String {
    let margin = " ".repeat(textwrap::core::display_width(label));
    let options = Options::new(columns)
        .initial_indent(label)
        .subsequent_indent(&margin)
        .break_words(false)
        .word_splitter(WordSplitter::NoHyphenation);
    textwrap::fill(text, options)
}
