//! Tasks that launch kernels of a node: several lanes at once, each task once, and what is refused.
#![cfg(all(feature = "host", not(loom)))]

use std::sync::atomic::Ordering;
use std::time::Duration;

use warpbell::{Deadline, Stop, Thread, Word64, WordExt, block, kernel, thread};
use warpbell_host_init::choice::Branches;
use warpbell_host_init::{Grid, Launch, Node, StopWord, entry};
use warpbell_kernels::launched::{Dispatch, active_dispatch, active_launched_answer};
use warpbell_kernels::outcome::Outcome;
use warpbell_patterns::Error;
use warpbell_patterns::active::host::{
    ActiveConfig, ActiveError, ActiveMessages, TaskKernels, TaskRecord,
};
use warpbell_patterns::active::{Error as Refused, Function, InitiatorHandle, LaunchedTask};

const LANES: u32 = 3;
const MESSAGES: u32 = 25;
const LIMIT_US: u64 = 300_000_000;
const LIMIT: Deadline = Deadline::after_us(LIMIT_US);

/// Adds its arguments and its value; of two arguments.
const ADD: Function = 2;
/// Ends the dispatcher once each lane has sent it.
const END: Function = 4;
const UNREGISTERED: Function = 3;

/// One thread for each lane.
#[kernel]
fn ask(initiator: InitiatorHandle<'_>) {
    let own = block::index();
    let mut lane = initiator.lane::<Thread>(own).unwrap();
    for message in 0..MESSAGES {
        let arguments = [u64::from(own), 1000];
        let sum = lane.send(ADD, message, arguments, LIMIT).unwrap();
        assert_eq!(lane.wait(sum, LIMIT), Ok(message + own + 1000));
        if message % 5 == 0 {
            let refused = lane.send(UNREGISTERED, 0, [], LIMIT).unwrap();
            let function = UNREGISTERED;
            let refusal = Refused::NotRegistered { function };
            assert_eq!(lane.wait(refused, LIMIT), Err(refusal));
        }
    }
    let end = lane.send(END, 0, [], LIMIT).unwrap();
    assert_eq!(lane.wait(end, LIMIT), Ok(0));
}

/// What the tasks' kernels get.
#[repr(C)]
#[derive(Clone, Copy)]
struct Work<'a> {
    task: LaunchedTask<'a>,
    /// How often either kernel ran, by all threads.
    ran: &'a [Word64; 2],
    stop: Stop<'a>,
}

#[kernel]
fn add(p: Work<'_>) {
    // No two kernels run at once, but the threads of one do.
    let _ = p.ran[0].fetch_add(1, Ordering::Relaxed);
    if thread::index() == 0 {
        let sum = u64::from(p.task.value()) + p.task.argument(0) + p.task.argument(1);
        p.task.set_result(Ok(sum as u32));
    }
}

#[kernel]
fn end(p: Work<'_>) {
    let ended = p.ran[1].load_relaxed() + 1;
    p.ran[1].store_relaxed(ended);
    if ended == u64::from(LANES) {
        p.stop.request();
    }
}

fn lanes(node: &Node) -> ActiveMessages {
    let [near, far] = node.ends().unwrap();
    let config = ActiveConfig {
        lanes: LANES,
        slots: 2,
        functions: 8,
        ..ActiveConfig::default()
    };
    let mut active = ActiveMessages::new(&near, &far, &config).unwrap();
    active.register(END, 0).unwrap();
    active.register(ADD, 2).unwrap();
    active
}

#[test]
fn each_task_launches_its_kernel_once() {
    let node = Node::cpu();
    let active = lanes(&node);
    let record = TaskRecord::new(node.placement().of_states()).unwrap();
    let ran = node.shared([const { Word64::new(0) }; 2]).unwrap();
    let stop = StopWord::new(node.placement()).unwrap();
    let outcome = node.shared(Outcome::new()).unwrap();
    let work = Work {
        task: record.task(),
        ran: &ran,
        stop: stop.stop(),
    };
    let mut kernels = TaskKernels::new();
    let adds = Launch::new(entry!(add), Grid::new(2, 3), work);
    kernels.register(ADD, adds).unwrap();
    let ends = Launch::new(entry!(end), Grid::ONE_THREAD, work);
    kernels.register(END, ends).unwrap();
    let dispatch = Dispatch {
        task: record.task(),
        target: active.target(),
        stop: stop.stop(),
        limit_us: LIMIT_US,
        outcome: &outcome,
    };
    let answer = || Launch::new(entry!(active_launched_answer), Grid::ONE_THREAD, dispatch);
    let launches = kernels.branches(active.functions(), answer).unwrap();
    let branches = Branches {
        word: record.word(),
        launches: &launches,
    };
    // Two blocks of two threads for three lanes.
    let look = Launch::new(entry!(active_dispatch), Grid::new(2, 2), dispatch);
    let asks = Launch::new(entry!(ask), Grid::new(LANES, 1), active.initiator());
    node.run_choosing(&[look], &branches, &stop, &[asks], &[], Duration::ZERO)
        .unwrap();
    assert_eq!(outcome.result(), Ok(()));
    let [adds, ends] = ran.each_ref().map(WordExt::load_relaxed);
    assert_eq!(adds, u64::from(2 * 3 * LANES * MESSAGES));
    assert_eq!(ends, u64::from(LANES));
    // Nothing is left for another dispatcher.
    let task = record.task();
    for lane in 0..LANES {
        let quiet = StopWord::new(node.placement()).unwrap();
        let found = task.find(lane, active.target(), quiet.stop(), Deadline::PASSED);
        assert_eq!(found, Err(Refused::Timeout));
    }
}

#[test]
fn a_dispatcher_that_fails_ends_and_says_why() {
    let node = Node::cpu();
    let active = lanes(&node);
    let record = TaskRecord::new(node.placement()).unwrap();
    let stop = StopWord::new(node.placement()).unwrap();
    let outcome = node.shared(Outcome::new()).unwrap();
    let dispatch = Dispatch {
        task: record.task(),
        target: active.target(),
        stop: stop.stop(),
        limit_us: 1000,
        outcome: &outcome,
    };
    let branches = Branches {
        word: record.word(),
        launches: &[],
    };
    let look = Launch::new(entry!(active_dispatch), Grid::new(1, 3), dispatch);
    node.run_choosing(&[look], &branches, &stop, &[], &[], Duration::ZERO)
        .unwrap();
    assert_eq!(outcome.result(), Err(Refused::Timeout.into()));
}

#[test]
fn kernels_are_registered_once_and_for_every_function() {
    let node = Node::cpu();
    let active = lanes(&node);
    assert_eq!(active.functions().collect::<Vec<_>>(), [ADD, END]);
    let record = TaskRecord::new(node.placement()).unwrap();
    let ran = node.shared([const { Word64::new(0) }; 2]).unwrap();
    let stop = StopWord::new(node.placement()).unwrap();
    let work = Work {
        task: record.task(),
        ran: &ran,
        stop: stop.stop(),
    };
    let launch = || Launch::new(entry!(add), Grid::ONE_THREAD, work);
    let mut kernels = TaskKernels::new();
    kernels.register(ADD, launch()).unwrap();
    let again = kernels.register(ADD, launch());
    let exists = ActiveError::FunctionExists { function: ADD };
    assert!(matches!(again, Err(Error::Active(error)) if error == exists));
    let missing = kernels.branches(active.functions(), launch);
    let no_kernel = ActiveError::NoKernel { function: END };
    assert!(matches!(missing, Err(Error::Active(error)) if error == no_kernel));
}
