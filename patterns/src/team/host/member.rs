//! A member of a team: its window, its queues, and the tables that its kernels read.

use std::fmt;

use super::TeamConfig;
use super::table::Table;
use crate::Error;
use crate::team::{ChannelState, Layout, TeamHandle, TeamParts};
use warpbell::wqe::{Remote, RemoteKey};
use warpbell::{QueueError, SendQueueHandle};
use warpbell_host_init::{Access, Buffer, MemoryRegion, ProtectionDomain, QueuePair};

/// Bytes of a member's word in the mask.
const WORD: usize = size_of::<u64>();

/// One member of a team.
pub struct TeamMember {
    rank: u32,
    layout: Layout,
    window: MemoryRegion,
    /// The states of the channels, and behind them the mask.
    own: MemoryRegion,
    /// What the queue pairs are to kernels, at `channel * ranks + rank`; read when one is opened.
    queues: Table<SendQueueHandle<'static>>,
    /// Where each member's window begins.
    windows: Table<Remote>,
    /// At `channel * ranks + rank`.
    pairs: Vec<Option<QueuePair>>,
    #[cfg(feature = "ranks")]
    pub(super) terms: super::ranks::Terms,
}

impl TeamMember {
    /// What the kernels of this member get. It borrows the member, which therefore outlives them.
    pub fn handle(&self) -> TeamHandle<'_> {
        let states = self.own.as_ptr();
        let parts = TeamParts {
            rank: self.rank,
            layout: self.layout,
            window: self.window.words().expect("a region is aligned"),
            windows: self.windows.as_ptr(),
            queues: self.queues.as_ptr(),
            states: states.cast(),
            // SAFETY: inside the region, which has room for the states and the mask.
            mask: unsafe { states.add(self.mask(0)) }.cast(),
        };
        // SAFETY: the tables and regions are as large as the layout says, and live as long as `self`, which the handle
        // borrows. Window and state are regions that NICs, kernels and `&self` calls of the host touch alone; the
        // queues are those of queue pairs that `self` owns.
        unsafe { TeamHandle::new(parts) }
    }

    /// The number of this member in the team, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many members the team has.
    pub fn ranks(&self) -> u32 {
        self.layout.ranks()
    }

    /// How many channels each member has.
    pub fn channels(&self) -> u32 {
        self.layout.channels()
    }

    /// Copies bytes out of this member's window.
    ///
    /// # Errors
    /// As [`MemoryRegion::read`].
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Error> {
        Ok(self.window.read(offset, into)?)
    }

    /// Copies bytes into this member's window.
    ///
    /// # Errors
    /// As [`MemoryRegion::write`].
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), Error> {
        Ok(self.window.write(offset, from)?)
    }

    /// The members that are masked, in order.
    ///
    /// # Errors
    /// As [`MemoryRegion::read`].
    pub fn masked(&self) -> Result<Vec<u32>, Error> {
        let mut masked = Vec::new();
        for rank in 0..self.ranks() {
            let mut word = [0; WORD];
            self.own.read(self.mask(rank), &mut word)?;
            if word != [0; WORD] {
                masked.push(rank);
            }
        }
        Ok(masked)
    }

    /// Masks a member, or clears its mask, for this member's kernels.
    ///
    /// # Errors
    /// As [`MemoryRegion::write`], for a member that is not there too.
    pub fn set_mask(&self, rank: u32, masked: bool) -> Result<(), Error> {
        let word = u64::from(masked).to_le_bytes();
        Ok(self.own.write(self.mask(rank), &word)?)
    }

    /// The queue pairs of this member: for [`Node::run`](warpbell_host_init::Node::run), and for what they did.
    pub fn queue_pairs(&self) -> impl Iterator<Item = &QueuePair> {
        self.pairs.iter().flatten()
    }

    /// The first error of a queue of this member.
    pub fn first_error(&self) -> Option<QueueError> {
        self.queue_pairs().find_map(QueuePair::first_error)
    }
}

impl fmt::Debug for TeamMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TeamMember")
            .field("rank", &self.rank)
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}

/// The steps of a set-up.
impl TeamMember {
    /// A member without any queue.
    pub(super) fn new(
        domain: &ProtectionDomain,
        rank: u32,
        layout: Layout,
        config: &TeamConfig,
    ) -> Result<Self, Error> {
        let placement = config.queue_pair.placement_in(domain);
        let region = |bytes: usize, access| {
            let buffer = Buffer::placed(placement, bytes)?;
            Ok::<_, Error>(domain.register(buffer, access)?)
        };
        let (ranks, channels) = (layout.ranks() as usize, layout.channels() as usize);
        Ok(Self {
            rank,
            window: region(WORD * layout.words() as usize, TeamConfig::ACCESS)?,
            own: region(
                channels * ChannelState::BYTES + WORD * ranks,
                Access::LOCAL_WRITE,
            )?,
            queues: Table::new(placement, channels * ranks, SendQueueHandle::none())?,
            windows: Table::new(
                placement,
                ranks,
                Remote {
                    address: 0,
                    key: RemoteKey(0),
                },
            )?,
            pairs: (0..channels * ranks).map(|_| None).collect(),
            layout,
            #[cfg(feature = "ranks")]
            terms: super::ranks::Terms::default(),
        })
    }

    /// Where the window begins, for all members.
    pub(super) fn window(&self) -> Remote {
        Remote {
            address: self.window.address(),
            key: self.window.rkey(),
        }
    }

    /// Tells the kernels where all members' windows begin.
    pub(super) fn set_windows(&mut self, windows: &[Remote]) -> Result<(), Error> {
        for (rank, &window) in windows.iter().enumerate() {
            self.windows.set(rank, window)?;
        }
        Ok(())
    }

    /// Takes the queue pair of a channel to a member.
    pub(super) fn put(&mut self, channel: u32, rank: u32, pair: QueuePair) -> Result<(), Error> {
        let place = channel as usize * self.ranks() as usize + rank as usize;
        let handle = self.pairs[place].insert(pair).send_queue()?;
        // SAFETY: only the lifetime changes. The handle leaves the member inside a `TeamHandle` alone, which borrows the
        // member, and with it the queue pair.
        let handle =
            unsafe { std::mem::transmute::<SendQueueHandle<'_>, SendQueueHandle<'static>>(handle) };
        self.queues.set(place, handle)
    }

    /// Where a member's word of the mask lies in `own`.
    fn mask(&self, rank: u32) -> usize {
        self.layout.channels() as usize * ChannelState::BYTES + WORD * rank as usize
    }
}

/// Coming back.
#[cfg(feature = "ranks")]
impl TeamMember {
    /// Whether this member's memory and queues belong to that domain.
    pub(super) fn is_of(&self, domain: &ProtectionDomain) -> bool {
        self.window.domain().is(domain)
    }

    /// Takes all queues away, and makes everything but the callers' part of the window as it was at first.
    pub(super) fn clear(&mut self) -> Result<(), Error> {
        // The handles before the queue pairs that they lead to.
        for place in 0..self.pairs.len() {
            self.queues.set(place, SendQueueHandle::none())?;
        }
        self.pairs.fill_with(|| None);
        // Without queue pairs nobody writes here any more.
        let callers = WORD * self.layout.user() as usize;
        let signals = vec![0; self.window.len() - callers];
        self.window.write(callers, &signals)?;
        Ok(self.own.write(0, &vec![0; self.own.len()])?)
    }
}
