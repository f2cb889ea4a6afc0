//! cust's context, streams, modules and buffers, taken and given.
//!
//! cust and this crate use the same primary context, so that what one of them has made is the other's to use.
//! Calls to the driver still go through this crate's own bindings where they can: cust 0.3 ends at CUDA 11.4, and
//! knows no error that came later.

use std::any::Any;
use std::fmt;
use std::mem::transmute;
use std::ptr::NonNull;

use ::cust::context::{Context, CurrentContext};
use ::cust::device::Device;
use ::cust::error::{CudaError, CudaResult};
use ::cust::memory::{DeviceBuffer, DeviceCopy, DevicePointer, LockedBuffer};
use ::cust::module::Module as CustModule;
use ::cust::stream::Stream;

use super::sys::{CUmodule, CUstream};
use super::{Gpu, GpuError, Module, Running};
use crate::placement::Area;
use crate::{Buffer, Error, Launch, Placement};

// cust neither lets a module's handle out nor takes a stream's. In the one version that the manifest allows, both
// types have that handle as their only field.
const _: () = assert!(size_of::<CustModule>() == size_of::<CUmodule>());
const _: () = assert!(size_of::<Stream>() == size_of::<CUstream>());

/// An error of cust as a value of ours, by its name: cust's words for it come from the driver, and it panics where
/// the driver has none.
fn driver_error(call: &'static str) -> impl Fn(CudaError) -> GpuError {
    move |error| GpuError::Driver {
        call,
        why: format!("{error:?}"),
    }
}

impl Gpu {
    /// The GPU of a cust context, which becomes the calling thread's.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`GpuError::Driver`] for a context that is no longer the GPU's primary one, after a
    /// reset.
    pub fn from_cust(context: &Context) -> Result<Self, GpuError> {
        CurrentContext::set_current(context).map_err(driver_error("cuCtxSetCurrent"))?;
        let device = CurrentContext::get_device().map_err(driver_error("cuCtxGetDevice"))?;
        let mut devices = Device::devices().map_err(driver_error("cuDeviceGetCount"))?;
        let is_its =
            |other: CudaResult<Device>| other.is_ok_and(|other| other.as_raw() == device.as_raw());
        let ordinal = devices.position(is_its).unwrap_or_default();
        let gpu = Self::open(ordinal as u32)?;
        if gpu.context() != context.as_raw().cast() {
            return Err(GpuError::Driver {
                call: "cuDevicePrimaryCtxRetain",
                why: "cust's context is not the GPU's primary one any more".into(),
            });
        }
        Ok(gpu)
    }

    /// The GPU's context for cust, which becomes the calling thread's.
    ///
    /// # Errors
    /// [`GpuError::Driver`].
    pub fn cust_context(self) -> Result<Context, GpuError> {
        let device = Device::get_device(self.ordinal()).map_err(driver_error("cuDeviceGet"))?;
        Context::new(device).map_err(driver_error("cuDevicePrimaryCtxRetain"))
    }

    /// A stream of this GPU for cust alone, with nothing in it, which waits for no other one.
    ///
    /// Streams that cust itself makes wait for the default stream, and its copies that are not `async` go there: one
    /// of those waits for a kernel on such a stream, for ever if the kernel waits for what is copied.
    ///
    /// # Errors
    /// [`GpuError::Driver`].
    pub fn cust_stream(self) -> Result<Stream, GpuError> {
        self.enter()?;
        let stream = self.take_stream()?.0;
        // SAFETY: `Stream` is the handle and nothing else, as asserted above; the stream is its own from now on.
        Ok(unsafe { transmute::<CUstream, Stream>(stream) })
    }
}

impl Module {
    /// Kernels that cust has loaded on a GPU. They stay loaded until the process ends, as all modules do here; a
    /// panic of theirs reaches the host.
    ///
    /// # Safety
    /// As for [`Ptx::from_text`](super::Ptx::from_text): cust loads any text.
    ///
    /// # Errors
    /// [`Error::Gpu`] with [`GpuError::NoPinnedMemory`] or [`GpuError::Driver`].
    pub unsafe fn from_cust(gpu: Gpu, module: CustModule) -> Result<Self, Error> {
        gpu.enter()?;
        // SAFETY: `Module` is the handle and nothing else, as asserted above; nobody unloads it from now on.
        Self::of(gpu, unsafe { transmute::<CustModule, CUmodule>(module) })
    }

    /// The same kernels for cust, which finds each by the name of its entry
    /// (`module.cust().get_function(&entry!(kernel).symbol().to_string())`).
    pub fn cust(&self) -> &CustModule {
        // SAFETY: `Module` is the handle and nothing else, as asserted above, and stays loaded.
        unsafe { &*(&raw const self.module.0).cast() }
    }

    /// Starts a kernel on a cust stream, behind what is in it already; as [`start`](Self::start) otherwise.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_on<'m>(
        &'m self,
        launch: &Launch<'static>,
        stream: &'m Stream,
    ) -> Result<Running<'m>, GpuError> {
        self.start_behind(launch, stream.as_inner().cast())
    }

    /// What `launch!` has put into a cust stream, to be waited for under a watch: a panic, a fault and a kernel that
    /// hangs are errors with names. `name` is the last kernel's.
    ///
    /// # Errors
    /// [`GpuError::Driver`]; [`GpuError::Panicked`] and [`GpuError::BrokeOff`], if one has already.
    pub fn launched_on<'m>(
        &'m self,
        stream: &'m Stream,
        name: &'static str,
    ) -> Result<Running<'m>, GpuError> {
        self.running(name, stream.as_inner().cast())
    }
}

/// A kernel's parameters for cust's `launch!`, which takes only what is `DeviceCopy`.
///
/// ```no_run
/// # use cust::launch;
/// # use warpbell_host_init::cuda::{Module, Parameters};
/// # use warpbell_host_init::entry;
/// # use warpbell_kernels::checksum::{Checksum, checksum};
/// # fn run(module: &Module, stream: cust::stream::Stream, sum: Checksum) -> cust::error::CudaResult<()> {
/// let kernel = module.cust().get_function(&entry!(checksum).symbol().to_string())?;
/// // SAFETY: `sum` points to memory of this GPU, and is what the kernel takes.
/// unsafe { launch!(kernel<<<1, 256, 0, stream>>>(Parameters::new(sum)))? };
/// # Ok(())
/// # }
/// ```
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Parameters<P: Copy>(P);

// SAFETY: who made the value vouches for it.
unsafe impl<P: Copy> DeviceCopy for Parameters<P> {}

impl<P: Copy> Parameters<P> {
    /// Parameters for a kernel.
    ///
    /// # Safety
    /// All that they point to lies where the GPU reaches it, until the kernel has ended.
    pub const unsafe fn new(parameters: P) -> Self {
        Self(parameters)
    }
}

mod sealed {
    use super::{Gpu, Placement};

    /// What only this crate can call.
    pub trait Place {
        /// Where a buffer starts, its bytes, and where that is.
        fn place(&mut self, gpu: Gpu) -> (*mut u8, usize, Placement);
    }
}

/// cust's buffers of plain numbers, which a [`Buffer`] can hold: on the GPU (`DeviceBuffer`) or in pinned host
/// memory (`LockedBuffer`).
pub trait CustMemory: Any + Send + sealed::Place {}

/// Implements [`CustMemory`] for buffers of a type of which every bit pattern is a value: a NIC may write any.
macro_rules! cust_memory {
    ($($number:ty)*) => {$(
        impl CustMemory for DeviceBuffer<$number> {}
        impl sealed::Place for DeviceBuffer<$number> {
            fn place(&mut self, gpu: Gpu) -> (*mut u8, usize, Placement) {
                let start = self.as_device_ptr().as_mut_ptr().cast();
                (start, size_of::<$number>() * self.len(), Placement::Gpu(gpu))
            }
        }
        impl CustMemory for LockedBuffer<$number> {}
        impl sealed::Place for LockedBuffer<$number> {
            fn place(&mut self, gpu: Gpu) -> (*mut u8, usize, Placement) {
                let words = self.as_mut_slice();
                (words.as_mut_ptr().cast(), size_of_val(words), Placement::Pinned(gpu))
            }
        }
    )*};
}

cust_memory!(u8 u16 u32 u64 i8 i16 i32 i64 f32 f64);

/// What keeps the memory of a [`Buffer`] that was allocated by cust.
pub(crate) struct Foreign {
    gpu: Gpu,
    memory: Box<dyn Any + Send>,
}

// SAFETY: nothing is done with it by reference.
unsafe impl Sync for Foreign {}

impl Foreign {
    /// Gives it back to the driver, as cust does.
    pub(crate) fn free(self) {
        // A lost GPU may still write to it. cust frees it in the calling thread's context, whichever that is.
        if self.gpu.is_lost() || self.gpu.enter().is_err() {
            std::mem::forget(self.memory);
        }
    }
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Foreign").finish_non_exhaustive()
    }
}

impl Buffer {
    /// A buffer of cust's, with what is in it, to be registered and used as any other.
    ///
    /// # Errors
    /// [`Error::BadSize`] for an empty one; [`Error::Gpu`] with [`GpuError::NotOurMemory`] for one of another GPU.
    pub fn from_cust<M: CustMemory>(gpu: Gpu, mut memory: M) -> Result<Self, Error> {
        let (start, len, placement) = memory.place(gpu);
        let start = NonNull::new(start).filter(|_| len > 0);
        let area = Area {
            start: start.ok_or(Error::BadSize {
                what: "a buffer",
                bytes: len,
            })?,
            len,
            placement,
        };
        if let Placement::Gpu(gpu) = area.placement {
            gpu.check_memory(area.start.as_ptr() as u64, area.len)?;
        }
        let memory = Box::new(memory);
        Ok(Self::of_foreign(area, Foreign { gpu, memory }))
    }

    /// Gives cust's buffer back, of the type that it came as.
    ///
    /// # Errors
    /// The buffer itself, if it came as another type or was not cust's.
    pub fn into_cust<M: CustMemory>(mut self) -> Result<M, Self> {
        let Some(Foreign { gpu, memory }) = self.foreign().take() else {
            return Err(self);
        };
        match memory.downcast::<M>() {
            Ok(memory) => {
                // Its memory is the caller's now.
                std::mem::forget(self);
                Ok(*memory)
            }
            Err(memory) => {
                *self.foreign() = Some(Foreign { gpu, memory });
                Err(self)
            }
        }
    }

    /// Its address for cust; none for host memory that the GPU does not reach.
    pub fn device_pointer(&self) -> Option<DevicePointer<u8>> {
        let reached = self.placement() != Placement::Host;
        reached.then(|| DevicePointer::from_raw(self.as_ptr() as u64))
    }
}
