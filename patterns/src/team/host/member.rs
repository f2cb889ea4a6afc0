//! A member of a team: its window, its queues, and the tables that its kernels read.

use std::fmt;
use std::mem;

use super::TeamConfig;
use crate::Error;
use crate::team::{ChannelState, Layout, TeamHandle, TeamParts};
use warpbell::wqe::Remote;
use warpbell::{QueueError, SendQueueHandle};
use warpbell_host_init::{Access, MemoryRegion, ProtectionDomain, QueuePair, Shared};

/// Bytes of a member's word in the mask.
const WORD: usize = size_of::<u64>();

/// One member of a team.
pub struct TeamMember {
    rank: u32,
    part: Part,
    /// What the queue pairs are to kernels, at `channel * ranks + rank`; read when one is opened.
    queues: Shared<[SendQueueHandle<'static>]>,
    /// Where each member's window begins.
    windows: Shared<[Remote]>,
}

impl TeamMember {
    /// What the kernels of this member get. It borrows the member, which therefore outlives them.
    pub fn handle(&self) -> TeamHandle<'_> {
        let Part {
            layout,
            window,
            own,
            ..
        } = &self.part;
        let states = own.as_ptr();
        let behind = layout.channels() as usize * ChannelState::BYTES;
        let parts = TeamParts {
            rank: self.rank,
            layout: *layout,
            window: window.words().expect("a region is aligned"),
            windows: self.windows.as_ptr(),
            queues: self.queues.as_ptr(),
            states: states.cast(),
            // SAFETY: inside the region, which has room for the states and the mask.
            mask: unsafe { states.add(behind) }.cast(),
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
        self.part.layout.ranks()
    }

    /// Copies bytes out of this member's window.
    ///
    /// # Errors
    /// As [`MemoryRegion::read`].
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Error> {
        Ok(self.part.window.read(offset, into)?)
    }

    /// Copies bytes into this member's window.
    ///
    /// # Errors
    /// As [`MemoryRegion::write`].
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), Error> {
        Ok(self.part.window.write(offset, from)?)
    }

    /// The members that are masked, in order.
    ///
    /// # Errors
    /// As [`MemoryRegion::read`].
    pub fn masked(&self) -> Result<Vec<u32>, Error> {
        let mut masked = Vec::new();
        for rank in 0..self.ranks() {
            let mut word = [0; WORD];
            self.part.own.read(self.part.mask(rank), &mut word)?;
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
        Ok(self.part.own.write(self.part.mask(rank), &word)?)
    }

    /// The queue pairs of this member: for [`Node::run`](warpbell_host_init::Node::run), and for what they did.
    pub fn queue_pairs(&self) -> impl Iterator<Item = &QueuePair> {
        self.part.pairs.iter().flatten()
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
            .field("layout", &self.part.layout)
            .finish_non_exhaustive()
    }
}

/// A member that its kernels know nothing of yet.
pub(super) struct Part {
    layout: Layout,
    window: MemoryRegion,
    /// The states of the channels, and behind them the mask.
    own: MemoryRegion,
    /// At `channel * ranks + rank`.
    pairs: Vec<Option<QueuePair>>,
}

impl Part {
    pub fn new(
        domain: &ProtectionDomain,
        layout: Layout,
        config: &TeamConfig,
    ) -> Result<Self, Error> {
        let placement = config.queue_pair.placement_in(domain);
        let region = |bytes: usize, access| {
            let buffer = warpbell_host_init::Buffer::placed(placement, bytes)?;
            Ok::<_, Error>(domain.register(buffer, access)?)
        };
        let (ranks, channels) = (layout.ranks() as usize, layout.channels() as usize);
        Ok(Self {
            window: region(WORD * layout.words() as usize, TeamConfig::ACCESS)?,
            own: region(
                channels * ChannelState::BYTES + WORD * ranks,
                Access::LOCAL_WRITE,
            )?,
            pairs: (0..channels * ranks).map(|_| None).collect(),
            layout,
        })
    }

    /// Where the window begins, for all members.
    pub fn window(&self) -> Remote {
        Remote {
            address: self.window.address(),
            key: self.window.rkey(),
        }
    }

    /// Takes the queue pair of a channel to a member.
    pub fn put(&mut self, channel: u32, rank: u32, pair: QueuePair) {
        let place = channel as usize * self.layout.ranks() as usize + rank as usize;
        self.pairs[place] = Some(pair);
    }

    /// Where a member's word of the mask lies in `own`.
    fn mask(&self, rank: u32) -> usize {
        self.layout.channels() as usize * ChannelState::BYTES + WORD * rank as usize
    }

    /// Makes the member of that number. The windows are those of all.
    pub fn member(self, rank: u32, windows: &[Remote]) -> Result<TeamMember, Error> {
        let kernels = self.window.placement().of_host();
        let mut handles = Vec::with_capacity(self.pairs.len());
        for pair in &self.pairs {
            handles.push(match pair {
                None => SendQueueHandle::none(),
                Some(pair) => {
                    let handle = pair.send_queue()?;
                    // SAFETY: only the lifetime changes. The handle leaves the member inside a `TeamHandle` alone,
                    // which borrows the member, and with it the queue pair.
                    unsafe {
                        mem::transmute::<SendQueueHandle<'_>, SendQueueHandle<'static>>(handle)
                    }
                }
            });
        }
        Ok(TeamMember {
            rank,
            queues: Shared::slice(kernels, handles.len(), |place| handles[place])?,
            windows: Shared::slice(kernels, windows.len(), |rank| windows[rank])?,
            part: self,
        })
    }
}
