//! Ranks over TCP, or over Unix-domain sockets on one host.

use std::fmt;
use std::io::ErrorKind;
use std::net::IpAddr;
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
    /// Nothing for a single rank, and after a failure.
    link: Option<Link>,
    failed: Option<JobFailure>,
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
    pub fn join(config: &Config, timeout: Duration) -> Result<Self, RanksError> {
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
            failed: None,
            hub: None,
        };
        if config.size == 1 {
            return Ok(ranks);
        }
        let until = deadline(timeout);
        let mut config = config.clone();
        let mut door = None;
        if let Root::Pmi { fd, one_host } = config.root {
            door = by_pmi(&mut config, fd, one_host, until)?;
        } else if config.rank == 0 {
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
        ranks.link = Some(link);
        // All are there once each knows all hosts.
        let left = until.saturating_duration_since(Instant::now());
        let hosts = ranks.allgather(&host(), left)?;
        if config.local_rank.is_none() {
            let (before, rest) = hosts.split_at(config.rank as usize);
            let here = before.iter().filter(|host| rest.first() == Some(host));
            ranks.local_rank = here.count() as u32;
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
        if let Some(failure) = &self.failed {
            return Err(failure.clone().into());
        }
        let Some(link) = &mut self.link else {
            return Ok(vec![bytes.to_vec()]);
        };
        let until = deadline(timeout.saturating_add(MARGIN));
        link.send(&ToRoot::Call(call, timeout), bytes, until);
        let expected = match call {
            Collective::Allgather => self.size as usize,
            Collective::Barrier => 0,
        };
        let received = link.receive(until).map_err(|error| error.kind());
        let (rank, why) = match received {
            Ok((ToRank::Failed(failure), _)) => (failure.rank, failure.why),
            Ok((ToRank::Done, behind)) => match split(&behind) {
                Ok(all) if all.len() == expected => return Ok(all),
                _ => (0, FailedRank::Damaged),
            },
            Ok(_) | Err(ErrorKind::InvalidData) => (0, FailedRank::Damaged),
            Err(ErrorKind::TimedOut) => {
                let missing = vec![0];
                let why = FailedRank::TimedOut {
                    call,
                    timeout,
                    missing,
                };
                (self.rank, why)
            }
            Err(_) => (0, FailedRank::Lost),
        };
        let failure = JobFailure { rank, why };
        self.fail(failure.clone());
        Err(failure.into())
    }

    /// The end of the connection tells rank 0, if it does not know.
    fn fail(&mut self, failure: JobFailure) {
        self.link = None;
        self.failed = Some(failure);
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

    fn abort(&mut self, reason: &str) {
        if self.failed.is_some() {
            return;
        }
        let reason = reason[..reason.floor_char_boundary(LONGEST_REASON)].to_owned();
        self.end(&ToRoot::Abort(reason.clone()));
        let rank = self.rank;
        self.fail(JobFailure {
            rank,
            why: FailedRank::Aborted(reason),
        });
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
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

/// Rank 0 leaves `host:port,secret` with the process manager. They become those of the configuration, whose own secret
/// comes first.
fn by_pmi(
    config: &mut Config,
    fd: PmiFd,
    one_host: bool,
    until: Instant,
) -> Result<Option<Door>, RanksError> {
    let manager = pmi::open(fd)?;
    let (mut door, mut words) = (None, None);
    if config.rank == 0 {
        let told = config.bind.map(|bind| bind.ip());
        let told = told.filter(|ip| !ip.is_unspecified());
        let ip = told.or(one_host.then_some(IpAddr::from([127, 0, 0, 1])));
        let (opened, port) = Door::tcp(ip, config.bind.map_or(0, |bind| bind.port()))?;
        let host = ip.map_or_else(host_name, |ip| ip.to_string());
        let secret: String = random()?.iter().map(|byte| format!("{byte:02x}")).collect();
        words = Some(format!("{},{secret}", Root::Tcp { host, port }));
        door = Some(opened);
    }
    let words = pmi::broadcast(manager, words.as_deref(), until)?;
    let told = words
        .split_once(',')
        .and_then(|(root, secret)| Some((Root::parse(root)?, Secret::new(secret).ok()?)));
    let (root, secret) = told.ok_or(RanksError::Pmi {
        step: "give rank 0's address",
        answer: "rank 0 left something else".into(),
    })?;
    config.secret.get_or_insert(secret);
    config.root = root;
    Ok(door)
}

/// What the ranks of one host have in common, in containers also.
fn host() -> Vec<u8> {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id");
    boot.unwrap_or_else(|_| host_name().into())
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.map_or_else(|_| "localhost".into(), |name| name.trim().into())
}
