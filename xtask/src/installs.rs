//! Who decides whether missing tools are installed.

use std::io::{self, BufRead, IsTerminal, Write};

use thiserror::Error;

/// Whether missing tools are installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installs {
    Yes,
    No,
    /// A person at a terminal is asked, once for all of them.
    Ask,
}

impl Installs {
    /// What holds for a command that was called with or without `--no-install`: nobody is asked where nobody can answer.
    pub fn chosen(no_install: bool) -> Self {
        let answers = io::stdin().is_terminal();
        let reads = io::stderr().is_terminal();
        Self::choose(no_install, answers && reads)
    }

    fn choose(no_install: bool, terminal: bool) -> Self {
        match (no_install, terminal) {
            (true, _) => Self::No,
            (false, true) => Self::Ask,
            (false, false) => Self::Yes,
        }
    }

    /// The decision once it is known what is missing; `ask` puts a question to the person at the terminal.
    pub fn decide(self, missing: &[String], ask: impl FnOnce(&str) -> bool) -> Self {
        if self != Self::Ask || missing.is_empty() {
            return self;
        }
        let question = format!("missing: {}\ninstall all of that?", missing.join(", "));
        match ask(&question) {
            true => Self::Yes,
            false => Self::No,
        }
    }
}

/// Why a tool is not there.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Missing {
    /// Nobody wanted it installed.
    #[error("missing, and not to be installed: {}", .0.join(", "))]
    Unwanted(Vec<String>),
    /// It could not be installed.
    #[error("{0}")]
    Uninstallable(String),
}

/// Puts a question that is answered by yes or no, and takes all else for no.
pub fn ask(question: &str) -> bool {
    // A question that nobody can read gets no answer, which is a no.
    let _ = write!(io::stderr(), "{question} [y/N] ");
    answer(&mut io::stdin().lock())
}

fn answer(input: &mut impl BufRead) -> bool {
    let mut line = String::new();
    let read = input.read_line(&mut line);
    read.is_ok() && matches!(line.trim().to_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_asked_without_a_terminal_or_with_no_install() {
        assert_eq!(Installs::choose(false, false), Installs::Yes);
        assert_eq!(Installs::choose(false, true), Installs::Ask);
        assert_eq!(Installs::choose(true, false), Installs::No);
        assert_eq!(Installs::choose(true, true), Installs::No);
    }

    #[test]
    fn a_person_is_asked_once_and_for_what_is_missing() {
        let missing = ["perftest".to_owned(), "ptxas".to_owned()];
        let asked = |answer| {
            move |question: &str| {
                assert_eq!(question, "missing: perftest, ptxas\ninstall all of that?");
                answer
            }
        };
        assert_eq!(Installs::Ask.decide(&missing, asked(true)), Installs::Yes);
        assert_eq!(Installs::Ask.decide(&missing, asked(false)), Installs::No);
        let nobody = |_: &str| panic!("asked");
        assert_eq!(Installs::Ask.decide(&[], nobody), Installs::Ask);
        for decided in [Installs::Yes, Installs::No] {
            assert_eq!(decided.decide(&missing, nobody), decided);
        }
    }

    #[test]
    fn only_a_yes_is_one() {
        for (line, is_yes) in [
            ("y\n", true),
            (" Yes \n", true),
            ("n\n", false),
            ("\n", false),
            ("", false),
            ("yesterday\n", false),
        ] {
            assert_eq!(answer(&mut line.as_bytes()), is_yes, "{line:?}");
        }
    }
}
