//! Messages from one block to another, which learns in one of several ways that they are there, and looks at every byte.

use warpbell::wqe::{Immediate, Local, Remote, Wqe};
use warpbell::{
    Block, Deadline, Exclusive, FenceReach, PostError, ReceiveQueueHandle, Scope, SendQueue,
    SendQueueHandle, Signal, Slice, Thread, Ticket, WaitError, Warp, Word64, WordExt, block,
    kernel, thread,
};
use warpbell_patterns::inbound::{Cells, Checksum, FlushHandle, Seal, Sequence};

use crate::outcome::{Failure, Outcome};
use crate::place::Place;
use crate::suite::ScopeKind;

/// How the reader learns that a message is there.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By the completion of the receive that it comes to.
    Send,
    /// By that of a write with immediate.
    WriteImmediate,
    /// By a word that is written behind it.
    Flag,
    /// By a word to which one is added behind it.
    Counter,
    /// By a sequence number in each word of 8 bytes.
    Words,
    /// By one in each line of 64 bytes.
    Lines,
    /// By a CRC-32 over each 256 bytes.
    Checksums,
}

/// Words of a cell of [`Way::Lines`].
const LINE: usize = 8;
/// Words of a cell of [`Way::Checksums`].
const CHECKED: usize = 32;

impl Way {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Send,
        Self::WriteImmediate,
        Self::Flag,
        Self::Counter,
        Self::Words,
        Self::Lines,
        Self::Checksums,
    ];

    /// Whether a receive's completion tells.
    pub const fn has_receives(self) -> bool {
        matches!(self, Self::Send | Self::WriteImmediate)
    }

    /// Bytes on the way for a message of `bytes` bytes; multiples of four where the data tell for themselves.
    pub const fn bytes(self, bytes: u32) -> u32 {
        let values = bytes.div_ceil(4);
        let (cells, bytes_of_cell) = match self {
            Self::Words => (words_cells(values), Cells::<'static, Sequence, 1>::BYTES),
            Self::Lines => (line_cells(values), Cells::<'static, Sequence, LINE>::BYTES),
            Self::Checksums => (
                checked_cells(values),
                Cells::<'static, Checksum, CHECKED>::BYTES,
            ),
            _ => (bytes, 1),
        };
        // More than there can be is no less for being cut off.
        cells.saturating_mul(bytes_of_cell)
    }
}

const fn words_cells(values: u32) -> u32 {
    Cells::<'static, Sequence, 1>::needed(values)
}

const fn line_cells(values: u32) -> u32 {
    Cells::<'static, Sequence, LINE>::needed(values)
}

const fn checked_cells(values: u32) -> u32 {
    Cells::<'static, Checksum, CHECKED>::needed(values)
}

/// Messages from block 0 to block 1, each of which is one scope. A message is sent once the one before was read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Inbound<'a> {
    /// How the reader learns that they are there.
    pub way: Way,
    /// Which threads of a block write or read together: all that it has.
    pub scope: ScopeKind,
    /// Whether the reader looks only once a message is there for sure: then a sample is what the call and the reading
    /// cost it, in cycles; else it is the time from before the message is posted until it is read, in nanoseconds.
    pub settled: bool,
    /// How far the fences reach.
    pub reach: FenceReach,
    /// The writer's queue.
    pub send: SendQueueHandle<'a>,
    /// The reader's receives, where its way has them; else unused.
    pub receive: ReceiveQueueHandle<'a>,
    /// What the reader does before it reads, where completion or word told it.
    pub flush: FlushHandle<'a>,
    /// The message at the writer.
    pub source: Local,
    /// Its first word.
    pub source_words: Place,
    /// Where it goes.
    pub target: Remote,
    /// The same for the reader's receives.
    pub buffer: Local,
    /// The same for its threads.
    pub target_words: Place,
    /// The word behind the data, 0 at first.
    pub signal: Remote,
    /// The same for the reader's threads.
    pub signal_word: Place,
    /// Where an addition brings what it found.
    pub found: Local,
    /// Three words in the kernels' own memory, 0 at first: messages that may be sent, that are there for sure, and when
    /// the newest was begun.
    pub between: Place,
    /// Bytes of a message.
    pub bytes: u32,
    /// Messages.
    pub rounds: u32,
    /// Messages before those that count.
    pub warm_up: u32,
    /// Microseconds that each wait may take.
    pub limit_us: u64,
    /// Takes the sample of each message that counts.
    pub samples: Slice<'a, Word64>,
    /// Takes how many messages were not what they should be when they were read.
    pub stale: Slice<'a, Word64>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Places in [`Inbound::between`].
const MAY_GO: usize = 0;
const SETTLED: usize = 1;
const BEGUN: usize = 2;
/// How many there are.
const PLACES: u64 = 3;

/// Runs [`Inbound`], a block of one thread.
#[kernel]
pub fn inbound_thread(p: Inbound<'_>) {
    p.outcome.record(|| p.run_as::<Thread>());
}

/// Runs [`Inbound`], a block of one warp.
#[kernel]
pub fn inbound_warp(p: Inbound<'_>) {
    p.outcome.record(|| p.run_as::<Warp>());
}

/// Runs [`Inbound`], a block of any size.
#[kernel]
pub fn inbound_block(p: Inbound<'_>) {
    p.outcome.record(|| p.run_as::<Block>());
}

/// Word number `index` of a message; each byte differs from the message's before.
#[inline(always)]
const fn content(round: u32, index: u32) -> u64 {
    let spread = (round as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    spread.wrapping_add((index as u64).wrapping_mul(0x0101_0307_0f1f_3f7f))
}

/// Value number `index` of a message in cells.
#[inline(always)]
const fn value(round: u32, index: u32) -> u32 {
    content(round, index) as u32
}

impl Inbound<'_> {
    /// What each thread of the grid runs, for a kernel that does not know its scope.
    #[inline(always)]
    pub fn run(&self) {
        self.outcome.record(|| match self.scope {
            ScopeKind::Thread => self.run_as::<Thread>(),
            ScopeKind::Warp => self.run_as::<Warp>(),
            ScopeKind::Block => self.run_as::<Block>(),
        });
    }

    #[inline(always)]
    fn run_as<C: Scope>(&self) -> Result<(), Failure> {
        self.ask()?;
        if block::index() == 0 {
            return self.write::<C>();
        }
        match self.way {
            Way::Send | Way::WriteImmediate => self.read_received::<C>(),
            Way::Flag | Way::Counter => self.read_signalled::<C>(),
            Way::Words => self.read_cells::<C, Sequence, 1>(),
            Way::Lines => self.read_cells::<C, Sequence, LINE>(),
            Way::Checksums => self.read_cells::<C, Checksum, CHECKED>(),
        }
    }

    /// Asks for all the words that any of the others goes to.
    #[inline(always)]
    fn ask(&self) -> Result<(), Failure> {
        let words = u64::from(self.way.bytes(self.bytes)).div_ceil(8);
        self.source_words.holds(words)?;
        self.target_words.holds(words)?;
        self.between.holds(PLACES)?;
        self.signal_word.holds(1)
    }

    #[inline(always)]
    fn limit(&self) -> Deadline {
        Deadline::after_us(self.limit_us)
    }

    #[inline(always)]
    fn all(&self) -> u32 {
        self.warm_up + self.rounds
    }

    #[inline(always)]
    fn between(&self, place: usize) -> &Word64 {
        // SAFETY: one of the words that `ask` has found there.
        unsafe { &*self.between.first().add(place) }
    }

    /// Waits until that many messages may be sent, or are there.
    #[inline(always)]
    fn await_count<C: Scope>(&self, place: usize, count: u32) -> Result<(), WaitError> {
        // SAFETY: a place's words are there for the launch; kernels store to them as atomics.
        let word = unsafe { Signal::new(self.between(place)) };
        let waited = word.wait_together::<C>(count.into(), self.limit());
        waited.map(drop)
    }

    #[inline(always)]
    fn write<C: Scope>(&self) -> Result<(), Failure> {
        // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
        let mut queue = unsafe { self.send.open_together::<Exclusive, C>() }?;
        for round in 0..self.all() {
            self.await_count::<C>(MAY_GO, round + 1)?;
            self.fill::<C>(round);
            if C::leads() {
                self.between(BEGUN).store_relaxed(thread::clock_ns());
            }
            let newest = self.post(&mut queue, round)?;
            queue.wait(newest, self.limit())?;
            if C::leads() {
                self.between(SETTLED).store_release(u64::from(round) + 1);
            }
        }
        Ok(())
    }

    /// Sends a message, and what goes behind it, under one doorbell.
    #[inline(always)]
    fn post<C: Scope>(
        &self,
        queue: &mut SendQueue<'_, Exclusive, C>,
        round: u32,
    ) -> Result<Ticket, PostError> {
        let Self { source, target, .. } = *self;
        let leader = |wqe: Wqe<1>| C::leads().then_some(wqe.signalled());
        let mut batch = queue.batch(2, self.limit())?;
        let sent = match self.way {
            Way::Send => batch.post_if(leader(Wqe::send(source))),
            Way::WriteImmediate => {
                let wqe = Wqe::write_immediate(source, target, Immediate(round));
                batch.post_if(leader(wqe))
            }
            _ => batch.post_if(leader(Wqe::write(source, target))),
        }?;
        match self.way {
            Way::Flag => {
                let value = u64::from(round) + 1;
                batch.post_if(leader(Wqe::write_value(value, self.signal)))
            }
            Way::Counter => batch.post_if(leader(Wqe::fetch_add(self.found, self.signal, 1))),
            _ => Ok(sent),
        }
    }

    #[inline(always)]
    fn fill<C: Scope>(&self, round: u32) {
        match self.way {
            Way::Words => self.fill_cells::<C, Sequence, 1>(round),
            Way::Lines => self.fill_cells::<C, Sequence, LINE>(round),
            Way::Checksums => self.fill_cells::<C, Checksum, CHECKED>(round),
            _ => {
                let mut index = C::rank();
                while index < self.bytes.div_ceil(8) {
                    self.source_words.store(index, content(round, index));
                    index += C::size();
                }
            }
        }
    }

    #[inline(always)]
    fn fill_cells<C: Scope, S: Seal, const WORDS: usize>(&self, round: u32) {
        self.cells::<S, WORDS>(self.source_words)
            .fill::<C>(round + 1, |index| value(round, index));
    }

    #[inline(always)]
    fn cells<S: Seal, const WORDS: usize>(&self, place: Place) -> Cells<'_, S, WORDS> {
        let count = Cells::<'_, S, WORDS>::needed(self.bytes.div_ceil(4));
        // SAFETY: `ask` has found all their bytes there, and NICs and atomics alone touch a place.
        unsafe { Cells::new(place.first(), count, self.reach) }
    }

    /// Reads messages of which a completion tells.
    #[inline(always)]
    fn read_received<C: Scope>(&self) -> Result<(), Failure> {
        // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
        let mut receives = unsafe { self.receive.open_together::<Exclusive, C>() }?;
        // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
        let mut flush = unsafe { self.flush.open_together::<Exclusive, C>() }?;
        let mut stales = 0;
        for round in 0..self.all() {
            // For the message that may go then.
            receives.try_post_if(C::leads().then_some(self.buffer))?;
            self.go_on::<C>(round);
            let began = self.begin::<C>(round)?;
            receives.receive(self.limit())?;
            flush.flush(self.limit())?;
            stales += u64::from(self.is_stale::<C>(round));
            self.note::<C>(round, began, stales);
        }
        Ok(())
    }

    /// Reads messages of which a word behind them tells.
    #[inline(always)]
    fn read_signalled<C: Scope>(&self) -> Result<(), Failure> {
        // SAFETY: `ask` has found the word there, and NICs alone write it.
        let signal = unsafe { Signal::new(self.signal_word.first()) };
        // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
        let mut flush = unsafe { self.flush.open_together::<Exclusive, C>() }?;
        let mut stales = 0;
        for round in 0..self.all() {
            self.go_on::<C>(round);
            let began = self.begin::<C>(round)?;
            signal.wait_together::<C>(u64::from(round) + 1, self.limit())?;
            flush.flush(self.limit())?;
            stales += u64::from(self.is_stale::<C>(round));
            self.note::<C>(round, began, stales);
        }
        Ok(())
    }

    /// Reads messages that tell for themselves.
    #[inline(always)]
    fn read_cells<C: Scope, S: Seal, const WORDS: usize>(&self) -> Result<(), Failure> {
        let cells = self.cells::<S, WORDS>(self.target_words);
        let mut stales = 0;
        for round in 0..self.all() {
            self.go_on::<C>(round);
            let began = self.begin::<C>(round)?;
            let arrived = cells.wait::<C>(round + 1, self.limit())?;
            let mut stale = false;
            let mut index = C::rank();
            while index < self.bytes.div_ceil(4) {
                stale |= arrived.get(index) != Some(value(round, index));
                index += C::size();
            }
            stales += u64::from(C::any(stale));
            self.note::<C>(round, began, stales);
        }
        Ok(())
    }

    /// Whether a message's bytes are not what they should be.
    #[inline(always)]
    fn is_stale<C: Scope>(&self, round: u32) -> bool {
        let mut stale = false;
        let mut index = C::rank();
        while index < self.bytes.div_ceil(8) {
            // The last word may have fewer bytes.
            let bytes = (self.bytes - 8 * index).min(8);
            let differs = self.target_words.load(index) ^ content(round, index);
            stale |= differs << (64 - 8 * bytes) != 0;
            index += C::size();
        }
        C::any(stale)
    }

    /// Begins to wait for a message.
    #[inline(always)]
    fn begin<C: Scope>(&self, round: u32) -> Result<u64, WaitError> {
        if self.settled {
            self.await_count::<C>(SETTLED, round + 1)?;
        }
        Ok(thread::cycles())
    }

    /// Notes what a message took, for which the reader began to wait then, and how many were stale so far.
    #[inline(always)]
    fn note<C: Scope>(&self, round: u32, began: u64, stales: u64) {
        let sample = match self.settled {
            true => thread::cycles() - began,
            false => {
                let begun = self.between(BEGUN).load_relaxed();
                thread::clock_ns().saturating_sub(begun)
            }
        };
        if C::leads() {
            if round >= self.warm_up {
                self.samples.store((round - self.warm_up).into(), sample);
            }
            self.stale.store(0, stales);
        }
    }

    /// Lets the writer send message number `next`.
    #[inline(always)]
    fn go_on<C: Scope>(&self, next: u32) {
        // All threads' reading of the message before, before the leader's word.
        C::sync();
        if C::leads() {
            self.between(MAY_GO).store_release(u64::from(next) + 1);
        }
    }
}
