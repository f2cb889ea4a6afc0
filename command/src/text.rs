//! A report for people: as wide as their terminal.

use console::{Style, style};
use textwrap::{Options, WordSplitter};

use crate::decode::fields::is_zeros;
use crate::decode::{Field, Finding, Report, Severity, Structure};

/// Columns of a field's bits, and the most of its name and value; longer ones push the rest to the right.
const BITS: usize = 7;
const NAME: usize = 20;
const VALUE: usize = 18;

/// A report as text. Fields of zeros that mean nothing are left out; JSON has them.
pub fn page(report: &Report, columns: usize) -> String {
    let mut page = String::new();
    let mut line = |text: &str| {
        page.push_str(text);
        page.push('\n');
    };
    for text in heading(report, columns) {
        line(&text);
    }
    for found in &report.findings {
        line(&finding(found, columns));
    }
    for structure in &report.structures {
        line("");
        line(&title(structure, columns));
        let shown = || structure.fields.iter().filter(|field| is_shown(field));
        let widest = |len: fn(&Field) -> usize, most| {
            let lens = shown().map(len).filter(|len| *len <= most);
            lens.max().unwrap_or(0)
        };
        let name = widest(|field| field.name.chars().count(), NAME);
        let value = widest(|field| field.raw.len(), VALUE);
        for field in shown() {
            line(&row(field, name, value, columns));
        }
        for found in &structure.findings {
            line(&finding(found, columns));
        }
    }
    page
}

fn heading(report: &Report, columns: usize) -> Vec<String> {
    let bytes = report.bytes;
    let Some(kind) = report.kind else {
        let text =
            format!("{bytes} bytes that look like nothing known; say what they are with --kind");
        return vec![wrap("", &text, columns)];
    };
    if report.candidates.is_empty() {
        return vec![format!("{bytes} bytes as {}", word(&kind))];
    }
    let mut lines = vec![format!("{bytes} bytes. They can be:")];
    for candidate in &report.candidates {
        let label = format!("  {:<19}", word(&candidate.kind));
        lines.push(wrap(&label, &candidate.why, columns));
    }
    let text = format!("Shown as {}. Choose another with --kind.", word(&kind));
    lines.push(wrap("", &text, columns));
    lines
}

/// The word of a value on the command line.
fn word(value: &impl clap::ValueEnum) -> String {
    let word = value.to_possible_value();
    word.map_or_else(String::new, |word| word.get_name().into())
}

fn title(structure: &Structure, columns: usize) -> String {
    let text = format!("{} (byte {:#x})", structure.title, structure.offset);
    style(wrap("", &text, columns)).bold().to_string()
}

fn is_shown(field: &Field) -> bool {
    field.name != "reserved" || !is_zeros(&field.raw)
}

fn row(field: &Field, name: usize, value: usize, columns: usize) -> String {
    let bits = match field.bits {
        Some([high, low]) if high == low => format!("[{high}]"),
        Some([high, low]) => format!("[{high}:{low}]"),
        None => String::new(),
    };
    let label = format!("  {:#06x} {bits:<BITS$} ", field.offset);
    let margin = label.len();
    let text = format!("{label}{:<name$} ", field.name);
    if field.raw.len() <= VALUE {
        let text = format!("{text}{:<value$} ", field.raw);
        return wrap_behind(&text, &field.meaning, margin + name + value + 2, columns);
    }
    let mut lines = wrap_behind(&text, &field.meaning, margin + name + 1, columns);
    for chunk in bytes(&field.raw) {
        lines.push('\n');
        lines.push_str(&" ".repeat(margin));
        lines.push_str(&chunk);
    }
    lines
}

/// Long values, 16 bytes a line; the middle of very long ones is left out.
fn bytes(raw: &str) -> Vec<String> {
    const MOST: usize = 8;
    if is_zeros(raw) {
        return vec![format!("{} zeros", raw.len() / 2)];
    }
    let lines = raw.as_bytes().chunks(32);
    let mut shown: Vec<_> = lines
        .take(MOST)
        .map(|line| String::from_utf8_lossy(line).into_owned())
        .collect();
    let left_out = (raw.len() / 2).saturating_sub(16 * MOST);
    if left_out > 0 {
        shown.push(format!("... {left_out} more bytes: --json has all"));
    }
    shown
}

/// A finding on a line of its own.
pub(crate) fn finding(found: &Finding, columns: usize) -> String {
    let (word, colour) = match found.severity {
        Severity::Error => ("error", Style::new().red().bold()),
        Severity::Warning => ("warning", Style::new().yellow()),
        Severity::Note => ("note", Style::new().dim()),
    };
    let label = format!("  {} ", colour.apply_to(format!("{word}:")));
    wrap(
        &label,
        &format!("byte {:#x}: {}", found.offset, found.text),
        columns,
    )
}

/// Text behind a label; its further lines begin at a margin.
fn wrap_behind(label: &str, text: &str, margin: usize, columns: usize) -> String {
    let margin = " ".repeat(margin);
    let options = Options::new(columns.max(20))
        .initial_indent(label)
        .subsequent_indent(&margin)
        .break_words(false)
        .word_splitter(WordSplitter::NoHyphenation);
    match text {
        "" => label.trim_end().to_string(),
        _ => textwrap::fill(text, options),
    }
}

/// Text of whole words behind a label, its further lines as far to the right.
pub(crate) fn wrap(label: &str, text: &str, columns: usize) -> String {
    wrap_behind(label, text, textwrap::core::display_width(label), columns)
}
