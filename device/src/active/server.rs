//! The target's end of a lane.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;

use mlx5_wqe::{Remote, RemoteKey, Wqe};

use super::Function;
use super::error::Error;
use super::handle::End;
use super::lane::why_late;
use super::table::{Buffers, FunctionEntry, check_function};
use super::words::{
    ANSWER, Answer, FIRST_ARGUMENT, Header, MAX_ARGUMENTS, PAYLOAD_WORD, PayloadWord, SLOT_WORDS,
    sequence,
};
use crate::arch::{Reach, Word64, fence_acquire, load_relaxed64, store_relaxed64};
use crate::together::{begin, finish};
use crate::{Deadline, Exclusive, Scope, SendQueue, Thread};

/// Words of a lane's state at the target: index of the next task, and an answer that found no room in the queue.
const NEXT: usize = 0;
const OWED: usize = 1;

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
    /// Open at the leader, a follower at the scope's other threads.
    queue: ManuallyDrop<SendQueue<'a, Exclusive, Thread>>,
    _scope: PhantomData<C>,
}

/// A task to be run: its function is registered, it has as many arguments as that takes, and its payload lies in a
/// buffer. [`Server::answer`] ends it.
#[derive(Debug)]
#[must_use = "a task that is not answered is given again"]
pub struct Task<'a> {
    header: Header,
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
            true => self.word(FIRST_ARGUMENT + number as usize),
            false => 0,
        }
    }

    /// Whether it came behind a payload.
    #[inline(always)]
    pub fn has_payload(&self) -> bool {
        self.header.has_payload()
    }

    /// The payload's first byte and its length in bytes; null and 0 without one.
    ///
    /// Whoever has the task may read and write these bytes until it is answered, if initiators write each byte of a
    /// buffer for one task at a time.
    #[inline(always)]
    pub fn payload(&self) -> (*mut u8, u32) {
        if !self.has_payload() {
            return (core::ptr::null_mut(), 0);
        }
        let place = PayloadWord(self.word(PAYLOAD_WORD));
        // Once more: the slot is memory that the other end may write, though it should not.
        if self.buffers.check(place).is_err() {
            return (core::ptr::null_mut(), 0);
        }
        let entry = self.buffers.get(place.buffer());
        let address = entry.address as usize + place.offset() as usize;
        (
            core::ptr::with_exposed_provenance_mut(address),
            place.length(),
        )
    }

    #[inline(always)]
    fn word(&self, word: usize) -> u64 {
        debug_assert!(word < SLOT_WORDS);
        // SAFETY: a slot has so many words.
        let word = unsafe { &*self.slot.add(word) };
        load_relaxed64(word, Reach::System)
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
            queue: SendQueue::follower(end.queue),
            _scope: PhantomData,
            end,
        };
        let mut word = 0;
        if C::leads() {
            match end.queue.open::<Exclusive, Thread>() {
                Ok(queue) => {
                    server.queue = ManuallyDrop::new(queue);
                    // Behind the queue's claim, which acquires what the one before stored.
                    server.next = load_relaxed64(end.state_word(NEXT), Reach::Gpu) as u32;
                    server.owed = load_relaxed64(end.state_word(OWED), Reach::Gpu);
                }
                Err(error) => word = Error::from(error).to_bits(),
            }
        }
        match Error::from_bits(C::broadcast(word)) {
            // The leader's queue is not open, as the others' are not.
            Some(error) => {
                core::mem::forget(server);
                Err(error)
            }
            None => Ok(server),
        }
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
            slot: self.slot(index),
            buffers: self.end.buffers,
            _target: PhantomData,
        })
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
            let ours = self.slot(self.next) == task.slot;
            done = match ours & task.header.is_of(self.next) {
                false => Err(Error::NotServed),
                true => {
                    let result = result.map_err(|code| Error::Task { code });
                    self.end_task(result);
                    self.settle(deadline).map(|()| 0)
                }
            };
        }
        finish::<C, _>(done).map(drop)
    }

    #[inline(always)]
    fn find(&mut self, deadline: Deadline) -> Result<Header, Error> {
        self.settle(deadline)?;
        let mut wait = deadline.wait();
        let mut late = deadline == Deadline::PASSED;
        loop {
            let header = self.header();
            if header.is_of(self.next) {
                let function = header.function();
                let entry = self.function(function);
                // The header before the rest of the slot and the payload, because the NIC writes those first. The
                // entry of the function may be loaded before.
                fence_acquire(self.end.queue.reach());
                match self.check(header, entry) {
                    Ok(()) => return Ok(header),
                    Err(refusal) => {
                        self.end_task(Err(refusal));
                        self.settle(deadline)?;
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

    /// Whether a message is a task of this target's.
    #[inline(always)]
    fn check(&self, header: Header, entry: u64) -> Result<(), Error> {
        check_function(entry, header.function(), header.arguments())?;
        if header.has_payload() {
            // SAFETY: as in `Task::word`.
            let word = unsafe { &*self.slot(self.next).add(PAYLOAD_WORD) };
            let place = PayloadWord(load_relaxed64(word, Reach::System));
            self.end.buffers.check(place)?;
        }
        Ok(())
    }

    /// The word of a function; 0 where there is none.
    #[inline(always)]
    fn function(&self, function: Function) -> u64 {
        if function >= self.functions {
            return 0;
        }
        // SAFETY: there are so many entries (the promise of `TargetHandle::new`).
        unsafe { &*self.function_entries.add(function as usize) }.load()
    }

    /// Ends the task that is next: its answer is owed.
    #[inline(always)]
    fn end_task(&mut self, result: Result<u32, Error>) {
        self.owed = Answer::new(sequence(self.next), result).0;
        self.next = self.next.wrapping_add(1);
    }

    /// Posts the answer that is owed, if one is.
    #[inline(always)]
    fn settle(&mut self, deadline: Deadline) -> Result<(), Error> {
        if self.owed == 0 {
            return Ok(());
        }
        let sequence = Answer(self.owed).sequence();
        let slot = self.end.slot(u32::from(sequence.wrapping_sub(1)));
        let place = Remote {
            address: self.end.remote_address + ANSWER * u64::from(slot),
            key: RemoteKey(self.end.remote_key),
        };
        // A batch for one write: see `Lane::post`.
        match self.queue.batch(1, deadline) {
            Ok(mut answer) => {
                let _ = answer.post(Wqe::write_value(self.owed, place))?;
                drop(answer);
                self.owed = 0;
                Ok(())
            }
            Err(error) => Err(match Error::from(error) {
                Error::Full => Error::Timeout,
                error => error,
            }),
        }
    }

    /// The first word of the next task's slot.
    #[inline(always)]
    fn header(&self) -> Header {
        // SAFETY: a slot begins with it.
        let word = unsafe { &*self.slot(self.next) };
        Header(load_relaxed64(word, Reach::System))
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
            // The words before the claim's end, which the queue releases.
            // SAFETY: open, and dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.queue) };
        }
    }
}
