//! Polling: a CQE that is there, and one that is not, in the memory of whoever polls, and in a host's pinned memory.
//!
//! | poll | lines that it loads | fence |
//! |---|---|---|
//! | ready | one after the other of a ring of 32,768; of a collapsed queue the same one each time | none |
//! | ready, data to be read | the same | acquire, behind the CQE |
//! | empty | the same one each time | none: nothing was found |
//!
//! Ready polls are waits that begin when the CQE is there: without data `wait_outbound`, with data `wait`. Empty polls
//! are `is_done`. The floor loads the same lines, and has no fence. Before each ready poll and each load of the floor,
//! the thread itself stores the CQE, and a system's fence behind it ends before the time begins.

use warpbell::{CompletionKind, FenceReach, SendDoorbell, Slice};
use warpbell_bench::filter::Filter;
use warpbell_bench::samples::{Samples, values};
use warpbell_host_init::{Entry, Grid, Launch, entry};
use warpbell_hw_tests::here;
use warpbell_kernels::posting::{
    Polling, polling_bare, polling_empty_exclusive, polling_empty_gpu, polling_ready_exclusive,
    polling_ready_gpu,
};

use super::cases::Wanted;
use super::measure::{Effort, LIMIT_US, REACHES, outcome, scope, words};
use super::rig::{DEPTH, Lap, QPN, Rig, numbers, write};
use super::table::{Figures, Line};

/// A kernel that polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Loads, all of them or only of the first CQE.
    Bare {
        of_first: bool,
    },
    ReadyExclusive {
        inbound: bool,
    },
    ReadyGpu {
        inbound: bool,
    },
    EmptyExclusive,
    EmptyGpu,
}

impl Way {
    /// The loads that are its floor: polls that find nothing stay at the first CQE.
    fn bare(self) -> Self {
        Self::Bare {
            of_first: matches!(self, Self::EmptyExclusive | Self::EmptyGpu),
        }
    }
}

/// All ways, and what is wanted of them if CQEs are in the memory of whoever polls. Of an empty poll that is 1.05 times
/// what gpunetio's takes: 422 cycles of an exclusive queue, 679 of a shared one.
const WAYS: [(&str, Way, Option<Wanted>); 6] = [
    (
        "poll ready, exclusive",
        Way::ReadyExclusive { inbound: false },
        Some(Wanted::Ratio(1.05)),
    ),
    (
        "poll ready, GPU-shared",
        Way::ReadyGpu { inbound: false },
        Some(Wanted::Ratio(1.15)),
    ),
    (
        "poll ready, exclusive, data to be read",
        Way::ReadyExclusive { inbound: true },
        None,
    ),
    (
        "poll ready, GPU-shared, data to be read",
        Way::ReadyGpu { inbound: true },
        None,
    ),
    (
        "poll empty, exclusive",
        Way::EmptyExclusive,
        Some(Wanted::Cycles(443.1)),
    ),
    (
        "poll empty, GPU-shared",
        Way::EmptyGpu,
        Some(Wanted::Cycles(712.95)),
    ),
];

/// The end of the name of a row that compares with a collapsed queue's poll.
pub const OVER: &str = ", over a collapsed queue's";

/// What a ring of completions, which keeps the cause of an error, may cost of a poll.
const OVER_COLLAPSED: f64 = 1.02;

/// The rows of either memory.
pub fn measure(effort: &Effort, filter: &Filter) -> Result<Vec<Line>, String> {
    let mut lines = Vec::new();
    for pinned in [false, true] {
        lines.extend(measure_in(pinned, effort, filter)?);
    }
    Ok(lines)
}

/// Two rows for each way and scope, with CQEs in one memory: a ring's poll beside the load of a word, and beside a
/// collapsed queue's poll.
///
/// A GPU's loads take longer or shorter by the line that they go to. A ring's polls go to all of its lines, a collapsed
/// queue's to one. So what the latter takes beyond a load of its one line is added to a load of the ring's lines.
fn measure_in(pinned: bool, effort: &Effort, filter: &Filter) -> Result<Vec<Line>, String> {
    let rig = |kind| Rig::new(1, true).and_then(|rig| rig.completing(kind, pinned));
    let ring = rig(CompletionKind::Ordinary).map_err(words)?;
    let collapsed = rig(CompletionKind::Collapsed).map_err(words)?;
    let mut lines = Vec::new();
    for (name, way, wanted) in WAYS {
        let name = match pinned {
            false => name.to_owned(),
            true => format!("{name}, CQE in pinned memory"),
        };
        if !filter.wants(&name) {
            continue;
        }
        for reach in REACHES {
            let [mut ours, mut floor, mut collapsed_there] = [(); 3].map(|()| Samples::default());
            for repetition in 0..=effort.repetitions {
                let bare = once(effort, &ring, way.bare(), reach)?;
                let polled = once(effort, &ring, way, reach)?;
                let bare_of_one = once(effort, &collapsed, way.bare(), reach)?;
                let polled_of_one = once(effort, &collapsed, way, reach)?;
                // The first round warms up.
                if repetition > 0 {
                    floor.push(bare);
                    ours.push(polled);
                    // A poll loads its line, too: that it takes less than the load is noise.
                    collapsed_there.push(bare + (polled_of_one - bare_of_one).max(0.0));
                }
            }
            let line = |case, floor: &Samples| Line {
                case,
                record: None,
                lap: Lap::First.name(),
                doorbell: "pinned",
                scope: scope(reach),
                wqes: u64::from(polls(effort)),
                cycles: Figures::of(&ours),
                floor: Some(Figures::of(floor)),
                ratio: Some(ours.over(floor).median()),
                million_a_second: 1e3 * effort.cycles_per_ns / ours.median(),
                against: None,
                wanted: None,
                reached: None,
            };
            let wanted = wanted.filter(|_| reach == FenceReach::Gpu && !pinned);
            lines.push(line(name.clone(), &floor).want(wanted));
            let over = line(format!("{name}{OVER}"), &collapsed_there);
            lines.push(over.want(Some(Wanted::Ratio(OVER_COLLAPSED))));
        }
    }
    Ok(lines)
}

fn polls(effort: &Effort) -> u32 {
    effort.posts.min(DEPTH)
}

/// Cycles of a poll.
fn once(effort: &Effort, rig: &Rig, way: Way, reach: FenceReach) -> Result<f64, String> {
    rig.renew(Lap::First, 0).map_err(words)?;
    let handles = rig
        .handles(reach, SendDoorbell::WithRecord)
        .map_err(words)?;
    let cycles = numbers(2).map_err(words)?;
    let outcome = outcome()?;
    let inbound = matches!(
        way,
        Way::ReadyExclusive { inbound: true } | Way::ReadyGpu { inbound: true }
    );
    let parameters = Polling {
        queue: handles[0],
        completion: rig.completion(0),
        completions_log2: match way {
            Way::Bare { of_first: true } => 0,
            _ => rig.completions_log2().into(),
        },
        qpn: QPN.get(),
        polls: polls(effort),
        inbound,
        write: write(),
        limit_us: LIMIT_US,
        cycles: Slice::new(&cycles),
        outcome: &outcome,
    };
    let entry: Entry<unsafe fn(_)> = match way {
        Way::Bare { .. } => entry!(polling_bare),
        Way::ReadyExclusive { .. } => entry!(polling_ready_exclusive),
        Way::ReadyGpu { .. } => entry!(polling_ready_gpu),
        Way::EmptyExclusive => entry!(polling_empty_exclusive),
        Way::EmptyGpu => entry!(polling_empty_gpu),
    };
    // SAFETY: the rig made the queue and its CQE, which outlive the launch.
    let launch = unsafe { Launch::new_unsafe(entry, Grid::ONE_THREAD, parameters) };
    here::run(here::kernels(), &launch)?;
    outcome.result().map_err(words)?;
    let found = values(&cycles[..]);
    if found[1] != 0 {
        return Err(format!("{way:?}: {} empty polls found something", found[1]));
    }
    Ok(found[0] as f64 / f64::from(polls(effort)))
}
