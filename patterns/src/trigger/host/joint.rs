//! Tables of tags under which the host registers operations while kernels trigger them.

use warpbell::wqe::Wqe;
use warpbell::{Deadline, FenceReach, QueueState, SendParts, SendQueueHandle};
use warpbell_host_init::{Buffer, Error as StartError, Placement, QueuePair};

use super::{TriggerError, check, home_of};
use crate::Error;
use crate::trigger::{Counter, Error as Refused, JointHandle, JointTag, Ringer, Tag, TagQueue};

/// Bytes of a tag's words, and of its queue's description.
const WORDS: usize = size_of::<JointTag>();
const QUEUE: usize = size_of::<TagQueue<'_>>();

/// Tags with a queue pair each, under which the host registers operations at any time: before their triggers, behind them,
/// or while they come. Whoever is last rings, the host or a trigger.
///
/// The tags' words lie in memory that host and kernels reach, pinned for a GPU's kernels, and so do the queues. Any thread
/// of the host may register; one at a time under one tag.
///
/// ```
/// use std::thread;
///
/// use warpbell::wqe::Wqe;
/// use warpbell::{Deadline, Thread};
/// use warpbell_host_init::soft::SoftOptions;
/// use warpbell_host_init::{Access, Buffer, Device, Nic, QueuePairConfig, connect};
/// use warpbell_patterns::Error;
/// use warpbell_patterns::trigger::host::JointTriggers;
///
/// fn main() -> Result<(), Error> {
///     let device = Device::open(Nic::Soft(SoftOptions::default()))?;
///     let domain = device.protection_domain()?;
///     let source = domain.register(Buffer::new(64)?, Access::LOCAL_WRITE)?;
///     let target =
///         domain.register(Buffer::new(64)?, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
///     let config = QueuePairConfig {
///         send_depth: 4,
///         receive_depth: 0,
///         ..QueuePairConfig::granting(Access::REMOTE_WRITE)
///     };
///     let (mut near, mut far) = (domain.queue_pair(&config)?, domain.queue_pair(&config)?);
///     connect(&mut near, &mut far)?;
///
///     let triggers = JointTriggers::new(vec![near])?;
///     let limit = Deadline::after_ms(5000);
///     thread::scope(|scope| {
///         // What a kernel does, while the host goes on:
///         let handle = triggers.handle().open().expect("a good handle");
///         scope.spawn(move || {
///             let ticket = handle.trigger::<Thread>(0).expect("a tag");
///             handle.wait(ticket, limit).expect("a write that is done");
///         });
///         let write = Wqe::write(source.local(0, 64)?, target.remote().at(0, 64)?);
///         triggers.register(0, 1, [write], limit)?;
///         triggers.wait(0, limit)
///     })
/// }
/// ```
pub struct JointTriggers {
    pairs: Vec<QueuePair>,
    /// What host and kernels say of each tag.
    words: Buffer,
    /// What kernels know of each queue: in their own memory.
    queues: Buffer,
    /// The host's own state of each queue, because a GPU's kernels have theirs in the GPU's memory.
    states: Vec<QueueState>,
}

impl JointTriggers {
    /// Makes a tag of each queue pair, as [`Triggers::new`](super::Triggers::new) does. The queue pairs, and their
    /// doorbells, lie in memory that the host reaches:
    /// [`placement`](warpbell_host_init::QueuePairConfig::placement) is pinned for a GPU's kernels. A NIC that is a kernel
    /// has to reach such memory.
    ///
    /// # Errors
    /// As there; [`OutOfReach`](warpbell_host_init::Error::OutOfReach) for queue pairs that the host does not reach;
    /// [`TriggerError::KernelsDoorbell`] for a card's doorbell that is a GPU's kernels' to ring;
    /// [`TriggerError::Refused`] for queue pairs that others start.
    pub fn new(pairs: Vec<QueuePair>) -> Result<Self, Error> {
        let home = home_of(&pairs)?;
        // Where the host reaches it, too.
        let common = match home {
            Placement::Gpu(gpu) => Placement::Pinned(gpu),
            other => other,
        };
        let tags = pairs.len();
        let triggers = Self {
            words: Buffer::placed(common, tags * WORDS)?,
            queues: Buffer::placed(home, tags * QUEUE)?,
            states: pairs.iter().map(|_| QueueState::new()).collect(),
            pairs,
        };
        for tag in 0..triggers.tags() {
            triggers.describe(tag)?;
        }
        Ok(triggers)
    }

    /// How many tags there are.
    pub fn tags(&self) -> u32 {
        self.pairs.len() as u32
    }

    /// What kernels get. It borrows the table, which therefore outlives them.
    pub fn handle(&self) -> JointHandle<'_> {
        // SAFETY: the buffers have so many tags and queues, described by `describe`, and live as long. The queues are
        // `self`'s, who uses them by the calls of a tag alone. Every handle is for the processor whose memory it is.
        unsafe {
            JointHandle::new(
                self.words.as_ptr().cast(),
                self.queues.as_ptr().cast(),
                self.tags(),
            )
            .on(self.queues.placement().processor())
        }
    }

    /// Registers an operation under a tag, once the one before is done: the WQEs, under one doorbell, once the tag was
    /// triggered `threshold` times. Triggers that came before count. Gives who rings.
    ///
    /// # Errors
    /// [`TriggerError::NoSuchTag`]; [`TriggerError::Refused`] with what kernels would be refused, too, with
    /// [`Closed`](Refused::Closed) behind [`close`](Self::close), with [`InUse`](Refused::InUse) while another thread
    /// registers under the tag. Nothing is registered then. With [`Unsettled`](Refused::Unsettled) the operation is
    /// registered, and [`settle`](Self::settle) is due.
    pub fn register<const N: usize>(
        &self,
        tag: Tag,
        threshold: u32,
        wqes: [Wqe<1>; N],
        deadline: Deadline,
    ) -> Result<Ringer, Error> {
        let (words, queue) = self.tag(tag)?;
        // SAFETY: `new` has checked the queue pair and its memory; the state is the host's own.
        let registered = unsafe { words.register(&queue, threshold, wqes, deadline) };
        registered.map_err(|error| TriggerError::Refused { tag, error }.into())
    }

    /// Settles who rings for a tag's newest operation, if [`register`](Self::register) could not: threads that trigger were
    /// between their addition and their look until its deadline, or one was stopped there.
    ///
    /// # Errors
    /// As for [`register`](Self::register); [`TriggerError::Refused`] with [`NotRegistered`](Refused::NotRegistered).
    pub fn settle(&self, tag: Tag, deadline: Deadline) -> Result<Ringer, Error> {
        let (words, queue) = self.tag(tag)?;
        // SAFETY: as in `register`.
        let settled = unsafe { words.settle(&queue, deadline) };
        settled.map_err(|error| TriggerError::Refused { tag, error }.into())
    }

    /// Waits until a tag's newest operation is done.
    ///
    /// # Errors
    /// [`TriggerError::NoSuchTag`]; [`TriggerError::Refused`] with [`NotRegistered`](Refused::NotRegistered), with
    /// [`Untriggered`](Refused::Untriggered) or [`Timeout`](Refused::Timeout) at the deadline, with
    /// [`Failed`](Refused::Failed).
    pub fn wait(&self, tag: Tag, deadline: Deadline) -> Result<(), Error> {
        let (words, queue) = self.tag(tag)?;
        // SAFETY: as in `register`.
        let waited = unsafe { words.await_newest(&queue, deadline) };
        waited.map_err(|error| TriggerError::Refused { tag, error }.into())
    }

    /// Says that the host registers nothing more under a tag, until that is renewed: kernels do not wait for it then.
    ///
    /// # Errors
    /// [`TriggerError::NoSuchTag`]; [`TriggerError::Refused`] with [`InUse`](Refused::InUse), or with
    /// [`Unsettled`](Refused::Unsettled) while [`settle`](Self::settle) is due.
    pub fn close(&self, tag: Tag) -> Result<(), Error> {
        let closed = self.tag(tag)?.0.close();
        closed.map_err(|error| TriggerError::Refused { tag, error }.into())
    }

    /// A tag's counter and threshold, as they are now.
    ///
    /// # Errors
    /// [`TriggerError::NoSuchTag`].
    pub fn counter(&self, tag: Tag) -> Result<Counter, Error> {
        Ok(self.tag(tag)?.0.counter())
    }

    /// Makes a tag usable after an error or after [`close`](Self::close), as [`Triggers::renew`](super::Triggers::renew)
    /// does. Triggers that came are forgotten.
    ///
    /// # Errors
    /// [`TriggerError::NoSuchTag`]; what `connect_again` gives; a queue pair that is not as [`new`](Self::new) wants it.
    pub fn renew(
        &mut self,
        tag: Tag,
        connect_again: impl FnOnce(&mut QueuePair) -> Result<(), StartError>,
    ) -> Result<(), Error> {
        let tags = self.tags();
        let pair = self.pairs.get_mut(tag as usize);
        connect_again(pair.ok_or(TriggerError::NoSuchTag { tag, tags })?)?;
        self.states[tag as usize] = QueueState::new();
        self.describe(tag)
    }

    /// The queue pairs, in the order of their tags: for a [`Watch`](warpbell_host_init::cuda::Watch) over kernels.
    pub fn queue_pairs(&self) -> impl Iterator<Item = &QueuePair> {
        self.pairs.iter()
    }

    /// A tag, with its queue as the host has it.
    fn tag(&self, tag: Tag) -> Result<(&JointTag, SendQueueHandle<'_>), Error> {
        let (number, tags) = (tag as usize, self.tags());
        let pair = self.pairs.get(number);
        let pair = pair.ok_or(TriggerError::NoSuchTag { tag, tags })?;
        let parts = SendParts {
            state: &self.states[number],
            reach: FenceReach::System,
            ..pair.send_parts()
        };
        // SAFETY: there are so many, in memory that the host reaches, and aligned to pages; fresh ones are 0. The parts are
        // those of the queue pair, and of a state that lives as long.
        unsafe {
            let words = &*self.words.as_ptr().cast::<JointTag>().add(number);
            Ok((words, SendQueueHandle::new(parts)))
        }
    }

    /// Writes a tag that nobody has triggered, and its queue.
    fn describe(&self, tag: Tag) -> Result<(), Error> {
        let number = tag as usize;
        let pair = &self.pairs[number];
        check(tag, pair)?;
        let refused = |error| Error::from(TriggerError::Refused { tag, error });
        if pair.is_managed() {
            return Err(refused(Refused::Managed));
        }
        pair.require_in_host_memory("the queue of operations that the host registers at any time")?;
        // A GPU's driver maps the register for kernels, at an address of theirs.
        if pair.has_register() && self.queues.placement() != Placement::Host {
            return Err(TriggerError::KernelsDoorbell { tag }.into());
        }
        let words = TagQueue::new(pair.held_queue()?).to_words();
        let bytes = words.map(u64::to_le_bytes);
        self.queues.write(number * QUEUE, bytes.as_flattened())?;
        Ok(self.words.write(number * WORDS, &[0; WORDS])?)
    }
}
