//! What the lanes of a warp do together. Names and meaning are cuda_std's: [`lane_id`] and [`sync_warp`] those of
//! its release 0.2.2, the votes, matches and shuffles (`warp_`) those of its repository since. [`full_mask`], [`sync`],
//! [`any`], [`ballot`], [`alike`], [`broadcast`] and [`rank_and_count`] are what the queues need beside them.
//!
//! A mask names lanes: bit n is lane n. All lanes of the mask come to the same operation with the same
//! mask, none has exited and the caller is among them: that is the contract of every function that takes a
//! mask. The others have it for [`full_mask`]. On a CPU a breach ends the launch with an error that names
//! the lanes; on a GPU the warp hangs or gets unspecified values.

#[cfg(target_arch = "nvptx64")]
use crate::arch;
use crate::block;
#[cfg(not(target_arch = "nvptx64"))]
use crate::cpu::{self, WarpOp};
use crate::thread;

/// The thread's lane in its warp, 0 to 31.
#[inline(always)]
pub fn lane_id() -> u32 {
    #[cfg(target_arch = "nvptx64")]
    return arch::lane_id();
    #[cfg(not(target_arch = "nvptx64"))]
    return block::thread_index() % thread::warp_size();
}

/// The lanes that this warp has: all 32, fewer in the last warp of a block whose size is no multiple of 32.
#[inline(always)]
pub fn full_mask() -> u32 {
    let first_thread = block::thread_index() / thread::warp_size() * thread::warp_size();
    let lanes = (block::size() - first_thread).min(thread::warp_size());
    u32::MAX >> (thread::warp_size() - lanes)
}

/// The mask for all lanes that there are.
///
/// On a GPU it is a [constant](crate::tuned), and names lanes, too, that the warp has not.
#[inline(always)]
fn whole() -> u32 {
    if cfg!(target_arch = "nvptx64") {
        u32::MAX
    } else {
        full_mask()
    }
}

/// Waits until every lane of `mask` is here. What they wrote before is then visible to all of them.
///
/// # Safety
/// The [contract of a mask](self).
#[inline(always)]
pub unsafe fn sync_warp(mask: u32) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise.
    unsafe {
        arch::sync_warp(mask);
    }
    #[cfg(not(target_arch = "nvptx64"))]
    (cpu::hooks().meet_warp)(WarpOp::Sync, mask, 0);
}

/// Whether every lane of `mask` brought `true`.
///
/// # Safety
/// The [contract of a mask](self).
#[inline(always)]
pub unsafe fn warp_vote_all(mask: u32, predicate: bool) -> bool {
    // SAFETY: the caller's promise.
    unsafe { warp_vote_ballot(mask, predicate) == mask }
}

/// Whether some lane of `mask` brought `true`.
///
/// # Safety
/// The [contract of a mask](self).
#[inline(always)]
pub unsafe fn warp_vote_any(mask: u32, predicate: bool) -> bool {
    // SAFETY: the caller's promise.
    unsafe { warp_vote_ballot(mask, predicate) != 0 }
}

/// The lanes of `mask` that brought `true`.
///
/// # Safety
/// The [contract of a mask](self).
#[inline(always)]
pub unsafe fn warp_vote_ballot(mask: u32, predicate: bool) -> u32 {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise.
    return unsafe { arch::ballot(mask, predicate) };
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let votes = (cpu::hooks().meet_warp)(WarpOp::Vote, mask, u64::from(predicate));
        let lanes = votes.iter().enumerate();
        lanes.fold(0, |ballot, (lane, &vote)| ballot | (vote as u32) << lane)
    }
}

/// The lanes of `mask` that brought the same value as the caller.
///
/// # Safety
/// The [contract of a mask](self).
#[inline(always)]
pub unsafe fn warp_match_any_64(mask: u32, value: u64) -> u32 {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise.
    return unsafe { arch::match_any(mask, value) };
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let values = (cpu::hooks().meet_warp)(WarpOp::Match, mask, value);
        let lanes = values.iter().enumerate();
        let same = lanes.fold(0, |same, (lane, &other)| {
            same | u32::from(other == value) << lane
        });
        same & mask
    }
}

/// Gives each lane the value of lane `idx` of its group of `width` lanes, and whether that lane is in
/// the group; the index is taken modulo `width`, so it always is.
///
/// `width` is a power of two up to 32. The value is unspecified where the source lane is not in `mask`.
///
/// # Safety
/// The [contract of a mask](self).
#[inline(always)]
pub unsafe fn warp_shuffle_idx<T: WarpShuffleValue>(
    mask: u32,
    value: T,
    idx: u32,
    width: u32,
) -> (T, bool) {
    // SAFETY: the caller's promise.
    unsafe { shuffle(Source::Idx, mask, value, idx, width) }
}

/// Gives each lane the value of the lane `delta` below it, and whether that lane is in the same group of
/// `width` lanes; if it is not, the lane keeps its own value.
///
/// `delta` is taken modulo 32, `width` is a power of two up to 32. The value is unspecified where the
/// source lane is not in `mask`.
///
/// # Safety
/// The [contract of a mask](self).
#[inline(always)]
pub unsafe fn warp_shuffle_up<T: WarpShuffleValue>(
    mask: u32,
    value: T,
    delta: u32,
    width: u32,
) -> (T, bool) {
    // SAFETY: the caller's promise.
    unsafe { shuffle(Source::Up, mask, value, delta, width) }
}

/// Gives each lane the value of the lane `delta` above it, and whether that lane is in the same group of
/// `width` lanes; if it is not, the lane keeps its own value.
///
/// `delta` is taken modulo 32, `width` is a power of two up to 32. The value is unspecified where the
/// source lane is not in `mask`.
///
/// # Safety
/// The [contract of a mask](self).
#[inline(always)]
pub unsafe fn warp_shuffle_down<T: WarpShuffleValue>(
    mask: u32,
    value: T,
    delta: u32,
    width: u32,
) -> (T, bool) {
    // SAFETY: the caller's promise.
    unsafe { shuffle(Source::Down, mask, value, delta, width) }
}

/// Gives each lane the value of the lane whose index differs from its own in the bits of `lane_mask`, and
/// whether that lane is in the same group of `width` lanes or a lower one; if it is not, the lane keeps
/// its own value.
///
/// `lane_mask` is taken modulo 32, `width` is a power of two up to 32. The value is unspecified where the
/// source lane is not in `mask`.
///
/// # Safety
/// The [contract of a mask](self).
#[inline(always)]
pub unsafe fn warp_shuffle_xor<T: WarpShuffleValue>(
    mask: u32,
    value: T,
    lane_mask: u32,
    width: u32,
) -> (T, bool) {
    // SAFETY: the caller's promise.
    unsafe { shuffle(Source::Xor, mask, value, lane_mask, width) }
}

/// Waits until every lane of the warp is here: [`sync_warp`] with [`full_mask`].
#[inline(always)]
pub fn sync() {
    // SAFETY: the module's contract; the caller's lane exists, so it is in the mask.
    unsafe { sync_warp(whole()) }
}

/// Whether some lane of the warp brought `true`: [`warp_vote_any`] with [`full_mask`].
#[inline(always)]
pub fn any(predicate: bool) -> bool {
    // SAFETY: the module's contract; the caller's lane exists, so it is in the mask.
    unsafe { warp_vote_any(whole(), predicate) }
}

/// The lanes of the warp that brought `true`: [`warp_vote_ballot`] with [`full_mask`].
#[inline(always)]
pub fn ballot(predicate: bool) -> u32 {
    // SAFETY: the module's contract; the caller's lane exists, so it is in the mask.
    unsafe { warp_vote_ballot(whole(), predicate) }
}

/// The lanes of the warp that brought the caller's value: [`warp_match_any_64`] with [`full_mask`].
#[inline(always)]
pub fn alike(value: u64) -> u32 {
    // SAFETY: the module's contract; the caller's lane exists, so it is in the mask.
    unsafe { warp_match_any_64(whole(), value) }
}

/// Gives every lane the value that the warp's first lane brought.
#[inline(always)]
pub fn broadcast(value: u64) -> u64 {
    // SAFETY: the module's contract; the caller's lane exists, so it is in the mask, and lane 0 always is.
    unsafe { warp_shuffle_idx(whole(), value, 0, thread::warp_size()).0 }
}

/// Each lane's rank among the lanes that are present (how many lower lanes are), and how many are present
/// in all. The rank is also defined for a lane that is not present.
#[inline(always)]
pub fn rank_and_count(present: bool) -> (u32, u32) {
    // SAFETY: the module's contract; the caller's lane exists, so it is in the mask.
    let ballot = unsafe { warp_vote_ballot(whole(), present) };
    #[cfg(target_arch = "nvptx64")]
    let lower_lanes = arch::lanes_below();
    #[cfg(not(target_arch = "nvptx64"))]
    let lower_lanes = (1 << lane_id()) - 1;
    ((ballot & lower_lanes).count_ones(), ballot.count_ones())
}

mod sealed {
    pub trait Sealed {}
}

/// A value that a shuffle can carry: 32 bits in one instruction, 64 bits in two.
pub trait WarpShuffleValue: Copy + sealed::Sealed {
    /// Whether it has 64 bits.
    const WIDE: bool;
    /// Its bits, in the low part.
    fn to_bits(self) -> u64;
    /// The value of such bits.
    fn from_bits(bits: u64) -> Self;
}

macro_rules! shuffle_value {
    ($type:ty, $wide:expr, $to:expr, $from:expr) => {
        impl sealed::Sealed for $type {}
        impl WarpShuffleValue for $type {
            const WIDE: bool = $wide;
            #[inline(always)]
            fn to_bits(self) -> u64 {
                $to(self)
            }
            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                $from(bits)
            }
        }
    };
}

shuffle_value!(u32, false, u64::from, |bits| bits as u32);
shuffle_value!(i32, false, |value| u64::from(value as u32), |bits| bits
    as i32);
shuffle_value!(
    f32,
    false,
    |value: f32| u64::from(value.to_bits()),
    |bits| f32::from_bits(bits as u32)
);
shuffle_value!(u64, true, |value| value, |bits| bits);
shuffle_value!(i64, true, |value| value as u64, |bits| bits as i64);
shuffle_value!(f64, true, f64::to_bits, f64::from_bits);

/// How a lane's source lane follows from the shuffle's operand.
#[derive(Clone, Copy)]
enum Source {
    /// The operand itself.
    Idx,
    /// The operand below.
    Up,
    /// The operand above.
    Down,
    /// The lane's own index, the operand's bits flipped.
    Xor,
}

/// The source lane and whether it is in range; the lane itself where it is not (PTX ISA, `shfl.sync`).
#[inline(always)]
fn source_lane(source: Source, lane: u32, operand: u32, width: u32) -> (u32, bool) {
    debug_assert!(
        width.is_power_of_two() && width <= 32,
        "width {width} is no power of two up to 32"
    );
    let operand = operand % thread::warp_size();
    let first = lane & !(width - 1);
    let last = first + width - 1;
    let (from, in_range) = match source {
        Source::Idx => (first + operand % width, true),
        Source::Up => (lane.wrapping_sub(operand), operand <= lane - first),
        Source::Down => (lane + operand, lane + operand <= last),
        Source::Xor => (lane ^ operand, lane ^ operand <= last),
    };
    (if in_range { from } else { lane }, in_range)
}

/// Shuffles by source lane, whichever way that lane was found: one kind of instruction on a GPU.
///
/// # Safety
/// The [contract of a mask](self).
#[inline(always)]
unsafe fn shuffle<T: WarpShuffleValue>(
    source: Source,
    mask: u32,
    value: T,
    operand: u32,
    width: u32,
) -> (T, bool) {
    let (from, in_range) = source_lane(source, lane_id(), operand, width);
    let bits = value.to_bits();
    #[cfg(target_arch = "nvptx64")]
    let bits = {
        // SAFETY: the caller's promise.
        let half = |word| unsafe { arch::shuffle(mask, word, from) };
        let low = half(bits as u32);
        let high = if T::WIDE {
            half((bits >> 32) as u32)
        } else {
            0
        };
        u64::from(high) << 32 | u64::from(low)
    };
    #[cfg(not(target_arch = "nvptx64"))]
    let bits = {
        let op = match source {
            Source::Idx => WarpOp::ShuffleIdx,
            Source::Up => WarpOp::ShuffleUp,
            Source::Down => WarpOp::ShuffleDown,
            Source::Xor => WarpOp::ShuffleXor,
        };
        (cpu::hooks().meet_warp)(op, mask, bits)[from as usize]
    };
    (T::from_bits(bits), in_range)
}
