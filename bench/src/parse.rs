//! Sizes on a command line.

use crate::run::screen::bytes;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_unit() {
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
    }
}
