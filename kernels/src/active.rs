//! Active messages in kernels: vectors that are sent with a task which adds them up at the target, as in a reduction, and
//! how long it takes until a task starts.

use warpbell::wqe::Local;
use warpbell::{
    Block, Deadline, Scope, Slice, Stop, Thread, Word64, WordExt, block, kernel, thread,
};
use warpbell_patterns::active::{Error, InitiatorHandle, Payload, Server, TargetHandle, Task};

use crate::outcome::{Failure, Outcome};
use crate::place::Place;

/// The target's buffer of all kernels here: where payloads arrive.
pub const VECTORS: u32 = 0;

/// A function without arguments, which does nothing.
pub const NOTHING: u32 = 0;
/// One that takes two arguments and does nothing.
pub const NOTHING_OF_TWO: u32 = 1;
/// Ends the target's kernel: no arguments.
pub const END: u32 = 2;
/// Adds the payload, times the argument, to what the target's block has added up.
pub const ACCUMULATE: u32 = 3;
/// How many arguments each function takes, from 0 on.
pub const ARGUMENTS: [u32; 4] = [0, 2, 0, 1];
/// A number that is registered for nothing.
pub const UNREGISTERED: u32 = 4;

/// How often a target looks whether it was stopped, in milliseconds.
const LOOK_MS: u64 = 10;

/// The initiator of a reduction: each block sends vectors over the lane of its number.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Contribute<'a> {
    /// The lanes.
    pub initiator: InitiatorHandle<'a>,
    /// Room for a vector of each slot of each lane, which the block's threads fill.
    pub source: Local,
    /// The same, for the threads.
    pub vectors: Place,
    /// Words of a vector.
    pub words: u32,
    /// Slots of a lane.
    pub slots: u32,
    /// Vectors that each block sends.
    pub messages: u32,
    /// Microseconds that each wait may take.
    pub limit_us: u64,
    /// Takes what became of each vector, of all of a block's one after the other: the answer, or an error's word.
    pub answers: Slice<'a, Word64>,
    /// Takes two numbers for each block: what became of a message with a function that is not registered, and how many
    /// messages were refused in all.
    pub refusals: Slice<'a, Word64>,
    /// Takes two times for each block, in nanoseconds: of its first message and of the answer to its last vector.
    pub times: Slice<'a, Word64>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// The target: block n serves lane n, until a task tells it to end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Reduce<'a> {
    /// The lanes.
    pub target: TargetHandle<'a>,
    /// A vector for each block, all 0 at first: what was added up.
    pub sums: Place,
    /// Words of a vector.
    pub words: u32,
    /// Ends it before.
    pub stop: Stop<'a>,
    /// Microseconds that it waits for a task.
    pub limit_us: u64,
    /// What became of it.
    pub outcome: &'a Outcome,
}

impl Contribute<'_> {
    /// A word of a block's vector.
    pub const fn word(block: u32, message: u32, word: u32) -> u64 {
        let mixed = (block as u64) << 40 | (message as u64) << 20 | word as u64;
        mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// What that vector is multiplied by.
    pub const fn factor(message: u32) -> u64 {
        2 * message as u64 + 1
    }
}

/// Sends all vectors, with all threads of each block.
#[kernel]
pub fn active_contribute(p: Contribute<'_>) {
    p.outcome.record(|| contribute(p));
}

#[inline(always)]
fn contribute(p: Contribute<'_>) -> Result<(), Failure> {
    let limit = Deadline::after_us(p.limit_us);
    let own = block::index();
    let vectors = u64::from(p.slots.max(1)) * u64::from(p.words);
    let vectors = p
        .vectors
        .part(u64::from(own).saturating_mul(vectors), vectors)?;
    let mut lane = p.initiator.lane::<Block>(own)?;
    let begin = thread::clock_ns();
    for message in 0..p.messages {
        // A vector's memory, here and there, is free once the message before in its slot is answered, for which
        // `put` waits; so the threads wait for it, too, before they store.
        let slot = message % p.slots.max(1);
        let place = own * p.slots + slot;
        if message >= p.slots {
            lane.await_room(limit)?;
        }
        let mut index = block::thread_index();
        while index < p.words {
            let value = Contribute::word(own, message, index);
            vectors.store(slot * p.words + index, value);
            index += block::size();
        }
        let bytes = 8 * p.words;
        let payload = Payload {
            local: p.source.at(u64::from(place) * u64::from(bytes), bytes),
            buffer: VECTORS,
            offset: place * bytes,
        };
        let factor = Contribute::factor(message);
        let sent = lane.put(payload, ACCUMULATE, message, [factor], limit)?;
        // The last ones are under way together.
        if message % p.slots.max(1) == 0 || message + 1 == p.messages {
            let answer = lane.wait(sent, limit);
            if block::thread_index() == 0 {
                let number = u64::from(own) * u64::from(p.messages) + u64::from(message);
                p.answers.store(number, answer_word(answer));
            }
        }
    }
    if block::thread_index() == 0 {
        p.times.store(2 * u64::from(own), begin);
        p.times.store(2 * u64::from(own) + 1, thread::clock_ns());
    }
    let sent = lane.send(UNREGISTERED, 0, [], limit)?;
    let refused = lane.wait(sent, limit);
    if block::thread_index() == 0 {
        p.refusals.store(2 * u64::from(own), answer_word(refused));
    }
    let sent = lane.send(END, 0, [], limit)?;
    lane.wait(sent, limit)?;
    let refused = lane.wait_all(limit)?;
    if block::thread_index() == 0 {
        p.refusals.store(2 * u64::from(own) + 1, refused.into());
    }
    Ok(())
}

/// An answer in a word.
#[inline(always)]
fn answer_word(answer: Result<u32, Error>) -> u64 {
    match answer {
        Ok(value) => value.into(),
        Err(error) => error.to_bits(),
    }
}

/// Runs the tasks, with all threads of each block.
#[kernel]
pub fn active_reduce(p: Reduce<'_>) {
    p.outcome.record(|| reduce(p));
}

#[inline(always)]
fn reduce(p: Reduce<'_>) -> Result<(), Failure> {
    let limit = Deadline::after_us(p.limit_us);
    let own = block::index();
    let words = u64::from(p.words);
    let sums = p.sums.part(u64::from(own) * words, words)?;
    let mut server = p.target.serve::<Block>(own)?;
    loop {
        let task = next(&mut server, p.stop, p.limit_us)?;
        let function = task.function();
        let value = match function {
            ACCUMULATE => accumulate(sums, &task),
            _ => 0,
        };
        server.answer(task, Ok(value), limit)?;
        if function == END {
            return Ok(());
        }
    }
}

/// The whole words of a task's payload.
#[inline(always)]
pub(crate) fn words_of(task: &Task<'_>) -> Place {
    let (first, bytes) = task.payload();
    // SAFETY: the host vouches for the target's buffers, which NICs write, and which the kernels touch as atomics.
    unsafe { Place::in_bytes(first, bytes.into()) }
}

/// The body of [`ACCUMULATE`]; its value is the low half of the first word's sum, at the thread that has that word.
#[inline(always)]
fn accumulate(sums: Place, task: &Task<'_>) -> u32 {
    let (own, threads) = (block::thread_index(), block::size());
    add_up(sums, words_of(task), task.argument(0), own, threads)
}

/// Adds a vector, times a factor, to a sum, by thread `own` of so many: the low half of the first word's sum at thread 0.
#[inline(always)]
pub(crate) fn add_up(sums: Place, vector: Place, factor: u64, own: u32, threads: u32) -> u32 {
    let (mut index, mut value) = (own, 0);
    while let (Some(addend), Some(sum)) = (vector.word(index), sums.word(index)) {
        let addend = addend.load_relaxed();
        let added = sum.load_relaxed().wrapping_add(addend.wrapping_mul(factor));
        sum.store_relaxed(added);
        if index == 0 {
            value = added as u32;
        }
        index += threads;
    }
    value
}

/// The next task of a kernel that looks now and then whether it was stopped.
#[inline(always)]
pub fn next<'a, C: Scope>(
    server: &mut Server<'a, C>,
    stop: Stop<'_>,
    limit_us: u64,
) -> Result<Task<'a>, Error> {
    let looks = limit_us / (1000 * LOOK_MS);
    let mut look = 0;
    loop {
        match server.next(Deadline::after_ms(LOOK_MS)) {
            Err(Error::Timeout) => {}
            result => return result,
        }
        // One of the scope's looks for all.
        if (look >= looks) | (C::broadcast(stop.requested().into()) != 0) {
            return Err(Error::Timeout);
        }
        look += 1;
    }
}

/// The initiator of round trips: each message is answered before the next one goes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ActiveRoundTrip<'a> {
    /// A lane.
    pub initiator: InitiatorHandle<'a>,
    /// The payload, which goes to the beginning of buffer [`VECTORS`].
    pub source: Local,
    /// How many rounds.
    pub rounds: u32,
    /// Microseconds that each wait may take.
    pub limit_us: u64,
    /// Takes the nanoseconds of each round.
    pub samples: Slice<'a, Word64>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// The target of round trips, which does nothing but answer, until it is told to end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ActiveAnswer<'a> {
    /// A lane.
    pub target: TargetHandle<'a>,
    /// Ends it before.
    pub stop: Stop<'a>,
    /// Microseconds that it waits for a task.
    pub limit_us: u64,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Plays the initiator with one thread; messages carry a value: one write of 8 bytes.
#[kernel]
pub fn active_round_trip_value(p: ActiveRoundTrip<'_>) {
    p.outcome.record(|| round_trip::<VALUE>(p));
}

/// The same; they carry two arguments beside it: one write of 24 bytes.
#[kernel]
pub fn active_round_trip_arguments(p: ActiveRoundTrip<'_>) {
    p.outcome.record(|| round_trip::<TWO_ARGUMENTS>(p));
}

/// The same; they come behind a payload: two writes.
#[kernel]
pub fn active_round_trip_payload(p: ActiveRoundTrip<'_>) {
    p.outcome.record(|| round_trip::<PAYLOAD>(p));
}

/// What the messages of a kernel carry. One kernel for all would be too large to be inlined.
const VALUE: u32 = 0;
const TWO_ARGUMENTS: u32 = 1;
const PAYLOAD: u32 = 2;

#[inline(always)]
fn round_trip<const CARRIES: u32>(p: ActiveRoundTrip<'_>) -> Result<(), Failure> {
    let limit = Deadline::after_us(p.limit_us);
    let mut lane = p.initiator.lane::<Thread>(0)?;
    let payload = Payload {
        local: p.source,
        buffer: VECTORS,
        offset: 0,
    };
    for round in 0..p.rounds {
        let begin = thread::clock_ns();
        let sent = match CARRIES {
            VALUE => lane.send(NOTHING, round, [], limit)?,
            TWO_ARGUMENTS => lane.send(NOTHING_OF_TWO, round, [1, 2], limit)?,
            _ => lane.put(payload, NOTHING, round, [], limit)?,
        };
        let value = lane.wait(sent, limit)?;
        p.samples.store(round.into(), thread::clock_ns() - begin);
        if value != round {
            return Err(Error::Task { code: value }.into());
        }
    }
    let sent = lane.send(END, 0, [], limit)?;
    lane.wait(sent, limit)?;
    Ok(())
}

/// Plays the target, with one thread.
#[kernel]
pub fn active_answer(p: ActiveAnswer<'_>) {
    p.outcome.record(|| {
        let limit = Deadline::after_us(p.limit_us);
        let mut server = p.target.serve::<Thread>(0)?;
        loop {
            let task = next(&mut server, p.stop, p.limit_us)?;
            let (function, value) = (task.function(), task.value());
            server.answer(task, Ok(value), limit)?;
            if function == END {
                return Ok(());
            }
        }
    });
}
