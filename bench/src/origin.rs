//! Where a measurement comes from, so that a document can be made again.

use std::fs;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// Which command measured, when, and where.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Origin {
    /// The example and its options.
    command: String,
    /// The moment, in UTC.
    date: String,
    /// The processor, and how many threads it runs.
    machine: String,
    /// The version of the NVIDIA driver, if there is one.
    driver: Option<String>,
}

impl Origin {
    /// This process, now.
    pub fn here() -> Self {
        Self {
            command: command(
                std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()),
            ),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            machine: machine(),
            driver: driver(),
        }
    }

    /// The command line.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// Date, machine and driver, for a picture.
    pub fn line(&self, kernels_on: &str) -> String {
        let driver = self
            .driver
            .as_ref()
            .map(|driver| format!(", driver {driver}"));
        let day = self.date.split('T').next().unwrap_or_default();
        format!(
            "{day}, {}{}, {}",
            kernels_on.trim_start_matches("an "),
            driver.unwrap_or_default(),
            self.machine
        )
    }
}

/// The command line, without the folder of the example.
fn command(mut arguments: impl Iterator<Item = String>) -> String {
    let program = arguments.next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default().to_owned();
    let words: Vec<_> = std::iter::once(name).chain(arguments).collect();
    words.join(" ")
}

fn machine() -> String {
    let about = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = about.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == "model name").then(|| value.trim())
    });
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{}, {threads} threads",
        model.unwrap_or(std::env::consts::ARCH)
    )
}

/// What the kernel's module says of itself.
fn driver() -> Option<String> {
    let about = fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    version(&about).map(str::to_owned)
}

/// The first word of the first line that looks like 580.159.04.
fn version(about: &str) -> Option<&str> {
    let number = |word: &&str| {
        let mut parts = word.split('.');
        word.contains('.') && parts.all(|part| part.parse::<u32>().is_ok())
    };
    about.lines().next()?.split_whitespace().find(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_shows_no_folders_of_its_own() {
        let words = ["/a/b/pingpong", "--on", "gpu"].map(str::to_owned);
        assert_eq!(command(words.into_iter()), "pingpong --on gpu");
    }

    #[test]
    fn the_drivers_version_is_found() {
        for about in [
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (x)\nGCC version: 12.2.0",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue May 7",
        ] {
            assert_eq!(version(about), Some("580.159.04"));
        }
        assert_eq!(version("no number here"), None);
    }
}
