//! Ranks that a launcher started find each other and tell their hosts.
//!
//! ```console
//! $ mpiexec.hydra -n 4 target/debug/examples/ranks
//! ```

use std::process::ExitCode;
use std::time::Duration;

use warpbell_ranks::{Bootstrap, Config, Environment, RanksError, Rendezvous};

/// Some launchers start ranks one after the other.
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    if let Err(error) = run() {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn run() -> Result<(), RanksError> {
    let config = Config::read(&Environment::of_process())?;
    if config.rank == 0 {
        println!("{config}");
    }
    let mut ranks = Rendezvous::join(&config, LIMIT)?;
    let (rank, size, local) = (ranks.rank(), ranks.size(), ranks.local_rank());
    println!("rank {rank} of {size}, local rank {local}");
    let name = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    let names = ranks.allgather(name.trim_ascii(), LIMIT)?;
    ranks.barrier(LIMIT)?;
    if rank == 0 {
        let names: Vec<_> = names
            .iter()
            .map(|name| String::from_utf8_lossy(name))
            .collect();
        println!("hosts: {}", names.join(" "));
        println!("Test OK");
    }
    Ok(())
}
