//! One rank: its queue pairs, and the tables that its kernels read.

use crate::gaspi::{GaspiHandle, GaspiParts, NotificationEntry, Rank, SegmentEntry};
use warpbell::SendQueueHandle;

use super::GaspiConfig;
use super::segment::Notifications;
use crate::Error;
#[cfg(feature = "ranks")]
use warpbell_host_init::State;
use warpbell_host_init::{Buffer, ProtectionDomain, QueuePair, Shared, connect};

#[derive(Debug)]
pub(super) struct Process {
    domain: ProtectionDomain,
    ranks: usize,
    /// At `queue * ranks + rank`.
    pairs: Vec<Option<QueuePair>>,
    /// The other ends of the connections to this rank itself, by queue.
    far_ends: Vec<QueuePair>,
    /// What `pairs` are to kernels; read once when a queue is opened.
    send_queues: Shared<[SendQueueHandle<'static>]>,
    notifications: Notifications,
    /// Segments of all ranks, read with each call, and so in the kernels' own memory; behind them the places of all
    /// ranks' notifications.
    entries: Buffer,
    segments: usize,
}

impl Process {
    /// A rank of so many, without connections and segments.
    pub(super) fn new(
        domain: &ProtectionDomain,
        ranks: usize,
        config: &GaspiConfig,
    ) -> Result<Self, Error> {
        let placement = config.queue_pair.placement_in(domain);
        let places = config.queues as usize * ranks;
        let segments = config.segments as usize;
        let bytes = segments * size_of::<SegmentEntry>() + size_of::<NotificationEntry>();
        Ok(Self {
            domain: domain.clone(),
            ranks,
            pairs: (0..places).map(|_| None).collect(),
            far_ends: Vec::new(),
            send_queues: Shared::slice(placement.of_host(), places, |_| SendQueueHandle::none())?,
            notifications: Notifications::new(
                domain,
                placement,
                segments * config.notifications as usize,
            )?,
            entries: Buffer::placed(placement, ranks * bytes)?,
            segments,
        })
    }

    pub(super) fn domain(&self) -> &ProtectionDomain {
        &self.domain
    }

    /// What its kernels get, if it is this rank and those segments are there.
    pub(super) fn handle(
        &self,
        rank: Rank,
        config: &GaspiConfig,
        segments: u64,
    ) -> GaspiHandle<'_> {
        let parts = GaspiParts {
            rank,
            ranks: self.ranks as u32,
            queues: config.queues,
            segments,
            notifications: config.notifications,
            transfer_size_max: config.queue_pair.max_message,
            block_ms: config.block_ms(),
            reach: self.domain.device().fence_reach(),
            send_queues: self.send_queues.as_ptr(),
            segment_entries: self.entries.as_ptr().cast(),
            notification_entries: self.notification_entries(),
            notification_words: self.notifications.words(),
        };
        // SAFETY: the tables have a place for each rank, queue and segment, and change through `&mut` of the program
        // only, which the handle borrows. The send queues in them are those of queue pairs that `self` owns. The
        // notifications of all places for segments are registered as long as `self` lives, and known to NICs and these
        // calls alone.
        unsafe { GaspiHandle::new(parts) }
    }

    fn notification_entries(&self) -> *const NotificationEntry {
        let behind = self.behind_segments();
        // SAFETY: inside the buffer, which has room for both tables.
        unsafe { self.entries.as_ptr().add(behind) }.cast()
    }

    pub(super) fn notifications(&self) -> &Notifications {
        &self.notifications
    }

    /// Where the second table begins; at a multiple of 8, as each entry of the first is.
    fn behind_segments(&self) -> usize {
        self.segments * self.ranks * size_of::<SegmentEntry>()
    }

    pub(super) fn queue_pairs(&self) -> impl Iterator<Item = &QueuePair> {
        self.pairs.iter().flatten()
    }

    fn place(&self, queue: u32, rank: usize) -> usize {
        queue as usize * self.ranks + rank
    }

    /// Whether a queue to a rank has failed.
    #[cfg(feature = "ranks")]
    pub(super) fn has_failed(&self, rank: usize) -> bool {
        let queues = self.pairs.iter().skip(rank).step_by(self.ranks);
        queues
            .flatten()
            .any(|pair| matches!(pair.state(), Ok(State::Error)))
    }

    /// Connects a queue of this rank, the first of the two, with the same queue of another one.
    pub(super) fn connect(
        &mut self,
        peer: &mut Self,
        queue: u32,
        [own, other]: [usize; 2],
        config: &GaspiConfig,
    ) -> Result<(), Error> {
        let (one, two) = self.domain.connected(&peer.domain, &config.queue_pair())?;
        let place = self.place(queue, other);
        self.pairs[place] = Some(one);
        let place = peer.place(queue, own);
        peer.pairs[place] = Some(two);
        Ok(())
    }

    /// Takes the queue pair of a queue of this rank to another one, in place of the one before.
    #[cfg(feature = "ranks")]
    pub(super) fn put(&mut self, queue: u32, rank: usize, pair: QueuePair) {
        let place = self.place(queue, rank);
        self.pairs[place] = Some(pair);
    }

    /// Drops the queue pairs to another rank, so that it reaches nothing of this one any more.
    #[cfg(feature = "ranks")]
    pub(super) fn drop_rank(&mut self, rank: usize) {
        for place in (rank..self.pairs.len()).step_by(self.ranks) {
            self.send_queues[place] = SendQueueHandle::none();
            self.pairs[place] = None;
        }
    }

    /// Connects a queue of this rank with the rank itself. Queues come in order.
    pub(super) fn connect_to_self(
        &mut self,
        queue: u32,
        rank: usize,
        config: &GaspiConfig,
    ) -> Result<(), Error> {
        let (near, far) = self.domain.connected(&self.domain, &config.queue_pair())?;
        let place = self.place(queue, rank);
        self.pairs[place] = Some(near);
        self.far_ends.push(far);
        Ok(())
    }

    /// Makes a connection to another rank anew.
    pub(super) fn renew(
        &mut self,
        peer: &mut Self,
        queue: u32,
        [own, other]: [usize; 2],
    ) -> Result<(), Error> {
        let (near, far) = (self.place(queue, other), peer.place(queue, own));
        renew(self.pairs[near].as_mut(), peer.pairs[far].as_mut())
    }

    /// Makes the connection to the rank itself anew, if there is one.
    pub(super) fn renew_to_self(&mut self, queue: u32, rank: usize) -> Result<(), Error> {
        let near = self.place(queue, rank);
        renew(
            self.pairs[near].as_mut(),
            self.far_ends.get_mut(queue as usize),
        )
    }

    /// Lets a connection fail, as an error would.
    #[cfg(test)]
    pub(super) fn break_connection(&mut self, queue: u32, rank: usize) {
        let place = self.place(queue, rank);
        if let Some(pair) = &mut self.pairs[place] {
            pair.to_error().expect("a device");
        }
    }

    /// Writes the table of send queues.
    pub(super) fn describe_queues(&mut self) -> Result<(), Error> {
        for (place, pair) in self.pairs.iter().enumerate() {
            self.send_queues[place] = match pair {
                None => SendQueueHandle::none(),
                Some(pair) => {
                    let handle = pair.send_queue()?;
                    // SAFETY: only the lifetime changes. The handle leaves the program inside a `GaspiHandle`
                    // alone, which borrows it, and with it the queue pair.
                    unsafe {
                        std::mem::transmute::<SendQueueHandle<'_>, SendQueueHandle<'static>>(handle)
                    }
                }
            };
        }
        Ok(())
    }

    /// Writes an entry of the table of segments.
    pub(super) fn describe_segment(
        &self,
        segment: usize,
        rank: usize,
        entry: SegmentEntry,
    ) -> Result<(), Error> {
        let place = (segment * self.ranks + rank) * size_of::<SegmentEntry>();
        Ok(self.entries.write(place, &bytes(&entry.to_words()))?)
    }

    /// Writes an entry of the table of notifications.
    pub(super) fn describe_notifications(
        &self,
        rank: usize,
        entry: NotificationEntry,
    ) -> Result<(), Error> {
        let place = self.behind_segments() + rank * size_of::<NotificationEntry>();
        Ok(self.entries.write(place, &bytes(&entry.to_words()))?)
    }
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Resets both ends and connects them again.
fn renew(near: Option<&mut QueuePair>, far: Option<&mut QueuePair>) -> Result<(), Error> {
    let (Some(near), Some(far)) = (near, far) else {
        return Ok(());
    };
    near.reset()?;
    far.reset()?;
    Ok(connect(near, far)?)
}
