//! Writes that a NIC of software executes beside the kernels: post, executed, completion seen. The cycles of one at a
//! time, and what many that are under way come to.

use warpbell::{SendDoorbell, Slice};
use warpbell_bench::filter::Filter;
use warpbell_bench::samples::{Samples, values};
use warpbell_host_init::{Access, Grid, Launch, Nic, QueuePairConfig, Shared, entry};
use warpbell_hw_tests::arena::Arena;
use warpbell_hw_tests::here;
use warpbell_hw_tests::sides::{ALL_ACCESS, Pair, Sides};
use warpbell_kernels::rate::{
    InFlight, Lane, MOST_SINGLES, OneAtATime, rate_in_flight, rate_one_at_a_time,
};
use warpbell_soft_hca_gpu::MemoryScope;

use super::cases::Wanted;
use super::measure::{Effort, LIMIT_US, outcome, words};
use super::rig::numbers;
use super::table::{Figures, Line};

/// What is written, and how.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Bytes of a write that a NIC executes
    #[arg(
        long,
        value_name = "BYTES",
        value_delimiter = ',',
        default_value = "8,64"
    )]
    sizes: Vec<u32>,
    /// Queues that write at the same time
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "1,2,4,8,16"
    )]
    queues: Vec<u32>,
    /// Writes under way in all queues together; each queue has two groups of them
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "32,64,256"
    )]
    in_flight: Vec<u32>,
    /// Writes of a repetition in all queues together
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    writes: u64,
}

/// Writes one at a time in a repetition.
const SINGLES: usize = 2000;
const _: () = assert!(SINGLES <= MOST_SINGLES);
/// The lap of what a NIC executes, in tables.
pub const EXECUTED: &str = "executed";

/// Queue pairs with memory at both ends.
struct Rig {
    pairs: Vec<Pair>,
    source: Arena,
    target: Arena,
}

impl Rig {
    fn new(queues: u32, group: u32, send_doorbell: SendDoorbell) -> Self {
        let sides = Sides::chosen();
        let config = QueuePairConfig {
            // Two groups, and a group has at most half of the queue.
            send_depth: (2 * group).next_power_of_two().max(16),
            receive_depth: 0,
            send_doorbell,
            ..QueuePairConfig::granting(Access::REMOTE_WRITE)
        };
        Self {
            pairs: (0..queues).map(|_| sides.pair(&config)).collect(),
            source: sides.ours.arena(4096, ALL_ACCESS, 1),
            target: sides.theirs.arena(4096 * queues as usize, ALL_ACCESS, 2),
        }
    }

    fn lanes(&self, bytes: u32) -> Shared<[Lane<'_>]> {
        let lane = |index: usize| Lane {
            queue: self.pairs[index].ours.send_queue().expect("a send queue"),
            local: self.source.local(0, bytes),
            remote: self.target.remote(4096 * index as i64),
        };
        Shared::slice(here::kernels().placement(), self.pairs.len(), lane).expect("memory")
    }

    /// The cycles of writes one at a time, and the nanoseconds of each on average.
    fn one_at_a_time(&self, bytes: u32) -> Result<(Vec<u64>, f64), String> {
        let (cycles, elapsed) = (numbers(SINGLES).map_err(words)?, numbers(1).map_err(words)?);
        let outcome = outcome()?;
        let lanes = self.lanes(bytes);
        let parameters = OneAtATime {
            lanes: Slice::new(&lanes),
            writes: SINGLES as u64,
            limit_us: LIMIT_US,
            cycles: Slice::new(&cycles),
            elapsed: Slice::new(&elapsed),
            outcome: &outcome,
        };
        let launch = Launch::new(entry!(rate_one_at_a_time), Grid::ONE_THREAD, parameters);
        here::run(here::kernels(), &launch)?;
        outcome.result().map_err(words)?;
        let total = values(&elapsed[..])[0] as f64;
        Ok((values(&cycles[..]), total / SINGLES as f64))
    }

    /// Millions of writes a second.
    fn in_flight(&self, bytes: u32, group: u32, writes: u64) -> Result<f64, String> {
        let queues = self.pairs.len();
        let (begin, end) = (
            numbers(queues).map_err(words)?,
            numbers(queues).map_err(words)?,
        );
        let outcome = outcome()?;
        let lanes = self.lanes(bytes);
        let parameters = InFlight {
            lanes: Slice::new(&lanes),
            writes: writes / queues as u64,
            group,
            limit_us: LIMIT_US,
            begin: Slice::new(&begin),
            end: Slice::new(&end),
            outcome: &outcome,
        };
        let grid = Grid::new(queues as u32, 1);
        here::run(
            here::kernels(),
            &Launch::new(entry!(rate_in_flight), grid, parameters),
        )?;
        outcome.result().map_err(words)?;
        let begin = values(&begin[..]).into_iter().min().unwrap_or(0);
        let end = values(&end[..]).into_iter().max().unwrap_or(0);
        let done = parameters.writes * queues as u64;
        Ok(done as f64 * 1e3 / end.saturating_sub(begin).max(1) as f64)
    }
}

/// A row.
fn line(
    case: String,
    send_doorbell: SendDoorbell,
    wqes: u64,
    cycles: &Samples,
    million_a_second: f64,
) -> Line {
    // The registers of a NIC that is a kernel lie in its GPU's memory.
    let doorbell = match here::node().nic() {
        Nic::SoftGpu(_) => "device",
        _ => "pinned",
    };
    let scope = match (here::node().nic(), here::reach()) {
        (Nic::SoftGpu(_), MemoryScope::Gpu) => "gpu",
        _ => "system",
    };
    Line {
        case,
        record: Some(send_doorbell == SendDoorbell::WithRecord),
        lap: EXECUTED,
        doorbell,
        scope,
        wqes,
        cycles: Figures::of(cycles),
        floor: None,
        ratio: None,
        million_a_second,
        against: None,
        wanted: None,
        reached: None,
    }
}

/// Rows for one write at a time, then those for many.
pub fn measure(effort: &Effort, options: &Options, filter: &Filter) -> Result<Vec<Line>, String> {
    let mut lines = Vec::new();
    let doorbells = [SendDoorbell::WithRecord, SendDoorbell::WithoutRecord];
    let rows = options
        .sizes
        .iter()
        .flat_map(|&bytes| doorbells.map(|doorbell| (bytes, doorbell)));
    for (bytes, send_doorbell) in rows {
        let case = format!("write of {bytes} bytes executed, one at a time");
        if !filter.wants(&case) {
            continue;
        }
        let rig = Rig::new(1, 1, send_doorbell);
        let [mut cycles, mut rate] = [(); 2].map(|()| Samples::default());
        for _ in 0..effort.repetitions {
            let (mut single, nanoseconds) = rig.one_at_a_time(bytes)?;
            single.sort_unstable();
            cycles.push(single[single.len() / 2] as f64);
            rate.push(1e3 / nanoseconds);
        }
        let row = line(case, send_doorbell, SINGLES as u64, &cycles, rate.median());
        lines.push(row.want(Some(Wanted::Cycles(5000.0))));
    }
    for &in_flight in &options.in_flight {
        for &queues in &options.queues {
            let group = in_flight / (2 * queues);
            if group == 0 {
                continue;
            }
            let case = |bytes| {
                format!("writes of {bytes} bytes executed, {in_flight} in flight, queues: {queues}")
            };
            let sizes = options.sizes.iter().copied();
            let wanted: Vec<_> = sizes.filter(|&bytes| filter.wants(&case(bytes))).collect();
            if wanted.is_empty() {
                continue;
            }
            let rig = Rig::new(queues, group, SendDoorbell::WithRecord);
            for bytes in wanted {
                let [mut cycles, mut rate] = [(); 2].map(|()| Samples::default());
                for _ in 0..effort.repetitions {
                    let millions = rig.in_flight(bytes, group, options.writes)?;
                    rate.push(millions);
                    cycles.push(1e3 * effort.cycles_per_ns / millions);
                }
                let row = line(
                    case(bytes),
                    SendDoorbell::WithRecord,
                    options.writes,
                    &cycles,
                    rate.median(),
                );
                lines.push(row.want(Some(Wanted::Rate(10.0))));
            }
        }
    }
    Ok(lines)
}
