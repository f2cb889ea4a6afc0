//! Episodes in two processes: the test runs its own binary once more, and a socket carries the packets.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use warpbell_soft_hca::engine::packet::Header;
use zerocopy::{FromBytes, IntoBytes};

use super::air::{Cargo, End, Frame, SharedLane};
use super::node::{Node, Tables};
use super::plan::Plan;
use super::{AFTERMATH, ROUNDS, model, node, plan, seeds};
use crate::other_process::{OtherProcess, first_process};

/// How many episodes run unless the environment says otherwise.
const EPISODES: u64 = if cfg!(debug_assertions) { 50 } else { 2_000 };
/// Set in the second process.
const PART: &str = "WARPBELL_DIFFERENTIAL_PART";
/// A peer that says nothing for so long has died.
const PATIENCE: Duration = Duration::from_secs(300);
const TEST: &str = "differential::processes::episodes_in_two_processes_come_to_what_the_model_says";

/// The way to the other process.
struct Peer {
    stream: UnixStream,
    /// The first one speaks before it listens, the other one after: so neither waits for room in a full socket.
    first: bool,
}

impl Peer {
    fn new(stream: UnixStream, first: bool) -> io::Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, first })
    }

    fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(&(bytes.len() as u64).to_ne_bytes())?;
        self.stream.write_all(bytes)
    }

    fn hear(&mut self) -> io::Result<Vec<u8>> {
        let mut length = [0; 8];
        self.stream.read_exact(&mut length)?;
        let mut bytes = vec![0; u64::from_ne_bytes(length) as usize];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn exchange(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        if self.first {
            self.say(bytes)?;
        }
        let theirs = self.hear()?;
        if !self.first {
            self.say(bytes)?;
        }
        Ok(theirs)
    }

    fn exchange_words(&mut self, words: &[u64]) -> io::Result<Vec<u64>> {
        let theirs = self.exchange(words.as_bytes())?;
        let words = theirs.chunks_exact(8);
        Ok(words
            .map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()))
            .collect())
    }
}

/// A round's packets, and whether the side is done.
fn pack(done: bool, lane: &SharedLane) -> Vec<u8> {
    let mut bytes = vec![u8::from(done)];
    while let Some(frame) = lane.borrow_mut().pop() {
        let Cargo::Copied(payload) = &frame.cargo else {
            panic!("lent to another process");
        };
        bytes.extend(frame.header.as_bytes());
        bytes.extend((payload.len() as u64).to_ne_bytes());
        bytes.extend(payload);
    }
    bytes
}

fn unpack(bytes: &[u8], lane: &SharedLane) -> bool {
    let (done, mut rest) = bytes.split_first().expect("a round");
    while !rest.is_empty() {
        let (header, tail) = Header::read_from_prefix(rest).expect("a header");
        let (length, tail) = u64::read_from_prefix(tail).expect("a length");
        let (payload, tail) = tail.split_at(length as usize);
        lane.borrow_mut()
            .push(Frame::arrived(header, payload.to_vec()));
        rest = tail;
    }
    *done != 0
}

/// Runs one side of an episode; panics where it differs from the model.
fn run_side(plan: &Plan, side: usize, peer: &mut Peer) -> io::Result<()> {
    let memory = node::arena_of_data(plan, side);
    let mut queues = node::arena_of_queues();
    let mut tables = Tables::new(plan);
    let [outgoing, incoming]: [SharedLane; 2] = Default::default();
    let lanes = [outgoing.clone(), incoming.clone()];
    let end = End::new(plan, side, false, lanes);
    let mut node = Node::new(plan, side, end, &mut tables, &memory, &mut queues);
    let card = peer.exchange_words(node.card())?;
    node.connect(&card);
    let mut quiet = 0;
    for round in 0.. {
        node.turn();
        outgoing.borrow_mut().end_round();
        let done = node.is_done();
        let theirs = peer.exchange(&pack(done, &outgoing))?;
        let both = unpack(&theirs, &incoming) && done;
        quiet += u64::from(both);
        if quiet == AFTERMATH {
            break;
        }
        assert!(round < ROUNDS, "it hangs:\n{}", node.standing());
    }
    let mine = node.found();
    let theirs = peer.exchange_words(&mine.concat())?;
    let mut theirs = theirs.into_iter();
    let theirs = plan.pairs.iter().map(|pair| {
        let count = pair[1 - side].operations.len();
        theirs.by_ref().take(count).collect()
    });
    let mut found = [mine, theirs.collect()];
    if side == 1 {
        found.swap(0, 1);
    }
    node.check_memory(&model::outcome(plan, &found)[side]);
    // Both have checked before either goes on.
    peer.exchange(&[])?;
    Ok(())
}

/// The second process: an episode for each seed that it hears.
fn second() -> io::Result<()> {
    let mut peer = Peer::new(first_process()?, false)?;
    loop {
        let seed = peer.hear()?;
        let Ok(seed) = seed.try_into() else {
            return Ok(());
        };
        run_side(&plan(u64::from_ne_bytes(seed)), 1, &mut peer)?;
    }
}

#[test]
fn episodes_in_two_processes_come_to_what_the_model_says() {
    if std::env::var_os(PART).is_some() {
        return second().expect("the first process");
    }
    let (stream, other) = OtherProcess::start(TEST, PART, "second");
    let mut peer = Peer::new(stream, true).unwrap();
    for seed in seeds(EPISODES) {
        let plan = plan(seed);
        peer.say(&seed.to_ne_bytes()).unwrap();
        if let Err(error) = run_side(&plan, 0, &mut peer) {
            panic!("WARPBELL_DIFFERENTIAL_SEED={seed}: the other process failed: {error}");
        }
    }
    peer.say(&[]).unwrap();
    other.finish();
}
