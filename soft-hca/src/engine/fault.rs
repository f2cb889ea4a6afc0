//! Faults on purpose: a wire that drops, delays and doubles packets.

use super::gid::Gid;
use super::packet::{Header, Packet, RECEIVE_RANGES, Range, WireAddress};
use super::wire::{Busy, Limits, Retract, Wire};

/// What becomes of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes out.
    Pass,
    /// It is lost.
    Drop,
    /// It goes out after that many further calls of [`Wire::receive`] on this end.
    Delay(u32),
    /// It goes out twice.
    Duplicate,
}

/// Decides the fate of packets.
pub trait Pattern {
    /// The fate of the next packet.
    fn fate(&mut self, header: &Header) -> Fate;
}

impl<F: FnMut(&Header) -> Fate> Pattern for F {
    fn fate(&mut self, header: &Header) -> Fate {
        self(header)
    }
}

/// Fates by a seeded generator: the same seed, the same fates.
#[derive(Clone, Debug)]
pub struct Seeded {
    state: u64,
    rates: Rates,
}

/// How often what befalls a packet, out of 1,000 packets; the rest pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    /// Lost.
    pub drop: u32,
    /// Delayed.
    pub delay: u32,
    /// Sent twice.
    pub duplicate: u32,
    /// The longest delay, in calls of [`Wire::receive`].
    pub longest_delay: u32,
}

impl Seeded {
    /// A generator that starts from `seed`.
    pub const fn new(seed: u64, rates: Rates) -> Self {
        Self { state: seed, rates }
    }

    /// The next number of the SplitMix64 generator (Steele, Lea, Flood 2014).
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Pattern for Seeded {
    fn fate(&mut self, _header: &Header) -> Fate {
        let die = (self.next() % 1000) as u32;
        let Rates {
            drop,
            delay,
            duplicate,
            longest_delay,
        } = self.rates;
        if die < drop {
            Fate::Drop
        } else if die < drop + delay {
            Fate::Delay(1 + (self.next() % u64::from(longest_delay.max(1))) as u32)
        } else if die < drop + delay + duplicate {
            Fate::Duplicate
        } else {
            Fate::Pass
        }
    }
}

/// The packets that a [`FaultyWire`] can hold back at a time; more pass at once.
pub const HELD_PACKETS: usize = 64;

/// A wire whose outgoing packets meet the fates of a [`Pattern`].
#[derive(Debug)]
pub struct FaultyWire<W, P> {
    inner: W,
    pattern: P,
    held: heapless::Vec<Held, HELD_PACKETS>,
}

/// A packet held back, and for how long.
#[derive(Debug)]
struct Held {
    packet: Packet,
    calls: u32,
}

impl<W: Wire, P: Pattern> FaultyWire<W, P> {
    /// Puts `pattern` before `inner`.
    pub const fn new(inner: W, pattern: P) -> Self {
        Self {
            inner,
            pattern,
            held: heapless::Vec::new(),
        }
    }

    /// Sends the packets whose delay is over.
    fn release(&mut self) {
        let mut index = 0;
        while index < self.held.len() {
            let held = &mut self.held[index];
            held.calls = held.calls.saturating_sub(1);
            if held.calls > 0 {
                index += 1;
                continue;
            }
            let Held { packet, .. } = self.held.swap_remove(index);
            // SAFETY: the payload was promised readable until a retract that covers it, and such
            // a packet is no longer held. A busy inner wire loses the packet, as wires may.
            let _ = unsafe { self.inner.send(&packet.header, &packet.payload) };
        }
    }
}

// SAFETY: received packets are the inner wire's; those held are forgotten when retracted.
unsafe impl<W: Wire, P: Pattern> Wire for FaultyWire<W, P> {
    fn limits(&self, to: WireAddress) -> Limits {
        let limits = self.inner.limits(to);
        Limits {
            // As many as a packet that is held back can name.
            ranges: limits.ranges.min(RECEIVE_RANGES),
            ..limits
        }
    }

    fn find(&self, gid: Gid) -> Option<WireAddress> {
        self.inner.find(gid)
    }

    unsafe fn send(&mut self, header: &Header, payload: &[Range]) -> Result<(), Busy> {
        let fate = self.pattern.fate(header);
        if fate == Fate::Drop {
            return Ok(());
        }
        if let Fate::Delay(calls) = fate
            && let Some(packet) = Packet::new(header, payload)
            && self.held.push(Held { packet, calls }).is_ok()
        {
            return Ok(());
        }
        if fate == Fate::Duplicate {
            // SAFETY: the caller's promise is passed on unchanged.
            unsafe { self.inner.send(header, payload)? };
        }
        // SAFETY: as above.
        unsafe { self.inner.send(header, payload) }
    }

    /// A packet that is to be late is not: its payload cannot be kept.
    unsafe fn send_copy(&mut self, header: &Header, payload: &[Range]) -> Result<(), Busy> {
        let fate = self.pattern.fate(header);
        if fate == Fate::Drop {
            return Ok(());
        }
        if fate == Fate::Duplicate {
            // SAFETY: the caller's promise is passed on unchanged.
            unsafe { self.inner.send_copy(header, payload)? };
        }
        // SAFETY: as above.
        unsafe { self.inner.send_copy(header, payload) }
    }

    fn receive(&mut self) -> Option<Packet> {
        self.release();
        self.inner.receive()
    }

    fn retract(&mut self, scope: Retract) {
        self.held.retain(|held| !scope.covers(&held.packet));
        self.inner.retract(scope);
    }
}
