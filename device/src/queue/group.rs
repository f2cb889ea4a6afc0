//! A group of WQEs that are posted together: who of a scope has one, whether it is sound, and how it gets into the ring.

use mlx5_wqe::{QpNumber, Wqe, WqeBlock};
use warpbell_gpu::arch::{RingBlock, store_block, store_blocks};

use crate::error::PostError;
use crate::queue::{Scope, SendQueue, Sharing, Ticket};
use crate::{block, thread, warp};

impl<S: Sharing, C: Scope> SendQueue<'_, S, C> {
    /// Finds out who of the scope posts a WQE: whoever has one that is sound.
    #[inline(always)]
    pub(super) fn gather<const B: usize>(&self, wqe: &Option<Wqe<B>>) -> Group {
        let posts = wqe.as_ref().is_some_and(|wqe| self.is_sound(wqe));
        let (rank, count) = C::rank_and_count(posts);
        // A warp that is whole is told by its lanes' number: `of_a_warp`.
        let whole = C::WIDE && count == C::size() && count.is_multiple_of(thread::warp_size());
        Group {
            span: span::<C, B>(wqe.as_ref()),
            // Of a whole scope, all know their ranks without a question for those of others.
            rank: if whole { C::rank() } else { rank },
            count,
            posts,
            whole: whole && B == 1,
        }
    }

    /// Whether the NIC would not turn the WQE into an error of the whole queue.
    /// Each question by itself, so that there is one branch for all of them.
    #[inline(always)]
    fn is_sound<const B: usize>(&self, wqe: &Wqe<B>) -> bool {
        // One comparison for "none" and "too many".
        let length = wqe.payload().wrapping_sub(1) < self.handle.max_message as u64;
        let nothing = (wqe.payload() == 0) & !wqe.carries_data();
        let aligned = match wqe.atomic_target() {
            Some((address, size)) => address & (size as u64 - 1) == 0,
            None => true,
        };
        let fits = span::<C, B>(Some(wqe)) <= self.producer.ring.wqe_limit();
        (length | nothing) & aligned & fits
    }

    /// Why a WQE is not sound.
    #[inline(always)]
    fn fault<const B: usize>(&self, wqe: &Wqe<B>) -> PostError {
        let limit = self.handle.max_message;
        if wqe.payload() > limit as u64 {
            return PostError::TooLong {
                bytes: wqe.payload(),
                limit,
            };
        }
        if wqe.payload() == 0 && wqe.carries_data() {
            return PostError::Empty;
        }
        if let Some((address, size)) = wqe.atomic_target()
            && address & (size as u64 - 1) != 0
        {
            return PostError::Misaligned { address };
        }
        PostError::TooManyBlocks {
            asked: span::<C, B>(Some(wqe)),
            limit: self.producer.ring.wqe_limit(),
        }
    }

    /// What this thread's call returns once the group's WQEs are posted.
    #[inline(always)]
    pub(super) fn answer<const B: usize>(
        &self,
        ticket: Ticket,
        wqe: &Option<Wqe<B>>,
        group: &Group,
    ) -> Result<Ticket, PostError> {
        match wqe {
            Some(wqe) if !group.posts => Err(self.fault(wqe)),
            _ => Ok(ticket),
        }
    }

    /// Whether a group of `blocks` from `start` may cover a block that makes its WQE be signalled in any case. Of a
    /// thread alone it is the answer; the threads of a wider scope ask each for its own WQE.
    #[inline(always)]
    pub(super) fn may_be_marked(&self, start: u64, blocks: u32) -> bool {
        C::COLLECTIVE || self.producer.ring.must_signal(start, blocks)
    }

    /// Stores this thread's WQE at its rank in a group that starts at `start`,
    /// and gives the group's ticket; `marked` is what [`may_be_marked`](Self::may_be_marked) says of the group.
    #[inline(always)]
    pub(super) fn fill<const B: usize>(
        &mut self,
        start: u64,
        marked: bool,
        wqe: &Option<Wqe<B>>,
        group: &Group,
    ) -> Ticket {
        let ring = self.producer.ring;
        let span = group.span;
        let last = start + ((group.count - 1) * span) as u64;
        let wqe = wqe.filter(|_| group.posts);
        let must_signal = |first| match C::COLLECTIVE {
            true => ring.must_signal(first, span),
            false => marked,
        };
        let asked = C::any(wqe.as_ref().is_some_and(Wqe::is_signalled));
        if let Some(wqe) = wqe {
            let own = start + (group.rank * span) as u64;
            let wqe = if must_signal(own) || asked && own == last {
                wqe.signalled()
            } else {
                wqe.unsignalled()
            };
            // A warp alone in its block takes longer to exchange parts than it takes to store them as they are.
            match group.whole && block::size() > thread::warp_size() {
                true => self.store_of_warp(own, wqe),
                false => self.store(own, span, wqe),
            }
        }
        if asked || must_signal(last) {
            self.signalled = last + 1;
        }
        Ticket::of(last)
    }

    /// Stores a WQE in the `span` blocks from `start`, padded with NOPs.
    #[inline(always)]
    fn store<const B: usize>(&self, start: u64, span: u32, wqe: Wqe<B>) {
        let used = wqe.blocks() as usize;
        let placed = wqe.place(self.producer.ring.index(start), self.qpn());
        // Over `B`, which is known, so that the blocks stay in registers.
        for (offset, block) in placed.iter().enumerate() {
            let number = start + offset as u64;
            if offset < used {
                self.store_block(number, *block);
            } else if (offset as u32) < span {
                self.store_nop(number, Wqe::nop());
            }
        }
    }

    /// Stores the WQEs of a whole warp, of a block each, that follow each other.
    #[inline(always)]
    fn store_of_warp<const B: usize>(&self, own: u64, wqe: Wqe<B>) {
        let first = own - warp::lane_id() as u64;
        let placed = wqe.place(self.producer.ring.index(own), self.qpn());
        let slot = |lane| self.slot(first + u64::from(lane));
        // SAFETY: the blocks are reserved and not yet published, so that neither
        // the NIC nor another thread touches them; every thread of the group has
        // one, so that all lanes come here, and their ranks follow each other.
        unsafe { store_blocks(slot, placed[0]) };
    }

    #[inline(always)]
    fn store_nop(&self, number: u64, nop: Wqe<1>) {
        let [block] = nop.place(self.producer.ring.index(number), self.qpn());
        self.store_block(number, block);
    }

    #[inline(always)]
    fn store_block(&self, number: u64, block: WqeBlock) {
        // SAFETY: the block is reserved and not yet published, so that neither
        // the NIC nor another thread touches it.
        unsafe { store_block(self.slot(number), block) };
    }

    /// Fills the blocks from `start` to `end` with NOPs; the leader's job.
    #[inline(always)]
    pub(super) fn pad(&self, start: u64, end: u64) {
        if C::leads() {
            for number in start..end {
                let nop = if self.producer.ring.must_signal(number, 1) {
                    Wqe::nop().signalled()
                } else {
                    Wqe::nop()
                };
                self.store_nop(number, nop);
            }
        }
    }

    #[inline(always)]
    pub(super) fn qpn(&self) -> QpNumber {
        QpNumber::from_low_bits(self.handle.qpn)
    }

    #[inline(always)]
    pub(super) fn slot(&self, block: u64) -> *mut RingBlock {
        // SAFETY: the handle's `new` promises a ring of `depth` blocks for 'a,
        // and `slot` is below the depth.
        unsafe { self.handle.ring.add(self.producer.ring.slot(block)) }
    }
}

/// The WQEs that a scope's threads post together, as one of them sees it.
#[derive(Clone, Copy)]
pub(super) struct Group {
    /// Blocks for each WQE.
    pub(super) span: u32,
    /// This thread's rank among those that post.
    rank: u32,
    /// How many post.
    pub(super) count: u32,
    /// Whether this thread does.
    posts: bool,
    /// Whether all threads of a scope do, which are warps of 32 lanes, each with a WQE of a block.
    whole: bool,
}

impl Group {
    /// All lanes of a warp, each with a WQE of a block.
    #[inline(always)]
    fn of_a_warp() -> Self {
        Self {
            span: 1,
            rank: warp::lane_id(),
            count: thread::warp_size(),
            posts: true,
            whole: true,
        }
    }

    /// The group as the quick way takes it, if it does: what is known of it is a constant there.
    ///
    /// Mostly all of a warp post, and then nothing has to be counted. Some of a warp, as in `drain`, and a block that owns
    /// its queue go the longer way.
    #[inline(always)]
    pub(super) fn quick<S: Sharing, C: Scope, const B: usize>(&self) -> Option<Self> {
        if C::COLLECTIVE && !C::WIDE && B == 1 {
            return (self.count == thread::warp_size()).then(Self::of_a_warp);
        }
        (S::SHARED || !C::COLLECTIVE).then_some(*self)
    }

    /// Blocks for all.
    #[inline(always)]
    pub(super) fn blocks(&self) -> u32 {
        self.count * self.span
    }
}

/// Blocks that a WQE takes: its own number, or room for the largest of a group.
#[inline(always)]
fn span<C: Scope, const B: usize>(wqe: Option<&Wqe<B>>) -> u32 {
    match wqe {
        Some(wqe) if !C::COLLECTIVE => wqe.blocks() as u32,
        _ => B as u32,
    }
}
