//! A NIC in software that runs where the kernels do: its engines are a kernel that stays.

use warpbell::{Deadline, Wait, kernel, thread};
use warpbell_soft_hca::resident::{Arguments, Resident, Round};

/// Rounds with nothing to do after which the engine sleeps between two of them.
const PATIENCE: u32 = 4096;
/// How long it sleeps then, in nanoseconds.
const NAP_NS: u32 = 500;
/// The host ends the engine, not the time.
const NEVER: Deadline = Deadline::after_ns(u64::MAX);

/// Drives the engines of a block until the host stops them: each warp's first thread one of them.
#[kernel]
pub fn soft_nic(arguments: Arguments) {
    let (lane, engine) = (
        thread::index() % thread::warp_size(),
        thread::index() / thread::warp_size(),
    );
    if lane != 0 || engine >= arguments.engines {
        return;
    }
    // SAFETY: the host made the arguments for this kernel: mailboxes and tables are these
    // engines' until they have ended. Who gives commands vouches for the memory that they name.
    let Ok(mut engine) = (unsafe { Resident::start(&arguments, engine) }) else {
        // The mailbox says why.
        return;
    };
    let mut idle: Option<(Wait, u32)> = None;
    loop {
        match engine.round(thread::clock_ns()) {
            Round::Ended => return,
            Round::Worked => idle = None,
            Round::Idle => {
                let (wait, rounds) = idle.get_or_insert_with(|| (NEVER.wait(), 0));
                let _ = wait.expired();
                match *rounds < PATIENCE {
                    true => *rounds += 1,
                    false => thread::nanosleep(NAP_NS),
                }
            }
        }
    }
}
