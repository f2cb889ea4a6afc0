//! Doorbell registers: which are looked at in a step, and which queues a ring means.
//!
//! A page that was rung lately is looked at in every step; the others take turns. After a step that
//! did something few of them have theirs, so that a thousand idle queues cost an active one next to
//! nothing: looks at idle pages miss the cache. After each step that did nothing twice as many as
//! before have theirs, up to all.
//!
//! So a ring on an idle page is heard in the next step of an HCA that has had nothing to do for
//! some steps (11 for 1,024 pages), and of a busy one after as many steps as there are pages at the
//! latest.

use mlx5_wqe::{CqArm, Doorbell, QpNumber, UarPage};

use warpbell_gpu::trace;

use super::command::{CommandError, MAX_SEND_REGISTERS, SendDoorbell};
use super::completion::{CompletionQueues, number_index};
use super::list::{Link, List};
use super::memory::Memory;
use super::queue_pair::{QueuePair, QueuePairSlot};

/// Steps without a ring after which a page counts as idle.
const PATIENCE: u32 = 256;
/// Queue pairs of a page that a step looks at because one of them rang.
const SIBLINGS: usize = 4;

/// An entry of the engine's table of UAR pages, one for each page that queues name.
#[derive(Debug, Default)]
pub struct UarSlot {
    hot: Link,
    page: Option<Page>,
}

/// A UAR page.
#[derive(Debug)]
struct Page {
    address: u64,
    /// Queues that use it.
    users: u32,
    /// Send registers that are looked at.
    registers: u8,
    /// What was heard there last.
    heard: [u64; MAX_SEND_REGISTERS as usize],
    first_queue_pair: Option<u32>,
    first_completion_queue: Option<u32>,
    /// A queue pair without a doorbell record uses it.
    claimed: bool,
    /// That queue pair, where its doorbell is heard.
    without_record: Option<u32>,
    /// What was heard there last.
    heard_without_record: u64,
    /// Steps left before it counts as idle.
    patience: u32,
    /// The queue pair whose doorbell was the newest.
    newest: Option<u32>,
    /// A queue pair whose doorbell tells of more than its record, and that doorbell: a poster may ring ahead of its record,
    /// and its ring behind it is like the first.
    ahead: Option<(u32, Doorbell)>,
    /// The next queue pair to be looked at because another one rang, whose doorbell may have
    /// overwritten this one's.
    sibling: Option<u32>,
    /// Somebody else listens to it.
    lent: bool,
}

/// The table of UAR pages.
#[derive(Debug)]
pub(super) struct Uars<'t> {
    slots: &'t mut [UarSlot],
    hot: List,
    /// Where the search for rings among idle pages goes on.
    idle: usize,
    /// How many of them the newest step looked at.
    reach: usize,
    /// One more than the last slot ever used.
    used: usize,
}

/// A doorbell register that is lent.
#[derive(Clone, Copy, Debug)]
pub struct LentRegister {
    /// Its address.
    pub address: u64,
    /// What was heard there last.
    pub heard: u64,
}

/// The tables that a ring leads to.
pub(super) struct Rung<'a, 't> {
    pub(super) queue_pairs: &'a mut [QueuePairSlot],
    pub(super) active: &'a mut List,
    pub(super) completion_queues: &'a mut CompletionQueues<'t>,
}

impl<'t> Uars<'t> {
    pub(super) const fn new(slots: &'t mut [UarSlot]) -> Self {
        Self {
            slots,
            hot: List::new(),
            idle: 0,
            reach: 0,
            used: 0,
        }
    }

    /// The slot of the page at `address`, new or not, with one user more.
    pub(super) fn hold(&mut self, address: u64) -> Result<u32, CommandError> {
        if !address.is_multiple_of(UarPage::SIZE as u64) {
            return Err(CommandError::Misaligned);
        }
        let known = self.slots[..self.used].iter().position(|slot| {
            slot.page
                .as_ref()
                .is_some_and(|page| page.address == address)
        });
        let index = match known {
            Some(index) => index,
            None => self
                .slots
                .iter()
                .position(|slot| slot.page.is_none())
                .ok_or(CommandError::TableFull)?,
        };
        let page = self.slots[index].page.get_or_insert(Page {
            address,
            users: 0,
            registers: 1,
            heard: [0; MAX_SEND_REGISTERS as usize],
            first_queue_pair: None,
            first_completion_queue: None,
            claimed: false,
            without_record: None,
            heard_without_record: 0,
            patience: 0,
            newest: None,
            ahead: None,
            sibling: None,
            lent: false,
        });
        page.users += 1;
        self.used = self.used.max(index + 1);
        Ok(index as u32)
    }

    fn page(&mut self, index: u32) -> Option<&mut Page> {
        self.slots.get_mut(index as usize)?.page.as_mut()
    }

    /// Takes one user away.
    pub(super) fn release(&mut self, index: u32) {
        if let Some(slot) = self.slots.get_mut(index as usize)
            && let Some(page) = &mut slot.page
        {
            page.users -= 1;
            if page.users == 0 {
                slot.page = None;
            }
        }
    }

    /// Makes the doorbell without a record one queue pair's: a later doorbell overwrites an earlier one, and nothing
    /// but the doorbell tells what was posted.
    pub(super) fn claim(&mut self, index: u32) -> Result<(), CommandError> {
        let taken = self
            .page(index)
            .is_none_or(|page| core::mem::replace(&mut page.claimed, true));
        match taken {
            true => Err(CommandError::DoorbellTaken),
            false => Ok(()),
        }
    }

    /// Ends that.
    pub(super) fn disclaim(&mut self, index: u32) {
        if let Some(page) = self.page(index) {
            page.claimed = false;
        }
    }

    /// Chains a queue pair to its page, from where on its doorbell is heard. A ring from before means nothing.
    pub(super) fn add_queue_pair<M: Memory>(
        &mut self,
        memory: &M,
        index: u32,
        slots: &mut [QueuePairSlot],
        pair: u32,
    ) {
        let slot = &mut slots[pair as usize];
        let Some(own) = &slot.pair else {
            return;
        };
        let (wanted, doorbell) = (own.options.send_registers, own.attributes.send_doorbell);
        if let Some(page) = self.page(index)
            && !core::mem::replace(&mut slot.listens, true)
        {
            if doorbell == SendDoorbell::WithoutRecord {
                let _ = take(memory, page.address + WITHOUT_RECORD);
                page.heard_without_record = 0;
                page.without_record = Some(pair);
                return;
            }
            page.registers = page.registers.max(wanted.min(MAX_SEND_REGISTERS));
            // The first ring of this queue pair may be like the last one of another that had its number. What is taken
            // may be others': all are looked at.
            for register in 0..page.registers {
                if take(memory, page.address + offset(register)).is_some() {
                    page.sibling = page.first_queue_pair;
                }
            }
            (page.heard, page.ahead) = ([0; _], None);
            slot.next_of_uar = page.first_queue_pair.replace(pair);
        }
    }

    /// Takes a queue pair out of its page's chain, if it is there.
    pub(super) fn remove_queue_pair(&mut self, index: u32, slots: &mut [QueuePairSlot], pair: u32) {
        let listened = core::mem::take(&mut slots[pair as usize].listens);
        if let Some(page) = self.page(index)
            && listened
        {
            if page.without_record == Some(pair) {
                page.without_record = None;
                return;
            }
            let next = slots[pair as usize].next_of_uar.take();
            // Siblings not looked at yet are looked at from the start again.
            page.sibling = page.sibling.and(page.first_queue_pair);
            if page.sibling == Some(pair) {
                page.sibling = next;
            }
            let mut link = &mut page.first_queue_pair;
            while let Some(other) = *link {
                if other == pair {
                    *link = next;
                    break;
                }
                link = &mut slots[other as usize].next_of_uar;
            }
        }
    }

    /// Chains a completion queue to its page.
    pub(super) fn add_completion_queue(
        &mut self,
        index: u32,
        queues: &mut CompletionQueues<'_>,
        queue: u32,
    ) {
        if let Some(page) = self.page(index) {
            queues.slots[queue as usize].next_of_uar = page.first_completion_queue.replace(queue);
        }
    }

    /// Takes a completion queue out of its page's chain, and with it a user.
    pub(super) fn remove_completion_queue(
        &mut self,
        index: u32,
        queues: &mut CompletionQueues<'_>,
        queue: u32,
    ) {
        if let Some(page) = self.page(index) {
            let next = queues.slots[queue as usize].next_of_uar.take();
            let mut link = &mut page.first_completion_queue;
            while let Some(other) = *link {
                if other == queue {
                    *link = next;
                    break;
                }
                link = &mut queues.slots[other as usize].next_of_uar;
            }
        }
        self.release(index);
    }

    /// The doorbell register of a queue pair behind which `next` is chained, and what was heard there last, if its page can
    /// be lent: only one can that is one queue's alone, with one register.
    fn lendable(&self, index: u32, pair: u32, next: Option<u32>) -> Option<LentRegister> {
        let page = self.slots.get(index as usize)?.page.as_ref()?;
        let (register, heard) = match (page.first_queue_pair, page.without_record) {
            (Some(first), None) if first == pair && page.registers == 1 && next.is_none() => {
                // What came ahead of its record is heard once more.
                let heard = if page.ahead.is_some() {
                    0
                } else {
                    page.heard[0]
                };
                (offset(0), heard)
            }
            (None, Some(only)) if only == pair => (WITHOUT_RECORD, page.heard_without_record),
            _ => return None,
        };
        let alone = !page.lent && page.first_completion_queue.is_none();
        let address = page.address + register;
        alone.then_some(LentRegister { address, heard })
    }

    /// Whether the page of a queue pair can be lent.
    pub(super) fn may_lend(&self, index: u32, pair: u32, next: Option<u32>) -> bool {
        self.lendable(index, pair, next).is_some()
    }

    /// Lends the page of a queue pair, if it can be; gives the doorbell register.
    pub(super) fn lend(
        &mut self,
        index: u32,
        pair: u32,
        next: Option<u32>,
    ) -> Option<LentRegister> {
        let register = self.lendable(index, pair, next)?;
        self.page(index)?.lent = true;
        Some(register)
    }

    /// Takes a page back that was lent; it was rung lately. What was heard there meanwhile is heard once more.
    pub(super) fn take_back(&mut self, index: u32) {
        if let Some(page) = self.page(index) {
            page.lent = false;
            (page.heard, page.heard_without_record) = ([0; _], 0);
            page.patience = PATIENCE;
            self.hot.push(self.slots, index, |slot| &mut slot.hot);
        }
    }

    /// Looks at the pages whose turn it is, `work` being what the step before did; gives how many
    /// rang.
    pub(super) fn step<M: Memory>(
        &mut self,
        memory: &M,
        rung: &mut Rung<'_, '_>,
        work: usize,
    ) -> usize {
        let mut rings = 0;
        for _ in 0..self.hot.len() {
            let Some(index) = self.hot.pop(self.slots, |slot| &mut slot.hot) else {
                break;
            };
            rings += self.look(memory, index, rung);
        }
        self.reach = match work {
            0 => (2 * self.reach).clamp(1, self.used.max(1)),
            // A look costs less than a tenth of a WQE.
            work => 1 + work / 4,
        };
        for _ in 0..self.reach.min(self.used) {
            self.idle = match self.idle + 1 {
                next if next < self.used => next,
                _ => 0,
            };
            let idle = self.page(self.idle as u32);
            if idle.is_some_and(|page| page.patience == 0) {
                rings += self.look(memory, self.idle as u32, rung);
            }
        }
        rings
    }

    /// Looks at one page, and lists it as hot if that is what it is.
    fn look<M: Memory>(&mut self, memory: &M, index: u32, rung: &mut Rung<'_, '_>) -> usize {
        let Some(page) = self.page(index).filter(|page| !page.lent) else {
            return 0;
        };
        page.look_at_record_behind(memory, rung);
        let mut rings = usize::from(page.look_at_arm(memory, rung));
        rings += usize::from(page.look_at_doorbell_without_record(memory, rung));
        for register in 0..page.registers {
            rings += usize::from(page.look_at_doorbell(memory, rung, register));
        }
        page.look_at_siblings(memory, rung);
        page.patience = match rings {
            0 => page.patience.saturating_sub(1),
            _ => PATIENCE,
        };
        if page.patience > 0 || page.sibling.is_some() {
            page.patience = page.patience.max(1);
            if rings == 0 {
                page.expect_post(memory, rung);
            }
            self.hot.push(self.slots, index, |slot| &mut slot.hot);
        }
        rings
    }
}

/// The offset of the doorbell without a record in its page.
const WITHOUT_RECORD: u64 = UarPage::DOORBELL_WITHOUT_RECORD as u64;

/// The offset of a send register in its page.
const fn offset(register: u8) -> u64 {
    let [first, second] = UarPage::DOORBELLS;
    first as u64 + register as u64 * (second - first) as u64
}

/// What was stored to a send register since `heard`, which was heard there last. Nothing is stored there: a GPU cannot
/// exchange a word of the host's in one step, so that what a host rings meanwhile would be lost. Two rings in turn are alike
/// where the first came ahead of its record (`Page::ahead`), or where 65,536 blocks lie between them: that is more than a
/// ring has, and takes two full rings of the greatest depth under one doorbell each where a queue rings two registers in turn.
fn listen<M: Memory>(memory: &M, register: u64, heard: &mut u64) -> Option<u64> {
    // SAFETY: the owner vouched for the page when the queue pair was created.
    let value = unsafe { memory.peek_u64(register) };
    if value == *heard {
        return None;
    }
    // The doorbell before record and WQEs, which were written before it.
    memory.acquire();
    *heard = value;
    Some(value)
}

/// Takes what was stored to a register since it was last looked at.
fn take<M: Memory>(memory: &M, register: u64) -> Option<u64> {
    // SAFETY: the owner vouched for the page when the queue was created. Acquire: record and WQEs
    // were written before the doorbell, and are read after it. The load comes first because it
    // leaves the line shared with whoever rings.
    unsafe {
        if memory.peek_u64(register) == 0 {
            return None;
        }
        Some(memory.swap_u64(register, 0))
    }
}

impl Page {
    /// Looks at a send register. Of a WQE pushed there (BlueFlame) the first 8 bytes are the doorbell;
    /// it lies in the ring as well, where it is read.
    fn look_at_doorbell<M: Memory>(
        &mut self,
        memory: &M,
        rung: &mut Rung<'_, '_>,
        register: u8,
    ) -> bool {
        let Some(first) = self.first_queue_pair else {
            return false;
        };
        let address = self.address + offset(register);
        let heard = &mut self.heard[usize::from(register)];
        let Some(value) = listen(memory, address, heard) else {
            return false;
        };
        // The queue pair named is looked at now, the others in turn: their doorbells may have
        // been overwritten by this one.
        let named = Doorbell(value).qpn();
        self.newest = rung.kick_number(memory, named);
        self.ahead = self.newest.map(|index| (index, Doorbell(value)));
        self.look_at_record_behind(memory, rung);
        let slot = &rung.queue_pairs[first as usize];
        let is_first = slot.pair.as_ref().is_some_and(|pair| pair.number == named);
        if !is_first || slot.next_of_uar.is_some() {
            self.sibling = Some(first);
        }
        true
    }

    /// Looks at the record of a doorbell that came ahead of it, until it tells as much.
    fn look_at_record_behind<M: Memory>(&mut self, memory: &M, rung: &mut Rung<'_, '_>) {
        self.ahead = self.ahead.filter(|&(index, doorbell)| {
            let is_behind = |rung: &Rung<'_, '_>| {
                let pair = rung.queue_pairs[index as usize].pair.as_ref();
                pair.is_some_and(|pair| pair.is_behind(doorbell))
            };
            is_behind(rung) && {
                rung.kick(memory, index);
                is_behind(rung)
            }
        });
    }

    /// Looks at the doorbell of the queue pair without a record: all that was posted, it tells.
    fn look_at_doorbell_without_record<M: Memory>(
        &mut self,
        memory: &M,
        rung: &mut Rung<'_, '_>,
    ) -> bool {
        let Some(index) = self.without_record else {
            return false;
        };
        let address = self.address + WITHOUT_RECORD;
        let Some(value) = listen(memory, address, &mut self.heard_without_record) else {
            return false;
        };
        self.newest = Some(index);
        rung.hear(memory, index, Doorbell(value));
        true
    }

    /// Brings nearer what the next ring is likely to mean: of the queue pair that rang last, the record and the block
    /// behind the newest one, which are written before the doorbell.
    fn expect_post<M: Memory>(&self, memory: &M, rung: &Rung<'_, '_>) {
        let slot = self
            .newest
            .and_then(|index| rung.queue_pairs.get(index as usize));
        if let Some(pair) = slot.and_then(|slot| slot.pair.as_ref()) {
            pair.expect_post(memory);
        }
    }

    fn look_at_siblings<M: Memory>(&mut self, memory: &M, rung: &mut Rung<'_, '_>) {
        for _ in 0..SIBLINGS {
            let Some(index) = self.sibling else {
                return;
            };
            rung.kick(memory, index);
            self.sibling = rung.queue_pairs[index as usize].next_of_uar;
        }
    }

    fn look_at_arm<M: Memory>(&mut self, memory: &M, rung: &mut Rung<'_, '_>) -> bool {
        if self.first_completion_queue.is_none() {
            return false;
        }
        let Some(value) = take(memory, self.address + UarPage::CQ_ARM as u64) else {
            return false;
        };
        let (_, number) = CqArm::from_doorbell(value);
        let mut next = self.first_completion_queue;
        while let Some(index) = next {
            let named = rung
                .completion_queues
                .get(index)
                .is_some_and(|queue| queue.number() == number);
            rung.completion_queues.arm(memory, index, named);
            next = rung.completion_queues.slots[index as usize].next_of_uar;
        }
        true
    }
}

impl Rung<'_, '_> {
    /// Looks at the record of the queue pair with this number, if there is one; gives its index.
    fn kick_number<M: Memory>(&mut self, memory: &M, number: QpNumber) -> Option<u32> {
        let index = number_index(number.get());
        let slot = self.queue_pairs.get(index)?;
        let known = slot.pair.as_ref().is_some_and(|pair| pair.number == number);
        known.then(|| {
            self.kick(memory, index as u32);
            index as u32
        })
    }

    /// Takes what a queue pair's doorbell tells, and lists it as active if that is news.
    fn hear<M: Memory>(&mut self, memory: &M, index: u32, doorbell: Doorbell) {
        self.listen_to(memory, index, |pair| pair.hear(doorbell));
    }

    /// Looks at a queue pair's record, and lists it as active if there is news.
    fn kick<M: Memory>(&mut self, memory: &M, index: u32) {
        self.listen_to(memory, index, |pair| pair.look_at_record(memory));
    }

    fn listen_to<M: Memory>(
        &mut self,
        memory: &M,
        index: u32,
        has_news: impl FnOnce(&mut QueuePair) -> bool,
    ) {
        let pair = self.queue_pairs[index as usize].pair.as_mut();
        if let Some(pair) = pair
            && has_news(pair)
        {
            let producer = pair.requester.producer;
            memory.record(trace::Kind::Doorbell, pair.number, producer.into());
            self.active
                .push(self.queue_pairs, index, |slot| &mut slot.active);
        }
    }
}
