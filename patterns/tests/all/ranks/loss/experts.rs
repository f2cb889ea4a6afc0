//! Tokens to experts and back.

use warpbell_host_init::Grid;
use warpbell_patterns::experts::host::{ExpertsConfig, ExpertsMember};

use super::*;
use crate::experts::model::Routing;
use crate::experts::rounds::Plan;
use crate::experts::{all_succeed, config as exchange};

const RANKS: u32 = 3;
/// Rounds of a kernel.
const KERNEL: u64 = 3;

/// So many rounds of each way to choose experts, over each wire.
pub fn rounds(port: u16, rounds: u64) {
    let config = ExpertsConfig {
        experts: 2 * RANKS,
        queue_pair: queues(),
        ..exchange()
    };
    for (port, wire) in (port..).zip(WIRES) {
        under_loss(port, RANKS, wire, |mut world| {
            let all: Vec<u32> = world.ranks().collect();
            let member = ExpertsMember::join(&mut world, &all, &config).unwrap();
            let member = member.expect("all are members");
            // Each kernel has a limit of its own.
            for _ in 0..rounds.div_ceil(KERNEL) {
                for routing in Routing::ALL {
                    let grid = Grid::new(2, 32);
                    all_succeed(Plan::whole(routing, KERNEL).run(&[&member], grid));
                }
            }
            world.barrier().unwrap();
        });
    }
}

#[test]
fn every_value_is_exact() {
    rounds(22_070, 3);
}
