//! A large message that goes back and forth between two ends in parts, each of which is one block's work: all parts
//! together, or each by itself, as in GPUrdma (Daoud, Watad and Silberstein 2016, section 7).

use warpbell::{
    Block, Exclusive, SendQueue, Slice, Ticket, Word64, WordExt, block, kernel, thread,
};

use crate::meeting::meet;
use crate::path::Path;
use warpbell_kernels::outcome::{Failure, Outcome};
use warpbell_kernels::place::Place;

/// Bytes of a word.
const WORD: u32 = 8;

/// What a block does with its part.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// All parts, one behind the other.
    pub words: Place,
    /// Words of 8 bytes of a part.
    pub words_of_a_part: u32,
}

impl Process {
    /// What becomes of a word at each end.
    pub const fn next(word: u64) -> u64 {
        word.wrapping_mul(5).wrapping_add(1)
    }

    /// The block's part.
    #[inline(always)]
    fn part(&self) -> Result<Place, Failure> {
        let words = u64::from(self.words_of_a_part);
        self.words.part(u64::from(block::index()) * words, words)
    }

    /// Goes through `count` words of the block's part, from its word `first` on.
    #[inline(always)]
    fn run(part: Place, first: u32, count: u32) {
        let mut index = block::thread_index();
        while index < count {
            if let Some(word) = part.word(first + index) {
                word.store_relaxed(Self::next(word.load_relaxed()));
            }
            index += block::size();
        }
    }
}

/// The work alone, for a host that drives the network. A part that does not lie in the words is left alone.
#[kernel]
pub fn overlap_process(p: Process) {
    if let Ok(part) = p.part() {
        Process::run(part, 0, p.words_of_a_part);
    }
}

/// An end that drives the network itself, with a block for each part.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OverlapEnd<'a> {
    /// What it does.
    pub process: Process,
    /// To the other end and back.
    pub path: Path<'a>,
    /// 1 for the end that begins, 0 for the other one.
    pub begins: u32,
    /// Whether all parts go together: no block works before all parts are there, and none sends before all have worked.
    pub whole: bool,
    /// How often the message comes back.
    pub rounds: u32,
    /// Bytes of a work request at most, a multiple of 8.
    pub chunk: u32,
    /// Work requests under a doorbell at most.
    pub group: u32,
    /// A word for each block, 0 at first, in memory of the kernels' own.
    pub arrivals: Place,
    /// Takes when each block began, and when it ended: the nanoseconds of one clock.
    pub times: Slice<'a, Word64>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Runs an end.
#[kernel]
pub fn overlap_end(p: OverlapEnd<'_>) {
    p.outcome.record(|| p.run());
}

impl OverlapEnd<'_> {
    #[inline(always)]
    fn run(&self) -> Result<(), Failure> {
        let (path, part) = (&self.path, block::index());
        let words = self.process.part()?;
        let Some(queue) = path.queues.get(part.into()) else {
            return Ok(());
        };
        // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
        let mut queue = unsafe { queue.open_together::<Exclusive, Block>() }?;
        let signal = path.signal(part)?;
        let began = thread::clock_ns();
        let (mut meetings, mut newest) = (0, None);
        // The end that begins takes its first step without a message, and its last one without an answer.
        for step in 0..self.rounds + self.begins {
            let message = u64::from(step + 1 - self.begins);
            if message > 0 {
                signal.wait_together::<Block>(message, path.limit())?;
                self.meet(&mut meetings)?;
            }
            // Work that is for all to end before anybody sends, or that nobody waits to be sent.
            let together = self.whole | (step == self.rounds);
            if (message > 0) & together {
                Process::run(words, 0, self.process.words_of_a_part);
                self.meet(&mut meetings)?;
            }
            if step < self.rounds {
                let works = (message > 0) & !together;
                newest = Some(self.send(&mut queue, works.then_some(words), step + 1)?);
            }
        }
        let ended = thread::clock_ns();
        if block::thread_index() == 0 {
            self.times.store(2 * u64::from(part), began);
            self.times.store(2 * u64::from(part) + 1, ended);
        }
        match newest {
            Some(newest) => Ok(queue.wait_outbound(newest, path.limit())?),
            None => Ok(()),
        }
    }

    /// Sends the part in pieces, and behind them the message's number; where it has the part's words to work on, each group of pieces when the work
    /// on it is done, so that it is on its way while the next one is worked on. It does not get further ahead of the NIC,
    /// so that the NIC finds in a GPU's cache what was worked on. The last message's number is signalled, whose completion
    /// tells of all before it.
    #[inline(always)]
    fn send(
        &self,
        queue: &mut SendQueue<'_, Exclusive, Block>,
        words: Option<Place>,
        number: u32,
    ) -> Result<Ticket, Failure> {
        let (path, part, own) = (&self.path, block::index(), block::thread_index());
        let first = u64::from(part) * u64::from(path.bytes);
        // Neither is 0, with which this would never end.
        let (group, chunk) = (self.group.clamp(1, block::size()), self.chunk.max(WORD));
        let (mut sent, mut before) = (0, None);
        while sent < path.bytes {
            let these = group.saturating_mul(chunk).min(path.bytes - sent);
            if let Some(words) = words {
                Process::run(words, sent / WORD, these / WORD);
            }
            let offset = own.saturating_mul(chunk);
            let mine = (own < group) & (offset < these);
            let bytes = chunk.min(these.wrapping_sub(offset));
            let place = first + u64::from(sent) + u64::from(offset);
            let write = || {
                let write = path.write(place, place, bytes);
                // Where nobody waits for the piece, the queue's own signals keep its ring free.
                if words.is_some() {
                    write.signalled()
                } else {
                    write
                }
            };
            let ticket = queue.post_if(mine.then(write), path.limit())?;
            if words.is_some()
                && let Some(before) = before.replace(ticket)
            {
                queue.wait_outbound(before, path.limit())?;
            }
            sent += these;
        }
        let told = path.tell(part, number.into());
        let told = if number == self.rounds {
            told.signalled()
        } else {
            told
        };
        Ok(queue.post_if((own == 0).then_some(told), path.limit())?)
    }

    /// Waits for all blocks, where parts go together.
    #[inline(always)]
    fn meet(&self, meetings: &mut u64) -> Result<(), Failure> {
        if !self.whole {
            return Ok(());
        }
        *meetings += 1;
        meet(self.arrivals, self.path.parts, *meetings, self.path.limit())
    }
}
