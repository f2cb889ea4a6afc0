//! An all-reduce by a team's call, and the same writes by hand: `bench collectives`.

use std::time::Duration;

use clap::Args;
use warpbell::{Slice, Word64};
use warpbell_bench::Error;
use warpbell_bench::cause;
use warpbell_bench::run::launch::LIMIT_US;
use warpbell_bench::run::machine::Machine;
use warpbell_bench::run::{Error as RunError, interrupt};
use warpbell_bench::samples::{Goal, Row, SampleArguments, Samples, sorted};
use warpbell_bench::setting::Setting;
use warpbell_host_init::{
    Access, Grid, Launch, MemoryRegion, Node, QueuePair, QueuePairConfig, Shared, entry,
};
use warpbell_kernels::collectives::{
    RingByHand, RingByTeam, RingRank, collective_ring, collective_ring_by_hand,
};
use warpbell_kernels::outcome::Outcome;
use warpbell_patterns::team::host::{TeamConfig, TeamMember, team_of};

/// Compares a team's all-reduce with the same writes posted by hand.
///
/// Each member is a block of one kernel, and adds up vectors of floats by a ring. Both ways write the same bytes in the same
/// slices. The team's call has each member say that it is there first. By hand nobody does: it holds for a kernel that does
/// nothing else. Every sum is compared. A NIC among the kernels has room for 32 queue pairs: choose up to 6 members.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    machine: Machine,
    #[command(flatten)]
    samples: SampleArguments,
    /// How many members
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=64))]
    members: u32,
    /// Words of 8 bytes of a vector, for each member
    #[arg(long, value_name = "WORDS", value_delimiter = ',', default_value = "16,128,1024,8192", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    words: Vec<u32>,
    /// Sums of a repetition
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: u32,
    /// Threads of each block
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(2..=1024))]
    threads: u32,
}

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// What both ways have in common.
struct Case<'n> {
    node: &'n Node,
    members: u32,
    /// Words of the vector.
    words: u32,
    rounds: u32,
    grid: Grid,
}

impl Case<'_> {
    /// A member's vector: floats whose sums are exact.
    fn vector(&self, rank: u32) -> Vec<u8> {
        let value = |at: u32| ((rank + 1) * (at % 1000 + 1)) as f32;
        let values = (0..2 * self.words).map(value);
        values.flat_map(f32::to_le_bytes).collect()
    }

    /// The sum of all members' vectors.
    fn sum(&self) -> Vec<u8> {
        let factor = self.members * (self.members + 1) / 2;
        let values = (0..2 * self.words).map(|at| (factor * (at % 1000 + 1)) as f32);
        values.flat_map(f32::to_le_bytes).collect()
    }

    /// Runs a kernel, and gives the median of its rounds in nanoseconds.
    fn run(
        &self,
        what: &str,
        launch: Launch<'_>,
        outcome: &Outcome,
        samples: &Shared<[Word64]>,
    ) -> Result<f64, Error> {
        interrupt::check()?;
        let ran = self.node.run_for(&[launch], &[], Duration::ZERO);
        cause::ended(ran.map_err(Error::from), [(what, outcome)])?;
        let sorted = sorted(samples.iter());
        Ok(sorted[sorted.len() / 2] as f64)
    }

    /// Compares what members have behind their vectors with the sum.
    fn check(
        &self,
        mut read: impl FnMut(usize, usize, &mut [u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let sum = self.sum();
        let (mut found, mut wrong) = (vec![0; sum.len()], 0);
        for member in 0..self.members as usize {
            read(member, sum.len(), &mut found)?;
            wrong += usize::from(found != sum);
        }
        Ok(RunError::if_wrong(wrong, self.members as usize)?)
    }
}

/// The team's way.
struct ByTeam(Vec<TeamMember>);

impl ByTeam {
    fn new(case: &Case<'_>) -> Result<Self, Error> {
        let words = case.words as usize;
        let config = TeamConfig {
            bytes: 2 * WORD * words,
            // A slot of a chunk for each other member.
            scratch_bytes: WORD * words,
            ..TeamConfig::default()
        };
        let members = team_of(&case.node.domains(case.members as usize)?, &config)?;
        for member in &members {
            member.write(0, &case.vector(member.rank()))?;
        }
        Ok(Self(members))
    }

    fn measure(&self, case: &Case<'_>) -> Result<f64, Error> {
        let handles = case
            .node
            .shared_slice(self.0.len(), |rank| self.0[rank].handle())?;
        let (samples, outcome) = (
            case.node.words(case.rounds as usize)?,
            case.node.shared(Outcome::new())?,
        );
        let parameters = RingByTeam {
            members: Slice::new(&handles),
            words: case.words,
            rounds: case.rounds,
            samples: Slice::new(&samples),
            limit_us: LIMIT_US,
            outcome: &outcome,
        };
        let launch = Launch::new(entry!(collective_ring), case.grid, parameters);
        let median = case.run("a team", launch, &outcome, &samples)?;
        case.check(|rank, at, into| Ok(self.0[rank].read(at, into)?))?;
        Ok(median)
    }
}

/// The way by hand: each rank's queue to the next one, the other end of that of the one before, and memory.
struct ByHand {
    queues: Vec<(QueuePair, QueuePair)>,
    memory: Vec<MemoryRegion>,
}

impl ByHand {
    fn new(case: &Case<'_>) -> Result<Self, Error> {
        let domains = case.node.domains(case.members as usize)?;
        let config = QueuePairConfig {
            receive_depth: 0,
            ..QueuePairConfig::granting(Access::all())
        };
        let next = domains.iter().cycle().skip(1);
        let queues = (domains.iter().zip(next))
            .map(|(own, next)| Ok(own.connected(next, &config)?))
            .collect::<Result<_, Error>>()?;
        let words = RingByHand::memory(case.members, case.words);
        let memory = domains
            .iter()
            .map(|domain| Ok(domain.allocate(WORD * words as usize, Access::all())?))
            .collect::<Result<Vec<_>, Error>>()?;
        for (rank, memory) in (0..).zip(&memory) {
            memory.write(0, &case.vector(rank))?;
        }
        Ok(Self { queues, memory })
    }

    fn measure(&self, case: &Case<'_>) -> Result<f64, Error> {
        let ranks = self.memory.len();
        // The signals count from 1 again.
        let told = WORD * (RingByHand::memory(case.members, case.words) as usize - 1);
        let mut all = Vec::with_capacity(ranks);
        for (rank, memory) in self.memory.iter().enumerate() {
            memory.write(told, &[0; WORD])?;
            all.push(RingRank {
                queue: self.queues[rank].0.send_queue()?,
                memory: memory.words()?,
                next: self.memory[(rank + 1) % ranks]
                    .remote()
                    .at(0, WORD as u32)?,
            });
        }
        let all = case.node.shared_slice(ranks, |rank| all[rank])?;
        let (samples, outcome) = (
            case.node.words(case.rounds as usize)?,
            case.node.shared(Outcome::new())?,
        );
        let parameters = RingByHand {
            ranks: Slice::new(&all),
            words: case.words,
            rounds: case.rounds,
            samples: Slice::new(&samples),
            limit_us: LIMIT_US,
            outcome: &outcome,
        };
        let launch = Launch::new(entry!(collective_ring_by_hand), case.grid, parameters);
        let median = case.run("by hand", launch, &outcome, &samples)?;
        case.check(|rank, at, into| Ok(self.memory[rank].read(at, into)?))?;
        Ok(median)
    }
}

/// Measures.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let setting = Setting::open(&arguments.machine)?;
    let filter = &arguments.samples.filter;
    let mut rows = Vec::new();
    for words in &arguments.words {
        let case = Case {
            node: &setting.node,
            members: arguments.members,
            words: words * arguments.members,
            rounds: arguments.rounds,
            grid: Grid::new(arguments.members, arguments.threads),
        };
        let name = format!(
            "ring of {} members, {} bytes",
            case.members,
            WORD as u32 * case.words
        );
        if !filter.wants(&name) {
            continue;
        }
        let (by_team, by_hand) = (ByTeam::new(&case)?, ByHand::new(&case)?);
        let (mut team, mut hand) = (Samples::default(), Samples::default());
        for repetition in 0..=arguments.samples.repetitions {
            let (one, other) = (by_team.measure(&case)?, by_hand.measure(&case)?);
            // The first round warms up.
            if repetition > 0 {
                team.push(one);
                hand.push(other);
            }
        }
        rows.push(Row::new(format!("{name}, by the team"), "ns", &team));
        rows.push(Row::new(format!("{name}, by hand"), "ns", &hand));
        let ratio = Row::new(format!("{name}: team / by hand"), "x", &team.over(&hand));
        rows.push(ratio.goal(Goal::AtMost(1.3)));
    }
    arguments.samples.print(rows, "the NIC is software")
}
