//! The server: it waits for pictures, computes their answers and sends them back, all by itself. One kernel stays and
//! does all of it; or three, of which each does a part, are launched again and again by a graph.

use warpbell::{Block, Deadline, Exclusive, Stop, WaitError, block, kernel, thread};

use super::{END, Message};
use crate::meeting::{meet_at, met_before};
use crate::network::Network;
use crate::path::Path;
use warpbell_kernels::outcome::{Failure, Outcome};
use warpbell_kernels::place::Place;

/// Nothing has come yet.
const NOTHING: u64 = 0;
/// Nothing came for too long, or it could not be computed.
const LATE: u64 = END - 1;
/// Nanoseconds for which a server's first block looks for a request before all meet again: a meeting's wait has an end.
const LOOK_NS: u64 = 20_000_000;

/// The server: its first blocks have a queue each. All kernels of a server take the same parameters.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ServingServer<'a> {
    /// What computes.
    pub network: Network,
    /// From the client and back; answers are its messages.
    pub path: Path<'a>,
    /// An answer.
    pub answer: Message,
    /// Where picture and answer lie for the NIC, if the network has its own in memory of the kernels': then they are
    /// copied.
    pub copied: Copied,
    /// [`Self::STATE`] words of the kernels' own, 0 before the first launch: by them the first block tells the others
    /// what has come, and a launch goes on where the one before it has ended. Among them are [`Self::SERVED`] and the
    /// others.
    pub state: Place,
    /// Microseconds without a request after which it ends with an error.
    pub patience_us: u64,
    /// Ends it between two requests; once it is not to be launched again, it asks for that itself.
    pub stop: Stop<'a>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// A picture and its answer in memory that the NIC reaches.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Copied {
    /// Whether the network has them elsewhere.
    pub wanted: bool,
    /// Where the picture comes.
    pub picture: Place,
    /// Where the answer is to be.
    pub answer: Place,
}

/// Serves until the client or the host says that there is no more.
///
/// # Safety
/// The network's places are what [`Network`] asks for; the NIC alone writes the picture that comes in, for one request
/// at a time.
///
/// ```compile_fail,E0308
/// use warpbell_paper_kernels::serving::{ServingServer, serving_server};
/// let known: warpbell::Entry<fn(ServingServer<'static>)> = serving_server::ENTRY;
/// ```
#[kernel]
pub unsafe fn serving_server(p: ServingServer<'_>) {
    // SAFETY: the caller's promise.
    p.end(unsafe { p.serve() });
}

/// The first kernel of a graph: waits for a request, and tells the kernels behind it which one has come, or that none
/// has. One thread does it, and any others end at once.
#[kernel]
pub fn serving_wait(p: ServingServer<'_>) {
    if thread::first() {
        p.end(p.wait());
    }
}

/// The second kernel of a graph: computes the answer of the request that has come. A host that drives launches this
/// kernel, too, behind [`ServingServer::TOLD`].
///
/// # Safety
/// As of [`serving_server`], and the kernel before has ended.
///
/// ```
/// use warpbell_paper_kernels::serving::{ServingServer, serving_process};
/// let known: warpbell::Entry<unsafe fn(ServingServer<'static>)> = serving_process::ENTRY;
/// ```
///
/// ```compile_fail,E0308
/// use warpbell_paper_kernels::serving::{ServingServer, serving_process};
/// let known: warpbell::Entry<fn(ServingServer<'static>)> = serving_process::ENTRY;
/// ```
#[kernel]
pub unsafe fn serving_process(p: ServingServer<'_>) {
    if p.has_request() {
        let mut met = met_before(p.network.arrivals);
        let came = match p.kept(ServingServer::CAME) {
            // A host that drives takes the time itself.
            0 => thread::clock_ns(),
            came => came,
        };
        // SAFETY: the caller's promise.
        let result = unsafe { p.process(&mut met, came) };
        if result.is_err() {
            // Nobody sends this answer.
            p.keep(ServingServer::TOLD, LATE);
        }
        p.end(result);
    }
}

/// The third kernel of a graph: sends the answer, a part by each block, and waits until it is complete.
#[kernel]
pub fn serving_send(p: ServingServer<'_>) {
    if p.has_request() {
        p.end(p.reply(p.kept(ServingServer::TOLD)));
    }
}

impl ServingServer<'_> {
    /// Words of its state.
    pub const STATE: u32 = 12;
    /// Of these: the number of the request that is there, for the kernels that do not wait for it themselves.
    pub const TOLD: u32 = 0;
    /// Answers of which all parts are complete.
    pub const SERVED: u32 = 2;
    /// Nanoseconds from where requests were there until they were where the network has them, of all together.
    pub const COPIED_IN: u32 = 3;
    /// From there until their answers were.
    pub const COMPUTED: u32 = 4;
    /// From there until those were where the NIC has them.
    pub const COPIED_OUT: u32 = 5;
    /// From there until the first part was posted.
    pub const SENT: u32 = 6;
    /// The number of the request that was answered last.
    const LAST: u32 = 7;
    /// When that was, or the first launch began.
    const SINCE: u32 = 8;
    /// Answers of which the first block's part is complete.
    const ANSWERED: u32 = 9;
    /// When the newest request was there.
    const CAME: u32 = 10;
    /// When its answer was where the NIC has it.
    const READY: u32 = 11;

    /// Keeps what became of a kernel.
    #[inline(always)]
    fn end(&self, result: Result<(), Failure>) {
        if result.is_err() {
            // A launch behind this one would wait for who has failed.
            self.stop.request();
        }
        self.outcome.record(|| result);
    }

    /// # Safety
    /// As [`serving_server`] says.
    #[inline(always)]
    unsafe fn serve(&self) -> Result<(), Failure> {
        self.state.holds(Self::STATE.into())?;
        let leads = thread::first();
        let mut met = met_before(self.network.arrivals);
        if leads {
            self.begin();
        }
        let mut turn = Self::TOLD;
        loop {
            // Two words take turns: nobody comes to the next meeting but one before all have read.
            let decision = turn;
            turn = 1 - turn;
            if leads {
                // Its patience alone counts: all break on one word, and no lane leaves its warp at a barrier.
                self.keep(decision, self.decide());
            }
            // The decision before the others read it, and the request before they compute.
            self.meet(&mut met)?;
            if leads {
                // All have come here, and nobody does whose part is not complete.
                self.keep(Self::SERVED, self.kept(Self::ANSWERED));
            }
            match self.kept(decision) {
                NOTHING => continue,
                LATE => return Err(WaitError::Deadline.into()),
                END => {
                    if leads {
                        self.stop.request();
                    }
                    return Ok(());
                }
                _ => {}
            }
            // SAFETY: the caller's promise.
            unsafe { self.process(&mut met, thread::clock_ns()) }?;
            // Not kept in a register while the block computes; the word stays until all have met once more.
            self.reply(self.kept(decision))?;
        }
    }

    /// Waits for a request until one has come, there is no more, or patience is over.
    #[inline(always)]
    fn wait(&self) -> Result<(), Failure> {
        self.state.holds(Self::STATE.into())?;
        // The kernels before this one have ended, and all parts of their answer are complete.
        self.keep(Self::SERVED, self.kept(Self::ANSWERED));
        self.begin();
        loop {
            let decision = self.decide();
            if decision == NOTHING {
                continue;
            }
            self.keep(Self::TOLD, decision);
            self.keep(Self::CAME, thread::clock_ns());
            if decision == END {
                self.stop.request();
            }
            return match decision {
                LATE => Err(WaitError::Deadline.into()),
                _ => Ok(()),
            };
        }
    }

    /// The time of the first launch, from which on requests are waited for.
    #[inline(always)]
    fn begin(&self) {
        if self.kept(Self::SINCE) == 0 {
            self.keep(Self::SINCE, thread::clock_ns());
        }
    }

    /// Whether the kernel that waits has told of a request.
    #[inline(always)]
    fn has_request(&self) -> bool {
        let told = self.kept(Self::TOLD);
        (told != NOTHING) & (told < LATE)
    }

    /// Computes the answer of a request that has come at that time, and has it where the NIC wants it.
    ///
    /// # Safety
    /// As [`serving_server`] says.
    #[inline(always)]
    unsafe fn process(&self, met: &mut u64, came: u64) -> Result<(), Failure> {
        let mut began = came;
        if self.copied.wanted {
            self.copy(self.copied.picture, self.network.input, self.network.pixels);
            self.meet(met)?;
            began = thread::clock_ns();
        }
        // SAFETY: the caller's promise.
        unsafe { self.network.run(met, self.path.limit()) }?;
        self.meet(met)?;
        let done = thread::clock_ns();
        let mut ready = done;
        if self.copied.wanted {
            let values = self.answer.bytes / size_of::<f32>() as u32;
            self.copy(self.network.output, self.copied.answer, values);
            self.meet(met)?;
            ready = thread::clock_ns();
        }
        if thread::first() {
            self.add(Self::COPIED_IN, began.saturating_sub(came));
            self.add(Self::COMPUTED, done.saturating_sub(began));
            self.add(Self::COPIED_OUT, ready.saturating_sub(done));
            self.keep(Self::READY, ready);
        }
        Ok(())
    }

    /// Sends the block's part of the answer of that request, if it has one.
    #[inline(always)]
    fn reply(&self, number: u64) -> Result<(), Failure> {
        let posted = self.send(block::index(), number)?;
        if thread::first() {
            self.add(Self::ANSWERED, 1);
            self.add(Self::SENT, posted.saturating_sub(self.kept(Self::READY)));
            self.keep(Self::LAST, number);
            self.keep(Self::SINCE, thread::clock_ns());
        }
        Ok(())
    }

    /// Copies so many values of 4 bytes, with all threads of all blocks: those of a warp beside each other.
    #[inline(always)]
    fn copy(&self, from: Place, to: Place, values: u32) {
        let mut index = thread::index();
        while index < values {
            to.store_value(index, from.load_value(index));
            index += self.network.blocks * block::size();
        }
    }

    /// All blocks meet; `met` counts.
    #[inline(always)]
    fn meet(&self, met: &mut u64) -> Result<(), WaitError> {
        *met += 1;
        let Network {
            arrivals, blocks, ..
        } = self.network;
        // SAFETY: who launched the kernel promised a word for each block.
        unsafe { meet_at(arrivals.first(), blocks, *met, self.path.limit()) }
    }

    #[inline(always)]
    fn kept(&self, word: u32) -> u64 {
        self.state.load(word)
    }

    #[inline(always)]
    fn keep(&self, word: u32, value: u64) {
        self.state.store(word, value);
    }

    #[inline(always)]
    fn add(&self, word: u32, more: u64) {
        self.keep(word, self.kept(word) + more);
    }

    /// What the first block tells the others, behind the request that was answered last.
    #[inline(always)]
    fn decide(&self) -> u64 {
        let came = self.await_request(self.kept(Self::LAST));
        // Asked behind each look: requests may follow one another without a pause.
        if self.stop.requested() {
            return END;
        }
        if came != NOTHING {
            return came;
        }
        let waited = thread::clock_ns().saturating_sub(self.kept(Self::SINCE));
        match waited > self.patience_us.saturating_mul(1_000) {
            true => LATE,
            false => NOTHING,
        }
    }

    /// Waits a little for all parts of the request behind number `last`, and gives its number. Signals may be ahead of
    /// it, where all requests are there from the beginning.
    #[inline(always)]
    fn await_request(&self, last: u64) -> u64 {
        let look = Deadline::after_ns(LOOK_NS).fixed();
        let mut newest = END;
        for part in 0..self.path.parts {
            let told = self.path.signal(part).map(|told| told.wait(last + 1, look));
            let Ok(Ok(number)) = told else {
                return NOTHING;
            };
            newest = newest.min(number);
        }
        match newest {
            END => END,
            _ => last + 1,
        }
    }

    /// Sends the block's part of an answer, if it has one, and waits until it is complete. Gives when it was posted.
    #[inline(always)]
    fn send(&self, part: u32, number: u64) -> Result<u64, Failure> {
        let path = &self.path;
        let mut posted = 0;
        // Opened anew each time, so that nothing of it is kept while the block computes.
        if let Some(queue) = path.queues.get(part.into()) {
            // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
            let mut queue = unsafe { queue.open_together::<Exclusive, Block>() }?;
            let own = block::thread_index();
            let pieces = self.answer.pieces(path.parts);
            let mut all = queue.batch(pieces + 1, path.limit())?;
            let _ = all.post_if(self.answer.write(path, part, 0, own))?;
            // Its completion tells of all before it.
            let tell = path.tell(part, number).signalled();
            let told = all.post_if((own == 0).then_some(tell))?;
            drop(all);
            posted = thread::clock_ns();
            queue.wait_outbound(told, path.limit())?;
        }
        Ok(posted)
    }
}
