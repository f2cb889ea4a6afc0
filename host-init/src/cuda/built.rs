//! Kernels that a build script compiled.

use super::{Gpu, GpuError, Ptx};
use crate::{Error, Kernels};

/// Kernels that `warpbell-build` compiled for GPUs: [`built!`](crate::built).
#[derive(Clone, Copy, Debug)]
pub struct Built(&'static [&'static str]);

impl Built {
    /// The kernels in these texts of PTX.
    ///
    /// # Safety
    /// As for [`Ptx::from_text`].
    #[doc(hidden)]
    pub const unsafe fn new(texts: &'static [&'static str]) -> Self {
        Self(texts)
    }

    /// Whether there are none: the program was built for a CPU alone.
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Loads them on a GPU. They stay loaded until the process ends.
    ///
    /// # Errors
    /// [`GpuError::NotBuilt`] if there are none; those of [`Module::load`](super::Module::load).
    pub fn load(self, gpu: Gpu) -> Result<Kernels, Error> {
        if self.is_empty() {
            return Err(GpuError::NotBuilt.into());
        }
        // SAFETY: the promise of `new`.
        let texts = self.0.iter().map(|text| unsafe { Ptx::from_text(text) });
        Kernels::load(gpu, &texts.collect::<Result<Vec<_>, _>>()?)
    }
}

/// The kernels of this package that its build script compiled with `warpbell-build`, as a
/// [`Built`](crate::cuda::Built). [`Node::for_kernels`](crate::Node::for_kernels) runs them.
///
/// ```ignore
/// let node = Node::for_kernels(warpbell_host_init::built!())?;
/// ```
#[macro_export]
macro_rules! built {
    () => {
        // SAFETY: the build script wrote the list; each text in it was compiled from this package's library.
        unsafe {
            $crate::cuda::Built::new(include!(concat!(env!("OUT_DIR"), "/warpbell_kernels.rs")))
        }
    };
}
