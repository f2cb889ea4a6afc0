//! A warp: its lanes are coroutines of one thread, and this schedules them.

use std::any::Any;
use std::io;
use std::iter::successors;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::ptr;
use std::rc::Rc;

use corosensei::stack::{DefaultStack, Stack};
use corosensei::{Coroutine, CoroutineResult};
use warpbell_gpu::cpu::{BlockOp, LANES, Position, WarpOp};

use crate::block::{Block, Mismatch};
use crate::error::{Doing, LaneReport, LaunchError};
use crate::lane::{self, Answer, Current, Over, Request};
use crate::launch::Launch;
use crate::order::Picker;
use crate::overflow::Guard;
use crate::stacks;

/// What a lane's coroutine returns: nothing, or its panic.
type Outcome = Result<(), Box<dyn Any + Send>>;

/// A lane as its warp sees it.
struct Lane {
    current: Current,
    coroutine: Coroutine<Answer, Request, Outcome, DefaultStack>,
    state: State,
}

/// What a lane waits for.
enum State {
    /// Its turn; it then gets the answer.
    Ready(Answer),
    /// Its turn, after a waiting loop's so many turns.
    Spinning { turns: u32 },
    /// The other lanes of the mask.
    AtWarp { op: WarpOp, mask: u32, value: u64 },
    /// The block to meet more than `number` times.
    AtBlock { op: BlockOp, number: u64 },
    /// Nothing: it has returned from the kernel.
    Exited,
}

/// A warp under way. Sets of lanes are masks, bit n for lane n.
pub(crate) struct Warp<'l> {
    launch: &'l Launch,
    block: &'l Block,
    index: u32,
    lanes: Vec<Lane>,
    picker: Picker,
    /// Lanes that can run.
    ready: u32,
    /// Lanes that wait for other lanes.
    at_warp: u32,
    /// Lanes that wait for the block.
    at_block: u32,
    /// How many turns in a row ended in a spin.
    idle_turns: u32,
}

/// The lanes of a mask.
fn lanes_of(mask: u32) -> impl Iterator<Item = usize> {
    let without_lowest = |rest: &u32| Some(rest & (rest - 1)).filter(|&rest| rest != 0);
    let masks = successors(Some(mask).filter(|&mask| mask != 0), without_lowest);
    masks.map(|rest| rest.trailing_zeros() as usize)
}

impl<'l> Warp<'l> {
    /// Warp `index` of `block`, none of its lanes started.
    pub(crate) fn new<K: Fn() + Sync>(
        launch: &'l Launch,
        block: &'l Block,
        index: u32,
        kernel: &'l K,
    ) -> io::Result<Self> {
        let threads = launch.dim.threads_per_block;
        let first = index * LANES as u32;
        let lanes = (first..threads.min(first + LANES as u32))
            .map(|thread| {
                let position = Position {
                    thread,
                    threads,
                    block: block.index,
                    blocks: launch.dim.blocks,
                    grid: launch.number,
                };
                Lane::new(position, launch, block, kernel)
            })
            .collect::<io::Result<Vec<_>>>()?;
        Ok(Self {
            launch,
            block,
            index,
            ready: u32::MAX >> (LANES - lanes.len()),
            lanes,
            picker: Picker::new(launch.order, block.index, index),
            at_warp: 0,
            at_block: 0,
            idle_turns: 0,
        })
    }

    /// Runs the lanes until all have exited or the launch has failed; reports a failure of its own.
    pub(crate) fn run(mut self) {
        while !self.launch.cancelled() {
            self.take_block_answers();
            let Some(lane) = self.picker.pick(self.ready) else {
                // Lanes that wait for lanes alone would have been reported, so the rest is at the block.
                let Some(number) = self.awaited_meeting() else {
                    break;
                };
                self.block.wait(number, || self.launch.cancelled());
                continue;
            };
            if let Err(error) = self.turn(lane as usize) {
                self.launch.fail(error);
            }
        }
        if self.launch.cancelled() {
            let unfinished = self.lanes_but_exited();
            self.launch.add_unfinished(self.reports(unfinished));
        }
        for lane in self.lanes {
            lane.dispose();
        }
    }

    /// Lets a lane run until it asks for something, and sees to that.
    fn turn(&mut self, lane: usize) -> Result<(), LaunchError> {
        let request = self.lanes[lane].resume();
        if let CoroutineResult::Yield(Request::Spin { turns }) = request {
            self.lanes[lane].state = State::Spinning { turns };
            self.idle_turns += 1;
            if self.idle_turns >= self.ready.count_ones() {
                self.idle_turns = 0;
                lane::give_up_core(self.shortest_wait());
            }
            return Ok(());
        }
        self.idle_turns = 0;
        self.ready &= !(1 << lane);
        let thread = self.lanes[lane].current.position.thread;
        match request {
            CoroutineResult::Yield(Request::Spin { .. }) => unreachable!("seen to above"),
            CoroutineResult::Yield(Request::MeetWarp { op, mask, value }) => {
                self.lanes[lane].state = State::AtWarp { op, mask, value };
                self.at_warp |= 1 << lane;
                self.meet(op, mask);
            }
            CoroutineResult::Yield(Request::MeetBlock { op, value }) => {
                let number = self
                    .block
                    .arrive(thread, op, value)
                    .map_err(|mismatch| self.apart(mismatch))?;
                self.lanes[lane].state = State::AtBlock { op, number };
                self.at_block |= 1 << lane;
            }
            CoroutineResult::Return(Ok(())) => {
                self.lanes[lane].state = State::Exited;
                self.block
                    .exit(thread)
                    .map_err(|mismatch| self.apart(mismatch))?;
            }
            CoroutineResult::Return(Err(payload)) => {
                self.lanes[lane].state = State::Exited;
                return Err(LaunchError::Panicked {
                    block: self.block.index,
                    warp: self.index,
                    lane: lane as u32,
                    message: message_of(&*payload),
                });
            }
        }
        match self.stuck() {
            0 => Ok(()),
            stuck => Err(LaunchError::Diverged(
                self.reports(stuck | self.awaited_by(stuck)),
            )),
        }
    }

    /// The lanes of `mask` that have come to `op` with it.
    fn members(&self, op: WarpOp, mask: u32) -> u32 {
        let came = |lane: &usize| match self.lanes[*lane].state {
            State::AtWarp {
                op: its_op,
                mask: its_mask,
                ..
            } => (its_op, its_mask) == (op, mask),
            _ => false,
        };
        lanes_of(self.at_warp & mask)
            .filter(came)
            .fold(0, |members, lane| members | 1 << lane)
    }

    /// Lets the lanes that have come to `op` with `mask` go on, if they are all of the mask's.
    fn meet(&mut self, op: WarpOp, mask: u32) {
        if self.members(op, mask) != mask {
            return;
        }
        let mut values = [0; LANES];
        for lane in lanes_of(mask) {
            if let State::AtWarp { value, .. } = self.lanes[lane].state {
                values[lane] = value;
            }
        }
        let values = Rc::new(values);
        for lane in lanes_of(mask) {
            self.lanes[lane].state = State::Ready(Answer::Warp(Rc::clone(&values)));
        }
        self.at_warp &= !mask;
        self.ready |= mask;
    }

    /// Lets the lanes go on whose block has met.
    fn take_block_answers(&mut self) {
        if self.at_block == 0 {
            return;
        }
        let meetings = self.block.meetings();
        for lane in lanes_of(self.at_block) {
            if let State::AtBlock { number, .. } = self.lanes[lane].state
                && meetings > number
            {
                let answer = self.block.meeting(self.lanes[lane].current.position.thread);
                self.lanes[lane].state = State::Ready(Answer::Block(answer));
                self.at_block &= !(1 << lane);
                self.ready |= 1 << lane;
            }
        }
    }

    /// The meeting of the block that lanes wait for; they all wait for the same one.
    fn awaited_meeting(&self) -> Option<u64> {
        let lane = lanes_of(self.at_block).next()?;
        match self.lanes[lane].state {
            State::AtBlock { number, .. } => Some(number),
            _ => None,
        }
    }

    /// The lanes that wait for other lanes and can never go on, whatever the lanes that run will do.
    ///
    /// Starting from those that can run, it gathers the lanes that others may still set free: lanes at a
    /// warp operation, if the rest of their mask may come; lanes at the block, if the rest of the warp may.
    fn stuck(&self) -> u32 {
        if self.at_warp == 0 {
            return 0;
        }
        let mut movable = self.ready;
        loop {
            let before = movable;
            for lane in lanes_of(self.at_warp) {
                if let State::AtWarp { op, mask, .. } = self.lanes[lane].state
                    && movable >> lane & 1 == 0
                {
                    let members = self.members(op, mask);
                    // A lane outside of its own mask is no member, and so stays.
                    if mask & !(members | movable) == 0 {
                        movable |= members;
                    }
                }
            }
            let elsewhere = self.lanes_but_exited() & !self.at_block;
            if elsewhere & !movable == 0 {
                movable |= self.at_block;
            }
            if movable == before {
                return self.at_warp & !movable;
            }
        }
    }

    /// The lanes that have not exited.
    fn lanes_but_exited(&self) -> u32 {
        self.ready | self.at_warp | self.at_block
    }

    /// The lanes that any of `lanes` waits for.
    fn awaited_by(&self, lanes: u32) -> u32 {
        lanes_of(lanes).fold(0, |awaited, lane| match self.lanes[lane].state {
            State::AtWarp { mask, .. } => awaited | mask,
            _ => awaited,
        })
    }

    /// The fewest turns that a lane which can run has waited in its loop.
    fn shortest_wait(&self) -> u32 {
        let turns = |lane: usize| match self.lanes[lane].state {
            State::Spinning { turns } => turns,
            _ => 0,
        };
        lanes_of(self.ready).map(turns).min().unwrap_or(0)
    }

    /// What each of `lanes` does.
    fn reports(&self, lanes: u32) -> Vec<LaneReport> {
        let doing = |lane: usize| match self.lanes.get(lane).map(|lane| &lane.state) {
            None => Doing::Missing,
            Some(State::Ready(_) | State::Spinning { .. }) => Doing::Running,
            Some(&State::AtWarp { op, mask, .. }) => Doing::AtWarp { op, mask },
            Some(&State::AtBlock { op, .. }) => Doing::AtBlock(op),
            Some(State::Exited) => Doing::Exited,
        };
        lanes_of(lanes)
            .map(|lane| LaneReport {
                block: self.block.index,
                warp: self.index,
                lane: lane as u32,
                doing: doing(lane),
            })
            .collect()
    }

    /// The report of two threads of the block that can never meet.
    fn apart(&self, Mismatch(threads): Mismatch) -> LaunchError {
        let report = |(thread, op): (u32, Option<BlockOp>)| LaneReport {
            block: self.block.index,
            warp: thread / LANES as u32,
            lane: thread % LANES as u32,
            doing: op.map_or(Doing::Exited, Doing::AtBlock),
        };
        LaunchError::Diverged(threads.map(report).to_vec())
    }
}

impl Lane {
    fn new<K: Fn() + Sync>(
        position: Position,
        launch: &Launch,
        block: &Block,
        kernel: &K,
    ) -> io::Result<Self> {
        let stack = stacks::take()?;
        let guard = Guard::at(stack.limit().get());
        // SAFETY: the coroutine borrows the kernel alone; `Warp` borrows it for as long, and disposes of
        // its lanes before it ends.
        let coroutine = unsafe {
            Coroutine::with_stack_unchecked(stack, move |yielder, first: Answer| {
                if matches!(first, Answer::Over) {
                    return Ok(());
                }
                Current::set_yielder(yielder);
                let outcome = catch_unwind(AssertUnwindSafe(kernel));
                outcome.or_else(|payload| payload.downcast::<Over>().map(mem::forget))
            })
        };
        Ok(Self {
            current: Current {
                position,
                yielder: ptr::null(),
                block,
                cancelled: launch.cancelled_flag(),
                guard,
            },
            coroutine,
            state: State::Ready(Answer::Go),
        })
    }

    /// Runs until the lane asks for something or returns.
    fn resume(&mut self) -> CoroutineResult<Request, Outcome> {
        let answer = match mem::replace(&mut self.state, State::Spinning { turns: 0 }) {
            State::Ready(answer) => answer,
            _ => Answer::Go,
        };
        let outer = lane::replace_current(Some(self.current));
        let request = self.coroutine.resume(answer);
        // The lane has noted its way back in its first turn.
        self.current = lane::replace_current(outer).unwrap_or(self.current);
        request
    }

    /// Unwinds the stack of a lane that has not returned, and gives it back.
    ///
    /// One that still waits after all tries is not left behind with its stack: something in it may stand for threads
    /// that borrow what the launch's caller has (`std::thread::scope`), so that the launch must not return.
    fn dispose(mut self) {
        /// How often a kernel may keep what it caught.
        const TRIES: u32 = 1000;
        let outer = lane::replace_current(Some(self.current));
        for _ in 0..TRIES {
            if self.coroutine.done() {
                break;
            }
            self.coroutine.resume(Answer::Over);
        }
        lane::replace_current(outer);
        if !self.coroutine.done() {
            let Position { block, thread, .. } = self.current.position;
            let (warp, lane) = (thread / LANES as u32, thread % LANES as u32);
            eprintln!(
                "warpbell: block {block} warp {warp} lane {lane} has caught the end of its launch {TRIES} times, and \
                 waits again"
            );
            process::abort();
        }
        stacks::give_back(self.coroutine.into_stack());
    }
}

/// What a panic said.
fn message_of(payload: &(dyn Any + Send)) -> String {
    if let Some(text) = payload.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "no message".to_owned()
    }
}
