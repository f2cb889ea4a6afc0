//! What each call posts: requests, and bytes against those that its algorithm must move.

use super::*;
use warpbell::Slice;
use warpbell::wqe::{QpNumber, WqeIndex};
use warpbell_host_init::QueuePair;
use warpbell_kernels::outcome::Outcome;
use warpbell_kernels::suite::{TEAM_KERNELS, TeamCall, TeamCalls, TeamVerb};
use warpbell_patterns::number::Number;
use warpbell_patterns::team::Algorithm;

const MEMBERS: u64 = 4;
/// Words of what is summed, broadcast, or exchanged by all; of which each member's part is a fourth.
const WORDS: u64 = 8192;
const BYTES: u64 = 8 * WORDS;

/// Requests and bytes of a member's queue. All are in the ring, which is deep enough.
fn posted(pair: &QueuePair) -> (u64, u64) {
    let (mut requests, mut bytes, mut block) = (0, 0, 0);
    let end = pair.send_progress().published;
    let ring = pair.send_parts().ring.cast::<u64>();
    while block < end {
        // SAFETY: the ring has the block, on the CPU, whose kernels have ended; the NIC only reads it.
        let words = [0, 1, 2, 3, 4, 5, 6, 7]
            .map(|word| unsafe { ring.add(8 * block as usize + word).read_volatile() });
        let wqe: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let qpn = QpNumber::from_low_bits(pair.qpn());
        let wqe = warpbell::wqe::decode::decode(&wqe, WqeIndex(block as u16), qpn).unwrap();
        requests += 1;
        bytes += u64::from(wqe.length);
        block += u64::from(wqe.blocks);
    }
    (requests, bytes)
}

/// Makes one call, and says what each member has posted.
fn posted_by(verb: TeamVerb, algorithm: Algorithm, count: u64) -> Vec<(u64, u64)> {
    let config = TeamConfig {
        scratch_bytes: (MEMBERS * BYTES) as usize,
        queue_pair: QueuePairConfig {
            send_depth: 128,
            ..config(1, 0).queue_pair
        },
        ..config(1, (2 * WORDS + TeamCalls::TABLES * MEMBERS) as usize)
    };
    let members = team(MEMBERS as usize, &config);
    let call = TeamCall {
        verb,
        algorithm,
        kind: f32::KIND,
        root: 0,
        in_place: false,
        from: 0,
        to: WORDS,
        count,
    };
    let calls = Shared::slice(Placement::Host, 1, |_| call).unwrap();
    let mut kernels = TEAM_KERNELS.iter();
    let kernel = kernels.find(|one| {
        (one.extent, one.kind) == ("Warp", call.kind)
            && (one.verb, one.algorithm) == (call.verb, call.algorithm)
    });
    let kernel = kernel.expect("a kernel for each call");
    let outcomes: Vec<_> = members.iter().map(|_| Outcome::new()).collect();
    let launches: Vec<_> = (members.iter().zip(&outcomes))
        .map(|(member, outcome)| {
            let parameters = TeamCalls {
                team: member.handle(),
                words: 2 * WORDS,
                calls: Slice::new(&calls),
                limit_us: 300_000_000,
                outcome,
            };
            Launch::new(kernel.kernel, Grid::new(1, 8), parameters)
        })
        .collect();
    Node::cpu().run(&launches, &[]).unwrap();
    for outcome in &outcomes {
        assert_eq!(outcome.result(), Ok(()));
    }
    let of_member = |member: &TeamMember| {
        let queues = member.queue_pairs().map(posted);
        queues.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    };
    members.iter().map(of_member).collect()
}

/// The table of `docs/collectives.md`.
#[test]
fn calls_post_as_little_as_the_book_says() {
    use Algorithm::{Direct, Doubling, Ring};
    let others = MEMBERS - 1;
    let part = BYTES / MEMBERS;
    // A chunk of a ring is one slice, and by doubling there are two steps.
    for (verb, algorithm, count, messages, must) in [
        (
            TeamVerb::AllGather,
            Direct,
            WORDS / 2,
            others,
            others * part,
        ),
        (TeamVerb::AllToAll, Direct, WORDS / 2, others, others * part),
        (
            TeamVerb::AllReduce,
            Ring,
            2 * WORDS,
            2 * others,
            2 * others * part,
        ),
        (
            TeamVerb::AllReduce,
            Direct,
            2 * WORDS,
            others,
            others * BYTES,
        ),
        (TeamVerb::AllReduce, Doubling, 2 * WORDS, 2, 2 * BYTES),
        (
            TeamVerb::ReduceScatter,
            Ring,
            2 * WORDS,
            others,
            others * part,
        ),
        (
            TeamVerb::ReduceScatter,
            Direct,
            2 * WORDS,
            others,
            others * part,
        ),
    ] {
        let wanted = (2 * messages + others, must + 8 * (messages + others));
        for posted in posted_by(verb, algorithm, count) {
            assert_eq!(posted, wanted, "{verb:?} by {algorithm:?}");
            assert!(10 * posted.1 <= 11 * must, "{verb:?} by {algorithm:?}");
        }
    }
    let broadcast = posted_by(TeamVerb::Broadcast, Direct, 2 * WORDS);
    assert_eq!(broadcast[0], (3 * others, others * (BYTES + 16)));
    for posted in &broadcast[1..] {
        assert_eq!(*posted, (others, 8 * others));
    }
    // Each pair has a count of its own, and the terms are a word more.
    let call = |own: u64| {
        let pair = |to| (5 + 3 * own + 5 * to + own * to) % 7;
        let words: u64 = (0..MEMBERS).filter(|&to| to != own).map(pair).sum();
        let writes = (0..MEMBERS).filter(|&to| to != own && pair(to) > 0).count();
        (3 * others + writes as u64, 8 * words + 24 * others)
    };
    let varying = posted_by(TeamVerb::AllToAllV, Direct, 5);
    assert_eq!(varying, (0..MEMBERS).map(call).collect::<Vec<_>>());
}
