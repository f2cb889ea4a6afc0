//! Bytes to decode: as they are, or as hexadecimal text.

use std::io::{self, Read};
use std::path::Path;

use crate::decode::{Finding, Severity};

/// The most bytes that are read: a send ring has 2 MiB, a large completion queue 256 MiB.
const LIMIT: u64 = 1 << 28;

/// What was read.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// What is strange about the text that they were in.
    pub findings: Vec<Finding>,
}

/// Why there is nothing to decode.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// A file cannot be read.
    #[error("cannot read {file}: {source}")]
    Read {
        /// Its name.
        file: String,
        /// What the system says.
        source: io::Error,
    },
    /// There are no bytes.
    #[error("{file} is empty: there is nothing to decode")]
    Empty {
        /// Its name.
        file: String,
    },
    /// There are too many.
    #[error("{file} has more than 256 MiB, more than any queue")]
    TooLong {
        /// Its name.
        file: String,
    },
    /// A word of a hex dump has half a byte.
    #[error("line {line}: {word:?} has an odd number of hex digits, so half a byte is missing")]
    OddDigits {
        /// Its line, from 1.
        line: usize,
        /// The word.
        word: String,
    },
    /// A dump shows words, whose bytes are in the machine's order.
    #[error(
        "line {line}: the dump shows words such as {word:?}, not bytes; print bytes (xxd, hexdump -C, od -A x -t x1)"
    )]
    Words {
        /// Its line, from 1.
        line: usize,
        /// The first word.
        word: String,
    },
    /// A hex dump was shortened.
    #[error(
        "line {line}: the dump leaves out equal lines (*); print all of them (hexdump -v, od -v)"
    )]
    Squeezed {
        /// The line, from 1.
        line: usize,
    },
}

/// Reads a file, or standard input for `-`.
///
/// # Errors
/// All of [`InputError`].
pub fn read(file: &Path) -> Result<Input, InputError> {
    let is_stdin = file == Path::new("-");
    let name = || match is_stdin {
        true => "standard input".to_string(),
        false => file.display().to_string(),
    };
    let mut bytes = Vec::new();
    let outcome = match is_stdin {
        true => io::stdin().take(LIMIT + 1).read_to_end(&mut bytes),
        false => std::fs::File::open(file)
            .and_then(|opened| opened.take(LIMIT + 1).read_to_end(&mut bytes)),
    };
    outcome.map_err(|source| InputError::Read {
        file: name(),
        source,
    })?;
    if bytes.len() as u64 > LIMIT {
        return Err(InputError::TooLong { file: name() });
    }
    let input = parse(bytes)?;
    match input.bytes.is_empty() {
        true => Err(InputError::Empty { file: name() }),
        false => Ok(input),
    }
}

/// Takes bytes as hexadecimal text if they are some, else as they are.
///
/// Text is a line of hex digits, or a dump with offsets as xxd, `hexdump -C` and `od -A x -t x1` print them.
///
/// # Errors
/// [`InputError::OddDigits`] and [`InputError::Squeezed`], of text alone.
pub fn parse(bytes: Vec<u8>) -> Result<Input, InputError> {
    match str::from_utf8(&bytes) {
        Ok(text) if is_hex(text) => from_hex(text),
        text => {
            let is_text = text.is_ok_and(|text| text.bytes().all(is_printable) && !text.is_empty());
            let findings = is_text.then(|| Finding {
                severity: Severity::Warning,
                offset: 0,
                text:
                    "this is text, but no hexadecimal text; it is decoded as the bytes that it is"
                        .into(),
            });
            Ok(Input {
                findings: findings.into_iter().collect(),
                bytes,
            })
        }
    }
}

/// Whether each line begins with a word of hex digits.
fn is_hex(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let begins = |line: &str| {
        let word = line.split_whitespace().next().unwrap_or_default();
        let word = word.trim_end_matches([':', ',']);
        let digits = word.strip_prefix("0x").unwrap_or(word);
        digits == "*"
            || !digits.is_empty()
                && digits
                    .bytes()
                    .all(|byte| byte.is_ascii_hexdigit() || byte == b':')
    };
    !text.trim().is_empty() && text.bytes().all(is_printable) && lines.all(begins)
}

fn is_printable(byte: u8) -> bool {
    byte.is_ascii_graphic() || byte.is_ascii_whitespace()
}

fn from_hex(text: &str) -> Result<Input, InputError> {
    let mut input = Input::default();
    let mut first = None;
    for (at, line) in text.lines().enumerate() {
        let number = at + 1;
        let trimmed = line.trim();
        if trimmed.is_empty() {
            continue;
        }
        if trimmed == "*" {
            return Err(InputError::Squeezed { line: number });
        }
        let behind = |first: u64| first.wrapping_add(input.bytes.len() as u64);
        let (offset, rest) = split_offset(trimmed, behind(first.unwrap_or(0)));
        if let Some(offset) = offset {
            let expected = behind(*first.get_or_insert(offset));
            if offset != expected {
                input.findings.push(Finding {
                    severity: Severity::Warning,
                    offset: input.bytes.len(),
                    text: format!(
                        "line {number} of the dump begins at {offset:#x}, but the lines before end at {expected:#x}: \
                         lines are missing, or the dump is of several places"
                    ),
                });
            }
        }
        // Of dumps with offsets, only that of xxd has bytes in groups.
        let is_grouped = offset.is_none() || trimmed.contains(": ");
        for word in words(rest) {
            if !is_grouped && word.len() != 2 {
                return Err(InputError::Words {
                    line: number,
                    word: word.into(),
                });
            }
            push_word(word, number, &mut input.bytes)?;
        }
    }
    Ok(input)
}

/// The words of a line that are bytes: those before the column of characters.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let hex = |word: &&str| {
        let digits = word.strip_prefix("0x").unwrap_or(word);
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let line = line.split('|').next().unwrap_or_default();
    line.split(|c: char| c.is_whitespace() || c == ',' || c == ':')
        .filter(|word| !word.is_empty())
        .take_while(hex)
}

/// A line's offset, if it begins with one, and its rest. `expected` is where the lines before end.
fn split_offset(line: &str, expected: u64) -> (Option<u64>, &str) {
    let offset = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let Some((first, rest)) = line.split_once(char::is_whitespace) else {
        // The last line of hexdump and od is an offset alone.
        let octal = u64::from_str_radix(line, 8).ok();
        let is_end = [offset(line), octal].contains(&Some(expected));
        return match is_end && expected > 0 && line.len() >= 6 {
            true => (Some(expected), ""),
            false => (None, line),
        };
    };
    if let Some(digits) = first.strip_suffix(':') {
        // xxd: its characters are behind two spaces.
        let bytes = rest.trim_start().split("  ").next().unwrap_or_default();
        return (offset(digits), bytes);
    }
    let is_canonical = line.ends_with('|') || rest.starts_with(' ') && first.len() == 8;
    // od counts in octal digits, unless it is told otherwise.
    let octal = u64::from_str_radix(first, 8).ok();
    let is_dump = matches!(first.len(), 6 | 7);
    if is_dump && (offset(first) == Some(expected) || octal == Some(expected)) {
        return (Some(expected), rest);
    }
    match (is_canonical, offset(first)) {
        (true, Some(value)) => (Some(value), rest),
        _ => (None, line),
    }
}

fn push_word(word: &str, line: usize, bytes: &mut Vec<u8>) -> Result<(), InputError> {
    let digits = word.strip_prefix("0x").unwrap_or(word);
    if !digits.len().is_multiple_of(2) {
        return Err(InputError::OddDigits {
            line,
            word: word.into(),
        });
    }
    for pair in digits.as_bytes().chunks(2) {
        let digit = |byte: u8| (byte as char).to_digit(16).unwrap_or_default() as u8;
        bytes.push(digit(pair[0]) << 4 | digit(pair[1]));
    }
    Ok(())
}
