//! Indices of 16 bits, counted on.

/// How much was posted to a queue and completed, since it was made or first looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Blocks or receives posted.
    pub posted: u64,
    /// Those of them that completed.
    pub completed: u64,
}

impl Counts {
    /// Begins with the first index that is seen.
    pub fn begin(index: u16) -> Self {
        Self {
            posted: index.into(),
            completed: 0,
        }
    }

    /// Takes in the index behind the last one posted. Fewer than 32,768 were posted since the last call; or `published`
    /// were posted in all, by words that lag behind the index or are slightly newer.
    pub fn post(&mut self, index: u16, published: u64) {
        let from = self.posted.max(published);
        let ahead = index.wrapping_sub(from as u16).cast_signed();
        // A ring that is read while it is written can seem to go back.
        self.posted = self.posted.max(from.saturating_add_signed(ahead.into()));
    }

    /// Takes in how many of those posted are under way.
    pub fn complete(&mut self, under_way: u16) {
        let completed = self.posted.saturating_sub(under_way.into());
        self.completed = self.completed.max(completed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn posted(before: u64, index: u16, published: u64) -> u64 {
        let mut counts = Counts {
            posted: before,
            completed: 0,
        };
        counts.post(index, published);
        counts.posted
    }

    #[test]
    fn an_index_is_counted_on_beyond_16_bits() {
        assert_eq!(posted(Counts::begin(40_000).posted, 40_007, 0), 40_007);
        assert_eq!(posted(65_530, 4, 0), 65_540);
        assert_eq!(posted(65_540, 4, 0), 65_540);
        assert_eq!(posted(65_540, 32_771, 0), 98_307);
        // A count never goes back.
        assert_eq!(posted(65_540, 3, 0), 65_540);
    }

    #[test]
    fn words_of_64_bits_tell_what_an_index_missed() {
        // The words lag, are as new, and are newer than the index.
        assert_eq!(posted(10, 20, 15), 20);
        assert_eq!(posted(10, 0x0020, 0x5_0010), 0x5_0020);
        assert_eq!(posted(10, 0x0020, 0x5_0020), 0x5_0020);
        assert_eq!(posted(10, 0xfff0, 0x5_0010), 0x4_fff0);
        assert_eq!(posted(0x6_0008, 0xfff0, 0x6_0010), 0x6_0008);
    }

    #[test]
    fn what_is_not_under_way_is_completed() {
        let mut counts = Counts::begin(10);
        counts.complete(3);
        assert_eq!(counts.completed, 7);
        // An older look at the ring.
        counts.complete(5);
        assert_eq!(counts.completed, 7);
        counts.post(8, 0x2_0008);
        counts.complete(0);
        assert_eq!((counts.posted, counts.completed), (0x2_0008, 0x2_0008));
    }
}
