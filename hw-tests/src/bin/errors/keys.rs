//! Keys of somebody else, ranges past the end, missing rights: the NIC refuses, the kernel learns why.

use warpbell::wqe::{Local, LocalKey, Opcode, QpNumber, Remote, RemoteKey, Syndrome, VendorCode};
use warpbell_host_init::{Access, Completions, QueuePairConfig};
use warpbell_hw_tests::arena::Arena;
use warpbell_hw_tests::sides::{ALL_ACCESS, Side};
use warpbell_kernels::suite::{Request, Verb};

use crate::stage::{LENGTH, Stage, state};

const LOCAL: (Syndrome, VendorCode) = (Syndrome::LOCAL_PROTECTION, VendorCode::LOCAL_KEY);
const REMOTE: (Syndrome, VendorCode) = (Syndrome::REMOTE_ACCESS, VendorCode::REMOTE_ACCESS);
const INVALID: (Syndrome, VendorCode) =
    (Syndrome::REMOTE_INVALID_REQUEST, VendorCode::REMOTE_REQUEST);
const SMALL: usize = 256;
const END: i64 = LENGTH as i64;

/// Memory that a request must not use so.
struct Others {
    /// In another domain of our device.
    foreign_here: Arena,
    /// In another domain of the peer's.
    foreign_there: Arena,
    /// Without local write access.
    unwritable_here: Arena,
    /// With remote read access only.
    readable_there: Arena,
    /// With remote write access only.
    writable_there: Arena,
    /// A key that was taken back.
    stale: RemoteKey,
    // Foreign arenas live in these.
    _domains: [Side; 2],
}

impl Others {
    fn new(stage: &Stage) -> Self {
        let other_domain = |side: &Side| Side {
            domain: side.device().protection_domain().expect("a domain"),
        };
        let (ours, theirs) = (&stage.sides.ours, &stage.sides.theirs);
        let domains = [other_domain(ours), other_domain(theirs)];
        let spare = stage.theirs.register_again(&theirs.domain, ALL_ACCESS);
        let writable = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        Self {
            foreign_here: domains[0].arena(SMALL, ALL_ACCESS, 3),
            foreign_there: domains[1].arena(SMALL, ALL_ACCESS, 4),
            unwritable_here: ours.arena(SMALL, Access::REMOTE_READ, 5),
            readable_there: theirs.arena(SMALL, Access::REMOTE_READ, 6),
            writable_there: theirs.arena(SMALL, writable, 7),
            stale: spare.rkey(),
            _domains: domains,
        }
    }

    fn arenas(&self) -> [&Arena; 5] {
        [
            &self.foreign_here,
            &self.foreign_there,
            &self.unwritable_here,
            &self.readable_there,
            &self.writable_there,
        ]
    }
}

/// A description, the request, its opcode, and the NIC's error.
type Case = (&'static str, Request, Opcode, (Syndrome, VendorCode));

fn cases(stage: &Stage, others: &Others) -> Vec<Case> {
    let (ours, theirs) = (&stage.ours, &stage.theirs);
    let (fine_here, fine_there) = (ours.local(64, 8), theirs.remote(64));
    let request = |verb, opcode, local, remote| {
        let request = Request::new(verb).local(&[local]).remote(remote);
        (request.values([1, 0, 0, 0]), opcode)
    };
    let write = |local, remote| request(Verb::Write, Opcode::RDMA_WRITE, local, remote);
    let read = |local, remote| request(Verb::Read, Opcode::RDMA_READ, local, remote);
    let add = |local, remote| request(Verb::FetchAdd, Opcode::ATOMIC_FETCH_ADD, local, remote);
    let unknown_here = Local {
        key: LocalKey(fine_here.key.0 ^ 0xff),
        ..fine_here
    };
    let with_key = |key| Remote { key, ..fine_there };
    let unknown_there = with_key(RemoteKey(fine_there.key.0 ^ 0xff));
    let stale = with_key(others.stale);
    let past_here = ours.local(END - 7, 8);
    let past_there = theirs.remote(END - 7);
    let foreign_here = others.foreign_here.local(0, 8);
    let foreign_there = others.foreign_there.remote(0);
    let unwritable_here = others.unwritable_here.local(0, 8);
    let readable = others.readable_there.remote(0);
    let writable = others.writable_there.remote(0);
    let all_here = ours.local(0, LENGTH);
    let pieces = |verb, opcode, second| {
        let request = Request::new(verb).local(&[fine_here, second]);
        (request.remote(fine_there), opcode)
    };
    let late_gather = pieces(Verb::WriteGather, Opcode::RDMA_WRITE, past_here);
    let bad_scatter = pieces(Verb::ReadScatter, Opcode::RDMA_READ, unwritable_here);
    let local = [
        ("an unknown lkey", write(unknown_here, fine_there)),
        ("an lkey of another domain", write(foreign_here, fine_there)),
        ("one byte past our end", write(past_here, fine_there)),
        (
            "one byte before our start",
            write(ours.local(-1, 8), fine_there),
        ),
        ("a gather whose second piece ends too late", late_gather),
        (
            "a read without local write access",
            read(unwritable_here, fine_there),
        ),
        ("a read one byte past our end", read(past_here, fine_there)),
        ("a scatter with a piece that is not writable", bad_scatter),
        (
            "an atomic whose result may not be written",
            add(unwritable_here, fine_there),
        ),
    ];
    let remote = [
        ("an unknown rkey", write(fine_here, unknown_there)),
        ("an rkey that was taken back", write(fine_here, stale)),
        ("an rkey of another domain", write(fine_here, foreign_there)),
        ("one byte past their end", write(fine_here, past_there)),
        (
            "one byte before their start",
            write(fine_here, theirs.remote(-1)),
        ),
        (
            "a long write, one byte past their end",
            write(all_here, theirs.remote(1)),
        ),
        (
            "a read one byte past their end",
            read(fine_here, past_there),
        ),
        (
            "a long read, one byte before their start",
            read(all_here, theirs.remote(-1)),
        ),
        (
            "an atomic behind their end",
            add(fine_here, theirs.remote(END)),
        ),
        (
            "a write without remote write access",
            write(fine_here, readable),
        ),
        (
            "a read without remote read access",
            read(fine_here, writable),
        ),
        (
            "an atomic without remote atomic access",
            add(fine_here, writable),
        ),
    ];
    let local = local.map(|(what, (request, opcode))| (what, request, opcode, LOCAL));
    let remote = remote.map(|(what, (request, opcode))| (what, request, opcode, REMOTE));
    [&local[..], &remote].concat()
}

/// Every bad access, on both kinds of completion queue.
pub fn every_bad_access() {
    for completions in [Completions::ORDINARY, Completions::Collapsed] {
        let mut stage = Stage::new(&QueuePairConfig {
            send_completions: completions,
            ..QueuePairConfig::default()
        });
        let others = Others::new(&stage);
        let untouched = others.arenas().map(Arena::image);
        for (what, request, opcode, cause) in cases(&stage, &others) {
            stage.fails(what, request, opcode, cause, completions);
            for (arena, image) in others.arenas().into_iter().zip(&untouched) {
                arena.check(image, what);
            }
        }
    }
    without_access();
}

/// A queue pair may forbid an access that a region allows: such a request is invalid there.
fn without_access() {
    let mut stage = Stage::new(&QueuePairConfig {
        access: Access::REMOTE_WRITE | Access::REMOTE_READ,
        ..QueuePairConfig::default()
    });
    let add = Request::new(Verb::FetchAdd)
        .local(&[stage.ours.local(64, 8)])
        .remote(stage.theirs.remote(64));
    let what = "an atomic through a queue pair that allows none";
    let default = Completions::ORDINARY;
    stage.fails(what, add, Opcode::ATOMIC_FETCH_ADD, INVALID, default);
}

/// An error that the test gives to the HCA for the n-th request arrives as it was given.
pub fn given_errors() {
    let mut stage = Stage::new(&QueuePairConfig {
        ..QueuePairConfig::default()
    });
    for &syndrome in Syndrome::KNOWN {
        let vendor = VendorCode(0x40 | syndrome.0);
        let qpn = QpNumber::from_low_bits(stage.pair.ours.qpn());
        stage
            .sides
            .ours
            .hca()
            .command(|engine| engine.fail_send(qpn, 1, syndrome, vendor))
            .expect("a running HCA")
            .expect("a queue pair");
        let nop = Request::new(Verb::Nop);
        let what = format!("{syndrome}");
        let cause = (syndrome, vendor);
        stage.fails(&what, nop, Opcode::NOP, cause, Completions::ORDINARY);
        assert_eq!(
            state(&stage.pair.ours),
            warpbell_host_init::State::ReadyToSend
        );
    }
}
