//! Proves that a kernel stays until it is asked to stop, and that what goes wrong around a GPU ends in one
//! clear line and exit status 1: a kernel that panics, writes where there is no memory or hangs; modules,
//! kernels, grids and memory that cannot be. Each trouble has a process of its own, because it may cost that
//! process its GPU.

use std::path::Path;
use std::process::{Command, ExitCode, Output};
use std::time::Duration;

use warpbell::{Slice, Symbol};
use warpbell_host_init::cuda::{DeviceRuntime, Module, Ptx, Watch};
use warpbell_host_init::{
    Buffer, Entry, Error, Gpu, GpuError, Grid, Kernels, Launch, Placement, QueuePairConfig,
    StopWord, entry,
};
use warpbell_hw_tests::here;
use warpbell_hw_tests::machine::Machine;
use warpbell_hw_tests::post::{Posting, ample, endings, expect_done, requests_for};
use warpbell_hw_tests::run::run;
use warpbell_hw_tests::say::say;
use warpbell_hw_tests::sides::{ALL_ACCESS, Sides};
use warpbell_hw_tests::turns::Turns;
use warpbell_kernels::suite::{
    EndingWords, Flood, Kernel, Output as Entries, Request, Stray, Trouble, TroubleKind, Verb,
    suite_stray, suite_trouble,
};

/// Says in the environment which trouble a process is to get into.
const TROUBLE: &str = "WARPBELL_TROUBLE";

/// A name, the trouble itself, and the words that its line must have.
type Case = (
    &'static str,
    fn(&'static Module) -> Result<(), Error>,
    &'static [&'static str],
);

const CASES: [Case; 14] = [
    (
        "panic",
        panic,
        &[
            "kernel suite_trouble panicked on the GPU: thread 3 of block 1 panicked at kernels/src/suite/trouble.rs:",
            ": on purpose",
        ],
    ),
    (
        "stray",
        stray,
        &[
            "kernel suite_stray broke off: CUDA_ERROR_ILLEGAL_ADDRESS",
            "compute-sanitizer shows where",
        ],
    ),
    (
        "hang",
        hang,
        &[
            "suite_requests",
            "waits for WQE 0x0001 (SEND, 64 bytes) in slot 1 of 16, posted up to 0x0002",
        ],
    ),
    (
        "no kernel",
        no_kernel,
        &["there is no kernel suite::trouble::nobody in the module"],
    ),
    (
        "other parameters",
        other_parameters,
        &["$suite_flood$", "the host has 8"],
    ),
    (
        "no such grid",
        no_such_grid,
        &["a grid of 1 blocks of 1025 threads is not possible"],
    ),
    (
        "too old",
        too_old,
        &["compute capability", "the kernels need 99.0"],
    ),
    (
        "bad PTX",
        bad_ptx,
        &["the driver refuses the kernels' PTX (CUDA_ERROR_INVALID_PTX"],
    ),
    (
        "pinned memory",
        pinned_memory,
        &["no 70368744177664 bytes of pinned host memory", "ulimit -l"],
    ),
    (
        "GPU memory",
        gpu_memory,
        &["no 70368744177664 bytes of memory on the GPU"],
    ),
    (
        "host pointer",
        host_pointer,
        &["the 64 bytes at 0x", "are not memory of"],
    ),
    (
        "past the end",
        past_the_end,
        &["bytes at 0x", "are not memory of"],
    ),
    (
        "no device runtime",
        no_device_runtime,
        &["libcudadevrt.a of a CUDA toolkit, and /dev/null cannot be linked"],
    ),
    (
        "no such GPU",
        no_such_gpu,
        &["there is no GPU 77; this machine has"],
    ),
];

pub fn test(machine: &Machine) -> ExitCode {
    run(machine, Duration::from_secs(600), |progress| {
        if let (Ok(name), Kernels::Gpu(module)) = (std::env::var(TROUBLE), here::kernels()) {
            get_into(&name, module);
        }
        progress.step("a kernel stays until it is asked to stop");
        stays_until_stopped();
        if !matches!(here::kernels(), Kernels::Gpu(_)) {
            say(
                "         left out, because there is no GPU in this test: what goes wrong around one",
            );
            return;
        }
        progress.step("a graph ends beside a kernel that stays");
        ends_beside_a_kernel_that_stays();
        for (name, _, words) in CASES {
            progress.step(name);
            let output = again().env(TROUBLE, name).output().expect("this program");
            says(name, &output, words);
        }
        progress.step("no GPU");
        let output = again().env("CUDA_VISIBLE_DEVICES", "").output();
        let output = output.expect("this program");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            said.contains("Skipped: the NVIDIA driver is installed, but finds no GPU"),
            "{said}"
        );
    })
}

/// This program with the same arguments.
fn again() -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command.args(std::env::args_os().skip(1));
    command
}

/// Fails the test unless a process has ended with status 1 and one line that has all these words.
fn says(name: &str, output: &Output, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{name}: {said}");
    assert_eq!(said.lines().count(), 1, "{name}: {said}");
    for words in words {
        assert!(said.contains(words), "{name}: {said}");
    }
}

/// Ends the process with the line of a trouble.
fn get_into(name: &str, module: &'static Module) -> ! {
    let case = CASES.iter().find(|case| case.0 == name).expect("a case");
    match (case.1)(module) {
        Ok(()) => eprintln!("nothing went wrong"),
        Err(error) => eprintln!("error: {error}"),
    }
    std::process::exit(1);
}

/// No queue pairs, and time enough.
fn watch() -> Watch<'static> {
    Watch {
        limit: ample(),
        asleep: false,
        queue_pairs: &[],
    }
}

fn stays_until_stopped() {
    let kernels = here::kernels();
    let word = StopWord::new(kernels.placement()).expect("a word");
    let mut words = here::outcomes(1);
    let stay = trouble(TroubleKind::Stay, &word, Entries::new(&mut words));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            word.request();
        });
        here::launch(kernels, Grid::new(2, 4), &stay);
    });
    expect_done(&endings(&words), "a kernel that was asked to stop");
}

/// Here, and not where graphs are tested, which compute-sanitizer is run over: whether this ends under it is not known.
fn ends_beside_a_kernel_that_stays() {
    let kernels = here::kernels();
    let Kernels::Gpu(module) = kernels else {
        return;
    };
    let runtime = match DeviceRuntime::load(module.gpu(), None) {
        Ok(runtime) => runtime,
        Err(error) => return say(format_args!("         left out: {error}")),
    };
    let word = Box::leak(Box::new(
        StopWord::new(kernels.placement()).expect("a word"),
    ));
    let words = Box::leak(Box::new(here::outcomes(1)));
    let stay = trouble(TroubleKind::Stay, word, Entries::new(words));
    let eight = Grid::new(2, 4);
    let stays = module.start(&Launch::new(entry!(suite_trouble), eight, stay));
    let mut stays = stays.expect("a kernel");
    let watch = watch();
    let turns = Turns::new(module);
    let running = module.start_repeating(&turns.launches(20), turns.stop, &runtime);
    running.expect("a graph").wait(&watch).expect("an end");
    assert_eq!(turns.counted(), [20, 19]);
    let ended = stays.has_ended().expect("a kernel that stays");
    assert!(!ended, "nobody waited for it");
    word.request();
    stays.wait(&watch).expect("an end");
}

fn trouble<'a>(
    kind: TroubleKind,
    word: &'a StopWord,
    ending: Entries<'a, EndingWords>,
) -> Trouble<'a> {
    Trouble {
        kind,
        thread: 7,
        stop: word.stop(),
        patience_ns: ample().as_nanos() as u64,
        ending,
    }
}

fn troubled(kind: TroubleKind) -> Result<(), Error> {
    let kernels = here::kernels();
    let word = StopWord::new(kernels.placement())?;
    let mut words = here::outcomes(1);
    let kernel = trouble(kind, &word, Entries::new(&mut words));
    here::launch_watched(Grid::new(2, 4), &kernel, ample(), &[])
}

fn panic(_: &'static Module) -> Result<(), Error> {
    troubled(TroubleKind::Panic)
}

fn stray(module: &'static Module) -> Result<(), Error> {
    let nowhere = Stray { address: 8 };
    // SAFETY: none; the test needs an address without memory.
    let launch = unsafe { Launch::new_unsafe(entry!(suite_stray), Grid::ONE_THREAD, nowhere) };
    Ok(module.run(&[launch], &watch())?)
}

/// A NOP that completes, then a send that nobody receives.
fn hang(_: &'static Module) -> Result<(), Error> {
    let sides = Sides::chosen();
    let pair = sides.pair(&QueuePairConfig {
        send_depth: 16,
        ..QueuePairConfig::default()
    });
    let source = sides.ours.arena(64, ALL_ACCESS, 1);
    let send = Request::new(Verb::Send).local(&[source.local(0, 64)]);
    let requests = requests_for(&[Request::new(Verb::Nop), send]);
    let mut words = here::outcomes(2);
    let queue = pair.ours.send_queue()?;
    let (rows, entries) = (Slice::new(&requests), Entries::new(&mut words));
    let kernel = Posting::default().kernel(queue, rows, entries);
    let limit = Duration::from_millis(300);
    let hangs = here::launch_watched(Grid::ONE_THREAD, &kernel, limit, &[&pair.ours]);
    // The kernel still runs: its memory stays until the process ends.
    std::mem::forget((sides, pair, source, requests, words));
    hangs
}

/// Launches something that is no kernel of the module.
fn launched<P: Copy + Sync>(
    module: &Module,
    entry: Entry<fn(P)>,
    parameters: P,
    threads_per_block: u32,
) -> Result<(), Error> {
    let grid = Grid::new(1, threads_per_block);
    Ok(module.run(&[Launch::new(entry, grid, parameters)], &watch())?)
}

/// A kernel of no module.
#[warpbell::kernel]
fn nobody(_: u64) {}

/// An entry's name, as long as the process.
fn name_of(symbol: Symbol) -> &'static str {
    Box::leak(symbol.to_string().into())
}

fn no_kernel(module: &'static Module) -> Result<(), Error> {
    launched(module, entry!(nobody), 0, 1)
}

fn other_parameters(module: &'static Module) -> Result<(), Error> {
    // SAFETY: its parameters are of another size, so that it is refused.
    let entry: Entry<fn(u64)> = unsafe { Entry::foreign(name_of(Flood::ENTRY.symbol()), |_| ()) };
    launched(module, entry, 0, 1)
}

fn no_such_grid(module: &'static Module) -> Result<(), Error> {
    launched(module, entry!(nobody), 0, 1025)
}

/// Loads what has no kernels.
fn load(gpu: Gpu, text: &str) -> Result<(), Error> {
    // SAFETY: there is no kernel in it.
    let ptx = unsafe { Ptx::from_text(text)? };
    Module::load(gpu, &[ptx]).map(|_| ())
}

fn too_old(module: &'static Module) -> Result<(), Error> {
    load(module.gpu(), ".target sm_990")
}

fn bad_ptx(module: &'static Module) -> Result<(), Error> {
    let text = ".version 8.0\n.target sm_80\n.address_size 64\nnonsense\n";
    load(module.gpu(), text)
}

/// More than any machine has.
const TOO_MUCH: usize = 1 << 46;

fn pinned_memory(module: &'static Module) -> Result<(), Error> {
    Buffer::placed(Placement::Pinned(module.gpu()), TOO_MUCH).map(|_| ())
}

fn gpu_memory(module: &'static Module) -> Result<(), Error> {
    Buffer::placed(Placement::Gpu(module.gpu()), TOO_MUCH).map(|_| ())
}

fn host_pointer(module: &'static Module) -> Result<(), Error> {
    let bytes = [0u8; 64];
    Ok(module.gpu().check_memory(bytes.as_ptr() as u64, 64)?)
}

fn past_the_end(module: &'static Module) -> Result<(), Error> {
    let buffer = Buffer::placed(Placement::Gpu(module.gpu()), 4096)?;
    Ok(module.gpu().check_memory(buffer.as_ptr() as u64, 1 << 40)?)
}

fn no_device_runtime(module: &'static Module) -> Result<(), Error> {
    let other = Path::new("/dev/null");
    Ok(DeviceRuntime::load(module.gpu(), Some(other)).map(drop)?)
}

fn no_such_gpu(_: &'static Module) -> Result<(), Error> {
    Gpu::open(77)
        .map(|_| ())
        .map_err(|error: GpuError| error.into())
}
