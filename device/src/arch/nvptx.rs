//! A GPU: PTX instructions of exactly the wanted order and scope.
//!
//! Needs PTX 8.6 (`-Ctarget-feature=+ptx86`) from sm_90 on, because only there is a release fence that leaves
//! the SM's L1 cache alone. An older GPU (sm_70 or later, PTX 8.2) has but the fence that is both. Barriers, votes and shuffles are LLVM's intrinsics and no inline
//! assembly, because only they are marked convergent: the compiler may move assembly into a branch.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU32, AtomicU64};

use mlx5_wqe::{Octoword, WqeBlock};

use super::Reach;

/// A 32-bit word that others read or write at the same time.
pub type Word32 = AtomicU32;
/// A 64-bit word that others read or write at the same time.
pub type Word64 = AtomicU64;

/// A basic block of a send ring, 64 bytes.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Block(WqeBlock);

/// The same instruction for each reach: `$before` and `$after` stand on both sides of the scope.
macro_rules! by_reach {
    ($reach:expr, $before:expr, $after:expr, $($operand:tt)*) => {
        match $reach {
            Reach::Block => asm!(concat!($before, ".cta", $after), $($operand)*),
            Reach::Gpu => asm!(concat!($before, ".gpu", $after), $($operand)*),
            Reach::System => asm!(concat!($before, ".sys", $after), $($operand)*),
        }
    };
}

/// The address of a word in the global address space; a register's copy at most.
#[inline(always)]
fn global<T>(word: *const T) -> u64 {
    let address: u64;
    // SAFETY: converts an address and touches no memory.
    unsafe {
        asm!(
            "cvta.to.global.u64 {address}, {word};",
            address = out(reg64) address,
            word = in(reg64) word,
            options(pure, nomem, preserves_flags, nostack),
        );
    }
    address
}

/// Stores a block in four 16-byte stores that are ordered only by the fence that follows.
///
/// # Safety
/// `slot` must be valid for writes, and nobody may read or write the block until a later release makes
/// this store visible to them.
#[inline(always)]
pub unsafe fn store_block(slot: *mut Block, block: WqeBlock) {
    // SAFETY: the caller's promise; `Block` is aligned to 64 bytes, so vector stores are allowed.
    unsafe {
        asm!(
            "st.global.v2.b64 [{slot}], {{{a}, {b}}};",
            "st.global.v2.b64 [{slot}+16], {{{c}, {d}}};",
            "st.global.v2.b64 [{slot}+32], {{{e}, {f}}};",
            "st.global.v2.b64 [{slot}+48], {{{g}, {h}}};",
            slot = in(reg64) global(slot),
            a = in(reg64) block[0].0[0],
            b = in(reg64) block[0].0[1],
            c = in(reg64) block[1].0[0],
            d = in(reg64) block[1].0[1],
            e = in(reg64) block[2].0[0],
            f = in(reg64) block[2].0[1],
            g = in(reg64) block[3].0[0],
            h = in(reg64) block[3].0[1],
            options(preserves_flags, nostack),
        );
    }
}

/// What two lanes side by side store in two pieces of 16 bytes each: of the even lane's block, and of the odd one's. Where
/// `low` is a lane's first piece and `high` its second one, the even lane gets both first pieces, and the odd one both
/// second ones.
///
/// # Safety
/// All 32 lanes of the warp call this together, each with its own number.
#[inline(always)]
unsafe fn exchange(odd: bool, low: Octoword, high: Octoword) -> (Octoword, Octoword) {
    let half = |low: u32, high: u32| {
        // Zeros in all lanes, because the compiler asks no lane: nothing to exchange.
        if is_known(low == 0) && low == 0 && is_known(high == 0) && high == 0 {
            return (0, 0);
        }
        let sent = if odd { low } else { high };
        // SAFETY: the caller's promise.
        let got = unsafe { shuffle_bfly(u32::MAX, sent as i32, 1, 31) } as u32;
        match odd {
            true => (got, high),
            false => (low, got),
        }
    };
    let word = |low: u64, high: u64| {
        let (even0, odd0) = half(low as u32, high as u32);
        let (even1, odd1) = half((low >> 32) as u32, (high >> 32) as u32);
        let join = |low, high| u64::from(high) << 32 | u64::from(low);
        (join(even0, even1), join(odd0, odd1))
    };
    let (even0, odd0) = word(low.0[0], high.0[0]);
    let (even1, odd1) = word(low.0[1], high.0[1]);
    (Octoword([even0, even1]), Octoword([odd0, odd1]))
}

/// Stores a block of each lane of a whole warp; `slot` says where that of a lane goes.
///
/// Two lanes exchange 16-byte parts first, so that each of the four stores covers 16 pieces of 32 bytes, a sector of the
/// memory each, and not 32 halves of such, which keeps the SM's path to memory busy for twice as long.
///
/// # Safety
/// As for [`store_block`], for all slots; all 32 lanes of the warp call this together, with the same `slot`.
#[inline(always)]
pub unsafe fn store_blocks(slot: impl Fn(u32) -> *mut Block, block: WqeBlock) {
    let lane = lane_id();
    let odd = lane & 1 != 0;
    let [a, b, c, d] = block;
    // SAFETY: the caller's promise: a whole warp.
    let (even0, odd0) = unsafe { exchange(odd, a, b) };
    let part = 16 * u64::from(odd);
    let empty = d.0[0] | d.0[1] == 0;
    let (even1, odd1, last) = if is_known(empty) && empty {
        // Zeros in all lanes, because the compiler asks no lane: each lane can store its neighbour's.
        match odd {
            true => (d, c, 0),
            false => (c, d, 16),
        }
    } else {
        // SAFETY: as above.
        let (even, odd) = unsafe { exchange(odd, c, d) };
        (even, odd, part)
    };
    // SAFETY: the caller's promise; a quarter of a `Block` is aligned to 16 bytes, so vector stores are allowed.
    unsafe {
        asm!(
            "st.global.v2.b64 [{even}], {{{a}, {b}}};",
            "st.global.v2.b64 [{even}+32], {{{c}, {d}}};",
            "st.global.v2.b64 [{odd}], {{{e}, {f}}};",
            "st.global.v2.b64 [{last}+32], {{{g}, {h}}};",
            even = in(reg64) global(slot(lane & !1)) + part,
            odd = in(reg64) global(slot(lane | 1)) + part,
            last = in(reg64) global(slot(lane | 1)) + last,
            a = in(reg64) even0.0[0],
            b = in(reg64) even0.0[1],
            c = in(reg64) even1.0[0],
            d = in(reg64) even1.0[1],
            e = in(reg64) odd0.0[0],
            f = in(reg64) odd0.0[1],
            g = in(reg64) odd1.0[0],
            h = in(reg64) odd1.0[1],
            options(preserves_flags, nostack),
        );
    }
}

/// 16 bytes of a receive ring.
#[repr(C, align(16))]
#[derive(Debug)]
pub struct Segment(Octoword);

/// Stores a segment in one 16-byte store that is ordered only by the fence that follows.
///
/// # Safety
/// As for [`store_block`].
#[inline(always)]
pub unsafe fn store_segment(slot: *mut Segment, segment: Octoword) {
    // SAFETY: the caller's promise; `Segment` is aligned to 16 bytes, so a vector store is allowed.
    unsafe {
        asm!(
            "st.global.v2.b64 [{slot}], {{{a}, {b}}};",
            slot = in(reg64) global(slot),
            a = in(reg64) segment.0[0],
            b = in(reg64) segment.0[1],
            options(preserves_flags, nostack),
        );
    }
}

/// A load of a word.
macro_rules! load {
    ($(#[$doc:meta])* $name:ident, $word:ty, $value:ty, $reg:ident, $before:literal, $after:literal) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $name(word: &$word, reach: Reach) -> $value {
            let value: $value;
            // SAFETY: the reference is valid, and an atomic word may be read while others write it.
            unsafe {
                by_reach!(reach, $before, concat!(".global.", $after, " {value}, [{word}];"),
                    value = out($reg) value, word = in(reg64) global(word.as_ptr()),
                    options(preserves_flags, nostack));
            }
            value
        }
    };
}

load!(
    /// Loads a word, in no order with other accesses.
    load_relaxed64, Word64, u64, reg64, "ld.relaxed", "b64"
);
load!(
    /// Loads a word before every later access.
    load_acquire64, Word64, u64, reg64, "ld.acquire", "b64"
);

/// A store of a word.
macro_rules! store {
    ($(#[$doc:meta])* $name:ident, $word:ty, $value:ty, $reg:ident, $before:literal, $after:literal) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $name(word: &$word, value: $value, reach: Reach) {
            // SAFETY: the reference is valid, and an atomic word may be written while others use it.
            unsafe {
                by_reach!(reach, $before, concat!(".global.", $after, " [{word}], {value};"),
                    word = in(reg64) global(word.as_ptr()), value = in($reg) value,
                    options(preserves_flags, nostack));
            }
        }
    };
}

store!(
    /// Stores a word, in no order with other accesses.
    store_relaxed32, Word32, u32, reg32, "st.relaxed", "b32"
);
store!(
    /// Stores a word, in no order with other accesses.
    store_relaxed64, Word64, u64, reg64, "st.relaxed", "b64"
);
store!(
    /// Stores a word after every earlier access.
    store_release64, Word64, u64, reg64, "st.release", "b64"
);

/// A compare-and-swap of a word.
macro_rules! compare_exchange {
    ($(#[$doc:meta])* $name:ident, $before:literal) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $name(word: &Word64, old: u64, new: u64, reach: Reach) -> Result<u64, u64> {
            let found: u64;
            // SAFETY: the reference is valid, and an atomic word may be written while others use it.
            unsafe {
                by_reach!(reach, $before, ".global.cas.b64 {found}, [{word}], {old}, {new};",
                    found = out(reg64) found, word = in(reg64) global(word.as_ptr()),
                    old = in(reg64) old, new = in(reg64) new,
                    options(preserves_flags, nostack));
            }
            if found == old { Ok(found) } else { Err(found) }
        }
    };
}

compare_exchange!(
    /// Replaces `old` by `new`, as acquire and release; `Err` holds the value that was there instead.
    compare_exchange64, "atom.acq_rel"
);
compare_exchange!(
    /// Replaces `old` by `new`, in no order with other accesses; `Err` holds the value that was there instead.
    compare_exchange_relaxed64, "atom.relaxed"
);

/// Stores `new` and returns the value from before, in one step and in no order with other accesses.
#[inline(always)]
pub fn exchange_relaxed64(word: &Word64, new: u64, reach: Reach) -> u64 {
    let found: u64;
    // SAFETY: the reference is valid, and an atomic word may be written while others use it.
    unsafe {
        by_reach!(reach, "atom.relaxed", ".global.exch.b64 {found}, [{word}], {new};",
            found = out(reg64) found, word = in(reg64) global(word.as_ptr()),
            new = in(reg64) new,
            options(preserves_flags, nostack));
    }
    found
}

/// An addition to a word.
macro_rules! fetch_add {
    ($(#[$doc:meta])* $name:ident, $before:literal) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $name(word: &Word64, value: u64, reach: Reach) -> u64 {
            let found: u64;
            // SAFETY: the reference is valid, and an atomic word may be written while others use it.
            unsafe {
                by_reach!(reach, $before, ".global.add.u64 {found}, [{word}], {value};",
                    found = out(reg64) found, word = in(reg64) global(word.as_ptr()),
                    value = in(reg64) value,
                    options(preserves_flags, nostack));
            }
            found
        }
    };
}

fetch_add!(
    /// Adds, as acquire and release, and returns the value from before.
    fetch_add64, "atom.acq_rel"
);

/// Adds, in no order with other accesses, and returns the value from before. Each lane adds by itself: of a value that is
/// known to be the same for all lanes the assembler makes one addition for those that are here, behind a vote and ahead
/// of two shuffles, which take a lone thread some 60 cycles.
#[inline(always)]
pub fn fetch_add_relaxed64(word: &Word64, value: u64, reach: Reach) -> u64 {
    // 0, as the assembler does not know: no lane is below another one and has the highest number.
    let zero = u64::from(lanes_below() >> 31);
    let found: u64;
    // SAFETY: the reference is valid, and an atomic word may be written while others use it.
    unsafe {
        by_reach!(reach, "atom.relaxed", ".global.add.u64 {found}, [{word}], {value};",
            found = out(reg64) found, word = in(reg64) global(word.as_ptr()),
            value = in(reg64) value ^ zero,
            options(preserves_flags, nostack));
    }
    found
}

/// The names of the one-sided fences. Before sm_90 there are none: ptxas 13.0 assembles them into illegal
/// instructions without a word, ptxas 13.5 refuses them.
#[cfg(target_feature = "sm_90")]
macro_rules! one_sided {
    (release) => {
        "fence.release"
    };
    (acquire) => {
        "fence.acquire"
    };
}
#[cfg(not(target_feature = "sm_90"))]
macro_rules! one_sided {
    ($side:ident) => {
        "fence.acq_rel"
    };
}

/// Every earlier access before every later store, for those within `reach`.
#[inline(always)]
pub fn fence_release(reach: Reach) {
    // SAFETY: a fence has no precondition.
    unsafe {
        by_reach!(
            reach,
            one_sided!(release),
            ";",
            options(preserves_flags, nostack)
        )
    }
}

/// Every earlier load before every later access, for those within `reach`. Empties the SM's L1 cache
/// where the reach is wider than the block: only after success.
#[inline(always)]
pub fn fence_acquire(reach: Reach) {
    // SAFETY: a fence has no precondition.
    unsafe {
        by_reach!(
            reach,
            one_sided!(acquire),
            ";",
            options(preserves_flags, nostack)
        )
    }
}

/// Every earlier load before every later access, and every earlier access before every later store, for those within
/// `reach`.
#[inline(always)]
pub fn fence_acquire_release(reach: Reach) {
    // SAFETY: a fence has no precondition.
    unsafe {
        by_reach!(
            reach,
            "fence.acq_rel",
            ";",
            options(preserves_flags, nostack)
        )
    }
}

/// Every earlier access before every later one, in one order for all within `reach`.
#[inline(always)]
pub fn fence_full(reach: Reach) {
    // SAFETY: a fence has no precondition.
    unsafe { by_reach!(reach, "fence.sc", ";", options(preserves_flags, nostack)) }
}

/// Stores to a doorbell register; orders nothing by itself.
#[inline(always)]
pub fn ring_doorbell(register: &Word64, value: u64) {
    // SAFETY: the reference is valid; the register's page is mapped into the global address space.
    unsafe {
        asm!(
            "st.mmio.relaxed.sys.global.u64 [{register}], {value};",
            register = in(reg64) global(register.as_ptr()),
            value = in(reg64) value,
            options(preserves_flags, nostack),
        );
    }
}

/// One turn of a waiting loop. Nothing: a GPU runs other warps while this one waits for its loads.
#[inline(always)]
pub fn spin(_turns: u32) {}

/// A clock in nanoseconds that never goes back, the same for all threads of the GPU.
#[inline(always)]
pub fn now_ns() -> u64 {
    let now: u64;
    // SAFETY: reads a special register.
    unsafe {
        asm!("mov.u64 {now}, %globaltimer;", now = out(reg64) now, options(nomem, preserves_flags, nostack));
    }
    now
}

/// A count of the SM's cycles.
#[inline(always)]
pub fn cycles() -> u64 {
    let now: u64;
    // SAFETY: reads a special register. It keeps its place among the accesses to memory.
    unsafe {
        asm!("mov.u64 {now}, %clock64;", now = out(reg64) now, options(preserves_flags, nostack));
    }
    now
}

/// The value, as one that the assembler cannot work out again: mixed with the top bit of a clock, which it does not
/// know to be 0.
#[inline(always)]
pub fn kept(value: u64) -> u64 {
    let kept: u64;
    // SAFETY: reads a special register. Not `pure`, so that it stays where it is called.
    unsafe {
        asm!(
            "{{",
            ".reg .b64 %zero;",
            "mov.u64 %zero, %clock64;",
            "shr.u64 %zero, %zero, 63;",
            "xor.b64 {kept}, {value}, %zero;",
            "}}",
            kept = out(reg64) kept,
            value = in(reg64) value,
            options(preserves_flags, nostack),
        );
    }
    kept
}

/// Suspends the thread for a time between none and twice `nanoseconds`.
#[inline(always)]
pub fn nanosleep(nanoseconds: u32) {
    // SAFETY: touches no memory.
    unsafe {
        asm!("nanosleep.u32 {time};", time = in(reg32) nanoseconds, options(nomem, preserves_flags, nostack));
    }
}

/// The grid's number, which no other grid of the GPU's context has that runs at the same time.
#[inline(always)]
pub fn grid_id() -> u64 {
    let grid: u64;
    // SAFETY: reads a special register.
    unsafe {
        asm!("mov.u64 {grid}, %gridid;", grid = out(reg64) grid, options(nomem, preserves_flags, nostack));
    }
    grid
}

/// The thread's lane in its warp, 0 to 31.
#[inline(always)]
pub fn lane_id() -> u32 {
    let lane: u32;
    // SAFETY: reads a special register.
    unsafe {
        asm!("mov.u32 {lane}, %laneid;", lane = out(reg32) lane, options(pure, nomem, preserves_flags, nostack));
    }
    // The compiler folds range checks that it cannot see through assembly.
    lane & 31
}

/// The lanes below the thread's, as a mask.
#[inline(always)]
pub fn lanes_below() -> u32 {
    let lanes: u32;
    // SAFETY: reads a special register.
    unsafe {
        asm!("mov.u32 {lanes}, %lanemask_lt;", lanes = out(reg32) lanes, options(pure, nomem, preserves_flags, nostack));
    }
    lanes
}

/// The value, of which the compiler knows nothing but that it has 32 bits: it would compare what it knows to be part
/// of 64 bits as such, in two steps.
#[inline(always)]
pub fn narrow(value: u32) -> u32 {
    let same: u32;
    // SAFETY: touches no memory.
    unsafe {
        asm!("mov.b32 {same}, {value};", same = out(reg32) same, value = in(reg32) value,
            options(pure, nomem, preserves_flags, nostack));
    }
    same
}

/// Whether the compiler knows the predicate. All threads that come to this call bring the same one then: the compiler
/// makes no copy of the call for those of a branch, because the intrinsic is convergent.
#[inline(always)]
pub fn is_known(predicate: bool) -> bool {
    // SAFETY: asks nothing of the caller.
    unsafe { is_constant(predicate) }
}

#[allow(improper_ctypes, reason = "LLVM's intrinsics return i1")]
unsafe extern "C" {
    #[link_name = "llvm.is.constant.i1"]
    fn is_constant(predicate: bool) -> bool;
    #[link_name = "llvm.nvvm.barrier.cta.sync.aligned.all"]
    fn barrier_sync(barrier: u32);
    #[link_name = "llvm.nvvm.barrier.cta.red.popc.aligned.all"]
    fn barrier_popc(barrier: u32, predicate: bool) -> u32;
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    fn bar_warp_sync(mask: u32);
    #[link_name = "llvm.nvvm.activemask"]
    fn activemask() -> u32;
    #[link_name = "llvm.nvvm.match.any.sync.i64"]
    fn match_any_sync(mask: u32, value: u64) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.bfly.i32"]
    fn shuffle_bfly(mask: u32, value: i32, distance: u32, clamp: u32) -> i32;
    #[link_name = "llvm.nvvm.vote.ballot.sync"]
    fn vote_ballot_sync(mask: u32, predicate: bool) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    fn shfl_sync_idx(mask: u32, value: u32, lane: u32, clamp: u32) -> u32;
}

/// Waits for every thread of the block that has not exited.
#[inline(always)]
pub fn barrier() {
    // SAFETY: each lane of the warp that has not exited comes to this barrier, so to this meeting before it, which
    // brings the warp together: the barrier wants its lanes to come as one.
    unsafe {
        bar_warp_sync(u32::MAX);
        barrier_sync(0);
    }
}

/// [`barrier`], and counts the threads that brought `true`.
#[inline(always)]
pub fn barrier_count(predicate: bool) -> u32 {
    // SAFETY: as for `barrier`.
    unsafe {
        bar_warp_sync(u32::MAX);
        barrier_popc(0, predicate)
    }
}

/// Waits until every lane of `mask` is here.
///
/// # Safety
/// The caller is in the mask, and the others come to this operation with the same mask.
#[inline(always)]
pub unsafe fn sync_warp(mask: u32) {
    // SAFETY: the caller's promise.
    unsafe { bar_warp_sync(mask) }
}

/// The lanes that are here now: at least the caller.
#[inline(always)]
pub fn active_mask() -> u32 {
    // SAFETY: asks nothing of the caller.
    unsafe { activemask() }
}

/// The lanes of `mask` that brought the caller's value.
///
/// # Safety
/// The caller is in the mask, and the others come to this operation with the same mask.
#[inline(always)]
pub unsafe fn match_any(mask: u32, value: u64) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { match_any_sync(mask, value) }
}

/// The lanes of `mask` that brought `true`.
///
/// # Safety
/// The caller is in the mask, and the others come to this operation with the same mask.
#[inline(always)]
pub unsafe fn ballot(mask: u32, predicate: bool) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { vote_ballot_sync(mask, predicate) }
}

/// The value of lane `from`, unspecified if that is not in `mask`.
///
/// # Safety
/// The caller is in the mask, and the others come to this operation with the same mask.
#[inline(always)]
pub unsafe fn shuffle(mask: u32, value: u32, from: u32) -> u32 {
    /// One group of 32 lanes, the last of them 31.
    const WHOLE_WARP: u32 = 31;
    // SAFETY: the caller's promise.
    unsafe { shfl_sync_idx(mask, value, from, WHOLE_WARP) }
}

// Shared memory of every block: at 0 the word of a broadcast, at 8 one counter for each of 32 warps.
global_asm!(".shared .align 8 .b8 warpbell_block_scratch[136];");

/// Stores the word of a broadcast into the block's shared memory.
#[inline(always)]
pub fn scratch_store(value: u64) {
    // SAFETY: writes memory that only these functions use.
    unsafe {
        asm!("st.shared.b64 [warpbell_block_scratch], {value};", value = in(reg64) value,
            options(preserves_flags, nostack));
    }
}

/// Loads the word of a broadcast from the block's shared memory.
#[inline(always)]
pub fn scratch_load() -> u64 {
    let value: u64;
    // SAFETY: reads memory that only these functions use.
    unsafe {
        asm!("ld.shared.b64 {value}, [warpbell_block_scratch];", value = out(reg64) value,
            options(preserves_flags, nostack));
    }
    value
}

/// The shared address of a warp's counter, 0 to 31.
#[inline(always)]
fn counter_address(warp: u32) -> u32 {
    let base: u32;
    // SAFETY: takes an address and touches no memory.
    unsafe {
        asm!("mov.u32 {base}, warpbell_block_scratch;", base = out(reg32) base,
            options(pure, nomem, preserves_flags, nostack));
    }
    base + 8 + 4 * (warp & 31)
}

/// Stores a warp's counter into the block's shared memory.
#[inline(always)]
pub fn scratch_count_store(warp: u32, count: u32) {
    // SAFETY: writes memory that only these functions use, in bounds for every warp.
    unsafe {
        asm!("st.shared.b32 [{counter}], {count};", counter = in(reg32) counter_address(warp),
            count = in(reg32) count, options(preserves_flags, nostack));
    }
}

/// Loads a warp's counter from the block's shared memory.
#[inline(always)]
pub fn scratch_count_load(warp: u32) -> u32 {
    let count: u32;
    // SAFETY: reads memory that only these functions use, in bounds for every warp.
    unsafe {
        asm!("ld.shared.b32 {count}, [{counter}];", count = out(reg32) count,
            counter = in(reg32) counter_address(warp), options(preserves_flags, nostack));
    }
    count
}

/// The generic address of an array in shared memory; what this is inlined into is never inlined itself, because
/// each copy would declare an array of its own.
#[inline(always)]
pub fn shared_array<T, const LENGTH: usize, const LINE: u32, const COLUMN: u32>() -> *mut T {
    let start: *mut T;
    // SAFETY: takes an address and touches no memory. The braces keep the name to themselves; its place keeps
    // this text from being taken for another array's.
    unsafe {
        asm!(
            "{{",
            ".shared .align {align} .b8 shared_array_{line}_{column}[{bytes}];",
            "mov.b64 {start}, shared_array_{line}_{column};",
            "cvta.shared.u64 {start}, {start};",
            "}}",
            align = const align_of::<T>(),
            bytes = const size_of::<[T; LENGTH]>(),
            line = const LINE,
            column = const COLUMN,
            start = out(reg64) start,
            options(pure, nomem, preserves_flags, nostack),
        );
    }
    start
}
