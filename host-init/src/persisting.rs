//! Memory of a GPU that stays in its L2 cache.

use crate::{Buffer, Error, Gpu, Placement};

/// Memory of a GPU that a launch keeps in the L2 cache: [`Launch::persisting`](crate::Launch::persisting).
///
/// It is CUDA's access policy window with persisting accesses. Accesses of the launch's kernel to this memory use the
/// part of the cache that [`Gpu::set_aside_l2`] has set aside, from which other accesses evict nothing. It changes how
/// long an access takes, and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PersistingWindow {
    gpu: Gpu,
    start: u64,
    bytes: usize,
}

impl PersistingWindow {
    /// The GPU whose memory it is.
    pub(crate) fn gpu(self) -> Gpu {
        self.gpu
    }

    /// The address of its first byte.
    pub(crate) fn start(self) -> u64 {
        self.start
    }

    /// How many bytes it has.
    pub(crate) fn bytes(self) -> usize {
        self.bytes
    }
}

impl Buffer {
    /// All of it, for launches that keep it in the GPU's L2 cache.
    ///
    /// ```
    /// use warpbell_host_init::{Buffer, Error, Placement};
    ///
    /// let on_host = Buffer::placed(Placement::Host, 4096)?;
    /// assert!(matches!(on_host.persisting(), Err(Error::OutOfReach { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfReach`] for host memory; [`Error::Gpu`] for a GPU that sets no cache aside, and for more bytes
    /// than its windows have.
    pub fn persisting(&self) -> Result<PersistingWindow, Error> {
        let placement = self.placement();
        let Placement::Gpu(gpu) = placement else {
            let what = "memory that a GPU keeps in its L2 cache";
            return Err(Error::OutOfReach { what, placement });
        };
        gpu.check_persisting(self.len())?;
        Ok(PersistingWindow {
            gpu,
            start: self.as_ptr() as u64,
            bytes: self.len(),
        })
    }
}
