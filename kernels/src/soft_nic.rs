//! A NIC in software that runs where the kernels do: its engines are a kernel that stays.

use warpbell::{Deadline, Wait, kernel, shared_array, thread, warp};
#[cfg(not(target_arch = "nvptx64"))]
use warpbell_soft_hca::engine::OneLane;
use warpbell_soft_hca::engine::{Desk, Lanes};
use warpbell_soft_hca::resident::{Arguments, MAX_ENGINES, Resident, Round};

/// Rounds with nothing to do after which the engine sleeps between two of them.
const PATIENCE: u32 = 4096;
/// How long it sleeps then, in nanoseconds.
const NAP_NS: u32 = 500;
/// The host ends the engine, not the time.
const NEVER: Deadline = Deadline::after_ns(u64::MAX);

/// The lanes of a warp, all 32 of them.
#[derive(Clone, Copy)]
struct WarpLanes;

/// All lanes.
const ALL: u32 = u32::MAX;

// SAFETY: the warp's operations are these, and `sync_warp` orders what its lanes store.
unsafe impl Lanes for WarpLanes {
    #[inline(always)]
    fn index(self) -> u32 {
        warp::lane_id()
    }

    #[inline(always)]
    fn count(self) -> u32 {
        thread::warp_size()
    }

    #[inline(always)]
    fn ballot(self, predicate: bool) -> u32 {
        // SAFETY: all lanes of the warp come here together, none has exited: as the trait demands.
        unsafe { warp::warp_vote_ballot(ALL, predicate) }
    }

    #[inline(always)]
    fn broadcast(self, value: u64, from: u32) -> u64 {
        // SAFETY: as above.
        unsafe { warp::warp_shuffle_idx(ALL, value, from, thread::warp_size()).0 }
    }

    #[inline(always)]
    fn sync(self) {
        // SAFETY: as above.
        unsafe { warp::sync_warp(ALL) }
    }
}

/// Drives the engines of a block until the host stops them: each with a warp, or on a CPU also with a thread.
#[kernel]
pub fn soft_nic(arguments: Arguments) {
    let desks = shared_array![Desk<'static>; MAX_ENGINES as usize];
    let engine = thread::index() / arguments.lanes;
    if engine >= arguments.engines.min(MAX_ENGINES) {
        return;
    }
    // SAFETY: one desk for each engine, which makes it its own; it means nothing before.
    let desk = unsafe {
        let desk = desks.add(engine as usize);
        &*desk
    };
    #[cfg(not(target_arch = "nvptx64"))]
    if arguments.lanes == 1 {
        return drive(&arguments, engine, OneLane, desk);
    }
    drive(&arguments, engine, WarpLanes, desk);
}

/// Drives one engine; each of its lanes calls it.
#[inline(always)]
fn drive(arguments: &Arguments, engine: u32, lanes: impl Lanes, desk: &Desk<'static>) {
    // SAFETY: the host made the arguments for this kernel: mailboxes and tables are these
    // engines' until they have ended. Who gives commands vouches for the memory that they name.
    let Ok(mut engine) = (unsafe { Resident::start(arguments, engine, lanes, desk) }) else {
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
