//! Lanes of a warp that post to the same shared queue at the same time, each for itself.

#[cfg(target_arch = "nvptx64")]
use warpbell_gpu::arch;

/// Lanes that came to the same place together, with the same key: one reservation
/// and one doorbell serve them all. On a CPU, whose lanes never run together, each
/// is alone.
///
/// All of them call every method together.
#[derive(Clone, Copy)]
pub(super) struct Lanes {
    #[cfg(target_arch = "nvptx64")]
    mask: u32,
}

impl Lanes {
    /// The lanes that are here now; the caller is one of them.
    #[inline(always)]
    pub(super) fn here() -> Self {
        Self {
            #[cfg(target_arch = "nvptx64")]
            mask: arch::active_mask(),
        }
    }

    /// Whether the caller is the only one.
    #[inline(always)]
    pub(super) fn is_alone(self) -> bool {
        #[cfg(target_arch = "nvptx64")]
        return self.mask & self.mask.wrapping_sub(1) == 0;
        #[cfg(not(target_arch = "nvptx64"))]
        return true;
    }

    /// Whether they are the 32 of a warp, all with the caller's key.
    #[inline(always)]
    pub(super) fn are_a_warp_with(self, key: u64) -> bool {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: all lanes of the warp are here, and come to this.
        return self.mask == u32::MAX && unsafe { arch::match_any(u32::MAX, key) } == u32::MAX;
        #[cfg(not(target_arch = "nvptx64"))]
        {
            let _ = key;
            false
        }
    }

    /// Those of them with the caller's key.
    #[inline(always)]
    pub(super) fn with_the_same(self, key: u64) -> Self {
        #[cfg(target_arch = "nvptx64")]
        {
            if self.is_alone() {
                return self;
            }
            // SAFETY: the lanes that are active here come to this, all of them.
            let mask = unsafe { arch::match_any(self.mask, key) };
            Self { mask }
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            let _ = key;
            self
        }
    }

    /// The caller, without a look at what lane it is: the mask is 0.
    #[inline(always)]
    pub(super) fn alone() -> Self {
        Self {
            #[cfg(target_arch = "nvptx64")]
            mask: 0,
        }
    }

    /// The caller, of these. Taken from their mask, so that the compiler makes no second copy of what a lone lane does.
    #[inline(always)]
    pub(super) fn caller(self) -> Self {
        Self {
            #[cfg(target_arch = "nvptx64")]
            mask: self.mask & (1 << arch::lane_id()),
        }
    }

    /// The 32 lanes of a warp.
    #[inline(always)]
    pub(super) fn a_warp() -> Self {
        Self {
            #[cfg(target_arch = "nvptx64")]
            mask: u32::MAX,
        }
    }

    /// How many they are.
    #[inline(always)]
    pub(super) fn count(self) -> u32 {
        #[cfg(target_arch = "nvptx64")]
        return self.mask.count_ones().max(1);
        #[cfg(not(target_arch = "nvptx64"))]
        return 1;
    }

    /// How many of them come before the caller.
    #[inline(always)]
    pub(super) fn rank(self) -> u32 {
        #[cfg(target_arch = "nvptx64")]
        return (self.mask & arch::lanes_below()).count_ones();
        #[cfg(not(target_arch = "nvptx64"))]
        return 0;
    }

    /// Whether the caller acts for all: the first of them does.
    #[inline(always)]
    pub(super) fn leads(self) -> bool {
        self.rank() == 0
    }

    /// The leader's value, for all.
    #[inline(always)]
    pub(super) fn broadcast(self, value: u64) -> u64 {
        #[cfg(target_arch = "nvptx64")]
        if self.count() > 1 {
            return shuffle(self.mask, value, self.mask.trailing_zeros());
        }
        value
    }

    /// Waits for all; what each stored before is seen by each after.
    #[inline(always)]
    pub(super) fn sync(self) {
        #[cfg(target_arch = "nvptx64")]
        if self.count() > 1 {
            // SAFETY: all lanes of the mask call this together.
            unsafe {
                arch::sync_warp(self.mask);
            }
        }
    }
}

/// The value of lane `from`, for all lanes of `mask`, which call this together.
#[cfg(target_arch = "nvptx64")]
#[inline(always)]
fn shuffle(mask: u32, value: u64, from: u32) -> u64 {
    // SAFETY: as said.
    let half = |word| unsafe { arch::shuffle(mask, word, from) };
    u64::from(half((value >> 32) as u32)) << 32 | u64::from(half(value as u32))
}
