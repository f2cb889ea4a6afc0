//! Protection domains, registered memory and the check of every access.

use core::sync::atomic::AtomicU32;
#[cfg(not(target_arch = "nvptx64"))]
use core::sync::atomic::Ordering;

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
    /// Its low 8 bits are those of the key; the others tell old keys from new ones that look the same.
    generation: u32,
    region: Option<Region>,
}

/// Which key of a [`RegionSlot`] was taken away by a peer's SEND with invalidate. The engines that are one HCA
/// share these words, because a key that one of them takes away must not open anything at another.
#[derive(Debug, Default)]
pub struct RevokedKey(
    /// The slot's generation and 1; 0 at first.
    AtomicU32,
);

impl RevokedKey {
    /// What stands here once the key of this generation has been taken away.
    #[inline(always)]
    const fn mark(generation: u32) -> u32 {
        generation.wrapping_add(1)
    }

    #[inline]
    fn revoke(&self, generation: u32) {
        let value = Self::mark(generation);
        // Relaxed: who is to know of it sees a completion, which comes after it.
        #[cfg(not(target_arch = "nvptx64"))]
        self.0.store(value, Ordering::Relaxed);
        #[cfg(target_arch = "nvptx64")]
        warpbell_gpu::arch::store_in_block(&self.0, value);
    }

    #[inline(always)]
    fn load(&self) -> u32 {
        #[cfg(not(target_arch = "nvptx64"))]
        let value = self.0.load(Ordering::Relaxed);
        #[cfg(target_arch = "nvptx64")]
        let value = warpbell_gpu::arch::load_in_block(&self.0);
        value
    }
}

/// Registered memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    pub(super) protection_domain: ProtectionDomain,
    pub(super) range: Range,
    access: Access,
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
    revoked: &'t [RevokedKey],
    /// Where the search for a free slot starts: just after the last, so that a slot, and with it
    /// a key, comes back as late as possible.
    next: usize,
}

impl<'t> Regions<'t> {
    /// `revoked` has a word for each slot.
    pub(super) fn new(slots: &'t mut [RegionSlot], revoked: &'t [RevokedKey]) -> Self {
        // A slot without a word would be one whose keys cannot be taken away.
        let usable = slots.len().min(revoked.len());
        Self {
            slots: &mut slots[..usable],
            revoked,
            next: 0,
        }
    }

    /// Lets the first key of each slot follow from a seed.
    pub(super) fn start(&mut self, seed: u32) {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            // Multiplicative hashing: the upper bits of a product depend on all bits of its factors.
            let mixed = (seed ^ (index as u32).wrapping_mul(0x9e37_79b1)).wrapping_mul(0x85eb_ca6b);
            slot.generation = (mixed ^ mixed >> 16).wrapping_mul(0xc2b2_ae35) >> 24;
        }
    }

    pub(super) fn register(
        &mut self,
        protection_domain: ProtectionDomain,
        range: Range,
        access: Access,
    ) -> Result<Keys, CommandError> {
        Self::check_registration(range, access)?;
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
        });
        let key = (index as u32 + FIRST_KEY_INDEX) << 8 | slot.generation & 0xff;
        Ok(Keys {
            local: LocalKey(key),
            remote: RemoteKey(key),
        })
    }

    /// Whether a range may be registered for this.
    fn check_registration(range: Range, access: Access) -> Result<(), CommandError> {
        if range.length == 0 || range.address.checked_add(range.length).is_none() {
            return Err(CommandError::BadRange);
        }
        if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
            && !access.contains(Access::LOCAL_WRITE)
        {
            return Err(CommandError::BadAccess);
        }
        Ok(())
    }

    /// Lets a key open something else; gives what it opened before.
    pub(super) fn change(
        &mut self,
        key: LocalKey,
        protection_domain: ProtectionDomain,
        range: Range,
        access: Access,
    ) -> Result<Region, CommandError> {
        Self::check_registration(range, access)?;
        let slot = self.slot(key.0).ok_or(CommandError::NoRegion)?;
        let region = slot.region.as_mut().ok_or(CommandError::NoRegion)?;
        let new = Region {
            protection_domain,
            range,
            access,
        };
        Ok(core::mem::replace(region, new))
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
        let index = Self::index(key.0).ok_or(Denied)?;
        let slot = self.slot(key.0).ok_or(Denied)?;
        let region = slot.region.as_ref().ok_or(Denied)?;
        let (ours, generation) = (region.protection_domain == pd, slot.generation);
        let word = &self.revoked[index];
        if !ours || word.load() == RevokedKey::mark(generation) {
            return Err(Denied);
        }
        word.revoke(generation);
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
        let window = self.window(pd, key, access).ok_or(Denied)?;
        match window.spans(range) && window.revocation() != window.mark() {
            true => Ok(()),
            false => Err(Denied),
        }
    }

    /// What may be accessed with this key.
    #[inline]
    pub(super) fn window(
        &self,
        pd: ProtectionDomain,
        key: u32,
        access: Access,
    ) -> Option<Window<'t>> {
        let index = Self::index(key)?;
        let slot = self.slots.get(index)?;
        let region = slot.region.as_ref()?;
        let allowed = slot.generation as u8 == key as u8
            && region.protection_domain == pd
            && region.access.contains(access);
        allowed.then_some(Window {
            range: region.range,
            revoked: self.revoked.get(index)?,
            generation: slot.generation,
        })
    }

    fn index(key: u32) -> Option<usize> {
        (key >> 8)
            .checked_sub(FIRST_KEY_INDEX)
            .map(|index| index as usize)
    }

    fn slot(&mut self, key: u32) -> Option<&mut RegionSlot> {
        self.slots
            .get_mut(Self::index(key)?)
            .filter(|slot| slot.generation as u8 == key as u8)
    }
}

/// What a key is to open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The key.
    pub key: u32,
    /// The protection domain that it must belong to.
    pub domain: ProtectionDomain,
    /// What it must allow.
    pub access: Access,
}

impl Wanted {
    /// Nothing that anybody wants.
    pub const NOTHING: Self = Self {
        key: 0,
        domain: ProtectionDomain(0),
        access: Access::empty(),
    };
}

/// What a key opens to whoever looked it up.
#[derive(Clone, Copy, Debug)]
pub struct Window<'t> {
    range: Range,
    revoked: &'t RevokedKey,
    generation: u32,
}

/// The word of what is no key.
static NO_KEY: RevokedKey = RevokedKey(AtomicU32::new(0));

impl Window<'_> {
    /// Opens nothing.
    pub const NOTHING: Self = Self {
        range: Range {
            address: 0,
            length: 0,
        },
        revoked: &NO_KEY,
        generation: 0,
    };

    /// Whether all of `range` lies in it.
    #[inline(always)]
    pub const fn spans(&self, range: Range) -> bool {
        // Both lengths may be anything: compared by differences, nothing overflows. All compared, without branches.
        let offset = range.address.wrapping_sub(self.range.address);
        (range.address >= self.range.address)
            & (offset <= self.range.length)
            & (range.length <= self.range.length.wrapping_sub(offset))
    }

    /// Loads the word that says whether the key has been taken away: then [`mark`](Self::mark) stands there. On a GPU
    /// who does not need the answer at once waits once for several loads.
    #[inline(always)]
    pub fn revocation(&self) -> u32 {
        self.revoked.load()
    }

    /// What stands in that word once the key has been taken away.
    #[inline(always)]
    pub const fn mark(&self) -> u32 {
        RevokedKey::mark(self.generation)
    }
}
