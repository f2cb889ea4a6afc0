//! A stream of a detector's events, in each of which rings are sought while the next ones arrive, as NaNet's (Ammendola
//! and others 2017): a receiver that stays and drives the network itself, one that is launched for each batch and leaves
//! the network to its host, and the detector of both.

mod circle;
mod detector;
mod rings;

use warpbell::wqe::{Remote, Wqe};
use warpbell::{Deadline, Exclusive, Warp, block, kernel, warp};

use crate::path::Path;
use warpbell_kernels::outcome::{Failure, Outcome};
use warpbell_kernels::place::Place;

pub use circle::{BAND, Circle, Hit, RADII, UNITS};
pub use detector::{BUDGETS_NS, DaqDetector, TRUTH_WORDS, daq_detector};
pub use rings::{FEWEST, Kind, Primitive, RINGS};

/// The most hits of an event: two for each lane of a warp.
pub const HITS: u32 = 64;
/// Bytes of an event's primitives.
pub const PRIMITIVE_BYTES: u32 = 8 * RINGS;
/// Bytes of an event's slot.
pub const EVENT_BYTES: u32 = 4 * HITS;
/// What stands in the event queue behind the last event.
pub const END: u64 = u64::MAX;

/// The entry of an event queue: which event of its way has come, and how many hits it has. Entries of a way rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Entry(pub u64);

impl Entry {
    /// Of event `number` of its way, with so many hits.
    #[inline(always)]
    pub const fn new(number: u64, hits: u32) -> Self {
        Self((number + 1) << 8 | hits as u64 & 0xff)
    }

    /// The number of the event.
    #[inline(always)]
    pub const fn number(self) -> u64 {
        (self.0 >> 8).wrapping_sub(1)
    }

    /// Its hits, as its sender counted them.
    #[inline(always)]
    pub const fn hits(self) -> u32 {
        (self.0 & 0xff) as u32
    }

    /// The least entry of any event behind it.
    #[inline(always)]
    pub const fn next(self) -> u64 {
        ((self.0 >> 8) + 1) << 8
    }

    /// The least entry of all.
    pub const FIRST: u64 = Self::new(0, 0).0;
}

/// A slot of the ring, if it is there.
#[inline(always)]
fn event(events: Place, slot: u64) -> Result<Place, Failure> {
    let words = u64::from(HITS / 2);
    events.part(slot.saturating_mul(words), words)
}

/// The rings of an event, in bits, after at least so many nanoseconds; all lanes of a warp that is a block call it.
#[inline(always)]
fn seek(events: Place, slot: u64, hits: u32, at_least_ns: u64) -> [u64; RINGS as usize] {
    let mut wait = Deadline::after_ns(at_least_ns).wait();
    let found = rings::seek(events, slot, hits);
    while at_least_ns > 0 && !wait.expired() {}
    found
}

/// The receiver that stays: each of its blocks is a warp, which takes the events of a way of its own.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DaqReceiver<'a> {
    /// To the trigger; its signals are the event queue, a word for each slot.
    pub path: Path<'a>,
    /// The receive ring, slot after slot, way after way.
    pub events: Place,
    /// Slots of a way, a power of two.
    pub slots: u32,
    /// Nanoseconds that each event takes at least.
    pub at_least_ns: u64,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Takes events until the detector says that there is no more.
#[kernel]
pub fn daq_receiver(p: DaqReceiver<'_>) {
    p.outcome.record(|| p.run());
}

impl DaqReceiver<'_> {
    #[inline(always)]
    fn run(&self) -> Result<(), Failure> {
        let path = &self.path;
        let way = block::index();
        let slots = (u64::from(way) + 1) * u64::from(self.slots);
        self.events
            .holds(slots.saturating_mul(u64::from(HITS / 2)))?;
        let Some(queue) = path.queues.get(way.into()) else {
            return Ok(());
        };
        // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
        let mut queue = unsafe { queue.open_together::<Exclusive, Warp>() }?;
        let leads = warp::lane_id() == 0;
        let (mut taken, mut least) = (0u32, Entry::FIRST);
        loop {
            let slot = slot(way, self.slots, taken);
            let told = path.signal(slot)?;
            let told = told.wait_together::<Warp>(least, path.limit())?;
            if told == END {
                let end = path.tell(slot, END);
                let _ = queue.post_if(leads.then_some(end), path.limit())?;
                break;
            }
            let entry = Entry(told);
            let found = seek(self.events, slot.into(), entry.hits(), self.at_least_ns);
            // The slot is free for the detector once it has these: no lane reads it any more.
            let primitive = Wqe::write_value(found, path.primitives(slot));
            let mut both = queue.batch(2, path.limit())?;
            let _ = both.post_if(leads.then_some(primitive))?;
            let _ = both.post_if(leads.then_some(path.tell(slot, told)))?;
            drop(both);
            taken = taken.wrapping_add(1);
            least = entry.next();
        }
        Ok(queue.drain(path.limit())?)
    }
}

/// The slot of the event that comes behind so many others of its way.
#[inline(always)]
pub const fn slot(way: u32, slots: u32, before: u32) -> u32 {
    way.wrapping_mul(slots)
        .wrapping_add(before & slots.wrapping_sub(1))
}

impl Path<'_> {
    /// Where the primitives of a slot's event go.
    #[inline(always)]
    fn primitives(&self, slot: u32) -> Remote {
        self.target.at(u64::from(PRIMITIVE_BYTES) * u64::from(slot))
    }
}

/// The receiver that is launched for a batch: a block of a warp for each event, and nobody sends.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DaqBatch {
    /// The receive ring.
    pub events: Place,
    /// An [`Entry`] for each event, with the number of its slot for its number.
    pub list: Place,
    /// Room for [`RINGS`] primitives for each slot.
    pub primitives: Place,
    /// Nanoseconds that each event takes at least.
    pub at_least_ns: u64,
}

/// Seeks rings in each event of the batch. An event whose slot is not there is left alone.
#[kernel]
pub fn daq_batch(p: DaqBatch) {
    let entry = Entry(p.list.load(block::index()));
    let slot = entry.number();
    let words = u64::from(RINGS);
    let (Ok(_), Ok(to)) = (
        event(p.events, slot),
        p.primitives.part(slot.saturating_mul(words), words),
    ) else {
        return;
    };
    let found = seek(p.events, slot, entry.hits(), p.at_least_ns);
    if warp::lane_id() == 0 {
        to.store(0, found[0]);
        to.store(1, found[1]);
        to.store(2, found[2]);
    }
}
