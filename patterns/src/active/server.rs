//! The target's end of a lane.

use core::marker::PhantomData;

use mlx5_wqe::{Local, LocalKey, Remote, RemoteKey, Wqe};
use warpbell_gpu::arch::{Reach, Word64, fence_acquire};

use super::Function;
use super::error::Error;
use super::handle::End;
use super::lane::why_late;
use super::slot::{MARKS, SLOT_WORDS, is_there, item_word, read_first, read_item, top_word};
use super::table::{Buffers, FunctionEntry, LastFunction, check_function};
use super::words::{ANSWER, Answer, Header, MAX_ARGUMENTS, PayloadWord, sequence};
use crate::together::{Led, begin, finish};
use crate::words::{load_relaxed64, store_relaxed64};
use warpbell::{Deadline, Exclusive, Scope};

/// Words of a lane's state at the target: index of the next task, an answer that found no room in the queue, and where
/// that answer's result lies, if it has one: address, and key.
const NEXT: usize = 0;
const OWED: usize = 1;
const OWED_ADDRESS: usize = 2;
const OWED_KEY: usize = 3;

/// What goes with an answer that is a value alone; known to the compiler, so that such an answer asks nothing.
const NO_RESULT: Local = Local {
    address: 0,
    length: 0,
    key: LocalKey(0),
};

/// Who runs a lane's tasks: a thread, a warp or a block of the target ([`TargetHandle::serve`]).
///
/// Each call is made by all threads of the scope `C` together, at the same point and with the same arguments, and all
/// get the same task. A task is done once it is answered: one that was not is given again, to this server or to the
/// next one.
///
/// [`TargetHandle::serve`]: super::TargetHandle::serve
pub struct Server<'a, C: Scope> {
    end: End<'a>,
    functions: u32,
    function_entries: *const FunctionEntry,
    /// Index of the next task. The leader's, as all that follow.
    next: u32,
    /// An answer that is not posted yet, or 0.
    owed: u64,
    function: LastFunction,
    queue: Led<'a, Exclusive, C>,
}

/// A task to be run: its function is registered, it has as many arguments as that takes, and its payload lies in a
/// buffer. [`Server::answer`] ends it.
#[derive(Debug)]
#[must_use = "a task that is not answered is given again"]
pub struct Task<'a> {
    header: Header,
    place: u32,
    slot: *const Word64,
    buffers: Buffers,
    _target: PhantomData<&'a Word64>,
}

impl Task<'_> {
    /// The number of its function.
    #[inline(always)]
    pub fn function(&self) -> Function {
        self.header.function()
    }

    /// Its value.
    #[inline(always)]
    pub fn value(&self) -> u32 {
        self.header.value()
    }

    /// How many arguments it has.
    #[inline(always)]
    pub fn arguments(&self) -> u32 {
        self.header.arguments()
    }

    /// An argument; 0 for one that it does not have. Loaded from the slot.
    #[inline(always)]
    pub fn argument(&self, number: u32) -> u64 {
        let there = (number < self.header.arguments()) & (number < MAX_ARGUMENTS as u32);
        match there {
            // Behind the payload's place, if it has one.
            true => load_item(self.slot, number as usize + usize::from(self.has_payload())),
            false => 0,
        }
    }

    /// Whether it came behind a payload.
    #[inline(always)]
    pub fn has_payload(&self) -> bool {
        self.header.has_payload()
    }

    /// The number of its slot in the lane. What a task answers with may lie in memory that each slot has for itself: its
    /// last result there has been read.
    #[inline(always)]
    pub fn slot(&self) -> u32 {
        self.place
    }

    /// The payload's first byte and its length in bytes; null and 0 without one.
    ///
    /// Whoever has the task may read and write these bytes until it is answered, if initiators write each byte of a
    /// buffer for one task at a time.
    #[inline(always)]
    pub fn payload(&self) -> (*mut u8, u32) {
        match self.payload_at() {
            (_, 0) => (core::ptr::null_mut(), 0),
            (address, bytes) => (
                core::ptr::with_exposed_provenance_mut(address as usize),
                bytes,
            ),
        }
    }

    /// The same, with the first byte's address; 0 and 0 without a payload.
    #[inline(always)]
    pub(super) fn payload_at(&self) -> (u64, u32) {
        if !self.has_payload() {
            return (0, 0);
        }
        let place = PayloadWord(load_item(self.slot, 0));
        // Once more: the slot is memory that the other end may write, though it should not.
        if self.buffers.check(place).is_err() {
            return (0, 0);
        }
        let entry = self.buffers.get(place.buffer());
        (entry.address + u64::from(place.offset()), place.length())
    }
}

impl<'a, C: Scope> Server<'a, C> {
    #[inline(always)]
    pub(super) fn open(
        end: End<'a>,
        functions: u32,
        function_entries: *const FunctionEntry,
    ) -> Result<Self, Error> {
        let mut server = Self {
            functions,
            function_entries,
            next: 0,
            owed: 0,
            function: LastFunction::none(),
            queue: Led::open(end.queue)?,
            end,
        };
        if C::leads() {
            // Behind the queue's claim, which acquires what the one before stored.
            server.next = load_relaxed64(end.state_word(NEXT), Reach::Gpu) as u32;
            server.owed = load_relaxed64(end.state_word(OWED), Reach::Gpu);
        }
        Ok(server)
    }

    /// The lane's next task, which all threads of the scope get; waits for one until the deadline. Its arguments and its
    /// payload may be read then. What is not registered is refused and answered here, and never given.
    ///
    /// # Errors
    /// [`Error::Timeout`]; the lane's queue has failed.
    #[inline(always)]
    pub fn next(&mut self, deadline: Deadline) -> Result<Task<'a>, Error> {
        let (mut found, mut word) = (Header(0), 0);
        if begin::<C>() {
            match self.find(deadline) {
                Ok(header) => found = header,
                Err(error) => word = error.to_bits(),
            }
        }
        // No header is 0.
        let header = Header(C::broadcast(found.0));
        // The leader's fence before the others' reading; a warp's shuffle orders no memory.
        C::sync();
        if header.0 == 0 {
            let word = C::broadcast(word);
            return Err(Error::from_bits(word).unwrap_or(Error::Timeout));
        }
        // A message's slot follows from its sequence number, too, which all have: there are at most 2^15 slots.
        let index = u32::from(header.sequence().wrapping_sub(1));
        Ok(Task {
            header,
            place: self.end.slot(index),
            slot: self.slot(index),
            buffers: self.end.buffers,
            _target: PhantomData,
        })
    }

    /// Whether the first word of the next task is there, by one load and nothing else; the leader's counts.
    #[inline(always)]
    pub(super) fn has_come(&self) -> bool {
        is_there(load(self.slot(self.next), 0), self.end.marks(self.next))
    }

    /// Ends a task: answers with a value, or with the code of a failure; the leader's counts. What all threads of the
    /// scope stored before comes before the answer; the task's slot and its payload are the initiator's again.
    ///
    /// # Errors
    /// [`Error::NotServed`] for a task of another server. [`Error::Timeout`] if the queue had no room until the deadline:
    /// the answer is kept then, and goes with the next call. The lane's queue has failed.
    #[inline(always)]
    pub fn answer(
        &mut self,
        task: Task<'a>,
        result: Result<u32, u32>,
        deadline: Deadline,
    ) -> Result<(), Error> {
        let mut done = Ok(0);
        if begin::<C>() {
            done = match self.serves(&task) {
                false => Err(Error::NotServed),
                true => {
                    let result = result.map_err(|code| Error::Task { code });
                    self.end_task(task.header, Answer::new(sequence(self.next), result));
                    self.post_answer(NO_RESULT, deadline).map(|()| 0)
                }
            };
        }
        finish::<C, _>(done).map(drop)
    }

    /// Ends a task with a value and with bytes of the target's registered memory, which go ahead of the answer under one
    /// doorbell: [`Lane::wait_reply`](super::Lane::wait_reply) gives both. The bytes must stay as they are until the
    /// slot's next task is there ([`Task::slot`]), whose message went once this answer was taken.
    ///
    /// # Errors
    /// As for [`answer`](Self::answer). [`Error::InvalidResult`] for no bytes, and for more than the lane has room for;
    /// the task is not ended then, and is given again.
    #[inline(always)]
    pub fn answer_with(
        &mut self,
        task: Task<'a>,
        value: u32,
        result: Local,
        deadline: Deadline,
    ) -> Result<(), Error> {
        let mut done = Ok(0);
        if begin::<C>() {
            let limit = self.end.max_result;
            // One comparison for "none" and "too many".
            done = if !self.serves(&task) {
                Err(Error::NotServed)
            } else if result.length.wrapping_sub(1) >= limit {
                Err(Error::InvalidResult { limit })
            } else {
                let answer = Answer::with_result(sequence(self.next), value, result.length);
                self.end_task(task.header, answer);
                self.post_answer(result, deadline).map(|()| 0)
            };
        }
        finish::<C, _>(done).map(drop)
    }

    /// Whether a task is the one that is to be answered.
    #[inline(always)]
    fn serves(&self, task: &Task<'a>) -> bool {
        (self.slot(self.next) == task.slot) & task.header.is_of(self.next)
    }

    #[inline(always)]
    fn find(&mut self, deadline: Deadline) -> Result<Header, Error> {
        self.settle(deadline)?;
        let mut wait = deadline.wait();
        let mut late = deadline == Deadline::PASSED;
        let mut marks = self.end.marks(self.next);
        loop {
            let slot = self.slot(self.next);
            // One load a look, because it may go across a bus. The others follow once it tells of them.
            let first = load(slot, 0);
            let header = read_first(first, self.next);
            let items = header.items();
            let (mut second, mut here) = (0, is_there(first, marks));
            if here & (items > 0) {
                second = load(slot, 1);
                here = is_there(second & load(slot, 2) & rest_of(slot, items), MARKS);
            }
            if here {
                let function = header.function();
                let (functions, entries) = (self.functions, self.function_entries);
                let load = || entry_of(functions, entries, function);
                let entry = self.function.get(function, load);
                // What is registered may be loaded before the fence: it does not change while kernels run.
                let checked = self.check(header, entry, PayloadWord(read_item(0, second, first)));
                // The header before the payload, because the NIC writes that first; and all words before they are loaded
                // again.
                fence_acquire(self.end.queue.reach());
                match checked {
                    Ok(()) => return Ok(header),
                    Err(refusal) => {
                        self.end_task(header, Answer::new(sequence(self.next), Err(refusal)));
                        marks = self.end.marks(self.next);
                        self.post_answer(NO_RESULT, deadline)?;
                    }
                }
            }
            // After a refusal, too: who sends nothing else must not keep the target here.
            if late {
                return Err(why_late(&mut self.queue));
            }
            late = wait.expired();
        }
    }

    /// Whether a message is a task of this target's: its function's entry, and where its payload is, if it has one.
    #[inline(always)]
    fn check(&self, header: Header, entry: u64, place: PayloadWord) -> Result<(), Error> {
        check_function(entry, header.function(), header.arguments())?;
        match header.has_payload() {
            true => self.end.buffers.check(place),
            false => Ok(()),
        }
    }

    /// Ends the task that is next, which all threads have read: its words are cleared, and its answer is owed.
    ///
    /// They are cleared before the answer goes, by rules 1 to 4 of the memory model, because the slot's next message, which
    /// may have them and may not, comes once the answer is taken. The first is told from the one before without that.
    #[inline(always)]
    fn end_task(&mut self, header: Header, answer: Answer) {
        let slot = self.slot(self.next);
        let items = header.items();
        // One by one: an array that is gone through would lie in a GPU's local memory.
        if items > 0 {
            clear(slot, 1);
            clear(slot, 2);
        }
        if items > 2 {
            clear(slot, 3);
            clear(slot, 4);
            clear(slot, 5);
        }
        if items > 4 {
            clear(slot, 6);
            clear(slot, 7);
        }
        self.owed = answer.0;
        self.next = self.next.wrapping_add(1);
    }

    /// Posts the answer that is owed, if one is.
    #[inline(always)]
    fn settle(&mut self, deadline: Deadline) -> Result<(), Error> {
        let owed = Answer(self.owed);
        if owed.0 == 0 {
            return Ok(());
        }
        let load = |word| load_relaxed64(self.end.state_word(word), Reach::Gpu);
        let result = Local {
            address: load(OWED_ADDRESS),
            length: owed.length(),
            key: LocalKey(load(OWED_KEY) as u32),
        };
        self.post_answer(result, deadline)
    }

    /// Posts the answer that is owed, behind its result if that has bytes, or leaves both owed.
    #[inline(always)]
    fn post_answer(&mut self, result: Local, deadline: Deadline) -> Result<(), Error> {
        let slot = self.owed_slot();
        let at = |offset: u64| Remote {
            address: self.end.remote_address + offset,
            key: RemoteKey(self.end.remote_key),
        };
        let (place, room) = (at(ANSWER * u64::from(slot)), at(self.end.result_at(slot)));
        let (owed, has_result) = (self.owed, result.length != 0);
        // Room for both or nothing. A batch for one write, too: see `Lane::post`.
        match self.queue.batch(1 + u32::from(has_result), deadline) {
            Ok(mut answer) => {
                if has_result {
                    let _ = answer.post(Wqe::write(result, room))?;
                }
                // Last: the NIC writes a word of 8 bytes behind what it wrote before.
                let _ = answer.post(Wqe::write_value(owed, place))?;
                drop(answer);
                self.owed = 0;
                Ok(())
            }
            Err(error) => {
                if has_result {
                    // Where the next call finds it, and the next server.
                    let store = |word, value| {
                        store_relaxed64(self.end.state_word(word), value, Reach::Gpu);
                    };
                    store(OWED_ADDRESS, result.address);
                    store(OWED_KEY, result.key.0.into());
                }
                Err(match Error::from(error) {
                    Error::Full => Error::Timeout,
                    error => error,
                })
            }
        }
    }

    /// The slot whose answer is owed.
    #[inline(always)]
    fn owed_slot(&self) -> u32 {
        let sequence = Answer(self.owed).sequence();
        self.end.slot(u32::from(sequence.wrapping_sub(1)))
    }

    #[inline(always)]
    fn slot(&self, index: u32) -> *const Word64 {
        let first = self.end.slot(index) as usize * SLOT_WORDS;
        // SAFETY: the lane has so many slots (the promise of `TargetHandle::new`).
        unsafe { self.end.words.add(first) }
    }
}

impl<C: Scope> Drop for Server<'_, C> {
    #[inline(always)]
    fn drop(&mut self) {
        if C::leads() {
            store_relaxed64(self.end.state_word(NEXT), self.next.into(), Reach::Gpu);
            store_relaxed64(self.end.state_word(OWED), self.owed, Reach::Gpu);
            // They come before the claim's end, because the queue, which is dropped behind this, releases them.
        }
    }
}

/// A word of a slot.
#[inline(always)]
fn word_of<'a>(slot: *const Word64, word: usize) -> &'a Word64 {
    debug_assert!(word < SLOT_WORDS);
    // SAFETY: a slot has so many words, and lives as long as the lane's handle, which whoever asks has (the promise of
    // `TargetHandle::new`).
    unsafe { &*slot.add(word) }
}

/// Loads it.
#[inline(always)]
fn load(slot: *const Word64, word: usize) -> u64 {
    load_relaxed64(word_of(slot, word), Reach::System)
}

/// Clears it.
#[inline(always)]
fn clear(slot: *const Word64, word: usize) {
    store_relaxed64(word_of(slot, word), 0, Reach::System);
}

/// Loads an item of a message that is there.
#[inline(always)]
fn load_item(slot: *const Word64, number: usize) -> u64 {
    let (word, tops) = (load(slot, item_word(number)), load(slot, top_word(number)));
    read_item(number, word, tops)
}

/// The marks that all words have which a message of so many items has behind the first three.
#[inline(always)]
fn rest_of(slot: *const Word64, items: u32) -> u64 {
    let mut marks = MARKS;
    if items > 2 {
        marks &= load(slot, 3) & load(slot, 4) & load(slot, 5);
    }
    if items > 4 {
        marks &= load(slot, 6) & load(slot, 7);
    }
    marks
}

/// The word of a function; 0 where there is none.
#[inline(always)]
fn entry_of(functions: u32, entries: *const FunctionEntry, function: Function) -> u64 {
    if function >= functions {
        return 0;
    }
    // SAFETY: there are so many entries (the promise of `TargetHandle::new`).
    unsafe { &*entries.add(function as usize) }.load()
}
