//! Rounds of an exchange with experts: a kernel that makes all of them, and kernels between which a host drives the
//! network. Both leave the same words in the same places.
//!
//! A round of the host's is [`experts_route`], which says where each choice goes; the host's writes; meanwhile
//! [`experts_keep`], which copies what stays here; [`experts_work`] once all has come; the host's writes back; and
//! [`experts_sum`].

use warpbell::{Deadline, Slice, WaitError, Word64, Words, block, kernel, thread, warp};
use warpbell_patterns::experts::{
    Choice, Count, Experts, ExpertsHandle, Format, Header, Layout, NO_ROW, Place, Received,
    quantise, sum_rows,
};
use warpbell_patterns::number::Bf16;

use crate::outcome::{Failure, Outcome};

/// What an expert makes of a value.
pub const fn output(expert: u32, value: f32) -> f32 {
    value * (expert as f32 + 1.0) - 0.5
}

/// One member's rounds, all in one kernel. The tokens and their choices are in its window, and stay there.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Rounds<'a> {
    /// This member.
    pub experts: ExpertsHandle<'a>,
    /// How many tokens it sends in each round.
    pub tokens: u32,
    /// How many rounds. In the last one the experts work; in all others what went back before goes back again.
    pub rounds: u32,
    /// Microseconds that each call may take.
    pub limit_us: u64,
    /// Takes [`Rounds::MARKS`] times of each round in nanoseconds, as the grid's first thread reads them.
    pub times: Slice<'a, Word64>,
    /// What became of it. A member that is masked is a wait that took too long.
    pub outcome: &'a Outcome,
}

impl Rounds<'_> {
    /// Times of a round: its begin, and the end of each of its four halves.
    pub const MARKS: u32 = 5;

    #[inline(always)]
    fn mark(&self, round: u32, mark: u32) {
        if thread::first() {
            let index = u64::from(round) * u64::from(Self::MARKS) + u64::from(mark);
            self.times.store(index, thread::clock_ns());
        }
    }
}

/// Makes all rounds, with all threads of the grid. Blocks are whole warps.
#[kernel]
pub fn experts_rounds(p: Rounds<'_>) {
    p.outcome.record(|| rounds(&p));
}

#[inline(always)]
fn rounds(p: &Rounds<'_>) -> Result<(), Failure> {
    let limit = Deadline::after_us(p.limit_us);
    let mut experts = p.experts.open()?;
    let mut round = 0;
    while round < p.rounds {
        p.mark(round, 0);
        experts.dispatch_begin(p.tokens, limit)?;
        p.mark(round, 1);
        experts.dispatch_finish(limit)?;
        p.mark(round, 2);
        if round + 1 == p.rounds {
            work(&experts);
        }
        experts.combine_begin(limit)?;
        p.mark(round, 3);
        let masked = experts.combine_finish(limit)?;
        p.mark(round, 4);
        if masked != 0 {
            return Err(WaitError::Deadline.into());
        }
        round += 1;
    }
    Ok(())
}

/// Lets this member's experts work.
#[inline(always)]
fn work(experts: &Experts<'_>) {
    let shape = experts.shape();
    let mut list = warp_of_grid();
    while list < shape.experts() {
        let (source, local) = shape.owner(list);
        let expert = experts.rank() * shape.local + local;
        work_on(&experts.received(local, source), expert, shape.hidden / 8);
        list += warps_of_grid();
    }
}

/// Lets an expert work on what one source sent, as a warp: rows of so many groups of 8 values.
#[inline(always)]
fn work_on(received: &Received<'_>, expert: u32, groups: u32) {
    let mut slot = 0;
    while slot < received.count() {
        let mut group = warp::lane_id();
        while group < groups {
            let row = received.output(slot);
            if let (Some([a, b, c, d, e, f, g, h]), Some(row)) = (received.values(slot, group), row)
            {
                let first = 2 * u64::from(group);
                row.store(first, outputs(expert, [a, b, c, d]));
                row.store(first + 1, outputs(expert, [e, f, g, h]));
            }
            group += thread::warp_size();
        }
        slot += 1;
    }
}

#[inline(always)]
fn outputs(expert: u32, [a, b, c, d]: [f32; 4]) -> u64 {
    Bf16::pack([
        output(expert, a),
        output(expert, b),
        output(expert, c),
        output(expert, d),
    ])
}

/// One member's part of a round whose network a host drives.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HostRound<'a> {
    /// The member's window.
    pub window: Words<'a>,
    /// Where things lie in it; no count, and no flag.
    pub layout: Layout,
    /// The counts that come, in the order of the layout from its first one on, where the host reaches them.
    pub counts: Words<'a>,
    /// Takes the place of each choice, for the host.
    pub places: Slice<'a, Word64>,
    /// The round, from 1.
    pub round: u64,
    /// The member's number.
    pub rank: u32,
    /// How many tokens it sends.
    pub tokens: u32,
}

impl HostRound<'_> {
    /// The place of a round's count among [`counts`](Self::counts).
    #[inline(always)]
    pub const fn count(layout: &Layout, round: u64, local: u32, source: u32) -> u64 {
        layout.count(round, local, source) - layout.count(0, 0, 0)
    }

    /// A word of the window.
    #[inline(always)]
    fn load(&self, word: u64) -> u64 {
        self.window.load(word).unwrap_or(0)
    }

    #[inline(always)]
    fn pairs(&self) -> u32 {
        self.tokens * self.layout.shape().top_k
    }

    #[inline(always)]
    fn received(&self, local: u32, source: u32) -> Received<'_> {
        let count = Self::count(&self.layout, self.round, local, source);
        let count = match Count(self.counts.load(count).unwrap_or(0)) {
            count if count.is_of(self.round) => count,
            _ => Count::NOTHING,
        };
        Received::at(
            self.window,
            &self.layout,
            (self.round, count),
            local,
            source,
        )
    }

    /// Gives a choice its slot, and makes its header.
    #[inline(always)]
    fn place(&self, pair: u32) -> Place {
        let (layout, shape) = (&self.layout, self.layout.shape());
        let (token, k) = shape.choice(pair);
        let choice = Choice(self.load(layout.choice(token, k)));
        if choice.expert() >= shape.experts() {
            return Place::NONE;
        }
        let counter = layout.counter(self.round, choice.expert());
        let slot = self.window.fetch_add(counter, 1).unwrap_or(u64::MAX);
        if slot >= shape.capacity.into() {
            return Place::NONE;
        }
        let [first, second] = Header::words(token, k, choice);
        self.window.store(layout.header(pair), first);
        self.window.store(layout.header(pair) + 1, second);
        Place::new(choice.expert(), slot as u32)
    }

    /// Copies words of the window, as a warp.
    #[inline(always)]
    fn copy(&self, from: u64, to: u64, words: u32) {
        let mut word = warp::lane_id();
        while word < words {
            let value = self.load(from + u64::from(word));
            self.window.store(to + u64::from(word), value);
            word += thread::warp_size();
        }
    }

    /// Where the row lies that came of a choice, and the choice's weight.
    #[inline(always)]
    fn contribution(&self, pair: u32) -> (u64, f32) {
        let (layout, shape) = (&self.layout, self.layout.shape());
        let place = Place(self.load(layout.place(pair)));
        if place.is_none() {
            return (NO_ROW, 0.0);
        }
        let (expert, slot) = (place.expert(), place.slot());
        let (rank, local) = shape.owner(expert);
        let from = match rank == self.rank {
            true => layout.output(local, rank, slot),
            false => layout.landing(expert, slot),
        };
        let weight = self.load(layout.header(pair) + 1) as u32;
        (from, f32::from_bits(weight))
    }
}

/// Gives each choice its slot, and says so to the host; makes the tokens fp8, if they travel so. Blocks are whole warps.
#[kernel]
pub fn experts_route(p: HostRound<'_>) {
    let mut pair = thread::index();
    while pair < p.pairs() {
        let Place(place) = p.place(pair);
        p.window.store(p.layout.place(pair), place);
        p.places.store(pair.into(), place);
        pair += threads_of_grid();
    }
    if let Format::Fp8 = p.layout.shape().format {
        // SAFETY: all threads come here, and blocks are whole warps.
        unsafe { quantise(p.window, &p.layout, p.tokens) };
    }
}

/// Copies the tokens for the member's own experts. Blocks are whole warps.
#[kernel]
pub fn experts_keep(p: HostRound<'_>) {
    let (layout, shape) = (&p.layout, p.layout.shape());
    let mut pair = warp_of_grid();
    while pair < p.pairs() {
        let place = Place(p.load(layout.place(pair)));
        let (rank, local) = shape.owner(place.expert());
        if !place.is_none() && rank == p.rank {
            let to = layout.received(p.round, local, rank, place.slot());
            p.copy(layout.header(pair), to, Header::WORDS);
            let row = to + u64::from(Header::WORDS);
            let (token, _) = shape.choice(pair);
            p.copy(layout.travelling(token), row, shape.row_words());
        }
        pair += warps_of_grid();
    }
}

/// Lets the member's experts work on what has come. Blocks are whole warps.
#[kernel]
pub fn experts_work(p: HostRound<'_>) {
    let shape = p.layout.shape();
    let mut list = warp_of_grid();
    while list < shape.experts() {
        let (source, local) = shape.owner(list);
        let expert = p.rank * shape.local + local;
        work_on(&p.received(local, source), expert, shape.hidden / 8);
        list += warps_of_grid();
    }
}

/// Sums up what has come back, and makes the round's counters zero. Blocks are whole warps.
#[kernel]
pub fn experts_sum(p: HostRound<'_>) {
    let (layout, shape) = (&p.layout, p.layout.shape());
    let mut expert = thread::index();
    while expert < shape.experts() {
        p.window.store(layout.counter(p.round, expert), 0);
        expert += threads_of_grid();
    }
    let mut token = warp_of_grid();
    while token < p.tokens {
        let lane = warp::lane_id();
        let mut row = (NO_ROW, 0.0);
        if lane < shape.top_k {
            row = p.contribution(token * shape.top_k + lane);
        }
        let (rows, words) = (shape.top_k, shape.hidden_words());
        // SAFETY: all lanes come here with the same token, blocks are whole warps, and a row has a multiple of 64 words.
        unsafe { sum_rows(p.window, row, rows, words, layout.result(token)) };
        token += warps_of_grid();
    }
}

#[inline(always)]
fn threads_of_grid() -> u32 {
    thread::grid_dim_x() * block::size()
}

#[inline(always)]
fn warps_of_grid() -> u32 {
    threads_of_grid() / thread::warp_size()
}

#[inline(always)]
fn warp_of_grid() -> u32 {
    thread::index() / thread::warp_size()
}
