//! Protection domains and registered memory.

use mlx5_wqe::LocalKey;
use warpbell_soft_hca::engine::Access;

use super::open::Region;
use super::{Write, mapped, open};
use crate::abi::{ChangedKeys, MemoryRegion, MemoryRegionRequest, RegistrationChange};
use crate::attributes::Errno;
use crate::machine::{machine, system};

/// `enum ibv_rereg_mr_flags`.
const CHANGE_TRANSLATION: u32 = 1 << 0;
const CHANGE_DOMAIN: u32 = 1 << 1;
const CHANGE_ACCESS: u32 = 1 << 2;

/// `IBV_ACCESS_ON_DEMAND`: pages come when they are touched.
const ON_DEMAND: u32 = 1 << 6;
/// `IBV_ACCESS_LOCAL_WRITE`.
const LOCAL_WRITE: u32 = 1 << 0;
/// Rights that have a name, and those that a device may ignore.
const KNOWN_RIGHTS: u32 = 0x3ff0_00ff;
/// Bytes of a page.
const PAGE: u64 = 4096;

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
        let domain = write.open.find(&write.open.domains, handle)?;
        if write.open.address_handles.values().any(|of| *of == handle) {
            return Err(Errno(libc::EBUSY));
        }
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
        check(wanted.start, wanted.length, wanted.access_flags)?;
        let mut region = Region {
            key: LocalKey(0),
            domain: write.open.find(&write.open.domains, wanted.pd_handle)?,
            start: wanted.start,
            length: wanted.length,
            access: access(wanted.access_flags),
        };
        let keys = machine.command(|engine| {
            // SAFETY: the user answers for memory that it registers until it deregisters it.
            unsafe {
                engine.register_memory(region.domain, region.start, region.length, region.access)
            }
        })?;
        region.key = keys.local;
        write.open.regions.insert(handle, region);
        (lkey, rkey) = (keys.local.0, keys.remote.0);
    }
    write.answer(&MemoryRegion {
        mr_handle: handle,
        lkey,
        rkey,
    });
    Ok(())
}

/// Changes a region's memory, domain or rights; the keys stay.
pub fn change(write: &mut Write<'_, '_>) -> Result<(), Errno> {
    let machine = machine()?.ok_or(Errno(libc::EOPNOTSUPP))?;
    // After the pointer to the answer.
    let wanted: RegistrationChange = write.input(8)?;
    let old = write.open.find(&write.open.regions, wanted.mr_handle)?;
    let mut new = old;
    if wanted.flags & !(CHANGE_TRANSLATION | CHANGE_DOMAIN | CHANGE_ACCESS) != 0 {
        return Err(Errno(libc::EINVAL));
    }
    if wanted.flags & CHANGE_TRANSLATION != 0 {
        if wanted.hca_va != wanted.start {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        (new.start, new.length) = (wanted.start, wanted.length);
    }
    if wanted.flags & CHANGE_DOMAIN != 0 {
        new.domain = write.open.find(&write.open.domains, wanted.pd_handle)?;
    }
    if wanted.flags & CHANGE_ACCESS != 0 {
        new.access = access(wanted.access_flags);
    }
    if wanted.flags & (CHANGE_TRANSLATION | CHANGE_ACCESS) != 0 {
        let flags = match wanted.flags & CHANGE_ACCESS {
            0 => new.access.bits(),
            _ => wanted.access_flags,
        };
        check(new.start, new.length, flags)?;
    }
    // What cannot be leaves the old registration as it is.
    machine.command(|engine| {
        // SAFETY: the user answers for memory that it registers until it deregisters it.
        unsafe { engine.change_memory(new.key, new.domain, new.start, new.length, new.access) }
    })?;
    write.open.regions.insert(wanted.mr_handle, new);
    // Local and remote key are one.
    write.answer(&ChangedKeys {
        lkey: new.key.0,
        rkey: new.key.0,
    });
    Ok(())
}

/// Deregisters memory.
pub fn deregister(write: &mut Write<'_, '_>) -> Result<(), Errno> {
    let handle: u32 = write.input(0)?;
    if let Some(machine) = machine()? {
        let key = write.open.find(&write.open.regions, handle)?.key;
        machine.command(|engine| engine.deregister_memory(key))?;
        write.open.regions.remove(&handle);
    }
    write.done();
    Ok(())
}

/// Refuses rights without a name, memory past the last address, and memory that the program could not touch itself, as
/// a kernel does that pins it.
fn check(start: u64, length: u64, flags: u32) -> Result<(), Errno> {
    let end = start.checked_add(length);
    let last_page = end.and_then(|end| end.checked_next_multiple_of(PAGE));
    if flags & !KNOWN_RIGHTS != 0 || last_page.is_none() {
        return Err(Errno(libc::EINVAL));
    }
    if flags & ON_DEMAND != 0 {
        return Ok(());
    }
    let is_written = flags & LOCAL_WRITE != 0;
    match mapped::is_mapped(start, length, is_written) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Errno(libc::EFAULT)),
        Err(error) => Err(system(&error)),
    }
}

/// Both have the bits of `ibv_access_flags`; of the others none takes a right away.
pub fn access(flags: u32) -> Access {
    Access::from_bits_truncate(flags)
}
