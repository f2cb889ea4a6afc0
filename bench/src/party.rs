//! Who takes part in a run: this process alone, or the ranks that a launcher has started.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use warpbell_host_init::world::ranks::{Bootstrap, Config, Environment, RanksError, Rendezvous};
use warpbell_host_init::world::{WorldError, WorldOptions};
use warpbell_host_init::{Node, QueuePairConfig, World};

use crate::Error;
use crate::run::error::Error as RunError;
use crate::run::interrupt;
use crate::run::screen::Screen;
use crate::run::setup::between_ranks;

/// How long a step with the others may take: it takes as long as the slowest rank, which may share its core with all.
const PATIENCE: Duration = Duration::from_secs(300);

/// Who takes part in a run: this process alone, or the ranks that a launcher has started, of which it is one.
///
/// All ranks run the same program with the same options, and make the same calls in the same order. Rank 0 shows the
/// results.
pub struct Party {
    node: Node,
    ranks: Option<Ranks>,
}

struct Ranks {
    /// Several worlds are made of them, one after the other.
    shared: Arc<Mutex<Rendezvous>>,
    options: WorldOptions,
    started: String,
}

impl Party {
    /// A process that shows its own results, whatever has started it.
    pub fn alone(node: &Node) -> Self {
        Self {
            node: node.clone(),
            ranks: None,
        }
    }

    /// Joins the ranks that a launcher has started, if it has started several.
    ///
    /// # Errors
    /// As [`World::from_env`], but for those of the NIC, which is opened later.
    pub fn from_env(node: &Node) -> Result<Self, Error> {
        let config = Config::read(&Environment::of_process()).map_err(failed)?;
        match config.size {
            1 => Ok(Self::alone(node)),
            _ => Self::join(node, &config),
        }
    }

    fn join(node: &Node, config: &Config) -> Result<Self, Error> {
        let mut ranks = Rendezvous::join(config, PATIENCE).map_err(failed)?;
        let options = WorldOptions::from_env(PATIENCE);
        let options = options.inspect_err(|error| ranks.abort(&error.to_string()));
        Ok(Self {
            node: node.clone(),
            ranks: Some(Ranks {
                shared: Arc::new(Mutex::new(ranks)),
                options: options.map_err(warpbell_host_init::Error::from)?,
                started: config.to_string(),
            }),
        })
    }

    /// Where the kernels of this process run, and its NIC.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The number of this rank.
    pub fn rank(&self) -> u32 {
        let ranks = self.ranks.as_ref();
        ranks.map_or(0, |ranks| ranks.shared.rank())
    }

    /// How many ranks there are; none where this process is alone, and is all ranks of the program.
    pub fn size(&self) -> Option<u32> {
        Some(self.ranks.as_ref()?.shared.size())
    }

    /// The numbers of a program's ranks that this process runs: of so many all, where it is alone, and otherwise its own.
    ///
    /// # Errors
    /// [`Error::OtherRanks`] if a launcher has started another number.
    pub fn own_ranks(&self, ranks: u32) -> Result<std::ops::Range<u32>, Error> {
        match self.size() {
            None => Ok(0..ranks),
            Some(size) if size == ranks => Ok(self.rank()..self.rank() + 1),
            Some(size) => Err(Error::OtherRanks { ranks, size }),
        }
    }

    /// Opens a NIC of this node that reaches those of all other ranks; none where this process is alone.
    ///
    /// # Errors
    /// As [`World::with`].
    pub fn world(&self, node: &Node) -> Result<Option<World>, Error> {
        let world = |ranks: &Ranks| World::with(ranks.shared.clone(), node, &ranks.options);
        Ok(self.ranks.as_ref().map(world).transpose()?)
    }

    /// A configuration of this process's queues: [`between_ranks`], if a launcher has started it.
    pub fn queues(&self, config: QueuePairConfig) -> QueuePairConfig {
        match &self.ranks {
            Some(_) => between_ranks(&self.node, config),
            None => config,
        }
    }

    /// Gives all ranks a value of a few KiB, and returns those of all, by rank.
    ///
    /// # Errors
    /// A rank does not take part, or gives something else than a `T`.
    pub fn exchange<T: Serialize + DeserializeOwned>(&self, ours: T) -> Result<Vec<T>, Error> {
        let Some(ranks) = &self.ranks else {
            return Ok(vec![ours]);
        };
        let malformed = |rank, error: serde_json::Error| WorldError::Malformed {
            rank,
            reason: error.to_string(),
        };
        let all = serde_json::to_vec(&ours)
            .map_err(|error| malformed(self.rank(), error))
            .and_then(|ours| Ok(ranks.shared.clone().allgather(&ours, PATIENCE)?))
            .and_then(|all| {
                let value = |(rank, bytes): (u32, Vec<u8>)| {
                    serde_json::from_slice(&bytes).map_err(|error| malformed(rank, error))
                };
                (0..).zip(all).map(value).collect()
            });
        Ok(all.map_err(warpbell_host_init::Error::from)?)
    }

    /// Whether all ranks say yes, once all are here.
    ///
    /// # Errors
    /// As [`exchange`](Self::exchange).
    pub fn all(&self, ours: bool) -> Result<bool, Error> {
        Ok(self.exchange(ours)?.into_iter().all(|yes| yes))
    }

    /// Ends what is under way at all ranks if Ctrl-C was pressed at one of them.
    ///
    /// # Errors
    /// [`RunError::Interrupted`] then; as [`exchange`](Self::exchange).
    pub fn check(&self) -> Result<(), Error> {
        self.go_on(!interrupt::requested())
    }

    /// Ends what is under way at all ranks, as Ctrl-C does, unless all say yes.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn go_on(&self, ours: bool) -> Result<(), Error> {
        match self.all(ours)? {
            true => Ok(()),
            false => {
                interrupt::pressed_elsewhere();
                Err(RunError::Interrupted.into())
            }
        }
    }

    /// The longest of the times of all ranks.
    ///
    /// # Errors
    /// As [`exchange`](Self::exchange).
    pub fn longest(&self, ours: Duration) -> Result<Duration, Error> {
        let all = self.exchange(ours)?;
        Ok(all.into_iter().max().unwrap_or(ours))
    }

    /// Where rank 0 shows the results, beginning with how the ranks were started; all others show nothing.
    pub fn screen(&self, json: bool, steps: u64) -> Screen {
        match (&self.ranks, self.rank()) {
            (None, _) => Screen::new(json, steps),
            (Some(ranks), 0) => {
                let screen = Screen::new(json, steps);
                screen.line(&ranks.started);
                screen
            }
            _ => Screen::silent(),
        }
    }

    /// The end of a run: if it failed here, the others learn why.
    ///
    /// # Errors
    /// What the run came to.
    pub fn end<E: fmt::Display>(self, result: Result<(), E>) -> Result<(), E> {
        if let (Some(ranks), Err(error)) = (&self.ranks, &result) {
            ranks.shared.clone().abort(&error.to_string());
        }
        result
    }
}

fn failed(error: RanksError) -> Error {
    warpbell_host_init::Error::from(WorldError::from(error)).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpbell_host_init::world::ranks::Root;

    /// What each of two ranks comes to, in a job with a port of its own.
    fn job<R: Send>(port: u16, part: impl Fn(Party) -> R + Sync) -> [R; 2] {
        let [_, b, c, d] = std::process::id().to_be_bytes();
        let alone = Config::read(&Environment::default()).unwrap();
        let config = |rank| Config {
            rank,
            size: 2,
            root: Root::Tcp {
                host: format!("127.{}.{c}.{d}", 64 + b % 64),
                port,
            },
            ..alone.clone()
        };
        let rank = |rank| part(Party::join(&Node::cpu(), &config(rank)).unwrap());
        std::thread::scope(|scope| {
            let other = scope.spawn(|| rank(1));
            [rank(0), other.join().unwrap()]
        })
    }

    #[test]
    fn all_ranks_come_to_the_same() {
        let same = job(21_010, |party| {
            let own = party.rank();
            assert_eq!(party.size(), Some(2));
            assert_eq!(party.own_ranks(2).unwrap(), own..own + 1);
            assert_eq!(party.exchange(own + 7).unwrap(), [7, 8]);
            // What one says alone.
            assert!(!party.all(own == 0).unwrap());
            assert!(party.all(true).unwrap());
            let longest = party.longest(Duration::from_millis(own.into())).unwrap();
            assert_eq!(longest, Duration::from_millis(1));
            // One world behind the other.
            for _ in 0..2 {
                let mut world = party.world(party.node()).unwrap().unwrap();
                let others = world.others();
                let config = party.queues(QueuePairConfig::default());
                assert_eq!(config.timers.acknowledge_timeout, 17);
                let pairs = world.connect(others, &config);
                assert!(pairs.unwrap().into_keys().eq([1 - own]));
            }
            party.own_ranks(3).unwrap_err().to_string()
        });
        let words =
            "the program has 3 ranks here, and 2 were started; start 3, or none by a launcher";
        assert_eq!(same, [words; 2]);
    }

    #[test]
    fn what_ends_one_rank_all_hear() {
        let [first, second] = job(21_011, |party| match party.rank() {
            0 => party.end(Err("no memory".to_owned())).unwrap_err(),
            _ => party.exchange(1).unwrap_err().to_string(),
        });
        assert_eq!(first, "no memory");
        assert!(second.starts_with("rank 0 aborted: no memory"), "{second}");
    }

    #[test]
    fn a_process_alone_is_all_ranks() {
        let party = Party::alone(&Node::cpu());
        assert_eq!((party.rank(), party.size()), (0, None));
        assert_eq!(party.own_ranks(5).unwrap(), 0..5);
        assert_eq!(party.exchange(3).unwrap(), [3]);
        assert!(party.world(party.node()).unwrap().is_none());
        let config = QueuePairConfig::default();
        assert_eq!(party.queues(config).timers, config.timers);
    }
}
