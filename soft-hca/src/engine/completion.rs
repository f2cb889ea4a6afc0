//! Completion queues: ordinary, collapsed and overrun-ignoring; armed events.

use mlx5_wqe::{
    CqArm, CqDoorbellRecord, CqNumber, Cqe64, CqeErrorWord, CqeOpcode, CqeTail, Opcode, QpNumber,
    Syndrome, VendorCode,
};

use warpbell_gpu::trace;

use super::command::{CommandError, CompletionQueueAttributes, CqeSize, MAX_LOG_CQ_DEPTH};
use super::event::Event;
use super::list::{Link, List};
use super::memory::Memory;

/// Size of a CQE.
const CQE: u64 = 64;
/// Consumer indices have 24 bits.
const INDEX_MASK: u32 = CqDoorbellRecord::CONSUMER_MASK;

/// An entry of the engine's table of completion queues.
#[derive(Debug, Default)]
pub struct CompletionQueueSlot {
    generation: u8,
    /// Its place among the queues with events to report.
    event: Link,
    /// The next queue of the same UAR page.
    pub(super) next_of_uar: Option<u32>,
    queue: Option<CompletionQueue>,
}

/// A completion queue.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    number: CqNumber,
    attributes: CompletionQueueAttributes,
    cqe_size: CqeSize,
    pub(super) uar: Option<u32>,
    /// Queue pairs that use it; one that uses it for both directions counts twice.
    users: u32,
    /// CQEs written so far; the low 24 bits compare with the consumer index.
    producer: u32,
    /// The consumer index as last read, which can only be behind the true one.
    consumer: u32,
    state: State,
    armed: Armed,
    /// The arm word last acted upon.
    arm_word: u32,
    /// Where the newest solicited CQE, or error CQE, since the newest event ended: the producer index after it.
    solicited: Option<u32>,
    /// The producer index at the newest event: it told of all CQEs before, whether or not they were consumed.
    notified: u32,
    completion_event: bool,
    overrun_event: bool,
    /// Somebody else writes its CQEs.
    lent: bool,
    /// Send queues are held until it has a CQE that it has not yet.
    awaited: bool,
}

/// A completion queue that is lent to whoever writes the CQEs of plain writes.
#[derive(Clone, Copy, Debug)]
pub struct LentCompletions {
    index: u32,
    ring: u64,
    record: u64,
    log_depth: u8,
    collapsed: bool,
    /// The consumer index does not matter: CQEs may overwrite others.
    pub ignore_overrun: bool,
    /// CQEs written so far.
    pub producer: u32,
    consumer: u32,
}

/// Whether a queue can take CQEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Live,
    /// By command, the next CQE finds it full.
    Full,
    /// Overrun: takes no CQE any more.
    Dead,
}

/// For which CQE a queue is armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    No,
    Next,
    Solicited,
}

/// The completion queue is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dead;

/// What a CQE says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    pub(super) qpn: QpNumber,
    pub(super) opcode: CqeOpcode,
    /// Opcode of the send WQE; 0 for receives.
    pub(super) wqe_opcode: Opcode,
    pub(super) wqe_counter: u16,
    pub(super) byte_count: u32,
    /// Immediate data or the invalidated key.
    pub(super) immediate: u32,
    pub(super) solicited: bool,
    /// How the queue pair's user calls it.
    pub(super) user_index: u32,
    /// Of a datagram where it came from: flags and the sender's QPN (`flags_rqpn`).
    pub(super) source: u32,
    pub(super) error: Option<(Syndrome, VendorCode)>,
}

impl Completion {
    /// The 64 bytes, as native words of the bytes in memory.
    #[inline(always)]
    pub(super) fn words(&self, owner: bool) -> [u64; 8] {
        let tail = CqeTail::new(
            self.opcode,
            owner,
            self.wqe_opcode,
            self.qpn,
            self.wqe_counter,
        );
        let solicited = u64::from(self.solicited) << 1;
        let mut cqe = Cqe64::from_words([0, 0, 0, 0, 0, 0, 0, tail.0 | solicited.to_be()]);
        cqe.immediate.set(self.immediate);
        cqe.byte_count.set(self.byte_count);
        cqe.srqn_uidx.set(self.user_index);
        cqe.flags_rqpn.set(self.source);
        let mut words = cqe.to_words();
        if let Some((syndrome, vendor)) = self.error {
            words[6] = CqeErrorWord::new(syndrome, vendor).0;
        }
        words
    }
}

/// The table of completion queues.
#[derive(Debug)]
pub(super) struct CompletionQueues<'t> {
    pub(super) slots: &'t mut [CompletionQueueSlot],
    events: List,
    /// Some queue overran, and its queue pairs do not know yet.
    overrun: bool,
    /// Something happened to a queue that send queues wait for, and they have not looked yet.
    news: bool,
}

/// Whether a CQE is there that a send queue waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    There,
    /// Not yet in the queue of this table index; who waits for it is told of news.
    NotYet(u32),
    /// It will never be: there is no such queue, or it is dead.
    Never,
}

/// Bits of a CQN or QPN that hold the table index; the 8 above hold a generation.
pub(super) const NUMBER_INDEX_BITS: u32 = 16;

/// The generation after this one: never 0, so that no CQN and no QPN is 0. A register of zeros is
/// one that nobody rang.
pub(super) const fn next_generation(generation: u8) -> u8 {
    match generation.checked_add(1) {
        Some(next) => next,
        None => 1,
    }
}

/// The index in a CQN or QPN.
pub(super) const fn number_index(number: u32) -> usize {
    (number & ((1 << NUMBER_INDEX_BITS) - 1)) as usize
}

impl<'t> CompletionQueues<'t> {
    pub(super) const fn new(slots: &'t mut [CompletionQueueSlot]) -> Self {
        Self {
            slots,
            events: List::new(),
            overrun: false,
            news: false,
        }
    }

    pub(super) fn create(
        &mut self,
        attributes: &CompletionQueueAttributes,
        cqe_size: CqeSize,
        uar: Option<u32>,
    ) -> Result<(CqNumber, u32), CommandError> {
        let index = self.free()?;
        let slot = &mut self.slots[index];
        slot.generation = next_generation(slot.generation);
        let number =
            CqNumber::from_low_bits(u32::from(slot.generation) << NUMBER_INDEX_BITS | index as u32);
        slot.queue = Some(CompletionQueue {
            number,
            attributes: *attributes,
            cqe_size,
            uar,
            users: 0,
            producer: 0,
            consumer: 0,
            state: State::Live,
            armed: Armed::No,
            arm_word: 0,
            solicited: None,
            notified: 0,
            completion_event: false,
            overrun_event: false,
            lent: false,
            awaited: false,
        });
        Ok((number, index as u32))
    }

    /// Checks attributes, and that there is room.
    pub(super) fn check(
        &self,
        attributes: &CompletionQueueAttributes,
        cqe_size: CqeSize,
    ) -> Result<(), CommandError> {
        if attributes.log_depth > MAX_LOG_CQ_DEPTH {
            return Err(CommandError::TooDeep);
        }
        let entry = 1 << cqe_size.log_bytes();
        if !attributes.ring.is_multiple_of(entry) || !attributes.record.is_multiple_of(8) {
            return Err(CommandError::Misaligned);
        }
        self.free().map(|_| ())
    }

    fn free(&self) -> Result<usize, CommandError> {
        self.slots
            .iter()
            .take(1 << NUMBER_INDEX_BITS)
            .position(|slot| slot.queue.is_none())
            .ok_or(CommandError::TableFull)
    }

    /// Takes a queue without users out of the table; gives its index and UAR.
    pub(super) fn destroy(&mut self, number: CqNumber) -> Result<(u32, Option<u32>), CommandError> {
        let index = self.index(number)?;
        let slot = &mut self.slots[index as usize];
        let queue = slot.queue.take_if(|queue| queue.users == 0);
        let queue = queue.ok_or(CommandError::InUse)?;
        self.news |= queue.awaited;
        Ok((index, queue.uar))
    }

    /// The table index of a queue.
    pub(super) fn index(&self, number: CqNumber) -> Result<u32, CommandError> {
        let index = number_index(number.get());
        self.slots
            .get(index)
            .and_then(|slot| slot.queue.as_ref())
            .filter(|queue| queue.number == number)
            .map(|_| index as u32)
            .ok_or(CommandError::NoCompletionQueue)
    }

    pub(super) fn get(&self, index: u32) -> Option<&CompletionQueue> {
        self.slots.get(index as usize)?.queue.as_ref()
    }

    fn get_mut(&mut self, index: u32) -> Option<&mut CompletionQueue> {
        self.slots.get_mut(index as usize)?.queue.as_mut()
    }

    /// Counts one more user.
    pub(super) fn hold(&mut self, index: u32) {
        if let Some(queue) = self.get_mut(index) {
            queue.users += 1;
        }
    }

    /// Counts one user less.
    pub(super) fn release(&mut self, index: u32) {
        if let Some(queue) = self.get_mut(index) {
            queue.users -= 1;
        }
    }

    /// By command: the next CQE finds the queue full.
    pub(super) fn fill(&mut self, number: CqNumber) -> Result<(), CommandError> {
        let index = self.index(number)?;
        if let Some(queue) = self.get_mut(index)
            && queue.state == State::Live
        {
            queue.state = State::Full;
        }
        Ok(())
    }

    pub(super) fn is_dead(&self, index: u32) -> bool {
        self.get(index)
            .is_none_or(|queue| queue.state == State::Dead)
    }

    /// Whether a queue overran since this was last asked.
    pub(super) fn take_overrun(&mut self) -> bool {
        core::mem::take(&mut self.overrun)
    }

    /// Whether something happened to a queue that send queues wait for, since this was last asked.
    pub(super) fn take_news(&mut self) -> bool {
        core::mem::take(&mut self.news)
    }

    /// Whether a queue has the CQE of that number, of which 24 bits count, as the consumer index has.
    pub(super) fn has_come_to(&mut self, queue: CqNumber, number: u32) -> Awaited {
        let Ok(index) = self.index(queue) else {
            return Awaited::Never;
        };
        match self.get_mut(index) {
            Some(queue) if after(queue.producer, number & INDEX_MASK) => Awaited::There,
            Some(queue) if queue.state != State::Dead => {
                queue.awaited = true;
                Awaited::NotYet(index)
            }
            _ => Awaited::Never,
        }
    }

    /// Whether a queue can be lent: not if it is lent, armed, awaited, full or dead, or has large entries.
    pub(super) fn may_lend(&self, index: u32) -> bool {
        self.get(index).is_some_and(|queue| {
            !queue.lent
                && queue.state == State::Live
                && queue.armed == Armed::No
                && !queue.awaited
                && queue.cqe_size == CqeSize::Bytes64
        })
    }

    /// Lends a queue that can be.
    pub(super) fn lend(&mut self, index: u32) -> Option<LentCompletions> {
        let queue = self.get_mut(index)?;
        queue.lent = true;
        let CompletionQueueAttributes {
            ring,
            log_depth,
            record,
            collapsed,
            ignore_overrun,
            ..
        } = queue.attributes;
        Some(LentCompletions {
            index,
            ring,
            record,
            log_depth,
            collapsed,
            ignore_overrun,
            producer: queue.producer,
            consumer: queue.consumer,
        })
    }

    /// Takes a queue back that was lent.
    pub(super) fn take_back(&mut self, loan: &LentCompletions) {
        if let Some(queue) = self.get_mut(loan.index) {
            queue.lent = false;
            queue.producer = loan.producer;
            queue.consumer = loan.consumer;
        }
    }

    /// Writes a CQE.
    #[inline]
    pub(super) fn post<M: Memory>(
        &mut self,
        memory: &M,
        index: u32,
        completion: &Completion,
    ) -> Result<(), Dead> {
        let Some(queue) = self.get_mut(index) else {
            return Err(Dead);
        };
        if !queue.has_room(memory) {
            if queue.state != State::Dead {
                queue.state = State::Dead;
                queue.overrun_event = true;
                self.overrun = true;
                self.news = true;
                self.events.push(self.slots, index, |slot| &mut slot.event);
            }
            return Err(Dead);
        }
        let depth = 1 << queue.attributes.log_depth;
        let owner = queue.producer & depth != 0;
        let slot = match queue.attributes.collapsed {
            true => 0,
            false => queue.producer & (depth - 1),
        };
        // The CQE is an entry's last 64 bytes.
        let end = u64::from(slot + 1) << queue.cqe_size.log_bytes();
        let address = queue.attributes.ring + end - CQE;
        let words = completion.words(owner);
        let [head @ .., tail] = &words;
        let counter = completion.wqe_counter;
        memory.record(trace::Kind::Cqe, completion.qpn, counter.into());
        // SAFETY: the owner vouched for the ring when the queue was created; the slot is in it.
        // The tail is stored with release order, after the other 56 bytes and after the payload,
        // because whoever sees the new owner bit goes on to read those.
        unsafe {
            for (index, word) in head.iter().enumerate() {
                memory.write_u64(address + 8 * index as u64, *word);
            }
            memory.store_u64(address + 56, *tail);
        }
        queue.producer = queue.producer.wrapping_add(1);
        let awaited = core::mem::take(&mut queue.awaited);
        let solicited = completion.solicited || completion.error.is_some();
        if solicited {
            queue.solicited = Some(queue.producer & INDEX_MASK);
        }
        if queue.armed == Armed::Next || (queue.armed == Armed::Solicited && solicited) {
            self.fire(index);
        }
        self.news |= awaited;
        Ok(())
    }

    /// Reports a completion event; the queue is no longer armed.
    fn fire(&mut self, index: u32) {
        let Some(queue) = self.get_mut(index) else {
            return;
        };
        queue.armed = Armed::No;
        queue.notified = queue.producer;
        queue.solicited = None;
        queue.completion_event = true;
        self.events.push(self.slots, index, |slot| &mut slot.event);
    }

    /// Looks at a queue's arm word. `rung` says that the arm register named this queue; otherwise
    /// the word counts only if it changed, because another queue's arming may have overwritten
    /// this one's in the register.
    pub(super) fn arm<M: Memory>(&mut self, memory: &M, index: u32, rung: bool) {
        let Some(queue) = self.get_mut(index) else {
            return;
        };
        // SAFETY: the owner vouched for the record when the queue was created.
        let word = unsafe { memory.load_u32(queue.attributes.record + 4) };
        if word == queue.arm_word && !rung {
            return;
        }
        queue.arm_word = word;
        let arm = CqArm::from_word(word);
        queue.armed = match arm.solicited_only {
            true => Armed::Solicited,
            false => Armed::Next,
        };
        // A CQE of which an event has told raises no other, also where its consumer arms before it polls.
        let waiting = match arm.solicited_only {
            true => queue.solicited.is_some_and(|end| after(end, arm.consumer)),
            false => queue.producer != queue.notified && after(queue.producer, arm.consumer),
        };
        if waiting {
            self.fire(index);
        }
    }

    /// The next event of any queue.
    pub(super) fn poll_event(&mut self) -> Option<Event> {
        while let Some(index) = self.events.pop(self.slots, |slot| &mut slot.event) {
            let Some(queue) = self.get_mut(index) else {
                continue;
            };
            let number = queue.number;
            if core::mem::take(&mut queue.completion_event) {
                if queue.overrun_event {
                    self.events.push(self.slots, index, |slot| &mut slot.event);
                }
                return Some(Event::Completion(number));
            }
            if core::mem::take(&mut queue.overrun_event) {
                return Some(Event::Overrun(number));
            }
        }
        None
    }
}

/// Whether a producer index has passed a consumer index.
const fn after(producer: u32, consumer: u32) -> bool {
    super::psn::distance(producer & INDEX_MASK, consumer) > 0
}

impl LentCompletions {
    /// Takes over what writing CQEs changes.
    #[inline(always)]
    pub(super) const fn advance_to(&mut self, other: &Self) {
        self.producer = other.producer;
        self.consumer = other.consumer;
    }

    /// How many CQEs the consumer index that was last read has not made room for again.
    #[inline(always)]
    const fn used(&self) -> u32 {
        self.producer.wrapping_sub(self.consumer) & INDEX_MASK
    }

    /// Whether that index leaves room for so many, so that it need not be read again.
    #[inline(always)]
    pub const fn known_to_fit(&self, wanted: u32) -> bool {
        self.used() + wanted <= 1 << self.log_depth
    }

    /// How many CQEs there is room for, up to `wanted`, in a queue that must not overrun. Reads the consumer index
    /// only when the one last read would not do.
    #[inline(always)]
    pub fn room<M: Memory>(&mut self, memory: &M, wanted: u32) -> u32 {
        let depth = 1u32 << self.log_depth;
        if !self.known_to_fit(wanted) {
            // SAFETY: the owner vouched for the record when the queue was created.
            let word = unsafe { memory.peek_u32(self.record) };
            // The consumer has read its CQEs before we write over them.
            memory.acquire();
            self.consumer = CqDoorbellRecord::consumer(word);
        }
        wanted.min(depth.saturating_sub(self.used()))
    }

    /// Whether the CQE that comes after `before` others, `count` in all, is written: not if the one behind it takes
    /// its place at once.
    #[inline(always)]
    pub const fn keeps(&self, before: u32, count: u32) -> bool {
        !self.collapsed || before + 1 == count
    }

    /// Where the CQE goes that comes after `before` others, and its owner bit.
    #[inline(always)]
    pub fn slot(&self, before: u32) -> (u64, bool) {
        let producer = self.producer.wrapping_add(before);
        let depth = 1u32 << self.log_depth;
        let place = match self.collapsed {
            true => 0,
            false => producer & (depth - 1),
        };
        (self.ring + u64::from(place) * CQE, producer & depth != 0)
    }
}

impl CompletionQueue {
    pub(super) const fn number(&self) -> CqNumber {
        self.number
    }

    /// Whether a CQE may be written. Reads the consumer index only when the one last read would
    /// not do.
    fn has_room<M: Memory>(&mut self, memory: &M) -> bool {
        match self.state {
            State::Dead | State::Full => return false,
            State::Live if self.attributes.ignore_overrun => return true,
            State::Live => {}
        }
        let depth = 1 << self.attributes.log_depth;
        if self.used() >= depth {
            // SAFETY: the owner vouched for the record when the queue was created. Acquire: the
            // consumer has read its CQEs before we write over them.
            let word = unsafe { memory.load_u32(self.attributes.record) };
            self.consumer = CqDoorbellRecord::consumer(word);
        }
        self.used() < depth
    }

    /// CQEs written and not known consumed.
    const fn used(&self) -> u32 {
        self.producer.wrapping_sub(self.consumer) & INDEX_MASK
    }
}
