//! A READ that brings inbound writes to their place.

use core::fmt;

use mlx5_wqe::{Local, Remote, Wqe};

use warpbell::Deadline;
use warpbell::SendQueueHandle;
use warpbell::{OpenError, WaitError};
use warpbell::{Scope, SendQueue, Sharing, Thread};

/// What a [`Flush`] is opened from. The host makes it. `repr(C)`, 120 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct FlushHandle<'a> {
    queue: SendQueueHandle<'a>,
    into: Local,
    from: Remote,
    needed: u32,
}

const _: () = {
    assert!(size_of::<FlushHandle>() == 120);
    assert!(core::mem::offset_of!(FlushHandle, into) == 80);
    assert!(core::mem::offset_of!(FlushHandle, from) == 96);
    assert!(core::mem::offset_of!(FlushHandle, needed) == 112);
};

impl<'a> FlushHandle<'a> {
    /// A flush by a READ through `queue`, whose other end is this NIC, too: of `from`, which lies in the memory that
    /// inbound data come to, into `into`, which nobody else uses. Where it is not `needed`, nothing is posted.
    pub const fn new(queue: SendQueueHandle<'a>, into: Local, from: Remote, needed: bool) -> Self {
        Self {
            queue,
            into,
            from,
            needed: needed as u32,
        }
    }

    /// Opens it for this thread, with sharing `S`.
    ///
    /// # Errors
    /// As [`SendQueueHandle::open`].
    #[inline(always)]
    pub fn open<S: Sharing>(self) -> Result<Flush<'a, S, Thread>, OpenError> {
        // SAFETY: a thread makes its calls together with itself.
        unsafe { self.open_together() }
    }

    /// Opens it for all threads of a scope `C` (a warp or a block) together, with sharing `S`.
    ///
    /// # Safety
    /// As [`SendQueueHandle::open_together`].
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub unsafe fn open_together<S: Sharing, C: Scope>(self) -> Result<Flush<'a, S, C>, OpenError> {
        Ok(Flush {
            // SAFETY: the caller's promise.
            queue: unsafe { self.queue.open_together()? },
            read: Wqe::read(self.into, self.from),
            needed: self.needed != 0,
        })
    }
}

/// Brings what a peer's writes have left on the way between NIC and memory to its place.
///
/// A kernel that has seen a completion or a flag knows that the NIC has written the data in front of it. Where memory
/// may show them later than what the kernel has seen, it flushes before it reads them: the NIC reads from that memory,
/// and a read comes behind the writes before it.
pub struct Flush<'a, S: Sharing, C: Scope> {
    queue: SendQueue<'a, S, C>,
    read: Wqe<1>,
    needed: bool,
}

impl<S: Sharing, C: Scope> Flush<'_, S, C> {
    /// Whether the host found that the memory needs it.
    #[inline(always)]
    pub const fn is_needed(&self) -> bool {
        self.needed
    }

    /// Has everything in its place that the NIC wrote before what the caller has seen; it may be read then, by all
    /// threads of the scope. At once where it is not needed.
    ///
    /// # Errors
    /// As for [`SendQueue::drain`].
    #[inline(always)]
    pub fn flush(&mut self, deadline: Deadline) -> Result<(), WaitError> {
        if !self.needed {
            return Ok(());
        }
        self.queue.carry_out(self.read, deadline)
    }
}

impl<S: Sharing, C: Scope> fmt::Debug for Flush<'_, S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flush")
            .field("needed", &self.needed)
            .finish_non_exhaustive()
    }
}
