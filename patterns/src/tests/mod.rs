//! The hosts' halves against the software HCA: on a thread of its own, and as a kernel on a CPU's grid.

mod active;
mod chain;
mod gaspi;
mod inbound;
mod joint;
mod proxy;
mod rig;
mod trigger;

use warpbell_host_init::soft::{SoftGpuOptions, SoftOptions};
use warpbell_host_init::{
    Access, Buffer, Device, Error, Kernels, MemoryRegion, Nic, ProtectionDomain, QueuePair,
    QueuePairConfig, connect, entry,
};
use warpbell_kernels::soft_nic::soft_nic;

const ALL: Access = Access::all();

/// A device on a thread of its own.
fn threaded() -> Device {
    Device::open(Nic::Soft(SoftOptions::default())).unwrap()
}

/// A device whose engines run as a kernel.
fn resident() -> Device {
    let options = SoftGpuOptions {
        engines: 2,
        ..SoftGpuOptions::new(entry!(soft_nic), Kernels::default())
    };
    Device::open(Nic::SoftGpu(options)).unwrap()
}

/// A region filled with one byte.
fn region(domain: &ProtectionDomain, bytes: usize, fill: u8, access: Access) -> MemoryRegion {
    let region = domain
        .register(Buffer::new(bytes).unwrap(), access)
        .unwrap();
    region.write(0, &vec![fill; bytes]).unwrap();
    region
}

/// A queue pair that sends and does not receive, whose peer may do everything.
fn posting(send_depth: u32) -> QueuePairConfig {
    QueuePairConfig {
        send_depth,
        receive_depth: 0,
        ..QueuePairConfig::granting(ALL)
    }
}

/// Two queue pairs, connected to each other.
fn connected(ends: [(&ProtectionDomain, &QueuePairConfig); 2]) -> [QueuePair; 2] {
    let mut pair = ends.map(|(domain, config)| domain.queue_pair(config).unwrap());
    let [near, far] = &mut pair;
    connect(near, far).unwrap();
    pair
}

/// Resets both ends after an error, and connects them.
fn reconnect(near: &mut QueuePair, far: &mut QueuePair) -> Result<(), Error> {
    near.reset()?;
    far.reset()?;
    connect(near, far)
}

fn bytes_of(region: &MemoryRegion) -> Vec<u8> {
    let mut bytes = vec![0; region.len()];
    region.read(0, &mut bytes).unwrap();
    bytes
}
