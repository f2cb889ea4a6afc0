//! The folder that is copied, and its programs.

use std::fs;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::copy::OURS;
use super::nodes::is_word;
use crate::DOCTOR;
use crate::dist::manifest::{File, Manifest, ManifestError};
use crate::launch::LAUNCHER;

/// Why a folder cannot be copied, or has no such program.
#[derive(Debug, Error)]
pub enum SourceError {
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error("the manifest names {0:?}, which a node's shell would take for something else")]
    Path(String),
    #[error("{} has no program {program}; it has {has}", folder.display())]
    Program {
        folder: PathBuf,
        program: String,
        has: String,
    },
}

/// A folder with a manifest.
#[derive(Debug)]
pub struct Source {
    pub folder: PathBuf,
    pub manifest: Manifest,
}

impl Source {
    /// Reads the manifest, and looks whether all files are there. Their hashes are compared where they arrive.
    pub fn open(folder: &Path) -> Result<Self, SourceError> {
        let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.into());
        let manifest = Manifest::read(&folder)?;
        for file in &manifest.files {
            let File { path, bytes, .. } = file.clone();
            // Ours have names of their own there.
            if !is_word(&path, "/_.+-") || path.starts_with(OURS) {
                return Err(SourceError::Path(path));
            }
            let source = folder.join(&path);
            let found = match fs::metadata(&source) {
                Ok(found) => found.len(),
                Err(error) => {
                    let (path, source) = (source, error);
                    return Err(ManifestError::Io { path, source }.into());
                }
            };
            if found != bytes {
                let listed = bytes;
                return Err(ManifestError::Size {
                    path,
                    listed,
                    found,
                }
                .into());
            }
        }
        let source = Self { folder, manifest };
        for needed in [LAUNCHER, DOCTOR] {
            source.program(needed)?;
        }
        Ok(source)
    }

    /// A program's path below `bin`, by this path or by its name; of several with a name, the first.
    pub fn program(&self, name: &str) -> Result<&str, SourceError> {
        let files = self.manifest.files.iter().filter(|file| file.executable);
        let programs = Vec::from_iter(files.filter_map(|file| file.path.strip_prefix("bin/")));
        let has_name = |program: &&&str| program.rsplit('/').next() == Some(name);
        let found = programs.iter().find(|program| **program == name);
        match found.or_else(|| programs.iter().find(has_name)) {
            Some(program) => Ok(program),
            None => Err(SourceError::Program {
                folder: self.folder.clone(),
                program: name.into(),
                has: programs.join(", "),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::dist::manifest::files;

    /// A folder with such programs, and a text.
    fn sample(programs: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, mode) in programs
            .iter()
            .map(|path| (*path, 0o755))
            .chain([("note", 0o644)])
        {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "abc").unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        }
        let manifest = Manifest::sample(files(folder.path()).unwrap());
        manifest.write(folder.path()).unwrap();
        folder
    }

    const BOTH: [&str; 2] = ["bin/warpbell-launch", "bin/warpbell-doctor"];

    #[test]
    fn a_program_is_found_by_its_path_or_its_name() {
        let more = ["bin/papers/allreduce", "bin/gallery/allreduce", "bin/demo"];
        let folder = sample(&[&BOTH[..], &more].concat());
        let source = Source::open(folder.path()).unwrap();
        for (name, expected) in [
            ("demo", "demo"),
            ("allreduce", "gallery/allreduce"),
            ("papers/allreduce", "papers/allreduce"),
        ] {
            assert_eq!(source.program(name).unwrap(), expected);
        }
        for name in ["gallery", "note", "reduce", ""] {
            let error = source.program(name).unwrap_err().to_string();
            let has = "it has demo, gallery/allreduce, papers/allreduce, warpbell-doctor, ";
            assert!(error.contains(has), "{error}");
        }
    }

    #[test]
    fn a_folder_without_what_it_needs_is_refused() {
        let error =
            |folder: &tempfile::TempDir| Source::open(folder.path()).unwrap_err().to_string();
        let folder = sample(&BOTH[1..]);
        assert!(error(&folder).contains("has no program warpbell-launch"));
        for odd in ["a b", "$HOME", "-x", "flash/run"] {
            let folder = sample(&[&BOTH[..], &[odd]].concat());
            assert!(error(&folder).contains(&format!("names {odd:?}")), "{odd}");
        }
        let folder = sample(&BOTH);
        fs::write(folder.path().join("note"), "four").unwrap();
        assert_eq!(error(&folder), "note has 4 bytes; the manifest says 3");
        fs::remove_file(folder.path().join("note")).unwrap();
        assert!(error(&folder).contains("note: No such file"));
        fs::remove_file(folder.path().join("manifest.json")).unwrap();
        assert!(error(&folder).contains("manifest.json: No such file"));
    }
}
