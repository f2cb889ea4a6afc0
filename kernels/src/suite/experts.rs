//! A round of an exchange whose experts multiply what they get.

use warpbell::{Deadline, block, kernel, thread, warp};
use warpbell_patterns::experts::{Error, Experts, ExpertsHandle, Received, Way};
use warpbell_patterns::number::Bf16;

use crate::outcome::Outcome;

/// One member's part of a round, or of some halves of it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ExpertRound<'a> {
    /// This member, whose window has the tokens and what they choose.
    pub experts: ExpertsHandle<'a>,
    /// How many tokens it sends.
    pub tokens: u32,
    /// Which halves of a round the grid makes, from bit 0 on: the begin and finish of dispatch, those of combine.
    pub halves: u32,
    /// How many members are masked at the end of each call.
    pub masked: u32,
    /// Not for anything.
    pub unused: u32,
    /// Microseconds that each call may take.
    pub limit_us: u64,
    /// What became of it. A wrong number of masked members is an error of the order of calls.
    pub outcome: &'a Outcome,
}

impl ExpertRound<'_> {
    /// All halves of a round.
    pub const WHOLE: u32 = 0b1111;

    /// What an expert makes of a value.
    pub const fn output(expert: u32, value: f32) -> f32 {
        value * (expert as f32 + 1.0) - 0.5
    }
}

/// Makes its halves of a round with all threads of the grid. Blocks are whole warps.
#[kernel]
pub fn suite_experts(p: ExpertRound<'_>) {
    p.outcome.record(|| Ok(go(&p, p.experts.open()?)?));
}

/// The same, where the exchange is in the throughput mode.
#[kernel]
pub fn suite_experts_packed(p: ExpertRound<'_>) {
    p.outcome.record(|| Ok(go(&p, p.experts.open_packed()?)?));
}

#[inline(always)]
fn go<M: Way>(p: &ExpertRound<'_>, mut experts: Experts<'_, M>) -> Result<(), Error> {
    let limit = Deadline::after_us(p.limit_us);
    let (mut dispatched, mut combined) = (p.masked, p.masked);
    if p.halves & 1 != 0 {
        experts.dispatch_begin(p.tokens, limit)?;
    }
    if p.halves & 2 != 0 {
        dispatched = experts.dispatch_finish(limit)?;
        compute(&experts);
    }
    if p.halves & 4 != 0 {
        experts.combine_begin(limit)?;
    }
    if p.halves & 8 != 0 {
        combined = experts.combine_finish(limit)?;
    }
    match (dispatched == p.masked) & (combined == p.masked) {
        true => Ok(()),
        false => Err(Error::Order),
    }
}

/// Lets this member's experts work, each warp on some of what came.
#[inline(always)]
fn compute<M: Way>(experts: &Experts<'_, M>) {
    let shape = experts.shape();
    let warps = block::size() / thread::warp_size();
    let mut number = block::index() * warps + block::thread_index() / thread::warp_size();
    while number < shape.experts() {
        // Each expert has as many sources as there are members.
        let (source, local) = shape.owner(number);
        let received = experts.received(local, source);
        let expert = experts.rank() * shape.local + local;
        let mut slot = 0;
        while slot < received.count() {
            one(&received, expert, slot, shape.hidden / 8);
            slot += 1;
        }
        number += thread::grid_dim_x() * warps;
    }
}

/// Lets an expert work on a token, whose values come in so many groups of 8.
#[inline(always)]
fn one(received: &Received<'_>, expert: u32, slot: u32, groups: u32) {
    let mut group = warp::lane_id();
    while group < groups {
        let output = received.output(slot);
        if let (Some([a, b, c, d, e, f, g, h]), Some(to)) = (received.values(slot, group), output) {
            let first = 2 * u64::from(group);
            to.store(first, four(expert, [a, b, c, d]));
            to.store(first + 1, four(expert, [e, f, g, h]));
        }
        group += thread::warp_size();
    }
}

#[inline(always)]
fn four(expert: u32, [a, b, c, d]: [f32; 4]) -> u64 {
    Bf16::pack([
        ExpertRound::output(expert, a),
        ExpertRound::output(expert, b),
        ExpertRound::output(expert, c),
        ExpertRound::output(expert, d),
    ])
}
