//! A folder among the temporary files.

use std::path::PathBuf;
use std::{env, fs, io, process};

/// A folder that goes when this does.
pub struct Folder(pub PathBuf);

impl Folder {
    /// A new one, whose name has this word.
    pub fn new(word: &str) -> io::Result<Self> {
        let folder = Self(env::temp_dir().join(format!("warpbell-{word}-{}", process::id())));
        fs::create_dir_all(&folder.0)?;
        Ok(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left lies among the temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}
