//! A node: a host, a GPU and a NIC, which carry out one rank's operations.
//!
//! Posts, the NIC's pipeline, the link and the bus each serve one message after the other. A message reaches them in the
//! order of its post, after delays that are the same for all. So its whole way through the node follows when it is
//! posted, and the simulation needs an event only where an operation ends. Only where NICs relay messages, these may
//! overtake posts on their way to the NIC; then each send has an event there, too.

use std::sync::Arc;
use std::time::Duration;

use nexosim::model::{Context, Model, schedulable};
use nexosim::ports::Output;
use serde::{Deserialize, Serialize};

use super::time::{Server, Time};
use super::{Flight, Report, Shared};
use crate::goal::{MOST_STREAMS, Operation};
use crate::pcie::Transfer;

#[derive(Default, Serialize, Deserialize)]
pub(super) struct Node {
    /// To its switch.
    pub(super) link: Output<Flight>,
    /// At the end.
    pub(super) report: Output<Report>,
    /// How many operations each operation still waits for.
    waits: Vec<u32>,
    /// When the message of each receive is in memory.
    landed: Vec<Option<Time>>,
    ended: usize,
    /// The rank has begun.
    running: bool,
    streams: Vec<Server>,
    poster: Server,
    pipeline: Server,
    wire: Server,
    bus: Server,
    done: Report,
    /// The engine could save models, which we never do.
    #[serde(skip)]
    shared: Arc<Shared>,
}

#[Model]
impl Node {
    pub(super) fn new(rank: u32, shared: Arc<Shared>) -> Self {
        let here = &shared.program.ranks[rank as usize];
        Self {
            waits: here.waits.clone(),
            landed: vec![None; here.operations.len()],
            streams: vec![Server::default(); MOST_STREAMS as usize],
            done: Report {
                rank,
                ..Report::default()
            },
            shared,
            ..Self::default()
        }
    }

    #[nexosim(init)]
    async fn init(&mut self, cx: &Context<Self>) {
        let begin = Time::from_nanoseconds(self.shared.costs.begin);
        match begin > Time::ZERO {
            true => plan(cx, begin, u32::MAX),
            false => self.begin(cx).await,
        }
    }

    /// Starts all operations that wait for none.
    async fn begin(&mut self, cx: &Context<Self>) {
        self.running = true;
        if self.waits.is_empty() {
            return self.finish(Time::of(cx.time())).await;
        }
        let waits = self.waits.iter().enumerate();
        let ready =
            waits.filter_map(|(operation, waits)| (*waits == 0).then_some(operation as u32));
        let ready = ready.collect();
        self.start_all(ready, cx).await;
    }

    /// An operation ends, or for `u32::MAX` the launch of a persistent kernel.
    #[nexosim(schedulable)]
    async fn end(&mut self, operation: u32, cx: &Context<Self>) {
        if operation == u32::MAX {
            return self.begin(cx).await;
        }
        let shared = Arc::clone(&self.shared);
        let here = &shared.program.ranks[self.done.rank as usize];
        let mut ready = Vec::new();
        // What the NIC relays went already.
        let followers = here.after_end.of(operation).iter();
        let followers = followers.filter(|later| !shared.relays(here, **later));
        self.release(followers.copied(), &mut ready);
        self.count(Time::of(cx.time())).await;
        self.start_all(ready, cx).await;
    }

    /// The completion of a receive's message is there, which WAITs of the NIC count.
    #[nexosim(schedulable)]
    async fn complete(&mut self, receive: u32, cx: &Context<Self>) {
        let shared = Arc::clone(&self.shared);
        let here = &shared.program.ranks[self.done.rank as usize];
        let mut ready = Vec::new();
        let followers = here.after_end.of(receive).iter();
        let followers = followers.filter(|later| shared.relays(here, **later));
        self.release(followers.copied(), &mut ready);
        self.start_all(ready, cx).await;
    }

    /// Starts operations, and those that only wait for a start.
    async fn start_all(&mut self, mut ready: Vec<u32>, cx: &Context<Self>) {
        let shared = Arc::clone(&self.shared);
        let followers = &shared.program.ranks[self.done.rank as usize].after_start;
        let mut next = 0;
        while let Some(operation) = ready.get(next).copied() {
            next += 1;
            self.start(operation, cx).await;
            self.release(followers.of(operation).iter().copied(), &mut ready);
        }
    }

    fn release(&mut self, followers: impl Iterator<Item = u32>, ready: &mut Vec<u32>) {
        for later in followers {
            let waits = &mut self.waits[later as usize];
            *waits -= 1;
            if *waits == 0 {
                ready.push(later);
            }
        }
    }

    async fn start(&mut self, operation: u32, cx: &Context<Self>) {
        let now = Time::of(cx.time());
        let shared = Arc::clone(&self.shared);
        let here = &shared.program.ranks[self.done.rank as usize];
        match here.operations[operation as usize] {
            Operation::Calc {
                nanoseconds,
                stream,
            } => {
                let (before, after) = match here.after_message[operation as usize] {
                    true => (shared.costs.task, shared.costs.calc.1),
                    false => shared.costs.calc,
                };
                let computing = nanoseconds as f64 * shared.costs.computing;
                let duration = Time::from_nanoseconds(before + computing + after);
                let stream = &mut self.streams[stream as usize];
                let from = stream.free_from(now);
                let start = shared.machine(|machine| machine.compute(from, duration));
                stream.serve(start, duration);
                plan(cx, start + duration, operation);
            }
            Operation::Receive { .. } => {
                if let Some(landed) = self.landed[operation as usize] {
                    self.notice(landed.max(now), operation, cx);
                }
            }
            Operation::Send { .. } => match shared.costs.chain {
                None => {
                    let rung = self.post(now, here.after_message[operation as usize]);
                    self.leave(rung, operation, cx).await;
                }
                // What the NIC relays may overtake what was posted before: each waits until it is its turn.
                Some(chain) => {
                    let rung = match here.relays[operation as usize] {
                        true => now + Time::from_nanoseconds(chain),
                        false => self.post(now, here.after_message[operation as usize]),
                    };
                    let scheduled =
                        cx.schedule_event(wait(rung, cx), schedulable!(Self::ring), operation);
                    debug_assert!(scheduled.is_ok());
                }
            },
        }
    }

    /// The NIC has the WQE of a send.
    #[nexosim(schedulable)]
    async fn ring(&mut self, operation: u32, cx: &Context<Self>) {
        self.leave(Time::of(cx.time()), operation, cx).await;
    }

    /// Takes a WQE from its post to the NIC; gives when it is there.
    fn post(&mut self, now: Time, after_message: bool) -> Time {
        let costs = &self.shared.costs;
        let gap = Time::from_nanoseconds(costs.gap);
        let heard = if after_message { costs.heard } else { 0.0 };
        let posted = now + Time::from_nanoseconds(heard + costs.post);
        let posted = self.poster.serve(posted, gap) + gap;
        posted + Time::from_nanoseconds(costs.doorbell)
    }

    /// Takes a message from the NIC, which has its WQE from then on, to the link.
    async fn leave(&mut self, rung: Time, operation: u32, cx: &Context<Self>) {
        let shared = Arc::clone(&self.shared);
        let (costs, parameters) = (&shared.costs, &shared.parameters);
        let here = &shared.program.ranks[self.done.rank as usize];
        let Operation::Send { bytes, to, .. } = here.operations[operation as usize] else {
            return;
        };
        let payload = Transfer::read(bytes, parameters);
        let packets = parameters.packets(bytes) as f64;
        let taken = Time::from_nanoseconds(packets * parameters.nic_gap);
        let taken = self.pipeline.serve(rung, taken);
        // The payload's first packet; the others follow while the message leaves. An empty message waits for none.
        let read = match bytes {
            0 => parameters.nic_latency,
            _ => parameters.nic_latency + 2.0 * parameters.pcie_latency,
        };
        let ready = taken + Time::from_nanoseconds(read);
        let slower = parameters.wire(bytes).max(payload.nanoseconds(parameters));
        let duration = Time::from_nanoseconds(slower);
        self.done.messages += 1;
        let wqe = match shared.relays(here, operation) {
            true => costs.relayed,
            false => costs.packets,
        };
        self.done.packets += wqe + payload.packets();
        let start = self.wire.serve(ready, duration);
        let left = start + duration;
        match here.after_end.of(operation) {
            [] => self.count(left).await,
            _ => plan(cx, left, operation),
        }
        let flight = Flight {
            from: self.done.rank,
            to,
            receive: here.partner[operation as usize],
            bytes,
            head: start + Time::from_nanoseconds(parameters.link_latency),
            duration,
        };
        self.link.send(flight).await;
    }

    /// A message is on its way to this node.
    pub(super) fn arrive(&mut self, flight: Flight, cx: &Context<Self>) {
        let shared = Arc::clone(&self.shared);
        let parameters = &shared.parameters;
        let write = Transfer::write(flight.bytes, parameters);
        // What says that it is there: a CQE or a word.
        let flag = Transfer::write(8, parameters);
        self.done.packets += write.packets() + flag.packets();
        let head = flight.head + Time::from_nanoseconds(parameters.nic_latency);
        let bytes = write.nanoseconds(parameters) + flag.nanoseconds(parameters);
        let duration = Time::from_nanoseconds(bytes);
        let written = self.bus.serve(head, duration) + duration;
        let last = written.max(head + flight.duration);
        if shared.costs.chain.is_some() {
            let planned = cx.schedule_event(
                wait(head + flight.duration, cx),
                schedulable!(Self::complete),
                flight.receive,
            );
            debug_assert!(planned.is_ok());
        }
        let landed = last + Time::from_nanoseconds(parameters.pcie_latency);
        self.landed[flight.receive as usize] = Some(landed);
        if self.waits[flight.receive as usize] == 0 && self.running {
            self.notice(landed, flight.receive, cx);
        }
    }

    /// The rank sees a message, and its receive ends.
    fn notice(&self, at: Time, receive: u32, cx: &Context<Self>) {
        let notice = Time::from_nanoseconds(self.shared.costs.notice);
        plan(cx, at + notice, receive);
    }

    /// One more operation has ended.
    async fn count(&mut self, at: Time) {
        self.done.end = self.done.end.max(at);
        self.ended += 1;
        if self.ended == self.landed.len() {
            self.finish(self.done.end).await;
        }
    }

    async fn finish(&mut self, at: Time) {
        self.done.finish = at + Time::from_nanoseconds(self.shared.costs.finish);
        self.report.send(self.done).await;
    }
}

/// Lets an operation end at a time.
fn plan(cx: &Context<Node>, at: Time, operation: u32) {
    let scheduled = cx.schedule_event(wait(at, cx), schedulable!(Node::end), operation);
    debug_assert!(scheduled.is_ok());
}

/// From now until a time. Where that is now, the engine would refuse it; a picosecond later does as well.
fn wait(at: Time, cx: &Context<Node>) -> Duration {
    let wait = (at - Time::of(cx.time())).duration();
    wait.max(Duration::from_nanos(1))
}
