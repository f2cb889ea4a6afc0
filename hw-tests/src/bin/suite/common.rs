//! Proves that queues with one completion queue in common lose no completion and mix none up: threads, warps and blocks
//! with a queue each that is always full, in every order of the lanes, past many laps of the common ring.

use std::process::ExitCode;
use std::time::Duration;

use warpbell::Strays;
use warpbell_cpu_grid::Grid;
use warpbell_host_init::QueuePairConfig;
use warpbell_hw_tests::flood::Flooding;
use warpbell_hw_tests::here;
use warpbell_hw_tests::machine::Machine;
use warpbell_hw_tests::run::run;
use warpbell_kernels::suite::ScopeKind;

/// Who has a queue each, and how often each thread writes and counts. A NIC among the kernels has room for 32 queue pairs,
/// both ends counted.
const CROWDS: [(ScopeKind, Grid, u32, u32); 6] = [
    (ScopeKind::Thread, Grid::new(2, 6), 12, 200),
    (ScopeKind::Thread, Grid::new(1, 1), 1, 100),
    (ScopeKind::Warp, Grid::new(2, 128), 8, 25),
    (ScopeKind::Warp, Grid::new(3, 50), 6, 25),
    (ScopeKind::Warp, Grid::new(12, 32), 12, 25),
    (ScopeKind::Block, Grid::new(6, 60), 6, 25),
];

/// Blocks of 64 bytes of each send ring: a scope of 64 threads may post half of them at once.
const DEPTH: u32 = 128;

pub fn test(machine: &Machine) -> ExitCode {
    run(machine, Duration::from_secs(600), |progress| {
        let bench = Flooding::new();
        for kernels in here::in_each_order() {
            for (scope, grid, queues, rounds) in CROWDS {
                // Threads fill a small ring.
                let send_depth = match scope {
                    ScopeKind::Thread => 8,
                    _ => DEPTH,
                };
                let what = format!("{kernels}, {scope:?}, {grid:?}, {queues} queues");
                progress.step(&what);
                let config = QueuePairConfig {
                    send_depth,
                    receive_depth: 0,
                    ..QueuePairConfig::default()
                };
                let common = bench.sides.common(&config, queues);
                bench.flood_common(kernels, grid, scope, rounds, &common, &what);
                assert_eq!(common.completions.strays(), Strays::default(), "{what}");
                // Of a group only some WQEs are signalled.
                if scope == ScopeKind::Thread {
                    let taken = common.completions.taken();
                    let laps = taken / u64::from(common.completions.depth());
                    assert!(laps > 1, "{what}: {laps} laps of the common ring");
                }
            }
        }
    })
}
