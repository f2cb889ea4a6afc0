//! Rounds among ranks, of which some fail: the program of `cargo xtask test --only faults`.
//!
//! In each round each rank writes a block of bytes to each other, adds one to a counter there, and sets a flag behind both
//! that says which round it is. All bytes, counters and values that come back are checked: nothing is lost, nothing is done
//! twice. If a rank fails, the others say so, go on without it and, with `--take-in`, wait for a new process in its place.
//!
//! `rounds STOP [--take-in]`: the rounds end once rank 0 finds the file STOP.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use warpbell::wqe::Wqe;
use warpbell::{Deadline, Exclusive, PostError, SendQueue, Thread, Ticket, WaitError};
use warpbell_host_init::{
    Access, MemoryRegion, Node, QueuePair, QueuePairConfig, RemoteMemory, Timers, World,
};

type Failure = Box<dyn Error>;

/// Bytes of a block: several packets.
const BLOCK: usize = 9_000;
/// How long ranks may take to find each other, and each step.
const LIMIT: Duration = Duration::from_secs(40);
/// How long the others wait for a rank that may have failed.
const SHRINK: Duration = Duration::from_secs(15);
/// How long they wait for a new process.
const COME_BACK: Duration = Duration::from_secs(120);
/// After which silence a rank is asked whether it is there.
const ASK: Duration = Duration::from_millis(500);
/// How often ranks go on before they give up.
const ATTEMPTS: u32 = 8;
/// 1.07 s, eight times: how long a rank may be away.
const TIMERS: Timers = Timers {
    acknowledge_timeout: 18,
    retry_count: 7,
    rnr_retry: 7,
    rnr_timer: 7,
};
/// The bit of a flag that says: this round is the last one. Rank 0 alone sets it.
const LAST: u64 = 1 << 63;

/// What this rank has for all others: a place by rank in each region.
struct Memory {
    /// What goes to a rank.
    outbox: MemoryRegion,
    /// What comes from a rank, in odd and in even rounds: it may be one round ahead.
    inbox: MemoryRegion,
    /// The number of a rank's newest block.
    flags: MemoryRegion,
    /// How many blocks a rank has written.
    counters: MemoryRegion,
    /// What a counter of a rank was.
    results: MemoryRegion,
}

/// Another rank.
struct Other {
    pair: QueuePair,
    inbox: RemoteMemory,
    flags: RemoteMemory,
    counters: RemoteMemory,
    /// Blocks written there, the newest one's flag, and blocks found here.
    sent: u64,
    flag: u64,
    found: u64,
}

/// What ranks tell each other after a failure.
#[derive(Serialize, Deserialize)]
struct Progress {
    sent: BTreeMap<u32, u64>,
    /// Ranks to which the queue pair has failed.
    broken: BTreeSet<u32>,
}

struct Rounds<'a> {
    world: World,
    memory: Memory,
    others: BTreeMap<u32, Other>,
    broken: BTreeSet<u32>,
    stop: &'a Path,
    take_in: bool,
}

/// The byte at an offset of a block.
fn byte(from: u32, to: u32, number: u64, offset: usize) -> u8 {
    let start = 31 * u64::from(from) + 7 * u64::from(to) + 13 * number;
    (start as usize + offset + offset / 256) as u8
}

fn block(from: u32, to: u32, number: u64) -> Vec<u8> {
    (0..BLOCK)
        .map(|offset| byte(from, to, number, offset))
        .collect()
}

fn word(region: &MemoryRegion, rank: u32) -> Result<u64, Failure> {
    Ok(region.read_words(rank as usize, 1)?[0])
}

/// Waits for it, for at most [`LIMIT`].
fn until(what: &str, mut is_there: impl FnMut() -> Result<bool, Failure>) -> Result<(), Failure> {
    let end = Instant::now() + LIMIT;
    while !is_there()? {
        if Instant::now() > end {
            return Err(format!("waited {LIMIT:?} for {what}").into());
        }
        sleep(Duration::from_micros(200));
    }
    Ok(())
}

/// Waits until a request to a rank is done, or the rank or the queue pair to it has failed.
fn done(
    world: &mut World,
    rank: u32,
    queue: &mut SendQueue<'_, Exclusive, Thread>,
    posted: Result<Ticket, PostError>,
) -> Result<(), Failure> {
    let failed = |error: &dyn Error| format!("the queue pair to rank {rank}: {error}").into();
    let ticket = posted.map_err(|error| failed(&error))?;
    let end = Instant::now() + LIMIT;
    loop {
        match queue.wait(ticket, Deadline::after_ms(5)) {
            Err(WaitError::Deadline) if world.failed().contains(&rank) => {
                return Err(format!("rank {rank} is gone").into());
            }
            Err(WaitError::Deadline) if Instant::now() < end => {}
            done => return done.map_err(|error| failed(&error)),
        }
    }
}

impl Memory {
    fn new(world: &World) -> Result<Self, Failure> {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let ranks = world.size() as usize;
        let region = |bytes| world.domain().allocate(bytes * ranks, access);
        Ok(Self {
            outbox: region(BLOCK)?,
            inbox: region(2 * BLOCK)?,
            flags: region(8)?,
            counters: region(8)?,
            results: region(8)?,
        })
    }
}

impl Rounds<'_> {
    /// Connects with these ranks, and starts counting with them. New processes come here first.
    fn connect(&mut self, ranks: BTreeSet<u32>) -> Result<(), Failure> {
        for &rank in &ranks {
            self.others.remove(&rank);
            for region in [&self.memory.flags, &self.memory.counters] {
                region.write(8 * rank as usize, &[0; 8])?;
            }
        }
        let config = QueuePairConfig {
            timers: TIMERS,
            ..QueuePairConfig::granting(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
        };
        let mut pairs = self.world.connect(ranks, &config)?;
        let ours = &self.memory;
        let ours = [&ours.inbox, &ours.flags, &ours.counters].map(MemoryRegion::remote);
        let all: Vec<[RemoteMemory; 3]> = self.world.exchange(&ours)?;
        for (rank, [inbox, flags, counters]) in self.world.ranks().zip(all) {
            if let Some(pair) = pairs.remove(&rank) {
                let (sent, flag, found) = (0, 0, 0);
                let other = Other {
                    pair,
                    inbox,
                    flags,
                    counters,
                    sent,
                    flag,
                    found,
                };
                self.others.insert(rank, other);
            }
        }
        self.broken.clear();
        Ok(())
    }

    /// Writes to all others, and waits until each has taken it or has failed.
    fn write(&mut self, last: bool) -> Result<(), Failure> {
        let limit = Deadline::after_ms(60_000);
        let (own, bytes, memory) = (self.world.rank(), BLOCK as u32, &self.memory);
        let mut under_way = Vec::new();
        for (&rank, other) in &mut self.others {
            other.sent += 1;
            let number = other.sent;
            let at = BLOCK * rank as usize;
            memory.outbox.write(at, &block(own, rank, number))?;
            let place = 2 * own as usize + (number % 2) as usize;
            let from = memory.outbox.local(at, bytes)?;
            let write = Wqe::write(from, other.inbox.at(BLOCK * place, bytes)?);
            let result = memory.results.local(8 * rank as usize, 8)?;
            let add = Wqe::fetch_add(result, other.counters.at(8 * own as usize, 8)?, 1);
            other.flag = number | if last { LAST } else { 0 };
            let flag = Wqe::write_value(other.flag, other.flags.at(8 * own as usize, 8)?);
            let mut queue = other.pair.send_queue()?.open::<Exclusive>()?;
            let posted = queue
                .post(write, limit)
                .and_then(|_| queue.post(add, limit))
                .and_then(|_| queue.post(flag.signalled(), limit));
            under_way.push((rank, number, queue, posted));
        }
        let mut failed = None;
        for (rank, number, mut queue, posted) in under_way {
            match done(&mut self.world, rank, &mut queue, posted) {
                Ok(()) => {
                    let before = word(&memory.results, rank)?;
                    assert_eq!(before, number - 1, "additions at rank {rank}");
                }
                Err(error) => {
                    self.broken.insert(rank);
                    failed = Some(error);
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Waits for a block of a rank; its flag. A rank from which nothing comes is asked whether it is there: it gets its
    /// flag once more.
    fn wait(&mut self, rank: u32) -> Result<u64, Failure> {
        let (began, mut asked) = (Instant::now(), Instant::now());
        loop {
            let other = self.others.get_mut(&rank).ok_or("no such rank")?;
            let flag = word(&self.memory.flags, rank)?;
            if flag & !LAST > other.found {
                return Ok(flag);
            }
            self.world.check()?;
            if began.elapsed() > LIMIT {
                return Err(format!("waited {LIMIT:?} for rank {rank}").into());
            }
            if asked.elapsed() > ASK {
                let limit = Deadline::after_ms(60_000);
                let flags = other.flags.at(8 * self.world.rank() as usize, 8)?;
                let flag = Wqe::write_value(other.flag, flags).signalled();
                let mut queue = other.pair.send_queue()?.open::<Exclusive>()?;
                let posted = queue.post(flag, limit);
                let there = done(&mut self.world, rank, &mut queue, posted);
                if there.is_err() {
                    self.broken.insert(rank);
                }
                there?;
                asked = Instant::now();
            }
            sleep(Duration::from_micros(200));
        }
    }

    /// Checks the next block of a rank, which has come.
    fn check(&mut self, rank: u32) -> Result<(), Failure> {
        let own = self.world.rank();
        let other = self.others.get_mut(&rank).ok_or("no such rank")?;
        other.found += 1;
        let mut found = vec![0; BLOCK];
        let place = 2 * rank as usize + (other.found % 2) as usize;
        self.memory.inbox.read(BLOCK * place, &mut found)?;
        let right = found == block(rank, own, other.found);
        assert!(right, "block {} of rank {rank} is wrong", other.found);
        let counter = word(&self.memory.counters, rank)?;
        let ahead = counter.checked_sub(other.found);
        assert!(
            ahead.is_some_and(|ahead| ahead < 2),
            "{counter} of rank {rank}"
        );
        Ok(())
    }

    /// One round; whether it was the last one.
    fn round(&mut self) -> Result<bool, Failure> {
        let leads = self.world.rank() == 0;
        let mut last = leads && self.stop.exists();
        self.write(last)?;
        let ranks: Vec<u32> = self.others.keys().copied().collect();
        for rank in ranks {
            let next = self.others[&rank].found + 1;
            let flag = self.wait(rank)?;
            // A rank that is one round ahead has ended none that this rank has not seen.
            last |= flag == next | LAST;
            self.check(rank)?;
        }
        Ok(last)
    }

    /// Goes on with the ranks that are left.
    fn go_on(&mut self) -> Result<(), Failure> {
        let (own, left_out) = (self.world.rank(), self.world.shrink(SHRINK)?);
        println!("rank {own} goes on without {left_out:?}");
        self.others.retain(|rank, _| !left_out.contains(rank));
        self.broken = &self.broken - &left_out;
        let ours = Progress {
            sent: self
                .others
                .iter()
                .map(|(rank, other)| (*rank, other.sent))
                .collect(),
            broken: self.broken.clone(),
        };
        let all: Vec<Progress> = self.world.exchange(&ours)?;
        let mut anew = BTreeSet::new();
        for (rank, theirs) in self.world.ranks().zip(all).filter(|(rank, _)| *rank != own) {
            let sent = theirs.sent.get(&own).copied();
            if self.broken.contains(&rank) || theirs.broken.contains(&own) {
                anew.insert(rank);
                continue;
            }
            // What is under way between two that are left arrives.
            let (Some(sent), Some(other)) = (sent, self.others.get(&rank)) else {
                anew.insert(rank);
                continue;
            };
            let flags = &self.memory.flags;
            until("what is under way", || {
                Ok(word(flags, rank)? & !LAST == sent)
            })?;
            for _ in other.found..sent {
                self.check(rank)?;
            }
            assert_eq!(word(&self.memory.counters, rank)?, sent, "of rank {rank}");
        }
        // Those that an attempt before this one left out, too.
        for rank in self.world.failed().into_iter().filter(|_| self.take_in) {
            self.world.take_in(rank, COME_BACK)?;
            println!("rank {own} took {rank} in");
            anew.insert(rank);
        }
        self.connect(anew)
    }

    /// All rounds.
    fn run(&mut self) -> Result<(), Failure> {
        let own = self.world.rank();
        let (mut round, mut attempts) = (0_u64, 0);
        let mut said = Instant::now();
        // A step of going on may fail as well: then the ranks start it again.
        let mut goes_on = false;
        loop {
            let done = match goes_on {
                true => self.go_on().map(|()| false),
                false => self.round(),
            };
            match done {
                Ok(true) => break,
                Ok(false) if goes_on => goes_on = false,
                Ok(false) => {
                    round += 1;
                    if round == 1 || said.elapsed() > Duration::from_millis(200) {
                        println!("rank {own} round {round}");
                        said = Instant::now();
                    }
                }
                Err(error) => {
                    println!(
                        "rank {own} error: {error}; failed: {:?}",
                        self.world.failed()
                    );
                    attempts += 1;
                    // Rank 0 is gone, or the others went on without this rank.
                    if goes_on && self.world.check().is_err() && self.is_over()
                        || attempts > ATTEMPTS
                    {
                        return Err(error);
                    }
                    goes_on = true;
                }
            }
        }
        for (rank, other) in &self.others {
            let counter = word(&self.memory.counters, *rank)?;
            assert_eq!(counter, other.found, "of rank {rank}");
        }
        self.world.barrier()?;
        let ranks: Vec<u32> = self.world.ranks().collect();
        println!("rank {own} ends after {round} rounds with {ranks:?}: Test OK");
        Ok(())
    }

    fn is_over(&mut self) -> bool {
        let failed = self.world.failed();
        failed.contains(&0) || failed.contains(&self.world.rank())
    }
}

fn job(stop: &Path, take_in: bool) -> Result<(), Failure> {
    let mut world = World::from_env(&Node::cpu(), LIMIT)?;
    let own = world.rank();
    println!("rank {own} starts: {world}");
    if world.has_returned() {
        // The others take all in, in the order of their numbers.
        for rank in world.failed().range(own..).copied() {
            world.take_in(rank, COME_BACK)?;
        }
    }
    let others = world.others().collect();
    let mut rounds = Rounds {
        memory: Memory::new(&world)?,
        world,
        others: BTreeMap::new(),
        broken: BTreeSet::new(),
        stop,
        take_in,
    };
    rounds.connect(others)?;
    rounds.run()
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let Some(stop) = words.next() else {
        eprintln!("rounds STOP [--take-in]");
        return ExitCode::from(2);
    };
    match job(Path::new(&stop), words.next().is_some()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("ends: {error}");
            ExitCode::FAILURE
        }
    }
}
