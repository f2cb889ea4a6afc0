//! How one step of a kernel ended, in words that host and kernel read alike.

use crate::outcome::Failure;

/// How a step of a kernel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The kernel did not come to it.
    Untouched,
    /// It was carried out, and completed if it was waited for.
    Done,
    /// It failed.
    Failed(Failure),
}

/// An [`Ending`] as it crosses between kernel and host, because two compilers need not lay out an enum in the
/// same way. Untouched at first.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndingWords([u64; 3]);

/// The first word of [`Ending::Done`]; no failure has it, nor 0.
const DONE: u64 = u64::MAX;

impl From<Ending> for EndingWords {
    fn from(ending: Ending) -> Self {
        Self(match ending {
            Ending::Untouched => [0; 3],
            Ending::Done => [DONE, 0, 0],
            Ending::Failed(failure) => failure.to_words(),
        })
    }
}

impl EndingWords {
    /// The ending; `None` for words that no kernel writes.
    pub fn ending(self) -> Option<Ending> {
        match self.0 {
            [0, ..] => Some(Ending::Untouched),
            [DONE, ..] => Some(Ending::Done),
            words => Failure::from_words(words).map(Ending::Failed),
        }
    }
}

impl<E: Into<Failure>> From<Result<(), E>> for Ending {
    fn from(result: Result<(), E>) -> Self {
        match result {
            Ok(()) => Self::Done,
            Err(error) => Self::Failed(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpbell::{PostError, WaitError};

    #[test]
    fn every_ending_survives_the_crossing() {
        let long = PostError::TooLong {
            bytes: 1 << 40,
            limit: 9,
        };
        for ending in [
            Ending::Untouched,
            Ending::Done,
            Ending::Failed(long.into()),
            Ending::Failed(WaitError::Deadline.into()),
        ] {
            assert_eq!(EndingWords::from(ending).ending(), Some(ending));
        }
        assert_eq!(EndingWords([1 << 32, 0, 0]).ending(), None);
    }
}
