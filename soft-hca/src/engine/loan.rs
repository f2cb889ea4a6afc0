//! Send queues that the engine lends to whoever executes their plain writes ([`Dispatch`](super::Dispatch)).
//!
//! A write between two queue pairs of one HCA needs no packet, and nothing of the engine's tables but a few
//! numbers: those are the [`Loan`]. While a queue is lent, the engine touches neither it nor its completion
//! queue nor its UAR page. It takes the loan back before it does anything that could concern the queue: any
//! command, any packet, any other WQE. Afterwards both queue pairs are as if the packets of the writes and
//! their acknowledgements had travelled.

use mlx5_wqe::{CqeOpcode, Opcode, QpNumber};

use super::Engine;
use super::command::{Access, ProtectionDomain, QueuePairState, Transport};
use super::completion::{Completion, number_index};
use super::memory::Memory;
use super::plain::{PlainWrite, block, plain_write};
use super::queue_pair::QueuePair;
use super::wire::Wire;

pub use super::completion::LentCompletions;
pub use super::doorbell::LentRegister;
pub use super::protection::{Wanted, Window};
pub use super::transfer::Ring;

/// What executing a queue's plain writes takes, and what has become of them.
#[derive(Clone, Copy, Debug)]
pub struct Loan {
    /// Index of the queue pair.
    queue_pair: u32,
    /// Its number.
    pub number: QpNumber,
    /// Its doorbell register.
    pub register: LentRegister,
    /// Address of its half of the doorbell record; none if the doorbell tells the producer index.
    pub record: Option<u64>,
    /// Its send ring.
    pub ring: Ring,
    /// The bytes of the longest plain write.
    pub mtu: u32,
    /// How its user calls it.
    user_index: u32,
    /// Its protection domain and its peer's.
    pub domains: [ProtectionDomain; 2],
    /// The producer index that is known.
    pub producer: u16,
    /// The oldest WQE that is not executed.
    pub tail: u16,
    /// How many WQEs were executed.
    pub executed: u32,
    /// Something was written since the last release fence.
    pub unordered: bool,
    /// Its completion queue.
    pub completions: LentCompletions,
}

impl Loan {
    /// Takes over what executing WQEs changes.
    #[inline(always)]
    pub const fn advance_to(&mut self, other: &Self) {
        self.producer = other.producer;
        self.tail = other.tail;
        self.executed = other.executed;
        self.unordered = other.unordered;
        self.completions.advance_to(&other.completions);
    }

    /// Where the CQE of a write goes that comes after `before` others, and its words.
    #[inline(always)]
    pub fn cqe(&self, write: &PlainWrite, index: u16, before: u32) -> (u64, [u64; 8]) {
        let (address, owner) = self.completions.slot(before);
        let completion = Completion {
            qpn: self.number,
            opcode: CqeOpcode::REQUESTER,
            wqe_opcode: Opcode::RDMA_WRITE,
            wqe_counter: index,
            byte_count: write.source.length as u32,
            immediate: 0,
            solicited: false,
            user_index: self.user_index,
            source: 0,
            error: None,
        };
        (address, completion.words(owner))
    }
}

impl QueuePair {
    /// Whether a write to `peer` now is one that could not but be executed at once.
    fn may_write_at_once(&self, peer: &Self) -> bool {
        self.state == QueuePairState::ReadyToSend
            && self.requester.is_at_rest()
            && matches!(
                peer.state,
                QueuePairState::ReadyToReceive | QueuePairState::ReadyToSend
            )
            && (self.remote_qp, self.number) == (peer.number, peer.remote_qp)
            && self.remote_address == peer.remote_address
            && peer.access.contains(Access::REMOTE_WRITE)
            && peer.responder.expects(self.requester.next_psn())
    }
}

impl<'t, M: Memory, W: Wire> Engine<'t, M, W> {
    /// Whether [`lend`](Self::lend) lends this queue now.
    #[inline(never)]
    pub fn may_lend(&self, index: u32) -> bool {
        // With packets under way it would have to be called back at once.
        if !self.wire.loops_back() || self.wire.may_have_packets() {
            return false;
        }
        let Some(slot) = self.queue_pairs.get(index as usize) else {
            return false;
        };
        let Some([pair, peer]) = self.ends(index) else {
            return false;
        };
        let (ring, tail) = (pair.ring(), pair.requester.tail);
        let posted = pair.requester.producer.wrapping_sub(tail);
        // A block that is not posted is not looked at: its owner may be writing it.
        let lendable = [pair, peer].map(|pair| pair.options.transport)
            == [Transport::ReliableConnection; 2]
            && pair.attributes.cross_channel.is_empty()
            && peer.number != pair.number
            && pair.remote_address == self.address
            && pair.may_write_at_once(peer)
            && slot.detour != Some(tail)
            && (1..=1 << ring.log_depth).contains(&posted)
            && self.completion_queues.may_lend(pair.send_cq)
            && self.uars.may_lend(pair.uar, index, slot.next_of_uar);
        if !lendable {
            return false;
        }
        let next = block(&self.memory, ring, tail);
        plain_write(&next, tail, ring, pair.number, pair.limits.mtu).plain
    }

    /// A queue pair and its peer, if both are here.
    fn ends(&self, index: u32) -> Option<[&QueuePair; 2]> {
        let pair = self.queue_pairs[index as usize].pair.as_ref()?;
        let peer = number_index(pair.remote_qp.get());
        Some([pair, self.queue_pairs.get(peer)?.pair.as_ref()?])
    }

    /// Lends the send queue of the queue pair with this table index, if a plain write is the next thing that the queue
    /// does.
    #[inline(never)]
    pub fn lend(&mut self, index: u32) -> Option<Loan> {
        if !self.may_lend(index) {
            return None;
        }
        let next_of_uar = self.queue_pairs[index as usize].next_of_uar;
        let [pair, _] = self.ends(index)?;
        let (uar, send_cq) = (pair.uar, pair.send_cq);
        let register = self.uars.lend(uar, index, next_of_uar)?;
        let completions = self.completion_queues.lend(send_cq)?;
        let [pair, peer] = self.ends(index)?;
        Some(Loan {
            queue_pair: index,
            number: pair.number,
            register,
            record: pair.send_record(),
            ring: pair.ring(),
            mtu: pair.limits.mtu,
            user_index: pair.options.user_index,
            domains: [pair, peer].map(|pair| pair.attributes.protection_domain),
            producer: pair.requester.producer,
            tail: pair.requester.tail,
            executed: 0,
            unordered: false,
            completions,
        })
    }

    /// Takes a loan back, once whoever had it has stopped to use it. `detour` says that the WQE at the tail is not plain:
    /// it goes the ordinary way.
    #[inline(never)]
    pub fn take_back(&mut self, loan: &Loan, detour: bool) {
        if loan.unordered {
            // What was written before whatever the engine stores from now on, CQEs above all.
            self.memory.release();
        }
        // The record as the borrower has read it before the WQEs that it told of.
        self.memory.acquire();
        let index = loan.queue_pair as usize;
        self.queue_pairs[index].detour = detour.then_some(loan.tail);
        let pair = self.queue_pairs[index].pair.as_ref();
        let peer = pair.map_or(index, |pair| number_index(pair.remote_qp.get()));
        let both = self
            .queue_pairs
            .get_disjoint_mut([index, peer])
            .map(|slots| slots.map(|slot| slot.pair.as_mut()));
        if let Ok([Some(pair), Some(peer)]) = both {
            pair.requester.producer = loan.producer;
            pair.requester.count_direct(loan.executed);
            peer.responder.count_direct(loan.executed);
            pair.counters.completed += u64::from(loan.executed);
            if loan.executed > 0 {
                pair.requester.progress(self.now);
            }
            self.uars.take_back(pair.uar);
        }
        self.completion_queues.take_back(&loan.completions);
        self.enlist(loan.queue_pair);
    }

    /// What may be accessed with this key; none if it is no key for that.
    pub fn window(&self, wanted: Wanted) -> Option<Window<'t>> {
        let Wanted {
            key,
            domain,
            access,
        } = wanted;
        self.regions.window(domain, key, access)
    }
}
