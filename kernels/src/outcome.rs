//! What a kernel leaves for its host: why it failed, and numbers.

use thiserror::Error;
use warpbell::wqe::BuildError;
use warpbell::{OpenError, PostError, QueueError, WaitError, Word64, WordExt, thread};
use warpbell_patterns::{active, cpnet, experts, gaspi, team, trigger};

/// Why a kernel stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// A queue could not be opened.
    #[error(transparent)]
    Open(OpenError),
    /// A work request could not be built.
    #[error(transparent)]
    Build(BuildError),
    /// A work request was not posted.
    #[error(transparent)]
    Post(PostError),
    /// What was waited for did not come.
    #[error(transparent)]
    Wait(WaitError),
    /// A call of GASPI's did not succeed.
    #[error(transparent)]
    Gaspi(gaspi::Error),
    /// A call of triggered operations did not succeed.
    #[error(transparent)]
    Trigger(trigger::Error),
    /// A call of active messages did not succeed.
    #[error(transparent)]
    Active(active::Error),
    /// A call of ComP-Net's did not succeed.
    #[error(transparent)]
    Cpnet(cpnet::Error),
    /// A call of a team's did not succeed.
    #[error(transparent)]
    Team(team::Error),
    /// A call of an exchange with experts did not succeed.
    #[error(transparent)]
    Experts(experts::Error),
    /// The numbers among a kernel's parameters name more memory than it was given: words of 8 bytes.
    #[error("the kernel's numbers want {wanted} words of a memory that has {there}")]
    Outside {
        /// How many words they want.
        wanted: u64,
        /// How many there are.
        there: u64,
    },
}

macro_rules! failure_from {
    ($($variant:ident: $error:ty;)*) => {
        $(impl From<$error> for Failure {
            #[inline(always)]
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        })*
    };
}

failure_from! {
    Open: OpenError;
    Build: BuildError;
    Post: PostError;
    Wait: WaitError;
    Gaspi: gaspi::Error;
    Trigger: trigger::Error;
    Active: active::Error;
    Cpnet: cpnet::Error;
    Team: team::Error;
    Experts: experts::Error;
}

impl Failure {
    /// The error of the queue, where that is why.
    pub const fn queue_error(self) -> Option<QueueError> {
        match self {
            Self::Open(OpenError::Failed(error))
            | Self::Post(PostError::Failed(error))
            | Self::Wait(WaitError::Failed(error))
            | Self::Gaspi(gaspi::Error::Failed(error))
            | Self::Trigger(trigger::Error::Failed(error))
            | Self::Active(active::Error::Failed(error))
            | Self::Cpnet(cpnet::Error::Failed(error))
            | Self::Team(team::Error::Failed(error))
            | Self::Experts(experts::Error::Failed(error)) => Some(error),
            _ => None,
        }
    }
}

/// Packs failures into three words, and unpacks them: by a number for each, its fields, and the bits of what it holds.
macro_rules! words {
    (
        fields {
            $($number:literal: $kind:ident($error:ident::$variant:ident $({ $first:ident $(, $second:ident)? })?);)*
        }
        holding $held:ident {
            $($holder:literal: $holds:ident $within:tt as $bits:ty;)*
        }
    ) => {
        impl Failure {
            /// Packs it into three words; the first says which, and is never 0.
            #[inline(always)]
            pub(crate) const fn to_words(self) -> [u64; 3] {
                match self {
                    $(Self::$kind($error::$variant { $($first $(, $second)?)? }) => {
                        let fields = [$($first as u64, $($second as u64,)?)? 0, 0];
                        [$number, fields[0], fields[1]]
                    })*
                    $(Self::$holds $within => [$holder, $held.to_bits(), 0],)*
                    Self::Outside { wanted, there } => [OUTSIDE, wanted, there],
                }
            }

            /// Unpacks [`to_words`](Self::to_words); none for words that it never gives.
            pub(crate) fn from_words([which, one, two]: [u64; 3]) -> Option<Self> {
                Some(match which {
                    $($number => Self::$kind($error::$variant {
                        $($first: one as _, $($second: two as _)?)?
                    }),)*
                    $($holder => {
                        let $held = <$bits>::from_bits(one)?;
                        Self::$holds $within
                    })*
                    OUTSIDE => Self::Outside {
                        wanted: one,
                        there: two,
                    },
                    _ => return None,
                })
            }
        }
    };
}

/// The number of [`Failure::Outside`].
const OUTSIDE: u64 = 29;

words! {
    fields {
        1: Open(OpenError::NotAHandle { magic });
        2: Open(OpenError::Version { found, wanted });
        3: Open(OpenError::Size { found, wanted });
        4: Open(OpenError::InUse);
        6: Build(BuildError::TooManySegments { given, limit });
        7: Build(BuildError::EmptySegment);
        8: Build(BuildError::SegmentTooLong { length });
        9: Build(BuildError::InlineTooLong { length, limit });
        10: Build(BuildError::EmptyInline);
        11: Post(PostError::NoRoom);
        12: Post(PostError::Deadline);
        13: Post(PostError::TooManyBlocks { asked, limit });
        14: Post(PostError::TooLong { bytes, limit });
        15: Post(PostError::Empty);
        16: Post(PostError::Misaligned { address });
        18: Wait(WaitError::Deadline);
        19: Wait(WaitError::NotSignalled);
        21: Open(OpenError::Reach { found });
        22: Open(OpenError::SendDoorbell { found });
        26: Open(OpenError::Apart);
        27: Open(OpenError::Elsewhere);
        28: Open(OpenError::DoorbellPage { found });
    }
    holding error {
        5: Open(OpenError::Failed(error)) as QueueError;
        17: Post(PostError::Failed(error)) as QueueError;
        20: Wait(WaitError::Failed(error)) as QueueError;
        23: Gaspi(error) as gaspi::Error;
        24: Trigger(error) as trigger::Error;
        25: Active(error) as active::Error;
        30: Cpnet(error) as cpnet::Error;
        31: Team(error) as team::Error;
        32: Experts(error) as experts::Error;
    }
}

/// While a thread fills in its failure.
const BEING_WRITTEN: u64 = u64::MAX;

/// Where a kernel's threads say why they failed; the first one is kept. 24 bytes, zero at first.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Outcome {
    words: [Word64; 3],
}

impl Outcome {
    /// Nothing has failed yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs a kernel's body for this thread and keeps its failure.
    #[inline(always)]
    pub fn record(&self, body: impl FnOnce() -> Result<(), Failure>) {
        if let Err(failure) = body() {
            self.keep(failure);
        }
    }

    // Inlined, because a failure that is an argument lies in a GPU's local memory.
    #[cold]
    #[inline(always)]
    fn keep(&self, failure: Failure) {
        let [which, first, second] = failure.to_words();
        // SAFETY: a kernel gets its outcome from the host, which has it in memory that both reach.
        let first_failure = unsafe { thread::compare_exchange(&self.words[0], 0, BEING_WRITTEN) };
        if first_failure.is_ok() {
            self.words[1].store_relaxed(first);
            self.words[2].store_relaxed(second);
            // The details before the kind, because a host may look while the kernel runs.
            self.words[0].store_release(which);
        }
    }

    /// What became of the kernel, once it has ended.
    ///
    /// # Errors
    /// The first failure of a thread.
    pub fn result(&self) -> Result<(), Failure> {
        let which = self.words[0].load_acquire();
        let [first, second] = [1, 2].map(|word: usize| self.words[word].load_relaxed());
        match Failure::from_words([which, first, second]) {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpbell::Cause;
    use warpbell::wqe::{CompletionError, Opcode, QpNumber, Side, Syndrome, VendorCode, WqeIndex};

    fn every_failure() -> [Failure; 37] {
        let error = QueueError::new(Cause::Completion(CompletionError {
            side: Side::Requester,
            syndrome: Syndrome::REMOTE_ACCESS,
            vendor: VendorCode::REMOTE_ACCESS,
            wqe_index: WqeIndex(0xabcd),
            opcode: Opcode::RDMA_READ,
            qpn: QpNumber::from_low_bits(0x12_3456),
        }));
        [
            OpenError::NotAHandle { magic: 0xdead_beef }.into(),
            OpenError::Version {
                found: 9,
                wanted: 1,
            }
            .into(),
            OpenError::Size {
                found: 72,
                wanted: 80,
            }
            .into(),
            OpenError::Reach { found: 9 }.into(),
            OpenError::SendDoorbell { found: 9 }.into(),
            OpenError::InUse.into(),
            OpenError::Apart.into(),
            OpenError::Elsewhere.into(),
            OpenError::Failed(error).into(),
            BuildError::TooManySegments { given: 9, limit: 6 }.into(),
            BuildError::EmptySegment.into(),
            BuildError::SegmentTooLong { length: 1 << 31 }.into(),
            BuildError::InlineTooLong {
                length: 99,
                limit: 28,
            }
            .into(),
            BuildError::EmptyInline.into(),
            PostError::NoRoom.into(),
            PostError::Deadline.into(),
            PostError::TooManyBlocks { asked: 2, limit: 1 }.into(),
            PostError::TooLong {
                bytes: 1 << 33,
                limit: 1 << 30,
            }
            .into(),
            PostError::Empty.into(),
            PostError::Misaligned {
                address: 0x1234_5678_9abc_def1,
            }
            .into(),
            PostError::Failed(error).into(),
            WaitError::Deadline.into(),
            WaitError::NotSignalled.into(),
            WaitError::Failed(error).into(),
            gaspi::Error::InvalidRank { rank: u32::MAX }.into(),
            gaspi::Error::Failed(error).into(),
            trigger::Error::Untriggered { missing: 7 }.into(),
            trigger::Error::Failed(error).into(),
            active::Error::NotRegistered { function: 7 }.into(),
            active::Error::Failed(error).into(),
            cpnet::Error::NoGroup { group: 7 }.into(),
            cpnet::Error::Failed(error).into(),
            team::Error::Late { rank: 7 }.into(),
            team::Error::Failed(error).into(),
            experts::Error::Expert { expert: 7 }.into(),
            experts::Error::Failed(error).into(),
            Failure::Outside {
                wanted: u64::MAX,
                there: 4,
            },
        ]
    }

    #[test]
    fn the_host_reads_what_the_kernel_wrote() {
        for failure in every_failure() {
            let outcome = Outcome::new();
            outcome.record(|| Ok(()));
            assert_eq!(outcome.result(), Ok(()));
            outcome.record(|| Err(failure));
            outcome.record(|| Err(Failure::Post(PostError::Empty)));
            assert_eq!(outcome.result(), Err(failure), "the first one is kept");
        }
    }
}
