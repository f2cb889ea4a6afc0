//! What the queues of a running process wait for.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use console::style;
use mlx5_wqe::decode::{Operation, QueueOperation, decode};
use mlx5_wqe::segment::Control;
use mlx5_wqe::{Completion, CompletionError, Cqe64, Opcode, QpNumber, Syndrome};
use serde::Serialize;
use warpbell_host_init::live::{Image, LiveError, Process, Queue};
use zerocopy::FromBytes;

use crate::live::{block, blocks_of};
use crate::text::wrap;

/// Changes whenever a reader of the JSON would have to.
pub const FORMAT: u32 = 1;

/// What nobody but the NIC knows.
const UNSEEN: &str = "Tries and packets are known to the NIC alone, and not shown.";

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
    /// How many may be posted now.
    pub credit: Option<u32>,
    /// The oldest request or receive under way.
    pub oldest: Option<Oldest>,
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

/// A look at a process that goes on, which knows for how long a request is the oldest.
pub struct Watch {
    pid: u32,
    process: Process,
    seen: HashMap<(u64, Side), (u32, u16, Instant)>,
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
            seen: HashMap::new(),
        })
    }

    /// The queues as they are now.
    ///
    /// # Errors
    /// [`LiveError::Unreadable`] if the process has ended.
    pub fn look(&mut self) -> Result<Screen, LiveError> {
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
        let mut lines = Vec::new();
        for (queue, image) in &images {
            match image {
                Ok(image) => {
                    lines.push(send(image, peer_of(image)));
                    lines.extend(receive(image));
                }
                Err(error) => lines.push(unreadable(queue, error)),
            }
        }
        let now = Instant::now();
        let mut seen = HashMap::new();
        for line in &mut lines {
            let Some(oldest) = &mut line.oldest else {
                continue;
            };
            let key = (line.send_ring, line.queue);
            let (qpn, index) = (line.qpn, oldest.index);
            let before = self
                .seen
                .get(&key)
                .filter(|before| (before.0, before.1) == (qpn, index));
            let since = before.map_or(now, |before| before.2);
            oldest.seen_ms = (now - since).as_millis() as u64;
            seen.insert(key, (qpn, index, since));
        }
        self.seen = seen;
        Ok(Screen {
            format: FORMAT,
            pid: self.pid,
            queues: lines,
            left_out: self.process.left_out(),
        })
    }
}

fn unreadable(queue: &Queue, error: &LiveError) -> Line {
    Line {
        qpn: queue.qpn,
        send_ring: queue.send_ring,
        queue: Side::Send,
        depth: queue.send_depth,
        producer: None,
        consumer: None,
        credit: None,
        oldest: None,
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
        send_ring: queue.send_ring,
        queue: Side::Send,
        depth: queue.send_depth,
        producer: Some(producer),
        consumer: Some(consumer),
        credit: Some(credit),
        oldest,
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
        send_ring: queue.send_ring,
        queue: Side::Receive,
        depth,
        producer: Some(producer),
        consumer: Some(consumer),
        credit: Some(depth.saturating_sub(u32::from(producer.wrapping_sub(consumer)))),
        oldest: awaited.map(|awaited| Oldest {
            index: awaited.receive.0,
            opcode: None,
            bytes: None,
            remote_address: None,
            seen_ms: 0,
        }),
        state,
        waits_for,
    })
}

/// The error that a ring of CQEs reports: the cause, rather than what was flushed behind it.
fn first_error(entries: &[[u8; 64]]) -> Option<String> {
    let errors = entries
        .iter()
        .filter_map(|entry| match Cqe64::from_bytes(*entry).decode() {
            Ok(Completion::Error(error)) => Some(error),
            _ => None,
        });
    let error: CompletionError = errors.min_by_key(|error| error.syndrome == Syndrome::FLUSHED)?;
    let look_at = error.syndrome.describe().map_or("", |known| known.look_at);
    Some(format!("{error}. {look_at}").trim_end().to_string())
}

/// The queues as a table for people.
pub fn page(screen: &Screen, columns: usize) -> String {
    let mut page = String::new();
    let mut line = |text: &str| {
        page.push_str(text);
        page.push('\n');
    };
    let queues = screen.queues.len();
    let title = format!("process {}: {queues} queues", screen.pid);
    line(&style(title).bold().to_string());
    if queues == 0 {
        line("It has no queue pair now.");
        return page;
    }
    line("QPN       queue    depth  posted   done  free  oldest");
    for found in &screen.queues {
        let number =
            |value: Option<u32>| value.map_or_else(|| "-".into(), |value| value.to_string());
        let side = match found.queue {
            Side::Send => "send",
            Side::Receive => "receive",
        };
        line(&format!(
            "{:#08x}  {side:<7} {:>6} {:>7} {:>6} {:>5}  {}",
            found.qpn,
            found.depth,
            number(found.producer.map(u32::from)),
            number(found.consumer.map(u32::from)),
            number(found.credit),
            found.oldest.as_ref().map_or_else(|| "-".into(), oldest),
        ));
        let colour = match found.state {
            State::Failed => console::Style::new().red(),
            State::Waiting => console::Style::new().yellow(),
            State::Idle => console::Style::new().dim(),
            State::Unreadable => console::Style::new(),
        };
        let words = wrap("          ", &found.waits_for, columns);
        line(&colour.apply_to(words).to_string());
    }
    line("");
    if screen.left_out > 0 {
        let text = format!(
            "{} more queue pairs had no room in the process's table.",
            screen.left_out
        );
        line(&wrap("", &text, columns));
    }
    line(&wrap("", UNSEEN, columns));
    page
}

fn oldest(oldest: &Oldest) -> String {
    let opcode = oldest.opcode.as_deref().unwrap_or("receive");
    let seen = Duration::from_millis(oldest.seen_ms).as_secs_f64();
    format!("{:#06x} {opcode}, {seen:.1} s", oldest.index)
}
