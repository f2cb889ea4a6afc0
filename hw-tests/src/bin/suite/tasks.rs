//! Proves that tasks run once, in order, with the arguments and the payload that were sent, for every pair of scopes.
//! Results come back; tasks that the target does not take are refused and reported; a full lane loses nothing. The same
//! of tasks that launch a kernel each.

use std::process::ExitCode;
use std::time::Duration;

use warpbell::wqe::Local;
use warpbell::{SendDoorbell, WordExt};
use warpbell_cpu_grid::Grid;
use warpbell_host_init::choice::Branches;
use warpbell_host_init::{
    Device, Kernels, Launch, MemoryRegion, Node, QueuePairConfig, Shared, StopWord, entry,
};
use warpbell_hw_tests::here;
use warpbell_hw_tests::machine::Machine;
use warpbell_hw_tests::post::{ample, endings, expect_done};
use warpbell_hw_tests::run::run;
use warpbell_hw_tests::say::say;
use warpbell_hw_tests::sides::{ALL_ACCESS, Side, Sides};
use warpbell_kernels::launched::Dispatch;
use warpbell_kernels::outcome::Outcome;
use warpbell_kernels::place::Place;
use warpbell_kernels::suite::{
    ActiveAsk, ActiveLaunched, ActiveMessage, ActiveServe, AskStep, EndingWords, Output, ScopeKind,
    Seen, suite_active_answer, suite_active_ask, suite_active_dispatch, suite_active_launched,
};
use warpbell_patterns::active::host::{ActiveConfig, ActiveMessages, TaskKernels, TaskRecord};

pub fn test(machine: &Machine) -> ExitCode {
    run(machine, Duration::from_secs(600), |progress| {
        for kernels in here::in_each_order() {
            for storm in storms(kernels) {
                progress.step(format!("{storm:?}, {kernels}"));
                storm.rage(kernels);
            }
            for scope in ScopeKind::ALL {
                let storm = Storm {
                    threads: if scope == ScopeKind::Thread { 1 } else { 32 },
                    slots: 4,
                    ..Storm::new((scope, scope), 2, 0)
                };
                progress.step(format!("a target that comes late, {scope:?}, {kernels}"));
                storm.fill_and_collect(kernels);
            }
            let node = here::node().with_kernels(kernels).expect("the node");
            match node.able_to_repeat() {
                Ok(node) => {
                    for storm in launched_storms(kernels) {
                        progress.step(format!("each launches a kernel, {storm:?}, {kernels}"));
                        storm.launch(&node);
                    }
                }
                Err(error) => say(format_args!(
                    "         left out, tasks that launch a kernel: {error}"
                )),
            }
        }
    })
}

/// Scopes that send tasks of all kinds, and scopes that run them, one each for a lane.
#[derive(Clone, Copy, Debug)]
struct Storm {
    /// Who sends, who serves.
    scopes: (ScopeKind, ScopeKind),
    lanes: u32,
    /// Threads of a block, at both ends.
    threads: u32,
    slots: u32,
    messages: u32,
    /// Words of a payload.
    words: u32,
    /// The longest result that a task answers with.
    max_result: u32,
    send_doorbell: SendDoorbell,
}

fn storms(kernels: Kernels) -> Vec<Storm> {
    use ScopeKind::{Block, Thread, Warp};
    let mut storms = vec![
        // Rings that come round a thousand times, and one that hardly does.
        Storm {
            slots: 1,
            ..Storm::new((Thread, Thread), 2, 1000)
        },
        Storm {
            slots: 1,
            max_result: 13,
            ..Storm::new((Thread, Thread), 2, 500)
        },
        Storm {
            slots: 64,
            words: 1,
            send_doorbell: SendDoorbell::WithoutRecord,
            ..Storm::new((Thread, Thread), 5, 300)
        },
        Storm {
            threads: 64,
            max_result: 1000,
            ..Storm::new((Warp, Warp), 3, 100)
        },
        Storm {
            threads: 50,
            words: 70,
            max_result: 555,
            ..Storm::new((Block, Block), 3, 100)
        },
        Storm {
            threads: 32,
            ..Storm::new((Thread, Block), 2, 60)
        },
        Storm {
            threads: 32,
            ..Storm::new((Block, Thread), 2, 60)
        },
    ];
    if let Kernels::Gpu(_) = kernels {
        // Thousands from all that a NIC among the kernels has room for: 32 queue pairs.
        let messages = if here::takes_orders() { 1000 } else { 20_000 };
        storms.push(Storm::new((Thread, Thread), 15, messages));
        storms.push(Storm {
            threads: 128,
            words: 512,
            slots: 16,
            max_result: 4096,
            ..Storm::new((Block, Block), 15, messages / 4)
        });
    }
    storms
}

/// Of tasks that launch a kernel each: who serves is no scope, and there are no results.
fn launched_storms(kernels: Kernels) -> Vec<Storm> {
    use ScopeKind::{Block, Thread, Warp};
    let of = |scope, messages| Storm::new((scope, scope), 3, messages);
    let mut storms = vec![
        Storm {
            slots: 1,
            ..of(Thread, 60)
        },
        Storm {
            threads: 64,
            ..of(Warp, 40)
        },
        Storm {
            threads: 50,
            words: 70,
            ..of(Block, 40)
        },
    ];
    if let Kernels::Gpu(_) = kernels {
        storms.push(Storm {
            lanes: 15,
            threads: 128,
            words: 512,
            slots: 16,
            ..of(Block, 2000)
        });
    }
    storms
}

/// Both ends of lanes, and what their kernels work on.
struct Lanes {
    active: ActiveMessages,
    payloads: MemoryRegion,
    /// What tasks answer with, at the target.
    results: MemoryRegion,
    _device: [Device; 2],
}

impl Storm {
    fn new(scopes: (ScopeKind, ScopeKind), lanes: u32, messages: u32) -> Self {
        Self {
            scopes,
            lanes,
            threads: 1,
            slots: 8,
            messages,
            words: 9,
            max_result: 0,
            send_doorbell: SendDoorbell::WithRecord,
        }
    }

    fn lanes(&self) -> Lanes {
        let sides = Sides::chosen();
        let without_record = sides.ours.device().limits().without_record;
        let config = ActiveConfig {
            lanes: self.lanes,
            slots: self.slots,
            functions: 16,
            buffers: 1,
            max_result: self.max_result,
            queue_pair: QueuePairConfig {
                send_depth: 16,
                send_doorbell: match without_record {
                    true => self.send_doorbell,
                    false => SendDoorbell::WithRecord,
                },
                ..QueuePairConfig::default()
            },
        };
        let (ours, theirs) = (&sides.ours, &sides.theirs);
        let made = ActiveMessages::new(&ours.domain, &theirs.domain, &config);
        let mut active = made.expect("lanes");
        for (function, arguments) in (0..).zip(ActiveMessage::ARGUMENTS) {
            active.register(function, arguments).expect("a place");
        }
        let bytes = 8 * (self.lanes * self.slots * self.words) as usize;
        active.register_buffer(0, bytes).expect("memory");
        let region =
            |side: &Side, bytes| side.domain.allocate(bytes, ALL_ACCESS).expect("a region");
        // A word where there are none: no region is empty.
        let words = self.max_result.div_ceil(8).max(1);
        Lanes {
            active,
            payloads: region(ours, bytes),
            results: region(theirs, 8 * (self.lanes * self.slots * words) as usize),
            _device: [ours.device().clone(), theirs.device().clone()],
        }
    }

    /// A grid with a scope for each lane, and perhaps some more.
    fn grid(&self, scope: ScopeKind) -> Grid {
        let scopes_per_block = match scope {
            ScopeKind::Thread => self.threads,
            ScopeKind::Warp => self.threads.div_ceil(32),
            ScopeKind::Block => 1,
        };
        Grid::new(self.lanes.div_ceil(scopes_per_block), self.threads)
    }

    fn sees(&self, grid: Grid) -> (Shared<[Seen]>, Shared<[EndingWords]>) {
        let threads = (grid.blocks * grid.threads_per_block) as usize;
        (
            here::values(threads, Seen::default()),
            here::outcomes(threads),
        )
    }

    fn ask<'a>(
        &self,
        lanes: &'a Lanes,
        step: AskStep,
        (seen, endings): &'a mut (Shared<[Seen]>, Shared<[EndingWords]>),
    ) -> ActiveAsk<'a> {
        let region = &lanes.payloads;
        ActiveAsk {
            initiator: lanes.active.initiator(),
            scope: self.scopes.0,
            step,
            messages: self.messages,
            slots: self.slots,
            words: self.words,
            max_result: self.max_result,
            source: start_of(region),
            payloads: words_of(region),
            limit_ms: ample().as_millis() as u64,
            seen: Output::new(seen),
            endings: Output::new(endings),
        }
    }

    fn serve<'a>(
        &self,
        lanes: &'a Lanes,
        (seen, endings): &'a mut (Shared<[Seen]>, Shared<[EndingWords]>),
    ) -> ActiveServe<'a> {
        ActiveServe {
            target: lanes.active.target(),
            scope: self.scopes.1,
            words: self.words,
            max_result: self.max_result,
            slots: self.slots,
            results: start_of(&lanes.results),
            result_words: words_of(&lanes.results),
            limit_ms: ample().as_millis() as u64,
            seen: Output::new(seen),
            endings: Output::new(endings),
        }
    }

    /// The threads of the scope that has a lane.
    fn threads_of(&self, scope: ScopeKind, lane: u32) -> std::ops::Range<usize> {
        let size = match scope {
            ScopeKind::Thread => 1,
            ScopeKind::Warp => 32,
            ScopeKind::Block => self.threads as usize,
        };
        let first = lane as usize * size;
        first..first + size
    }

    fn rage(&self, kernels: Kernels) {
        let what = format!("{kernels}, {self:?}");
        let lanes = self.lanes();
        let grids = (self.grid(self.scopes.0), self.grid(self.scopes.1));
        let mut ours = self.sees(grids.0);
        let mut theirs = self.sees(grids.1);
        here::launch_both(
            kernels,
            (grids.0, &self.ask(&lanes, AskStep::Storm, &mut ours)),
            (grids.1, &self.serve(&lanes, &mut theirs)),
        );
        expect_done(&endings(&ours.1), &what);
        expect_done(&endings(&theirs.1), &what);
        for lane in 0..self.lanes {
            let all = (0..self.messages).map(|number| ActiveMessage { lane, number });
            let given = all.clone().filter(|message| message.refusal().is_none());
            let failed = given.clone().filter(|message| message.result().is_err());
            let refused = all.clone().count() - given.clone().count() + failed.count();
            let expected = Seen {
                refused: refused as u64,
                ..seen(all)
            };
            for thread in self.threads_of(self.scopes.0, lane) {
                assert_eq!(ours.0[thread], expected, "{what}: answers of lane {lane}");
            }
            let expected = seen(given);
            for thread in self.threads_of(self.scopes.1, lane) {
                assert_eq!(theirs.0[thread], expected, "{what}: tasks of lane {lane}");
            }
        }
    }

    /// Sends all messages to a dispatcher, by which each task launches a kernel.
    fn launch(&self, node: &Node) {
        let what = format!("{}, {self:?}", node.kernels());
        let lanes = self.lanes();
        let target = &lanes.active;
        let grid = self.grid(self.scopes.0);
        let mut ours = self.sees(grid);
        let record = TaskRecord::new(node.placement().of_states()).expect("memory");
        let stop = StopWord::new(node.placement()).expect("a word");
        let outcome = node.shared(Outcome::new()).expect("memory");
        let counts = node.words((ActiveLaunched::COUNTS * self.lanes) as usize + 1);
        let counts = counts.expect("memory");
        let launched = ActiveLaunched {
            task: record.task(),
            words: self.words,
            lanes: self.lanes,
            // SAFETY: the words outlive the launch; kernels alone use them meanwhile.
            counts: unsafe { Place::new(counts.as_ptr(), counts.len() as u64) },
            stop: stop.stop(),
        };
        let dispatch = Dispatch {
            task: record.task(),
            target: target.target(),
            stop: stop.stop(),
            limit_us: ample().as_micros() as u64,
            outcome: &outcome,
        };
        let mut kernels = TaskKernels::new();
        for function in target.functions() {
            let launch = Launch::new(entry!(suite_active_launched), Grid::new(2, 48), launched);
            kernels.register(function, launch).expect("a place");
        }
        let answer = || Launch::new(entry!(suite_active_answer), Grid::ONE_THREAD, dispatch);
        let branches = kernels.branches(target.functions(), answer);
        let branches = Branches {
            word: record.word(),
            launches: &branches.expect("a kernel for each"),
        };
        let look = Grid::new(self.lanes, 1);
        let look = Launch::new(entry!(suite_active_dispatch), look, dispatch);
        let ask = self.ask(&lanes, AskStep::Storm, &mut ours);
        let ask = Launch::new(entry!(suite_active_ask), grid, ask);
        let ran = node.run_choosing(&[look], &branches, &stop, &[ask], &[], Duration::ZERO);
        ran.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(outcome.result(), Ok(()), "{what}");
        expect_done(&endings(&ours.1), &what);
        for lane in 0..self.lanes {
            let all = (0..self.messages).map(|number| ActiveMessage { lane, number });
            let given = all.clone().filter(|message| message.refusal().is_none());
            let first = (ActiveLaunched::COUNTS * lane) as usize;
            let [count, sum, wrong] = [0, 1, 2].map(|at| counts[first + at].load_relaxed());
            let found = Seen {
                count,
                sum,
                wrong,
                refused: 0,
            };
            assert_eq!(found, seen(given), "{what}: tasks of lane {lane}");
            for thread in self.threads_of(self.scopes.0, lane) {
                let answers = Seen {
                    refused: 0,
                    ..ours.0[thread]
                };
                assert_eq!(answers, seen(all.clone()), "{what}: answers of lane {lane}");
            }
        }
    }

    /// Fills the lanes while nobody serves them. Then serves them, while the sender collects the answers.
    fn fill_and_collect(&self, kernels: Kernels) {
        let what = format!("{kernels}, {self:?}");
        let lanes = self.lanes();
        let grids = (self.grid(self.scopes.0), self.grid(self.scopes.1));
        let mut ours = self.sees(grids.0);
        here::launch(
            kernels,
            grids.0,
            &self.ask(&lanes, AskStep::Fill, &mut ours),
        );
        expect_done(&endings(&ours.1), &what);
        let sent = |lane| (0..self.slots).map(move |number| ActiveMessage { lane, number });
        for lane in 0..self.lanes {
            for thread in self.threads_of(self.scopes.0, lane) {
                assert_eq!(ours.0[thread], seen(sent(lane)), "{what}: lane {lane}");
            }
        }
        let mut ours = self.sees(grids.0);
        let mut theirs = self.sees(grids.1);
        here::launch_both(
            kernels,
            (grids.0, &self.ask(&lanes, AskStep::Collect, &mut ours)),
            (grids.1, &self.serve(&lanes, &mut theirs)),
        );
        expect_done(&endings(&ours.1), &what);
        expect_done(&endings(&theirs.1), &what);
        for lane in 0..self.lanes {
            for thread in self.threads_of(self.scopes.1, lane) {
                assert_eq!(
                    theirs.0[thread],
                    seen(sent(lane)),
                    "{what}: tasks of lane {lane}"
                );
            }
            let failed = sent(lane).filter(|message| message.result().is_err());
            for thread in self.threads_of(self.scopes.0, lane) {
                let refused = failed.clone().count() as u64;
                assert_eq!(ours.0[thread].refused, refused, "{what}: lane {lane}");
            }
        }
    }
}

/// Where a region begins.
fn start_of(region: &MemoryRegion) -> Local {
    Local {
        address: region.address(),
        length: 0,
        key: region.lkey(),
    }
}

/// The words of a region.
fn words_of(region: &MemoryRegion) -> Place {
    // SAFETY: regions are those of `Lanes`, which outlive each launch; kernels and NICs alone use them meanwhile.
    unsafe { Place::new(region.as_ptr().cast(), region.len() as u64 / 8) }
}

/// The account of a thread that saw exactly these messages.
fn seen(messages: impl Iterator<Item = ActiveMessage>) -> Seen {
    messages.fold(Seen::default(), |seen, message| Seen {
        count: seen.count + 1,
        sum: seen.sum.wrapping_add(message.mixed(60)),
        ..seen
    })
}
