//! What kernels receive: an initiator's lanes, a target's lanes.

use core::marker::PhantomData;

use warpbell_gpu::arch::Word64;

use super::error::Error;
use super::lane::Lane;
use super::server::Server;
use super::slot::{SLOT_BYTES, marks_of};
use super::table::{BufferEntry, Buffers, FunctionEntry};
use super::words::{ANSWER, MAX_PAYLOAD, MAX_RESULT, MAX_SLOTS, answer_bytes, result_bytes};
use warpbell::Scope;
use warpbell::{ABI_VERSION, SendQueueHandle};

/// "WBAI" and "WBAT", as they read in memory on a little-endian machine.
const INITIATOR: u32 = u32::from_le_bytes(*b"WBAI");
const TARGET: u32 = u32::from_le_bytes(*b"WBAT");

/// Words that a lane keeps at each end from one opening to the next: a cache line of its own.
pub const STATE_WORDS: usize = 16;

/// What both ends of all lanes have.
#[derive(Clone, Copy, Debug)]
pub struct ActiveParts<'a> {
    /// How many lanes there are.
    pub lanes: u32,
    /// Base-2 logarithm of a lane's slots, 0 to 15.
    pub slots_log2: u32,
    /// The send queue of each lane: the initiator's sends messages, the target's answers.
    pub queues: *const SendQueueHandle<'a>,
    /// [`STATE_WORDS`] words of each lane, 0 at first, in memory on which the end's threads have atomics in common.
    pub states: *const Word64,
    /// The longest result of a task beside its value, in bytes, up to [`MAX_RESULT`], and no longer than what the
    /// target's queues take; 0 for none.
    pub max_result: u32,
    /// Words of the lanes at this end, one lane's behind the other's: at the initiator the answers, of
    /// [`answer_bytes`] bytes for each slot; at the target the slots, of 8 words. 0 at first.
    pub words: *const Word64,
    /// Where the other end has its words.
    pub remote_address: u64,
    /// Key for them.
    pub remote_key: u32,
    /// How many buffers the target has.
    pub buffers: u32,
    /// The target's buffers.
    pub buffer_entries: *const BufferEntry,
}

/// What both handles are made of.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Common<'a> {
    magic: u32,
    version: u16,
    size: u16,
    lanes: u32,
    slots_log2: u32,
    queues: *const SendQueueHandle<'a>,
    states: *const Word64,
    words: *const Word64,
    remote_address: u64,
    remote_key: u32,
    buffers: u32,
    buffer_entries: *const BufferEntry,
    _lifetime: PhantomData<&'a BufferEntry>,
}

/// An initiator's lanes, for its kernels. `repr(C)`, 72 bytes: the host hands it over by value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct InitiatorHandle<'a> {
    common: Common<'a>,
    max_payload: u32,
    max_result: u32,
}

/// A target's lanes, for its kernels. `repr(C)`, 80 bytes: the host hands it over by value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TargetHandle<'a> {
    common: Common<'a>,
    functions: u32,
    max_result: u32,
    function_entries: *const FunctionEntry,
}

const _: () = {
    assert!(size_of::<InitiatorHandle>() == 72);
    assert!(size_of::<TargetHandle>() == 80);
    assert!(core::mem::offset_of!(Common, queues) == 16);
    assert!(core::mem::offset_of!(Common, remote_address) == 40);
    assert!(core::mem::offset_of!(Common, buffer_entries) == 56);
    assert!(core::mem::offset_of!(TargetHandle, function_entries) == 72);
};

// SAFETY: a set of numbers, and of addresses of tables that every thread of a grid may read (the promise of `new`).
unsafe impl Send for InitiatorHandle<'_> {}
// SAFETY: as for `Send`; the handle is never written.
unsafe impl Sync for InitiatorHandle<'_> {}
// SAFETY: as for `InitiatorHandle`.
unsafe impl Send for TargetHandle<'_> {}
// SAFETY: as for `InitiatorHandle`.
unsafe impl Sync for TargetHandle<'_> {}

impl<'a> Common<'a> {
    const fn new(magic: u32, size: usize, parts: ActiveParts<'a>) -> Self {
        Self {
            magic,
            version: ABI_VERSION,
            size: size as u16,
            lanes: parts.lanes,
            slots_log2: parts.slots_log2,
            queues: parts.queues,
            states: parts.states,
            words: parts.words,
            remote_address: parts.remote_address,
            remote_key: parts.remote_key,
            buffers: parts.buffers,
            buffer_entries: parts.buffer_entries,
            _lifetime: PhantomData,
        }
    }

    /// What one lane needs, each of whose slots has so many bytes at this end and at the other one.
    #[inline(always)]
    fn end(
        &self,
        wanted: (u32, usize),
        lane: u32,
        max_result: u32,
        (bytes, remote_bytes): (u64, u64),
    ) -> Result<End<'a>, Error> {
        let good = (self.magic == wanted.0)
            & (self.version == ABI_VERSION)
            & (self.size as usize == wanted.1)
            & (self.slots_log2 <= MAX_SLOTS.trailing_zeros())
            & (max_result <= MAX_RESULT);
        if !good {
            return Err(Error::Handle);
        }
        if lane >= self.lanes {
            return Err(Error::InvalidLane { lane });
        }
        let first = (lane as usize) << self.slots_log2;
        // SAFETY: the tables have places for all lanes (the promise of `new`).
        let (queue, state, words) = unsafe {
            (
                *self.queues.add(lane as usize),
                self.states.add(lane as usize * STATE_WORDS),
                self.words.add(first * (bytes / 8) as usize),
            )
        };
        // A lane without a connection has a handle that is none, without a state.
        queue.check()?;
        Ok(End {
            queue,
            state,
            words,
            slots_log2: self.slots_log2,
            max_result,
            remote_address: self.remote_address + first as u64 * remote_bytes,
            remote_key: self.remote_key,
            buffers: Buffers {
                entries: self.buffer_entries,
                count: self.buffers,
            },
        })
    }
}

/// One end of a lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct End<'a> {
    pub(super) queue: SendQueueHandle<'a>,
    pub(super) state: *const Word64,
    pub(super) words: *const Word64,
    pub(super) slots_log2: u32,
    pub(super) max_result: u32,
    pub(super) remote_address: u64,
    pub(super) remote_key: u32,
    pub(super) buffers: Buffers,
}

impl End<'_> {
    /// The slot of a message, by its index or its sequence number less 1.
    #[inline(always)]
    pub(super) fn slot(&self, index: u32) -> u32 {
        index & ((1 << self.slots_log2) - 1)
    }

    /// What marks the first word of a message in its slot.
    #[inline(always)]
    pub(super) fn marks(&self, index: u32) -> u64 {
        marks_of(index, self.slots_log2)
    }

    /// Bytes from the beginning of the initiator's words to the room for a slot's result.
    #[inline(always)]
    pub(super) fn result_at(&self, slot: u32) -> u64 {
        (ANSWER << self.slots_log2) + slot as u64 * result_bytes(self.max_result)
    }

    /// A word that the lane keeps while nobody has it open.
    #[inline(always)]
    pub(super) fn state_word(&self, word: usize) -> &Word64 {
        debug_assert!(word < STATE_WORDS);
        // SAFETY: there are so many (the promise of `new`), and they live as long as the queue's handle.
        unsafe { &*self.state.add(word) }
    }
}

impl<'a> InitiatorHandle<'a> {
    /// Makes the handle of an initiator.
    ///
    /// # Safety
    /// For the lifetime `'a` the tables and words are as long as [`ActiveParts`] says and are there for every thread
    /// that gets the handle; tables are not written; states are touched by lanes alone, and words by NICs and by lanes;
    /// every send queue fulfils the promise of [`SendQueueHandle::new`], is used by its lane alone, and leads to the
    /// target of the same lanes.
    pub unsafe fn new(parts: ActiveParts<'a>, max_message: u32) -> Self {
        Self {
            common: Common::new(INITIATOR, size_of::<Self>(), parts),
            max_payload: max_message.min(MAX_PAYLOAD),
            max_result: parts.max_result,
        }
    }

    /// How many lanes there are.
    #[inline(always)]
    pub fn lanes(&self) -> u32 {
        self.common.lanes
    }

    /// Opens a lane for this thread, warp or block (scope `C`); dropping it closes it again, and the next one goes on
    /// where it ended.
    ///
    /// # Errors
    /// [`Error::Handle`], [`Error::InvalidLane`], [`Error::NotConnected`]; [`Error::InUse`]; the lane's queue has failed.
    #[inline(always)]
    pub fn lane<C: Scope>(&self, lane: u32) -> Result<Lane<'a, C>, Error> {
        let end = self.common.end(
            (INITIATOR, size_of::<Self>()),
            lane,
            self.max_result,
            (answer_bytes(self.max_result), SLOT_BYTES),
        )?;
        Lane::open(end, self.max_payload)
    }
}

impl<'a> TargetHandle<'a> {
    /// Makes the handle of a target with so many entries for functions.
    ///
    /// # Safety
    /// As for [`InitiatorHandle::new`], with initiator and target in each other's places; the buffers' memory is there
    /// for every thread that gets the handle, and is touched by NICs and as atomics only, but by tasks that have it to
    /// themselves.
    pub unsafe fn new(
        parts: ActiveParts<'a>,
        functions: u32,
        function_entries: *const FunctionEntry,
    ) -> Self {
        Self {
            common: Common::new(TARGET, size_of::<Self>(), parts),
            functions,
            max_result: parts.max_result,
            function_entries,
        }
    }

    /// How many lanes there are.
    #[inline(always)]
    pub fn lanes(&self) -> u32 {
        self.common.lanes
    }

    /// Begins to serve a lane with this thread, warp or block (scope `C`); dropping the server ends that, and the next
    /// one goes on where it ended.
    ///
    /// # Errors
    /// As for [`InitiatorHandle::lane`].
    #[inline(always)]
    pub fn serve<C: Scope>(&self, lane: u32) -> Result<Server<'a, C>, Error> {
        let end = self.common.end(
            (TARGET, size_of::<Self>()),
            lane,
            self.max_result,
            (SLOT_BYTES, answer_bytes(self.max_result)),
        )?;
        Server::open(end, self.functions, self.function_entries)
    }
}
