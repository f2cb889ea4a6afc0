//! Times on a command line.

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
    fn times_are_some_seconds() {
        assert_eq!(parse_seconds("0.25"), Ok(0.25));
        assert_eq!(parse_seconds("86400"), Ok(86_400.0));
        for text in ["", "0", "-1", "86400.1", "inf", "NaN", "1s"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }
}
