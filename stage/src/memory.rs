//! Registered memory between two guards, and the comparison of every byte of it.

use std::fmt;

use warpbell::Word64;
use warpbell::wqe::{Local, Remote};
use warpbell_host_init::{
    Access, Buffer, Error, MemoryRegion, Placement, ProtectionDomain, RemoteMemory,
};
#[cfg(feature = "all")]
use warpbell_kernels::place::Place;

/// Bytes on each side of the registered ones that nobody may touch.
const GUARD: usize = 4096;

/// All words of a buffer that kernels have for themselves.
///
/// # Safety
/// It outlives the launch of each kernel that gets them, and nobody but kernels uses it meanwhile.
#[cfg(feature = "all")]
pub unsafe fn place(buffer: &Buffer) -> Place {
    // SAFETY: the buffer has as many bytes, aligned to pages; the rest is the caller's promise.
    unsafe { Place::new(buffer.as_ptr().cast(), buffer.len() as u64 / 8) }
}

/// The words of a buffer that kernels have for themselves.
///
/// # Errors
/// As [`Buffer::read`].
pub fn words(buffer: &Buffer) -> Result<Vec<u64>, Error> {
    let mut bytes = vec![0; buffer.len()];
    buffer.read(0, &mut bytes)?;
    let (words, _) = bytes.as_chunks();
    Ok(words.iter().map(|word| u64::from_ne_bytes(*word)).collect())
}

/// Registered memory with bytes on both sides that belong to the process but not to the NIC.
#[derive(Debug)]
pub struct Memory {
    /// Deregistered before the buffer is freed: fields are dropped in this order.
    region: MemoryRegion,
    buffer: Buffer,
    guard: Vec<u8>,
}

impl Memory {
    /// Registers `bytes` bytes, all zero, for every kind of access.
    ///
    /// # Errors
    /// Those of the allocation and the registration.
    pub fn new(
        domain: &ProtectionDomain,
        placement: Placement,
        bytes: usize,
    ) -> Result<Self, Error> {
        let buffer = Buffer::placed(placement, GUARD + bytes + GUARD)?;
        let guard: Vec<u8> = (0..GUARD).map(|index| (index * 31 + 7) as u8).collect();
        buffer.write(0, &guard)?;
        buffer.write(GUARD + bytes, &guard)?;
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        // SAFETY: the buffer outlives the region.
        let region = unsafe { domain.register_part(&buffer, GUARD, bytes, access)? };
        Ok(Self {
            region,
            buffer,
            guard,
        })
    }

    /// Registered bytes.
    #[expect(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// What is registered.
    pub fn region(&self) -> &MemoryRegion {
        &self.region
    }

    /// A piece of it, for this end's work requests.
    ///
    /// # Panics
    /// If it does not lie inside.
    pub fn local(&self, offset: usize, bytes: usize) -> Local {
        let bytes = u32::try_from(bytes).expect("a piece below 4 GiB");
        self.region.local(offset, bytes).expect("a piece inside")
    }

    /// Where it begins, for the other end's work requests.
    pub fn remote(&self, offset: usize) -> Remote {
        Remote {
            address: self.region.address() + offset as u64,
            key: self.region.rkey(),
        }
    }

    /// What another process needs to know of it.
    pub fn shared(&self) -> RemoteMemory {
        self.region.remote()
    }

    /// The word at a multiple of eight bytes.
    ///
    /// # Panics
    /// If it does not lie inside.
    pub fn word(&self, offset: usize) -> *const Word64 {
        assert!(
            offset.is_multiple_of(8) && offset + 8 <= self.len(),
            "a word inside"
        );
        // SAFETY: just checked.
        unsafe { self.region.as_ptr().add(offset) }.cast()
    }

    /// All its words, for kernels; of the last one, whatever of it is registered.
    ///
    /// # Safety
    /// It outlives the launch of each kernel that gets them, and nobody but kernels and NICs uses it meanwhile.
    #[cfg(feature = "all")]
    pub unsafe fn place(&self) -> Place {
        // SAFETY: the words lie inside, but for the rest of the last one: the guard has that. The rest is the caller's
        // promise.
        unsafe { Place::new(self.word(0), self.len().div_ceil(8) as u64) }
    }

    /// All registered bytes, where the host reaches them.
    ///
    /// # Safety
    /// They lie in the host's memory, and nobody writes them as long as they are lent: no NIC, and no kernel.
    pub unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: the region is as long, and lives as long as `self`; the caller's promise.
        unsafe { std::slice::from_raw_parts(self.region.as_ptr(), self.len()) }
    }

    /// The same to be written.
    ///
    /// # Safety
    /// They lie in the host's memory, and nobody else has them as long as they are lent: no NIC, no kernel, no other thread.
    #[expect(clippy::mut_from_ref, reason = "the memory belongs to the NIC, too")]
    pub unsafe fn bytes_mut(&self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.region.as_ptr(), self.len()) }
    }

    /// Overwrites the bytes from `offset` on.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.region.write(offset, bytes).expect("bytes inside");
    }

    /// The bytes from `offset` on.
    ///
    /// # Panics
    /// If they do not all lie inside.
    pub fn read(&self, offset: usize, bytes: usize) -> Vec<u8> {
        let mut found = vec![0; bytes];
        self.region.read(offset, &mut found).expect("bytes inside");
        found
    }

    /// Compares every registered byte with `expected`, and both guards with what they were.
    pub fn check(&self, expected: &[u8]) -> Result<(), Difference> {
        compare("the memory", expected, &self.read(0, self.len()))?;
        self.check_guards()
    }

    /// Whether [`check`](Self::check) finds no difference.
    pub fn holds(&self, expected: &[u8]) -> bool {
        self.check(expected).is_ok()
    }

    /// Compares both guards with what they were.
    pub fn check_guards(&self) -> Result<(), Difference> {
        for (place, offset) in [
            ("the guard before the memory", 0),
            ("the guard behind the memory", GUARD + self.len()),
        ] {
            let mut found = vec![0; GUARD];
            let read = self.buffer.read(offset, &mut found);
            read.expect("a guard lies inside its buffer");
            compare(place, &self.guard, &found)?;
        }
        Ok(())
    }
}

/// The first byte that is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Where.
    pub place: &'static str,
    /// Which byte.
    pub offset: usize,
    /// What it should be.
    pub expected: u8,
    /// What it is.
    pub found: u8,
    /// How many bytes differ in all.
    pub count: usize,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            place,
            offset,
            expected,
            found,
            count,
        } = self;
        write!(
            f,
            "byte {offset} of {place} is {found:#04x} instead of {expected:#04x}; {count} differ in all"
        )
    }
}

/// Compares every byte of two strings of the same length.
///
/// # Errors
/// The first difference.
pub fn compare(place: &'static str, expected: &[u8], found: &[u8]) -> Result<(), Difference> {
    assert_eq!(expected.len(), found.len(), "{place}: two lengths");
    let pairs = || expected.iter().zip(found).enumerate();
    let different = |(_, (expected, found)): &(usize, (&u8, &u8))| expected != found;
    match pairs().find(different) {
        None => Ok(()),
        Some((offset, (&expected, &found))) => Err(Difference {
            place,
            offset,
            expected,
            found,
            count: pairs().filter(different).count(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpbell_host_init::soft::{Drive, SoftOptions};
    use warpbell_host_init::{Device, Nic};

    fn memory() -> Memory {
        let options = SoftOptions {
            drive: Drive::ByHand,
            ..SoftOptions::default()
        };
        let device = Device::open(Nic::Soft(options)).unwrap();
        Memory::new(&device.protection_domain().unwrap(), Placement::Host, 100).unwrap()
    }

    #[test]
    fn every_wrong_byte_is_found() {
        let memory = memory();
        let expected: Vec<u8> = (0..100).map(|byte| byte * 2).collect();
        memory.write(0, &expected);
        assert_eq!(memory.check(&expected), Ok(()));
        for offset in 0..100 {
            memory.write(offset, &[expected[offset] ^ 0x10]);
            let difference = memory.check(&expected).unwrap_err();
            assert_eq!((difference.offset, difference.count), (offset, 1));
            assert_eq!(difference.expected ^ difference.found, 0x10);
            memory.write(offset, &expected[offset..=offset]);
        }
        assert_eq!(memory.check(&expected), Ok(()));
    }

    #[test]
    fn every_touched_guard_byte_is_found() {
        let memory = memory();
        let expected = memory.read(0, 100);
        let (first, last) = (0, GUARD + 100 + GUARD - 1);
        for offset in [first, GUARD - 1, GUARD + 100, last] {
            let mut byte = [0];
            memory.buffer.read(offset, &mut byte).unwrap();
            memory.buffer.write(offset, &[!byte[0]]).unwrap();
            let difference = memory.check(&expected).unwrap_err();
            assert!(difference.place.contains("guard"), "{difference}");
            memory.buffer.write(offset, &byte).unwrap();
        }
        assert_eq!(memory.check(&expected), Ok(()));
    }
}
