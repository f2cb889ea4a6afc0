//! The way of an application's data from one end to the other, in parts that have a queue each.

use warpbell::wqe::{Local, Remote, Wqe};
use warpbell::{Deadline, SendQueueHandle, Signal, Slice};

use warpbell_kernels::outcome::Failure;
use warpbell_kernels::place::Place;

/// The most parts: a lane of a warp for each.
pub const MAX_PARTS: u32 = 32;

/// One end's side of it. What is sent lies part after part, and so does what comes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    /// A queue for each part.
    pub queues: Slice<'a, SendQueueHandle<'a>>,
    /// What is sent: its first byte counts, and its key.
    pub source: Local,
    /// Where it goes.
    pub target: Remote,
    /// The word that the other end looks at for part 0; that of the next part lies 8 bytes behind.
    pub told: Remote,
    /// The words that this end looks at.
    pub signals: Place,
    /// Bytes of a part.
    pub bytes: u32,
    /// How many parts there are.
    pub parts: u32,
    /// Microseconds that each wait may take.
    pub limit_us: u64,
}

impl<'a> Path<'a> {
    /// Sends `bytes` bytes that lie so far behind the source to the place that lies so far behind the target.
    #[inline(always)]
    pub fn write(&self, from: u64, to: u64, bytes: u32) -> Wqe<1> {
        let local = self.source.at(from, bytes);
        let remote = self.target.at(to);
        Wqe::write(local, remote)
    }

    /// Sends a whole part, of set number `from` at this end, to set number `to` at the other.
    #[inline(always)]
    pub fn write_part(&self, part: u32, from: u32, to: u32) -> Wqe<1> {
        let offset = |set: u32| u64::from(set * self.parts + part) * u64::from(self.bytes);
        self.write(offset(from), offset(to), self.bytes)
    }

    /// Tells the other end of the part that went before.
    #[inline(always)]
    pub fn tell(&self, part: u32, number: u64) -> Wqe<1> {
        let address = self.told.address + 8 * u64::from(part);
        let told = Remote {
            address,
            ..self.told
        };
        Wqe::write_value(number, told)
    }

    /// What tells this end of a part.
    ///
    /// # Errors
    /// [`Failure::Outside`] for a part that has no word.
    #[inline(always)]
    pub fn signal(&self, part: u32) -> Result<Signal<'a>, Failure> {
        self.signals.signal(part)
    }

    /// How long a wait may take.
    #[inline(always)]
    pub fn limit(&self) -> Deadline {
        Deadline::after_us(self.limit_us)
    }
}
