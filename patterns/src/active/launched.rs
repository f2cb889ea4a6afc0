//! A task that launches a kernel at the target.
//!
//! A *dispatcher* looks at the lanes: kernels of a graph that launches itself, or a thread of the host. What it finds it
//! copies into a *record*, and chooses the kernel that is registered for the task's function. That kernel reads the
//! record, of which it got the place when it was registered, and leaves its result there. A last kernel answers.
//!
//! The task itself stays in its lane until it is answered, and the server gives it again to whoever opens the lane next:
//! to the kernel that answers, or to the next dispatcher, if the task's kernel was not launched.

use core::marker::PhantomData;

use warpbell_gpu::arch::{Reach, Word64};

use super::error::Error;
use super::handle::TargetHandle;
use super::server::Task;
use super::words::MAX_ARGUMENTS;
use super::{Function, Server};
use crate::words::{load_relaxed64, store_relaxed64};
use warpbell::{Choice, Deadline, Stop, Thread};

/// Words of a record.
pub const RECORD_WORDS: usize = 16;

/// The lane; function above the value; the payload's address and its bytes; what the task answers with; the arguments.
const LANE: usize = 0;
const FUNCTION: usize = 1;
const PAYLOAD: usize = 2;
const BYTES: usize = 3;
const RESULT: usize = 4;
const ARGUMENTS: usize = 5;

const _: () = assert!(ARGUMENTS + MAX_ARGUMENTS <= RECORD_WORDS);

/// Set in a result that is the code of a failure.
const FAILED: u64 = 1 << 32;

/// How long a dispatcher looks for the first word of a task alone, until it looks at everything else again: an answer
/// that is owed, a queue that has failed, the word that stops it. That word may lie across a bus.
const LOOK_MS: u64 = 1;

/// The task that launches a kernel, for the dispatcher and for that kernel. `repr(C)`, 16 bytes: the host hands it over
/// by value.
///
/// A dispatcher's kernels, and one that a task launches:
///
/// ```
/// use warpbell_patterns::active::{Error, LaunchedTask, TargetHandle};
/// use warpbell::{Deadline, Stop, block, thread};
///
/// /// The round: thread n looks at lane n, and the kernel ends once one of them has found a task.
/// fn look(task: LaunchedTask<'_>, target: TargetHandle<'_>, stop: Stop<'_>) -> Result<(), Error> {
///     match thread::index() < target.lanes() {
///         true => task.find(thread::index(), target, stop, Deadline::after_ms(5000)),
///         false => Ok(()),
///     }
/// }
///
/// /// Registered under a number, with a grid of any size.
/// fn add(task: LaunchedTask<'_>) {
///     if thread::index() == 0 {
///         task.set_result(Ok((task.argument(0) + task.argument(1)) as u32));
///     }
/// }
///
/// /// Behind each such kernel, one thread.
/// fn answer(task: LaunchedTask<'_>, target: TargetHandle<'_>) -> Result<(), Error> {
///     task.answer(target, Deadline::after_ms(100))
/// }
/// ```
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LaunchedTask<'a> {
    choice: Choice<'a>,
    record: *const Word64,
    _record: PhantomData<&'a Word64>,
}

const _: () = assert!(size_of::<LaunchedTask>() == 16);

// SAFETY: a choice, and the address of words that every thread of a grid may read and write as atomics (the promise of
// `new`).
unsafe impl Send for LaunchedTask<'_> {}
// SAFETY: as for `Send`.
unsafe impl Sync for LaunchedTask<'_> {}

impl<'a> LaunchedTask<'a> {
    /// A task in this record, that launches the branch of its function's number.
    ///
    /// # Safety
    /// For the lifetime `'a` the record has [`RECORD_WORDS`] words that are there for every thread that gets the task,
    /// aligned to 8 bytes, and launched tasks alone touch them. On a GPU they are in global memory.
    pub const unsafe fn new(choice: Choice<'a>, record: *const Word64) -> Self {
        Self {
            choice,
            record,
            _record: PhantomData,
        }
    }

    /// The number of its lane.
    #[inline(always)]
    pub fn lane(self) -> u32 {
        self.load(LANE) as u32
    }

    /// The number of its function.
    #[inline(always)]
    pub fn function(self) -> Function {
        (self.load(FUNCTION) >> 32) as Function
    }

    /// Its value.
    #[inline(always)]
    pub fn value(self) -> u32 {
        self.load(FUNCTION) as u32
    }

    /// An argument; 0 for one that it does not have.
    #[inline(always)]
    pub fn argument(self, number: u32) -> u64 {
        match number < MAX_ARGUMENTS as u32 {
            true => self.load(ARGUMENTS + number as usize),
            false => 0,
        }
    }

    /// The payload's first byte and its length in bytes; null and 0 without one. As for [`Task::payload`], the kernel may
    /// read and write these bytes.
    #[inline(always)]
    pub fn payload(self) -> (*mut u8, u32) {
        match self.load(BYTES) as u32 {
            0 => (core::ptr::null_mut(), 0),
            bytes => {
                let address = self.load(PAYLOAD) as usize;
                (core::ptr::with_exposed_provenance_mut(address), bytes)
            }
        }
    }

    /// Says what the task answers with: a value, or the code of a failure. One thread of the kernel does so; of several
    /// the last one counts. A task whose kernel says nothing answers with 0.
    #[inline(always)]
    pub fn set_result(self, result: Result<u32, u32>) {
        let word = match result {
            Ok(value) => value.into(),
            Err(code) => FAILED | u64::from(code),
        };
        self.store(RESULT, word);
    }

    /// The dispatcher's look at a lane, by one thread: copies the next task into the record, and chooses the branch of its
    /// function's number. What is not registered is refused and answered here.
    ///
    /// Returns once this thread, or another one with the same choice, has chosen, and once `stop` asks for the end.
    /// Exactly one of these threads fills the record.
    ///
    /// # Errors
    /// [`Error::Timeout`] if no task came until the deadline; those of [`TargetHandle::serve`]; the lane's queue has
    /// failed. Other threads go on looking.
    #[inline(always)]
    pub fn find(
        self,
        lane: u32,
        target: TargetHandle<'_>,
        stop: Stop<'_>,
        deadline: Deadline,
    ) -> Result<(), Error> {
        let mut server = target.serve::<Thread>(lane)?;
        let mut wait = deadline.wait();
        loop {
            match server.next(Deadline::PASSED) {
                Ok(task) => {
                    // If another thread was faster, the task stays in its lane.
                    if self.choice.choose(task.function()) {
                        self.fill(lane, &task);
                    }
                    return Ok(());
                }
                Err(Error::Timeout) => {}
                Err(error) => return Err(error),
            }
            if self.choice.is_made() || stop.requested() {
                return Ok(());
            }
            if wait.expired() {
                return Err(Error::Timeout);
            }
            self.await_first_word(&server);
        }
    }

    /// Looks for a task's first word for a while, or until another thread has chosen.
    #[inline(always)]
    fn await_first_word(self, server: &Server<'_, Thread>) {
        let mut look = Deadline::after_ms(LOOK_MS).wait();
        while !server.has_come() && !self.choice.is_made() && !look.expired() {}
    }

    /// Copies a task into the record. The kernels that read it are launched behind the one that stores it.
    #[inline(always)]
    fn fill(self, lane: u32, task: &Task<'_>) {
        self.store(LANE, lane.into());
        let function = u64::from(task.function()) << 32;
        self.store(FUNCTION, function | u64::from(task.value()));
        let (address, bytes) = task.payload_at();
        self.store(PAYLOAD, address);
        self.store(BYTES, bytes.into());
        self.store(RESULT, 0);
        let mut number = 0;
        while number < MAX_ARGUMENTS {
            self.store(ARGUMENTS + number, task.argument(number as u32));
            number += 1;
        }
    }

    /// Answers the task with what its kernel has set, by one thread, once that kernel has ended. An answer for which the
    /// queue has no room until the deadline goes with the next look at the lane.
    ///
    /// # Errors
    /// Those of [`TargetHandle::serve`]; [`Error::NotServed`] if the lane has no such task; the lane's queue has failed.
    #[inline(always)]
    pub fn answer(self, target: TargetHandle<'_>, deadline: Deadline) -> Result<(), Error> {
        let mut server = target.serve::<Thread>(self.lane())?;
        // It was not answered, so that it is given again.
        let task = match server.next(Deadline::PASSED) {
            Err(Error::Timeout) => return Err(Error::NotServed),
            given => given?,
        };
        let word = self.load(RESULT);
        let result = match word & FAILED {
            0 => Ok(word as u32),
            _ => Err(word as u32),
        };
        match server.answer(task, result, deadline) {
            Err(Error::Timeout) => Ok(()),
            answered => answered,
        }
    }

    #[inline(always)]
    fn word(self, word: usize) -> &'a Word64 {
        debug_assert!(word < RECORD_WORDS);
        // SAFETY: `new` was promised so many words.
        unsafe { &*self.record.add(word) }
    }

    #[inline(always)]
    fn load(self, word: usize) -> u64 {
        load_relaxed64(self.word(word), Reach::Gpu)
    }

    #[inline(always)]
    fn store(self, word: usize, value: u64) {
        store_relaxed64(self.word(word), value, Reach::Gpu);
    }
}
