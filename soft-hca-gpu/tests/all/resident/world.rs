//! A resident engine on a thread.

use std::sync::atomic::AtomicU64;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use warpbell_soft_hca_gpu::Lender;
use warpbell_soft_hca_gpu::resident::{
    ArgumentParts, Arguments, Mailbox, Refused, Resident, Round, TableSizes,
};

/// How long an answer may take, on a busy machine too.
pub const LIMIT: Duration = Duration::from_secs(300);

/// The sizes of most tests: small, so that a test can fill a table.
pub const SIZES: TableSizes = TableSizes {
    protection_domains: 2,
    regions: 4,
    completion_queues: 4,
    queue_pairs: 2,
};

/// The first word of a mailbox, in whose bits 32 to 47 stands its version.
pub fn header(mailbox: &Mailbox) -> &AtomicU64 {
    // SAFETY: a mailbox begins with an atomic word.
    unsafe { &*(mailbox as *const Mailbox).cast() }
}

/// 128 bytes with the alignment that tables want.
#[repr(align(128))]
#[derive(Clone)]
struct Piece(#[expect(dead_code, reason = "room for the tables")] [u8; 128]);

/// Memory for tables, full of garbage.
pub struct TableMemory(Vec<Piece>);

impl TableMemory {
    pub fn new(sizes: &TableSizes) -> Self {
        Self::for_engines(sizes, 1)
    }

    pub fn for_engines(sizes: &TableSizes, engines: u32) -> Self {
        Self(vec![
            Piece([0xa5; 128]);
            sizes.bytes(engines) as usize / 128
        ])
    }

    pub fn parts(&mut self, mailbox: &Mailbox, sizes: TableSizes) -> ArgumentParts {
        ArgumentParts {
            mailboxes: mailbox,
            tables: self.0.as_mut_ptr().cast(),
            sizes,
            engines: 1,
            crew: 0,
            address: 7,
            system_wide: 0,
            key_seed: 0,
        }
    }
}

/// A mailbox for ever, so that a thread may use it.
pub fn mailbox() -> &'static Mailbox {
    Box::leak(Box::default())
}

/// What a kernel does, on a thread.
pub fn spawn(mailbox: &'static Mailbox, sizes: TableSizes) -> JoinHandle<Result<(), Refused>> {
    thread::spawn(move || {
        let mut memory = TableMemory::new(&sizes);
        let parts = memory.parts(mailbox, sizes);
        let begin = Instant::now();
        // SAFETY: the mailbox lives for ever, the memory until the engine is gone, and the tests
        // name memory in commands that they keep.
        let mut resident = unsafe { Resident::start(&Arguments::new(parts), 0, Lender::alone())? };
        loop {
            match resident.round(begin.elapsed().as_nanos() as u64) {
                Round::Worked => {}
                Round::Idle => thread::yield_now(),
                Round::Ended => return Ok(()),
            }
        }
    })
}
