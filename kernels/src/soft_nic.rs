//! A NIC in software that runs where the kernels do: its engines are a kernel that stays.

use core::mem::MaybeUninit;

use warpbell::{Deadline, Wait, kernel, shared_array, thread, warp};
use warpbell_soft_hca_gpu::resident::{Arguments, MAX_ENGINES, Resident, Round};
use warpbell_soft_hca_gpu::{Crew, Desk, Lanes, Lender, MemoryScope, Served};

/// Rounds with nothing to do after which a thread sleeps between two of them.
const PATIENCE: u32 = 4096;
/// How long it sleeps then, in nanoseconds: each look of an idle engine takes time from those that work on the SM.
const NAP_NS: u32 = 2_000;
/// The host ends the engine, not the time.
const NEVER: Deadline = Deadline::after_ns(u64::MAX);

/// The lanes of a warp, all 32 of them.
#[derive(Clone, Copy)]
struct WarpLanes {
    /// The calling thread's number, read once.
    index: u32,
}

/// All lanes.
const ALL: u32 = u32::MAX;

// SAFETY: the warp's operations are these, and `sync_warp` orders what its lanes store.
unsafe impl Lanes for WarpLanes {
    #[inline(always)]
    fn index(self) -> u32 {
        self.index
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

/// Drives the engines of a block, and their crews, until the host stops them.
#[kernel]
pub fn soft_nic(arguments: Arguments) {
    let desks = shared_array![MaybeUninit<Desk<'static>>; MAX_ENGINES as usize];
    let threads = arguments.threads_per_engine();
    let (engine, place) = (thread::index() / threads, thread::index() % threads);
    let known = engine < arguments.parts().engines.min(MAX_ENGINES);
    // The first lanes are the crew's, if there is one, and behind them comes the engine's thread.
    let crew = arguments.parts().crew;
    let desk = desks.wrapping_add(engine as usize);
    if known && place == crew {
        // SAFETY: one desk for each engine, whose thread makes it; nobody else looks before the meeting.
        Desk::set_up(unsafe { &mut *desk }, crew);
    }
    // Desks before the crews come there.
    thread::sync_threads();
    if !known || place > crew {
        return;
    }
    // SAFETY: it was set up, and from now on it is shared.
    let desk = unsafe { (*desk).assume_init_ref() };
    match place == crew {
        true => drive(&arguments, engine, desk),
        // Two loops, because a reach that the compiler knows need not be asked at each access.
        false => match arguments.reach() {
            MemoryScope::Gpu => serve(MemoryScope::Gpu, desk),
            MemoryScope::System => serve(MemoryScope::System, desk),
        },
    }
}

/// Drives one engine. Never part of the kernel's own body, whose registers are the crews'.
#[inline(never)]
fn drive(arguments: &Arguments, engine: u32, desk: &Desk<'static>) {
    // SAFETY: the host made the arguments for this kernel: mailboxes and tables are these
    // engines' until they have ended. Who gives commands vouches for the memory that they name.
    // Each engine has a desk of its own.
    let started = unsafe { Resident::start(arguments, engine, Lender::new(desk)) };
    let Ok(mut engine) = started else {
        // The mailbox says why.
        return;
    };
    let mut idle = Idle::new();
    loop {
        match engine.round(thread::clock_ns()) {
            Round::Ended => return,
            Round::Worked => idle.rounds = 0,
            Round::Idle => idle.pause(),
        }
    }
}

/// Serves at a desk; each lane of a crew calls it.
#[inline(always)]
fn serve(reach: MemoryScope, desk: &Desk<'static>) {
    let lanes = WarpLanes {
        index: warp::lane_id(),
    };
    // SAFETY: each desk has the crew of its engine, a warp's lanes, and all memories are alike.
    let mut crew = unsafe { Crew::new(desk, lanes, reach.memory()) };
    let mut idle = Idle::new();
    loop {
        match crew.round() {
            Served::Over => return,
            Served::Something => idle.rounds = 0,
            Served::Nothing => idle.pause(),
        }
    }
}

/// How long there has been nothing to do.
struct Idle {
    wait: Wait,
    /// Rounds since there was something.
    rounds: u32,
}

impl Idle {
    #[inline(always)]
    fn new() -> Self {
        Self {
            wait: NEVER.wait(),
            rounds: 0,
        }
    }

    /// Lets others run, and sleeps once it has lasted.
    #[inline(always)]
    fn pause(&mut self) {
        let _ = self.wait.expired();
        match self.rounds < PATIENCE {
            true => self.rounds += 1,
            false => thread::nanosleep(NAP_NS),
        }
    }
}
