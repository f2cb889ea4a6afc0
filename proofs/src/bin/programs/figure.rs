//! The figure in what a program says.

/// A program's figure: bandwidth and rate, or time.
pub fn of(program: &str, said: &str) -> Option<String> {
    if program.ends_with("_pingpong") {
        // `1000 iters in 0.22 seconds = 222.43 usec/iter`; a message there and back.
        let line = said.lines().find(|line| line.contains("usec/iter"))?;
        let time = line.split_whitespace().rev().nth(1)?;
        return Some(format!("{time} us"));
    }
    // The last line of numbers, one for each column.
    let line = said.lines().rev().find(|line| {
        let mut columns = line.split_whitespace().peekable();
        columns.peek().is_some() && columns.all(|column| column.parse::<f64>().is_ok())
    })?;
    let columns: Vec<&str> = line.split_whitespace().collect();
    if program.ends_with("_lat") {
        // Bytes, iterations, then least, greatest and typical time, in microseconds.
        return Some(format!("{} us", columns.get(4)?));
    }
    // Bytes, iterations, then peak and average in MB/s (2^20 bytes), and messages in M/s.
    let bandwidth: f64 = columns.get(3)?.parse().ok()?;
    Some(format!(
        "{:.2} GB/s, {} M/s",
        bandwidth * f64::from(1 << 20) / 1e9,
        columns.get(4)?
    ))
}

/// The figures of several runs: the middle one, by its first number.
pub fn of_all(figures: &[String]) -> &str {
    let first = |figure: &String| {
        let number = figure.split_whitespace().next();
        number.and_then(|number| number.parse::<f64>().ok())
    };
    let mut sorted: Vec<&String> = figures.iter().collect();
    sorted.sort_by(|a, b| first(a).unwrap_or(0.0).total_cmp(&first(b).unwrap_or(0.0)));
    sorted
        .get(sorted.len() / 2)
        .map_or("", |figure| figure.as_str())
}
