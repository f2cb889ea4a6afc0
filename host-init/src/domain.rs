//! Protection domains.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::device::Provider;
use crate::one_path::{Paths, Taken, Written};
use crate::placement::Area;
use crate::{
    Access, Buffer, CompletionQueue, Device, Error, MemoryRegion, Placement, QueuePair,
    QueuePairConfig, connect,
};

/// What belongs together: regions and queue pairs work with each other only
/// inside one protection domain. A clone is the same domain.
///
/// ```
/// use warpbell_host_init::{Access, Node, QueuePairConfig};
///
/// let domain = Node::cpu().domain()?;
/// let region = domain.allocate(4096, Access::LOCAL_WRITE)?;
/// let pair = domain.queue_pair(&QueuePairConfig::default())?;
/// assert!(region.domain().is(&domain));
/// # Ok::<(), warpbell_host_init::Error>(())
/// ```
#[derive(Clone)]
pub struct ProtectionDomain {
    inner: Arc<Inner>,
}

struct Inner {
    device: Device,
    number: u32,
    paths: Arc<Paths>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.device.provider().free_domain(self.number);
    }
}

/// The next domain's number, of any device of the process: so that an error which names two domains never shows the
/// same number twice.
pub(crate) fn fresh_number() -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    // Relaxed: the numbers have to differ, nothing else hangs on them.
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

impl ProtectionDomain {
    pub(crate) fn new(device: Device) -> Result<Self, Error> {
        let number = device.provider().allocate_domain()?;
        Ok(Self {
            inner: Arc::new(Inner {
                device,
                number,
                paths: Arc::default(),
            }),
        })
    }

    /// The domain's number; no other domain of this process has it.
    pub fn number(&self) -> u32 {
        self.inner.number
    }

    /// The device that it belongs to.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Where its queues and memory lie, unless their configuration says otherwise.
    pub fn placement(&self) -> Placement {
        self.device().placement()
    }

    /// Whether the two are the same domain of the same device.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(crate) fn provider(&self) -> &dyn Provider {
        self.inner.device.provider()
    }

    /// Notes what a card writes for a GPU. Software takes one path to all memory.
    pub(crate) fn take(&self, written: Option<Written>) -> Result<Option<Taken>, Error> {
        let written = written.filter(|_| self.device().is_card());
        written
            .map(|written| self.inner.paths.take(written))
            .transpose()
    }

    /// Allocates and registers `bytes` bytes, all zero, in the domain's [placement](Self::placement).
    ///
    /// # Errors
    /// As [`Buffer::placed`] and [`register`](Self::register).
    pub fn allocate(&self, bytes: usize, access: Access) -> Result<MemoryRegion, Error> {
        self.register(Buffer::placed(self.placement(), bytes)?, access)
    }

    /// Registers a buffer. The region keeps it until it is deregistered.
    ///
    /// # Errors
    /// [`Error::BadAccess`] for remote write or atomic without local write;
    /// [`Error::TwoPaths`] for the GPU's memory with local write, where a queue pair's completions lie in host memory;
    /// [`Error::Soft`] if the device has no room for another key.
    pub fn register(&self, buffer: Buffer, access: Access) -> Result<MemoryRegion, Error> {
        MemoryRegion::of_buffer(self, buffer, access)
    }

    /// Registers a part of a buffer, which stays the caller's.
    ///
    /// # Errors
    /// As [`register`](Self::register), and [`Error::OutOfRange`] if it does not lie inside.
    ///
    /// # Safety
    /// The buffer outlives the region, and is never freed if this fails with an error that
    /// [is uncertain](Error::is_uncertain).
    pub unsafe fn register_part(
        &self,
        buffer: &Buffer,
        offset: usize,
        len: usize,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        let area = buffer.area().part(offset, len)?;
        // SAFETY: the part is valid as long as the buffer, which only touches it as atomics.
        unsafe { MemoryRegion::of_area(self, area, access) }
    }

    /// Registers memory that somebody else owns. For the GPU's memory, see that it
    /// is [that GPU's](crate::Gpu::check_memory).
    ///
    /// # Errors
    /// As [`register`](Self::register), and [`Error::BadSize`] for 0 bytes;
    /// [`Error::Gpu`] for an address that is not the GPU's.
    ///
    /// # Safety
    /// `len` bytes from `start` lie where `placement` says, and stay valid for reads, and for writes if `access`
    /// holds any right to write, until the region is deregistered or dropped; for ever
    /// if this fails with an error that [is uncertain](Error::is_uncertain).
    /// Meanwhile everybody touches the memory as one touches memory that a device
    /// may change: through atomics, volatile or raw-pointer access ordered by
    /// completions, never through references.
    pub unsafe fn register_raw(
        &self,
        placement: Placement,
        start: NonNull<u8>,
        len: usize,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        if let Placement::Gpu(gpu) = placement {
            gpu.check_memory(start.as_ptr() as u64, len)?;
        }
        let area = Area {
            start,
            len,
            placement,
        };
        // SAFETY: the caller's promise is passed on unchanged.
        unsafe { MemoryRegion::of_area(self, area, access) }
    }

    /// Makes a queue pair with its rings, completion queues, doorbell records,
    /// UAR page and device-side states, in [`State::Reset`](crate::State::Reset).
    ///
    /// # Errors
    /// Every bad number of `config` ends in an error that names it.
    pub fn queue_pair(&self, config: &QueuePairConfig) -> Result<QueuePair, Error> {
        QueuePair::new(self, config)
    }

    /// Makes `count` queue pairs whose send queues have one completion queue in common, of which kernels take a
    /// [handle](CompletionQueue::handle) beside those of the send queues. Each takes the configuration as
    /// [`queue_pair`](Self::queue_pair) does, but that `send_completions` is about the common ring: by default as many
    /// entries as all send rings have blocks, rounded up to a power of two. Receive queues have their own.
    ///
    /// # Errors
    /// As [`queue_pair`](Self::queue_pair); [`Error::CollapsedCommon`]; [`Error::CompletionQueueTooSmall`] if the given
    /// depth has no room for all; [`Error::DepthOutOfRange`] for no queue pairs, and for more than the device's largest
    /// completion queue has room for.
    pub fn queue_pairs_with_common_completions(
        &self,
        config: &QueuePairConfig,
        count: u32,
    ) -> Result<(CompletionQueue, Vec<QueuePair>), Error> {
        CompletionQueue::new(self, config, count)
    }

    /// Makes a queue pair here and one in another domain of this process, and connects them.
    ///
    /// # Errors
    /// As [`queue_pair`](Self::queue_pair) and [`connect`].
    pub fn connected(
        &self,
        other: &Self,
        config: &QueuePairConfig,
    ) -> Result<(QueuePair, QueuePair), Error> {
        let (mut ours, mut theirs) = (self.queue_pair(config)?, other.queue_pair(config)?);
        connect(&mut ours, &mut theirs)?;
        Ok((ours, theirs))
    }
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectionDomain")
            .field("number", &self.number())
            .finish_non_exhaustive()
    }
}
