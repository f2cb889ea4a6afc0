//! What a kernel receives: one PE's queues, and where the heaps of all PEs begin.

use mlx5_wqe::Remote;

use super::{Error, Pe};
use warpbell::{SendQueueHandle, Slice};

/// One PE's view of the job, for its kernels (`cpnet_handle_t`). The host hands it over by value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CpnetHandle<'a> {
    pe: Pe,
    /// A queue of each work-group to each PE, at `group * pes + pe`.
    queues: Slice<'a, SendQueueHandle<'a>>,
    /// The first byte of each PE's heap.
    heaps: Slice<'a, Remote>,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<CpnetHandle>() == 40);

impl<'a> CpnetHandle<'a> {
    /// The handle of a PE, whose work-groups have these queues, at `group * pes + pe`. The heaps are those of all PEs.
    pub const fn new(
        pe: Pe,
        queues: Slice<'a, SendQueueHandle<'a>>,
        heaps: Slice<'a, Remote>,
    ) -> Self {
        Self { pe, queues, heaps }
    }

    /// The number of this PE (`cpnet_handle->pe`).
    #[inline(always)]
    pub const fn pe(&self) -> Pe {
        self.pe
    }

    /// How many PEs there are.
    #[inline(always)]
    pub const fn pes(&self) -> u32 {
        self.heaps.len() as u32
    }

    /// Where the heap of a PE begins.
    #[inline(always)]
    pub(super) fn heap(&self, pe: Pe) -> Result<Remote, Error> {
        let heap = self.heaps.get(pe.into()).copied();
        heap.ok_or(Error::NoPe { pe })
    }

    /// The queue of a work-group to a PE.
    #[inline(always)]
    pub(super) fn queue(&self, group: u32, pe: Pe) -> Result<SendQueueHandle<'a>, Error> {
        if pe >= self.pes() {
            return Err(Error::NoPe { pe });
        }
        let place = u64::from(group) * u64::from(self.pes()) + u64::from(pe);
        let queue = self.queues.get(place).copied();
        queue.ok_or(Error::NoGroup { group })
    }
}
