//! Why ranks did not find each other, or lost each other.

use std::time::Duration;
use std::{fmt, io};

use serde::{Deserialize, Serialize};

use crate::wire::VERSION;
use crate::{LARGEST_CONTRIBUTION, Launcher, MOST_RANKS, SHORTEST_SECRET};

/// Why ranks did not find each other, or lost each other.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RanksError {
    /// A variable of the environment has a value that it cannot have.
    #[error("{variable} is {value:?}; it must be {expected}")]
    BadValue {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What is expected.
        expected: &'static str,
    },
    /// Two variables disagree: each with its value.
    #[error("{0} and {1} disagree; unset one of them, or name the launcher in WARPBELL_LAUNCHER")]
    Disagree(String, String),
    /// This variable is missing, which belongs to others that are set.
    #[error("{0} is not set, but other variables of its kind are; set it")]
    Incomplete(&'static str),
    /// `WARPBELL_LAUNCHER` names this launcher, but this variable of it is not set.
    #[error(
        "WARPBELL_LAUNCHER is {0}, but {1} is not set; start the ranks with it, or unset WARPBELL_LAUNCHER"
    )]
    NotStarted(Launcher, &'static str),
    /// A rank that the job does not have.
    #[error("rank {rank} is outside the {size} ranks; number them from 0")]
    RankOutOfRange {
        /// The rank.
        rank: u32,
        /// How many ranks the job has.
        size: u32,
    },
    /// A number of ranks that cannot be.
    #[error("{0} ranks are outside 1 to {MOST_RANKS}")]
    SizeOutOfRange(u32),
    /// Nothing says where rank 0 is; and how the launcher passes a variable on.
    #[error("nothing says where rank 0 listens; give all ranks WARPBELL_ROOT=host:port ({0})")]
    NoRoot(&'static str),
    /// A secret of so many bytes, which can be guessed.
    #[error(
        "the secret has {0} bytes, at least {SHORTEST_SECRET} are needed; make one with `openssl rand -hex 32`"
    )]
    ShortSecret(usize),
    /// Rank 0 cannot listen at this address.
    #[error(
        "rank 0 cannot listen at {0}: {1}; choose another port with WARPBELL_ROOT, or rank 0's own address with WARPBELL_BIND"
    )]
    Bind(String, #[source] io::Error),
    /// The system is out of something.
    #[error("no socket, thread or random bytes: {0}; see the limits of this process")]
    System(#[from] io::Error),
    /// Rank 0 may not open a connection for every rank.
    #[error(
        "rank 0 may open {limit} files and needs {needed} for its connections; raise the limit with `ulimit -n`"
    )]
    TooFewFiles {
        /// Files that rank 0 needs.
        needed: u64,
        /// Files that a process may open.
        limit: u64,
    },
    /// Rank 0 did not answer.
    #[error(
        "rank 0 did not answer at {address} within {timeout:?} ({last}); check that it runs and that the address is right"
    )]
    Unreachable {
        /// The address.
        address: String,
        /// For how long this rank tried.
        timeout: Duration,
        /// How the last attempt ended.
        last: String,
    },
    /// Something else listens at this address of rank 0.
    #[error("what listens at {0} is no Warpbell rank; choose another port with WARPBELL_ROOT")]
    NotOurs(String),
    /// Rank 0 speaks this version.
    #[error("rank 0 speaks version {0}, this rank {VERSION}; run the same version on all ranks")]
    Version(u32),
    /// Rank 0, at this address, has another secret.
    #[error(
        "rank 0 at {0} has another secret, or only one of the two has any; give all ranks the same WARPBELL_SECRET"
    )]
    WrongSecret(String),
    /// Another user listens at the socket of this job, which has this address.
    #[error("another user listens at {0}; set WARPBELL_ROOT")]
    OtherUser(String),
    /// Rank 0 expects another number of ranks.
    #[error("rank 0 expects {root} ranks, this rank {ours}; start all of them with the same size")]
    OtherSize {
        /// What rank 0 expects.
        root: u32,
        /// What this rank expects.
        ours: u32,
    },
    /// Another process has joined as this rank.
    #[error("another process has joined as rank {0}; give each process a rank of its own")]
    Duplicate(u32),
    /// The others did not take this rank in.
    #[error(
        "the others go on without rank {rank}, and did not take it in within {timeout:?}; let them call `take_in`"
    )]
    NotTakenIn {
        /// This rank.
        rank: u32,
        /// For how long it waited.
        timeout: Duration,
    },
    /// No new process came as this rank. All ranks go on without it.
    #[error(
        "no new process came as rank {rank} within {timeout:?}; start it, and take it in again"
    )]
    NotBack {
        /// The rank that was to be taken in.
        rank: u32,
        /// For how long the others waited.
        timeout: Duration,
    },
    /// This rank does not take part, so that it has no place in a group.
    #[error("rank {0} does not take part; name ranks of which each takes part, once, and this one")]
    NotInGroup(u32),
    /// A contribution of so many bytes, which are too many.
    #[error(
        "a contribution of {0} bytes, at most {LARGEST_CONTRIBUTION} are allowed; gather it in pieces"
    )]
    TooLong(usize),
    /// The launcher's process manager did not do what was asked.
    #[error(
        "the process manager failed to {step}: {answer}; check that all ranks run, or set WARPBELL_ROOT=host:port, which a program that also uses MPI needs"
    )]
    Pmi {
        /// What was asked.
        step: &'static str,
        /// What it answered.
        answer: String,
    },
    /// Processes of an MPI communicator did not come.
    #[error(
        "not all {size} processes of the MPI communicator came within {timeout:?}; let all call `over_mpi`"
    )]
    #[cfg(feature = "mpi")]
    MpiLate {
        /// How many processes it has.
        size: u32,
        /// The timeout.
        timeout: Duration,
    },
    /// Rank 0 of an MPI communicator could not listen.
    #[error("rank 0 of the MPI communicator sent no address; its own error says why")]
    #[cfg(feature = "mpi")]
    MpiOffer,
    /// A call failed after this rank had joined.
    #[error(transparent)]
    Failed(#[from] JobFailure),
}

/// Why the calls of all ranks fail: the first cause, the same on each rank that rank 0 could still tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("rank {rank} {why}")]
pub struct JobFailure {
    /// The rank with which it began.
    pub rank: u32,
    /// What became of this rank.
    pub why: FailedRank,
}

impl JobFailure {
    /// The ranks that failed, as far as this cause says.
    pub fn ranks(&self) -> &[u32] {
        match &self.why {
            FailedRank::TimedOut { missing, .. } => missing,
            FailedRank::Shrinks => &[],
            _ => std::slice::from_ref(&self.rank),
        }
    }
}

/// What became of the rank with which a job's failure began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum FailedRank {
    /// Its connection closed, because its process ended.
    #[error("is gone: its connection closed; see its output")]
    Lost,
    /// It called [`abort`](crate::Bootstrap::abort), with this reason.
    #[error("aborted: {0}")]
    Aborted(String),
    /// It is rank 0, which serves all others, and its connection closed.
    #[error(
        "is gone, and served all others: the job ends; see its output, and start the job again"
    )]
    RootLost,
    /// It did not call [`shrink`](crate::Bootstrap::shrink) within this time after the first one had.
    #[error("was left out: it did not call shrink within {0:?}; start its process again")]
    LeftOut(Duration),
    /// It called [`shrink`](crate::Bootstrap::shrink).
    #[error("goes on without ranks that failed; call shrink on all others, too")]
    Shrinks,
    /// It had finished when others still called.
    #[error("has left while others call; make the same calls on all ranks")]
    Left,
    /// It made another call than another rank.
    #[error(
        "called {call} while rank {other} called {other_call}; make the same calls in the same order on all ranks"
    )]
    OutOfStep {
        /// What it called.
        call: Collective,
        /// The other rank.
        other: u32,
        /// What that one called.
        other_call: Collective,
    },
    /// Its timeout passed first.
    #[error(
        "waited {timeout:?} in {call} for {}; check that they run and make the same calls",
        listed(missing)
    )]
    TimedOut {
        /// What it called.
        call: Collective,
        /// Its timeout.
        timeout: Duration,
        /// The ranks that had not made the call.
        missing: Vec<u32>,
    },
    /// The bytes of its connection were damaged or forged.
    #[error("sent bytes that are damaged or forged on their way; start the job again")]
    Damaged,
}

/// What ranks do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Collective {
    /// [`allgather`](crate::Bootstrap::allgather); the first one is part of the start.
    Allgather,
    /// [`barrier`](crate::Bootstrap::barrier).
    Barrier,
    /// [`barrier_of`](crate::Bootstrap::barrier_of).
    BarrierOf,
    /// [`shrink`](crate::Bootstrap::shrink).
    Shrink,
    /// [`take_in`](crate::Bootstrap::take_in), of this rank.
    TakeIn(u32),
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allgather => "allgather",
            Self::Barrier => "barrier",
            Self::BarrierOf => "barrier of a group",
            Self::Shrink => "shrink",
            Self::TakeIn(rank) => return write!(f, "take_in of rank {rank}"),
        })
    }
}

/// Ranks in words: the first few, and how many more.
fn listed(ranks: &[u32]) -> String {
    const SHOWN: usize = 8;
    let numbers: Vec<_> = ranks.iter().take(SHOWN).map(u32::to_string).collect();
    let plural = if ranks.len() == 1 { "" } else { "s" };
    let more = match ranks.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("rank{plural} {}{more}", numbers.join(", "))
}
