//! A rank of a GASPI program whose ranks are the processes of a job.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::gaspi::{GaspiHandle, NotificationEntry, QueueId, Rank, SegmentEntry, SegmentId};
use warpbell_host_init::{QueuePair, World};

use super::group::Groups;
use super::process::Process;
use super::segment::Segment;
use super::{GaspiConfig, GaspiError, present};
use crate::Error;

/// This process's rank of a GASPI program, whose ranks are the processes of a job, on one machine or several.
///
/// All ranks make the same calls in the same order, with the same configuration. Each call waits for the others, at most
/// for the timeout of the [`World`]; if a rank has failed, the error names it, and [`state_vec_get`](Self::state_vec_get)
/// has all that failed. After [`shrink`](Self::shrink), calls go on among the ranks that are left. A GASPI program takes no
/// new process in.
///
/// ```
/// use std::time::Duration;
/// use warpbell_host_init::{Node, World};
/// use warpbell_patterns::Error;
/// use warpbell_patterns::gaspi::host::{GaspiConfig, GaspiRank};
///
/// fn main() -> Result<(), Error> {
///     let world = World::from_env(&Node::cpu(), Duration::from_secs(60))?;
///     let mut gaspi = GaspiRank::new(world, &GaspiConfig::default())?;
///     gaspi.segment_create(0, 4096)?;
///     gaspi.segment_write(0, 0, b"of this rank")?;
///     // For the kernels of this rank:
///     let handle = gaspi.handle();
///     # let _ = handle;
///     // The others may still write to this rank's segments.
///     gaspi.world().barrier()?;
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct GaspiRank {
    config: GaspiConfig,
    pub(super) process: Process,
    pub(super) groups: Groups,
    /// At their numbers: this rank's.
    segments: Vec<Option<Segment>>,
    /// Behind the queue pairs, which end before their device does.
    pub(super) world: World,
}

impl GaspiRank {
    /// Connects the queues of this rank with those of all others (`gaspi_proc_init`).
    ///
    /// # Errors
    /// [`Error::Gaspi`] for numbers that are refused; those of [`World::connect`] and [`World::exchange`].
    pub fn new(mut world: World, config: &GaspiConfig) -> Result<Self, Error> {
        let ranks = world.size() as usize;
        let checked = config.check(ranks).map_err(Error::from);
        let made = checked.and_then(|()| Process::new(world.domain(), ranks, config));
        let mut rank = Self {
            config: *config,
            process: told(&mut world, made)?,
            groups: Groups::default(),
            segments: (0..config.segments).map(|_| None).collect(),
            world,
        };
        for queue in 0..config.queues {
            rank.connect(queue)?;
            if config.to_self {
                let own = rank.world.rank() as usize;
                let connected = rank.process.connect_to_self(queue, own, config);
                told(&mut rank.world, connected)?;
            }
        }
        rank.process.describe_queues()?;
        let own = rank.process.notifications().entry();
        let all: Vec<(u64, u32)> = rank.world.exchange(&(own.address, own.remote_key))?;
        for (other, (address, remote_key)) in rank.world.ranks().zip(all) {
            let unused = 0;
            let entry = NotificationEntry {
                address,
                remote_key,
                unused,
            };
            rank.process.describe_notifications(other as usize, entry)?;
        }
        Ok(rank)
    }

    /// Connects a queue with all others, in place of the connections before.
    fn connect(&mut self, queue: QueueId) -> Result<(), Error> {
        let others = self.world.others();
        let pairs = self.world.connect(others, &self.config.queue_pair())?;
        for (other, pair) in pairs {
            self.process.put(queue, other as usize, pair);
        }
        Ok(())
    }

    /// The ranks of the job: their numbers, values that they exchange, barriers.
    ///
    /// Do not shrink it by itself: [`shrink`](Self::shrink) also drops the queue pairs to the ranks that are left out.
    pub fn world(&mut self) -> &mut World {
        &mut self.world
    }

    /// Goes on with the ranks that are left, as [`World::shrink`] does, and returns those that it leaves out. Such a rank may
    /// be alive: the queue pairs to it are dropped, so that this rank's NIC refuses what it still writes.
    ///
    /// # Errors
    /// Those of [`World::shrink`].
    pub fn shrink(&mut self, timeout: Duration) -> Result<BTreeSet<Rank>, Error> {
        let left_out = self.world.shrink(timeout)?;
        for &rank in &left_out {
            self.process.drop_rank(rank as usize);
        }
        Ok(left_out)
    }

    /// What the kernels of this rank get. It borrows the program, which therefore outlives them and does not change
    /// under them.
    pub fn handle(&self) -> GaspiHandle<'_> {
        let segments = present(&self.segments);
        self.process
            .handle(self.world.rank(), &self.config, segments)
    }

    /// The queue pairs of this rank: for a [`Watch`](warpbell_host_init::cuda::Watch) over its kernels, and for what they
    /// did.
    pub fn queue_pairs(&self) -> impl Iterator<Item = &QueuePair> {
        self.process.queue_pairs()
    }

    /// Makes a segment at every rank, all zero, without any notification. Ranks may give it different sizes.
    ///
    /// # Errors
    /// [`GaspiError::NoSuchSegment`] without a place for it; [`GaspiError::SegmentExists`]; those of
    /// [`ProtectionDomain::register`](warpbell_host_init::ProtectionDomain::register) and [`World::exchange`].
    pub fn segment_create(&mut self, segment: SegmentId, bytes: usize) -> Result<(), Error> {
        let made = self.make(segment, bytes);
        let made = told(&mut self.world, made)?;
        let own = made.entry();
        // No rank writes to it before all have it: the exchange is behind it.
        let ours = (own.address, own.size, own.remote_key);
        let all: Vec<(u64, u64, u32)> = self.world.exchange(&ours)?;
        for (rank, (address, size, remote_key)) in self.world.ranks().zip(all) {
            let local_key = if rank == self.world.rank() {
                own.local_key
            } else {
                0
            };
            let entry = SegmentEntry {
                address,
                size,
                local_key,
                remote_key,
            };
            self.process
                .describe_segment(segment as usize, rank as usize, entry)?;
        }
        self.segments[segment as usize] = Some(made);
        Ok(())
    }

    /// This rank's part of a segment that is not there yet.
    fn make(&self, segment: SegmentId, bytes: usize) -> Result<Segment, Error> {
        let limit = self.config.segments;
        match self.segments.get(segment as usize) {
            None => return Err(GaspiError::NoSuchSegment { segment, limit }.into()),
            Some(Some(_)) => return Err(GaspiError::SegmentExists { segment }.into()),
            Some(None) => {}
        }
        let domain = self.process.domain();
        let made = Segment::new(domain, self.config.queue_pair.placement_in(domain), bytes)?;
        let count = self.config.notifications as usize;
        // What came for a segment of that number before.
        let notifications = self.process.notifications();
        notifications.clear(segment as usize * count, count)?;
        Ok(made)
    }

    /// Takes a segment away at every rank.
    ///
    /// # Errors
    /// [`GaspiError::NoSuchSegment`]; those of [`World::barrier`].
    pub fn segment_delete(&mut self, segment: SegmentId) -> Result<(), Error> {
        let found = self.segment(segment).map(drop);
        told(&mut self.world, found)?;
        // No kernel of another rank names it any more before its memory is freed.
        self.world.barrier()?;
        for rank in 0..self.world.size() as usize {
            self.process
                .describe_segment(segment as usize, rank, SegmentEntry::default())?;
        }
        self.segments[segment as usize] = None;
        Ok(())
    }

    /// Copies bytes out of this rank's segment.
    ///
    /// # Errors
    /// A segment that is not there; [`OutOfRange`](warpbell_host_init::Error::OutOfRange).
    pub fn segment_read(
        &self,
        segment: SegmentId,
        offset: usize,
        into: &mut [u8],
    ) -> Result<(), Error> {
        self.segment(segment)?.read(offset, into)
    }

    /// Copies bytes into this rank's segment.
    ///
    /// # Errors
    /// As [`segment_read`](Self::segment_read).
    pub fn segment_write(
        &self,
        segment: SegmentId,
        offset: usize,
        from: &[u8],
    ) -> Result<(), Error> {
        self.segment(segment)?.write(offset, from)
    }

    fn segment(&self, segment: SegmentId) -> Result<&Segment, Error> {
        let limit = self.config.segments;
        let place = self.segments.get(segment as usize);
        let found = place.and_then(Option::as_ref);
        found.ok_or_else(|| GaspiError::NoSuchSegment { segment, limit }.into())
    }

    /// Makes a queue usable after an error, at all ranks: its connections are made anew. Requests that were under way are
    /// lost. Kernels must have ended at all ranks.
    ///
    /// # Errors
    /// [`GaspiError::NoSuchQueue`]; those of [`World::connect`].
    pub fn queue_purge(&mut self, queue: QueueId) -> Result<(), Error> {
        let queues = self.config.queues;
        let found = match queue < queues {
            true => Ok(()),
            false => Err(GaspiError::NoSuchQueue { queue, queues }.into()),
        };
        told(&mut self.world, found)?;
        self.connect(queue)?;
        let own = self.world.rank() as usize;
        let renewed = self.process.renew_to_self(queue, own);
        told(&mut self.world, renewed)?;
        self.process.describe_queues()
    }
}

/// Before an error of this rank alone is returned, the others learn of it.
pub(crate) fn told<T>(world: &mut World, result: Result<T, Error>) -> Result<T, Error> {
    result.inspect_err(|error| world.abort(&error.to_string()))
}

/// Ranks that are threads of one process, with NICs and jobs of their own.
#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use warpbell::{Exclusive, Thread};
    use warpbell_host_init::world::ranks::{Config, Environment, Rendezvous, Root};
    use warpbell_host_init::world::{WireKind, WorldOptions};
    use warpbell_host_init::{Node, QueuePairConfig};

    use super::*;
    use crate::gaspi::host::{GASPI_GROUP_ALL, RankState};
    use crate::gaspi::{Error as Refused, GASPI_BLOCK, GASPI_TEST};

    const PATIENCE: Duration = Duration::from_secs(300);
    const RANKS: u32 = 3;

    fn config() -> GaspiConfig {
        GaspiConfig {
            queues: 2,
            segments: 3,
            notifications: 16,
            to_self: true,
            block_limit: PATIENCE,
            queue_pair: QueuePairConfig {
                send_depth: 16,
                ..QueuePairConfig::default()
            },
        }
    }

    /// What each rank comes to in a job over this wire. Each job has a root of its own.
    fn job<R: Send>(
        port: u16,
        wire: WireKind,
        part: impl Fn(Result<GaspiRank, Error>) -> R + Sync,
    ) -> Vec<R> {
        let [_, b, c, d] = std::process::id().to_be_bytes();
        let root = Root::Tcp {
            host: format!("127.{}.{c}.{d}", b % 64),
            port,
        };
        let alone = Config::read(&Environment::default()).unwrap();
        let rank = |rank| {
            let (size, root, local_rank) = (RANKS, root.clone(), None);
            let config_of_job = Config {
                rank,
                size,
                root,
                local_rank,
                ..alone.clone()
            };
            let ranks = Rendezvous::join(&config_of_job, PATIENCE).unwrap();
            let options = WorldOptions {
                wire: Some(wire),
                ..WorldOptions::new(PATIENCE)
            };
            let world = World::with(ranks, &Node::cpu(), &options).unwrap();
            part(GaspiRank::new(world, &config()))
        };
        std::thread::scope(|scope| {
            let rank = &rank;
            let threads: Vec<_> = (0..RANKS)
                .map(|number| scope.spawn(move || rank(number)))
                .collect();
            threads.into_iter().map(|one| one.join().unwrap()).collect()
        })
    }

    /// What a rank writes to another one: no two are alike.
    fn value(from: u32, to: u32) -> u64 {
        0xab00 + u64::from(16 * from + to)
    }

    /// Every rank writes to every rank, and to itself, with a notification behind it.
    fn all_to_all(gaspi: &mut GaspiRank, queue: u32) {
        let own = gaspi.world().rank();
        for rank in 0..RANKS {
            gaspi
                .segment_write(0, 8 * rank as usize, &value(own, rank).to_le_bytes())
                .unwrap();
        }
        let kernel = gaspi.handle().open().unwrap();
        assert_eq!((kernel.proc_rank(), kernel.proc_num()), (own, RANKS));
        for rank in 0..RANKS {
            assert_eq!(kernel.segment_size(0, rank), Ok(u64::from(1000 + rank)));
            let mut queue = kernel.queue::<Exclusive, Thread>(queue, rank).unwrap();
            let (from, to) = (8 * u64::from(rank), 100 + 8 * u64::from(own));
            queue
                .write_notify(0, from, 0, to, 8, own, own + 1, GASPI_BLOCK)
                .unwrap();
            queue.wait(GASPI_BLOCK).unwrap();
        }
        for _ in 0..RANKS {
            let from = kernel
                .notify_waitsome::<Thread>(0, 0, 16, GASPI_BLOCK)
                .unwrap();
            assert_eq!(kernel.notify_reset::<Thread>(0, from), Ok(from + 1));
            let mut arrived = [0; 8];
            gaspi
                .segment_read(0, 100 + 8 * from as usize, &mut arrived)
                .unwrap();
            assert_eq!(u64::from_le_bytes(arrived), value(from, own));
        }
        gaspi.world().barrier().unwrap();
    }

    #[test]
    fn all_ranks_write_to_all_and_go_on_after_a_purge() {
        for (port, wire) in [(21_000, WireKind::SharedMemory), (21_001, WireKind::RoceV2)] {
            job(port, wire, |gaspi| {
                let mut gaspi = gaspi.unwrap();
                let own = gaspi.world().rank();
                gaspi.segment_create(0, 1000 + own as usize).unwrap();
                all_to_all(&mut gaspi, 0);
                all_to_all(&mut gaspi, 1);
                if own == 1 {
                    gaspi.process.break_connection(1, 2);
                }
                gaspi.queue_purge(1).unwrap();
                all_to_all(&mut gaspi, 1);
                // The notifications of a segment go with it.
                let to_self = |gaspi: &GaspiRank| {
                    let kernel = gaspi.handle().open().unwrap();
                    let mut queue = kernel.queue::<Exclusive, Thread>(0, own).unwrap();
                    queue.notify(0, 5, 1, GASPI_BLOCK).unwrap();
                    queue.wait(GASPI_BLOCK).unwrap();
                };
                to_self(&gaspi);
                gaspi.segment_delete(0).unwrap();
                let kernel = gaspi.handle().open().unwrap();
                let missing = Err(Refused::InvalidSegment { segment: 0 });
                assert_eq!(kernel.segment_size(0, 2), missing);
                gaspi.segment_create(0, 1000 + own as usize).unwrap();
                let kernel = gaspi.handle().open().unwrap();
                let told = kernel.notify_waitsome::<Thread>(0, 0, 16, GASPI_TEST);
                assert_eq!(told, Err(Refused::Timeout));
                // Nobody notifies anybody before all have looked.
                gaspi.world().barrier().unwrap();
                all_to_all(&mut gaspi, 0);
            });
        }
    }

    #[test]
    fn groups_have_barriers_and_those_that_are_left_go_on() {
        job(21_003, WireKind::RoceV2, |gaspi| {
            let mut gaspi = gaspi.unwrap();
            let own = gaspi.world().rank();
            use RankState::{Corrupt, Healthy};
            assert_eq!(gaspi.state_vec_get(), [Healthy; 3]);
            let group = gaspi.group_create();
            for rank in [2, 1] {
                gaspi.group_add(group, rank).unwrap();
            }
            assert_eq!(
                (gaspi.group_num(), gaspi.group_ranks(group).unwrap()),
                (2, vec![1, 2])
            );
            if own > 0 {
                gaspi.group_commit(group).unwrap();
                gaspi.barrier(group).unwrap();
                let late = gaspi.group_add(group, 0).unwrap_err().to_string();
                assert!(late.contains("committed already"), "{late}");
            }
            gaspi.barrier(GASPI_GROUP_ALL).unwrap();
            if own == 2 {
                return;
            }
            // Rank 2 has gone.
            gaspi.world().barrier().unwrap_err();
            assert_eq!(gaspi.state_vec_get(), [Healthy, Healthy, Corrupt]);
            assert!(gaspi.shrink(PATIENCE).unwrap().into_iter().eq([2]));
            assert_eq!(gaspi.group_ranks(GASPI_GROUP_ALL).unwrap(), [0, 1]);
            gaspi.group_delete(group).unwrap();
            gaspi.segment_create(0, 1000 + own as usize).unwrap();
            let kernel = gaspi.handle().open().unwrap();
            assert_eq!(kernel.segment_size(0, 1 - own), Ok(u64::from(1001 - own)));
            gaspi.barrier(GASPI_GROUP_ALL).unwrap();
            // A queue that fails shows, too.
            gaspi.process.break_connection(1, 1 - own as usize);
            assert_eq!(gaspi.state_vec_get()[1 - own as usize], Corrupt);
            gaspi.queue_purge(1).unwrap();
            assert_eq!(gaspi.state_vec_get(), [Healthy, Healthy, Corrupt]);
            // A rank that leaves earlier counts as failed.
            gaspi.world().barrier().unwrap();
        });
    }

    /// Ranks 1 and 2 are late, and left out.
    #[test]
    fn what_a_rank_that_is_left_out_still_writes_is_refused() {
        for (port, wire) in [(21_004, WireKind::SharedMemory), (21_005, WireKind::RoceV2)] {
            let step = Barrier::new(RANKS as usize);
            job(port, wire, |gaspi| {
                let mut gaspi = gaspi.unwrap();
                let own = gaspi.world().rank();
                gaspi.segment_create(0, 1000).unwrap();
                if own > 0 {
                    gaspi.segment_write(0, 0, &[0xaa; 8]).unwrap();
                    step.wait();
                    let kernel = gaspi.handle().open().unwrap();
                    let mut queue = kernel.queue::<Exclusive, Thread>(0, 0).unwrap();
                    let to = 8 * u64::from(own);
                    queue
                        .write_notify(0, 0, 0, to, 8, own, 1, GASPI_BLOCK)
                        .unwrap();
                    let refused = queue.wait(GASPI_BLOCK);
                    step.wait();
                    return refused.unwrap_err();
                }
                let left_out = gaspi.shrink(Duration::ZERO).unwrap();
                assert!(left_out.into_iter().eq([1, 2]));
                step.wait();
                step.wait();
                let mut bytes = [0xff; 1000];
                gaspi.segment_read(0, 0, &mut bytes).unwrap();
                assert_eq!(bytes, [0; 1000]);
                let kernel = gaspi.handle().open().unwrap();
                assert!(kernel.queue::<Exclusive, Thread>(1, 0).is_ok());
                assert!(kernel.queue::<Exclusive, Thread>(0, 1).is_err());
                kernel
                    .notify_waitsome::<Thread>(0, 0, 16, GASPI_TEST)
                    .unwrap_err()
            });
        }
    }

    #[test]
    fn what_one_rank_is_refused_all_hear() {
        let errors = job(21_002, WireKind::SharedMemory, |gaspi| {
            let mut gaspi = gaspi.unwrap();
            gaspi.segment_create(1, 100).unwrap();
            let segment = if gaspi.world().rank() == 1 { 1 } else { 2 };
            gaspi.segment_create(segment, 100).unwrap_err().to_string()
        });
        let refused = "segment 1 is there already";
        assert!(errors[1].starts_with(refused), "{errors:?}");
        for rank in [0, 2] {
            let told = format!("rank 1 aborted: {refused}");
            assert!(errors[rank].starts_with(&told), "{errors:?}");
        }
    }
}
