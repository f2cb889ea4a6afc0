//! Nodes that differ a little from the one on the command line.

use std::sync::Arc;

use warpbell_host_init::soft::{Drive, SoftGpuOptions, SoftOptions};
use warpbell_host_init::{Nic, Node, ProtectionDomain};
use warpbell_soft_hca::shell::{Driver, LateStores};
use warpbell_soft_hca_gpu::MemoryScope;
use warpbell_soft_hca_gpu::resident::TableSizes;

use crate::Error;

/// Whether the NIC is a thread of the host, which reaches the host's memory and not the kernels' own; one for kernels on
/// the CPU stands for it.
pub fn nic_is_on_host(node: &Node) -> bool {
    matches!(node.nic(), Nic::Soft(_))
}

/// The same node, with a NIC that reaches so far if its engine is a kernel. One on another GPU than the kernels reaches
/// the whole system in any case.
///
/// # Errors
/// As [`Node::with_nic`].
pub fn reaching(node: &Node, reach: MemoryScope) -> Result<Node, Error> {
    with_room(node, reach, TableSizes::default())
}

/// The same with room for so many queue pairs, where the NIC has tables of a fixed size.
///
/// # Errors
/// As [`Node::with_nic`].
pub fn with_queue_pairs(node: &Node, reach: MemoryScope, queue_pairs: u32) -> Result<Node, Error> {
    let usual = TableSizes::default();
    let tables = TableSizes {
        queue_pairs,
        completion_queues: 2 * queue_pairs,
        // One for each queue pair's data.
        regions: queue_pairs.max(usual.regions),
        ..usual
    };
    with_room(node, reach, tables)
}

fn with_room(node: &Node, reach: MemoryScope, tables: TableSizes) -> Result<Node, Error> {
    let Nic::SoftGpu(options) = node.nic() else {
        return Ok(node.clone());
    };
    let options = SoftGpuOptions {
        reach,
        tables,
        ..options.clone()
    };
    Ok(node.with_nic(Nic::SoftGpu(options))?)
}

/// Both ends of connections, where what comes to the second one's memory shows late.
///
/// # Errors
/// [`Error::NoLateStores`] for a NIC that has no such fault; as [`Node::domain`].
pub fn unlucky(node: &Node, late: LateStores) -> Result<[ProtectionDomain; 2], Error> {
    let Nic::Soft(options) = node.nic() else {
        return Err(Error::NoLateStores);
    };
    let near = SoftOptions {
        drive: Drive::Shared(Arc::new(Driver::spawn()?)),
        ..options.clone()
    };
    let mut far = near.clone();
    far.hca.late_stores = Some(late);
    let domain = |options| node.with_nic(Nic::Soft(options))?.domain();
    Ok([domain(near)?, domain(far)?])
}

/// The same node with a NIC that other processes reach, and that reaches theirs.
///
/// # Errors
/// A NIC that has no such way; the system gives no thread.
pub fn reachable(node: &Node) -> Result<Node, Error> {
    match node.nic() {
        Nic::Soft(options) => {
            // Programs of others spin on their completions.
            let driver = Driver::spawn_beside_spinners()?;
            let options = SoftOptions {
                drive: Drive::Shared(Arc::new(driver)),
                reachable: true,
                ..options.clone()
            };
            Ok(node.with_nic(Nic::Soft(options))?)
        }
        Nic::Mlx5(_) => Ok(node.clone()),
        _ => Err(Error::Alone),
    }
}
