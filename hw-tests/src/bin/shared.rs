//! Proves that a queue shared by a block or by the whole GPU carries each thread's requests exactly once: up to
//! 1,024 threads of a block and several blocks at one small queue that is always full, in every order of the
//! lanes, past the wrap of the 16-bit index.

use std::process::ExitCode;
use std::time::Duration;

use warpbell_cpu_grid::Dim;
use warpbell_host_init::{Completions, QueuePairConfig};
use warpbell_hw_tests::arena::Arena;
use warpbell_hw_tests::node::{ALL_ACCESS, Nodes};
use warpbell_hw_tests::post::{ample, endings, expect_done};
use warpbell_hw_tests::run::run;
use warpbell_hw_tests::world::{World, grid};
use warpbell_kernels::suite::{EndingWords, Flood, Mode, Output, ScopeKind, SharingKind};

/// Blocks of 64 bytes: far fewer than threads.
const DEPTH: u32 = 16;
/// Values of a launch at most, over all its threads and rounds.
const VALUES: usize = 1 << 16;
const MAX_THREADS: usize = 1024;

/// One crowd at a queue.
struct Crowd {
    mode: Mode,
    grid: Dim,
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
        threads(BlockShared, grid(1, 32), 100),
        threads(BlockShared, grid(1, 256), 20),
        threads(BlockShared, grid(1, 1024), 7),
        threads(GpuShared, grid(1, 32), 100),
        threads(GpuShared, grid(1, 1024), 7),
        threads(GpuShared, grid(4, 100), 17),
        // With room for the lanes that post together.
        roomy(BlockShared, grid(1, 32), 100),
        roomy(GpuShared, grid(1, 256), 20),
        roomy(GpuShared, grid(4, 100), 17),
        groups(BlockShared, Warp, grid(1, 256)),
        groups(GpuShared, Warp, grid(3, 90)),
        groups(GpuShared, Block, grid(4, 50)),
    ]
}

fn main() -> ExitCode {
    run(Duration::from_secs(180), |progress| {
        let bench = Bench::new();
        for world in World::all() {
            for completions in [Completions::Collapsed, Completions::ORDINARY] {
                for crowd in crowds() {
                    let Crowd { mode, grid, .. } = crowd;
                    progress.step(format!("{world:?}, {completions:?}, {mode:?}, {grid:?}"));
                    bench.flood(world, &crowd, completions);
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
                grid: grid(1, 64),
                depth: DEPTH,
                rounds: 600,
            };
            let blocks = bench.flood(World::here(), &crowd, completions);
            assert!(blocks > 1 << 16, "{blocks} blocks do not wrap");
        }
    })
}

struct Bench {
    nodes: Nodes,
    values: Arena,
    found: Arena,
}

impl Bench {
    fn new() -> Self {
        let nodes = Nodes::chosen();
        Self {
            values: nodes
                .theirs
                .arena(8 * (VALUES + MAX_THREADS), ALL_ACCESS, 1),
            found: nodes.ours.arena(8 * MAX_THREADS, ALL_ACCESS, 2),
            nodes,
        }
    }

    /// Lets a crowd at a fresh queue, and looks at every byte; gives how many blocks went through.
    fn flood(&self, world: World, crowd: &Crowd, completions: Completions) -> u64 {
        let Crowd {
            mode,
            grid,
            depth,
            rounds,
        } = *crowd;
        let what = format!("{world:?}, {mode:?}, {grid:?}, {completions:?}");
        let pair = self.nodes.pair(&QueuePairConfig {
            send_depth: depth,
            send_completions: completions,
            ..QueuePairConfig::default()
        });
        let threads = grid.blocks * grid.threads_per_block;
        let counters = self.values.address() + 8 * VALUES as u64;

        // Every value lands in its place, and every counter goes up by one a round.
        let mut expected = self.values.image();
        let mut last = self.found.image();
        for thread in 0..threads {
            for round in 0..rounds {
                let place = u64::from(thread * rounds + round);
                let value = Flood::value(thread, round).to_le_bytes();
                expected.set(self.values.address() + 8 * place, &value);
            }
            let counter = counters + 8 * u64::from(thread);
            let before = expected.get(counter, 8).try_into().expect("eight bytes");
            let after = u64::from_le_bytes(before).wrapping_add(rounds.into());
            expected.set(counter, &after.to_le_bytes());
            // The last addition found one less.
            let found = after.wrapping_sub(1).to_le_bytes();
            last.set(self.found.address() + 8 * u64::from(thread), &found);
        }

        let mut words = world.values(threads as usize, EndingWords::default());
        let kernel = Flood {
            queue: pair.ours.send_queue().expect("a send queue"),
            mode,
            rounds,
            patience_ns: ample().as_nanos() as u64,
            values: self.values.address(),
            counters,
            remote_key: self.values.region().rkey().0,
            local_key: self.found.region().lkey().0,
            found: self.found.address(),
            endings: Output::new(&mut words),
        };
        world.launch(grid, &kernel);
        expect_done(&endings(&words), &what);
        self.values.check(&expected, &what);
        self.found.check(&last, &what);
        pair.ours.send_progress().published
    }
}
