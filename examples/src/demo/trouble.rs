//! What a user meets when things go wrong, and how it goes on from there.

use std::sync::atomic::Ordering;

use rand::Rng;
use rand::rngs::SmallRng;
use serde::Serialize;
use warpbell::wqe::{CompletionError, Remote, RemoteKey, Syndrome};
use warpbell::{Cause, PostError, QueueError, Slice, WaitError};
use warpbell_host_init::{Entry, QueuePairConfig, Timers, entry};
use warpbell_kernels::bandwidth::{Sink, sink, sink_prepare};
use warpbell_kernels::demo::{self as kernels, Fill, Flagged, Transfer};
use warpbell_kernels::outcome::{Failure, Outcome};

use crate::Error;
use crate::demo::Options;
use crate::launch::{Job, LIMIT_US, run as run_kernel, run_together, try_run};
use crate::memory::Memory;
use crate::screen::Screen;
use crate::setup::{End, Ends, config};

/// One thing that went wrong on purpose.
#[derive(Clone, Debug, Serialize)]
pub struct Trouble {
    /// What was done.
    pub what: &'static str,
    /// What the kernel met, in words.
    pub met: String,
    /// The error CQE, where there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion: Option<Numbered>,
    /// What to look at first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub look_at: Option<&'static str>,
    /// How it went on.
    pub then: String,
    /// It was met as expected, no byte changed that should not, and the traffic afterwards arrived.
    pub verified: bool,
}

/// An error CQE in numbers.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Numbered {
    syndrome: u8,
    vendor: u8,
    wqe_index: u16,
    opcode: u8,
    qpn: u32,
}

impl From<CompletionError> for Numbered {
    fn from(error: CompletionError) -> Self {
        Self {
            syndrome: error.syndrome.0,
            vendor: error.vendor.0,
            wqe_index: error.wqe_index.0,
            opcode: error.opcode.0,
            qpn: error.qpn.get(),
        }
    }
}

type Scene = fn(&mut Ends, &mut Stage<'_>) -> Result<Trouble, Error>;

const SCENES: [Scene; COUNT] = [
    wrong_key,
    past_the_end,
    wrong_key_before_a_flag,
    full_queue,
    deadline,
    peer_gone,
];

/// How many things go wrong.
pub(super) const COUNT: usize = 6;

/// What all scenes work with.
struct Stage<'s> {
    options: &'s Options,
    random: &'s mut SmallRng,
}

/// Lets everything go wrong, one after the other.
pub(super) fn run(
    ends: &mut Ends,
    options: &Options,
    screen: &Screen,
    random: &mut SmallRng,
    troubles: &mut Vec<Trouble>,
) -> Result<(), Error> {
    screen.heading("When things go wrong");
    let mut stage = Stage { options, random };
    for scene in SCENES {
        screen.step("when things go wrong");
        let trouble = scene(ends, &mut stage)?;
        let mark = screen.mark(trouble.verified);
        screen.line(format_args!("  {}: {mark}", trouble.what));
        screen.wrapped("    met      ", &trouble.met);
        if let Some(look_at) = trouble.look_at {
            screen.wrapped("    look at  ", look_at);
        }
        screen.wrapped("    then     ", &trouble.then);
        troubles.push(trouble);
    }
    Ok(())
}

impl Stage<'_> {
    fn size(&self) -> usize {
        self.options.size as usize
    }

    /// Memory full of random data, and these data.
    fn memory(&mut self, end: &End) -> Result<(Memory, Vec<u8>), Error> {
        let mut data = vec![0; self.size()];
        self.random.fill(&mut data[..]);
        let memory = end.memory(data.len())?;
        memory.write(0, &data);
        Ok((memory, data))
    }

    /// Writes in both directions; whether every byte arrived.
    fn traffic(&mut self, ends: &Ends) -> Result<bool, Error> {
        let mut arrived = true;
        for (from, to) in [(&ends.one, &ends.other), (&ends.other, &ends.one)] {
            let (source, data) = self.memory(from)?;
            let (target, _) = self.memory(to)?;
            let outcome = from.node.shared(Outcome::new())?;
            let transfer = Transfer {
                queue: from.pair.send_queue()?,
                local: source.local(0, data.len()),
                remote: target.remote(0),
                beside: 0,
                limit_us: LIMIT_US,
                outcome: &outcome,
            };
            let job = Job::new(entry!(kernels::write), transfer, &outcome);
            run_kernel("traffic after an error", job, from)?;
            arrived &= source.check(&data).is_ok() && target.check(&data).is_ok();
        }
        Ok(arrived)
    }

    /// How the traffic went, in words.
    fn traffic_words(&self, how: &str) -> String {
        format!("{how}; {} bytes each way verified", self.size())
    }
}

/// A write that the other end must refuse, alone or with a flag behind it.
fn refused_write(
    what: &'static str,
    ends: &mut Ends,
    stage: &mut Stage<'_>,
    flagged: bool,
    change: impl FnOnce(Remote) -> Remote,
) -> Result<Trouble, Error> {
    let (source, data) = stage.memory(&ends.one)?;
    let (target, before) = stage.memory(&ends.other)?;
    let remote = change(target.remote(0));
    let failure = match flagged {
        true => write_flagged(ends, &source, remote, target.remote(0))?,
        false => write(ends, &source, remote)?,
    };
    let untouched = source.check(&data).is_ok() && target.check(&before).is_ok();
    // The host can read the same error, whether or not the kernel still runs.
    let host_knows = ends.one.pair.first_error();
    let known = failure.and_then(Failure::queue_error);
    let expected = untouched && known.is_some() && host_knows == known;
    ends.reset()?;
    let arrived = stage.traffic(ends)?;
    Ok(Trouble::new(what, failure, Syndrome::REMOTE_ACCESS)
        .and(expected && arrived)
        .then(stage.traffic_words("no byte was touched; queues reset, connected again")))
}

/// Writes all of `source`, and gives what the kernel met.
fn write(ends: &Ends, source: &Memory, remote: Remote) -> Result<Option<Failure>, Error> {
    let outcome = ends.node().shared(Outcome::new())?;
    let transfer = Transfer {
        queue: ends.one.pair.send_queue()?,
        local: source.local(0, source.len()),
        remote,
        beside: 0,
        limit_us: LIMIT_US,
        outcome: &outcome,
    };
    let job = Job::new(entry!(kernels::write), transfer, &outcome);
    Ok(try_run(job, &ends.one)?.err())
}

/// The same, and a flag behind it, which is right and asks for the completion of both.
fn write_flagged(
    ends: &Ends,
    source: &Memory,
    remote: Remote,
    flag: Remote,
) -> Result<Option<Failure>, Error> {
    let outcome = ends.node().shared(Outcome::new())?;
    let flagged = Flagged {
        queue: ends.one.pair.send_queue()?,
        local: source.local(0, source.len()),
        remote,
        value: 1,
        flag,
        limit_us: LIMIT_US,
        outcome: &outcome,
    };
    let job = Job::new(entry!(kernels::write_flagged), flagged, &outcome);
    Ok(try_run(job, &ends.one)?.err())
}

impl Trouble {
    /// What a kernel met, which should have been an error CQE with this syndrome.
    fn new(what: &'static str, failure: Option<Failure>, syndrome: Syndrome) -> Self {
        let error = failure.and_then(Failure::queue_error);
        let completion = match error.map(QueueError::cause) {
            Some(Cause::Completion(error)) => Some(error),
            _ => None,
        };
        let found = completion.map(|error| error.syndrome);
        Self {
            look_at: found
                .and_then(Syndrome::describe)
                .map(|description| description.look_at),
            completion: completion.map(Numbered::from),
            ..Self::without_completion(what, failure, found == Some(syndrome))
        }
    }

    /// What a kernel met, which should have been no error CQE.
    fn without_completion(what: &'static str, failure: Option<Failure>, expected: bool) -> Self {
        let met = match failure.map(|failure| (failure, failure.queue_error())) {
            None => "no error".into(),
            Some((_, Some(error))) => error.to_string(),
            Some((failure, None)) => failure.to_string(),
        };
        Self {
            what,
            met,
            completion: None,
            look_at: None,
            then: String::new(),
            verified: expected,
        }
    }

    fn and(mut self, verified: bool) -> Self {
        self.verified &= verified;
        self
    }

    fn then(mut self, then: String) -> Self {
        self.then = then;
        self
    }
}

fn wrong_key(ends: &mut Ends, stage: &mut Stage<'_>) -> Result<Trouble, Error> {
    let what = "A write with a wrong remote key";
    refused_write(what, ends, stage, false, with_wrong_key)
}

/// The same place, under a key that nobody has given away.
fn with_wrong_key(remote: Remote) -> Remote {
    Remote {
        key: RemoteKey(!remote.key.0),
        ..remote
    }
}

/// What newcomers meet first: nobody waits for the request that fails, and the one that is waited for is flushed.
fn wrong_key_before_a_flag(ends: &mut Ends, stage: &mut Stage<'_>) -> Result<Trouble, Error> {
    let what = "Data with a wrong remote key, and a wait for the flag behind it";
    refused_write(what, ends, stage, true, with_wrong_key)
}

fn past_the_end(ends: &mut Ends, stage: &mut Stage<'_>) -> Result<Trouble, Error> {
    refused_write(
        "A write one byte past the end of the other end's memory",
        ends,
        stage,
        false,
        |remote| remote.at(1),
    )
}

/// Takes `messages` at the other end while what is under way at the first one comes to its end.
fn take(ends: &Ends, target: &Memory, messages: u64) -> Result<(), Error> {
    let length = target.len() / messages as usize;
    let (sent, received) = (
        ends.node().shared(Outcome::new())?,
        ends.node().shared(Outcome::new())?,
    );
    let parameters = Sink {
        queue: ends.other.pair.receive_queue()?,
        local: target.local(0, length),
        slots: messages,
        messages,
        prepared: messages,
        limit_us: LIMIT_US,
        outcome: &received,
    };
    let receiver = |kernel: Entry<fn(Sink<'_>)>| Job::new(kernel, parameters, &received);
    // A NOP is done once all before it is.
    let nop = Transfer {
        queue: ends.one.pair.send_queue()?,
        local: target.local(0, length),
        remote: target.remote(0),
        beside: 0,
        limit_us: LIMIT_US,
        outcome: &sent,
    };
    let sender = Job::new(entry!(kernels::nop), nop, &sent);
    let what = "the late receives";
    run_kernel(what, receiver(entry!(sink_prepare)), &ends.other)?;
    let jobs = vec![receiver(entry!(sink)), sender];
    run_together(what, jobs, &[&ends.one, &ends.other])
}

/// Most bytes that the sends of a full queue carry together.
const FULL_BYTES: usize = 64 << 20;

fn full_queue(ends: &mut Ends, stage: &mut Stage<'_>) -> Result<Trouble, Error> {
    let depth = stage.options.depth as usize;
    let (source, mut data) = stage.memory(&ends.one)?;
    data.truncate(FULL_BYTES / depth);
    // Nobody receives yet, so that the NIC completes nothing.
    let (sent, outcome) = (ends.node().words(1)?, ends.node().shared(Outcome::new())?);
    let fill = Fill {
        queue: ends.one.pair.send_queue()?,
        local: source.local(0, data.len()),
        sent: Slice::new(&sent),
        outcome: &outcome,
    };
    let job = Job::new(entry!(kernels::fill), fill, &outcome);
    run_kernel("sends until the queue is full", job, &ends.one)?;
    let sent = sent[0].load(Ordering::Relaxed) as usize;
    let target = ends.other.memory(depth * data.len())?;
    take(ends, &target, sent.clamp(1, depth) as u64)?;
    let arrived = target.check(&data.repeat(depth)).is_ok();
    let no_room = Failure::Post(PostError::NoRoom);
    let what = "More sends than the queue has room for, and nobody who receives them";
    Ok(Trouble::without_completion(what, Some(no_room), sent == depth)
        .and(arrived)
        .then(format!(
            "nothing is lost and nothing to reset; {sent} sends received late, every byte verified"
        )))
}

fn deadline(ends: &mut Ends, stage: &mut Stage<'_>) -> Result<Trouble, Error> {
    let (source, data) = stage.memory(&ends.one)?;
    let (target, _) = stage.memory(&ends.other)?;
    let outcome = ends.node().shared(Outcome::new())?;
    let transfer = Transfer {
        queue: ends.one.pair.send_queue()?,
        local: source.local(0, data.len()),
        remote: Remote::default(),
        beside: 0,
        limit_us: 2_000,
        outcome: &outcome,
    };
    let job = Job::new(entry!(kernels::send), transfer, &outcome);
    let failure = try_run(job, &ends.one)?.err();
    take(ends, &target, 1)?;
    let arrived = target.check(&data).is_ok() && source.check(&data).is_ok();
    let expected = failure == Some(Failure::Wait(WaitError::Deadline));
    let what = "A wait of 2 ms for a send that nobody receives";
    Ok(Trouble::without_completion(what, failure, expected)
        .and(arrived)
        .then(format!(
            "the request is still under way; received late, {} bytes verified",
            data.len()
        )))
}

fn peer_gone(ends: &mut Ends, stage: &mut Stage<'_>) -> Result<Trouble, Error> {
    // Four tries of 4 ms each, instead of eight of 67 ms.
    let config = QueuePairConfig {
        timers: Timers {
            acknowledge_timeout: 10,
            retry_count: 3,
            ..Timers::default()
        },
        ..config(stage.options.depth)
    };
    let mut ends = Ends::new(ends.node(), &config)?;
    let (source, _) = stage.memory(&ends.one)?;
    let (target, _) = stage.memory(&ends.other)?;
    ends.lose_other()?;
    let (data, flag) = (target.remote(0), target.remote(0));
    let failure = write_flagged(&ends, &source, data, flag)?;
    let host_knows = ends.one.pair.first_error();
    let known = failure.and_then(Failure::queue_error);
    ends.replace_other()?;
    let arrived = stage.traffic(&ends)?;
    Ok(Trouble::new(
        "Data to a peer that is gone, and a wait for the flag behind it",
        failure,
        Syndrome::TRANSPORT_RETRY,
    )
    .and(arrived && known.is_some() && host_knows == known)
    .then(stage.traffic_words("queue reset, connected to another peer")))
}
