//! Proves that a queue shared by a block or by the whole GPU carries each thread's requests exactly once: up to
//! 1,024 threads of a block and several blocks at one small queue that is always full, in every order of the
//! lanes, past the wrap of the 16-bit index.

use std::process::ExitCode;
use std::time::Duration;

use warpbell_cpu_grid::Grid;
use warpbell_host_init::{Completions, Kernels, QueuePairConfig};
use warpbell_hw_tests::flood::Flooding;
use warpbell_hw_tests::here;
use warpbell_hw_tests::machine::Machine;
use warpbell_hw_tests::run::run;
use warpbell_kernels::suite::{Mode, ScopeKind, SharingKind};

/// Blocks of 64 bytes: far fewer than threads.
const DEPTH: u32 = 16;

/// One crowd at a queue.
struct Crowd {
    mode: Mode,
    grid: Grid,
    depth: u32,
    rounds: u32,
}

fn crowds() -> Vec<Crowd> {
    let threads = |sharing, grid, rounds| Crowd {
        mode: Mode {
            sharing,
            scope: ScopeKind::Thread,
        },
        grid,
        depth: DEPTH,
        rounds,
    };
    let roomy = |sharing, grid, rounds| Crowd {
        depth: 128,
        ..threads(sharing, grid, rounds)
    };
    let groups = |sharing, scope, grid| Crowd {
        mode: Mode { sharing, scope },
        grid,
        // A group of n threads takes n blocks at once, which may be half of the ring.
        depth: 128,
        rounds: 10,
    };
    use ScopeKind::{Block, Warp};
    use SharingKind::{BlockShared, GpuShared};
    vec![
        threads(BlockShared, Grid::new(1, 32), 100),
        threads(BlockShared, Grid::new(1, 256), 20),
        threads(BlockShared, Grid::new(1, 1024), 7),
        threads(GpuShared, Grid::new(1, 32), 100),
        threads(GpuShared, Grid::new(1, 1024), 7),
        threads(GpuShared, Grid::new(4, 100), 17),
        // With room for the lanes that post together.
        roomy(BlockShared, Grid::new(1, 32), 100),
        roomy(GpuShared, Grid::new(1, 256), 20),
        roomy(GpuShared, Grid::new(4, 100), 17),
        groups(BlockShared, Warp, Grid::new(1, 256)),
        groups(GpuShared, Warp, Grid::new(3, 90)),
        groups(GpuShared, Block, Grid::new(4, 50)),
    ]
}

pub fn test(machine: &Machine) -> ExitCode {
    run(machine, Duration::from_secs(600), |progress| {
        let bench = Flooding::new();
        for kernels in here::in_each_order() {
            for completions in [Completions::Collapsed, Completions::ORDINARY] {
                for crowd in crowds() {
                    let Crowd { mode, grid, .. } = crowd;
                    progress.step(format!("{kernels}, {completions:?}, {mode:?}, {grid:?}"));
                    flood(&bench, kernels, &crowd, completions);
                }
            }
        }
        progress.step("past index 2^16");
        for (sharing, completions) in [
            (SharingKind::BlockShared, Completions::Collapsed),
            (SharingKind::GpuShared, Completions::ORDINARY),
        ] {
            let mode = Mode {
                sharing,
                scope: ScopeKind::Thread,
            };
            let crowd = Crowd {
                mode,
                grid: Grid::new(1, 64),
                depth: DEPTH,
                rounds: 600,
            };
            let blocks = flood(&bench, here::kernels(), &crowd, completions);
            assert!(blocks > 1 << 16, "{blocks} blocks do not wrap");
        }
    })
}

/// Lets a crowd at a fresh queue; gives how many blocks went through.
fn flood(bench: &Flooding, kernels: Kernels, crowd: &Crowd, completions: Completions) -> u64 {
    let Crowd { mode, grid, .. } = *crowd;
    let pair = bench.sides.pair(&QueuePairConfig {
        send_depth: crowd.depth,
        send_completions: completions,
        ..QueuePairConfig::default()
    });
    let queue = pair.ours.send_queue().expect("a send queue");
    let what = format!("{kernels}, {mode:?}, {grid:?}, {completions:?}");
    bench.flood(kernels, grid, mode, crowd.rounds, queue, &what);
    pair.ours.send_progress().published
}
