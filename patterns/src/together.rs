//! One call for all threads of a scope, in three parts: all [`begin`], the leader acts, all [`finish`]; and the queue
//! that the leader has for such calls, a [`Led`] one.
//!
//! [`by_leader`] puts the parts together. It is a macro and no function around a closure, because
//! [no common closure](warpbell_gpu::tuned) is inlined.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

use warpbell::SendQueueHandle;
use warpbell::{OpenError, QueueError};
use warpbell::{Scope, SendQueue, Sharing, Thread};

/// A send queue of a scope's leader, who alone uses it and drops it; the other threads have a view that is not open.
pub(crate) struct Led<'a, S: Sharing, C: Scope> {
    queue: ManuallyDrop<SendQueue<'a, S, Thread>>,
    _scope: PhantomData<C>,
}

impl<'a, S: Sharing, C: Scope> Led<'a, S, C> {
    /// Opens the queue; all threads of the scope call it. The leader may then read all stores from before the queue's last
    /// closing.
    #[inline(always)]
    pub(crate) fn open(handle: SendQueueHandle<'a>) -> Result<Self, OpenError> {
        /// The words of errors that are not the queue's: all others come from the check.
        const IN_USE: u64 = 1;
        const ELSEWHERE: u64 = 2;
        // By all: a handle of none has no state, which a view looks at.
        handle.check()?;
        // SAFETY: just checked; only the leader, who replaces it, uses or drops it.
        let mut queue = unsafe { SendQueue::follower(handle) };
        let mut word = 0;
        if C::leads() {
            match handle.open::<S>() {
                Ok(opened) => queue = ManuallyDrop::new(opened),
                Err(OpenError::Failed(error)) => word = error.to_bits(),
                Err(OpenError::Elsewhere) => word = ELSEWHERE,
                Err(_) => word = IN_USE,
            }
        }
        let word = C::broadcast(word);
        match word {
            IN_USE => return Err(OpenError::InUse),
            ELSEWHERE => return Err(OpenError::Elsewhere),
            _ => {}
        }
        match QueueError::from_bits(word) {
            Some(error) => Err(OpenError::Failed(error)),
            None => Ok(Self {
                queue,
                _scope: PhantomData,
            }),
        }
    }
}

impl<'a, S: Sharing, C: Scope> Deref for Led<'a, S, C> {
    type Target = SendQueue<'a, S, Thread>;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.queue
    }
}

impl<S: Sharing, C: Scope> DerefMut for Led<'_, S, C> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.queue
    }
}

impl<S: Sharing, C: Scope> Drop for Led<'_, S, C> {
    #[inline(always)]
    fn drop(&mut self) {
        if C::leads() {
            // SAFETY: open, and dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.queue) };
        }
    }
}

/// An error that fits a word whose high half is not 0: [`error_words`].
pub(crate) trait ErrorWord: Sized {
    /// The word.
    fn to_word(self) -> u64;
    /// The error of such a word; none of any other.
    fn from_word(word: u64) -> Option<Self>;
    /// An error of each variant, the last of them `Failed`.
    #[cfg(all(test, not(loom)))]
    fn examples(failed: QueueError) -> Vec<Self>;
}

/// Gives an error its words: for each variant a number, from 1 and below 2^30, for the high half; a field of 32 bits
/// goes into the low one. `Failed` is a queue's error, as that has it: its two highest bits are never both 0.
macro_rules! error_words {
    ($error:ident: $($kind:literal => $variant:ident $({ $field:ident })?,)*) => {
        impl $error {
            /// The error in one word, for a scope's other threads and for the host; its high half is never 0.
            #[inline(always)]
            pub const fn to_bits(self) -> u64 {
                match self {
                    Self::Failed(error) => error.to_bits(),
                    $(Self::$variant $({ $field })? => $kind << 32 $(| $field as u64)?,)*
                }
            }

            /// The error in a word of [`to_bits`](Self::to_bits); none in any other.
            #[inline(always)]
            pub const fn from_bits(bits: u64) -> Option<Self> {
                match bits >> 32 {
                    $($kind => Some(Self::$variant $({ $field: bits as u32 })?),)*
                    high if high >> 30 != 0 => match warpbell::QueueError::from_bits(bits) {
                        Some(error) => Some(Self::Failed(error)),
                        None => None,
                    },
                    _ => None,
                }
            }
        }

        impl $crate::together::ErrorWord for $error {
            #[inline(always)]
            fn to_word(self) -> u64 {
                self.to_bits()
            }

            #[inline(always)]
            fn from_word(word: u64) -> Option<Self> {
                Self::from_bits(word)
            }

            #[cfg(all(test, not(loom)))]
            fn examples(failed: warpbell::QueueError) -> Vec<Self> {
                vec![$(Self::$variant $({ $field: 0xfedc_ba98 })?,)* Self::Failed(failed)]
            }
        }
    };
}
pub(crate) use error_words;

/// One call for all threads of a scope. The leader alone evaluates its part, a `Result<u32, E>`, and all threads get the
/// result. The part must not return from the function around the macro.
macro_rules! by_leader {
    ($scope:ty, $part:expr) => {{
        let mut result = Ok(0);
        if $crate::together::begin::<$scope>() {
            result = $part;
        }
        $crate::together::finish::<$scope, _>(result)
    }};
}
pub(crate) use by_leader;

/// Begins a call; true for the thread that acts for all.
///
/// Each thread's earlier stores come before the call, because the leader's fence covers all that the leader has seen
/// (rule 1 of the memory model).
#[inline(always)]
pub(crate) fn begin<C: Scope>() -> bool {
    // The others' stores before the leader's call.
    C::sync();
    C::leads()
}

/// Ends a call: gives all threads the leader's result. All may read what the leader may read.
#[inline(always)]
pub(crate) fn finish<C: Scope, E: ErrorWord>(result: Result<u32, E>) -> Result<u32, E> {
    if !C::COLLECTIVE {
        return result;
    }
    let word = C::broadcast(match result {
        Ok(value) => value as u64,
        Err(error) => error.to_word(),
    });
    // The leader's fence before the others' reading; a warp's shuffle orders no memory.
    C::sync();
    // An error's word has something in its high half.
    match E::from_word(word) {
        Some(error) => Err(error),
        None => Ok(word as u32),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::fmt::Debug;

    use super::*;
    use mlx5_wqe::WqeIndex;
    use warpbell::Cause;

    fn errors_survive_their_word<E: ErrorWord + Copy + Debug + PartialEq>() {
        let failed = QueueError::new(Cause::Stalled { wqe: WqeIndex(7) });
        let errors = E::examples(failed);
        for &error in &errors {
            assert_ne!(error.to_word() >> 32, 0, "{error:?}");
            assert_eq!(E::from_word(error.to_word()), Some(error));
        }
        for nothing in [0, 1, (errors.len() as u64) << 32, u64::MAX >> 2] {
            assert_eq!(E::from_word(nothing), None, "{nothing:#x}");
        }
    }

    #[test]
    fn errors_of_active_messages_survive_their_word() {
        errors_survive_their_word::<crate::active::Error>();
    }

    #[test]
    fn errors_of_comp_net_survive_their_word() {
        errors_survive_their_word::<crate::cpnet::Error>();
    }

    #[test]
    fn errors_of_exchanges_survive_their_word() {
        errors_survive_their_word::<crate::experts::Error>();
    }

    #[test]
    fn errors_of_gaspi_survive_their_word() {
        errors_survive_their_word::<crate::gaspi::Error>();
    }

    #[test]
    fn errors_of_teams_survive_their_word() {
        errors_survive_their_word::<crate::team::Error>();
    }

    #[test]
    fn errors_of_triggers_survive_their_word() {
        errors_survive_their_word::<crate::trigger::Error>();
    }
}
