//! Options of a command line that choose a node.
//!
//! ```
//! use clap::Parser;
//! use warpbell_host_init::args::NodeArgs;
//!
//! #[derive(Parser)]
//! struct Arguments {
//!     #[command(flatten)]
//!     node: NodeArgs,
//! }
//!
//! assert!(Arguments::try_parse_from(["program", "--on", "cpu", "--nic", "soft"]).is_ok());
//! assert!(Arguments::try_parse_from(["program", "--on", "moon"]).is_err());
//! ```

use std::convert::Infallible;

use clap::{Args, Parser, ValueEnum};
use warpbell::Entry;
use warpbell_cpu_grid::Options;
use warpbell_soft_hca_gpu::MemoryScope;
use warpbell_soft_hca_gpu::resident::Arguments;

use crate::cuda::{Built, Module};
use crate::mlx5::{GidChoice, Mlx5Options};
use crate::soft::{SoftGpuOptions, SoftOptions};
use crate::{Device, Error, Gpu, GpuError, Kernels, Nic, Node};

/// Options of a command line that choose a [`Node`], for [`clap`].
///
/// ```
/// use clap::Parser;
/// use warpbell_host_init::NodeArgs;
///
/// #[derive(Parser)]
/// struct Arguments {
///     #[command(flatten)]
///     node: NodeArgs,
/// }
///
/// let arguments = Arguments::parse_from(["program", "--on", "gpu", "--nic", "mlx5_0"]);
/// # let _ = arguments.node;
/// ```
#[derive(Clone, Debug, Default, Args)]
pub struct NodeArgs {
    /// Where kernels run
    #[arg(long, value_enum, default_value_t)]
    on: On,
    /// Which NIC: soft, soft-host, soft-gpu, or the name of an mlx5 card, optionally with a port (mlx5_0:2); by default
    /// the first that works with the kernels there. Of several (mlx5_0,mlx5_1), the first rank of a machine takes the first,
    /// and so on
    #[arg(long = "nic", value_name = "NAME", value_delimiter = ',', value_parser = NicName::parse)]
    nics: Vec<NicName>,
    /// Index of the card's GID; by default one is chosen
    #[arg(long, value_name = "NUMBER")]
    gid_index: Option<u8>,
    /// Number of the GPU, counted from 0
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    gpu: u32,
    /// Number of the GPU that the engine of --nic soft-gpu runs on; by default that of --gpu
    #[arg(long, value_name = "NUMBER")]
    nic_gpu: Option<u32>,
    /// Keep queues and data of kernels on a GPU in host memory, which a card reaches without GPUDirect RDMA
    #[arg(long)]
    host_memory: bool,
}

/// What runs kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum On {
    /// CPU threads
    #[default]
    Cpu,
    /// An NVIDIA GPU
    Gpu,
}

/// A NIC by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NicName {
    /// A CPU thread, for kernels on the CPU.
    Soft,
    /// A CPU thread, for kernels on a GPU: queues and data lie in pinned host memory.
    SoftHost,
    /// A kernel beside the others: queues and data lie in the GPU's memory.
    SoftGpu,
    /// A card, which may not be there.
    Card(String),
}

/// The names of NICs made of software.
const SOFT: [&str; 3] = ["soft", "soft-host", "soft-gpu"];

impl NicName {
    fn of(name: &str) -> Self {
        match name {
            "soft" => Self::Soft,
            "soft-host" => Self::SoftHost,
            "soft-gpu" => Self::SoftGpu,
            card => Self::Card(card.into()),
        }
    }

    fn parse(name: &str) -> Result<Self, Infallible> {
        Ok(Self::of(name))
    }

    fn name(&self) -> &str {
        match self {
            Self::Soft => SOFT[0],
            Self::SoftHost => SOFT[1],
            Self::SoftGpu => SOFT[2],
            Self::Card(name) => name,
        }
    }
}

/// The kernels of a program, which a GPU needs as modules. They stay loaded until the process ends.
pub trait Programs {
    /// Why a module cannot be loaded, or a node opened.
    type Error: From<NodeError> + From<Error>;

    /// The kernel of a NIC's engine, as CPU threads run it. A program without one has no `--nic soft-gpu`.
    const ENGINE: Option<Entry<fn(Arguments)>>;

    /// Loads the program's kernels on a GPU.
    ///
    /// # Errors
    /// No PTX for that GPU, or a module that is refused.
    fn kernels(&self, gpu: Gpu) -> Result<&'static Module, Self::Error>;

    /// Loads the kernel of a NIC's engine on a GPU, for blocks of [`ENGINE_THREADS`](crate::soft::ENGINE_THREADS).
    ///
    /// # Errors
    /// As [`kernels`](Self::kernels).
    fn engine(&self, gpu: Gpu) -> Result<&'static Module, Self::Error>;
}

/// What `warpbell-build` compiled: the program's own kernels, and no NIC's engine.
impl Programs for Built {
    type Error = Error;

    const ENGINE: Option<Entry<fn(Arguments)>> = None;

    fn kernels(&self, gpu: Gpu) -> Result<&'static Module, Error> {
        self.load_module(gpu)
    }

    fn engine(&self, _: Gpu) -> Result<&'static Module, Error> {
        Err(NodeError::NoEngine.into())
    }
}

impl Node {
    /// The node that the command line of this program chooses, which takes the options of [`NodeArgs`] and no other.
    /// Wrong options end the program with status 2, `--help` with 0. A program with options of its own flattens
    /// [`NodeArgs`] into them.
    ///
    /// ```no_run
    /// use warpbell_host_init::Node;
    ///
    /// # macro_rules! built { () => { unreachable!("this is compiled and not run") } }
    /// let node = Node::from_args(built!())?;
    /// # Ok::<(), warpbell_host_init::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`NodeArgs::open`].
    pub fn from_args(built: Built) -> Result<Self, Error> {
        /// Runs kernels on a CPU or a GPU, with a software NIC or a card
        #[derive(Parser)]
        struct Arguments {
            #[command(flatten)]
            node: NodeArgs,
        }
        Arguments::parse().node.open(&built)
    }
}

/// Options that choose no node.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A NIC that does not work with the kernels.
    #[error(
        "the NIC {nic} does not work with kernels on the {on}; choose --nic {}, or run the kernels elsewhere (--on)",
        able.join(" or ")
    )]
    WrongNic {
        /// The NIC asked for.
        nic: String,
        /// Where the kernels run.
        on: &'static str,
        /// The NICs that work with them.
        able: [&'static str; 2],
    },
    /// A name that no NIC has, or a card that cannot be used.
    #[error("the NIC {name} is none of software ({}), nor a card that works: {source}", SOFT.join(", "))]
    NoCard {
        /// The name asked for.
        name: String,
        /// Why it is no card.
        source: Box<Error>,
    },
    /// A NIC whose engine is a kernel that the program does not have.
    #[error("this program has no kernel for the NIC soft-gpu; leave --nic out")]
    NoEngine,
    /// Fewer NICs than ranks on this machine.
    #[error(
        "--nic names {} NICs ({}), and this is rank {local_rank} of its machine, counted from 0; name a NIC for each rank, or start fewer ranks there",
        nics.len(), nics.join(", ")
    )]
    TooFewNics {
        /// The number of this rank among those of its machine.
        local_rank: u32,
        /// The NICs named.
        nics: Vec<String>,
    },
    /// Several NICs for ranks of which nobody says which come first on their machine.
    #[error(
        "--nic names several NICs, and the launcher does not say which rank of its machine this is; set WARPBELL_LOCAL_RANK, or name one NIC"
    )]
    NoLocalRank,
    /// A GPU for a NIC that is on none.
    #[error("--nic-gpu names the GPU of --on gpu --nic soft-gpu; choose those, or leave it out")]
    NoNicGpu,
    /// Several GPUs for kernels that are on none.
    #[error("--gpus needs --on gpu; add it, or leave --gpus out")]
    NoGpus,
    /// A GPU among several that is there before.
    #[error("--gpus names GPU {gpu} twice; name each GPU once")]
    GpuTwice {
        /// Its number.
        gpu: u32,
    },
}

impl NodeArgs {
    /// The NICs of software that work with the kernels.
    fn able(&self) -> [&'static str; 2] {
        match self.on {
            On::Cpu => ["soft", "soft-gpu"],
            On::Gpu => ["soft-host", "soft-gpu"],
        }
    }

    /// The same options with the NICs that were named, or with each of software.
    pub fn with_each_nic(&self) -> Vec<Self> {
        if !self.nics.is_empty() {
            return vec![self.clone()];
        }
        let with = |name| Self {
            nics: vec![NicName::of(name)],
            ..self.clone()
        };
        self.able().map(with).to_vec()
    }

    /// The same options with a NIC whose engine is a kernel, if none was named.
    pub fn or_soft_gpu(mut self) -> Self {
        if self.nics.is_empty() {
            self.nics.push(NicName::SoftGpu);
        }
        self
    }

    /// Whether kernels run on CPU threads, with a NIC on another one.
    pub fn is_cpu(&self) -> bool {
        let soft = self.nics.iter().all(|nic| *nic == NicName::Soft);
        self.on == On::Cpu && soft
    }

    /// Opens the node that was chosen.
    ///
    /// # Errors
    /// [`NodeError`] for options that do not suit each other, fewer NICs than ranks of this machine, and a card that cannot be
    /// used; what a GPU lacks.
    pub fn open<P: Programs>(&self, programs: &P) -> Result<Node, P::Error> {
        let mut nodes = self.open_on(&[self.gpu], programs)?;
        Ok(nodes.remove(0))
    }

    /// The same with kernels on each of several GPUs: a node for each, all with one NIC. Without any named there is the
    /// one node of [`open`](Self::open).
    ///
    /// # Errors
    /// As [`open`](Self::open); several GPUs of a CPU, or one twice; GPUs that do not reach the NIC's.
    pub fn open_each<P: Programs>(
        &self,
        gpus: &[u32],
        programs: &P,
    ) -> Result<Vec<Node>, P::Error> {
        if gpus.is_empty() {
            return self.open_on(&[self.gpu], programs);
        }
        if self.on == On::Cpu {
            return Err(NodeError::NoGpus.into());
        }
        for (index, &gpu) in gpus.iter().enumerate() {
            if gpus[..index].contains(&gpu) {
                return Err(NodeError::GpuTwice { gpu }.into());
            }
        }
        self.open_on(gpus, programs)
    }

    /// A node on each of these GPUs, of which there is one at least; CPU threads are one node.
    fn open_on<P: Programs>(&self, gpus: &[u32], programs: &P) -> Result<Vec<Node>, P::Error> {
        let able = self.able();
        let name = self.nic_of(local_rank)?;
        if !matches!(name, NicName::Card(_)) && !able.contains(&name.name()) {
            let wrong = NodeError::WrongNic {
                nic: name.name().into(),
                on: match self.on {
                    On::Cpu => "cpu",
                    On::Gpu => "gpu",
                },
                able,
            };
            return Err(wrong.into());
        }
        if self.nic_gpu.is_some() && (self.on, &name) != (On::Gpu, &NicName::SoftGpu) {
            return Err(NodeError::NoNicGpu.into());
        }
        let gpus = match self.on {
            On::Cpu => Vec::new(),
            On::Gpu => opened(gpus).map_err(Error::from)?,
        };
        let nic = match name {
            NicName::Soft | NicName::SoftHost => Nic::Soft(SoftOptions::default()),
            NicName::SoftGpu => {
                let engine = P::ENGINE.ok_or(NodeError::NoEngine)?;
                let on = match gpus.first() {
                    None => Kernels::Cpu(Options::default()),
                    Some(&first) => {
                        let gpu = self.nic_gpu.map_or(Ok(first), Gpu::open);
                        let gpu = gpu.map_err(Error::from)?;
                        // Before any kernel is loaded: what is out of reach is reported at once.
                        let reach = |kernels: &Gpu| kernels.enable_peer_access(gpu);
                        gpus.iter().try_for_each(reach).map_err(Error::from)?;
                        Kernels::Gpu(programs.engine(gpu)?)
                    }
                };
                let options = SoftGpuOptions::new(engine, on);
                Nic::SoftGpu(SoftGpuOptions {
                    // Otherwise it does not reach host memory.
                    reach: match self.host_memory {
                        true => MemoryScope::System,
                        false => options.reach,
                    },
                    ..options
                })
            }
            NicName::Card(name) => Nic::Mlx5(self.card(&name)?),
        };
        let kernels = match self.on {
            On::Cpu => vec![Kernels::Cpu(Options::default())],
            On::Gpu => {
                let load = |&gpu: &Gpu| programs.kernels(gpu).map(Kernels::Gpu);
                gpus.iter().map(load).collect::<Result<_, _>>()?
            }
        };
        let node = |kernels| {
            let node = Node::new(kernels, nic.clone())?;
            Ok(match self.host_memory {
                true => node.in_host_memory(),
                false => node,
            })
        };
        kernels.into_iter().map(node).collect()
    }

    /// The NIC of this process: of several the one of its rank on this machine.
    fn nic_of(&self, local_rank: impl FnOnce() -> Result<u32, Error>) -> Result<NicName, Error> {
        match &self.nics[..] {
            [] => Ok(NicName::of(self.able()[0])),
            [one] => Ok(one.clone()),
            several => {
                let local_rank = local_rank()?;
                let nic = several.get(local_rank as usize).cloned();
                let nics = || several.iter().map(|nic| nic.name().into()).collect();
                Ok(nic.ok_or_else(|| NodeError::TooFewNics {
                    local_rank,
                    nics: nics(),
                })?)
            }
        }
    }

    /// The options of a card that can be opened.
    fn card(&self, name: &str) -> Result<Mlx5Options, NodeError> {
        let port = name.rsplit_once(':').and_then(|(device, port)| {
            let port = port.parse().ok()?;
            Some((device, port))
        });
        let (device, port) = port.unwrap_or((name, 1));
        let options = Mlx5Options {
            port,
            gid: GidChoice {
                index: self.gid_index,
                ..GidChoice::default()
            },
            ..Mlx5Options::new(device)
        };
        match Device::open(Nic::Mlx5(options.clone())) {
            Ok(_) => Ok(options),
            Err(source) => Err(NodeError::NoCard {
                name: name.into(),
                source: source.into(),
            }),
        }
    }
}

fn opened(gpus: &[u32]) -> Result<Vec<Gpu>, GpuError> {
    gpus.iter().map(|&gpu| Gpu::open(gpu)).collect()
}

/// The number of this process among the ranks of its machine, as its launcher says it. A process that no launcher has
/// started is the first.
#[cfg(feature = "ranks")]
fn local_rank() -> Result<u32, Error> {
    use warpbell_ranks::{Config, Environment};
    let config =
        Config::read(&Environment::of_process()).map_err(crate::world::WorldError::from)?;
    Ok(config.local_rank.ok_or(NodeError::NoLocalRank)?)
}

/// A program without ranks has no second process on its machine that this one knows of.
#[cfg(not(feature = "ranks"))]
fn local_rank() -> Result<u32, Error> {
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Parser)]
    struct Options {
        #[command(flatten)]
        node: NodeArgs,
    }

    /// The NIC that a rank of a machine takes by these options, or why it takes none.
    fn nic(options: &[&str], local_rank: Result<u32, NodeError>) -> String {
        let Options { node } = Options::parse_from([&["program"], options].concat());
        match node.nic_of(|| Ok(local_rank?)) {
            Ok(nic) => nic.name().into(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn each_rank_of_a_machine_takes_the_nic_at_its_place() {
        for (options, local_rank, expected) in [
            (&[][..], 5, "soft"),
            (&["--on", "gpu"], 5, "soft-host"),
            (&["--nic", "mlx5_3:2"], 5, "mlx5_3:2"),
            (&["--nic", "mlx5_0,mlx5_1:2"], 0, "mlx5_0"),
            (&["--nic", "mlx5_0,mlx5_1:2"], 1, "mlx5_1:2"),
            (
                &["--nic", "mlx5_0,mlx5_1:2"],
                2,
                "--nic names 2 NICs (mlx5_0, mlx5_1:2), and this is rank 2 of its machine, counted from 0; name a NIC for each rank, or start fewer ranks there",
            ),
        ] {
            assert_eq!(nic(options, Ok(local_rank)), expected);
        }
        let unknown = || Err(NodeError::NoLocalRank);
        assert_eq!(nic(&["--nic", "mlx5_0"], unknown()), "mlx5_0");
        let said = nic(&["--nic", "mlx5_0,mlx5_1"], unknown());
        assert!(said.contains("set WARPBELL_LOCAL_RANK"), "{said}");
    }

    /// A program with the kernel of an engine, on the CPU alone.
    struct Engine;

    impl Programs for Engine {
        type Error = Error;

        const ENGINE: Option<Entry<fn(Arguments)>> =
            Some(crate::entry!(warpbell_kernels::soft_nic::soft_nic));

        fn kernels(&self, _: Gpu) -> Result<&'static Module, Error> {
            unreachable!("no GPU is asked for")
        }

        fn engine(&self, _: Gpu) -> Result<&'static Module, Error> {
            unreachable!("no GPU is asked for")
        }
    }

    #[test]
    fn an_engine_that_is_a_kernel_reaches_host_memory_if_queues_stay_there() {
        for (option, reach) in [
            (None, MemoryScope::Gpu),
            (Some("--host-memory"), MemoryScope::System),
        ] {
            let words = ["program", "--nic", "soft-gpu"].into_iter().chain(option);
            let node = Options::parse_from(words).node.open(&Engine).unwrap();
            let Nic::SoftGpu(found) = node.nic() else {
                panic!("{node:?}")
            };
            assert_eq!(found.reach, reach, "{option:?}");
        }
    }

    #[test]
    fn a_list_stays_as_it_is() {
        let Options { node } = Options::parse_from(["program", "--nic", "soft,soft-gpu"]);
        assert_eq!(node.with_each_nic().len(), 1);
        assert!(!node.is_cpu());
        assert_eq!(node.or_soft_gpu().nics, [NicName::Soft, NicName::SoftGpu]);
        let none = NodeArgs::default();
        assert_eq!(none.with_each_nic().len(), 2);
        assert!(none.is_cpu());
        assert_eq!(none.or_soft_gpu().nics, [NicName::SoftGpu]);
    }
}
