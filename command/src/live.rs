//! The queues of a running process or of a core dump, decoded.

use std::path::Path;

use mlx5_wqe::{Cqe64, CqeOpcode};
use serde::Serialize;
use warpbell_host_init::live::{Image, LiveError, Process};

use crate::core_dump::{self, CoreError};
use crate::decode::{Context, FORMAT, Kind, Report, decode};

/// Bytes of a block, and of a CQE.
const SLOT: usize = 64;
/// The most blocks, receives and CQEs of one queue that are shown.
const SHOWN: usize = 8;

/// Why a queue is not shown.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// The process cannot be read.
    #[error("{0}")]
    Live(#[from] LiveError),
    /// The core dump cannot be read.
    #[error("{0}")]
    Core(#[from] CoreError),
    /// The process has no such queue pair.
    #[error("{place} has no queue pair {qpn:#x}; {}", have(found))]
    NoQueue {
        /// The process or the core dump.
        place: String,
        /// The number asked for.
        qpn: u32,
        /// The numbers that there are.
        found: Vec<u32>,
    },
}

fn have(found: &[u32]) -> String {
    if found.is_empty() {
        return "it has none at all now".into();
    }
    let numbers: Vec<_> = found
        .iter()
        .take(16)
        .map(|qpn| format!("{qpn:#x}"))
        .collect();
    let more = match found.len() - numbers.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("it has {}{more}", numbers.join(", "))
}

/// What the queues of one number hold.
#[derive(Debug, Serialize)]
pub struct LiveReport {
    /// As of [`Report`].
    pub format: u32,
    /// The process; none of a core dump.
    pub pid: Option<u32>,
    /// The queue pairs of that number: each device of the process may have one.
    pub queues: Vec<QueueReport>,
}

/// What the queues of one queue pair hold.
#[derive(Debug, Serialize)]
pub struct QueueReport {
    /// Number of the queue pair.
    pub qpn: u32,
    /// Address of its send ring.
    pub send_ring: u64,
    /// Its rings, CQEs and records around what is under way.
    pub parts: Vec<Part>,
}

/// Some bytes of a queue pair.
#[derive(Debug, Serialize)]
pub struct Part {
    /// What they are.
    pub name: String,
    /// What they say. Offsets count from the part's first byte.
    pub report: Report,
}

impl LiveReport {
    /// Reads the queue pairs of a number from a running process.
    ///
    /// # Errors
    /// [`QueueError::NoQueue`] if there is none; [`QueueError::Live`] if the process or the queue cannot be read.
    pub fn read(pid: u32, qpn: u32) -> Result<Self, QueueError> {
        let process = Process::attach(pid)?;
        Self::of(&process, Some(pid), qpn, || format!("process {pid}"))
    }

    /// Reads them from a core dump.
    ///
    /// # Errors
    /// As of [`read`](Self::read), and [`QueueError::Core`].
    pub fn of_core(file: &Path, qpn: u32) -> Result<Self, QueueError> {
        let process = core_dump::open(file)?;
        Self::of(&process, None, qpn, || file.display().to_string())
    }

    fn of(
        process: &Process,
        pid: Option<u32>,
        qpn: u32,
        place: impl FnOnce() -> String,
    ) -> Result<Self, QueueError> {
        let queues = process.queues()?;
        let of_number: Vec<_> = queues.iter().filter(|queue| queue.qpn == qpn).collect();
        if of_number.is_empty() {
            let found = queues.iter().map(|queue| queue.qpn).collect();
            let place = place();
            return Err(QueueError::NoQueue { place, qpn, found });
        }
        // One of several that is being dropped, or that a torn dump lacks, does not hide the others.
        let images: Vec<_> = of_number
            .into_iter()
            .map(|queue| process.image(queue))
            .collect();
        let (found, failed): (Vec<_>, Vec<_>) = images.into_iter().partition(Result::is_ok);
        let queues: Vec<_> = found.iter().flatten().map(QueueReport::new).collect();
        match failed.into_iter().find_map(Result::err) {
            Some(error) if queues.is_empty() => Err(error.into()),
            _ => Ok(Self {
                format: FORMAT,
                pid,
                queues,
            }),
        }
    }

    /// Whether a finding is an error.
    pub fn has_errors(&self) -> bool {
        let parts = self.queues.iter().flat_map(|queue| &queue.parts);
        parts.into_iter().any(|part| part.report.has_errors())
    }
}

impl QueueReport {
    /// What an image holds.
    pub fn new(image: &Image) -> Self {
        let queue = &image.queue;
        let mut parts = vec![Part::new(
            "doorbell record",
            Kind::DoorbellRecord,
            &image.record,
            &Context::default(),
        )];
        parts.extend(send_wqes(image));
        let newest = image.newest_completed();
        parts.extend(completions(
            "send",
            &image.send_completions,
            newest,
            queue.qpn,
        ));
        if queue.receive_depth.is_some() {
            parts.extend(receives(image));
            let next = image.awaited_receive().map(|receive| receive.receive.0);
            let newest = next.unwrap_or(image.receive_producer).wrapping_sub(1);
            let completions = completions(
                "receive",
                &image.receive_completions,
                Some(newest),
                queue.qpn,
            );
            parts.extend(completions);
        }
        Self {
            qpn: queue.qpn,
            send_ring: queue.send_ring,
            parts,
        }
    }
}

impl Part {
    fn new(name: impl Into<String>, kind: Kind, bytes: &[u8], context: &Context) -> Self {
        Self {
            name: name.into(),
            report: decode(bytes, Some(kind), context),
        }
    }
}

/// Blocks of the WQE in this one.
pub(crate) fn blocks_of(first: &[u8; SLOT]) -> u16 {
    u16::from((first[7] & 0x3f).div_ceil(4).max(1))
}

/// The block of a ring at an index.
pub(crate) fn block(image: &Image, index: u16) -> &[u8; SLOT] {
    &image.send_ring[usize::from(index) % image.send_ring.len()]
}

/// The WQEs under way; without any, the one that was completed last.
fn send_wqes(image: &Image) -> Option<Part> {
    let end = image.send_producer;
    let (name, start) = match (image.outstanding(), image.newest_completed()) {
        (Some(oldest), _) => ("send WQEs under way", oldest.wqe.0),
        (None, Some(newest)) => ("send WQE completed last", newest),
        (None, None) => return None,
    };
    let (mut bytes, mut index) = (Vec::new(), start);
    while index != end && bytes.len() < SHOWN * SLOT {
        for _ in 0..blocks_of(block(image, index)) {
            bytes.extend_from_slice(block(image, index));
            index = index.wrapping_add(1);
            if index == end {
                break;
            }
        }
    }
    let left = usize::from(end.wrapping_sub(index));
    let name = match left {
        0 => name.to_string(),
        _ => format!("{name}; {left} more blocks behind them"),
    };
    let context = Context {
        index: Some(start.into()),
        qpn: Some(image.queue.qpn),
        ..Context::default()
    };
    Some(Part::new(name, Kind::Wqe, &bytes, &context))
}

/// The receives that wait for messages.
fn receives(image: &Image) -> Option<Part> {
    let start = image.awaited_receive()?.receive.0;
    let count = usize::from(image.receive_producer.wrapping_sub(start));
    let (stride, mut bytes) = (image.queue.receive_stride, Vec::new());
    let depth = image.receive_ring.len() / stride;
    for number in 0..count.min(SHOWN) {
        let at = (usize::from(start) + number) % depth * stride;
        bytes.extend_from_slice(&image.receive_ring[at..at + stride]);
    }
    let name = match count.saturating_sub(SHOWN) {
        0 => "receive WQEs that wait".to_string(),
        left => format!("receive WQEs that wait; {left} more behind them"),
    };
    let context = Context {
        index: Some(start.into()),
        stride,
        ..Context::default()
    };
    Some(Part::new(name, Kind::RecvWqe, &bytes, &context))
}

/// The newest CQE, and those that report errors.
fn completions(side: &str, entries: &[[u8; SLOT]], newest: Option<u16>, qpn: u32) -> Option<Part> {
    let is_shown = |entry: &&[u8; SLOT]| {
        let tail = Cqe64::from_bytes(**entry).tail();
        let is_newest = Some(tail.wqe_counter()) == newest;
        tail.cqe_opcode() != CqeOpcode::INVALID && (is_newest || tail.is_error())
    };
    let shown: Vec<_> = entries
        .iter()
        .filter(is_shown)
        .take(SHOWN)
        .copied()
        .collect();
    if shown.is_empty() {
        return None;
    }
    let name = format!("CQEs of the {side} queue: the newest, and errors");
    let context = Context {
        qpn: Some(qpn),
        ..Context::default()
    };
    Some(Part::new(name, Kind::Cqe, shown.as_flattened(), &context))
}
