//! Bytes that are to pass from one end to the other, and what kernels need for it.

use warpbell::wqe::{Local, Remote};
use warpbell_kernels::demo::Transfer;
use warpbell_kernels::outcome::Outcome;
use warpbell_stage::Error;
use warpbell_stage::launch::LIMIT_US;
use warpbell_stage::memory::Memory;
use warpbell_stage::random::Random;
use warpbell_stage::setup::End;

/// Random data at one end, and memory at another end where it is to go.
#[derive(Debug)]
pub struct Passage {
    /// Where they are sent from.
    pub source: Memory,
    /// Where they are to go.
    pub target: Memory,
    /// The bytes.
    pub data: Vec<u8>,
    /// What the target holds before.
    before: Vec<u8>,
}

impl Passage {
    /// So many bytes, and others where they are to go.
    ///
    /// # Errors
    /// As [`Memory::new`].
    pub fn new(from: &End, to: &End, bytes: usize, random: &mut Random) -> Result<Self, Error> {
        let [data, before] = [(); 2].map(|()| random.bytes(bytes));
        Ok(Self {
            source: from.memory_of(&data)?,
            target: to.memory_of(&before)?,
            data,
            before,
        })
    }

    /// All data, for work requests of this end.
    pub fn local(&self) -> Local {
        self.source.local(0, self.data.len())
    }

    /// Whether both ends hold the data, every byte.
    pub fn arrived(&self) -> bool {
        self.source.holds(&self.data) && self.target.holds(&self.data)
    }

    /// Whether every byte of both ends is as before.
    pub fn untouched(&self) -> bool {
        self.source.holds(&self.data) && self.target.holds(&self.before)
    }
}

/// What a kernel needs that moves bytes between here and there, or back.
///
/// # Errors
/// A queue that has failed.
pub fn transfer<'e>(
    end: &'e End,
    local: Local,
    remote: Remote,
    outcome: &'e Outcome,
) -> Result<Transfer<'e>, Error> {
    Ok(Transfer {
        queue: end.pair.send_queue()?,
        local,
        remote,
        beside: 0,
        limit_us: LIMIT_US,
        outcome,
    })
}
