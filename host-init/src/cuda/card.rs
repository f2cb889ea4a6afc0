//! What a network card and a GPU need of each other: the GPU's memory as a file, and the card's registers in the
//! reach of kernels.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use super::driver::check;
use super::sys::{
    self, CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_IOMEMORY, CU_MEMHOSTREGISTER_PORTABLE,
    CUresult,
};
use super::{Gpu, GpuError};

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Pages of registers that a driver has mapped. Cards may put several registers on one page.
static MAPPED: Mutex<BTreeMap<u64, Page>> = Mutex::new(BTreeMap::new());

/// Who has to do with a page of registers.
#[derive(Debug, Default)]
struct Page {
    /// Registers of ours that are mapped on it.
    users: u32,
    /// Whether we have had it mapped, and not somebody else of this process, whose mapping is not ours to end.
    ours: bool,
}

/// A card's register that kernels reach, until it is dropped.
#[derive(Debug)]
pub(crate) struct MappedRegister {
    gpu: Gpu,
    /// The page's address for the host.
    page: u64,
    /// The register's for kernels.
    address: u64,
}

fn pointer(address: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

impl Gpu {
    /// A file that stands for memory of this GPU (dmabuf), and where in it the memory begins.
    ///
    /// # Errors
    /// [`GpuError::Driver`] where the driver has none, as with its closed kernel modules.
    pub(crate) fn dmabuf(self, address: u64, bytes: usize) -> Result<(OwnedFd, u64), GpuError> {
        self.enter()?;
        let start = address / PAGE * PAGE;
        let bytes = (address - start + bytes as u64).next_multiple_of(PAGE);
        let mut file: c_int = -1;
        // SAFETY: the driver writes one file descriptor, or refuses a range that is not its memory.
        let result = unsafe {
            sys::cuMemGetHandleForAddressRange(
                (&raw mut file).cast(),
                start,
                bytes as usize,
                sys::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                0,
            )
        };
        check("cuMemGetHandleForAddressRange", result)?;
        // SAFETY: the driver opened it for us.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        Ok((file, address - start))
    }

    /// Has the driver's copies and fills to memory wait until they are done, also those that the driver would otherwise let
    /// run behind the caller: a NIC, which waits for none of them, might read what was there before
    /// (`CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`). It holds for the whole allocation.
    ///
    /// # Errors
    /// [`GpuError::Driver`] if the driver refuses; memory that has no such attribute is left as it is.
    pub(crate) fn synchronise_copies(self, address: u64) -> Result<(), GpuError> {
        self.enter()?;
        let on = 1u32;
        // SAFETY: the driver reads a number of 4 bytes, and refuses addresses that are not its own.
        let result = unsafe {
            sys::cuPointerSetAttribute(
                (&raw const on).cast(),
                sys::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
                address,
            )
        };
        // Memory of a pool or of the virtual address space has none, and copies to it keep to their stream.
        match result {
            CUresult::CUDA_ERROR_NOT_SUPPORTED => Ok(()),
            other => check("cuPointerSetAttribute", other),
        }
    }

    /// Lets kernels reach a card's register, which this process has mapped at an address.
    ///
    /// # Errors
    /// [`GpuError::NoRegisters`] where the driver does not allow it.
    pub(crate) fn map_register(self, register: u64) -> Result<MappedRegister, GpuError> {
        let refused = |error| GpuError::NoRegisters {
            why: match error {
                GpuError::Driver { why, .. } => why,
                other => other.to_string(),
            },
        };
        self.enter()?;
        let page = register / PAGE * PAGE;
        let mut mapped = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
        let known = mapped.entry(page).or_default();
        if known.users == 0 {
            let flags = CU_MEMHOSTREGISTER_PORTABLE
                | CU_MEMHOSTREGISTER_DEVICEMAP
                | CU_MEMHOSTREGISTER_IOMEMORY;
            // SAFETY: the page is mapped in this process.
            let result = unsafe { sys::cuMemHostRegister_v2(pointer(page), PAGE as usize, flags) };
            known.ours = result != CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
            if known.ours {
                check("cuMemHostRegister", result).map_err(refused)?;
            }
        }
        let mut start = 0;
        // SAFETY: the driver writes one address.
        let result = unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut start, pointer(page), 0) };
        check("cuMemHostGetDevicePointer", result).map_err(refused)?;
        known.users += 1;
        Ok(MappedRegister {
            gpu: self,
            page,
            address: start + (register - page),
        })
    }
}

impl MappedRegister {
    /// Where kernels reach it.
    pub fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for MappedRegister {
    fn drop(&mut self) {
        let mut mapped = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = mapped.get_mut(&self.page) else {
            return;
        };
        known.users -= 1;
        if known.users > 0 || self.gpu.is_lost() || self.gpu.enter().is_err() {
            return;
        }
        let ours = known.ours;
        mapped.remove(&self.page);
        if !ours {
            return;
        }
        // SAFETY: registered by `map_register`, and used by no kernel any more.
        let result = unsafe { sys::cuMemHostUnregister(pointer(self.page)) };
        if let Err(error) = check("cuMemHostUnregister", result) {
            tracing::error!(%error, "a page of registers stays mapped");
        }
    }
}
