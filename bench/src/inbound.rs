//! The ways by which a kernel knows that data is there, side by side.

use std::sync::atomic::Ordering;

use crate::run::launch::{LIMIT_US, said};
use crate::run::setup::End;
use crate::run::statistics::percentile;
use crate::run::{interrupt, memory};
use clap::ValueEnum;
use serde::Serialize;
use warpbell::Slice;
use warpbell_host_init::{
    Access, Buffer, Grid, Launch, Node, Placement, QueuePairConfig, connect, entry,
};
use warpbell_kernels::inbound::{Inbound, Way, inbound_block, inbound_thread, inbound_warp};
use warpbell_kernels::outcome::Outcome;
use warpbell_kernels::suite::ScopeKind;
use warpbell_patterns::inbound::host::{Flush, Flushing};
use warpbell_soft_hca::shell::LateStores;

use crate::samples::sorted;
use crate::{Error, nodes};

/// Who writes, and who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Who {
    /// A thread
    Thread,
    /// A warp
    Warp,
    /// A block
    Block,
}

/// A way, with a flush before the data are read or without.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    way: Way,
    flush: bool,
}

impl Manner {
    /// All that there are: no data that tell for themselves need a flush.
    pub fn all() -> Vec<Self> {
        let manners = Way::ALL.into_iter().flat_map(|way| {
            let flushes: &[bool] = match way {
                Way::Words | Way::Lines | Way::Checksums => &[false],
                _ => &[false, true],
            };
            flushes.iter().map(move |&flush| Self { way, flush })
        });
        manners.collect()
    }

    /// What it is, in words.
    pub fn words(self) -> String {
        let way = match self.way {
            Way::Send => "completion of a send",
            Way::WriteImmediate => "completion of a write with immediate",
            Way::Flag => "flag behind the data",
            Way::Counter => "counter behind the data",
            Way::Words => "sequence in each 8 bytes",
            Way::Lines => "sequence in each 64 bytes",
            Way::Checksums => "CRC-32 over each 256 bytes",
        };
        match self.flush {
            true => format!("{way}, then a flush"),
            false => way.into(),
        }
    }

    /// Whether it holds where pieces of so many bytes show late; `None` if nothing is late.
    fn holds(self, piece: Option<u64>) -> bool {
        match (self.way, piece) {
            (_, None) | (Way::Checksums, _) => true,
            (Way::Words, Some(piece)) => piece >= 8,
            (Way::Lines, Some(piece)) => piece >= 64,
            _ => self.flush,
        }
    }
}

/// What came of a way.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The way, in words.
    pub way: String,
    /// Bytes of a message.
    pub bytes: u32,
    /// Bytes that were written for it.
    pub written: u32,
    /// Messages that count for the times.
    pub rounds: u32,
    /// Messages that were looked at, those before them too.
    pub messages: u32,
    /// From before a message is posted until its reader has read it: the median, in nanoseconds.
    pub one_way_ns: u64,
    /// The same, of which one of 100 is more.
    pub one_way_p99_ns: u64,
    /// What the call and reading the data cost the reader where the data is there already: the median, in nanoseconds on
    /// a CPU, in cycles on a GPU. Not where data is late.
    pub reader: Option<u64>,
    /// Messages that were not what was sent when they were read.
    pub stale: u64,
    /// Whether the way promises that there is none.
    pub holds: bool,
    /// It does what it promises.
    pub verified: bool,
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub struct InboundCase {
    /// Who writes and reads.
    pub who: Who,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of a message, at least 1.
    pub bytes: u32,
    /// Messages that count, at least 1.
    pub rounds: u32,
    /// Warm-up messages, which do not count.
    pub warm_up: u32,
    /// Whether what is written shows late at the reader, and how many bytes come together then: a power of two.
    pub piece: Option<u64>,
}

impl InboundCase {
    /// Sends messages one way.
    ///
    /// # Errors
    /// A NIC that cannot be unlucky; a kernel that failed.
    pub fn run(&self, node: &Node, manner: Manner) -> Result<Row, Error> {
        let (samples, stale) = self.send(node, manner, false)?;
        let mut row = Row {
            way: manner.words(),
            bytes: self.bytes,
            written: manner.way.bytes(self.bytes),
            rounds: self.rounds,
            messages: self.warm_up + self.rounds,
            one_way_ns: percentile(&samples, 50),
            one_way_p99_ns: percentile(&samples, 99),
            reader: None,
            stale,
            holds: manner.holds(self.piece),
            verified: true,
        };
        if self.piece.is_none() {
            let (samples, stale) = self.send(node, manner, true)?;
            row.reader = Some(percentile(&samples, 50));
            row.stale += stale;
        }
        row.verified = !row.holds || row.stale == 0;
        Ok(row)
    }

    /// What befalls the stores at the reader: three pieces in ten are late, longer where the reader does not wait for
    /// them, so that it comes in time to see that they are.
    fn late(&self, manner: Manner) -> Option<LateStores> {
        let longest_ns = match manner.way {
            Way::Words | Way::Checksums => 100_000,
            Way::Lines => 1_000_000,
            _ => 5_000_000,
        };
        self.piece.map(|piece| LateStores {
            seed: 1,
            piece,
            late: 300,
            longest_ns,
        })
    }

    /// Gives the sorted samples, and how many messages were stale.
    fn send(&self, node: &Node, manner: Manner, settled: bool) -> Result<(Vec<u64>, u64), Error> {
        interrupt::check()?;
        let config = QueuePairConfig {
            send_depth: 16,
            receive_depth: 4,
            // Data, and signals that are added.
            ..QueuePairConfig::granting(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
        };
        let [near, far] = match self.late(manner) {
            None => node.ends()?,
            Some(late) => nodes::unlucky(node, late)?,
        };
        let mut near = End::new(node, near, &config)?;
        let mut far = End::new(node, far, &config)?;
        connect(&mut near.pair, &mut far.pair)?;
        let written = manner.way.bytes(self.bytes) as usize;
        // Whole words, for the kernels.
        let room = written.next_multiple_of(8);
        let (source, target) = (near.memory(room)?, far.memory(room)?);
        let (found, signal) = (near.memory(8)?, far.memory(8)?);
        let flush = Flush::new(
            target.region(),
            match manner.flush {
                true => Flushing::Always,
                false => Flushing::Never,
            },
        )?;
        let own = match node.gpu() {
            None => Placement::Host,
            Some(gpu) => Placement::Gpu(gpu),
        };
        let between = Buffer::placed(own, 24)?;
        let outcome = node.shared(Outcome::new())?;
        let (samples, stale) = (node.words(self.rounds as usize)?, node.words(1)?);
        let (scope, threads) = match self.who {
            Who::Thread => (ScopeKind::Thread, 1),
            Who::Warp => (ScopeKind::Warp, 32),
            Who::Block => (ScopeKind::Block, self.threads),
        };
        let parameters = Inbound {
            way: manner.way,
            scope,
            settled,
            reach: far.domain.device().fence_reach(),
            send: near.pair.send_queue()?,
            receive: far.pair.receive_queue()?,
            flush: flush.handle()?,
            source: source.local(0, written),
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            source_words: unsafe { source.place() },
            target: target.remote(0),
            buffer: target.local(0, written),
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            target_words: unsafe { target.place() },
            signal: signal.remote(0),
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            signal_word: unsafe { signal.place() },
            found: found.local(0, 8),
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            between: unsafe { memory::place(&between) },
            bytes: self.bytes,
            rounds: self.rounds,
            warm_up: self.warm_up,
            limit_us: LIMIT_US,
            samples: Slice::new(&samples),
            stale: Slice::new(&stale),
            outcome: &outcome,
        };
        let grid = Grid::new(2, threads);
        let launch = match self.who {
            Who::Thread => Launch::new(entry!(inbound_thread), grid, parameters),
            Who::Warp => Launch::new(entry!(inbound_warp), grid, parameters),
            Who::Block => Launch::new(entry!(inbound_block), grid, parameters),
        };
        node.run(&[launch], &[&near.pair, &far.pair, flush.queue_pair()])?;
        said(&manner.words(), &outcome)?;
        // What is late has come once the memory is given back; nothing beside it may have changed by then.
        let mut count = stale[0].load(Ordering::Relaxed);
        for memory in [&source, &target, &found, &signal] {
            count += u64::from(memory.check_guards().is_err());
        }
        Ok((sorted(&samples[..]), count))
    }
}
