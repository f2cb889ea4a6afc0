//! The hash of everything that decides what the PTX is.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Folders whose sources go into the PTX, and files. Versions stand in the lock file; the workspace's manifest is
/// left out, because it changes often and the PTX hardly ever with it.
const SOURCES: [&str; 22] = [
    "mlx5-wqe/Cargo.toml",
    "mlx5-wqe/src",
    "kernel-macro/Cargo.toml",
    "kernel-macro/build.rs",
    "kernel-macro/src",
    "gpu/Cargo.toml",
    "gpu/src",
    "device/Cargo.toml",
    "device/src",
    "patterns/Cargo.toml",
    "patterns/src",
    "kernels/Cargo.toml",
    "kernels/src",
    "papers/kernels/Cargo.toml",
    "papers/kernels/src",
    "soft-hca/Cargo.toml",
    "soft-hca/src/engine",
    "soft-hca-gpu/Cargo.toml",
    "soft-hca-gpu/src",
    "ptx/module/Cargo.toml",
    "ptx/module/Cargo.lock",
    "ptx/module/src",
];

/// The hash of the sources, the toolchain's name and the build's flags, in hexadecimal.
pub fn hash(root: &Path, toolchain: &str, flags: &str) -> io::Result<String> {
    let mut files = Vec::new();
    for source in SOURCES {
        collect(&root.join(source), &mut files)?;
    }
    files.sort();
    let mut hash = Sha256::new();
    for text in [toolchain, flags] {
        add(&mut hash, text.as_bytes());
    }
    for file in files {
        let content = fs::read(&file)?;
        let name = file.strip_prefix(root).unwrap_or(&file).to_string_lossy();
        add(&mut hash, name.as_bytes());
        add(&mut hash, &content);
    }
    Ok(format!("{:x}", hash.finalize()))
}

/// Adds a part to a hash, with its length, so that no other parts come to the same.
pub fn add(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_le_bytes());
    hash.update(part);
}

/// Adds a file, or all files below a folder, but the hosts' halves of patterns: no kernel is made of them.
fn collect(path: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if path.file_stem().is_some_and(|name| name == "host") {
        return Ok(());
    }
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            collect(&entry?.path(), files)?;
        }
    } else {
        files.push(path.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_every_source_the_toolchain_and_the_flags() {
        let root = std::env::temp_dir().join(format!("warpbell-sources-{}", std::process::id()));
        for source in SOURCES {
            let path = root.join(source);
            let path = if !source.contains('.') {
                path.join("deep/lib.rs")
            } else {
                path
            };
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "text").unwrap();
        }
        let first = hash(&root, "nightly", "flags").unwrap();
        assert_eq!(first.len(), 64);
        assert_eq!(hash(&root, "nightly", "flags").unwrap(), first);
        let mut seen = vec![first];
        seen.push(hash(&root, "other", "flags").unwrap());
        seen.push(hash(&root, "nightly", "others").unwrap());
        for changed in ["device/src/deep/lib.rs", "ptx/module/Cargo.lock"] {
            fs::write(root.join(changed), "other text").unwrap();
            seen.push(hash(&root, "nightly", "flags").unwrap());
        }
        fs::write(root.join("kernels/src/new.rs"), "").unwrap();
        seen.push(hash(&root, "nightly", "flags").unwrap());
        let half = root.join("patterns/src/gaspi/host");
        fs::create_dir_all(&half).unwrap();
        fs::write(half.join("mod.rs"), "a host's").unwrap();
        assert_eq!(seen.last(), Some(&hash(&root, "nightly", "flags").unwrap()));
        seen.sort();
        let all = seen.len();
        seen.dedup();
        assert_eq!(seen.len(), all, "two of them are the same");
        fs::remove_file(root.join("kernels/Cargo.toml")).unwrap();
        assert!(hash(&root, "nightly", "flags").is_err());
        fs::remove_dir_all(root).unwrap();
    }
}
