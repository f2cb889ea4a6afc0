//! The applications' runs as one HTML page, which needs nothing beside it.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use warpbell_bench::svg::escape;

use crate::application::{Application, Section, Table, Verdict};

/// What no NIC of software shows, in the page's words.
const LIMITS: &str = "The NIC of all runs is software: soft and soft-host are a thread of the CPU, soft-gpu is a kernel beside \
    the others. Both ends are in one process, and a transfer is a copy in memory. So the runs say nothing about a wire, \
    PCIe under a card\u{2019}s traffic, or a card\u{2019}s rate. They show what changes if kernels drive the same NIC \
    instead of their host: launches, synchronisation between host and GPU, and saved waiting. Compare the papers\u{2019} \
    figures with ours by their ratios only: their GPUs and CPUs are different, and their cards are real.";

/// A run for the page.
#[derive(Debug)]
pub struct Run {
    /// Where kernels ran, and which NIC it was.
    pub place: String,
    /// The name of its application.
    pub name: &'static str,
    /// What came of it.
    pub section: Section,
}

/// A run as a document.
#[derive(Serialize)]
pub struct RunDocument<'r> {
    place: &'r str,
    application: &'static str,
    verdicts: &'r [Verdict],
    result: &'r Value,
}

impl Run {
    /// The same as a document.
    pub fn document(&self) -> RunDocument<'_> {
        RunDocument {
            place: &self.place,
            application: self.name,
            verdicts: &self.section.verdicts,
            result: &self.section.document,
        }
    }
}

/// The page of these runs, application by application; those without a run are left out.
pub fn page(applications: &[Application], runs: &[Run], origin: &str, command: &str) -> String {
    let mut html = String::from(HEAD);
    let mut add = |piece: String| html.push_str(&piece);
    add(format!(
        "<h1>The papers\u{2019} applications</h1>\n<p class=\"origin\">{} · <code>{}</code></p>\n<p>{}</p>\n",
        escape(origin),
        escape(command),
        escape(LIMITS)
    ));
    let has_run = |application: &&Application| runs.iter().any(|run| run.name == application.name);
    let entry = |of: &Application| {
        let (name, title) = (of.name, escape(of.title));
        format!("<li><a href=\"#{name}\">{title}</a></li>\n")
    };
    let entries = applications.iter().filter(has_run).map(entry);
    add(format!("<ul>\n{}</ul>\n", entries.collect::<String>()));
    for application in applications {
        let mut own = runs
            .iter()
            .filter(|run| run.name == application.name)
            .peekable();
        if own.peek().is_none() {
            continue;
        }
        add(format!(
            "<h2 id=\"{}\">{}</h2>\n<p><b>There:</b> {}</p>\n<p><b>Here:</b> {}</p>\n",
            application.name,
            escape(application.title),
            escape(application.paper),
            escape(application.differs)
        ));
        own.for_each(|run| add(section(run)));
    }
    add("</body>\n</html>\n".into());
    html
}

fn section(run: &Run) -> String {
    let Section {
        table: rows,
        verdicts,
        plot,
        wrong: (wrong, all),
        interrupted,
        ..
    } = &run.section;
    let mut html = format!("<h3>{}</h3>\n{}", escape(&run.place), table(rows));
    for verdict in verdicts {
        let mark = if verdict.met() { '●' } else { '○' };
        let _ = writeln!(html, "<p>{mark} {}</p>", escape(&verdict.words()));
    }
    let right = match wrong {
        0 => format!("<p>All of {all} results are right.</p>\n"),
        _ => format!("<p class=\"wrong\">{wrong} of {all} results are WRONG.</p>\n"),
    };
    html.push_str(&right);
    if *interrupted {
        html.push_str("<p class=\"wrong\">Ended early by Ctrl-C.</p>\n");
    }
    // A drawing of our own, whose texts were escaped when it was drawn.
    if let Some(plot) = plot {
        let _ = writeln!(html, "<figure>{plot}</figure>");
    }
    html
}

fn table(table: &Table) -> String {
    let row = |tag: &str, cells: &[String]| {
        let cells = cells
            .iter()
            .map(|cell| format!("<{tag}>{}</{tag}>", escape(cell)));
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    let rows = table.rows.iter().map(|cells| row("td", cells));
    format!(
        "<div class=\"wide\"><table>\n{}{}</table></div>\n",
        row("th", &table.columns),
        rows.collect::<String>()
    )
}

const HEAD: &str = "<!DOCTYPE html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<meta name=\"color-scheme\" content=\"light dark\">
<title>Warpbell: the papers\u{2019} applications</title>
<style>
:root { color-scheme: light dark; }
body { font-family: sans-serif; max-width: 62em; margin: 2em auto; padding: 0 1em; line-height: 1.45; overflow-wrap: break-word; }
table { border-collapse: collapse; }
th, td { border: 1px solid #8888; padding: 0.25em 0.7em; text-align: right; }
td { white-space: nowrap; }
th { background: #8882; font-weight: normal; }
.wide { overflow-x: auto; }
figure { margin: 1em 0; overflow-x: auto; }
.origin { opacity: 0.7; }
.wrong { font-weight: bold; }
</style>
</head>
<body>
";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ONE: Application = Application {
        name: "one",
        title: "One & only",
        paper: "a < b",
        differs: "nothing",
        run: |_, _, _, _| unreachable!("only its words are used"),
    };
    const OTHER: Application = Application {
        name: "other",
        title: "Without a run",
        ..ONE
    };

    fn run(wrong: usize) -> Run {
        Run {
            place: "CPU threads, NIC soft".into(),
            name: "one",
            section: Section {
                table: Table {
                    columns: vec!["size".into(), "\"rate\"".into()],
                    rows: vec![vec!["<8>".into(), "1.5".into()]],
                },
                verdicts: vec![Verdict {
                    what: "x over y".into(),
                    wanted: 2.0,
                    found: 1.5,
                }],
                plot: Some("<svg></svg>".into()),
                document: json!({}),
                wrong: (wrong, 3),
                interrupted: wrong > 0,
            },
        }
    }

    #[test]
    fn a_page_has_each_run_under_its_application_and_no_other() {
        let html = page(&[ONE, OTHER], &[run(0), run(1)], "here", "report --nic <x>");
        for wanted in [
            "<ul>\n<li><a href=\"#one\">One &amp; only</a></li>\n</ul>",
            "<h2 id=\"one\">One &amp; only</h2>",
            "a &lt; b",
            "<code>report --nic &lt;x&gt;</code>",
            "<tr><th>size</th><th>&quot;rate&quot;</th></tr>\n<tr><td>&lt;8&gt;</td><td>1.5</td></tr>",
            "<p>○ x over y: 1.50 ×, target 2 ×: missed</p>",
            "<figure><svg></svg></figure>",
            "All of 3 results are right.",
            "1 of 3 results are WRONG.",
            "Ended early by Ctrl-C.",
        ] {
            assert!(html.contains(wanted), "{wanted} in {html}");
        }
        assert_eq!(html.matches("<h3>CPU threads, NIC soft</h3>").count(), 2);
        assert_eq!(html.matches("Ended early").count(), 1);
        assert!(!html.contains("Without a run"));
        assert!(html.trim_end().ends_with("</html>"));
    }
}
