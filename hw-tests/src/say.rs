//! What a program says, and its end where nobody can hear it.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write, stdout};
use std::process::exit;

use clap::{ArgMatches, Command};

/// Prints a line. Where it cannot be printed, the program ends with status 1 and the reason: what it goes on to find
/// would be lost as well.
pub fn say(line: impl Display) {
    check(writeln!(stdout(), "{line}"));
}

/// Prints part of a line at once.
pub fn say_part(part: impl Display) {
    check(write!(stdout(), "{part}").and_then(|()| stdout().flush()));
}

/// What a command finds among the arguments. After `--help` and after wrong ones the program ends, with status 0 and 2.
pub fn matches(command: Command) -> ArgMatches {
    command.try_get_matches().unwrap_or_else(|end| {
        if !end.use_stderr() {
            check(end.print().and_then(|()| stdout().flush()));
            exit(0);
        }
        end.exit()
    })
}

fn check(printed: io::Result<()>) {
    match printed {
        // Whoever reads it may have gone, as `head` does.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            eprintln!("error: cannot print: {error}");
            exit(1);
        }
        _ => {}
    }
}
