//! A tag: its word, and the queue in which its operation lies.

use core::marker::PhantomData;

use mlx5_wqe::Wqe;
use warpbell_gpu::arch::{Reach, RingBlock, Word32, Word64, fence_acquire};

use super::counter::{Counter, CounterWord};
use super::error::Error;
use crate::words::{compare_exchange64, store_release64};
use warpbell::Deadline;
use warpbell::QueueState;
use warpbell::held::{self, Outcome};
use warpbell::thread::kept;
use warpbell::{
    CompletionKind, CompletionParts, CompletionSlot, DoorbellPage, FenceReach, SendDoorbell,
    SendParts, SendQueueHandle,
};

/// A tag, 128 bytes: the word that triggers add to, and where the queue of its own lies.
///
/// In the kernels' own memory, because their atomics are on it. Only the first two words ever change while kernels run.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct TriggerEntry<'a> {
    counter: CounterWord,
    /// 1 while somebody registers.
    registering: Word64,
    ring: *mut RingBlock,
    record: *const Word32,
    doorbell: *const Word64,
    completion: *const CompletionSlot,
    completion_record: *const Word32,
    state: *const QueueState,
    max_message: u32,
    qpn: u32,
    depth_log2: u8,
    /// [`FenceReach`] as a number.
    reach: u8,
    /// [`SendDoorbell`] as a number.
    send_doorbell: u8,
    /// 1 if another queue starts this one, and nobody rings it.
    managed: u8,
    /// [`DoorbellPage`] as a number.
    doorbell_page: u8,
    unused: [u8; 3],
    _queue: PhantomData<&'a QueueState>,
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<TriggerEntry>() == 128);
    assert!(core::mem::offset_of!(TriggerEntry, registering) == 8);
    assert!(core::mem::offset_of!(TriggerEntry, ring) == 16);
    assert!(core::mem::offset_of!(TriggerEntry, state) == 56);
    assert!(core::mem::offset_of!(TriggerEntry, max_message) == 64);
    assert!(core::mem::offset_of!(TriggerEntry, depth_log2) == 72);
    assert!(core::mem::offset_of!(TriggerEntry, managed) == 75);
};

// SAFETY: the pointers lead to what a `SendQueueHandle` may be used for from any thread; it was made from one.
unsafe impl Send for TriggerEntry<'_> {}
// SAFETY: as for `Send`; what changes are atomic words.
unsafe impl Sync for TriggerEntry<'_> {}

impl<'a> TriggerEntry<'a> {
    /// A tag for a queue: [`Counter::FRESH`] for an unused one.
    ///
    /// # Safety
    /// [`check`](SendQueueHandle::check) accepts the queue's handle. Its completions are a ring of as many entries as it has blocks, in which the next CQE has the number that
    /// the next WQE has; its ring is as `counter` says, and nobody else uses the queue as long as the entry is used.
    pub unsafe fn new(queue: SendQueueHandle<'a>, counter: Counter) -> Self {
        let parts = queue.parts();
        Self {
            counter: CounterWord::new(counter),
            registering: Word64::new(0),
            ring: parts.ring,
            record: parts.record,
            doorbell: parts.doorbell,
            completion: parts.completions.ring,
            completion_record: parts.completions.record,
            state: parts.state,
            max_message: parts.max_message,
            qpn: parts.qpn,
            depth_log2: parts.depth_log2,
            reach: parts.reach as u8,
            send_doorbell: parts.send_doorbell as u8,
            managed: 0,
            doorbell_page: parts.doorbell_page as u8,
            unused: [0; 3],
            _queue: PhantomData,
        }
    }

    /// The same for a queue that another one starts: kernels may wait for its operations, and register none.
    pub fn managed(self) -> Self {
        Self { managed: 1, ..self }
    }

    /// The entry in words, in the order of its bytes on a little-endian machine, as the host writes it into the memory
    /// of a GPU.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn to_words(&self) -> [u64; 16] {
        let numbers = [
            self.depth_log2,
            self.reach,
            self.send_doorbell,
            self.managed,
            self.doorbell_page,
        ];
        let [depth_log2, reach, send_doorbell, managed, page] = numbers.map(u64::from);
        let mut words = [0; 16];
        words[..10].copy_from_slice(&[
            self.counter.load().to_bits(),
            0,
            self.ring.expose_provenance() as u64,
            self.record.expose_provenance() as u64,
            self.doorbell.expose_provenance() as u64,
            self.completion.expose_provenance() as u64,
            self.completion_record.expose_provenance() as u64,
            self.state.expose_provenance() as u64,
            u64::from(self.qpn) << 32 | u64::from(self.max_message),
            page << 32 | managed << 24 | send_doorbell << 16 | reach << 8 | depth_log2,
        ]);
        words
    }

    #[inline(always)]
    pub(super) fn queue(&self) -> SendQueueHandle<'a> {
        let parts = SendParts {
            ring: self.ring,
            record: self.record,
            doorbell: self.doorbell,
            completions: CompletionParts {
                ring: self.completion,
                record: self.completion_record,
                depth_log2: self.depth_log2,
                kind: CompletionKind::Ordinary,
            },
            state: self.state,
            qpn: self.qpn,
            max_message: self.max_message,
            depth_log2: self.depth_log2,
            reach: match self.reach == FenceReach::Gpu as u8 {
                true => FenceReach::Gpu,
                false => FenceReach::System,
            },
            send_doorbell: match self.send_doorbell == SendDoorbell::WithoutRecord as u8 {
                true => SendDoorbell::WithoutRecord,
                false => SendDoorbell::WithRecord,
            },
            doorbell_page: match self.doorbell_page {
                page if page == DoorbellPage::Memory as u8 => DoorbellPage::Memory,
                page if page == DoorbellPage::Uncached as u8 => DoorbellPage::Uncached,
                _ => DoorbellPage::WriteCombining,
            },
        };
        // SAFETY: the parts of the handle that the entry was made from.
        unsafe { SendQueueHandle::new(parts) }
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
        if self.managed != 0 {
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
        if self.managed != 0 {
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
}
