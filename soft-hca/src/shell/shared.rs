//! Two rings of byte slots, one for each direction, in a [`Segment`] between
//! two processes.
//!
//! ```text
//! 0x0000  header: magic u64, version u32, slots u32, slot_bytes u32
//! 0x1000  ring of the maker:  pushed u64 @0, released u64 @128, asleep u32 @192, looked u64 @200,
//!                             producer gone u32 @256, consumer gone u32 @260
//! 0x2000  ring of the joiner: likewise
//! 0x3000  slots of the maker's ring, then slots of the joiner's
//! ```
//!
//! All numbers are in the machine's byte order. The other side can write every
//! byte at any moment: its counters are checked against the ring's size before
//! use, and slots are copied out before they are looked at.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::bell::{Bell, Words};
use super::segment::{Segment, SegmentError};

const MAGIC: u64 = u64::from_le_bytes(*b"WARPWIRE");
const VERSION: u32 = 3;
const PAGE: usize = 4096;
const SLOTS_AT: usize = 3 * PAGE;
const LARGEST_SLOTS: u32 = 1 << 16;
const LARGEST_SLOT_BYTES: u32 = 1 << 16;
/// Both rings at their largest, and the pages in front.
pub(super) const LARGEST_SEGMENT: u64 =
    SLOTS_AT as u64 + 2 * LARGEST_SLOTS as u64 * LARGEST_SLOT_BYTES as u64;

/// Which ring of the segment a side fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Made the segment.
    Maker,
    /// Received it.
    Joiner,
}

/// Number and size of the slots, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub slots: u32,
    pub slot_bytes: u32,
}

impl Shape {
    fn check(self) -> Result<Self, SegmentError> {
        let Self { slots, slot_bytes } = self;
        let fits = slots.is_power_of_two()
            && slots <= LARGEST_SLOTS
            && slot_bytes.is_multiple_of(64)
            && (64..=LARGEST_SLOT_BYTES).contains(&slot_bytes);
        if fits {
            Ok(self)
        } else {
            Err(SegmentError::WrongShape { slots, slot_bytes })
        }
    }

    fn ring_bytes(self) -> usize {
        self.slots as usize * self.slot_bytes as usize
    }

    fn segment_bytes(self) -> usize {
        SLOTS_AT + 2 * self.ring_bytes()
    }
}

/// The other process has written a counter that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Corrupt;

/// Makes the segment of a new wire.
pub(super) fn create(shape: Shape) -> Result<Segment, SegmentError> {
    let shape = shape.check()?;
    let segment = Segment::create(shape.segment_bytes())?;
    // SAFETY: the segment is page-aligned, at least three pages long, and not
    // yet known to anybody else.
    unsafe {
        segment.start().cast::<u64>().write(MAGIC);
        segment.start().add(8).cast::<u32>().write(VERSION);
        segment.start().add(12).cast::<u32>().write(shape.slots);
        segment
            .start()
            .add(16)
            .cast::<u32>()
            .write(shape.slot_bytes);
    }
    Ok(segment)
}

/// Reads the header of a segment, once, and checks it against the size.
fn shape_of(segment: &Segment) -> Result<Shape, SegmentError> {
    // SAFETY: every segment has at least one page and is page-aligned. Volatile,
    // so that each value is read exactly once even if the other side changes it.
    let (magic, version, slots, slot_bytes) = unsafe {
        (
            segment.start().cast::<u64>().read_volatile(),
            segment.start().add(8).cast::<u32>().read_volatile(),
            segment.start().add(12).cast::<u32>().read_volatile(),
            segment.start().add(16).cast::<u32>().read_volatile(),
        )
    };
    if magic != MAGIC {
        return Err(SegmentError::WrongMagic { found: magic });
    }
    if version != VERSION {
        return Err(SegmentError::WrongVersion {
            found: version,
            expected: VERSION,
        });
    }
    let shape = Shape { slots, slot_bytes }.check()?;
    let (found, expected) = (segment.bytes() as u64, shape.segment_bytes() as u64);
    if found != expected {
        return Err(SegmentError::WrongSize { found, expected });
    }
    Ok(shape)
}

/// Opens both rings of a segment: the one that `side` fills, and the other one. The socket leads to the other side.
pub(super) fn open(
    segment: Segment,
    line: UnixStream,
    side: Side,
) -> Result<(Producer, Consumer), SegmentError> {
    let shape = shape_of(&segment)?;
    let (segment, line) = (Arc::new(segment), Arc::new(line));
    let ring = |index| Ring {
        segment: segment.clone(),
        line: line.clone(),
        shape,
        index,
    };
    let (mine, theirs) = match side {
        Side::Maker => (ring(0), ring(1)),
        Side::Joiner => (ring(1), ring(0)),
    };
    let producer = Producer {
        ring: mine,
        pushed: 0,
        published: 0,
        released: 0,
        unheard: false,
        woken: 0,
    };
    let consumer = Consumer {
        ring: theirs,
        released: 0,
        taken: 0,
        pushed: 0,
    };
    Ok((producer, consumer))
}

/// One ring of a segment.
#[derive(Clone)]
pub(super) struct Ring {
    segment: Arc<Segment>,
    line: Arc<UnixStream>,
    shape: Shape,
    index: usize,
}

impl Ring {
    fn counter(&self, offset: usize) -> &AtomicU64 {
        let at = (1 + self.index) * PAGE + offset;
        // SAFETY: the counter pages lie inside the segment (checked by `open`),
        // the offset is a multiple of eight, and atomics may change under us.
        unsafe { AtomicU64::from_ptr(self.segment.start().add(at).cast()) }
    }

    fn pushed(&self) -> &AtomicU64 {
        self.counter(0)
    }

    fn released(&self) -> &AtomicU64 {
        self.counter(128)
    }

    /// What the consumer's thread sleeps by.
    pub fn words(&self) -> Words<'_> {
        Words {
            asleep: self.word(192),
            looked: self.counter(200),
            line: &self.line,
        }
    }

    /// A socket to the other side of the segment.
    pub fn line(&self) -> &UnixStream {
        &self.line
    }

    /// Whether all packets that were published have been given back.
    pub fn is_empty(&self) -> bool {
        // Relaxed: who finds packets looks at them through `Consumer::take`.
        self.pushed().load(Ordering::Relaxed) == self.released().load(Ordering::Relaxed)
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        let at = (1 + self.index) * PAGE + offset;
        // SAFETY: as for `counter`, with a multiple of four.
        unsafe { AtomicU32::from_ptr(self.segment.start().add(at).cast()) }
    }

    fn producer_gone(&self) -> &AtomicU32 {
        self.word(256)
    }

    fn consumer_gone(&self) -> &AtomicU32 {
        self.word(260)
    }

    fn slot(&self, count: u64) -> *mut u8 {
        let slot = (count & u64::from(self.shape.slots - 1)) as usize;
        let at =
            SLOTS_AT + self.index * self.shape.ring_bytes() + slot * self.shape.slot_bytes as usize;
        // SAFETY: both rings lie inside the segment, whose size `open` checked.
        unsafe { self.segment.start().add(at) }
    }

    /// Whether a counter written by the other side leaves between 0 and `slots`
    /// entries under way.
    fn check(&self, pushed: u64, released: u64) -> Result<(), Corrupt> {
        let under_way = pushed.wrapping_sub(released);
        if under_way <= u64::from(self.shape.slots) {
            Ok(())
        } else {
            Err(Corrupt)
        }
    }
}

/// The side that fills a ring.
pub(super) struct Producer {
    ring: Ring,
    /// Slots filled, and how many of them the consumer knows of.
    pushed: u64,
    published: u64,
    /// The newest `released` seen, checked.
    released: u64,
    /// Whether waking the consumer's thread was left for later.
    unheard: bool,
    /// When it was last woken.
    woken: u64,
}

impl Producer {
    /// The next free slot, of [`Producer::slot_bytes`] bytes, aligned to 64.
    pub fn slot(&mut self) -> Result<Option<*mut u8>, Corrupt> {
        let slots = u64::from(self.ring.shape.slots);
        if self.pushed - self.released == slots {
            // The consumer's reads of the slot before our writes, because both
            // touch the same memory: acquire pairs with `Consumer::release`.
            let released = self.ring.released().load(Ordering::Acquire);
            self.ring.check(self.pushed, released)?;
            self.released = released;
            if self.pushed - self.released == slots {
                return Ok(None);
            }
        }
        Ok(Some(self.ring.slot(self.pushed)))
    }

    /// Takes the slot just filled as the next of those that [`publish`](Self::publish) hands over; gives their number.
    pub fn fill(&mut self) -> u64 {
        self.pushed += 1;
        self.pushed - self.published
    }

    /// Hands the filled slots to the consumer.
    pub fn publish(&mut self) {
        self.published = self.pushed;
        // The slots before the counter, because the consumer reads a slot as
        // soon as the counter covers it.
        self.ring.pushed().store(self.pushed, Ordering::Release);
        self.unheard = !self.ring.words().ring(&mut self.woken);
    }

    /// Hands over what has not been yet, and wakes the consumer's thread if somebody who looked at the ring has not
    /// taken what was published, and looks no longer.
    pub fn end_step(&mut self) {
        if self.published != self.pushed {
            self.publish();
        } else if self.unheard {
            self.unheard = !self.ring.is_empty() && !self.ring.words().ring(&mut self.woken);
        }
    }

    /// Bytes of a slot.
    pub fn slot_bytes(&self) -> usize {
        self.ring.shape.slot_bytes as usize
    }

    /// Whether the other side has said that it no longer reads.
    pub fn is_closed(&self) -> bool {
        self.ring.consumer_gone().load(Ordering::Acquire) != 0
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.ring.producer_gone().store(1, Ordering::Release);
    }
}

/// The side that empties a ring.
pub(super) struct Consumer {
    ring: Ring,
    released: u64,
    taken: u64,
    /// The newest `pushed` seen, checked.
    pushed: u64,
}

impl Consumer {
    /// The next full slot. It stays readable until [`Consumer::release`]; the
    /// other process may still change it.
    pub fn take(&mut self) -> Result<Option<*const u8>, Corrupt> {
        if self.taken == self.pushed {
            // The counter before the slot, because the producer wrote them in
            // the opposite order: acquire pairs with `Producer::publish`.
            let pushed = self.ring.pushed().load(Ordering::Acquire);
            self.ring.check(pushed, self.released)?;
            if pushed.wrapping_sub(self.released) < self.taken - self.released {
                return Err(Corrupt);
            }
            self.pushed = pushed;
            if self.taken == self.pushed {
                return Ok(None);
            }
        }
        let slot = self.ring.slot(self.taken);
        self.taken += 1;
        Ok(Some(slot))
    }

    /// Gives back every slot taken so far.
    pub fn release(&mut self) {
        if self.released != self.taken {
            self.released = self.taken;
            // Our reads before the counter, because the producer writes into
            // the slot as soon as it sees it.
            self.ring.released().store(self.released, Ordering::Release);
        }
    }

    /// Slots taken and not given back.
    pub fn in_hand(&self) -> u64 {
        self.taken - self.released
    }

    /// By which the producer learns of looks at the ring while this side's thread sleeps.
    pub fn words(&self) -> Words<'_> {
        self.ring.words()
    }

    /// What this side's thread sleeps by.
    pub fn bell(&self) -> Bell {
        Bell::Ring(self.ring.clone())
    }

    /// A socket to the other side.
    pub fn line(&self) -> &UnixStream {
        self.ring.line()
    }

    /// Whether the other side has said that it no longer writes.
    pub fn is_closed(&self) -> bool {
        self.ring.producer_gone().load(Ordering::Acquire) != 0
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.ring.consumer_gone().store(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::net::UnixStream;
    use std::prelude::v1::*;
    use std::time::Duration;

    const SHAPE: Shape = Shape {
        slots: 4,
        slot_bytes: 128,
    };
    /// For what is there, on a machine that is busy with other things.
    const PATIENCE: Duration = Duration::from_secs(300);

    /// Gives a segment away, and keeps this end of its line.
    fn line_of(segment: &Segment, socket: &UnixStream) -> UnixStream {
        let (line, theirs) = UnixStream::pair().unwrap();
        segment.send(socket, &theirs).unwrap();
        line
    }

    /// Both sides of one wire, and a pointer to its start for a hostile hand.
    fn pair() -> ((Producer, Consumer), (Producer, Consumer), *mut u8) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let made = create(SHAPE).unwrap();
        let line = line_of(&made, &ours);
        let (joined, their_line) = Segment::receive(&theirs, PATIENCE).unwrap();
        let start = made.start();
        let maker = open(made, line, Side::Maker).unwrap();
        (
            maker,
            open(joined, their_line, Side::Joiner).unwrap(),
            start,
        )
    }

    fn push(producer: &mut Producer, value: u64) -> bool {
        let Some(slot) = producer.slot().unwrap() else {
            return false;
        };
        // SAFETY: a slot has 128 bytes and is aligned to 64.
        unsafe { slot.cast::<u64>().write(value) };
        producer.fill();
        producer.publish();
        true
    }

    fn take(consumer: &mut Consumer) -> Option<u64> {
        let slot = consumer.take().unwrap()?;
        // SAFETY: as above.
        Some(unsafe { slot.cast::<u64>().read() })
    }

    #[test]
    fn carries_slots_both_ways_in_order() {
        let ((mut to_joiner, mut from_joiner), (mut to_maker, mut from_maker), _) = pair();
        for round in 0..10 {
            for entry in 0..4 {
                assert!(push(&mut to_joiner, round * 4 + entry));
                assert!(push(&mut to_maker, 1000 + round * 4 + entry));
            }
            assert!(!push(&mut to_joiner, 0), "full");
            for entry in 0..4 {
                assert_eq!(take(&mut from_maker), Some(round * 4 + entry));
                assert_eq!(take(&mut from_joiner), Some(1000 + round * 4 + entry));
            }
            assert_eq!(take(&mut from_maker), None);
            assert!(!push(&mut to_joiner, 0), "taken, not released");
            from_maker.release();
            from_joiner.release();
        }
        drop(to_joiner);
        assert!(from_maker.is_closed());
        drop(from_joiner);
        assert!(to_maker.is_closed());
    }

    /// What `open` makes of a segment whose header was changed.
    fn opened(change: impl FnOnce(*mut u32)) -> SegmentError {
        let segment = create(SHAPE).unwrap();
        change(segment.start().cast());
        let (line, _) = UnixStream::pair().unwrap();
        let opened = open(segment, line, Side::Joiner);
        opened.err().expect("a bad header")
    }

    #[test]
    fn names_every_kind_of_bad_header() {
        let set = |word: usize, value: u32| {
            // SAFETY: the header has five words of four bytes.
            move |header: *mut u32| unsafe { header.add(word).write(value) }
        };
        assert!(matches!(opened(set(0, 1)), SegmentError::WrongMagic { .. }));
        assert!(matches!(
            opened(set(2, 1)),
            SegmentError::WrongVersion {
                found: 1,
                expected: 3
            }
        ));
        for slots in [0, 3, 1 << 17, u32::MAX] {
            let error = opened(set(3, slots));
            assert!(
                matches!(error, SegmentError::WrongShape { slots: found, .. } if found == slots)
            );
        }
        for bytes in [0, 63, 100, 1 << 17, u32::MAX] {
            let error = opened(set(4, bytes));
            assert!(
                matches!(error, SegmentError::WrongShape { slot_bytes, .. } if slot_bytes == bytes)
            );
        }
        // Shapes within the limits that need more, or less, than is there.
        assert!(matches!(opened(set(3, 8)), SegmentError::WrongSize { .. }));
        assert!(matches!(opened(set(4, 64)), SegmentError::WrongSize { .. }));
    }

    #[test]
    fn a_counter_that_cannot_be_is_corrupt() {
        let ((mut to_joiner, mut from_joiner), _, start) = pair();
        // The joiner's ring is the second one: its counter page starts at 0x2000.
        // SAFETY: the counters lie at these places, see the module's head.
        let (pushed, released) = unsafe {
            (
                start.add(0x2000).cast::<u64>(),
                start.add(0x1080).cast::<u64>(),
            )
        };
        for value in [5, 6, u64::MAX, 1 << 63] {
            // SAFETY: as above.
            unsafe { pushed.write_volatile(value) };
            assert_eq!(from_joiner.take(), Err(Corrupt), "pushed {value}");
        }
        // SAFETY: as above.
        unsafe { pushed.write_volatile(2) };
        assert!(from_joiner.take().unwrap().is_some() && from_joiner.take().unwrap().is_some());
        for value in [1, 5, 6, u64::MAX] {
            // SAFETY: as above.
            unsafe { pushed.write_volatile(value) };
            assert_eq!(
                from_joiner.take(),
                Err(Corrupt),
                "pushed {value} after taking two"
            );
        }
        for entry in 0..4 {
            assert!(push(&mut to_joiner, entry));
        }
        for value in [5, u64::MAX, 1 << 63] {
            // SAFETY: as above.
            unsafe { released.write_volatile(value) };
            assert_eq!(to_joiner.slot(), Err(Corrupt), "released {value}");
        }
    }

    #[test]
    fn names_what_is_no_shared_memory() {
        use rustix::fs::MemfdFlags;
        use rustix::net::{AddressFamily, SocketFlags, SocketType};
        use std::io::Write;

        let receive = |send: &dyn Fn(&UnixStream)| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            send(&theirs);
            drop(theirs);
            Segment::receive(&ours, PATIENCE)
                .err()
                .expect("nothing good")
        };
        assert!(matches!(receive(&|_| {}), SegmentError::Closed));
        let byte = receive(&|mut socket| socket.write_all(b"W").unwrap());
        assert!(matches!(byte, SegmentError::NoMemory { bytes: 1 }));
        // Something else than a connection as the line, for which poll() would be ready for ever.
        let device = std::fs::File::open("/dev/null").unwrap();
        let (one, _other) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        for line in [device.into(), one] {
            let line = UnixStream::from(line);
            let no_line = receive(&|socket| create(SHAPE).unwrap().send(socket, &line).unwrap());
            assert!(matches!(no_line, SegmentError::NoLine));
        }
        // A file that its owner could still shrink under us.
        let plain = rustix::fs::memfd_create("plain", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&plain, 1 << 16).unwrap();
        assert!(matches!(
            Segment::adopt(plain).err(),
            Some(SegmentError::NotSealed)
        ));
        // Sealed, but less than a header.
        let empty = Segment::create(64).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        line_of(&empty, &theirs);
        let error = Segment::receive(&ours, PATIENCE).err();
        assert!(matches!(
            error,
            Some(SegmentError::WrongSize { found: 64, .. })
        ));
        // Nobody sends anything.
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let error = Segment::receive(&ours, Duration::from_millis(50)).err();
        assert!(matches!(error, Some(SegmentError::TimedOut { .. })));
    }

    proptest! {
        /// Whatever the first page says, opening it ends in a value.
        #[test]
        fn survives_any_header(words in proptest::collection::vec(any::<u32>(), 5)) {
            let segment = create(SHAPE).unwrap();
            for (index, word) in words.iter().enumerate() {
                // SAFETY: the header's page has room for five words.
                unsafe { segment.start().cast::<u32>().add(index).write(*word) };
            }
            let (line, _) = UnixStream::pair().unwrap();
            prop_assert!(open(segment, line, Side::Joiner).is_err());
        }
    }
}
