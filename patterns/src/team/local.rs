//! What the threads of a unit do with the words of their own member's window.

use super::plan::{Part, Sum};
use super::{Error, Extent, Team};
use crate::number::Number;
use warpbell::Scope;

impl<X: Extent> Team<'_, X> {
    /// This unit's share of words.
    #[inline(always)]
    pub(super) fn part(&self, words: u64) -> Part {
        Part::share(words, X::units(), X::unit())
    }

    /// Copies words, with all threads of the unit.
    #[inline(always)]
    pub(super) fn copy(&self, from: u64, to: u64, words: u64) {
        if from == to {
            return;
        }
        let (window, mut at) = (self.handle.window, u64::from(X::Unit::rank()));
        while at < words {
            window.store(to + at, window.load(from + at).unwrap_or(0));
            at += u64::from(X::Unit::size());
        }
    }

    /// Adds words to others, with all threads of the unit.
    #[inline(always)]
    pub(super) fn add<T: Number>(&self, one: u64, other: u64, sum: u64, words: u64) {
        let (window, mut at) = (self.handle.window, u64::from(X::Unit::rank()));
        while at < words {
            let came = window.load(one + at).unwrap_or(0);
            let own = window.load(other + at).unwrap_or(0);
            window.store(sum + at, T::add_word(came, own));
            at += u64::from(X::Unit::size());
        }
    }

    /// Adds up what all members have sent into their slots and this one has, in the members' order, with all threads of the
    /// unit.
    #[inline(always)]
    pub(super) fn add_all<T: Number>(&self, sum: &Sum) {
        let own = sum.from + sum.stride * u64::from(sum.own);
        let (window, mut at) = (self.handle.window, u64::from(X::Unit::rank()));
        while at < sum.words {
            let (mut total, mut rank) = (0, 0);
            while rank < sum.ranks {
                let from = match rank == sum.own {
                    true => own,
                    false => sum.slot(rank),
                };
                let value = window.load(from + at).unwrap_or(0);
                total = match rank {
                    0 => value,
                    _ => T::add_word(total, value),
                };
                rank += 1;
            }
            window.store(sum.to + at, total);
            at += u64::from(X::Unit::size());
        }
    }
}

/// The words of so many numbers.
#[inline(always)]
pub(super) fn words_of<T: Number>(count: u64) -> Result<u64, Error> {
    let in_word = 8 / u64::from(T::BYTES);
    match count.is_multiple_of(in_word) {
        true => Ok(count / in_word),
        false => Err(Error::uneven(count)),
    }
}

/// Refuses two ranges of words that have some in common.
#[inline(always)]
pub(super) fn apart((one, words): (u64, u64), (other, more): (u64, u64)) -> Result<(), Error> {
    match words > 0 && more > 0 && one < other + more && other < one + words {
        true => Err(Error::Overlap),
        false => Ok(()),
    }
}
