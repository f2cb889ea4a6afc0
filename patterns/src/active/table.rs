//! What is registered at the target: its functions, its buffers.

use warpbell_gpu::arch::{Reach, Word64};

use super::error::Error;
use super::words::{MAX_ARGUMENTS, MAX_FUNCTION, PayloadWord};
use super::{Buffer, Function};
use crate::words::load_relaxed64;

/// An entry of the target's table of functions, 8 bytes: 0 where there is none.
#[repr(transparent)]
#[derive(Debug)]
pub struct FunctionEntry(Word64);

/// Set in the entry of every function that is registered; below it stands how many arguments it takes.
const REGISTERED: u64 = 1 << 8;

impl FunctionEntry {
    /// The word of a function that takes so many arguments.
    pub const fn word(arguments: u32) -> u64 {
        REGISTERED | arguments as u64
    }

    /// An entry with that word; 0 is none.
    pub fn new(word: u64) -> Self {
        Self(Word64::new(word))
    }

    /// Its word. It does not change while kernels run.
    #[inline(always)]
    pub(super) fn load(&self) -> u64 {
        load_relaxed64(&self.0, Reach::Gpu)
    }
}

/// The function that was asked for last and its word, kept in a register: entries do not change while kernels run, and an
/// acquire fence, of which each message has one, empties the cache that they would be in.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastFunction {
    /// The number above the word's 16 bits.
    both: u32,
}

impl LastFunction {
    /// Before any was asked for.
    #[inline(always)]
    pub(super) fn none() -> Self {
        Self { both: u32::MAX }
    }

    /// The word of a function, which `load` gives of one that is not the last.
    #[inline(always)]
    pub(super) fn get(&mut self, function: Function, load: impl Fn() -> u64) -> u64 {
        if function != self.both >> 16 {
            self.both = function << 16 | load() as u16 as u32;
        }
        u64::from(self.both as u16)
    }
}

/// Whether a function with this word takes so many arguments.
#[inline(always)]
pub(super) fn check_function(word: u64, function: Function, arguments: u32) -> Result<(), Error> {
    if word == FunctionEntry::word(arguments) {
        return Ok(());
    }
    Err(match word & REGISTERED {
        0 => Error::NotRegistered { function },
        _ => Error::WrongArguments {
            wanted: word as u32 & 0xff,
        },
    })
}

const _: () = {
    assert!(MAX_ARGUMENTS < REGISTERED as usize);
    // Of `LastFunction`.
    assert!(MAX_FUNCTION < u16::MAX as Function);
    assert!(FunctionEntry::word(MAX_ARGUMENTS as u32) <= u16::MAX as u64);
};

/// A buffer of the target, as the host describes it to both ends.
///
/// `repr(C)`, 24 bytes; all zero where there is none.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferEntry {
    /// Address of the first byte.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Key for the initiator's payloads.
    pub remote_key: u32,
    /// Nothing.
    pub unused: u32,
}

const _: () = {
    assert!(size_of::<FunctionEntry>() == 8 || cfg!(loom));
    assert!(size_of::<BufferEntry>() == 24);
};

impl BufferEntry {
    /// The entry in words, in the order of its bytes on a little-endian machine.
    pub const fn to_words(self) -> [u64; 3] {
        [self.address, self.size, self.remote_key as u64]
    }

    /// Whether these bytes lie in it.
    #[inline(always)]
    pub(super) const fn has(&self, offset: u32, length: u32) -> bool {
        // No sum, which could wrap.
        length as u64 <= self.size && offset as u64 <= self.size - length as u64
    }
}

/// The buffers of a target, in memory that no kernel writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffers {
    pub(super) entries: *const BufferEntry,
    pub(super) count: u32,
}

impl Buffers {
    /// The buffer with this number, one without bytes where there is none.
    #[inline(always)]
    pub(super) fn get(&self, buffer: Buffer) -> BufferEntry {
        if buffer >= self.count {
            return BufferEntry::default();
        }
        // SAFETY: there are so many entries (the promise of the handle that it comes from).
        unsafe { *self.entries.add(buffer as usize) }
    }

    /// Refuses a payload that does not lie in a buffer.
    #[inline(always)]
    pub(super) fn check(&self, payload: PayloadWord) -> Result<(), Error> {
        let buffer = payload.buffer();
        if (payload.length() != 0) & self.get(buffer).has(payload.offset(), payload.length()) {
            return Ok(());
        }
        Err(Error::InvalidPayload { buffer })
    }
}
