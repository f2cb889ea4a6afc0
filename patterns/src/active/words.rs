//! What a message says beside its arguments, where its payload is, and its answer: a word of 8 bytes each.

use super::error::Error;
use super::{Buffer, Function};

/// The most arguments of a task, 8 bytes each, beside its value.
pub const MAX_ARGUMENTS: usize = 5;

/// The highest number of a function.
pub const MAX_FUNCTION: Function = (1 << FUNCTION_BITS) - 1;

/// The highest number of a buffer.
pub const MAX_BUFFER: Buffer = u8::MAX as Buffer;

/// The longest payload of a task, if the queue's messages may be as long.
pub const MAX_PAYLOAD: u32 = (1 << LENGTH_BITS) - 1;

/// The longest result of a task beside its value, in bytes, if the queue's messages may be as long.
pub const MAX_RESULT: u32 = (1 << DETAIL_BITS) - 1;

/// The most slots of a lane: a sequence number tells two messages of one slot apart as long as it does not come round.
pub const MAX_SLOTS: u32 = 1 << 15;

/// Bytes of an answer.
pub(super) const ANSWER: u64 = 8;

const SEQUENCE_BITS: u32 = 16;
pub(super) const FUNCTION_BITS: u32 = 11;
const FUNCTION_SHIFT: u32 = SEQUENCE_BITS;
/// Set in every header: none is 0.
const PRESENT: u64 = 1 << (FUNCTION_SHIFT + FUNCTION_BITS);
const HAS_PAYLOAD: u64 = PRESENT << 1;
const COUNT_SHIFT: u32 = 29;
pub(super) const COUNT_BITS: u32 = 3;
const VALUE_SHIFT: u32 = 32;
const LENGTH_BITS: u32 = 24;
/// Of an answer: the length of a result, or the kind of a refusal.
const DETAIL_BITS: u32 = 14;
const DETAIL_SHIFT: u32 = 32 - DETAIL_BITS;

/// Bytes of a lane's memory at the initiator for each slot, of whose tasks a result has so many bytes at most: the word of
/// the answer, and a multiple of 64 for the result. The answers of all slots come first, the results behind them.
pub const fn answer_bytes(result: u32) -> u64 {
    ANSWER + result_bytes(result)
}

/// Those for the result alone.
pub(super) const fn result_bytes(result: u32) -> u64 {
    (result as u64).next_multiple_of(64)
}

/// The number that the message with this index has in its words.
#[inline(always)]
pub(super) const fn sequence(index: u32) -> u16 {
    (index as u16).wrapping_add(1)
}

/// What a message says but for its arguments and its payload, as the threads of a scope tell each other. From the low bits
/// up: sequence number (16), function (11), present (1), has a payload (1), number of arguments (3), value (32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header(pub(super) u64);

impl Header {
    #[inline(always)]
    pub(super) const fn new(
        index: u32,
        function: Function,
        value: u32,
        arguments: u32,
        has_payload: bool,
    ) -> Self {
        Self(
            (value as u64) << VALUE_SHIFT
                | (arguments as u64) << COUNT_SHIFT
                | if has_payload { HAS_PAYLOAD } else { 0 }
                | PRESENT
                | (function as u64) << FUNCTION_SHIFT
                | sequence(index) as u64,
        )
    }

    /// Whether it is the header of the message with this index, of at most [`MAX_SLOTS`] that are under way.
    #[inline(always)]
    pub(super) const fn is_of(self, index: u32) -> bool {
        self.0 & (PRESENT | u16::MAX as u64) == PRESENT | sequence(index) as u64
    }

    #[inline(always)]
    pub(super) const fn sequence(self) -> u16 {
        self.0 as u16
    }

    #[inline(always)]
    pub(super) const fn function(self) -> Function {
        (self.0 >> FUNCTION_SHIFT) as Function & MAX_FUNCTION
    }

    #[inline(always)]
    pub(super) const fn value(self) -> u32 {
        (self.0 >> VALUE_SHIFT) as u32
    }

    #[inline(always)]
    pub(super) const fn arguments(self) -> u32 {
        (self.0 >> COUNT_SHIFT) as u32 & ((1 << COUNT_BITS) - 1)
    }

    /// The payload's place, if it has one, and its arguments.
    #[inline(always)]
    pub(super) const fn items(self) -> u32 {
        self.arguments() + self.has_payload() as u32
    }

    #[inline(always)]
    pub(super) const fn has_payload(self) -> bool {
        self.0 & HAS_PAYLOAD != 0
    }
}

/// Where a payload is at the target: buffer (8 bits), length (24), offset (32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PayloadWord(pub(super) u64);

impl PayloadWord {
    #[inline(always)]
    pub(super) const fn new(buffer: Buffer, offset: u32, length: u32) -> Self {
        Self((offset as u64) << 32 | (length as u64) << 8 | buffer as u64)
    }

    #[inline(always)]
    pub(super) const fn buffer(self) -> Buffer {
        self.0 as Buffer & MAX_BUFFER
    }

    #[inline(always)]
    pub(super) const fn offset(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline(always)]
    pub(super) const fn length(self) -> u32 {
        (self.0 >> 8) as u32 & MAX_PAYLOAD
    }
}

/// An answer. From the low bits up: sequence number (16), present (1), done (1), the result's length in bytes or, where it
/// is not done, the kind of refusal (14), value (32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer(pub(super) u64);

impl Answer {
    const PRESENT: u64 = 1 << SEQUENCE_BITS;
    const DONE: u64 = Self::PRESENT << 1;
    const NOT_REGISTERED: u64 = 1;
    const WRONG_ARGUMENTS: u64 = 2;
    const INVALID_PAYLOAD: u64 = 3;
    const TASK: u64 = 4;

    /// The answer to the message with this sequence number; an error that no target gives is the task's own.
    #[inline(always)]
    pub(super) const fn new(sequence: u16, result: Result<u32, Error>) -> Self {
        let (kind, value) = match result {
            Ok(value) => return Self::with_result(sequence, value, 0),
            Err(Error::NotRegistered { function }) => (Self::NOT_REGISTERED, function),
            Err(Error::WrongArguments { wanted }) => (Self::WRONG_ARGUMENTS, wanted),
            Err(Error::InvalidPayload { buffer }) => (Self::INVALID_PAYLOAD, buffer),
            Err(Error::Task { code }) => (Self::TASK, code),
            Err(_) => (Self::TASK, u32::MAX),
        };
        Self((value as u64) << VALUE_SHIFT | kind << DETAIL_SHIFT | Self::PRESENT | sequence as u64)
    }

    /// The answer to the message with this sequence number whose task is done, with the length of its result.
    #[inline(always)]
    pub(super) const fn with_result(sequence: u16, value: u32, length: u32) -> Self {
        let detail = (length as u64) << DETAIL_SHIFT | Self::DONE;
        Self((value as u64) << VALUE_SHIFT | detail | Self::PRESENT | sequence as u64)
    }

    #[inline(always)]
    pub(super) const fn sequence(self) -> u16 {
        self.0 as u16
    }

    /// Whether it is the answer to the message with this index, of at most [`MAX_SLOTS`] that share a slot's memory.
    #[inline(always)]
    pub(super) const fn is_of(self, index: u32) -> bool {
        let mask = Self::PRESENT | u16::MAX as u64;
        self.0 & mask == Self::PRESENT | sequence(index) as u64
    }

    #[inline(always)]
    pub(super) const fn is_refusal(self) -> bool {
        self.0 & Self::DONE == 0
    }

    #[inline(always)]
    pub(super) const fn value(self) -> u32 {
        (self.0 >> VALUE_SHIFT) as u32
    }

    /// Bytes of the result; a refusal has none.
    #[inline(always)]
    pub(super) const fn length(self) -> u32 {
        match self.is_refusal() {
            true => 0,
            false => self.detail() as u32,
        }
    }

    #[inline(always)]
    pub(super) const fn result(self) -> Result<u32, Error> {
        let value = self.value();
        if !self.is_refusal() {
            return Ok(value);
        }
        match self.detail() {
            Self::NOT_REGISTERED => Err(Error::NotRegistered { function: value }),
            Self::WRONG_ARGUMENTS => Err(Error::WrongArguments { wanted: value }),
            Self::INVALID_PAYLOAD => Err(Error::InvalidPayload { buffer: value }),
            _ => Err(Error::Task { code: value }),
        }
    }

    const fn detail(self) -> u64 {
        self.0 >> DETAIL_SHIFT & MAX_RESULT as u64
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    const KINDS: [Result<u32, Error>; 5] = [
        Ok(u32::MAX),
        Err(Error::NotRegistered {
            function: MAX_FUNCTION,
        }),
        Err(Error::WrongArguments { wanted: 5 }),
        Err(Error::InvalidPayload { buffer: MAX_BUFFER }),
        Err(Error::Task { code: 7 }),
    ];

    #[test]
    fn memory_that_nobody_wrote_is_no_answer() {
        for index in [0, 1, 0xfffe, 0xffff, u32::MAX] {
            assert!(!Answer(0).is_of(index));
        }
    }

    #[test]
    fn answers_say_what_the_target_says() {
        for result in KINDS {
            let answer = Answer::new(sequence(u32::MAX), result);
            assert!(answer.is_of(u32::MAX));
            assert_eq!(answer.result(), result);
            assert_eq!(answer.is_refusal(), result.is_err());
            assert_eq!(answer.length(), 0);
        }
    }

    #[test]
    fn answers_tell_the_length_of_a_result() {
        for (index, value, length) in [(0, 0, 0), (0xfffe, u32::MAX, MAX_RESULT), (7, 9, 1)] {
            let answer = Answer::with_result(sequence(index), value, length);
            assert!(answer.is_of(index) && !answer.is_of(index ^ 1));
            assert!(!answer.is_refusal());
            assert_eq!(answer.result(), Ok(value));
            assert_eq!((answer.value(), answer.length()), (value, length));
        }
        assert_eq!(answer_bytes(0), 8);
        assert_eq!(answer_bytes(1), 72);
        assert_eq!(answer_bytes(64), 72);
        assert_eq!(answer_bytes(65), 136);
    }

    #[test]
    fn fields_keep_to_themselves() {
        let mut random = SmallRng::seed_from_u64(3);
        for _ in 0..if cfg!(miri) { 20 } else { 5000 } {
            let (index, value) = (random.random(), random.random());
            let function = random.random_range(0..=MAX_FUNCTION);
            let arguments = random.random_range(0..=MAX_ARGUMENTS as u32);
            let has_payload = random.random();
            let header = Header::new(index, function, value, arguments, has_payload);
            assert!(header.is_of(index));
            assert_eq!(header.function(), function);
            assert_eq!(header.value(), value);
            assert_eq!(header.arguments(), arguments);
            assert_eq!(header.items(), arguments + u32::from(has_payload));
            assert_eq!(header.has_payload(), has_payload);
            for lap in (0..=MAX_SLOTS.trailing_zeros()).map(|log2| 1 << log2) {
                assert!(!header.is_of(index.wrapping_add(lap)), "the slot's next");
                assert!(!header.is_of(index.wrapping_sub(lap)), "the slot's last");
            }
        }
    }

    #[test]
    fn the_place_of_a_payload_survives_its_word() {
        for (buffer, offset, length) in [(0, 0, 1), (MAX_BUFFER, u32::MAX, MAX_PAYLOAD), (7, 9, 8)]
        {
            let word = PayloadWord::new(buffer, offset, length);
            let found = (word.buffer(), word.offset(), word.length());
            assert_eq!(found, (buffer, offset, length));
        }
    }
}
