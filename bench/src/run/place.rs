//! What an example tells of the node that it runs on.

use serde::Serialize;
use warpbell_host_init::soft::SoftGpuOptions;
use warpbell_host_init::{Nic, Node};

/// Where kernels ran, for a document.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "on", rename_all = "kebab-case")]
pub enum Ran {
    /// On CPU threads.
    Cpu,
    /// On a GPU.
    Gpu {
        /// Its name.
        name: &'static str,
        /// Its compute capability.
        compute_capability: String,
        /// The newest CUDA version that its driver knows.
        cuda: String,
    },
}

impl Ran {
    /// Where a node's kernels run.
    pub fn on(node: &Node) -> Self {
        match node.gpu() {
            None => Self::Cpu,
            Some(gpu) => Self::Gpu {
                name: gpu.name(),
                compute_capability: gpu.compute_capability().to_string(),
                cuda: gpu.driver(),
            },
        }
    }
}

/// Where a node's kernels run, in words: "CPU threads", or the GPU's name.
pub fn words(node: &Node) -> String {
    match Ran::on(node) {
        Ran::Cpu => "CPU threads".into(),
        Ran::Gpu { name, cuda, .. } => format!("an {name} (CUDA {cuda})"),
    }
}

/// A node's NIC in words, as the subject of a sentence in the plural.
pub fn nic_words(node: &Node) -> String {
    match node.nic() {
        Nic::SoftGpu(options) if engine_is_apart(node, options) => {
            "both ends of a software HCA, whose engine is a kernel on another GPU,".into()
        }
        Nic::SoftGpu(_) => {
            "both ends of a software HCA, whose engine is a kernel beside them,".into()
        }
        Nic::Mlx5(_) => format!("two queue pairs of {}", node.nic_name()),
        _ => "two software HCAs in this process".into(),
    }
}

/// Whether the NIC's engine is a kernel on another GPU than the node's kernels.
fn engine_is_apart(node: &Node, options: &SoftGpuOptions) -> bool {
    options.on.gpu() != node.gpu()
}
