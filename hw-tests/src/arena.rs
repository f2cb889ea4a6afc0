//! Registered memory between guards, and what it should look like.

use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use warpbell::wqe::{Local, Remote};
use warpbell_host_init::{Access, Buffer, MemoryRegion, ProtectionDomain};

use crate::here;

/// Bytes before and after the registered range that nobody may touch.
pub const GUARD: usize = 4096;

/// Registered memory with guards on both sides, all of it random bytes.
///
/// A test takes an [`Image`], does to it what should happen, and compares: every byte that nobody should
/// write is a canary.
pub struct Arena {
    // Dropped before the buffer, so that the NIC lets go first.
    region: MemoryRegion,
    buffer: Buffer,
}

impl Arena {
    /// Registers `bytes` bytes.
    pub fn new(domain: &ProtectionDomain, bytes: usize, access: Access, seed: u64) -> Self {
        let buffer =
            Buffer::placed(here::node().nic_placement(), bytes + 2 * GUARD).expect("memory");
        let mut random = vec![0; buffer.len()];
        SmallRng::seed_from_u64(seed).fill_bytes(&mut random);
        buffer.write(0, &random).expect("inside");
        let region = register(domain, &buffer, access);
        Self { region, buffer }
    }

    /// Registers the same range once more.
    pub fn register_again(&self, domain: &ProtectionDomain, access: Access) -> MemoryRegion {
        register(domain, &self.buffer, access)
    }

    /// The registered range.
    pub fn region(&self) -> &MemoryRegion {
        &self.region
    }

    /// Address of the first registered byte.
    pub fn address(&self) -> u64 {
        self.region.address()
    }

    /// Registered bytes from `offset` on; nothing is checked, so that a test can ask for too much.
    pub fn local(&self, offset: i64, length: u32) -> Local {
        Local {
            address: self.address().wrapping_add_signed(offset),
            length,
            key: self.region.lkey(),
        }
    }

    /// The same for the other side.
    pub fn remote(&self, offset: i64) -> Remote {
        Remote {
            address: self.address().wrapping_add_signed(offset),
            key: self.region.rkey(),
        }
    }

    /// All bytes as they are now, guards too.
    pub fn image(&self) -> Image {
        let mut bytes = vec![0; self.buffer.len()];
        self.buffer.read(0, &mut bytes).expect("inside");
        Image {
            first: self.buffer.as_ptr() as u64,
            bytes,
        }
    }

    /// Whether all bytes are as `expected`; if not, the test fails and names the first that differs.
    #[track_caller]
    pub fn check(&self, expected: &Image, what: &str) {
        let found = self.image();
        assert_eq!(found.first, expected.first, "{what}: another arena");
        let differs = found
            .bytes
            .iter()
            .zip(&expected.bytes)
            .position(|(a, b)| a != b);
        if let Some(place) = differs {
            let count = (place..found.bytes.len())
                .filter(|&at| found.bytes[at] != expected.bytes[at])
                .count();
            panic!(
                "{what}: byte {} of {} is {:#04x}, not {:#04x}; {count} bytes differ",
                place as i64 - GUARD as i64,
                found.bytes.len() - 2 * GUARD,
                found.bytes[place],
                expected.bytes[place],
            );
        }
    }
}

fn register(domain: &ProtectionDomain, buffer: &Buffer, access: Access) -> MemoryRegion {
    // SAFETY: every region that a test makes of the buffer is dropped before it.
    unsafe { domain.register_part(buffer, GUARD, buffer.len() - 2 * GUARD, access) }
        .expect("a region")
}

/// The bytes of an arena, guards too, at their addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    first: u64,
    bytes: Vec<u8>,
}

impl Image {
    fn range(&self, address: u64, length: usize) -> std::ops::Range<usize> {
        let start = (address - self.first) as usize;
        start..start + length
    }

    /// The bytes at an address.
    pub fn get(&self, address: u64, length: usize) -> &[u8] {
        &self.bytes[self.range(address, length)]
    }

    /// Changes bytes at an address.
    pub fn set(&mut self, address: u64, bytes: &[u8]) {
        let range = self.range(address, bytes.len());
        self.bytes[range].copy_from_slice(bytes);
    }

    /// The bytes of several pieces, one after the other.
    pub fn gather(&self, pieces: &[Local]) -> Vec<u8> {
        let piece = |piece: &Local| self.get(piece.address, piece.length as usize).to_vec();
        pieces.iter().flat_map(piece).collect()
    }

    /// Spreads bytes over pieces.
    pub fn scatter(&mut self, pieces: &[Local], mut bytes: &[u8]) {
        for piece in pieces {
            let (here, rest) = bytes.split_at(bytes.len().min(piece.length as usize));
            self.set(piece.address, here);
            bytes = rest;
        }
    }
}
