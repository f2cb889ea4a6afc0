//! Kernels that look for tasks of all kinds, that such tasks launch, and that answer them.

use warpbell::{Stop, block, kernel, thread};
use warpbell_patterns::active::LaunchedTask;

use super::active_storm::Message;
use crate::launched::{Dispatch, answer, look, payload_of};
use crate::place::Place;

/// Whatever a task launches, with any grid.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ActiveLaunched<'a> {
    /// The task.
    pub task: LaunchedTask<'a>,
    /// Words of a payload.
    pub words: u32,
    /// How many lanes are to end, each by a task.
    pub lanes: u32,
    /// [`COUNTS`](Self::COUNTS) words of each lane, and one behind them: how many lanes have ended.
    pub counts: Place,
    /// Ends the dispatcher.
    pub stop: Stop<'a>,
}

impl ActiveLaunched<'_> {
    /// Words of a lane: how many tasks launched a kernel, and the sum of their [`Message::mixed`] values; whether one was
    /// other than it should have been, or out of order; the least number that the next one may have.
    pub const COUNTS: u32 = 4;
    const COUNT: u32 = 0;
    const SUM: u32 = 1;
    const WRONG: u32 = 2;
    const NEXT: u32 = 3;

    #[inline(always)]
    fn run(&self) {
        let task = self.task;
        let own = thread::index();
        if task.function() == Message::END {
            if own == 0 {
                let place = self.lanes * Self::COUNTS;
                // One task runs at a time.
                let ended = self.counts.load(place) + 1;
                self.counts.store(place, ended);
                if ended >= u64::from(self.lanes) {
                    self.stop.request();
                }
            }
            return;
        }
        let first = task.lane() * Self::COUNTS;
        let message = Message {
            lane: task.lane(),
            number: task.value(),
        };
        if !self.is_right(message, own, block::size() * thread::grid_dim_x()) {
            self.counts.store(first + Self::WRONG, 1);
        }
        if own == 0 {
            let count = |which| self.counts.load(first + which);
            if u64::from(message.number) < count(Self::NEXT) {
                self.counts.store(first + Self::WRONG, 1);
            }
            let next = u64::from(message.number) + 1;
            self.counts.store(first + Self::NEXT, next);
            let sum = count(Self::SUM).wrapping_add(message.mixed(60));
            self.counts.store(first + Self::SUM, sum);
            self.counts
                .store(first + Self::COUNT, count(Self::COUNT) + 1);
            task.set_result(message.result());
        }
    }

    /// Whether a task is what its message says; each of so many threads compares its part of the payload.
    #[inline(always)]
    fn is_right(&self, message: Message, own: u32, threads: u32) -> bool {
        let task = self.task;
        let mut right = task.function() == message.function();
        let mut number = 0;
        while number < 5 {
            let argument = match number < message.arguments() {
                true => message.argument(number),
                false => 0,
            };
            right &= task.argument(number) == argument;
            number += 1;
        }
        let words = match message.function() == Message::PAYLOAD {
            true => self.words,
            false => 0,
        };
        let ((_, bytes), payload) = (task.payload(), payload_of(task));
        right &= bytes == 8 * words;
        let mut index = own;
        while right & (index < words) {
            right &= payload.load(index) == message.word(index);
            index += threads;
        }
        right
    }
}

/// Looks for a task, as [`active_dispatch`](crate::launched::active_dispatch).
#[kernel]
pub fn suite_active_dispatch(p: Dispatch<'_>) {
    look(p);
}

/// Runs [`ActiveLaunched`].
#[kernel]
pub fn suite_active_launched(p: ActiveLaunched<'_>) {
    p.run();
}

/// Answers, as [`active_launched_answer`](crate::launched::active_launched_answer).
#[kernel]
pub fn suite_active_answer(p: Dispatch<'_>) {
    answer(p);
}
