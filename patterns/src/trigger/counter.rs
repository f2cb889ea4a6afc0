//! Counter, threshold and index in one word, so that one addition does all, and one adder alone completes it.

use mlx5_wqe::WqeIndex;
use warpbell_gpu::arch::{Reach, Word64, fence_acquire, fence_acquire_release};

use crate::words::{
    compare_exchange_relaxed64, exchange_relaxed64, fetch_add_relaxed64, fetch_add64,
    load_acquire64, load_relaxed64,
};
use warpbell::thread::kept;

/// The highest threshold.
pub const MAX_THRESHOLD: u32 = (1 << THRESHOLD_BITS) - 1;

/// The word's fields, from the low bits up: the index behind the newest operation's WQEs, its threshold, and how many
/// triggers came. The counter is on top, where what does not fit falls off instead of running into its neighbour.
const END_BITS: u32 = 16;
const THRESHOLD_BITS: u32 = 20;
pub(super) const COUNTER_SHIFT: u32 = END_BITS + THRESHOLD_BITS;

/// What a trigger adds.
const ONE: u64 = 1 << COUNTER_SHIFT;

/// What a tag's word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter(u64);

impl Counter {
    /// Of a tag for whose unused queue nothing was registered, and that nobody has triggered.
    pub const FRESH: Self = Self(0);

    /// A tag's word that counts for an operation before index `end`, with so many triggers so far.
    pub const fn new(end: WqeIndex, threshold: u32, counted: u32) -> Self {
        let threshold = ((threshold & MAX_THRESHOLD) as u64) << END_BITS;
        Self((counted as u64) << COUNTER_SHIFT | threshold | end.0 as u64)
    }

    /// The word.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// What a word says.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The index behind the operation's WQEs.
    pub const fn end(self) -> WqeIndex {
        WqeIndex(self.0 as u16)
    }

    /// How many triggers the operation wants; 0 if none was ever registered.
    pub const fn threshold(self) -> u32 {
        (self.0 >> END_BITS) as u32 & MAX_THRESHOLD
    }

    /// How many triggers came since the operation before had enough. 2^28 more would look like none.
    pub const fn counted(self) -> u32 {
        (self.0 >> COUNTER_SHIFT) as u32
    }

    /// Whether an operation is registered.
    pub const fn is_registered(self) -> bool {
        self.threshold() != 0
    }

    /// How many triggers are missing; 0 without an operation.
    pub const fn missing(self) -> u32 {
        self.threshold().saturating_sub(self.counted())
    }

    /// Whether the trigger that found this was the last one that was missing.
    #[inline(always)]
    pub(super) const fn lacked_one(self) -> bool {
        // Exactly one trigger finds this, since the counter only grows; without an operation none does, because its
        // threshold is 0.
        self.counted() + 1 == self.threshold()
    }

    /// The word with one more trigger.
    #[inline(always)]
    pub(super) const fn triggered(self) -> Self {
        Self(self.0.wrapping_add(ONE))
    }

    /// The word once the next operation is registered; all that the one before wanted is there.
    #[inline(always)]
    pub const fn next(self, end: WqeIndex, threshold: u32) -> Self {
        let counted = self.counted().wrapping_sub(self.threshold());
        Self::new(end, threshold, counted)
    }
}

/// A tag's word in memory.
///
/// Kernels' threads only add to it. Of what they find, all but the counter stays while an operation is registered.
#[repr(transparent)]
#[derive(Debug)]
pub(super) struct CounterWord(Word64);

impl CounterWord {
    pub(super) fn new(counter: Counter) -> Self {
        Self(Word64::new(counter.to_bits()))
    }

    /// Counts a trigger; gives what the word said a fence before, and what it said then.
    #[inline(always)]
    pub(super) fn trigger(&self) -> [Counter; 2] {
        let seen = self.look();
        // What `seen` tells of, the WQEs and the data of triggers that came before, and this thread's data, before its
        // trigger, because another's may be the last; and before record and doorbell, if nothing comes in between. An
        // acquire and a release in one, because the word is then on its way as long as the fence lasts.
        fence_acquire_release(Reach::Gpu);
        let found = Counter(fetch_add_relaxed64(&self.0, ONE, Reach::Gpu));
        // `kept`, because a GPU's assembler would work out what follows from the look ahead of the fence, where it has to
        // wait for it. Here it is at hand, and what follows is worked out while the addition is under way.
        [Counter(kept(seen.0)), found]
    }

    /// What it says now; nothing that it stands for is ordered yet.
    #[inline(always)]
    pub(super) fn look(&self) -> Counter {
        // GPU scope, because threads of one GPU trigger: a GPU behind PCIe has no wider atomics.
        Counter(load_relaxed64(&self.0, Reach::Gpu))
    }

    /// Counts a trigger if the word still says what was `seen` of it; gives what it says. Relaxed: the trigger of an
    /// operation that lacks no other may count before this thread's data is ordered, because nobody but this thread
    /// publishes then.
    #[inline(always)]
    pub(super) fn claim(&self, seen: Counter) -> Counter {
        let next = seen.triggered();
        match compare_exchange_relaxed64(&self.0, seen.0, next.0, Reach::Gpu) {
            Ok(found) | Err(found) => Counter(found),
        }
    }

    /// Registers the operation before index `end`, where the one before is over; whether its triggers are all there.
    #[inline(always)]
    pub(super) fn register(&self, known: Counter, end: WqeIndex, threshold: u32) -> bool {
        // A difference, because triggers come meanwhile: they change the counter alone, which is on top of the word.
        let difference = known.next(end, threshold).0.wrapping_sub(known.0);
        // Release: the WQEs before what lets others publish them. Acquire: the data of triggers that came before.
        let found = Counter(fetch_add64(&self.0, difference, Reach::Gpu));
        found.next(end, threshold).missing() == 0
    }

    /// Takes all that it says, for who has the tag alone: what comes meanwhile counts for no operation.
    #[inline(always)]
    pub(super) fn take(&self) -> Counter {
        let found = Counter(exchange_relaxed64(&self.0, 0, Reach::Gpu));
        // What it says before what it stands for: the WQEs, and the data of triggers that came before.
        fence_acquire(Reach::Gpu);
        found
    }

    /// Puts it back, with what came meanwhile; whether its triggers are all there now, and were not.
    #[inline(always)]
    pub(super) fn give_back(&self, counter: Counter) -> bool {
        // Release: this thread's data before its triggers. Acquire: the data of those that came meanwhile.
        let kept = Counter(fetch_add64(&self.0, counter.0, Reach::Gpu));
        counter.missing() != 0 && counter.missing() <= kept.counted()
    }

    #[inline(always)]
    pub(super) fn load(&self) -> Counter {
        Counter(load_acquire64(&self.0, Reach::Gpu))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    /// Counts a trigger; where the operation ends that it sends.
    fn trigger(word: &CounterWord) -> Option<WqeIndex> {
        let [seen, found] = word.trigger();
        assert_eq!(seen, found, "nobody else is here");
        found.lacked_one().then_some(found.end())
    }

    #[test]
    fn fields_keep_to_themselves() {
        let full = Counter::new(WqeIndex(u16::MAX), MAX_THRESHOLD, (1 << 28) - 1);
        assert_eq!(full.to_bits(), u64::MAX);
        let word = CounterWord::new(full);
        assert_eq!(trigger(&word), None);
        assert_eq!(
            word.load(),
            Counter::new(WqeIndex(u16::MAX), MAX_THRESHOLD, 0),
            "what does not fit falls off"
        );
    }

    #[test]
    fn no_number_of_triggers_sends_what_is_not_registered() {
        for counted in [0, 1, (1 << 28) - 1] {
            let word = CounterWord::new(Counter::new(WqeIndex(0), 0, counted));
            assert_eq!(trigger(&word), None, "after {counted}");
        }
    }

    /// Triggers and registrations in any order, against a model that counts.
    #[test]
    fn each_operation_goes_once_and_when_its_triggers_are_there() {
        let steps = if cfg!(miri) { 200 } else { 100_000 };
        for seed in 0..4 {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut end: u16 = random.random();
            let word = CounterWord::new(Counter::new(WqeIndex(end), 0, 0));
            let (mut triggers, mut wanted, mut gone) = (0u32, 0u32, true);
            // Now more triggers, now more operations.
            let often = [0.5, 0.7, 0.8, 0.9][seed as usize];
            for step in 0..steps {
                let went = if random.random_bool(often) {
                    triggers += 1;
                    trigger(&word)
                } else if gone {
                    let threshold = random.random_range(1..5);
                    end = end.wrapping_add(random.random_range(1..4));
                    wanted += threshold;
                    gone = false;
                    let now = word.register(word.load(), WqeIndex(end), threshold);
                    now.then_some(WqeIndex(end))
                } else {
                    continue;
                };
                let due = !gone && triggers >= wanted;
                let expected = due.then_some(WqeIndex(end));
                assert_eq!(went, expected, "seed {seed}, step {step}");
                gone |= due;
                assert_eq!(word.load().end(), WqeIndex(end));
                assert_eq!(word.load().missing(), wanted.saturating_sub(triggers));
            }
        }
    }
}
