//! Numbers that name more memory than a kernel was given: it refuses them by name, or leaves that memory alone.

use warpbell::{Choice, FenceReach, SendQueueHandle, Slice, Word64};
use warpbell_kernels::active::{Contribute, Reduce, active_contribute, active_reduce};
use warpbell_kernels::inbound::{Inbound, Way, inbound_block, inbound_thread, inbound_warp};
use warpbell_kernels::launched::{LaunchedWork, active_launched_accumulate};
use warpbell_kernels::outcome::Failure;
use warpbell_kernels::suite::{
    ActiveAsk, ActiveServe, AskStep, Caught, Ending, EndingWords, GaspiStorm, Mode, Output,
    ScopeKind, SharingKind, TriggerJoint, TriggerStorm, suite_active_ask, suite_active_serve,
    suite_gaspi_storm, suite_trigger_joint, suite_trigger_storm,
};
use warpbell_kernels::trigger::{
    JointCost, Listing, TriggerCost, trigger_cost_joint, trigger_cost_posts, trigger_cost_ready,
    trigger_cost_triggers, trigger_kernel, trigger_work_groups, trigger_work_items,
};
use warpbell_patterns::active::{InitiatorHandle, LaunchedTask, RECORD_WORDS};
use warpbell_patterns::inbound::FlushHandle;
use warpbell_patterns::trigger::JointHandle;

use crate::guarded::{
    Guarded, LIMIT_US, LOCAL, REMOTE, UNCHANGED, WORDS, lanes, refuses, run, stop, tags, target,
    with_segment,
};

/// Tags under which the host registers at any time, and that nobody looks up.
fn joint_tags(tags: u32) -> JointHandle<'static> {
    // SAFETY: the kernels here end before they look one up.
    unsafe { JointHandle::new(std::ptr::null(), std::ptr::null(), tags) }
}

#[test]
fn triggering_kernels_go_to_words_that_are_there() {
    let memory = Guarded::new();
    let kernels: [fn(Listing<'_>); 3] = [trigger_work_items, trigger_work_groups, trigger_kernel];
    for kernel in kernels {
        refuses(&memory, 4, (1, 5), |outcome| {
            kernel(Listing {
                triggers: tags(1),
                tag_base: 1,
                buffer: memory.place(4),
                limit_us: LIMIT_US,
                outcome,
            });
        });
    }
    let kernels: [fn(TriggerCost<'_>); 3] = [
        trigger_cost_posts,
        trigger_cost_ready,
        trigger_cost_triggers,
    ];
    for kernel in kernels {
        refuses(&memory, 0, (1, 1), |outcome| {
            kernel(TriggerCost {
                triggers: tags(2),
                queue: SendQueueHandle::none(),
                local: LOCAL,
                remote: REMOTE,
                value: memory.place(0),
                warm_up: 0,
                rounds: 1,
                limit_us: LIMIT_US,
                cycles: Slice::new(&[]),
                outcome,
            });
        });
    }
    refuses(&memory, 0, (1, 1), |outcome| {
        trigger_cost_joint(JointCost {
            triggers: joint_tags(3),
            value: memory.place(0),
            warm_up: 0,
            rounds: 1,
            limit_us: LIMIT_US,
            cycles: Slice::new(&[]),
            outcome,
        });
    });
}

fn initiator() -> InitiatorHandle<'static> {
    // SAFETY: the kernels here end before they open a lane.
    unsafe { InitiatorHandle::new(lanes(), 64) }
}

#[test]
fn active_messages_go_to_vectors_that_are_there() {
    let memory = Guarded::new();
    for (words, slots) in [(65, 1), (33, 2), (u32::MAX, u32::MAX)] {
        refuses(&memory, WORDS as u64, (1, 5), |outcome| {
            active_contribute(Contribute {
                initiator: initiator(),
                source: LOCAL,
                vectors: memory.place(WORDS),
                words,
                slots,
                messages: 1,
                limit_us: LIMIT_US,
                answers: Slice::new(&[]),
                refusals: Slice::new(&[]),
                times: Slice::new(&[]),
                outcome,
            });
        });
    }
    for words in [65, u32::MAX] {
        refuses(&memory, WORDS as u64, (1, 5), |outcome| {
            active_reduce(Reduce {
                target: target(),
                sums: memory.place(WORDS),
                words,
                stop: stop(),
                limit_us: LIMIT_US,
                outcome,
            });
        });
        let (choice, record) = (Word64::new(0), [const { Word64::new(0) }; RECORD_WORDS]);
        refuses(&memory, WORDS as u64, (2, 5), |outcome| {
            active_launched_accumulate(LaunchedWork {
                // SAFETY: the words outlive the launch, and launched tasks alone touch them.
                task: unsafe { LaunchedTask::new(Choice::new(&raw const choice), record.as_ptr()) },
                sums: memory.place(WORDS),
                words,
                lanes: 1,
                ended: memory.place(1),
                stop: stop(),
                outcome,
            });
        });
    }
}

#[test]
fn inbound_data_have_their_words_at_both_ends() {
    let memory = Guarded::new();
    type Kernel = fn(Inbound<'_>);
    let kernels: [(Kernel, ScopeKind); 3] = [
        (inbound_thread, ScopeKind::Thread),
        (inbound_warp, ScopeKind::Warp),
        (inbound_block, ScopeKind::Block),
    ];
    let queue = SendQueueHandle::none();
    for (kernel, scope) in kernels {
        for way in Way::ALL {
            // A word too few of source, target, between and signal; none for the last, whose cells alone want more.
            for short in 0..5 {
                let cells = matches!(way, Way::Words | Way::Lines | Way::Checksums);
                if (short == 4) & !cells {
                    continue;
                }
                let there = [7, 7, 2, 0, 8][short];
                let place =
                    |which: usize, words| memory.place(if which == short { there } else { words });
                let threads = [1, 32, 40][scope as usize];
                refuses(&memory, there as u64, (2, threads), |outcome| {
                    kernel(Inbound {
                        way,
                        scope,
                        settled: false,
                        reach: FenceReach::Gpu,
                        send: queue,
                        // SAFETY: numbers and null pointers: no handle, as each opening finds.
                        receive: unsafe { std::mem::zeroed() },
                        flush: FlushHandle::new(queue, LOCAL, REMOTE, true),
                        source: LOCAL,
                        source_words: place(0, if cells { WORDS } else { 8 }),
                        target: REMOTE,
                        buffer: LOCAL,
                        target_words: place(
                            if short == 4 { 4 } else { 1 },
                            if cells { WORDS } else { 8 },
                        ),
                        signal: REMOTE,
                        signal_word: place(3, 1),
                        found: LOCAL,
                        between: place(2, 3),
                        bytes: 64,
                        rounds: 0,
                        warm_up: 0,
                        limit_us: LIMIT_US,
                        samples: Slice::new(&[]),
                        stale: Slice::new(&[]),
                        outcome,
                    });
                });
            }
        }
    }
}

/// Runs one of the suite's kernels, whose threads all are to refuse its numbers.
#[track_caller]
fn suite_refuses(
    memory: &Guarded,
    there: u64,
    grid: (u32, u32),
    kernel: impl Fn(Output<'_, EndingWords>) + Sync,
) {
    let mut endings = vec![EndingWords::default(); (grid.0 * grid.1) as usize];
    let output = Output::new(&mut endings);
    run(grid.0, grid.1, || kernel(output));
    for words in &endings {
        match words.ending() {
            Some(Ending::Failed(Failure::Outside {
                wanted,
                there: found,
            })) => {
                assert!(wanted > there && found == there, "{wanted} of {found}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(memory.changed(), UNCHANGED);
}

#[test]
fn the_suites_storms_go_to_words_that_are_there() {
    let memory = Guarded::new();
    let (there, scope) = (WORDS as u64, ScopeKind::Block);
    // Pieces of 5 words: 13 are more than there are, and so are those of a segment with a part of a word.
    for (slots, size) in [(13, 8 * there), (u32::MAX, 8 * there), (3, 8 * 15 - 1)] {
        with_segment(&memory, size, |gaspi| {
            suite_refuses(&memory, size / 8, (1, 5), |endings| {
                suite_gaspi_storm(GaspiStorm {
                    gaspi,
                    mode: Mode {
                        sharing: SharingKind::Exclusive,
                        scope,
                    },
                    slots,
                    rounds: 0,
                    patience: 1,
                    done: Slice::new(&[]),
                    caught: Output::<Caught>::new(&mut []),
                    endings,
                });
            });
        });
    }
    for tags_there in [65, u32::MAX] {
        suite_refuses(&memory, there, (2, 1), |endings| {
            suite_trigger_storm(TriggerStorm {
                triggers: tags(tags_there),
                scope,
                operations: 0,
                wanted: Slice::new(&[]),
                words: REMOTE,
                order: Slice::new(&[]),
                begun: memory.place(WORDS),
                limit_ms: 1,
                endings,
            });
        });
    }
    for (tags_there, scopes) in [(65, 1), (13, 5), (u32::MAX, u32::MAX)] {
        suite_refuses(&memory, there, (2, 1), |endings| {
            suite_trigger_joint(TriggerJoint {
                triggers: joint_tags(tags_there),
                scope,
                turns: 1,
                go: Slice::new(&[]),
                done: Slice::new(&[]),
                values: memory.place(WORDS),
                scopes,
                limit_ms: 1,
                endings,
            });
        });
    }
    for (slots, words) in [(1, 65), (u32::MAX, u32::MAX)] {
        suite_refuses(&memory, there, (1, 5), |endings| {
            suite_active_ask(ActiveAsk {
                initiator: initiator(),
                scope,
                step: AskStep::Storm,
                messages: 1,
                slots,
                words,
                max_result: 0,
                source: LOCAL,
                payloads: memory.place(WORDS),
                limit_ms: 1,
                seen: Output::new(&mut []),
                endings,
            });
        });
        suite_refuses(&memory, there, (1, 5), |endings| {
            suite_active_serve(ActiveServe {
                target: target(),
                scope,
                words: 0,
                max_result: words.saturating_mul(8),
                slots,
                results: LOCAL,
                result_words: memory.place(WORDS),
                limit_ms: 1,
                seen: Output::new(&mut []),
                endings,
            });
        });
    }
}
