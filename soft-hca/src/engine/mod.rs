//! The adapter itself.
//!
//! | supported | not (ends in a CQE with opcode 13, syndrome 0x02) |
//! |---|---|
//! | NOP, RDMA WRITE (with immediate), READ, SEND (with immediate, with invalidate) | RECV_EN |
//! | compare and swap, fetch and add, their masked forms of 4 and 8 bytes | UMR and every other opcode |
//! | inline data, several segments, fences, solicited events | |
//! | WAIT and SEND_EN, of queue pairs that may | of others |
//! | RC, UC, UD; shared receive queues | DC, XRC: there is no command that creates them |
//!
//! Its reliable connections can be read with the InfiniBand Architecture Specification, volume 1 (IBTA volume 1), beside
//! them: numbers such as 9.7.5 are its sections, those such as C9-105 its compliance statements, both as in release 1.5.
//! Each of them is also named in public text, above all in Linux' drivers. What no such text numbers has the number of
//! the section around it.
//!
//! One file, one job: [`mlx5_wqe::decode`] reads a WQE's bytes; `sending` and `receiving` are what a `queue_pair` keeps;
//! `requester` walks the send queue and retries, `responder` executes the peer's requests once each, `flush` ends what is
//! left in error; `shared_receive` gives receives of lists, `transfer` cuts and scatters payloads, `cross_channel` lets a
//! queue wait for others and start them, [`loan`] lends a queue to a [`dispatch`], which executes the [`plain`] writes
//! within the HCA without packets, `completion` writes CQEs, `doorbell` finds rings, `protection` checks every access,
//! `objects` has the commands, [`wire`] is the seam to other HCAs.

pub mod command;
mod completion;
mod cross_channel;
pub mod dispatch;
mod doorbell;
pub mod event;
pub mod execute;
pub mod fault;
mod flush;
pub mod gid;
mod list;
pub mod loan;
pub mod loopback;
pub mod memory;
mod objects;
pub mod packet;
pub mod plain;
mod protection;
mod psn;
mod queue_pair;
mod receiving;
mod requester;
mod responder;
mod send_wqe;
mod sending;
mod shared_receive;
mod transfer;
pub mod wire;

pub use command::{
    Access, CommandError, CompletionQueueAttributes, Counters, CqeSize, CrossChannel, ErrorPlace,
    FirstError, Keys, ProtectionDomain, QueuePairAttributes, QueuePairOptions, QueuePairState,
    QueuePairStatus, ReadyToReceive, ReadyToSend, ReceiveRing, SendDoorbell,
    SharedReceiveAttributes, SharedReceiveQueue, Topology, Transition, Transport,
};
pub use completion::CompletionQueueSlot;
pub use dispatch::{Dispatch, NoDispatch};
pub use doorbell::UarSlot;
pub use event::Event;
pub use execute::{Command, Reply, WrongReply};
pub use loopback::Loopback;
pub use memory::{DirectMemory, Memory};
pub use packet::WireAddress;
pub use protection::{ProtectionDomainSlot, RegionSlot, RevokedKey};
pub use queue_pair::QueuePairSlot;
pub use shared_receive::SharedReceiveSlot;
pub use wire::Wire;

use warpbell_gpu::trace;

use completion::{CompletionQueues, number_index};
use dispatch::Turn;
use doorbell::{Rung, Uars};
use list::List;
use packet::{Opcode, Packet};
use protection::{ProtectionDomains, Regions};
use queue_pair::{Context, QueuePair};
use send_wqe::SCRATCH;
use shared_receive::SharedReceives;

/// Where an engine keeps its tables; all entries fresh (`Default`). Each table has at most
/// 65,536 entries that are used.
#[derive(Debug)]
pub struct Storage<'t> {
    /// Protection domains.
    pub protection_domains: &'t mut [ProtectionDomainSlot],
    /// Registered memory.
    pub regions: &'t mut [RegionSlot],
    /// As many words as there are entries for regions; several engines that are one HCA share them.
    pub revoked: &'t [RevokedKey],
    /// Completion queues.
    pub completion_queues: &'t mut [CompletionQueueSlot],
    /// Queue pairs.
    pub queue_pairs: &'t mut [QueuePairSlot],
    /// UAR pages.
    pub uars: &'t mut [UarSlot],
}

/// Packets that a step takes from the wire at most.
const PACKETS_IN: usize = 256;
/// Payload bytes after which a step takes no further packet.
const BYTES_IN: u64 = 1 << 20;
/// Requests and answers that a queue pair sends, and WQEs that it flushes, of each in a step at most.
const PACKETS_OUT: usize = 64;

/// A software HCA.
///
/// Nothing happens between calls: commands act at once, everything else happens in
/// [`step`](Self::step).
#[derive(Debug)]
pub struct Engine<'t, M, W> {
    address: WireAddress,
    memory: M,
    wire: W,
    protection_domains: ProtectionDomains<'t>,
    regions: Regions<'t>,
    completion_queues: CompletionQueues<'t>,
    shared_receives: SharedReceives<'t>,
    queue_pairs: &'t mut [QueuePairSlot],
    uars: Uars<'t>,
    /// Queue pairs that have work.
    active: List,
    /// Queue pairs with an event to report.
    events: List,
    /// Queue pairs in error. Their records are looked at in turn, because a receive posted there
    /// rings no doorbell.
    failed: List,
    /// Queue pairs whose send queues wait for a CQE.
    waiting: List,
    /// One more than the last queue pair slot ever used.
    used: usize,
    /// The time of the newest step.
    now: u64,
    /// What the newest step did.
    work: usize,
    scratch: [u8; SCRATCH],
}

impl<'t, M: Memory, W: Wire> Engine<'t, M, W> {
    /// An engine without any object, whose address on `wire` is `address`.
    pub fn new(address: WireAddress, memory: M, wire: W, storage: Storage<'t>) -> Self {
        Self {
            address,
            memory,
            wire,
            protection_domains: ProtectionDomains(storage.protection_domains),
            regions: Regions::new(storage.regions, storage.revoked),
            completion_queues: CompletionQueues::new(storage.completion_queues),
            shared_receives: SharedReceives(&mut []),
            queue_pairs: storage.queue_pairs,
            uars: Uars::new(storage.uars),
            active: List::new(),
            events: List::new(),
            failed: List::new(),
            waiting: List::new(),
            used: 0,
            now: 0,
            work: 0,
            scratch: [0; SCRATCH],
        }
    }

    /// Lends it a table of shared receive queues, all entries fresh; without one it has none. Called once, before any
    /// of them is created.
    pub fn lend_shared_receive_queues(&mut self, table: &'t mut [SharedReceiveSlot]) {
        self.shared_receives = SharedReceives(table);
    }

    /// Lets the first key of each region follow from a seed, so that nobody without the seed can foresee the key. Engines
    /// that are one HCA need the same seed. Called once, before any region is registered; without it the keys of all
    /// regions begin with generation 0.
    pub fn start_keys(&mut self, seed: u32) {
        self.regions.start(seed);
    }

    /// Its address on the wire.
    pub const fn address(&self) -> WireAddress {
        self.address
    }

    /// Its access to memory.
    pub const fn memory(&self) -> &M {
        &self.memory
    }

    /// Its end of the wire.
    ///
    /// # Safety
    ///
    /// The wire must not be exchanged for another: packets under way borrow memory, and this
    /// engine takes them back through the wire that it sent them on.
    pub const unsafe fn wire(&mut self) -> &mut W {
        &mut self.wire
    }

    /// Does a bounded amount of work: looks at doorbells, executes WQEs, handles packets and
    /// timers. `now_ns` is the time in nanoseconds since any moment, and never goes back.
    ///
    /// Gives the number of things done (doorbells, WQEs, packets, completions, timers); 0 means
    /// that nothing was to be done, and the caller may pause.
    pub fn step(&mut self, now_ns: u64) -> usize {
        self.step_with(now_ns, &mut NoDispatch)
    }

    /// A [`step`](Self::step) in which a dispatch may borrow queues instead of letting the engine execute their plain
    /// writes.
    pub fn step_with(&mut self, now_ns: u64, dispatch: &mut impl Dispatch<'t>) -> usize {
        self.now = now_ns;
        let mut done = dispatch.collect(self);
        done += self.uars.step(
            &self.memory,
            &mut Rung {
                queue_pairs: self.queue_pairs,
                active: &mut self.active,
                completion_queues: &mut self.completion_queues,
            },
            self.work,
        );
        if self.wire.may_have_packets() && dispatch.recall() {
            done += self.receive_packets();
        }
        if self.failed.len() > 0 {
            self.patrol();
        }
        let mut active = self.active.len();
        while active > 0 && !dispatch.is_waiting() {
            active -= 1;
            let Some(index) = self.active.pop(self.queue_pairs, |slot| &mut slot.active) else {
                break;
            };
            match dispatch.turn(self, index) {
                Turn::Engine => done += self.advance(index),
                Turn::Later => self.enlist(index),
                Turn::Lent => done += 1,
            }
        }
        if dispatch.finish() {
            self.rotate();
        }
        self.work = done;
        done
    }

    /// Whoever was first is last next time: a wire may not have had room for all.
    fn rotate(&mut self) {
        if let Some(first) = self.active.pop(self.queue_pairs, |slot| &mut slot.active) {
            self.active
                .push(self.queue_pairs, first, |slot| &mut slot.active);
        }
    }

    /// Handles packets that have come.
    #[inline(never)]
    fn receive_packets(&mut self) -> usize {
        let (mut packets, mut bytes) = (0, 0);
        while packets < PACKETS_IN && bytes < BYTES_IN {
            let Some(packet) = self.wire.receive() else {
                break;
            };
            packets += 1;
            bytes += packet.payload_length();
            self.handle(&packet);
        }
        packets
    }

    /// Handles a packet: one that nobody waits for is dropped, as a card does, and its sender's
    /// timer notices.
    #[inline]
    fn handle(&mut self, packet: &Packet) {
        let header = &packet.header;
        let index = number_index(header.destination_qp);
        let Some(opcode) = Opcode::from_number(header.opcode) else {
            return;
        };
        let (pair, mut cx) = self.split(index as u32);
        let Some(pair) = pair.filter(|pair| {
            pair.number.get() == header.destination_qp && pair.is_for_me(opcode, header)
        }) else {
            return;
        };
        let length = packet.payload_length() as u32;
        cx.memory.record(trace::Kind::PacketIn, pair.number, length);
        match pair.options.transport {
            Transport::ReliableConnection if opcode.is_request() => {
                pair.handle_request(&mut cx, opcode, packet);
            }
            Transport::ReliableConnection => pair.handle_response(&mut cx, opcode, packet),
            Transport::UnreliableConnection => pair.handle_unreliable(&mut cx, opcode, packet),
            Transport::Datagram => pair.handle_datagram(&mut cx, packet),
        }
        self.follow_up(index as u32);
    }

    /// Lets a queue pair do what it can: retry, send, answer, flush.
    #[inline(never)]
    fn advance(&mut self, index: u32) -> usize {
        let (Some(pair), mut cx) = self.split(index) else {
            return 0;
        };
        let mut done = 0;
        let mut gate = None;
        if pair.is_busy() || pair.state == QueuePairState::Error {
            done += pair.check_timer(&mut cx);
            done += pair.send_requests(&mut cx, PACKETS_OUT);
            done += pair.send_answers(&mut cx, PACKETS_OUT);
            gate = pair.requester.take_gate();
        }
        if pair.state == QueuePairState::Error {
            done += pair.flush(&mut cx, PACKETS_OUT);
        }
        if let Some(gate) = gate {
            done += self.pass_gate(index, gate);
        }
        self.follow_up(index);
        done
    }

    /// A queue pair, and what it works with.
    #[inline]
    fn split(&mut self, index: u32) -> (Option<&mut QueuePair>, Context<'_, 't, M, W>) {
        let slot = self.queue_pairs.get_mut(index as usize);
        let context = Context {
            memory: &self.memory,
            wire: &mut self.wire,
            regions: &mut self.regions,
            completion_queues: &mut self.completion_queues,
            shared_receives: &mut self.shared_receives,
            scratch: &mut self.scratch,
            address: self.address,
            now: self.now,
        };
        (slot.and_then(|slot| slot.pair.as_mut()), context)
    }

    /// Sees to what follows from what happened to a queue pair.
    #[inline]
    fn follow_up(&mut self, index: u32) {
        self.enlist(index);
        if self.completion_queues.take_overrun() {
            self.spread_overrun();
        }
        self.tell_waiting();
    }

    /// Lists a queue pair where it belongs.
    #[inline]
    fn enlist(&mut self, index: u32) {
        let slot = &self.queue_pairs[index as usize];
        let Some(pair) = &slot.pair else {
            return;
        };
        let (busy, fatal) = (pair.is_busy(), pair.fatal_event);
        if pair.state == QueuePairState::Error {
            self.failed
                .push(self.queue_pairs, index, |slot| &mut slot.failed);
        }
        if busy {
            self.active
                .push(self.queue_pairs, index, |slot| &mut slot.active);
        }
        if fatal {
            self.events
                .push(self.queue_pairs, index, |slot| &mut slot.event);
        }
    }

    /// Puts every queue pair with a dead completion queue into error.
    fn spread_overrun(&mut self) {
        for index in 0..self.used as u32 {
            let (Some(pair), mut cx) = self.split(index) else {
                continue;
            };
            let dead = cx.completion_queues.is_dead(pair.send_cq)
                || cx.completion_queues.is_dead(pair.receive_cq);
            if dead && pair.state != QueuePairState::Reset {
                pair.fail_for_completion_queue(&mut cx);
                // No CQE, and so no overrun, follows at once: nothing here calls itself, and the
                // depth of a GPU's stack is known.
                self.enlist(index);
            }
        }
    }

    /// Looks at one queue pair in error in case it got receives to flush.
    fn patrol(&mut self) {
        let Some(index) = self.failed.pop(self.queue_pairs, |slot| &mut slot.failed) else {
            return;
        };
        let (pair, cx) = self.split(index);
        let Some(pair) = pair.filter(|pair| pair.state == QueuePairState::Error) else {
            return;
        };
        if pair.has_receive(cx.memory) {
            self.active
                .push(self.queue_pairs, index, |slot| &mut slot.active);
        }
        self.failed
            .push(self.queue_pairs, index, |slot| &mut slot.failed);
    }

    /// The next event, if there is one.
    pub fn poll_event(&mut self) -> Option<Event> {
        if let Some(event) = self.completion_queues.poll_event() {
            return Some(event);
        }
        while let Some(index) = self.events.pop(self.queue_pairs, |slot| &mut slot.event) {
            if let Some(pair) = &mut self.queue_pairs[index as usize].pair
                && core::mem::take(&mut pair.fatal_event)
            {
                return Some(Event::QueuePairFatal(pair.number));
            }
        }
        None
    }
}
