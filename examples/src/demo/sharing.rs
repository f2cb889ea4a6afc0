//! Queues of one owner, of a block and of the whole grid, called by threads, warps and blocks.

use rand::Rng;
use rand::rngs::SmallRng;
use serde::Serialize;
use warpbell_host_init::{Entry, Grid, entry};
use warpbell_kernels::outcome::Outcome;
use warpbell_kernels::sharing::{self as kernels, Spread};

use crate::Error;
use crate::demo::Options;
use crate::launch::{Job, LIMIT_US, run as run_kernel};
use crate::screen::Screen;
use crate::setup::Ends;

/// One combination.
#[derive(Clone, Debug, Serialize)]
pub struct Shared {
    /// Who else uses the queue.
    pub sharing: &'static str,
    /// Who calls it together.
    pub scope: &'static str,
    /// Blocks of the grid.
    pub blocks: u32,
    /// Threads in each.
    pub threads_per_block: u32,
    /// Writes posted.
    pub writes: u32,
    /// Every piece of every thread arrived, and nothing else.
    pub verified: bool,
}

type Kernel = Entry<fn(Spread<'_>)>;

/// A kernel for each sharing (rows) and scope (columns).
const KERNELS: [(&str, [Kernel; 3]); 3] = [
    (
        "exclusive",
        [
            entry!(kernels::spread_exclusive_thread),
            entry!(kernels::spread_exclusive_warp),
            entry!(kernels::spread_exclusive_block),
        ],
    ),
    (
        "block-shared",
        [
            entry!(kernels::spread_block_shared_thread),
            entry!(kernels::spread_block_shared_warp),
            entry!(kernels::spread_block_shared_block),
        ],
    ),
    (
        "GPU-shared",
        [
            entry!(kernels::spread_gpu_shared_thread),
            entry!(kernels::spread_gpu_shared_warp),
            entry!(kernels::spread_gpu_shared_block),
        ],
    ),
];

const SCOPES: [&str; 3] = ["thread", "warp", "block"];

/// How many combinations there are.
pub(super) const COUNT: usize = 9;

/// Bytes that a thread writes in a round.
const PIECE: usize = 64;
/// Rounds of each thread.
const ROUNDS: u32 = 8;

/// The grid for a combination. An exclusive queue has one user; a block-shared one has all of a block, a
/// GPU-shared one all of two blocks. A warp or block posts together at most what fits under one doorbell.
fn grid(sharing: usize, scope: usize, depth: u32) -> Grid {
    let most = (depth / 2).clamp(1, 64);
    Grid {
        blocks: if sharing == 2 { 2 } else { 1 },
        threads_per_block: match (sharing, scope) {
            (0, 0) => 1,
            (0, 1) => most.min(32),
            _ => most,
        },
    }
}

/// Runs all combinations.
pub(super) fn run(
    ends: &Ends,
    options: &Options,
    screen: &Screen,
    random: &mut SmallRng,
    checks: &mut Vec<Shared>,
) -> Result<(), Error> {
    screen.heading(
        "Who shares a queue, and who calls it together; blocks × threads, each writing its own pieces",
    );
    screen.line("                    by thread       by warp      by block");
    for (row, (sharing, kernels)) in KERNELS.into_iter().enumerate() {
        let mut line = format!("  {sharing:<14}");
        for (column, (kernel, scope)) in kernels.into_iter().zip(SCOPES).enumerate() {
            screen.step(format!("{sharing}, {scope}"));
            let grid = grid(row, column, options.depth);
            let check = one(ends, sharing, scope, grid, kernel, random)?;
            let grid = format!("{} × {}", grid.blocks, grid.threads_per_block);
            let word = screen.mark(check.verified);
            line += &format!("{grid:>10} {word}");
            checks.push(check);
        }
        screen.line(line);
    }
    Ok(())
}

fn one(
    ends: &Ends,
    sharing: &'static str,
    scope: &'static str,
    grid: Grid,
    kernel: Kernel,
    random: &mut SmallRng,
) -> Result<Shared, Error> {
    let writes = grid.threads() as u32 * ROUNDS;
    let mut data = vec![0; writes as usize * PIECE];
    random.fill(&mut data[..]);
    let source = ends.one.memory(data.len())?;
    let target = ends.other.memory(data.len())?;
    source.write(0, &data);
    let outcome = ends.node().shared(Outcome::new())?;
    let spread = Spread {
        queue: ends.one.pair.send_queue()?,
        local: source.local(0, PIECE),
        remote: target.remote(0),
        rounds: ROUNDS,
        limit_us: LIMIT_US,
        outcome: &outcome,
    };
    run_kernel(
        &format!("{sharing} queue, called by a {scope}"),
        Job::on_grid(kernel, grid, spread, &outcome),
        &ends.one,
    )?;
    Ok(Shared {
        sharing,
        scope,
        blocks: grid.blocks,
        threads_per_block: grid.threads_per_block,
        writes,
        verified: source.check(&data).is_ok() && target.check(&data).is_ok(),
    })
}
