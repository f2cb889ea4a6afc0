//! Proves that the device path allocates nothing, in every sharing and scope, and that a queue's device-side
//! state is at most 256 bytes beside its rings.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::process::ExitCode;
use std::time::Duration;

use warpbell::wqe::{Local, Remote, Wqe};
use warpbell::{
    Block, BlockShared, Deadline, Exclusive, GpuShared, QueueState, Scope, Sharing, Thread, Warp,
};
use warpbell_host_init::{Completions, QueuePairConfig};
use warpbell_hw_tests::machine::Machine;
use warpbell_hw_tests::run::run_on_cpu;
use warpbell_hw_tests::sides::{ALL_ACCESS, Pair, Sides};

/// The system's allocator, which counts what each thread asks of it.
struct Counting;

thread_local! {
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that is ending has no counter any more, and runs no kernel.
    let _ = ASKED.try_with(|asked| asked.set(asked.get() + 1));
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often this thread asks the allocator for something during `work`.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = ASKED.get();
    work();
    ASKED.get() - before
}

/// A thread without a grid is a grid of one, whose clock goes on by 100 ns with each look.
const AMPLE: Deadline = Deadline::after_ms(60_000);

pub fn test(machine: &Machine) -> ExitCode {
    run_on_cpu(machine, Duration::from_secs(600), |progress| {
        progress.step("the counter counts");
        assert_eq!(allocations(|| drop(Box::new(1))), 2);
        progress.step("the state's size");
        const { assert!(size_of::<QueueState>() <= 256) };
        for completions in [Completions::Collapsed, Completions::ORDINARY] {
            progress.step(format!("post, poll, wait, receive: {completions:?}"));
            every_scope::<Exclusive>(completions);
            every_scope::<BlockShared>(completions);
            every_scope::<GpuShared>(completions);
        }
    })
}

fn every_scope<S: Sharing>(completions: Completions) {
    nothing_allocates::<S, Thread>(completions);
    nothing_allocates::<S, Warp>(completions);
    nothing_allocates::<S, Block>(completions);
}

fn nothing_allocates<S: Sharing, C: Scope>(completions: Completions) {
    let sides = Sides::chosen();
    let pair = sides.pair(&QueuePairConfig {
        send_depth: 16,
        send_completions: completions,
        ..QueuePairConfig::default()
    });
    let source = sides.ours.arena(256, ALL_ACCESS, 1);
    let target = sides.theirs.arena(256, ALL_ACCESS, 2);
    let (local, remote) = (source.local(0, 64), target.remote(0));
    let buffer = target.local(128, 64);
    let asked = allocations(|| device_path::<S, C>(&pair, local, remote, buffer));
    assert_eq!(asked, device_handles(&pair), "calls of the allocator");
}

/// What getting the handles costs, which is the host's part.
fn device_handles(pair: &Pair) -> u64 {
    allocations(|| {
        pair.ours.send_queue().expect("a send queue");
        pair.theirs.receive_queue().expect("a receive queue");
    })
}

/// All that a kernel does with queues: more than the ring holds, one by one, in batches and groups, with waits
/// that succeed and waits that are late, and receives.
fn device_path<S: Sharing, C: Scope>(pair: &Pair, local: Local, remote: Remote, buffer: Local) {
    let handle = pair.ours.send_queue().expect("a send queue");
    // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
    let mut queue = unsafe { handle.open_together::<S, C>() }.expect("an open queue");
    let receive_handle = pair.theirs.receive_queue().expect("a receive queue");
    // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
    let mut receives = unsafe { receive_handle.open_together::<S, C>() }.expect("an open queue");
    for _ in 0..100 {
        let _ = queue.post(Wqe::write(local, remote), AMPLE).expect("room");
    }
    let read = Wqe::read(local, remote).signalled();
    let ticket = queue.post(read, AMPLE).expect("room");
    queue.wait(ticket, AMPLE).expect("a read");
    assert_eq!(queue.is_done(ticket), Ok(true));
    let list = [local, local, local];
    let gather = Wqe::<2>::write_gather(&list, remote).expect("three pieces");
    let mut batch = queue.batch(8, AMPLE).expect("room");
    let _ = batch.post(gather).expect("room in the batch");
    let _ = batch.post_if::<1>(None).expect("nothing");
    drop(batch);
    queue.drain(AMPLE).expect("all done");
    receives.try_post(buffer).expect("room");
    assert!(receives.receive(Deadline::PASSED).is_err());
    let ticket = queue
        .post(Wqe::send(local).signalled(), AMPLE)
        .expect("room");
    queue.wait(ticket, AMPLE).expect("a send");
    receives.receive(AMPLE).expect("a message");
    let refused = queue.try_post(Wqe::send(Local { length: 0, ..local }));
    assert!(refused.is_err());
}
