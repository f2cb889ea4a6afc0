//! Queues made by hand, and a launch upon them.

use std::fmt;
use std::ops::AddAssign;
use std::sync::atomic::Ordering;
use std::time::Duration;

use warpbell::wqe::QpNumber;
use warpbell::{
    CompletionKind, CompletionParts, DoorbellPage, FenceReach, SendDoorbell, SendParts,
    SendQueueHandle, Slice, Word64,
};
use warpbell_host_init::{Buffer, Entry, Error, Grid, Kernels, Launch, Placement, Shared, entry};
use warpbell_hw_tests::here;
use warpbell_kernels::bare::BareQueue;
use warpbell_kernels::litmus::{
    FOUND, LOOKS, Litmus, NIC_SM, Noise, OLD_DATA, OLD_RECORD, OLD_WQE, POSTER_SM, Pair, WENT_BACK,
    suite_litmus_block, suite_litmus_completions_block, suite_litmus_completions_shared,
    suite_litmus_completions_thread, suite_litmus_completions_warp, suite_litmus_hand,
    suite_litmus_lanes, suite_litmus_lanes_alone, suite_litmus_shared, suite_litmus_thread,
    suite_litmus_warp,
};
use warpbell_kernels::outcome::Outcome;

use super::cases::{Case, Memory, Way};

/// Blocks of each ring: two of the largest groups.
const DEPTH: u32 = 256;
const RING: usize = 64 * DEPTH as usize;
const QPN: QpNumber = QpNumber::from_low_bits(0x123);
/// Bytes between two queues' records, registers, CQEs or data: no two in one line.
const APART: usize = 256;
/// Word 1 of a doorbell record is the send queue's.
const SEND_RECORD: usize = 4;
/// Where the CQE says that it is not there yet.
const OP_OWN: usize = 63;
/// Bytes that noise is made in: more than a GPU's caches hold.
const NOISE: usize = 256 << 20;
/// Threads of a block on a GPU; those that do not post make noise.
const BLOCK_ON_GPU: u32 = 128;
/// Threads that post together on a CPU, as a block.
const BLOCK_ON_CPU: u32 = 64;
/// How long a wait may take beside the time of posting.
const LIMIT: Duration = Duration::from_secs(120);

/// Counts of what the NIC saw.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub looks: u64,
    old_wqe: u64,
    old_record: u64,
    went_back: u64,
    old_data: u64,
}

impl Counts {
    /// All that should not be.
    pub fn faults(&self) -> u64 {
        self.old_wqe + self.old_record + self.went_back + self.old_data
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, more: Self) {
        self.looks += more.looks;
        self.old_wqe += more.old_wqe;
        self.old_record += more.old_record;
        self.went_back += more.went_back;
        self.old_data += more.old_data;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} looks", self.looks)?;
        if self.faults() == 0 {
            return f.write_str(", nothing old");
        }
        let found = [
            (self.old_wqe, "WQEs"),
            (self.old_record, "records"),
            (self.old_data, "data"),
        ];
        for (count, what) in found {
            if count > 0 {
                write!(f, ", {count} old {what}")?;
            }
        }
        if self.went_back > 0 {
            write!(f, ", {} indices that went back", self.went_back)?;
        }
        Ok(())
    }
}

/// Where kernels and NIC find their queues.
pub struct Rig {
    pairs: usize,
    rings: Buffer,
    records: Buffer,
    doorbells: Buffer,
    completions: Buffer,
    data: Buffer,
    /// The kernels' own state of each queue.
    states: Buffer,
    noise: Option<Buffer>,
}

/// Memory of this kind.
fn placed(memory: Memory, bytes: usize) -> Result<Buffer, Error> {
    let placement = match (here::kernels(), memory) {
        (Kernels::Cpu(_), _) => Placement::Host,
        (Kernels::Gpu(module), Memory::Own) => Placement::Gpu(module.gpu()),
        (Kernels::Gpu(module), Memory::Pinned) => Placement::Pinned(module.gpu()),
    };
    Buffer::placed(placement, bytes)
}

impl Rig {
    /// So many queues, for this case.
    pub fn new(case: &Case, pairs: u32) -> Result<Self, Error> {
        let pairs = pairs as usize;
        let places = &case.places;
        let noise = match here::kernels() {
            Kernels::Cpu(_) => None,
            Kernels::Gpu(_) => Some(placed(Memory::Own, NOISE)?),
        };
        Ok(Self {
            pairs,
            rings: placed(places.ring, pairs * RING)?,
            records: placed(places.record, pairs * APART)?,
            doorbells: placed(places.doorbell, pairs * APART)?,
            completions: placed(places.completion, pairs * APART)?,
            data: placed(places.data, pairs * APART)?,
            states: placed(Memory::Own, pairs * APART)?,
            noise,
        })
    }

    /// Makes all queues as they are at the beginning.
    fn renew(&self) -> Result<(), Error> {
        let mut completion = vec![0; APART];
        completion[OP_OWN] = 0xf0;
        self.completions.write(0, &completion.repeat(self.pairs))?;
        for buffer in [
            &self.rings,
            &self.records,
            &self.doorbells,
            &self.data,
            &self.states,
        ] {
            buffer.write(0, &vec![0; buffer.len()])?;
        }
        Ok(())
    }

    fn pair(&self, index: usize, case: &Case) -> Pair<'_> {
        // SAFETY: each queue's part lies inside of its buffer, here and below.
        let of = |buffer: &Buffer, at: usize| unsafe { buffer.as_ptr().add(index * APART + at) };
        // SAFETY: as above.
        let ring = unsafe { self.rings.as_ptr().add(index * RING) };
        let places = BareQueue {
            ring: ring.cast(),
            record: of(&self.records, SEND_RECORD).cast(),
            doorbell: of(&self.doorbells, 0).cast(),
        };
        let parts = SendParts {
            ring: ring.cast(),
            record: places.record,
            doorbell: places.doorbell,
            completions: CompletionParts {
                ring: of(&self.completions, 0).cast(),
                // Nobody reads it.
                record: of(&self.completions, 128).cast(),
                depth_log2: 0,
                kind: CompletionKind::Collapsed,
            },
            state: of(&self.states, 0).cast(),
            qpn: QPN.get(),
            max_message: 1 << 30,
            depth_log2: DEPTH.ilog2() as u8,
            reach: case.reach,
            doorbell_page: DoorbellPage::Memory,
            send_doorbell: match case.sight.has_record() {
                true => SendDoorbell::WithRecord,
                false => SendDoorbell::WithoutRecord,
            },
        };
        Pair {
            // SAFETY: all of it lives in `self`, which the pair borrows, with the sizes given here. The NIC is a
            // block of the same grid. Whether its fences reach pinned memory, too, is the question of the test.
            queue: unsafe { SendQueueHandle::new(parts) },
            places,
            completion: of(&self.completions, 0).cast(),
            data: of(&self.data, 0).cast(),
        }
    }

    /// Launches once on fresh queues, and counts.
    pub fn run(&self, case: &Case, posting: Duration, noise: bool) -> Counts {
        self.renew().expect("memory");
        let placement = here::kernels().placement();
        let posters = case.way.posters();
        let pairs = Shared::slice(placement, self.pairs, |index| self.pair(index, case));
        let words = |count| Shared::slice(placement, count, |_| Word64::new(0)).expect("memory");
        let (pairs, found) = (pairs.expect("memory"), words(FOUND * self.pairs));
        let blocks = self.pairs as u32 * (1 + posters);
        let ended = words(blocks as usize);
        let outcome = Shared::new(placement, Outcome::new()).expect("memory");
        let (threads, group) = threads_and_group(case.way);
        let kernel = Litmus {
            pairs: Slice::new(&pairs),
            posters,
            group,
            numbered: case.way.knows_numbers(),
            depth_log2: DEPTH.ilog2() as u8,
            qpn: QPN.get(),
            system: case.reach == FenceReach::System,
            record: case.sight.has_record(),
            by_record: case.sight == super::cases::Sight::Record,
            fault: case.fault,
            run_ns: posting.as_nanos() as u64,
            limit_us: here::patient(LIMIT).as_micros() as u64,
            noise: match &self.noise {
                Some(buffer) if noise => Noise {
                    start: buffer.as_ptr().cast(),
                    count: (NOISE / 8) as u64,
                },
                _ => Noise::SILENCE,
            },
            ended: Slice::new(&ended),
            found: Slice::new(&found),
            outcome: &outcome,
        };
        let grid = Grid::new(blocks, threads);
        let launch = launch(case.way, grid, kernel);
        if let Err(error) = here::run(here::kernels(), &launch) {
            panic!("{case}: {error}");
        }
        if let Err(failure) = outcome.result() {
            panic!("{case}: {failure}");
        }
        self.counts(case, &found)
    }

    fn counts(&self, case: &Case, found: &[Word64]) -> Counts {
        let mut counts = Counts::default();
        for pair in 0..self.pairs {
            let number = |which| found[FOUND * pair + which as usize].load(Ordering::Relaxed);
            assert_ne!(
                number(NIC_SM),
                number(POSTER_SM),
                "{case}: queue {pair} has its NIC on the multiprocessor of who posts"
            );
            counts += Counts {
                looks: number(LOOKS),
                old_wqe: number(OLD_WQE),
                old_record: number(OLD_RECORD),
                went_back: number(WENT_BACK),
                old_data: number(OLD_DATA),
            };
        }
        counts
    }
}

/// Threads of each block, and how many post together.
fn threads_and_group(way: Way) -> (u32, u32) {
    let group = match way {
        Way::Warp | Way::CompletionsWarp | Way::Lanes | Way::LanesAlone => 32,
        Way::Block | Way::CompletionsBlock => match here::kernels() {
            Kernels::Cpu(_) => BLOCK_ON_CPU,
            Kernels::Gpu(_) => BLOCK_ON_GPU,
        },
        _ => 1,
    };
    match here::kernels() {
        Kernels::Cpu(_) => (group, group),
        Kernels::Gpu(_) => (BLOCK_ON_GPU, group),
    }
}

fn launch<'k>(way: Way, grid: Grid, kernel: Litmus<'k>) -> Launch<'k> {
    let entry: Entry<unsafe fn(Litmus<'k>)> = match way {
        Way::Thread => entry!(suite_litmus_thread),
        Way::Warp => entry!(suite_litmus_warp),
        Way::Block => entry!(suite_litmus_block),
        Way::Shared => entry!(suite_litmus_shared),
        Way::Lanes => entry!(suite_litmus_lanes),
        Way::LanesAlone => entry!(suite_litmus_lanes_alone),
        Way::CompletionsThread => entry!(suite_litmus_completions_thread),
        Way::CompletionsWarp => entry!(suite_litmus_completions_warp),
        Way::CompletionsBlock => entry!(suite_litmus_completions_block),
        Way::CompletionsShared => entry!(suite_litmus_completions_shared),
        Way::Hand => entry!(suite_litmus_hand),
    };
    // SAFETY: the rig made the places, which outlive the launch.
    unsafe { Launch::new_unsafe(entry, grid, kernel) }
}
