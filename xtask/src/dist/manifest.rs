//! What is in a distribution: its manifest, which lists each file with its size and its hash.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// The manifest's name in its folder.
pub const FILE: &str = "manifest.json";
/// The version of its form.
pub const SCHEMA: u32 = 1;

/// Why a manifest was not written, or a folder is not what its manifest says.
#[derive(Debug, Error)]
pub enum ManifestError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Json {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error("the manifest has the form {found}; this program reads form {SCHEMA}")]
    Schema { found: u32 },
    #[error("the manifest names {0}, which is not below its folder")]
    Outside(String),
    #[error("{path} has {found} bytes; the manifest says {listed}")]
    Size {
        path: String,
        listed: u64,
        found: u64,
    },
    #[error("{path} is not the file of the manifest: its SHA-256 differs")]
    Hash { path: String },
    #[error("{} is neither a file nor a folder", .0.display())]
    Kind(PathBuf),
    #[error("{} has a name that is no UTF-8", .0.display())]
    Name(PathBuf),
}

/// What is in a distribution's folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`SCHEMA`].
    pub schema: u32,
    pub name: String,
    pub version: String,
    /// The commit that it was built from; `-dirty` stands behind it if files had changed since.
    pub commit: String,
    /// What Rust calls the machine that the programs run on.
    pub target: String,
    /// The oldest glibc with which all programs start, such as `2.34`.
    pub glibc: String,
    /// All files but the manifest, sorted by path.
    pub files: Vec<File>,
}

/// A file of a distribution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Relative to the folder, with `/` between names.
    pub path: String,
    pub bytes: u64,
    /// In hexadecimal.
    pub sha256: String,
    pub executable: bool,
}

impl Manifest {
    /// Reads the manifest of a folder. Whether the files are there, [`check`](Self::check) says.
    ///
    /// # Errors
    /// A folder without one; one in another form; a path that leaves the folder.
    pub fn read(folder: &Path) -> Result<Self, ManifestError> {
        let path = folder.join(FILE);
        let text = fs::read_to_string(&path).map_err(at(&path))?;
        let json = |source| ManifestError::Json {
            path: path.clone(),
            source,
        };
        // The form goes first: another one may have other fields.
        #[derive(Deserialize)]
        struct Form {
            schema: u32,
        }
        let Form { schema: found } = serde_json::from_str(&text).map_err(json)?;
        if found != SCHEMA {
            return Err(ManifestError::Schema { found });
        }
        let manifest: Self = serde_json::from_str(&text).map_err(json)?;
        match manifest.files.iter().find(|file| !is_below(&file.path)) {
            Some(file) => Err(ManifestError::Outside(file.path.clone())),
            None => Ok(manifest),
        }
    }

    /// Writes it into its folder.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), ManifestError> {
        let path = folder.join(FILE);
        let text = serde_json::to_string_pretty(self).map_err(|source| ManifestError::Json {
            path: path.clone(),
            source,
        })?;
        fs::write(&path, text + "\n").map_err(at(&path))
    }

    /// Checks that a folder has all files of the manifest, unchanged. Files beside them are of no interest.
    ///
    /// # Errors
    /// The first file that is missing or differs.
    pub fn check(&self, folder: &Path) -> Result<(), ManifestError> {
        for file in &self.files {
            let found = File::of(folder, &file.path)?;
            let path = file.path.clone();
            if found.bytes != file.bytes {
                let (listed, found) = (file.bytes, found.bytes);
                return Err(ManifestError::Size {
                    path,
                    listed,
                    found,
                });
            }
            if found.sha256 != file.sha256 {
                return Err(ManifestError::Hash { path });
            }
        }
        Ok(())
    }

    /// The sum of the files' sizes, in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// All files of a folder but its manifest, sorted by path.
///
/// # Errors
/// What cannot be read; links, and names that are no UTF-8.
pub fn files(folder: &Path) -> Result<Vec<File>, ManifestError> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(inner) = folders.pop() {
        for entry in fs::read_dir(&inner).map_err(at(&inner))? {
            let entry = entry.map_err(at(&inner))?;
            let path = entry.path();
            let kind = entry.file_type().map_err(at(&path))?;
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                let name = path.strip_prefix(folder).unwrap_or(&path).to_str();
                let name = name.ok_or_else(|| ManifestError::Name(path.clone()))?;
                if name != FILE {
                    found.push(File::of(folder, name)?);
                }
            } else {
                return Err(ManifestError::Kind(path));
            }
        }
    }
    found.sort_unstable_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

impl File {
    /// A file of a folder, as it is now.
    fn of(folder: &Path, name: &str) -> Result<Self, ManifestError> {
        let path = folder.join(name);
        let content = fs::read(&path).map_err(at(&path))?;
        let mode = fs::metadata(&path).map_err(at(&path))?.permissions().mode();
        Ok(Self {
            path: name.into(),
            bytes: content.len() as u64,
            sha256: sha256(&content),
            executable: mode & 0o100 != 0,
        })
    }
}

/// The SHA-256 of bytes, in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a path stays in the folder that it is relative to.
fn is_below(path: &str) -> bool {
    let mut parts = Path::new(path).components();
    !path.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)))
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> ManifestError {
    let path = path.to_owned();
    |source| ManifestError::Io { path, source }
}

#[cfg(test)]
impl Manifest {
    /// A manifest for tests, of these files.
    pub fn sample(files: Vec<File>) -> Self {
        Self {
            schema: SCHEMA,
            name: "warpbell".into(),
            version: "0.1.0".into(),
            commit: "0123abc".into(),
            target: "x86_64-unknown-linux-gnu".into(),
            glibc: "2.34".into(),
            files,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with a program, a text, and their manifest.
    fn sample(folder: &Path) -> Manifest {
        fs::create_dir(folder.join("bin")).unwrap();
        fs::write(folder.join("bin/demo"), "abc").unwrap();
        fs::set_permissions(folder.join("bin/demo"), PermissionsExt::from_mode(0o755)).unwrap();
        fs::write(folder.join("README.md"), "").unwrap();
        fs::set_permissions(folder.join("README.md"), PermissionsExt::from_mode(0o644)).unwrap();
        let manifest = Manifest::sample(files(folder).unwrap());
        manifest.write(folder).unwrap();
        manifest
    }

    #[test]
    fn a_folder_is_listed_by_path_with_sizes_and_hashes() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = sample(folder.path());
        assert_eq!(Manifest::read(folder.path()).unwrap(), manifest);
        manifest.check(folder.path()).unwrap();
        assert_eq!(manifest.bytes(), 3);
        // The hash of "abc" is an example of FIPS 180-2.
        let expected = [
            ("README.md", 0, false, "e3b0c442"),
            ("bin/demo", 3, true, "ba7816bf"),
        ];
        let found = manifest.files.iter().map(|file| {
            let path: &str = &file.path;
            (path, file.bytes, file.executable, &file.sha256[..8])
        });
        assert_eq!(Vec::from_iter(found), expected);
        // Listed again, the manifest is no file of its own.
        assert_eq!(files(folder.path()).unwrap(), manifest.files);
    }

    #[test]
    fn a_changed_or_missing_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let manifest = sample(folder.path());
        let check = || manifest.check(folder.path()).unwrap_err().to_string();
        fs::write(folder.path().join("bin/demo"), "abd").unwrap();
        assert!(check().starts_with("bin/demo is not the file"));
        fs::write(folder.path().join("bin/demo"), "abcd").unwrap();
        assert_eq!(check(), "bin/demo has 4 bytes; the manifest says 3");
        fs::remove_file(folder.path().join("bin/demo")).unwrap();
        assert!(check().contains("bin/demo: No such file"), "{}", check());
    }

    #[test]
    fn another_form_and_a_path_outside_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut manifest = sample(folder.path());
        let read = || Manifest::read(folder.path()).unwrap_err();
        for outside in ["../demo", "/bin/sh", "bin/../../demo", ""] {
            manifest.files[1].path = outside.into();
            manifest.write(folder.path()).unwrap();
            assert!(matches!(read(), ManifestError::Outside(path) if path == outside));
        }
        fs::write(folder.path().join(FILE), r#"{"schema": 2}"#).unwrap();
        assert!(matches!(read(), ManifestError::Schema { found: 2 }));
        fs::write(folder.path().join(FILE), "{}").unwrap();
        assert!(matches!(read(), ManifestError::Json { .. }));
        fs::remove_file(folder.path().join(FILE)).unwrap();
        assert!(read().to_string().contains("manifest.json: No such file"));
    }
}
