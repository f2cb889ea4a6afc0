//! The options of a test's command line.

use std::path::PathBuf;

use clap::Args;
use warpbell_host_init::args::{NodeError, Programs};
use warpbell_host_init::cuda::{ComputeCapability, Module, Ptx};
use warpbell_host_init::mlx5::Mlx5Error;
use warpbell_host_init::soft::{ENGINE_THREADS, SoftGpuOptions};
use warpbell_host_init::{Entry, Error, Gpu, GpuError, Nic, NodeArgs, entry};
use warpbell_ptx::{Capability, PtxError};
use warpbell_soft_hca_gpu::resident::Arguments;

use crate::here;

/// Where a test runs.
#[derive(Clone, Debug, Default, Args)]
pub struct Machine {
    #[command(flatten)]
    node: NodeArgs,
    /// Kernels to take instead of the embedded ones, as PTX (may be repeated)
    #[arg(long, value_name = "PATH")]
    ptx: Vec<PathBuf>,
    /// How many times as long everything may take, as under a sanitizer
    #[arg(long, value_name = "TIMES", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    slower: u32,
}

/// Threads of the largest block that a test of the suite launches.
const LARGEST_BLOCK: u32 = 1024;

/// Why a test does not run.
#[derive(Debug, thiserror::Error)]
pub enum Unable {
    /// The hardware is not there, which is no fault.
    #[error("{0}")]
    Missing(String),
    /// An option is wrong, or what it names.
    #[error("{0}")]
    Wrong(String),
}

impl From<GpuError> for Unable {
    fn from(error: GpuError) -> Self {
        let line = error.to_string();
        match error {
            GpuError::NoDriver
            | GpuError::NoGpu { .. }
            | GpuError::NoSuchGpu { .. }
            | GpuError::NoPeerAccess { .. }
            | GpuError::NoPeerAtomics { .. }
            | GpuError::TooOld { .. } => Self::Missing(line),
            _ => Self::Wrong(line),
        }
    }
}

impl From<Error> for Unable {
    fn from(error: Error) -> Self {
        match error {
            Error::Gpu(error) => error.into(),
            Error::Mlx5(error)
                if matches!(
                    *error,
                    Mlx5Error::NoLibrary { .. } | Mlx5Error::NoDevice { .. }
                ) =>
            {
                Self::Missing(error.to_string())
            }
            other => Self::Wrong(other.to_string()),
        }
    }
}

impl From<NodeError> for Unable {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::NoCard { source, .. } => (*source).into(),
            other => Self::Wrong(other.to_string()),
        }
    }
}

impl Machine {
    /// Whether kernels and NIC are threads of this process.
    pub fn is_cpu(&self) -> bool {
        self.node.is_cpu()
    }

    /// With a NIC whose engine is a kernel, if the command line names none.
    pub fn or_soft_gpu(self) -> Self {
        Self {
            node: self.node.or_soft_gpu(),
            ..self
        }
    }

    /// Makes it what this process runs on, with the kernels of the suite.
    ///
    /// # Errors
    /// What is missing, or wrong.
    pub fn open(&self) -> Result<(), Unable> {
        self.open_with(&warpbell_ptx::SUITE)
    }

    /// The same with the kernels of a module.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(&self, kernels: &warpbell_ptx::Module) -> Result<(), Unable> {
        let loader = Loader {
            machine: self,
            kernels,
        };
        let mut node = self.node.open(&loader)?;
        if let Nic::SoftGpu(options) = node.nic() {
            let options = SoftGpuOptions {
                limit: options.limit * self.slower,
                ..options.clone()
            };
            node = node.with_nic(Nic::SoftGpu(options))?;
        }
        match here::choose(&node, self.slower) {
            true => Ok(()),
            false => Err(Unable::Wrong("two machines".into())),
        }
    }

    /// Loads a module, from the file that has a kernel of it if one is given.
    fn load(&self, gpu: Gpu, embedded: &warpbell_ptx::Module) -> Result<&'static Module, Unable> {
        let text = match self.given(embedded)? {
            Some(text) => text,
            None => {
                let ComputeCapability { major, minor } = gpu.compute_capability();
                let text = embedded.text_for(Capability { major, minor });
                text.map_err(|error| match error {
                    PtxError::TooOld { .. } => Unable::Missing(error.to_string()),
                    _ => Unable::Wrong(error.to_string()),
                })?
            }
        };
        // SAFETY: what is embedded was compiled from the sources of the kernels that are launched from it, and whoever
        // gives a file vouches for the same.
        let ptx = [unsafe { Ptx::from_text(&text)? }];
        let is = |module| std::ptr::eq(embedded, module);
        let module = if is(&warpbell_ptx::SUITE) {
            Module::load_for_blocks(gpu, &ptx, LARGEST_BLOCK)?
        } else if is(&warpbell_ptx::SOFT_NIC) {
            Module::load_for_blocks(gpu, &ptx, ENGINE_THREADS)?
        } else {
            Module::load(gpu, &ptx)?
        };
        // Kernels stay loaded until the process ends.
        Ok(Box::leak(Box::new(module)))
    }

    /// The PTX from the command line that has a kernel of this module.
    fn given(&self, module: &warpbell_ptx::Module) -> Result<Option<String>, Unable> {
        for path in &self.ptx {
            let text = std::fs::read_to_string(path)
                .map_err(|error| Unable::Wrong(format!("{}: {error}", path.display())))?;
            if module.is_in(&text) {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }
}

/// The kernels of a module, and a NIC's engine.
struct Loader<'m> {
    machine: &'m Machine,
    kernels: &'m warpbell_ptx::Module,
}

impl Programs for Loader<'_> {
    type Error = Unable;

    const ENGINE: Option<Entry<fn(Arguments)>> = Some(entry!(warpbell_kernels::soft_nic::soft_nic));

    fn kernels(&self, gpu: Gpu) -> Result<&'static Module, Unable> {
        self.machine.load(gpu, self.kernels)
    }

    fn engine(&self, gpu: Gpu) -> Result<&'static Module, Unable> {
        self.machine.load(gpu, &warpbell_ptx::SOFT_NIC)
    }
}
