//! What a reader of a report must know of the machine.

use std::fs;

use serde::Serialize;

/// A machine, without its name.
#[derive(Debug, Default, Serialize)]
pub struct Machine {
    /// The distribution.
    pub system: Option<String>,
    /// The version of Linux.
    pub kernel: Option<String>,
    /// The processor's model.
    pub processor: Option<String>,
    /// Threads that may run at once.
    pub threads: usize,
    /// The version of the NVIDIA driver.
    pub driver: Option<String>,
    /// The models of its GPUs.
    pub gpus: Vec<String>,
}

impl Machine {
    /// This machine. What cannot be read is left out.
    pub fn this() -> Self {
        let line = |file: &str| Some(fs::read_to_string(file).ok()?.lines().next()?.to_owned());
        Self {
            system: value("/etc/os-release", '=', "PRETTY_NAME"),
            kernel: line("/proc/sys/kernel/osrelease"),
            processor: value("/proc/cpuinfo", ':', "model name"),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            driver: line("/proc/driver/nvidia/version"),
            gpus: gpus(),
        }
    }

    /// In lines, for people.
    pub fn lines(&self) -> Vec<String> {
        let Self {
            system,
            kernel,
            processor,
            threads,
            driver,
            gpus,
        } = self;
        let or_unknown = |text: &Option<String>| text.clone().unwrap_or("unknown".into());
        let mut lines = vec![
            format!("{}, Linux {}", or_unknown(system), or_unknown(kernel)),
            format!("{}, {threads} threads", or_unknown(processor)),
        ];
        lines.extend((!gpus.is_empty()).then(|| gpus.join(", ")));
        lines.extend(driver.clone());
        lines
    }
}

/// The value of the first line with this name.
fn value(file: &str, separator: char, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(separator)?;
        let value = value.trim().trim_matches('"').to_owned();
        (found.trim() == name).then_some(value)
    })
}

fn gpus() -> Vec<String> {
    let folders = fs::read_dir("/proc/driver/nvidia/gpus");
    let folders = folders.into_iter().flatten().flatten();
    let files = folders.map(|folder| folder.path().join("information"));
    let mut gpus: Vec<_> = files
        .filter_map(|file| value(file.to_str()?, ':', "Model"))
        .collect();
    gpus.sort();
    gpus
}
