//! Congestion control: DCQCN (Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015) in its
//! simplest form.
//!
//! | who | what | here |
//! |---|---|---|
//! | switch | marks packets where its queue is long (ECN: CE) | not ours |
//! | receiver | tells the sender by a congestion notification packet, one in 50 µs for each flow | [`Flows::notify`] |
//! | sender | cuts the flow's rate, and raises it again by a timer | [`Rate`] |
//!
//! A flow is what one queue pair sends to one HCA. A notification names the queue pair that sent, which a packet over RC
//! or UC does not: it is the one to which this end's queue pair sends.
//!
//! The byte counter and hyper increase of the paper are left out: a flow recovers by time alone.

use std::collections::HashMap;
use std::prelude::v1::*;

use crate::engine::WireAddress;
use crate::engine::packet::{Header, Opcode};

/// Nanoseconds between two notifications of one flow (the paper's N).
const NOTIFY_EVERY_NS: u64 = 50_000;
/// The period of the timers: without a notification, alpha decays and the rate rises (K and T).
const PERIOD_NS: u64 = 55_000;
/// The weight of a notification in alpha (g).
const WEIGHT: f64 = 1.0 / 256.0;
/// Periods of fast recovery, before the target rises, too (F).
const RECOVERY: u32 = 5;
/// By how much the target rises in a period then (R_AI, 40 Mb/s), in bytes a second.
const INCREASE: f64 = 5e6;
/// The rate before the first notification (40 Gb/s, as the paper's cards), in bytes a second. A flow that has come back to
/// it has no limit any more.
const LINE_RATE: f64 = 5e9;
/// The lowest rate, in bytes a second: acknowledgement timers must not run out for its sake.
const LOWEST_RATE: f64 = 1e7;
/// Bytes that a flow may send at once after a pause.
const BURST: f64 = 65_536.0;
/// Flows that are remembered at most.
const MOST: usize = 4096;

/// The rate of a flow that was notified.
#[derive(Clone, Copy, Debug)]
struct Rate {
    /// In bytes a second.
    current: f64,
    /// What it comes back to.
    target: f64,
    /// How congested the way is, as far as known.
    alpha: f64,
    /// Periods since the last notification.
    periods: u32,
    period_began: u64,
    /// Bytes that may go now; below 0 after a packet that was longer.
    credit: f64,
    credited: u64,
}

impl Rate {
    const fn new(now: u64) -> Self {
        Self {
            current: LINE_RATE,
            target: LINE_RATE,
            alpha: 1.0,
            periods: 0,
            period_began: now,
            credit: BURST,
            credited: now,
        }
    }

    /// A notification has come.
    fn cut(&mut self, now: u64) {
        self.advance(now);
        self.target = self.current;
        self.current = (self.current * (1.0 - self.alpha / 2.0)).max(LOWEST_RATE);
        self.alpha = (1.0 - WEIGHT) * self.alpha + WEIGHT;
        self.periods = 0;
        self.period_began = now;
    }

    /// Lets the time pass.
    fn advance(&mut self, now: u64) {
        // What a period adds does not matter once the line's rate is reached, so that a long pause is a short loop.
        while now.saturating_sub(self.period_began) >= PERIOD_NS && !self.is_over() {
            self.period_began += PERIOD_NS;
            self.periods += 1;
            self.alpha *= 1.0 - WEIGHT;
            if self.periods > RECOVERY {
                self.target = (self.target + INCREASE).min(LINE_RATE + INCREASE);
            }
            self.current = f64::midpoint(self.current, self.target);
        }
        let seconds = now.saturating_sub(self.credited) as f64 * 1e-9;
        self.credit = (self.credit + seconds * self.current).min(BURST);
        self.credited = now;
    }

    /// Whether the rate is the line's again.
    fn is_over(&self) -> bool {
        self.current >= LINE_RATE
    }

    /// Takes credit for a packet; false if there is none.
    fn take(&mut self, now: u64, bytes: u64) -> bool {
        self.advance(now);
        let may = self.credit > 0.0;
        if may {
            self.credit -= bytes as f64;
        }
        may
    }
}

/// A flow, and the one that comes back.
struct Flow {
    /// The queue pair that this flow goes to.
    destination_qp: u32,
    /// When the flow that comes back was last notified.
    notified: Option<u64>,
    /// The limit of this flow.
    rate: Option<Rate>,
}

/// The HCA that a flow goes to, and the queue pair here.
type Name = (WireAddress, u32);

/// The flows of a port.
#[derive(Default)]
pub(super) struct Flows {
    flows: HashMap<Name, Flow>,
    /// The flow of the last packet, which needs no look if nobody has a limit.
    latest: Option<(Name, u32)>,
    /// How many have a limit.
    limited: usize,
}

impl Flows {
    /// A packet is to go out; false if it has to wait. The time is only looked at where there is a limit.
    #[inline]
    pub fn send(&mut self, header: &Header, bytes: u64, now: impl FnOnce() -> u64) -> bool {
        let name = (WireAddress(header.destination), header.source_qp);
        let latest = Some((name, header.destination_qp));
        if self.limited == 0 && self.latest == latest {
            return true;
        }
        self.latest = latest;
        self.look(name, header, bytes, now)
    }

    fn look(&mut self, name: Name, header: &Header, bytes: u64, now: impl FnOnce() -> u64) -> bool {
        if self.flows.len() >= MOST && !self.flows.contains_key(&name) {
            self.flows.clear();
            self.limited = 0;
        }
        let flow = self.flows.entry(name).or_insert(Flow {
            destination_qp: 0,
            notified: None,
            rate: None,
        });
        flow.destination_qp = header.destination_qp;
        let Some(rate) = &mut flow.rate else {
            return true;
        };
        if !carries_data(header) {
            return true;
        }
        let may = rate.take(now(), bytes);
        if rate.is_over() {
            flow.rate = None;
            self.limited -= 1;
        }
        may
    }

    /// A marked packet has come: the queue pair that sent it, if it is to be notified now.
    pub fn notify(&mut self, header: &Header, now: u64) -> Option<u32> {
        let name = (WireAddress(header.source), header.destination_qp);
        // A flow that nothing was sent back to is not known yet.
        let flow = self.flows.get_mut(&name)?;
        let waits = |then: u64| now.saturating_sub(then) < NOTIFY_EVERY_NS;
        if flow.notified.is_some_and(waits) {
            return None;
        }
        flow.notified = Some(now);
        Some(match header.source_qp {
            Header::UNKNOWN_QP => flow.destination_qp,
            known => known,
        })
    }

    /// A notification has come from that HCA for this queue pair.
    pub fn notified(&mut self, source: WireAddress, own_qp: u32, now: u64) {
        let Some(flow) = self.flows.get_mut(&(source, own_qp)) else {
            return;
        };
        if flow.rate.is_none() {
            self.limited += 1;
        }
        flow.rate.get_or_insert(Rate::new(now)).cut(now);
    }
}

/// Whether a packet counts: answers without data are never held back.
fn carries_data(header: &Header) -> bool {
    !matches!(
        Opcode::from_number(header.opcode),
        Some(Opcode::Acknowledge | Opcode::Refuse | Opcode::AtomicResponse)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: WireAddress = WireAddress(5);
    const MS: u64 = 1_000_000;

    fn header(opcode: Opcode) -> Header {
        Header {
            destination: PEER.0,
            destination_qp: 77,
            source_qp: 3,
            opcode: opcode as u8,
            ..Header::default()
        }
    }

    /// Bytes that a flow sends in this time, if it always wants to, in packets of 4 KiB.
    fn sent(flows: &mut Flows, from: u64, to: u64) -> u64 {
        let mut bytes = 0;
        for now in (from..to).step_by(1000) {
            while flows.send(&header(Opcode::Write), 4096, || now) {
                bytes += 4096;
                if bytes > 1 << 30 {
                    return bytes;
                }
            }
        }
        bytes
    }

    #[test]
    fn without_notifications_nothing_is_held_back_nor_timed() {
        let mut flows = Flows::default();
        for _ in 0..1000 {
            assert!(flows.send(&header(Opcode::Write), 4096, || unreachable!("no limit")));
        }
        // Of a flow that is not known.
        flows.notified(PEER, 4, 0);
        flows.notified(WireAddress(6), 3, 0);
        assert!(flows.send(&header(Opcode::Write), 4096, || unreachable!("no limit")));
    }

    /// The first cut halves the rate, because alpha begins at 1; each further one at least nearly so.
    #[test]
    fn a_notification_halves_the_rate() {
        let mut rate = Rate::new(0);
        rate.cut(10);
        assert_eq!((rate.current, rate.target), (LINE_RATE / 2.0, LINE_RATE));
        rate.cut(20);
        assert_eq!(
            (rate.current, rate.target),
            (LINE_RATE / 4.0, LINE_RATE / 2.0)
        );
        for now in 0..100 {
            rate.cut(30 + now);
        }
        assert_eq!(rate.current, LOWEST_RATE);
    }

    /// By hand: after one cut the rate is 1/2, then 3/4, 7/8 and so on; alpha decays by 255/256 a period.
    #[test]
    fn recovery_halves_the_way_to_the_target_each_period() {
        let mut rate = Rate::new(0);
        rate.cut(0);
        rate.advance(PERIOD_NS - 1);
        assert_eq!(rate.current, LINE_RATE / 2.0);
        rate.advance(PERIOD_NS);
        assert_eq!(rate.current, LINE_RATE * 0.75);
        rate.advance(3 * PERIOD_NS);
        assert_eq!(rate.current, LINE_RATE * 0.9375);
        assert!((rate.alpha - (255.0f64 / 256.0).powi(3)).abs() < 1e-9);
        assert_eq!(rate.target, LINE_RATE);
        rate.advance(1000 * MS);
        assert!(rate.is_over());
    }

    /// Behind the fast recovery the target rises by 5 MB/s a period.
    #[test]
    fn the_target_rises_behind_the_fast_recovery() {
        let mut rate = Rate::new(0);
        for _ in 0..4 {
            rate.cut(0);
        }
        let target = rate.target;
        rate.advance(5 * PERIOD_NS);
        assert_eq!(rate.target, target);
        rate.advance(7 * PERIOD_NS);
        assert_eq!(rate.target, target + 2.0 * INCREASE);
    }

    #[test]
    fn a_flow_that_is_notified_slows_down_and_recovers() {
        let mut flows = Flows::default();
        assert!(flows.send(&header(Opcode::Write), 4096, || 0));
        // Notifications as often as they come: the lowest rate.
        for now in (0..10 * MS).step_by(NOTIFY_EVERY_NS as usize) {
            flows.notified(PEER, 3, now);
        }
        let bytes = sent(&mut flows, 10 * MS, 10 * MS + PERIOD_NS / 2);
        assert!(bytes <= 65_536 + 2 * 4096, "{bytes}");
        // What is no data passes; another flow does, too.
        assert!(flows.send(&header(Opcode::Acknowledge), 20, || 10 * MS));
        let other = Header {
            source_qp: 4,
            ..header(Opcode::Write)
        };
        assert!(flows.send(&other, 4096, || 10 * MS));
        // And a second later there is no limit.
        assert!(flows.send(&header(Opcode::Write), 4096, || 1000 * MS));
        assert_eq!(flows.limited, 0);
        assert!(sent(&mut flows, 1000 * MS, 1001 * MS) > 1 << 30);
    }

    #[test]
    fn marked_packets_are_told_of_once_in_50_us_and_flow() {
        let mut flows = Flows::default();
        let marked = Header {
            source: PEER.0,
            destination_qp: 3,
            source_qp: Header::UNKNOWN_QP,
            ..Header::default()
        };
        assert_eq!(flows.notify(&marked, 0), None, "nobody knows who sent it");
        assert!(flows.send(&header(Opcode::Acknowledge), 20, || 0));
        let told: Vec<u64> = (0..200_000)
            .step_by(10_000)
            .filter(|now| flows.notify(&marked, *now) == Some(77))
            .collect();
        assert_eq!(told, [0, 50_000, 100_000, 150_000]);
        // A datagram says who sent it.
        let datagram = Header {
            source_qp: 78,
            ..marked
        };
        assert_eq!(flows.notify(&datagram, 200_000), Some(78));
    }

    #[test]
    fn not_every_flow_there_ever_was_is_remembered() {
        let mut flows = Flows::default();
        for source_qp in 0..3 * MOST as u32 {
            let header = Header {
                source_qp,
                ..header(Opcode::Write)
            };
            assert!(flows.send(&header, 1, || 0));
            flows.notified(PEER, source_qp, 0);
            assert!(flows.flows.len() <= MOST && flows.limited <= MOST);
        }
    }
}
