//! What an example tells of the node that it runs on.

use serde::Serialize;
use warpbell_host_init::Node;
pub use warpbell_stage::place::{nic_words, words};

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
