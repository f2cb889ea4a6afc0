//! Queues of one owner, of a block and of the whole grid, called by threads, warps and blocks.

use serde_json::json;
use warpbell_host_init::{Entry, Grid, entry};
use warpbell_kernels::sharing::{self as kernels, Spread};
use warpbell_stage::Error;
use warpbell_stage::launch::{Job, LIMIT_US, run};
use warpbell_stage::setup::Ends;

use crate::Demo;
use crate::passage::Passage;

type Kernel = Entry<fn(Spread<'_>)>;

/// A kernel for each sharing and scope.
#[rustfmt::skip]
const KERNELS: [(&str, [Kernel; 3]); 3] = {
    use kernels::*;
    [
        ("exclusive", [entry!(spread_exclusive_thread), entry!(spread_exclusive_warp), entry!(spread_exclusive_block)]),
        ("block-shared", [entry!(spread_block_shared_thread), entry!(spread_block_shared_warp), entry!(spread_block_shared_block)]),
        ("GPU-shared", [entry!(spread_gpu_shared_thread), entry!(spread_gpu_shared_warp), entry!(spread_gpu_shared_block)]),
    ]
};

const SCOPES: [&str; 3] = ["thread", "warp", "block"];

/// Bytes that a thread writes in a round.
const PIECE: usize = 64;
const ROUNDS: u32 = 8;

/// The grid for a combination. An exclusive queue has one user, a block-shared one all of a block, and a GPU-shared one
/// all of two blocks. A warp or block posts together at most what fits under one doorbell.
fn grid(sharing: usize, scope: usize, depth: u32) -> Grid {
    let most = (depth / 2).clamp(1, 64);
    let threads = match (sharing, scope) {
        (0, 0) => 1,
        (0, 1) => most.min(32),
        _ => most,
    };
    Grid::new(if sharing == 2 { 2 } else { 1 }, threads)
}

/// Runs all combinations.
pub fn all(demo: &mut Demo, ends: &Ends) -> Result<(), Error> {
    demo.screen.heading(
        "Who shares a queue, and who calls it together; blocks × threads, each writing its own pieces",
    );
    let header = "                    by thread       by warp      by block";
    demo.screen.line(header);
    for (row, (sharing, kernels)) in KERNELS.into_iter().enumerate() {
        let mut line = format!("  {sharing:<14}");
        for (column, (kernel, scope)) in kernels.into_iter().zip(SCOPES).enumerate() {
            let grid = grid(row, column, demo.arguments.depth);
            let verified = one(demo, ends, grid, kernel)?;
            let (blocks, threads_per_block) = (grid.blocks, grid.threads_per_block);
            let size = format!("{blocks} × {threads_per_block}");
            line += &format!("{size:>10} {}", demo.screen.mark(verified));
            let check = json!({
                "sharing": sharing, "scope": scope, "blocks": blocks,
                "threads_per_block": threads_per_block, "writes": grid.threads() as u32 * ROUNDS,
            });
            demo.record("sharing", verified, check);
        }
        demo.screen.line(line);
    }
    Ok(())
}

fn one(demo: &mut Demo, ends: &Ends, grid: Grid, kernel: Kernel) -> Result<bool, Error> {
    let bytes = grid.threads() as usize * ROUNDS as usize * PIECE;
    let passage = Passage::new(&ends.one, &ends.other, bytes, &mut demo.random)?;
    let outcome = ends.one.outcome()?;
    let spread = Spread {
        queue: ends.one.pair.send_queue()?,
        local: passage.source.local(0, PIECE),
        remote: passage.target.remote(0),
        rounds: ROUNDS,
        limit_us: LIMIT_US,
        outcome: &outcome,
    };
    let job = Job::on_grid(kernel, grid, spread, &outcome);
    run("a shared queue", job, &ends.one)?;
    Ok(passage.arrived())
}
