//! The report as one page that needs nothing beside it, and no script.

use std::fmt::Write as _;

use super::report::{Report, StepReport, Verdict};

/// The page.
pub fn page(report: &Report) -> String {
    let mut html = String::from(HEAD);
    let mut add = |piece: &str| html.push_str(piece);
    add(&format!(
        "<h1>Warpbell: bring-up</h1>\n<p class=\"answer\">{}</p>\n<p class=\"all {}\">{}</p>\n",
        escape(&report.answer),
        report.verdict.word(),
        escape(&report.conclusion()),
    ));
    let quick = if report.quick {
        "quick steps"
    } else {
        "full steps"
    };
    let about = [
        format!("warpbell {}", report.version),
        report.date.clone(),
        format!("NIC: {}", report.nic.name),
        quick.into(),
    ];
    add("<ul class=\"about\">\n");
    for line in about.iter().chain(&report.machine.lines()) {
        add(&format!("<li>{}</li>\n", escape(line)));
    }
    add("</ul>\n<h2>Steps</h2>\n");
    for step in &report.steps {
        add(&section(step));
    }
    if !report.findings.is_empty() {
        add("<h2>What the doctor found</h2>\n<div class=\"wide\"><table>\n");
        add("<tr><th>about</th><th>check</th><th>state</th><th>value</th><th>remedy</th></tr>\n");
        for finding in &report.findings {
            let subject = &finding.subject;
            let port = subject.port.map(|port| port.to_string());
            let about = [
                &Some(subject.kind.clone()),
                &subject.gpu,
                &subject.nic,
                &port,
            ];
            let about: Vec<_> = about.into_iter().flatten().map(String::as_str).collect();
            let state = match finding.needed {
                true => finding.state.clone(),
                false => format!("{} (not needed)", finding.state),
            };
            let remedy = finding.remedy.clone().unwrap_or_default();
            add("<tr>");
            for cell in [
                &about.join(" "),
                &finding.check,
                &state,
                &finding.value,
                &remedy,
            ] {
                add(&format!("<td>{}</td>", escape(cell)));
            }
            add("</tr>\n");
        }
        add("</table></div>\n");
    }
    add("</body>\n</html>\n");
    html
}

fn section(step: &StepReport) -> String {
    let word = step.verdict.word();
    let took = step.seconds.map(|seconds| format!(", {seconds:.1} s"));
    let mut html = format!(
        "<section class=\"{word}\">\n<h3>{} <span class=\"verdict\">{word}{}</span></h3>\n<p><b>Proves:</b> {}</p>\n",
        escape(&step.step.name()),
        took.unwrap_or_default(),
        escape(step.proves)
    );
    // A string takes all that is written to it.
    if let Some(command) = &step.command {
        let _ = writeln!(html, "<pre class=\"command\">{}</pre>", escape(command));
    }
    if let Some(why) = &step.why {
        let _ = writeln!(html, "<p><b>Why:</b> {}</p>", escape(why));
    }
    if let Some(remedy) = &step.remedy {
        let _ = writeln!(html, "<p><b>What to do:</b> {}</p>", escape(remedy));
    }
    if !step.output.is_empty() {
        let open = if step.verdict == Verdict::Failed {
            " open"
        } else {
            ""
        };
        let lines = escape(&step.output.join("\n"));
        let _ = writeln!(
            html,
            "<details{open}><summary>its last lines</summary><pre>{lines}</pre></details>"
        );
    }
    html + "</section>\n"
}

/// The text where HTML may see a tag.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

const HEAD: &str = "<!DOCTYPE html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<title>Warpbell: bring-up</title>
<style>
:root { color-scheme: light dark; --good: #17692b; --bad: #b3261e; --open: #7a5900; }
@media (prefers-color-scheme: dark) { :root { --good: #7bd88f; --bad: #ff8a80; --open: #ecc94b; } }
body { font-family: sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; line-height: 1.45; overflow-wrap: break-word; }
section { border-left: 0.3em solid var(--open); padding: 0.1em 1em; margin: 1em 0; background: #8881; }
.passed { --mark: var(--good); } .failed { --mark: var(--bad); } .skipped, .interrupted { --mark: var(--open); }
section { border-color: var(--mark); }
.answer { font-size: 1.15em; font-weight: bold; }
.all { color: var(--mark); }
.verdict { color: var(--mark); font-size: 0.85em; font-weight: normal; }
.about { padding-left: 1.2em; }
pre { overflow-x: auto; background: #8882; padding: 0.5em; font-size: 0.95em; }
pre.command { white-space: pre-wrap; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9em; }
th, td { border: 1px solid #8888; padding: 0.25em 0.6em; text-align: left; vertical-align: top; }
th { background: #8882; font-weight: normal; }
</style>
</head>
<body>
";
