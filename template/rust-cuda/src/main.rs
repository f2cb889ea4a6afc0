//! The host: cust has context, stream and module, and Warpbell the NIC. `cargo run` on a GPU.
use std::error::Error;
use std::time::Duration;

use cust::context::Context;
use cust::device::Device as CudaDevice;
use cust::launch;
use cust::module::Module as CudaModule;
use my_kernels::{Numbers, write_indices};
use warpbell_host_init::cuda::{Module, Parameters, Watch};
use warpbell_host_init::soft::SoftOptions;
use warpbell_host_init::{
    Access, Buffer, Device, Gpu, Nic, Placement, QueuePairConfig, connect, entry,
};

/// By Rust-CUDA, for GPUs that its libNVVM compiles for.
const PTX: &str = include_str!(concat!(env!("OUT_DIR"), "/kernels.ptx"));
const THREADS: u32 = 64;

fn main() -> Result<(), Box<dyn Error>> {
    cust::init(cust::CudaFlags::empty())?;
    let context = Context::new(CudaDevice::get_device(0)?)?;
    let gpu = Gpu::from_cust(&context)?;
    let stream = gpu.cust_stream()?;
    // SAFETY: Rust-CUDA compiled the text from `kernels`, whose types the host has, too.
    let module = unsafe { Module::from_cust(gpu, CudaModule::from_ptx(PTX, &[])?)? };
    let symbol = entry!(write_indices).symbol().to_string();
    let kernel = module.cust().get_function(symbol)?;

    let open = || Device::open(Nic::Soft(SoftOptions::default()))?.protection_domain();
    let (ours, theirs) = (open()?, open()?);
    let pinned = Placement::Pinned(gpu);
    let numbers = ours.register(Buffer::placed(pinned, 8)?, Access::LOCAL_WRITE)?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let arrived = theirs.register(Buffer::placed(pinned, 8 * THREADS as usize)?, access)?;
    let config = QueuePairConfig {
        placement: Some(pinned),
        ..QueuePairConfig::granting(Access::REMOTE_WRITE)
    };
    let (mut near, mut far) = (ours.queue_pair(&config)?, theirs.queue_pair(&config)?);
    connect(&mut near, &mut far)?;
    let parameters = Numbers {
        numbers: numbers.words()?,
        queue: near.send_queue()?,
        to: arrived.remote().at(0, 8 * THREADS)?,
    };
    // SAFETY: the parameters are the kernel's own, and point to memory that outlives it.
    unsafe { launch!(kernel<<<1, THREADS, 0, stream>>>(Parameters::new(parameters)))? };
    let watch = Watch {
        limit: Duration::from_secs(10),
        asleep: false,
        queue_pairs: &[&near],
    };
    module.launched_on(&stream, "write_indices")?.wait(&watch)?;
    let arrived = arrived.read_words(0, THREADS as usize)?;
    assert!(arrived.iter().copied().eq(0..u64::from(THREADS)), "{arrived:?}");
    println!("{} wrote {THREADS} numbers\nTest OK", gpu.name());
    Ok(())
}
