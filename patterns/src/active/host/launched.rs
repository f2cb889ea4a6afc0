//! Kernels that tasks launch at their target, and the record between them and the dispatcher.

use std::collections::BTreeMap;

use crate::active::{Function, LaunchedTask, RECORD_WORDS};
use warpbell_host_init::choice::ChoiceWord;
use warpbell_host_init::{Buffer, Launch, Placement};

use super::ActiveError;
use crate::Error;

/// Where a dispatcher puts a task for the kernel that it launches: the [`LaunchedTask`] of both.
#[derive(Debug)]
pub struct TaskRecord {
    choice: ChoiceWord,
    words: Buffer,
}

impl TaskRecord {
    /// A record without a task. A dispatcher on a GPU has it best in the GPU's own memory
    /// ([`Placement::of_states`]); a thread of the host as dispatcher needs it where it reaches it.
    ///
    /// # Errors
    /// Those of [`Buffer::placed`].
    pub fn new(placement: Placement) -> Result<Self, Error> {
        Ok(Self {
            choice: ChoiceWord::new(placement)?,
            words: Buffer::placed(placement, 8 * RECORD_WORDS)?,
        })
    }

    /// The word by which the dispatcher chooses, for [`Branches`](warpbell_host_init::choice::Branches).
    pub fn word(&self) -> &ChoiceWord {
        &self.choice
    }

    /// What the kernels get.
    pub fn task(&self) -> LaunchedTask<'_> {
        // SAFETY: the buffer has so many words, is aligned more strictly, and nobody else gets to it.
        unsafe { LaunchedTask::new(self.choice.choice(), self.words.as_ptr().cast()) }
    }
}

/// The kernels that tasks launch at a target, each by the number of its function.
///
/// ```
/// use std::time::Duration;
///
/// use warpbell::{Deadline, Stop, Thread, kernel, thread};
/// use warpbell_host_init::choice::Branches;
/// use warpbell_host_init::{Grid, Launch, Node, StopWord, entry};
/// use warpbell_patterns::Error;
/// use warpbell_patterns::active::host::{ActiveConfig, ActiveMessages, TaskKernels, TaskRecord};
/// use warpbell_patterns::active::{InitiatorHandle, LaunchedTask, TargetHandle};
///
/// const ADD: u32 = 3;
/// const LIMIT: Deadline = Deadline::after_ms(10_000);
///
/// /// Of the initiator.
/// #[kernel]
/// fn ask(initiator: InitiatorHandle<'_>) {
///     let mut lane = initiator.lane::<Thread>(0).expect("a lane");
///     let sent = lane.send(ADD, 0, [40, 2], LIMIT).expect("room");
///     assert_eq!(lane.wait(sent, LIMIT), Ok(42));
/// }
///
/// /// What the dispatcher's kernels get.
/// #[repr(C)]
/// #[derive(Clone, Copy)]
/// struct Dispatch<'a> {
///     task: LaunchedTask<'a>,
///     target: TargetHandle<'a>,
///     stop: Stop<'a>,
/// }
///
/// /// The round: looks for a task.
/// #[kernel]
/// fn look(p: Dispatch<'_>) {
///     p.task.find(0, p.target, p.stop, LIMIT).expect("a task");
/// }
///
/// /// Behind each kernel that a task has launched: answers.
/// #[kernel]
/// fn answer(p: Dispatch<'_>) {
///     p.task.answer(p.target, LIMIT).expect("a task");
///     p.stop.request(); // One task is all.
/// }
///
/// #[kernel]
/// fn add(task: LaunchedTask<'_>) {
///     if thread::index() == 0 {
///         task.set_result(Ok((task.argument(0) + task.argument(1)) as u32));
///     }
/// }
///
/// fn main() -> Result<(), Error> {
///     let node = Node::cpu();
///     let [near, far] = node.ends()?;
///     let mut active = ActiveMessages::new(&near, &far, &ActiveConfig::default())?;
///     let record = TaskRecord::new(node.placement().of_states())?;
///     let mut kernels = TaskKernels::new();
///     active.register(ADD, 2)?;
///     kernels.register(ADD, Launch::new(entry!(add), Grid::new(2, 32), record.task()))?;
///
///     let stop = StopWord::new(node.placement())?;
///     let (task, target) = (record.task(), active.target());
///     let dispatch = Dispatch { task, target, stop: stop.stop() };
///     let launches = kernels.branches(active.functions(), || {
///         Launch::new(entry!(answer), Grid::ONE_THREAD, dispatch)
///     })?;
///     let branches = Branches { word: record.word(), launches: &launches };
///     let look = Launch::new(entry!(look), Grid::ONE_THREAD, dispatch);
///     let ask = Launch::new(entry!(ask), Grid::ONE_THREAD, active.initiator());
///     Ok(node.run_choosing(&[look], &branches, &stop, &[ask], &[], Duration::ZERO)?)
/// }
/// ```
#[derive(Debug, Default)]
pub struct TaskKernels<'k>(BTreeMap<Function, Launch<'k>>);

impl<'k> TaskKernels<'k> {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers the kernel that a task of this function launches, with its grid and its parameters, which are the same
    /// each time. The function itself is registered where the lanes are ([`ActiveMessages::register`]).
    ///
    /// # Errors
    /// [`ActiveError::FunctionExists`] for a function that has a kernel.
    ///
    /// [`ActiveMessages::register`]: super::ActiveMessages::register
    pub fn register(&mut self, function: Function, kernel: Launch<'k>) -> Result<(), Error> {
        if self.0.contains_key(&function) {
            return Err(ActiveError::FunctionExists { function }.into());
        }
        self.0.insert(function, kernel);
        Ok(())
    }

    /// Branches for [`Node::run_choosing`](warpbell_host_init::Node::run_choosing), at the functions' numbers: each
    /// kernel, and behind it the one that answers ([`LaunchedTask::answer`]).
    ///
    /// # Errors
    /// [`ActiveError::NoKernel`] for a function among those registered that has none: a task of it would never be
    /// answered.
    pub fn branches(
        self,
        registered: impl IntoIterator<Item = Function>,
        answer: impl Fn() -> Launch<'k>,
    ) -> Result<Vec<Vec<Launch<'k>>>, Error> {
        for function in registered {
            if !self.0.contains_key(&function) {
                return Err(ActiveError::NoKernel { function }.into());
            }
        }
        let mut branches = Vec::new();
        for (function, kernel) in self.0 {
            branches.resize_with(function as usize, Vec::new);
            branches.push(vec![kernel, answer()]);
        }
        Ok(branches)
    }
}
