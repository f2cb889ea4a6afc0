//! A lane's side: the functions that a kernel calls through `warpbell`, each of which hands the warp's
//! thread back to the scheduler ([`warp`](crate::warp)) until there is an answer.

use std::alloc::Layout;
use std::cell::Cell;
use std::panic::resume_unwind;
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use corosensei::Yielder;
use warpbell_gpu::cpu::{BlockMeeting, BlockOp, Hooks, LANES, ONE_THREAD, Position, WarpOp};

use crate::block::Block;
use crate::overflow::Guard;

/// What a lane asks of its warp when it stops running.
pub(crate) enum Request {
    /// Nothing: let others run.
    Spin { turns: u32 },
    /// To meet the lanes of a mask.
    MeetWarp { op: WarpOp, mask: u32, value: u64 },
    /// To meet the block.
    MeetBlock { op: BlockOp, value: u64 },
}

/// What it gets when it goes on.
pub(crate) enum Answer {
    /// To a spin, and at the start.
    Go,
    /// What each lane brought; all lanes that met share it.
    Warp(Rc<[u64; LANES]>),
    /// What the block brought.
    Block(BlockMeeting),
    /// That the launch is over: the lane's stack is unwound.
    Over,
}

/// What unwinds the stack of a lane whose launch is over.
///
/// A kernel may catch it as any panic, and go on to its next wait, for ever. So where it drops what it caught, the
/// unwinding goes on.
pub(crate) struct Over;

impl Drop for Over {
    fn drop(&mut self) {
        if waiting().is_some_and(Current::cancelled) {
            resume_unwind(Box::new(Self));
        }
    }
}

/// The lane that runs on this thread.
#[derive(Clone, Copy)]
pub(crate) struct Current {
    pub(crate) position: Position,
    /// The way back to the scheduler; lies on the lane's stack, null until the lane runs.
    pub(crate) yielder: *const Yielder<Answer, Request>,
    /// Its block; lives as long as the launch.
    pub(crate) block: *const Block,
    /// Whether the launch has failed; lives as long as the launch.
    pub(crate) cancelled: *const AtomicBool,
    /// What lies behind its stack's end.
    pub(crate) guard: Guard,
}

thread_local! {
    static CURRENT: Cell<Option<Current>> = const { Cell::new(None) };
}

/// Makes `lane` the one that runs on this thread, or nobody; returns who did before.
pub(crate) fn replace_current(lane: Option<Current>) -> Option<Current> {
    CURRENT.replace(lane)
}

/// Whether a kernel runs on this thread.
pub(crate) fn inside_kernel() -> bool {
    CURRENT.get().is_some()
}

impl Current {
    /// The lane that runs on this thread.
    pub(crate) fn get() -> Option<Self> {
        CURRENT.get()
    }

    /// Notes the way back, at the start of a lane.
    pub(crate) fn set_yielder(yielder: &Yielder<Answer, Request>) {
        CURRENT.set(CURRENT.get().map(|current| Self { yielder, ..current }));
    }

    /// Hands the thread back until the answer comes. Does not return where the launch has failed: the
    /// lane's stack is unwound from here.
    fn ask(self, request: Request) -> Answer {
        // SAFETY: a lane is current only while it runs, after `set_yielder`; the yielder lies in the frame
        // at the bottom of the lane's stack, below this one.
        match unsafe { &*self.yielder }.suspend(request) {
            Answer::Over => resume_unwind(Box::new(Over)),
            answer => answer,
        }
    }

    fn cancelled(self) -> bool {
        // SAFETY: the launch outlives its lanes.
        unsafe { &*self.cancelled }.load(Ordering::Relaxed)
    }
}

/// The lane that runs on this thread and may stop here: not one whose stack is being unwound, because
/// others would then run inside its unwinding, and a second panic would abort the process.
fn waiting() -> Option<Current> {
    CURRENT.get().filter(|_| !thread::panicking())
}

/// What `warpbell` calls. On a thread that runs no kernel, the grid of one thread with the real clock.
pub(crate) static HOOKS: Hooks = Hooks {
    position,
    meet_warp,
    meet_block,
    shared,
    spin,
    now_ns,
};

fn position() -> Position {
    CURRENT
        .get()
        .map_or_else(ONE_THREAD.position, |current| current.position)
}

fn meet_warp(op: WarpOp, mask: u32, value: u64) -> [u64; LANES] {
    if let Some(lane) = waiting() {
        match lane.ask(Request::MeetWarp { op, mask, value }) {
            Answer::Warp(values) => return *values,
            _ => unreachable!("the answer to a warp's meeting"),
        }
    }
    match CURRENT.get() {
        None => (ONE_THREAD.meet_warp)(op, mask, value),
        Some(unwinding) => {
            let mut values = [0; LANES];
            values[unwinding.position.thread as usize % LANES] = value;
            values
        }
    }
}

fn meet_block(op: BlockOp, value: u64) -> BlockMeeting {
    match waiting() {
        None => (ONE_THREAD.meet_block)(op, value),
        Some(lane) => match lane.ask(Request::MeetBlock { op, value }) {
            Answer::Block(meeting) => meeting,
            _ => unreachable!("the answer to a block's meeting"),
        },
    }
}

fn shared(place: &'static u8, layout: Layout) -> *mut u8 {
    match CURRENT.get() {
        None => (ONE_THREAD.shared)(place, layout),
        // SAFETY: the launch, and with it the block, outlives its lanes.
        Some(lane) => unsafe { &*lane.block }.shared(place, layout),
    }
}

fn spin(turns: u32) {
    if let Some(lane) = waiting() {
        lane.ask(Request::Spin { turns });
    } else if !inside_kernel() {
        give_up_core(turns);
    }
}

fn now_ns() -> u64 {
    if let Some(lane) = CURRENT.get() {
        if thread::panicking() {
            // Every deadline is over for a lane that is being unwound.
            return u64::MAX;
        }
        if lane.cancelled() {
            // A loop that looks at the clock but never spins ends here, too.
            lane.ask(Request::Spin { turns: 0 });
        }
    }
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Lets other threads have the core, for a waiting loop that has taken `turns`.
pub(crate) fn give_up_core(turns: u32) {
    /// Turns before a wait counts as long.
    const YIELDS: u32 = 128;
    /// How long a long wait sleeps: a NIC in software on the same core gets on, and the wait ends late by
    /// not much more than a thread's wake-up costs anyway.
    const NAP: Duration = Duration::from_micros(20);
    if turns < YIELDS {
        thread::yield_now();
    } else {
        thread::sleep(NAP);
    }
}
