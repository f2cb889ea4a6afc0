//! Nodes: kernels on CPU threads with each NIC of software.

use std::sync::atomic::Ordering;
use std::time::Duration;

use mlx5_wqe::{Local, Remote, Wqe};
use warpbell::{Choice, Deadline, Exclusive, SendQueueHandle, Word64};
use warpbell_cpu_grid::{LaunchError, Options};
use warpbell_kernels::soft_nic::soft_nic;

use super::ALL;
use crate::choice::{Branches, ChoiceWord};
use crate::soft::{Drive, SoftGpuOptions, SoftOptions};
use crate::{Error, Grid, Kernels, Launch, Nic, Node, Placement, QueuePairConfig, StopWord, entry};

const LIMIT: Deadline = Deadline::after_ms(300_000);

/// CPU threads with each NIC that works with them.
pub(super) fn nodes() -> [Node; 2] {
    let engine = SoftGpuOptions::new(entry!(soft_nic), Kernels::default());
    let resident = Node::new(Kernels::default(), Nic::SoftGpu(engine));
    [Node::cpu(), resident.unwrap()]
}

#[repr(C)]
#[derive(Clone, Copy)]
struct WriteOnce<'a> {
    queue: SendQueueHandle<'a>,
    source: Local,
    target: Remote,
}

#[warpbell::kernel]
fn write_once(p: WriteOnce<'_>) {
    let mut queue = p.queue.open::<Exclusive>().expect("a good handle");
    let write = Wqe::write(p.source, p.target).signalled();
    let ticket = queue.post(write, LIMIT).expect("a good request");
    queue.wait(ticket, LIMIT).expect("an answer");
}

#[test]
fn a_kernel_writes_from_one_end_to_the_other() {
    for node in nodes() {
        let [near, far] = node.ends().unwrap();
        let source = near.allocate(64, ALL).unwrap();
        let target = far.allocate(64, ALL).unwrap();
        source.write(0, &[7; 64]).unwrap();
        let config = QueuePairConfig::granting(ALL);
        let (ours, theirs) = near.connected(&far, &config).unwrap();
        let write = WriteOnce {
            queue: ours.send_queue().unwrap(),
            source: source.local(0, 64).unwrap(),
            target: target.remote().at(0, 64).unwrap(),
        };
        let launch = Launch::new(entry!(write_once), Grid::ONE_THREAD, write);
        node.run(&[launch], &[&theirs]).unwrap();
        let mut found = [0; 64];
        target.read(0, &mut found).unwrap();
        assert_eq!(found, [7; 64], "{:?}", node.nic());
    }
}

#[test]
fn ends_have_a_device_each_or_share_a_kernels() {
    let [soft, resident] = nodes();
    let [near, far] = soft.ends().unwrap();
    assert!(!near.device().is(far.device()));
    let [near, far] = resident.ends().unwrap();
    assert!(near.device().is(far.device()) && !near.is(&far));
    assert_eq!(soft.domains(3).unwrap().len(), 3);
}

#[test]
fn an_own_driver_is_kept() {
    let options = SoftOptions {
        drive: Drive::ByHand,
        ..SoftOptions::default()
    };
    let node = Node::new(Kernels::default(), Nic::Soft(options)).unwrap();
    let [near, far] = node.ends().unwrap();
    let memory = near.allocate(64, ALL).unwrap();
    let target = far.allocate(64, ALL).unwrap();
    assert_eq!(memory.placement(), Placement::Host);
    let config = QueuePairConfig::granting(ALL);
    let (ours, _theirs) = near.connected(&far, &config).unwrap();
    let mut queue = ours.send_queue().unwrap().open::<Exclusive>().unwrap();
    let write = Wqe::write(
        memory.local(0, 64).unwrap(),
        target.remote().at(0, 64).unwrap(),
    );
    let _ticket = queue.post(write.signalled(), LIMIT).unwrap();
    // Time for a thread that should not be there.
    std::thread::sleep(Duration::from_millis(20));
    let step = || near.device().soft_hca().unwrap().step().unwrap();
    let steps: usize = (0..1000).map(|_| step()).sum();
    assert_ne!(steps, 0, "somebody else has executed the request");
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Meet<'a> {
    mine: &'a Word64,
    other: &'a Word64,
}

/// Raises its own word, and waits for the other one: it ends only beside another.
#[warpbell::kernel]
fn meet(p: Meet<'_>) {
    p.mine.store(1, Ordering::Release);
    let mut wait = LIMIT.wait();
    while p.other.load(Ordering::Acquire) == 0 {
        assert!(!wait.expired(), "nobody came");
    }
}

#[test]
fn kernels_run_at_the_same_time() {
    let node = Node::cpu();
    let words = node.words(2).unwrap();
    let launch = |mine: usize| {
        let parameters = Meet {
            mine: &words[mine],
            other: &words[1 - mine],
        };
        Launch::new(entry!(meet), Grid::ONE_THREAD, parameters)
    };
    node.run(&[launch(0), launch(1)], &[]).unwrap();
    words[1].store(0, Ordering::Relaxed);
    let each = vec![(&node, launch(0)), (&node, launch(1))];
    Node::run_each(each, &[], Duration::ZERO).unwrap();
}

/// Never ends by itself, and looks at the clock.
#[warpbell::kernel]
fn waits_for_ever(_: u64) {
    let mut wait = LIMIT.wait();
    while !wait.expired() {}
}

#[test]
fn a_kernel_that_hangs_is_an_error() {
    let options = Options {
        deadline: Some(Duration::from_millis(20)),
        ..Options::default()
    };
    let node = Node::cpu().with_nic(Nic::Soft(SoftOptions::default()));
    assert_matches!(node.unwrap().kernels() => Kernels::Cpu(_));
    let node = Node::new(Kernels::Cpu(options), Nic::Soft(SoftOptions::default())).unwrap();
    let launch = Launch::new(entry!(waits_for_ever), Grid::ONE_THREAD, 0);
    let error = node.run(&[launch], &[]).unwrap_err();
    assert_matches!(&error => Error::Launch(LaunchError::TimedOut { .. }));
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Count<'a> {
    count: &'a Word64,
    stop: &'a StopWord,
}

#[warpbell::kernel]
fn count_to_three(p: Count<'_>) {
    if p.count.fetch_add(1, Ordering::Relaxed) == 2 {
        p.stop.request();
    }
}

#[test]
fn kernels_are_repeated_until_they_are_stopped() {
    let node = Node::cpu().able_to_repeat().unwrap().asleep();
    let words = node.words(1).unwrap();
    let stop = StopWord::new(node.placement()).unwrap();
    let parameters = Count {
        count: &words[0],
        stop: &stop,
    };
    let repeated = Launch::new(entry!(count_to_three), Grid::ONE_THREAD, parameters);
    node.run_repeating(&[repeated], &stop, &[], &[], Duration::ZERO)
        .unwrap();
    assert_eq!(words[0].load(Ordering::Relaxed), 3);
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Choosing<'a> {
    rounds: &'a Word64,
    choice: Choice<'a>,
}

/// Chooses branches 2, 0 and none, and then another one of each.
#[warpbell::kernel]
fn choose_in_turn(p: Choosing<'_>) {
    match p.rounds.fetch_add(1, Ordering::Relaxed) % 3 {
        0 => assert!(p.choice.choose(2) && !p.choice.choose(0)),
        1 => assert!(p.choice.choose(0)),
        _ => {}
    }
}

/// Puts a digit behind those that are there, and asks for the end once there are four.
#[repr(C)]
#[derive(Clone, Copy)]
struct Digit<'a> {
    digits: &'a Word64,
    digit: u64,
    stop: &'a StopWord,
}

#[warpbell::kernel]
fn put_digit(p: Digit<'_>) {
    let digits = 10 * p.digits.load(Ordering::Relaxed) + p.digit;
    p.digits.store(digits, Ordering::Relaxed);
    if digits > 1000 {
        p.stop.request();
    }
}

#[test]
fn the_branch_that_a_round_chooses_runs_ahead_of_the_next_round() {
    let node = Node::cpu();
    let words = node.words(2).unwrap();
    let stop = StopWord::new(node.placement()).unwrap();
    let word = ChoiceWord::new(node.placement().of_states()).unwrap();
    let choosing = Choosing {
        rounds: &words[0],
        choice: word.choice(),
    };
    let round = Launch::new(entry!(choose_in_turn), Grid::ONE_THREAD, choosing);
    let digit = |digit| {
        let parameters = Digit {
            digits: &words[1],
            digit,
            stop: &stop,
        };
        Launch::new(entry!(put_digit), Grid::ONE_THREAD, parameters)
    };
    let launches = [vec![digit(3)], vec![], vec![digit(1), digit(2)]];
    let branches = Branches {
        word: &word,
        launches: &launches,
    };
    let meant = Duration::ZERO;
    node.run_choosing(&[round], &branches, &stop, &[], &[], meant)
        .unwrap();
    let found = [0, 1].map(|at: usize| words[at].load(Ordering::Relaxed));
    // The last branch has run to its end, and behind it there was no round.
    assert_eq!(found, [4, 12312]);
    // An empty one, and one beyond the last.
    for branch in [1, 3] {
        let word = ChoiceWord::new(node.placement()).unwrap();
        assert!(word.choice().choose(branch));
        let branches = Branches {
            word: &word,
            ..branches
        };
        let stop = StopWord::new(node.placement()).unwrap();
        let error = node.run_choosing(&[], &branches, &stop, &[], &[], meant);
        assert_matches!(error => Err(Error::NoBranch { branch: found }) if found == branch);
    }
}
