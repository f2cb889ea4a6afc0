//! Queues that wait for others' completions, and queues that others start: WAIT and SEND_EN (CORE-Direct).
//!
//! A queue that comes to a WAIT is put aside, so that it costs nothing until something happens to a completion queue
//! that is waited for; then all that wait look again. What is waited for is a CQE by its number, and an error's CQE is
//! one: who must not go on after an error waits in the queue that fails, whose WAIT is flushed.

use super::Engine;
use super::command::QueuePairState;
use super::completion::Awaited;
use super::memory::Memory;
use super::sending::Gate;
use super::wire::Wire;
use mlx5_wqe::decode::QueueOperation;

/// Whether a WAIT or SEND_EN may start.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// It may; a SEND_EN has done its work.
    Pass,
    /// Not yet.
    Wait,
    /// Never.
    Refuse,
}

impl<M: Memory, W: Wire> Engine<'_, M, W> {
    /// Lets a queue pair go on behind a WAIT or SEND_EN, in the next step: it is still busy then. Gives how much was
    /// done.
    #[inline(never)]
    pub(super) fn pass_gate(&mut self, index: u32, gate: Gate) -> usize {
        let verdict = self.judge(index, &gate);
        let slot = &mut self.queue_pairs[index as usize];
        let Some(pair) = &mut slot.pair else {
            return 0;
        };
        if verdict == Verdict::Wait {
            pair.requester.waits = true;
            self.waiting
                .push(self.queue_pairs, index, |slot| &mut slot.waiting);
            return 0;
        }
        let passes = verdict == Verdict::Pass;
        pair.requester.start_gate(&gate, passes, self.now);
        1
    }

    fn judge(&mut self, index: u32, gate: &Gate) -> Verdict {
        match gate.operation {
            QueueOperation::Wait { queue, number } => {
                match self.completion_queues.has_come_to(queue, number) {
                    Awaited::There => Verdict::Pass,
                    Awaited::NotYet(queue) if self.feeds(index, queue) || self.is_fed(queue) => {
                        Verdict::Wait
                    }
                    Awaited::NotYet(_) | Awaited::Never => Verdict::Refuse,
                }
            }
            // Indices have 16 bits.
            QueueOperation::SendEnable { queue, end } => match self.enable(queue, end as u16) {
                true => Verdict::Pass,
                false => Verdict::Refuse,
            },
        }
    }

    /// Whether any queue pair that is connected writes CQEs there. Of several engines that are one HCA only one has it: a
    /// WAIT at another one would never end. To be asked where the queue pair itself, whose completions a chain waits for,
    /// does not.
    fn is_fed(&self, queue: u32) -> bool {
        (0..self.used as u32).any(|index| self.feeds(index, queue))
    }

    /// Whether that queue pair does.
    fn feeds(&self, index: u32, queue: u32) -> bool {
        let pair = self.queue_pairs[index as usize].pair.as_ref();
        pair.is_some_and(|pair| {
            [pair.send_cq, pair.receive_cq].contains(&queue)
                && !matches!(pair.state, QueuePairState::Reset | QueuePairState::Init)
        })
    }

    /// Lets a managed send queue run up to an index; false if it cannot.
    fn enable(&mut self, queue: mlx5_wqe::QpNumber, end: u16) -> bool {
        let Ok(index) = self.index(queue) else {
            return false;
        };
        let pair = self.queue_pairs[index as usize].pair.as_mut();
        let enabled = pair.is_some_and(|pair| pair.enable_send(end));
        self.active
            .push(self.queue_pairs, index, |slot| &mut slot.active);
        enabled
    }

    /// Lets all that wait look again, if something happened to a completion queue that is waited for.
    #[inline]
    pub(super) fn tell_waiting(&mut self) {
        if self.completion_queues.take_news() {
            self.wake_waiting();
        }
    }

    /// Lets all that wait look again: also where a queue pair is no longer there, which was perhaps the last that filled
    /// what they wait for.
    #[inline(never)]
    pub(super) fn wake_waiting(&mut self) {
        while let Some(index) = self.waiting.pop(self.queue_pairs, |slot| &mut slot.waiting) {
            if let Some(pair) = &mut self.queue_pairs[index as usize].pair {
                pair.requester.waits = false;
            }
            self.active
                .push(self.queue_pairs, index, |slot| &mut slot.active);
        }
    }
}
