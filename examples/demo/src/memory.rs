//! Registered memory between two guards, and the comparison of every byte of it.

use warpbell::Signal;
use warpbell::wqe::{Local, Remote};
use warpbell_host_init::{Access, Buffer, Error, MemoryRegion, ProtectionDomain};

/// Bytes on each side of the registered ones, which nobody may touch.
const GUARD: usize = 4096;
const GUARD_BYTE: u8 = 0xa7;

pub struct Memory {
    /// Deregistered before the buffer is freed: fields are dropped in this order.
    region: MemoryRegion,
    buffer: Buffer,
}

impl Memory {
    /// Registers memory with these bytes, for every kind of access.
    pub fn new(domain: &ProtectionDomain, bytes: &[u8]) -> Result<Self, Error> {
        let buffer = Buffer::placed(domain.placement(), GUARD + bytes.len() + GUARD)?;
        buffer.write(0, &guarded(bytes))?;
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        // SAFETY: the buffer outlives the region.
        let region = unsafe { domain.register_part(&buffer, GUARD, bytes.len(), access)? };
        Ok(Self { region, buffer })
    }

    /// A piece, for work requests of this end. It must be inside.
    pub fn local(&self, offset: usize, bytes: usize) -> Local {
        let local = self.region.local(offset, bytes as u32);
        local.expect("a piece inside")
    }

    /// Where work requests of the other end find the byte at `offset`.
    pub fn remote(&self, offset: usize) -> Remote {
        Remote {
            address: self.region.address() + offset as u64,
            key: self.region.rkey(),
        }
    }

    /// The word at `offset`, for a kernel to wait for.
    pub fn signal(&self, offset: usize) -> Signal<'_> {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.region.len());
        // SAFETY: an aligned word inside, which is there as long as `self`, and which NICs alone write.
        unsafe { Signal::new(self.region.as_ptr().add(offset).cast()) }
    }

    /// Overwrites one byte.
    #[cfg(test)]
    pub fn flip(&self, offset: usize) {
        let mut byte = [0];
        self.region.read(offset, &mut byte).expect("a byte inside");
        self.region.write(offset, &[!byte[0]]).expect("as above");
    }

    /// Compares every byte with what it should be, and both guards with what they were.
    pub fn check(&self, expected: &[u8]) -> Result<(), String> {
        let expected = guarded(expected);
        let mut found = vec![0; expected.len()];
        let read = self.buffer.read(0, &mut found);
        read.expect("as many bytes as were registered");
        let both = expected.iter().zip(&found).enumerate();
        let mut wrong = both.filter(|(_, (expected, found))| expected != found);
        let Some((index, (expected, found))) = wrong.next() else {
            return Ok(());
        };
        Err(format!(
            "byte {} is {found:#04x} instead of {expected:#04x}, {} bytes are wrong",
            index as i64 - GUARD as i64,
            1 + wrong.count()
        ))
    }

    pub fn is_unchanged(&self, expected: &[u8]) -> bool {
        self.check(expected).is_ok()
    }
}

fn guarded(bytes: &[u8]) -> Vec<u8> {
    let guard = [GUARD_BYTE; GUARD];
    [&guard, bytes, &guard].concat()
}
