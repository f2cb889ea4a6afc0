//! The ranks' places at rank 0, and the calls that they are making.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::Collective;
use crate::member::Member;

/// A rank's part in the calls of all.
#[derive(Default, PartialEq, Eq)]
pub(crate) enum Part {
    /// It takes part, or has not come yet.
    #[default]
    In,
    /// It said that it makes no more calls.
    Left,
    /// The others go on without it, or will. A new process may take its seat.
    Out,
    /// A new process waits to be taken in, and has brought this.
    Back(Option<Vec<u8>>),
}

/// A rank's place.
#[derive(Default)]
pub(crate) struct Seat {
    pub member: Option<Box<Member>>,
    pub part: Part,
}

impl Seat {
    /// The connection, if its rank hears of what befalls the others.
    pub(crate) fn hears(&mut self) -> Option<&mut Member> {
        let hears = matches!(self.part, Part::In | Part::Left);
        self.member.as_deref_mut().filter(|_| hears)
    }
}

/// A call that ranks are making.
pub(crate) struct Round {
    pub call: Collective,
    /// The ranks of a group; nothing if all take part.
    pub of: Option<BTreeSet<u32>>,
    /// By rank.
    pub contributions: Vec<Option<Vec<u8>>>,
    /// When the first timeout passes; whose, and how long it is.
    pub deadline: (Instant, u32, Duration),
}

impl Round {
    pub(crate) fn is(&self, call: Collective, of: Option<&BTreeSet<u32>>) -> bool {
        self.call == call && self.of.as_ref() == of
    }

    pub(crate) fn awaits(&self, rank: u32) -> bool {
        is_among(self.of.as_ref(), rank) && self.contributions[rank as usize].is_none()
    }

    /// Who has made the call.
    pub(crate) fn callers(&self) -> impl Iterator<Item = u32> {
        let ranks = (0..).zip(&self.contributions);
        ranks.filter_map(|(rank, brought)| brought.as_ref().map(|_| rank))
    }
}

/// Whether a rank is in a group, if it is one.
pub(crate) fn is_among(of: Option<&BTreeSet<u32>>, rank: u32) -> bool {
    of.is_none_or(|of| of.contains(&rank))
}

/// The ranks of a group, as a call brings them.
pub(crate) fn group(bytes: &[u8]) -> BTreeSet<u32> {
    let (ranks, _) = bytes.as_chunks();
    ranks.iter().map(|rank| u32::from_le_bytes(*rank)).collect()
}
