//! A tag: its word, and the queue in which its operation lies.

use mlx5_wqe::Wqe;
use warpbell_gpu::arch::{Reach, Word64, fence_acquire};

use super::counter::{Counter, CounterWord};
use super::error::Error;
use super::queue::TagQueue;
use crate::words::{compare_exchange64, store_release64};
use warpbell::held::{self, Outcome};
use warpbell::thread::kept;
use warpbell::{Deadline, SendQueueHandle};

/// A tag, 128 bytes: the word that triggers add to, and where the queue of its own lies.
///
/// In the kernels' own memory, because their atomics are on it. Only the first two words ever change while kernels run.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct TriggerEntry<'a> {
    counter: CounterWord,
    /// 1 while somebody registers.
    registering: Word64,
    queue: TagQueue<'a>,
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<TriggerEntry>() == 128);
    assert!(core::mem::offset_of!(TriggerEntry, registering) == 8);
    assert!(core::mem::offset_of!(TriggerEntry, queue) == 16);
};

impl<'a> TriggerEntry<'a> {
    /// A tag for a queue: [`Counter::FRESH`] for an unused one.
    ///
    /// # Safety
    /// [`check`](SendQueueHandle::check) accepts the queue's handle. Its completions are a ring of as many entries as it has blocks, in which the next CQE has the number that
    /// the next WQE has; its ring is as `counter` says, and nobody else uses the queue as long as the entry is used.
    pub unsafe fn new(queue: SendQueueHandle<'a>, counter: Counter) -> Self {
        Self {
            counter: CounterWord::new(counter),
            registering: Word64::new(0),
            queue: TagQueue::new(queue),
        }
    }

    /// The same for a queue that another one starts: kernels may wait for its operations, and register none.
    pub fn managed(self) -> Self {
        Self {
            queue: self.queue.managed(),
            ..self
        }
    }

    /// The entry in words, in the order of its bytes on a little-endian machine, as the host writes it into the memory
    /// of a GPU.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn to_words(&self) -> [u64; 16] {
        let mut words = [0; 16];
        words[0] = self.counter.load().to_bits();
        words[2..10].copy_from_slice(&self.queue.to_words());
        words
    }

    #[inline(always)]
    pub(super) fn queue(&self) -> SendQueueHandle<'a> {
        self.queue.handle()
    }

    /// Counts a trigger, and sends the operation if it was the last one missing.
    #[inline(always)]
    pub(super) fn trigger(&self) {
        // With the counter, which lies beside it: behind the addition these loads would take their time once more.
        let queue = self.queue();
        let [seen, found] = self.counter.trigger();
        // It looks unchanged, too, if 65,536 blocks were registered, sent and done meanwhile: between two instructions of
        // this thread.
        let unchanged = || found == seen;
        if seen.lacked_one() {
            // SAFETY: the handle is good, by the promise of `new`; the operation up to here was registered, and the trigger
            // that was the last one missing is this thread's alone.
            if unsafe { held::publish_found(&queue, seen.end(), true, unchanged) } {
                return;
            }
        }
        if found.lacked_one() {
            // SAFETY: as above.
            unsafe { held::publish_found(&queue, found.end(), false, || true) };
        }
    }

    /// The same where the tag was looked at before.
    #[inline(always)]
    pub(super) fn trigger_seen(&self, queue: &SendQueueHandle<'a>, seen: Counter) {
        if seen.lacked_one() {
            let found = self.counter.claim(seen);
            // `kept`, because a GPU's assembler would compare ahead of the fence, and wait for what was found. It looks
            // unchanged, too, if 65,536 blocks were registered, sent and done since: then this is the trigger of those
            // that came behind them.
            let unchanged = || kept(found.to_bits()) == seen.to_bits();
            // SAFETY: as in `trigger`: the claim says that the last one missing was this thread's.
            if unsafe { held::publish_found(queue, seen.end(), false, unchanged) } {
                return;
            }
        }
        self.trigger();
    }

    /// What its word says, which orders nothing.
    #[inline(always)]
    pub(super) fn look(&self) -> Counter {
        self.counter.look()
    }

    #[inline(always)]
    pub(super) fn counter(&self) -> Counter {
        self.counter.load()
    }

    /// Registers an operation, once the one before is done.
    #[inline(always)]
    pub(super) fn register<const N: usize>(
        &self,
        threshold: u32,
        wqes: [Wqe<1>; N],
        deadline: Deadline,
    ) -> Result<(), Error> {
        if self.queue.is_managed() {
            return Err(Error::Managed);
        }
        // One at a time, because the ring's slots and the word's low half are whose who registers.
        if compare_exchange64(&self.registering, 0, 1, Reach::Gpu).is_err() {
            return Err(Error::InUse);
        }
        let result = self.register_alone(threshold, wqes, deadline);
        // What this one stored before what the next one stores.
        store_release64(&self.registering, 0, Reach::Gpu);
        result
    }

    #[inline(always)]
    fn register_alone<const N: usize>(
        &self,
        threshold: u32,
        wqes: [Wqe<1>; N],
        deadline: Deadline,
    ) -> Result<(), Error> {
        let known = self.counter.load();
        if known.is_registered() {
            self.wait(deadline)?;
        }
        let queue = self.queue();
        // SAFETY: the operation before is done, and with it all that was published; nobody else registers.
        let end = unsafe { held::hold(queue, known.end(), wqes) }?;
        if self.counter.register(known, end, threshold) {
            // SAFETY: the WQEs were just held, and the triggers that came before leave publishing to this thread.
            unsafe { held::publish(&queue, end) };
        }
        Ok(())
    }

    /// Takes the tag for one scope alone.
    #[inline(always)]
    pub(super) fn take(&self) -> Result<Counter, Error> {
        if self.queue.is_managed() {
            return Err(Error::Managed);
        }
        if compare_exchange64(&self.registering, 0, 1, Reach::Gpu).is_err() {
            return Err(Error::InUse);
        }
        Ok(self.counter.take())
    }

    /// Gives it back, and sends the operation if the triggers that came meanwhile were what it wanted.
    #[inline(always)]
    pub(super) fn give_back(&self, counter: Counter) {
        if self.counter.give_back(counter) {
            // SAFETY: its owner held the WQEs, and the triggers that came meanwhile leave publishing to this thread.
            unsafe { held::publish(&self.queue(), counter.end()) };
        }
        // What this one stored before what the next one stores.
        store_release64(&self.registering, 0, Reach::Gpu);
    }

    /// Waits until the newest operation is done; what it brought may be read then.
    #[inline(always)]
    pub(super) fn wait(&self, deadline: Deadline) -> Result<(), Error> {
        let counter = self.counter.load();
        Self::await_done(&self.queue(), counter, deadline, || self.counter.load())
    }

    /// Waits until the operation is done of which a counter tells; `now` gives it as it is now.
    #[inline(always)]
    pub(super) fn await_done(
        queue: &SendQueueHandle<'_>,
        counter: Counter,
        deadline: Deadline,
        now: impl Fn() -> Counter,
    ) -> Result<(), Error> {
        if !counter.is_registered() {
            return Err(Error::NotRegistered);
        }
        let end = counter.end();
        // SAFETY: the handle is good, and its completions are such a ring, by the promise of `new`; `hold` signals each WQE.
        let outcome = || unsafe { held::outcome(queue, end) };
        let look = || match outcome() {
            // The next one is registered only once it is done.
            Outcome::UnderWay if now().is_registered() && now().end() != end => Outcome::Done,
            outcome => outcome,
        };
        let mut outcome = look();
        if outcome == Outcome::UnderWay {
            let mut wait = deadline.wait();
            let mut late = false;
            while outcome == Outcome::UnderWay && !late {
                late = wait.expired();
                outcome = look();
            }
        }
        ended(queue, outcome, now)
    }
}

/// How a wait ends that found this, where `now` gives the tag's counter as it is now.
#[inline(always)]
pub(super) fn ended(
    queue: &SendQueueHandle<'_>,
    outcome: Outcome,
    now: impl Fn() -> Counter,
) -> Result<(), Error> {
    match outcome {
        Outcome::Done => {
            // The CQE before the data, because the NIC writes the data first; and before the ring's slots are
            // stored to again.
            fence_acquire(queue.reach());
            Ok(())
        }
        Outcome::Failed(error) => Err(Error::Failed(error)),
        Outcome::UnderWay => Err(match now().missing() {
            0 => Error::Timeout,
            missing => Error::Untriggered { missing },
        }),
    }
}
