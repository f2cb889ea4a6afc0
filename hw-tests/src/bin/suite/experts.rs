//! Proves that an exchange brings every token to its experts and every output back: each value of each sum is
//! compared, for both formats and modes, for calls that are whole and in halves, with a member that is masked, with
//! too many tokens for an expert, and after bad input, by which no member hangs. The same for up to 64 members,
//! with a wire between half of them that loses, delays and doubles packets.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use warpbell_cpu_grid::Grid;
use warpbell_host_init::{Kernels, Launch, QueuePairConfig, Timers, entry};
use warpbell_hw_tests::here;
use warpbell_hw_tests::machine::Machine;
use warpbell_hw_tests::post::ample;
use warpbell_hw_tests::run::run;
use warpbell_hw_tests::sides::Sides;
use warpbell_kernels::outcome::{Failure, Outcome};
use warpbell_kernels::suite::{ExpertRound, suite_experts, suite_experts_packed};
use warpbell_patterns::experts::host::{ExpertsConfig, ExpertsMember, experts_of};
use warpbell_patterns::experts::{Choice, Error, Format, Mode, Overflow};
use warpbell_patterns::number::Bf16;
use warpbell_soft_hca::engine::fault::{Fate, Pattern, Rates, Seeded};
use warpbell_soft_hca::engine::packet::Header;
use warpbell_soft_hca::shell::Faults;

/// With two blocks, 24 queue pairs at either end of the connection.
const MEMBERS: usize = 4;
const BLOCKS: u32 = 2;
const TOP_K: u32 = 4;
const EXPERTS: u32 = 16;
/// Two pieces in the throughput mode.
const TOKENS: u32 = 40;

/// So many members make rounds over a wire that loses packets. Each has an expert.
const MANY: [usize; 4] = [1, 2, 16, 64];
/// How many rounds, if the variable does not say otherwise: one of each [`Routing`].
const ROUNDS: u32 = 4;
const ROUNDS_VARIABLE: &str = "WARPBELL_ROUNDS";
/// What befalls one of so many packets, of 1,000: a lost one may hold up all members for as long as queues wait for it.
const ONE_OF: u64 = 64;
const RATES: Rates = Rates {
    drop: 2,
    delay: 300,
    duplicate: 300,
    longest_delay: 20,
};

/// Which experts tokens choose.
#[derive(Clone, Copy, Debug)]
enum Routing {
    Any,
    /// The same for all tokens of all members.
    One,
    /// One of the first half.
    Half,
    /// None.
    Nothing,
}

impl Routing {
    const ALL: [Self; 4] = [Self::Any, Self::One, Self::Half, Self::Nothing];
}

pub fn test(machine: &Machine) -> ExitCode {
    run(machine, Duration::from_secs(600), |progress| {
        for (format, hidden, mode) in [
            (Format::Bf16, 256, Mode::LowLatency),
            (Format::Fp8, 512, Mode::LowLatency),
            (Format::Bf16, 256, Mode::Throughput),
            (Format::Fp8, 512, Mode::Throughput),
        ] {
            progress.step(format!("every value, {format:?}, {mode:?}"));
            let mut bench = Bench::new(&config(format, hidden, Overflow::Drop, mode));
            bench.rounds(&[ExpertRound::WHOLE], 3);
            progress.step(format!("in halves, {format:?}"));
            bench.rounds(&[1, 2, 4, 8], 1);
            bench.rounds(&[3, 12], 1);
            progress.step(format!("many rounds, {format:?}"));
            bench.rounds(&[ExpertRound::WHOLE], 10);
            progress.step(format!("a member is masked, {format:?}"));
            bench.mask(3);
            bench.rounds(&[ExpertRound::WHOLE], 2);
            bench.rounds(&[1, 2, 4, 8], 1);
        }
        progress.step("too many tokens are refused, and so is bad input");
        refusals(Mode::LowLatency);
        refusals(Mode::Throughput);
        let rounds = std::env::var(ROUNDS_VARIABLE)
            .map_or(ROUNDS, |rounds| rounds.parse().expect("a number of rounds"));
        for mode in [Mode::LowLatency, Mode::Throughput] {
            for members in MANY {
                let what = format!("{rounds} rounds of {members} members, {mode:?}");
                progress.step_with_orders(&what, || many(members, mode, rounds));
            }
        }
    })
}

fn config(format: Format, hidden: u32, overflow: Overflow, mode: Mode) -> ExpertsConfig {
    ExpertsConfig {
        experts: EXPERTS,
        hidden,
        top_k: TOP_K,
        tokens: TOKENS,
        capacity: match overflow {
            Overflow::Drop => TOKENS * TOP_K,
            Overflow::Refuse => TOKENS,
        },
        format,
        overflow,
        mode,
        blocks: BLOCKS,
        queue_pair: QueuePairConfig {
            send_depth: 64,
            ..QueuePairConfig::default()
        },
    }
}

/// Rounds of so many members, at one end of the wire and the other by turns.
fn many(members: usize, mode: Mode, rounds: u32) {
    let faults = Arc::new(AtomicU64::new(0));
    let [ours, theirs] = [1, 2].map(|seed| {
        let (mut fates, mut packets, faults) = (Seeded::new(seed, RATES), 0, faults.clone());
        Some(Faults::new(move |header: &Header| {
            packets += 1;
            let fate = match packets % ONE_OF {
                0 => fates.fate(header),
                _ => Fate::Pass,
            };
            faults.fetch_add((fate != Fate::Pass).into(), Ordering::Relaxed);
            fate
        }))
    });
    let (tokens, top_k) = (4, TOP_K.min(members as u32));
    let whole = config(Format::Bf16, 256, Overflow::Drop, mode);
    let config = ExpertsConfig {
        experts: members as u32,
        top_k,
        tokens,
        capacity: tokens * top_k,
        blocks: 1,
        queue_pair: QueuePairConfig {
            receive_depth: 0,
            timers: Timers {
                // 1 s on CPUs, which all members share with the NIC, and 134 ms beside a GPU.
                acknowledge_timeout: match here::kernels() {
                    Kernels::Cpu(_) => 18,
                    Kernels::Gpu(_) => 15,
                },
                ..Timers::default()
            },
            ..whole.queue_pair
        },
        ..whole
    };
    let mut bench = Bench::of(Sides::faulty(ours, theirs), members, &config);
    bench.grid = Grid::new(1, 32);
    for round in 0..rounds {
        bench.routing = Routing::ALL[round as usize % Routing::ALL.len()];
        bench.rounds(&[ExpertRound::WHOLE], 1);
    }
    // Fewer packets may all be lucky.
    let many = members >= 16 && rounds >= ROUNDS;
    let faults = faults.load(Ordering::Relaxed);
    assert!(!many || faults > 0, "a good wire");
}

/// An exchange, and what its members send in a round.
struct Bench {
    /// Keeps the devices.
    _sides: Sides,
    members: Vec<ExpertsMember>,
    grid: Grid,
    rng: SmallRng,
    routing: Routing,
    /// Each member's tokens: values, and choices.
    tokens: Vec<Vec<Token>>,
    masked: Option<usize>,
}

struct Token {
    values: Vec<f32>,
    choices: Vec<(u32, f32)>,
}

impl Bench {
    fn new(config: &ExpertsConfig) -> Self {
        Self::of(Sides::chosen(), MEMBERS, config)
    }

    fn of(sides: Sides, members: usize, config: &ExpertsConfig) -> Self {
        Self {
            members: experts_of(&sides.domains(members), config).expect("an exchange"),
            _sides: sides,
            grid: Grid::new(config.blocks, 64),
            rng: SmallRng::seed_from_u64(27),
            routing: Routing::Any,
            tokens: Vec::new(),
            masked: None,
        }
    }

    /// Masks a member, at all others, and takes it out.
    fn mask(&mut self, masked: usize) {
        for (rank, member) in self.members.iter().enumerate() {
            if rank != masked {
                member.team().set_mask(masked as u32, true).expect("a word");
            }
        }
        self.masked = Some(masked);
    }

    /// Makes tokens for all members. The values are whole, the same in both formats.
    fn fill(&mut self) {
        self.tokens.clear();
        let shape = self.members[0].layout().shape();
        let (hidden, experts) = (shape.hidden as usize, shape.experts());
        let one = self.rng.random_range(0..experts);
        let (experts, most) = match self.routing {
            Routing::Any => (0..experts, shape.top_k),
            Routing::One => (one..one + 1, shape.top_k),
            Routing::Half => (0..experts.div_ceil(2), shape.top_k),
            Routing::Nothing => (0..experts, 0),
        };
        for member in &self.members {
            let mut tokens = Vec::new();
            for number in 0..self.rng.random_range(0..=shape.tokens) {
                // The largest one of E4M3 makes the scale 1.
                let value = |at: usize| match at % 128 {
                    0 => 448.0,
                    _ => f32::from(self.rng.random_range(-8..=8i8)),
                };
                let values: Vec<f32> = (0..hidden).map(value).collect();
                let chosen = 0..self.rng.random_range(0..=most);
                let choice = |_| (self.rng.random_range(experts.clone()), self.rng.random());
                let choices: Vec<(u32, f32)> = chosen.map(choice).collect();
                let bits = |value: &f32| Bf16::from_f32(*value).to_bits().to_le_bytes();
                let row: Vec<u8> = values.iter().flat_map(bits).collect();
                member.write_token(number, &row).expect("a row");
                let words: Vec<_> = (choices.iter().copied())
                    .map(|(expert, weight)| Choice::new(expert, weight))
                    .collect();
                member.choose(number, &words).expect("choices");
                tokens.push(Token { values, choices });
            }
            self.tokens.push(tokens);
        }
    }

    /// Makes so many rounds by kernels that have some halves each, with other tokens each time, and compares all sums.
    fn rounds(&mut self, kernels: &[u32], times: u32) {
        for _ in 0..times {
            self.fill();
            for &halves in kernels {
                for (rank, result) in self.launch(halves).into_iter().enumerate() {
                    assert_eq!(result, Ok(()), "member {rank}, halves {halves:#b}");
                }
            }
            self.compare();
        }
    }

    fn launch(&self, halves: u32) -> Vec<Result<(), Failure>> {
        let outcomes = here::shared(self.members.len(), |_| Outcome::new());
        let launch = |rank: usize| {
            let parameters = ExpertRound {
                experts: self.members[rank].handle(),
                tokens: self.tokens[rank].len() as u32,
                halves,
                masked: self.masked.iter().count() as u32,
                unused: 0,
                limit_us: ample().as_micros() as u64,
                outcome: &outcomes[rank],
            };
            let entry = match self.members[rank].layout().shape().mode {
                Mode::LowLatency => entry!(suite_experts),
                Mode::Throughput => entry!(suite_experts_packed),
            };
            Launch::new(entry, self.grid, parameters)
        };
        let present = (0..self.members.len()).filter(|&rank| self.masked != Some(rank));
        let launches: Vec<_> = present.map(launch).collect();
        here::node().run(&launches, &[]).expect("all kernels");
        outcomes.iter().map(Outcome::result).collect()
    }

    fn compare(&self) {
        let local = self.members[0].layout().shape().local;
        for (rank, member) in self.members.iter().enumerate() {
            if self.masked == Some(rank) {
                continue;
            }
            for (number, token) in self.tokens[rank].iter().enumerate() {
                let mut row = vec![0; 2 * token.values.len()];
                member.read_result(number as u32, &mut row).expect("a row");
                for (found, value) in row.as_chunks().0.iter().zip(&token.values) {
                    let mut addends = Vec::new();
                    for &(expert, weight) in &token.choices {
                        let owner = expert / local;
                        if self.masked != Some(owner as usize) {
                            let output = ExpertRound::output(expert, *value);
                            addends.push((owner, weight * Bf16::from_f32(output).to_f32()));
                        }
                    }
                    let wanted = match member.layout().shape().mode {
                        Mode::LowLatency => sum(addends.iter().map(|&(_, addend)| addend)),
                        Mode::Throughput => packed_sum(&addends),
                    }
                    .to_bits();
                    let found = u16::from_le_bytes(*found);
                    assert_eq!(found, wanted, "token {number} of member {rank}");
                }
            }
        }
    }
}

/// The sum in the order of the addends, rounded once.
fn sum(addends: impl Iterator<Item = f32>) -> Bf16 {
    Bf16::from_f32(addends.fold(0.0, |sum, addend| sum + addend))
}

/// The sum of each owner's sum, in the order of their first addends.
fn packed_sum(addends: &[(u32, f32)]) -> Bf16 {
    let mut owners: Vec<u32> = Vec::new();
    for &(owner, _) in addends {
        if !owners.contains(&owner) {
            owners.push(owner);
        }
    }
    let of = |owner: &u32| {
        let own = addends.iter().filter(|addend| addend.0 == *owner);
        sum(own.map(|addend| addend.1)).to_f32()
    };
    sum(owners.iter().map(of))
}

/// A refused member hears of it by name. The others go on without its tokens, and the next round is whole again.
fn refusals(mode: Mode) {
    let mut bench = Bench::new(&config(Format::Bf16, 256, Overflow::Refuse, mode));
    let choice = |expert| [Choice::new(expert, 1.0); TOP_K as usize];
    for (expert, error) in [
        (EXPERTS, Error::Expert { expert: EXPERTS }),
        (5, Error::Overflow { expert: 5 }),
    ] {
        bench.fill();
        for number in 0..TOKENS {
            bench.members[1]
                .choose(number, &choice(expert))
                .expect("choices");
        }
        for tokens in &mut bench.tokens {
            tokens.clear();
        }
        bench.tokens[1] = (0..TOKENS)
            .map(|_| Token {
                values: Vec::new(),
                choices: Vec::new(),
            })
            .collect();
        for (rank, result) in bench.launch(1).into_iter().enumerate() {
            let wanted = match rank {
                1 => Err(Failure::Experts(error)),
                _ => Ok(()),
            };
            assert_eq!(result, wanted, "member {rank}");
        }
        assert_eq!(bench.launch(14), [Ok(()); MEMBERS]);
        bench.rounds(&[ExpertRound::WHOLE], 1);
    }
}
