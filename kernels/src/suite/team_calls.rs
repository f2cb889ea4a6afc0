//! Kernels that make a team's calls, and what these leave, word by word.

#[cfg(not(target_arch = "nvptx64"))]
use warpbell::Entry;
use warpbell::{Block, Deadline, Slice, Warp, Words, block, kernel, thread};
use warpbell_patterns::number::{Bf16, F16, Number};
use warpbell_patterns::team::{Algorithm, Error, Extent, Grid, Team, TeamHandle};

use crate::outcome::Outcome;

/// The calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum TeamVerb {
    /// To all, from [`TeamCall::root`].
    Broadcast,
    /// The same from each to all.
    AllGather,
    /// Other words from each to each.
    AllToAll,
    /// As many words for each pair as [`TeamCall::pair`] says, one behind the other.
    AllToAllV,
    /// Sums for all.
    AllReduce,
    /// A share of the sums for each.
    ReduceScatter,
}

/// The calls and the algorithms as numbers, which a kernel's type may have.
const BROADCAST: u32 = TeamVerb::Broadcast as u32;
const ALL_GATHER: u32 = TeamVerb::AllGather as u32;
const ALL_TO_ALL: u32 = TeamVerb::AllToAll as u32;
const ALL_TO_ALL_V: u32 = TeamVerb::AllToAllV as u32;
const ALL_REDUCE: u32 = TeamVerb::AllReduce as u32;
const RING: u32 = Algorithm::Ring as u32;
const DOUBLING: u32 = Algorithm::Doubling as u32;

/// A call of all members, with offsets in words of a unit's part of the window.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TeamCall {
    /// Which one.
    pub verb: TeamVerb,
    /// How a sum is made.
    pub algorithm: Algorithm,
    /// The type, by its [`Number::KIND`].
    pub kind: u32,
    /// Who broadcasts.
    pub root: u32,
    /// Whether what is written lies where it was read, in place of `from`, or in a scatter of `to`.
    pub in_place: bool,
    /// What is read.
    pub from: u64,
    /// What is written.
    pub to: u64,
    /// Numbers, as the call counts them.
    pub count: u64,
}

/// A member whose units make the same calls, each in its own part of the window.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TeamCalls<'a> {
    /// The member.
    pub team: TeamHandle<'a>,
    /// Words of a unit's part. Behind them are the tables of counts, [`TeamCalls::TABLES`] words for each member.
    pub words: u64,
    /// The calls.
    pub calls: Slice<'a, TeamCall>,
    /// Microseconds that each call may take.
    pub limit_us: u64,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// A kernel that makes calls.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy, Debug)]
pub struct TeamKernel {
    /// Who makes a call together: `Warp`, `Block` or `Grid`.
    pub extent: &'static str,
    /// The type of its numbers: [`Number::KIND`].
    pub kind: u32,
    /// Which calls.
    pub verb: TeamVerb,
    /// How sums are made.
    pub algorithm: Algorithm,
    /// It.
    pub kernel: Entry<fn(TeamCalls<'_>)>,
}

/// Kernels of an extent that make a member's calls, with numbers of one type; unit u has channel u. There is a kernel for each
/// call, because all of them in one take more registers than a GPU has.
macro_rules! kernels {
    ($($extent:ident, $number:ty, $unit:expr, { $($name:ident: $verb:ident, $algorithm:ident;)* })*) => {
        $($(
            #[doc = concat!("Makes calls of [`TeamVerb::", stringify!($verb), "`] by a [`", stringify!($extent), "`].")]
            #[kernel]
            pub fn $name(p: TeamCalls<'_>) {
                const VERB: u32 = TeamVerb::$verb as u32;
                const HOW: u32 = Algorithm::$algorithm as u32;
                p.outcome
                    .record(|| Ok(p.make::<$extent, $number, VERB, HOW>($unit)?));
            }
        )*)*

        /// The kernels that make calls.
        #[cfg(not(target_arch = "nvptx64"))]
        pub const TEAM_KERNELS: &[TeamKernel] = &[$($(
            TeamKernel {
                extent: stringify!($extent),
                kind: <$number>::KIND,
                verb: TeamVerb::$verb,
                algorithm: Algorithm::$algorithm,
                kernel: $name::ENTRY,
            },
        )*)*];
    };
}

kernels! {
    Warp, f32, thread::index() / thread::warp_size(), {
        suite_team_warp_broadcast: Broadcast, Direct;
        suite_team_warp_all_gather: AllGather, Direct;
        suite_team_warp_all_to_all: AllToAll, Direct;
        suite_team_warp_all_to_all_v: AllToAllV, Direct;
        suite_team_warp_all_reduce_ring: AllReduce, Ring;
        suite_team_warp_all_reduce_doubling: AllReduce, Doubling;
        suite_team_warp_all_reduce_direct: AllReduce, Direct;
        suite_team_warp_reduce_scatter_ring: ReduceScatter, Ring;
        suite_team_warp_reduce_scatter_direct: ReduceScatter, Direct;
    }
    Block, Bf16, block::index(), {
        suite_team_block_broadcast: Broadcast, Direct;
        suite_team_block_all_gather: AllGather, Direct;
        suite_team_block_all_to_all: AllToAll, Direct;
        suite_team_block_all_to_all_v: AllToAllV, Direct;
        suite_team_block_all_reduce_ring: AllReduce, Ring;
        suite_team_block_all_reduce_doubling: AllReduce, Doubling;
        suite_team_block_all_reduce_direct: AllReduce, Direct;
        suite_team_block_reduce_scatter_ring: ReduceScatter, Ring;
        suite_team_block_reduce_scatter_direct: ReduceScatter, Direct;
    }
    Grid, f32, 0, {
        suite_team_grid_broadcast: Broadcast, Direct;
        suite_team_grid_all_gather: AllGather, Direct;
        suite_team_grid_all_to_all: AllToAll, Direct;
        suite_team_grid_all_to_all_v: AllToAllV, Direct;
        suite_team_grid_all_reduce_ring: AllReduce, Ring;
        suite_team_grid_all_reduce_doubling: AllReduce, Doubling;
        suite_team_grid_all_reduce_direct: AllReduce, Direct;
        suite_team_grid_reduce_scatter_ring: ReduceScatter, Ring;
        suite_team_grid_reduce_scatter_direct: ReduceScatter, Direct;
    }
}

impl TeamCalls<'_> {
    /// Words of a unit's tables for each member.
    pub const TABLES: u64 = 4;

    #[inline(always)]
    fn make<X: Extent, T: Number, const VERB: u32, const HOW: u32>(
        &self,
        unit: u32,
    ) -> Result<(), Error> {
        let mut team = self.team.open::<X>(unit)?;
        let part = self.words + Self::TABLES * u64::from(team.ranks());
        let (own, base) = (self.team.words(), u64::from(unit) * part);
        let mut number = 0;
        while let Some(call) = self.calls.get(number) {
            let limit = Deadline::after_us(self.limit_us);
            call.make::<X, T, VERB, HOW>(&mut team, own, (base, self.words), limit)?;
            number += 1;
        }
        Ok(())
    }
}

impl TeamCall {
    #[inline(always)]
    fn make<X: Extent, T: Number, const VERB: u32, const HOW: u32>(
        &self,
        team: &mut Team<'_, X>,
        own: Words<'_>,
        (base, words): (u64, u64),
        limit: Deadline,
    ) -> Result<(), Error> {
        let (ranks, rank) = (team.ranks(), team.rank());
        let (from, to) = (
            8 * (base + self.reads(ranks, rank)),
            8 * (base + self.writes(ranks, rank)),
        );
        let (root, count) = (self.root, self.count);
        let how = match HOW {
            RING => Algorithm::Ring,
            DOUBLING => Algorithm::Doubling,
            _ => Algorithm::Direct,
        };
        match VERB {
            BROADCAST => team.broadcast::<T>(root, from, to, count, limit),
            ALL_GATHER => team.all_gather::<T>(from, to, count, limit),
            ALL_TO_ALL => team.all_to_all::<T>(from, to, count, limit),
            ALL_TO_ALL_V => {
                let tables = base + words;
                self.tell_counts(own, tables, base, (ranks, rank));
                team.all_to_all_v::<T>(8 * tables, 8 * (tables + 2 * u64::from(ranks)), limit)
            }
            ALL_REDUCE => team
                .begin_all_reduce::<T>(how, from, to, count, limit)?
                .finish(limit),
            _ => team
                .begin_reduce_scatter::<T>(how, from, to, count, limit)?
                .finish(limit),
        }
    }

    /// Stores the tables of what goes and comes; all threads store the same.
    #[inline(always)]
    pub fn tell_counts(&self, own: Words<'_>, tables: u64, base: u64, (ranks, rank): (u32, u32)) {
        let (mut from, mut to) = (base + self.from, base + self.to);
        let mut other = 0;
        while other < ranks {
            let (sent, taken) = (self.pair(rank, other), self.pair(other, rank));
            let (sends, takes) = (
                tables + 2 * u64::from(other),
                tables + 2 * u64::from(ranks + other),
            );
            own.store(sends, 8 * from);
            own.store(sends + 1, sent * self.in_word());
            own.store(takes, 8 * to);
            own.store(takes + 1, taken * self.in_word());
            (from, to) = (from + sent, to + taken);
            other += 1;
        }
    }

    /// Numbers in a word.
    #[inline(always)]
    pub const fn in_word(&self) -> u64 {
        match self.kind {
            f32::KIND | i32::KIND => 2,
            F16::KIND | Bf16::KIND => 4,
            _ => 1,
        }
    }

    #[inline(always)]
    const fn words(&self) -> u64 {
        self.count / self.in_word()
    }

    /// Words that a member sends to another one in an [`TeamVerb::AllToAllV`]: at most 6.
    #[inline(always)]
    pub const fn pair(&self, from: u32, to: u32) -> u64 {
        let (from, to) = (from as u64, to as u64);
        (self.count + 3 * from + 5 * to + from * to) % 7
    }

    /// Where a member's call reads.
    #[inline(always)]
    pub const fn reads(&self, _: u32, rank: u32) -> u64 {
        match self.verb {
            TeamVerb::AllGather if self.in_place => self.to + rank as u64 * self.words(),
            TeamVerb::Broadcast | TeamVerb::AllReduce if self.in_place => self.to,
            _ => self.from,
        }
    }

    /// Where a member's call writes.
    #[inline(always)]
    pub const fn writes(&self, ranks: u32, rank: u32) -> u64 {
        let ranks = if ranks == 0 { 1 } else { ranks as u64 };
        match self.verb {
            TeamVerb::ReduceScatter if self.in_place => {
                self.from + rank as u64 * (self.words() / ranks)
            }
            _ => self.to,
        }
    }
}

/// What a team's calls leave, by plain loops.
#[cfg(not(target_arch = "nvptx64"))]
#[derive(Clone, Copy, Debug)]
pub struct PlainTeam {
    /// Members.
    pub ranks: u32,
    /// Blocks that make a call together: of a grid; 1 for a warp or a block.
    pub units: u32,
    /// Words of each channel's scratch.
    pub scratch: u64,
}

#[cfg(not(target_arch = "nvptx64"))]
impl PlainTeam {
    /// The calls, each with the algorithms that it has among so many members.
    pub fn verbs(&self) -> impl Iterator<Item = (TeamVerb, Algorithm)> {
        let doubles = self.ranks.is_power_of_two();
        let doubling = (TeamVerb::AllReduce, Algorithm::Doubling);
        [
            (TeamVerb::Broadcast, Algorithm::Direct),
            (TeamVerb::AllGather, Algorithm::Direct),
            (TeamVerb::AllToAll, Algorithm::Direct),
            (TeamVerb::AllToAllV, Algorithm::Direct),
            (TeamVerb::AllReduce, Algorithm::Ring),
            (TeamVerb::AllReduce, Algorithm::Direct),
            (TeamVerb::ReduceScatter, Algorithm::Ring),
            (TeamVerb::ReduceScatter, Algorithm::Direct),
        ]
        .into_iter()
        .chain(doubles.then_some(doubling))
    }

    /// A random call of as many words as fit into half of a unit's part; `below` gives a random number below its argument.
    /// The first half is read, and what is made in place; the second is written.
    pub fn random_call(
        &self,
        (verb, algorithm): (TeamVerb, Algorithm),
        kind: u32,
        half: u64,
        mut below: impl FnMut(u64) -> u64,
    ) -> TeamCall {
        let ranks = u64::from(self.ranks);
        let blocks = match verb {
            TeamVerb::Broadcast | TeamVerb::AllReduce => 1,
            _ => ranks,
        };
        let words = match (verb, below(4)) {
            // As many as a pair may have.
            (TeamVerb::AllToAllV, _) => 6,
            (_, 0) => below(3),
            _ => below(half / blocks + 1),
        };
        let place = half - words * blocks + 1;
        let call = TeamCall {
            verb,
            algorithm,
            kind,
            root: below(ranks) as u32,
            in_place: below(2) == 1,
            from: below(place),
            to: half + below(place),
            count: words,
        };
        let numbers = match verb {
            TeamVerb::ReduceScatter => words * ranks,
            _ => words,
        };
        TeamCall {
            count: numbers * call.in_word(),
            ..call
        }
    }

    /// What a word of a member's window is after a call, if the call writes it. `before` has the words of all members from
    /// before.
    pub fn after(
        &self,
        call: &TeamCall,
        own: u32,
        word: u64,
        before: impl Fn(u32, u64) -> u64 + Copy,
    ) -> Option<u64> {
        let (ranks, words) = (self.ranks, call.words());
        let at = word.checked_sub(call.writes(ranks, own))?;
        let read = |rank: u32, word: u64| before(rank, call.reads(ranks, rank) + word);
        match call.verb {
            TeamVerb::Broadcast => (at < words).then(|| read(call.root, at)),
            TeamVerb::AllGather | TeamVerb::AllToAll => {
                let rank = u32::try_from(at.checked_div(words)?).ok()?;
                let skipped = match call.verb {
                    TeamVerb::AllToAll => u64::from(own) * words,
                    _ => 0,
                };
                (rank < ranks).then(|| read(rank, skipped + at % words))
            }
            TeamVerb::AllToAllV => {
                let mut end = 0;
                (0..ranks).find_map(|rank| {
                    let first = end;
                    end += call.pair(rank, own);
                    let skipped: u64 = (0..own).map(|other| call.pair(rank, other)).sum();
                    (at < end).then(|| read(rank, skipped + at - first))
                })
            }
            TeamVerb::AllReduce => (at < words).then(|| {
                let begin = self.chunk(words, at);
                self.sum(call, begin, |rank| read(rank, at))
            }),
            TeamVerb::ReduceScatter => {
                let share = words / u64::from(ranks);
                let first = u64::from(own) * share;
                (at < share).then(|| self.sum(call, own + 1, |rank| read(rank, first + at)))
            }
        }
    }

    /// The chunk of a ring's vector in which a word is.
    fn chunk(&self, words: u64, word: u64) -> u32 {
        if self.ranks == 1 {
            return 0;
        }
        let (_, first, size) = share(words, self.units, word);
        let word = word - first;
        // As many words in a round as have room in a slot for each other member.
        let most = self.scratch / u64::from(self.ranks - 1) * u64::from(self.ranks);
        let before = word / most * most;
        share(most.min(size - before), self.ranks, word - before).0
    }

    /// The sum in its order, which a ring begins at a member.
    fn sum(&self, call: &TeamCall, begin: u32, value: impl Fn(u32) -> u64 + Copy) -> u64 {
        let ranks = self.ranks;
        let sum = |first: u32| {
            let values = (0..ranks).map(|step| value((first + step) % ranks));
            values.reduce(|one, other| add(call.kind, one, other))
        };
        match call.algorithm {
            Algorithm::Ring => sum(begin),
            Algorithm::Direct => sum(0),
            Algorithm::Doubling => Some(tree(call.kind, 0, ranks, value)),
        }
        .unwrap_or(0)
    }
}

/// Which of so many shares a word is in, where the share begins, and how many words it has.
#[cfg(not(target_arch = "nvptx64"))]
fn share(words: u64, shares: u32, word: u64) -> (u32, u64, u64) {
    let mut first = 0;
    for number in 0..shares {
        let more = u64::from(number) < words % u64::from(shares);
        let size = words / u64::from(shares) + u64::from(more);
        if word < first + size {
            return (number, first, size);
        }
        first += size;
    }
    panic!("word {word} of {words} is in no share")
}

/// The sum of so many members' values by pairs of pairs.
#[cfg(not(target_arch = "nvptx64"))]
fn tree(kind: u32, first: u32, ranks: u32, value: impl Fn(u32) -> u64 + Copy) -> u64 {
    match ranks {
        1 => value(first),
        _ => {
            let half = ranks / 2;
            let one = tree(kind, first, half, value);
            add(kind, one, tree(kind, first + half, half, value))
        }
    }
}

/// Adds the numbers of two words.
#[cfg(not(target_arch = "nvptx64"))]
fn add(kind: u32, one: u64, other: u64) -> u64 {
    match kind {
        f32::KIND => f32::add_word(one, other),
        F16::KIND => F16::add_word(one, other),
        Bf16::KIND => Bf16::add_word(one, other),
        i32::KIND => i32::add_word(one, other),
        _ => u64::add_word(one, other),
    }
}
