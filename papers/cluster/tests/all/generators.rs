//! The workloads' schedules, against what their definitions say.

use std::collections::HashMap;

use warpbell_cluster::generate::training::{self, Training};
use warpbell_cluster::generate::{self, Algorithm, Error, Reduction};
use warpbell_cluster::goal::{Operation, Program, Schedule};

const ALGORITHMS: [Algorithm; 3] = [Algorithm::Ring, Algorithm::Doubling, Algorithm::Tree];

fn reduction(algorithm: Algorithm, bytes: u64, chunk: u64) -> Reduction {
    Reduction {
        algorithm,
        bytes,
        chunk,
        memory: 1000.0,
    }
}

/// How many messages and bytes each rank sends.
fn sent(schedule: &Schedule) -> Vec<(u64, u64)> {
    let ranks = schedule.ranks().iter().map(|rank| {
        let sends = rank
            .operations()
            .iter()
            .filter_map(|operation| match operation {
                Operation::Send { bytes, .. } => Some(*bytes),
                _ => None,
            });
        sends.fold((0, 0), |(count, all), bytes| (count + 1, all + bytes))
    });
    ranks.collect()
}

/// A ring moves 2 (N - 1) / N of the data out of each rank, doubling log2 N times the data, a tree 2 (N - 1) times in
/// all: Thakur, Rabenseifner and Gropp 2005.
#[test]
fn reductions_move_what_theory_says() {
    for ranks in [2, 4, 8, 16] {
        let bytes = 1 << 20;
        let ring = generate::all_reduce(ranks, &reduction(Algorithm::Ring, bytes, bytes)).unwrap();
        let steps = u64::from(2 * (ranks - 1));
        let each = (steps, steps * bytes / u64::from(ranks));
        assert_eq!(sent(&ring), vec![each; ranks as usize]);

        let doubling = reduction(Algorithm::Doubling, bytes, bytes / 4);
        let doubling = generate::all_reduce(ranks, &doubling).unwrap();
        let steps = u64::from(ranks.ilog2());
        assert_eq!(
            sent(&doubling),
            vec![(4 * steps, steps * bytes); ranks as usize]
        );

        let tree = generate::all_reduce(ranks, &reduction(Algorithm::Tree, bytes, bytes)).unwrap();
        let all: u64 = sent(&tree).iter().map(|rank| rank.1).sum();
        assert_eq!(all, steps_of_a_tree(ranks) * bytes);
    }
}

/// Each part of a ring is summed N - 1 times in all, each piece of doubling log2 N times at each rank, and a tree's data
/// N - 1 times in all.
#[test]
fn reductions_sum_as_often_as_they_have_to() {
    let ranks = 8;
    let sums = |algorithm, chunk| {
        let schedule = generate::all_reduce(ranks, &reduction(algorithm, 1 << 20, chunk)).unwrap();
        let operations = schedule.ranks().iter().flat_map(|rank| rank.operations());
        operations
            .filter(|operation| matches!(operation, Operation::Calc { .. }))
            .count()
    };
    assert_eq!(sums(Algorithm::Ring, 1 << 20), 8 * 7);
    assert_eq!(sums(Algorithm::Doubling, 1 << 18), 8 * 3 * 4);
    assert_eq!(sums(Algorithm::Tree, 1 << 20), 7);
}

fn steps_of_a_tree(ranks: u32) -> u64 {
    u64::from(2 * (ranks - 1))
}

/// Every rank's result depends on every rank's data: its last operations come after something of each rank.
#[test]
fn every_result_has_every_term() {
    for algorithm in ALGORITHMS {
        for ranks in [2, 3, 4, 7, 8] {
            if algorithm == Algorithm::Doubling && ranks & (ranks - 1) != 0 {
                continue;
            }
            let schedule = generate::all_reduce(ranks, &reduction(algorithm, 1000, 99)).unwrap();
            let program = schedule.check().unwrap();
            let everyone = (1_u64 << ranks) - 1;
            for (rank, known) in knowledge(&program).into_iter().enumerate() {
                assert_eq!(known, everyone, "{algorithm:?}, {ranks} ranks, rank {rank}");
            }
        }
    }
}

/// The ranks, a bit each, whose data the operations of each rank have seen at their end. In a ring this is so for each
/// part, and all parts go the same way.
fn knowledge(program: &Program) -> Vec<u64> {
    let mut seen: HashMap<(u32, u32), u64> = HashMap::new();
    let mut waits: Vec<Vec<u32>> = program
        .ranks
        .iter()
        .map(|rank| rank.waits.clone())
        .collect();
    for rank in &program.ranks {
        for (operation, partner) in rank.operations.iter().zip(&rank.partner) {
            if let Operation::Send { to, .. } = operation {
                waits[*to as usize][*partner as usize] += 1;
            }
        }
    }
    let mut ready = Vec::new();
    for (rank, waits) in waits.iter().enumerate() {
        let free = (0..).zip(waits).filter(|(_, waits)| **waits == 0);
        ready.extend(free.map(|(operation, _)| (rank as u32, operation)));
    }
    let mut last = vec![0; program.ranks.len()];
    while let Some((rank, operation)) = ready.pop() {
        let here = &program.ranks[rank as usize];
        let entry = seen.entry((rank, operation)).or_default();
        *entry |= 1 << rank;
        let known = *entry;
        last[rank as usize] |= known;
        let mut later: Vec<_> = here
            .after_end
            .of(operation)
            .iter()
            .map(|later| (rank, *later))
            .collect();
        if let Operation::Send { to, .. } = here.operations[operation as usize] {
            later.push((to, here.partner[operation as usize]));
        }
        for next in later {
            *seen.entry(next).or_default() |= known;
            let waits = &mut waits[next.0 as usize][next.1 as usize];
            *waits -= 1;
            if *waits == 0 {
                ready.push(next);
            }
        }
    }
    last
}

#[test]
fn all_to_all_and_jacobi_send_to_whom_they_should() {
    let schedule = generate::all_to_all(5, 100).unwrap();
    assert_eq!(sent(&schedule), [(4, 400); 5]);
    assert!(schedule.check().is_ok());
    let schedule = generate::jacobi(4, 1024, 3, 1000.0).unwrap();
    let row = 1024 * 8;
    assert_eq!(
        sent(&schedule),
        [(3, 3 * row), (6, 6 * row), (6, 6 * row), (3, 3 * row)]
    );
    // 256 rows of 1,024 cells, two values of 8 bytes each, at 1,000 bytes in a nanosecond.
    let calc = Operation::Calc {
        nanoseconds: 4194,
        stream: 0,
    };
    assert_eq!(schedule.ranks()[1].operations()[0], calc);
    assert!(schedule.check().is_ok());
}

#[test]
fn a_training_step_reduces_all_gradients() {
    let layers = training::layers(training::ALEXNET).unwrap();
    // 61 million parameters, as the paper on AlexNet has them ("60 million"), with its split over two GPUs.
    let parameters: u64 = layers.iter().map(|layer| layer.parameters).sum();
    assert!(
        (60_000_000..62_000_000).contains(&parameters),
        "{parameters}"
    );
    let training = Training {
        layers,
        batch: 32,
        rate: 1e5,
        bucket: 32 << 20,
        reduction: reduction(Algorithm::Ring, 0, 1 << 30),
    };
    let schedule = training::step(4, &training).unwrap();
    let bytes: u64 = sent(&schedule).iter().map(|rank| rank.1).sum();
    assert_eq!(bytes, 2 * 3 * parameters * 4);
    // fc8 with fc7, fc6, and the rest: three reductions of six steps.
    assert_eq!(sent(&schedule)[0].0, 3 * 6);
    assert!(schedule.check().is_ok());
}

#[test]
fn bad_workloads_are_named() {
    let all_reduce = |ranks, algorithm, chunk| {
        generate::all_reduce(ranks, &reduction(algorithm, 64, chunk)).unwrap_err()
    };
    assert_eq!(all_reduce(6, Algorithm::Doubling, 8), Error::PowerOfTwo(6));
    assert_eq!(all_reduce(1, Algorithm::Ring, 8), Error::RankCount(1));
    assert_eq!(all_reduce(2, Algorithm::Ring, 0), Error::EmptyChunk);
    for algorithm in ALGORITHMS {
        for bytes in [u64::MAX, (1 << 24) + 1] {
            let reduction = reduction(algorithm, bytes, 1);
            let error = generate::all_reduce(2, &reduction).unwrap_err();
            assert_eq!(error, Error::Pieces(bytes));
        }
    }
    let rows = generate::jacobi(8, 7, 1, 1.0).unwrap_err();
    assert_eq!(rows, Error::Rows { rows: 7, ranks: 8 });
    let long = (1 << 30) + 1;
    assert_eq!(generate::put(long).unwrap_err(), Error::MessageLength(long));
    assert_eq!(
        generate::all_to_all(2, long).unwrap_err(),
        Error::MessageLength(long)
    );
    for (text, line) in [
        ("", 0),
        ("name", 1),
        ("n\na,1", 2),
        ("n\na,1,2\nb,x,3", 3),
        ("n\na,1,-2", 2),
    ] {
        let error = training::layers(text).unwrap_err();
        assert!(
            matches!(error, Error::Layers { line: at, .. } if at == line),
            "{text}: {error}"
        );
    }
}
