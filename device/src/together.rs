//! One call for all threads of a scope, in three parts: all [`begin`], the leader acts, all [`finish`].
//!
//! No function around a closure: a closure that two calls have in common is not inlined, and a queue that it is given
//! then lies in a GPU's local memory.

use crate::Scope;

/// An error that fits a word whose high half is not 0.
pub(crate) trait ErrorWord: Sized {
    /// The word.
    fn to_word(self) -> u64;
    /// The error of such a word; none of any other.
    fn from_word(word: u64) -> Option<Self>;
}

/// Begins a call; says who acts for all.
///
/// What any thread stored before comes before the call, because the leader's fence covers what it has seen (rule 1 of
/// the memory model).
#[inline(always)]
pub(crate) fn begin<C: Scope>() -> bool {
    // The others' stores before the leader's call.
    C::sync();
    C::leads()
}

/// Ends a call: gives all threads what the leader brings. What the leader may read, all may.
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
