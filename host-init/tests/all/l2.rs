//! Memory that a launch keeps in a GPU's L2 cache, under a driver that is a fake: it sets 1 MiB aside at most, and its
//! windows have 8 KiB.

use std::sync::atomic::{AtomicU64, Ordering};

use warpbell_host_init::cuda::DeviceRuntime;
use warpbell_host_init::{
    Buffer, Entry, Error, Gpu, GpuError, Grid, Launch, Placement, Shared, StopWord,
};

use crate::fake::{module, watch, with_fake};

/// What the fake driver's kernel takes.
#[repr(C)]
#[derive(Clone, Copy)]
struct Store<'a> {
    word: &'a AtomicU64,
    value: u64,
}

fn store(word: &AtomicU64) -> Launch<'_> {
    fn kernel(_: Store<'_>) {}
    // SAFETY: the fake driver's kernel takes an address and a value.
    let entry = unsafe { Entry::foreign("kernel", kernel as fn(Store<'_>)) };
    let value = 6;
    Launch::new(entry, Grid::ONE_THREAD, Store { word, value })
}

fn word(gpu: Gpu) -> Shared<AtomicU64> {
    Shared::new(Placement::Pinned(gpu), AtomicU64::new(0)).unwrap()
}

/// What the driver was told: bytes that are set aside; address and bytes of the last window; how many launches had one.
fn told() -> [u64; 4] {
    let mut told = [0; 4];
    // SAFETY: the fake driver, which is loaded already, and whose function writes four words.
    unsafe {
        let driver = libloading::Library::new("libcuda.so.1").unwrap();
        let windows = driver.get::<extern "C" fn(*mut u64)>(b"fakeWindow");
        windows.unwrap()(told.as_mut_ptr());
    }
    told
}

#[test]
fn a_launch_keeps_memory_in_the_cache() {
    with_fake("l2::a_launch_keeps_memory_in_the_cache", "works", || {
        let module = module();
        let gpu = module.gpu();
        for (bytes, set_aside) in [(4096, 4096), (1 << 30, 1 << 20)] {
            gpu.set_aside_l2(bytes).unwrap();
            assert_eq!(told(), [set_aside, 0, 0, 0]);
        }
        let lines = Buffer::placed(Placement::Gpu(gpu), 8192).unwrap();
        let window = lines.persisting().unwrap();
        let words = [word(gpu), word(gpu)];
        let launches = [store(&words[0]).persisting(window), store(&words[1])];
        module.run(&launches, &watch()).unwrap();
        assert_eq!(told(), [1 << 20, lines.as_ptr() as u64, 8192, 1]);
        let found = words.each_ref().map(|word| word.load(Ordering::Relaxed));
        assert_eq!(found, [7, 7], "both ran");
    });
}

#[test]
fn a_window_that_the_gpu_does_not_have_is_named() {
    let name = "l2::a_window_that_the_gpu_does_not_have_is_named";
    with_fake(name, "two-gpus", || {
        let module = module();
        let gpu = module.gpu();
        let too_large = Buffer::placed(Placement::Gpu(gpu), 12_288).unwrap();
        let (bytes, limit) = (12_288, 8192);
        match too_large.persisting() {
            Err(Error::Gpu(error)) => assert_eq!(error, GpuError::LargeWindow { bytes, limit }),
            other => panic!("{other:?}"),
        }
        let pinned = Buffer::placed(Placement::Pinned(gpu), 4096).unwrap();
        let refused = pinned.persisting();
        assert!(
            matches!(refused, Err(Error::OutOfReach { .. })),
            "{refused:?}"
        );

        let other = Buffer::placed(Placement::Gpu(Gpu::open(1).unwrap()), 4096).unwrap();
        let word = word(gpu);
        let launch = || store(&word).persisting(other.persisting().unwrap());
        let elsewhere = GpuError::NotOurMemory {
            address: other.as_ptr() as u64,
            bytes: 4096,
            gpu: gpu.name().into(),
        };
        assert_eq!(module.run(&[launch()], &watch()), Err(elsewhere));
        assert_eq!(word.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_graph_keeps_nothing_in_the_cache() {
    with_fake("l2::a_graph_keeps_nothing_in_the_cache", "works", || {
        let module = module();
        let gpu = module.gpu();
        let lines = Buffer::placed(Placement::Gpu(gpu), 4096).unwrap();
        let word = word(gpu);
        let launch = store(&word).persisting(lines.persisting().unwrap());
        let library = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("l2-{}.a", std::process::id()));
        std::fs::write(&library, "!<arch>\nmember").unwrap();
        let runtime = DeviceRuntime::load(gpu, Some(&library)).unwrap();
        std::fs::remove_file(library).unwrap();
        let stop = StopWord::new(Placement::Pinned(gpu)).unwrap();
        let ran = module.run_repeating(&[launch], None, &stop, &runtime, &[], &watch());
        match ran {
            Err(Error::Gpu(GpuError::BadGraph { why })) => assert!(why.contains("L2 cache")),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_gpu_that_sets_no_cache_aside_is_named() {
    with_fake(
        "l2::a_gpu_that_sets_no_cache_aside_is_named",
        "no-l2",
        || {
            let gpu = module().gpu();
            let none = GpuError::NoPersistingCache {
                gpu: "Fake GPU".into(),
            };
            assert_eq!(gpu.set_aside_l2(4096), Err(none.clone()));
            let buffer = Buffer::placed(Placement::Gpu(gpu), 4096).unwrap();
            match buffer.persisting() {
                Err(Error::Gpu(error)) => assert_eq!(error, none),
                other => panic!("{other:?}"),
            }
            assert!(
                none.to_string()
                    .starts_with("Fake GPU sets nothing of its L2 cache aside")
            );
        },
    );
}
