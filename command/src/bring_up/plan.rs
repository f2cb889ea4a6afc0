//! The steps: what each proves, which others it needs, its command line, and what to do if it fails.

use std::fmt;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::Serialize;

use super::options::BringUp;

/// A step of a bring-up, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// What this machine lacks
    Doctor,
    /// Kernels on the CPU, in loopback
    Cpu,
    /// Kernels on the CPUs of two nodes
    TwoNodes,
    /// Kernels on the GPU, queues and data in host memory
    GpuHostMemory,
    /// Kernels on the GPU, queues and data in the GPU's memory
    GpuMemory,
    /// Kernels on the GPUs of two nodes
    TwoGpus,
    /// The hardware tests
    Suite,
    /// A benchmark: the latency of a write
    Latency,
    /// A benchmark: the bandwidth of writes and reads
    Bandwidth,
}

/// Where kernels run, and where their queues and data are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On CPU threads.
    Cpu,
    /// On a GPU, with queues and data in host memory.
    GpuHostMemory,
    /// On a GPU, with queues and data in its memory.
    GpuMemory,
}

/// The NIC of all steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nic {
    /// One of software.
    Software,
    /// A card's name, perhaps with a port.
    Card(String),
}

/// A command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The program's path.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

impl Step {
    /// All steps, in their order.
    pub const ALL: [Self; 9] = [
        Self::Doctor,
        Self::Cpu,
        Self::TwoNodes,
        Self::GpuHostMemory,
        Self::GpuMemory,
        Self::TwoGpus,
        Self::Suite,
        Self::Latency,
        Self::Bandwidth,
    ];

    /// Its word on the command line.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().into())
    }

    /// What is proven once it has passed.
    pub fn proves(self) -> &'static str {
        match self {
            Self::Doctor => "This machine has what its GPU and its card need.",
            Self::Cpu => {
                "Kernels on CPU threads drive the NIC in loopback: every verb, and every byte arrives."
            }
            Self::TwoNodes => {
                "The NICs of two nodes carry every verb between them, and every byte arrives."
            }
            Self::GpuHostMemory => {
                "Kernels on the GPU ring the NIC's doorbell and read its completions. Queues and data are in host memory."
            }
            Self::GpuMemory => {
                "The NIC reads queues and data in the GPU's memory and writes there (GPUDirect RDMA)."
            }
            Self::TwoGpus => {
                "Kernels on the GPUs of two nodes move data between them, and no CPU is on the data path."
            }
            Self::Suite => {
                "The suite's hardware tests pass. With --quick these are verbs, shared queues and errors."
            }
            Self::Latency => "A write's latency is measured, and every byte arrives.",
            Self::Bandwidth => {
                "The bandwidth of writes and reads is measured, and every byte arrives."
            }
        }
    }

    /// The steps that must have passed before, if they were chosen.
    pub fn premises(self) -> &'static [Self] {
        match self {
            Self::Doctor | Self::Cpu => &[],
            Self::TwoNodes | Self::GpuHostMemory => &[Self::Cpu],
            Self::GpuMemory => &[Self::GpuHostMemory],
            Self::TwoGpus => &[Self::TwoNodes, Self::GpuMemory],
            Self::Suite | Self::Latency | Self::Bandwidth => &[Self::Cpu],
        }
    }

    /// Whether its kernels are on a GPU in any case.
    pub fn needs_gpu(self) -> bool {
        matches!(self, Self::GpuHostMemory | Self::GpuMemory | Self::TwoGpus)
    }

    /// Whether it needs a second node.
    pub fn needs_node(self) -> bool {
        matches!(self, Self::TwoNodes | Self::TwoGpus)
    }

    /// Words that its program prints if all went well.
    pub fn evidence(self) -> Option<&'static str> {
        match self {
            Self::Doctor | Self::Latency | Self::Bandwidth => None,
            Self::Suite => Some("Test OK"),
            _ => Some("every byte verified"),
        }
    }

    /// The package of its program, for a checkout.
    pub fn package(self) -> &'static str {
        match self {
            Self::Doctor => "warpbell-doctor",
            Self::Cpu | Self::GpuHostMemory | Self::GpuMemory => "warpbell-demo",
            Self::TwoNodes | Self::TwoGpus => {
                "warpbell-ranks -p warpbell-demo --features warpbell-ranks/launch"
            }
            Self::Suite => "warpbell-hw-tests",
            Self::Latency | Self::Bandwidth => "warpbell-bench",
        }
    }

    /// What to do if it fails. The program's own words come before.
    pub fn remedy(self, nic: &Nic) -> &'static str {
        match (self, nic) {
            (Self::Doctor, _) => {
                "Each line names a command that mends it or shows more. Run the doctor as root once, because other users cannot see some settings."
            }
            (Self::Cpu, Nic::Card(_)) => {
                "No GPU takes part, so look at the card: `ibv_devinfo` must list it, with state PORT_ACTIVE. You must be able to read and write /dev/infiniband/uverbs*. With --gid-index you choose another address of the port."
            }
            (Self::Cpu, Nic::Software) => {
                "This step needs neither a card nor a GPU. The copy may be incomplete: copy the whole folder again. If it fails again, please send us the report."
            }
            (Self::TwoNodes, _) => {
                "Try `ssh NODE true`: it must ask for nothing. The folder must have the same path on both nodes (`cargo xtask flash` copies it). The nodes must reach each other by TCP and by UDP. If the other node does not know this one's name, give --address."
            }
            (Self::GpuHostMemory, Nic::Card(_)) => {
                "The card works, but the GPU does not reach its doorbell. Load the NVIDIA driver with PeerMappingOverride=1 (the doctor's line \"peer mapping\"), or run as root. Without either, a proxy can ring the doorbell: `bench proxy --on gpu` with the same NIC."
            }
            (Self::GpuHostMemory, Nic::Software) => {
                "No card takes part, so look at the GPU: `nvidia-smi` must list it, and the doctor's lines about driver, CUDA and kernels must be ok."
            }
            (Self::GpuMemory, Nic::Card(_)) => {
                "The doorbell works, but the card does not reach the GPU's memory. Load nvidia_peermem, or use the open driver with Linux 6.1 or newer. Switch the IOMMU off or to passthrough, and ACS off between the two. The doctor shows each of these."
            }
            (Self::GpuMemory, Nic::Software) => {
                "No card takes part, and the step before passed. The GPU may be in use by another process: see `nvidia-smi`. If it fails again, please send us the report."
            }
            (Self::TwoGpus, _) => {
                "Both parts work alone on this node. Run `warpbell bring-up` on the other node, too: its GPU may not reach its card."
            }
            (Self::Suite, _) => {
                "The lines name the test that failed. Run it alone (`suite NAME` with the same options) to see all that it says. Please send us the report."
            }
            (Self::Latency | Self::Bandwidth, _) => {
                "The steps before passed, so the NIC works. Try again while nothing else runs. If it fails again, please send us the report."
            }
        }
    }
}

/// What command lines are made from.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The user's options.
    pub options: &'a BringUp,
    /// Where the programs are.
    pub folder: &'a Path,
    /// The NIC.
    pub nic: Nic,
    /// The name of this machine for the launcher.
    pub host: String,
}

impl Plan<'_> {
    /// The command line of a step. The benchmarks and the suite run at a place, which is the best that works.
    pub fn call(&self, step: Step, best: Place) -> Call {
        let quick = self.options.quick;
        let short = |words: &'static [&'static str]| if quick { words } else { &[] };
        match step {
            Step::Doctor => self.program("warpbell-doctor", &["--json"], &[]),
            Step::Cpu => self.demo(Place::Cpu),
            Step::GpuHostMemory => self.demo(Place::GpuHostMemory),
            Step::GpuMemory => self.demo(Place::GpuMemory),
            Step::TwoNodes => self.launch(&self.demo(Place::Cpu)),
            Step::TwoGpus => self.launch(&self.demo(match self.nic {
                // A NIC whose engine is on a GPU has no wire.
                Nic::Software => Place::GpuHostMemory,
                Nic::Card(_) => Place::GpuMemory,
            })),
            Step::Suite => {
                let tests = short(&["--tests", "verbs,shared,errors"]);
                let words = [tests, &["--"]].concat();
                self.program("suite", &words, &self.place(best))
            }
            Step::Latency => {
                let sizes = short(&["--sizes", "8,4K", "--rounds", "500"]);
                let words = [&["pingpong"], sizes].concat();
                self.program("bench", &words, &self.place(best))
            }
            Step::Bandwidth => {
                let range: &[&str] = match quick {
                    true => &["--from", "4K", "--to", "64K", "--repetitions", "2"],
                    false => &["--from", "64"],
                };
                let words = [&["bandwidth", "--verbs", "write,read"], range].concat();
                self.program("bench", &words, &self.place(best))
            }
        }
    }

    fn program(&self, name: &str, words: &[&str], more: &[String]) -> Call {
        let words = words.iter().map(|word| (*word).to_owned());
        Call {
            program: self.folder.join(name),
            arguments: words.chain(more.iter().cloned()).collect(),
        }
    }

    fn demo(&self, place: Place) -> Call {
        let words: &[&str] = if self.options.quick {
            &["--quick"]
        } else {
            &[]
        };
        self.program("demo", words, &self.place(place))
    }

    /// A program as a rank on this machine and one on the other.
    fn launch(&self, call: &Call) -> Call {
        let BringUp {
            node, address, rsh, ..
        } = self.options;
        let node = node.as_deref().unwrap_or_default();
        let hosts = format!("{},{node}", self.host);
        let mut words = vec!["-n", "2", "--hosts", &hosts];
        let given = [("--address", address), ("--rsh", rsh)];
        for (option, value) in &given {
            words.extend(value.iter().flat_map(|value| [*option, &**value]));
        }
        let program = call.program.to_string_lossy();
        words.push(&program);
        self.program("warpbell-launch", &words, &call.arguments)
    }

    /// The options that choose a place.
    fn place(&self, place: Place) -> Vec<String> {
        let gpu = self.options.gpu.to_string();
        let mut words = Vec::new();
        if place != Place::Cpu {
            words.extend(["--on", "gpu"]);
            if self.options.gpu != 0 {
                words.extend(["--gpu", &gpu]);
            }
        }
        let gid_index = self.options.gid_index.map(|index| index.to_string());
        match (&self.nic, place) {
            (Nic::Software, Place::Cpu) => words.extend(["--nic", "soft"]),
            (Nic::Software, Place::GpuHostMemory) => words.extend(["--nic", "soft-host"]),
            (Nic::Software, Place::GpuMemory) => words.extend(["--nic", "soft-gpu"]),
            (Nic::Card(name), _) => {
                words.extend(["--nic", name]);
                words.extend(gid_index.iter().flat_map(|index| ["--gid-index", index]));
                if place == Place::GpuHostMemory {
                    words.push("--host-memory");
                }
            }
        }
        words.into_iter().map(str::to_owned).collect()
    }
}

impl Nic {
    /// A NIC by its name on the command line.
    pub fn of(name: &str) -> Self {
        match name {
            "soft" | "soft-host" | "soft-gpu" => Self::Software,
            card => Self::Card(card.into()),
        }
    }

    /// A card's name without its port.
    pub fn card(&self) -> Option<&str> {
        match self {
            Self::Software => None,
            Self::Card(name) => Some(name.split(':').next().unwrap_or(name)),
        }
    }
}

impl fmt::Display for Nic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Software => f.write_str("software"),
            Self::Card(name) => f.write_str(name),
        }
    }
}

/// For a shell.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quoted(&self.program.to_string_lossy()))?;
        let mut arguments = self.arguments.iter();
        arguments.try_for_each(|argument| write!(f, " {}", quoted(argument)))
    }
}

/// A word, quoted where a shell would see more in it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@,=".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}
