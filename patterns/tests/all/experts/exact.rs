//! Every value of every round, against the model.

use super::model::{Model, Routing};
use super::*;
use warpbell::{Slice, kernel, thread};
use warpbell_host_init::entry;
use warpbell_patterns::experts::{Experts, ExpertsHandle, Received};
use warpbell_patterns::number::{Bf16, E4m3};

#[repr(C)]
#[derive(Clone, Copy)]
struct Rounds<'a> {
    experts: ExpertsHandle<'a>,
    routing: u32,
    /// Threads of the grid.
    threads: u32,
    rounds: u64,
    /// Whether each half is a grid of its own: this one makes so many halves of the round.
    half: u32,
    results: Slice<'a, Word64>,
}

/// All four.
pub const WHOLE: u32 = 4;

#[kernel]
fn rounds(p: Rounds<'_>) {
    let word = match go(&p) {
        Ok(()) => 0,
        Err(word) => word,
    };
    p.results.store(thread::index().into(), word);
}

fn go(p: &Rounds<'_>) -> Result<(), u64> {
    let mut experts = p.experts.open().map_err(Error::to_bits)?;
    for _ in 0..p.rounds {
        let begins = p.half == 0 || p.half == WHOLE;
        let model = Model {
            routing: Routing::of(p.routing),
            experts: experts.shape().experts(),
            tokens: experts.shape().tokens,
            round: experts.round() + u64::from(begins),
        };
        half(p, &mut experts, &model)?;
    }
    Ok(())
}

fn half(p: &Rounds<'_>, experts: &mut Experts<'_>, model: &Model) -> Result<(), u64> {
    let tokens = model.sends(experts.rank());
    let masked = |masked| match masked {
        Ok(0) => Ok(()),
        Ok(masked) => Err(wrong(1, u64::from(masked))),
        Err(error) => Err(Error::to_bits(error)),
    };
    if p.half == 0 || p.half == WHOLE {
        write_inputs(p, experts, model);
        experts
            .dispatch_begin(tokens, PATIENCE)
            .map_err(Error::to_bits)?;
    }
    if p.half == 1 || p.half == WHOLE {
        masked(experts.dispatch_finish(PATIENCE))?;
        compute(p, experts, model)?;
    }
    if p.half == 2 || p.half == WHOLE {
        experts.combine_begin(PATIENCE).map_err(Error::to_bits)?;
    }
    if p.half == 3 || p.half == WHOLE {
        masked(experts.combine_finish(PATIENCE))?;
        check_results(p, experts, model)?;
    }
    Ok(())
}

fn write_inputs(p: &Rounds<'_>, experts: &Experts<'_>, model: &Model) {
    let rank = experts.rank();
    for token in (thread::index()..experts.shape().tokens).step_by(p.threads as usize) {
        let row = experts.token(token).unwrap();
        for word in 0..row.len() {
            row.store(word, model.word(rank, token, word));
        }
        for k in 0..experts.shape().top_k {
            assert!(experts.choose(token, k, model.choice(rank, token, k)));
        }
    }
}

/// Each thread has some of the experts' sources.
fn compute(p: &Rounds<'_>, experts: &Experts<'_>, model: &Model) -> Result<(), u64> {
    let shape = experts.shape();
    for number in (thread::index()..shape.experts()).step_by(p.threads as usize) {
        let (local, source) = (number % shape.local, number / shape.local);
        let expert = experts.rank() * shape.local + local;
        let received = experts.received(local, source);
        if received.count() != model.wanted(source, expert, shape.top_k) || received.dropped() != 0
        {
            return Err(wrong(
                2,
                u64::from(number) << 16 | u64::from(received.count()),
            ));
        }
        for slot in 0..received.count() {
            let header = received.header(slot).unwrap();
            let choice = model.choice(source, header.token, header.k);
            if choice != warpbell_patterns::experts::Choice::new(expert, header.weight) {
                return Err(wrong(3, u64::from(slot)));
            }
            for word in 0..shape.hidden_words().into() {
                let found = value(shape.format, &received, slot, word);
                if found != model.word(source, header.token, word) {
                    return Err(wrong(4, word));
                }
                let output = Model::outputs(expert, found);
                assert!(received.output(slot).unwrap().store(word, output));
            }
        }
        assert!(received.row(received.count()).is_none());
    }
    Ok(())
}

/// A word of 4 values that have come.
fn value(format: Format, received: &Received<'_>, slot: u32, word: u64) -> u64 {
    let row = received.row(slot).unwrap();
    if format == Format::Bf16 {
        return row.load(word).unwrap();
    }
    let scales = row.len() * 32 / 33 + word / 64;
    let scale = row.load(scales).unwrap() >> (32 * (word / 32 % 2));
    let packed = row.load(word / 2).unwrap();
    let values = E4m3::unpack(packed, f32::from_bits(scale as u32));
    let first = 4 * (word % 2) as usize;
    Bf16::pack([0, 1, 2, 3].map(|value| values[first + value]))
}

fn check_results(p: &Rounds<'_>, experts: &Experts<'_>, model: &Model) -> Result<(), u64> {
    let (rank, shape) = (experts.rank(), experts.shape());
    for token in (thread::index()..model.sends(rank)).step_by(p.threads as usize) {
        let row = experts.result(token).unwrap();
        for word in 0..row.len() {
            let wanted = model.sum(rank, token, word, shape.top_k, |_| true);
            if row.load(word) != Some(wanted) {
                return Err(wrong(5, u64::from(token) << 16 | word));
            }
        }
    }
    Ok(())
}

/// What becomes of so many rounds, or of a half of one.
pub fn rounds_of(
    members: &[ExpertsMember],
    grid: Grid,
    routing: Routing,
    rounds: u64,
    half: u32,
) -> Vec<Vec<u64>> {
    let results: Vec<_> = members.iter().map(|_| results(grid)).collect();
    let launches: Vec<_> = (members.iter().zip(&results))
        .map(|(member, results)| {
            let parameters = Rounds {
                experts: member.handle(),
                routing: routing as u32,
                threads: grid.blocks * grid.threads_per_block,
                rounds,
                half,
                results: Slice::new(results),
            };
            Launch::new(entry!(self::rounds), grid, parameters)
        })
        .collect();
    run(&launches, &results)
}

#[test]
fn every_value_is_exact() {
    for members in [1, 2, 4, 8] {
        let members = exchange(members, &config());
        for routing in Routing::ALL {
            all_succeed(rounds_of(&members, Grid::new(2, 64), routing, 3, WHOLE));
        }
        for member in &members {
            assert_eq!(member.round().unwrap(), 12);
            assert_eq!(member.team().first_error(), None);
        }
    }
}

/// Other grids go on with a round, of other sizes, too.
#[test]
fn every_half_may_be_a_grid_of_its_own() {
    let members = exchange(2, &config());
    for round in 0..3 {
        for half in 0..WHOLE {
            let grid = Grid::new(1 + (round + half) % 2, 32);
            all_succeed(rounds_of(&members, grid, Routing::Random, 1, half));
        }
    }
}
