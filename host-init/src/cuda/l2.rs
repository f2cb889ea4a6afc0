//! The part of a GPU's L2 cache that is set aside for what a launch uses again and again.

use super::driver::check;
use super::sys::{
    self, CU_ACCESS_PROPERTY_NORMAL, CU_ACCESS_PROPERTY_PERSISTING, CUaccessPolicyWindow,
    CUlaunchAttribute,
};
use super::{Gpu, GpuError};
use crate::persisting::PersistingWindow;

/// What a GPU sets aside at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct L2Limits {
    /// Bytes of the cache; 0 where none can be set aside.
    pub cache: usize,
    /// Bytes of a launch's window.
    pub window: usize,
}

impl Gpu {
    /// Sets bytes of the L2 cache aside for [windows](crate::PersistingWindow), as many as the GPU can at most. Call it
    /// before kernels run that stay, among them a NIC that is a kernel: the driver may wait until none does.
    ///
    /// # Errors
    /// [`GpuError::NoPersistingCache`].
    pub fn set_aside_l2(self, bytes: usize) -> Result<(), GpuError> {
        self.enter()?;
        let bytes = bytes.min(self.l2()?.cache);
        // SAFETY: only a number is passed.
        check("cuCtxSetLimit", unsafe {
            sys::cuCtxSetLimit(sys::CU_LIMIT_PERSISTING_L2_CACHE_SIZE, bytes)
        })
    }

    /// Refuses a window of so many bytes if the GPU has none.
    pub(crate) fn check_persisting(self, bytes: usize) -> Result<(), GpuError> {
        let limit = self.l2()?.window;
        match bytes <= limit {
            true => Ok(()),
            false => Err(GpuError::LargeWindow { bytes, limit }),
        }
    }

    /// What it sets aside, if it can.
    fn l2(self) -> Result<L2Limits, GpuError> {
        let limits = self.l2_limits();
        match limits.cache {
            0 => Err(GpuError::NoPersistingCache {
                gpu: self.name().into(),
            }),
            _ => Ok(limits),
        }
    }
}

/// A launch's attribute with this window.
pub(super) fn attribute(window: PersistingWindow) -> CUlaunchAttribute {
    CUlaunchAttribute {
        id: sys::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
        pad: 0,
        window: CUaccessPolicyWindow {
            base_ptr: window.start(),
            num_bytes: window.bytes(),
            hitRatio: 1.0,
            hitProp: CU_ACCESS_PROPERTY_PERSISTING,
            missProp: CU_ACCESS_PROPERTY_NORMAL,
        },
        rest: [0; 4],
    }
}
