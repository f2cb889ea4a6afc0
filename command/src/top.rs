//! What the queues of a running process wait for.

mod counts;
mod page;

use std::collections::HashMap;
use std::mem;
use std::time::Instant;

use mlx5_wqe::decode::{Operation, QueueOperation, decode};
use mlx5_wqe::segment::Control;
use mlx5_wqe::{Completion, CompletionError, Cqe64, Opcode, QpNumber, Syndrome};
use serde::Serialize;
use warpbell_host_init::live::{Image, LiveError, NicCounters, Process, Queue};
use zerocopy::FromBytes;

use crate::live::{block, blocks_of};
use counts::Counts;
pub use page::page;

/// Changes whenever a reader of the JSON would have to.
pub const FORMAT: u32 = 1;

/// The queues of a process at one moment.
#[derive(Debug, Serialize)]
pub struct Screen {
    /// [`FORMAT`].
    pub format: u32,
    /// The process.
    pub pid: u32,
    /// Its queues.
    pub queues: Vec<Line>,
    /// Queue pairs that the process's table had no room for.
    pub left_out: u64,
}

/// How a queue fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Nothing is under way.
    Idle,
    /// A request or a receive is under way.
    Waiting,
    /// A request has failed, and the queue with it.
    Failed,
    /// It lies where it cannot be read.
    Unreadable,
}

/// Which queue of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// The send queue, counted in blocks of 64 bytes.
    Send,
    /// The receive queue, counted in receives.
    Receive,
}

/// A queue at one moment. Indices count modulo 65,536.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// Number of the queue pair.
    pub qpn: u32,
    /// GID of its device.
    pub device: String,
    /// Address of its send ring, because two devices may use one number.
    pub send_ring: u64,
    /// Which of its queues.
    pub queue: Side,
    /// Blocks or receives of the ring.
    pub depth: u32,
    /// Index behind the last one posted.
    pub producer: Option<u16>,
    /// Index behind the last one completed.
    pub consumer: Option<u16>,
    /// Blocks or receives posted: goes on beyond 65,535 if the queue was looked at often enough.
    pub posted: Option<u64>,
    /// Blocks or receives completed, counted in the same way.
    pub completed: Option<u64>,
    /// How many may be posted now.
    pub credit: Option<u32>,
    /// The oldest request or receive under way.
    pub oldest: Option<Oldest>,
    /// CQEs that report an error.
    pub errors: usize,
    /// What a software NIC on the host has counted of the queue pair; with its send queue only.
    pub nic: Option<NicCounters>,
    /// How it fares.
    pub state: State,
    /// What it waits for, or why it failed, in a sentence.
    pub waits_for: String,
}

/// The oldest request or receive under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Oldest {
    /// Its index.
    pub index: u16,
    /// What it asks for; a receive asks for nothing.
    pub opcode: Option<String>,
    /// Bytes of its message, if it is a whole request.
    pub bytes: Option<u32>,
    /// Where it goes to at the other end.
    pub remote_address: Option<u64>,
    /// Milliseconds since it was first seen as the oldest: it may be older.
    pub seen_ms: u64,
}

/// One queue among all that a process ever had: number, address of the send ring, incarnation, and side.
type Key = (u32, u64, u64, Side);

/// A look at a process that goes on, which knows for how long a request is the oldest, and how much was posted.
pub struct Watch {
    pid: u32,
    process: Process,
    has_ended: bool,
    oldest: HashMap<Key, (u16, Instant)>,
    counts: HashMap<Key, Counts>,
}

impl Watch {
    /// Begins to watch a process.
    ///
    /// # Errors
    /// As of [`Process::attach`].
    pub fn begin(pid: u32) -> Result<Self, LiveError> {
        Ok(Self {
            pid,
            process: Process::attach(pid)?,
            has_ended: false,
            oldest: HashMap::new(),
            counts: HashMap::new(),
        })
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The queues as they are now.
    ///
    /// # Errors
    /// [`LiveError::NoProcess`] from then on if the process has ended, even if another process gets its number;
    /// [`LiveError::Unreadable`] if the process is about to end.
    pub fn look(&mut self) -> Result<Screen, LiveError> {
        let pid = self.pid;
        if self.has_ended {
            return Err(LiveError::NoProcess { pid });
        }
        let screen = self.screen();
        self.has_ended = matches!(screen, Err(LiveError::NoProcess { .. }));
        screen
    }

    fn screen(&mut self) -> Result<Screen, LiveError> {
        // The table may have grown.
        self.process = Process::attach(self.pid)?;
        let queues = self.process.queues()?;
        let images = queues
            .iter()
            .map(|queue| (queue, self.process.image(queue)));
        let images: Vec<_> = images.collect();
        let peer_of = |image: &Image| {
            let (gid, qpn) = image.queue.peer?;
            let mut images = images.iter().filter_map(|(_, image)| image.as_ref().ok());
            images.find(|image| (image.queue.gid, image.queue.qpn) == (gid, qpn))
        };
        let now = Instant::now();
        let oldest_before = mem::take(&mut self.oldest);
        let counts_before = mem::take(&mut self.counts);
        let mut lines = Vec::new();
        for (queue, image) in &images {
            let sides = match image {
                Ok(image) => [Some(send(image, peer_of(image))), receive(image)],
                Err(error) => [Some(unreadable(queue, error)), None],
            };
            for mut line in sides.into_iter().flatten() {
                let key = key(queue, line.queue);
                let known = counts_before.get(&key).copied();
                let published = published(image, line.queue);
                if let Some(mut counts) = counted(known, line.producer, published) {
                    if let (Some(producer), Some(consumer)) = (line.producer, line.consumer) {
                        counts.complete(producer.wrapping_sub(consumer));
                        line.posted = Some(counts.posted);
                        line.completed = Some(counts.completed);
                    }
                    self.counts.insert(key, counts);
                }
                if let Some(oldest) = &mut line.oldest {
                    let before = oldest_before.get(&key);
                    let before = before.filter(|(index, _)| *index == oldest.index);
                    let since = before.map_or(now, |(_, since)| *since);
                    oldest.seen_ms = (now - since).as_millis() as u64;
                    self.oldest.insert(key, (oldest.index, since));
                }
                lines.push(line);
            }
        }
        Ok(Screen {
            format: FORMAT,
            pid: self.pid,
            queues: lines,
            left_out: self.process.left_out(),
        })
    }

    /// Reads the doorbell records alone, so that the counts of queues go on between two looks. A queue pair made since
    /// the last look is counted from the next one on, if the table has grown.
    ///
    /// # Errors
    /// As of [`look`](Self::look).
    pub fn count(&mut self) -> Result<(), LiveError> {
        let queues = self.process.queues()?;
        let before = mem::take(&mut self.counts);
        for queue in &queues {
            let indices = self.process.counted(queue);
            for (at, side) in [Side::Send, Side::Receive].into_iter().enumerate() {
                let key = key(queue, side);
                let index = indices.map(|indices| indices[at]);
                if let Some(counts) = counted(before.get(&key).copied(), index, 0) {
                    self.counts.insert(key, counts);
                }
            }
        }
        Ok(())
    }
}

fn key(queue: &Queue, side: Side) -> Key {
    (queue.qpn, queue.send_ring, queue.incarnation, side)
}

/// The counts of a queue with an index taken in, if there is one.
fn counted(known: Option<Counts>, index: Option<u16>, published: u64) -> Option<Counts> {
    let Some(index) = index else { return known };
    let mut counts = known.unwrap_or_else(|| Counts::begin(index));
    counts.post(index, published);
    Some(counts)
}

/// Blocks that the kernels' own words say were posted. Those of exclusive queues lag behind.
fn published(image: &Result<Image, LiveError>, side: Side) -> u64 {
    let image = image.as_ref().ok().filter(|_| side == Side::Send);
    let progress = image.and_then(Image::send_progress);
    progress.map_or(0, |progress| progress.published)
}

fn unreadable(queue: &Queue, error: &LiveError) -> Line {
    Line {
        qpn: queue.qpn,
        device: queue.gid.to_string(),
        send_ring: queue.send_ring,
        queue: Side::Send,
        depth: queue.send_depth,
        producer: None,
        consumer: None,
        posted: None,
        completed: None,
        credit: None,
        oldest: None,
        errors: 0,
        nic: None,
        state: State::Unreadable,
        waits_for: error.to_string(),
    }
}

fn send(image: &Image, peer: Option<&Image>) -> Line {
    let queue = &image.queue;
    let producer = image.send_producer;
    let outstanding = image.outstanding();
    let consumer = outstanding.map_or(producer, |request| request.wqe.0);
    let under_way = u32::from(producer.wrapping_sub(consumer));
    let credit = queue.send_depth.saturating_sub(under_way);
    let oldest = outstanding.map(|request| Oldest {
        index: request.wqe.0,
        opcode: Some(request.opcode.to_string()),
        bytes: request.bytes,
        remote_address: remote_address(image, request.wqe.0),
        seen_ms: 0,
    });
    let [failed, _] = image.first_errors();
    let failed = failed
        .map(|error| error.to_string())
        .or_else(|| first_error(&image.send_completions));
    let (state, mut waits_for) = match (failed, outstanding) {
        (Some(error), _) => (State::Failed, format!("failed: {error}")),
        (None, Some(request)) => (
            State::Waiting,
            waits(image, peer, request.wqe.0, request.opcode),
        ),
        (None, None) if producer == 0 && image.newest_completed().is_none() => {
            (State::Idle, "nothing was posted yet".into())
        }
        (None, None) => (
            State::Idle,
            "nothing is under way: all that was posted is done".into(),
        ),
    };
    let open = image.send_progress().map_or(0, |progress| {
        progress.reserved.saturating_sub(progress.published)
    });
    if state != State::Failed && open > 0 {
        let words = format!(
            "{open} blocks are reserved and not published: a thread still stores its WQE, or waits at a barrier for a \
             lane that does not come"
        );
        waits_for = match state {
            State::Idle => words,
            _ => format!("{waits_for}. Besides, {words}"),
        };
    }
    if state == State::Waiting && credit == 0 {
        waits_for.push_str(". The ring is full");
    }
    Line {
        qpn: queue.qpn,
        device: queue.gid.to_string(),
        send_ring: queue.send_ring,
        queue: Side::Send,
        depth: queue.send_depth,
        producer: Some(producer),
        consumer: Some(consumer),
        posted: None,
        completed: None,
        credit: Some(credit),
        oldest,
        errors: errors(&image.send_completions).count(),
        nic: image.counters,
        state: if open > 0 && state == State::Idle {
            State::Waiting
        } else {
            state
        },
        waits_for,
    }
}

/// The bytes of the WQE at an index.
fn wqe(image: &Image, index: u16) -> Vec<u8> {
    let blocks = blocks_of(block(image, index));
    (0..blocks)
        .flat_map(|next| *block(image, index.wrapping_add(next)))
        .collect()
}

fn operation(image: &Image, index: u16) -> Option<Operation> {
    let bytes = wqe(image, index);
    let (control, _) = Control::read_from_prefix(&bytes).ok()?;
    let qpn = QpNumber::from_low_bits(image.queue.qpn);
    Some(decode(&bytes, control.index(), qpn).ok()?.operation)
}

fn remote_address(image: &Image, index: u16) -> Option<u64> {
    match operation(image, index)? {
        Operation::Write(remote, _) | Operation::Read(remote) | Operation::Atomic(remote, _) => {
            Some(remote.address)
        }
        _ => None,
    }
}

/// What the oldest request waits for.
fn waits(image: &Image, peer: Option<&Image>, index: u16, opcode: Opcode) -> String {
    if image.queue.managed {
        return "waits for a SEND_EN of another queue pair, which starts this queue".into();
    }
    if let Some(Operation::Queue(QueueOperation::Wait { queue, number })) = operation(image, index)
    {
        return format!("waits for CQE {number} of completion queue {queue}");
    }
    let (mut at, mut signalled) = (index, false);
    while at != image.send_producer {
        let blocks = blocks_of(block(image, at));
        let (control, _) = Control::read_from_prefix(&block(image, at)[..]).unwrap_or_default();
        signalled |= control.fm_ce_se.is_signalled();
        if image.send_producer.wrapping_sub(at) < blocks {
            break;
        }
        at = at.wrapping_add(blocks);
    }
    if !signalled {
        return "no CQE: none of the WQEs under way is signalled, so none is due".into();
    }
    let takes_receive = matches!(
        opcode,
        Opcode::SEND
            | Opcode::SEND_IMMEDIATE
            | Opcode::SEND_INVALIDATE
            | Opcode::RDMA_WRITE_IMMEDIATE
    );
    match (opcode, peer) {
        (Opcode::NOP | Opcode::SEND_ENABLE, _) => {
            "waits for the NIC, which has not executed it: there is no CQE".into()
        }
        (_, Some(peer)) if takes_receive && peer.awaited_receive().is_none() => format!(
            "waits for a receive (RNR): the other end, queue pair {:#08x} of this process, has none posted",
            peer.queue.qpn
        ),
        (_, Some(peer)) => format!(
            "waits for an acknowledgement or answer of queue pair {:#08x} of this process: there is no CQE",
            peer.queue.qpn
        ),
        (_, None) => {
            let other = match image.queue.peer {
                Some((gid, qpn)) => format!("the other end, queue pair {qpn:#08x} of {gid}"),
                None => "the other end".into(),
            };
            let why = match takes_receive {
                true => "acknowledged, or has no receive posted (RNR)",
                false => "answered or acknowledged",
            };
            format!("waits for {other}: there is no CQE, so it has not {why}")
        }
    }
}

fn receive(image: &Image) -> Option<Line> {
    let queue = &image.queue;
    let depth = queue.receive_depth?;
    let awaited = image.awaited_receive();
    let producer = image.receive_producer;
    let consumer = awaited.map_or(producer, |awaited| awaited.receive.0);
    let [_, failed] = image.first_errors();
    let failed = failed
        .map(|error| error.to_string())
        .or_else(|| first_error(&image.receive_completions));
    let (state, waits_for) = match (failed, awaited) {
        (Some(error), _) => (State::Failed, format!("failed: {error}")),
        (None, Some(_)) => (
            State::Waiting,
            "waits for a message of the other end".into(),
        ),
        (None, None) => (
            State::Idle,
            "no receive is posted: a SEND of the other end would meet RNR".into(),
        ),
    };
    Some(Line {
        qpn: queue.qpn,
        device: queue.gid.to_string(),
        send_ring: queue.send_ring,
        queue: Side::Receive,
        depth,
        producer: Some(producer),
        consumer: Some(consumer),
        posted: None,
        completed: None,
        credit: Some(depth.saturating_sub(u32::from(producer.wrapping_sub(consumer)))),
        oldest: awaited.map(|awaited| Oldest {
            index: awaited.receive.0,
            opcode: None,
            bytes: None,
            remote_address: None,
            seen_ms: 0,
        }),
        errors: errors(&image.receive_completions).count(),
        nic: None,
        state,
        waits_for,
    })
}

/// The error that a ring of CQEs reports: the cause, rather than what was flushed behind it.
fn first_error(entries: &[[u8; 64]]) -> Option<String> {
    let error = errors(entries).min_by_key(|error| error.syndrome == Syndrome::FLUSHED)?;
    let look_at = error.syndrome.describe().map_or("", |known| known.look_at);
    Some(format!("{error}. {look_at}").trim_end().to_string())
}

fn errors(entries: &[[u8; 64]]) -> impl Iterator<Item = CompletionError> {
    let decoded = entries
        .iter()
        .map(|entry| Cqe64::from_bytes(*entry).decode());
    decoded.filter_map(|completion| match completion {
        Ok(Completion::Error(error)) => Some(error),
        _ => None,
    })
}
