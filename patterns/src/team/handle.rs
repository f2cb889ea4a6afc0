//! What a kernel receives: one member's queues, its window, and where those of the others are.

use core::marker::PhantomData;

use mlx5_wqe::Remote;
use warpbell_gpu::arch::{Reach, Word64};

use super::{ChannelState, Error, Extent, Layout, Team};
use crate::words::{load_relaxed64, store_relaxed64};
use warpbell::{SendQueueHandle, Words};

/// What the host puts into a [`TeamHandle`].
#[derive(Clone, Copy, Debug)]
pub struct TeamParts<'a> {
    /// This member's number in the team.
    pub rank: u32,
    /// Where things lie in each member's window.
    pub layout: Layout,
    /// This member's window.
    pub window: Words<'a>,
    /// Each member's window.
    pub windows: *const Remote,
    /// A send queue of each channel to each member, at `channel * ranks + rank`; none to this member itself.
    pub queues: *const SendQueueHandle<'a>,
    /// Each channel's state.
    pub states: *const ChannelState,
    /// A word for each member, other than 0 if it is masked.
    pub mask: *const Word64,
}

/// One member's view of a team, for its kernels. The host hands it over by value. `repr(C)`, 104 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TeamHandle<'a> {
    rank: u32,
    unused: u32,
    pub(super) layout: Layout,
    pub(super) window: Words<'a>,
    windows: *const Remote,
    queues: *const SendQueueHandle<'a>,
    states: *const ChannelState,
    mask: *const Word64,
    _lifetime: PhantomData<&'a Word64>,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<TeamHandle>() == 104);

// SAFETY: a handle is a set of numbers, and of addresses of tables that every thread of a grid may read (the promise of
// `new`).
unsafe impl Send for TeamHandle<'_> {}
// SAFETY: as for `Send`; the handle is never written.
unsafe impl Sync for TeamHandle<'_> {}

impl<'a> TeamHandle<'a> {
    /// Makes the handle of a member.
    ///
    /// # Safety
    /// For the lifetime `'a`, the tables are there for every thread that gets the handle: a window for each member, a
    /// queue of each channel to each member, and a state for each channel, which are not written, and a word of the mask
    /// for each member. The window has as many words as the layout says, and NICs and atomics alone touch it. Kernels of one
    /// processor alone touch states and mask, as atomics.
    pub const unsafe fn new(parts: TeamParts<'a>) -> Self {
        Self {
            rank: parts.rank,
            unused: 0,
            layout: parts.layout,
            window: parts.window,
            windows: parts.windows,
            queues: parts.queues,
            states: parts.states,
            mask: parts.mask,
            _lifetime: PhantomData,
        }
    }

    /// The number of this member in the team, from 0.
    #[inline(always)]
    pub const fn rank(&self) -> u32 {
        self.rank
    }

    /// How many members there are.
    #[inline(always)]
    pub const fn ranks(&self) -> u32 {
        self.layout.ranks()
    }

    /// How many channels each member has.
    #[inline(always)]
    pub const fn channels(&self) -> u32 {
        self.layout.channels()
    }

    /// Words of this member's window that are the callers'.
    #[inline(always)]
    pub fn words(&self) -> Words<'a> {
        let user = self.window.part(0, self.layout.user());
        // They are there by the promise of `new`.
        user.unwrap_or(self.window)
    }

    /// Opens a channel for this warp or block, or the channels from there on for the blocks of the grid.
    ///
    /// All members open the same channels, for calls that all of them make in the same order.
    ///
    /// # Errors
    /// [`Error::NoChannel`], [`Error::InUse`].
    #[inline(always)]
    pub fn open<X: Extent>(self, channel: u32) -> Result<Team<'a, X>, Error> {
        Team::open(self, channel)
    }

    /// Whether a member is masked. One that is not there is not.
    #[inline(always)]
    pub fn is_masked(&self, rank: u32) -> bool {
        self.mask_word(rank)
            .is_some_and(|word| load_relaxed64(word, Reach::System) != 0)
    }

    /// Masks a member, or clears its mask. Collectives leave a masked member out, or say that they need it.
    #[inline(always)]
    pub fn set_mask(&self, rank: u32, masked: bool) {
        if let Some(word) = self.mask_word(rank) {
            store_relaxed64(word, masked as u64, Reach::System);
        }
    }

    #[inline(always)]
    fn mask_word(&self, rank: u32) -> Option<&'a Word64> {
        // SAFETY: the mask has a word for each member (the promise of `new`).
        (rank < self.ranks()).then(|| unsafe { &*self.mask.add(rank as usize) })
    }

    /// The number of the first word of so many bytes of the callers', if they are there and whole words.
    #[inline(always)]
    pub(super) fn user_words(&self, offset: u64, bytes: u64) -> Result<u64, Error> {
        if !bytes.is_multiple_of(8) {
            return Err(Error::uneven(bytes));
        }
        self.user_span(offset, bytes / 8)
    }

    /// The number of the first word of the callers' that lies at an offset, if so many are there.
    #[inline(always)]
    pub(super) fn user_span(&self, offset: u64, words: u64) -> Result<u64, Error> {
        if !offset.is_multiple_of(8) {
            return Err(Error::uneven(offset));
        }
        let (first, there) = (offset / 8, self.layout.user());
        // No sum, which could wrap.
        if words > there || first > there - words {
            return Err(Error::outside(offset));
        }
        Ok(first)
    }

    /// The state of a channel that there is.
    #[inline(always)]
    pub(super) fn state(&self, channel: u32) -> Result<&'a ChannelState, Error> {
        match channel < self.channels() {
            // SAFETY: there is a state for each channel (the promise of `new`).
            true => Ok(unsafe { &*self.states.add(channel as usize) }),
            false => Err(Error::NoChannel { channel }),
        }
    }

    /// The queue of a channel to a member, if both are there.
    #[inline(always)]
    pub(crate) fn queue(&self, channel: u32, rank: u32) -> Result<&'a SendQueueHandle<'a>, Error> {
        if channel >= self.channels() {
            return Err(Error::NoChannel { channel });
        }
        if rank >= self.ranks() {
            return Err(Error::NoRank { rank });
        }
        let place = channel as usize * self.ranks() as usize + rank as usize;
        // SAFETY: the table has channels * ranks places (the promise of `new`).
        Ok(unsafe { &*self.queues.add(place) })
    }

    /// A word of a member's window, and what follows, for a request.
    #[inline(always)]
    pub(crate) fn remote(&self, rank: u32, word: u64) -> Result<Remote, Error> {
        if rank >= self.ranks() {
            return Err(Error::NoRank { rank });
        }
        // SAFETY: the table has a place for each member (the promise of `new`).
        let window = unsafe { *self.windows.add(rank as usize) };
        Ok(window.at(8 * word))
    }
}
