//! Posting: each way of it, in each place and scope, and its floor.

use warpbell::trace::{CHUNK, Event, Kind};
use warpbell::{FenceReach, SendDoorbell, Slice};
use warpbell_bench::samples::{Samples, values};
use warpbell_host_init::trace::TraceMemory;
use warpbell_host_init::{Entry, Grid, Launch, Shared, entry};
use warpbell_hw_tests::here;
use warpbell_kernels::bare::{Bare, bare_block, bare_thread, bare_warp};
use warpbell_kernels::outcome::Outcome;
use warpbell_kernels::posting::{
    Ahead, ClockRate, Posting, Span, TracedPosting, posting_block_thread, posting_block_warp,
    posting_clock_rate, posting_exclusive_batch, posting_exclusive_block, posting_exclusive_inline,
    posting_exclusive_signal, posting_exclusive_thread, posting_exclusive_warp, posting_gpu_inline,
    posting_gpu_signal, posting_gpu_thread, posting_gpu_warp, posting_traced_gpu_thread,
    posting_traced_thread, posting_traced_warp, posting_unchecked_block, posting_unchecked_thread,
};

use super::cases::{Case, Hand, Shape, Way};
use super::rig::{DEPTH, Lap, QPN, Rig, numbers, write};
use super::table::{Figures, Line};

/// The longest wait of a kernel, in microseconds.
pub const LIMIT_US: u64 = 10_000_000;

/// Doorbells from one look at the CQE to the next in the steady lap; a power of two.
const STRETCH: u32 = 64;

/// How much is measured, and how fast the SM's clock is.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    pub posts: u32,
    pub repetitions: u32,
    pub cycles_per_ns: f64,
}

/// One row's circumstances.
#[derive(Clone, Copy, Debug)]
struct Place {
    lap: Lap,
    pinned: bool,
    reach: FenceReach,
    doorbell: SendDoorbell,
}

pub const REACHES: [FenceReach; 2] = [FenceReach::Gpu, FenceReach::System];

/// A failure of the set-up, in words.
pub fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// What became of a kernel.
pub fn outcome() -> Result<Shared<Outcome>, String> {
    Shared::new(here::kernels().placement(), Outcome::new()).map_err(words)
}

/// Cycles of an SM in a nanosecond of the GPU's clock; 1 on a CPU, whose cycles are nanoseconds.
pub fn clock_rate() -> Result<f64, String> {
    let found = numbers(2).map_err(words)?;
    let mut rate = Samples::default();
    for _ in 0..5 {
        let parameters = ClockRate {
            nanoseconds: 2_000_000,
            found: Slice::new(&found),
        };
        let launch = Launch::new(entry!(posting_clock_rate), Grid::ONE_THREAD, parameters);
        here::run(here::kernels(), &launch)?;
        let [cycles, nanoseconds] = [0, 1].map(|index: usize| values(&found[..])[index] as f64);
        rate.push(cycles / nanoseconds);
    }
    Ok(rate.median())
}

impl Effort {
    /// Posts of each thread: no more than the ring holds of all together.
    fn posts(&self, shape: &Shape) -> u32 {
        self.posts.min(DEPTH / shape.wqes_per_post())
    }

    /// A row for each lap, place of the doorbell, scope, and kind of doorbell.
    pub fn post(&self, case: &Case) -> Result<Vec<Line>, String> {
        let mut lines = Vec::new();
        let queues = case.shape.queues().max(case.floor.queues());
        for pinned in [false, true] {
            let rig = Rig::new(queues, pinned).map_err(words)?;
            for reach in REACHES {
                for doorbell in [SendDoorbell::WithRecord, SendDoorbell::WithoutRecord] {
                    for lap in Lap::ALL {
                        let place = Place {
                            lap,
                            pinned,
                            reach,
                            doorbell,
                        };
                        lines.push(self.row(case, &rig, place)?);
                    }
                }
            }
        }
        Ok(lines)
    }

    fn row(&self, case: &Case, rig: &Rig, place: Place) -> Result<Line, String> {
        let [mut ours, mut floor] = [(); 2].map(|()| Samples::default());
        for repetition in 0..=self.repetitions {
            let floored = match case.way.untraced() {
                Some(way) => self.once(&Case { way, ..*case }, rig, place)?,
                None => self.floor(case, rig, place)?,
            };
            let posted = self.once(case, rig, place)?;
            // The first round warms up.
            if repetition > 0 {
                floor.push(floored);
                ours.push(posted);
            }
        }
        let (with_record, wanted) = match place.doorbell {
            SendDoorbell::WithRecord => (true, case.with_record),
            SendDoorbell::WithoutRecord => (false, case.without_record),
        };
        // What is wanted is wanted here.
        let here = place.lap == Lap::Steady && place.pinned && place.reach == FenceReach::Gpu;
        Ok(Line {
            case: case.name.into(),
            record: Some(with_record),
            lap: place.lap.name(),
            doorbell: if place.pinned { "pinned" } else { "device" },
            scope: scope(place.reach),
            wqes: u64::from(self.posts(&case.shape) * case.shape.batch)
                * u64::from(case.shape.threads()),
            cycles: Figures::of(&ours),
            floor: Some(Figures::of(&floor)),
            ratio: Some(ours.over(&floor).median()),
            million_a_second: 1e3 * self.cycles_per_ns / ours.median(),
            against: None,
            wanted: None,
            reached: None,
        }
        .want(wanted.filter(|_| here)))
    }

    /// Cycles a WQE of a way.
    fn once(&self, case: &Case, rig: &Rig, place: Place) -> Result<f64, String> {
        let shape = &case.shape;
        // Where several share a queue, nobody knows how far the others are: there all of it is complete at once. So it
        // is where nobody looks.
        let looked_at = case.is_alone() && case.way.checks_credit();
        let stepwise = place.lap == Lap::Steady && looked_at;
        let completed = if stepwise { 0 } else { DEPTH };
        rig.renew(place.lap, completed).map_err(words)?;
        let completions = rig.completions().map_err(words)?;
        let handles = rig.handles(place.reach, place.doorbell).map_err(words)?;
        let (posts, timing) = (self.posts(shape), Timing::new(shape)?);
        let outcome = outcome()?;
        let parameters = Posting {
            queues: Slice::new(&handles),
            threads_per_queue: shape.threads_per_queue,
            posts,
            batch: shape.batch,
            ahead: Ahead {
                completions: Slice::new(&completions),
                stretch_log2: STRETCH.ilog2(),
                blocks: match stepwise {
                    true => STRETCH * shape.wqes_per_post(),
                    false => 0,
                },
                newest: place.lap.newest(0),
                qpn: QPN.get(),
            },
            write: write(),
            limit_us: LIMIT_US,
            span: timing.span(),
            outcome: &outcome,
        };
        if case.way.untraced().is_some() {
            self.run_traced(case, parameters)?;
        } else {
            let entry = entry(case.way);
            // SAFETY: the rig made the places, which outlive the launch.
            let launch = unsafe { Launch::new_unsafe(entry, shape.grid, parameters) };
            here::run(here::kernels(), &launch)?;
        }
        outcome.result().map_err(words)?;
        let end = place.lap.posted() + u64::from(posts * shape.wqes_per_post());
        self.check(case.name, rig, place, shape, end)?;
        Ok(timing.cycles_per_wqe(self, shape, posts))
    }

    /// Posts with a trace, and counts its events.
    fn run_traced(&self, case: &Case, posting: Posting<'_>) -> Result<(), String> {
        let shape = &case.shape;
        let doorbells = u64::from(posting.posts) * u64::from(shape.threads() / case.together());
        // Beside each doorbell there may be a reservation, and a writer has a chunk that it does not fill.
        let events = 2 * doorbells as usize + CHUNK * shape.threads() as usize;
        let placement = here::kernels().placement().of_states();
        let memory = TraceMemory::new(placement, events).map_err(words)?;
        let parameters = TracedPosting {
            posting,
            trace: memory.buffer(),
        };
        let entry: Entry<unsafe fn(_)> = match case.way {
            Way::TracedWarp => entry!(posting_traced_warp),
            Way::TracedGpuThread => entry!(posting_traced_gpu_thread),
            _ => entry!(posting_traced_thread),
        };
        // SAFETY: the rig made the places, which outlive the launch; the trace's memory is the kernels' processor's.
        let launch = unsafe { Launch::new_unsafe(entry, shape.grid, parameters) };
        here::run(here::kernels(), &launch)?;
        let (found, lost) = (memory.events(), memory.lost().map_err(words)?);
        let is_doorbell = |event: &Event| event.kind() == Some(Kind::Publish);
        let found = found
            .map_err(words)?
            .into_iter()
            .filter(is_doorbell)
            .count() as u64;
        match (found, lost) == (doorbells, 0) {
            true => Ok(()),
            false => Err(format!(
                "{}: {found} of {doorbells} doorbells in the trace, {lost} events lost",
                case.name
            )),
        }
    }

    /// The same of its floor.
    fn floor(&self, case: &Case, rig: &Rig, place: Place) -> Result<f64, String> {
        rig.renew(Lap::First, 0).map_err(words)?;
        let queues = rig.bare().map_err(words)?;
        let shape = &case.floor;
        let (posts, timing) = (self.posts(shape), Timing::new(shape)?);
        let parameters = Bare {
            queues: Slice::new(&queues),
            threads_per_queue: shape.threads_per_queue,
            posts,
            batch: shape.batch,
            mask: DEPTH - 1,
            qpn: QPN.get(),
            system: place.reach == FenceReach::System,
            record: place.doorbell == SendDoorbell::WithRecord,
            write: write(),
            span: timing.span(),
        };
        let entry: Entry<unsafe fn(_)> = match case.hand() {
            Hand::Thread => entry!(bare_thread),
            Hand::Warp => entry!(bare_warp),
            Hand::Block => entry!(bare_block),
        };
        // SAFETY: the rig made the queues' places, which outlive the launch.
        let launch = unsafe { Launch::new_unsafe(entry, shape.grid, parameters) };
        here::run(here::kernels(), &launch)?;
        let end = u64::from(posts * shape.wqes_per_post());
        self.check(case.name, rig, place, shape, end)?;
        Ok(timing.cycles_per_wqe(self, shape, posts))
    }

    /// Every queue was rung up to where it was posted, and its record says the same, if it has one.
    fn check(
        &self,
        what: &str,
        rig: &Rig,
        place: Place,
        shape: &Shape,
        end: u64,
    ) -> Result<(), String> {
        let queues = shape.queues() as usize;
        let rung = rig.rung().map_err(words)?;
        let recorded = rig.recorded().map_err(words)?;
        let record = match place.doorbell {
            SendDoorbell::WithRecord => end as u16,
            SendDoorbell::WithoutRecord => 0,
        };
        let good = rung[..queues].iter().all(|index| *index == end as u16)
            && recorded[..queues].iter().all(|index| *index == record);
        match good {
            true => Ok(()),
            false => Err(format!(
                "{what}, {place:?}: posted up to {end}, rung up to {rung:?}, recorded {recorded:?}"
            )),
        }
    }
}

/// The kernel of a way without a trace.
fn entry(way: Way) -> Entry<unsafe fn(Posting<'_>)> {
    match way {
        Way::ExclusiveThread | Way::TracedThread => entry!(posting_exclusive_thread),
        Way::ExclusiveWarp | Way::TracedWarp => entry!(posting_exclusive_warp),
        Way::ExclusiveBlock => entry!(posting_exclusive_block),
        Way::BlockThread => entry!(posting_block_thread),
        Way::BlockWarp => entry!(posting_block_warp),
        Way::GpuThread | Way::TracedGpuThread => entry!(posting_gpu_thread),
        Way::GpuWarp => entry!(posting_gpu_warp),
        Way::ExclusiveBatch => entry!(posting_exclusive_batch),
        Way::ExclusiveInline => entry!(posting_exclusive_inline),
        Way::ExclusiveSignal => entry!(posting_exclusive_signal),
        Way::GpuInline => entry!(posting_gpu_inline),
        Way::GpuSignal => entry!(posting_gpu_signal),
        Way::UncheckedThread => entry!(posting_unchecked_thread),
        Way::UncheckedBlock => entry!(posting_unchecked_block),
    }
}

/// The name of a reach in tables.
pub const fn scope(reach: FenceReach) -> &'static str {
    match reach {
        FenceReach::Gpu => "gpu",
        FenceReach::System => "system",
    }
}

/// Where a grid's threads note their times.
struct Timing {
    global: bool,
    begin: Shared<[warpbell::Word64]>,
    end: Shared<[warpbell::Word64]>,
}

impl Timing {
    fn new(shape: &Shape) -> Result<Self, String> {
        let threads = shape.threads() as usize;
        Ok(Self {
            global: shape.grid.blocks > 1,
            begin: numbers(threads).map_err(words)?,
            end: numbers(threads).map_err(words)?,
        })
    }

    fn span(&self) -> Span<'_> {
        Span {
            global: self.global,
            begin: Slice::new(&self.begin),
            end: Slice::new(&self.end),
        }
    }

    fn cycles_per_wqe(&self, effort: &Effort, shape: &Shape, posts: u32) -> f64 {
        let begin = values(&self.begin[..]).into_iter().min().unwrap_or(0);
        let end = values(&self.end[..]).into_iter().max().unwrap_or(0);
        let elapsed = end.saturating_sub(begin).max(1) as f64;
        let cycles = match self.global {
            true => elapsed * effort.cycles_per_ns,
            false => elapsed,
        };
        cycles / f64::from(posts * shape.batch) / f64::from(shape.threads())
    }
}
