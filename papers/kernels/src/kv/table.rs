//! What keys and values are, and how a table of them lies in memory: the same for the host that fills it, for whoever
//! reads it over the network, and for the target's task.

use warpbell_kernels::place::Place;

/// Entries of a bucket.
pub const ENTRIES: u32 = 4;
/// Bytes of a bucket: of each entry the key, and the [`Entry`].
pub const BUCKET: u32 = 16 * ENTRIES;

/// Spreads a number over 64 bits; no two numbers become one.
const fn spread(number: u64) -> u64 {
    let mixed = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// The greater one, where kernels must not divide by 0.
const fn most(one: u32, other: u32) -> u32 {
    match one > other {
        true => one,
        false => other,
    }
}

/// The bucket in which a key is looked for first, of so many; where that is full, in the next one.
#[inline(always)]
pub const fn first_bucket(key: u64, buckets: u32) -> u32 {
    let hash = spread(key ^ 0x9e37_79b9_7f4a_7c15);
    ((hash as u128 * buckets as u128) >> 64) as u32
}

/// The bucket behind one.
#[inline(always)]
pub const fn next_bucket(bucket: u32, buckets: u32) -> u32 {
    match bucket + 1 == buckets {
        true => 0,
        false => bucket + 1,
    }
}

/// Where a value lies among the values, and how long it is: offset in bytes (48 bits), length (16). 0 is a free entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(pub u64);

impl Entry {
    /// The entry of a value.
    pub const fn new(offset: u64, length: u32) -> Self {
        Self(offset << 16 | length as u64)
    }

    /// Whether there is a value.
    #[inline(always)]
    pub const fn is_taken(self) -> bool {
        self.0 != 0
    }

    /// Bytes from the values' beginning.
    #[inline(always)]
    pub const fn offset(self) -> u64 {
        self.0 >> 16
    }

    /// Bytes of the value, at least 1.
    #[inline(always)]
    pub const fn length(self) -> u32 {
        self.0 as u32 & 0xffff
    }
}

/// Looks for a key in a bucket: its entry, a free one if it is not there, and whether the bucket has room, so that no
/// later one has the key.
#[inline(always)]
pub(super) fn look(bucket: Place, key: u64) -> (Entry, bool) {
    let (mut found, mut room) = (Entry(0), false);
    for entry in 0..ENTRIES {
        let (there, entry) = (bucket.load(2 * entry), Entry(bucket.load(2 * entry + 1)));
        room |= !entry.is_taken();
        if (there == key) & entry.is_taken() {
            found = entry;
        }
    }
    (found, room)
}

/// The keys of a table and their values, and who asks for which: all of it follows from a few numbers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    /// Other keys for other numbers.
    pub seed: u64,
    /// How many there are.
    pub keys: u32,
    /// How many of 100 GETs ask for a key that is not there.
    pub missing: u32,
    /// Bytes of the shortest value, at least 1.
    pub shortest: u32,
    /// Bytes of the longest.
    pub longest: u32,
}

impl Keys {
    /// A key by its number: those from `keys` on are not there.
    #[inline(always)]
    pub const fn key(&self, number: u64) -> u64 {
        spread(number.wrapping_add(self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// The number of the key that a client's GET asks for.
    #[inline(always)]
    pub const fn asked(&self, client: u32, get: u32) -> u64 {
        let random = spread(((client as u64) << 32 | get as u64) ^ self.seed.rotate_left(32));
        let number = (random >> 32) % most(self.keys, 1) as u64;
        match random as u32 % 100 < self.missing {
            true => self.keys as u64 + number,
            false => number,
        }
    }

    /// Whether the key of this number is there.
    #[inline(always)]
    pub const fn has(&self, number: u64) -> bool {
        number < self.keys as u64
    }

    /// Bytes of a key's value.
    #[inline(always)]
    pub const fn length(&self, key: u64) -> u32 {
        let choices = self.longest.wrapping_sub(self.shortest).wrapping_add(1);
        self.shortest + (spread(!key) >> 32) as u32 % most(choices, 1)
    }

    /// Eight bytes of a key's value, the last ones perhaps more than it has.
    #[inline(always)]
    pub const fn word(&self, key: u64, index: u32) -> u64 {
        spread(key.wrapping_add((index as u64 + 1).wrapping_mul(0xd6e8_feb8_6659_fd93)))
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering;

    use warpbell::Word64;

    use super::*;

    #[test]
    fn a_bucket_says_what_it_has() {
        let words = [const { Word64::new(0) }; 8];
        // SAFETY: a bucket's words, and atomics.
        let bucket = unsafe { Place::new(words.as_ptr(), 8) };
        let look = |key| look(bucket, key);
        // A free entry has key 0, and is none.
        assert_eq!(look(0), (Entry(0), true));
        for entry in 0..4 {
            assert!(look(0).1, "{entry}");
            words[2 * entry].store(entry as u64, Ordering::Relaxed);
            words[2 * entry + 1].store(Entry::new(8 * entry as u64, 5).0, Ordering::Relaxed);
            assert_eq!(look(0).0, Entry::new(0, 5), "beside free ones");
        }
        for entry in 0..4 {
            assert_eq!(look(entry), (Entry::new(8 * entry, 5), false));
        }
        assert_eq!(look(4), (Entry(0), false));
    }

    #[test]
    fn buckets_follow_each_other_in_a_ring() {
        for buckets in [1, 2, 7] {
            let mut found = [0; 7];
            for key in 0..1000 {
                found[first_bucket(key, buckets) as usize] += 1;
            }
            let used = found.iter().filter(|&&count| count > 500 / buckets).count();
            assert_eq!(used, buckets as usize, "{found:?}");
            let mut bucket = 0;
            for _ in 0..buckets {
                bucket = next_bucket(bucket, buckets);
            }
            assert_eq!(bucket, 0);
        }
    }

    #[test]
    fn an_entry_survives_its_word() {
        for (offset, length) in [(0, 1), ((1 << 48) - 8, 16_383)] {
            let entry = Entry::new(offset, length);
            assert!(entry.is_taken());
            assert_eq!((entry.offset(), entry.length()), (offset, length));
        }
    }

    #[test]
    fn some_keys_are_missing_and_values_have_their_lengths() {
        let keys = Keys {
            seed: 5,
            keys: 10,
            missing: 30,
            shortest: 3,
            longest: 6,
        };
        let asked = (0..2000).map(|get| keys.asked(get % 3, get));
        let missing = asked.clone().filter(|&number| !keys.has(number)).count();
        assert!((500..700).contains(&missing), "{missing}");
        assert!(asked.clone().all(|number| number < 20));
        let lengths = asked.map(|number| keys.length(keys.key(number)));
        let mut seen: [u32; 8] = [0; 8];
        lengths.for_each(|length| seen[length as usize] += 1);
        assert_eq!(
            seen.map(|count| count != 0),
            [false, false, false, true, true, true, true, false]
        );
    }
}
