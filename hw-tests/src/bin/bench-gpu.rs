//! Measures what a NIC of software does with small writes: the cycles of one at a time, and how many a second
//! where many are under way: `cargo xtask bench gpu`.

use std::process::ExitCode;

use clap::Parser;
use warpbell::Word64;
use warpbell_host_init::{Grid, Launch, QueuePairConfig, Shared, entry};
use warpbell_hw_tests::arena::Arena;
use warpbell_hw_tests::bench::{Goal, Row, Samples, print_table};
use warpbell_hw_tests::node::{ALL_ACCESS, Nodes, Pair};
use warpbell_hw_tests::world::{Machine, Unable, World};
use warpbell_kernels::outcome::{Numbers, Outcome};
use warpbell_kernels::rate::{
    InFlight, Lane, Lanes, MOST_SINGLES, OneAtATime, rate_in_flight, rate_one_at_a_time,
};

/// Measures a NIC of software beside the kernels.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    machine: Machine,
    /// Bytes of a write
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
    /// How often everything is measured; the medians count
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// The longest wait of a kernel, in microseconds.
const LIMIT_US: u64 = 10_000_000;
/// Writes one at a time in a repetition.
const SINGLES: usize = 2000;
const _: () = assert!(SINGLES <= MOST_SINGLES);

/// Queue pairs with memory at both ends.
struct Rig {
    pairs: Vec<Pair>,
    source: Arena,
    target: Arena,
}

impl Rig {
    fn new(queues: u32, group: u32) -> Self {
        let nodes = Nodes::chosen();
        let config = QueuePairConfig {
            // Two groups, and a group has at most half of the queue.
            send_depth: (2 * group).next_power_of_two().max(16),
            receive_depth: 0,
            ..QueuePairConfig::default()
        };
        Self {
            pairs: (0..queues).map(|_| nodes.pair(&config)).collect(),
            source: nodes.ours.arena(4096, ALL_ACCESS, 1),
            target: nodes.theirs.arena(4096 * queues as usize, ALL_ACCESS, 2),
        }
    }

    fn lanes(&self, bytes: u32) -> Shared<[Lane<'_>]> {
        let lane = |index: usize| Lane {
            queue: self.pairs[index].ours.send_queue().expect("a send queue"),
            local: self.source.local(0, bytes),
            remote: self.target.remote(4096 * index as i64),
        };
        Shared::slice(World::here().placement(), self.pairs.len(), lane).expect("memory")
    }

    /// The cycles of writes one at a time, and the nanoseconds of each on average.
    fn one_at_a_time(&self, bytes: u32) -> Result<(Vec<u64>, f64), String> {
        let (cycles, elapsed) = (numbers(SINGLES), numbers(1));
        let outcome = outcome();
        let lanes = self.lanes(bytes);
        let parameters = OneAtATime {
            lanes: Lanes::new(&lanes),
            writes: SINGLES as u64,
            limit_us: LIMIT_US,
            cycles: Numbers::new(&cycles),
            elapsed: Numbers::new(&elapsed),
            outcome: &outcome,
        };
        let launch = Launch::new(entry!(rate_one_at_a_time), Grid::ONE_THREAD, parameters);
        World::here().run(&launch)?;
        outcome.result().map_err(|failure| failure.to_string())?;
        let total = values(&elapsed)[0] as f64;
        Ok((values(&cycles), total / SINGLES as f64))
    }

    /// Millions of writes a second.
    fn in_flight(&self, bytes: u32, group: u32, writes: u64) -> Result<f64, String> {
        let queues = self.pairs.len();
        let (begin, end) = (numbers(queues), numbers(queues));
        let outcome = outcome();
        let lanes = self.lanes(bytes);
        let parameters = InFlight {
            lanes: Lanes::new(&lanes),
            writes: writes / queues as u64,
            group,
            limit_us: LIMIT_US,
            begin: Numbers::new(&begin),
            end: Numbers::new(&end),
            outcome: &outcome,
        };
        let grid = Grid {
            blocks: queues as u32,
            threads_per_block: 1,
        };
        World::here().run(&Launch::new(entry!(rate_in_flight), grid, parameters))?;
        outcome.result().map_err(|failure| failure.to_string())?;
        let begin = values(&begin).into_iter().min().unwrap_or(0);
        let end = values(&end).into_iter().max().unwrap_or(0);
        let done = parameters.writes * queues as u64;
        Ok(done as f64 * 1e3 / end.saturating_sub(begin).max(1) as f64)
    }
}

fn numbers(count: usize) -> Shared<[Word64]> {
    Shared::slice(World::here().placement(), count, |_| Word64::new(0)).expect("memory")
}

fn values(numbers: &[Word64]) -> Vec<u64> {
    let load = |word: &Word64| word.load(std::sync::atomic::Ordering::Relaxed);
    numbers.iter().map(load).collect()
}

fn outcome() -> Shared<Outcome> {
    Shared::new(World::here().placement(), Outcome::new()).expect("memory")
}

fn measure(arguments: &Arguments) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for &bytes in &arguments.sizes {
        let rig = Rig::new(1, 1);
        let [mut cycles, mut time] = [(); 2].map(|()| Samples::default());
        for _ in 0..arguments.repetitions {
            let (mut single, nanoseconds) = rig.one_at_a_time(bytes)?;
            single.sort_unstable();
            cycles.push(single[single.len() / 2] as f64);
            time.push(nanoseconds);
        }
        let name = format!("{bytes} bytes, one at a time");
        rows.push(Row::new(&name, "cycles", &cycles).goal(Goal::AtMost(5000.0)));
        rows.push(Row::new(name, "ns", &time));
    }
    for &in_flight in &arguments.in_flight {
        for &queues in &arguments.queues {
            let group = in_flight / (2 * queues);
            if group == 0 {
                continue;
            }
            let rig = Rig::new(queues, group);
            for &bytes in &arguments.sizes {
                let mut rate = Samples::default();
                for _ in 0..arguments.repetitions {
                    rate.push(rig.in_flight(bytes, group, arguments.writes)?);
                }
                let name = format!("{bytes} bytes, {in_flight} in flight in {queues} queues");
                rows.push(Row::new(name, "M/s", &rate).goal(Goal::AtLeast(10.0)));
            }
        }
    }
    Ok(rows)
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let opened = arguments
        .machine
        .open_with(&warpbell_ptx::KERNELS, "rate_in_flight");
    let measured = match opened {
        Ok(()) => measure(&arguments),
        Err(Unable::Missing(why)) => {
            println!("Skipped: {why}");
            return ExitCode::SUCCESS;
        }
        Err(Unable::Wrong(why)) => Err(why),
    };
    match measured {
        Ok(rows) if arguments.json => {
            println!("{}", serde_json::json!({ "rows": rows }));
            ExitCode::SUCCESS
        }
        Ok(rows) => {
            println!("{:?}, {} repetitions", World::here(), arguments.repetitions);
            print_table(&rows);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
