//! What a kernel receives.

use super::{Error, Experts, Layout, Throughput};
use crate::team::TeamHandle;

/// One member's view of an exchange, for its kernels. The host hands it over by value. `repr(C)`, 112 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ExpertsHandle<'a> {
    team: TeamHandle<'a>,
    layout: *const Layout,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<ExpertsHandle>() == 112);

// SAFETY: a handle is a set of numbers, and the address of a layout that every thread of a grid may read (the promise of
// `new`).
unsafe impl Send for ExpertsHandle<'_> {}
// SAFETY: as for `Send`; the handle is never written.
unsafe impl Sync for ExpertsHandle<'_> {}

impl<'a> ExpertsHandle<'a> {
    /// The exchange in the windows of a team, whose callers' part has all words of the layout. Nobody else uses the team's
    /// channels.
    ///
    /// # Safety
    /// For the lifetime `'a`, the layout is there for every thread that gets the handle, and is not written.
    pub const unsafe fn new(team: TeamHandle<'a>, layout: *const Layout) -> Self {
        Self { team, layout }
    }

    /// Opens an exchange in the low-latency mode for all blocks of the grid, which have a channel each. It goes on where the
    /// last grid left it, also in the middle of a round.
    ///
    /// # Errors
    /// [`Error::Threads`], [`Error::Mode`], [`Error::NoChannel`], [`Error::InUse`].
    #[inline(always)]
    pub fn open(self) -> Result<Experts<'a>, Error> {
        // SAFETY: it is there for 'a (the promise of `new`).
        Experts::open(self.team, unsafe { &*self.layout })
    }

    /// Opens an exchange in the throughput mode, and else as [`open`](Self::open).
    ///
    /// # Errors
    /// As [`open`](Self::open).
    #[inline(always)]
    pub fn open_packed(self) -> Result<Experts<'a, Throughput>, Error> {
        // SAFETY: it is there for 'a (the promise of `new`).
        Experts::open(self.team, unsafe { &*self.layout })
    }
}
