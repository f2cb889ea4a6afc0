//! Moving payloads: cutting a WQE's data into packets, and scattering packets into memory.

use mlx5_wqe::Local;

use super::command::{Access, ProtectionDomain};
use super::memory::Memory;
use super::packet::Range;
use super::protection::{Denied, Regions};
use super::wire::{Limits, SEND_RANGES};
use mlx5_wqe::decode::{BLOCK, DataItem, DataList, DecodedWqe};

/// The ranges of one outgoing packet.
pub(super) type Ranges = heapless::Vec<Range, SEND_RANGES>;

/// Where a send ring lies.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    /// Address of its first block.
    pub address: u64,
    /// Log₂ of its blocks.
    pub log_depth: u8,
}

impl Ring {
    /// Its size in bytes.
    pub(super) const fn bytes(&self) -> u64 {
        (BLOCK as u64) << self.log_depth
    }

    /// Where the block with this index begins.
    #[inline(always)]
    pub const fn block(self, index: u16) -> u64 {
        self.address + ((index as u64 * BLOCK as u64) & (self.bytes() - 1))
    }

    /// The bytes from `offset` of the WQE at block `index`, up to `length`, as one or, around the
    /// ring's end, two ranges.
    pub(super) const fn ranges(&self, index: u16, offset: u64, length: u64) -> [Range; 2] {
        let start = (index as u64 * BLOCK as u64 + offset) & (self.bytes() - 1);
        let room = self.bytes() - start;
        let first = if length < room { length } else { room };
        [
            Range {
                address: self.address + start,
                length: first,
            },
            Range {
                address: self.address,
                length: length - first,
            },
        ]
    }
}

/// Cuts the data of a SEND or WRITE into packets, always in the same places.
#[derive(Clone, Debug)]
pub(super) struct Cutter<'a> {
    items: DataList<'a>,
    ring: Ring,
    index: u16,
    /// Ranges of the current item that are still to go out.
    current: [Range; 2],
    limits: Limits,
}

impl<'a> Cutter<'a> {
    /// `limits.mtu` is the path MTU here.
    pub(super) const fn new(items: DataList<'a>, ring: Ring, index: u16, limits: Limits) -> Self {
        let nothing = Range {
            address: 0,
            length: 0,
        };
        Self {
            items,
            ring,
            index,
            current: [nothing; 2],
            limits,
        }
    }

    /// How many packets the message takes, at least 1.
    #[inline]
    pub(super) fn packets(wqe: &DecodedWqe<'a>, ring: Ring, index: u16, limits: Limits) -> u32 {
        if wqe.data.single().is_some() {
            return wqe.length.div_ceil(limits.mtu).max(1);
        }
        let mut cutter = Self::new(wqe.data, ring, index, limits);
        let mut packets = 0;
        let mut left = u64::from(wqe.length);
        while left > 0 {
            left -= cutter.next_packet(&mut Ranges::new());
            packets += 1;
        }
        packets.max(1)
    }

    /// Goes past that many packets.
    pub(super) fn skip(&mut self, packets: u32) {
        if packets == 0 {
            return;
        }
        if let Some(local) = self.items.single() {
            self.items.next();
            let done = u64::from(packets) * u64::from(self.limits.mtu);
            self.current[0] = Range {
                address: local.address + done,
                length: u64::from(local.length).saturating_sub(done),
            };
            return;
        }
        for _ in 0..packets {
            self.next_packet(&mut Ranges::new());
        }
    }

    /// The ranges of the next packet; gives their bytes.
    #[inline]
    pub(super) fn next_packet(&mut self, ranges: &mut Ranges) -> u64 {
        let mut room = u64::from(self.limits.mtu);
        let limit = self.limits.ranges.clamp(1, SEND_RANGES);
        while room > 0 && ranges.len() < limit {
            if self.current[0].length == 0 {
                if self.current[1].length > 0 {
                    self.current[0] = core::mem::take(&mut self.current[1]);
                } else if !self.load() {
                    break;
                }
                continue;
            }
            let current = &mut self.current[0];
            let take = current.length.min(room);
            let range = Range {
                address: current.address,
                length: take,
            };
            current.address += take;
            current.length -= take;
            room -= take;
            // There is room: the length was compared with the limit, which is the capacity.
            let _ = ranges.push(range);
        }
        u64::from(self.limits.mtu) - room
    }

    /// Goes to the next item.
    #[inline]
    fn load(&mut self) -> bool {
        let Some(item) = self.items.next() else {
            return false;
        };
        self.current = match item {
            DataItem::Memory(local) => [
                Range {
                    address: local.address,
                    length: item.length(),
                },
                Range::default(),
            ],
            DataItem::Inline { offset, length } => {
                self.ring.ranges(self.index, offset as u64, length as u64)
            }
        };
        true
    }
}

/// Checks every memory segment of a WQE.
#[inline]
pub(super) fn check_local(
    regions: &Regions<'_>,
    pd: ProtectionDomain,
    items: DataList<'_>,
    access: Access,
) -> Result<(), Denied> {
    for item in items {
        if let DataItem::Memory(local) = item {
            let range = Range {
                address: local.address,
                length: item.length(),
            };
            regions.check(pd, local.key.0, range, access)?;
        }
    }
    Ok(())
}

/// Why a payload could not be scattered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScatterError {
    /// The segments end before the payload does.
    TooSmall,
    /// A segment may not be written.
    Denied,
}

/// Copies payload ranges into memory segments, from `offset` bytes after their start. A segment
/// is checked whole before a byte goes into it.
pub(super) fn scatter<M: Memory>(
    memory: &M,
    regions: &Regions<'_>,
    pd: ProtectionDomain,
    segments: impl Iterator<Item = Local>,
    mut offset: u64,
    payload: &[Range],
) -> Result<(), ScatterError> {
    let mut sources = payload.iter().copied().filter(|range| range.length > 0);
    let mut source = sources.next();
    for local in segments {
        let mut target = Range {
            address: local.address,
            length: DataItem::Memory(local).length(),
        };
        if source.is_none() {
            break;
        }
        if offset >= target.length {
            offset -= target.length;
            continue;
        }
        regions
            .check(pd, local.key.0, target, Access::LOCAL_WRITE)
            .map_err(|Denied| ScatterError::Denied)?;
        target.address += offset;
        target.length -= offset;
        offset = 0;
        while target.length > 0
            && let Some(from) = &mut source
        {
            let length = from.length.min(target.length);
            // SAFETY: the wire vouches for the source until its next `receive`, and the target
            // lies in a registered range that may be written.
            unsafe { memory.copy(from.address, target.address, length as usize) };
            from.address += length;
            from.length -= length;
            target.address += length;
            target.length -= length;
            if from.length == 0 {
                source = sources.next();
            }
        }
    }
    match source {
        None => Ok(()),
        Some(_) => Err(ScatterError::TooSmall),
    }
}
