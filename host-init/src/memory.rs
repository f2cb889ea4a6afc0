//! Registered memory, and what the other side learns of it.

use std::fmt;

use mlx5_wqe::{Local, LocalKey, Remote, RemoteKey};
use serde::{Deserialize, Serialize};
use warpbell::{Word64, Words};

use crate::one_path::{Taken, Written};
use crate::placement::{Area, check_range};
use crate::{Buffer, Error, Placement, ProtectionDomain};

bitflags::bitflags! {
    /// What may be done with registered memory, or through a queue pair; the bits
    /// are those of `ibv_access_flags`. Local reads are always allowed.
    ///
    /// ```
    /// use warpbell_host_init::Access;
    ///
    /// let target = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    /// assert!(target.contains(Access::REMOTE_WRITE) && !target.contains(Access::REMOTE_READ));
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// The own device may write: receives, and what reads and atomics bring back.
        const LOCAL_WRITE = 1;
        /// The other side may write.
        const REMOTE_WRITE = 1 << 1;
        /// The other side may read.
        const REMOTE_READ = 1 << 2;
        /// The other side may run atomics.
        const REMOTE_ATOMIC = 1 << 3;
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        bitflags::parser::to_writer(self, f)
    }
}

/// Keys of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    pub lkey: u32,
    pub rkey: u32,
}

/// Memory that a device may use, until it is dropped.
///
/// Dropping it withdraws its keys; when the drop returns, no device uses the
/// memory, packets under way included.
///
/// ```
/// use warpbell_host_init::{Access, Node};
///
/// let domain = Node::cpu().domain()?;
/// let region = domain.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
/// region.write(0, b"for the other end")?;
/// let piece = region.local(0, 17)?; // for this end's work requests
/// assert_eq!((piece.length, piece.key), (17, region.lkey()));
/// # Ok::<(), warpbell_host_init::Error>(())
/// ```
pub struct MemoryRegion {
    domain: ProtectionDomain,
    area: Area,
    access: Access,
    keys: Keys,
    /// The keys still mean something.
    registered: bool,
    /// Freed only after the device has let go of it.
    owner: Option<Buffer>,
    _path: Option<Taken>,
}

impl MemoryRegion {
    pub(crate) fn of_buffer(
        domain: &ProtectionDomain,
        buffer: Buffer,
        access: Access,
    ) -> Result<Self, Error> {
        // SAFETY: the buffer is valid, and stays in `owner` until deregistered, or for ever if the
        // device may still register it.
        match unsafe { Self::of_area(domain, buffer.area(), access) } {
            Ok(mut region) => {
                region.owner = Some(buffer);
                Ok(region)
            }
            Err(error) => {
                if error.is_uncertain() {
                    tracing::error!(len = buffer.len(), %error, "memory is leaked");
                    std::mem::forget(buffer);
                }
                Err(error)
            }
        }
    }

    /// # Safety
    /// As for [`ProtectionDomain::register_raw`].
    pub(crate) unsafe fn of_area(
        domain: &ProtectionDomain,
        area: Area,
        access: Access,
    ) -> Result<Self, Error> {
        let len = area.len;
        if len == 0 || len > isize::MAX as usize {
            return Err(Error::BadSize {
                what: "a memory region",
                bytes: len,
            });
        }
        let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        if access.intersects(writes) && !access.contains(Access::LOCAL_WRITE) {
            return Err(Error::BadAccess { access });
        }
        domain
            .device()
            .require_reach("a memory region", area.placement)?;
        let in_gpu = !area.placement.is_host() && access.contains(Access::LOCAL_WRITE);
        let path = domain.take(in_gpu.then_some(Written::DataInGpu))?;
        // SAFETY: the caller vouches for the memory until the region is gone.
        let keys = unsafe { domain.provider().register(domain.number(), area, access)? };
        let domain = domain.clone();
        Ok(Self {
            domain,
            area,
            access,
            keys,
            registered: true,
            owner: None,
            _path: path,
        })
    }

    /// Address of the first byte, for kernels and for the device.
    pub fn address(&self) -> u64 {
        self.as_ptr() as u64
    }

    /// The same as a pointer.
    pub fn as_ptr(&self) -> *mut u8 {
        self.area.start.as_ptr()
    }

    /// Where it lies.
    pub fn placement(&self) -> Placement {
        self.area.placement
    }

    /// Length in bytes; never 0.
    #[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub fn len(&self) -> usize {
        self.area.len
    }

    /// What may be done with it.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Local key, for work requests of queue pairs in the same domain.
    pub fn lkey(&self) -> LocalKey {
        LocalKey(self.keys.lkey)
    }

    /// Remote key, for the other side's work requests.
    pub fn rkey(&self) -> RemoteKey {
        RemoteKey(self.keys.rkey)
    }

    /// The domain that it belongs to.
    pub fn domain(&self) -> &ProtectionDomain {
        &self.domain
    }

    /// A piece of it for a work request of the same domain.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if it does not lie inside.
    pub fn local(&self, offset: usize, bytes: u32) -> Result<Local, Error> {
        check_range(offset, bytes as usize, self.len())?;
        Ok(Local {
            address: self.address() + offset as u64,
            length: bytes,
            key: self.lkey(),
        })
    }

    /// What the other side needs to know.
    pub fn remote(&self) -> RemoteMemory {
        RemoteMemory {
            address: self.address(),
            len: self.len() as u64,
            rkey: self.keys.rkey,
        }
    }

    /// Its whole words of 8 bytes, for the parameters of a kernel. To the host, the words of a GPU's memory are not
    /// there: [`read_words`](Self::read_words) copies them.
    ///
    /// ```
    /// use warpbell::{Words, kernel};
    /// use warpbell_host_init::{Access, Error, Grid, Launch, Node, entry};
    ///
    /// #[kernel]
    /// fn double(words: Words<'_>) {
    ///     if let Some(value) = words.load(0) {
    ///         words.store(1, 2 * value);
    ///     }
    /// }
    ///
    /// fn main() -> Result<(), Error> {
    ///     let node = Node::cpu();
    ///     let region = node.domain()?.allocate(16, Access::LOCAL_WRITE)?;
    ///     region.write(0, &21u64.to_ne_bytes())?;
    ///     node.run(&[Launch::new(entry!(double), Grid::ONE_THREAD, region.words()?)], &[])?;
    ///     assert_eq!(region.read_words(1, 1)?, [42]);
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::ReadOnly`] for memory that was registered by address without a right to write; [`Error::Unaligned`] for
    /// such memory that does not start at a multiple of 8.
    pub fn words(&self) -> Result<Words<'_>, Error> {
        self.require_writable()?;
        let first = self.as_ptr().cast::<Word64>();
        if !first.is_aligned() {
            let address = self.address();
            return Err(Error::Unaligned { address });
        }
        // SAFETY: registered memory is valid as long as `self`, and page-aligned or just checked. It is a buffer, which
        // hosts touch as atomics alone, or its owner vouched for as much; memory on a GPU is global there.
        let words = unsafe { Words::new(first, self.len() as u64 / 8, self.lkey()) };
        Ok(match self.placement() {
            Placement::Gpu(_) => words.only_on(self.placement().processor()),
            Placement::Host | Placement::Pinned(_) => words,
        })
    }

    /// Copies `count` words of 8 bytes out, from word `first` on.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if they do not all lie inside; [`Error::Gpu`] if the GPU is lost.
    pub fn read_words(&self, first: usize, count: usize) -> Result<Vec<u64>, Error> {
        check_range(first.saturating_mul(8), count.saturating_mul(8), self.len())?;
        let mut bytes = vec![0; 8 * count];
        self.read(8 * first, &mut bytes)?;
        let (words, _) = bytes.as_chunks();
        Ok(words.iter().map(|word| u64::from_ne_bytes(*word)).collect())
    }

    fn require_writable(&self) -> Result<(), Error> {
        let access = self.access;
        match self.owner.is_none() && !access.contains(Access::LOCAL_WRITE) {
            true => Err(Error::ReadOnly { access }),
            false => Ok(()),
        }
    }

    /// Copies bytes out; see [`Buffer::read`].
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if they do not all lie inside.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Error> {
        // SAFETY: the memory is registered, hence valid.
        unsafe { self.area.read(offset, into) }
    }

    /// Copies bytes in; see [`Buffer::write`].
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if they do not fit; [`Error::ReadOnly`] for memory that
    /// was registered by address without a right to write.
    #[inline]
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), Error> {
        check_range(offset, from.len(), self.len())?;
        self.require_writable()?;
        // SAFETY: the memory is registered, hence valid. It is a buffer, or its owner vouched
        // for writes too: every right to write comes with `LOCAL_WRITE`.
        unsafe { self.area.write(offset, from) }
    }

    /// Withdraws the keys and gives the buffer back; `None` for memory that was
    /// registered by address. No device uses the memory when this returns.
    ///
    /// # Errors
    /// [`Error::Soft`] if the device does not know the region any more. A buffer
    /// is leaked then, rather than freed under a device.
    pub fn deregister(mut self) -> Result<Option<Buffer>, Error> {
        self.withdraw()?;
        Ok(self.owner.take())
    }

    fn withdraw(&mut self) -> Result<(), Error> {
        if !std::mem::take(&mut self.registered) {
            return Ok(());
        }
        self.domain
            .provider()
            .deregister(self.keys)
            .inspect_err(|_| {
                std::mem::forget(self.owner.take());
            })
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        if let Err(error) = self.withdraw() {
            tracing::error!(address = self.address(), len = self.len(), %error, "memory is leaked");
        }
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRegion")
            .field("area", &self.area)
            .field("access", &self.access)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

/// Memory of the other side, as the other side described it.
///
/// ```
/// use warpbell_host_init::{Access, Error, Node};
///
/// let region = Node::cpu().domain()?.allocate(4096, Access::REMOTE_READ)?;
/// let memory = region.remote(); // the other end gets this, by `Peer::exchange` for example
/// assert_eq!(memory.at(64, 8)?.address, region.address() + 64);
/// assert!(matches!(memory.at(4096, 8), Err(Error::OutOfRange { .. })));
/// # Ok::<(), warpbell_host_init::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteMemory {
    /// Address of the first byte, at the other side.
    pub address: u64,
    /// Length in bytes.
    pub len: u64,
    /// Remote key.
    pub rkey: u32,
}

impl RemoteMemory {
    /// Where `bytes` bytes at `offset` lie, for a work request.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if they do not all lie inside.
    pub fn at(&self, offset: usize, bytes: u32) -> Result<Remote, Error> {
        check_range(
            offset,
            bytes as usize,
            usize::try_from(self.len).unwrap_or(usize::MAX),
        )?;
        // Wrapping, because the numbers are the other side's: nonsense here is
        // refused over there.
        let address = self.address.wrapping_add(offset as u64);
        Ok(Remote {
            address,
            key: RemoteKey(self.rkey),
        })
    }
}
