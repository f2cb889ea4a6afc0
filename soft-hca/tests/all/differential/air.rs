//! The wire between the two sides, with its faults. Time passes there in rounds.
//!
//! What a side sends in a round arrives in the next one or later. So it makes no difference whether the sides take
//! turns in one process or run in two.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use warpbell_soft_hca::engine::fault::{Fate, Pattern, Rates, Seeded};
use warpbell_soft_hca::engine::packet::{Header, Opcode, Packet, RECEIVE_RANGES, Range};
use warpbell_soft_hca::engine::wire::{Busy, Limits, Retract, SEND_RANGES};
use warpbell_soft_hca::engine::{Wire, WireAddress};

use super::plan::Plan;

/// How often the same packet may be lost, and how many answers in a row: with the jumps of the clock no more than the
/// retries of a queue pair.
const LOSSES: u32 = 2;

/// The payload of a packet under way.
pub enum Cargo {
    Copied(Vec<u8>),
    Lent(Packet),
}

pub struct Frame {
    due: u64,
    pub header: Header,
    pub cargo: Cargo,
}

impl Frame {
    /// A packet that has come from another process.
    pub fn arrived(header: Header, payload: Vec<u8>) -> Self {
        let cargo = Cargo::Copied(payload);
        Self {
            due: 0,
            header,
            cargo,
        }
    }
}

/// What is under way in one direction, the next to arrive first.
#[derive(Default)]
pub struct Lane {
    round: u64,
    frames: VecDeque<Frame>,
}

impl Lane {
    pub fn push(&mut self, frame: Frame) {
        let place = self.frames.partition_point(|other| other.due <= frame.due);
        self.frames.insert(place, frame);
    }

    /// The next packet that is due.
    pub fn pop(&mut self) -> Option<Frame> {
        let is_due = self.frames.front()?.due <= self.round;
        is_due.then(|| self.frames.pop_front())?
    }

    pub fn end_round(&mut self) {
        self.round += 1;
    }
}

pub type SharedLane = Rc<RefCell<Lane>>;

/// One side's end.
pub struct End {
    outgoing: SharedLane,
    incoming: SharedLane,
    mtu: u32,
    lends: bool,
    fates: Seeded,
    busy: Seeded,
    /// How often which packet was lost: by queue pair, PSN and opcode.
    lost: HashMap<(u32, u32, u8), u32>,
    /// How many answers of a queue pair were lost in a row.
    lost_answers: HashMap<u32, u32>,
    /// The payload of the packet that the engine has in hand.
    in_hand: Vec<u8>,
}

impl End {
    /// `lends` wants both sides in one process.
    pub fn new(plan: &Plan, side: usize, lends: bool, lanes: [SharedLane; 2]) -> Self {
        let [outgoing, incoming] = lanes;
        let rates = Rates {
            drop: plan.drop,
            delay: plan.delay,
            duplicate: plan.duplicate,
            longest_delay: plan.longest_delay,
        };
        let busy = Rates {
            drop: plan.busy,
            ..Rates::default()
        };
        let seed = plan.seed.wrapping_mul(4) + side as u64;
        Self {
            outgoing,
            incoming,
            mtu: plan.mtu,
            lends,
            fates: Seeded::new(seed, rates),
            busy: Seeded::new(!seed, busy),
            lost: HashMap::new(),
            lost_answers: HashMap::new(),
            in_hand: Vec::new(),
        }
    }

    /// Whether a packet that was to be lost may be.
    fn may_lose(&mut self, header: &Header) -> bool {
        let is_request = Opcode::from_number(header.opcode).is_some_and(Opcode::is_request);
        let key = (header.destination_qp, header.psn, header.opcode);
        let row = self.lost_answers.entry(header.source_qp).or_default();
        let lost = self.lost.entry(key).or_default();
        let may = *lost < LOSSES && (is_request || *row < LOSSES);
        if may {
            *lost += 1;
            *row += u32::from(!is_request);
        }
        may
    }

    fn fate(&mut self, header: &Header) -> Fate {
        let fate = self.fates.fate(header);
        if fate == Fate::Drop && self.may_lose(header) {
            return fate;
        }
        let is_answer = Opcode::from_number(header.opcode).is_some_and(|one| !one.is_request());
        if is_answer {
            self.lost_answers.insert(header.source_qp, 0);
        }
        if fate == Fate::Drop { Fate::Pass } else { fate }
    }

    fn cargo(&self, header: &Header, payload: &[Range]) -> Cargo {
        if self.lends {
            return Cargo::Lent(
                Packet::new(header, payload).expect("as many ranges as the limits"),
            );
        }
        let mut bytes = Vec::new();
        for range in payload {
            let from = std::ptr::with_exposed_provenance::<u8>(range.address as usize);
            // SAFETY: the engine vouches for the range, and nobody writes there meanwhile: both engines run here.
            bytes.extend(unsafe { std::slice::from_raw_parts(from, range.length as usize) });
        }
        Cargo::Copied(bytes)
    }
}

// SAFETY: what `receive` gives is copied and kept until its next call, or lent until it is retracted, which drops it.
unsafe impl Wire for End {
    fn limits(&self, _to: WireAddress) -> Limits {
        Limits {
            mtu: self.mtu,
            ranges: match self.lends {
                true => RECEIVE_RANGES,
                false => SEND_RANGES,
            },
            extended_atomics: true,
        }
    }

    unsafe fn send(&mut self, header: &Header, payload: &[Range]) -> Result<(), Busy> {
        if self.busy.fate(header) == Fate::Drop {
            return Err(Busy);
        }
        let length: u64 = payload.iter().map(|range| range.length).sum();
        assert!(
            length <= u64::from(self.mtu),
            "a packet longer than the MTU"
        );
        let (copies, delay) = match self.fate(header) {
            Fate::Pass => (1, 0),
            Fate::Drop => (0, 0),
            Fate::Delay(rounds) => (1, u64::from(rounds)),
            // The second one comes late.
            Fate::Duplicate => (2, u64::from(header.psn % 16)),
        };
        for copy in 0..copies {
            let cargo = self.cargo(header, payload);
            let mut lane = self.outgoing.borrow_mut();
            let late = match copies {
                2 => copy * delay,
                _ => delay,
            };
            let due = lane.round + 1 + late;
            lane.push(Frame {
                due,
                header: *header,
                cargo,
            });
        }
        Ok(())
    }

    fn receive(&mut self) -> Option<Packet> {
        let Frame { header, cargo, .. } = self.incoming.borrow_mut().pop()?;
        match cargo {
            Cargo::Lent(packet) => Some(packet),
            Cargo::Copied(bytes) => {
                self.in_hand = bytes;
                let range = Range {
                    address: self.in_hand.as_ptr().expose_provenance() as u64,
                    length: self.in_hand.len() as u64,
                };
                Packet::new(&header, &[range])
            }
        }
    }

    fn retract(&mut self, scope: Retract) {
        let is_kept = |frame: &Frame| match &frame.cargo {
            Cargo::Lent(packet) => !scope.covers(packet),
            Cargo::Copied(_) => true,
        };
        self.outgoing.borrow_mut().frames.retain(is_kept);
    }
}
