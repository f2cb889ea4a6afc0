//! Rounds that a kernel of each rank makes.

use std::time::Duration;

use warpbell::{Slice, Word64};
use warpbell_host_init::{Launch, Node, QueuePair, Shared, entry};
use warpbell_kernels::experts::{Rounds, experts_rounds};
use warpbell_patterns::experts::host::{ExpertsMember, experts_of};
use warpbell_soft_hca_gpu::MemoryScope;

use super::{Case, Model, Ran, Values, parts};
use crate::run::launch::LIMIT_US;
use crate::samples::values as words;
use crate::{Error, cause, gaspi, nodes};

/// Runs a kernel for each rank.
pub(super) fn run(case: &Case, node: &Node, values: Values, model: &Model) -> Result<Ran, Error> {
    let queue_pairs = case.ranks * (case.ranks - 1) * case.blocks;
    let nic = nodes::with_queue_pairs(node, MemoryScope::Gpu, queue_pairs)?;
    let config = case.config(values, case.queues());
    let members = experts_of(&nic.domains(case.ranks as usize)?, &config)?;
    for (rank, member) in (0..).zip(&members) {
        for (token, (row, choices)) in (0..).zip(model.inputs(rank)) {
            member.write_token(token, &row)?;
            member.choose(token, &choices)?;
        }
    }
    let outcomes = gaspi::outcomes(node, case.ranks)?;
    // All ranks share a machine, and a call waits for all of them.
    let limit = case.ranks * Duration::from_micros(LIMIT_US);
    let marks = (Rounds::MARKS * case.all()) as usize;
    let times = members.iter().map(|_| node.words(marks));
    let times: Vec<Shared<[Word64]>> = times.collect::<Result<_, _>>()?;
    let launches = members.iter().zip(&outcomes).zip(&times);
    let launches: Vec<_> = launches
        .map(|((member, outcome), times)| {
            let parameters = Rounds {
                experts: member.handle(),
                tokens: case.tokens,
                rounds: case.all(),
                limit_us: limit.as_micros() as u64,
                times: Slice::new(times),
                outcome,
            };
            Launch::new(entry!(experts_rounds), case.grid(), parameters)
        })
        .collect();
    let pairs = members
        .iter()
        .flat_map(|member| member.team().queue_pairs());
    let pairs: Vec<&QueuePair> = pairs.collect();
    // No longer than the calls' own limits: four in each round.
    let ran = node.run_for(&launches, &pairs, 4 * case.all() * limit);
    let names = outcomes
        .iter()
        .map(|outcome| ("a rank's rounds", &**outcome));
    cause::ended(ran.map_err(Error::from), names)?;
    let counted = times.iter().flat_map(|times| {
        let times = words(&times[..]);
        let rounds = times.chunks_exact(Rounds::MARKS as usize).zip(0..);
        let counted = rounds.filter(|(_, round)| case.counts(*round));
        counted.map(|(times, _)| parts(times)).collect::<Vec<_>>()
    });
    Ok(Ran {
        times: counted.collect(),
        results: (members.iter().map(|member| results(case, member))).collect::<Result<_, _>>()?,
    })
}

fn results(case: &Case, member: &ExpertsMember) -> Result<Vec<u8>, Error> {
    let bytes = 2 * case.hidden as usize;
    let mut rows = vec![0; bytes * case.tokens as usize];
    for (token, row) in (0..).zip(rows.chunks_exact_mut(bytes)) {
        member.read_result(token, row)?;
    }
    Ok(rows)
}
