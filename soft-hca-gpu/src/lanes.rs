//! The threads that work together for one engine.

/// Threads that all call the same functions in the same order, each with its own number: the lanes of a GPU's
/// warp, or one thread alone.
///
/// # Safety
///
/// *Implementation safety.* Each method must be what it says for all lanes together, and what a lane
/// stored before [`sync`](Self::sync) must be seen by each of them after it, and be before what they store
/// then.
pub unsafe trait Lanes: Copy {
    /// This lane's number, below [`count`](Self::count).
    fn index(self) -> u32;

    /// How many lanes there are, 1 to 32; the same at each.
    fn count(self) -> u32;

    /// The lanes that bring `true`: bit n is lane n.
    fn ballot(self, predicate: bool) -> u32;

    /// The value that lane `from` brings; all bring the same `from`.
    fn broadcast(self, value: u64, from: u32) -> u64;

    /// Waits for all lanes.
    fn sync(self);
}

/// One thread alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct OneLane;

// SAFETY: a thread sees what it stored itself, and its order is that of its program.
unsafe impl Lanes for OneLane {
    #[inline(always)]
    fn index(self) -> u32 {
        0
    }

    #[inline(always)]
    fn count(self) -> u32 {
        1
    }

    #[inline(always)]
    fn ballot(self, predicate: bool) -> u32 {
        predicate.into()
    }

    #[inline(always)]
    fn broadcast(self, value: u64, _from: u32) -> u64 {
        value
    }

    #[inline(always)]
    fn sync(self) {}
}
