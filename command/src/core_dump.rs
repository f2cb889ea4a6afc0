//! The memory of a process that has ended, as the kernel or gdb dumped it.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use object::elf::{ET_CORE, FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, ReadCache};
use warpbell_host_init::live::{LiveError, Memory, Process};

/// Why a core dump is not read.
#[derive(Debug, thiserror::Error)]
pub enum CoreError {
    /// The file cannot be opened.
    #[error("cannot read {file}: {source}")]
    Open {
        /// Its name.
        file: String,
        /// What the system says.
        source: io::Error,
    },
    /// The file is not what a dump is.
    #[error("{file} is no core dump of a 64-bit process{why}")]
    NoCore {
        /// Its name.
        file: String,
        /// What does not fit, if that is known.
        why: String,
    },
    /// It has no queues, or not all of them.
    #[error("{file}: {source}")]
    Queues {
        /// Its name.
        file: String,
        /// What is missing.
        source: LiveError,
    },
}

/// A dump: which addresses lie where in the file.
struct Core {
    file: File,
    segments: Vec<(Range<u64>, u64)>,
}

impl Memory for Core {
    fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        let missing = || io::Error::new(ErrorKind::NotFound, "the dump does not hold it");
        let (mut address, mut into) = (address, into);
        // Memory that is whole may be in several segments.
        while !into.is_empty() {
            let mut segments = self.segments.iter();
            let (range, offset) = segments
                .find(|(range, _)| range.contains(&address))
                .ok_or_else(missing)?;
            let len = into.len().min((range.end - address) as usize);
            let (here, rest) = into.split_at_mut(len);
            self.file
                .read_exact_at(here, offset + (address - range.start))?;
            (address, into) = (address + len as u64, rest);
        }
        Ok(())
    }
}

/// The queues in a core dump.
///
/// # Errors
/// All of [`CoreError`].
pub fn open(path: &Path) -> Result<Process, CoreError> {
    let name = || path.display().to_string();
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (len, file) = opened.map_err(|source| CoreError::Open {
        file: name(),
        source,
    })?;
    let no_core = |why: String| CoreError::NoCore { file: name(), why };
    let segments = segments(&file).map_err(no_core)?;
    // A dump that was cut off still holds what comes first.
    let there = |(range, offset): (Range<u64>, u64)| {
        let bytes = (range.end - range.start).min(len.saturating_sub(offset));
        (bytes > 0).then_some((range.start..range.start + bytes, offset))
    };
    let segments: Vec<_> = segments.into_iter().filter_map(there).collect();
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for (range, _) in &segments {
        match ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => ranges.push(range.clone()),
        }
    }
    let core = Core { file, segments };
    let process = Process::of_dump(Box::new(core), &ranges);
    process.map_err(|source| CoreError::Queues {
        file: name(),
        source,
    })
}

/// The segments of a dump that were to be filled: their addresses, and their places in the file.
fn segments(file: &File) -> Result<Vec<(Range<u64>, u64)>, String> {
    let why = |error: object::Error| format!(": {error}");
    let data = ReadCache::new(file);
    let header = FileHeader64::<Endianness>::parse(&data).map_err(why)?;
    let endian = header.endian().map_err(why)?;
    if header.e_type(endian) != ET_CORE {
        return Err(", but another ELF file".into());
    }
    let headers = header.program_headers(endian, &data).map_err(why)?;
    let loaded = headers
        .iter()
        .filter(|header| header.p_type(endian) == PT_LOAD);
    let segments = loaded.filter_map(|header| {
        let start = header.p_vaddr(endian);
        let end = start.checked_add(header.p_filesz(endian))?;
        Some((start..end, header.p_offset(endian)))
    });
    Ok(segments.collect())
}
