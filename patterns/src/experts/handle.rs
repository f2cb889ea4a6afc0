//! What a kernel receives.

use super::{Error, Experts, Layout};
use crate::team::TeamHandle;

/// One member's view of an exchange, for its kernels. The host hands it over by value. `repr(C)`, 232 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ExpertsHandle<'a> {
    team: TeamHandle<'a>,
    layout: Layout,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<ExpertsHandle>() == 232);

impl<'a> ExpertsHandle<'a> {
    /// The exchange in the windows of a team, whose callers' part has all words of the layout. Nobody else uses the team's
    /// channels.
    pub const fn new(team: TeamHandle<'a>, layout: Layout) -> Self {
        Self { team, layout }
    }

    /// Opens the exchange for all blocks of the grid, which have a channel each. It goes on where the last grid left it,
    /// also in the middle of a round.
    ///
    /// # Errors
    /// [`Error::Threads`], [`Error::NoChannel`], [`Error::InUse`].
    #[inline(always)]
    pub fn open(self) -> Result<Experts<'a>, Error> {
        Experts::open(self.team, self.layout)
    }
}
