//! The kernels that a GPU runs: those built in, or a user's own.

use std::fs;
use std::path::PathBuf;

use warpbell_host_init::args::Programs;
use warpbell_host_init::cuda::{Module, Ptx};
use warpbell_host_init::soft::ENGINE_THREADS;
use warpbell_host_init::{Entry, Gpu, entry};
use warpbell_ptx::{Capability, KERNELS, PAPERS, SOFT_NIC};
use warpbell_soft_hca_gpu::resident::Arguments;

use crate::Error;

/// The module of a program's kernels, and PTX files of a user's own.
#[derive(Debug)]
pub struct OwnPtx {
    kernels: &'static warpbell_ptx::Module,
    texts: Vec<String>,
}

impl OwnPtx {
    /// Reads the files; each takes the place of the built-in modules whose kernels it has.
    ///
    /// # Errors
    /// A file that cannot be read, or that has none of the kernels.
    pub fn read(kernels: &'static warpbell_ptx::Module, paths: &[PathBuf]) -> Result<Self, Error> {
        let read = |path: &PathBuf| {
            let text = fs::read_to_string(path).map_err(|source| Error::UnreadablePtx {
                path: path.clone(),
                source,
            })?;
            match [&KERNELS, &PAPERS, &SOFT_NIC].map(|module| module.is_in(&text)) {
                [false, false, false] => Err(Error::ForeignPtx { path: path.clone() }),
                _ => Ok(text),
            }
        };
        let texts = paths.iter().map(read).collect::<Result<_, _>>()?;
        Ok(Self { kernels, texts })
    }

    /// Loads a module, which stays until the process ends.
    fn load(&self, gpu: Gpu, module: &warpbell_ptx::Module) -> Result<&'static Module, Error> {
        let built_in;
        let text = match self.texts.iter().find(|text| module.is_in(text)) {
            Some(own) => own,
            None => {
                let capability = gpu.compute_capability();
                built_in = module.text_for(Capability {
                    major: capability.major,
                    minor: capability.minor,
                })?;
                &built_in
            }
        };
        // SAFETY: what is built in was compiled from the sources of the kernels that are launched from it, and whoever
        // gives a file vouches for the same.
        let ptx = [unsafe { Ptx::from_text(text)? }];
        let module = match std::ptr::eq(module, &SOFT_NIC) {
            true => Module::load_for_blocks(gpu, &ptx, ENGINE_THREADS)?,
            false => Module::load(gpu, &ptx)?,
        };
        Ok(Box::leak(Box::new(module)))
    }
}

impl Programs for OwnPtx {
    type Error = Error;

    const ENGINE: Option<Entry<fn(Arguments)>> = Some(entry!(warpbell_kernels::soft_nic::soft_nic));

    fn kernels(&self, gpu: Gpu) -> Result<&'static Module, Error> {
        self.load(gpu, self.kernels)
    }

    fn engine(&self, gpu: Gpu) -> Result<&'static Module, Error> {
        self.load(gpu, &SOFT_NIC)
    }
}
