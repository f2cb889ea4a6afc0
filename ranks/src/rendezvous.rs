//! Ranks over TCP, or over Unix-domain sockets on one host.

use std::collections::BTreeSet;
use std::fmt;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::address::Door;
use crate::hub::Hub;
use crate::link::Link;
use crate::message::{ToRank, ToRoot, split};
use crate::secret::{Key, random};
use crate::stream::deadline;
use crate::{
    Bootstrap, Collective, Config, Environment, FailedRank, JobFailure, LARGEST_CONTRIBUTION,
    PmiFd, RanksError, Root, Secret, pmi,
};

/// How much longer than its timeout a rank waits for rank 0, which says who was missing.
const MARGIN: Duration = Duration::from_secs(1);

/// How long the last words may wait for the system.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Most bytes of the reason for an abort.
const LONGEST_REASON: usize = 1024;

/// Ranks that have found each other. Dropping it says goodbye; rank 0 then waits for ranks that have not, until none of
/// them has taken a byte for a second.
pub struct Rendezvous {
    rank: u32,
    size: u32,
    local_rank: u32,
    /// Nothing for a single rank, and once the job is over.
    pub(crate) link: Option<Link>,
    /// Those that take part, in order.
    ranks: Vec<u32>,
    /// Why calls fail until those that are left go on; the first cause first.
    failures: Vec<JobFailure>,
    /// Why this rank cannot go on.
    over: Option<JobFailure>,
    returned: bool,
    /// At rank 0.
    hub: Option<JoinHandle<()>>,
}

impl Rendezvous {
    /// Joins the ranks that the launcher started, and logs at rank 0 how they were started.
    ///
    /// # Errors
    /// Those of [`Config::read`] and [`join`](Self::join).
    pub fn from_env(timeout: Duration) -> Result<Self, RanksError> {
        Self::join(&Config::read(&Environment::of_process())?, timeout)
    }

    /// Joins the ranks of a job: returns once all are there.
    ///
    /// The look-up of a root's name has the deadline of the system's resolver, which may be later than `timeout`.
    ///
    /// # Errors
    /// The error says what is wrong with the configuration, with the way to rank 0, or with this rank's place among the
    /// others. [`FailedRank::TimedOut`] names the ranks that did not come within `timeout`.
    ///
    /// A process that comes in the place of a rank that failed waits until the others [take it
    /// in](Bootstrap::take_in); if they do not, the error is [`RanksError::NotTakenIn`].
    pub fn join(config: &Config, timeout: Duration) -> Result<Self, RanksError> {
        Self::join_at(config, None, timeout)
    }

    /// As [`join`](Self::join). Rank 0 may listen already.
    pub(crate) fn join_at(
        config: &Config,
        mut door: Option<Door>,
        timeout: Duration,
    ) -> Result<Self, RanksError> {
        config.check()?;
        if config.rank == 0 {
            tracing::info!("{config}");
        }
        if config.rank == 0 && config.is_exposed() {
            let root = &config.root;
            tracing::warn!(
                "ranks without a secret: strangers who reach {root} can join; set WARPBELL_SECRET"
            );
        }
        let mut ranks = Self {
            rank: config.rank,
            size: config.size,
            local_rank: config.local_rank.unwrap_or(0),
            link: None,
            ranks: (0..config.size).collect(),
            failures: Vec::new(),
            over: None,
            returned: false,
            hub: None,
        };
        if config.size == 1 {
            return Ok(ranks);
        }
        let until = deadline(timeout);
        let mut config = config.clone();
        if let Root::Pmi { fd, one_host } = config.root {
            door = by_pmi(&mut config, fd, one_host, until)?;
        } else if config.rank == 0 && door.is_none() {
            door = Some(Door::at(&config.root, config.bind)?);
        }
        let link = match door {
            Some(door) => {
                let key = Key::of(config.secret.as_ref());
                let (hub, link) = Hub::new(door, config.size, key)?;
                let thread = std::thread::Builder::new().name("warpbell ranks".into());
                ranks.hub = Some(thread.spawn(|| hub.run())?);
                link
            }
            None => Link::join(&config, until, timeout)?,
        };
        ranks.returned = link.returned;
        ranks.link = Some(link);
        // All are there once each knows all hosts.
        let left = until.saturating_duration_since(Instant::now());
        let call = match ranks.returned {
            true => Collective::TakeIn(config.rank),
            false => Collective::Allgather,
        };
        let seats = ranks.call(call, &seat(config.local_rank), left)?;
        if config.local_rank.is_none() {
            let place = ranks.ranks.partition_point(|rank| *rank < config.rank);
            ranks.local_rank = free_local_rank(&seats, place);
        }
        Ok(ranks)
    }

    fn call(
        &mut self,
        call: Collective,
        bytes: &[u8],
        timeout: Duration,
    ) -> Result<Vec<Vec<u8>>, RanksError> {
        if bytes.len() > LARGEST_CONTRIBUTION {
            return Err(RanksError::TooLong(bytes.len()));
        }
        let shrinks = call == Collective::Shrink;
        let failure = self.failures.first().filter(|_| !shrinks);
        if let Some(failure) = self.over.as_ref().or(failure) {
            return Err(failure.clone().into());
        }
        let until = deadline(timeout.saturating_add(MARGIN));
        let Some(link) = &mut self.link else {
            self.failures.clear();
            return Ok(vec![bytes.to_vec()]);
        };
        link.send(&ToRoot::Call(call, timeout), bytes, until);
        let (message, behind) = loop {
            match self.receive(until) {
                // Why it shrinks.
                Ok((ToRank::Failed(_), _)) if shrinks && self.over.is_none() => {}
                Ok((ToRank::Failed(failure), _)) => return Err(failure.into()),
                Ok(message) => break message,
                Err(ErrorKind::TimedOut) if call == Collective::TakeIn(self.rank) => {
                    let rank = self.rank;
                    return Err(RanksError::NotTakenIn { rank, timeout });
                }
                Err(error) => {
                    let missing = vec![0];
                    let late = FailedRank::TimedOut {
                        call,
                        timeout,
                        missing,
                    };
                    return Err(self.end_with(error, late).into());
                }
            }
        };
        let regroups = shrinks || matches!(call, Collective::TakeIn(_));
        let ranks = match message {
            ToRank::Group(ranks) if regroups && ranks.is_sorted() => Some(ranks),
            ToRank::Done if !regroups => None,
            _ => return Err(self.damaged().into()),
        };
        let expected = match (call, &ranks) {
            (Collective::Barrier | Collective::BarrierOf, _) => 0,
            (_, ranks) => ranks.as_ref().unwrap_or(&self.ranks).len(),
        };
        let all = split(&behind).ok().filter(|all| all.len() == expected);
        let Some(all) = all else {
            return Err(self.damaged().into());
        };
        if let Some(ranks) = ranks {
            self.ranks = ranks;
            self.failures.clear();
        }
        Ok(all)
    }

    /// The next message of rank 0. A failure is noted.
    fn receive(&mut self, until: Instant) -> Result<(ToRank, Vec<u8>), ErrorKind> {
        let link = self.link.as_mut().ok_or(ErrorKind::NotConnected)?;
        let message = link.receive(until).map_err(|error| error.kind())?;
        if let ToRank::Failed(failure) = &message.0 {
            self.note(failure.clone());
        }
        Ok(message)
    }

    fn note(&mut self, failure: JobFailure) {
        if failure.rank == self.rank && matches!(failure.why, FailedRank::LeftOut(_)) {
            self.link = None;
            self.over = Some(failure);
        } else {
            self.failures.push(failure);
        }
    }

    /// Notes what rank 0 has said by now.
    fn look(&mut self) {
        while let Some(link) = &mut self.link {
            match link.look().map_err(|error| error.kind()) {
                Ok(Some((ToRank::Failed(failure), _))) => self.note(failure),
                Ok(None) => break,
                Ok(Some(_)) => drop(self.damaged()),
                Err(error) => drop(self.end_with(error, FailedRank::RootLost)),
            }
        }
    }

    /// The connection to rank 0 is of no use any more. What this rank says is `late` if rank 0 was.
    fn end_with(&mut self, error: ErrorKind, late: FailedRank) -> JobFailure {
        let (rank, why) = match error {
            ErrorKind::TimedOut => (self.rank, late),
            ErrorKind::InvalidData => (0, FailedRank::Damaged),
            _ => (0, FailedRank::RootLost),
        };
        let failure = JobFailure { rank, why };
        // The end of the connection tells rank 0, if it does not know.
        self.link = None;
        self.over.insert(failure).clone()
    }

    fn damaged(&mut self) -> JobFailure {
        self.end_with(ErrorKind::InvalidData, FailedRank::Damaged)
    }

    /// The last message. At rank 0, returns once the others have been told.
    fn end(&mut self, message: &ToRoot) {
        if let Some(mut link) = self.link.take() {
            link.send(message, &[], deadline(LAST_WORDS));
        }
        if let Some(hub) = self.hub.take()
            && hub.join().is_err()
        {
            tracing::error!("the hub of the ranks panicked");
        }
    }
}

impl Bootstrap for Rendezvous {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn local_rank(&self) -> u32 {
        self.local_rank
    }

    fn allgather(&mut self, bytes: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>, RanksError> {
        self.call(Collective::Allgather, bytes, timeout)
    }

    fn barrier(&mut self, timeout: Duration) -> Result<(), RanksError> {
        self.call(Collective::Barrier, &[], timeout).map(drop)
    }

    fn barrier_of(&mut self, ranks: &[u32], timeout: Duration) -> Result<(), RanksError> {
        let of: BTreeSet<u32> = ranks.iter().copied().collect();
        let takes_part = |rank: &u32| self.ranks.binary_search(rank).is_ok();
        if let Some(rank) = of.iter().find(|rank| !takes_part(rank)) {
            return Err(RanksError::NotInGroup(*rank));
        }
        if !of.contains(&self.rank) {
            return Err(RanksError::NotInGroup(self.rank));
        }
        let bytes: Vec<u8> = of.iter().flat_map(|rank| rank.to_le_bytes()).collect();
        self.call(Collective::BarrierOf, &bytes, timeout).map(drop)
    }

    fn abort(&mut self, reason: &str) {
        if self.over.is_some() || !self.failures.is_empty() {
            return;
        }
        let reason = reason[..reason.floor_char_boundary(LONGEST_REASON)].to_owned();
        let (rank, why) = (self.rank, FailedRank::Aborted(reason.clone()));
        if let Some(link) = &mut self.link {
            link.send(&ToRoot::Abort(reason), &[], deadline(LAST_WORDS));
            // Rank 0 tells this rank once it has told the others: the process may end then.
            let _ = self.receive(deadline(MARGIN));
        }
        if self.failures.is_empty() {
            self.failures.push(JobFailure { rank, why });
        }
    }

    fn ranks(&self) -> Vec<u32> {
        self.ranks.clone()
    }

    fn check(&mut self) -> Result<(), RanksError> {
        self.look();
        match self.over.as_ref().or(self.failures.first()) {
            Some(failure) => Err(failure.clone().into()),
            None => Ok(()),
        }
    }

    fn failed(&mut self) -> BTreeSet<u32> {
        self.look();
        let failures = self.failures.iter().chain(&self.over);
        let failed = failures.flat_map(|failure| failure.ranks().iter().copied());
        let out = (0..self.size).filter(|rank| self.ranks.binary_search(rank).is_err());
        failed.chain(out).collect()
    }

    fn shrink(&mut self, timeout: Duration) -> Result<(), RanksError> {
        self.call(Collective::Shrink, &[], timeout).map(drop)
    }

    fn take_in(&mut self, rank: u32, timeout: Duration) -> Result<(), RanksError> {
        let size = self.size;
        if rank >= size {
            return Err(RanksError::RankOutOfRange { rank, size });
        }
        self.call(
            Collective::TakeIn(rank),
            &seat(Some(self.local_rank)),
            timeout,
        )?;
        if self.ranks.binary_search(&rank).is_err() {
            return Err(RanksError::NotBack { rank, timeout });
        }
        Ok(())
    }

    fn has_returned(&self) -> bool {
        self.returned
    }
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        self.end(&ToRoot::Bye);
    }
}

impl fmt::Debug for Rendezvous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rendezvous")
            .field("rank", &self.rank)
            .field("size", &self.size)
            .field("local_rank", &self.local_rank)
            .field("ranks", &self.ranks)
            .field("failures", &self.failures)
            .field("over", &self.over)
            .finish_non_exhaustive()
    }
}

/// Rank 0 leaves its [`Offer`] with the process manager.
fn by_pmi(
    config: &mut Config,
    fd: PmiFd,
    one_host: bool,
    until: Instant,
) -> Result<Option<Door>, RanksError> {
    let manager = pmi::open(fd)?;
    let is_root = config.rank == 0;
    let offer = is_root.then(|| Offer::new(config.bind, one_host));
    let offer = offer.transpose()?;
    let words = offer.as_ref().map(|offer| &*offer.words);
    let words = pmi::broadcast(manager, words, until)?;
    config.take(&words).ok_or(RanksError::Pmi {
        step: "give rank 0's address",
        answer: "rank 0 left something else".into(),
    })?;
    Ok(offer.map(|offer| offer.door))
}

/// What rank 0 tells the others, where something else carries its words to them.
pub(crate) struct Offer {
    /// Where it listens.
    pub door: Door,
    /// `host:port,secret`.
    pub words: String,
}

impl Offer {
    /// Listens at the address of `WARPBELL_BIND`, on loopback for ranks of one host, or else on all addresses.
    pub(crate) fn new(bind: Option<SocketAddr>, one_host: bool) -> Result<Self, RanksError> {
        let told = bind.map(|bind| bind.ip()).filter(|ip| !ip.is_unspecified());
        let ip = told.or(one_host.then_some(IpAddr::from([127, 0, 0, 1])));
        let (door, port) = Door::tcp(ip, bind.map_or(0, |bind| bind.port()))?;
        let host = ip.map_or_else(host_name, |ip| ip.to_string());
        let secret: String = random()?.iter().map(|byte| format!("{byte:02x}")).collect();
        let words = format!("{},{secret}", Root::Tcp { host, port });
        Ok(Self { door, words })
    }
}

impl Config {
    /// Takes the words of an [`Offer`]. A secret of its own comes first.
    pub(crate) fn take(&mut self, words: &str) -> Option<()> {
        let (root, secret) = words.split_once(',')?;
        let (root, secret) = (Root::parse(root)?, Secret::new(secret).ok()?);
        self.secret.get_or_insert(secret);
        self.root = root;
        Some(())
    }
}

/// In place of a local rank that its rank does not know yet.
const UNKNOWN: u32 = u32::MAX;

/// What a rank says of its place: its local rank, and its host.
fn seat(local_rank: Option<u32>) -> Vec<u8> {
    let local_rank = local_rank.unwrap_or(UNKNOWN);
    [&local_rank.to_le_bytes()[..], &host()].concat()
}

fn host_of(seat: &[u8]) -> Option<&[u8]> {
    seat.get(size_of::<u32>()..)
}

/// A local rank for the one at this place: the lowest that no other rank of its host has. Ranks before it that know none
/// either take lower ones.
fn free_local_rank(seats: &[Vec<u8>], place: usize) -> u32 {
    let host = seats.get(place).and_then(|seat| host_of(seat));
    let here = |(_, seat): &(usize, &Vec<u8>)| host_of(seat) == host;
    let here = seats.iter().enumerate().filter(here);
    let (mut taken, mut before) = (BTreeSet::new(), 0);
    for (at, seat) in here {
        match seat.first_chunk().map(|number| u32::from_le_bytes(*number)) {
            None | Some(UNKNOWN) => before += usize::from(at < place),
            Some(local_rank) => drop(taken.insert(local_rank)),
        }
    }
    let mut free = (0..UNKNOWN).filter(|number| !taken.contains(number));
    free.nth(before).unwrap_or(0)
}

/// What the ranks of one host have in common, in containers also.
pub(crate) fn host() -> Vec<u8> {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id");
    boot.unwrap_or_else(|_| host_name().into())
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.map_or_else(|_| "localhost".into(), |name| name.trim().into())
}
