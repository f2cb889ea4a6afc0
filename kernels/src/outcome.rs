//! What a kernel leaves for its host: why it failed, and numbers.

use core::fmt;
use core::sync::atomic::Ordering;

use warpbell::wqe::BuildError;
use warpbell::{OpenError, PostError, QueueError, WaitError, Word64, thread};
use warpbell_patterns::{active, gaspi, trigger};

/// Why a kernel stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A queue could not be opened.
    Open(OpenError),
    /// A work request could not be built.
    Build(BuildError),
    /// A work request was not posted.
    Post(PostError),
    /// What was waited for did not come.
    Wait(WaitError),
    /// A call of GASPI's did not succeed.
    Gaspi(gaspi::Error),
    /// A call of triggered operations did not succeed.
    Trigger(trigger::Error),
    /// A call of active messages did not succeed.
    Active(active::Error),
    /// The numbers among a kernel's parameters name more memory than it was given: words of 8 bytes.
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
            | Self::Active(active::Error::Failed(error)) => Some(error),
            _ => None,
        }
    }

    /// Packs it into three words; the first says which, and is never 0.
    #[inline(always)]
    pub(crate) const fn to_words(self) -> [u64; 3] {
        use {BuildError as B, OpenError as O, PostError as P, WaitError as W};
        match self {
            Self::Open(O::NotAHandle { magic }) => [1, magic as u64, 0],
            Self::Open(O::Version { found, wanted }) => [2, found as u64, wanted as u64],
            Self::Open(O::Size { found, wanted }) => [3, found as u64, wanted as u64],
            Self::Open(O::InUse) => [4, 0, 0],
            Self::Open(O::Failed(error)) => [5, error.to_bits(), 0],
            Self::Open(O::Reach { found }) => [21, found as u64, 0],
            Self::Open(O::SendDoorbell { found }) => [22, found as u64, 0],
            Self::Open(O::Apart) => [26, 0, 0],
            Self::Open(O::Elsewhere) => [27, 0, 0],
            Self::Open(O::DoorbellPage { found }) => [28, found as u64, 0],
            Self::Build(B::TooManySegments { given, limit }) => [6, given as u64, limit as u64],
            Self::Build(B::EmptySegment) => [7, 0, 0],
            Self::Build(B::SegmentTooLong { length }) => [8, length as u64, 0],
            Self::Build(B::InlineTooLong { length, limit }) => [9, length as u64, limit as u64],
            Self::Build(B::EmptyInline) => [10, 0, 0],
            Self::Post(P::NoRoom) => [11, 0, 0],
            Self::Post(P::Deadline) => [12, 0, 0],
            Self::Post(P::TooManyBlocks { asked, limit }) => [13, asked as u64, limit as u64],
            Self::Post(P::TooLong { bytes, limit }) => [14, bytes, limit as u64],
            Self::Post(P::Empty) => [15, 0, 0],
            Self::Post(P::Misaligned { address }) => [16, address, 0],
            Self::Post(P::Failed(error)) => [17, error.to_bits(), 0],
            Self::Wait(W::Deadline) => [18, 0, 0],
            Self::Wait(W::NotSignalled) => [19, 0, 0],
            Self::Wait(W::Failed(error)) => [20, error.to_bits(), 0],
            Self::Gaspi(error) => [23, error.to_bits(), 0],
            Self::Trigger(error) => [24, error.to_bits(), 0],
            Self::Active(error) => [25, error.to_bits(), 0],
            Self::Outside { wanted, there } => [29, wanted, there],
        }
    }

    /// Unpacks [`to_words`](Self::to_words); none for words that it never gives.
    pub(crate) fn from_words([which, first, second]: [u64; 3]) -> Option<Self> {
        use {BuildError as B, OpenError as O, PostError as P, WaitError as W};
        Some(match which {
            1 => Self::Open(O::NotAHandle {
                magic: first as u32,
            }),
            2 => Self::Open(O::Version {
                found: first as u16,
                wanted: second as u16,
            }),
            3 => Self::Open(O::Size {
                found: first as u16,
                wanted: second as u16,
            }),
            4 => Self::Open(O::InUse),
            5 => Self::Open(O::Failed(QueueError::from_bits(first)?)),
            6 => Self::Build(B::TooManySegments {
                given: first as usize,
                limit: second as usize,
            }),
            7 => Self::Build(B::EmptySegment),
            8 => Self::Build(B::SegmentTooLong {
                length: first as u32,
            }),
            9 => Self::Build(B::InlineTooLong {
                length: first as usize,
                limit: second as usize,
            }),
            10 => Self::Build(B::EmptyInline),
            11 => Self::Post(P::NoRoom),
            12 => Self::Post(P::Deadline),
            13 => Self::Post(P::TooManyBlocks {
                asked: first as u32,
                limit: second as u32,
            }),
            14 => Self::Post(P::TooLong {
                bytes: first,
                limit: second as u32,
            }),
            15 => Self::Post(P::Empty),
            16 => Self::Post(P::Misaligned { address: first }),
            17 => Self::Post(P::Failed(QueueError::from_bits(first)?)),
            18 => Self::Wait(W::Deadline),
            19 => Self::Wait(W::NotSignalled),
            20 => Self::Wait(W::Failed(QueueError::from_bits(first)?)),
            21 => Self::Open(O::Reach { found: first as u8 }),
            22 => Self::Open(O::SendDoorbell { found: first as u8 }),
            23 => Self::Gaspi(gaspi::Error::from_bits(first)?),
            24 => Self::Trigger(trigger::Error::from_bits(first)?),
            25 => Self::Active(active::Error::from_bits(first)?),
            26 => Self::Open(O::Apart),
            27 => Self::Open(O::Elsewhere),
            28 => Self::Open(O::DoorbellPage { found: first as u8 }),
            29 => Self::Outside {
                wanted: first,
                there: second,
            },
            _ => return None,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(error) => error.fmt(f),
            Self::Build(error) => error.fmt(f),
            Self::Post(error) => error.fmt(f),
            Self::Wait(error) => error.fmt(f),
            Self::Gaspi(error) => error.fmt(f),
            Self::Trigger(error) => error.fmt(f),
            Self::Active(error) => error.fmt(f),
            Self::Outside { wanted, there } => write!(
                f,
                "the kernel's numbers want {wanted} words of a memory that has {there}"
            ),
        }
    }
}

impl core::error::Error for Failure {}

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
            self.words[1].store(first, Ordering::Relaxed);
            self.words[2].store(second, Ordering::Relaxed);
            // The details before the kind, because a host may look while the kernel runs.
            self.words[0].store(which, Ordering::Release);
        }
    }

    /// What became of the kernel, once it has ended.
    ///
    /// # Errors
    /// The first failure of a thread.
    pub fn result(&self) -> Result<(), Failure> {
        let which = self.words[0].load(Ordering::Acquire);
        let [first, second] = [1, 2].map(|word: usize| self.words[word].load(Ordering::Relaxed));
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

    fn every_failure() -> [Failure; 31] {
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
