//! Proves that a graph of kernels launches itself on a GPU, round after round, each kernel behind the one before
//! it, until a kernel or the host asks for an end, beside a kernel that stays, too.

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use warpbell::Word64;
use warpbell_host_init::cuda::{DeviceRuntime, Module, Watch};
use warpbell_host_init::{Entry, Grid, Launch, Placement, Shared, StopWord, entry};
use warpbell_hw_tests::run::run_on_gpu;
use warpbell_hw_tests::world::{World, patient};
use warpbell_kernels::suite::{self, EndingWords, Output, Round, Trouble, TroubleKind};

const ROUND: Entry<fn(Round<'_>)> = entry!(suite::suite_round);
const TROUBLE: Entry<fn(Trouble<'_>)> = entry!(suite::suite_trouble);
/// One thread counts; the others are there.
const GRID: Grid = Grid {
    blocks: 2,
    threads_per_block: 64,
};
const ROUNDS: u64 = 10_000;

fn main() -> ExitCode {
    run_on_gpu(Duration::from_secs(60), |progress, module| {
        let runtime = match DeviceRuntime::load(module.gpu(), None) {
            Ok(runtime) => runtime,
            Err(error) => return println!("         left out: {error}"),
        };
        progress.step(format!("a kernel ends it after {ROUNDS} rounds"));
        a_kernel_ends_it(module, &runtime);
        progress.step("the host ends it");
        the_host_ends_it(module, &runtime);
        progress.step("it ends beside a kernel that stays");
        it_ends_beside_a_kernel_that_stays(module, &runtime);
    })
}

/// Two kernels that count in turns, one from the other's number, and the word for their end.
struct Turns {
    words: &'static [Word64; 2],
    stop: &'static StopWord,
}

impl Turns {
    fn new(module: &Module) -> Self {
        let place = Placement::Pinned(module.gpu());
        let words = Shared::new(place, [Word64::new(0), Word64::new(0)]).expect("words");
        let stop = StopWord::new(place).expect("a word");
        Self {
            words: &**Box::leak(Box::new(words)),
            stop: Box::leak(Box::new(stop)),
        }
    }

    fn launches(&self, enough: u64) -> [Launch<'static>; 2] {
        [(0, 1), (1, 0)].map(|(from, to)| {
            let round = Round {
                from: &self.words[from],
                to: &self.words[to],
                enough,
                stop: self.stop.stop(),
            };
            Launch::new(ROUND, GRID, round)
        })
    }

    fn counted(&self) -> [u64; 2] {
        [0, 1].map(|at| self.words[at].load(Ordering::Relaxed))
    }
}

fn watch() -> Watch<'static> {
    Watch {
        limit: patient(Duration::from_secs(20)),
        asleep: false,
        queue_pairs: &[],
    }
}

fn a_kernel_ends_it(module: &Module, runtime: &DeviceRuntime) {
    let turns = Turns::new(module);
    let running = module.start_repeating(&turns.launches(2 * ROUNDS), turns.stop, runtime);
    running.expect("a graph").wait(&watch()).expect("an end");
    assert_eq!(turns.counted(), [2 * ROUNDS, 2 * ROUNDS - 1]);
}

fn the_host_ends_it(module: &Module, runtime: &DeviceRuntime) {
    let turns = Turns::new(module);
    let mut running = module
        .start_repeating(&turns.launches(u64::MAX), turns.stop, runtime)
        .expect("a graph");
    let deadline = Instant::now() + patient(Duration::from_secs(20));
    while turns.counted()[0] < 200 {
        assert!(!running.has_ended().expect("a graph that goes on"));
        assert!(Instant::now() < deadline, "200 counted");
    }
    turns.stop.request();
    running.wait(&watch()).expect("an end");
    let [even, odd] = turns.counted();
    assert_eq!((even % 2, odd), (0, even - 1), "whole rounds");
    assert!(even >= 200);
}

fn it_ends_beside_a_kernel_that_stays(module: &Module, runtime: &DeviceRuntime) {
    let stop = StopWord::new(Placement::Pinned(module.gpu())).expect("a word");
    let stop: &StopWord = Box::leak(Box::new(stop));
    let ending = Box::leak(Box::new(World::here().values(1, EndingWords::default())));
    let stay = Trouble {
        kind: TroubleKind::Stay,
        thread: 0,
        stop: stop.stop(),
        patience_ns: patient(Duration::from_secs(20)).as_nanos() as u64,
        ending: Output::new(ending),
    };
    let stays = module.start(&Launch::new(TROUBLE, Grid::ONE_THREAD, stay));
    let mut stays = stays.expect("a kernel");
    let turns = Turns::new(module);
    let running = module.start_repeating(&turns.launches(20), turns.stop, runtime);
    running.expect("a graph").wait(&watch()).expect("an end");
    assert_eq!(turns.counted(), [20, 19]);
    assert!(
        !stays.has_ended().expect("a kernel that stays"),
        "nobody waited for it"
    );
    stop.request();
    stays.wait(&watch()).expect("an end");
}
