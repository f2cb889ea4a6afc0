//! Two ends in this process, connected.

use warpbell_host_init::{
    Access, Nic, Node, ProtectionDomain, QueuePair, QueuePairConfig, Shared, Timers, connect,
};
use warpbell_kernels::outcome::Outcome;

use crate::Error;
use crate::memory::Memory;

/// One end of a connection.
#[derive(Debug)]
pub struct End {
    /// Where its memory is registered.
    pub domain: ProtectionDomain,
    /// Its queues.
    pub pair: QueuePair,
    /// Where its kernels run.
    pub node: Node,
    receive_depth: u32,
}

impl End {
    /// Makes a queue pair in this domain of the node.
    ///
    /// # Errors
    /// What [`ProtectionDomain::queue_pair`] refuses.
    pub fn new(
        node: &Node,
        domain: ProtectionDomain,
        config: &QueuePairConfig,
    ) -> Result<Self, Error> {
        let pair = domain.queue_pair(config)?;
        Ok(Self::with_pair(node, domain, pair, config))
    }

    /// An end with a queue pair of this domain that was made with this configuration.
    pub fn with_pair(
        node: &Node,
        domain: ProtectionDomain,
        pair: QueuePair,
        config: &QueuePairConfig,
    ) -> Self {
        Self {
            domain,
            pair,
            node: node.clone(),
            receive_depth: config.receive_depth,
        }
    }

    /// Registers memory that this end's kernels and its NIC reach.
    ///
    /// # Errors
    /// As [`Memory::new`].
    pub fn memory(&self, bytes: usize) -> Result<Memory, Error> {
        Ok(Memory::new(&self.domain, self.domain.placement(), bytes)?)
    }

    /// The same with these bytes in it.
    ///
    /// # Errors
    /// As [`Memory::new`].
    pub fn memory_of(&self, bytes: &[u8]) -> Result<Memory, Error> {
        let memory = self.memory(bytes.len())?;
        memory.write(0, bytes);
        Ok(memory)
    }

    /// Where a kernel of this end says what became of it.
    ///
    /// # Errors
    /// No memory for it.
    pub fn outcome(&self) -> Result<Shared<Outcome>, Error> {
        Ok(self.node.shared(Outcome::new())?)
    }

    /// How many receives its queue holds.
    pub fn receive_depth(&self) -> u64 {
        self.receive_depth.into()
    }
}

/// Two ends, connected.
#[derive(Debug)]
pub struct Ends {
    /// One end.
    pub one: End,
    /// The other end.
    pub other: End,
    config: QueuePairConfig,
}

impl Ends {
    /// Opens the node's NIC, and connects two ends of it.
    ///
    /// # Errors
    /// As [`Node::ends`], [`End::new`] and [`connect`].
    pub fn new(node: &Node, config: &QueuePairConfig) -> Result<Self, Error> {
        Self::between(node, node.ends()?, config)
    }

    /// The same so many times, between the same two domains.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn several(
        node: &Node,
        config: &QueuePairConfig,
        count: usize,
    ) -> Result<Vec<Self>, Error> {
        let domains = node.ends()?;
        let ends = || Self::between(node, domains.clone(), config);
        (0..count).map(|_| ends()).collect()
    }

    fn between(
        node: &Node,
        [near, far]: [ProtectionDomain; 2],
        config: &QueuePairConfig,
    ) -> Result<Self, Error> {
        let mut one = End::new(node, near, config)?;
        let mut other = End::new(node, far, config)?;
        connect(&mut one.pair, &mut other.pair)?;
        Ok(Self {
            one,
            other,
            config: *config,
        })
    }

    /// Where the kernels of both run.
    pub fn node(&self) -> &Node {
        &self.one.node
    }

    /// Each end as the first one, with the other one.
    pub fn both_ways(&self) -> [(&End, &End); 2] {
        [(&self.one, &self.other), (&self.other, &self.one)]
    }

    /// Resets both queue pairs and connects them again.
    ///
    /// # Errors
    /// A device has stopped.
    pub fn reset(&mut self) -> Result<(), Error> {
        self.one.pair.reset()?;
        self.other.pair.reset()?;
        connect(&mut self.one.pair, &mut self.other.pair)?;
        Ok(())
    }

    /// Takes the second end away, so that nobody answers the first one.
    ///
    /// # Errors
    /// A device has stopped.
    pub fn lose_other(&mut self) -> Result<(), Error> {
        match self.other.domain.device().soft_hca() {
            Some(hca) => hca.kill(),
            // Its device is the first end's, too.
            None => self.other.pair.reset()?,
        }
        Ok(())
    }

    /// Gives the first end another peer.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn replace_other(&mut self) -> Result<(), Error> {
        let node = self.node();
        let domain = match node.nic() {
            Nic::Soft(_) => node.domain()?,
            // Its device is the first end's, too.
            _ => self.other.domain.clone(),
        };
        self.other = End::new(node, domain, &self.config)?;
        self.one.pair.reset()?;
        connect(&mut self.one.pair, &mut self.other.pair)?;
        Ok(())
    }
}

/// A configuration of queues between ranks. Ranks whose NICs are software may share their cores with others: a NIC waits
/// 0.54 s for an answer before it sends again, instead of 67 ms, and gives up after 4.3 s.
pub fn between_ranks(node: &Node, config: QueuePairConfig) -> QueuePairConfig {
    match node.nic() {
        Nic::Soft(_) => QueuePairConfig {
            timers: Timers {
                acknowledge_timeout: 17,
                ..config.timers
            },
            ..config
        },
        _ => config,
    }
}

/// A configuration with rings of this depth, and room for receives in pieces.
pub fn config(depth: u32) -> QueuePairConfig {
    QueuePairConfig {
        send_depth: depth,
        receive_depth: depth,
        receive_segments: warpbell_kernels::demo::PIECES as u32,
        // The other end writes, reads and adds.
        ..QueuePairConfig::granting(
            Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
        )
    }
}
