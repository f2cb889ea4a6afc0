//! Which grid, on which GPU or the CPU, may open a queue.
#![cfg(not(any(loom, miri)))]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Duration;

use warpbell::{
    BlockShared, CompletionKind, Exclusive, GpuShared, OpenError, Processor, Sharing, block, thread,
};
use warpbell_cpu_grid::{Grid, Options, launch};

use crate::common::Rig;

fn run(blocks: u32, threads_per_block: u32, kernel: impl Fn() + Sync) {
    let dim = Grid::new(blocks, threads_per_block);
    let options = Options {
        deadline: Some(Duration::from_secs(300)),
        ..Options::default()
    };
    launch(dim, options, kernel).unwrap();
}

#[test]
fn a_queue_is_opened_on_its_processor_only() {
    fn refused<S: Sharing>(wanted: Processor) {
        let rig = Rig::new(5, CompletionKind::Collapsed);
        // SAFETY: nobody else has the queue.
        let handle = unsafe { rig.handle().on(wanted) };
        assert_eq!(handle.open::<S>().err(), Some(OpenError::Elsewhere));
        // SAFETY: as above.
        let here = unsafe { handle.on(Processor::CPU) };
        here.open::<S>().expect("its processor");
    }
    for gpu in [0, 1, 7] {
        refused::<Exclusive>(Processor::gpu(gpu));
        refused::<BlockShared>(Processor::gpu(gpu));
        refused::<GpuShared>(Processor::gpu(gpu));
    }
}

#[test]
fn processors_have_names() {
    let names = [
        Processor::UNKNOWN,
        Processor::CPU,
        Processor::gpu(0),
        Processor::gpu(5),
    ]
    .map(|p| p.to_string());
    assert_eq!(names, ["an unknown processor", "the CPU", "GPU 0", "GPU 5"]);
}

/// Block 0 of one grid has the queue; block 0 of another one asks for it meanwhile.
#[test]
fn a_block_of_another_grid_is_another_block() {
    let rig = Rig::new(5, CompletionKind::Collapsed);
    let (opened, asked) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run(1, 1, || {
                let queue = rig.handle().open::<BlockShared>().expect("nobody has it");
                opened.wait();
                asked.wait();
                drop(queue);
            });
        });
        scope.spawn(|| {
            opened.wait();
            let refused = Mutex::new(None);
            run(1, 1, || {
                *refused.lock().unwrap() = rig.handle().open::<BlockShared>().err();
            });
            // The other grid ends before this one may fail.
            asked.wait();
            assert_eq!(refused.into_inner().unwrap(), Some(OpenError::InUse));
        });
    });
    // The one that was refused has left nothing behind.
    rig.handle().open::<Exclusive>().expect("nobody has it");
}

/// Threads of two blocks ask at once: all of one block get the queue, and none of the other.
#[test]
fn a_block_shares_with_itself_alone() {
    const THREADS: u32 = 96;
    for _ in 0..50 {
        let rig = Rig::new(5, CompletionKind::Collapsed);
        let (asked, shared) = (AtomicU32::new(0), [AtomicU32::new(0), AtomicU32::new(0)]);
        run(2, THREADS, || {
            let queue = rig.handle().open::<BlockShared>();
            if queue.is_ok() {
                shared[block::index() as usize].fetch_add(1, Ordering::Relaxed);
            }
            asked.fetch_add(1, Ordering::Relaxed);
            // Nobody gives it back before all have asked.
            while asked.load(Ordering::Relaxed) < 2 * THREADS {
                thread::nanosleep(1000);
            }
        });
        let mut shared = shared.map(AtomicU32::into_inner);
        shared.sort();
        assert_eq!(shared, [0, THREADS]);
        rig.handle().open::<Exclusive>().expect("nobody has it");
    }
}
