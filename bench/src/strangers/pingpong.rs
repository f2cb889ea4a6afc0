//! A ping-pong with `ibv_rc_pingpong`.
//!
//! It sends its messages from the buffer in which ours arrive, so that each of them brings back what we have sent:
//! each of ours is another one.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::run::interrupt;
use crate::run::latency::{Case, Latency, measured};
use crate::run::launch::{Job, LIMIT_US, run, try_run};
use crate::run::memory::Memory;
use crate::run::setup::{End, config};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use warpbell::{Slice, Word64};
use warpbell_host_init::state::{Endpoint, Gid};
use warpbell_host_init::{Node, Shared, entry};
use warpbell_kernels::bandwidth::{Sink, sink_prepare};
use warpbell_kernels::outcome::Outcome;
use warpbell_kernels::send_pingpong::{SendPingPong, send_pingpong};
use warpbell_strangers::pingpong::{self as words, Destination, FILL, FIRST_WORDS, PAGE};
use warpbell_strangers::{Connection, Conversation};

use super::{Other, connect, parted, port, unready};
use crate::{Error, nodes};

const PROGRAM: &str = "ibv_rc_pingpong";
const REMEDY: &str = "see whether it still runs, and give both ends the same size (--size, -s) and the same rounds (--rounds, -n)";
/// Bytes that messages lie beside each other in before they begin again.
const WINDOW: u64 = 1 << 20;
/// How long to wait at the end for a message that should not come. The other program gets its last acknowledgement
/// in that time.
const LINGER_US: u64 = 50_000;

/// Which end the other program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// We are the client, which sends first.
    Client,
    /// We are the server.
    Server,
}

/// Our end of the game.
#[derive(Debug)]
pub struct Player {
    end: End,
    memory: Memory,
    case: Case,
    role: Role,
    slots: u64,
    sent: Vec<u8>,
    samples: Shared<[Word64]>,
    played: Shared<[Word64]>,
    odd: Shared<[Word64]>,
    outcome: Shared<Outcome>,
}

impl Player {
    /// Makes a queue pair, and posts the buffers of its first messages.
    ///
    /// # Errors
    /// A NIC that reaches no other process; those of start-up.
    pub fn new(node: &Node, depth: u32, case: Case, role: Role) -> Result<Self, Error> {
        let domain = nodes::reachable(node)?.domain()?;
        let mut end = End::new(node, domain, &config(depth))?;
        end.pair.to_init()?;
        // At least two, so that no message is what was there before.
        let slots = (WINDOW / case.bytes).clamp(2, 64);
        let slots = slots.min(case.rounds).min(end.receive_depth());
        let sent = messages(slots, case.bytes);
        let player = Self {
            memory: end.memory(2 * sent.len())?,
            case,
            role,
            slots,
            samples: node.words(case.rounds as usize)?,
            played: node.words(1)?,
            odd: node.words(1)?,
            outcome: node.shared(Outcome::new())?,
            sent,
            end,
        };
        player.memory.write(0, &player.sent);
        let buffers = Sink {
            queue: player.end.pair.receive_queue()?,
            local: player.memory.local(player.sent.len(), case.bytes as usize),
            slots,
            messages: slots,
            prepared: slots,
            limit_us: LIMIT_US,
            outcome: &player.outcome,
        };
        let prepare = Job::new(entry!(sink_prepare), buffers, &player.outcome);
        run("posting receives", prepare, &player.end)?;
        Ok(player)
    }

    /// Meets the client that called, or the server that we call; both queue pairs are connected then.
    ///
    /// # Errors
    /// The other end does not speak like the program, or is out of reach.
    pub fn meet(&mut self, other: &mut impl Conversation) -> Result<(), Error> {
        let own = self.end.pair.endpoint();
        let ours = Destination {
            lid: own.card.map_or(0, |port| port.lid),
            qpn: own.qpn,
            psn: own.psn,
            gid: own.gid.0,
        };
        match self.role {
            Role::Client => {
                let theirs = words::call(other, &ours)?;
                self.connect(&own, theirs)
            }
            Role::Server => {
                let theirs = words::listen(other)?;
                self.connect(&own, theirs)?;
                Ok(words::answer(other, &ours)?)
            }
        }
    }

    fn connect(&mut self, own: &Endpoint, theirs: Destination) -> Result<(), Error> {
        let theirs = Endpoint {
            gid: Gid(theirs.gid),
            qpn: theirs.qpn,
            psn: theirs.psn,
            card: port(own, theirs.lid, words::MTU, words::READS),
        };
        connect(&mut self.end.pair, &theirs)
    }

    /// Plays all rounds.
    ///
    /// # Errors
    /// The other end stops, has messages of another length, or plays on; Ctrl-C.
    pub fn play(&self) -> Result<Latency, Error> {
        let bytes = self.case.bytes as usize;
        let pair = &self.end.pair;
        let parameters = SendPingPong {
            send: pair
                .send_queue()
                .map_err(|error| unready(PROGRAM, REMEDY, pair, error))?,
            receive: pair
                .receive_queue()
                .map_err(|error| unready(PROGRAM, REMEDY, pair, error))?,
            outgoing: self.memory.local(0, bytes),
            incoming: self.memory.local(self.sent.len(), bytes),
            slots: self.slots,
            rounds: self.case.rounds,
            starts: (self.role == Role::Client).into(),
            stop: interrupt::stop(self.end.node.placement())?,
            limit_us: LIMIT_US,
            linger_us: LINGER_US,
            samples: Slice::new(&self.samples),
            played: Slice::new(&self.played),
            odd: Slice::new(&self.odd),
            outcome: &self.outcome,
        };
        let job = Job::new(entry!(send_pingpong), parameters, &self.outcome);
        try_run(job, &self.end)?
            .map_err(|failure| parted(PROGRAM, REMEDY, &self.end.pair, failure))?;
        let played = self.played[0].load(Ordering::Relaxed);
        match self.odd[0].load(Ordering::Relaxed) {
            0 => {}
            _ if played == self.case.rounds => return Err(Error::MoreRounds { ours: played }),
            odd => {
                return Err(Error::OtherSize {
                    ours: self.case.bytes,
                    theirs: odd - 1,
                });
            }
        }
        if played < self.case.rounds {
            return Err(crate::run::Error::Interrupted.into());
        }
        Ok(measured(Latency::new(
            self.case,
            &self.samples,
            self.verified(),
        ))?)
    }

    /// Whether the last message in each slot is the right one, and nothing else has changed.
    fn verified(&self) -> bool {
        let all = self.sent.len();
        let came = match self.role {
            // Each message was answered with itself.
            Role::Client => self.sent.clone(),
            // Each but the first brought our answer to the one before.
            Role::Server => {
                let mut came = self.sent.clone();
                came.rotate_right(self.case.bytes as usize);
                if self.case.rounds == self.slots {
                    let bytes = self.case.bytes as usize;
                    first_message(&mut came[..bytes], &self.memory.read(all, bytes));
                }
                came
            }
        };
        self.memory.check(&[&self.sent[..], &came].concat()).is_ok()
    }
}

/// What a client's first message is: all the same, but that one which was told to check has zeros at its pages.
fn first_message(expected: &mut [u8], found: &[u8]) {
    expected.fill(FILL);
    if found.first() == Some(&0) {
        expected.iter_mut().step_by(PAGE).for_each(|byte| *byte = 0);
    }
}

/// Random messages, with zeros where the other program checks for them.
fn messages(slots: u64, bytes: u64) -> Vec<u8> {
    let mut messages = vec![0; (slots * bytes) as usize];
    SmallRng::seed_from_u64(bytes).fill(&mut messages[..]);
    for message in messages.chunks_exact_mut(bytes as usize) {
        message.iter_mut().step_by(PAGE).for_each(|byte| *byte = 0);
    }
    messages
}

/// The way to the other program: to the server on that host, or from the client that calls at the address `bind`.
///
/// # Errors
/// Nobody is there, or comes in time.
pub fn way(other: &Other, patience: Duration) -> Result<Connection, Error> {
    Ok(match &other.host {
        Some(host) => Connection::call(host, other.port, patience)?,
        None => Connection::await_call(other.bind, other.port, FIRST_WORDS, patience)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_is_another_one_with_zeros_at_its_pages() {
        let messages = messages(3, 10_000);
        let [one, two, three] = [0, 1, 2].map(|slot: usize| &messages[slot * 10_000..][..10_000]);
        assert!(one != two && two != three && one != three);
        for message in [one, two, three] {
            assert_eq!([0, 4096, 8192].map(|at: usize| message[at]), [0; 3]);
            assert!(message.iter().filter(|byte| **byte == 0).count() < 100);
        }
    }

    #[test]
    fn a_first_message_has_zeros_at_all_pages_or_at_none() {
        let mut expected = [1; 5000];
        first_message(&mut expected, &[FILL; 5000]);
        assert_eq!(expected, [FILL; 5000]);
        first_message(&mut expected, &[0; 5000]);
        assert_eq!(expected.iter().filter(|byte| **byte == 0).count(), 2);
        assert_eq!((expected[0], expected[4096]), (0, 0));
    }
}
