//! The Debian package: the same folder, installed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::manifest::Manifest;
use super::{Commit, DistError, NAME, Target, at, call, copy, list, make_folder_of, write};
use crate::workspace::clean_command;

/// Where the folder is installed.
const HOME: &str = "usr/lib/warpbell";
/// Programs that the shell finds, and their names in [`HOME`]. The others have names that say nothing by themselves.
const COMMANDS: [(&str, &str); 5] = [
    ("warpbell", "bin/warpbell"),
    ("warpbell-bench", "bin/bench"),
    ("warpbell-demo", "bin/demo"),
    ("warpbell-doctor", "bin/warpbell-doctor"),
    ("warpbell-launch", "bin/warpbell-launch"),
];

/// Makes the package of a folder, beside it.
pub(super) fn pack(folder: &Path, target: Target, commit: &Commit) -> Result<PathBuf, DistError> {
    let manifest = Manifest::read(folder)?;
    let root = folder.with_file_name("debian");
    if root.exists() {
        fs::remove_dir_all(&root).map_err(at(&root))?;
    }
    for file in &manifest.files {
        let mode = if file.executable { 0o755 } else { 0o644 };
        copy(
            &folder.join(&file.path),
            &root.join(HOME).join(&file.path),
            mode,
        )?;
    }
    manifest.write(&root.join(HOME))?;
    for (command, program) in COMMANDS {
        let link = root.join("usr/bin").join(command);
        make_folder_of(&link)?;
        symlink(Path::new("../..").join(HOME).join(program), &link).map_err(at(&link))?;
    }
    let licences = list(&folder.join("licences"))?;
    let names = licences.iter().filter_map(|path| path.file_name());
    let names = Vec::from_iter(names.map(|name| format!("/{HOME}/licences/{}\n", name.display())));
    let copyright = format!(
        "MIT or Apache-2.0, at your choice. The licences, with those of other crates:\n\n{}",
        names.concat()
    );
    write(
        &root.join("usr/share/doc").join(NAME).join("copyright"),
        &copyright,
    )?;
    write(&root.join("DEBIAN/control"), &control(&manifest, target))?;
    let package = folder.with_file_name(format!(
        "{NAME}_{}_{}.deb",
        manifest.version,
        target.debian()
    ));
    let mut dpkg = clean_command("dpkg-deb", &root);
    // Packages are reproducible by themselves, with the time of the commit.
    dpkg.env("SOURCE_DATE_EPOCH", &commit.time);
    dpkg.args(["--root-owner-group", "-Zxz", "-z9", "--build"]);
    dpkg.arg(&root).arg(&package);
    call(dpkg)?;
    Ok(package)
}

/// What Debian knows of the package.
fn control(manifest: &Manifest, target: Target) -> String {
    let Manifest { version, glibc, .. } = manifest;
    let kibibytes = manifest.bytes().div_ceil(1024);
    format!(
        "Package: {NAME}\n\
         Version: {version}\n\
         Architecture: {}\n\
         Maintainer: The Warpbell developers\n\
         Installed-Size: {kibibytes}\n\
         Depends: libc6 (>= {glibc}), libgcc-s1\n\
         Suggests: ibverbs-providers\n\
         Section: net\n\
         Priority: optional\n\
         Description: GPU kernels that drive network cards: demo, checks and benchmarks\n \
         Kernels in Rust post work requests to mlx5 cards, or to a software NIC, and\n \
         poll their completions. warpbell-doctor says what a machine lacks for it,\n \
         warpbell-demo verifies every verb. Other programs are in /{HOME}/bin.\n",
        target.debian(),
    )
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::dist::manifest;

    #[test]
    fn a_package_has_the_folder_and_commands_and_depends_on_the_floor() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("warpbell-0.1.0-aarch64");
        let texts = ["licences/LICENSE-MIT", "share/warpbell/kernels.ptx.gz"];
        for text in texts {
            write(&folder.join(text), text).unwrap();
        }
        for (_, program) in COMMANDS {
            copy(Path::new("/bin/true"), &folder.join(program), 0o755).unwrap();
        }
        let manifest = Manifest {
            schema: manifest::SCHEMA,
            name: NAME.into(),
            version: "0.1.0".into(),
            commit: "0123abc".into(),
            target: Target::Arm.triple(),
            glibc: "2.34".into(),
            files: manifest::files(&folder).unwrap(),
        };
        manifest.write(&folder).unwrap();
        let commit = Commit {
            name: "0123abc".into(),
            time: "1795781286".into(),
        };
        let package = pack(&folder, Target::Arm, &commit).unwrap();
        let first = fs::read(&package).unwrap();
        assert_eq!(
            first,
            fs::read(pack(&folder, Target::Arm, &commit).unwrap()).unwrap(),
            "not reproducible"
        );

        let dpkg = |arguments: &[&str]| {
            let output = Command::new("dpkg-deb").args(arguments).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let package = package.to_str().unwrap();
        assert_eq!(
            dpkg(&["--field", package, "Depends"]),
            "libc6 (>= 2.34), libgcc-s1\n"
        );
        assert_eq!(dpkg(&["--field", package, "Architecture"]), "arm64\n");
        let installed = parent.path().join("installed");
        dpkg(&["--extract", package, installed.to_str().unwrap()]);
        manifest.check(&installed.join(HOME)).unwrap();
        for (command, _) in COMMANDS {
            let status = Command::new(installed.join("usr/bin").join(command)).status();
            assert!(status.unwrap().success(), "{command}");
        }
    }
}
