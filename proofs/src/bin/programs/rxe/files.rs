//! What the virtual machine boots: Debian's kernel, and a file system in memory with the programs and their libraries.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::{env, fs, io};

use crate::FOLDERS;

/// Where libibverbs looks for its providers' names; that of rxe.
const DRIVER: &str = "etc/libibverbs.d/rxe.driver";

/// A folder of temporary files, which goes when this does.
pub struct Archive(PathBuf);

impl Drop for Archive {
    fn drop(&mut self) {
        // What is left lies among the temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Archive {
    /// The file system, in the form that the kernel unpacks.
    pub fn path(&self) -> PathBuf {
        self.0.join("initramfs")
    }
}

/// The kernel in the folder of an unpacked linux-image.
pub fn image(kernel: &Path) -> Result<PathBuf, String> {
    let is_image = |name: &str| name.starts_with("vmlinuz-");
    found(&kernel.join("boot"), &is_image).ok_or_else(|| missing("vmlinuz", kernel))
}

/// Packs a file system whose first program is this script, with the modules of a kernel and these programs.
pub fn archive(
    kernel: &Path,
    init: &str,
    modules: &[&str],
    programs: &[&str],
) -> Result<Archive, String> {
    let folder = env::temp_dir().join(format!("warpbell-rxe-{}", process::id()));
    let archive = Archive(folder);
    let root = archive.0.join("root");
    for folder in ["applets", "bin", "dev", "modules", "proc", "sys", "tmp"] {
        fs::create_dir_all(root.join(folder)).map_err(|error| error.to_string())?;
    }
    for module in modules {
        let name = format!("{module}.ko");
        let from = found(&kernel.join("lib/modules"), &|file: &str| file == name);
        copy(
            &from.ok_or_else(|| missing(&name, kernel))?,
            &root.join("modules").join(&name),
        )?;
    }
    let provider = found(Path::new("/usr/lib"), &|file: &str| {
        file.starts_with("librxe-rdmav") && file.ends_with(".so")
    });
    let provider = provider.ok_or("libibverbs has no provider of rxe")?;
    copy(&Path::new("/").join(DRIVER), &root.join(DRIVER))?;
    let mut binaries = vec![provider.clone()];
    for program in programs.iter().chain(&["busybox"]) {
        let from = program_at(program).ok_or_else(|| format!("{program} is not installed"))?;
        copy(&from, &root.join("bin").join(program))?;
        binaries.push(from);
    }
    let mut libraries = libraries(&binaries)?;
    libraries.insert(provider);
    for library in libraries {
        let inside = library.strip_prefix("/").unwrap_or(&library);
        copy(&library, &root.join(inside))?;
    }
    let script = root.join("init");
    fs::write(&script, init)
        .and_then(|()| fs::set_permissions(&script, fs::Permissions::from_mode(0o755)))
        .map_err(|error| error.to_string())?;
    pack(&root, &archive.path()).map_err(|error| format!("cpio: {error}"))?;
    Ok(archive)
}

fn missing(name: &str, kernel: &Path) -> String {
    format!("no {name} in {}", kernel.display())
}

/// Copies a file, or what a link leads to, with the folders that it needs.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let copied = || -> io::Result<()> {
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::copy(from, to).map(drop)
    };
    copied().map_err(|error| format!("{}: {error}", from.display()))
}

/// The first file below a folder whose name is wanted.
fn found(folder: &Path, wanted: &dyn Fn(&str) -> bool) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    entries.flatten().find_map(|entry| {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found(&path, wanted),
            _ => wanted(entry.file_name().to_str()?).then_some(path),
        }
    })
}

/// Where a program is installed.
fn program_at(program: &str) -> Option<PathBuf> {
    let folders = FOLDERS.into_iter().chain(["/bin", "/sbin"]);
    let mut paths = folders.map(|folder| Path::new(folder).join(program));
    paths.find(|path| path.is_file())
}

/// The libraries that binaries load at their start, as `ldd` lists them.
fn libraries(binaries: &[PathBuf]) -> Result<BTreeSet<PathBuf>, String> {
    let output = Command::new("ldd").args(binaries).output();
    // It complains of a static one, and lists the others' all the same.
    let output = output.map_err(|error| format!("ldd: {error}"))?;
    let listed = String::from_utf8_lossy(&output.stdout);
    let words = listed
        .lines()
        .filter(|line| line.starts_with(char::is_whitespace));
    let words = words.flat_map(str::split_whitespace);
    Ok(words
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .collect())
}

/// Packs a folder.
fn pack(root: &Path, archive: &Path) -> io::Result<()> {
    let mut names = Vec::new();
    list(root, Path::new("."), &mut names)?;
    let mut cpio = Command::new("cpio")
        .args(["--quiet", "--create", "--format=newc"])
        .current_dir(root)
        .stdin(Stdio::piped())
        .stdout(fs::File::create(archive)?)
        .spawn()?;
    if let Some(mut input) = cpio.stdin.take() {
        for name in &names {
            writeln!(input, "{}", name.display())?;
        }
    }
    match cpio.wait()?.success() {
        true => Ok(()),
        false => Err(io::Error::other("it failed")),
    }
}

/// The names below a folder, each folder before its files.
fn list(root: &Path, folder: &Path, names: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = folder.join(entry.file_name());
        names.push(name.clone());
        if entry.file_type()?.is_dir() {
            list(root, &name, names)?;
        }
    }
    Ok(())
}
