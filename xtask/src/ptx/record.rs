//! The record: what each kernel costs, as a table that a person can read and compare.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use super::assemble::Resources;
use super::text::InstructionCounts;

const HEADER: &str = "\
# What each kernel costs on each target; written by `cargo xtask ptx --renew-record`, which says what changed.
#
# registers, stack, spill: of a thread, as ptxas gives them; stack and spill are bytes of local memory
# fences: those that order what comes before (release), after (acquire), both (acq_rel), all (sc), in the text
# stores, atomics: to global memory, doorbells among the stores, in the text
# text: instructions of PTX, with those of the functions that are called
";

/// The costs of a kernel on a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    pub resources: Resources,
    pub counts: InstructionCounts,
}

impl Costs {
    /// Whether a thread of this kernel touches local memory.
    pub fn uses_local_memory(&self) -> bool {
        self.resources.stack > 0 || self.resources.spills > 0 || self.counts.local > 0
    }

    fn columns(&self) -> [u32; COLUMNS.len()] {
        let Resources {
            registers,
            stack,
            spills,
        } = self.resources;
        let InstructionCounts {
            release,
            acquire,
            acq_rel,
            sc,
            stores,
            atomics,
            instructions,
            local: _,
            ors: _,
        } = self.counts;
        [
            registers,
            stack,
            spills,
            release,
            acquire,
            acq_rel,
            sc,
            stores,
            atomics,
            instructions,
        ]
    }
}

const COLUMNS: [&str; 10] = [
    "registers",
    "stack",
    "spill",
    "release",
    "acquire",
    "acq_rel",
    "sc",
    "stores",
    "atomics",
    "text",
];

/// The costs of all kernels, by kernel and target.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Record(BTreeMap<(String, String), [u32; COLUMNS.len()]>);

impl Record {
    /// Adds a kernel; whether it was not there yet.
    pub fn insert(&mut self, kernel: &str, target: &str, costs: &Costs) -> bool {
        let columns = costs.columns();
        self.0
            .insert((kernel.into(), target.into()), columns)
            .is_none()
    }

    /// What ptxas says of a kernel, if it is recorded.
    pub fn resources(&self, kernel: &str, target: &str) -> Option<Resources> {
        let columns = self.0.get(&(kernel.into(), target.into()))?;
        let [registers, stack, spills, ..] = *columns;
        Some(Resources {
            registers,
            stack,
            spills,
        })
    }

    /// Reads a record; a line that is none is an error.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut record = Self::default();
        let title = |line: &&str| !line.starts_with('#') && !line.starts_with("kernel ");
        for line in text.lines().filter(title) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [kernel, target, numbers @ ..] = &words[..] else {
                return Err(format!("not a line of the record: {line}"));
            };
            let numbers: Result<Vec<u32>, _> = numbers.iter().map(|n| n.parse()).collect();
            let numbers = numbers.ok().and_then(|numbers| numbers.try_into().ok());
            let Some(numbers) = numbers else {
                return Err(format!("not a line of the record: {line}"));
            };
            record
                .0
                .insert(((*kernel).into(), (*target).into()), numbers);
        }
        Ok(record)
    }

    /// A line for each difference to what is found now.
    pub fn changes(&self, now: &Self) -> Vec<String> {
        let mut changes = Vec::new();
        for (key @ (kernel, target), costs) in &now.0 {
            let place = format!("{kernel} on {target}");
            let Some(before) = self.0.get(key) else {
                changes.push(format!("{place}: is new"));
                continue;
            };
            for ((column, before), after) in COLUMNS.iter().zip(before).zip(costs) {
                if before != after {
                    changes.push(format!("{place}: {column} {before} → {after}"));
                }
            }
        }
        for key @ (kernel, target) in self.0.keys() {
            if !now.0.contains_key(key) {
                changes.push(format!("{kernel} on {target}: is gone"));
            }
        }
        changes
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEADER)?;
        line(f, "kernel", "target", &COLUMNS)?;
        for ((kernel, target), costs) in &self.0 {
            line(f, kernel, target, costs)?;
        }
        Ok(())
    }
}

/// Writes a line of a table.
fn line(
    f: &mut fmt::Formatter<'_>,
    kernel: &str,
    target: &str,
    columns: &[impl fmt::Display],
) -> fmt::Result {
    write!(f, "{kernel:<26} {target:<6}")?;
    for column in columns {
        write!(f, " {column:>9}")?;
    }
    writeln!(f)
}

/// What each kernel costs as Rust-CUDA compiles it, beside what it costs as rustc does.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SideBySide {
    rustc: Record,
    rust_cuda: Record,
}

const HEADER_SIDE_BY_SIDE: &str = "\
# What each kernel costs as rustc compiles it, and as Rust-CUDA does: rustc/Rust-CUDA. Written by
# `cargo xtask ptx --compiler rust-cuda --source DIR --renew-record`; the columns are those of record.txt.
";

impl SideBySide {
    /// Both records of the kernels that the second one has.
    pub fn new(rustc: Record, rust_cuda: Record) -> Self {
        Self { rustc, rust_cuda }
    }

    /// Reads what was written; nothing where there is no file.
    ///
    /// # Errors
    /// A file that cannot be read, or a line that is none of a record.
    pub fn read(path: &Path) -> io::Result<Self> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            read => read?,
        };
        let part = |which: usize| {
            let word = |word: &str| word.split('/').nth(which).unwrap_or(word).to_owned();
            let line = |line: &str| match line.starts_with('#') {
                true => line.to_owned(),
                false => Vec::from_iter(line.split_whitespace().map(word)).join(" "),
            };
            Record::parse(&Vec::from_iter(text.lines().map(line)).join("\n"))
                .map_err(io::Error::other)
        };
        Ok(Self::new(part(0)?, part(1)?))
    }

    /// A line for each difference of Rust-CUDA's costs to what is found now.
    pub fn changes(&self, now: &Self) -> Vec<String> {
        self.rust_cuda.changes(&now.rust_cuda)
    }

    /// What each column comes to with Rust-CUDA, as a multiple of rustc's: the sums over all kernels that both have.
    pub fn ratios(&self) -> Vec<(&'static str, f64)> {
        let both = || {
            let known = |(key, costs)| Some((self.rustc.0.get(key)?, costs));
            self.rust_cuda.0.iter().filter_map(known)
        };
        let sum = |column: usize| {
            both().fold((0, 0), |(one, other), (rustc, costs)| {
                (one + rustc[column], other + costs[column])
            })
        };
        let columns = COLUMNS.iter().enumerate();
        let ratio = |(column, name): (usize, &&'static str)| {
            let (rustc, rust_cuda) = sum(column);
            (*name, f64::from(rust_cuda) / f64::from(rustc.max(1)))
        };
        columns.map(ratio).collect()
    }
}

impl fmt::Display for SideBySide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEADER_SIDE_BY_SIDE)?;
        line(f, "kernel", "target", &COLUMNS)?;
        for (key @ (kernel, target), costs) in &self.rust_cuda.0 {
            let rustc = self.rustc.0.get(key).copied().unwrap_or_default();
            let pairs = rustc.iter().zip(costs);
            let pairs = Vec::from_iter(pairs.map(|(one, other)| format!("{one}/{other}")));
            line(f, kernel, target, &pairs)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(registers: u32, release: u32) -> Costs {
        let mut costs = Costs::default();
        costs.resources.registers = registers;
        costs.counts.release = release;
        costs
    }

    #[test]
    fn is_read_as_it_was_written() {
        let mut record = Record::default();
        record.insert("b", "sm_90", &costs(40, 2));
        record.insert("a", "sm_80", &costs(255, 0));
        assert_eq!(Record::parse(&record.to_string()), Ok(record));
        for wrong in ["a", "a sm_80 1 2", "a sm_80 1 2 3 4 5 6 7 8 9 x"] {
            assert!(Record::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn gives_back_what_ptxas_said() {
        let mut whole = costs(40, 2);
        whole.resources.stack = 16;
        whole.resources.spills = 8;
        let mut record = Record::default();
        record.insert("a", "sm_90", &whole);
        assert_eq!(record.resources("a", "sm_90"), Some(whole.resources));
        assert_eq!(record.resources("a", "sm_80"), None);
        assert_eq!(record.resources("b", "sm_90"), None);
    }

    #[test]
    fn names_every_change() {
        let (mut before, mut now) = (Record::default(), Record::default());
        before.insert("gone", "sm_90", &costs(1, 1));
        before.insert("same", "sm_90", &costs(1, 1));
        before.insert("slower", "sm_90", &costs(40, 2));
        now.insert("new", "sm_90", &costs(1, 1));
        now.insert("same", "sm_90", &costs(1, 1));
        now.insert("slower", "sm_90", &costs(48, 3));
        let changes = before.changes(&now);
        let expected = [
            "new on sm_90: is new",
            "slower on sm_90: registers 40 → 48",
            "slower on sm_90: release 2 → 3",
            "gone on sm_90: is gone",
        ];
        assert_eq!(changes, expected);
        assert!(before.changes(&before).is_empty());
    }

    #[test]
    fn local_memory_is_a_stack_a_spill_or_an_access() {
        assert!(!costs(255, 9).uses_local_memory());
        let mut stack = Costs::default();
        stack.resources.stack = 8;
        let mut spill = Costs::default();
        spill.resources.spills = 4;
        let mut access = Costs::default();
        access.counts.local = 1;
        assert!([stack, spill, access].iter().all(Costs::uses_local_memory));
    }

    #[test]
    fn two_compilers_stand_side_by_side() {
        let (mut rustc, mut rust_cuda) = (Record::default(), Record::default());
        rustc.insert("a", "sm_90", &costs(40, 2));
        rustc.insert("b", "sm_90", &costs(10, 2));
        rust_cuda.insert("a", "sm_90", &costs(44, 2));
        let both = SideBySide::new(rustc, rust_cuda);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record");
        assert_eq!(SideBySide::read(&path).unwrap(), SideBySide::default());
        fs::write(&path, both.to_string()).unwrap();
        let read = SideBySide::read(&path).unwrap();
        assert_eq!(read.rust_cuda, both.rust_cuda);
        assert!(read.changes(&both).is_empty());
        assert_eq!(read.to_string(), both.to_string());
        let ratios = both.ratios();
        assert_eq!(ratios[0], ("registers", 1.1));
        assert_eq!(ratios[3], ("release", 1.0));
        fs::write(&path, "a sm_90 1/2\n").unwrap();
        assert!(SideBySide::read(&path).is_err());
    }

    /// Both compilers know the GPUs that have one-sided fences, which they call `sm_90` and `compute_90`.
    #[test]
    fn one_sided_fences_are_where_rustc_has_them() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../ptx/record-rust-cuda.txt");
        let both = SideBySide::read(Path::new(path)).unwrap();
        let release = COLUMNS.iter().position(|name| *name == "release").unwrap();
        let mut with = 0;
        for (key, costs) in &both.rust_cuda.0 {
            let [ours, theirs] = [&both.rustc.0[key], costs].map(|costs| costs[release] > 0);
            assert_eq!(ours, theirs, "{key:?}");
            with += u32::from(theirs);
        }
        assert!(with > 100, "{with}");
    }
}
