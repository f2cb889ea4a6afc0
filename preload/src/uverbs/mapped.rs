//! Whether the process may touch memory: what a kernel finds out when it pins it.

use std::fs::File;
use std::io::{self, BufRead, BufReader};

/// Whether each byte is mapped and may be read, and written where `is_written`.
pub fn is_mapped(start: u64, length: u64, is_written: bool) -> io::Result<bool> {
    covered(
        BufReader::new(File::open("/proc/self/maps")?),
        start,
        length,
        is_written,
    )
}

/// The same by a list of mappings in the order of their addresses, a line each: `start-end rwxp`, in hexadecimal.
fn covered(maps: impl BufRead, start: u64, length: u64, is_written: bool) -> io::Result<bool> {
    let Some(end) = start.checked_add(length) else {
        return Ok(false);
    };
    let mut missing = start;
    for line in maps.lines() {
        let line = line?;
        let Some((from, to, rights)) = mapping(&line) else {
            continue;
        };
        if missing >= end {
            break;
        }
        if to <= missing {
            continue;
        }
        let allowed = rights.starts_with("rw") || rights.starts_with('r') && !is_written;
        if from > missing || !allowed {
            return Ok(false);
        }
        missing = to;
    }
    Ok(missing >= end)
}

fn mapping(line: &str) -> Option<(u64, u64, &str)> {
    let mut words = line.split_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let [from, to] = [from, to].map(|number| u64::from_str_radix(number, 16));
    Some((from.ok()?, to.ok()?, words.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_may_lie_in_several_mappings_without_a_gap() {
        let maps =
            "1000-2000 rw-p 0 0:0 0 [heap]\n2000-3000 r--p\n4000-5000 rw-p\n5000-6000 ---p\n";
        let read = |start, length| covered(maps.as_bytes(), start, length, false).unwrap();
        let written = |start, length| covered(maps.as_bytes(), start, length, true).unwrap();
        assert!(read(0x1000, 0x2000) && read(0x1fff, 2) && read(0x2fff, 1) && read(0x4000, 0x1000));
        assert!(!read(0xfff, 2) && !read(0x2fff, 2) && !read(0x3000, 1) && !read(0x5000, 1));
        assert!(!read(0x5fff, 1) && !read(0x6000, 1) && !read(u64::MAX, 2));
        assert!(written(0x1000, 0x1000) && written(0x4fff, 1));
        assert!(!written(0x1fff, 2) && !written(0x2000, 1) && !written(0x4fff, 2));
    }
}
