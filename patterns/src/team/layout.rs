//! Where things lie in the window of a member: the same at all members of a team.

/// Words at a multiple of which channels begin: a cache line of a GPU.
const LINE: u64 = 16;

/// Words of a window that is full: more than any memory has.
const MOST: u64 = 1 << 45;

/// Where things lie in each member's window, in words of 8 bytes.
///
/// ```text
/// | the callers' words | channel 0 | channel 1 | ...
///
/// a channel: | scratch | ready of even calls | ready of odd calls | arrived | terms | landing |
///                        ------------------ a word for each member ----------------   1 word
/// ```
///
/// Each channel begins at a multiple of 128 bytes, because NICs and GPUs copy what is aligned in larger pieces.
///
/// `repr(C)`, 40 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    ranks: u32,
    channels: u32,
    user: u64,
    scratch: u64,
    /// Where channel 0 begins.
    first: u64,
    /// Words from one channel to the next.
    stride: u64,
}

const _: () = assert!(size_of::<Layout>() == 40);

impl Layout {
    /// Words of each channel for each member.
    const SIGNALS: u64 = 4;

    /// The layout of a team of so many members and channels, with so many words for the callers, and for each channel's
    /// sums; none if it has more words than there are.
    pub const fn new(ranks: u32, channels: u32, user: u64, scratch: u64) -> Option<Self> {
        if user > MOST || scratch > MOST {
            return None;
        }
        let first = user.next_multiple_of(LINE);
        let words = scratch + Self::SIGNALS * ranks as u64 + 1;
        let stride = words.next_multiple_of(LINE);
        match stride.checked_mul(channels as u64) {
            Some(words) if words <= MOST - first => Some(Self {
                ranks,
                channels,
                user,
                scratch,
                first,
                stride,
            }),
            _ => None,
        }
    }

    /// Members of the team.
    #[inline(always)]
    pub const fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Channels of each member.
    #[inline(always)]
    pub const fn channels(&self) -> u32 {
        self.channels
    }

    /// Words of the window.
    pub const fn words(&self) -> u64 {
        self.channel(self.channels)
    }

    /// Words that are the callers', from the window's beginning on.
    #[inline(always)]
    pub const fn user(&self) -> u64 {
        self.user
    }

    /// Words of a channel for what comes to be summed.
    #[inline(always)]
    pub const fn scratch_words(&self) -> u64 {
        self.scratch
    }

    #[inline(always)]
    const fn channel(&self, channel: u32) -> u64 {
        self.first + self.stride * channel as u64
    }

    /// A channel's first word for what comes to be summed.
    #[inline(always)]
    pub const fn scratch(&self, channel: u32) -> u64 {
        self.channel(channel)
    }

    /// The word by which member `from` says that it has come to this call. Two words take turns: a member may be one call
    /// ahead of another one, which has not looked yet.
    #[inline(always)]
    pub const fn ready(&self, channel: u32, call: u64, from: u32) -> u64 {
        let first = self.scratch(channel) + self.scratch;
        first + (call & 1) * self.ranks as u64 + from as u64
    }

    /// The word by which member `from` says how much of what it sends in a call has come.
    #[inline(always)]
    pub const fn arrived(&self, channel: u32, from: u32) -> u64 {
        self.ready(channel, 1, from) + self.ranks as u64
    }

    /// The word in which member `from` says where it takes what comes.
    #[inline(always)]
    pub const fn terms(&self, channel: u32, from: u32) -> u64 {
        self.arrived(channel, from) + self.ranks as u64
    }

    /// A word for what nobody reads.
    #[inline(always)]
    pub const fn landing(&self, channel: u32) -> u64 {
        self.terms(channel, self.ranks)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps_and_little_is_left_over() {
        let layout = Layout::new(3, 2, 10, 5).unwrap();
        let mut used = vec![false; layout.words() as usize];
        let mut take = |word: u64| assert!(!std::mem::replace(&mut used[word as usize], true));
        (0..layout.user()).for_each(&mut take);
        for channel in 0..2 {
            for rank in 0..3 {
                take(layout.ready(channel, 6, rank));
                take(layout.ready(channel, 7, rank));
                take(layout.arrived(channel, rank));
                take(layout.terms(channel, rank));
            }
            take(layout.landing(channel));
            assert_eq!(layout.scratch(channel) % 16, 0);
            (0..layout.scratch_words()).for_each(|word| take(layout.scratch(channel) + word));
        }
        // Less than a line behind the callers' words and behind each channel.
        let left_over = used.into_iter().filter(|used| !used).count();
        assert!(left_over <= 3 * 15, "{left_over}");
    }

    #[test]
    fn a_layout_that_no_memory_holds_is_none() {
        for (user, scratch) in [(u64::MAX, 0), (0, u64::MAX), (1 << 45, 0), (0, 1 << 44)] {
            assert_eq!(Layout::new(3, 2, user, scratch), None);
        }
    }
}
