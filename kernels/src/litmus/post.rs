//! Posting through the library: a kernel for each sharing and scope that is looked at.

use warpbell::{
    Block, Deadline, Exclusive, GpuShared, Scope, Sharing, Thread, Warp, Word64, WordExt, block,
    kernel, thread, warp,
};

use super::{Fault, Litmus, OLD_DATA, Poster, STRETCH, marked};
use crate::outcome::Failure;

/// Words of a CQE before its last one.
const CQE_BODY: usize = 7;

impl Poster<'_, '_> {
    /// What the WQE number `number` of this block carries.
    #[inline(always)]
    fn tag(self, number: u64) -> u64 {
        u64::from(self.number) << 48 | number
    }

    /// Posts until the time is over.
    #[inline(always)]
    fn stream<S: Sharing, C: Scope>(self, posted: &mut u64) -> Result<(), Failure> {
        let limit = Deadline::after_us(self.test.limit_us);
        // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
        let mut queue = unsafe { self.pair.queue.open_together::<S, C>() }?;
        let (rank, count) = C::rank_and_count(true);
        let until = thread::clock_ns() + self.test.run_ns;
        loop {
            for _ in 0..STRETCH {
                let own = self.tag(*posted + u64::from(rank));
                let _ = queue.post(marked(own), limit)?;
                *posted += u64::from(count);
            }
            if !C::any(C::leads() && thread::clock_ns() < until) {
                return Ok(());
            }
        }
    }

    /// Posts with all lanes of a warp, each for itself, until the time is over; all lanes post equally often. With
    /// `ALONE` one of them, another one each time, posts once more behind each round, while the others wait.
    #[inline(always)]
    fn lanes<const ALONE: bool>(self, posted: &mut u64) -> Result<(), Failure> {
        let limit = Deadline::after_us(self.test.limit_us);
        let mut queue = self.pair.queue.open::<GpuShared>()?;
        let lane = u64::from(warp::lane_id());
        let until = thread::clock_ns() + self.test.run_ns;
        let mut result = Ok(());
        loop {
            for _ in 0..STRETCH {
                // A lane that cannot go on takes part in the vote all the same.
                if result.is_ok() {
                    let own = self.tag(lane << 40 | *posted);
                    result = queue.post(marked(own), limit).map(|_| ());
                }
                *posted += u64::from(thread::warp_size());
                if ALONE {
                    let next = *posted % u64::from(thread::warp_size());
                    if lane == next && result.is_ok() {
                        let own = self.tag(lane << 40 | *posted);
                        result = queue.post(marked(own), limit).map(|_| ());
                    }
                    *posted += 1;
                    warp::sync();
                }
            }
            if !warp::any(lane == 0 && thread::clock_ns() < until) {
                return Ok(result?);
            }
        }
    }

    /// Posts, waits, and reads what came, until the time is over.
    #[inline(always)]
    fn round_trips<S: Sharing, C: Scope>(self, posted: &mut u64) -> Result<(), Failure> {
        let limit = Deadline::after_us(self.test.limit_us);
        // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
        let mut queue = unsafe { self.pair.queue.open_together::<S, C>() }?;
        let (rank, count) = C::rank_and_count(true);
        let until = thread::clock_ns() + self.test.run_ns;
        let mut old = 0;
        loop {
            for _ in 0..STRETCH {
                let own = self.tag(*posted + u64::from(rank));
                let ticket = queue.post(marked(own).signalled(), limit)?;
                *posted += u64::from(count);
                match self.test.fault {
                    Fault::NotAcquired => queue.wait_outbound(ticket, limit)?,
                    _ => queue.wait(ticket, limit)?,
                }
                old += u64::from(C::any(!self.is_there(*posted - 1)));
            }
            if !C::any(C::leads() && thread::clock_ns() < until) {
                break;
            }
        }
        if C::leads() {
            self.test.note(self.index, OLD_DATA, old);
        }
        Ok(())
    }

    /// Whether data and CQE are those of WQE number `number`.
    #[inline(always)]
    fn is_there(self, number: u64) -> bool {
        // SAFETY: the host promises the places.
        let (data, completion) = unsafe { (&*self.pair.data, &*self.pair.completion) };
        let mut there = true;
        for word in data {
            there &= load_as_data(word) == number;
        }
        for word in &completion[..CQE_BODY] {
            there &= word.load_relaxed() == number;
        }
        there
    }
}

/// Loads a word as a kernel loads its data: on a GPU through the L1 cache, which holds what was there before until an
/// acquire fence empties it.
#[inline(always)]
fn load_as_data(word: &Word64) -> u64 {
    #[cfg(not(target_arch = "nvptx64"))]
    return word.load_relaxed();
    #[cfg(target_arch = "nvptx64")]
    {
        let value: u64;
        // SAFETY: the reference is valid; it lies in global memory or in host memory that is mapped there. Who
        // stores to it has done so before the CQE, and does it again only after the next WQE.
        unsafe {
            core::arch::asm!(
                "{{",
                ".reg .u64 %word;",
                "cvta.to.global.u64 %word, {word};",
                "ld.global.u64 {value}, [%word];",
                "}}",
                word = in(reg64) word.as_ptr(),
                value = out(reg64) value,
                options(preserves_flags, nostack),
            );
        }
        value
    }
}

/// A kernel for each way to publish.
macro_rules! streams {
    ($($name:ident: $sharing:ident, $scope:ident, $members:expr;)*) => {
        $(
            #[doc = concat!("Posts to a queue opened as [`", stringify!($sharing), "`], [`", stringify!($scope))]
            #[doc = "`]."]
            ///
            /// # Safety
            /// The places that [`Litmus`] names are there, for as long as the kernel runs, as its fields say.
            #[kernel]
            pub unsafe fn $name(p: Litmus<'_>) {
                p.run($members, false, |poster, posted| {
                    poster.stream::<$sharing, $scope>(posted)
                });
            }
        )*
    };
}

streams! {
    suite_litmus_thread: Exclusive, Thread, 1;
    suite_litmus_warp: Exclusive, Warp, thread::warp_size();
    suite_litmus_block: Exclusive, Block, block::size();
    suite_litmus_shared: GpuShared, Thread, 1;
}

/// Lanes of a warp post to a queue that the GPU shares, each for itself.
///
/// # Safety
/// The places that [`Litmus`] names are there, for as long as the kernel runs, as its fields say.
#[kernel]
pub unsafe fn suite_litmus_lanes(p: Litmus<'_>) {
    p.run(thread::warp_size(), false, |poster, posted| {
        poster.lanes::<false>(posted)
    });
}

/// All lanes of a warp post to a queue that the GPU shares, each for itself, and one of them alone, in turns.
///
/// # Safety
/// The places that [`Litmus`] names are there, for as long as the kernel runs, as its fields say.
#[kernel]
pub unsafe fn suite_litmus_lanes_alone(p: Litmus<'_>) {
    p.run(thread::warp_size(), false, |poster, posted| {
        poster.lanes::<true>(posted)
    });
}

/// A kernel for each way to wait.
macro_rules! completions {
    ($($name:ident: $sharing:ident, $scope:ident, $members:expr;)*) => {
        $(
            #[doc = concat!("Waits for data on a queue opened as [`", stringify!($sharing), "`], [`")]
            #[doc = concat!(stringify!($scope), "`].")]
            ///
            /// # Safety
            /// The places that [`Litmus`] names are there, for as long as the kernel runs, as its fields say.
            #[kernel]
            pub unsafe fn $name(p: Litmus<'_>) {
                p.run($members, true, |poster, posted| poster.round_trips::<$sharing, $scope>(posted));
            }
        )*
    };
}

completions! {
    suite_litmus_completions_thread: Exclusive, Thread, 1;
    suite_litmus_completions_warp: Exclusive, Warp, thread::warp_size();
    suite_litmus_completions_block: Exclusive, Block, block::size();
    suite_litmus_completions_shared: GpuShared, Thread, 1;
}
