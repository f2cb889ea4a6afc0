//! What an episode does, drawn from its seed: queue pairs, work requests, receives, faults.
//!
//! Two processes draw the same plan from the same seed. Nothing here knows the engine.
//!
//! The outcome of a plan must not depend on time, or no model could foretell it. So a WRITE over bytes that an earlier
//! READ may still fetch is fenced, and so is a message whose payload an earlier READ or atomic fetches. Each direction
//! of a queue pair has windows of its own. Only the words for atomics are shared, and the model finds their order.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// The bytes of a queue pair's window, where its peer writes and reads.
pub const WINDOW: usize = 1536;
/// The bytes of a queue pair's own that nobody changes.
pub const SOURCE: usize = 1536;
/// The words that all queue pairs of the peer run atomics on.
pub const WORDS: usize = 3;
/// Receives beyond those that the peer's messages take: a message that arrives twice would take one.
const SPARE_RECEIVES: usize = 2;
/// Bytes between areas.
const GAP: usize = 64;
/// What lies in gaps, and wherever nothing has been written.
pub const UNTOUCHED: u8 = 0xa5;
/// The data segments of a receive.
pub const RECEIVE_SEGMENTS: usize = 4;
/// 64-byte blocks of the ring that may be posted without a signal.
const SILENT_BLOCKS: usize = 8;
/// Work requests that may be posted without a signal.
const SILENT_OPERATIONS: usize = 4;

/// Some bytes of an area.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    pub offset: usize,
    pub length: usize,
}

impl Piece {
    fn overlaps(&self, other: &Self) -> bool {
        self.offset < other.offset + other.length && other.offset < self.offset + self.length
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Nop,
    Write,
    WriteImmediate,
    Send,
    SendImmediate,
    Read,
    FetchAdd { add: u64 },
    CompareSwap { compare: u64, swap: u64 },
}

impl Verb {
    /// Whether it takes a receive at the peer.
    pub fn takes_receive(self) -> bool {
        matches!(
            self,
            Self::WriteImmediate | Self::Send | Self::SendImmediate
        )
    }

    pub fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd { .. } | Self::CompareSwap { .. })
    }

    /// Whether it names memory of the peer.
    pub fn is_remote(self) -> bool {
        !matches!(self, Self::Nop | Self::Send | Self::SendImmediate)
    }
}

/// Why a work request must fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poison {
    /// Its local key opens nothing.
    LocalKey,
    /// Its remote key opens nothing.
    RemoteKey,
}

/// A work request.
#[derive(Clone, Debug)]
pub struct Operation {
    pub verb: Verb,
    /// Where its payload lies, or where its answer goes, in the queue pair's own area.
    pub pieces: Vec<Piece>,
    pub inline: bool,
    /// An offset into the peer's window; of an atomic the number of a word.
    pub remote: usize,
    pub immediate: u32,
    pub signalled: bool,
    pub fenced: bool,
    pub poison: Option<Poison>,
}

impl Operation {
    pub fn length(&self) -> usize {
        self.pieces.iter().map(|piece| piece.length).sum()
    }

    /// Blocks of 64 bytes in the ring.
    fn blocks(&self) -> usize {
        let payload = match self.inline {
            true => (4 + self.length()).div_ceil(16),
            false => self.pieces.len(),
        };
        (1 + usize::from(self.verb.is_remote()) + usize::from(self.verb.is_atomic()) + payload)
            .div_ceil(4)
    }
}

/// What one side of a queue pair sends.
#[derive(Clone, Debug)]
pub struct Way {
    pub operations: Vec<Operation>,
    /// What the peer posts for it, in its inbox.
    pub receives: Vec<Vec<Piece>>,
    pub first_psn: u32,
    /// The bytes of the sender's own area: those of [`SOURCE`], then those where answers land.
    own: usize,
    /// The bytes of the peer's inbox.
    inbox: usize,
}

impl Way {
    /// How many operations are carried out before the one that must fail.
    pub fn executed(&self) -> usize {
        let poisoned = self.operations.iter().position(|one| one.poison.is_some());
        poisoned.unwrap_or(self.operations.len())
    }

    pub fn poison(&self) -> Option<Poison> {
        self.operations.iter().find_map(|one| one.poison)
    }

    /// The operations that arrive with a completion at the peer.
    pub fn messages(&self) -> impl Iterator<Item = &Operation> {
        let executed = &self.operations[..self.executed()];
        executed.iter().filter(|one| one.verb.takes_receive())
    }

    fn truncate(&mut self, operations: usize) {
        self.operations.truncate(operations);
        if let Some(last) = self.operations.last_mut() {
            last.signalled = true;
        }
        let taken = self.operations.iter();
        let taken = taken.filter(|one| one.verb.takes_receive()).count();
        let spare = self.receives.len() - SPARE_RECEIVES;
        self.receives.drain(taken..spare);
    }
}

/// Where the areas of a side lie in its memory.
pub struct Layout {
    pub own: Vec<Piece>,
    pub window: Vec<Piece>,
    pub inbox: Vec<Piece>,
    pub words: Piece,
    pub size: usize,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub mtu: u32,
    /// What each side sends through each queue pair.
    pub pairs: Vec<[Way; 2]>,
    /// Lost, late and doubled packets of 1,000, and the longest delay in rounds.
    pub drop: u32,
    pub delay: u32,
    pub duplicate: u32,
    pub longest_delay: u32,
    /// Of 1,000 packets so many find the wire busy.
    pub busy: u32,
    /// Jumps of each side's clock.
    pub jumps: u32,
    /// Whether a side's queue pairs have one pair of completion queues in common.
    pub shared_completions: bool,
    pub log_send_depth: u8,
    pub log_completion_depth: u8,
    pub doorbell_record: bool,
    /// Whether the wire lends payloads, where it can, rather than copying them.
    pub lends: bool,
}

impl Plan {
    pub fn draw(seed: u64) -> Self {
        let rng = &mut SmallRng::seed_from_u64(seed);
        let calm = rng.random_bool(0.1);
        let mut rate = |most: u32| match calm {
            true => 0,
            false => rng.random_range(0..=most),
        };
        let (drop, delay, duplicate, busy) = (rate(200), rate(250), rate(250), rate(50));
        let most = [2, 6, 14, 40][rng.random_range(0..4)];
        let count = rng.random_range(1..=4);
        let pairs = (0..count).map(|_| draw_pair(rng, most)).collect();
        Self {
            seed,
            mtu: 256 << rng.random_range(0..3),
            pairs,
            drop,
            delay,
            duplicate,
            longest_delay: rng.random_range(1..=30),
            busy,
            jumps: rng.random_range(0..=16),
            shared_completions: rng.random(),
            log_send_depth: rng.random_range(4..=5),
            log_completion_depth: rng.random_range(5..=6),
            doorbell_record: rng.random(),
            lends: rng.random(),
        }
    }

    /// Leaves each way so many of its operations.
    pub fn truncate(&mut self, operations: usize) {
        for way in self.pairs.iter_mut().flatten() {
            way.truncate(operations);
        }
    }

    /// The operations of the longest way.
    pub fn longest(&self) -> usize {
        let lengths = self.pairs.iter().flatten().map(|way| way.operations.len());
        lengths.max().unwrap_or(0)
    }

    pub fn layout(&self, side: usize) -> Layout {
        let mut size = GAP;
        let mut area = |length: usize| {
            let offset = size;
            size = (offset + length + GAP).next_multiple_of(8);
            Piece { offset, length }
        };
        let mut each = |length: fn(&[Way; 2], usize) -> usize| -> Vec<Piece> {
            let pairs = self.pairs.iter();
            pairs.map(|pair| area(length(pair, side))).collect()
        };
        let own = each(|pair, side| pair[side].own);
        let window = each(|_, _| WINDOW);
        let inbox = each(|pair, side| pair[1 - side].inbox);
        let words = area(8 * WORDS);
        Layout {
            own,
            window,
            inbox,
            words,
            size,
        }
    }

    /// A side's memory before anything happens.
    pub fn memory(&self, side: usize) -> Vec<u8> {
        let rng = &mut SmallRng::seed_from_u64(self.seed ^ (1 + side as u64) << 60);
        let layout = self.layout(side);
        let mut memory = vec![UNTOUCHED; layout.size];
        for (own, window) in layout.own.iter().zip(&layout.window) {
            rng.fill(&mut memory[own.offset..][..SOURCE]);
            rng.fill(&mut memory[window.offset..][..WINDOW]);
        }
        for word in 0..WORDS {
            let at = layout.words.offset + 8 * word;
            memory[at..at + 8].copy_from_slice(&initial(word).to_ne_bytes());
        }
        memory
    }
}

/// What a word for atomics holds before anything happens.
pub fn initial(word: usize) -> u64 {
    word as u64 * 1000
}

fn draw_pair(rng: &mut SmallRng, most: usize) -> [Way; 2] {
    let poison = match rng.random_range(0..10) {
        0 => Some(Poison::LocalKey),
        1 => Some(Poison::RemoteKey),
        _ => None,
    };
    let fails = rng.random_range(0..2);
    [0, 1].map(|side| match poison {
        // What the other side sends would be lost at a moment that no model knows.
        Some(_) if side != fails => Drawer::new(rng, None).way(0),
        _ => Drawer::new(rng, poison).way(most),
    })
}

/// Draws what one side sends.
struct Drawer<'r> {
    rng: &'r mut SmallRng,
    poison: Option<Poison>,
    own: usize,
    inbox: usize,
    /// Where answers have landed, or will.
    landed: Vec<Piece>,
    /// What READs since the last fence fetch from the peer's window.
    fetched: Vec<Piece>,
    /// Where answers since the last fence land.
    awaited: Vec<Piece>,
    /// Values that a word may hold.
    values: Vec<u64>,
}

impl<'r> Drawer<'r> {
    fn new(rng: &'r mut SmallRng, poison: Option<Poison>) -> Self {
        Self {
            rng,
            poison,
            own: SOURCE,
            inbox: 0,
            landed: Vec::new(),
            fetched: Vec::new(),
            awaited: Vec::new(),
            values: (0..WORDS).map(initial).collect(),
        }
    }

    fn way(mut self, most: usize) -> Way {
        let count = match most {
            0 => 0,
            _ => self.rng.random_range(1..=most),
        };
        let bad = self.rng.random_range(0..count.max(1));
        let mut operations = Vec::new();
        let mut receives = Vec::new();
        let (mut blocks, mut silent) = (0, 0);
        for position in 0..count {
            let poison = self.poison.filter(|_| position == bad);
            let mut operation = self.operation(poison);
            blocks += operation.blocks();
            silent += 1;
            operation.signalled |=
                position + 1 == count || blocks + 4 > SILENT_BLOCKS || silent == SILENT_OPERATIONS;
            if operation.signalled {
                (blocks, silent) = (0, 0);
            }
            if operation.verb.takes_receive() {
                receives.push(self.receive(&operation));
            }
            operations.push(operation);
        }
        for _ in 0..SPARE_RECEIVES {
            let piece = take(self.rng, &mut self.inbox, 32);
            receives.push(vec![piece]);
        }
        Way {
            operations,
            receives,
            first_psn: match self.rng.random() {
                true => 0x00ff_ffff - self.rng.random_range(0..20),
                false => self.rng.random_range(0..1 << 24),
            },
            own: self.own,
            inbox: self.inbox,
        }
    }

    fn operation(&mut self, poison: Option<Poison>) -> Operation {
        let verb = self.verb(poison);
        let length = match verb {
            Verb::Nop => 0,
            Verb::FetchAdd { .. } | Verb::CompareSwap { .. } => 8,
            _ => self.length(verb == Verb::Read || poison.is_some()),
        };
        let remote = match verb.is_atomic() {
            true => self.rng.random_range(0..WORDS),
            false => self.rng.random_range(0..=WINDOW - length),
        };
        let gathers = !matches!(verb, Verb::Read) && !verb.is_atomic();
        let inline =
            gathers && poison.is_none() && (1..=220).contains(&length) && self.rng.random_bool(0.3);
        let pieces = match gathers {
            true => self.gather(length, inline),
            false => self.scatter(length, verb.is_atomic()),
        };
        let target = Piece {
            offset: remote,
            length,
        };
        let changes = matches!(verb, Verb::Write | Verb::WriteImmediate);
        let hazard = changes && self.fetched.iter().any(|fetched| fetched.overlaps(&target))
            || gathers && pieces.iter().any(|piece| self.is_awaited(piece));
        let fenced = hazard || self.rng.random_bool(0.1);
        if fenced {
            self.fetched.clear();
            self.awaited.clear();
        }
        if verb == Verb::Read {
            self.fetched.push(target);
        }
        if !gathers {
            self.awaited.extend(&pieces);
            self.landed.extend(&pieces);
        }
        Operation {
            verb,
            pieces,
            inline,
            remote,
            immediate: self.rng.random(),
            signalled: self.rng.random_bool(0.4),
            fenced,
            poison,
        }
    }

    fn is_awaited(&self, piece: &Piece) -> bool {
        self.awaited.iter().any(|awaited| awaited.overlaps(piece))
    }

    fn verb(&mut self, poison: Option<Poison>) -> Verb {
        if poison.is_some() {
            return Verb::Write;
        }
        // A peer in error answers no more: which answers were lost on their way, no model knows.
        let kinds = match self.poison {
            Some(Poison::RemoteKey) => 6,
            _ => 10,
        };
        match self.rng.random_range(0..kinds) {
            0 => Verb::Nop,
            1 | 2 => Verb::Write,
            3 => Verb::WriteImmediate,
            4 => Verb::Send,
            5 => Verb::SendImmediate,
            6 | 7 => Verb::Read,
            8 => Verb::FetchAdd {
                add: 1 + self.rng.random_range(0..u64::from(u32::MAX)),
            },
            _ => {
                // No value comes twice: it would hide in which order the atomics ran.
                let swap = self.rng.random();
                let compare = self.values[self.rng.random_range(0..self.values.len())];
                self.values.push(swap);
                Verb::CompareSwap { compare, swap }
            }
        }
    }

    fn length(&mut self, some: bool) -> usize {
        match self.rng.random_range(0..8) {
            0 if !some => 0,
            0..3 => self.rng.random_range(1..=16),
            3..5 => self.rng.random_range(1..=300),
            5 => 256 * self.rng.random_range(1..=4),
            _ => self.rng.random_range(1..=WINDOW.min(SOURCE)),
        }
    }

    /// Cuts `length` bytes into up to `most` parts of at least a byte each.
    fn cut(&mut self, length: usize, most: usize) -> Vec<usize> {
        let mut left = length;
        let mut parts = Vec::new();
        while left > 0 {
            let part = match parts.len() + 1 == most {
                true => left,
                false => self.rng.random_range(1..=left),
            };
            parts.push(part);
            left -= part;
        }
        parts
    }

    /// A payload of a message.
    fn gather(&mut self, length: usize, inline: bool) -> Vec<Piece> {
        let most = self.rng.random_range(1..=8);
        let parts = self.cut(length, most);
        let piece = |length: usize, rng: &mut SmallRng, landed: &[Piece]| {
            // Inline data is copied when it is posted, before an answer has come.
            let again = !landed.is_empty() && !inline && rng.random_bool(0.25);
            let from = match again {
                true => landed[rng.random_range(0..landed.len())],
                false => Piece {
                    offset: 0,
                    length: SOURCE,
                },
            };
            let slack = from.length.checked_sub(length);
            let (base, slack) = slack.map_or((0, SOURCE - length), |slack| (from.offset, slack));
            let offset = base + rng.random_range(0..=slack);
            Piece { offset, length }
        };
        let pieces = parts.into_iter();
        pieces
            .map(|part| piece(part, self.rng, &self.landed))
            .collect()
    }

    /// Where an answer lands: bytes that nothing else uses.
    fn scatter(&mut self, length: usize, atomic: bool) -> Vec<Piece> {
        let most = match atomic {
            true => 1,
            false => self.rng.random_range(1..=5),
        };
        let parts = self.cut(length, most);
        if atomic {
            self.own = self.own.next_multiple_of(8);
        }
        let parts = parts.into_iter();
        parts
            .map(|part| take(self.rng, &mut self.own, part))
            .collect()
    }

    /// A receive that is long enough for a message.
    fn receive(&mut self, operation: &Operation) -> Vec<Piece> {
        if matches!(operation.verb, Verb::WriteImmediate) {
            return Vec::new();
        }
        let more = match self.rng.random() {
            true => 0,
            false => self.rng.random_range(0..50),
        };
        let most = self.rng.random_range(1..=RECEIVE_SEGMENTS);
        let parts = self.cut(operation.length() + more, most).into_iter();
        parts
            .map(|part| take(self.rng, &mut self.inbox, part))
            .collect()
    }
}

/// Takes fresh bytes of an area, now and then behind a few that stay untouched.
fn take(rng: &mut SmallRng, area: &mut usize, length: usize) -> Piece {
    let offset = *area;
    *area = offset + length + 8 * rng.random_range(0..3);
    Piece { offset, length }
}
