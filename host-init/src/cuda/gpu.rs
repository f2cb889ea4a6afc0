//! One GPU: its context, its memory, its streams.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::driver::{check, describe};
use super::l2::L2Limits;
use super::pool::Pool;
use super::sys::{
    self, CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE, CUcontext, CUdevice, CUresult,
    CUstream,
};
use super::under_way::UnderWay;
use super::{ComputeCapability, GpuError, InboundOrder};

/// An open GPU. A value is a mere reference, because a GPU stays open until the process ends.
///
/// ```no_run
/// use warpbell_host_init::Gpu;
///
/// let gpu = Gpu::open(0)?;
/// println!("{}: {:?}", gpu.name(), gpu.inbound_order());
/// # Ok::<(), warpbell_host_init::GpuError>(())
/// ```
#[derive(Clone, Copy)]
pub struct Gpu(&'static Inner);

struct Inner {
    ordinal: u32,
    context: Handle<CUcontext>,
    name: String,
    pci_address: String,
    capability: ComputeCapability,
    /// CUDA version of the driver, 1000 · major + 10 · minor.
    driver: u32,
    inbound_order: InboundOrder,
    /// Its streams write and await words of 64 bits.
    stream_words: bool,
    pinned: Mutex<Pool>,
    memory: Mutex<Pool>,
    /// For copies and fills; waits for no other stream.
    copies: Handle<CUstream>,
    /// Streams that run nothing now; see [`streams`].
    streams: Mutex<Vec<Handle<CUstream>>>,
    under_way: Mutex<UnderWay>,
    multiprocessors: u32,
    l2: L2Limits,
    /// A kernel broke off or hangs.
    lost: AtomicBool,
}

/// A pointer that the driver gave out, which any thread may hand back to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handle<T>(pub T);

// SAFETY: the driver's objects are not tied to a thread.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: the driver locks what its calls change.
unsafe impl<T> Sync for Handle<T> {}

/// All GPUs that are open.
static OPEN: Mutex<Vec<Gpu>> = Mutex::new(Vec::new());

/// Bytes that are asked of the driver at once, at least.
const PINNED_SLAB: u64 = 16 << 20;
const MEMORY_SLAB: u64 = 64 << 20;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gpu {
    /// Opens a GPU by its number, counted from 0 among those that CUDA_VISIBLE_DEVICES shows. A second call
    /// gives the same GPU.
    ///
    /// # Errors
    /// [`GpuError::NoDriver`], [`GpuError::OldDriver`], [`GpuError::NoGpu`], [`GpuError::NoSuchGpu`], or
    /// [`GpuError::Driver`] if the GPU cannot be used.
    pub fn open(ordinal: u32) -> Result<Self, GpuError> {
        let mut open = lock(&OPEN);
        if let Some(gpu) = open.iter().find(|gpu| gpu.0.ordinal == ordinal) {
            return Ok(*gpu);
        }
        sys::load()?;
        start_driver()?;
        let gpu = Self(Box::leak(Box::new(Inner::open(ordinal)?)));
        open.push(gpu);
        Ok(gpu)
    }

    /// Its context: the primary one, which stays until the process ends.
    pub(super) fn context(self) -> CUcontext {
        self.0.context.0
    }

    /// Its number.
    pub fn ordinal(self) -> u32 {
        self.0.ordinal
    }

    /// Its name, as nvidia-smi shows it.
    pub fn name(self) -> &'static str {
        &self.0.name
    }

    /// Where it is on PCIe: `domain:bus:device.function`, in hexadecimal. NVML finds a GPU by this address.
    pub fn pci_address(self) -> &'static str {
        &self.0.pci_address
    }

    /// How many multiprocessors it has, each of which runs some blocks at a time.
    pub fn multiprocessors(self) -> u32 {
        self.0.multiprocessors
    }

    /// What it sets aside of its L2 cache at most.
    pub(super) fn l2_limits(self) -> L2Limits {
        self.0.l2
    }

    /// Which instructions it has.
    pub fn compute_capability(self) -> ComputeCapability {
        self.0.capability
    }

    /// The newest CUDA version that its driver knows, as in "13.0".
    pub fn driver(self) -> String {
        format!("{}.{}", self.0.driver / 1000, self.0.driver % 1000 / 10)
    }

    /// In which order its kernels see what NICs write to its memory.
    pub fn inbound_order(self) -> InboundOrder {
        self.0.inbound_order
    }

    /// Takes memory from the driver in advance, for allocations while a persistent kernel runs: some drivers
    /// let those wait until no kernel runs.
    ///
    /// # Errors
    /// [`GpuError::NoPinnedMemory`], [`GpuError::NoGpuMemory`].
    pub fn reserve(self, pinned: usize, memory: usize) -> Result<(), GpuError> {
        for (kind, bytes) in [(Kind::Pinned, pinned), (Kind::Gpu, memory)] {
            if bytes > 0 {
                let address = self.allocate(kind, bytes)?;
                self.free(kind, address, bytes);
            }
        }
        Ok(())
    }

    /// Whether a kernel broke off or hangs, so that nothing more can be run.
    pub fn is_lost(self) -> bool {
        self.0.lost.load(Ordering::Relaxed)
    }

    /// From now on no memory that kernels may use is given to anybody else.
    pub(super) fn lose(self) {
        self.0.lost.store(true, Ordering::Relaxed);
    }

    /// Makes the GPU the calling thread's, as the driver's calls want it.
    pub(super) fn enter(self) -> Result<(), GpuError> {
        // SAFETY: the context lives until the process ends.
        check("cuCtxSetCurrent", unsafe {
            sys::cuCtxSetCurrent(self.0.context.0)
        })
    }

    /// Takes memory that is aligned to its [granule](Kind::granule) and holds anything. It is the caller's until `free`.
    pub(crate) fn allocate(self, kind: Kind, bytes: usize) -> Result<u64, GpuError> {
        let none = match kind {
            Kind::Pinned => GpuError::NoPinnedMemory { bytes },
            Kind::Gpu => GpuError::NoGpuMemory { bytes },
        };
        let Some(rounded) = kind.rounded(bytes) else {
            return Err(none);
        };
        let (pool, slab) = match kind {
            Kind::Pinned => (&self.0.pinned, PINNED_SLAB),
            Kind::Gpu => (&self.0.memory, MEMORY_SLAB),
        };
        let mut pool = lock(pool);
        if let Some(address) = pool.take(rounded) {
            return Ok(address);
        }
        self.enter()?;
        let sizes = [rounded.max(slab), rounded];
        let (address, size) = sizes
            .into_iter()
            .find_map(|size| Some((slab_of(kind, size)?, size)))
            .ok_or(none)?;
        pool.note(address);
        if size > rounded {
            pool.give(address + rounded, size - rounded);
        }
        Ok(address)
    }

    /// Gives memory back. A lost GPU may still write to its own and its peers', so that nobody else gets it.
    pub(crate) fn free(self, kind: Kind, address: u64, bytes: usize) {
        if self.is_lost() || self.has_lost_peer() {
            return;
        }
        let rounded = kind.rounded(bytes).expect("allocated with this size");
        let pool = match kind {
            Kind::Pinned => &self.0.pinned,
            Kind::Gpu => &self.0.memory,
        };
        lock(pool).give(address, rounded);
    }

    /// Fills memory of the GPU with zeros.
    ///
    /// # Safety
    /// `bytes` bytes from `address` are memory of this GPU.
    pub(crate) unsafe fn clear(self, address: u64, bytes: usize) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: the caller's promise.
        let result = unsafe { sys::cuMemsetD8Async(address, 0, bytes, self.0.copies.0) };
        check("cuMemsetD8Async", result)?;
        self.finish_copies()
    }

    /// Copies out of memory of the GPU, while kernels run too.
    ///
    /// # Safety
    /// `into.len()` bytes from `address` are memory of this GPU.
    pub(crate) unsafe fn read(self, address: u64, into: &mut [u8]) -> Result<(), GpuError> {
        self.enter()?;
        let to = into.as_mut_ptr().cast();
        // SAFETY: the caller's promise; the slice is borrowed until the copy is done.
        let result = unsafe { sys::cuMemcpyDtoHAsync_v2(to, address, into.len(), self.0.copies.0) };
        check("cuMemcpyDtoHAsync", result)?;
        self.finish_copies()
    }

    /// Copies into memory of the GPU, while kernels run too.
    ///
    /// # Safety
    /// `from.len()` bytes from `address` are memory of this GPU.
    pub(crate) unsafe fn write(self, address: u64, from: &[u8]) -> Result<(), GpuError> {
        self.enter()?;
        let source = from.as_ptr().cast();
        // SAFETY: the caller's promise; the slice is borrowed until the copy is done.
        let result =
            unsafe { sys::cuMemcpyHtoDAsync_v2(address, source, from.len(), self.0.copies.0) };
        check("cuMemcpyHtoDAsync", result)?;
        self.finish_copies()
    }

    fn finish_copies(self) -> Result<(), GpuError> {
        // SAFETY: the stream lives until the process ends.
        let result = unsafe { sys::cuStreamSynchronize(self.0.copies.0) };
        check("cuStreamSynchronize", result)
    }

    /// Refuses a range that is not, or not all, memory of this GPU.
    ///
    /// # Errors
    /// [`GpuError::NotOurMemory`].
    pub fn check_memory(self, address: u64, bytes: usize) -> Result<(), GpuError> {
        self.enter()?;
        let attribute = |attribute, into: *mut c_void| {
            // SAFETY: the driver writes a value of the attribute's type, 4 bytes for both that are asked
            // for; any address may be asked about.
            let result = unsafe { sys::cuPointerGetAttribute(into, attribute, address) };
            result == CUresult::CUDA_SUCCESS
        };
        let (mut kind, mut ordinal) = (0u32, -1i32);
        let (mut start, mut length) = (0, 0);
        let ours = attribute(
            sys::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            (&raw mut kind).cast(),
        ) && kind == sys::CU_MEMORYTYPE_DEVICE
            && attribute(
                sys::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                (&raw mut ordinal).cast(),
            )
            && ordinal == self.0.ordinal as i32
            // SAFETY: the address is known to be the GPU's, and both results are written before they are read.
            && unsafe { sys::cuMemGetAddressRange_v2(&raw mut start, &raw mut length, address) }
                == CUresult::CUDA_SUCCESS;
        let end = address.checked_add(bytes as u64);
        match end {
            Some(end) if ours && end <= start + length as u64 => Ok(()),
            _ => Err(GpuError::NotOurMemory {
                address,
                bytes,
                gpu: self.0.name.clone(),
            }),
        }
    }

    /// Refuses steps of a stream that are no kernels where the GPU has none.
    pub(super) fn check_stream_words(self) -> Result<(), GpuError> {
        match self.0.stream_words {
            true => Ok(()),
            false => Err(GpuError::NoStreamWords {
                gpu: self.0.name.clone(),
            }),
        }
    }

    /// A stream that runs nothing, to be given back with [`give_stream`](Self::give_stream).
    pub(super) fn take_stream(self) -> Result<Handle<CUstream>, GpuError> {
        match lock(&self.0.streams).pop() {
            Some(stream) => Ok(stream),
            None => stream(),
        }
    }

    /// Gives a stream back that runs nothing.
    pub(super) fn give_stream(self, stream: Handle<CUstream>) {
        lock(&self.0.streams).push(stream);
    }

    /// What there is for its kernels under way.
    pub(super) fn under_way(self) -> MutexGuard<'static, UnderWay> {
        lock(&self.0.under_way)
    }
}

impl PartialEq for Gpu {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Gpu {}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gpu")
            .field("ordinal", &self.0.ordinal)
            .field("name", &self.0.name)
            .finish_non_exhaustive()
    }
}

impl Inner {
    fn open(ordinal: u32) -> Result<Self, GpuError> {
        let mut count = 0;
        // SAFETY: the driver writes one number.
        check("cuDeviceGetCount", unsafe {
            sys::cuDeviceGetCount(&raw mut count)
        })?;
        let count = count as u32;
        if ordinal >= count {
            return Err(match count {
                0 => GpuError::NoGpu {
                    why: "it counts none".into(),
                },
                _ => GpuError::NoSuchGpu { ordinal, count },
            });
        }
        let mut device = 0;
        // SAFETY: the driver writes one number; the GPU's is below their count.
        check("cuDeviceGet", unsafe {
            sys::cuDeviceGet(&raw mut device, ordinal as c_int)
        })?;
        let mut context = std::ptr::null_mut();
        // SAFETY: the driver writes one pointer.
        check("cuDevicePrimaryCtxRetain", unsafe {
            sys::cuDevicePrimaryCtxRetain(&raw mut context, device)
        })?;
        // SAFETY: the context was just retained, and is never released.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(context) })?;
        let mut driver = 0;
        // SAFETY: the driver writes one number.
        check("cuDriverGetVersion", unsafe {
            sys::cuDriverGetVersion(&raw mut driver)
        })?;
        Ok(Self {
            ordinal,
            context: Handle(context),
            name: text("cuDeviceGetName", sys::cuDeviceGetName, device)?,
            pci_address: text("cuDeviceGetPCIBusId", sys::cuDeviceGetPCIBusId, device)?,
            capability: ComputeCapability {
                major: attribute(device, sys::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                minor: attribute(device, sys::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            },
            driver: driver as u32,
            // A driver that does not know the attribute promises nothing.
            inbound_order: InboundOrder::of_attribute(
                attribute(
                    device,
                    sys::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING,
                )
                .unwrap_or(0),
            ),
            stream_words: [
                sys::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
                sys::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR,
            ]
            .into_iter()
            // A driver that does not know the attribute has no such operations.
            .all(|able| attribute(device, able).unwrap_or(0) != 0),
            pinned: Mutex::default(),
            memory: Mutex::default(),
            copies: stream()?,
            streams: Mutex::new(streams()?),
            under_way: Mutex::default(),
            multiprocessors: attribute(device, sys::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            l2: L2Limits {
                cache: attribute(
                    device,
                    sys::CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE,
                )? as usize,
                window: attribute(
                    device,
                    sys::CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE,
                )? as usize,
            },
            lost: AtomicBool::new(false),
        })
    }
}

/// Which of a GPU's two pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Host memory that stays where it is, at the same address for host and GPU.
    Pinned,
    /// The GPU's own.
    Gpu,
}

impl Kind {
    /// Every piece of the pool begins at, and is as long as, a multiple of this many bytes. In the GPU's memory that is a
    /// page of the GPU, by which nvidia_peermem lets a card reach it: no page is two pieces'.
    const fn granule(self) -> u64 {
        match self {
            Self::Pinned => 4 << 10,
            Self::Gpu => 64 << 10,
        }
    }

    /// Bytes that a piece of `bytes` takes; none if there is no such number.
    fn rounded(self, bytes: usize) -> Option<u64> {
        (bytes as u64).checked_next_multiple_of(self.granule())
    }
}

/// Memory from the driver, in the calling thread's context; aligned to a [granule](Kind::granule). None if there is no more.
fn slab_of(kind: Kind, bytes: u64) -> Option<u64> {
    // The driver aligns what is small to less. What lies before the granule and behind the end stays unused.
    let bytes = usize::try_from(bytes + (kind.granule() - 1)).ok()?;
    let (result, address) = match kind {
        Kind::Pinned => {
            let mut start = std::ptr::null_mut();
            let flags: c_uint = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
            // SAFETY: the driver writes one pointer.
            let result = unsafe { sys::cuMemHostAlloc(&raw mut start, bytes, flags) };
            (result, start.expose_provenance() as u64)
        }
        Kind::Gpu => {
            let mut start = 0;
            // SAFETY: the driver writes one address.
            let result = unsafe { sys::cuMemAlloc_v2(&raw mut start, bytes) };
            (result, start)
        }
    };
    if result != CUresult::CUDA_SUCCESS {
        tracing::debug!(
            ?kind,
            bytes,
            error = describe(result),
            "no memory from the driver"
        );
        return None;
    }
    Some(address.next_multiple_of(kind.granule()))
}

fn start_driver() -> Result<(), GpuError> {
    // SAFETY: may be called at any time, and more than once.
    match unsafe { sys::cuInit(0) } {
        error @ (CUresult::CUDA_ERROR_NO_DEVICE | CUresult::CUDA_ERROR_INVALID_DEVICE) => {
            Err(GpuError::NoGpu {
                why: describe(error),
            })
        }
        // A library to link with, and nothing behind it.
        CUresult::CUDA_ERROR_STUB_LIBRARY => Err(GpuError::NoDriver),
        result => check("cuInit", result),
    }
}

/// What a call of the driver's says of a GPU in words.
fn text(
    call: &'static str,
    ask: unsafe fn(*mut c_char, c_int, CUdevice) -> CUresult,
    device: CUdevice,
) -> Result<String, GpuError> {
    let mut text = [0u8; 256];
    let length = text.len() as c_int;
    // SAFETY: the driver writes at most `length` bytes, the last one 0.
    check(call, unsafe {
        ask(text.as_mut_ptr().cast::<c_char>(), length, device)
    })?;
    let text = CStr::from_bytes_until_nul(&text).unwrap_or_default();
    Ok(text.to_string_lossy().into_owned())
}

fn attribute(device: CUdevice, attribute: c_uint) -> Result<u32, GpuError> {
    let mut value = 0;
    // SAFETY: the driver writes one number.
    check("cuDeviceGetAttribute", unsafe {
        sys::cuDeviceGetAttribute(&raw mut value, attribute, device)
    })?;
    Ok(value as u32)
}

/// Kernels that a GPU runs at the same time at most: "resident grids per device" of the CUDA C++ Programming Guide, the
/// largest of all compute capabilities.
const MOST_AT_ONCE: usize = 128;

/// Streams for so many kernels, made before any kernel runs. When the driver makes one, it may first wait until the GPU runs
/// nothing: each 32nd, from the 36th on, with driver 580.159 on an H200. If a kernel that runs waits for one whose stream is
/// not made yet, neither ends.
fn streams() -> Result<Vec<Handle<CUstream>>, GpuError> {
    (0..MOST_AT_ONCE).map(|_| stream()).collect()
}

/// A stream of the calling thread's context, which waits for no other.
fn stream() -> Result<Handle<CUstream>, GpuError> {
    let mut stream = std::ptr::null_mut();
    let flags = sys::CU_STREAM_NON_BLOCKING;
    // SAFETY: the driver writes one pointer.
    check("cuStreamCreate", unsafe {
        sys::cuStreamCreate(&raw mut stream, flags)
    })?;
    Ok(Handle(stream))
}
