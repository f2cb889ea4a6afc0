//! How an example shows what it does: lines on stdout, or one JSON document; a progress bar on a terminal.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{IsTerminal, Write, stdout};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::Error;

/// Where an example's output goes.
#[derive(Debug)]
pub struct Screen {
    json: bool,
    colour: bool,
    bar: ProgressBar,
}

impl Screen {
    /// Shows lines, or nothing but the document at the end; with a bar of so many steps on stderr, if
    /// that is a terminal.
    pub fn new(json: bool, steps: u64) -> Self {
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {wide_msg}");
        let bar = ProgressBar::new(steps);
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Self {
            json,
            colour: stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
            bar,
        }
    }

    /// A step begins.
    pub fn step(&self, what: impl Into<Cow<'static, str>>) {
        self.bar.set_message(what);
        self.bar.inc(1);
    }

    /// A line for a human.
    pub fn line(&self, line: impl Display) {
        if !self.json {
            self.bar.suspend(|| print(&line));
        }
    }

    /// Text for a human behind a label, in as many lines as it needs.
    pub fn wrapped(&self, label: &str, text: &str) {
        for line in wrap(label, text) {
            self.line(line);
        }
    }

    /// A line that begins a section.
    pub fn heading(&self, heading: &str) {
        self.line("");
        self.line(self.paint("1", heading));
    }

    /// Whether a check succeeded, in one word.
    pub fn mark(&self, verified: bool) -> String {
        match verified {
            true => self.paint("32", "ok"),
            false => self.paint("1;31", "WRONG"),
        }
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
        if self.json {
            print(&serde_json::to_string_pretty(document)?);
        }
        Ok(())
    }

    fn paint(&self, code: &str, text: &str) -> String {
        match self.colour {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }
}

/// Columns that text is wrapped to.
const COLUMNS: usize = 98;

/// Lines of whole words, the first behind the label, the others as far to the right.
fn wrap(label: &str, text: &str) -> Vec<String> {
    let mut lines = vec![label.to_owned()];
    let mut empty = true;
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("never empty");
        if empty {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= COLUMNS {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(format!("{:1$}{word}", "", label.chars().count()));
        }
        empty = false;
    }
    lines
}

fn print(line: &dyn Display) {
    // Whoever reads it may have gone, as `head` does.
    let _ = writeln!(stdout(), "{line}");
}

/// What an example ends with: its error in one line, and a status.
pub fn exit(result: Result<(), Error>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A number of bytes, in the largest unit that it is a multiple of.
pub fn bytes(bytes: u64) -> String {
    match bytes {
        0 => "0 B".into(),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// Parses a size: a number of bytes, or of KiB or MiB with the letter K or M behind it.
///
/// # Errors
/// What is wrong with it, for clap.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "give bytes, or KiB or MiB as in 64K or 4M".to_owned())?;
    match number.checked_shl(unit) {
        Some(bytes) if bytes >> unit == number => Ok(bytes),
        _ => Err("too large".into()),
    }
}

/// The same, for a message: from 8 bytes to `MOST`.
///
/// # Errors
/// What is wrong with it, for clap.
pub fn parse_message<const MOST: u64>(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        size @ 8.. if size <= MOST => Ok(size),
        _ => Err(format!("choose between 8 bytes and {}", bytes(MOST))),
    }
}

/// Parses a time: a number of seconds, up to a day.
///
/// # Errors
/// What is wrong with it, for clap.
pub fn parse_seconds(text: &str) -> Result<f64, String> {
    const DAY: f64 = 86_400.0;
    match text.parse() {
        Ok(seconds) if seconds > 0.0 && seconds <= DAY => Ok(seconds),
        _ => Err(format!("choose seconds above 0, up to {DAY}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_between_words() {
        assert_eq!(wrap("  met  ", "one  two"), ["  met  one two"]);
        let long = wrap("ab ", &["word"; 60].join(" "));
        assert_eq!(long.len(), 4);
        assert!(long.iter().all(|line| line.len() <= COLUMNS));
        assert!(long[1..].iter().all(|line| line.starts_with("   word")));
        let words: usize = long.iter().map(|line| line.matches("word").count()).sum();
        assert_eq!(words, 60);
    }

    #[test]
    fn times_are_some_seconds() {
        assert_eq!(parse_seconds("0.25"), Ok(0.25));
        assert_eq!(parse_seconds("86400"), Ok(86_400.0));
        for text in ["", "0", "-1", "86400.1", "inf", "NaN", "1s"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_read_as_they_are_shown() {
        for (text, value) in [("8", 8), ("1k", 1024), ("64K", 65_536), ("4M", 4 << 20)] {
            assert_eq!(parse_bytes(text), Ok(value));
        }
        for text in [
            "",
            "K",
            "-1",
            "1G",
            "1.5K",
            "99999999999999999999",
            "18446744073709551615M",
        ] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        assert_eq!(bytes(8), "8 B");
        assert_eq!(bytes(1000), "1000 B");
        assert_eq!(bytes(2048), "2 KiB");
        assert_eq!(bytes(4 << 20), "4 MiB");
    }
}
