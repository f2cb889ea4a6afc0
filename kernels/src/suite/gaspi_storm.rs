//! A kernel whose blocks notify another rank's blocks, which all wait for the same range.

use warpbell::{Scope, Sharing, Slice, Word64, WordExt, block, kernel, thread};
use warpbell_patterns::gaspi::{Error, GASPI_BLOCK, Gaspi, GaspiHandle, Timeout};

use super::arguments::{Kernel, Output};
use super::ending::{Ending, EndingWords};
use super::gaspi_calls::by_gaspi_mode;
use super::mode::{Mode, SharingKind};
use crate::gaspi::words_of;
use crate::outcome::Failure;
use crate::place::Place;

/// Rank 0's blocks send, rank 1's wait. Both ranks run this with the same numbers, one scope in each block.
///
/// Block b of the senders owns the notifications `b * slots .. (b + 1) * slots`, and as many pieces of segment 0, 8
/// bytes for each of its threads. In each round it fills a piece and sends it with `write_notify`; before it uses a
/// piece again it waits for the answer, which has the same number and value. Every block of rank 1 waits for all
/// notifications of all senders; who gets one checks the piece and answers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GaspiStorm<'a> {
    /// The rank.
    pub gaspi: GaspiHandle<'a>,
    /// How queues are opened, one of [`GASPI_MODES`](super::GASPI_MODES): a block's own, of its number, but for one that the GPU shares, which is number 0.
    pub mode: Mode,
    /// Notifications under way of each sender at most.
    pub slots: u32,
    /// Notifications that each sender sends.
    pub rounds: u32,
    /// How often a receiver may find nothing for 2 ms before it gives up.
    pub patience: u32,
    /// A word for each sender, 1 once it has all its answers.
    pub done: Slice<'a, Word64>,
    /// What each thread has caught.
    pub caught: Output<'a, Caught>,
    /// How each thread fared.
    pub endings: Output<'a, EndingWords>,
}

/// What a thread has caught: notifications of rank 1, answers of rank 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caught {
    /// How many.
    pub count: u64,
    /// The sum of all [`mixed`](Self::mixed) values, which no other choice of values has.
    pub sum: u64,
    /// How many had another value, or other bytes, than they should have.
    pub wrong: u64,
}

impl Caught {
    /// A value's part in the sum: all of its bits changed, so that a value that is missing is not made up for by one
    /// that came twice.
    pub const fn mixed(value: u32) -> u64 {
        let mixed = (value as u64 ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 31).wrapping_mul(0x94d0_49bb_1331_11eb)
    }

    fn add(&mut self, value: u32, right: bool) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(Self::mixed(value));
        self.wrong += u64::from(!right);
    }
}

impl Kernel for GaspiStorm<'_> {
    #[cfg(not(target_arch = "nvptx64"))]
    const ENTRY: warpbell::Entry<fn(Self)> = suite_gaspi_storm::ENTRY;

    fn run(&self) {
        let mut caught = Caught::default();
        let ending: Ending =
            by_gaspi_mode!(self.mode, act(self, &mut caught), Err(Error::InUse.into())).into();
        let place = thread::index().into();
        // SAFETY: each thread has places of its own.
        unsafe {
            self.caught.write(place, caught);
            self.endings.write(place, ending.into());
        }
    }
}

/// Runs [`GaspiStorm`].
#[kernel]
pub fn suite_gaspi_storm(kernel: GaspiStorm<'_>) {
    kernel.run();
}

fn act<S: Sharing, C: Scope>(kernel: &GaspiStorm<'_>, caught: &mut Caught) -> Result<(), Failure> {
    let gaspi = kernel.gaspi.open()?;
    match gaspi.proc_rank() {
        0 => kernel.send::<S, C>(gaspi, caught)?,
        _ => kernel.receive::<S, C>(gaspi, caught)?,
    }
    Ok(())
}

impl GaspiStorm<'_> {
    /// What block `block` sends in a round: never 0, and the same for no two.
    pub const fn value(block: u32, round: u32, rounds: u32) -> u32 {
        block * rounds + round + 1
    }

    fn queue(&self) -> u32 {
        match self.mode.sharing {
            SharingKind::GpuShared => 0,
            _ => block::index(),
        }
    }

    /// Bytes of a piece.
    fn bytes() -> u64 {
        8 * u64::from(block::size())
    }

    /// All senders' pieces, of which each has its notification's number.
    fn pieces(&self, gaspi: Gaspi<'_>) -> Result<Place, Failure> {
        let pieces = u64::from(thread::grid_dim_x()) * u64::from(self.slots);
        let words = pieces.saturating_mul(block::size().into());
        words_of(gaspi, 0)?.part(0, words)
    }

    /// This thread's word of a piece.
    fn word(id: u32) -> u32 {
        id * block::size() + block::thread_index()
    }

    fn send<S: Sharing, C: Scope>(
        &self,
        gaspi: Gaspi<'_>,
        caught: &mut Caught,
    ) -> Result<(), Failure> {
        let own = block::index();
        let pieces = self.pieces(gaspi)?;
        let mut queue = gaspi.queue::<S, C>(self.queue(), 1)?;
        // The last rounds wait for answers alone.
        for round in 0..self.rounds + self.slots {
            let id = own * self.slots + round % self.slots.max(1);
            if round >= self.slots {
                let first = gaspi.notify_waitsome::<C>(0, id, 1, GASPI_BLOCK)?;
                let answer = gaspi.notify_reset::<C>(0, first)?;
                let sent = Self::value(own, round - self.slots, self.rounds);
                caught.add(answer, answer == sent);
            }
            if round < self.rounds {
                let value = Self::value(own, round, self.rounds);
                pieces.store(Self::word(id), Caught::mixed(value));
                let place = u64::from(id) * Self::bytes();
                queue.write_notify(0, place, 0, place, Self::bytes(), id, value, GASPI_BLOCK)?;
            }
        }
        queue.wait(GASPI_BLOCK)?;
        if C::leads()
            && let Some(done) = self.done.get(own.into())
        {
            done.store_relaxed(1);
        }
        Ok(())
    }

    fn receive<S: Sharing, C: Scope>(
        &self,
        gaspi: Gaspi<'_>,
        caught: &mut Caught,
    ) -> Result<(), Failure> {
        let pieces = self.pieces(gaspi)?;
        let mut queue = gaspi.queue::<S, C>(self.queue(), 0)?;
        let range = thread::grid_dim_x() * self.slots;
        let mut idle = 0;
        while idle < self.patience {
            match gaspi.notify_waitsome::<C>(0, 0, range, Timeout::ms(2)) {
                Ok(id) => {
                    let value = gaspi.notify_reset::<C>(0, id)?;
                    if value == 0 {
                        // Another block's.
                        continue;
                    }
                    idle = 0;
                    // Never 0: a division by 0 would be a panic. What somebody else sent is found wrong.
                    let (rounds, slots) = (self.rounds.max(1), self.slots.max(1));
                    let (sender, round) = ((value - 1) / rounds, (value - 1) % rounds);
                    let expected = sender.wrapping_mul(slots).wrapping_add(round % slots);
                    let found = pieces.load(Self::word(id));
                    let right = id == expected && found == Caught::mixed(value);
                    caught.add(value, right);
                    // All have looked at the piece before it may be written again.
                    queue.notify(0, id, value, GASPI_BLOCK)?;
                }
                Err(Error::Timeout) => {
                    idle += 1;
                    if C::broadcast(u64::from(self.all_done())) != 0 {
                        return Ok(queue.wait(GASPI_BLOCK)?);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Timeout.into())
    }

    /// Whether all senders have all their answers.
    fn all_done(&self) -> bool {
        (0..self.done.len()).all(|sender| {
            let done = self.done.get(sender);
            done.is_some_and(|done| done.load_relaxed() == 1)
        })
    }
}
