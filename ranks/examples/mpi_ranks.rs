//! The processes of an MPI program become ranks, and go on with both.
//!
//! ```console
//! $ cargo build -p warpbell-ranks --features mpi --example mpi_ranks
//! $ mpirun -np 4 target/debug/examples/mpi_ranks
//! ```

use std::error::Error;
use std::time::Duration;

use mpi::traits::{Communicator, CommunicatorCollectives};
use warpbell_ranks::{Bootstrap, Rendezvous};

const LIMIT: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn Error>> {
    let universe = mpi::initialize().ok_or("MPI has been initialised already")?;
    let processes = universe.world();
    let mut ranks = Rendezvous::over_mpi(&processes, LIMIT).unwrap_or_else(|error| {
        eprintln!("{error}");
        // A return would call MPI_Finalize, which may wait for ever for a process that did not come.
        processes.abort(1)
    });
    let (rank, size) = (ranks.rank(), ranks.size());
    println!("rank {rank} of {size}, local rank {}", ranks.local_rank());
    // The same by both.
    let mut by_mpi = vec![0_u32; processes.size() as usize];
    processes.all_gather_into(&(rank + 1), &mut by_mpi[..]);
    let by_mpi = by_mpi.iter().map(|number| number.to_le_bytes().to_vec());
    let ours = ranks.allgather(&(rank + 1).to_le_bytes(), LIMIT)?;
    if !by_mpi.eq(ours) {
        return Err(format!("rank {rank}: MPI and the ranks differ").into());
    }
    ranks.barrier(LIMIT)?;
    if rank == 0 {
        println!("by MPI: {size} ranks, and the same numbers by both");
        println!("Test OK");
    }
    Ok(())
}
