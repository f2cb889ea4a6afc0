//! The archive: a folder as `.tar.xz`, the same bytes for the same files.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Commit, DistError, at, call, manifest};
use crate::workspace::clean_command;

/// The most that an archive may have, in bytes.
const MOST: u64 = 25_000_000;
/// How xz packs: with all of the folder in sight, because its programs have much in common.
const PACKING: [&str; 2] = ["--threads=1", "--lzma2=preset=6,dict=128MiB"];

/// Packs a folder into an archive beside it, and writes the archive's hash beside that.
pub(super) fn pack(folder: &Path, commit: &Commit) -> Result<PathBuf, DistError> {
    let name = folder.file_name().unwrap_or_default();
    let beside = |ending: &str| {
        let mut name = name.to_owned();
        name.push(ending);
        folder.with_file_name(name)
    };
    let (tarred, packed) = (beside(".tar"), beside(".tar.xz"));
    let mut tar = clean_command("tar", folder.parent().unwrap_or(folder));
    tar.args([
        "--format=gnu",
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
    ]);
    tar.args(["--mode=u=rwX,go=rX", &format!("--mtime=@{}", commit.time)]);
    tar.arg("-cf").arg(&tarred).arg(name);
    call(tar)?;
    let mut xz = clean_command("xz", folder);
    xz.arg("--force").args(PACKING).arg(&tarred);
    call(xz)?;
    let content = fs::read(&packed).map_err(at(&packed))?;
    small_enough(&packed, content.len() as u64)?;
    let hash = format!(
        "{}  {}.tar.xz\n",
        manifest::sha256(&content),
        name.display()
    );
    let beside = beside(".tar.xz.sha256");
    fs::write(&beside, hash).map_err(at(&beside))?;
    Ok(packed)
}

fn small_enough(path: &Path, bytes: u64) -> Result<(), DistError> {
    let (path, most) = (path.into(), MOST);
    match bytes > most {
        true => Err(DistError::TooLarge { path, bytes, most }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    /// Packs a folder with a program and a text, which are written in this order with this time and these modes.
    fn packed(parent: &Path, order: [&str; 2], mode: u32) -> Vec<u8> {
        let folder = parent.join("warpbell-1-x86_64");
        fs::create_dir(&folder).unwrap();
        for name in order {
            let path = folder.join(name);
            fs::write(&path, name).unwrap();
            let executable = if name == "demo" { mode & 0o111 } else { 0 };
            let mode = mode & 0o666 | executable;
            fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        }
        // A folder has an order of its own.
        for name in ["7", "3", "5", "1", "6", "2", "8", "4"] {
            let path = folder.join("share").join(name);
            crate::dist::write(&path, "").unwrap();
        }
        let commit = Commit {
            name: "0123abc".into(),
            time: "1795781286".into(),
        };
        fs::read(pack(&folder, &commit).unwrap()).unwrap()
    }

    #[test]
    fn an_archive_depends_on_names_and_contents_alone() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = packed(one.path(), ["demo", "README.md"], 0o755);
        assert_eq!(first, packed(other.path(), ["README.md", "demo"], 0o700));
        let mut list = Command::new("tar");
        list.args(["--utc", "--full-time", "-tvJf", "warpbell-1-x86_64.tar.xz"]);
        let listed = list.current_dir(one.path()).output().unwrap().stdout;
        let listed = String::from_utf8(listed).unwrap();
        let lines = Vec::from_iter(
            listed
                .lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")),
        );
        // 1,795,781,286 s after 1970 is this time, by `date`.
        let time = "2026-11-27 12:08:06";
        let mut expected = vec![
            format!("drwxr-xr-x 0/0 0 {time} warpbell-1-x86_64/"),
            format!("-rw-r--r-- 0/0 9 {time} warpbell-1-x86_64/README.md"),
            format!("-rwxr-xr-x 0/0 4 {time} warpbell-1-x86_64/demo"),
            format!("drwxr-xr-x 0/0 0 {time} warpbell-1-x86_64/share/"),
        ];
        let share = |n| format!("-rw-r--r-- 0/0 0 {time} warpbell-1-x86_64/share/{n}");
        expected.extend((1..=8).map(share));
        assert_eq!(lines, expected);
        let hash = fs::read_to_string(one.path().join("warpbell-1-x86_64.tar.xz.sha256")).unwrap();
        assert_eq!(
            hash,
            format!("{}  warpbell-1-x86_64.tar.xz\n", manifest::sha256(&first))
        );
    }

    #[test]
    fn an_archive_that_is_too_large_is_named_with_its_size() {
        let path = Path::new("warpbell.tar.xz");
        small_enough(path, 25_000_000).unwrap();
        let error = small_enough(path, 25_000_001).unwrap_err().to_string();
        assert_eq!(
            error,
            "warpbell.tar.xz has 25000001 bytes; the most is 25000000"
        );
    }
}
