//! The queues of a running process, seen from another one.
//!
//! Each process lists its queue pairs in a table in its own memory, and a memfd named `warpbell-queues` says where. A
//! reader with the right to debug the process finds the memfd in `/proc/PID/fd`, and reads table and rings in
//! `/proc/PID/mem`. Nothing is written but when a queue pair is made, reset or dropped.
//!
//! ```
//! use warpbell_host_init::live::Process;
//! use warpbell_host_init::{Node, QueuePairConfig};
//!
//! let pair = Node::cpu().domain()?.queue_pair(&QueuePairConfig::default())?;
//! let process = Process::attach(std::process::id()).expect("it is this one");
//! let queues = process.queues().expect("a table");
//! assert!(queues.iter().any(|queue| queue.qpn == pair.qpn()));
//! # Ok::<(), warpbell_host_init::Error>(())
//! ```

mod counters;
mod image;
mod table;

use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::state::Gid;
pub use counters::NicCounters;
pub use image::Image;
pub(crate) use table::{Entry, Listing};
use table::{Flags, HEADER_WORDS, Header, Row};

/// Why the queues of a process cannot be seen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    /// There is no such process.
    #[error("there is no process {pid}")]
    NoProcess {
        /// Its number.
        pid: u32,
    },
    /// The system does not allow it.
    #[error(
        "process {pid} may not be read ({source}): run this as the same user or as root; \
         /proc/sys/kernel/yama/ptrace_scope may forbid it, too"
    )]
    NotPermitted {
        /// The process.
        pid: u32,
        /// What the system says.
        source: io::Error,
    },
    /// The process has made no queue pair of Warpbell's.
    #[error("process {pid} has no queues of Warpbell: it has made none yet, or is another program")]
    NotOurs {
        /// The process.
        pid: u32,
    },
    /// A dump of memory holds no table.
    #[error(
        "the dump holds no table of Warpbell's queues: its process made none, is another program, or left its private \
         memory out (bit 0 of /proc/PID/coredump_filter)"
    )]
    NotInDump,
    /// The process was built with another version of Warpbell.
    #[error(
        "the process has queues in format {found}, and this program reads format {wanted}: use the same version of both"
    )]
    OtherVersion {
        /// The table's format.
        found: u32,
        /// The one of this program.
        wanted: u32,
    },
    /// Memory is not there: the process has ended, or the queue is gone.
    #[error(
        "cannot read memory at {address:#x} ({source}): the process has ended, or the queue is gone"
    )]
    Unreadable {
        /// Its address.
        address: u64,
        /// What the system says.
        source: io::Error,
    },
    /// A queue lies in pinned memory, which the driver does not show to other processes, or is gone.
    #[error(
        "queue pair {qpn:#08x} is in pinned memory of a GPU program, which the driver may not show to other processes \
         ({source}); or the process has ended"
    )]
    Pinned {
        /// The queue pair.
        qpn: u32,
        /// What the system says.
        source: io::Error,
    },
    /// The table holds what cannot be.
    #[error("the table of queues is damaged: {what}")]
    Damaged {
        /// What is wrong.
        what: &'static str,
    },
    /// A queue lies where another process cannot read.
    #[error("{what} of queue pair {qpn:#08x} {} in GPU memory, which another process cannot read", if *.plural { "are" } else { "is" })]
    InGpu {
        /// What lies there.
        what: &'static str,
        /// Whether that is more than one.
        plural: bool,
        /// The queue pair.
        qpn: u32,
    },
}

/// Bytes of a process.
pub trait Memory: Send {
    /// Copies bytes from an address.
    ///
    /// # Errors
    /// What the system says, if they are not all there.
    fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()>;
}

impl Memory for File {
    /// The file is a process's memory.
    fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(into, address)
    }
}

/// Where memory lies, for a reader of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In host memory.
    Host,
    /// In pinned host memory.
    Pinned,
    /// In GPU memory.
    Gpu,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host memory",
            Self::Pinned => "pinned host memory",
            Self::Gpu => "GPU memory",
        })
    }
}

/// A queue pair of another process.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    /// Its number. Those of two devices may be the same.
    pub qpn: u32,
    /// Address of its send ring, which no other queue pair has.
    pub send_ring: u64,
    /// Its device.
    pub gid: Gid,
    /// The other end, once the queue pair is connected: its device and its number there.
    pub peer: Option<(Gid, u32)>,
    /// Number of the send queue's completion queue.
    pub send_cqn: u32,
    /// Blocks of the send queue.
    pub send_depth: u32,
    /// Receives of the receive queue, if there is one.
    pub receive_depth: Option<u32>,
    /// Bytes between two receives.
    pub receive_stride: usize,
    /// Each CQE of the send queue overwrites the one before.
    pub collapsed: bool,
    /// The NIC takes the send queue's producer index from a doorbell record.
    pub has_record: bool,
    /// Other queues start its send queue.
    pub managed: bool,
    /// The send queue's CQEs go to a completion queue of many queue pairs; only those that a kernel has taken from it
    /// are seen.
    pub common: bool,
    /// Where rings and doorbell record lie.
    pub queues_in: Place,
    /// Where the completion queues lie.
    pub completions_in: Place,
    /// Where the kernels' own words lie.
    pub states_in: Place,
    /// Another one after the queue pair was connected or reset, when its indices may begin again.
    pub incarnation: u64,
    row: Row,
}

/// A process whose queues can be seen.
pub struct Process {
    memory: Box<dyn Memory>,
    header: Header,
}

impl Process {
    /// Finds the queues of a running process.
    ///
    /// # Errors
    /// [`LiveError::NoProcess`], [`LiveError::NotPermitted`], [`LiveError::NotOurs`], and those of
    /// [`of_memory`](Self::of_memory).
    pub fn attach(pid: u32) -> Result<Self, LiveError> {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        if !folder.exists() {
            return Err(LiveError::NoProcess { pid });
        }
        let refused = |source: io::Error| match source.kind() {
            ErrorKind::NotFound => LiveError::NoProcess { pid },
            _ => LiveError::NotPermitted { pid, source },
        };
        let files = fs::read_dir(folder.join("fd")).map_err(refused)?;
        let link = |file: &PathBuf| fs::read_link(file).unwrap_or_default();
        let is_table = |file: &PathBuf| link(file).to_string_lossy().contains(table::NAME);
        let mut files = files.filter_map(|file| Some(file.ok()?.path()));
        let file = files.find(is_table).ok_or(LiveError::NotOurs { pid })?;
        let mut words = [0; 16];
        let table = File::open(file).map_err(refused)?;
        // One that holds nothing yet is about to be written.
        if table.read_exact_at(&mut words, 0).is_err() {
            return Err(LiveError::NotOurs { pid });
        }
        let (words, _) = words.as_chunks();
        let [version, address] = [0, 1].map(|at: usize| u64::from_ne_bytes(words[at]));
        table::check_version(version as u32)?;
        let memory = File::open(folder.join("mem")).map_err(refused)?;
        Self::of_memory(Box::new(memory), address).map_err(|error| match error {
            LiveError::Unreadable { source, .. } => LiveError::NotPermitted { pid, source },
            other => other,
        })
    }

    /// The queues of a process whose memory is at hand, and whose table begins at an address.
    ///
    /// # Errors
    /// [`LiveError::OtherVersion`]; [`LiveError::Unreadable`]; [`LiveError::Damaged`] if there is no table.
    pub fn of_memory(memory: Box<dyn Memory>, address: u64) -> Result<Self, LiveError> {
        let mut bytes = [0; 8 * HEADER_WORDS];
        let process = |header| Self { memory, header };
        let unread = process(Header::default());
        unread.read(address, &mut bytes)?;
        let header = Header::of_bytes(bytes, address)?;
        Ok(Self { header, ..unread })
    }

    /// The queues of a dump of a process's memory, which holds these addresses. The table is found by what it begins
    /// with.
    ///
    /// # Errors
    /// [`LiveError::NotInDump`]; [`LiveError::Unreadable`]; [`LiveError::OtherVersion`].
    pub fn of_dump(memory: Box<dyn Memory>, ranges: &[Range<u64>]) -> Result<Self, LiveError> {
        /// Bytes that are searched at once, and a header.
        const PIECE: u64 = 1 << 20;
        let mut bytes = vec![0; PIECE as usize + 8 * HEADER_WORDS];
        for range in ranges {
            for start in (range.start..range.end).step_by(PIECE as usize) {
                let len = bytes.len().min((range.end - start) as usize);
                let piece = &mut bytes[..len];
                let outcome = memory.read(start, piece);
                outcome.map_err(|source| LiveError::Unreadable {
                    address: start,
                    source,
                })?;
                for (at, header) in Header::candidates(piece) {
                    match Header::of_bytes(header, start + at as u64) {
                        Ok(header) => return Ok(Self { memory, header }),
                        // The same bytes are among the program's constants.
                        Err(LiveError::Damaged { .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        Err(LiveError::NotInDump)
    }

    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), LiveError> {
        let outcome = self.memory.read(address, into);
        outcome.map_err(|source| LiveError::Unreadable { address, source })
    }

    /// Its queue pairs.
    ///
    /// # Errors
    /// [`LiveError::Unreadable`] if it has ended; [`LiveError::Damaged`] if a row holds what cannot be.
    pub fn queues(&self) -> Result<Vec<Queue>, LiveError> {
        let mut bytes = vec![0; self.header.used() * size_of::<Row>()];
        let start = self.header.first_row();
        self.read(start, &mut bytes)?;
        let mut found = Vec::new();
        for (number, bytes) in bytes.chunks_exact(size_of::<Row>()).enumerate() {
            let Some(row) = Row::in_use(bytes) else {
                continue;
            };
            // A row that changed meanwhile is of a queue that is being made or dropped.
            let mut again = [0; 8];
            self.read(start + (number * size_of::<Row>()) as u64, &mut again)?;
            if u64::from_ne_bytes(again) == row.sequence {
                found.push(Queue::new(row)?);
            }
        }
        Ok(found)
    }

    /// How many blocks and receives the doorbell record of a queue pair counts now, modulo 2^16. None if there is no
    /// record, or where it cannot be read.
    pub fn counted(&self, queue: &Queue) -> Option<[u16; 2]> {
        let is_readable = queue.has_record && queue.queues_in != Place::Gpu;
        let mut record = [0; 8];
        self.read(is_readable.then_some(queue.row.record)?, &mut record)
            .ok()?;
        Some(image::producers(record))
    }

    /// Queue pairs that the table had no room for.
    pub fn left_out(&self) -> u64 {
        self.header.left_out
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process")
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}

impl Queue {
    fn new(row: Row) -> Result<Self, LiveError> {
        let logs = [
            row.send_depth_log2,
            row.receive_depth_log2,
            row.send_completions_log2,
            row.receive_completions_log2,
        ];
        if logs.iter().any(|log| *log > 24) || row.receive_stride_log2 > 5 {
            let what = "a queue is larger than a queue can be";
            return Err(LiveError::Damaged { what });
        }
        let flags = Flags::from_bits_retain(row.flags);
        let receive = flags.contains(Flags::RECEIVE);
        Ok(Self {
            qpn: row.qpn,
            send_ring: row.send_ring,
            gid: Gid(row.gid),
            peer: (row.remote_qpn != table::NO_PEER)
                .then_some((Gid(row.remote_gid), row.remote_qpn)),
            send_cqn: row.send_cqn,
            send_depth: 1 << row.send_depth_log2,
            receive_depth: receive.then_some(1 << row.receive_depth_log2),
            receive_stride: 16 << row.receive_stride_log2,
            collapsed: flags.contains(Flags::COLLAPSED),
            has_record: flags.contains(Flags::RECORD),
            managed: flags.contains(Flags::MANAGED),
            common: flags.contains(Flags::COMMON),
            queues_in: table::place(row.queues_in),
            completions_in: table::place(row.completions_in),
            states_in: table::place(row.states_in),
            incarnation: row.sequence,
            row,
        })
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
