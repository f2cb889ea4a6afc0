//! The ends are two ranks that a launcher has started: the first one requests, with `--both-ways` both do.

use warpbell_bench::Error;
use warpbell_bench::party::Party;
use warpbell_bench::run::bandwidth::{self, Bandwidth, Case, Requester, Responder};
use warpbell_bench::run::setup::{End, config};
use warpbell_host_init::RemoteMemory;
use warpbell_stage::random::Random;

/// This rank's end, connected with that of the other rank.
///
/// # Errors
/// Other than two ranks were started; they cannot be connected.
pub fn end(party: &Party, depth: u32) -> Result<Option<End>, Error> {
    party.own_ranks(2)?;
    let node = party.node();
    let Some(mut world) = party.world(node)? else {
        return Ok(None);
    };
    let config = party.queues(config(depth));
    let pairs = world.connect(world.others(), &config)?.into_values();
    let domain = world.domain();
    let end = |pair| End::with_pair(node, domain.clone(), pair, &config);
    Ok(pairs.map(end).next())
}

/// Measures a case; both ranks come to the same. The data are random, and both ranks know them.
///
/// # Errors
/// A kernel failed, here or at the other rank; Ctrl-C.
pub fn measure(
    party: &Party,
    end: &End,
    case: Case,
    random: &mut Random,
) -> Result<Bandwidth, Error> {
    let what = case.words();
    let data = [bandwidth::data(case, random), bandwidth::data(case, random)];
    let (own, other) = (party.rank() as usize, 1 - party.rank() as usize);
    let requests = |rank| rank == 0 || case.both_ways;
    let requester = requests(own).then(|| Requester::new(case, end, &data[own]));
    let responder = requests(other).then(|| Responder::new(case, end, &data[other]));
    let (requester, responder) = (requester.transpose()?, responder.transpose()?);
    let ours: Option<RemoteMemory> = responder.as_ref().map(Responder::shared);
    let theirs = party.exchange(ours)?[other];
    let there = theirs.map(|memory| memory.at(0, data[own].len() as u32));
    let there = there.transpose()?;
    let (mut rates, mut verified) = (Vec::new(), true);
    for _ in 0..case.repetitions {
        party.check()?;
        if let Some(requester) = &requester {
            requester.fill();
        }
        if let Some(responder) = &responder {
            responder.prepare(&what)?;
        }
        // All receives are there before one sends.
        party.all(true)?;
        let requesters: Vec<_> = requester.iter().zip(there).collect();
        let responders: Vec<_> = responder.iter().collect();
        bandwidth::run(&what, &requesters, &responders)?;
        // And all has come before one looks.
        let of_all = party.exchange(requester.as_ref().map_or(0.0, Requester::rate))?;
        rates.push(of_all.into_iter().sum());
        let right = requester.iter().all(Requester::verified);
        verified &= party.all(right && responder.iter().all(Responder::verified))?;
    }
    Ok(Bandwidth::of(case, rates, verified))
}
