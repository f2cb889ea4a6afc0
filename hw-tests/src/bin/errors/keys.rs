//! Keys of somebody else, ranges past the end, missing rights: the NIC refuses, the kernel learns why.

use warpbell::wqe::{Local, LocalKey, Opcode, QpNumber, Remote, RemoteKey, Syndrome, VendorCode};
use warpbell_host_init::{Access, Completions, QueuePairConfig};
use warpbell_hw_tests::arena::Arena;
use warpbell_hw_tests::sides::{ALL_ACCESS, Side};
use warpbell_kernels::suite::{Request, Verb};

use crate::stage::{LENGTH, Stage, state};

const LOCAL: (Syndrome, VendorCode) = (Syndrome::LOCAL_PROTECTION, VendorCode::LOCAL_KEY);
const REMOTE: (Syndrome, VendorCode) = (Syndrome::REMOTE_ACCESS, VendorCode::REMOTE_ACCESS);
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

/// A request, what is wrong with it, and how the NIC calls that.
type Case = (&'static str, Request, Opcode, (Syndrome, VendorCode));

fn cases(stage: &Stage, others: &Others) -> Vec<Case> {
    let (ours, theirs) = (&stage.ours, &stage.theirs);
    let fine_here = ours.local(64, 8);
    let fine_there = theirs.remote(64);
    let write =
        |local: Local, remote: Remote| Request::new(Verb::Write).local(&[local]).remote(remote);
    let read =
        |local: Local, remote: Remote| Request::new(Verb::Read).local(&[local]).remote(remote);
    let add = |local: Local, remote: Remote| {
        let values = [1, 0, 0, 0];
        Request::new(Verb::FetchAdd)
            .local(&[local])
            .remote(remote)
            .values(values)
    };
    let unknown_here = Local {
        key: LocalKey(fine_here.key.0 ^ 0xff),
        ..fine_here
    };
    let unknown_there = Remote {
        key: RemoteKey(fine_there.key.0 ^ 0xff),
        ..fine_there
    };
    let stale = Remote {
        key: others.stale,
        ..fine_there
    };
    let gather = Request::new(Verb::WriteGather)
        .local(&[fine_here, ours.local(END - 7, 8)])
        .remote(fine_there);
    let scatter = Request::new(Verb::ReadScatter)
        .local(&[fine_here, others.unwritable_here.local(0, 8)])
        .remote(fine_there);
    use Opcode as O;
    vec![
        (
            "an unknown lkey",
            write(unknown_here, fine_there),
            O::RDMA_WRITE,
            LOCAL,
        ),
        (
            "an lkey of another domain",
            write(others.foreign_here.local(0, 8), fine_there),
            O::RDMA_WRITE,
            LOCAL,
        ),
        (
            "one byte past our end",
            write(ours.local(END - 7, 8), fine_there),
            O::RDMA_WRITE,
            LOCAL,
        ),
        (
            "one byte before our start",
            write(ours.local(-1, 8), fine_there),
            O::RDMA_WRITE,
            LOCAL,
        ),
        (
            "a gather whose second piece ends too late",
            gather,
            O::RDMA_WRITE,
            LOCAL,
        ),
        (
            "a read into memory without local write access",
            read(others.unwritable_here.local(0, 8), fine_there),
            O::RDMA_READ,
            LOCAL,
        ),
        (
            "a read one byte past our end",
            read(ours.local(END - 7, 8), fine_there),
            O::RDMA_READ,
            LOCAL,
        ),
        (
            "a scatter with a piece that is not writable",
            scatter,
            O::RDMA_READ,
            LOCAL,
        ),
        (
            "an atomic whose result may not be written",
            add(others.unwritable_here.local(0, 8), fine_there),
            O::ATOMIC_FETCH_ADD,
            LOCAL,
        ),
        (
            "an unknown rkey",
            write(fine_here, unknown_there),
            O::RDMA_WRITE,
            REMOTE,
        ),
        (
            "an rkey that was taken back",
            write(fine_here, stale),
            O::RDMA_WRITE,
            REMOTE,
        ),
        (
            "an rkey of another domain",
            write(fine_here, others.foreign_there.remote(0)),
            O::RDMA_WRITE,
            REMOTE,
        ),
        (
            "one byte past their end",
            write(fine_here, theirs.remote(END - 7)),
            O::RDMA_WRITE,
            REMOTE,
        ),
        (
            "one byte before their start",
            write(fine_here, theirs.remote(-1)),
            O::RDMA_WRITE,
            REMOTE,
        ),
        (
            "a long write, one byte past their end",
            write(ours.local(0, LENGTH), theirs.remote(1)),
            O::RDMA_WRITE,
            REMOTE,
        ),
        (
            "a read one byte past their end",
            read(fine_here, theirs.remote(END - 7)),
            O::RDMA_READ,
            REMOTE,
        ),
        (
            "a long read, one byte before their start",
            read(ours.local(0, LENGTH), theirs.remote(-1)),
            O::RDMA_READ,
            REMOTE,
        ),
        (
            "an atomic behind their end",
            add(fine_here, theirs.remote(END)),
            O::ATOMIC_FETCH_ADD,
            REMOTE,
        ),
        (
            "a write without remote write access",
            write(fine_here, others.readable_there.remote(0)),
            O::RDMA_WRITE,
            REMOTE,
        ),
        (
            "a read without remote read access",
            read(fine_here, others.writable_there.remote(0)),
            O::RDMA_READ,
            REMOTE,
        ),
        (
            "an atomic without remote atomic access",
            add(fine_here, others.writable_there.remote(0)),
            O::ATOMIC_FETCH_ADD,
            REMOTE,
        ),
    ]
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

/// A queue pair may forbid what a region allows.
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
    stage.fails(what, add, Opcode::ATOMIC_FETCH_ADD, REMOTE, default);
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
