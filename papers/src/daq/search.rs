//! The search alone: what it finds in events, and how long it takes.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Serialize;
use warpbell::Word64;
use warpbell_host_init::{Grid, Launch, Node, entry};
use warpbell_kernels::place::Place;
use warpbell_paper_kernels::daq::{DaqBatch, Entry, Primitive, RINGS, daq_batch};

use super::WARP;
use super::events::{self, Event, LEAST, Quality};
use crate::Error;

/// How well the search does.
#[derive(Clone, Debug, Serialize)]
pub struct Search {
    /// Events that were searched.
    pub events: usize,
    /// What it found in them.
    pub quality: Quality,
    /// What it took for all of them: the median of several times.
    pub microseconds: f64,
}

impl Search {
    /// The search in all events that a seed gives.
    ///
    /// # Errors
    /// The kernel failed.
    pub fn new(node: &Node, seed: u64) -> Result<Self, Error> {
        let events = events::all(seed);
        // A CPU has no launch to get used to.
        let times = if node.gpu().is_some() { TIMES } else { 1 };
        let (found, mut times) = timed(node, &events, times)?;
        let found: Vec<_> = found
            .iter()
            .map(|found| found.map(Primitive::from_bits))
            .collect();
        times.sort();
        Ok(Self {
            events: events.len(),
            quality: Quality::of(&events, &found),
            microseconds: times[times.len() / 2].as_secs_f64() * 1e6,
        })
    }

    /// What there is to say, in two lines.
    pub fn lines(&self) -> [String; 2] {
        let Self {
            events,
            quality,
            microseconds,
        } = self;
        let met = |met| if met { "met" } else { "missed" };
        let [efficiency, fakes] = [quality.efficiency(), quality.fake_rate()];
        let (rings, found) = (quality.rings, quality.all_found);
        [
            format!(
                "Of {rings} rings with at least {LEAST} hits {:.1} % are found, target {:.0} %: {}. Of {found} that are found {:.1} % \
                    are fakes, target below {:.0} %: {}.",
                efficiency * 100.0,
                EFFICIENCY * 100.0,
                met(efficiency >= EFFICIENCY),
                fakes * 100.0,
                FAKES * 100.0,
                met(fakes < FAKES)
            ),
            format!(
                "The search takes {:.3} µs an event: {events} of them, as many at once as there is room for.",
                microseconds / *events as f64
            ),
        ]
    }
}

/// Of the rings with enough hits so many are to be found.
pub const EFFICIENCY: f64 = 0.95;
/// Of those that are found fewer than so many are to be fakes.
pub const FAKES: f64 = 0.05;
/// Events of a launch on a CPU, where each is a thread.
const CPU_WARPS: usize = 128;
/// How often a GPU's search is timed.
const TIMES: u32 = 5;

/// The primitives of an event, in bits.
type Found = [u64; RINGS as usize];

/// Seeks rings in all events.
///
/// # Errors
/// The kernel failed.
pub(super) fn search(node: &Node, events: &[Event]) -> Result<Vec<Found>, Error> {
    timed(node, events, 1).map(|(found, _)| found)
}

/// Seeks them so many times; gives how long each took.
///
/// # Errors
/// As for [`search`].
fn timed(node: &Node, events: &[Event], times: u32) -> Result<(Vec<Found>, Vec<Duration>), Error> {
    let bytes = events::bytes(events);
    let hits = node.words(bytes.len() / 8)?;
    for (word, bytes) in hits.iter().zip(bytes.as_chunks().0) {
        word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
    }
    let list = node.words(events.len())?;
    for (slot, (word, event)) in (0..).zip(list.iter().zip(events)) {
        word.store(Entry::new(slot, event.count).0, Ordering::Relaxed);
    }
    let found = node.words(RINGS as usize * events.len())?;
    let batch = |first: usize, events: usize| DaqBatch {
        // SAFETY: this memory outlives the launch; kernels alone use it meanwhile.
        events: unsafe { Place::new(hits.as_ptr(), hits.len() as u64) },
        // SAFETY: as above.
        list: unsafe { Place::new(list[first..].as_ptr(), events as u64) },
        // SAFETY: as above.
        primitives: unsafe { Place::new(found.as_ptr(), found.len() as u64) },
        at_least_ns: 0,
    };
    let at_once = match node.gpu() {
        Some(_) => events.len(),
        None => CPU_WARPS,
    };
    let mut taken = Vec::new();
    for _ in 0..times {
        let began = Instant::now();
        for first in (0..events.len()).step_by(at_once) {
            let blocks = at_once.min(events.len() - first);
            let grid = Grid::new(blocks as u32, WARP);
            let batch = batch(first, blocks);
            node.run(&[Launch::new(entry!(daq_batch), grid, batch)], &[])?;
        }
        taken.push(began.elapsed());
    }
    let found = found.as_chunks().0.iter();
    let found = found.map(|words: &[Word64; RINGS as usize]| {
        words.each_ref().map(|word| word.load(Ordering::Relaxed))
    });
    Ok((found.collect(), taken))
}
