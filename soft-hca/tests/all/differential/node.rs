//! One side: an engine, its memory, and a user who posts, polls and checks each completion.

use std::collections::VecDeque;

use mlx5_wqe::segment::{Atomic, Data, InlineHeader, RemoteAddress};
use mlx5_wqe::{
    CqDoorbellRecord, CqNumber, Cqe64, CqeOpcode, Doorbell, DoorbellRecord, Fence, Local, LocalKey,
    Octoword, Opcode, QpNumber, Remote, RemoteKey, Syndrome, UarPage, Wqe, WqeIndex,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use warpbell_soft_hca::engine::{
    Access, CompletionQueueAttributes, CompletionQueueSlot, CrossChannel, DirectMemory, Engine,
    ProtectionDomain, ProtectionDomainSlot, QueuePairAttributes, QueuePairSlot, ReadyToReceive,
    ReadyToSend, ReceiveRing, RegionSlot, RevokedKey, SendDoorbell, Storage, Transition, UarSlot,
    WireAddress,
};

use super::air::End;
use super::arena::Arena;
use super::plan::{Layout, Operation, Piece, Plan, Poison, RECEIVE_SEGMENTS, Verb, Way};

const LOG_RECEIVE_DEPTH: u8 = 3;
/// Longer than all delays of packets together, which last at most 46 rounds.
const TIMEOUT_NS: u64 = 1_000_000;
const RNR_NS: u32 = 20_000;
/// How far the clock goes in a round, and how far it jumps.
const ROUND_NS: std::ops::Range<u64> = 100..12_000;
const JUMP_NS: std::ops::Range<u64> = TIMEOUT_NS..1_000 * TIMEOUT_NS;
/// Jumps that a queue pair may see before something completes there.
const JUMPS_IN_A_ROW: u32 = 2;
/// A key that opens nothing.
const NO_KEY: u32 = 0x00ff_ff00;

/// The engine's tables.
#[derive(Default)]
pub struct Tables {
    protection_domains: Vec<ProtectionDomainSlot>,
    regions: Vec<RegionSlot>,
    revoked: Vec<RevokedKey>,
    completion_queues: Vec<CompletionQueueSlot>,
    queue_pairs: Vec<QueuePairSlot>,
    uars: Vec<UarSlot>,
}

impl Tables {
    pub fn new(plan: &Plan) -> Self {
        fn table<T: Default>(length: usize) -> Vec<T> {
            (0..length).map(|_| T::default()).collect()
        }
        let pairs = plan.pairs.len();
        Self {
            protection_domains: table(1),
            regions: table(3 * pairs + 1),
            revoked: table(3 * pairs + 1),
            completion_queues: table(2 * pairs),
            queue_pairs: table(pairs),
            uars: table(pairs),
        }
    }
}

/// What the peer must know of a side: of each queue pair its number, the address and key of its window; then address
/// and key of the words.
pub type Card = Vec<u64>;

/// A completion queue.
struct Completions {
    number: CqNumber,
    ring: usize,
    record: usize,
    log_depth: u8,
    consumer: u32,
    /// Completions that may still come for what has been posted.
    due: usize,
}

impl Completions {
    fn has_room(&self) -> bool {
        self.due < 1 << self.log_depth
    }

    fn poll(&mut self, memory: &Arena) -> Option<Cqe64> {
        let depth = 1 << self.log_depth;
        let slot = (self.consumer & (depth - 1)) as usize;
        let bytes = memory.read(self.ring + 64 * slot, 64);
        let cqe = Cqe64::from_bytes(bytes.try_into().ok()?);
        if !cqe.tail().is_new(self.consumer & depth != 0) {
            return None;
        }
        self.consumer += 1;
        let word = CqDoorbellRecord::consumer_word(self.consumer);
        memory.store_u32(self.record, word);
        Some(cqe)
    }
}

/// A queue pair.
struct Pair {
    number: QpNumber,
    send_ring: usize,
    receive_ring: usize,
    record: usize,
    uar: usize,
    send_completions: usize,
    receive_completions: usize,
    /// Own area, window and inbox: where they are, and their keys.
    own: (u64, LocalKey),
    inbox: (u64, LocalKey),
    /// The peer's window.
    window: Remote,
    producer: u16,
    /// The next operation to post, and the block behind the newest one known to be done.
    next: usize,
    retired: u16,
    /// Posted and not known to be done: the operation, its index, and the index behind it.
    posted: VecDeque<(usize, u16, u16)>,
    failed: bool,
    /// Jumps of the clock since something completed here.
    jumps: u32,
    posted_receives: usize,
    received: usize,
}

pub struct Node<'t> {
    plan: &'t Plan,
    side: usize,
    engine: Engine<'t, DirectMemory, End>,
    domain: ProtectionDomain,
    layout: Layout,
    /// What is registered.
    memory: &'t Arena,
    /// Rings, records, doorbells.
    queues: &'t mut Arena,
    pairs: Vec<Pair>,
    completions: Vec<Completions>,
    words: Remote,
    card: Card,
    rng: SmallRng,
    now: u64,
    jumps: u32,
}

/// The memory of a side's queues.
pub fn arena_of_queues() -> Arena {
    Arena::new(4 * 32 * 1024)
}

/// The memory that a side registers, as it is before anything happens.
pub fn arena_of_data(plan: &Plan, side: usize) -> Arena {
    let image = plan.memory(side);
    let arena = Arena::new(image.len());
    arena.write(0, &image);
    arena
}

impl<'t> Node<'t> {
    pub fn new(
        plan: &'t Plan,
        side: usize,
        end: End,
        tables: &'t mut Tables,
        memory: &'t Arena,
        queues: &'t mut Arena,
    ) -> Self {
        let storage = Storage {
            protection_domains: &mut tables.protection_domains,
            regions: &mut tables.regions,
            revoked: &tables.revoked,
            completion_queues: &mut tables.completion_queues,
            queue_pairs: &mut tables.queue_pairs,
            uars: &mut tables.uars,
        };
        let mut engine = Engine::new(WireAddress(side as u32), DirectMemory, end, storage);
        let domain = engine.create_protection_domain().unwrap();
        let mut node = Self {
            plan,
            side,
            engine,
            domain,
            layout: plan.layout(side),
            memory,
            queues,
            pairs: Vec::new(),
            completions: Vec::new(),
            words: Remote {
                address: 0,
                key: RemoteKey(0),
            },
            card: Vec::new(),
            rng: SmallRng::seed_from_u64(plan.seed ^ (5 + side as u64) << 56),
            now: 0,
            jumps: plan.jumps,
        };
        for pair in 0..plan.pairs.len() {
            node.create_pair(pair);
        }
        let (words, access) = (
            node.layout.words,
            Access::LOCAL_WRITE | Access::REMOTE_ATOMIC,
        );
        let (address, _, key) = node.register(words, access);
        node.card.extend([address, u64::from(key.0)]);
        node
    }

    fn register(&mut self, piece: Piece, access: Access) -> (u64, LocalKey, RemoteKey) {
        let address = self.memory.address(piece.offset);
        if piece.length == 0 {
            return (address, LocalKey(NO_KEY), RemoteKey(NO_KEY));
        }
        // SAFETY: the memory outlives the engine.
        let keys = unsafe {
            self.engine
                .register_memory(self.domain, address, piece.length as u64, access)
        };
        let keys = keys.unwrap();
        (address, keys.local, keys.remote)
    }

    fn create_completions(&mut self) -> usize {
        let log_depth = self.plan.log_completion_depth;
        let ring = self.queues.take(64 << log_depth, 64);
        for entry in 0..1 << log_depth {
            self.queues
                .write(ring + 64 * entry, &Cqe64::INVALID.to_bytes());
        }
        let record = self.queues.take(8, 8);
        let attributes = CompletionQueueAttributes {
            ring: self.queues.address(ring),
            log_depth,
            record: self.queues.address(record),
            uar: None,
            collapsed: false,
            ignore_overrun: false,
        };
        // SAFETY: the memory outlives the engine.
        let number = unsafe { self.engine.create_completion_queue(&attributes) }.unwrap();
        self.completions.push(Completions {
            number,
            ring,
            record,
            log_depth,
            consumer: 0,
            due: 0,
        });
        self.completions.len() - 1
    }

    fn create_pair(&mut self, position: usize) {
        let [send_completions, receive_completions] = match self.pairs.first() {
            Some(first) if self.plan.shared_completions => {
                [first.send_completions, first.receive_completions]
            }
            _ => [(); 2].map(|()| self.create_completions()),
        };
        let send_ring = self.queues.take(64 << self.plan.log_send_depth, 64);
        let receive_bytes = (16 * RECEIVE_SEGMENTS) << LOG_RECEIVE_DEPTH;
        let receive_ring = self.queues.take(receive_bytes, 64);
        let record = self.queues.take(8, 8);
        let uar = self.queues.take(4096, 4096);
        let attributes = QueuePairAttributes {
            protection_domain: self.domain,
            send_ring: self.queues.address(send_ring),
            log_send_depth: self.plan.log_send_depth,
            receive: Some(ReceiveRing {
                ring: self.queues.address(receive_ring),
                log_depth: LOG_RECEIVE_DEPTH,
                log_stride: RECEIVE_SEGMENTS.ilog2() as u8,
            }),
            record: self.queues.address(record),
            send_doorbell: match self.plan.doorbell_record {
                true => SendDoorbell::WithRecord,
                false => SendDoorbell::WithoutRecord,
            },
            uar: self.queues.address(uar),
            send_cq: self.completions[send_completions].number,
            receive_cq: self.completions[receive_completions].number,
            cross_channel: CrossChannel::empty(),
        };
        // SAFETY: the memory outlives the engine.
        let number = unsafe { self.engine.create_queue_pair(&attributes) }.unwrap();
        let own = self.register(self.layout.own[position], Access::LOCAL_WRITE);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let window = self.register(self.layout.window[position], access);
        let inbox = self.register(self.layout.inbox[position], Access::LOCAL_WRITE);
        self.card
            .extend([u64::from(number.get()), window.0, u64::from(window.2.0)]);
        self.pairs.push(Pair {
            number,
            send_ring,
            receive_ring,
            record,
            uar,
            send_completions,
            receive_completions,
            own: (own.0, own.1),
            inbox: (inbox.0, inbox.1),
            window: self.words,
            producer: 0,
            next: 0,
            retired: 0,
            posted: VecDeque::new(),
            failed: false,
            jumps: 0,
            posted_receives: 0,
            received: 0,
        });
    }

    pub fn card(&self) -> &Card {
        &self.card
    }

    /// Connects each queue pair to the peer's.
    pub fn connect(&mut self, peer: &Card) {
        let remote = |address: u64, key: u64| Remote {
            address,
            key: RemoteKey(key as u32),
        };
        let (cards, words) = peer.split_at(3 * self.pairs.len());
        self.words = remote(words[0], words[1]);
        let ways = self.plan.pairs.iter();
        for ((pair, card), ways) in self.pairs.iter_mut().zip(cards.chunks(3)).zip(ways) {
            pair.window = remote(card[1], card[2]);
            let steps = [
                Transition::Init {
                    access: Access::all(),
                },
                Transition::ReadyToReceive(ReadyToReceive {
                    remote_address: WireAddress(1 - self.side as u32),
                    remote_qp: QpNumber::new(card[0] as u32).unwrap(),
                    receive_psn: ways[1 - self.side].first_psn,
                    path_mtu: self.plan.mtu,
                    min_rnr_timer_ns: RNR_NS,
                }),
                Transition::ReadyToSend(ReadyToSend {
                    send_psn: ways[self.side].first_psn,
                    retry_count: 7,
                    rnr_retry: 7,
                    ack_timeout_ns: TIMEOUT_NS,
                }),
            ];
            for step in steps {
                self.engine.modify_queue_pair(pair.number, step).unwrap();
            }
        }
    }

    fn way(&self, pair: usize) -> &'t Way {
        &self.plan.pairs[pair][self.side]
    }

    fn peers_way(&self, pair: usize) -> &'t Way {
        &self.plan.pairs[pair][1 - self.side]
    }

    /// A round of this side: posts, steps and polls, each now and then.
    pub fn turn(&mut self) {
        for pair in 0..self.pairs.len() {
            if self.rng.random_bool(0.5) {
                self.post_receives(pair);
            }
            if self.rng.random_bool(0.5) {
                self.post(pair);
            }
        }
        for _ in 0..self.rng.random_range(0..4) {
            self.now += self.rng.random_range(ROUND_NS);
            self.jump();
            self.engine.step(self.now);
        }
        if self.rng.random_bool(0.5) {
            self.poll();
        }
    }

    /// Lets the clock jump now and then, but not so often that the retries of a queue pair would end.
    fn jump(&mut self) {
        let patient = self.pairs.iter().all(|pair| pair.jumps < JUMPS_IN_A_ROW);
        if self.jumps == 0 || !patient || !self.rng.random_bool(0.05) {
            return;
        }
        self.jumps -= 1;
        self.now += self.rng.random_range(JUMP_NS);
        for pair in &mut self.pairs {
            pair.jumps += u32::from(!pair.posted.is_empty());
        }
    }

    /// Whether all that was to be sent and received is done.
    pub fn is_done(&self) -> bool {
        (0..self.pairs.len()).all(|position| {
            let pair = &self.pairs[position];
            pair.next == self.way(position).operations.len()
                && pair.posted.is_empty()
                && pair.received == self.peers_way(position).messages().count()
        })
    }

    /// Where it stands, for the report of one that hangs.
    pub fn standing(&self) -> String {
        let lines = self.pairs.iter().enumerate().map(|(position, pair)| {
            let status = self.engine.query_queue_pair(pair.number);
            format!(
                "side {} queue pair {position}: {} of {} posted, {:?} not done, {} of {} received, {status:?}\n",
                self.side,
                pair.next,
                self.way(position).operations.len(),
                pair.posted,
                pair.received,
                self.peers_way(position).messages().count(),
            )
        });
        lines.collect()
    }

    fn post_receives(&mut self, position: usize) {
        let receives = &self.peers_way(position).receives;
        for _ in 0..self.rng.random_range(1..4) {
            let pair = &mut self.pairs[position];
            let completions = &mut self.completions[pair.receive_completions];
            let Some(pieces) = receives.get(pair.posted_receives) else {
                return;
            };
            let full = pair.posted_receives - pair.received == 1 << LOG_RECEIVE_DEPTH;
            if full || !completions.has_room() {
                return;
            }
            let (base, key) = pair.inbox;
            let slot = pair.posted_receives & ((1 << LOG_RECEIVE_DEPTH) - 1);
            let mut segments = [Data::LIST_END; RECEIVE_SEGMENTS];
            for (segment, piece) in segments.iter_mut().zip(pieces) {
                *segment = data(base, key, piece);
            }
            for (entry, segment) in segments.iter().enumerate() {
                let at = pair.receive_ring + 16 * (slot * RECEIVE_SEGMENTS + entry);
                self.queues.write(at, &segment.to_octoword().to_bytes());
            }
            pair.posted_receives += 1;
            completions.due += 1;
            let word = DoorbellRecord::word(pair.posted_receives as u16);
            self.queues.store_u32(pair.record, word);
        }
    }

    /// Posts some operations and rings once.
    fn post(&mut self, position: usize) {
        let operations = &self.way(position).operations;
        let before = self.pairs[position].producer;
        for _ in 0..self.rng.random_range(1..5) {
            let pair = &mut self.pairs[position];
            let Some(operation) = operations.get(pair.next) else {
                break;
            };
            let wqe = build(operation, pair, self.words, self.memory);
            let end = pair.producer.wrapping_add(wqe.blocks());
            let completions = &mut self.completions[pair.send_completions];
            if end.wrapping_sub(pair.retired) > 1 << self.plan.log_send_depth
                || !completions.has_room()
            {
                break;
            }
            completions.due += 1;
            let index = WqeIndex(pair.producer);
            let blocks = wqe.place(index, pair.number);
            for block in &blocks[..usize::from(wqe.blocks())] {
                let slot = usize::from(pair.producer) & ((1 << self.plan.log_send_depth) - 1);
                for (octoword, offset) in block.iter().zip((0..64).step_by(16)) {
                    let at = pair.send_ring + 64 * slot + offset;
                    self.queues.write(at, &octoword.to_bytes());
                }
                pair.producer = pair.producer.wrapping_add(1);
            }
            pair.posted.push_back((pair.next, index.0, end));
            pair.next += 1;
        }
        let pair = &self.pairs[position];
        if pair.producer == before {
            return;
        }
        let doorbell = Doorbell::of_producer(WqeIndex(pair.producer), pair.number);
        let register = match self.plan.doorbell_record {
            true => {
                let word = DoorbellRecord::word(pair.producer);
                self.queues.store_u32(pair.record + 4, word);
                UarPage::DOORBELLS[0]
            }
            false => UarPage::DOORBELL_WITHOUT_RECORD,
        };
        self.queues.store_u64(pair.uar + register, doorbell.0);
    }

    fn poll(&mut self) {
        for position in 0..self.completions.len() {
            for _ in 0..self.rng.random_range(1..8) {
                let Some(cqe) = self.completions[position].poll(self.queues) else {
                    break;
                };
                let number = cqe.tail().qpn();
                let pair = self.pairs.iter().position(|pair| pair.number == number);
                let pair = pair.unwrap_or_else(|| panic!("a completion of {number:?}: {cqe:?}"));
                let [sends, receives] = [
                    self.pairs[pair].send_completions,
                    self.pairs[pair].receive_completions,
                ];
                let of_send = matches!(
                    cqe.tail().cqe_opcode(),
                    CqeOpcode::REQUESTER | CqeOpcode::REQUESTER_ERROR
                );
                let expected = if of_send { sends } else { receives };
                assert_eq!(position, expected, "in the wrong queue: {cqe:?}");
                match of_send {
                    true => self.check_sent(pair, &cqe),
                    false => self.check_received(pair, &cqe),
                }
            }
        }
    }

    /// A completion of the send queue: that of the next signalled operation, or of the one that failed.
    #[track_caller]
    fn check_sent(&mut self, position: usize, cqe: &Cqe64) {
        let way = self.way(position);
        let pair = &mut self.pairs[position];
        let completions = &mut self.completions[pair.send_completions];
        let who = format!("side {} queue pair {position}", self.side);
        let operation = loop {
            let next = pair.posted.pop_front();
            let (next, index, end) =
                next.unwrap_or_else(|| panic!("{who}: completed twice, or never posted: {cqe:?}"));
            completions.due -= 1;
            pair.retired = end;
            if index == cqe.tail().wqe_counter() {
                break next;
            }
            let silent = !pair.failed && !way.operations[next].signalled && next < way.executed();
            assert!(
                silent,
                "{who}: no completion of operation {next}, but {cqe:?}"
            );
        };
        pair.jumps = 0;
        let who = format!("{who} operation {operation}");
        let posted = &way.operations[operation];
        assert_eq!(cqe.tail().opcode(), opcode(posted.verb), "{who}");
        if !cqe.tail().is_error() {
            assert!(!pair.failed, "{who}: succeeded after a failure");
            assert!(operation < way.executed(), "{who}: succeeded and must fail");
            assert!(
                posted.signalled,
                "{who}: a completion that nobody asked for"
            );
            assert_eq!(cqe.byte_count.get() as usize, posted.length(), "{who}");
            return;
        }
        let syndrome = cqe.error_word().syndrome();
        if std::mem::replace(&mut pair.failed, true) {
            assert_eq!(syndrome, Syndrome::FLUSHED, "{who}");
            return;
        }
        let first = operation == way.executed();
        let expected = match way.poison() {
            Some(Poison::LocalKey) => first && syndrome == Syndrome::LOCAL_PROTECTION,
            // The peer is in error from then on: where an answer of it is lost, there is no other.
            Some(Poison::RemoteKey) => {
                first && syndrome == Syndrome::REMOTE_ACCESS
                    || operation <= way.executed() && syndrome == Syndrome::TRANSPORT_RETRY
            }
            None => false,
        };
        assert!(
            expected,
            "{who} failed: {syndrome:?}, of {:?}",
            way.poison()
        );
    }

    /// A completion of the receive queue: that of the peer's next message.
    #[track_caller]
    fn check_received(&mut self, position: usize, cqe: &Cqe64) {
        let way = self.peers_way(position);
        let poisoned = [way, self.way(position)].map(Way::poison) != [None, None];
        let pair = &mut self.pairs[position];
        self.completions[pair.receive_completions].due -= 1;
        let who = format!("side {} queue pair {position}", self.side);
        let message = way.messages().nth(pair.received);
        let Some(message) = message else {
            let flushed = cqe.tail().is_error()
                && cqe.error_word().syndrome() == Syndrome::FLUSHED
                && poisoned;
            assert!(flushed, "{who}: a message that nobody sent: {cqe:?}");
            return;
        };
        let who = format!("{who} message {}", pair.received);
        assert_eq!(cqe.tail().wqe_counter() as usize, pair.received, "{who}");
        pair.received += 1;
        let (opcode, immediate) = match message.verb {
            Verb::WriteImmediate => (CqeOpcode::RESPONDER_WRITE_IMMEDIATE, true),
            Verb::SendImmediate => (CqeOpcode::RESPONDER_SEND_IMMEDIATE, true),
            _ => (CqeOpcode::RESPONDER_SEND, false),
        };
        assert_eq!(cqe.tail().cqe_opcode(), opcode, "{who}");
        assert_eq!(cqe.byte_count.get() as usize, message.length(), "{who}");
        if immediate {
            assert_eq!(cqe.immediate.get(), message.immediate, "{who}");
        }
    }

    /// What each atomic of this side found.
    pub fn found(&self) -> Vec<Vec<u64>> {
        let value = |pair: usize, operation: &Operation| match operation.pieces.first() {
            Some(piece) if operation.verb.is_atomic() => {
                let at = self.layout.own[pair].offset + piece.offset;
                u64::from_ne_bytes(self.memory.read(at, 8).try_into().unwrap())
            }
            _ => 0,
        };
        let pairs = 0..self.pairs.len();
        pairs
            .map(|pair| {
                let operations = self.way(pair).operations.iter();
                operations.map(|operation| value(pair, operation)).collect()
            })
            .collect()
    }

    /// Compares the whole memory with what the model says.
    #[track_caller]
    pub fn check_memory(&self, expected: &[u8]) {
        let memory = self.memory.read(0, expected.len());
        let differs = memory.iter().zip(expected).position(|(is, due)| is != due);
        if let Some(at) = differs {
            let areas = [
                ("own area", &self.layout.own),
                ("window", &self.layout.window),
                ("inbox", &self.layout.inbox),
            ];
            let area = areas.iter().find_map(|(name, pieces)| {
                let inside = |piece: &Piece| at.wrapping_sub(piece.offset) < piece.length;
                let pair = pieces.iter().position(inside)?;
                Some((*name, pair, at - pieces[pair].offset))
            });
            panic!(
                "side {}: byte {at} is {:#04x} instead of {:#04x}: {area:?}",
                self.side, memory[at], expected[at]
            );
        }
    }
}

fn data(base: u64, key: LocalKey, piece: &Piece) -> Data {
    Data::new(Local {
        address: base + piece.offset as u64,
        length: piece.length as u32,
        key,
    })
}

fn opcode(verb: Verb) -> Opcode {
    match verb {
        Verb::Nop => Opcode::NOP,
        Verb::Write => Opcode::RDMA_WRITE,
        Verb::WriteImmediate => Opcode::RDMA_WRITE_IMMEDIATE,
        Verb::Send => Opcode::SEND,
        Verb::SendImmediate => Opcode::SEND_IMMEDIATE,
        Verb::Read => Opcode::RDMA_READ,
        Verb::FetchAdd { .. } => Opcode::ATOMIC_FETCH_ADD,
        Verb::CompareSwap { .. } => Opcode::ATOMIC_COMPARE_SWAP,
    }
}

fn build(operation: &Operation, pair: &Pair, words: Remote, memory: &Arena) -> Wqe<4> {
    let mut segments = Vec::new();
    if operation.verb.is_remote() {
        let mut remote = match operation.verb.is_atomic() {
            true => words,
            false => pair.window,
        };
        let unit = if operation.verb.is_atomic() { 8 } else { 1 };
        remote.address += (unit * operation.remote) as u64;
        if operation.poison == Some(Poison::RemoteKey) {
            remote.key = RemoteKey(NO_KEY);
        }
        segments.push(RemoteAddress::new(remote).to_octoword());
    }
    let [swap_add, compare] = match operation.verb {
        Verb::FetchAdd { add } => [add, 0],
        Verb::CompareSwap { compare, swap } => [swap, compare],
        _ => [0; 2],
    };
    if operation.verb.is_atomic() {
        let atomic = Atomic {
            swap_add: swap_add.into(),
            compare: compare.into(),
        };
        segments.push(atomic.to_octoword());
    }
    let (base, key) = pair.own;
    if operation.inline {
        let mut bytes = InlineHeader::new(operation.length() as u32)
            .byte_count
            .to_bytes()
            .to_vec();
        for piece in &operation.pieces {
            let offset = (base - memory.address(0)) as usize + piece.offset;
            bytes.extend(memory.read(offset, piece.length));
        }
        for chunk in bytes.chunks(16) {
            let mut octoword = [0; 16];
            octoword[..chunk.len()].copy_from_slice(chunk);
            segments.push(Octoword::from_bytes(octoword));
        }
    } else {
        let key = match operation.poison {
            Some(Poison::LocalKey) => LocalKey(NO_KEY),
            _ => key,
        };
        let pieces = operation.pieces.iter();
        segments.extend(pieces.map(|piece| data(base, key, piece).to_octoword()));
    }
    let opcode = opcode(operation.verb);
    let payload = operation.length() as u64;
    let immediate = match operation.verb {
        Verb::WriteImmediate | Verb::SendImmediate => operation.immediate,
        _ => 0,
    };
    let mut wqe = Wqe::from_segments(opcode, 0, immediate, &segments, payload).unwrap();
    if operation.signalled {
        wqe = wqe.signalled();
    }
    if operation.fenced {
        wqe = wqe.fenced(Fence::Fence);
    }
    wqe
}
