//! What a node has, whether it can have a copy, and the copy.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ChildStdin;
use std::time::Duration;

use tar::{Builder, Header};

use super::connection::{Connection, quoted, succeeded};
use super::nodes::Node;
use super::problem::Problem;
use crate::dist::manifest::{FILE, File, Manifest};

/// How long a copy may take.
const DEADLINE: Duration = Duration::from_secs(60 * 60);
/// What the marker in a node's folder holds: the form of the folder.
const LAYOUT: &str = "1";
/// What is ours in a copy, beside the manifest's files: how a program runs there, and the hashes.
pub const OURS: &str = "flash/";
const RUN: &str = "flash/run";
const SUMS: &str = "flash/sums";
/// So many characters of a commit's hash name it to people.
const SHORT: usize = 12;
/// File systems give files whole blocks; folders and what is ours take some, too (KiB).
const BLOCK: u64 = 4;
const BESIDE: u64 = 1024;

/// Whether programs of the manifest can run on a machine that answers so.
pub fn check_machine(said: &[String], node: &Node, manifest: &Manifest) -> Result<(), Problem> {
    for line in said {
        let (word, value) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "lacks" => return Err(Problem::Lacks(value.into())),
            "machine" => {
                let processor = manifest.target.split('-').next().unwrap_or_default();
                let needed = format!("Linux {processor}");
                if value != needed {
                    let found = value.into();
                    return Err(Problem::Machine { found, needed });
                }
            }
            "glibc" => {
                let (found, needed) = (value.to_owned(), manifest.glibc.clone());
                // None is older than all.
                if version(&found) < version(&needed) {
                    return Err(Problem::Glibc { found, needed });
                }
            }
            "owner" => check_owner(value, node)?,
            _ => return Err(Problem::Answer(line.clone())),
        }
    }
    Ok(())
}

/// Whether a node's folder is ours, or none yet.
pub fn check_owner(owner: &str, node: &Node) -> Result<(), Problem> {
    let folder = node.folder.clone();
    match owner {
        "none" | LAYOUT => Ok(()),
        "other" => Err(Problem::Other { folder }),
        found => Err(Problem::Layout {
            folder,
            found: found.into(),
        }),
    }
}

/// The numbers of a version such as `2.36`.
fn version(text: &str) -> Vec<u32> {
    let numbers = text.split('.').map(|part| part.parse().ok());
    numbers.collect::<Option<_>>().unwrap_or_default()
}

/// What is in a node's folder, and how much room there is.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Present {
    /// The version and the commit of the copy there.
    pub version: Option<String>,
    /// The hash of each file, by its path.
    hashes: HashMap<String, String>,
    free_kib: u64,
}

impl Present {
    pub fn read(said: &[String]) -> Result<Self, Problem> {
        let mut present = Self::default();
        for line in said {
            let (word, value) = line.split_once(' ').unwrap_or((line, ""));
            let answer = || Problem::Answer(line.clone());
            match word {
                // One that is not understood is replaced, too.
                "manifest" => present.version = Some(named(serde_json::from_str(value).ok())),
                "file" => {
                    let (hash, path) = value.split_once(' ').ok_or_else(answer)?;
                    present.hashes.insert(path.into(), hash.into());
                }
                "free" => present.free_kib = value.parse().map_err(|_| answer())?,
                _ => return Err(answer()),
            }
        }
        Ok(present)
    }

    /// The files that the node does not have, or has otherwise.
    pub fn changed<'m>(&self, manifest: &'m Manifest) -> Result<Vec<&'m File>, Problem> {
        let files = manifest.files.iter();
        let is_there = |file: &&File| self.hashes.get(&file.path) == Some(&file.sha256);
        let changed = Vec::from_iter(files.filter(|file| !is_there(file)));
        let blocks = changed.iter().map(|file| file.bytes.div_ceil(BLOCK << 10));
        let (free, needed) = (self.free_kib, blocks.sum::<u64>() * BLOCK + BESIDE);
        match free < needed {
            true => Err(Problem::Full { free, needed }),
            false => Ok(changed),
        }
    }
}

/// A manifest's version and the beginning of its commit.
pub fn named(manifest: Option<Manifest>) -> String {
    let Some(Manifest {
        version, commit, ..
    }) = manifest
    else {
        return "of unknown version".into();
    };
    let (hash, dirty) = match commit.split_once('-') {
        Some((hash, words)) => (hash, format!("-{words}")),
        None => (&*commit, String::new()),
    };
    let hash = hash.get(..SHORT).unwrap_or(hash);
    format!("{version} ({hash}{dirty})")
}

/// Sends what has changed to a node, where it takes its place with all that has not.
pub fn send(
    connection: &Connection,
    from: &Path,
    manifest: &Manifest,
    changed: &[&File],
) -> Result<(), Problem> {
    let paths = changed
        .iter()
        .map(|file| (file.path.clone(), file.executable));
    let paths = Vec::from_iter(paths);
    let ours = [(RUN, run_script(&connection.node)), (SUMS, sums(manifest))];
    let from = PathBuf::from(from);
    let write = move |stdin: ChildStdin| {
        // If the node takes no more, its status says why. If a file changes meanwhile, its hash is wrong there.
        let _ = pack(&from, &paths, &ours, stdin);
    };
    succeeded(connection.call("receive", write, DEADLINE)?).map(drop)
}

/// The archive: some files of a folder, its manifest, and what is ours.
fn pack(
    folder: &Path,
    paths: &[(String, bool)],
    ours: &[(&str, String)],
    to: impl Write,
) -> io::Result<()> {
    let mut archive = Builder::new(to);
    let mut append = |path: &str, executable, bytes: &[u8]| {
        let mut header = Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(if executable { 0o755 } else { 0o644 });
        archive.append_data(&mut header, path, bytes)
    };
    for (path, text) in ours {
        append(path, *path == RUN, text.as_bytes())?;
    }
    append(FILE, false, &fs::read(folder.join(FILE))?)?;
    for (path, executable) in paths {
        append(path, *executable, &fs::read(folder.join(path))?)?;
    }
    archive.into_inner()?.flush()
}

/// All files of a manifest, as `sha256sum` reads them.
fn sums(manifest: &Manifest) -> String {
    let mut sums = String::new();
    for File { path, sha256, .. } in &manifest.files {
        // Writing to a String cannot fail.
        let _ = writeln!(sums, "{sha256}  {path}");
    }
    sums
}

/// A script that runs a program of the copy with the node's settings. What the command line says goes before them.
fn run_script(node: &Node) -> String {
    let mut script = String::from(
        "#!/bin/sh\n# Runs a program of this copy with the settings of this node: run PROGRAM ARGUMENTS\n\
         has() { for word; do case $word in \"$option\" | \"$option\"=*) return 0 ;; esac; done; return 1; }\n\
         program=$1\nshift\n",
    );
    for (name, value) in &node.environment {
        let value = quoted(value);
        let _ = writeln!(script, "{name}={value}\nexport {name}");
    }
    let gpu = node
        .gpu
        .map(|gpu| [("--on", "gpu".to_owned()), ("--gpu", gpu.to_string())]);
    let nic = node.nic.clone().map(|nic| ("--nic", nic));
    let gid = node.gid_index.map(|gid| ("--gid-index", gid.to_string()));
    for (option, value) in gpu.into_iter().flatten().chain(nic).chain(gid) {
        let _ = writeln!(
            script,
            "option={option}\nhas \"$@\" || set -- \"$@\" {option} {value}"
        );
    }
    script + "exec \"${0%/*}/../bin/$program\" \"$@\"\n"
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;
    use crate::dist::manifest::sha256;

    fn manifest(files: &[(&str, &str)]) -> Manifest {
        let files = files.iter().map(|(path, content)| File {
            path: (*path).into(),
            bytes: content.len() as u64,
            sha256: sha256(content.as_bytes()),
            executable: path.starts_with("bin/"),
        });
        Manifest::sample(files.collect())
    }

    fn node() -> Node {
        "a".parse().unwrap()
    }

    #[test]
    fn a_machine_is_checked_before_anything_is_written() {
        let manifest = manifest(&[]);
        let good = ["machine Linux x86_64", "glibc 2.34", "owner none"];
        let check = |word: &str, line: &str| {
            let lines = good.iter().filter(|line| !line.starts_with(word));
            let lines = lines.chain([&line]).map(|line| (*line).to_owned());
            let checked = check_machine(&Vec::from_iter(lines), &node(), &manifest);
            checked.map_err(|error| error.to_string())
        };
        for (word, line) in [
            ("machine", good[0]),
            ("glibc", "glibc 2.100"),
            ("glibc", "glibc 3"),
            ("owner", "owner 1"),
        ] {
            assert_eq!(check(word, line), Ok(()), "{line}");
        }
        for (word, line, words) in [
            (
                "machine",
                "machine Linux aarch64",
                "it is Linux aarch64, and the programs are for Linux x86_64",
            ),
            (
                "glibc",
                "glibc 2.9",
                "its glibc is 2.9, and the programs need 2.34",
            ),
            ("glibc", "glibc ", "its glibc is , "),
            ("owner", "owner other", "warpbell-flash is not a copy"),
            ("owner", "owner 2", "has the layout 2 of another version"),
            ("lacks", "lacks flock", "it lacks flock"),
            ("more", "more of it", "\"more of it\""),
        ] {
            let problem = check(word, line).unwrap_err();
            assert!(problem.contains(words), "{line}: {problem}");
        }
    }

    #[test]
    fn only_what_differs_is_sent() {
        let manifest = manifest(&[("bin/a", "a"), ("bin/b", "b"), ("c", "c")]);
        let (a, other) = (sha256(b"a"), sha256(b"other"));
        let said = [
            format!("file {a} bin/a"),
            format!("file {other} bin/b"),
            format!("file {other} unknown"),
            "manifest {\"schema\": 7}".into(),
            "free 1032".into(),
        ];
        let present = Present::read(&said).unwrap();
        assert_eq!(present.version.as_deref(), Some("of unknown version"));
        let changed = present.changed(&manifest).unwrap();
        let changed = Vec::from_iter(changed.iter().map(|file| &*file.path));
        assert_eq!(changed, ["bin/b", "c"]);
        // Two blocks, and what is beside them.
        let present = Present {
            free_kib: 1031,
            ..present
        };
        let full = present.changed(&manifest).unwrap_err().to_string();
        assert_eq!(full, "it has 1031 KiB free, and the copy needs 1032 KiB");
        for line in ["free much", "file x", "what"] {
            assert!(matches!(
                Present::read(&[line.into()]),
                Err(Problem::Answer(_))
            ));
        }
    }

    #[test]
    fn a_version_has_a_short_name() {
        let commit = "98d523574c23b427e4ce24c2bd7cb41c6d5ec2a2";
        for (commit, expected) in [
            (commit.to_owned(), "0.1.0 (98d523574c23)"),
            (format!("{commit}-dirty"), "0.1.0 (98d523574c23-dirty)"),
            ("one".to_owned(), "0.1.0 (one)"),
        ] {
            let manifest = Manifest {
                commit,
                ..manifest(&[])
            };
            assert_eq!(named(Some(manifest)), expected);
        }
        assert_eq!(named(None), "of unknown version");
    }

    /// A program that prints its arguments and a variable, below a folder, and the script for a node.
    fn ran(node: &Node, arguments: &[&str]) -> String {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("bin/show", "#!/bin/sh\necho \"$@\" \"$SAID\"\n".to_owned()),
            (RUN, run_script(node)),
        ] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        let mut command = Command::new("sh");
        command
            .arg(folder.path().join(RUN))
            .arg("show")
            .args(arguments);
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim_end().into()
    }

    #[test]
    fn a_program_gets_the_nodes_settings_unless_the_command_line_has_its_own() {
        assert_eq!(ran(&node(), &["x  y"]), "x  y");
        let node = Node {
            gpu: Some(1),
            nic: Some("mlx5_0".into()),
            gid_index: Some(3),
            environment: [("SAID".into(), "it's $1".into())].into(),
            ..node()
        };
        let all = "a --on gpu --gpu 1 --nic mlx5_0 --gid-index 3 it's $1";
        assert_eq!(ran(&node, &["a"]), all);
        let own = "--nic=soft --on cpu --gpu 1 --gid-index 3 it's $1";
        assert_eq!(ran(&node, &["--nic=soft", "--on", "cpu"]), own);
    }

    #[test]
    fn an_archive_has_what_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("bin")).unwrap();
        for path in ["bin/a", FILE] {
            fs::write(folder.path().join(path), path).unwrap();
        }
        let mut bytes = Vec::new();
        let ours = [(RUN, "run it".to_owned()), (SUMS, "sums".to_owned())];
        pack(folder.path(), &[("bin/a".into(), true)], &ours, &mut bytes).unwrap();
        let mut archive = tar::Archive::new(&*bytes);
        let entries = archive.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            let path = entry.path().unwrap().to_string_lossy().into_owned();
            (path, entry.header().mode().unwrap())
        });
        let expected = [(RUN, 0o755), (SUMS, 0o644), (FILE, 0o644), ("bin/a", 0o755)];
        let expected = expected.map(|(path, mode)| (path.to_owned(), mode));
        assert_eq!(Vec::from_iter(entries), expected);
    }
}
