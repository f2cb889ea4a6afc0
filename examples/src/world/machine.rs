//! What of a machine is chosen on a command line, and how it becomes places where kernels run.

use std::convert::Infallible;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::{Serialize, Serializer};
use warpbell_host_init::{GidChoice, Gpu};
use warpbell_ptx::{KERNELS, SOFT_NIC};

use super::{Kernels, World};
use crate::ptx::OwnPtx;
use crate::{Error, interrupt};

/// What runs kernels, and what is the NIC.
#[derive(Clone, Debug, Args)]
pub struct Machine {
    /// Where kernels run
    #[arg(long, value_enum, default_value = "cpu")]
    on: On,
    /// Which NIC: soft, soft-host, soft-gpu, or the name of an mlx5 card, perhaps with a port (mlx5_0:2); by default
    /// the first that works with the kernels there
    #[arg(long, value_name = "NAME", value_parser = Nic::of_name)]
    nic: Option<Nic>,
    /// Index of the card's GID; by default one is chosen
    #[arg(long, value_name = "NUMBER")]
    gid_index: Option<u8>,
    /// Number of the GPU, counted from 0
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    gpu: u32,
    /// Number of the GPU that the engine of --nic soft-gpu runs on; by default that of --gpu
    #[arg(long, value_name = "NUMBER")]
    nic_gpu: Option<u32>,
    /// PTX in place of what is built in: the examples' kernels, the NIC's engine, or both; may be given twice
    #[arg(long, value_name = "PATH")]
    ptx: Vec<PathBuf>,
    /// Tell, line by line on stderr, of requests that a NIC would be slow with: READs that are long, addresses that take
    /// more PCIe packets than they need or crowd in a few KiB; of NICs on a CPU thread
    #[arg(long)]
    watch: bool,
}

/// What runs kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum On {
    /// CPU threads
    Cpu,
    /// An NVIDIA GPU
    Gpu,
}

/// A NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nic {
    /// A CPU thread, for kernels on the CPU
    Soft,
    /// A CPU thread, for kernels on a GPU: queues and data lie in pinned host memory
    SoftHost,
    /// A kernel beside the others: queues and data lie in the GPU's memory
    SoftGpu,
    /// The mlx5 card of this name; queues and data lie where kernels reach them best
    Card(&'static str),
}

impl Nic {
    /// Those made of software.
    pub(super) const SOFT: [Self; 3] = [Self::Soft, Self::SoftHost, Self::SoftGpu];

    /// Its name, as `--nic` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Soft => "soft",
            Self::SoftHost => "soft-host",
            Self::SoftGpu => "soft-gpu",
            Self::Card(name) => name,
        }
    }

    /// The NIC of that name: one of software, or a card, which may not be there.
    fn of_name(name: &str) -> Result<Self, Infallible> {
        let soft = Self::SOFT.into_iter().find(|nic| nic.name() == name);
        // It is asked for once, and kept until the process ends.
        Ok(soft.unwrap_or_else(|| Self::Card(String::from(name).leak())))
    }

    fn is_card(self) -> bool {
        matches!(self, Self::Card(_))
    }
}

impl Serialize for Nic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl Machine {
    /// The NICs of software that work with the kernels, and what kernels there are called.
    fn able(&self) -> ([Nic; 2], &'static str) {
        match self.on {
            On::Cpu => ([Nic::Soft, Nic::SoftGpu], "cpu"),
            On::Gpu => ([Nic::SoftHost, Nic::SoftGpu], "gpu"),
        }
    }

    /// The same machine with the NIC that was named, or with each of software.
    pub fn with_each_nic(&self) -> Vec<Self> {
        let (able, _) = self.able();
        let nics = match self.nic {
            Some(nic) => vec![nic],
            None => able.to_vec(),
        };
        let with = |nic| Self {
            nic: Some(nic),
            ..self.clone()
        };
        nics.into_iter().map(with).collect()
    }

    /// Makes ready what was chosen.
    ///
    /// # Errors
    /// A NIC that does not work with kernels there; whatever is missing for a GPU.
    pub fn open(&self) -> Result<World, Error> {
        let worlds = self.open_on(&[self.gpu])?;
        Ok(worlds[0])
    }

    /// The same with kernels on each of several GPUs: a place for each, all with one NIC. Without any named there is the one
    /// place of [`open`](Self::open).
    ///
    /// # Errors
    /// As [`open`](Self::open); several GPUs of a CPU, or one twice; those out of the NIC's reach.
    pub fn open_each(&self, gpus: &[u32]) -> Result<Vec<World>, Error> {
        if gpus.is_empty() {
            return self.open_on(&[self.gpu]);
        }
        if self.on == On::Cpu {
            return Err(Error::NoGpus);
        }
        for (index, &gpu) in gpus.iter().enumerate() {
            if gpus[..index].contains(&gpu) {
                return Err(Error::GpuTwice { gpu });
            }
        }
        self.open_on(gpus)
    }

    /// A place on each of these GPUs, of which there is one at least; a CPU is one place.
    fn open_on(&self, gpus: &[u32]) -> Result<Vec<World>, Error> {
        let (able, needed) = self.able();
        let nic = self.nic.unwrap_or(able[0]);
        if !able.contains(&nic) && !nic.is_card() {
            return Err(Error::WrongNic {
                wanted: nic.name(),
                needed,
                able: able.map(Nic::name),
            });
        }
        if self.nic_gpu.is_some() && (self.on, nic) != (On::Gpu, Nic::SoftGpu) {
            return Err(Error::NoNicGpu);
        }
        if self.watch && !matches!(nic, Nic::Soft | Nic::SoftHost) {
            return Err(Error::NoWatch);
        }
        let own = OwnPtx::read(&self.ptx)?;
        let (places, engine) = match self.on {
            On::Cpu => (vec![Kernels::Cpu], None),
            On::Gpu => {
                let opened = gpus.iter().map(|&gpu| Gpu::open(gpu));
                let opened = opened.collect::<Result<Vec<_>, _>>()?;
                let engine = match nic {
                    Nic::SoftGpu => {
                        let nic_gpu = self.nic_gpu.map_or(Ok(opened[0]), Gpu::open)?;
                        // Before any kernel is loaded: what is out of reach is said at once.
                        let mut each = opened.iter();
                        each.try_for_each(|gpu| gpu.enable_peer_access(nic_gpu))?;
                        Some(own.load(nic_gpu, &SOFT_NIC)?)
                    }
                    Nic::Soft | Nic::SoftHost | Nic::Card(_) => None,
                };
                let load = |&gpu| own.load(gpu, &KERNELS).map(Kernels::Gpu);
                let places = opened.iter().map(load).collect::<Result<Vec<_>, _>>()?;
                (places, engine)
            }
        };
        let world = |kernels: Kernels| {
            Ok(World {
                kernels,
                nic,
                gid: GidChoice {
                    index: self.gid_index,
                    ..GidChoice::default()
                },
                engine,
                watch: self.watch,
                runtime: None,
                asleep: false,
                stop: interrupt::stop(kernels.placement())?,
            })
        };
        places.into_iter().map(world).collect()
    }
}
