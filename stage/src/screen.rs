//! How a program shows what it does: lines on stdout, or one JSON document.

use std::env::args_os;
use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write, stderr, stdout};
use std::process::ExitCode;
use std::sync::OnceLock;

use clap::Parser;
use terminal_size::{Width, terminal_size_of};
use textwrap::{Options, WordSplitter};

/// Where a program's output goes.
#[derive(Debug)]
pub struct Screen {
    shows: Shows,
    colour: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shows {
    Lines,
    Document,
    Nothing,
}

impl Screen {
    /// Shows lines, or nothing but the document at the end.
    pub fn new(json: bool) -> Self {
        Self::showing(if json { Shows::Document } else { Shows::Lines })
    }

    /// Shows nothing: for a process whose results another one shows.
    pub fn silent() -> Self {
        Self::showing(Shows::Nothing)
    }

    fn showing(shows: Shows) -> Self {
        Self {
            shows,
            colour: stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
        }
    }

    /// A line for a human; on a terminal as many as it needs there.
    pub fn line(&self, line: impl Display) {
        let line = line.to_string();
        self.show(match terminal_columns() {
            Some(columns) => wrap_line(&line, columns),
            None => line,
        });
    }

    /// Text for a human behind a label, in as many lines as it needs.
    pub fn wrapped(&self, label: &str, text: &str) {
        let columns = terminal_columns().unwrap_or(COLUMNS).min(COLUMNS);
        self.show(wrap_text(label, text, columns));
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

    /// The document, where one is wanted. JSON shows itself in lines, as `{:#}` has it.
    pub fn document(&self, document: impl Display) {
        if self.shows == Shows::Document {
            print(format_args!("{document:#}"));
        }
    }

    fn show(&self, lines: String) {
        if self.shows == Shows::Lines {
            print(lines);
        }
    }

    fn paint(&self, code: &str, text: &str) -> String {
        match self.colour {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }
}

/// Columns that text is wrapped to at most.
const COLUMNS: usize = 98;

/// The columns of the terminal that the lines go to; none if they go elsewhere.
fn terminal_columns() -> Option<usize> {
    let (Width(columns), _) = terminal_size_of(stdout())?;
    // A terminal that does not know its size says 0.
    (columns > 0).then_some(usize::from(columns))
}

fn options(columns: usize) -> Options<'static> {
    // A number, a path or a command is of no use in two pieces.
    Options::new(columns)
        .break_words(false)
        .word_splitter(WordSplitter::NoHyphenation)
}

/// Lines of whole words, the first behind the label, the others as far to the right.
fn wrap_text(label: &str, text: &str, columns: usize) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    let margin = " ".repeat(textwrap::core::display_width(label));
    let options = options(columns).initial_indent(label);
    textwrap::fill(&words.join(" "), options.subsequent_indent(&margin))
}

/// The same for a line as it is: what does not fit stands further to the right than its beginning.
fn wrap_line(line: &str, columns: usize) -> String {
    let indent = line.len() - line.trim_start_matches(' ').len();
    let margin = " ".repeat((indent + 2).min(columns / 2));
    textwrap::fill(line, options(columns).subsequent_indent(&margin))
}

/// Why something that was printed went nowhere, the first time.
static UNPRINTED: OnceLock<io::Error> = OnceLock::new();

fn print(line: impl Display) {
    note(writeln!(stdout(), "{line}"));
}

fn note(printed: io::Result<()>) {
    match printed {
        // Whoever reads it may have gone, as `head` does.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            // Only the first reason counts.
            let _ = UNPRINTED.set(error);
        }
        _ => {}
    }
}

/// A status for wrong arguments, as of clap.
const WRONG_ARGUMENTS: u8 = 2;

/// A program's `main`: reads its arguments, runs it, and prints its error in a line. Its status is 0, 2 after wrong
/// arguments, or after an error what `status` says, mostly 1.
pub fn start<A: Parser, E: Display>(
    run: impl FnOnce(A) -> Result<(), E>,
    status: impl FnOnce(&E) -> u8,
) -> ExitCode {
    if let Some(argument) = args_os().find(|argument| argument.to_str().is_none()) {
        complain(format_args!(
            "the argument {argument:?} is no text in UTF-8"
        ));
        return ExitCode::from(WRONG_ARGUMENTS);
    }
    let result = match A::try_parse() {
        Ok(arguments) => run(arguments),
        Err(wrong) if wrong.use_stderr() => {
            // There is no better place to say that the complaint cannot be printed.
            let _ = wrong.print();
            return ExitCode::from(WRONG_ARGUMENTS);
        }
        Err(help) => {
            note(help.print().and_then(|()| stdout().flush()));
            Ok(())
        }
    };
    match (result, UNPRINTED.get()) {
        (Ok(()), None) => ExitCode::SUCCESS,
        (Err(error), _) => {
            let status = status(&error);
            complain(error);
            ExitCode::from(status)
        }
        (Ok(()), Some(error)) => {
            complain(format_args!("cannot print: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn complain(what: impl Display) {
    // As above.
    let _ = writeln!(stderr(), "error: {what}");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_between_words() {
        assert_eq!(wrap_text("  met  ", "one  two", 98), "  met  one two");
        let long = wrap_text("ab ", &["word"; 60].join(" "), 98);
        let lines: Vec<_> = long.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines.iter().all(|line| line.len() <= 98));
        assert!(lines[0].starts_with("ab word"));
        assert!(lines[1..].iter().all(|line| line.starts_with("   word")));
        assert_eq!(long.matches("word").count(), 60);
    }

    #[test]
    fn a_line_keeps_its_columns_and_hangs_what_does_not_fit() {
        let row = "    8 B   6.05 µs   12.1 µs  ok";
        assert_eq!(wrap_line(row, 31), row);
        assert_eq!(wrap_line(row, 30), "    8 B   6.05 µs   12.1 µs\n      ok");
        assert_eq!(wrap_line("a/long/path", 5), "a/long/path");
        // Colours take no columns.
        let bold = "\x1b[1mone two\x1b[0m";
        assert_eq!(wrap_line(bold, 7), bold);
        assert_eq!(wrap_line("", 5), "");
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit() {
        assert_eq!(bytes(8), "8 B");
        assert_eq!(bytes(1000), "1000 B");
        assert_eq!(bytes(2048), "2 KiB");
        assert_eq!(bytes(4 << 20), "4 MiB");
    }
}
