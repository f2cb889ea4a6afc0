//! The table of a process's queue pairs: how it is written, and its layout.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{LiveError, Place};
use crate::Placement;
use crate::config::Checked;
use crate::queue_memory::QueueMemory;
use crate::state::{Endpoint, Gid};

/// The memfd that says where the table is: version, then address, 8 bytes each.
pub(super) const NAME: &str = "warpbell-queues";
/// Changes with the layout of header or rows.
pub(super) const VERSION: u32 = 2;
/// What the table begins with, so that it is found in a dump of memory.
const MAGIC: [u8; 16] = *b"warpbell-queues\0";
const ROWS: usize = 4096;
/// No queue pair has this number.
pub(super) const NO_PEER: u32 = u32::MAX;
pub(super) const HEADER_WORDS: usize = 8;
const ROW_WORDS: usize = size_of::<Row>() / 8;

bitflags::bitflags! {
    /// What a row says of its queue pair.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct Flags: u8 {
        const RECEIVE = 1;
        const RECORD = 1 << 1;
        const COLLAPSED = 1 << 2;
        const MANAGED = 1 << 3;
        const COMMON = 1 << 4;
    }
}

/// A queue pair: addresses are its process's.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Row {
    /// Odd while the row is in use. Goes up by one when that changes.
    pub sequence: u64,
    pub qpn: u32,
    pub send_cqn: u32,
    pub send_ring: u64,
    pub receive_ring: u64,
    pub record: u64,
    pub send_completions: u64,
    pub receive_completions: u64,
    /// The send queue's state, then the receive queue's.
    pub states: u64,
    /// What the NIC counts; 0 if that cannot be read.
    pub counters: u64,
    pub send_depth_log2: u8,
    pub receive_depth_log2: u8,
    pub receive_stride_log2: u8,
    pub send_completions_log2: u8,
    pub receive_completions_log2: u8,
    pub flags: u8,
    pub queues_in: u8,
    pub completions_in: u8,
    pub states_in: u8,
    pub reserved: [u8; 3],
    /// The other end's number; all ones while there is none.
    pub remote_qpn: u32,
    pub gid: [u8; 16],
    pub remote_gid: [u8; 16],
}

/// What the table begins with.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Header {
    address: u64,
    used: u64,
    pub left_out: u64,
}

/// The table of this process. All zero until the first queue pair is made, so that it takes no room in the program's
/// file, and pages without rows take none in memory.
#[repr(C)]
struct Table {
    /// Magic in two words; version and bytes of a row; the table's own address; rows used so far; queue pairs that had
    /// no room.
    header: [AtomicU64; HEADER_WORDS],
    rows: [[AtomicU64; ROW_WORDS]; ROWS],
}

static TABLE: Table = Table {
    header: [const { AtomicU64::new(0) }; HEADER_WORDS],
    rows: [const { [const { AtomicU64::new(0) }; ROW_WORDS] }; ROWS],
};

/// Rows that were used and are free again.
static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());

const USED: usize = 4;
const LEFT_OUT: usize = 5;

impl Table {
    /// Writes the header and the memfd, once.
    fn announce(&self) {
        static ANNOUNCED: OnceLock<Option<OwnedFd>> = OnceLock::new();
        ANNOUNCED.get_or_init(|| {
            let address = (&raw const TABLE).addr() as u64;
            let (magic, _) = MAGIC.as_chunks();
            let layout = u64::from(VERSION) | (size_of::<Row>() as u64) << 32;
            let words = [
                u64::from_ne_bytes(magic[0]),
                u64::from_ne_bytes(magic[1]),
                layout,
                address,
            ];
            for (word, value) in self.header.iter().zip(words) {
                word.store(value, Ordering::Relaxed);
            }
            // Miri knows no memfd.
            if cfg!(miri) {
                return None;
            }
            let file = rustix::fs::memfd_create(NAME, rustix::fs::MemfdFlags::CLOEXEC);
            let written = file.and_then(|file| {
                let words = [u64::from(VERSION), address];
                rustix::io::write(&file, words.as_bytes()).map(|_| file)
            });
            written
                .inspect_err(
                    |error| tracing::debug!(%error, "other processes will not see the queues"),
                )
                .ok()
        });
    }

    fn row(&self) -> Option<usize> {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(row) = free.pop() {
            return Some(row);
        }
        let used = self.header[USED].load(Ordering::Relaxed);
        if used as usize == ROWS {
            self.header[LEFT_OUT].fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.header[USED].store(used + 1, Ordering::Relaxed);
        Some(used as usize)
    }
}

/// What the table says of a queue pair.
#[derive(Clone, Copy)]
pub(crate) struct Listing<'a> {
    pub qpn: u32,
    pub send_cqn: u32,
    /// Its device.
    pub gid: Gid,
    /// Where the NIC counts, if that can be read.
    pub counters: Option<u64>,
    /// The other end, once it is known.
    pub remote: Option<&'a Endpoint>,
    pub memory: &'a QueueMemory,
    pub config: &'a Checked,
}

/// A queue pair's row, until it is dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    row: Option<usize>,
}

impl Entry {
    /// Lists a queue pair.
    pub fn new(listing: Listing<'_>) -> Self {
        TABLE.announce();
        let entry = Self { row: TABLE.row() };
        entry.write(listing);
        entry
    }

    /// Lists it again, as it is now.
    pub fn renew(&self, listing: Listing<'_>) {
        self.free();
        self.write(listing);
    }

    fn write(&self, listing: Listing<'_>) {
        let Listing {
            qpn,
            send_cqn,
            gid,
            counters,
            remote,
            memory,
            config,
        } = listing;
        let Some(row) = self.row.map(|row| &TABLE.rows[row]) else {
            return;
        };
        let addresses = memory.addresses();
        let mut flags = Flags::empty();
        flags.set(Flags::RECEIVE, config.receive.is_some());
        flags.set(
            Flags::RECORD,
            config.send_doorbell == warpbell::SendDoorbell::WithRecord,
        );
        flags.set(Flags::COLLAPSED, config.send_completions.collapsed);
        flags.set(Flags::MANAGED, config.managed_send);
        flags.set(Flags::COMMON, config.common_cqn.is_some());
        let receive = config.receive;
        let completions_in = match config.common_cqn {
            Some(_) => config.state_placement,
            None => config.completion_placement,
        };
        let filled = Row {
            sequence: row[0].load(Ordering::Relaxed) + 1,
            qpn,
            send_cqn,
            send_ring: addresses.send_ring,
            receive_ring: addresses.receive_ring,
            record: addresses.record,
            send_completions: memory.send_completions().0.addr() as u64,
            receive_completions: addresses.receive_completions,
            states: memory.send_state().addr() as u64,
            counters: counters.unwrap_or(0),
            send_depth_log2: config.send_depth_log2,
            receive_depth_log2: receive.map_or(0, |receive| receive.depth_log2),
            receive_stride_log2: receive.map_or(0, |receive| receive.stride_log2),
            send_completions_log2: config.send_completions.depth_log2,
            receive_completions_log2: receive.map_or(0, |receive| receive.completions.depth_log2),
            flags: flags.bits(),
            queues_in: number(config.placement),
            completions_in: number(completions_in),
            states_in: number(config.state_placement),
            reserved: [0; 3],
            remote_qpn: remote.map_or(NO_PEER, |remote| remote.qpn),
            gid: gid.0,
            remote_gid: remote.map_or([0; 16], |remote| remote.gid.0),
        };
        let words: [u64; ROW_WORDS] = zerocopy::transmute!(filled);
        for (word, value) in row.iter().zip(words).skip(1) {
            word.store(value, Ordering::Relaxed);
        }
        // The row's words before its sequence, because a reader takes the row for whole that has an odd one.
        row[0].store(filled.sequence, Ordering::Release);
    }

    /// Takes the row out of use, before the queue's memory is freed.
    fn free(&self) {
        if let Some(row) = self.row {
            // The sequence before what is then done to the queue, because a reader compares it last.
            TABLE.rows[row][0].fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.free();
        if let Some(row) = self.row {
            let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
            free.push(row);
        }
    }
}

const fn number(placement: Placement) -> u8 {
    match placement {
        Placement::Host => 0,
        Placement::Pinned(_) => 1,
        Placement::Gpu(_) => 2,
    }
}

pub(super) const fn place(number: u8) -> Place {
    match number {
        0 => Place::Host,
        1 => Place::Pinned,
        _ => Place::Gpu,
    }
}

pub(super) fn check_version(found: u32) -> Result<(), LiveError> {
    match found {
        VERSION => Ok(()),
        _ => Err(LiveError::OtherVersion {
            found,
            wanted: VERSION,
        }),
    }
}

impl Header {
    pub fn of_bytes(bytes: [u8; 8 * HEADER_WORDS], address: u64) -> Result<Self, LiveError> {
        if !bytes.starts_with(&MAGIC) {
            let what = "it does not begin with its name";
            return Err(LiveError::Damaged { what });
        }
        let (words, _) = bytes.as_chunks();
        let word = |at: usize| u64::from_ne_bytes(words[at]);
        let damaged = || LiveError::Damaged {
            what: "its header does not fit it",
        };
        if word(3) != address {
            return Err(damaged());
        }
        check_version(word(2) as u32)?;
        let (used, row_bytes) = (word(USED), word(2) >> 32);
        if used > ROWS as u64 || row_bytes != size_of::<Row>() as u64 {
            return Err(damaged());
        }
        Ok(Self {
            address,
            used,
            left_out: word(LEFT_OUT),
        })
    }

    /// What may be headers among these bytes, and where they begin.
    pub fn candidates(bytes: &[u8]) -> impl Iterator<Item = (usize, [u8; 8 * HEADER_WORDS])> {
        let places = (0..bytes.len()).step_by(8);
        places.filter_map(|at| {
            let header = bytes[at..].first_chunk()?;
            header.starts_with(&MAGIC).then_some((at, *header))
        })
    }

    /// Rows that were ever used.
    pub fn used(&self) -> usize {
        self.used as usize
    }

    pub fn first_row(&self) -> u64 {
        self.address + 8 * HEADER_WORDS as u64
    }
}

impl Row {
    /// The row that these bytes are, if it is in use.
    pub fn in_use(bytes: &[u8]) -> Option<Self> {
        let row = Self::read_from_bytes(bytes).ok()?;
        (row.sequence % 2 == 1).then_some(row)
    }
}
