//! The report as a table for people.

use std::fmt::{self, Display, Formatter};

use console::{Style, style};

use super::finding::{Finding, State, Subject};
use super::report::Report;

/// The widest name of a check, in columns.
const NAME_WIDTH: usize = 16;

/// A report that prints itself as a table, coloured where it goes to a terminal.
pub struct Table<'a>(pub &'a Report);

impl Display for Table<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(report) = self;
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
            line(f, found)?;
        }
        if farther > 0 {
            writeln!(
                f,
                "\n{farther} more lines on pairs that are farther apart: --json"
            )?;
        }
        verdict(f, report)
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

fn line(f: &mut Formatter<'_>, found: &Finding) -> fmt::Result {
    let (word, colour) = match found.state {
        State::Ok => ("ok", Style::new().green()),
        State::Missing => ("missing", Style::new().red()),
        State::Unknown => ("unknown", Style::new().yellow()),
    };
    // What is not needed is no alarm.
    let colour = if found.needed { colour } else { colour.dim() };
    let name = found.check.title();
    let word = colour.apply_to(format!("{word:<8}"));
    write!(f, "  {word} {name:<NAME_WIDTH$} {}", found.value)?;
    match found.state {
        State::Missing if !found.needed => write!(f, " (not needed)")?,
        State::Unknown if !found.needed => write!(f, " (does not count)")?,
        _ => {}
    }
    writeln!(f)?;
    if let Some(risk) = found.risk {
        writeln!(f, "{:11}{} {risk}", "", style("risk:").yellow())?;
    }
    match &found.remedy {
        Some(remedy) => writeln!(f, "{:11}{} {remedy}", "", style("→").dim()),
        None => Ok(()),
    }
}

fn verdict(f: &mut Formatter<'_>, report: &Report) -> fmt::Result {
    writeln!(f)?;
    if report.ready {
        for pair in report.pairs.iter().filter(|pair| pair.ready) {
            let distance = pair.distance.words();
            writeln!(
                f,
                "ready: GPU {} with NIC {}: {distance}",
                pair.gpu, pair.nic
            )?;
        }
        return Ok(());
    }
    let needed = |state| {
        let needed = report.findings.iter().filter(|found| found.needed);
        needed.filter(|found| found.state == state).count()
    };
    let (missing, unknown) = (needed(State::Missing), needed(State::Unknown));
    writeln!(
        f,
        "not ready: of what is needed, {missing} missing and {unknown} unknown"
    )?;
    writeln!(f, "(the software NIC needs nothing of this: cargo demo)")
}
