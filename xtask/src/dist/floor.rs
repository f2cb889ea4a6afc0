//! What a program needs of the machine that starts it: a glibc that is new enough, and no other library.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::{Dyn, FileHeader};
use object::{Endianness, StringTable};
use thiserror::Error;

use super::Target;

/// Libraries that every machine with glibc has beside the dynamic linker: those of glibc and of GCC, which unwinds.
const EVERYWHERE: [&str; 4] = ["libc.so.6", "libgcc_s.so.1", "libm.so.6", "libpthread.so.0"];
/// What glibc's versions of symbols begin with.
const GLIBC: &str = "GLIBC_";

/// A version of glibc, as the oldest one that will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Floor {
    major: u32,
    minor: u32,
}

/// Why a program starts on no supported machine.
#[derive(Debug, Error)]
pub enum FloorError {
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is no program: {source}", path.display())]
    Elf {
        path: PathBuf,
        source: object::read::Error,
    },
    #[error("{} is no program for {}, but for ELF machine {found}", path.display(), target.machine())]
    OtherMachine {
        path: PathBuf,
        target: Target,
        found: u16,
    },
    #[error("{} needs glibc {needs}; the programs are to run with {oldest}, so build on an older distribution", path.display())]
    TooNew {
        path: PathBuf,
        needs: String,
        oldest: Floor,
    },
    #[error("{} needs the library {library}, which not every machine has", path.display())]
    Library { path: PathBuf, library: String },
}

/// What a program asks the dynamic linker for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Needs {
    /// The processor's number.
    machine: u16,
    libraries: Vec<String>,
    /// Versions of glibc's symbols, without [`GLIBC`].
    versions: Vec<String>,
}

impl Floor {
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// A version such as `2.34` or `2.2.5`, of which the third number does not matter.
    fn read(version: &str) -> Option<Self> {
        let mut numbers = version.split('.').map(|number| number.parse().ok());
        Some(Self::new(numbers.next()??, numbers.next()??))
    }
}

impl fmt::Display for Floor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The oldest glibc with which a program starts.
///
/// # Errors
/// A program that needs one newer than `oldest`, or a library that may be missing.
pub fn of(path: &Path, target: Target, oldest: Floor) -> Result<Floor, FloorError> {
    let content = fs::read(path).map_err(|source| FloorError::Read {
        path: path.into(),
        source,
    })?;
    let needs = needs(&content).map_err(|source| FloorError::Elf {
        path: path.into(),
        source,
    })?;
    needs.floor(path, target, oldest)
}

impl Needs {
    fn floor(&self, path: &Path, target: Target, oldest: Floor) -> Result<Floor, FloorError> {
        if self.machine != target.elf() {
            return Err(FloorError::OtherMachine {
                path: path.into(),
                target,
                found: self.machine,
            });
        }
        let is_there = |library: &str| library == target.loader() || EVERYWHERE.contains(&library);
        let foreign = self.libraries.iter().find(|library| !is_there(library));
        if let Some(library) = foreign {
            return Err(FloorError::Library {
                path: path.into(),
                library: library.clone(),
            });
        }
        let mut floor = Floor::new(0, 0);
        for version in &self.versions {
            match Floor::read(version) {
                Some(version) if version <= oldest => floor = floor.max(version),
                // Names such as ABI_DT_RELR stand for features of newer ones.
                _ => {
                    return Err(FloorError::TooNew {
                        path: path.into(),
                        needs: version.clone(),
                        oldest,
                    });
                }
            }
        }
        Ok(floor)
    }
}

/// Reads a program's dynamic section, and the versions of the symbols that it imports.
fn needs(program: &[u8]) -> object::read::Result<Needs> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let header = FileHeader64::<Endianness>::parse(program)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, program)?;
    let mut needs = Needs {
        machine: header.e_machine(endian),
        ..Needs::default()
    };
    if let Some((entries, link)) = sections.dynamic(endian, program)? {
        let strings = sections.strings(endian, program, link)?;
        for entry in entries
            .iter()
            .filter(|entry| entry.tag(endian) == DT_NEEDED)
        {
            needs.libraries.push(text(entry.string(endian, strings)?));
        }
    }
    if let Some((mut files, link)) = sections.gnu_verneed(endian, program)? {
        let strings: StringTable<'_> = sections.strings(endian, program, link)?;
        while let Some((_, mut versions)) = files.next()? {
            while let Some(version) = versions.next()? {
                let version = text(version.name(endian, strings)?);
                needs
                    .versions
                    .extend(version.strip_prefix(GLIBC).map(str::to_owned));
            }
        }
    }
    Ok(needs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLDEST: Floor = Floor::new(2, 35);

    fn floor(libraries: &[&str], versions: &[&str]) -> Result<Floor, String> {
        let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let needs = Needs {
            machine: Target::X86.elf(),
            libraries: own(libraries),
            versions: own(versions),
        };
        needs
            .floor(Path::new("demo"), Target::X86, OLDEST)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_floor_is_the_highest_version_as_a_number() {
        let versions = ["2.2.5", "2.9", "2.34", "2.17"];
        assert_eq!(floor(&["libc.so.6"], &versions), Ok(Floor::new(2, 34)));
        assert_eq!(Floor::new(2, 34).to_string(), "2.34");
    }

    #[test]
    fn a_program_above_the_floor_is_named() {
        for version in ["2.36", "3.0", "ABI_DT_RELR"] {
            let error = floor(&[], &["2.34", version]).unwrap_err();
            assert!(
                error.starts_with(&format!("demo needs glibc {version};")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_library_that_may_be_missing_is_named() {
        let error = floor(&["libc.so.6", "libmlx5.so.1"], &[]).unwrap_err();
        assert!(
            error.starts_with("demo needs the library libmlx5.so.1"),
            "{error}"
        );
    }

    #[test]
    fn this_program_needs_a_c_library_and_a_text_is_no_program() {
        let own = needs(&fs::read("/proc/self/exe").unwrap()).unwrap();
        assert!(
            own.libraries.iter().any(|library| library == "libc.so.6"),
            "{own:?}"
        );
        assert!(
            own.versions.iter().any(|version| version == "2.2.5"),
            "{own:?}"
        );
        let refused =
            |path: &str, target| of(Path::new(path), target, OLDEST).unwrap_err().to_string();
        let text = refused("Cargo.toml", Target::X86);
        assert!(text.starts_with("Cargo.toml is no program: "), "{text}");
        let foreign = match Target::X86.elf() == own.machine {
            true => Target::Arm,
            false => Target::X86,
        };
        let other = refused("/proc/self/exe", foreign);
        assert!(
            other.contains(&format!("is no program for {}", foreign.machine())),
            "{other}"
        );
        let missing = refused("no such", Target::X86);
        assert!(missing.starts_with("no such: No such file"), "{missing}");
    }
}
