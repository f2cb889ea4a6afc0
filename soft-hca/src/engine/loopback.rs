//! The shortest wire: every packet comes back to the HCA that sent it.

use heapless::Deque;

use super::packet::{Header, Packet, RECEIVE_RANGES, Range, WireAddress};
use super::wire::{Busy, Limits, Retract, Wire};

/// A wire with one end that holds up to `PACKETS` packets and borrows their payload.
///
/// For an HCA alone in the world: tests, benchmarks, a first try.
#[derive(Debug)]
pub struct Loopback<const PACKETS: usize> {
    mtu: u32,
    packets: Deque<Packet, PACKETS>,
}

impl<const PACKETS: usize> Loopback<PACKETS> {
    /// A wire with packets of up to `mtu` bytes, a power of two of at least 256.
    pub const fn new(mtu: u32) -> Self {
        Self {
            mtu,
            packets: Deque::new(),
        }
    }
}

// SAFETY: payloads are the sender's own ranges, which stay readable until a retract that covers
// them; that takes their packets out.
unsafe impl<const PACKETS: usize> Wire for Loopback<PACKETS> {
    fn limits(&self, _to: WireAddress) -> Limits {
        Limits {
            mtu: self.mtu,
            ranges: RECEIVE_RANGES,
            extended_atomics: true,
        }
    }

    fn loops_back(&self) -> bool {
        true
    }

    #[inline]
    unsafe fn send(&mut self, header: &Header, payload: &[Range]) -> Result<(), Busy> {
        if self.packets.is_full() {
            return Err(Busy);
        }
        let packet = Packet::new(header, payload).ok_or(Busy)?;
        self.packets.push_back(packet).map_err(|_| Busy)
    }

    #[inline]
    fn may_have_packets(&self) -> bool {
        !self.packets.is_empty()
    }

    #[inline]
    fn receive(&mut self) -> Option<Packet> {
        self.packets.pop_front()
    }

    fn retract(&mut self, scope: Retract) {
        self.packets.retain(|packet| !scope.covers(packet));
    }
}
