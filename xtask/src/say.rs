//! Output for people and programs, which may go nowhere.

use std::fmt;
use std::io::{self, ErrorKind, Write, stderr, stdout};
use std::sync::OnceLock;

use console::Term;
use textwrap::{Options, WordSplitter};

/// Why something that was said went nowhere, the first time.
static UNSAID: OnceLock<io::Error> = OnceLock::new();

/// As `println!`, but goes on where that panics: [`unsaid`] tells it at the end.
macro_rules! say {
    ($($words:tt)*) => {
        $crate::say::line(format_args!($($words)*))
    };
}
pub(crate) use say;

pub fn line(words: fmt::Arguments<'_>) {
    note(writeln!(stdout(), "{words}"));
}

/// Says an error. There is no better place to say that this cannot be said.
pub fn complain(error: fmt::Arguments<'_>) {
    let _ = writeln!(stderr(), "error: {error}");
}

/// Keeps why something could not be said. A reader that has seen enough, such as `head`, is no reason.
pub fn note(said: io::Result<()>) {
    match said {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            // Only the first reason counts.
            let _ = UNSAID.set(error);
        }
        _ => {}
    }
}

/// The columns of the terminal that hears it; as many as there may be if it is none.
pub fn columns() -> usize {
    let size = Term::stdout().size_checked();
    size.map_or(usize::MAX, |(_, columns)| columns.into())
}

/// Text of whole words behind a label, its further lines as far to the right.
pub fn wrap(label: &str, text: &str, columns: usize) -> String {
    let margin = " ".repeat(textwrap::core::display_width(label));
    let options = Options::new(columns)
        .initial_indent(label)
        .subsequent_indent(&margin)
        .break_words(false)
        .word_splitter(WordSplitter::NoHyphenation);
    textwrap::fill(text, options)
}

/// Why something that was said went nowhere, if anything did.
pub fn unsaid() -> Option<&'static io::Error> {
    UNSAID.get()
}
