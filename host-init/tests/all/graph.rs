//! Graphs that launch themselves, under a driver that is a fake: each launch of one runs its kernels in their
//! order until its word says stop.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use warpbell::{Choice, Stop};
use warpbell_host_init::choice::{Branches, ChoiceWord};
use warpbell_host_init::cuda::{DeviceRuntime, Module};
use warpbell_host_init::{Entry, Error, Gpu, GpuError, Grid, Launch, Placement, Shared, StopWord};

use crate::fake::{PTX, module, ptx, watch, with_fake};

/// The fake driver's kernel stores a value, and adds how many threads there are.
#[repr(C)]
#[derive(Clone, Copy)]
struct Store<T> {
    word: T,
    value: u64,
}

fn store<T>(word: T, value: u64) -> Launch<'static>
where
    T: Copy + Sync + 'static,
{
    fn kernel<T>(_: Store<T>) {}
    // SAFETY: the fake driver's kernel takes an address and a value.
    let entry = unsafe { Entry::foreign("kernel", kernel::<T> as fn(_)) };
    Launch::new(entry, Grid::ONE_THREAD, Store { word, value })
}

/// A file that begins as a library does, or not.
fn library(name: &str, text: &str) -> PathBuf {
    let name = format!("{name}-{}.a", std::process::id());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, text).unwrap();
    path
}

fn runtime(gpu: Gpu, name: &str) -> DeviceRuntime {
    let library = library(name, "!<arch>\nmember");
    let runtime = DeviceRuntime::load(gpu, Some(&library)).unwrap();
    std::fs::remove_file(library).unwrap();
    runtime
}

fn stop_word(gpu: Gpu) -> &'static StopWord {
    Box::leak(Box::new(StopWord::new(Placement::Pinned(gpu)).unwrap()))
}

fn word(gpu: Gpu) -> &'static AtomicU64 {
    let word = Shared::new(Placement::Pinned(gpu), AtomicU64::new(0)).unwrap();
    Box::leak(Box::new(word))
}

#[test]
fn a_kernel_of_the_graph_ends_it() {
    with_fake("graph::a_kernel_of_the_graph_ends_it", "works", || {
        let module = module();
        let gpu = module.gpu();
        let (stop, word) = (stop_word(gpu), word(gpu));
        let launches = [store(word, 6), store::<Stop<'_>>(stop.stop(), 0)];
        let runtime = runtime(gpu, "ends");
        let running = module.start_repeating(&launches, stop, &runtime).unwrap();
        assert_eq!(running.wait(&watch()), Ok(()));
        assert_eq!(word.load(Ordering::Relaxed), 7);
        assert!(!gpu.is_lost());
    });
}

#[test]
fn the_host_ends_it() {
    with_fake("graph::the_host_ends_it", "works", || {
        let module = module();
        let gpu = module.gpu();
        let (stop, word) = (stop_word(gpu), word(gpu));
        stop.request();
        let runtime = runtime(gpu, "host");
        let running = module.start_repeating(&[store(word, 6)], stop, &runtime);
        assert_eq!(running.unwrap().wait(&watch()), Ok(()));
        assert_eq!(word.load(Ordering::Relaxed), 7, "one round");
    });
}

#[test]
fn a_launch_that_the_gpu_refuses_is_named() {
    with_fake(
        "graph::a_launch_that_the_gpu_refuses_is_named",
        "no-relaunch",
        || {
            let module = module();
            let gpu = module.gpu();
            let runtime = runtime(gpu, "refused");
            let launches = [store(word(gpu), 6)];
            let running = module.start_repeating(&launches, stop_word(gpu), &runtime);
            // The third round's.
            let refused = GpuError::NoRelaunch { error: 902 };
            assert_eq!(running.unwrap().wait(&watch()), Err(refused));
        },
    );
}

#[test]
fn others_run_beside_it() {
    with_fake("graph::others_run_beside_it", "works", || {
        let module = module();
        let gpu = module.gpu();
        let (stop, word, other) = (stop_word(gpu), word(gpu), word(gpu));
        let launches = [store(word, 6), store::<Stop<'_>>(stop.stop(), 0)];
        let runtime = runtime(gpu, "beside");
        let beside = [store(other, 8)];
        let ended = module.run_repeating(&launches, None, stop, &runtime, &beside, &watch());
        assert!(ended.is_ok(), "{ended:?}");
        let found = [word, other].map(|word| word.load(Ordering::Relaxed));
        assert_eq!(found, [7, 9]);
    });
}

/// The fake driver, which is loaded already, by this name.
fn driver() -> libloading::Library {
    // SAFETY: nothing runs when it is loaded.
    unsafe { libloading::Library::new("libcuda.so.1") }.unwrap()
}

/// Graphs that the driver has been told to destroy.
fn destroyed() -> i32 {
    let driver = driver();
    // SAFETY: so it is declared there.
    let count = unsafe { driver.get::<extern "C" fn() -> i32>(b"fakeGraphsDestroyed") };
    count.unwrap()()
}

/// Lets the kernel that was held up end.
fn release() {
    let driver = driver();
    // SAFETY: so it is declared there.
    let release = unsafe { driver.get::<extern "C" fn()>(b"fakeRelease") };
    release.unwrap()();
}

#[test]
fn the_driver_destroys_it_only_when_nothing_runs() {
    // It waits for all kernels then.
    let name = "graph::the_driver_destroys_it_only_when_nothing_runs";
    with_fake(name, "works", || {
        let module = module();
        let gpu = module.gpu();
        let runtime = runtime(gpu, "destroyed");
        let graph = || {
            let stop = stop_word(gpu);
            stop.request();
            let running = module.start_repeating(&[store(word(gpu), 6)], stop, &runtime);
            running.unwrap()
        };
        assert_eq!(graph().wait(&watch()), Ok(()));
        assert_eq!(destroyed(), 1);
        let other = module.start(&store(word(gpu), 8)).unwrap();
        assert_eq!(graph().wait(&watch()), Ok(()));
        assert_eq!(graph().wait(&watch()), Ok(()));
        assert_eq!(destroyed(), 1);
        assert_eq!(other.wait(&watch()), Ok(()));
        assert_eq!(destroyed(), 3);
    });
}

#[test]
fn a_kernel_that_nobody_waits_for_counts_until_it_has_ended() {
    let name = "graph::a_kernel_that_nobody_waits_for_counts_until_it_has_ended";
    with_fake(name, "holds-the-first", || {
        let module = module();
        let gpu = module.gpu();
        let runtime = runtime(gpu, "dropped");
        let graph = || {
            let stop = stop_word(gpu);
            stop.request();
            let running = module.start_repeating(&[store(word(gpu), 6)], stop, &runtime);
            running.unwrap()
        };
        drop(module.start(&store(word(gpu), 8)).unwrap());
        assert_eq!(graph().wait(&watch()), Ok(()));
        assert_eq!(destroyed(), 0);
        release();
        assert_eq!(graph().wait(&watch()), Ok(()));
        assert_eq!(destroyed(), 2);
    });
}

#[test]
fn it_is_not_launched_if_another_cannot_be() {
    with_fake(
        "graph::it_is_not_launched_if_another_cannot_be",
        "no-relaunch",
        || {
            let module = module();
            let gpu = module.gpu();
            let (stop, runtime) = (stop_word(gpu), runtime(gpu, "asked"));
            let other = store(word(gpu), 8);
            let none = Grid {
                blocks: 0,
                ..Grid::ONE_THREAD
            };
            // SAFETY: nothing runs.
            let entry: Entry<fn(_)> = unsafe { Entry::foreign("kernel", |_: Store<u64>| ()) };
            let parameters = Store { word: 0, value: 0 };
            let beside = [other, Launch::new(entry, none, parameters)];
            let repeated = word(gpu);
            let launches = [store(repeated, 6)];
            let ended = module.run_repeating(&launches, None, stop, &runtime, &beside, &watch());
            let error = ended.unwrap_err();
            assert!(
                matches!(error, Error::Gpu(GpuError::BadGrid { .. })),
                "{error}"
            );
            assert_eq!(repeated.load(Ordering::Relaxed), 0);
        },
    );
}

/// A round stores to a word and chooses; branch 0 is none, branch 1 stores to another word, branch 2 ends the rounds. What
/// is in the two words then, and how it ended.
fn choosing(name: &str, chosen: u32) -> ([u64; 2], Result<(), Error>, Gpu) {
    let module = module();
    let gpu = module.gpu();
    let (stop, runtime) = (stop_word(gpu), runtime(gpu, name));
    let (round, branch) = (word(gpu), word(gpu));
    let choice: &'static ChoiceWord =
        Box::leak(Box::new(ChoiceWord::new(Placement::Gpu(gpu)).unwrap()));
    // The kernel adds the number of its threads.
    let launches = [
        store(round, 6),
        store::<Choice<'_>>(choice.choice(), u64::from(chosen)),
    ];
    let ends = store::<Stop<'_>>(stop.stop(), 0);
    let branches = Branches {
        word: choice,
        launches: &[vec![], vec![store(branch, 8)], vec![store(branch, 4), ends]],
    };
    let ended = module.run_repeating(&launches, Some(&branches), stop, &runtime, &[], &watch());
    let found = [round, branch].map(|word| word.load(Ordering::Relaxed));
    (found, ended, gpu)
}

#[test]
fn a_branch_that_was_chosen_is_launched_ahead_of_the_next_round() {
    let name = "graph::a_branch_that_was_chosen_is_launched_ahead_of_the_next_round";
    with_fake(name, "works", || {
        let (found, ended, gpu) = choosing("chosen", 2);
        assert!(ended.is_ok(), "{ended:?}");
        assert_eq!(found, [7, 5]);
        assert!(!gpu.is_lost());
        assert_eq!(destroyed(), 3, "the graph and those of two branches");
    });
}

#[test]
fn a_branch_that_is_none_is_named() {
    with_fake("graph::a_branch_that_is_none_is_named", "works", || {
        for (name, branch) in [("empty", 0), ("beyond", 3), ("far", 1 << 31)] {
            let (found, ended, _) = choosing(name, branch);
            let error = ended.unwrap_err();
            let none = matches!(error, Error::Gpu(GpuError::NoBranch { branch: found }) if found == branch);
            assert!(none, "{error}");
            assert_eq!(found, [7, 0], "one round");
        }
    });
}

#[test]
fn a_branch_that_the_gpu_refuses_to_launch_is_named() {
    let name = "graph::a_branch_that_the_gpu_refuses_to_launch_is_named";
    with_fake(name, "no-branch-launch", || {
        let (found, ended, gpu) = choosing("refuses", 1);
        let error = ended.unwrap_err();
        let line = "the GPU refused to launch branch 1: error 700 of CUDA's device runtime";
        assert_eq!(error.to_string(), line);
        assert_eq!(found, [7, 0], "one round");
        assert!(!gpu.is_lost());
    });
}

#[test]
fn a_branch_that_cannot_be_instantiated_is_named() {
    let name = "graph::a_branch_that_cannot_be_instantiated_is_named";
    with_fake(name, "refuses-the-second", || {
        let (found, ended, _) = choosing("instantiated", 1);
        let error = ended.unwrap_err();
        let line = "the kernels of branch 2 make no graph that the GPU launches: the NVIDIA driver refused \
            cuGraphInstantiate: CUDA_ERROR_NOT_SUPPORTED";
        assert_eq!(error.to_string(), line);
        assert_eq!(found, [0, 0], "nothing ran");
        assert_eq!(destroyed(), 1, "the graph of branch 1");
    });
}

#[test]
fn a_library_that_cannot_be_linked_is_named() {
    with_fake(
        "graph::a_library_that_cannot_be_linked_is_named",
        "works",
        || {
            let gpu = Gpu::open(0).unwrap();
            let none = Path::new("nowhere/libcudadevrt.a");
            let line = DeviceRuntime::load(gpu, Some(none))
                .unwrap_err()
                .to_string();
            let wanted = "a graph that launches itself needs libcudadevrt.a of a CUDA toolkit, and nowhere/libcudadevrt.a \
            cannot be linked (No such file or directory";
            assert!(line.starts_with(wanted), "{line}");
            let other = library("other", "no library");
            let error = DeviceRuntime::load(gpu, Some(&other)).unwrap_err();
            std::fs::remove_file(other).unwrap();
            assert!(error.to_string().contains("cuLinkAddData"), "{error}");
        },
    );
}

#[test]
fn graphs_that_cannot_be_are_named() {
    with_fake("graph::graphs_that_cannot_be_are_named", "two-gpus", || {
        let module = module();
        let stop = stop_word(module.gpu());
        let refusal = |module: &Module, launches: &[Launch<'static>], runtime| {
            let refused = module.start_repeating(launches, stop, runtime);
            let error = refused.map(drop).unwrap_err();
            matches!(error, Error::Gpu(GpuError::BadGraph { .. })).then(|| error.to_string())
        };
        let runtime = runtime(module.gpu(), "two");
        let line = "a graph cannot launch itself with no kernel";
        assert_eq!(refusal(&module, &[], &runtime).as_deref(), Some(line));
        let ptx = [ptx(PTX)];
        let other = Module::load(Gpu::open(1).unwrap(), &ptx).unwrap();
        let line = "a graph cannot launch itself with a device runtime loaded on another GPU";
        let launches = [store(word(other.gpu()), 6)];
        assert_eq!(refusal(&other, &launches, &runtime).as_deref(), Some(line));
    });
}
