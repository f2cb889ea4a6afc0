//! Two connected ends in this process, and the kernels that run there.

use warpbell::wqe::{Local, Remote};
use warpbell_host_init::{
    Access, Entry, Grid, Launch, Nic, Node, ProtectionDomain, QueuePair, QueuePairConfig, Shared,
    connect,
};
use warpbell_kernels::demo::{PIECES, Transfer};
use warpbell_kernels::outcome::{Failure, Outcome};

use crate::error::Error;
use crate::memory::Memory;

/// The longest that any wait of a kernel may take, in microseconds.
pub const LIMIT_US: u64 = 5_000_000;

pub struct End {
    pub domain: ProtectionDomain,
    pub pair: QueuePair,
    pub node: Node,
}

impl End {
    fn new(node: &Node, domain: ProtectionDomain, config: &QueuePairConfig) -> Result<Self, Error> {
        Ok(Self {
            pair: domain.queue_pair(config)?,
            domain,
            node: node.clone(),
        })
    }

    /// Registers memory with these bytes.
    pub fn memory(&self, bytes: &[u8]) -> Result<Memory, Error> {
        Ok(Memory::new(&self.domain, bytes)?)
    }

    /// What a kernel needs that moves bytes between here and there, or back.
    pub fn transfer<'a>(
        &'a self,
        local: Local,
        remote: Remote,
        outcome: &'a Outcome,
    ) -> Result<Transfer<'a>, Error> {
        Ok(Transfer {
            queue: self.pair.send_queue()?,
            local,
            remote,
            beside: 0,
            limit_us: LIMIT_US,
            outcome,
        })
    }

    /// Where a kernel says what became of it.
    pub fn outcome(&self) -> Result<Shared<Outcome>, Error> {
        Ok(self.node.shared(Outcome::new())?)
    }
}

/// A kernel of one thread with its parameters, and the outcome in these.
pub fn job<'j, P>(kernel: Entry<fn(P)>, parameters: P, outcome: &'j Outcome) -> Job<'j>
where
    P: Copy + Sync + 'j,
{
    (Launch::new(kernel, Grid::ONE_THREAD, parameters), outcome)
}

pub type Job<'j> = (Launch<'j>, &'j Outcome);

/// Runs one kernel, and gives what it says of itself.
pub fn try_run((launch, outcome): Job<'_>, end: &End) -> Result<Option<Failure>, Error> {
    end.node.run(&[launch], &[&end.pair])?;
    Ok(outcome.result().err())
}

/// Runs kernels of these ends at the same time, none of which may fail.
pub fn run(what: &str, jobs: Vec<Job<'_>>, ends: &[&End]) -> Result<(), Error> {
    let (launches, outcomes): (Vec<_>, Vec<_>) = jobs.into_iter().unzip();
    let pairs: Vec<_> = ends.iter().map(|end| &end.pair).collect();
    ends[0].node.run(&launches, &pairs)?;
    let mut failures = outcomes.iter().filter_map(|outcome| outcome.result().err());
    match failures.next() {
        None => Ok(()),
        Some(failure) => Err(Error::Kernel {
            what: what.into(),
            failure,
        }),
    }
}

pub struct Ends {
    pub one: End,
    pub other: End,
    config: QueuePairConfig,
}

impl Ends {
    pub fn new(node: &Node, config: &QueuePairConfig) -> Result<Self, Error> {
        let [near, far] = node.ends()?;
        let mut one = End::new(node, near, config)?;
        let mut other = End::new(node, far, config)?;
        connect(&mut one.pair, &mut other.pair)?;
        Ok(Self {
            one,
            other,
            config: *config,
        })
    }

    /// Each end as the first one, with the other one.
    pub fn both_ways(&self) -> [(&End, &End); 2] {
        [(&self.one, &self.other), (&self.other, &self.one)]
    }

    pub fn reset(&mut self) -> Result<(), Error> {
        self.one.pair.reset()?;
        self.other.pair.reset()?;
        Ok(connect(&mut self.one.pair, &mut self.other.pair)?)
    }

    /// Takes the second end away, so that nobody answers the first one.
    pub fn lose_other(&mut self) -> Result<(), Error> {
        match self.other.domain.device().soft_hca() {
            Some(hca) => hca.kill(),
            // Its device is the first end's, too.
            None => self.other.pair.reset()?,
        }
        Ok(())
    }

    /// Gives the first end another peer.
    pub fn replace_other(&mut self) -> Result<(), Error> {
        let node = &self.one.node;
        let domain = match node.nic() {
            Nic::Soft(_) => node.domain()?,
            // Its device is the first end's, too.
            _ => self.other.domain.clone(),
        };
        self.other = End::new(node, domain, &self.config)?;
        self.one.pair.reset()?;
        Ok(connect(&mut self.one.pair, &mut self.other.pair)?)
    }
}

/// Rings of this depth, room for receives in pieces, and all access.
pub fn config(depth: u32) -> QueuePairConfig {
    QueuePairConfig {
        send_depth: depth,
        receive_depth: depth,
        receive_segments: PIECES as u32,
        ..QueuePairConfig::granting(
            Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
        )
    }
}
