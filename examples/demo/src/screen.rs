//! How the demo shows what it does: lines on stdout, or one JSON document.

use std::env::args_os;
use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write, stderr, stdout};
use std::process::{ExitCode, exit};

use clap::Parser;
use serde_json::Value;
use terminal_size::{Width, terminal_size_of};
use textwrap::{Options, WordSplitter};

use crate::error::Error;

/// Columns that text is wrapped to at most.
const COLUMNS: usize = 98;

pub struct Screen {
    json: bool,
    colour: bool,
}

impl Screen {
    /// Shows lines, or nothing but the document at the end.
    pub fn new(json: bool) -> Self {
        let colour = stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { json, colour }
    }

    /// A line; on a terminal, as many as it needs there. What does not fit is indented further.
    pub fn line(&self, line: impl Display) {
        let line = line.to_string();
        let Some(columns) = terminal_columns() else {
            return self.show(&line);
        };
        let indent = line.len() - line.trim_start_matches(' ').len();
        let margin = " ".repeat((indent + 2).min(columns / 2));
        self.show(&textwrap::fill(
            &line,
            options(columns).subsequent_indent(&margin),
        ));
    }

    /// Text behind a label, in as many lines as it needs.
    pub fn wrapped(&self, label: &str, text: &str) {
        let columns = terminal_columns().unwrap_or(COLUMNS).min(COLUMNS);
        let margin = " ".repeat(label.len());
        let options = options(columns).initial_indent(label);
        self.show(&textwrap::fill(text, options.subsequent_indent(&margin)));
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

    /// The document, where one is wanted.
    pub fn document(&self, document: &Value) {
        if self.json {
            print(&format!("{document:#}"));
        }
    }

    fn show(&self, lines: &str) {
        if !self.json {
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

/// The columns of the terminal that the lines go to; none if they go elsewhere.
fn terminal_columns() -> Option<usize> {
    let (Width(columns), _) = terminal_size_of(stdout())?;
    // A terminal that does not know its size says 0.
    (columns > 0).then_some(usize::from(columns))
}

fn options(columns: usize) -> Options<'static> {
    // A number, a path or a command is of no use in two pieces.
    let options = Options::new(columns).break_words(false);
    options.word_splitter(WordSplitter::NoHyphenation)
}

fn print(lines: &str) {
    printed(writeln!(stdout(), "{lines}"));
}

/// Ends the demo if its output could not be written, unless the reader has gone, as `head` does.
fn printed(result: io::Result<()>) {
    match result {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            complain(format_args!("cannot print: {error}"));
            exit(1);
        }
        _ => {}
    }
}

/// Reads the arguments, runs the demo, and prints its error in a line. The status is 0, 1 after an error, or 2 after wrong
/// arguments.
pub fn start<A: Parser>(run: impl FnOnce(A) -> Result<(), Error>) -> ExitCode {
    const WRONG_ARGUMENTS: u8 = 2;
    if let Some(argument) = args_os().find(|argument| argument.to_str().is_none()) {
        complain(format_args!(
            "the argument {argument:?} is no text in UTF-8"
        ));
        return ExitCode::from(WRONG_ARGUMENTS);
    }
    let arguments = match A::try_parse() {
        Ok(arguments) => arguments,
        Err(wrong) if wrong.use_stderr() => {
            // There is no better place to say that the complaint cannot be printed.
            let _ = wrong.print();
            return ExitCode::from(WRONG_ARGUMENTS);
        }
        Err(help) => {
            printed(help.print().and_then(|()| stdout().flush()));
            return ExitCode::SUCCESS;
        }
    };
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(error);
            ExitCode::FAILURE
        }
    }
}

fn complain(what: impl Display) {
    // As above.
    let _ = writeln!(stderr(), "error: {what}");
}
