//! A NIC in software that runs where the kernels do: its engine is a kernel that stays.

use warpbell::{Deadline, Wait, kernel, thread};
use warpbell_soft_hca::resident::{Arguments, Resident, Round};

/// Rounds with nothing to do after which the engine sleeps between two of them.
const PATIENCE: u32 = 4096;
/// How long it sleeps then, in nanoseconds.
const NAP_NS: u32 = 500;
/// The host ends the engine, not the time.
const NEVER: Deadline = Deadline::after_ns(u64::MAX);

/// Drives the engine until the host stops it, with one thread.
#[kernel]
pub fn soft_nic(arguments: Arguments) {
    if !thread::first() {
        return;
    }
    // SAFETY: the host made the arguments for this kernel: the mailbox and the tables are this
    // engine's until it has ended. Who gives it commands vouches for the memory that they name.
    let Ok(mut engine) = (unsafe { Resident::start(&arguments) }) else {
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
