//! `warpbell`: see the crate's documentation.

use std::io::{self, ErrorKind, Write, stderr, stdout};
use std::process::ExitCode;

use clap::Parser;
use console::Term;
use warpbell_command::arguments::Arguments;

/// Columns of output that does not go to a terminal.
const COLUMNS: usize = 80;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let size = Term::stdout().size_checked();
    let columns = size.map_or(COLUMNS, |(_, columns)| columns.into());
    let mut printed = String::new();
    let outcome = arguments.run(columns, &mut printed);
    match print(&printed) {
        // A reader that has seen enough, such as `head`, is no error.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            complain(&format!("cannot print: {error}"));
            return ExitCode::FAILURE;
        }
        _ => {}
    }
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            complain(&error.to_string());
            ExitCode::from(error.status())
        }
    }
}

fn print(text: &str) -> io::Result<()> {
    stdout().write_all(text.as_bytes())?;
    stdout().flush()
}

/// Says an error. There is no better place to say that this cannot be said.
fn complain(error: &str) {
    let _ = writeln!(stderr(), "error: {error}");
}
