//! Ranks that are threads of one process, with NICs of their own.

mod faults;

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::Duration;

use mlx5_wqe::{Completion, Wqe};
use warpbell::trace::{Event, Kind};

use super::ranks::{Config, Environment, FailedRank, RanksError, Rendezvous, Root};
use super::*;
use crate::tests::hand::{Hand, wait};
use crate::tests::{ALL, PATIENT, bytes_of, region};
use crate::trace::{Recording, Source, Trace};
use crate::{MemoryRegion, Nic, Node, QueuePairConfig, RemoteMemory, State};

const PATIENCE: Duration = Duration::from_secs(300);

fn config() -> QueuePairConfig {
    QueuePairConfig {
        timers: PATIENT,
        ..QueuePairConfig::granting(ALL)
    }
}

/// A rank of a job whose root has this port, at a loopback address that no other process has.
fn join(port: u16, rank: u32, size: u32) -> Rendezvous {
    let [_, b, c, d] = std::process::id().to_be_bytes();
    let host = format!("127.{}.{c}.{d}", 64 + b % 64);
    let alone = Config::read(&Environment::default()).unwrap();
    let config = Config {
        rank,
        size,
        local_rank: None,
        root: Root::Tcp { host, port },
        ..alone
    };
    Rendezvous::join(&config, PATIENCE).unwrap()
}

/// What each rank of a job comes to.
fn job<R: Send>(
    port: u16,
    size: u32,
    options: impl Fn(u32) -> WorldOptions + Sync,
    part: impl Fn(Result<World, Error>) -> R + Sync,
) -> Vec<R> {
    thread::scope(|scope| {
        let (part, options) = (&part, &options);
        let rank = |rank| {
            scope.spawn(move || {
                let ranks = join(port, rank, size);
                part(World::with(ranks, &Node::cpu(), &options(rank)))
            })
        };
        let threads: Vec<_> = (0..size).map(rank).collect();
        threads.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

fn over(wire: WireKind) -> impl Fn(u32) -> WorldOptions {
    move |_| WorldOptions {
        wire: Some(wire),
        ..WorldOptions::new(PATIENCE)
    }
}

fn chosen(_: u32) -> WorldOptions {
    WorldOptions::new(PATIENCE)
}

/// The bytes that a rank gives to another one: no two are alike.
fn message(from: u32, to: u32, bytes: usize) -> Vec<u8> {
    let first = (16 * from + to) as u8;
    (0..bytes).map(|at| first.wrapping_add(at as u8)).collect()
}

/// Each rank writes to each of its neighbours, and checks every byte that arrives.
fn exchange(world: &mut World, pairs: &BTreeMap<u32, QueuePair>) {
    let ready = |pair: &QueuePair| pair.state().unwrap() == State::ReadyToSend;
    assert!(pairs.values().all(ready));
    let hands = pairs.iter().map(|(rank, pair)| (*rank, Hand::new(pair)));
    exchange_by(world, &mut hands.collect());
}

/// The same by queue pairs that may have done so before.
fn exchange_by(world: &mut World, hands: &mut BTreeMap<u32, Hand<'_>>) {
    const BYTES: usize = 10_000;
    let bytes = BYTES as u32;
    let (own, size) = (world.rank(), world.size() as usize);
    let domain = world.domain().clone();
    let inbox = region(&domain, BYTES * size, 0, ALL);
    let inboxes: Vec<RemoteMemory> = world.exchange(&inbox.remote()).unwrap();
    let inboxes: BTreeMap<u32, RemoteMemory> = world.ranks().zip(inboxes).collect();
    for (rank, hand) in &mut *hands {
        let rank = *rank;
        let outbox: MemoryRegion = region(&domain, BYTES, 0, ALL);
        outbox.write(0, &message(own, rank, BYTES)).unwrap();
        let theirs = inboxes[&rank].at(BYTES * own as usize, bytes).unwrap();
        let write = Wqe::write(outbox.local(0, bytes).unwrap(), theirs);
        let index = hand.post(write.signalled());
        let completion = wait("a completion", || (), || hand.poll());
        assert!(
            matches!(completion, Completion::Requester(done) if done.wqe_index == index),
            "{completion:?}"
        );
    }
    world.barrier().unwrap();
    let arrived = bytes_of(&inbox);
    for rank in 0..size {
        let expected = match hands.contains_key(&(rank as u32)) {
            true => message(rank as u32, own, BYTES),
            false => vec![0; BYTES],
        };
        assert_eq!(arrived[BYTES * rank..][..BYTES], expected, "of rank {rank}");
    }
    world.barrier().unwrap();
}

#[test]
fn all_ranks_write_to_all_over_each_wire() {
    for (port, wire) in [(20_000, WireKind::SharedMemory), (20_001, WireKind::RoceV2)] {
        job(port, 4, over(wire), |world| {
            let mut world = world.unwrap();
            let (own, others) = (world.rank(), world.others());
            assert!(
                (0..5).all(|rank| (world.wire(rank) == Some(wire)) == (rank < 4 && rank != own))
            );
            assert_eq!(world.to_string(), format!("4 ranks; 3 ranks by {wire}"));
            let pairs = world.connect(others, &config()).unwrap();
            exchange(&mut world, &pairs);
        });
    }
}

#[test]
fn each_rank_captures_what_it_writes_and_gets() {
    let folder = std::env::temp_dir().join(format!("warpbell-captures-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let options = |rank| WorldOptions {
        capture: Some(folder.clone()),
        ..over(WireKind::RoceV2)(rank)
    };
    for port in [20_018, 20_019] {
        job(port, 2, options, |world| {
            let mut world = world.unwrap();
            let pairs = world.connect(world.others(), &config()).unwrap();
            exchange(&mut world, &pairs);
        });
    }
    for rank in ["0", "1", "0-1", "1-1"] {
        let file = folder.join(format!("rank-{rank}.pcapng"));
        // Both see the 10,000 bytes of each.
        let length = std::fs::metadata(&file).unwrap().len();
        assert!(length > 20_000, "{length} bytes of rank {rank}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The times of a capture's packets, in nanoseconds since the Unix epoch.
fn captured(file: &Path) -> Vec<u64> {
    /// An enhanced packet block: type, length, interface, and the time's two halves.
    const PACKET: u32 = 6;
    let bytes = std::fs::read(file).unwrap();
    let (words, _) = bytes.as_chunks();
    let words: Vec<_> = words.iter().map(|word| u32::from_ne_bytes(*word)).collect();
    let (mut at, mut times) = (0, Vec::new());
    while at < words.len() {
        if words[at] == PACKET {
            times.push(u64::from(words[at + 3]) << 32 | u64::from(words[at + 4]));
        }
        at += words[at + 1] as usize / 4;
    }
    times
}

/// The first packet of all is captured behind the doorbell that it goes back to, and not behind the event that tells of it.
#[test]
fn a_capture_and_a_trace_have_one_clock() {
    let folder = std::env::temp_dir().join(format!("warpbell-one-clock-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let options = |rank| WorldOptions {
        capture: Some(folder.clone()),
        ..over(WireKind::RoceV2)(rank)
    };
    let traced = |rank| {
        let trace = Trace::start(&Node::cpu(), 1, 10_000).unwrap();
        let ranks = join(20_020, rank, 2);
        let mut world = World::with(ranks, &trace.node(), &options(rank)).unwrap();
        let pairs = world.connect(world.others(), &config()).unwrap();
        exchange(&mut world, &pairs);
        drop((pairs, world));
        trace.stop().unwrap()
    };
    let recordings = thread::scope(|scope| {
        let traced = &traced;
        let ranks = [0, 1].map(|rank| scope.spawn(move || traced(rank)));
        ranks.map(|rank| rank.join().unwrap())
    });
    let first = |recording: &Recording, kinds: &[Kind]| {
        let is_wanted = |event: &Event| event.kind().is_some_and(|kind| kinds.contains(&kind));
        let mut events = recording.events();
        events.find(|(_, event)| is_wanted(event)).unwrap().0
    };
    let doorbells = recordings
        .each_ref()
        .map(|all| first(all, &[Kind::Doorbell]));
    let doorbell = doorbells.into_iter().min().unwrap();
    for (rank, recording) in recordings.iter().enumerate() {
        assert_eq!(recording.lost(), 0);
        let event = first(recording, &[Kind::PacketOut, Kind::PacketIn]);
        let packet = captured(&folder.join(format!("rank-{rank}.pcapng")))[0];
        // Readings of a clock on a busy machine, and the system's own correction of its clock meanwhile.
        let mut error = 1_000_000;
        error += recordings
            .iter()
            .flat_map(Recording::sources)
            .map(Source::clock_error_ns)
            .sum::<u64>();
        assert!(
            doorbell <= packet + error && packet <= event + error,
            "doorbell {doorbell}, packet {packet}, event {event}"
        );
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn neighbours_in_a_ring_are_connected_and_no_others() {
    job(20_002, 5, chosen, |world| {
        let mut world = world.unwrap();
        let (own, size) = (world.rank(), world.size());
        let ring = [(own + 1) % size, (own + size - 1) % size];
        // More queue pairs for the same ranks may be made later.
        for _ in 0..2 {
            let pairs = world.connect(ring, &config()).unwrap();
            assert!(pairs.keys().all(|rank| ring.contains(rank)) && pairs.len() == 2);
            exchange(&mut world, &pairs);
        }
    });
}

#[test]
fn one_rank_is_a_world() {
    let ranks = join(20_003, 0, 1);
    let mut world = World::with(ranks, &Node::cpu(), &chosen(0)).unwrap();
    assert!(world.connect([], &config()).unwrap().is_empty());
    assert_eq!(world.exchange(&7).unwrap(), [7]);
    assert_eq!(world.to_string(), "1 rank");
}

#[test]
fn long_values_are_exchanged_whole() {
    let lengths = [0, 65_526, 65_536, 131_064, 300_000];
    job(20_004, 5, chosen, |world| {
        let mut world = world.unwrap();
        let value = |rank: u32| "x".repeat(lengths[rank as usize]);
        let all: Vec<String> = world.exchange(&value(world.rank())).unwrap();
        assert!((0..5).map(value).eq(all));
    });
}

fn words(result: Result<impl fmt::Debug, Error>) -> String {
    result.unwrap_err().to_string()
}

/// The rank with the error has its own words, the others name it.
#[test]
fn an_error_of_one_rank_is_named_on_all() {
    type Part = fn(&mut World) -> String;
    let wrong: [(u16, Part, &str); 3] = [
        (
            20_005,
            |world| {
                let neighbours = if world.rank() == 1 {
                    vec![0, 2, 3]
                } else {
                    vec![1]
                };
                words(world.connect(neighbours, &config()))
            },
            "rank 3 cannot be a neighbour of rank 1 among 3 ranks",
        ),
        (
            20_006,
            |world| match world.rank() {
                1 => words(world.exchange(&"x".repeat(gather::MOST_BYTES))),
                _ => words(world.exchange(&String::new())),
            },
            "a value of 16777218 bytes",
        ),
        (
            20_007,
            |world| {
                let depth = if world.rank() == 1 { 100 } else { 128 };
                let config = QueuePairConfig {
                    send_depth: depth,
                    ..config()
                };
                words(world.connect(world.others(), &config))
            },
            "send queue depth 100",
        ),
    ];
    for (port, part, expected) in wrong {
        let errors = job(port, 3, chosen, |world| part(&mut world.unwrap()));
        assert!(errors[1].starts_with(expected), "{errors:?}");
        for other in [0, 2] {
            let named = format!("rank 1 aborted: {expected}");
            assert!(errors[other].starts_with(&named), "{errors:?}");
        }
    }
}

/// All ranks see what is wrong, and say the same.
#[test]
fn what_does_not_fit_together_is_named_on_all() {
    let one_sided = job(20_008, 3, chosen, |world| {
        let mut world = world.unwrap();
        let neighbours = [vec![1, 2], vec![0], vec![]];
        words(world.connect(neighbours[world.rank() as usize].clone(), &config()))
    });
    let expected = "rank 0 wants a queue pair with rank 2, and rank 2 none with rank 0";
    assert!(
        one_sided.iter().all(|error| error.contains(expected)),
        "{one_sided:?}"
    );

    let options = |rank| match rank {
        1 => over(WireKind::RoceV2)(rank),
        _ => chosen(rank),
    };
    let wires = job(20_009, 3, options, words);
    let expected = "rank 1 wants RoCE v2, and rank 0 the wire chosen";
    assert!(
        wires.iter().all(|error| error.contains(expected)),
        "{wires:?}"
    );

    let types = job(20_010, 2, chosen, |world| {
        let mut world = world.unwrap();
        match world.rank() {
            0 => words(world.exchange(&7)),
            _ => words(world.exchange(&"seven".to_owned())),
        }
    });
    assert!(types[0].contains("rank 1 gave something else"), "{types:?}");
    assert!(types[1].contains("rank 0 gave something else"), "{types:?}");
}

#[test]
fn a_rank_that_ends_early_is_an_error_on_the_others() {
    let failed = job(20_011, 3, chosen, |world| {
        let mut world = world.unwrap();
        if world.rank() == 2 {
            return None;
        }
        Some(
            match world.connect(world.others(), &config()).unwrap_err() {
                Error::World(error) => match *error {
                    WorldError::Ranks(RanksError::Failed(failure)) => (failure.rank, failure.why),
                    other => panic!("{other}"),
                },
                other => panic!("{other}"),
            },
        )
    });
    assert_eq!(failed[0], Some((2, FailedRank::Left)));
    assert_eq!(failed[0], failed[1]);
}

#[test]
fn an_abort_ends_the_job_with_its_reason() {
    let errors = job(20_012, 3, chosen, |world| {
        let mut world = world.unwrap();
        if world.rank() == 1 {
            world.abort("no data");
        }
        words(world.barrier())
    });
    assert_eq!(errors, ["rank 1 aborted: no data"; 3]);
}

#[test]
fn addresses_that_are_not_there_are_named() {
    let options = |_| WorldOptions {
        addresses: Some("nobody's".parse().unwrap()),
        ..over(WireKind::RoceV2)(0)
    };
    let errors = job(20_013, 2, options, words);
    let named = |error: &String| error.contains("\"nobody's\" is no address, network or interface");
    assert!(errors.iter().all(named), "{errors:?}");
}

/// The other rank's NIC would have one.
#[test]
fn a_nic_without_a_wire_is_named() {
    let nic = Nic::SoftGpu(crate::tests::resident::options());
    let resident = Node::cpu().with_nic(nic).unwrap();
    let errors = thread::scope(|scope| {
        let ranks = || join(20_014, 1, 2);
        let other = scope.spawn(move || words(World::with(ranks(), &resident, &chosen(1))));
        let error = words(World::with(join(20_014, 0, 2), &Node::cpu(), &chosen(0)));
        [error, other.join().unwrap()]
    });
    let expected = "the NIC soft-gpu of rank 1 has no wire to other ranks";
    assert!(errors[1].starts_with(expected), "{errors:?}");
    assert!(
        errors[0].starts_with(&format!("rank 1 aborted: {expected}")),
        "{errors:?}"
    );
}
