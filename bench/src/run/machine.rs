//! The options of a command line that choose where an example runs.

use std::path::PathBuf;

use clap::Args;
use warpbell_host_init::args::Programs;
use warpbell_host_init::soft::SoftOptions;
use warpbell_host_init::{Kernels, Nic, Node, NodeArgs};
use warpbell_ptx::{KERNELS, Module};
use warpbell_soft_hca::shell::{HcaOptions, RequestWatch, WatchLimits};

use crate::run::Error;
use crate::run::ptx::OwnPtx;

/// What runs kernels, and what is the NIC.
#[derive(Clone, Debug, Args)]
pub struct Machine {
    #[command(flatten)]
    node: NodeArgs,
    /// PTX in place of what is built in: the program's kernels, the NIC's engine, or both; may be given twice
    #[arg(long, value_name = "PATH")]
    ptx: Vec<PathBuf>,
    /// Report on stderr, line by line, requests that a NIC would execute slowly: long READs, addresses that take more PCIe
    /// packets than needed, or that crowd in a few KiB; only for NICs on a CPU thread
    #[arg(long)]
    watch: bool,
}

impl Machine {
    /// The same machine with the NIC that was named, or with each of software.
    pub fn with_each_nic(&self) -> Vec<Self> {
        let with = |node| Self {
            node,
            ..self.clone()
        };
        self.node.with_each_nic().into_iter().map(with).collect()
    }

    /// Opens the node that was chosen.
    ///
    /// # Errors
    /// As [`NodeArgs::open`]; a file that has none of the kernels; a watch over a NIC that nobody can watch.
    pub fn open(&self) -> Result<Node, Error> {
        let mut nodes = self.open_with(&KERNELS, &[])?;
        Ok(nodes.remove(0))
    }

    /// The same with kernels of this module, on each of several GPUs.
    ///
    /// # Errors
    /// As [`open`](Self::open) and [`NodeArgs::open_each`].
    pub fn open_with(&self, kernels: &'static Module, gpus: &[u32]) -> Result<Vec<Node>, Error> {
        let programs = OwnPtx::read(kernels, &self.ptx)?;
        let nodes = self.node.open_each(gpus, &programs)?;
        match self.watch {
            false => Ok(nodes),
            true => nodes.iter().map(watched).collect(),
        }
    }

    /// The same node, with the kernels of another module.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn with_kernels(&self, node: &Node, kernels: &'static Module) -> Result<Node, Error> {
        let Some(gpu) = node.gpu() else {
            return Ok(node.clone());
        };
        let loaded = OwnPtx::read(kernels, &self.ptx)?.kernels(gpu)?;
        Ok(Node::new(Kernels::Gpu(loaded), node.nic().clone())?)
    }
}

/// The same node, with a watch over its NICs' requests, which tells of them on stderr.
fn watched(node: &Node) -> Result<Node, Error> {
    let Nic::Soft(options) = node.nic() else {
        return Err(Error::NoWatch);
    };
    let tell = |advice| eprintln!("{advice}");
    let watch = RequestWatch::telling(WatchLimits::default(), tell);
    let options = SoftOptions {
        hca: HcaOptions {
            watch: Some(watch),
            ..options.hca.clone()
        },
        ..options.clone()
    };
    Ok(node.with_nic(Nic::Soft(options))?)
}
