//! What a queue and its NIC did, and when: events with time stamps in memory that the host lends.
//!
//! Code that records is generic over [`Trace`]. [`Off`] records nothing and leaves no instruction behind; [`On`] is one
//! writer of a [`Buffer`].
//!
//! # The buffer
//!
//! A buffer is a row of [`Chunk`]s. A writer takes a chunk by one atomic addition, then fills it with plain stores. So
//! writers never share a chunk, and 128 events cost one atomic operation.
//!
//! If all chunks are taken, a new event is dropped, and the older ones stay. Overwriting the oldest ones would let two
//! writers meet in one chunk, where a slow one still writes. A buffer [counts](Buffer::lost) each dropped event.
//!
//! # Reading
//!
//! On a CPU an event's word is stored last and with release, so a host may read while others write. What a GPU writes is
//! complete when its kernel has ended.
//!
//! # The clock
//!
//! A time stamp is a reading of [`ticks`] on the processor that records. All writers of a buffer run on the same
//! processor. The host converts ticks to its own clock.
//!
//! What others may see is recorded with a time before they can, so it does not seem later than what follows from it. No
//! fence keeps the reading behind earlier loads: on a CPU it would double the cost of an event. So an event may seem
//! early by as long as a load takes, some hundred nanoseconds.

use core::cell::Cell;
use core::marker::PhantomData;
use core::ptr;

use mlx5_wqe::{Octoword, QpNumber};

use crate::WordExt;
use crate::arch::{self, Reach, RingSegment, Word64};

/// What happened. The comments say what an event's value means.
///
/// Numbers of blocks and WQE indices are modulo 2^16.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A queue's view had used up what it knew to be free, and reserved blocks: see [`Span`].
    Reserve = 1,
    /// A queue's view publishes blocks, and rings the doorbell: see [`Span`].
    Publish = 2,
    /// A queue's view begins to wait: bits 0 to 15 are the index of the WQE whose completion it waits for, or bit 16 says
    /// that it waits for room.
    WaitBegin = 3,
    /// The wait of the same bits 0 to 16 has ended: bit 17 says that it did without what it waited for.
    WaitEnd = 4,
    /// A queue's view learnt that a WQE and all before it are complete: the WQE's index.
    Completion = 5,
    /// A queue's view found that the queue has failed: the low half of `QueueError::to_bits`. Bits 0 to 7 are the syndrome,
    /// 8 to 15 the vendor's code, 16 to 31 the WQE's index.
    Error = 6,
    /// The NIC saw a doorbell: the producer index.
    Doorbell = 7,
    /// The NIC read a WQE: its index.
    Fetch = 8,
    /// The NIC sends a packet: its bytes of payload.
    PacketOut = 9,
    /// The NIC received a packet: its bytes of payload.
    PacketIn = 10,
    /// The NIC writes a CQE: the WQE counter in it.
    Cqe = 11,
}

impl Kind {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 11] = [
        Self::Reserve,
        Self::Publish,
        Self::WaitBegin,
        Self::WaitEnd,
        Self::Completion,
        Self::Error,
        Self::Doorbell,
        Self::Fetch,
        Self::PacketOut,
        Self::PacketIn,
        Self::Cqe,
    ];
}

/// The bit in the value of a [`WaitBegin`](Kind::WaitBegin) that says that the view waits for room.
pub const WAIT_FOR_ROOM: u32 = 1 << 16;

/// The bit in the value of a [`WaitEnd`](Kind::WaitEnd) that says that the wait was in vain.
pub const WAIT_IN_VAIN: u32 = 1 << 17;

/// Blocks of a queue as the value of an event: a number of them from an index on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first block's index.
    pub start: u16,
    /// How many.
    pub blocks: u16,
}

impl Span {
    /// As an event's value.
    #[inline(always)]
    pub const fn to_value(self) -> u32 {
        (self.blocks as u32) << 16 | self.start as u32
    }

    /// From an event's value.
    pub const fn of_value(value: u32) -> Self {
        Self {
            start: value as u16,
            blocks: (value >> 16) as u16,
        }
    }
}

/// What happened, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The recorder's clock: [`ticks`].
    pub ticks: u64,
    /// Bit 63 says that it is a receive queue's. Bits 56 to 62 are the kind, bits 32 to 55 the queue pair's number, bits 0
    /// to 31 the value.
    word: u64,
}

/// The bit in an event's word for receive queues.
const RECEIVES: u64 = 1 << 63;

impl Event {
    /// An event of a send queue, or of a queue pair as a whole.
    #[inline(always)]
    pub const fn new(ticks: u64, kind: Kind, qpn: QpNumber, value: u32) -> Self {
        let word = (kind as u64) << 56 | (qpn.get() as u64) << 32 | value as u64;
        Self { ticks, word }
    }

    /// An event as it lies in a [`Chunk`]; `None` for a place without one.
    pub const fn from_words(words: [u64; 2]) -> Option<Self> {
        let [ticks, word] = words;
        match word {
            0 => None,
            word => Some(Self { ticks, word }),
        }
    }

    /// The same event of the queue pair's receive queue.
    #[inline(always)]
    pub const fn of_receive_queue(self) -> Self {
        Self {
            word: self.word | RECEIVES,
            ..self
        }
    }

    /// Whether it is a receive queue's.
    pub const fn is_of_receive_queue(self) -> bool {
        self.word & RECEIVES != 0
    }

    /// What happened; `None` if the number is none of a kind's, because the memory holds something else.
    pub fn kind(self) -> Option<Kind> {
        let number = (self.word >> 56 & 0x7f) as usize;
        Kind::ALL.get(number.wrapping_sub(1)).copied()
    }

    /// The queue pair that it happened to.
    pub const fn qpn(self) -> QpNumber {
        QpNumber::from_low_bits((self.word >> 32) as u32)
    }

    /// What the [kind](Kind) says.
    pub const fn value(self) -> u32 {
        self.word as u32
    }
}

/// Events in a [`Chunk`].
pub const CHUNK: usize = 128;

/// A place for an event: ticks and word. A word of 0 says that there is none.
#[derive(Debug)]
#[repr(C, align(16))]
struct Slot {
    ticks: Word64,
    word: Word64,
}

impl Slot {
    /// Stores an event; the caller is the only writer of the slot.
    ///
    /// # Safety
    /// The slot is in global memory.
    #[inline(always)]
    unsafe fn store(&self, event: Event) {
        if cfg!(target_arch = "nvptx64") {
            let segment = ptr::from_ref(self).cast_mut().cast::<RingSegment>();
            // SAFETY: two words, aligned to 16 bytes, in global memory by the caller's promise. A reader comes after the
            // kernel's end.
            unsafe { arch::store_segment(segment, Octoword([event.ticks, event.word])) };
        } else {
            self.ticks.store_relaxed(event.ticks);
            // The ticks before the word, because whoever reads the word goes on to the ticks.
            self.word.store_release(event.word);
        }
    }
}

/// A run of events of one writer, 2 KiB. Zeros are an empty chunk.
#[derive(Debug)]
#[repr(C, align(2048))]
pub struct Chunk([Slot; CHUNK]);

#[cfg(not(loom))]
const _: () = assert!(size_of::<Chunk>() == CHUNK * 16 && align_of::<Chunk>() == CHUNK * 16);

impl Chunk {
    /// A chunk without events. The host makes it: one on a GPU thread's stack would have no global address.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn empty() -> Self {
        let slot = |_| Slot {
            ticks: Word64::new(0),
            word: Word64::new(0),
        };
        Self(core::array::from_fn(slot))
    }

    /// The events in it, in the order of their recording.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        self.0.iter().map_while(|slot| {
            // Acquire: the word before the ticks, which were stored first.
            let word = slot.word.load_acquire();
            Event::from_words([slot.ticks.load_relaxed(), word])
        })
    }
}

/// The memory that the events of one processor go to, as a kernel or a NIC gets it.
///
/// `repr(C)`, 24 bytes. All writers of a buffer run on the same processor.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Buffer<'a> {
    /// Chunks that writers asked for.
    asked: *const Word64,
    chunks: *const Chunk,
    count: u64,
    _lifetime: PhantomData<&'a Chunk>,
}

// SAFETY: the words may be used by every thread (the promise of `from_raw`), and are atomics.
unsafe impl Send for Buffer<'_> {}
// SAFETY: as for `Send`.
unsafe impl Sync for Buffer<'_> {}

impl<'a> Buffer<'a> {
    /// A buffer in the memory of this process, whose count is 0 and whose chunks are empty at first. For kernels on a CPU;
    /// a GPU that reaches the memory may use it, too.
    #[cfg(not(target_arch = "nvptx64"))]
    pub const fn new(asked: &'a Word64, chunks: &'a [Chunk]) -> Self {
        // SAFETY: both live for 'a; on a CPU every word will do.
        unsafe { Self::from_raw(asked, chunks.as_ptr(), chunks.len() as u64) }
    }

    /// No buffer: what is recorded there is gone, and not counted.
    pub const fn none() -> Self {
        // SAFETY: there is no chunk, and no word is read where there is none.
        unsafe { Self::from_raw(ptr::null(), ptr::null(), 0) }
    }

    /// A buffer of `count` chunks wherever they lie.
    ///
    /// # Safety
    /// For the lifetime `'a`, `asked` is valid for 8 bytes and `chunks` for `count` chunks, aligned to their types, zeroed
    /// at first, for every thread that gets the buffer, unless `asked` is null and `count` is 0. On a GPU they are in
    /// global memory, or in host memory that is mapped there. Only this module writes there.
    pub const unsafe fn from_raw(asked: *const Word64, chunks: *const Chunk, count: u64) -> Self {
        Self {
            asked,
            chunks,
            count,
            _lifetime: PhantomData,
        }
    }

    /// A writer of its own.
    #[inline(always)]
    pub const fn writer(self) -> On<'a> {
        On {
            buffer: self,
            next: Cell::new(ptr::null()),
        }
    }

    /// Most events that it holds.
    pub const fn capacity(self) -> u64 {
        self.count * CHUNK as u64
    }

    /// Events that found no room so far, each of which asked for a chunk in vain.
    pub fn lost(self) -> u64 {
        // SAFETY: null or valid by the promise of `from_raw`.
        let asked = unsafe { self.asked.as_ref() };
        asked.map_or(0, |asked| asked.load_relaxed().saturating_sub(self.count))
    }

    /// The chunk that nobody else has, or null if there is none.
    #[inline(always)]
    fn take(self) -> *const Slot {
        // SAFETY: null, or valid and in global memory, by the promise of `from_raw`.
        let Some(asked) = (unsafe { self.asked.as_ref() }) else {
            return ptr::null();
        };
        // SAFETY: the same promise.
        let number = unsafe { arch::fetch_add_relaxed64(asked, 1, Reach::Gpu) };
        match number < self.count {
            // SAFETY: there are `count` chunks, by the same promise.
            true => unsafe { self.chunks.add(number as usize).cast() },
            false => ptr::null(),
        }
    }

    /// As [`take`](Self::take), out of the way on a CPU. On a GPU a call would put the writer into local memory.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[cfg_attr(not(target_arch = "nvptx64"), cold, inline(never))]
    fn take_apart(self) -> *const Slot {
        self.take()
    }
}

/// Whether and where events are recorded.
pub trait Trace {
    /// Whether they are: what is computed for an event alone may ask.
    const ON: bool;

    /// The time for [`record_at`](Self::record_at).
    fn now(&self) -> u64;

    /// Records an event.
    fn store(&self, event: Event);

    /// Records an event of a time before.
    #[inline(always)]
    fn record_at(&self, ticks: u64, kind: Kind, qpn: QpNumber, value: u32) {
        self.store(Event::new(ticks, kind, qpn, value));
    }

    /// Records an event of now.
    #[inline(always)]
    fn record(&self, kind: Kind, qpn: QpNumber, value: u32) {
        self.record_at(self.now(), kind, qpn, value);
    }
}

/// Records nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Off;

impl Trace for Off {
    const ON: bool = false;

    #[inline(always)]
    fn now(&self) -> u64 {
        0
    }

    #[inline(always)]
    fn store(&self, _: Event) {}
}

/// One writer of a [`Buffer`]: a thread's, with a chunk of its own.
#[derive(Debug)]
pub struct On<'a> {
    buffer: Buffer<'a>,
    /// Where the next event goes. At the end of a chunk, which is a multiple of its size, a new one is needed; so it is at
    /// null, where no chunk was taken yet.
    next: Cell<*const Slot>,
}

// SAFETY: the slots behind `next` are this writer's alone, wherever it runs, and live as long as the buffer.
unsafe impl Send for On<'_> {}

impl Trace for On<'_> {
    const ON: bool = true;

    #[inline(always)]
    fn now(&self) -> u64 {
        ticks()
    }

    #[inline(always)]
    fn store(&self, event: Event) {
        let mut next = self.next.get();
        // The low bits say it all; no `is_aligned`, which counts bits of 64-bit numbers.
        if next.addr() & (size_of::<Chunk>() - 1) == 0 {
            next = self.buffer.take_apart();
            if next.is_null() {
                // Lost, and counted by the question.
                return;
            }
        }
        // SAFETY: a slot of the chunk that this writer took and has not filled; in global memory by the promise of
        // `Buffer::from_raw`.
        unsafe { (*next).store(event) };
        // SAFETY: at most the end of the chunk.
        self.next.set(unsafe { next.add(1) });
    }
}

/// The clock of time stamps, whose unit the host measures. On a GPU it is the global timer, in nanoseconds, which may step
/// by a microsecond. On a CPU it is the counter that costs least: the time stamp counter of x86-64, the virtual counter of
/// Arm, else the grid's clock.
#[inline(always)]
pub fn ticks() -> u64 {
    arch::ticks()
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use std::collections::BTreeMap;
    use std::thread;
    use std::vec::Vec;

    use super::*;

    fn chunks(count: usize) -> Vec<Chunk> {
        (0..count).map(|_| Chunk::empty()).collect()
    }

    fn qpn(number: u32) -> QpNumber {
        QpNumber::from_low_bits(number)
    }

    #[test]
    fn an_event_keeps_its_parts() {
        for kind in Kind::ALL {
            let event = Event::new(u64::MAX, kind, QpNumber::MAX, u32::MAX);
            assert_eq!(event.ticks, u64::MAX);
            assert_eq!(event.kind(), Some(kind));
            assert_eq!((event.qpn(), event.value()), (QpNumber::MAX, u32::MAX));
            assert!(!event.is_of_receive_queue());
            let event = Event::new(7, kind, qpn(0), 0).of_receive_queue();
            assert!(event.is_of_receive_queue());
            assert_eq!(
                (event.kind(), event.qpn(), event.value()),
                (Some(kind), qpn(0), 0)
            );
        }
        let (ticks, word) = (0, 12 << 56);
        assert_eq!(
            Event { ticks, word }.kind(),
            None,
            "no kind has this number"
        );
    }

    #[test]
    fn a_span_keeps_its_ends() {
        let span = Span {
            start: u16::MAX,
            blocks: 16_384,
        };
        assert_eq!(Span::of_value(span.to_value()), span);
    }

    #[test]
    fn a_writer_fills_its_chunks_in_order() {
        let (asked, chunks) = (Word64::new(0), chunks(3));
        let buffer = Buffer::new(&asked, &chunks);
        let (one, other) = (buffer.writer(), buffer.writer());
        let count = CHUNK as u32 + 1;
        other.record(Kind::Fetch, qpn(2), 0);
        for value in 0..count {
            one.record(Kind::Publish, qpn(1), value);
        }
        let of = |chunk: &Chunk| {
            chunk
                .events()
                .map(|event| event.value())
                .collect::<Vec<_>>()
        };
        assert_eq!(of(&chunks[0]), [0]);
        assert_eq!(of(&chunks[1]), (0..count - 1).collect::<Vec<_>>());
        assert_eq!(of(&chunks[2]), [count - 1]);
        let times: Vec<_> = chunks[1].events().map(|event| event.ticks).collect();
        assert!(times.is_sorted(), "{times:?}");
        assert_eq!((buffer.lost(), buffer.capacity()), (0, 3 * CHUNK as u64));
    }

    #[test]
    fn a_writer_without_a_buffer_keeps_nothing() {
        let buffer = Buffer::none();
        buffer.writer().record(Kind::Publish, qpn(1), 1);
        assert_eq!((buffer.lost(), buffer.capacity()), (0, 0));
    }

    #[test]
    fn off_records_nothing_and_has_no_size() {
        const { assert!(!Off::ON && size_of::<Off>() == 0) };
        Off.record(Kind::Publish, qpn(1), 1);
        assert_eq!(Off.now(), 0);
    }

    /// What several threads record is there or counted as lost, and what is there is whole.
    #[test]
    fn no_event_is_lost_uncounted() {
        let (threads, each) = match cfg!(miri) {
            true => (3, 2 * CHUNK as u32 + 5),
            false => (4, 2_500_000),
        };
        let all = u64::from(each) * u64::from(threads);
        // Room for all of them, then for a part.
        for room in [(all as usize).div_ceil(CHUNK) + threads as usize, 5] {
            let (asked, chunks) = (Word64::new(0), chunks(room));
            let buffer = Buffer::new(&asked, &chunks);
            thread::scope(|scope| {
                for number in 1..=threads {
                    scope.spawn(move || {
                        let trace = buffer.writer();
                        for value in 0..each {
                            let ticks = u64::from(value) << 8 | u64::from(number);
                            trace.record_at(ticks, Kind::Cqe, qpn(number), value);
                        }
                    });
                }
            });
            let mut next: BTreeMap<u32, u32> = BTreeMap::new();
            let mut found = 0;
            for chunk in &chunks {
                for event in chunk.events() {
                    found += 1;
                    let next = next.entry(event.qpn().get()).or_default();
                    assert_eq!(event.value(), *next, "queue {:?}", event.qpn());
                    *next += 1;
                    let ticks = u64::from(event.value()) << 8 | u64::from(event.qpn().get());
                    assert_eq!((event.ticks, event.kind()), (ticks, Some(Kind::Cqe)));
                }
            }
            assert_eq!(found + buffer.lost(), all);
            assert_eq!(found == all, room > 5, "{found} of {all}");
        }
    }
}
