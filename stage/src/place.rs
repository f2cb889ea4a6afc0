//! The node that a program runs on, in words.

use warpbell_host_init::{Nic, Node};

/// Where a node's kernels run: "CPU threads", or the GPU's name.
pub fn words(node: &Node) -> String {
    match node.gpu() {
        None => "CPU threads".into(),
        Some(gpu) => format!("an {} (CUDA {})", gpu.name(), gpu.driver()),
    }
}

/// A node's NIC, as the subject of a sentence in the plural.
pub fn nic_words(node: &Node) -> String {
    match node.nic() {
        Nic::Mlx5(_) => format!("two queue pairs of {}", node.nic_name()),
        Nic::SoftGpu(options) if options.on.gpu() != node.gpu() => {
            "both ends of a software HCA, whose engine is a kernel on another GPU,".into()
        }
        Nic::SoftGpu(_) => {
            "both ends of a software HCA, whose engine is a kernel beside them,".into()
        }
        _ => "two software HCAs in this process".into(),
    }
}
