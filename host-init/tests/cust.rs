//! What crosses between cust and this crate, under the fake driver that `cargo xtask test` links this file with. A binary of
//! its own: nothing else may link with a driver.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cust::context::Context;
use cust::device::Device as CudaDevice;
use cust::launch;
use cust::memory::{DeviceBuffer, DevicePointer, LockedBuffer};
use cust::module::Module as CudaModule;
use cust::stream::{Stream, StreamFlags};
use warpbell_host_init::cuda::{Module, Parameters, Watch};
use warpbell_host_init::soft::SoftOptions;
use warpbell_host_init::{
    Access, Buffer, Device, Entry, Error, Gpu, GpuError, Grid, Launch, Nic, Placement, Shared,
};

/// What befalls who uses the fake driver.
const FATE: &str = "FAKE_CUDA";

unsafe extern "C" {
    safe fn fakeFreed() -> i32;
    safe fn fakeUnloaded() -> i32;
}

/// Runs `body` in a process of its own, to which `fate` happens.
fn with_fate(name: &str, fate: &str, body: impl FnOnce()) {
    if std::env::var_os(FATE).is_some() {
        return body();
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(FATE, fate)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} with {fate}: {said}");
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Store<'a> {
    word: &'a AtomicU64,
    value: u64,
}

fn store(p: Store<'_>) {
    p.word.store(p.value, Ordering::Relaxed);
}

fn gpu() -> Gpu {
    cust::init(cust::CudaFlags::empty()).unwrap();
    let context = Context::new(CudaDevice::get_device(0).unwrap()).unwrap();
    Gpu::from_cust(&context).unwrap()
}

fn module() -> Module {
    let gpu = gpu();
    let loaded = CudaModule::from_ptx(".version 8.6\n.target sm_90\n", &[]).unwrap();
    // SAFETY: it has the fake driver's kernel alone, which is launched as such.
    unsafe { Module::from_cust(gpu, loaded) }.unwrap()
}

/// A word that kernels reach, for good.
fn word(gpu: Gpu) -> &'static Shared<AtomicU64> {
    let word = Shared::new(Placement::Pinned(gpu), AtomicU64::new(0)).unwrap();
    Box::leak(Box::new(word))
}

const WATCH: Watch<'static> = Watch {
    limit: Duration::from_millis(50),
    asleep: false,
    queue_pairs: &[],
};

#[test]
fn both_have_the_same_context() {
    with_fate("both_have_the_same_context", "works", || {
        let gpu = gpu();
        assert_eq!(gpu, Gpu::open(0).unwrap());
        let theirs = Context::new(CudaDevice::get_device(0).unwrap()).unwrap();
        assert_eq!(gpu.cust_context().unwrap().as_raw(), theirs.as_raw());
        assert!(!gpu.cust_stream().unwrap().as_inner().is_null());
    });
}

#[test]
fn a_kernel_runs_by_launch_and_by_start() {
    with_fate("a_kernel_runs_by_launch_and_by_start", "works", || {
        let module = module();
        let word = word(module.gpu());
        let stream = Stream::new(StreamFlags::DEFAULT, None).unwrap();

        let kernels = module.cust();
        // SAFETY: the word is never freed.
        let parameters = unsafe { Parameters::new(Store { word, value: 3 }) };
        // SAFETY: the fake driver's kernel takes these.
        unsafe { launch!(kernels.kernel<<<1, 1, 0, stream>>>(parameters)) }.unwrap();
        module
            .launched_on(&stream, "kernel")
            .unwrap()
            .wait(&WATCH)
            .unwrap();
        assert_eq!(word.load(Ordering::Relaxed), 3 + 1);

        // SAFETY: the fake driver's kernel stores as well.
        let entry: Entry<fn(_)> = unsafe { Entry::foreign("kernel", store) };
        let start = Launch::new(entry, Grid::ONE_THREAD, Store { word, value: 7 });
        let running = module.start_on(&start, &stream).unwrap();
        running.wait(&WATCH).unwrap();
        assert_eq!(word.load(Ordering::Relaxed), 7 + 1);

        drop(module);
        assert_eq!(fakeUnloaded(), 0, "a module stays loaded");
    });
}

#[test]
fn a_panic_of_a_kernel_from_launch_is_a_message() {
    with_fate(
        "a_panic_of_a_kernel_from_launch_is_a_message",
        "panic",
        || {
            let module = module();
            let (kernels, stream) = (module.cust(), module.gpu().cust_stream().unwrap());
            let word = word(module.gpu());
            // SAFETY: the word is never freed.
            let parameters = unsafe { Parameters::new(Store { word, value: 3 }) };
            // SAFETY: the fake driver's kernel takes these.
            unsafe { launch!(kernels.kernel<<<1, 1, 0, stream>>>(parameters)) }.unwrap();
            let error = module.launched_on(&stream, "kernel").unwrap().wait(&WATCH);
            let Err(GpuError::Panicked { kernel, message }) = error else {
                panic!("{error:?}");
            };
            assert_eq!(kernel, "kernel");
            assert!(message.contains("on purpose"), "{message}");
        },
    );
}

#[test]
fn a_buffer_on_the_gpu_comes_back() {
    with_fate("a_buffer_on_the_gpu_comes_back", "works", || {
        let gpu = gpu();
        let words = DeviceBuffer::from_slice(&[1u64, 2, 3]).unwrap();
        let address = words.as_device_ptr().as_raw();
        let buffer = Buffer::from_cust(gpu, words).unwrap();
        assert_eq!(buffer.placement(), Placement::Gpu(gpu));
        assert_eq!((buffer.as_ptr() as u64, buffer.len()), (address, 24));
        assert_eq!(buffer.device_pointer().unwrap().as_raw(), address);
        buffer.write(8, &20u64.to_ne_bytes()).unwrap();

        let buffer = buffer.into_cust::<DeviceBuffer<u32>>().unwrap_err();
        let words: DeviceBuffer<u64> = buffer.into_cust().unwrap();
        assert_eq!(words.as_host_vec().unwrap(), [1, 20, 3]);
        assert_eq!(fakeFreed(), 0);
        drop(Buffer::from_cust(gpu, words).unwrap());
        assert_eq!(fakeFreed(), 1);
    });
}

#[test]
fn a_pinned_buffer_is_registered_and_comes_back() {
    with_fate(
        "a_pinned_buffer_is_registered_and_comes_back",
        "works",
        || {
            let gpu = gpu();
            let device = Device::open(Nic::Soft(SoftOptions::default())).unwrap();
            let domain = device.protection_domain().unwrap();
            let bytes = LockedBuffer::from_slice(b"from cust").unwrap();
            let buffer = Buffer::from_cust(gpu, bytes).unwrap();
            assert_eq!(buffer.placement(), Placement::Pinned(gpu));
            let region = domain.register(buffer, Access::LOCAL_WRITE).unwrap();
            let mut read = [0; 9];
            region.read(0, &mut read).unwrap();
            assert_eq!(&read, b"from cust");
            region.write(0, b"into").unwrap();
            let buffer = region.deregister().unwrap().unwrap();
            let bytes: LockedBuffer<u8> = buffer.into_cust().unwrap();
            assert_eq!(bytes.as_slice(), b"into cust");
        },
    );
}

#[test]
fn buffers_that_cannot_be_are_refused() {
    with_fate("buffers_that_cannot_be_are_refused", "works", || {
        let gpu = gpu();
        let empty = LockedBuffer::<u64>::from_slice(&[]).unwrap();
        let error = Buffer::from_cust(gpu, empty).unwrap_err();
        assert!(matches!(error, Error::BadSize { bytes: 0, .. }), "{error}");
        // SAFETY: never read; freed by the fake driver, which frees nothing.
        let elsewhere =
            unsafe { DeviceBuffer::<u8>::from_raw_parts(DevicePointer::from_raw(4096), 8) };
        let error = Buffer::from_cust(gpu, elsewhere).unwrap_err();
        let not_ours = matches!(error, Error::Gpu(GpuError::NotOurMemory { .. }));
        assert!(not_ours, "{error}");
        let own = Buffer::new(64).unwrap();
        assert!(own.device_pointer().is_none());
        assert!(own.into_cust::<DeviceBuffer<u8>>().is_err());
    });
}

#[test]
fn a_lost_gpu_keeps_custs_memory() {
    with_fate("a_lost_gpu_keeps_custs_memory", "hang", || {
        let module = module();
        let (kernels, stream) = (module.cust(), module.gpu().cust_stream().unwrap());
        let words = DeviceBuffer::from_slice(&[0u64; 4]).unwrap();
        let buffer = Buffer::from_cust(module.gpu(), words).unwrap();
        let word = word(module.gpu());
        // SAFETY: the word is never freed.
        let parameters = unsafe { Parameters::new(Store { word, value: 3 }) };
        // SAFETY: the fake driver's kernel takes these.
        unsafe { launch!(kernels.kernel<<<1, 1, 0, stream>>>(parameters)) }.unwrap();
        let error = module.launched_on(&stream, "kernel").unwrap().wait(&WATCH);
        assert!(matches!(error, Err(GpuError::Hangs { .. })), "{error:?}");
        drop(buffer);
        assert_eq!(fakeFreed(), 0);
    });
}
