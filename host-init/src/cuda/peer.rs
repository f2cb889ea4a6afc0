//! Two GPUs that reach each other's memory.

use std::ffi::{c_int, c_uint};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::driver::check;
use super::sys::{self, CUdevice, CUresult};
use super::{Gpu, GpuError};

/// Pairs of GPUs of which the first one's kernels reach the second one's memory.
static PEERS: Mutex<Vec<(Gpu, Gpu)>> = Mutex::new(Vec::new());

fn peers() -> MutexGuard<'static, Vec<(Gpu, Gpu)>> {
    PEERS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gpu {
    /// Lets kernels of each of two GPUs reach the other's memory, all that is there and all that will be, by loads,
    /// stores and atomics. Nothing is to be done for a GPU and itself.
    ///
    /// To be called before kernels run that stay, because the driver may wait for them.
    ///
    /// # Errors
    /// [`GpuError::NoPeerAccess`], [`GpuError::NoPeerAtomics`]: neither reaches the other then.
    /// [`GpuError::Driver`].
    pub fn enable_peer_access(self, other: Self) -> Result<(), GpuError> {
        let ways = [(self, other), (other, self)];
        let mut peers = peers();
        if self == other || ways.iter().all(|way| peers.contains(way)) {
            return Ok(());
        }
        for (from, to) in ways {
            check_way(from, to)?;
        }
        for (from, to) in ways {
            open_way(from, to)?;
            peers.push((from, to));
        }
        Ok(())
    }

    /// Whether kernels of this GPU reach the other's memory: it is the same, or
    /// [`enable_peer_access`](Self::enable_peer_access) was called.
    pub fn reaches(self, other: Self) -> bool {
        self == other || peers().contains(&(self, other))
    }

    /// Whether this GPU's memory is within reach of another one that is lost.
    pub(super) fn has_lost_peer(self) -> bool {
        peers()
            .iter()
            .any(|(from, to)| *to == self && from.is_lost())
    }
}

/// Refuses two GPUs of which the first cannot reach the second.
fn check_way(from: Gpu, to: Gpu) -> Result<(), GpuError> {
    let devices = (device(from)?, device(to)?);
    let (from, to) = (from.ordinal(), to.ordinal());
    let mut able = 0;
    // SAFETY: the driver writes one number.
    check("cuDeviceCanAccessPeer", unsafe {
        sys::cuDeviceCanAccessPeer(&raw mut able, devices.0, devices.1)
    })?;
    if able == 0 {
        return Err(GpuError::NoPeerAccess { from, to });
    }
    let attribute = sys::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
    let mut atomics = 0;
    // SAFETY: the driver writes one number.
    check("cuDeviceGetP2PAttribute", unsafe {
        sys::cuDeviceGetP2PAttribute(&raw mut atomics, attribute, devices.0, devices.1)
    })?;
    match atomics {
        0 => Err(GpuError::NoPeerAtomics { from, to }),
        _ => Ok(()),
    }
}

/// Lets kernels of the first GPU reach the second one's memory.
fn open_way(from: Gpu, to: Gpu) -> Result<(), GpuError> {
    /// The driver knows no flags here.
    const FLAGS: c_uint = 0;
    from.enter()?;
    // SAFETY: both contexts live until the process ends, and the first is the calling thread's.
    match unsafe { sys::cuCtxEnablePeerAccess(to.context(), FLAGS) } {
        // By somebody else in this process.
        CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(()),
        result => check("cuCtxEnablePeerAccess", result),
    }
}

fn device(gpu: Gpu) -> Result<CUdevice, GpuError> {
    let mut device = 0;
    // SAFETY: the driver writes one number; the GPU is open, so that there is one with its number.
    check("cuDeviceGet", unsafe {
        sys::cuDeviceGet(&raw mut device, gpu.ordinal() as c_int)
    })?;
    Ok(device)
}
