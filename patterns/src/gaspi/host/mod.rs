//! A GASPI program's ranks, queues and segments, for kernels that use [`crate::gaspi`].
//!
//! | GASPI | here |
//! |---|---|
//! | `gaspi_config_set`, `gaspi_proc_init` | [`GaspiConfig`], [`Gaspi::new`]; `GaspiRank::new` for ranks that are processes (feature `ranks`) |
//! | `gaspi_segment_create`, `gaspi_segment_delete` | [`Gaspi::segment_create`], [`Gaspi::segment_delete`] |
//! | `gaspi_queue_purge` | [`Gaspi::queue_purge`] |
//! | `gaspi_state_vec_get` | `GaspiRank::state_vec_get` |
//! | `gaspi_group_create`, `_add`, `_commit`, `_delete`, `_num`, `_ranks`; `gaspi_barrier` | `GaspiRank::group_create` and so on, `GaspiRank::barrier` |

mod config;
mod error;
#[cfg(feature = "ranks")]
mod group;
mod process;
#[cfg(feature = "ranks")]
mod rank;
mod segment;

use crate::gaspi::{GaspiHandle, QueueId, Rank, SegmentId};

use crate::Error;
use warpbell_host_init::{ProtectionDomain, QueuePair};

pub use config::{GaspiConfig, MAX_RANKS};
pub use error::GaspiError;
#[cfg(feature = "ranks")]
pub use group::{GASPI_GROUP_ALL, GroupId, RankState};
#[cfg(feature = "ranks")]
pub use rank::GaspiRank;
#[cfg(feature = "ranks")]
pub(crate) use rank::told;

use process::Process;
use segment::Segment;

/// The places that have something, as bits.
fn present<T>(segments: &[Option<T>]) -> u64 {
    let places = segments.iter().enumerate();
    places
        .filter(|(_, place)| place.is_some())
        .fold(0, |present, (segment, _)| present | 1 << segment)
}

/// A GASPI program whose ranks are all in this process: each has its own queues and segments, on a device of its
/// own or on one that it shares.
///
/// ```
/// use warpbell_patterns::gaspi::host::{Gaspi, GaspiConfig};
/// use warpbell_host_init::soft::SoftOptions;
/// use warpbell_patterns::Error;
/// use warpbell_host_init::{Device, Nic};
///
/// fn main() -> Result<(), Error> {
///     let device = Device::open(Nic::Soft(SoftOptions::default()))?;
///     let domains = [device.protection_domain()?, device.protection_domain()?];
///     let mut gaspi = Gaspi::new(&domains, &GaspiConfig::default())?;
///     gaspi.segment_create(0, 4096)?;
///     gaspi.segment_write(0, 0, 0, b"from rank 0")?;
///     // For the kernels of each rank:
///     let handles = [gaspi.handle(0)?, gaspi.handle(1)?];
///     # let _ = handles;
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Gaspi {
    config: GaspiConfig,
    processes: Vec<Process>,
    /// At their numbers.
    segments: Vec<Option<Vec<Segment>>>,
}

impl Gaspi {
    /// Makes a rank of each domain, and connects all of them with each other.
    ///
    /// # Errors
    /// [`Error::Gaspi`] for numbers that are refused; those of [`ProtectionDomain::queue_pair`] and
    /// [`connect`](warpbell_host_init::connect).
    pub fn new(domains: &[ProtectionDomain], config: &GaspiConfig) -> Result<Self, Error> {
        config.check(domains.len())?;
        let mut processes = domains
            .iter()
            .map(|domain| Process::new(domain, domains.len(), config))
            .collect::<Result<Vec<_>, Error>>()?;
        for queue in 0..config.queues {
            for rank in 0..domains.len() {
                let (before, from) = processes.split_at_mut(rank);
                let Some(own) = from.first_mut() else { break };
                for (other, peer) in before.iter_mut().enumerate() {
                    own.connect(peer, queue, [rank, other], config)?;
                }
                if config.to_self {
                    own.connect_to_self(queue, rank, config)?;
                }
            }
        }
        let mut gaspi = Self {
            config: *config,
            processes,
            segments: (0..config.segments).map(|_| None).collect(),
        };
        gaspi.describe_queues()?;
        for process in &gaspi.processes {
            for (rank, other) in gaspi.processes.iter().enumerate() {
                process.describe_notifications(rank, other.notifications().entry())?;
            }
        }
        Ok(gaspi)
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> u32 {
        self.processes.len() as u32
    }

    /// What the kernels of a rank get. It borrows the program, which therefore outlives them and does not change
    /// under them.
    ///
    /// # Errors
    /// [`GaspiError::NoSuchRank`].
    pub fn handle(&self, rank: Rank) -> Result<GaspiHandle<'_>, Error> {
        let process = self.process(rank)?;
        Ok(process.handle(rank, &self.config, self.present()))
    }

    /// Makes a segment of `bytes` bytes at every rank, all zero, where the queues lie, without any notification.
    ///
    /// # Errors
    /// [`GaspiError::NoSuchSegment`] without a place for it; [`GaspiError::SegmentExists`]; those of
    /// [`ProtectionDomain::register`].
    pub fn segment_create(&mut self, segment: SegmentId, bytes: usize) -> Result<(), Error> {
        if self.place(segment)?.is_some() {
            return Err(GaspiError::SegmentExists { segment }.into());
        }
        let config = &self.config.queue_pair;
        let segment_of = |process: &Process| {
            let domain = process.domain();
            Segment::new(domain, config.placement_in(domain), bytes)
        };
        let of_all = self
            .processes
            .iter()
            .map(segment_of)
            .collect::<Result<_, Error>>()?;
        let count = self.config.notifications as usize;
        for process in &self.processes {
            // What came for a segment of that number before.
            process
                .notifications()
                .clear(segment as usize * count, count)?;
        }
        *self.place(segment)? = Some(of_all);
        self.describe_segments()
    }

    /// Takes a segment away at every rank.
    ///
    /// # Errors
    /// [`GaspiError::NoSuchSegment`].
    pub fn segment_delete(&mut self, segment: SegmentId) -> Result<(), Error> {
        let limit = self.config.segments;
        let gone = self.place(segment)?.take();
        if gone.is_none() {
            return Err(GaspiError::NoSuchSegment { segment, limit }.into());
        }
        // Nobody names it any more before its memory is freed.
        self.describe_segments()?;
        drop(gone);
        Ok(())
    }

    /// Copies bytes out of a rank's segment.
    ///
    /// # Errors
    /// A rank or a segment that is not there; [`OutOfRange`](warpbell_host_init::Error::OutOfRange).
    pub fn segment_read(
        &self,
        rank: Rank,
        segment: SegmentId,
        offset: usize,
        into: &mut [u8],
    ) -> Result<(), Error> {
        self.segment(rank, segment)?.read(offset, into)
    }

    /// Copies bytes into a rank's segment.
    ///
    /// # Errors
    /// As [`segment_read`](Self::segment_read).
    pub fn segment_write(
        &self,
        rank: Rank,
        segment: SegmentId,
        offset: usize,
        from: &[u8],
    ) -> Result<(), Error> {
        self.segment(rank, segment)?.write(offset, from)
    }

    /// Makes a queue of a rank usable after an error: its connections to all ranks are reset and made anew.
    /// Requests that were under way are lost, those that came the other way through the same queue, too.
    ///
    /// # Errors
    /// A rank or a queue that is not there; a device that has stopped.
    pub fn queue_purge(&mut self, queue: QueueId, rank: Rank) -> Result<(), Error> {
        self.process(rank)?;
        let queues = self.config.queues;
        if queue >= queues {
            return Err(GaspiError::NoSuchQueue { queue, queues }.into());
        }
        let rank = rank as usize;
        for other in 0..self.processes.len() {
            if other == rank {
                self.processes[rank].renew_to_self(queue, rank)?;
            } else if let Ok([own, peer]) = self.processes.get_disjoint_mut([rank, other]) {
                own.renew(peer, queue, [rank, other])?;
            }
        }
        self.describe_queues()
    }

    /// The queue pairs of a rank: for a [`Watch`](warpbell_host_init::cuda::Watch) over its kernels, and for what they
    /// did.
    ///
    /// # Errors
    /// [`GaspiError::NoSuchRank`].
    pub fn queue_pairs(&self, rank: Rank) -> Result<impl Iterator<Item = &QueuePair>, Error> {
        Ok(self.process(rank)?.queue_pairs())
    }

    /// Lets a connection fail, as an error would.
    #[cfg(test)]
    pub(crate) fn break_connection(&mut self, queue: QueueId, from: Rank, to: Rank) {
        self.processes[from as usize].break_connection(queue, to as usize);
    }

    fn process(&self, rank: Rank) -> Result<&Process, Error> {
        let ranks = self.ranks();
        let process = self.processes.get(rank as usize);
        process.ok_or_else(|| GaspiError::NoSuchRank { rank, ranks }.into())
    }

    fn present(&self) -> u64 {
        present(&self.segments)
    }

    fn place(&mut self, segment: SegmentId) -> Result<&mut Option<Vec<Segment>>, Error> {
        let limit = self.config.segments;
        let place = self.segments.get_mut(segment as usize);
        place.ok_or_else(|| GaspiError::NoSuchSegment { segment, limit }.into())
    }

    fn segment(&self, rank: Rank, segment: SegmentId) -> Result<&Segment, Error> {
        self.process(rank)?;
        let limit = self.config.segments;
        let of_all = self.segments.get(segment as usize).and_then(Option::as_ref);
        let found = of_all.and_then(|of_all| of_all.get(rank as usize));
        found.ok_or_else(|| GaspiError::NoSuchSegment { segment, limit }.into())
    }

    /// Tells each rank's kernels of its queues.
    fn describe_queues(&mut self) -> Result<(), Error> {
        self.processes
            .iter_mut()
            .try_for_each(Process::describe_queues)
    }

    /// Tells each rank's kernels of all segments.
    fn describe_segments(&mut self) -> Result<(), Error> {
        for (rank, process) in self.processes.iter().enumerate() {
            for (number, of_all) in self.segments.iter().enumerate() {
                for other in 0..self.processes.len() {
                    let segment = of_all.as_ref().and_then(|of_all| of_all.get(other));
                    let mut entry = segment.map(Segment::entry).unwrap_or_default();
                    if other != rank {
                        entry.local_key = 0;
                    }
                    process.describe_segment(number, other, entry)?;
                }
            }
        }
        Ok(())
    }
}
