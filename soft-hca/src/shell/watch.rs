//! A watch over the requests that an HCA sends: it tells of those that a NIC or the memory behind it may be slow with.
//!
//! What to look for is from a study of SmartNICs, whose figures are in `docs/how-to/tuning.md`.

use std::fmt;
use std::prelude::v1::*;
use std::sync::Arc;

use crate::engine::packet::{Header, Opcode, PacketFlags};

/// From where on a watch tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchLimits {
    /// READs and WRITEs that are looked at together.
    pub window: u32,
    /// Bytes that a PCIe packet carries at the other end: 512 before a host's memory, 128 before a SmartNIC's own.
    pub pcie_payload: u32,
    /// More PCIe packets than aligned requests would take, of 100.
    pub extra_packets: u32,
    /// Bytes of a stretch of memory that is small enough to be crowded.
    pub stretch: u64,
    /// READs and WRITEs in one stretch, of 100 that fit it.
    ///
    /// None is told of with fewer. With a few more one may be missed, because a watch knows eight stretches alone: for
    /// certain it tells above (8 × `crowd` + 100) / 9 of 100, which are 56 where this is 50. Stretches begin at multiples
    /// of their size: what crowds around such a border counts for both, each its share.
    pub crowd: u32,
    /// Bytes of the longest READ that keeps no others waiting.
    pub longest_read: u32,
}

impl Default for WatchLimits {
    /// 4,096 requests; PCIe packets of 128 bytes, 25 of 100 more; half of the requests in 48 KiB (56 of 100 for certain); READs of 8
    /// MiB.
    fn default() -> Self {
        Self {
            window: 4096,
            pcie_payload: 128,
            extra_packets: 25,
            stretch: 48 << 10,
            crowd: 50,
            longest_read: 8 << 20,
        }
    }
}

/// What a watch has seen in one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Requests begin inside of a PCIe packet and take one more each: align them.
    Misaligned {
        /// How many do.
        requests: u64,
        /// PCIe packets that all requests take.
        packets: u64,
        /// Those that they would take if they were aligned.
        aligned: u64,
        /// The address of one of them.
        example: u64,
    },
    /// Requests crowd in a small stretch of memory: spread them.
    Crowded {
        /// How many are in it, at least.
        requests: u64,
        /// Of so many.
        of: u64,
        /// Where it begins.
        address: u64,
        /// Its bytes.
        stretch: u64,
    },
    /// READs keep others waiting: cut them into segments.
    LongReads {
        /// How many.
        reads: u64,
        /// Bytes of the longest.
        longest: u32,
    },
}

impl Advice {
    /// Which of the three it is.
    const fn kind(&self) -> usize {
        match self {
            Self::Misaligned { .. } => 0,
            Self::Crowded { .. } => 1,
            Self::LongReads { .. } => 2,
        }
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misaligned {
                requests,
                packets,
                aligned,
                example,
            } => write!(
                f,
                "{requests} requests begin inside of a PCIe packet, as that of {example:#x}: all take {packets} packets in place of {aligned}; align them"
            ),
            Self::Crowded {
                requests,
                of,
                address,
                stretch,
            } => write!(
                f,
                "{requests} of {of} requests crowd in {stretch} bytes from {address:#x}; spread them"
            ),
            Self::LongReads { reads, longest } => write!(
                f,
                "{reads} READs of up to {longest} bytes keep others waiting; cut them into segments"
            ),
        }
    }
}

/// Looks at the READs and WRITEs that an HCA sends, a window after the other, and tells at its end what it found, or
/// once the HCA is gone. It tells each of the three kinds less and less often: after a window, 2, 4, 8 and so on.
///
/// Its memory is a few hundred bytes, whatever it sees. It counts requests as they are sent. One that is sent again,
/// because nobody acknowledged it or because a wire was busy, counts once as long as no other request was seen between,
/// of its queue pair or of one whose number is the same modulo 32; otherwise it counts again. So
/// of two queue pairs with such numbers, whose requests a busy wire refuses in turn, each attempt counts.
#[derive(Clone)]
pub struct RequestWatch {
    limits: WatchLimits,
    tell: Arc<dyn Fn(Advice) + Send + Sync>,
    window: Box<Window>,
    pauses: [Pause; 3],
    /// The newest request of the queue pairs with these numbers, modulo theirs: one that a busy wire refuses comes again.
    newest: Box<[(u32, u32); 32]>,
}

impl fmt::Debug for RequestWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestWatch")
    }
}

/// How long a kind of advice is not told.
#[derive(Clone, Copy, Debug, Default)]
struct Pause {
    windows: u64,
    left: u64,
}

/// What is counted in a window.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    requests: u64,
    packets: u64,
    aligned_packets: u64,
    misaligned: u64,
    example: u64,
    long_reads: u64,
    longest: u32,
    /// Requests that fit a stretch, and the stretches that have most of them.
    short: u64,
    stretches: [Stretch; 8],
}

/// Requests to a stretch of an HCA's memory, less those that pushed it out.
#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    of: (u32, u64),
    requests: u64,
}

impl RequestWatch {
    /// A watch that tells by a warning of [`tracing`].
    pub fn new(limits: WatchLimits) -> Self {
        Self::telling(limits, |advice| tracing::warn!("{advice}"))
    }

    /// A watch that tells this function, on the thread that drives the HCA: it must return soon, and must not call the
    /// HCA.
    pub fn telling(limits: WatchLimits, tell: impl Fn(Advice) + Send + Sync + 'static) -> Self {
        Self {
            limits: WatchLimits {
                // None of these is a number of anything.
                window: limits.window.max(1),
                pcie_payload: limits.pcie_payload.max(1),
                stretch: limits.stretch.max(1),
                ..limits
            },
            tell: Arc::new(tell),
            window: Box::default(),
            pauses: [Pause::default(); 3],
            newest: Box::new([(u32::MAX, u32::MAX); 32]),
        }
    }

    /// Looks at a packet that is sent.
    pub(super) fn see(&mut self, header: &Header) {
        let is_read = header.opcode == Opcode::ReadRequest as u8;
        let begins_write =
            header.opcode == Opcode::Write as u8 && header.flags & PacketFlags::FIRST.bits() != 0;
        if !(is_read || begins_write) || header.length == 0 {
            return;
        }
        let packet = (header.source_qp, header.psn);
        let newest = &mut self.newest[header.source_qp as usize % 32];
        if std::mem::replace(newest, packet) == packet {
            return;
        }
        self.window.count(header, is_read, &self.limits);
        if self.window.requests == u64::from(self.limits.window) {
            self.end_window();
        }
    }

    fn end_window(&mut self) {
        let window = std::mem::take(&mut *self.window);
        for pause in &mut self.pauses {
            pause.left = pause.left.saturating_sub(1);
        }
        for advice in window.advice(&self.limits).into_iter().flatten() {
            let pause = &mut self.pauses[advice.kind()];
            if pause.left == 0 {
                pause.windows = (2 * pause.windows).max(1);
                pause.left = pause.windows;
                (self.tell)(advice);
            }
        }
    }
}

impl Drop for RequestWatch {
    fn drop(&mut self) {
        if self.window.requests != 0 {
            self.end_window();
        }
    }
}

impl Window {
    fn count(&mut self, header: &Header, is_read: bool, limits: &WatchLimits) {
        let (address, bytes) = (header.address, u64::from(header.length));
        self.requests += 1;
        let payload = u64::from(limits.pcie_payload);
        let aligned = bytes.div_ceil(payload);
        let packets = (address % payload + bytes).div_ceil(payload);
        self.aligned_packets += aligned;
        self.packets += packets;
        if packets > aligned {
            self.misaligned += 1;
            self.example = address;
        }
        if is_read && header.length > limits.longest_read {
            self.long_reads += 1;
            self.longest = self.longest.max(header.length);
        }
        if bytes <= limits.stretch {
            self.short += 1;
            self.gather((header.destination, address / limits.stretch));
        }
    }

    /// Counts a request to a stretch. What more than a ninth of them go to is among the eight at the end, with too few by
    /// at most an eighth of all others (Misra and Gries, *Finding repeated elements*, 1982): each time that it loses one,
    /// seven more do, and the request that comes is not counted.
    fn gather(&mut self, of: (u32, u64)) {
        let stretches = &mut self.stretches;
        let known = |stretch: &&mut Stretch| stretch.requests != 0 && stretch.of == of;
        if let Some(stretch) = stretches.iter_mut().find(known) {
            stretch.requests += 1;
            return;
        }
        match stretches.iter_mut().find(|stretch| stretch.requests == 0) {
            Some(free) => *free = Stretch { of, requests: 1 },
            None => {
                for stretch in stretches {
                    stretch.requests -= 1;
                }
            }
        }
    }

    fn advice(&self, limits: &WatchLimits) -> [Option<Advice>; 3] {
        let more = 100 * (self.packets - self.aligned_packets);
        let misaligned = more > u64::from(limits.extra_packets) * self.aligned_packets;
        let hottest = self.stretches.iter().max_by_key(|stretch| stretch.requests);
        // A few requests are no crowd.
        let enough = self.short >= u64::from(limits.window.min(64));
        let crowded = hottest.filter(|stretch| {
            enough && 100 * stretch.requests > u64::from(limits.crowd) * self.short
        });
        [
            misaligned.then_some(Advice::Misaligned {
                requests: self.misaligned,
                packets: self.packets,
                aligned: self.aligned_packets,
                example: self.example,
            }),
            crowded.map(|stretch| Advice::Crowded {
                requests: stretch.requests,
                of: self.short,
                address: stretch.of.1 * limits.stretch,
                stretch: limits.stretch,
            }),
            (self.long_reads != 0).then_some(Advice::LongReads {
                reads: self.long_reads,
                longest: self.longest,
            }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;
    use std::sync::{Arc, Mutex};
    use std::vec::Vec;

    use super::{Advice, RequestWatch, WatchLimits};
    use crate::engine::packet::{Header, Opcode, PacketFlags};

    const LIMITS: WatchLimits = WatchLimits {
        window: 100,
        pcie_payload: 128,
        extra_packets: 25,
        stretch: 1000,
        crowd: 50,
        longest_read: 5000,
    };

    /// A watch, what it has told, and the number of the next packet.
    struct Watched {
        watch: RequestWatch,
        told: Arc<Mutex<Vec<Advice>>>,
        psn: u32,
    }

    impl Watched {
        fn new() -> Self {
            let told = Arc::new(Mutex::new(Vec::new()));
            let list = Arc::clone(&told);
            Self {
                watch: RequestWatch::telling(LIMITS, move |advice| {
                    list.lock().unwrap().push(advice)
                }),
                told,
                psn: 0,
            }
        }

        fn send(&mut self, opcode: Opcode, address: u64, length: u32) {
            let header = Header {
                opcode: opcode as u8,
                flags: PacketFlags::FIRST.bits(),
                psn: self.psn,
                address,
                length,
                ..Header::default()
            };
            self.psn += 1;
            // Twice, as to a wire that is busy.
            self.watch.see(&header);
            self.watch.see(&header);
        }

        fn told(&self) -> Vec<Advice> {
            std::mem::take(&mut self.told.lock().unwrap())
        }
    }

    #[test]
    fn good_requests_are_not_told_of() {
        let mut watched = Watched::new();
        for request in 0..1000 {
            watched.send(Opcode::ReadRequest, 1024 * request, 128);
            watched.send(Opcode::Write, 1024 * request + 256, 5000);
            // Neither of these has an address of its own.
            watched.send(Opcode::Send, 1, 128);
            watched.send(Opcode::ReadResponse, 1, 128);
        }
        drop(watched.watch);
        assert_eq!(*watched.told.lock().unwrap(), []);
    }

    #[test]
    fn requests_that_take_more_packets_are_told_of() {
        let mut watched = Watched::new();
        // One of four begins so that it takes two packets: 25 of 100 more, and that is the limit.
        for request in 0..100 {
            let inside = if request % 4 == 0 { 64 } else { 0 };
            watched.send(Opcode::Write, 4096 * request + inside, 128);
        }
        assert_eq!(watched.told(), []);
        for request in 0..100 {
            let inside = if request % 4 == 0 || request == 99 {
                64
            } else {
                0
            };
            watched.send(Opcode::Write, 4096 * request + inside, 128);
        }
        let expected = Advice::Misaligned {
            requests: 26,
            packets: 126,
            aligned: 100,
            example: 4096 * 99 + 64,
        };
        assert_eq!(watched.told(), [expected]);
        // Small ones inside of one packet cost nothing more.
        for request in 0..300 {
            watched.send(Opcode::Write, 4096 * request + 72, 56);
        }
        assert_eq!(watched.told(), []);
    }

    #[test]
    fn crowds_are_told_of() {
        let mut watched = Watched::new();
        // Half of them in one stretch is the limit; the others are everywhere.
        for request in 0..100 {
            let address = match request % 2 {
                0 => 7000 + 8 * request,
                _ => 100_000 * request,
            };
            watched.send(Opcode::Write, address, 8);
        }
        assert_eq!(watched.told(), []);
        for request in 0..100 {
            let address = match request % 4 {
                0 => 100_000 * (request + 1),
                _ => 7000 + 8 * request,
            };
            watched.send(Opcode::ReadRequest, address, 8);
        }
        let told = watched.told();
        let [
            Advice::Crowded {
                requests,
                of: 100,
                address: 7000,
                stretch: 1000,
            },
        ] = told[..]
        else {
            panic!("{told:?}");
        };
        // At most a ninth too few.
        assert!((64..=75).contains(&requests), "{requests}");
        // Of eight stretches nothing is left out: 50 of 100 are no crowd, 51 are.
        let mut watched = Watched::new();
        for crowd in [50, 51] {
            for request in 0..100 {
                let stretch = if request < crowd { 1 } else { 2 + request % 7 };
                watched.send(Opcode::Write, 1000 * stretch, 8);
            }
        }
        let expected = Advice::Crowded {
            requests: 51,
            of: 100,
            address: 1000,
            stretch: 1000,
        };
        assert_eq!(watched.told(), [expected]);
        // Of as many stretches as there are other requests, each eighth takes one off: the worst case.
        let mut watched = Watched::new();
        for crowd in [55, 56] {
            for request in 0..100 {
                let stretch = if request < crowd { 1 } else { request };
                watched.send(Opcode::Write, 1000 * stretch, 8);
            }
            assert_eq!(watched.told().len(), crowd as usize - 55, "{crowd}");
        }
        // The same crowd, half on either side of a border.
        let mut watched = Watched::new();
        for request in 0..100 {
            watched.send(Opcode::Write, 7992 + 8 * (request % 2), 8);
        }
        assert_eq!(watched.told(), []);
        // Long ones are no crowd.
        for _ in 0..300 {
            watched.send(Opcode::Write, 0, 1001);
        }
        assert_eq!(watched.told(), []);
    }

    #[test]
    fn long_reads_are_told_of_less_and_less_often() {
        let mut watched = Watched::new();
        let mut told = Vec::new();
        for window in 0..40 {
            for request in 0..100 {
                let bytes = if request < 3 {
                    5120 + request as u32
                } else {
                    128
                };
                watched.send(Opcode::ReadRequest, 8192 * request, bytes);
            }
            let expected = Advice::LongReads {
                reads: 3,
                longest: 5122,
            };
            match watched.told()[..] {
                [] => {}
                [advice] if advice == expected => told.push(window),
                ref other => panic!("{other:?}"),
            }
        }
        assert_eq!(told, [0, 1, 3, 7, 15, 31]);
    }

    #[test]
    fn requests_that_are_sent_again_count_again_unless_they_are_the_newest() {
        let mut watched = Watched::new();
        let mut see = |source_qp, psn| {
            let header = Header {
                opcode: Opcode::ReadRequest as u8,
                source_qp,
                psn,
                length: 8,
                ..Header::default()
            };
            watched.watch.see(&header);
            watched.watch.window.requests
        };
        assert_eq!([see(1, 0), see(1, 0)], [1, 1], "the newest");
        assert_eq!(
            [see(2, 0), see(1, 0)],
            [2, 2],
            "another queue pair's between"
        );
        assert_eq!([see(1, 1), see(1, 0)], [3, 4], "one behind it between");
        assert_eq!([see(33, 0), see(1, 0)], [5, 6], "numbers that agree");
    }

    #[test]
    fn what_was_seen_last_is_told_in_the_end() {
        let mut watched = Watched::new();
        watched.send(Opcode::ReadRequest, 0, 1 << 20);
        for _ in 0..63 {
            watched.send(Opcode::Write, 0, 8);
        }
        assert_eq!(watched.told(), []);
        drop(watched.watch);
        let told = watched.told.lock().unwrap();
        let expected = Advice::LongReads {
            reads: 1,
            longest: 1 << 20,
        };
        assert_eq!(*told, [expected], "and so few are no crowd");
        let words = told[0].to_string();
        assert!(
            words.contains("1048576") && words.contains("segments"),
            "{words}"
        );
    }

    #[test]
    fn limits_of_nothing_do_not_divide() {
        let none = WatchLimits {
            window: 0,
            pcie_payload: 0,
            stretch: 0,
            ..LIMITS
        };
        let mut watch = RequestWatch::telling(none, |_| {});
        let header = Header {
            opcode: Opcode::ReadRequest as u8,
            length: 8,
            ..Header::default()
        };
        watch.see(&header);
        assert_eq!(watch.window.requests, 0, "a window of one");
    }
}
