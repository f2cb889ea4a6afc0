//! What a user meets when things go wrong, and how it goes on from there.

use std::sync::atomic::Ordering;

use serde_json::json;
use warpbell::wqe::{CompletionError, Remote, RemoteKey, Syndrome};
use warpbell::{Cause, PostError, Slice, WaitError};
use warpbell_host_init::entry;
use warpbell_kernels::bandwidth::{Sink, sink as receive, sink_prepare};
use warpbell_kernels::demo::{self as kernels, Fill, Flagged, Transfer};
use warpbell_kernels::outcome::Failure;
use warpbell_stage::Error;
use warpbell_stage::launch::{Job, LIMIT_US, run, run_together, try_run};
use warpbell_stage::memory::Memory;
use warpbell_stage::setup::{End, Ends, config};

use crate::Demo;
use crate::passage::{Passage, transfer};

/// How a scene lets something go wrong.
enum Scene {
    /// The other end refuses a write to a place that was changed like this.
    Refused(Asked, fn(Remote) -> Remote),
    Other(fn(&mut Demo, &mut Ends) -> Result<Trouble, Error>),
}

/// Which request asks for a completion.
#[derive(Clone, Copy)]
enum Asked {
    /// The write itself.
    Write,
    /// Only the one behind it, which writes a flag.
    Flag,
}

#[rustfmt::skip]
const SCENES: [(&str, Scene); 6] = {
    use {Asked::*, Scene::*};
    [
        ("A write with a wrong remote key", Refused(Write, with_wrong_key)),
        ("A write one byte past the end of the other end's memory", Refused(Write, |remote| remote.at(1))),
        // What newcomers meet first: nobody waits for the request that fails, and the one that is waited for is flushed.
        ("Data with a wrong remote key, and a wait for the flag behind it", Refused(Flag, with_wrong_key)),
        ("More sends than the queue has room for, and nobody who receives them", Other(full_queue)),
        ("A wait of 2 ms for a send that nobody receives", Other(deadline)),
        ("Data to a peer that is gone, and a wait for the flag behind it", Other(peer_gone)),
    ]
};

/// One thing that went wrong on purpose.
struct Trouble {
    /// What the kernel met.
    failure: Option<Failure>,
    /// It was met as expected, no byte changed that should not, and the traffic afterwards arrived.
    verified: bool,
    /// How it went on.
    then: String,
}

/// Lets everything go wrong, one after the other.
pub fn all(demo: &mut Demo, ends: &mut Ends) -> Result<(), Error> {
    demo.screen.heading("When things go wrong");
    for (what, scene) in SCENES {
        let trouble = match scene {
            Scene::Refused(asked, change) => refused_write(demo, ends, asked, change)?,
            Scene::Other(scene) => scene(demo, ends)?,
        };
        trouble.show(demo, what);
    }
    Ok(())
}

impl Trouble {
    fn show(self, demo: &mut Demo, what: &str) {
        let met = match (self.failure, self.failure.and_then(Failure::queue_error)) {
            (_, Some(error)) => error.to_string(),
            (Some(failure), None) => failure.to_string(),
            (None, None) => "no error".into(),
        };
        let completion = self.failure.and_then(completion);
        let description = completion.and_then(|error| error.syndrome.describe());
        let look_at = description.map(|description| description.look_at);
        let (screen, mark) = (&demo.screen, demo.screen.mark(self.verified));
        screen.line(format_args!("  {what}: {mark}"));
        screen.wrapped("    met      ", &met);
        if let Some(look_at) = look_at {
            screen.wrapped("    look at  ", look_at);
        }
        screen.wrapped("    then     ", &self.then);
        let completion = completion.map(|error| {
            json!({
                "syndrome": error.syndrome.0, "vendor": error.vendor.0, "opcode": error.opcode.0,
                "wqe_index": error.wqe_index.0, "qpn": error.qpn.get(),
            })
        });
        let check = json!({
            "what": what, "met": met, "completion": completion, "look_at": look_at, "then": self.then,
        });
        demo.record("trouble", self.verified, check);
    }
}

/// The error CQE of a failure, where there was one.
fn completion(failure: Failure) -> Option<CompletionError> {
    match failure.queue_error()?.cause() {
        Cause::Completion(error) => Some(error),
        _ => None,
    }
}

/// Whether a kernel of this end met an error CQE with this syndrome. The host can read the same error, whether or not the
/// kernel still runs.
fn both_met(end: &End, failure: Option<Failure>, syndrome: Syndrome) -> bool {
    let found = failure.and_then(completion).map(|error| error.syndrome);
    found == Some(syndrome) && end.pair.first_error() == failure.and_then(Failure::queue_error)
}

/// Random data that is to go from the first end to the other one.
fn passage(demo: &mut Demo, from: &End, to: &End) -> Result<Passage, Error> {
    Passage::new(from, to, demo.arguments.size as usize, &mut demo.random)
}

/// Writes in both directions; whether every byte arrived.
fn traffic(demo: &mut Demo, ends: &Ends) -> Result<bool, Error> {
    let mut arrived = true;
    for (from, to) in ends.both_ways() {
        let passage = passage(demo, from, to)?;
        let failure = write(from, &passage, passage.target.remote(0), Asked::Write)?;
        arrived &= failure.is_none() && passage.arrived();
    }
    Ok(arrived)
}

/// Writes all data to `remote`, and then perhaps a flag to where it should have gone. Gives what the kernel met.
fn write(
    end: &End,
    passage: &Passage,
    remote: Remote,
    asked: Asked,
) -> Result<Option<Failure>, Error> {
    let outcome = end.outcome()?;
    let local = passage.local();
    let job = match asked {
        Asked::Write => {
            let transfer = transfer(end, local, remote, &outcome)?;
            Job::new(entry!(kernels::write), transfer, &outcome)
        }
        Asked::Flag => {
            let flagged = Flagged {
                queue: end.pair.send_queue()?,
                local,
                remote,
                value: 1,
                flag: passage.target.remote(0),
                limit_us: LIMIT_US,
                outcome: &outcome,
            };
            Job::new(entry!(kernels::write_flagged), flagged, &outcome)
        }
    };
    Ok(try_run(job, end)?.err())
}

fn refused_write(
    demo: &mut Demo,
    ends: &mut Ends,
    asked: Asked,
    change: fn(Remote) -> Remote,
) -> Result<Trouble, Error> {
    let passage = passage(demo, &ends.one, &ends.other)?;
    let remote = change(passage.target.remote(0));
    let failure = write(&ends.one, &passage, remote, asked)?;
    let met = both_met(&ends.one, failure, Syndrome::REMOTE_ACCESS);
    let untouched = passage.untouched();
    ends.reset()?;
    let bytes = demo.arguments.size;
    Ok(Trouble {
        failure,
        verified: met && untouched && traffic(demo, ends)?,
        then: format!(
            "no byte was touched; queues reset, connected again; {bytes} bytes each way verified"
        ),
    })
}

/// The same place, under a key that nobody has given away.
fn with_wrong_key(remote: Remote) -> Remote {
    let key = RemoteKey(!remote.key.0);
    Remote { key, ..remote }
}

/// Takes `messages` at the other end while the requests under way at the first one come to their end.
fn take(ends: &Ends, target: &Memory, bytes: usize, messages: u64) -> Result<(), Error> {
    let (sent, received) = (ends.one.outcome()?, ends.other.outcome()?);
    let sink = Sink {
        queue: ends.other.pair.receive_queue()?,
        local: target.local(0, bytes),
        slots: messages,
        messages,
        prepared: messages,
        limit_us: LIMIT_US,
        outcome: &received,
    };
    let what = "the late receives";
    let prepare = Job::new(entry!(sink_prepare), sink, &received);
    run(what, prepare, &ends.other)?;
    // A NOP is done once all before it is.
    let nop = transfer(&ends.one, target.local(0, bytes), target.remote(0), &sent)?;
    let nop = Job::new(entry!(kernels::nop), nop, &sent);
    let receiver = Job::new(entry!(receive), sink, &received);
    run_together(what, vec![receiver, nop], &[&ends.one, &ends.other])
}

/// Most bytes that the sends of a full queue carry together.
const FULL_BYTES: usize = 64 << 20;

fn full_queue(demo: &mut Demo, ends: &mut Ends) -> Result<Trouble, Error> {
    let depth = demo.arguments.depth as usize;
    let bytes = (demo.arguments.size as usize).min(FULL_BYTES / depth);
    let data = demo.random.bytes(bytes);
    let (source, target) = (
        ends.one.memory_of(&data)?,
        ends.other.memory(depth * bytes)?,
    );
    // Nobody receives yet, so that the NIC completes nothing.
    let (sent, outcome) = (ends.one.node.words(1)?, ends.one.outcome()?);
    let fill = Fill {
        queue: ends.one.pair.send_queue()?,
        local: source.local(0, bytes),
        sent: Slice::new(&sent),
        outcome: &outcome,
    };
    let fill = Job::new(entry!(kernels::fill), fill, &outcome);
    run("sends until the queue is full", fill, &ends.one)?;
    let sent = sent[0].load(Ordering::Relaxed) as usize;
    take(ends, &target, bytes, sent.clamp(1, depth) as u64)?;
    Ok(Trouble {
        failure: Some(Failure::Post(PostError::NoRoom)),
        verified: sent == depth && target.holds(&data.repeat(depth)),
        then: format!(
            "nothing is lost and nothing to reset; {sent} sends received late, every byte verified"
        ),
    })
}

fn deadline(demo: &mut Demo, ends: &mut Ends) -> Result<Trouble, Error> {
    let passage = passage(demo, &ends.one, &ends.other)?;
    let outcome = ends.one.outcome()?;
    let transfer = Transfer {
        limit_us: 2_000,
        ..transfer(&ends.one, passage.local(), Remote::default(), &outcome)?
    };
    let send = Job::new(entry!(kernels::send), transfer, &outcome);
    let failure = try_run(send, &ends.one)?.err();
    let bytes = passage.data.len();
    take(ends, &passage.target, bytes, 1)?;
    let expected = failure == Some(Failure::Wait(WaitError::Deadline));
    Ok(Trouble {
        failure,
        verified: expected && passage.arrived(),
        then: format!("the request is still under way; received late, {bytes} bytes verified"),
    })
}

fn peer_gone(demo: &mut Demo, ends: &mut Ends) -> Result<Trouble, Error> {
    let mut ends = Ends::new(&ends.one.node, &config(demo.arguments.depth))?;
    let passage = passage(demo, &ends.one, &ends.other)?;
    ends.lose_other()?;
    let there = passage.target.remote(0);
    let failure = write(&ends.one, &passage, there, Asked::Flag)?;
    let met = both_met(&ends.one, failure, Syndrome::TRANSPORT_RETRY);
    ends.replace_other()?;
    let bytes = demo.arguments.size;
    Ok(Trouble {
        failure,
        verified: met && traffic(demo, &ends)?,
        then: format!("queue reset, connected to another peer; {bytes} bytes each way verified"),
    })
}
