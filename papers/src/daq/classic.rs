//! The receiver whose host drives the network: it looks for events, launches a kernel for those that are there, waits for
//! its end, and posts the primitives.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use warpbell_bench::Error as BenchError;
use warpbell_bench::cause;
use warpbell_bench::run::launch::LIMIT_US;
use warpbell_host_init::{Grid, Launch, QueuePair, entry};
use warpbell_kernels::place::Place;
use warpbell_paper_kernels::daq::{DaqBatch, END, Entry, PRIMITIVE_BYTES, daq_batch, slot};
use warpbell_paper_kernels::path::Path;

use super::WARP;
use super::receiver::Receiver;
use crate::Error;
use crate::rig::{End, HostQueue};

/// How far a way has come.
#[derive(Clone, Debug)]
struct Way {
    number: u32,
    slots: u32,
    /// Events taken.
    taken: u32,
    /// What the next one's entry says at least.
    least: u64,
    /// What has come for the next launch: slots, and what stood in their entries.
    batch: Vec<(u32, Entry)>,
    /// Where its last entry stood.
    end: Option<u32>,
}

impl Way {
    fn new(number: u32, slots: u32) -> Self {
        Self {
            number,
            slots,
            taken: 0,
            least: Entry::FIRST,
            batch: Vec::new(),
            end: None,
        }
    }

    /// Takes what has come, no more than there are slots.
    fn look(&mut self, end: &End) {
        while self.end.is_none() && self.batch.len() < self.slots as usize {
            let slot = slot(self.number, self.slots, self.taken);
            match end.told(slot) {
                END => self.end = Some(slot),
                told if told >= self.least => {
                    self.least = Entry(told).next();
                    self.taken = self.taken.wrapping_add(1);
                    self.batch.push((slot, Entry(told)));
                }
                _ => return,
            }
        }
    }
}

/// Tells the trigger that there is no more, behind all primitives.
fn end(ways: &[Way], queues: &mut [HostQueue<'_>], path: &Path<'_>) -> Result<(), Error> {
    for (way, queue) in ways.iter().zip(queues) {
        let end = way.end.map(|slot| path.tell(slot, END));
        queue.post(end.into_iter())?;
        queue.drain()?;
    }
    Ok(())
}

impl Receiver<'_> {
    /// Takes events until the detector says that there is no more.
    pub(super) fn by_host(
        &self,
        path: Path<'_>,
        detector: Option<Launch<'_>>,
        pairs: &[&QueuePair],
        ready: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Self {
            case,
            node,
            end: own,
            ..
        } = *self;
        let list = node.words((case.ways * case.slots) as usize)?;
        let batch = DaqBatch {
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            events: unsafe { self.ring.place() },
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            list: unsafe { Place::new(list.as_ptr(), list.len() as u64) },
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            primitives: unsafe { self.primitives.place() },
            at_least_ns: case.at_least_ns(),
        };
        let launch = |events: u32| {
            let grid = Grid::new(events, WARP);
            node.run(&[Launch::new(entry!(daq_batch), grid, batch)], &[])
        };
        // Once ahead, so that no first launch counts: of an event without hits.
        list[0].store(Entry::new(0, 0).0, Ordering::Relaxed);
        launch(1)?;
        let mut queues = own.host_queues()?;
        let mut ways: Vec<Way> = (0..case.ways)
            .map(|number| Way::new(number, case.slots))
            .collect();
        ready()?;
        let detector = detector.as_slice();
        thread::scope(|scope| {
            // None of a detector that is a rank of its own.
            let beside = (!detector.is_empty()).then(|| {
                scope.spawn(|| Ok::<_, Error>(node.run_for(detector, pairs, case.limit)?))
            });
            let mut receive = || {
                let mut since = Instant::now();
                loop {
                    // Before the look: what came last is seen.
                    let over = beside.as_ref().is_some_and(|beside| beside.is_finished());
                    ways.iter_mut().for_each(|way| way.look(own));
                    if ways.iter().all(|way| way.batch.is_empty()) {
                        let Some(silent) = ways.iter().find(|way| way.end.is_none()) else {
                            return end(&ways, &mut queues, &path);
                        };
                        if over {
                            return Ok(());
                        }
                        if since.elapsed() > Duration::from_micros(LIMIT_US) {
                            let part = silent.number;
                            return Err(BenchError::Silent { part }.into());
                        }
                        thread::yield_now();
                        continue;
                    }
                    let gathered = Instant::now() + case.gather;
                    while Instant::now() < gathered {
                        ways.iter_mut().for_each(|way| way.look(own));
                        thread::yield_now();
                    }
                    let mut events = 0;
                    for (slot, entry) in ways.iter().flat_map(|way| &way.batch) {
                        let listed = Entry::new(u64::from(*slot), entry.hits());
                        list[events as usize].store(listed.0, Ordering::Relaxed);
                        events += 1;
                    }
                    launch(events)?;
                    for (way, queue) in ways.iter_mut().zip(&mut queues) {
                        let posts = way.batch.iter().flat_map(|&(slot, entry)| {
                            let from = u64::from(PRIMITIVE_BYTES) * u64::from(slot);
                            let primitives = path.write(from, from, PRIMITIVE_BYTES);
                            [primitives, path.tell(slot, entry.0)]
                        });
                        let posts: Vec<_> = posts.collect();
                        if !posts.is_empty() {
                            queue.post(posts.into_iter())?;
                        }
                        way.batch.clear();
                    }
                    since = Instant::now();
                }
            };
            let received = receive();
            let detector = beside.map_or(Ok(()), |beside| {
                let detector = beside.join();
                detector.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            cause::first_cause([detector, received])
        })
    }
}
