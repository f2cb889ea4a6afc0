//! Kernels that a build script compiled.

use super::{Gpu, GpuError, Module, Ptx};
use crate::{Error, Kernels};

/// Kernels that `warpbell-build` compiled for GPUs: [`built!`](crate::built).
#[derive(Clone, Copy, Debug)]
pub struct Built {
    texts: &'static [&'static str],
    package: &'static str,
    program: &'static str,
}

impl Built {
    /// The kernels in these texts of PTX, which are of a package's library, for a program of the package.
    ///
    /// # Safety
    /// As for [`Ptx::from_text`]. A module of the library that has the program's name is the program's own file.
    #[doc(hidden)]
    pub const unsafe fn new(
        texts: &'static [&'static str],
        package: &'static str,
        program: &'static str,
    ) -> Self {
        Self {
            texts,
            package,
            program,
        }
    }

    /// Whether there are none: the program was built for a CPU alone.
    pub const fn is_empty(self) -> bool {
        self.texts.is_empty()
    }

    /// Loads them on a GPU. They stay loaded until the process ends.
    ///
    /// # Errors
    /// [`GpuError::NotBuilt`] if there are none; those of [`Module::load`].
    pub fn load(self, gpu: Gpu) -> Result<Kernels, Error> {
        self.load_module(gpu).map(Kernels::Gpu)
    }

    pub(crate) fn load_module(self, gpu: Gpu) -> Result<&'static Module, Error> {
        if self.is_empty() {
            return Err(GpuError::NotBuilt.into());
        }
        let texts: Vec<_> = self.texts.iter().map(|text| self.named(text)).collect();
        // SAFETY: the promise of `new`.
        let texts = texts.iter().map(|text| unsafe { Ptx::from_text(text) });
        let module = Module::load(gpu, &texts.collect::<Result<Vec<_>, _>>()?)?;
        Ok(Box::leak(Box::new(module)))
    }

    /// The same PTX, with the program's own kernels named as the program names them: without the library.
    fn named(self, text: &str) -> String {
        let library = self.package.replace('-', "_");
        let (ours, theirs) = (
            self.program,
            format!("warpbell${library}${}$", self.program),
        );
        text.replace(&theirs, &format!("warpbell${ours}$"))
    }
}

/// The kernels of this package that its build script compiled with `warpbell-build`, as a
/// [`Built`](crate::cuda::Built). [`Node::for_kernels`](crate::Node::for_kernels) runs them.
///
/// ```ignore
/// let node = Node::for_kernels(warpbell_host_init::built!())?;
/// ```
///
/// The kernels are those of the package's library. An example, or another program, may have kernels in its own file, if
/// the library includes that file as a module of the program's name: for `hello.rs`,
///
/// ```ignore
/// #[cfg(target_arch = "nvptx64")]
/// #[path = "../examples/hello.rs"]
/// mod hello;
/// ```
#[macro_export]
macro_rules! built {
    () => {
        // SAFETY: the build script wrote the list; each text in it was compiled from this package's library, whose
        // modules are this program's own file where they have its name, as the documentation says.
        unsafe {
            $crate::cuda::Built::new(
                include!(concat!(env!("OUT_DIR"), "/warpbell_kernels.rs")),
                env!("CARGO_PKG_NAME"),
                env!("CARGO_CRATE_NAME"),
            )
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programs_own_kernels_are_named_as_the_program_names_them() {
        // SAFETY: no text is loaded.
        let built = unsafe { Built::new(&[], "my-app", "hello") };
        let text = ".entry warpbell$my_app$hello$say$00(\n.entry warpbell$my_app$other$hello$01(";
        let named = ".entry warpbell$hello$say$00(\n.entry warpbell$my_app$other$hello$01(";
        assert_eq!(built.named(text), named);
    }
}
