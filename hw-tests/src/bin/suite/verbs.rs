//! Proves that every verb does exactly what it says, byte for byte and nothing beside, in every mode: each
//! sharing, scope, kind of completion queue and doorbell policy, with a doorbell record and without.

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use warpbell::SendDoorbell;
use warpbell_cpu_grid::Grid;
use warpbell_host_init::{Completions, Kernels, MemoryRegion, QueuePairConfig};
use warpbell_hw_tests::arena::{Arena, Image};
use warpbell_hw_tests::collect::Collecting;
use warpbell_hw_tests::here;
use warpbell_hw_tests::machine::Machine;
use warpbell_hw_tests::model::{self, Delivery};
use warpbell_hw_tests::post::{Posting, expect_done};
use warpbell_hw_tests::run::run;
use warpbell_hw_tests::sides::{ALL_ACCESS, Sides, spare_keys};
use warpbell_kernels::suite::{
    DoorbellKind, Message, MessageKind, Mode, Request, ScopeKind, SharingKind, Verb,
};

/// Bytes that a request has to itself at each end. Its data start at `DATA` and end before `CELL - DATA`.
const CELL: usize = 256;
const DATA: usize = 64;
const LONGEST: usize = CELL - 2 * DATA;

const ROWS: usize = Verb::ALL.len();
/// More than any grid below has.
const MAX_THREADS: usize = 128;
/// Rows that take a receive of the peer.
const MESSAGES: usize = 8;

pub fn test(machine: &Machine) -> ExitCode {
    run(machine, Duration::from_secs(600), |progress| {
        let bench = Bench::new();
        for kernels in here::in_each_order() {
            for mode in Mode::ALL {
                progress.step(format!("{kernels}, {mode:?}"));
                bench.in_mode(kernels, mode);
            }
        }
    })
}

/// What every mode is tested with.
struct Bench {
    sides: Sides,
    ours: Arena,
    theirs: Arena,
    buffers: Arena,
}

/// A grid in which several views of the queue meet, where the mode allows it, and warps are not full.
fn grid_of(mode: Mode) -> Grid {
    match (mode.sharing, mode.scope) {
        (SharingKind::Exclusive, ScopeKind::Thread) => Grid::new(1, 1),
        (SharingKind::Exclusive, ScopeKind::Warp) => Grid::new(1, 29),
        (SharingKind::BlockShared, ScopeKind::Thread) => Grid::new(1, 40),
        (SharingKind::BlockShared, ScopeKind::Warp) => Grid::new(1, 77),
        (SharingKind::GpuShared, ScopeKind::Thread) => Grid::new(2, 20),
        (SharingKind::GpuShared, ScopeKind::Warp) => Grid::new(2, 45),
        (SharingKind::GpuShared, ScopeKind::Block) => Grid::new(2, 48),
        (_, ScopeKind::Block) => Grid::new(1, 48),
    }
}

impl Bench {
    fn new() -> Self {
        let sides = Sides::chosen();
        let cells = MAX_THREADS * ROWS * CELL;
        Self {
            ours: sides.ours.arena(cells, ALL_ACCESS, 1),
            theirs: sides.theirs.arena(cells, ALL_ACCESS, 2),
            buffers: sides
                .theirs
                .arena(MAX_THREADS * MESSAGES * CELL, ALL_ACCESS, 3),
            sides,
        }
    }

    fn in_mode(&self, kernels: Kernels, mode: Mode) {
        for completions in [Completions::Collapsed, Completions::ORDINARY] {
            for (doorbell, send_doorbell) in self.doorbells() {
                let posting = Posting {
                    kernels,
                    grid: grid_of(mode),
                    mode,
                    doorbell,
                    ..Posting::default()
                };
                self.every_verb(&posting, completions, send_doorbell);
            }
        }
    }

    /// What rings the doorbell, and whether there is a record: not every NIC can do without.
    fn doorbells(&self) -> Vec<(DoorbellKind, SendDoorbell)> {
        let with = DoorbellKind::ALL.map(|kind| (kind, SendDoorbell::WithRecord));
        let without = DoorbellKind::ALL.map(|kind| (kind, SendDoorbell::WithoutRecord));
        let able = self.sides.ours.device().limits().without_record;
        let without = without.into_iter().filter(|_| able);
        with.into_iter().chain(without).collect()
    }

    /// Posts every verb from every thread of the mode's grid, and compares all memory with the model's.
    fn every_verb(&self, posting: &Posting, completions: Completions, send_doorbell: SendDoorbell) {
        let Posting { mode, grid, .. } = *posting;
        let what = format!("{posting:?}, {completions:?}, {send_doorbell:?}");
        let pair = self.sides.pair(&QueuePairConfig {
            send_depth: 256,
            send_completions: completions,
            send_doorbell,
            receive_depth: 1024,
            ..QueuePairConfig::default()
        });
        let threads = (grid.blocks * grid.threads_per_block) as usize;
        let keys = spare_keys(&self.sides.theirs, &self.theirs, threads);
        let requests = self.requests(mode, &keys);

        let (mut ours, mut theirs) = (self.ours.image(), self.theirs.image());
        let mut deliveries = HashMap::new();
        let mut empty = Vec::new();
        for request in &requests {
            match model::apply(request, &mut ours, &mut theirs) {
                Some(delivery) if delivery.length == 0 && delivery.immediate == 0 => {
                    empty.push(delivery);
                }
                Some(delivery) => {
                    let twin = deliveries.insert(tag_of_delivery(&delivery), delivery);
                    assert!(twin.is_none(), "tags are different");
                }
                None => {}
            }
        }

        let total = deliveries.len() + empty.len();
        let receiving = Collecting {
            per_thread: total as u32,
            post: total as u32,
            ..Collecting::default()
        };
        let taking = Collecting {
            take: total as u32,
            ..Collecting::default()
        };
        let mut buffers = self.buffers.image();
        let receive_queue = pair.theirs.receive_queue().expect("a receive queue");
        let mut posted = receiving.mailbox(total);
        receiving.launch(receive_queue, &self.buffers, &mut posted);
        expect_done(&posted.endings(), &what);

        let queue = pair.ours.send_queue().expect("a send queue");
        expect_done(&posting.post(queue, &requests), &what);

        let mut taken = taking.mailbox(0);
        taking.launch(receive_queue, &self.buffers, &mut taken);
        expect_done(&taken.endings(), &what);
        let messages = taken.messages();
        assert_eq!(messages.len(), total, "{what}: messages");
        for message in &messages {
            let tag = tag_of_message(message, || receiving.bytes(&self.buffers, &posted, message));
            let delivery = match tag {
                Some(tag) => deliveries.remove(&tag),
                None => empty.pop(),
            };
            let delivery = delivery.unwrap_or_else(|| panic!("{what}: {message:?} twice"));
            receiving.deliver(&self.buffers, &posted, message, &delivery, &mut buffers);
        }

        self.ours.check(&ours, &format!("{what}: our memory"));
        self.theirs
            .check(&theirs, &format!("{what}: the peer's memory"));
        self.buffers
            .check(&buffers, &format!("{what}: the peer's receives"));
        assert_eq!(pair.ours.first_error(), None, "{what}");
    }

    /// Every verb for every thread, with lengths, data and values of its own.
    fn requests(&self, mode: Mode, keys: &[MemoryRegion]) -> Vec<Request> {
        let theirs = self.theirs.image();
        let mut random = SmallRng::seed_from_u64(4);
        let mut requests = Vec::new();
        for (thread, key) in keys.iter().enumerate() {
            for (row, verb) in Verb::ALL.into_iter().enumerate() {
                let request = self.request(verb, thread * ROWS + row, &theirs, &mut random);
                let request = match verb {
                    Verb::SendInvalidate => request.immediate(key.rkey().0),
                    _ => request,
                };
                // Some threads of a warp or block take part without a request of their own.
                let absent = mode.scope != ScopeKind::Thread && (thread + row) % 5 == 4;
                requests.push(if absent { request.absent() } else { request });
            }
        }
        requests
    }

    fn request(&self, verb: Verb, cell: usize, theirs: &Image, random: &mut SmallRng) -> Request {
        let at = (cell * CELL + DATA) as i64;
        let tag = cell as u32 + 1;
        let length = random.random_range(4..=LONGEST) as u32;
        let one = [self.ours.local(at, length)];
        let three =
            [(0, 24), (31, 17), (60, 40)].map(|(gap, length)| self.ours.local(at + gap, length));
        let request = Request::new(verb).remote(self.theirs.remote(at));
        let tagged = |request: Request| {
            let start = (request.pieces[0].address - self.ours.address()) as usize;
            let region = self.ours.region();
            region.write(start, &tag.to_le_bytes()).expect("inside");
            request
        };
        let mut inline = [0; 80];
        random.fill_bytes(&mut inline);
        inline[..4].copy_from_slice(&tag.to_le_bytes());
        let inline = &inline[..random.random_range(4..=inline.len())];
        let small = |offset: i64, width: u32| {
            request
                .remote(self.theirs.remote(at + offset))
                .local(&[self.ours.local(at + offset, width)])
        };
        // Half of the comparisons hold.
        let compare = |address: u64, width: usize, other: u64| {
            let mut word = [0; 8];
            word[..width].copy_from_slice(theirs.get(address, width));
            if cell.is_multiple_of(2) {
                u64::from_le_bytes(word)
            } else {
                other
            }
        };
        let values: [u64; 4] = random.random();
        let [a, b, c, d] = values;
        match verb {
            Verb::Write | Verb::Read => request.local(&one),
            Verb::WriteGather | Verb::ReadScatter => request.local(&three),
            Verb::WriteImmediate => request.local(&one).immediate(tag),
            Verb::WriteImmediateOnly => request.immediate(tag),
            Verb::WriteValue => request.values(values),
            Verb::WriteInline | Verb::SendInline => request.inline(inline),
            Verb::Send | Verb::SendInvalidate => tagged(request.local(&one)),
            Verb::SendGather => tagged(request.local(&three)),
            Verb::SendImmediate => request.local(&one).immediate(tag),
            Verb::SendEmpty | Verb::Nop => request,
            Verb::FetchAdd => small(0, 8).values(values),
            Verb::MaskedFetchAdd8 => small(8, 8).values(values),
            Verb::MaskedFetchAdd4 => small(12, 4).values([a as u32, b as u32, 0, 0].map(u64::from)),
            Verb::CompareSwap => {
                let request = small(16, 8);
                request.values([compare(request.remote.address, 8, a), b, 0, 0])
            }
            Verb::MaskedCompareSwap8 => {
                let request = small(24, 8);
                request.values([compare(request.remote.address, 8, a), b, c, d])
            }
            Verb::MaskedCompareSwap4 => {
                let request = small(36, 4);
                let compare = compare(request.remote.address, 4, a) as u32;
                request.values([compare, b as u32, c as u32, d as u32].map(u64::from))
            }
        }
    }
}

/// What tells one message from all others: the tag in its immediate data or at the start of its bytes.
type Tag = (MessageKind, u32);

fn first_word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))
}

fn tag_of_delivery(delivery: &Delivery) -> Tag {
    match delivery.kind {
        MessageKind::Send => (delivery.kind, first_word(&delivery.bytes)),
        kind => (kind, delivery.immediate),
    }
}

/// None for a message of nothing.
fn tag_of_message(message: &Message, bytes: impl FnOnce() -> Vec<u8>) -> Option<Tag> {
    match message.kind {
        MessageKind::Send if message.bytes == 0 => None,
        MessageKind::Send => Some((message.kind, first_word(&bytes()))),
        kind => Some((kind, message.immediate)),
    }
}
