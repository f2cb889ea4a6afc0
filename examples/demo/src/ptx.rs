//! The kernels that a GPU runs: those built in, or those of the user's files.

use std::fs;
use std::path::PathBuf;

use warpbell_host_init::args::Programs;
use warpbell_host_init::cuda::{Module, Ptx};
use warpbell_host_init::soft::ENGINE_THREADS;
use warpbell_host_init::{Entry, Gpu, entry};
use warpbell_ptx::{Capability, KERNELS, SOFT_NIC};
use warpbell_soft_hca_gpu::resident::Arguments;

use crate::error::Error;

/// Files of PTX. Each takes the place of the built-in modules whose kernels it has.
pub struct OwnPtx(Vec<String>);

impl OwnPtx {
    pub fn read(paths: &[PathBuf]) -> Result<Self, Error> {
        let read = |path: &PathBuf| {
            let text = fs::read_to_string(path).map_err(|source| Error::UnreadablePtx {
                path: path.clone(),
                source,
            })?;
            match KERNELS.is_in(&text) || SOFT_NIC.is_in(&text) {
                false => Err(Error::ForeignPtx { path: path.clone() }),
                true => Ok(text),
            }
        };
        paths.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    fn text(&self, gpu: Gpu, module: &warpbell_ptx::Module) -> Result<String, Error> {
        if let Some(own) = self.0.iter().find(|text| module.is_in(text)) {
            return Ok(own.clone());
        }
        let capability = gpu.compute_capability();
        Ok(module.text_for(Capability {
            major: capability.major,
            minor: capability.minor,
        })?)
    }
}

impl Programs for OwnPtx {
    type Error = Error;

    const ENGINE: Option<Entry<fn(Arguments)>> = Some(entry!(warpbell_kernels::soft_nic::soft_nic));

    fn kernels(&self, gpu: Gpu) -> Result<&'static Module, Error> {
        let text = self.text(gpu, &KERNELS)?;
        // SAFETY: what is built in was compiled from the sources of the kernels that are launched from it. For a file,
        // the user vouches.
        let ptx = [unsafe { Ptx::from_text(&text)? }];
        Ok(Box::leak(Box::new(Module::load(gpu, &ptx)?)))
    }

    fn engine(&self, gpu: Gpu) -> Result<&'static Module, Error> {
        let text = self.text(gpu, &SOFT_NIC)?;
        // SAFETY: as above.
        let ptx = [unsafe { Ptx::from_text(&text)? }];
        let module = Module::load_for_blocks(gpu, &ptx, ENGINE_THREADS)?;
        Ok(Box::leak(Box::new(module)))
    }
}
