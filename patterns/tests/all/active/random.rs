//! Random steps of initiator, NICs and target, against queues that are counted.

use std::collections::VecDeque;

use super::results::{bytes, result};
use super::*;

/// Random steps of initiator, NICs and target, against queues.
struct Play<'w> {
    wire: &'w Wire,
    random: SmallRng,
    slots: usize,
    lane: Lane<'w, Thread>,
    server: Server<'w, Thread>,
    /// Sent and not yet given to the target's kernel.
    sent: VecDeque<Message>,
    /// WQEs of messages on their way: each one's message, by its number in the lane.
    under_way: VecDeque<usize>,
    /// Halves of words that have left, each with its message: they come in any order.
    halves: Vec<(usize, Half)>,
    /// How many halves have not come, of each message in `sent`.
    missing: VecDeque<usize>,
    /// WQEs of answers on their way: nothing for a result ahead of its answer.
    answers: VecDeque<Option<Result<Answer, Error>>>,
    /// All answers that have arrived, and the tickets of all messages.
    results: Vec<Result<Answer, Error>>,
    tickets: Vec<Sent>,
}

/// A task's value, and its result.
type Answer = (u32, Vec<u8>);

/// The longest result, and how many words of the target's memory each slot has for it.
const MAX_RESULT: u32 = 61;
const RESULT_WORDS: u32 = 8;

#[derive(Clone, Copy, Debug)]
struct Message {
    function: u32,
    value: u32,
    arguments: [u64; MAX_ARGUMENTS],
    count: u32,
}

impl Message {
    /// What the target's kernel is not given.
    fn refusal(&self) -> Option<Error> {
        match FUNCTIONS.get(self.function as usize) {
            None | Some(9) => Some(Error::NotRegistered {
                function: self.function,
            }),
            Some(&wanted) => (wanted != self.count).then_some(Error::WrongArguments { wanted }),
        }
    }
}

impl Play<'_> {
    fn send(&mut self) {
        let message = Message {
            function: self.random.random_range(0..8),
            value: self.random.random(),
            arguments: self.random.random(),
            count: 0,
        };
        // Mostly as many as the function takes.
        let count = match self.random.random_range(0..4) {
            0 => self.random.random_range(0..=MAX_ARGUMENTS as u32),
            _ => FUNCTIONS
                .get(message.function as usize)
                .map_or(0, |count| count % 9),
        };
        let message = Message { count, ..message };
        let lane = &mut self.lane;
        let (function, value) = (message.function, message.value);
        let [a, b, c, d, e] = message.arguments;
        let sent = match count {
            0 => lane.send(function, value, [], NOW),
            1 => lane.send(function, value, [a], NOW),
            2 => lane.send(function, value, [a, b], NOW),
            3 => lane.send(function, value, [a, b, c], NOW),
            4 => lane.send(function, value, [a, b, c, d], NOW),
            _ => lane.send(function, value, [a, b, c, d, e], NOW),
        };
        let full = self.tickets.len() - self.results.len() == self.slots;
        match sent {
            Ok(ticket) => {
                assert!(!full, "a slot was given away");
                let number = self.tickets.len();
                self.tickets.push(ticket);
                self.sent.push_back(message);
                // Writes of three words; a value's is one, and the third of two.
                let (writes, words) =
                    [(1, 1), (1, 3), (1, 3), (2, 6), (2, 6), (3, 8)][count as usize];
                self.under_way.extend((0..writes).map(|_| number));
                self.missing.push_back(2 * words);
            }
            // The queue has no room, either, while its NIC stands still.
            Err(Error::Full) => assert!(full || !self.under_way.is_empty()),
            Err(error) => panic!("{error}"),
        }
    }

    fn near_step(&mut self) {
        let Some(number) = self.under_way.pop_front() else {
            assert_eq!(self.wire.near_step(), None);
            return;
        };
        let (moved, halves) = self.wire.near_step_without().unwrap();
        assert_eq!(moved, None);
        self.halves
            .extend(halves.into_iter().map(|half| (number, half)));
    }

    /// Brings any half of those that have left.
    fn bring(&mut self) {
        if self.halves.is_empty() {
            return;
        }
        let which = self.random.random_range(0..self.halves.len());
        let (number, half) = self.halves.swap_remove(which);
        self.wire.bring(half);
        let first = self.tickets.len() - self.sent.len();
        self.missing[number - first] -= 1;
    }

    fn far_step(&mut self) {
        let moved = self.wire.far_step();
        let answer = self.answers.pop_front();
        assert_eq!(moved, answer.is_some());
        self.results.extend(answer.flatten());
    }

    fn serve(&mut self) {
        // One look: a refusal takes it.
        let given = self.server.next(NOW);
        if self.missing.front() != Some(&0) {
            assert_eq!(given.unwrap_err(), Error::Timeout);
            return;
        }
        self.missing.pop_front();
        let message = self.sent.pop_front().unwrap();
        if let Some(refusal) = message.refusal() {
            assert_eq!(given.unwrap_err(), Error::Timeout);
            self.answers.push_back(Some(Err(refusal)));
            return;
        }
        let task = given.unwrap();
        assert_eq!(task.function(), message.function);
        assert_eq!(task.value(), message.value);
        assert_eq!(task.arguments(), message.count);
        for number in 0..message.count {
            let expected = message.arguments[number as usize];
            assert_eq!(task.argument(number), expected, "{message:?}");
        }
        let value = self.random.random();
        if self.random.random_bool(0.4) {
            let (place, bytes) = self.write_result(task.slot());
            self.server.answer_with(task, value, place, NOW).unwrap();
            self.answers.extend([None, Some(Ok((value, bytes)))]);
            return;
        }
        let failed = self.random.random_bool(0.2);
        let (result, expected) = match failed {
            true => (Err(value), Err(Error::Task { code: value })),
            false => (Ok(value), Ok((value, Vec::new()))),
        };
        self.server.answer(task, result, NOW).unwrap();
        self.answers.push_back(Some(expected));
    }

    /// Writes a result into the slot's own memory at the target, where none is under way.
    fn write_result(&mut self, slot: u32) -> (Local, Vec<u8>) {
        let words: Vec<u64> = (0..RESULT_WORDS).map(|_| self.random.random()).collect();
        let first = (slot * RESULT_WORDS) as usize;
        for (word, &value) in self.wire.results[first..].iter().zip(&words) {
            word.store(value, Ordering::Relaxed);
        }
        let length = self.random.random_range(1..=MAX_RESULT);
        let bytes = words.iter().flat_map(|word| word.to_le_bytes());
        let bytes = bytes.take(length as usize).collect();
        (result(8 * RESULT_WORDS * slot, length), bytes)
    }

    fn wait(&mut self) {
        if self.tickets.is_empty() {
            return;
        }
        // Any one, or one of the newest, whose answers are there or on their way.
        let oldest = match self.random.random() {
            true => 0,
            false => self.tickets.len().saturating_sub(2 * self.slots),
        };
        let number = self.random.random_range(oldest..self.tickets.len());
        let there = self.results.len();
        if self.random.random() {
            let expected = if number + self.slots < self.tickets.len() {
                Err(Error::Forgotten)
            } else if number >= there {
                Err(Error::Timeout)
            } else {
                self.results[number].clone()
            };
            let reply = self.lane.wait_reply(self.tickets[number], NOW);
            let found = reply.map(|reply| (reply.value(), bytes(&reply)));
            assert_eq!(found, expected, "message {number} of {there}");
            return;
        }
        let found = self.lane.wait(self.tickets[number], NOW);
        let expected = if number >= there {
            Err(Error::Timeout)
        } else if number + self.slots < there {
            Err(Error::Forgotten)
        } else {
            self.results[number].clone().map(|(value, _)| value)
        };
        assert_eq!(found, expected, "message {number} of {there}");
    }
}

#[test]
fn every_message_is_answered_once_in_any_order_of_steps() {
    let steps = if cfg!(miri) { 100 } else { 80_000 };
    // Where indices and sequence numbers come round, too.
    for (seed, first) in [0, 0xffe8, 0xffff_ffe8, 0xffff_ff00]
        .into_iter()
        .enumerate()
    {
        let slots_log2 = seed as u32;
        // The target's queue has room for all answers.
        let wire = Wire::with_results(slots_log2, [5, 6], first, &FUNCTIONS, MAX_RESULT);
        let tables = wire.tables();
        let (initiator, target) = (tables.initiator(), tables.target());
        let mut play = Play {
            wire: &wire,
            random: SmallRng::seed_from_u64(seed as u64),
            slots: 1 << slots_log2,
            lane: initiator.lane(0).unwrap(),
            server: target.serve(0).unwrap(),
            sent: VecDeque::new(),
            under_way: VecDeque::new(),
            halves: Vec::new(),
            missing: VecDeque::new(),
            answers: VecDeque::new(),
            results: Vec::new(),
            tickets: Vec::new(),
        };
        for _ in 0..steps {
            match play.random.random_range(0..32) {
                0..4 => play.send(),
                4..8 => play.near_step(),
                8..22 => play.bring(),
                22..26 => play.far_step(),
                26..30 => play.serve(),
                _ => play.wait(),
            }
        }
        while play.tickets.len() != play.results.len() {
            play.near_step();
            play.bring();
            play.serve();
            play.far_step();
        }
        assert!(play.sent.is_empty());
        let refused = play.results.iter().filter(|result| result.is_err()).count();
        assert_eq!(play.lane.wait_all(NOW), Ok(refused as u32), "seed {seed}");
        assert!(
            cfg!(miri) || play.results.len() > 1000,
            "{}",
            play.results.len()
        );
    }
}
