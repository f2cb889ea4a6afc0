//! How often patterns ring doorbells: the tables of `docs/experts.md` and `docs/collectives.md`.

mod watch;

use warpbell::{Block, Deadline, Slice};
use warpbell_host_init::{Grid, Launch, Node, Placement, QueuePairConfig, Shared, Timers, entry};
use warpbell_kernels::outcome::Outcome;
use warpbell_kernels::suite::{
    ExpertRound, TEAM_KERNELS, TeamCall, TeamCalls, TeamVerb, suite_experts, suite_experts_packed,
};
use warpbell_patterns::experts::host::{ExpertsConfig, experts_of};
use warpbell_patterns::experts::{Choice, Mode};
use warpbell_patterns::number::Number;
use warpbell_patterns::team::host::{TeamConfig, TeamMember, team_of};
use warpbell_patterns::team::{Algorithm, Error, Team};

use watch::Watch;

const LIMIT_US: u64 = 300_000_000;
const LIMIT: Deadline = Deadline::after_us(LIMIT_US);

/// Queue pairs that take nobody for dead on a machine that has other work.
fn queues() -> QueuePairConfig {
    QueuePairConfig {
        send_depth: 128,
        timers: Timers {
            acknowledge_timeout: 18,
            ..Timers::default()
        },
        ..QueuePairConfig::default()
    }
}

/// Runs kernels, one for each member, and says how many doorbells all of them rang.
fn rung(watch: &Watch, launches: &[Launch<'_>], outcomes: &[Shared<Outcome>]) -> u64 {
    watch.rung();
    Node::cpu().run(launches, &[]).expect("all kernels");
    for outcome in outcomes {
        assert_eq!(outcome.result(), Ok(()));
    }
    watch.rung()
}

fn outcomes(members: usize) -> Vec<Shared<Outcome>> {
    let outcome = |_| Shared::new(Placement::Host, Outcome::new()).expect("memory");
    (0..members).map(outcome).collect()
}

/// What 8 members ring in a dispatch and in a combine: 128 tokens of each go to 8 of 256 experts each, all evenly.
fn rung_by_experts(mode: Mode, blocks: u32) -> [u64; 2] {
    const MEMBERS: u32 = 8;
    const EXPERTS: u32 = 256;
    const TOKENS: u32 = 128;
    const TOP_K: u32 = 8;
    let config = ExpertsConfig {
        experts: EXPERTS,
        hidden: 256,
        top_k: TOP_K,
        tokens: TOKENS,
        capacity: TOKENS * TOP_K / EXPERTS,
        blocks,
        mode,
        queue_pair: queues(),
        ..ExpertsConfig::default()
    };
    let domains = Node::cpu().domains(MEMBERS as usize).expect("domains");
    let members = experts_of(&domains, &config).expect("an exchange");
    for member in &members {
        for token in 0..TOKENS {
            let expert = |k| (token * TOP_K + k) % EXPERTS;
            let choices: Vec<_> = (0..TOP_K).map(|k| Choice::new(expert(k), 1.0)).collect();
            member.choose(token, &choices).expect("choices");
        }
    }
    let outcomes = outcomes(members.len());
    let watch = Watch::new(
        members
            .iter()
            .flat_map(|member| member.team().queue_pairs()),
    );
    [0b0011, 0b1100].map(|halves| {
        let each = members.iter().zip(&outcomes);
        let launches = each.map(|(member, outcome)| {
            let parameters = ExpertRound {
                experts: member.handle(),
                tokens: TOKENS,
                halves,
                masked: 0,
                unused: 0,
                limit_us: LIMIT_US,
                outcome,
            };
            let kernel = match mode {
                Mode::LowLatency => entry!(suite_experts),
                Mode::Throughput => entry!(suite_experts_packed),
            };
            Launch::new(kernel, Grid::new(blocks, 64), parameters)
        });
        let launches: Vec<_> = launches.collect();
        let all = rung(&watch, &launches, &outcomes);
        assert!(all.is_multiple_of(MEMBERS.into()), "{all}");
        all / u64::from(MEMBERS)
    })
}

/// The example of `docs/experts.md`; DeepEP's kernels ring 448 times.
#[test]
fn thirty_two_requests_of_an_exchange_share_a_doorbell() {
    // To each of 7 members 5 and 2 groups of 32; with 8 blocks each has less than a group.
    assert_eq!(rung_by_experts(Mode::LowLatency, 1), [35, 14]);
    assert_eq!(rung_by_experts(Mode::LowLatency, 8), [56, 56]);
}

#[test]
fn a_piece_of_32_tokens_takes_a_doorbell_for_each_member() {
    for blocks in [1, 2] {
        assert_eq!(rung_by_experts(Mode::Throughput, blocks), [28, 28]);
    }
}

/// The table of `docs/collectives.md`: one for each message, and one for each member's announcement to each other one.
#[test]
fn a_message_of_a_team_takes_a_doorbell() {
    use Algorithm::{Direct, Doubling, Ring};
    const MEMBERS: u64 = 4;
    const WORDS: u64 = 64;
    let pairs = MEMBERS * (MEMBERS - 1);
    for (verb, algorithm, messages) in [
        (TeamVerb::Broadcast, Direct, MEMBERS - 1),
        (TeamVerb::AllGather, Direct, pairs),
        (TeamVerb::AllToAll, Direct, pairs),
        // The terms, too.
        (TeamVerb::AllToAllV, Direct, 2 * pairs),
        (TeamVerb::AllReduce, Ring, 2 * pairs),
        (TeamVerb::AllReduce, Direct, pairs),
        (TeamVerb::AllReduce, Doubling, 2 * MEMBERS),
        (TeamVerb::ReduceScatter, Ring, pairs),
        (TeamVerb::ReduceScatter, Direct, pairs),
    ] {
        let config = TeamConfig {
            channels: 1,
            bytes: 8 * (2 * WORDS + TeamCalls::TABLES * MEMBERS) as usize,
            scratch_bytes: (8 * MEMBERS * WORDS) as usize,
            queue_pair: queues(),
        };
        let domains = Node::cpu().domains(MEMBERS as usize).expect("domains");
        let members = team_of(&domains, &config).expect("a team");
        let calls = Shared::slice(Placement::Host, 1, |_| TeamCall {
            verb,
            algorithm,
            kind: f32::KIND,
            root: 0,
            in_place: false,
            from: 0,
            to: WORDS,
            count: 8,
        });
        let calls = calls.expect("memory");
        let mut kernels = TEAM_KERNELS.iter();
        let kernel = kernels.find(|one| {
            (one.extent, one.kind, one.verb, one.algorithm) == ("Warp", f32::KIND, verb, algorithm)
        });
        let kernel = kernel.expect("a kernel for each call").kernel;
        let outcomes = outcomes(members.len());
        let watch = Watch::new(members.iter().flat_map(TeamMember::queue_pairs));
        let each = members.iter().zip(&outcomes);
        let launches = each.map(|(member, outcome)| {
            let parameters = TeamCalls {
                team: member.handle(),
                words: 2 * WORDS,
                calls: Slice::new(&calls),
                limit_us: LIMIT_US,
                outcome,
            };
            Launch::new(kernel, Grid::new(1, 8), parameters)
        });
        let launches: Vec<_> = launches.collect();
        let all = rung(&watch, &launches, &outcomes);
        assert_eq!(all, messages + pairs, "{verb:?} by {algorithm:?}");
    }
}

#[test]
fn a_one_sided_call_takes_a_doorbell() {
    const LONG: u64 = 1 << 20;
    let config = TeamConfig {
        bytes: (2 * LONG) as usize,
        queue_pair: queues(),
        ..TeamConfig::default()
    };
    let domains = Node::cpu().domains(2).expect("domains");
    let members = team_of(&domains, &config).expect("a team");
    let watch = Watch::new(members.iter().flat_map(TeamMember::queue_pairs));
    let mut team: Team<'_, Block> = members[0].handle().open(0).expect("a channel");
    let mut peer = team.peer(1).expect("a member");
    let rung = |result: Result<(), Error>| {
        assert_eq!(result, Ok(()));
        watch.rung()
    };
    assert_eq!(rung(peer.put(0, 8, 8, LIMIT)), 1);
    assert_eq!(rung(peer.put_value(16, 1, LIMIT)), 1);
    assert_eq!(rung(peer.put_signal(0, 8, 8, (16, 2), LIMIT)), 1);
    assert_eq!(rung(peer.put_signal(0, LONG, LONG, (16, 3), LIMIT)), 2);
    assert_eq!(rung(peer.add(16, 1, LIMIT)), 1);
    assert_eq!(rung(peer.get(0, 8, 8, LIMIT)), 1);
    assert_eq!(rung(peer.quiet(LIMIT)), 1);
    assert_eq!(rung(peer.flush(LIMIT)), 0);
}
