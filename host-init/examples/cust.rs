//! A program of cust's that lets its kernels use a NIC: context, stream, module and buffers are cust's, and its
//! `launch!` launches a kernel that writes through a queue.
//!
//! It needs a GPU, and an NVIDIA driver to link with (docs/ptx.md); the NIC is software, a CPU thread.

use std::error::Error;
use std::time::Duration;

use cust::context::Context;
use cust::device::Device as CudaDevice;
use cust::launch;
use cust::memory::{DeviceBuffer, LockedBuffer};
use cust::module::Module as CudaModule;
use warpbell::Symbol;
use warpbell_host_init::cuda::{Module, Parameters, Watch};
use warpbell_host_init::soft::SoftOptions;
use warpbell_host_init::{
    Access, Buffer, Device, Gpu, Nic, Placement, QueuePairConfig, Shared, connect, entry,
};
use warpbell_kernels::checksum::{Checksum, checksum};
use warpbell_kernels::demo::{Transfer, write};
use warpbell_kernels::outcome::Outcome;
use warpbell_ptx::{Capability, KERNELS};

/// Words that are written from one end to the other.
const WORDS: usize = 4096;
/// Blocks that add them up.
const BLOCKS: u32 = 4;

fn main() {
    if let Err(error) = run() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
    println!("Test OK");
}

fn run() -> Result<(), Box<dyn Error>> {
    // As any program of cust's begins.
    cust::init(cust::CudaFlags::empty())?;
    let context = Context::new(CudaDevice::get_device(0)?)?;
    let source = LockedBuffer::from_slice(&(1..=WORDS as u64).collect::<Vec<_>>())?;
    let target = LockedBuffer::new(&0u64, WORDS)?;

    // The same context, and the kernels in it.
    let gpu = Gpu::from_cust(&context)?;
    let stream = gpu.cust_stream()?;
    let has = gpu.compute_capability();
    let ptx = KERNELS.text_for(Capability {
        major: has.major,
        minor: has.minor,
    })?;
    // SAFETY: the text was compiled from the kernels' sources.
    let module = unsafe { Module::from_cust(gpu, CudaModule::from_ptx(ptx, &[])?)? };
    let kernel = |symbol: Symbol| module.cust().get_function(symbol.to_string());

    // Two ends of a connection; cust's buffers become memory of theirs.
    let open = || Device::open(Nic::Soft(SoftOptions::default()))?.protection_domain();
    let (ours, theirs) = (open()?, open()?);
    let source = ours.register(Buffer::from_cust(gpu, source)?, Access::LOCAL_WRITE)?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let target = theirs.register(Buffer::from_cust(gpu, target)?, access)?;
    let config = QueuePairConfig {
        placement: Some(Placement::Pinned(gpu)),
        ..QueuePairConfig::granting(Access::all())
    };
    let (mut our_end, mut their_end) = (ours.queue_pair(&config)?, theirs.queue_pair(&config)?);
    connect(&mut our_end, &mut their_end)?;

    // A kernel that posts a write and waits for its completion.
    let outcome = Shared::new(Placement::Pinned(gpu), Outcome::new())?;
    let bytes = (8 * WORDS) as u32;
    let transfer = Transfer {
        queue: our_end.send_queue()?,
        local: source.local(0, bytes)?,
        remote: target.remote().at(0, bytes)?,
        beside: 0,
        limit_us: 1_000_000,
        outcome: &outcome,
    };
    let watch = Watch {
        limit: Duration::from_secs(10),
        asleep: false,
        queue_pairs: &[&our_end],
    };
    let write = kernel(entry!(write).symbol())?;
    // SAFETY: the parameters point to pinned memory that outlives the kernel, and are the kernel's own.
    unsafe { launch!(write<<<1, 1, 0, stream>>>(Parameters::new(transfer)))? };
    module.launched_on(&stream, "write")?.wait(&watch)?;
    outcome.result()?;

    // One that adds up what has arrived, into memory on the GPU.
    let sums = DeviceBuffer::from_slice(&[0u64; BLOCKS as usize])?;
    let done = DeviceBuffer::from_slice(&[0u64; BLOCKS as usize])?;
    let add_up = kernel(entry!(checksum).symbol())?;
    let checksum = Checksum {
        words: target.as_ptr().cast(),
        count: WORDS as u64,
        sums: sums.as_device_ptr().as_mut_ptr(),
        done: done.as_device_ptr().as_mut_ptr(),
    };
    // SAFETY: the parameters point to memory that the GPU reaches and that outlives the kernel.
    unsafe { launch!(add_up<<<BLOCKS, 256, 0, stream>>>(Parameters::new(checksum)))? };
    module.launched_on(&stream, "checksum")?.wait(&watch)?;
    let sum: u64 = sums.as_host_vec()?.iter().sum();
    let wanted = (WORDS * (WORDS + 1) / 2) as u64;
    if sum != wanted {
        return Err(format!("the words add up to {sum} and not to {wanted}").into());
    }

    // cust's buffer again, once no NIC uses it.
    let target = target.deregister()?.ok_or("a buffer was registered")?;
    let target: LockedBuffer<u64> = target.into_cust().map_err(|_| "it was cust's")?;
    let last = target[WORDS - 1];
    println!(
        "{} wrote {WORDS} words, the last one {last}; their sum is {sum}",
        gpu.name()
    );
    Ok(())
}
