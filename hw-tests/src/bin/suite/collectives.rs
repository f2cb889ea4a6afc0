//! Proves that a team's calls do what they say, from a warp, a block and a grid: random calls in a row, of random sizes, in
//! place and not; every word of every member's window is compared, those that no call writes too.

use std::process::ExitCode;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use warpbell::Slice;
use warpbell_host_init::{Grid, Kernels, Launch, QueuePairConfig};
use warpbell_hw_tests::here;
use warpbell_hw_tests::machine::Machine;
use warpbell_hw_tests::post::ample;
use warpbell_hw_tests::run::run;
use warpbell_kernels::outcome::Outcome;
use warpbell_kernels::suite::{PlainTeam, TEAM_KERNELS, TeamCall, TeamCalls, TeamKernel, TeamVerb};
use warpbell_patterns::team::Algorithm;
use warpbell_patterns::team::host::{TeamConfig, TeamMember, team_of};

/// With two channels the queue pairs of 4 members are 24: a NIC among the kernels has room for 32.
const MEMBERS: [u32; 2] = [3, 4];
const CHANNELS: u32 = 2;
/// Words of half a unit's part of the window: the first half is read, and what is made in place; the second is written.
const HALF: u64 = 256;
/// Words of each channel's scratch: of direct sums, and the same for rings in several rounds.
const SCRATCH: [u64; 2] = [4 * HALF, 7];
/// Calls in a row.
const CALLS: usize = 16;
/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// Who makes the calls: by its name, the grid, and the blocks that make a call together.
type Extent = (&'static str, Grid, u32);

const EXTENTS: [Extent; 3] = [
    // The second warp has fewer lanes.
    ("Warp", Grid::new(1, 50), 1),
    ("Block", Grid::new(2, 40), 1),
    ("Grid", Grid::new(2, 40), 2),
];

pub fn test(machine: &Machine) -> ExitCode {
    run(machine, Duration::from_secs(600), |progress| {
        for kernels in here::in_each_order() {
            for extent in EXTENTS {
                progress.step(format!("calls by a {}, {kernels}", extent.0));
                for (seed, ranks) in (0..).zip(MEMBERS) {
                    for scratch in SCRATCH {
                        compare(kernels, extent, ranks, scratch, seed);
                    }
                }
            }
        }
    })
}

/// Makes random calls at all members, and compares their windows.
fn compare(kernels: Kernels, extent: Extent, ranks: u32, scratch: u64, seed: u64) {
    let (name, _, units) = extent;
    let what = format!("{kernels}, {name}, {ranks} members, scratch of {scratch} words");
    let random = &mut SmallRng::seed_from_u64(seed);
    let team = PlainTeam {
        ranks,
        units,
        scratch,
    };
    let parts = (CHANNELS / units) as usize;
    let part = (2 * HALF + TeamCalls::TABLES * u64::from(ranks)) as usize;
    let config = TeamConfig {
        channels: CHANNELS,
        bytes: WORD * part * parts,
        scratch_bytes: WORD * scratch as usize,
        queue_pair: QueuePairConfig {
            send_depth: 32,
            ..QueuePairConfig::default()
        },
    };
    let node = here::node().with_kernels(kernels).expect("the node");
    let domains = node.domains(ranks as usize).expect("domains");
    let members = team_of(&domains, &config).expect("a team");
    let mut windows: Vec<Vec<Vec<u64>>> = (0..parts)
        .map(|_| {
            let mut window = || (0..2 * HALF).map(|_| finite(random)).collect();
            members.iter().map(|_| window()).collect()
        })
        .collect();
    for (at, windows) in windows.iter().enumerate() {
        for (member, window) in members.iter().zip(windows) {
            let bytes: Vec<u8> = window.iter().flat_map(|word| word.to_le_bytes()).collect();
            member.write(WORD * part * at, &bytes).expect("inside");
        }
    }
    let calls = calls(&team, name, random);
    // One after the other on the same channels.
    for call in &calls {
        make(kernels, extent, &members, call, &what);
    }
    for (at, windows) in windows.iter_mut().enumerate() {
        for call in &calls {
            let before = windows.clone();
            let read = |rank: u32, word: u64| before[rank as usize][word as usize];
            for (own, window) in (0..).zip(&mut *windows) {
                for (word, value) in (0..).zip(window) {
                    *value = team.after(call, own, word, read).unwrap_or(*value);
                }
            }
        }
        for (member, window) in members.iter().zip(windows) {
            let mut bytes = vec![0; 2 * WORD * HALF as usize];
            member.read(WORD * part * at, &mut bytes).expect("inside");
            let expected = window.iter().flat_map(|word| word.to_le_bytes());
            let wrong = bytes
                .iter()
                .copied()
                .zip(expected)
                .position(|(found, expected)| found != expected);
            let rank = member.rank();
            assert_eq!(wrong, None, "{what}: member {rank}, part {at}, byte");
        }
    }
}

/// A word in which most sums depend on their order, and no number is too large.
fn finite(random: &mut SmallRng) -> u64 {
    // The highest bit but one of each exponent is clear, for floats of 32 bits and of 16.
    random.random::<u64>() & !0x4000_4000_4000_4000
}

/// Random calls, of which those with small scratch are rings.
fn calls(team: &PlainTeam, extent: &str, random: &mut SmallRng) -> Vec<TeamCall> {
    let small = team.scratch < 4 * HALF;
    let fits = |verb: &(TeamVerb, Algorithm)| {
        let sums = matches!(verb.0, TeamVerb::AllReduce | TeamVerb::ReduceScatter);
        !(small && sums) || verb.1 == Algorithm::Ring
    };
    let verbs: Vec<_> = team.verbs().filter(fits).collect();
    let call = |_| {
        let verb = verbs[random.random_range(0..verbs.len())];
        team.random_call(verb, kernel_of(extent, verb).kind, HALF, |end| {
            random.random_range(0..end)
        })
    };
    (0..CALLS).map(call).collect()
}

/// The kernel for a call by an extent.
fn kernel_of(extent: &str, (verb, algorithm): (TeamVerb, Algorithm)) -> &'static TeamKernel {
    let mut kernels = TEAM_KERNELS.iter();
    let found = kernels
        .find(|kernel| (kernel.extent, kernel.verb, kernel.algorithm) == (extent, verb, algorithm));
    found.expect("a kernel for each call")
}

fn make(kernels: Kernels, extent: Extent, members: &[TeamMember], call: &TeamCall, what: &str) {
    let (name, grid, _) = extent;
    let kernel = kernel_of(name, (call.verb, call.algorithm)).kernel;
    let rows = here::shared(1, |_| *call);
    let outcomes = here::shared(members.len(), |_| Outcome::new());
    let launches: Vec<_> = (members.iter().zip(outcomes.iter()))
        .map(|(member, outcome)| {
            let parameters = TeamCalls {
                team: member.handle(),
                words: 2 * HALF,
                calls: Slice::new(&rows),
                limit_us: ample().as_micros() as u64,
                outcome,
            };
            Launch::new(kernel, grid, parameters)
        })
        .collect();
    let node = here::node().with_kernels(kernels).expect("the node");
    node.run(&launches, &[]).expect("all kernels");
    for (rank, outcome) in outcomes.iter().enumerate() {
        assert_eq!(outcome.result(), Ok(()), "{what}: member {rank}");
    }
}
