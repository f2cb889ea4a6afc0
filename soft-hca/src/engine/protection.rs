//! Protection domains, registered memory and the check of every access.

use mlx5_wqe::{LocalKey, RemoteKey};

use super::command::{Access, CommandError, Keys, ProtectionDomain};
use super::packet::Range;

/// An entry of the engine's table of protection domains.
#[derive(Debug, Default)]
pub struct ProtectionDomainSlot {
    generation: u32,
    live: bool,
    users: u32,
}

/// An entry of the engine's table of registered memory.
#[derive(Debug, Default)]
pub struct RegionSlot {
    generation: u8,
    region: Option<Region>,
}

/// Registered memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    pub(super) protection_domain: ProtectionDomain,
    pub(super) range: Range,
    access: Access,
    /// A peer's SEND with invalidate took the keys away.
    invalidated: bool,
}

/// The key of an access is unknown, or does not allow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Denied;

/// Keys are index << 8 | generation, as on the card. The first index keeps the key 0x100, which
/// ends a list of receive segments, from ever being given out.
const FIRST_KEY_INDEX: u32 = 0x10;

/// Bits of a protection domain's number that hold its index.
const PD_INDEX_BITS: u32 = 16;

/// The table of protection domains.
#[derive(Debug)]
pub(super) struct ProtectionDomains<'t>(pub(super) &'t mut [ProtectionDomainSlot]);

impl ProtectionDomains<'_> {
    pub(super) fn create(&mut self) -> Result<ProtectionDomain, CommandError> {
        let index = self
            .0
            .iter()
            .take(1 << PD_INDEX_BITS)
            .position(|slot| !slot.live)
            .ok_or(CommandError::TableFull)?;
        let slot = &mut self.0[index];
        slot.live = true;
        Ok(ProtectionDomain(
            slot.generation << PD_INDEX_BITS | index as u32,
        ))
    }

    pub(super) fn destroy(&mut self, pd: ProtectionDomain) -> Result<(), CommandError> {
        let slot = self.slot(pd)?;
        if slot.users > 0 {
            return Err(CommandError::InUse);
        }
        slot.live = false;
        slot.generation = (slot.generation + 1) & (u32::MAX >> PD_INDEX_BITS);
        Ok(())
    }

    /// Counts one more user.
    pub(super) fn hold(&mut self, pd: ProtectionDomain) -> Result<(), CommandError> {
        self.slot(pd)?.users += 1;
        Ok(())
    }

    /// Counts one user less.
    pub(super) fn release(&mut self, pd: ProtectionDomain) {
        if let Ok(slot) = self.slot(pd) {
            slot.users -= 1;
        }
    }

    fn slot(&mut self, pd: ProtectionDomain) -> Result<&mut ProtectionDomainSlot, CommandError> {
        let index = (pd.0 & ((1 << PD_INDEX_BITS) - 1)) as usize;
        self.0
            .get_mut(index)
            .filter(|slot| slot.live && slot.generation == pd.0 >> PD_INDEX_BITS)
            .ok_or(CommandError::NoProtectionDomain)
    }
}

/// The table of registered memory.
#[derive(Debug)]
pub(super) struct Regions<'t> {
    slots: &'t mut [RegionSlot],
    /// Where the search for a free slot starts: just after the last, so that a slot, and with it
    /// a key, comes back as late as possible.
    next: usize,
}

impl<'t> Regions<'t> {
    pub(super) const fn new(slots: &'t mut [RegionSlot]) -> Self {
        Self { slots, next: 0 }
    }

    pub(super) fn register(
        &mut self,
        protection_domain: ProtectionDomain,
        range: Range,
        access: Access,
    ) -> Result<Keys, CommandError> {
        if range.length == 0 || range.address.checked_add(range.length).is_none() {
            return Err(CommandError::BadRange);
        }
        if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
            && !access.contains(Access::LOCAL_WRITE)
        {
            return Err(CommandError::BadAccess);
        }
        let size = self.slots.len().min((1 << 24) - FIRST_KEY_INDEX as usize);
        let index = (0..size)
            .map(|step| (self.next + step) % size)
            .find(|&index| self.slots[index].region.is_none())
            .ok_or(CommandError::TableFull)?;
        self.next = index + 1;
        let slot = &mut self.slots[index];
        slot.region = Some(Region {
            protection_domain,
            range,
            access,
            invalidated: false,
        });
        let key = (index as u32 + FIRST_KEY_INDEX) << 8 | u32::from(slot.generation);
        Ok(Keys {
            local: LocalKey(key),
            remote: RemoteKey(key),
        })
    }

    pub(super) fn deregister(&mut self, key: LocalKey) -> Result<Region, CommandError> {
        let slot = self.slot(key.0).ok_or(CommandError::NoRegion)?;
        slot.generation = slot.generation.wrapping_add(1);
        slot.region.take().ok_or(CommandError::NoRegion)
    }

    /// Takes a region's keys away, as SEND with invalidate asks.
    pub(super) fn invalidate(
        &mut self,
        pd: ProtectionDomain,
        key: RemoteKey,
    ) -> Result<(), Denied> {
        let region = self
            .slot(key.0)
            .and_then(|slot| slot.region.as_mut())
            .filter(|region| region.protection_domain == pd && !region.invalidated)
            .ok_or(Denied)?;
        region.invalidated = true;
        Ok(())
    }

    /// Whether all of `range` may be accessed with this key.
    #[inline]
    pub(super) fn check(
        &self,
        pd: ProtectionDomain,
        key: u32,
        range: Range,
        access: Access,
    ) -> Result<(), Denied> {
        let slot = Self::index(key)
            .and_then(|index| self.slots.get(index))
            .ok_or(Denied)?;
        let region = slot.region.as_ref().ok_or(Denied)?;
        // Both lengths may be anything: compared by differences, nothing overflows.
        let offset = range
            .address
            .checked_sub(region.range.address)
            .ok_or(Denied)?;
        let allowed = slot.generation == key as u8
            && region.protection_domain == pd
            && !region.invalidated
            && region.access.contains(access)
            && offset <= region.range.length
            && range.length <= region.range.length - offset;
        if allowed { Ok(()) } else { Err(Denied) }
    }

    fn index(key: u32) -> Option<usize> {
        (key >> 8)
            .checked_sub(FIRST_KEY_INDEX)
            .map(|index| index as usize)
    }

    fn slot(&mut self, key: u32) -> Option<&mut RegionSlot> {
        self.slots
            .get_mut(Self::index(key)?)
            .filter(|slot| slot.generation == key as u8)
    }
}
