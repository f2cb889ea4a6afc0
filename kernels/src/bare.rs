//! The floor of posting: the stores and fences of a post by hand, with no check, no credit and no index but a
//! counter. What [`posting`](crate::posting) measures is compared with it.

use warpbell::wqe::{Doorbell, DoorbellRecord, QpNumber, WqeBlock, WqeIndex};
use warpbell::{Block, Scope, Slice, Thread, Warp, Word32, Word64, WordExt, kernel, thread};
use warpbell_gpu::arch::{Reach, fence_release, ring_doorbell, store_block};

use crate::posting::{Span, Write};

/// A queue's places.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BareQueue {
    /// Ring of `depth` blocks.
    pub ring: *mut WqeBlock,
    /// The send queue's word of the doorbell record.
    pub record: *const Word32,
    /// The doorbell register.
    pub doorbell: *const Word64,
}

// SAFETY: it only names places.
unsafe impl Send for BareQueue {}
// SAFETY: as above.
unsafe impl Sync for BareQueue {}

/// Writes by hand.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Bare<'a> {
    /// The queues.
    pub queues: Slice<'a, BareQueue>,
    /// How many threads in a row post together to one queue.
    pub threads_per_queue: u32,
    /// Doorbells of each queue.
    pub posts: u32,
    /// WQEs that a thread stores under one doorbell.
    pub batch: u32,
    /// The ring's blocks less one.
    pub mask: u32,
    /// Number of the queue pairs.
    pub qpn: u32,
    /// Whether fences reach the whole system, or the GPU alone.
    pub system: bool,
    /// Whether there is a doorbell record.
    pub record: bool,
    /// What is written.
    pub write: Write,
    /// How long it takes.
    pub span: Span<'a>,
}

/// How far fences reach.
pub(crate) const fn reach(system: bool) -> Reach {
    match system {
        true => Reach::System,
        false => Reach::Gpu,
    }
}

impl Bare<'_> {
    #[inline(always)]
    fn post<C: Scope, const SYSTEM: bool>(&self) {
        let threads = self.threads_per_queue.max(1);
        let Some(queue) = self.queues.get(u64::from(thread::index() / threads)) else {
            return;
        };
        let qpn = QpNumber::from_low_bits(self.qpn);
        let rank = thread::index() % threads;
        let leads = C::leads();
        let mut start = 0;
        let write = self.write.kept();
        let began = self.span.start();
        for post in 0..self.posts {
            for number in 0..self.batch {
                let own = start + rank * self.batch + number;
                let [block] = write.wqe(post + number).place(WqeIndex(own as u16), qpn);
                // SAFETY: the host made a ring of so many blocks, which these threads alone write.
                unsafe { store_block(queue.ring.add((own & self.mask) as usize).cast(), block) };
            }
            start += threads * self.batch;
            // The others' stores before the leader's fence.
            C::sync();
            if leads {
                let end = start as u16;
                fence_release(reach(SYSTEM));
                if self.record {
                    // SAFETY: the host made the record.
                    let record = unsafe { &*queue.record };
                    record.store_relaxed(DoorbellRecord::word(end));
                    fence_release(reach(SYSTEM));
                }
                // SAFETY: the host made the register.
                unsafe {
                    ring_doorbell(
                        &*queue.doorbell,
                        Doorbell::of_producer(WqeIndex(end), qpn).0,
                    );
                }
            }
        }
        self.span.stop(began);
    }

    #[inline(always)]
    fn run<C: Scope>(&self) {
        match self.system {
            true => self.post::<C, true>(),
            false => self.post::<C, false>(),
        }
    }
}

/// Each thread posts by hand.
///
/// # Safety
/// The places that [`Bare`] names are there, for as long as the kernel runs, as its fields say.
#[kernel]
pub unsafe fn bare_thread(p: Bare<'_>) {
    p.run::<Thread>();
}

/// Each warp posts by hand, with one doorbell.
///
/// # Safety
/// The places that [`Bare`] names are there, for as long as the kernel runs, as its fields say.
#[kernel]
pub unsafe fn bare_warp(p: Bare<'_>) {
    p.run::<Warp>();
}

/// Each block posts by hand, with one doorbell.
///
/// # Safety
/// The places that [`Bare`] names are there, for as long as the kernel runs, as its fields say.
#[kernel]
pub unsafe fn bare_block(p: Bare<'_>) {
    p.run::<Block>();
}
