//! Ranks that connect all to all, the time this takes, and the memory of a connection.
//!
//! ```console
//! $ cargo build --release -p warpbell-host-init --features ranks --example connections
//! $ cargo xtask launch -n 64 -- target/release/examples/connections
//! ```
//!
//! Memory is the resident set (`VmRSS`, proc(5)) of all processes, once before and once after they connect. A connection
//! has two ends, each with a queue pair, its queues, and the wire to the other rank.

use std::error::Error;
use std::fs;
use std::time::{Duration, SystemTime};

use warpbell_host_init::{Access, Node, QueuePairConfig, World};

/// How long each step may take.
const LIMIT: Duration = Duration::from_secs(300);

fn main() -> Result<(), Box<dyn Error>> {
    let began = SystemTime::now();
    let mut world = World::from_env(&Node::cpu(), LIMIT)?;
    if world.rank() == 0 {
        println!("{world}");
    }
    let before = all_resident(&mut world)?;
    let config = QueuePairConfig::granting(Access::REMOTE_WRITE);
    let _pairs = world.connect(world.others(), &config)?;
    world.barrier()?;
    let ended = SystemTime::now();
    let after = all_resident(&mut world)?;
    let times: Vec<(SystemTime, SystemTime)> = world.exchange(&(began, ended))?;
    let first = times.iter().map(|(began, _)| *began).min();
    let last = times.iter().map(|(_, ended)| *ended).max();
    let taken = last
        .unwrap_or(ended)
        .duration_since(first.unwrap_or(began))?;
    if world.rank() == 0 {
        let size = u64::from(world.size());
        let connections = size * (size - 1) / 2;
        let grown = after.saturating_sub(before);
        println!(
            "{size} ranks, {connections} connections, connected and met in {:.1} s",
            taken.as_secs_f64()
        );
        println!(
            "memory: {before} KiB before, {after} KiB after, {} KiB for each connection",
            grown / connections.max(1)
        );
        println!("Test OK");
    }
    // Nobody ends while others still connect.
    world.barrier()?;
    Ok(())
}

/// KiB of all ranks.
fn all_resident(world: &mut World) -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let own: u64 = number.ok_or("no VmRSS in /proc/self/status")?.parse()?;
    Ok(world.exchange(&own)?.iter().sum())
}
