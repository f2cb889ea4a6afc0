//! Protection domains and registered memory.

use super::{Write, open};
use crate::abi::{MemoryRegion, MemoryRegionRequest};
use crate::attributes::Errno;
use crate::machine::machine;
use warpbell_soft_hca::engine::Access;

/// Allocates a protection domain.
pub fn allocate_domain(write: &mut Write<'_, '_>) -> Result<(), Errno> {
    let handle = open::fresh();
    if let Some(machine) = machine()? {
        let domain = machine.command(|engine| engine.create_protection_domain())?;
        write.open.domains.insert(handle, domain);
    }
    write.answer(&handle);
    write.answer_driver(&handle);
    Ok(())
}

/// Frees a protection domain.
pub fn free_domain(write: &mut Write<'_, '_>) -> Result<(), Errno> {
    let handle: u32 = write.input(0)?;
    if let Some(machine) = machine()? {
        let domain = *write.open.domains.get(&handle).ok_or(Errno(libc::EINVAL))?;
        machine.command(|engine| engine.destroy_protection_domain(domain))?;
        write.open.domains.remove(&handle);
    }
    write.done();
    Ok(())
}

/// Registers memory: gives it its keys.
pub fn register(write: &mut Write<'_, '_>) -> Result<(), Errno> {
    let handle = open::fresh();
    // Without an engine: an index, and a byte that its owner may vary.
    let (mut lkey, mut rkey) = (handle << 8, handle << 8);
    if let Some(machine) = machine()? {
        // After the pointer to the answer.
        let wanted: MemoryRegionRequest = write.input(8)?;
        if wanted.hca_va != wanted.start {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let domain = write.open.domains.get(&wanted.pd_handle);
        let domain = *domain.ok_or(Errno(libc::EINVAL))?;
        // Both have the bits of `ibv_access_flags`.
        let access = Access::from_bits_truncate(wanted.access_flags);
        let keys = machine.command(|engine| {
            // SAFETY: the user answers for memory that it registers until it deregisters it.
            unsafe { engine.register_memory(domain, wanted.start, wanted.length, access) }
        })?;
        write.open.regions.insert(handle, keys.local);
        (lkey, rkey) = (keys.local.0, keys.remote.0);
    }
    write.answer(&MemoryRegion {
        mr_handle: handle,
        lkey,
        rkey,
    });
    Ok(())
}

/// Deregisters memory.
pub fn deregister(write: &mut Write<'_, '_>) -> Result<(), Errno> {
    let handle: u32 = write.input(0)?;
    if let Some(machine) = machine()? {
        let key = *write.open.regions.get(&handle).ok_or(Errno(libc::EINVAL))?;
        machine.command(|engine| engine.deregister_memory(key))?;
        write.open.regions.remove(&handle);
    }
    write.done();
    Ok(())
}
