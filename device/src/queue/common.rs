//! One completion queue that many send queues have in common.
//!
//! Each of these queues has an entry of its own, in which a collapsed completion queue would have its one CQE. The NIC
//! writes CQEs to the common ring. Whoever polls it copies each CQE to the entry of the queue that it names, also if that
//! is another's queue. So a send queue posts, polls and waits as with a collapsed completion queue, and no instruction of
//! it knows of the common one.

use core::marker::PhantomData;

use mlx5_wqe::{CqeOpcode, CqeTail, Wqe};
use warpbell_gpu::Wait;
use warpbell_gpu::arch::{Reach, fence_acquire_release, fence_release};

use crate::Deadline;
use crate::error::{OpenError, PostError, QueueError, WaitError};
use crate::handle::{CompletionQueueHandle, CompletionSlot, Completions};
use crate::processor::Processor;
use crate::queue::completion;
use crate::queue::{Scope, SendQueue, Sharing, Thread, Ticket};
use crate::state::{CompletionQueueState, Strays};
use crate::warp;
use crate::words::{
    compare_exchange64, fetch_add_relaxed64, load_relaxed64, store_relaxed64, store_release64,
};

/// CQEs that a reader takes in one go: one for each lane of a warp.
const BATCH: u64 = 32;

/// CQEs that a lone reader loads at once: several, because a GPU waits for all of them as long as for one. A CPU has most
/// of them in its cache, and takes what is there.
const GROUP: usize = if cfg!(target_arch = "nvptx64") { 8 } else { 2 };

/// What a leader says of a turn, in one word: the number of the next CQE, or this, if there is nothing to read.
const NOTHING: u64 = u64::MAX >> 1;
/// Beside it: the last turn.
const LAST: u64 = 1 << 63;

/// What came of a poll; all threads of a scope have the same.
#[derive(Clone, Copy)]
struct Turn {
    last: bool,
    /// Whether it read the common ring.
    read: bool,
}

impl Turn {
    /// Whether a look behind it would find nothing that the one before it did not.
    #[inline(always)]
    fn is_last_and_vain(self) -> bool {
        self.last & !self.read
    }
}

/// A place of the table that leads from a QPN to the queue's entry. The host fills the table before any kernel sees it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionMember {
    qpn: u64,
    /// Null in a free place.
    entry: *const CompletionSlot,
}

// SAFETY: a number and an address; whoever follows the address has the promise of the handle that leads to the table.
unsafe impl Send for CompletionMember {}
// SAFETY: as above.
unsafe impl Sync for CompletionMember {}

impl CompletionMember {
    /// A free place.
    pub const FREE: Self = Self {
        qpn: 0,
        entry: core::ptr::null(),
    };

    /// Enters a queue pair and its entry into a table of a power of two of places, at least two; `false` if the table is
    /// full. One place stays free.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn enter(table: &mut [Self], qpn: u32, entry: *const CompletionSlot) -> bool {
        let (places, log2) = (table.len(), table.len().ilog2());
        let free = table.iter().filter(|place| place.entry.is_null()).count();
        if free < 2 {
            return false;
        }
        let start = home(qpn, log2) as usize;
        let mut at = (start..start + places).map(|place| place % places);
        let Some(at) = at.find(|&place| table[place].entry.is_null()) else {
            return false;
        };
        table[at] = Self {
            qpn: qpn.into(),
            entry,
        };
        true
    }

    /// The two words, as they lie in memory.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn words(self) -> [u64; 2] {
        [self.qpn, self.entry.addr() as u64]
    }
}

/// Where the search for a QPN begins: in a table of 2 to 2^32 places. Multiplication spreads numbers that follow each
/// other (Fibonacci hashing).
#[inline(always)]
const fn home(qpn: u32, log2: u32) -> u32 {
    qpn.wrapping_mul(0x9e37_79b9).wrapping_shr(32 - log2)
}

/// A completion queue that many send queues have in common, as this thread (or warp, or block) sees it.
///
/// A wait looks at the queue's own entry first. If that shows nothing, it takes up to 32 CQEs of the common ring and
/// gives each to its queue: the lanes of a warp one CQE each at the same time, a thread or a block's leader one after the
/// other. One view at a time reads; the others find what it gave them.
///
/// [`SendQueue::wait`] and [`SendQueue::post`] work too, as long as somebody polls here meanwhile: a warp of its own, for
/// example.
#[derive(Debug)]
pub struct CompletionQueue<'a, C: Scope> {
    handle: CompletionQueueHandle<'a>,
    /// CQEs that were taken when the leader looked last, here in its view: where the next look expects news.
    seen: u64,
    _scope: PhantomData<C>,
}

/// What a leader has loaded to find out whether a CQE is there.
#[derive(Clone, Copy)]
struct Glance {
    /// CQEs that are taken, and whether somebody reads.
    taken: u64,
    /// What lies where a new CQE would, if nobody else has taken any.
    tail: CqeTail,
}

impl<'a, C: Scope> CompletionQueue<'a, C> {
    pub(crate) fn open(handle: CompletionQueueHandle<'a>) -> Result<Self, OpenError> {
        match handle.processor.admits(Processor::here()) {
            true => Ok(Self {
                handle,
                seen: 0,
                _scope: PhantomData,
            }),
            false => Err(OpenError::Elsewhere),
        }
    }

    /// Posts a WQE to one of the queues and rings its doorbell; polls for room until the deadline.
    ///
    /// # Errors
    /// As for [`SendQueue::post`].
    #[inline(always)]
    pub fn post<S: Sharing, const B: usize>(
        &mut self,
        queue: &mut SendQueue<'_, S, C>,
        wqe: Wqe<B>,
        deadline: Deadline,
    ) -> Result<Ticket, PostError> {
        let (mut wait, mut late) = (None, false);
        loop {
            let glance = self.glance();
            // All threads of the scope find room, or none of them does.
            match queue.try_post(wqe) {
                Err(PostError::NoRoom) if !late => {}
                Err(PostError::NoRoom) => return Err(PostError::Deadline),
                posted => return posted,
            }
            let turn = self.turn(glance, has_passed(deadline, &mut wait));
            if turn.is_last_and_vain() {
                return Err(PostError::Deadline);
            }
            late = turn.last;
        }
    }

    /// Whether a request of one of the queues is done: looks at its entry, then at the common ring.
    ///
    /// # Errors
    /// As for [`SendQueue::is_done`].
    #[inline(always)]
    pub fn is_done<S: Sharing>(
        &mut self,
        queue: &mut SendQueue<'_, S, C>,
        ticket: Ticket,
    ) -> Result<bool, QueueError> {
        match self.wait(queue, ticket, Deadline::PASSED) {
            Ok(()) => Ok(true),
            Err(WaitError::Failed(error)) => Err(error),
            Err(_) => Ok(false),
        }
    }

    /// Waits until a request of one of the queues is done, and all posted there before it.
    ///
    /// # Errors
    /// As for [`SendQueue::wait`].
    #[inline(always)]
    pub fn wait<S: Sharing>(
        &mut self,
        queue: &mut SendQueue<'_, S, C>,
        ticket: Ticket,
        deadline: Deadline,
    ) -> Result<(), WaitError> {
        let (mut wait, mut late) = (None, false);
        loop {
            // Before the queue's look at its entry, so that a GPU waits for both at the same time.
            let glance = self.glance();
            // In one place: a GPU's compiler does not inline what two places have in common.
            let found = queue.wait(ticket, Deadline::PASSED);
            match found {
                Err(WaitError::Deadline | WaitError::NotSignalled) if !late => {}
                _ => return found,
            }
            // What nothing will report gets one turn.
            let last = !queue.covers(ticket) || has_passed(deadline, &mut wait);
            let turn = self.turn(glance, last);
            if turn.is_last_and_vain() {
                return found;
            }
            late = turn.last;
        }
    }

    /// Takes up to 32 CQEs and gives each to its queue, if there are some and nobody else reads.
    ///
    /// For a warp that polls for all; waits and posts of this view poll by themselves.
    #[inline(always)]
    pub fn poll(&mut self) {
        let glance = self.glance();
        self.turn(glance, true);
    }

    /// CQEs that named no queue of this completion queue.
    pub fn strays(&self) -> Strays {
        self.state().strays()
    }

    #[inline(always)]
    fn state(&self) -> &'a CompletionQueueState {
        // SAFETY: the handle's pointers are valid for 'a, by the promise of its `new`.
        unsafe { &*self.handle.state }
    }

    #[inline(always)]
    fn ring(&self) -> &Completions {
        &self.handle.completions
    }

    /// The loads of a look, neither of which waits for the other. Nothing, in threads that do not lead.
    #[inline(always)]
    fn glance(&self) -> Glance {
        let mut glance = Glance {
            taken: 0,
            tail: CqeTail(0),
        };
        if C::leads() {
            glance.taken = load_relaxed64(&self.state().taken, Reach::Gpu);
            glance.tail = completion::tail(self.ring(), self.seen as u32);
        }
        glance
    }

    /// One poll. Whether it is the `last` one, the leader says.
    #[inline(always)]
    fn turn(&mut self, glance: Glance, last: bool) -> Turn {
        // A CPU has let others run since the glance, who may have taken what it saw.
        let glance = match cfg!(target_arch = "nvptx64") {
            true => glance,
            false => self.glance(),
        };
        let together = C::COLLECTIVE && !C::WIDE;
        let mut word = NOTHING;
        if C::leads() {
            if let Some(next) = self.start(glance) {
                word = next;
                if !together {
                    self.read_alone(next);
                }
            }
            word |= if last { LAST } else { 0 };
        }
        // One word for both, because a warp pays for each exchange.
        let word = C::broadcast(word);
        let next = word & !LAST;
        if together && next != NOTHING {
            self.read_together(next);
        }
        Turn {
            last: word != next,
            read: next != NOTHING,
        }
    }

    /// Becomes the reader, if a CQE is there and nobody else reads; gives the number of the next CQE.
    #[inline(always)]
    fn start(&mut self, glance: Glance) -> Option<u64> {
        let state = self.state();
        let Glance { taken, mut tail } = glance;
        if taken & CompletionQueueState::READING != 0 {
            return None;
        }
        if taken != self.seen {
            self.seen = taken;
            tail = completion::tail(self.ring(), taken as u32);
        }
        // A poll that finds nothing writes nothing.
        if !completion::is_new(self.ring(), tail, taken as u32) {
            return None;
        }
        // Acquire: the last reader's loads and its stores to entries before ours, so that we find nothing older in an
        // entry of the ring, and put nothing older into a queue's.
        let reading = taken | CompletionQueueState::READING;
        compare_exchange64(&state.taken, taken, reading, Reach::Gpu).ok()
    }

    /// Gives the right to read back: all CQEs before number `taken` are with their queues.
    #[inline(always)]
    fn end(&mut self, taken: u64) {
        self.seen = taken;
        // What was read and given before the count, because the next reader goes on there.
        store_release64(&self.state().taken, taken, Reach::Gpu);
    }

    /// Reads CQEs from number `first` on, several at once.
    #[inline(always)]
    fn read_alone(&mut self, first: u64) {
        let mut next = first;
        while next - first < BATCH {
            let (ring, number) = (self.ring(), next as u32);
            let mut tails = [CqeTail(0); GROUP];
            for (place, tail) in (0..).zip(&mut tails) {
                *tail = completion::tail(ring, number.wrapping_add(place));
            }
            // One behind the other, and none skipped, as in a queue's own ring.
            let (mut count, mut is_next) = (0, true);
            for (place, &tail) in (0..).zip(&tails) {
                is_next &= completion::is_new(ring, tail, number.wrapping_add(place));
                count += u64::from(is_next);
            }
            if count == 0 {
                break;
            }
            self.order();
            let end = next + count;
            while next != end {
                self.give(next as u32, tails[0]);
                // Each moves up, because a GPU's registers have no index.
                for place in 1..GROUP {
                    tails[place - 1] = tails[place];
                }
                next += 1;
            }
            if count < GROUP as u64 {
                break;
            }
        }
        self.end(next);
    }

    /// Gives CQE number `number` to its queue.
    #[inline(always)]
    fn give(&self, number: u32, tail: CqeTail) {
        match self.entry_of(tail) {
            // The NIC does not write to the ring's entry again before the queue has its CQE.
            Some(entry) => deliver(
                completion::slot(self.ring(), number),
                tail,
                entry,
                self.reach(),
            ),
            None => self.count_stray(tail),
        }
    }

    /// The lanes of a warp read CQEs from number `first` on, one each. The leader is the reader.
    #[inline(always)]
    fn read_together(&mut self, first: u64) {
        let ring = self.ring();
        // The leader's acquire before the others' loads.
        C::sync();
        let lane = C::rank();
        let number = (first as u32).wrapping_add(lane);
        let tail = completion::tail(ring, number);
        let is_new = completion::is_new(ring, tail, number);
        // One behind the other, and none skipped, as in a queue's own ring.
        let count = warp::ballot(is_new).trailing_ones();
        let is_taken = lane < count;
        self.order();
        // A queue's newest CQE is enough for it, or its first error. Lanes without a CQE have something in common that
        // is no queue pair's number.
        let qpn = match is_taken {
            true => tail.qpn().get(),
            false => u32::MAX,
        };
        let same = warp::alike(qpn.into());
        let errors = warp::ballot(is_taken && !is_success(tail)) & same;
        let below = (1 << lane) - 1;
        let acts = match errors {
            0 => same >> lane == 1,
            _ => errors & below == 0 && errors >> lane & 1 == 1,
        };
        if is_taken {
            match self.entry_of(tail) {
                Some(entry) if acts => {
                    deliver(completion::slot(ring, number), tail, entry, self.reach());
                }
                Some(_) => {}
                None => self.count_stray(tail),
            }
        }
        // All lanes' loads and stores before the leader gives the right back.
        C::sync();
        if C::leads() {
            self.end(first + u64::from(count));
        }
    }

    #[inline(always)]
    fn reach(&self) -> Reach {
        self.handle.reach()
    }

    /// Between the reading of CQEs and what is given to queues.
    #[inline(always)]
    fn order(&self) {
        // The CQEs before the entries, because through us a queue's owner reads the data behind them, and posts again,
        // upon which the NIC overwrites them.
        fence_acquire_release(self.reach());
    }

    /// The entry of the queue whose CQE this is.
    #[inline(always)]
    fn entry_of(&self, tail: CqeTail) -> Option<&'a CompletionSlot> {
        let (qpn, log2) = (tail.qpn().get(), u32::from(self.handle.members_log2));
        let mask = (1u32 << log2) - 1;
        let mut at = home(qpn, log2);
        for _ in 0..=mask {
            // SAFETY: the table has so many places and is not written, by the promise of the handle's `new`.
            let member = unsafe { *self.handle.members.add((at & mask) as usize) };
            if member.entry.is_null() {
                return None;
            }
            if member.qpn == u64::from(qpn) {
                // SAFETY: an entry's address, which is valid as long as the handle, by the same promise.
                return Some(unsafe { &*member.entry });
            }
            at = at.wrapping_add(1);
        }
        None
    }

    #[cold]
    #[inline(always)]
    fn count_stray(&self, tail: CqeTail) {
        let state = self.state();
        fetch_add_relaxed64(&state.strays, 1, Reach::Gpu);
        store_relaxed64(&state.stray_qpn, tail.qpn().get().into(), Reach::Gpu);
    }
}

impl<'a> CompletionQueueHandle<'a> {
    /// Opens the completion queue for this thread.
    ///
    /// # Errors
    /// A handle of another version, for another processor, or with a reach that this one does not know.
    #[inline(always)]
    pub fn open(self) -> Result<CompletionQueue<'a, Thread>, OpenError> {
        // SAFETY: a thread makes its calls together with itself.
        unsafe { self.open_together() }
    }

    /// Opens it for all threads of a scope `C` together.
    ///
    /// # Safety
    /// As for [`SendQueueHandle::open_together`](crate::SendQueueHandle::open_together): all threads of the scope call
    /// this and every method together, with the same handle, and with views of the same send queue.
    ///
    /// # Errors
    /// As [`open`](Self::open); all threads get the same answer.
    #[inline(always)]
    pub unsafe fn open_together<C: Scope>(self) -> Result<CompletionQueue<'a, C>, OpenError> {
        self.check()?;
        CompletionQueue::open(self)
    }
}

/// Whether a wait is over, which begins with the first question.
#[inline(always)]
fn has_passed(deadline: Deadline, wait: &mut Option<Wait>) -> bool {
    // No closure: where a kernel waits in several places, a GPU's compiler would not inline it.
    match wait {
        Some(wait) => wait.expired(),
        None => wait.insert(deadline.wait()).expired(),
    }
}

#[inline(always)]
fn is_success(tail: CqeTail) -> bool {
    tail.cqe_opcode() == CqeOpcode::REQUESTER
}

/// Puts a CQE into its queue's entry. An error stays there, whatever is flushed behind it.
#[inline(always)]
fn deliver(slot: &CompletionSlot, tail: CqeTail, entry: &CompletionSlot, reach: Reach) {
    if !is_success(tail) {
        let found = CqeTail(completion::word(entry, 7));
        if !is_success(found) && found.cqe_opcode() != CqeOpcode::INVALID {
            return;
        }
        store_relaxed64(&entry.words[6], completion::word(slot, 6), Reach::System);
        // The cause before the tail, because the queue's owner reads it once it has seen the tail.
        fence_release(reach);
    }
    store_relaxed64(&entry.words[7], tail.0, Reach::System);
}
