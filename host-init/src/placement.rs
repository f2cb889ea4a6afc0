//! Where memory lies, and how the host gets at it.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ptr::NonNull;

use warpbell::Processor;

use crate::cuda::{Gpu, Kind};
use crate::shared_bytes::{read_shared, write_shared};
use crate::{Buffer, Error};

/// Where memory lies.
///
/// ```
/// use warpbell_host_init::{Buffer, Placement};
///
/// let buffer = Buffer::placed(Placement::Host, 4096)?;
/// assert!(buffer.placement().is_host());
/// # Ok::<(), warpbell_host_init::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// In host memory, for kernels on the CPU.
    #[default]
    Host,
    /// In host memory that stays where it is: host, GPU and a software HCA on the CPU reach it at the same
    /// address.
    Pinned(Gpu),
    /// In the GPU's memory, which the host only copies from and to.
    Gpu(Gpu),
}

impl Placement {
    /// Where kernels run that may open queues there.
    pub fn processor(self) -> Processor {
        match self {
            Self::Host => Processor::CPU,
            Self::Pinned(gpu) | Self::Gpu(gpu) => Processor::gpu(gpu.ordinal()),
        }
    }

    /// Where kernels keep words of their own beside queues that are here, which the NIC never sees. Atomics of a GPU on
    /// host memory would cross the PCIe bus one by one.
    pub fn of_states(self) -> Self {
        match self {
            Self::Pinned(gpu) => Self::Gpu(gpu),
            other => other,
        }
    }

    /// Where host and kernels both reach memory, for kernels with queues that are here.
    pub fn of_host(self) -> Self {
        match self {
            Self::Gpu(gpu) => Self::Pinned(gpu),
            other => other,
        }
    }

    /// Whether the host reads and writes it directly.
    pub fn is_host(self) -> bool {
        !matches!(self, Self::Gpu(_))
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host memory",
            Self::Pinned(_) => "pinned host memory",
            Self::Gpu(_) => "GPU memory",
        })
    }
}

/// Bytes somewhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Area {
    pub start: NonNull<u8>,
    pub len: usize,
    pub placement: Placement,
}

// SAFETY: memory is not tied to a thread; the host touches it as atomics or through the driver.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

fn layout(len: usize) -> Option<Layout> {
    if len == 0 {
        return None;
    }
    Layout::from_size_align(len, Buffer::ALIGNMENT).ok()
}

impl Area {
    /// Allocates `len` bytes, all zero, aligned to [`Buffer::ALIGNMENT`]; to be freed with [`free`](Self::free).
    pub fn allocate(placement: Placement, len: usize) -> Result<Self, Error> {
        let layout = layout(len).ok_or(Error::BadSize {
            what: "a buffer",
            bytes: len,
        })?;
        let start = match placement {
            // SAFETY: the layout is not empty.
            Placement::Host => unsafe { alloc_zeroed(layout) },
            Placement::Pinned(gpu) => {
                let address = gpu.allocate(Kind::Pinned, len)? as usize;
                let start: *mut u8 = std::ptr::with_exposed_provenance_mut(address);
                // SAFETY: just allocated with this length, and nobody else's.
                unsafe { start.write_bytes(0, len) };
                start
            }
            Placement::Gpu(gpu) => {
                let address = gpu.allocate(Kind::Gpu, len)?;
                // SAFETY: just allocated with this length, and nobody else's.
                unsafe { gpu.clear(address, len) }
                    .inspect_err(|_| gpu.free(Kind::Gpu, address, len))?;
                std::ptr::without_provenance_mut(address as usize)
            }
        };
        let start = NonNull::new(start).ok_or(Error::OutOfMemory { bytes: len })?;
        Ok(Self {
            start,
            len,
            placement,
        })
    }

    /// Frees what [`allocate`](Self::allocate) gave.
    ///
    /// # Safety
    /// Nobody uses it any more, and it is freed once.
    pub unsafe fn free(self) {
        let address = self.start.as_ptr() as u64;
        match self.placement {
            Placement::Host => {
                let layout = layout(self.len).expect("checked when it was allocated");
                // SAFETY: allocated with the same layout; the rest is the caller's promise.
                unsafe { dealloc(self.start.as_ptr(), layout) };
            }
            Placement::Pinned(gpu) => gpu.free(Kind::Pinned, address, self.len),
            Placement::Gpu(gpu) => gpu.free(Kind::Gpu, address, self.len),
        }
    }

    /// A part of it.
    pub fn part(self, offset: usize, len: usize) -> Result<Self, Error> {
        check_range(offset, len, self.len)?;
        // SAFETY: inside, as just checked.
        let start = unsafe { self.start.add(offset) };
        Ok(Self { start, len, ..self })
    }

    /// Copies bytes out.
    ///
    /// # Safety
    /// The memory is still allocated.
    #[inline]
    pub unsafe fn read(self, offset: usize, into: &mut [u8]) -> Result<(), Error> {
        let from = self.part(offset, into.len())?.start.as_ptr();
        match self.placement {
            // SAFETY: the range was checked, and the memory is there.
            Placement::Gpu(gpu) => unsafe { gpu.read(from as u64, into)? },
            // SAFETY: as above.
            _ => unsafe { read_shared(from, into) },
        }
        Ok(())
    }

    /// Copies bytes in.
    ///
    /// # Safety
    /// The memory is still allocated.
    #[inline]
    pub unsafe fn write(self, offset: usize, from: &[u8]) -> Result<(), Error> {
        let to = self.part(offset, from.len())?.start.as_ptr();
        match self.placement {
            // SAFETY: the range was checked, and the memory is there.
            Placement::Gpu(gpu) => unsafe { gpu.write(to as u64, from)? },
            // SAFETY: as above.
            _ => unsafe { write_shared(to, from) },
        }
        Ok(())
    }
}

/// Refuses a range that does not lie inside `len` bytes.
pub(crate) fn check_range(offset: usize, bytes: usize, len: usize) -> Result<(), Error> {
    match offset.checked_add(bytes) {
        Some(end) if end <= len => Ok(()),
        _ => Err(Error::OutOfRange { offset, bytes, len }),
    }
}
