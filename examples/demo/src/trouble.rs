//! What a user meets when things go wrong, and how it goes on from there.

use std::sync::atomic::Ordering;

use serde_json::json;
use warpbell::wqe::{CompletionError, Remote, RemoteKey, Syndrome};
use warpbell::{Cause, PostError, QueueError, Slice, WaitError};
use warpbell_host_init::{QueuePairConfig, Timers, entry};
use warpbell_kernels::bandwidth::{sink as receive, sink_prepare};
use warpbell_kernels::demo::{self as kernels, Fill, Flagged, Transfer};
use warpbell_kernels::outcome::Failure;

use crate::Demo;
use crate::ends::{End, Ends, LIMIT_US, config, job, run, try_run};
use crate::error::Error;
use crate::memory::Memory;
use crate::speed::sink;

/// One thing that went wrong on purpose.
struct Trouble {
    what: &'static str,
    /// What the kernel met, in words.
    met: String,
    /// The error CQE, where there was one.
    completion: Option<CompletionError>,
    /// How it went on.
    then: String,
    /// It was met as expected, no byte changed that should not, and the traffic afterwards arrived.
    verified: bool,
}

/// Lets everything go wrong, one after the other.
pub fn all(demo: &mut Demo, ends: &mut Ends) -> Result<(), Error> {
    demo.screen.heading("When things go wrong");
    for scene in [
        wrong_key,
        past_the_end,
        wrong_key_before_a_flag,
        full_queue,
        deadline,
        peer_gone,
    ] {
        let trouble = scene(demo, ends)?;
        let (screen, mark) = (&demo.screen, demo.screen.mark(trouble.verified));
        screen.line(format_args!("  {}: {mark}", trouble.what));
        screen.wrapped("    met      ", &trouble.met);
        let description = trouble
            .completion
            .and_then(|error| error.syndrome.describe());
        let look_at = description.map(|description| description.look_at);
        if let Some(look_at) = look_at {
            screen.wrapped("    look at  ", look_at);
        }
        screen.wrapped("    then     ", &trouble.then);
        let completion = trouble.completion.map(|error| {
            json!({
                "syndrome": error.syndrome.0,
                "vendor": error.vendor.0,
                "wqe_index": error.wqe_index.0,
                "opcode": error.opcode.0,
                "qpn": error.qpn.get(),
            })
        });
        let check = json!({
            "what": trouble.what,
            "met": trouble.met,
            "completion": completion,
            "look_at": look_at,
            "then": trouble.then,
        });
        demo.record("trouble", trouble.verified, check);
    }
    Ok(())
}

/// Memory full of random data, and these data.
fn memory(demo: &mut Demo, end: &End) -> Result<(Memory, Vec<u8>), Error> {
    let data = demo.random.bytes(demo.arguments.size as usize);
    Ok((end.memory(&data)?, data))
}

/// Writes in both directions; whether every byte arrived.
fn traffic(demo: &mut Demo, ends: &Ends) -> Result<bool, Error> {
    let mut arrived = true;
    for (from, to) in ends.both_ways() {
        let (source, data) = memory(demo, from)?;
        let (target, _) = memory(demo, to)?;
        let failure = write(from, &source, data.len(), target.remote(0), None)?;
        arrived &= failure.is_none() && source.is_unchanged(&data) && target.is_unchanged(&data);
    }
    Ok(arrived)
}

/// Writes all of `source`, alone or with a flag behind it. Of these two only the flag asks for a completion. Gives what
/// the kernel met.
fn write(
    end: &End,
    source: &Memory,
    length: usize,
    remote: Remote,
    flag: Option<Remote>,
) -> Result<Option<Failure>, Error> {
    let outcome = end.outcome()?;
    let local = source.local(0, length);
    let Some(flag) = flag else {
        let transfer = end.transfer(local, remote, &outcome)?;
        return try_run(job(entry!(kernels::write), transfer, &outcome), end);
    };
    let flagged = Flagged {
        queue: end.pair.send_queue()?,
        local,
        remote,
        value: 1,
        flag,
        limit_us: LIMIT_US,
        outcome: &outcome,
    };
    try_run(job(entry!(kernels::write_flagged), flagged, &outcome), end)
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
            completion,
            ..Self::without_completion(what, failure, found == Some(syndrome))
        }
    }

    /// What a kernel met, which should have been no error CQE.
    fn without_completion(what: &'static str, failure: Option<Failure>, verified: bool) -> Self {
        let met = match failure.map(|failure| (failure, failure.queue_error())) {
            None => "no error".into(),
            Some((_, Some(error))) => error.to_string(),
            Some((failure, None)) => failure.to_string(),
        };
        Self {
            what,
            met,
            completion: None,
            then: String::new(),
            verified,
        }
    }

    /// What else was to hold, and how it went on.
    fn then(self, verified: bool, then: String) -> Self {
        Self {
            verified: self.verified && verified,
            then,
            ..self
        }
    }
}

/// A write that the other end must refuse, alone or with a flag behind it.
fn refused_write(
    demo: &mut Demo,
    ends: &mut Ends,
    what: &'static str,
    flagged: bool,
    change: impl FnOnce(Remote) -> Remote,
) -> Result<Trouble, Error> {
    let (source, data) = memory(demo, &ends.one)?;
    let (target, before) = memory(demo, &ends.other)?;
    let flag = flagged.then(|| target.remote(0));
    let remote = change(target.remote(0));
    let failure = write(&ends.one, &source, data.len(), remote, flag)?;
    let untouched = source.is_unchanged(&data) && target.is_unchanged(&before);
    // The host can read the same error, whether or not the kernel still runs.
    let known = failure.and_then(Failure::queue_error);
    let expected = untouched && known.is_some() && ends.one.pair.first_error() == known;
    ends.reset()?;
    let arrived = traffic(demo, ends)?;
    let then = format!(
        "no byte was touched; queues reset, connected again; {} bytes each way verified",
        data.len()
    );
    let trouble = Trouble::new(what, failure, Syndrome::REMOTE_ACCESS);
    Ok(trouble.then(expected && arrived, then))
}

/// The same place, under a key that nobody has given away.
fn with_wrong_key(remote: Remote) -> Remote {
    let key = RemoteKey(!remote.key.0);
    Remote { key, ..remote }
}

fn wrong_key(demo: &mut Demo, ends: &mut Ends) -> Result<Trouble, Error> {
    let what = "A write with a wrong remote key";
    refused_write(demo, ends, what, false, with_wrong_key)
}

/// What newcomers meet first: nobody waits for the request that fails, and the one that is waited for is flushed.
fn wrong_key_before_a_flag(demo: &mut Demo, ends: &mut Ends) -> Result<Trouble, Error> {
    let what = "Data with a wrong remote key, and a wait for the flag behind it";
    refused_write(demo, ends, what, true, with_wrong_key)
}

fn past_the_end(demo: &mut Demo, ends: &mut Ends) -> Result<Trouble, Error> {
    let what = "A write one byte past the end of the other end's memory";
    refused_write(demo, ends, what, false, |remote| remote.at(1))
}

/// Takes `messages` at the other end while the requests under way at the first one come to their end.
fn take(ends: &Ends, target: &Memory, bytes: usize, messages: u64) -> Result<(), Error> {
    let (sent, received) = (ends.one.outcome()?, ends.other.outcome()?);
    let sizes = (bytes, messages, messages, messages);
    let parameters = sink(&ends.other, target, sizes, &received)?;
    // A NOP is done once all before it is.
    let nop = ends
        .one
        .transfer(target.local(0, bytes), target.remote(0), &sent)?;
    let what = "the late receives";
    let prepare = job(entry!(sink_prepare), parameters, &received);
    run(what, vec![prepare], &[&ends.other])?;
    let receiver = job(entry!(receive), parameters, &received);
    let sender = job(entry!(kernels::nop), nop, &sent);
    run(what, vec![receiver, sender], &[&ends.one, &ends.other])
}

/// Most bytes that the sends of a full queue carry together.
const FULL_BYTES: usize = 64 << 20;

fn full_queue(demo: &mut Demo, ends: &mut Ends) -> Result<Trouble, Error> {
    let depth = demo.arguments.depth as usize;
    let (source, mut data) = memory(demo, &ends.one)?;
    data.truncate(FULL_BYTES / depth);
    // Nobody receives yet, so that the NIC completes nothing.
    let (sent, outcome) = (ends.one.node.words(1)?, ends.one.outcome()?);
    let fill = Fill {
        queue: ends.one.pair.send_queue()?,
        local: source.local(0, data.len()),
        sent: Slice::new(&sent),
        outcome: &outcome,
    };
    let fill = job(entry!(kernels::fill), fill, &outcome);
    run("sends until the queue is full", vec![fill], &[&ends.one])?;
    let sent = sent[0].load(Ordering::Relaxed) as usize;
    let target = ends.other.memory(&vec![0; depth * data.len()])?;
    take(ends, &target, data.len(), sent.clamp(1, depth) as u64)?;
    let arrived = target.is_unchanged(&data.repeat(depth));
    let what = "More sends than the queue has room for, and nobody who receives them";
    let no_room = Some(Failure::Post(PostError::NoRoom));
    let then = format!(
        "nothing is lost and nothing to reset; {sent} sends received late, every byte verified"
    );
    Ok(Trouble::without_completion(what, no_room, sent == depth).then(arrived, then))
}

fn deadline(demo: &mut Demo, ends: &mut Ends) -> Result<Trouble, Error> {
    let (source, data) = memory(demo, &ends.one)?;
    let (target, _) = memory(demo, &ends.other)?;
    let outcome = ends.one.outcome()?;
    let local = source.local(0, data.len());
    let transfer = Transfer {
        limit_us: 2_000,
        ..ends.one.transfer(local, Remote::default(), &outcome)?
    };
    let failure = try_run(job(entry!(kernels::send), transfer, &outcome), &ends.one)?;
    take(ends, &target, data.len(), 1)?;
    let arrived = target.is_unchanged(&data) && source.is_unchanged(&data);
    let expected = failure == Some(Failure::Wait(WaitError::Deadline));
    let what = "A wait of 2 ms for a send that nobody receives";
    let then = format!(
        "the request is still under way; received late, {} bytes verified",
        data.len()
    );
    Ok(Trouble::without_completion(what, failure, expected).then(arrived, then))
}

fn peer_gone(demo: &mut Demo, ends: &mut Ends) -> Result<Trouble, Error> {
    // Four tries of 4 ms each, instead of eight of 67 ms.
    let timers = Timers {
        acknowledge_timeout: 10,
        retry_count: 3,
        ..Timers::default()
    };
    let config = QueuePairConfig {
        timers,
        ..config(demo.arguments.depth)
    };
    let mut ends = Ends::new(&ends.one.node, &config)?;
    let (source, data) = memory(demo, &ends.one)?;
    let (target, _) = memory(demo, &ends.other)?;
    ends.lose_other()?;
    let there = target.remote(0);
    let failure = write(&ends.one, &source, data.len(), there, Some(there))?;
    let known = failure.and_then(Failure::queue_error);
    let host_knows = known.is_some() && ends.one.pair.first_error() == known;
    ends.replace_other()?;
    let arrived = traffic(demo, &ends)?;
    let what = "Data to a peer that is gone, and a wait for the flag behind it";
    let then = format!(
        "queue reset, connected to another peer; {} bytes each way verified",
        data.len()
    );
    let trouble = Trouble::new(what, failure, Syndrome::TRANSPORT_RETRY);
    Ok(trouble.then(host_knows && arrived, then))
}
