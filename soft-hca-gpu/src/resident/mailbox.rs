//! The memory through which the host and a resident engine talk, and what lies where in it.
//!
//! Four parts of 128 bytes, each written by one side only:
//!
//! | offset | written by | holds |
//! |---|---|---|
//! | 0 | host | what this is (magic, version, size); the stop word |
//! | 128 | engine | its state; its heartbeat |
//! | 256 | host | the request |
//! | 384 | engine | the reply |
//!
//! The first words of both sides keep their places in every version, so that two versions that
//! meet can say so.

use core::sync::atomic::AtomicU64;

use warpbell_gpu::WordExt;

use super::words::{Message, WORDS, WordError};

/// The version of the layout, of the requests and of the replies, and of the kernel's arguments.
pub const MAILBOX_VERSION: u16 = 3;

/// "WBMB" in the first bytes.
const MAGIC: u32 = u32::from_le_bytes(*b"WBMB");

/// What the first word of a mailbox of this version says.
const HEADER: u64 =
    MAGIC as u64 | (MAILBOX_VERSION as u64) << 32 | (size_of::<Mailbox>() as u64) << 48;

/// The memory that the host and a resident engine share. Zeros are a mailbox that is not open yet.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Mailbox {
    host: HostWords,
    engine: EngineWords,
    pub(super) request: Slot,
    pub(super) reply: Slot,
}

const _: () = assert!(size_of::<Mailbox>() == 512);

#[derive(Debug, Default)]
#[repr(C, align(128))]
struct HostWords {
    header: AtomicU64,
    stop: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(C, align(128))]
struct EngineWords {
    state: AtomicU64,
    heartbeat: AtomicU64,
}

/// Why an engine did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The mailbox is not one.
    #[error("what the engine was given is no mailbox: it begins with {found:#010x}")]
    NotAMailbox {
        /// The bytes where the magic should be.
        found: u32,
    },
    /// Host and engine are of two versions.
    #[error(
        "the host's mailbox has version {found}, the engine's kernel {MAILBOX_VERSION}; build both from one source"
    )]
    Version {
        /// The host's version.
        found: u16,
    },
    /// Another kernel, or another thread of the same, has taken the mailbox.
    #[error(
        "the mailbox is another engine's; give each engine one thread and a mailbox of its own"
    )]
    Taken,
    /// The tables do not fit.
    #[error("the engine's tables need {needed} bytes aligned to 128; give it more memory")]
    TooSmall {
        /// What they need.
        needed: u32,
    },
}

/// How a resident engine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineState {
    /// It has not begun.
    Starting,
    /// It has begun, and builds its tables.
    Building,
    /// It takes commands.
    Running,
    /// It has ended, because the host asked for it.
    Ended,
    /// It has ended at once.
    Refused(Refused),
    /// The word says nothing that an engine of this version says.
    Unknown(u64),
}

/// Codes in the low 8 bits of the state word; of a refusal, the reason is in the next 8, and a
/// number that belongs to it in the high 32.
mod code {
    pub const RUNNING: u8 = 1;
    pub const ENDED: u8 = 2;
    pub const REFUSED: u8 = 3;
    pub const BUILDING: u8 = 4;
    pub const NOT_A_MAILBOX: u8 = 1;
    pub const VERSION: u8 = 2;
    pub const TOO_SMALL: u8 = 3;
    pub const TAKEN: u8 = 4;
}

impl EngineState {
    pub(super) const fn to_word(self) -> u64 {
        let (code, reason, detail) = match self {
            Self::Starting => (0, 0, 0),
            Self::Building => (code::BUILDING, 0, 0),
            Self::Running => (code::RUNNING, 0, 0),
            Self::Ended => (code::ENDED, 0, 0),
            Self::Refused(Refused::NotAMailbox { found }) => {
                (code::REFUSED, code::NOT_A_MAILBOX, found)
            }
            Self::Refused(Refused::Version { found }) => {
                (code::REFUSED, code::VERSION, found as u32)
            }
            Self::Refused(Refused::TooSmall { needed }) => (code::REFUSED, code::TOO_SMALL, needed),
            Self::Refused(Refused::Taken) => (code::REFUSED, code::TAKEN, 0),
            Self::Unknown(word) => return word,
        };
        code as u64 | (reason as u64) << 8 | (detail as u64) << 32
    }

    pub(super) const fn from_word(word: u64) -> Self {
        let detail = (word >> 32) as u32;
        let state = match (word as u8, (word >> 8) as u8) {
            (0, 0) => Self::Starting,
            (code::BUILDING, 0) => Self::Building,
            (code::RUNNING, 0) => Self::Running,
            (code::ENDED, 0) => Self::Ended,
            (code::REFUSED, code::NOT_A_MAILBOX) => {
                Self::Refused(Refused::NotAMailbox { found: detail })
            }
            (code::REFUSED, code::VERSION) => Self::Refused(Refused::Version {
                found: detail as u16,
            }),
            (code::REFUSED, code::TOO_SMALL) => Self::Refused(Refused::TooSmall { needed: detail }),
            (code::REFUSED, code::TAKEN) => Self::Refused(Refused::Taken),
            _ => return Self::Unknown(word),
        };
        // A word with bits that mean nothing is not this version's.
        if state.to_word() == word {
            state
        } else {
            Self::Unknown(word)
        }
    }
}

impl Mailbox {
    /// Host: makes it one, before the engine is started.
    pub fn open(&self) {
        self.host.header.store_release(HEADER);
    }

    /// Engine: whether it is one of this version.
    pub(super) fn check(&self) -> Result<(), Refused> {
        let header = self.host.header.load_acquire();
        if header as u32 != MAGIC {
            let found = header as u32;
            return Err(Refused::NotAMailbox { found });
        }
        if header != HEADER {
            let found = (header >> 32) as u16;
            return Err(Refused::Version { found });
        }
        Ok(())
    }

    /// Host: asks the engine to end.
    pub fn stop(&self) {
        self.host.stop.store_release(1);
    }

    /// Engine: whether it is asked to end.
    pub(super) fn is_stopped(&self) -> bool {
        // Relaxed: nothing is read because of it.
        self.host.stop.load_relaxed() != 0
    }

    /// How the engine is.
    pub fn state(&self) -> EngineState {
        // Acquire: once it has ended, it has also touched its last byte of anybody's memory.
        EngineState::from_word(self.engine.state.load_acquire())
    }

    /// Engine: takes the mailbox for itself, unless another engine has.
    pub(super) fn take(&self) -> Result<(), Refused> {
        // A load and a store: the host starts one engine at a time, and a GPU behind PCIe has no
        // atomic exchange on host memory. Relaxed: the host reads nothing because of it.
        let state = self.engine.state.load_relaxed();
        if state != EngineState::Starting.to_word() {
            return Err(Refused::Taken);
        }
        let building = EngineState::Building.to_word();
        self.engine.state.store_relaxed(building);
        Ok(())
    }

    /// Engine: says how it is.
    pub(super) fn set_state(&self, state: EngineState) {
        // Release: everything that it did comes before its end.
        self.engine.state.store_release(state.to_word());
    }

    /// How often the engine has looked at this mailbox: as long as it grows, the engine runs.
    pub fn heartbeat(&self) -> u64 {
        self.engine.heartbeat.load_relaxed()
    }

    /// Engine: it runs still.
    pub(super) fn beat(&self, looks: u64) {
        self.engine.heartbeat.store_relaxed(looks);
    }
}

/// One message, to one side.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(super) struct Slot {
    /// Which message this is; it grows by one with each.
    sequence: AtomicU64,
    /// A checksum of sequence, kind and words.
    check: AtomicU64,
    kind: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl Slot {
    /// Puts a message in; the one before must have been taken.
    pub fn put(&self, sequence: u64, message: &Message) {
        self.kind.store_relaxed(message.kind);
        for (slot, word) in self.words.iter().zip(message.words) {
            slot.store_relaxed(word);
        }
        self.check.store_relaxed(check(sequence, message));
        // Release: the message before its number, because who sees the number reads it.
        self.sequence.store_release(sequence);
    }

    /// The number of the message in it.
    pub fn sequence(&self) -> u64 {
        // Acquire: the message is read after its number.
        self.sequence.load_acquire()
    }

    /// The message with this number, which `sequence` has given.
    pub fn get(&self, sequence: u64) -> Result<Message, WordError> {
        let message = Message {
            kind: self.kind.load_relaxed(),
            words: core::array::from_fn(|index| self.words[index].load_relaxed()),
        };
        if self.check.load_relaxed() != check(sequence, &message) {
            return Err(WordError::Torn);
        }
        Ok(message)
    }
}

#[cfg(test)]
impl Slot {
    /// Changes a word behind the checksum's back.
    pub fn spoil(&self) {
        self.words[0].store_relaxed(!self.words[0].load_relaxed());
    }
}

/// A checksum that tells a message from one of which a part is missing or another's.
fn check(sequence: u64, message: &Message) -> u64 {
    /// Odd, so that multiplying loses nothing.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let words = [sequence, message.kind].into_iter().chain(message.words);
    words.fold(FACTOR, |sum, word| {
        (sum ^ word).wrapping_mul(FACTOR).rotate_left(29)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::prelude::v1::*;

    fn message() -> impl Strategy<Value = Message> {
        (any::<u64>(), any::<[u64; WORDS]>()).prop_map(|(kind, words)| Message { kind, words })
    }

    proptest! {
        #[test]
        fn a_message_comes_as_it_went(message in message(), sequence: u64) {
            let slot = Slot::default();
            slot.put(sequence, &message);
            prop_assert_eq!(slot.sequence(), sequence);
            prop_assert_eq!(slot.get(sequence), Ok(message));
        }

        /// Any words of one message among those of another, or under another's number.
        #[test]
        fn a_torn_message_is_noticed(
            one in message(),
            other in message(),
            sequence in 1u64..u64::MAX,
            from_other in proptest::collection::vec(any::<bool>(), WORDS + 1),
        ) {
            let slot = Slot::default();
            slot.put(sequence, &one);
            let mut mixed = one;
            for (index, _) in from_other.iter().enumerate().filter(|(_, other)| **other) {
                match index {
                    WORDS => mixed.kind = other.kind,
                    _ => mixed.words[index] = other.words[index],
                }
            }
            slot.kind.store_relaxed(mixed.kind);
            for (slot, word) in slot.words.iter().zip(mixed.words) {
                slot.store_relaxed(word);
            }
            let expected = if mixed == one { Ok(one) } else { Err(WordError::Torn) };
            prop_assert_eq!(slot.get(sequence), expected);
            prop_assert_eq!(slot.get(sequence + 1), Err(WordError::Torn));
        }

        #[test]
        fn every_state_word_means_one_state(word: u64, low in 0u64..0x400) {
            for word in [word, low, low | word << 32] {
                prop_assert_eq!(EngineState::from_word(word).to_word(), word);
            }
        }
    }

    #[test]
    fn only_a_mailbox_of_this_version_is_taken() {
        let mailbox = Mailbox::default();
        assert_eq!(mailbox.check(), Err(Refused::NotAMailbox { found: 0 }));
        mailbox.open();
        assert_eq!(mailbox.check(), Ok(()));
        mailbox.host.header.store_relaxed(HEADER + (1 << 32));
        let found = MAILBOX_VERSION + 1;
        assert_eq!(mailbox.check(), Err(Refused::Version { found }));
    }
}
