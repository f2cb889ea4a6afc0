//! The CUDA side without a GPU: each test runs itself again under a driver that is a fake, or none.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use warpbell::Processor;
use warpbell_host_init::cuda::{ComputeCapability, Module, Watch};
use warpbell_host_init::soft::SoftOptions;
use warpbell_host_init::{
    Access, Buffer, Device, Entry, Error, Gpu, GpuError, Grid, Launch, Nic, Placement,
    ProtectionDomain, QueuePair, QueuePairConfig, Shared, connect, entry,
};

use crate::fake::{PTX, module, ptx, watch, with_fake};

#[repr(C)]
#[derive(Clone, Copy)]
struct Store<'a> {
    word: &'a AtomicU64,
    value: u64,
}

fn kernel(p: Store<'_>) {
    p.word.store(p.value, Ordering::Relaxed);
}

fn named(name: &'static str) -> Entry<fn(Store<'_>)> {
    // SAFETY: the fake driver's kernel stores as well.
    unsafe { Entry::foreign(name, kernel) }
}

/// Runs a kernel under a fake driver.
fn launched(entry: Entry<fn(Store<'_>)>, grid: Grid) -> (Result<(), GpuError>, u64, Module) {
    let module = module();
    let word = Shared::new(Placement::Pinned(module.gpu()), AtomicU64::new(0)).unwrap();
    let store = Store {
        word: &word,
        value: 7,
    };
    let result = module.run(&[Launch::new(entry, grid, store)], &watch());
    (result, word.load(Ordering::Relaxed), module)
}

#[test]
fn no_driver_is_one_line() {
    // Nothing else looks for it under this name.
    let nowhere = Command::new("ldconfig").arg("-p").output();
    let text = nowhere.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    if text.is_ok_and(|text| text.contains("libcuda.so")) {
        eprintln!("skipped: this machine has a driver");
        return;
    }
    let error = Gpu::open(0).unwrap_err();
    assert_eq!(error, GpuError::NoDriver);
    let line = error.to_string();
    assert!(
        line.starts_with("no NVIDIA driver (libcuda.so.1) on this machine"),
        "{line}"
    );
}

#[test]
fn no_gpu_is_named() {
    with_fake("gpu::no_gpu_is_named", "no-gpu", || {
        let error = Gpu::open(0).unwrap_err();
        assert!(matches!(error, GpuError::NoGpu { .. }), "{error}");
        assert!(
            error
                .to_string()
                .contains("driver is installed, but finds no GPU")
        );
    });
}

#[test]
fn a_number_too_high_is_named() {
    with_fake("gpu::a_number_too_high_is_named", "works", || {
        let error = Gpu::open(3).unwrap_err();
        let (ordinal, count) = (3, 1);
        assert_eq!(error, GpuError::NoSuchGpu { ordinal, count });
    });
}

#[test]
fn a_gpu_is_opened_once() {
    with_fake("gpu::a_gpu_is_opened_once", "works", || {
        let gpu = Gpu::open(0).unwrap();
        assert_eq!(gpu, Gpu::open(0).unwrap());
        assert_eq!((gpu.name(), gpu.driver().as_str()), ("Fake GPU", "13.0"));
        assert_eq!(gpu.pci_address(), "0000:17:00.0");
        let (major, minor) = (9, 0);
        assert_eq!(gpu.compute_capability(), ComputeCapability { major, minor });
    });
}

#[test]
fn an_old_gpu_is_named() {
    with_fake("gpu::an_old_gpu_is_named", "old-gpu", || {
        let loaded = Module::load(Gpu::open(0).unwrap(), &[ptx(PTX)]);
        let line = loaded.unwrap_err().to_string();
        assert!(
            line.starts_with("Fake GPU has compute capability 7.5, the kernels need 9.0"),
            "{line}"
        );
    });
}

#[test]
fn bad_ptx_comes_with_the_compilers_words() {
    with_fake(
        "gpu::bad_ptx_comes_with_the_compilers_words",
        "works",
        || {
            let text = format!("{PTX}nonsense");
            let loaded = Module::load(Gpu::open(0).unwrap(), &[ptx(&text)]);
            let line = loaded.unwrap_err().to_string();
            assert!(line.ends_with("ptxas fatal: nonsense"), "{line}");
        },
    );
}

#[test]
fn a_kernel_runs_with_its_parameters_and_grid() {
    with_fake(
        "gpu::a_kernel_runs_with_its_parameters_and_grid",
        "works",
        || {
            let grid = Grid::new(3, 32);
            let (result, word, _) = launched(named("kernel"), grid);
            assert_eq!((result, word), (Ok(()), 7 + 96));
        },
    );
}

/// A kernel as `#[kernel]` makes it, and another one of the same name.
#[warpbell::kernel]
fn typed(p: Store<'_>) {
    p.word.store(p.value, Ordering::Relaxed);
}

mod elsewhere {
    #[warpbell::kernel]
    pub fn typed(_: super::Store<'_>) {}
}

/// Launches it from a module with this entry.
fn typed_from(entry: &str) -> (Result<(), GpuError>, u64) {
    let text = format!("{PTX}.visible .entry {entry}(");
    let module = Module::load(Gpu::open(0).unwrap(), &[ptx(&text)]).unwrap();
    let word = Shared::new(Placement::Pinned(module.gpu()), AtomicU64::new(0)).unwrap();
    let store = Store {
        word: &word,
        value: 7,
    };
    let launch = Launch::new(entry!(typed), Grid::ONE_THREAD, store);
    let result = module.run(&[launch], &watch());
    (result, word.load(Ordering::Relaxed))
}

#[test]
fn a_typed_kernel_runs_from_the_entry_of_its_path_and_types_alone() {
    with_fake(
        "gpu::a_typed_kernel_runs_from_the_entry_of_its_path_and_types_alone",
        "works",
        || {
            let symbol = entry!(typed).symbol();
            assert_eq!(typed_from(&symbol.to_string()), (Ok(()), 7 + 1));

            let stem = symbol.stem().to_string();
            let (stale, word) = typed_from(&format!("{stem}0123456789abcdef"));
            let name = symbol.path().to_string();
            assert_eq!(stale, Err(GpuError::OtherTypes { name: name.clone() }));
            assert_eq!(word, 0);
            let line = stale.unwrap_err().to_string();
            assert!(line.contains("other types of parameters"), "{line}");

            let other = entry!(elsewhere::typed).symbol().to_string();
            for entry in [&other, "typed", &format!("{stem}deeper$0123456789abcdef")] {
                let missing = typed_from(entry);
                let name = name.clone();
                assert_eq!(
                    missing,
                    (Err(GpuError::NoSuchKernel { name }), 0),
                    "{entry}"
                );
            }
        },
    );
}

#[test]
fn an_answer_that_no_header_has_is_a_number() {
    with_fake(
        "gpu::an_answer_that_no_header_has_is_a_number",
        "strange-start",
        || {
            let error = Gpu::open(0).unwrap_err();
            let (call, why) = ("cuInit", "error 12345".to_string());
            assert_eq!(error, GpuError::Driver { call, why });
        },
    );
}

#[test]
fn a_kernel_that_ends_with_an_unknown_error_is_named() {
    with_fake(
        "gpu::a_kernel_that_ends_with_an_unknown_error_is_named",
        "strange-end",
        || {
            let (result, _, module) = launched(named("kernel"), Grid::ONE_THREAD);
            let (kernel, why) = ("kernel".to_string(), "error 12345".to_string());
            assert_eq!(result, Err(GpuError::BrokeOff { kernel, why }));
            assert!(module.gpu().is_lost());
        },
    );
}

#[test]
fn what_cannot_be_launched_is_named_and_nothing_runs() {
    with_fake(
        "gpu::what_cannot_be_launched_is_named_and_nothing_runs",
        "works",
        || {
            let (result, word, module) = launched(named("missing"), Grid::ONE_THREAD);
            let name = "missing".to_string();
            assert_eq!(result, Err(GpuError::NoSuchKernel { name }));
            assert_eq!(word, 0);
            assert!(!module.gpu().is_lost());

            fn narrow(_: u64) {}
            // SAFETY: it is never launched.
            let narrow: Entry<fn(_)> = unsafe { Entry::foreign("kernel", narrow) };
            let result = module.run(&[Launch::new(narrow, Grid::ONE_THREAD, 7u64)], &watch());
            assert!(matches!(
                result,
                Err(GpuError::OtherParameters {
                    wanted: 16,
                    given: 8,
                    ..
                })
            ));

            let grid = Grid::new(1, 2048);
            let (result, word, _) = launched(named("kernel"), grid);
            assert!(matches!(result, Err(GpuError::BadGrid { .. })));
            let (result, ..) = launched(
                named("kernel"),
                Grid {
                    threads_per_block: 513,
                    ..grid
                },
            );
            let (name, threads, limit) = ("kernel", 513, 512);
            let wanted = GpuError::TooManyThreads {
                name,
                threads,
                limit,
            };
            assert_eq!(result, Err(wanted));
            assert_eq!(word, 0);
        },
    );
}

/// What the host has told the module of where it is: a processor's number, or nothing.
fn told() -> u64 {
    let _module = module();
    // SAFETY: the fake driver has this function of that type, and is loaded already.
    unsafe {
        let driver = libloading::Library::new("libcuda.so.1").unwrap();
        let processor = driver.get::<extern "C" fn() -> u64>(b"fakeProcessor\0");
        processor.unwrap()()
    }
}

#[test]
fn a_module_is_told_on_which_gpu_it_is() {
    with_fake("gpu::a_module_is_told_on_which_gpu_it_is", "", || {
        // The handles of GPU 0 ask for this number.
        assert_eq!(told(), u64::from(Processor::gpu(0).number()));
    });
}

#[test]
fn a_module_without_the_variable_is_told_nothing() {
    let name = "gpu::a_module_without_the_variable_is_told_nothing";
    with_fake(name, "no-processor", || assert_eq!(told(), 0));
}

/// Its kernels would take queues of every GPU.
#[test]
fn a_module_with_another_variable_is_refused() {
    let name = "gpu::a_module_with_another_variable_is_refused";
    with_fake(name, "short-processor", || {
        let loaded = Module::load(Gpu::open(0).unwrap(), &[ptx(PTX)]);
        let error = loaded.map(drop).unwrap_err().to_string();
        let wanted = "the module's variable WARPBELL_PROCESSOR has 4 bytes, not 8: ";
        assert!(error.starts_with(wanted), "{error}");
    });
}

fn panics() {
    let (result, _, module) = launched(named("kernel"), Grid::ONE_THREAD);
    assert_eq!(
        result.unwrap_err().to_string(),
        "the kernel kernel panicked on the GPU: thread 77 of block 3 panicked at fake.rs:12:5: on purpose"
    );
    assert!(module.gpu().is_lost());
}

#[test]
fn a_panic_reaches_the_user_as_a_message() {
    with_fake(
        "gpu::a_panic_reaches_the_user_as_a_message",
        "panic",
        panics,
    );
}

#[test]
fn so_does_one_before_anybody_waits() {
    with_fake(
        "gpu::so_does_one_before_anybody_waits",
        "panic at-once",
        panics,
    );
}

#[test]
fn a_lost_gpu_runs_nothing_and_keeps_its_memory() {
    with_fake(
        "gpu::a_lost_gpu_runs_nothing_and_keeps_its_memory",
        "fault",
        || {
            let gpu = Gpu::open(0).unwrap();
            let before = Buffer::placed(Placement::Pinned(gpu), 4096).unwrap();
            let (result, _, module) = launched(named("kernel"), Grid::ONE_THREAD);
            let line = result.unwrap_err().to_string();
            assert!(
                line.contains("broke off: CUDA_ERROR_LAUNCH_FAILED"),
                "{line}"
            );
            let address = before.as_ptr();
            drop(before);
            let after = Buffer::placed(Placement::Pinned(gpu), 4096).unwrap();
            assert_ne!(after.as_ptr(), address, "a kernel may still write there");
            let word = AtomicU64::new(0);
            let store = Store {
                word: &word,
                value: 7,
            };
            let again = module.run(
                &[Launch::new(named("kernel"), Grid::ONE_THREAD, store)],
                &watch(),
            );
            assert_eq!(again, Err(GpuError::Lost));
        },
    );
}

fn pair(placement: Placement) -> Result<(ProtectionDomain, QueuePair, QueuePair), Error> {
    let domain = Device::open(Nic::Soft(SoftOptions::default()))?.protection_domain()?;
    let config = QueuePairConfig {
        placement: Some(placement),
        ..QueuePairConfig::granting(Access::all())
    };
    let (mut one, mut other) = (domain.queue_pair(&config)?, domain.queue_pair(&config)?);
    connect(&mut one, &mut other)?;
    Ok((domain, one, other))
}

#[test]
fn a_hang_names_the_queue_and_the_request() {
    with_fake(
        "gpu::a_hang_names_the_queue_and_the_request",
        "hang",
        || {
            use warpbell::wqe::Wqe;
            use warpbell::{Exclusive, Processor};
            let module = module();
            let placement = Placement::Pinned(module.gpu());
            let (domain, one, _other) = pair(placement).unwrap();
            let buffer = Buffer::placed(placement, 64).unwrap();
            let region = domain.register(buffer, Access::LOCAL_WRITE).unwrap();
            // SAFETY: no kernel of the fake GPU posts.
            let queue = unsafe { one.send_queue().unwrap().on(Processor::CPU) };
            let mut queue = queue.open::<Exclusive>().unwrap();
            let _ = queue.try_post(Wqe::nop().signalled()).unwrap();
            // Nobody receives it.
            let send = Wqe::send(region.local(0, 64).unwrap());
            let _ = queue.try_post(send.signalled()).unwrap();
            let deadline = std::time::Instant::now() + Duration::from_secs(300);
            while one.outstanding().is_none_or(|request| request.wqe.0 != 1) {
                assert!(std::time::Instant::now() < deadline, "the NOP completes");
            }
            let word = AtomicU64::new(0);
            let store = Store {
                word: &word,
                value: 7,
            };
            let watch = Watch {
                queue_pairs: &[&one],
                ..watch()
            };
            let launch = Launch::new(named("kernel"), Grid::ONE_THREAD, store);
            let line = module.run(&[launch], &watch).unwrap_err().to_string();
            let wanted = format!(
                "kernel did not end, and did nothing for 50ms; queue pair {:#x} waits for WQE 0x0001 (SEND, 64 bytes) in slot 1 of 128, posted up to 0x0002",
                one.qpn()
            );
            assert_eq!(line, wanted);
            assert!(module.gpu().is_lost());
        },
    );
}

#[test]
fn too_little_memory_is_named() {
    with_fake("gpu::too_little_memory_is_named", "works", || {
        let gpu = Gpu::open(0).unwrap();
        let bytes = 40 << 20;
        let pinned = Buffer::placed(Placement::Pinned(gpu), bytes).unwrap_err();
        assert!(
            matches!(pinned, Error::Gpu(GpuError::NoPinnedMemory { bytes: found }) if found == bytes)
        );
        let bytes = 100 << 20;
        let ours = Buffer::placed(Placement::Gpu(gpu), bytes).unwrap_err();
        assert!(
            matches!(ours, Error::Gpu(GpuError::NoGpuMemory { bytes: found }) if found == bytes)
        );
    });
}

#[test]
fn memory_is_zeroed_copied_and_used_again() {
    with_fake(
        "gpu::memory_is_zeroed_copied_and_used_again",
        "works",
        || {
            let gpu = Gpu::open(0).unwrap();
            for placement in [Placement::Pinned(gpu), Placement::Gpu(gpu)] {
                let mut address = None;
                for round in 0..3u8 {
                    let buffer = Buffer::placed(placement, 10_000).unwrap();
                    let mut bytes = vec![1; 10_000];
                    buffer.read(0, &mut bytes).unwrap();
                    assert!(bytes.iter().all(|byte| *byte == 0), "round {round}");
                    buffer.write(3, &[0xaa; 9_000]).unwrap();
                    buffer.read(0, &mut bytes).unwrap();
                    assert_eq!(bytes.iter().filter(|byte| **byte == 0xaa).count(), 9_000);
                    assert!(buffer.write(9_999, &[1, 2]).is_err());
                    assert_eq!(*address.get_or_insert(buffer.as_ptr()), buffer.as_ptr());
                }
            }
        },
    );
}

#[test]
fn what_is_out_of_reach_is_refused() {
    with_fake("gpu::what_is_out_of_reach_is_refused", "works", || {
        let gpu = Gpu::open(0).unwrap();
        let value = Shared::new(Placement::Gpu(gpu), 7u64).unwrap_err();
        assert!(matches!(value, Error::OutOfReach { .. }));
        // A software HCA on the CPU does not read the GPU's memory.
        let queues = pair(Placement::Gpu(gpu)).unwrap_err();
        let line = queues.to_string();
        assert!(
            line.starts_with("a queue pair cannot be in GPU memory"),
            "{line}"
        );
        let (domain, ..) = pair(Placement::Pinned(gpu)).unwrap();
        let buffer = Buffer::placed(Placement::Gpu(gpu), 4096).unwrap();
        let region = domain.register(buffer, Access::LOCAL_WRITE).unwrap_err();
        assert!(matches!(region, Error::OutOfReach { .. }));
    });
}

#[test]
fn completions_may_lie_elsewhere_than_their_queue() {
    with_fake(
        "gpu::completions_may_lie_elsewhere_than_their_queue",
        "works",
        || {
            use warpbell::wqe::Wqe;
            use warpbell::{Deadline, Exclusive};
            let gpu = Gpu::open(0).unwrap();
            let domain = Device::open(Nic::Soft(SoftOptions::default()))
                .unwrap()
                .protection_domain()
                .unwrap();
            let pair = |completions| {
                domain.queue_pair(&QueuePairConfig {
                    placement: Some(Placement::Host),
                    completion_placement: Some(completions),
                    ..QueuePairConfig::granting(Access::all())
                })
            };
            let mut one = pair(Placement::Pinned(gpu)).unwrap();
            let mut other = pair(Placement::Host).unwrap();
            connect(&mut one, &mut other).unwrap();
            let mut queue = one.send_queue().unwrap().open::<Exclusive>().unwrap();
            let nop = queue.try_post(Wqe::nop().signalled()).unwrap();
            queue.wait(nop, Deadline::after_ms(300_000)).unwrap();

            let error = pair(Placement::Gpu(gpu)).unwrap_err();
            let Error::OutOfReach { what, placement } = error else {
                panic!("{error}");
            };
            assert_eq!(
                (what, placement),
                ("a completion queue", Placement::Gpu(gpu))
            );
        },
    );
}

#[test]
fn a_queue_of_the_hosts_own_needs_none_of_the_gpus_memory() {
    let name = "gpu::a_queue_of_the_hosts_own_needs_none_of_the_gpus_memory";
    with_fake(name, "works", || {
        use warpbell::wqe::Wqe;
        use warpbell::{Deadline, Exclusive};
        let gpu = Gpu::open(0).unwrap();
        let mut taken = Vec::new();
        for bytes in [1 << 20, 64] {
            while let Ok(buffer) = Buffer::placed(Placement::Gpu(gpu), bytes) {
                taken.push(buffer);
            }
        }
        let kernels = pair(Placement::Pinned(gpu)).unwrap_err();
        assert!(
            matches!(kernels, Error::Gpu(GpuError::NoGpuMemory { .. })),
            "{kernels}"
        );
        let device = Device::open(Nic::Soft(SoftOptions::default())).unwrap();
        let domain = device.protection_domain().unwrap();
        let config = QueuePairConfig {
            placement: Some(Placement::Pinned(gpu)),
            state_placement: Some(Placement::Host),
            ..QueuePairConfig::granting(Access::all())
        };
        let mut one = domain.queue_pair(&config).unwrap();
        let mut other = domain.queue_pair(&config).unwrap();
        connect(&mut one, &mut other).unwrap();
        let queue = one.send_queue().unwrap();
        let mut queue = queue.open::<Exclusive>().unwrap();
        let nop = queue.try_post(Wqe::nop().signalled()).unwrap();
        queue.wait(nop, Deadline::after_ms(300_000)).unwrap();
    });
}

#[test]
fn a_pointer_that_is_not_the_gpus_is_refused() {
    with_fake(
        "gpu::a_pointer_that_is_not_the_gpus_is_refused",
        "works",
        || {
            let gpu = Gpu::open(0).unwrap();
            let buffer = Buffer::placed(Placement::Gpu(gpu), 4096).unwrap();
            let address = buffer.as_ptr() as u64;
            assert_eq!(gpu.check_memory(address, 4096), Ok(()));
            let host = [0u8; 64];
            for (address, bytes) in [
                (host.as_ptr() as u64, 64),
                (address, 1 << 40),
                (address, usize::MAX),
                (0, 8),
            ] {
                let error = gpu.check_memory(address, bytes).unwrap_err();
                assert!(matches!(error, GpuError::NotOurMemory { .. }), "{error}");
            }
        },
    );
}

fn open_both() -> [Gpu; 2] {
    [0, 1].map(|ordinal| Gpu::open(ordinal).unwrap())
}

fn enable_peers() {
    let [one, other] = open_both();
    assert!(one.reaches(one) && !one.reaches(other) && !other.reaches(one));
    assert_eq!(one.enable_peer_access(one), Ok(()));
    // A second time is nothing new.
    for _ in 0..2 {
        assert_eq!(one.enable_peer_access(other), Ok(()));
        assert!(one.reaches(other) && other.reaches(one));
    }
}

#[test]
fn two_gpus_reach_each_other_once_it_was_asked_for() {
    let name = "gpu::two_gpus_reach_each_other_once_it_was_asked_for";
    with_fake(name, "two-gpus", enable_peers);
}

#[test]
fn two_gpus_that_reach_each_other_already_are_welcome() {
    let name = "gpu::two_gpus_that_reach_each_other_already_are_welcome";
    with_fake(name, "two-gpus peers-already", enable_peers);
}

/// What two GPUs without a good way back from the second to the first are refused with.
fn refused_peers() -> GpuError {
    let [one, other] = open_both();
    let refused = one.enable_peer_access(other).unwrap_err();
    assert!(!other.reaches(one));
    refused
}

#[test]
fn two_gpus_without_a_way_between_them_are_named() {
    let name = "gpu::two_gpus_without_a_way_between_them_are_named";
    with_fake(name, "two-gpus no-way-back", || {
        let refused = refused_peers();
        assert_eq!(refused, GpuError::NoPeerAccess { from: 1, to: 0 });
        let line = refused.to_string();
        assert!(line.starts_with("GPU 1 does not reach the memory of GPU 0; choose two"));
    });
}

#[test]
fn two_gpus_without_atomics_between_them_are_named() {
    let name = "gpu::two_gpus_without_atomics_between_them_are_named";
    with_fake(name, "two-gpus no-atomics-back", || {
        let refused = refused_peers();
        assert_eq!(refused, GpuError::NoPeerAtomics { from: 1, to: 0 });
        let line = refused.to_string();
        assert!(line.starts_with("GPU 1 has no atomics on the memory of GPU 0; choose two"));
    });
}

#[test]
fn a_driver_that_refuses_peers_is_quoted() {
    let name = "gpu::a_driver_that_refuses_peers_is_quoted";
    with_fake(name, "two-gpus refuses-the-way-back", || {
        assert_eq!(
            refused_peers().to_string(),
            "the NVIDIA driver refused cuCtxEnablePeerAccess: CUDA_ERROR_TOO_MANY_PEERS"
        );
    });
}

#[test]
fn memory_that_a_lost_gpu_reaches_is_kept() {
    let name = "gpu::memory_that_a_lost_gpu_reaches_is_kept";
    with_fake(name, "two-gpus fault", || {
        let [one, other] = open_both();
        let addresses = || {
            let buffer = Buffer::placed(Placement::Gpu(other), 4096).unwrap();
            buffer.as_ptr()
        };
        assert_eq!(addresses(), addresses(), "freed, and given out again");
        one.enable_peer_access(other).unwrap();
        let (result, ..) = launched(named("kernel"), Grid::ONE_THREAD);
        assert!(result.is_err() && one.is_lost() && !other.is_lost());
        assert_ne!(addresses(), addresses(), "a kernel may still write there");
    });
}

/// Runs a kernel on each of two GPUs, and says what came of both, and which GPUs are lost.
fn launched_on_both(grids: [Grid; 2]) -> (Result<(), GpuError>, [u64; 2], [bool; 2]) {
    let gpus = open_both();
    let module = |gpu| Module::load(gpu, &[ptx(PTX)]).unwrap();
    let modules = gpus.map(module);
    let word = |gpu| Shared::new(Placement::Pinned(gpu), AtomicU64::new(0)).unwrap();
    let words = gpus.map(word);
    let launch = |at: usize| {
        let word = &words[at];
        let store = Store { word, value: 7 };
        let launch = Launch::new(named("kernel"), grids[at], store);
        (&modules[at], launch)
    };
    let ran = Module::run_each(&[0, 1].map(launch), &watch());
    let stored = [0, 1].map(|at| words[at].load(Ordering::Relaxed));
    (ran, stored, gpus.map(Gpu::is_lost))
}

const ONE_THREAD_EACH: [Grid; 2] = [Grid::ONE_THREAD; 2];

#[test]
fn kernels_on_two_gpus_run_and_end() {
    with_fake("gpu::kernels_on_two_gpus_run_and_end", "two-gpus", || {
        let (ran, stored, lost) = launched_on_both(ONE_THREAD_EACH);
        assert_eq!((ran, stored, lost), (Ok(()), [8, 8], [false, false]));
    });
}

/// While kernels wait for each other, the driver is not asked for a stream, because it may wait for all of them to end.
#[test]
fn no_stream_is_made_beside_kernels() {
    let name = "gpu::no_stream_is_made_beside_kernels";
    with_fake(name, "two-gpus patient", || {
        let (ran, stored, lost) = launched_on_both(ONE_THREAD_EACH);
        assert_eq!((ran, stored, lost), (Ok(()), [8, 8], [false, false]));
    });
}

#[test]
fn nothing_runs_if_one_of_two_gpus_cannot_run_its_kernel() {
    let name = "gpu::nothing_runs_if_one_of_two_gpus_cannot_run_its_kernel";
    with_fake(name, "two-gpus", || {
        let (blocks, threads_per_block) = (0, 1);
        let none = Grid::new(blocks, threads_per_block);
        let (ran, stored, lost) = launched_on_both([Grid::ONE_THREAD, none]);
        let bad = GpuError::BadGrid {
            blocks,
            threads_per_block,
        };
        assert_eq!((ran, stored, lost), (Err(bad), [0, 0], [false, false]));
    });
}

/// What is said of a kernel on one GPU of two, with which both are lost.
fn lost_with_one() -> String {
    let (ran, _, lost) = launched_on_both(ONE_THREAD_EACH);
    assert_eq!(lost, [true, true]);
    ran.unwrap_err().to_string()
}

#[test]
fn with_a_kernel_that_breaks_off_both_gpus_are_lost() {
    let name = "gpu::with_a_kernel_that_breaks_off_both_gpus_are_lost";
    with_fake(name, "two-gpus fault on-one-alone", || {
        let line = lost_with_one();
        assert!(line.contains("CUDA_ERROR_LAUNCH_FAILED"), "{line}");
    });
}

#[test]
fn so_they_are_with_one_that_does_while_the_others_begin() {
    let name = "gpu::so_they_are_with_one_that_does_while_the_others_begin";
    with_fake(name, "two-gpus fault at-once on-one-alone", || {
        let line = lost_with_one();
        assert!(line.contains("CUDA_ERROR_LAUNCH_FAILED"), "{line}");
    });
}

#[test]
fn so_they_are_before_the_kernel_of_the_other_has_begun() {
    let name = "gpu::so_they_are_before_the_kernel_of_the_other_has_begun";
    with_fake(name, "two-gpus fault at-once", || {
        let line = lost_with_one();
        assert!(line.contains("CUDA_ERROR_LAUNCH_FAILED"), "{line}");
    });
}

#[test]
fn so_they_are_with_a_kernel_that_does_not_end() {
    let name = "gpu::so_they_are_with_a_kernel_that_does_not_end";
    with_fake(name, "two-gpus hang on-one-alone", || {
        let line = lost_with_one();
        assert!(line.contains("kernel did not end"), "{line}");
    });
}
