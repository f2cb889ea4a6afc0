//! Queues with a completion queue each, and with one in common: what a poll costs, what memory they take, and how evenly
//! they are served: `bench completions`.

use clap::Args;
use warpbell::{Processor, SendQueueHandle, Slice, Word64};
use warpbell_bench::Error;
use warpbell_bench::run::machine::Machine;
use warpbell_bench::samples::{Goal, Row, SampleArguments, Samples, sorted};
use warpbell_bench::setting::Setting;
use warpbell_host_init::{
    Access, CompletionQueue, Grid, Launch, MemoryRegion, Node, ProtectionDomain, QueuePair,
    QueuePairConfig, Shared, connect, entry,
};
use warpbell_kernels::completions::{
    CommonLoad, CommonPolls, FAILED, Load, PollKind, Polls, completions_common_load,
    completions_common_polls, completions_own_load, completions_own_polls,
};

/// Compares a completion queue for each queue with one for all.
///
/// Polls are measured where the NIC stands still, and the kernel writes each CQE itself: without a CQE, with that of the
/// queue, with another queue's, with that of the queue behind 31 others, and with one that another poll has found. The load is a thread for each queue, which
/// writes 8 bytes and waits, again and again. A NIC among the kernels has room for 32 queue pairs: choose fewer queues.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    machine: Machine,
    #[command(flatten)]
    samples: SampleArguments,
    /// How many queues
    #[arg(long, value_delimiter = ',', default_value = "1,2,8,32,128,512,1024", value_parser = clap::value_parser!(u32).range(1..=4096))]
    queues: Vec<u32>,
    /// Polls of a repetition
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    polls: u32,
    /// Milliseconds of load in a repetition
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    load_ms: u32,
}

/// Blocks of each queue.
const DEPTH: u32 = 16;
/// Threads of a block under load.
const BLOCK: u32 = 32;

const KINDS: [(PollKind, &str); 5] = [
    (PollKind::Empty, "no CQE"),
    (PollKind::Own, "own CQE"),
    (PollKind::Others, "another's CQE"),
    (PollKind::Batch, "own CQE behind 31"),
    (PollKind::Found, "found by another"),
];

fn config() -> QueuePairConfig {
    QueuePairConfig {
        send_depth: DEPTH,
        receive_depth: 0,
        ..QueuePairConfig::granting(Access::REMOTE_WRITE)
    }
}

/// Queue pairs with a completion queue each, or with one in common.
struct Queues {
    common: Option<CompletionQueue>,
    pairs: Vec<QueuePair>,
}

impl Queues {
    fn new(domain: &ProtectionDomain, count: u32, common: bool) -> Result<Self, Error> {
        if common {
            let (common, pairs) = domain.queue_pairs_with_common_completions(&config(), count)?;
            let common = Some(common);
            return Ok(Self { common, pairs });
        }
        let pairs = (0..count).map(|_| domain.queue_pair(&config()));
        let pairs = pairs.collect::<Result<_, _>>()?;
        Ok(Self {
            common: None,
            pairs,
        })
    }

    /// Bytes of completion queues for each queue.
    fn bytes(&self) -> f64 {
        let own: usize = self.pairs.iter().map(QueuePair::completion_bytes).sum();
        let common = self.common.as_ref().map_or(0, CompletionQueue::bytes);
        (own + common) as f64 / self.pairs.len() as f64
    }

    /// Cycles of each poll, sorted.
    fn poll(&self, node: &Node, polls: u32, kind: PollKind, warp: bool) -> Result<Vec<u64>, Error> {
        let cycles = node.words(polls as usize)?;
        let last = &self.pairs[self.pairs.len() - 1];
        // SAFETY: the queue pair is in RESET, where the NIC does not look at its queue, and outlives the launch; nobody
        // else has a handle. `send_parts` says where the queue lies, and its kernels run where its state lies.
        let queue = unsafe { SendQueueHandle::new(last.send_parts()).on(Processor::UNKNOWN) };
        let parameters = Polls {
            queue,
            other: self.pairs[0].qpn(),
            kind,
            by_warp: warp,
            cycles: Slice::new(&cycles),
        };
        let grid = Grid::new(1, if warp { 32 } else { 1 });
        let launch = match &self.common {
            None => Launch::new(entry!(completions_own_polls), grid, parameters),
            Some(common) => {
                let parameters = CommonPolls {
                    polls: parameters,
                    completions: common.handle(&self.pairs)?,
                };
                Launch::new(entry!(completions_common_polls), grid, parameters)
            }
        };
        node.run(&[launch], &[])?;
        checked(&cycles)
    }

    /// Writes that each queue has completed under load, sorted.
    fn load(
        &self,
        node: &Node,
        [source, target]: [&MemoryRegion; 2],
        milliseconds: u32,
    ) -> Result<Vec<u64>, Error> {
        let queues = self.pairs.iter().map(QueuePair::send_queue);
        let queues = queues.collect::<Result<Vec<_>, _>>()?;
        let handles = node.shared_slice(queues.len(), |queue| queues[queue])?;
        let counts = node.words(queues.len())?;
        let load = Load {
            queues: Slice::new(&handles),
            local: source.local(0, 8)?,
            remote: target.remote().at(0, 8)?,
            for_ns: u64::from(milliseconds) * 1_000_000,
            counts: Slice::new(&counts),
        };
        let blocks = (queues.len() as u32).div_ceil(BLOCK);
        let grid = Grid::new(blocks, BLOCK.min(queues.len() as u32));
        let launch = match &self.common {
            None => Launch::new(entry!(completions_own_load), grid, load),
            Some(common) => {
                let completions = common.handle(&self.pairs)?;
                let load = CommonLoad { load, completions };
                Launch::new(entry!(completions_common_load), grid, load)
            }
        };
        node.run(&[launch], &[])?;
        checked(&counts)
    }
}

/// What kernels stored, sorted, if nothing failed.
fn checked(words: &Shared<[Word64]>) -> Result<Vec<u64>, Error> {
    let values = sorted(words.iter());
    let wrong = values.iter().filter(|&&value| value == FAILED).count();
    warpbell_bench::run::Error::if_wrong(wrong, values.len())?;
    Ok(values)
}

/// Who has completion queues: names of cases.
const WHOSE: [(bool, &str); 2] = [(false, "each its own"), (true, "one in common")];

/// Measures.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let setting = Setting::open(&arguments.machine)?;
    let node = &setting.node;
    let filter = &arguments.samples.filter;
    let mut rows = Vec::new();
    for &count in &arguments.queues {
        for warp in [false, true] {
            for kind in KINDS {
                rows.extend(polls(arguments, node, count, warp, kind)?);
            }
        }
        let domain = node.domain()?;
        for (common, whose) in WHOSE {
            let name = format!("memory for a queue, {count} queues, {whose}");
            if filter.wants(&name) {
                let mut bytes = Samples::default();
                bytes.push(Queues::new(&domain, count, common)?.bytes());
                rows.push(Row::new(name, "bytes", &bytes));
            }
        }
        for (common, whose) in WHOSE {
            let name = format!("load, {count} queues, {whose}");
            if filter.wants(&name) {
                rows.extend(loads(arguments, node, count, common, &name)?);
            }
        }
    }
    arguments.samples.print(rows, "the NIC is software")
}

fn polls(
    arguments: &Arguments,
    node: &Node,
    count: u32,
    warp: bool,
    (kind, finds): (PollKind, &str),
) -> Result<Vec<Row>, Error> {
    let unit = match node.gpu() {
        None => "ns",
        Some(_) => "cycles",
    };
    let who = if warp { "warp" } else { "thread" };
    let name = format!("poll of a {who}, {count} queues, {finds}");
    let wanted: Vec<_> = WHOSE
        .into_iter()
        .filter(|(common, whose)| {
            // One queue meets no other's, and a completion queue of its own no other poll's.
            let meets = match kind {
                PollKind::Others | PollKind::Batch => *common && count > 1,
                PollKind::Found => *common,
                PollKind::Empty | PollKind::Own => true,
            };
            let name = format!("{name}, {whose}");
            meets && arguments.samples.filter.wants(&name)
        })
        .collect();
    let domain = node.domain()?;
    let mut medians = vec![Samples::default(); wanted.len()];
    for repetition in 0..=arguments.samples.repetitions {
        for ((common, _), medians) in wanted.iter().zip(&mut medians) {
            let queues = Queues::new(&domain, count, *common)?;
            let cycles = queues.poll(node, arguments.polls, kind, warp)?;
            // The first round warms up.
            if repetition > 0 {
                medians.push(cycles[cycles.len() / 2] as f64);
            }
        }
    }
    let row = |((_, whose), medians): (&(bool, &str), &Samples)| {
        Row::new(format!("{name}, {whose}"), unit, medians)
    };
    let mut rows: Vec<_> = wanted.iter().zip(&medians).map(row).collect();
    if let [own, common] = &medians[..] {
        let ratio = Row::new(format!("{name}: in common / own"), "x", &common.over(own));
        rows.push(match kind {
            PollKind::Empty => ratio.goal(Goal::AtMost(2.0)),
            _ => ratio,
        });
    }
    Ok(rows)
}

fn loads(
    arguments: &Arguments,
    node: &Node,
    count: u32,
    common: bool,
    name: &str,
) -> Result<Vec<Row>, Error> {
    let [near, far] = node.ends()?;
    let source = near.allocate(64, Access::LOCAL_WRITE)?;
    let target = far.allocate(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let mut queues = Queues::new(&near, count, common)?;
    let mut theirs = Vec::new();
    for ours in &mut queues.pairs {
        let mut other = far.queue_pair(&config())?;
        connect(ours, &mut other)?;
        theirs.push(other);
    }
    let mut shares = [(); 3].map(|()| Samples::default());
    for repetition in 0..=arguments.samples.repetitions {
        let counts = queues.load(node, [&source, &target], arguments.load_ms)?;
        // The first round warms up.
        if repetition > 0 {
            let places = [0, counts.len() / 2, counts.len() - 1];
            for (samples, place) in shares.iter_mut().zip(places) {
                samples.push(counts[place] as f64);
            }
        }
    }
    let row = |(share, samples): (&str, &Samples)| {
        Row::new(format!("{name}, {share} of a queue"), "writes", samples)
    };
    let shares = ["fewest", "median", "most"].into_iter().zip(&shares);
    Ok(shares.map(row).collect())
}
