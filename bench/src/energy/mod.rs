//! Energy that a measurement takes: of CPUs by RAPL, of GPUs by NVML, where the machine lets them be read.
//!
//! | of | source | unit |
//! |---|---|---|
//! | CPUs | RAPL: `energy_uj` of each package in `/sys/class/powercap` (Linux, `Documentation/power/powercap`). Without memory | µJ |
//! | GPUs | NVML: `nvmlDeviceGetTotalEnergyConsumption`, Volta and newer. The whole board | mJ |
//!
//! Both count whatever the machine does, idle or for others. RAPL's counters move about every millisecond, NVML's only
//! every some ten milliseconds: a run of a second or more tells something.

mod nvml;
mod rapl;

use std::error::Error;
use std::io;
use std::ops::AddAssign;
use std::path::{Path, PathBuf};

use serde::Serialize;
use warpbell_host_init::{Gpu, Nic, Node};

use nvml::Boards;
use rapl::Packages;

use crate::run::screen::Screen;

/// Why energy cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// No CPU package in the folder.
    #[error("{} has no RAPL package; virtual machines and containers often lack it", folder.display())]
    NoPackage {
        /// The folder.
        folder: PathBuf,
    },
    /// A file that is not there, or that this user may not read.
    #[error("{}: {source}; Linux lets only root read it by default", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file without a number.
    #[error("{} says {text:?}, which is no number", path.display())]
    NoNumber {
        /// The file.
        path: PathBuf,
        /// What it says.
        text: String,
    },
    /// All kernels run on the CPU.
    #[error("no GPU takes part")]
    NoGpu,
    /// NVML, or one of its functions, is not there.
    #[error("no NVML on this machine: {why}")]
    NoLibrary {
        /// The loader's words.
        why: String,
    },
    /// NVML refuses a call.
    #[error("{call}: {words}")]
    Refused {
        /// The call.
        call: &'static str,
        /// NVML's words.
        words: String,
    },
}

impl From<libloading::Error> for Unreadable {
    fn from(error: libloading::Error) -> Self {
        let words = error.source().map(ToString::to_string);
        Self::NoLibrary {
            why: words.unwrap_or_else(|| error.to_string()),
        }
    }
}

/// Counters of energy of the CPUs and GPUs that a measurement runs on.
pub struct Meter {
    cpus: Result<Packages, Unreadable>,
    gpus: Result<Boards, Unreadable>,
}

/// Where energy is read; in a document `{"read": ...}` or `{"unreadable": ...}` for CPUs and for GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sources {
    /// Of CPUs.
    pub cpus: Source,
    /// Of GPUs.
    pub gpus: Source,
}

/// Where one kind of energy is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// By these counters.
    Read(String),
    /// Nowhere, and why.
    Unreadable(String),
}

/// What the counters said at a moment.
pub struct Reading {
    /// µJ of each package.
    cpus: Option<Vec<u64>>,
    /// mJ of each board.
    gpus: Option<Vec<u64>>,
}

/// Energy in joules; none where it is [unreadable](Source::Unreadable), or where the counter has not stepped. The
/// default is that of nothing, to which others are added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Energy {
    /// Of all CPU packages.
    pub cpu_joules: Option<f64>,
    /// Of the GPUs that take part.
    pub gpu_joules: Option<f64>,
}

impl Meter {
    /// The counters of this machine's CPUs, and of the GPUs of these nodes.
    pub fn of(nodes: &[Node]) -> Self {
        Self {
            cpus: Packages::open(Path::new("/sys/class/powercap")),
            gpus: Boards::open(&gpus(nodes)),
        }
    }

    /// Where it reads.
    pub fn sources(&self) -> Sources {
        let cpus = self.cpus.as_ref().map(Packages::words);
        let gpus = self.gpus.as_ref().map(Boards::words);
        Sources {
            cpus: source(cpus),
            gpus: source(gpus),
        }
    }

    /// Reads all counters that could be opened.
    ///
    /// # Errors
    /// One that cannot be read any more.
    pub fn read(&self) -> Result<Reading, Unreadable> {
        let cpus = self.cpus.as_ref().ok().map(Packages::read);
        let gpus = self.gpus.as_ref().ok().map(Boards::read);
        Ok(Reading {
            cpus: cpus.transpose()?,
            gpus: gpus.transpose()?,
        })
    }

    /// What was taken since then.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn since(&self, before: &Reading) -> Result<Energy, Unreadable> {
        let now = self.read()?;
        let cpus = self.cpus.as_ref().ok();
        let cpu_joules = cpus.and_then(|cpus| Some(cpus.joules(before.cpus.as_ref()?, &now.cpus?)));
        let gpu_joules = before.gpus.as_ref().zip(now.gpus);
        let gpu_joules = gpu_joules.map(|(before, now)| Boards::joules(before, &now));
        Ok(Energy {
            cpu_joules: stepped(cpu_joules),
            gpu_joules: stepped(gpu_joules),
        })
    }
}

/// Nothing of a counter that has not stepped: the measurement was too short for it.
fn stepped(joules: Option<f64>) -> Option<f64> {
    joules.filter(|&joules| joules > 0.0)
}

/// GPUs of these nodes' kernels and NICs, each once.
fn gpus(nodes: &[Node]) -> Vec<Gpu> {
    let mut all: Vec<Gpu> = Vec::new();
    for node in nodes {
        let nic = match node.nic() {
            Nic::SoftGpu(options) => options.on.gpu(),
            _ => None,
        };
        for gpu in node.gpu().into_iter().chain(nic) {
            if !all.contains(&gpu) {
                all.push(gpu);
            }
        }
    }
    all
}

fn source(words: Result<String, &Unreadable>) -> Source {
    match words {
        Ok(words) => Source::Read(words),
        Err(why) => Source::Unreadable(why.to_string()),
    }
}

impl Sources {
    /// Says them, a line each.
    pub fn show(&self, screen: &Screen) {
        for (of, source) in [("CPUs", &self.cpus), ("GPUs", &self.gpus)] {
            screen.line(match source {
                Source::Read(words) => format!("Energy of {of}: {words}."),
                Source::Unreadable(why) => format!("Energy of {of} is not readable here: {why}."),
            });
        }
    }
}

impl Energy {
    /// Microjoules of each of so many, CPUs' and GPUs', for a table.
    pub fn of_each(self, count: u64) -> [String; 2] {
        [self.cpu_joules, self.gpu_joules].map(|joules| {
            let each = joules.map(|joules| 1e6 * joules / count as f64);
            each.map_or_else(|| "–".into(), |each| format!("{each:.1}"))
        })
    }
}

impl AddAssign for Energy {
    fn add_assign(&mut self, more: Self) {
        let sum = |one: Option<f64>, other: Option<f64>| match (one, other) {
            (Some(one), Some(other)) => Some(one + other),
            (one, other) => one.or(other),
        };
        self.cpu_joules = sum(self.cpu_joules, more.cpu_joules);
        self.gpu_joules = sum(self.gpu_joules, more.gpu_joules);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_stays_unknown_and_is_never_0() {
        let of = |cpu_joules| Energy {
            cpu_joules,
            gpu_joules: None,
        };
        let mut sum = Energy::default();
        sum += of(Some(0.5));
        sum += of(Some(0.25));
        assert_eq!(sum, of(Some(0.75)));
        assert_eq!(sum.of_each(3), ["250000.0", "–"]);
        assert_eq!(Energy::default().of_each(3), ["–", "–"]);
        assert_eq!(
            [Some(0.0), Some(0.1), None].map(stepped),
            [None, Some(0.1), None]
        );
    }

    #[test]
    fn a_node_without_a_gpu_says_so() {
        let sources = Meter::of(&[Node::cpu()]).sources();
        assert_eq!(sources.gpus, Source::Unreadable("no GPU takes part".into()));
        let meter = Meter::of(&[Node::cpu()]);
        let energy = meter.since(&meter.read().unwrap()).unwrap();
        assert_eq!(energy.gpu_joules, None);
        let readable = matches!(sources.cpus, Source::Read(_));
        assert_eq!(energy.cpu_joules.is_some(), readable);
    }
}
