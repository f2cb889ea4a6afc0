//! A kernel that makes rounds by the model, and compares what comes.

use super::model::{Model, Routing};
use super::*;
use warpbell::{Slice, kernel, thread};
use warpbell_host_init::entry;
use warpbell_patterns::experts::{Experts, ExpertsHandle, Received, Way};
use warpbell_patterns::number::Bf16;

#[repr(C)]
#[derive(Clone, Copy)]
struct Rounds<'a> {
    experts: ExpertsHandle<'a>,
    routing: u32,
    /// Threads of the grid.
    threads: u32,
    rounds: u64,
    /// The half of the round that the grid makes, or all of them.
    half: u32,
    /// The member that is masked from the dispatch on, if there is one.
    masked: u32,
    /// What the waits for other members may take.
    limit_ms: u64,
    results: Slice<'a, Word64>,
}

/// All four halves.
pub const WHOLE: u32 = 4;

/// No member is masked.
pub const NOBODY: u32 = u32::MAX;

#[kernel]
fn rounds(p: Rounds<'_>) {
    let done = match p.experts.open() {
        // One of the two opens it.
        Err(Error::Mode) => (p.experts.open_packed()).map_or_else(refused, |open| go(&p, open)),
        open => open.map_or_else(refused, |open| go(&p, open)),
    };
    let word = match done {
        Ok(()) => 0,
        Err(word) => word,
    };
    p.results.store(thread::index().into(), word);
}

fn refused(error: Error) -> Result<(), u64> {
    Err(error.to_bits())
}

fn go<M: Way>(p: &Rounds<'_>, mut experts: Experts<'_, M>) -> Result<(), u64> {
    for _ in 0..p.rounds {
        let begins = p.half == 0 || p.half == WHOLE;
        let model = Model {
            routing: Routing::of(p.routing),
            experts: experts.shape().experts(),
            tokens: experts.shape().tokens,
            round: experts.round() + u64::from(begins),
            format: experts.shape().format,
        };
        half(p, &mut experts, &model)?;
    }
    Ok(())
}

fn half<M: Way>(p: &Rounds<'_>, experts: &mut Experts<'_, M>, model: &Model) -> Result<(), u64> {
    let tokens = model.sends(experts.rank());
    let wanted = u32::from(p.masked != NOBODY);
    let masked = |masked| match masked {
        Ok(masked) if masked == wanted => Ok(()),
        Ok(masked) => Err(wrong(1, u64::from(masked))),
        Err(error) => Err(Error::to_bits(error)),
    };
    let limit = Deadline::after_ms(p.limit_ms);
    if p.half == 0 || p.half == WHOLE {
        write_inputs(p, experts, model);
        experts
            .dispatch_begin(tokens, PATIENCE)
            .map_err(Error::to_bits)?;
    }
    if p.half == 1 || p.half == WHOLE {
        masked(experts.dispatch_finish(limit))?;
        compute(p, experts, model)?;
    }
    if p.half == 2 || p.half == WHOLE {
        experts.combine_begin(PATIENCE).map_err(Error::to_bits)?;
    }
    if p.half == 3 || p.half == WHOLE {
        masked(experts.combine_finish(limit))?;
        check_results(p, experts, model)?;
    }
    Ok(())
}

fn write_inputs<M: Way>(p: &Rounds<'_>, experts: &Experts<'_, M>, model: &Model) {
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
fn compute<M: Way>(p: &Rounds<'_>, experts: &Experts<'_, M>, model: &Model) -> Result<(), u64> {
    let shape = experts.shape();
    for number in (thread::index()..shape.experts()).step_by(p.threads as usize) {
        let (local, source) = (number % shape.local, number / shape.local);
        let expert = experts.rank() * shape.local + local;
        let received = experts.received(local, source);
        if source == p.masked {
            if received.count() != 0 || !experts.is_masked(source) {
                return Err(wrong(6, u64::from(number)));
            }
            continue;
        }
        let wanted = model.wanted(source, expert, shape.top_k);
        let sent = wanted.min(shape.capacity);
        if received.count() != sent || received.dropped() != wanted - sent || received.is_refused()
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
                let found = value(&received, slot, word);
                if found != model.travelled(source, header.token, word) {
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
fn value(received: &Received<'_>, slot: u32, word: u64) -> u64 {
    let values = received.values(slot, word as u32 / 2).unwrap();
    let first = 4 * (word % 2) as usize;
    Bf16::pack([0, 1, 2, 3].map(|value| values[first + value]))
}

fn check_results<M: Way>(
    p: &Rounds<'_>,
    experts: &Experts<'_, M>,
    model: &Model,
) -> Result<(), u64> {
    let (rank, shape) = (experts.rank(), experts.shape());
    let expert = thread::index() % shape.experts();
    let wanted = model.wanted(rank, expert, shape.top_k);
    let dropped = wanted.saturating_sub(shape.capacity);
    if experts.dropped(expert) != dropped {
        return Err(wrong(7, expert.into()));
    }
    // Which ones are dropped is up to the threads: the host looks.
    if shape.capacity < shape.tokens * shape.top_k {
        return Ok(());
    }
    for token in (thread::index()..model.sends(rank)).step_by(p.threads as usize) {
        let row = experts.result(token).unwrap();
        for word in 0..row.len() {
            let (at, counts) = ((rank, token, word), |expert| {
                shape.owner(expert).0 != p.masked
            });
            let wanted = match shape.mode {
                Mode::LowLatency => model.sum(at, shape.top_k, |expert, _| counts(expert)),
                Mode::Throughput => model.packed_sum(at, (shape.top_k, shape.local), counts),
            };
            if row.load(word) != Some(wanted) {
                return Err(wrong(5, u64::from(token) << 16 | word));
            }
        }
    }
    Ok(())
}

/// How members make their rounds.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub routing: Routing,
    pub rounds: u64,
    pub half: u32,
    pub masked: u32,
    pub limit_ms: u64,
}

impl Plan {
    /// Whole rounds in which nobody is masked.
    pub const fn whole(routing: Routing, rounds: u64) -> Self {
        Self {
            routing,
            rounds,
            half: WHOLE,
            masked: NOBODY,
            limit_ms: 300_000,
        }
    }

    /// What becomes of it at each thread of each of these members.
    pub fn run(self, members: &[&ExpertsMember], grid: Grid) -> Vec<Vec<u64>> {
        let results: Vec<_> = members.iter().map(|_| results(grid)).collect();
        let launches: Vec<_> = (members.iter().zip(&results))
            .map(|(member, results)| {
                let parameters = Rounds {
                    experts: member.handle(),
                    routing: self.routing as u32,
                    threads: grid.blocks * grid.threads_per_block,
                    rounds: self.rounds,
                    half: self.half,
                    masked: self.masked,
                    limit_ms: self.limit_ms,
                    results: Slice::new(results),
                };
                Launch::new(entry!(rounds), grid, parameters)
            })
            .collect();
        run(&launches, &results)
    }
}
