//! Kernels that send tasks of all kinds, and that run them.

use warpbell::wqe::Local;
use warpbell::{Block, Deadline, Scope, Thread, Warp, block, kernel, thread};
use warpbell_patterns::active::{
    Error, InitiatorHandle, Lane, MAX_ARGUMENTS, Payload, Sent, Server, TargetHandle, Task,
};

use super::arguments::{Kernel, Output};
use super::ending::{Ending, EndingWords};
use super::mode::ScopeKind;
use crate::active::words_of;
use crate::outcome::Failure;
use crate::place::Place;

/// The target's buffer.
const BUFFER: u32 = 0;

/// Messages on their way that the sender keeps at hand at most.
const AT_HAND: usize = 8;

/// How long a target waits at a time, in milliseconds.
const LOOK_MS: u64 = 2;

/// A message of a lane, by its number. What it is follows from the two, at both ends and at the host.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// The lane.
    pub lane: u32,
    /// Its number in the lane, from 0: its value.
    pub number: u32,
}

impl Message {
    /// How many arguments each function takes: so many that a message is one write, two or three; the payload's; the last one
    /// ends the target.
    pub const ARGUMENTS: [u32; 8] = [0, 2, 3, 5, 0, 2, 1, 0];
    /// The function of a payload.
    pub const PAYLOAD: u32 = 6;
    /// Ends the target.
    pub const END: u32 = 7;
    /// A number that is registered for nothing.
    pub const UNREGISTERED: u32 = 8;

    /// Random bits, other ones for each `which`.
    pub const fn mixed(self, which: u32) -> u64 {
        let seed = (self.lane as u64) << 48 | (which as u64) << 32 | self.number as u64;
        let mixed = (seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 31).wrapping_mul(0x94d0_49bb_1331_11eb)
    }

    /// Its function: most of all a payload.
    pub const fn function(self) -> u32 {
        match self.mixed(0) >> 60 {
            function @ 0..6 => function as u32,
            6 => Self::UNREGISTERED,
            _ => Self::PAYLOAD,
        }
    }

    /// How many arguments it has: now and then more than its function takes.
    pub const fn arguments(self) -> u32 {
        let function = self.function();
        if function == Self::UNREGISTERED {
            return 0;
        }
        let wrong = function < 3 && self.mixed(0) >> 20 & 7 == 0;
        // At most 6; the mask says so to a compiler that does not see it.
        Self::ARGUMENTS[(function as usize + wrong as usize) & 7]
    }

    /// Why the target refuses it, if it does.
    pub const fn refusal(self) -> Option<Error> {
        let function = self.function();
        if function == Self::UNREGISTERED {
            return Some(Error::NotRegistered { function });
        }
        let wanted = Self::ARGUMENTS[function as usize];
        match self.arguments() == wanted {
            true => None,
            false => Some(Error::WrongArguments { wanted }),
        }
    }

    /// An argument.
    pub const fn argument(self, number: u32) -> u64 {
        self.mixed(1 + number)
    }

    /// A word of its payload.
    pub const fn word(self, index: u32) -> u64 {
        self.mixed(100 + index)
    }

    /// Bytes of the result that its task answers with beside its value, where a lane has room for so many: none of a
    /// third of those whose tasks do not fail.
    pub const fn result_length(self, max_result: u32) -> u32 {
        let bits = self.mixed(51);
        if max_result == 0 || bits.is_multiple_of(3) || self.result().is_err() {
            return 0;
        }
        1 + (bits >> 32) as u32 % max_result
    }

    /// A word of its result.
    pub const fn result_word(self, index: u32) -> u64 {
        self.mixed(10_000 + index)
    }

    /// What its task answers.
    pub const fn result(self) -> Result<u32, u32> {
        let value = self.mixed(50) as u32;
        match value % 5 {
            0 => Err(value),
            _ => Ok(value),
        }
    }
}

/// What a thread has seen: of the initiator's answers, of the target's tasks.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// How many.
    pub count: u64,
    /// The sum of their [`Message::mixed`] values, which no other choice of messages has.
    pub sum: u64,
    /// How many were other than they should have been, or out of order.
    pub wrong: u64,
    /// At the initiator: how many the target refused.
    pub refused: u64,
}

impl Seen {
    fn add(&mut self, message: Message, right: bool) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(message.mixed(60));
        self.wrong += u64::from(!right);
    }
}

/// What an initiator's kernel does.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskStep {
    /// Sends all messages, compares all answers, and ends the target.
    Storm,
    /// Sends until the lane is full, and finds that it stays so and that nobody answers: for a target that stopped.
    Fill,
    /// Waits for the answers to what an earlier kernel sent, as many as there are slots, and ends the target.
    Collect,
}

/// Sends: scope number n over lane n. Scopes without a lane do nothing.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ActiveAsk<'a> {
    /// The lanes.
    pub initiator: InitiatorHandle<'a>,
    /// Who sends together.
    pub scope: ScopeKind,
    /// What is to be done.
    pub step: AskStep,
    /// Messages of each lane.
    pub messages: u32,
    /// Slots of each lane.
    pub slots: u32,
    /// Words of each payload.
    pub words: u32,
    /// The longest result that a task answers with.
    pub max_result: u32,
    /// A payload for each slot of each lane.
    pub source: Local,
    /// The same, for the threads.
    pub payloads: Place,
    /// Milliseconds that each wait may take.
    pub limit_ms: u64,
    /// What each thread has seen.
    pub seen: Output<'a, Seen>,
    /// How each thread fared.
    pub endings: Output<'a, EndingWords>,
}

/// Runs tasks: scope number n those of lane n, until one tells it to end or none comes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ActiveServe<'a> {
    /// The lanes.
    pub target: TargetHandle<'a>,
    /// Who runs tasks together.
    pub scope: ScopeKind,
    /// Words of a payload.
    pub words: u32,
    /// The longest result that a task answers with.
    pub max_result: u32,
    /// Slots of each lane.
    pub slots: u32,
    /// Room for a result of each slot of each lane, in whole words.
    pub results: Local,
    /// The same, for the threads.
    pub result_words: Place,
    /// Milliseconds that it waits for a task.
    pub limit_ms: u64,
    /// What each thread has seen.
    pub seen: Output<'a, Seen>,
    /// How each thread fared.
    pub endings: Output<'a, EndingWords>,
}

impl Kernel for ActiveAsk<'_> {
    #[cfg(not(target_arch = "nvptx64"))]
    const ENTRY: warpbell::Entry<fn(Self)> = suite_active_ask::ENTRY;

    fn run(&self) {
        let mut seen = Seen::default();
        let ending: Ending = match self.scope {
            ScopeKind::Thread => self.ask::<Thread>(1, &mut seen),
            ScopeKind::Warp => self.ask::<Warp>(thread::warp_size(), &mut seen),
            ScopeKind::Block => self.ask::<Block>(block::size(), &mut seen),
        }
        .into();
        let place = thread::index().into();
        // SAFETY: each thread has places of its own.
        unsafe {
            self.seen.write(place, seen);
            self.endings.write(place, ending.into());
        }
    }
}

impl Kernel for ActiveServe<'_> {
    #[cfg(not(target_arch = "nvptx64"))]
    const ENTRY: warpbell::Entry<fn(Self)> = suite_active_serve::ENTRY;

    fn run(&self) {
        let mut seen = Seen::default();
        let ending: Ending = match self.scope {
            ScopeKind::Thread => self.serve::<Thread>(1, &mut seen),
            ScopeKind::Warp => self.serve::<Warp>(thread::warp_size(), &mut seen),
            ScopeKind::Block => self.serve::<Block>(block::size(), &mut seen),
        }
        .into();
        let place = thread::index().into();
        // SAFETY: each thread has places of its own.
        unsafe {
            self.seen.write(place, seen);
            self.endings.write(place, ending.into());
        }
    }
}

/// Runs [`ActiveAsk`].
#[kernel]
pub fn suite_active_ask(kernel: ActiveAsk<'_>) {
    kernel.run();
}

/// Runs [`ActiveServe`].
#[kernel]
pub fn suite_active_serve(kernel: ActiveServe<'_>) {
    kernel.run();
}

/// The part of a place that a lane has, with so many words for each of its slots.
#[inline(always)]
fn part_of_lane(place: Place, lane: u32, slots: u32, words: u32) -> Result<Place, Failure> {
    let words = u64::from(slots.max(1)) * u64::from(words);
    place.part(u64::from(lane).saturating_mul(words), words)
}

impl ActiveAsk<'_> {
    fn limit(&self) -> Deadline {
        Deadline::after_ms(self.limit_ms)
    }

    fn ask<C: Scope>(&self, size: u32, seen: &mut Seen) -> Result<(), Failure> {
        let number = thread::index() / size.max(1);
        if number >= self.initiator.lanes() {
            return Ok(());
        }
        let payloads = part_of_lane(self.payloads, number, self.slots, self.words)?;
        let rank = thread::index() % size.max(1);
        let mut lane = self.initiator.lane::<C>(number)?;
        match self.step {
            AskStep::Storm => self.storm(&mut lane, number, payloads, (rank, size), seen)?,
            AskStep::Fill => return self.fill(&mut lane, number, seen),
            AskStep::Collect => self.collect(&mut lane, seen)?,
        }
        let end = lane.send(Message::END, 0, [], self.limit())?;
        lane.wait(end, self.limit())?;
        seen.refused = lane.wait_all(self.limit())?.into();
        Ok(())
    }

    fn storm<C: Scope>(
        &self,
        lane: &mut Lane<'_, C>,
        number: u32,
        payloads: Place,
        who: (u32, u32),
        seen: &mut Seen,
    ) -> Result<(), Failure> {
        let behind = self.slots.min(AT_HAND as u32).max(1);
        let mut under_way: [Option<Sent>; AT_HAND] = [None; AT_HAND];
        for round in 0..self.messages + behind {
            let place = (round % behind) as usize % AT_HAND;
            if let Some(sent) = under_way[place].take() {
                let message = Message {
                    lane: number,
                    number: round - behind,
                };
                let expected = match message.refusal() {
                    Some(error) => Err(error),
                    None => message.result().map_err(|code| Error::Task { code }),
                };
                let (found, right) = match self.max_result {
                    0 => (lane.wait(sent, self.limit()), true),
                    _ => self.reply(lane, sent, message, who),
                };
                if let Err(error @ (Error::Timeout | Error::Failed(_))) = found {
                    return Err(error.into());
                }
                seen.add(message, right & (found == expected));
            }
            if round < self.messages {
                let message = Message {
                    lane: number,
                    number: round,
                };
                under_way[place] = Some(self.send(lane, message, payloads, who)?);
            }
        }
        Ok(())
    }

    /// What a task answered, and whether its result is the message's; each thread compares its part.
    fn reply<C: Scope>(
        &self,
        lane: &mut Lane<'_, C>,
        sent: Sent,
        message: Message,
        (rank, size): (u32, u32),
    ) -> (Result<u32, Error>, bool) {
        let reply = match lane.wait_reply(sent, self.limit()) {
            Ok(reply) => reply,
            Err(error) => return (Err(error), true),
        };
        let length = message.result_length(self.max_result);
        let mut right = reply.length() == length;
        let mut index = rank;
        while right & (8 * index < length) {
            let behind = 64 - 8 * (length - 8 * index).min(8);
            right &= (reply.word(index) ^ message.result_word(index)) << behind == 0;
            index += size.max(1);
        }
        (Ok(reply.value()), right)
    }

    fn send<C: Scope>(
        &self,
        lane: &mut Lane<'_, C>,
        message: Message,
        payloads: Place,
        (rank, size): (u32, u32),
    ) -> Result<Sent, Failure> {
        let (function, value, limit) = (message.function(), message.number, self.limit());
        if function == Message::PAYLOAD {
            // The slot's payload is free once its last message is answered.
            lane.await_room(limit)?;
            let place = message.lane * self.slots + message.number % self.slots.max(1);
            let first = message.number % self.slots.max(1) * self.words;
            let mut index = rank;
            while index < self.words {
                payloads.store(first + index, message.word(index));
                index += size.max(1);
            }
            let bytes = 8 * self.words;
            let payload = Payload {
                local: self.source.at(u64::from(place) * u64::from(bytes), bytes),
                buffer: BUFFER,
                offset: place * bytes,
            };
            let arguments = [message.argument(0)];
            return Ok(lane.put(payload, function, value, arguments, limit)?);
        }
        let argument = |number| message.argument(number);
        let [a, b, c, d, e] = [
            argument(0),
            argument(1),
            argument(2),
            argument(3),
            argument(4),
        ];
        // Few calls, because each of them takes much of a lane's stack on a CPU where nothing is optimised.
        Ok(match message.arguments() {
            0 => lane.send(function, value, [], limit)?,
            2 => lane.send(function, value, [a, b], limit)?,
            3 => lane.send(function, value, [a, b, c], limit)?,
            _ => lane.send(function, value, [a, b, c, d, e], limit)?,
        })
    }

    fn fill<C: Scope>(
        &self,
        lane: &mut Lane<'_, C>,
        number: u32,
        seen: &mut Seen,
    ) -> Result<(), Failure> {
        let mut last = None;
        for message in 0..self.slots {
            let message = Message {
                lane: number,
                number: message,
            };
            let arguments = [message.argument(0), message.argument(1)];
            last = Some(lane.send(1, message.number, arguments, self.limit())?);
            seen.add(message, true);
        }
        for _ in 0..3 {
            let full = lane.send(0, 0, [], Deadline::after_ms(LOOK_MS)) == Err(Error::Full);
            seen.wrong += u64::from(!full);
        }
        let long = lane.send(0, 0, [0; MAX_ARGUMENTS + 1], Deadline::PASSED);
        let refused = long == Err(Error::TooManyArguments { given: 6 });
        seen.wrong += u64::from(!refused);
        if let Some(sent) = last {
            let late = lane.wait(sent, Deadline::after_ms(LOOK_MS)) == Err(Error::Timeout);
            seen.wrong += u64::from(!late);
        }
        Ok(())
    }

    fn collect<C: Scope>(&self, lane: &mut Lane<'_, C>, seen: &mut Seen) -> Result<(), Failure> {
        lane.wait_all(self.limit())?;
        seen.count = self.slots.into();
        Ok(())
    }
}

impl ActiveServe<'_> {
    fn serve<C: Scope>(&self, size: u32, seen: &mut Seen) -> Result<(), Failure> {
        let number = thread::index() / size.max(1);
        if number >= self.target.lanes() {
            return Ok(());
        }
        let rank = thread::index() % size.max(1);
        let words = self.max_result.div_ceil(8);
        let results = part_of_lane(self.result_words, number, self.slots, words)?;
        let mut server: Server<'_, C> = self.target.serve(number)?;
        let limit = Deadline::after_ms(self.limit_ms);
        let mut next = 0;
        loop {
            let task = server.next(limit)?;
            if task.function() == Message::END {
                server.answer(task, Ok(0), limit)?;
                return Ok(());
            }
            let message = Message {
                lane: number,
                number: task.value(),
            };
            let right = message.number >= next && self.is_right(message, &task, (rank, size));
            next = message.number + 1;
            seen.add(message, right);
            match message.result_length(self.max_result) {
                0 => server.answer(task, message.result(), limit)?,
                length => {
                    let place = self.write_result(results, task.slot(), message, (rank, size));
                    let result = Local { length, ..place };
                    let value = message.result().unwrap_or(0);
                    server.answer_with(task, value, result, limit)?;
                }
            }
        }
    }

    /// Writes a message's result into the memory of its slot; each thread writes its part.
    fn write_result(
        &self,
        results: Place,
        slot: u32,
        message: Message,
        (rank, size): (u32, u32),
    ) -> Local {
        let words = self.max_result.div_ceil(8);
        let first = (message.lane * self.slots + slot) * words;
        let mut index = rank;
        while index < words {
            results.store(slot * words + index, message.result_word(index));
            index += size.max(1);
        }
        self.results.at(8 * u64::from(first), self.results.length)
    }

    /// Whether a task is what its message says; each thread compares its part of the payload.
    fn is_right(&self, message: Message, task: &Task<'_>, (rank, size): (u32, u32)) -> bool {
        let mut right = Message::ARGUMENTS.get(task.function() as usize) == Some(&task.arguments());
        for number in 0..task.arguments() {
            right &= task.argument(number) == message.argument(number);
        }
        let (_, bytes) = task.payload();
        let payload = words_of(task);
        let words = match task.function() == Message::PAYLOAD {
            true => self.words,
            false => 0,
        };
        right &= (task.has_payload() == (words != 0)) & (bytes == 8 * words);
        let mut index = rank;
        while right & (index < words) {
            right &= payload.load(index) == message.word(index);
            index += size.max(1);
        }
        right
    }
}
