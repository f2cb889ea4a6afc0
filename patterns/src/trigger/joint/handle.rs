//! What a kernel receives, and its calls.

use core::marker::PhantomData;

use super::tag::JointTag;
use crate::together::{begin, finish};
use crate::trigger::queue::TagQueue;
use crate::trigger::{Counter, Error, Tag};
use warpbell::processor::Processor;
use warpbell::{ABI_VERSION, Deadline, Scope, SendQueueHandle};

/// "WBTJ", as it reads in memory on a little-endian machine.
const MAGIC: u32 = u32::from_le_bytes(*b"WBTJ");

/// A table of tags under which the host registers while kernels run. `repr(C)`, 32 bytes: the host hands it over by
/// value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct JointHandle<'a> {
    magic: u32,
    version: u16,
    size: u16,
    tags: u32,
    processor: Processor,
    words: *const JointTag,
    queues: *const TagQueue<'a>,
    _lifetime: PhantomData<&'a JointTag>,
}

const _: () = {
    assert!(size_of::<JointHandle>() == 32);
    assert!(core::mem::offset_of!(JointHandle, tags) == 8);
    assert!(core::mem::offset_of!(JointHandle, words) == 16);
    assert!(core::mem::offset_of!(JointHandle, queues) == 24);
};

// SAFETY: it names a table that every thread of a grid may use (the promise of `new`).
unsafe impl Send for JointHandle<'_> {}
// SAFETY: as for `Send`; the handle is never written.
unsafe impl Sync for JointHandle<'_> {}

impl<'a> JointHandle<'a> {
    /// Makes the handle of a table.
    ///
    /// # Safety
    /// For the lifetime `'a` there are `tags` tags from `words` on, in memory that the host and the threads that get the
    /// handle reach, and as many queues from `queues` on, which live as long. [`check`](SendQueueHandle::check) accepts
    /// them. They lie in memory that the host reaches, and fences reach beyond a GPU. Their completions are rings of as
    /// many entries as they have blocks. These threads have atomics in common. Nothing but their calls, and the host's
    /// [`register`](JointTag::register) and its like, touches tags and queues, which were unused when the tags were fresh.
    pub const unsafe fn new(
        words: *const JointTag,
        queues: *const TagQueue<'a>,
        tags: u32,
    ) -> Self {
        Self {
            magic: MAGIC,
            version: ABI_VERSION,
            size: size_of::<Self>() as u16,
            tags,
            processor: Processor::UNKNOWN,
            words,
            queues,
            _lifetime: PhantomData,
        }
    }

    /// The handle for threads of one processor: elsewhere `open` refuses it.
    ///
    /// # Safety
    /// No thread of another processor triggers tags of the table at the same time.
    pub const unsafe fn on(self, processor: Processor) -> Self {
        Self { processor, ..self }
    }

    /// Checks magic, version, size and processor, and gives the calls.
    ///
    /// # Errors
    /// [`Error::Handle`], [`Error::Elsewhere`].
    #[inline(always)]
    pub fn open(self) -> Result<JointTriggers<'a>, Error> {
        let good = self.magic == MAGIC
            && self.version == ABI_VERSION
            && self.size as usize == size_of::<Self>();
        if !good {
            return Err(Error::Handle);
        }
        if !self.processor.admits(Processor::here()) {
            return Err(Error::Elsewhere);
        }
        Ok(JointTriggers { table: self })
    }
}

/// A trigger of a thread, a warp or a block (scope `C`), and the operation that takes it: [`JointTriggers::trigger`].
#[derive(Clone, Copy, Debug)]
pub struct JointTicket<C: Scope> {
    tag: Tag,
    /// The trigger's, as the scope's leader knows it.
    number: u32,
    _scope: PhantomData<C>,
}

/// A table of tags under which the host registers at any time: [`JointHandle::open`]. Every thread may use it at any time.
///
/// Each call has a scope, as those of [`Triggers`](crate::trigger::Triggers) have.
#[derive(Clone, Copy, Debug)]
pub struct JointTriggers<'a> {
    table: JointHandle<'a>,
}

impl<'a> JointTriggers<'a> {
    /// How many tags there are.
    #[inline(always)]
    pub fn tags(&self) -> u32 {
        self.table.tags
    }

    /// Triggers a tag, as [`Triggers::trigger`](crate::trigger::Triggers::trigger) does. A trigger without an operation is
    /// kept for the one that the host will register. The host rings for that, if no trigger comes behind its registration.
    /// The ticket stands for the operation that takes this trigger.
    ///
    /// # Errors
    /// [`Error::InvalidTag`]. Whether the operation succeeds, [`wait`](Self::wait) tells.
    #[inline(always)]
    pub fn trigger<C: Scope>(&self, tag: Tag) -> Result<JointTicket<C>, Error> {
        let (words, queue) = self.tag(tag)?;
        let mut number = 0;
        if begin::<C>() {
            number = words.trigger(&queue);
        }
        Ok(JointTicket {
            tag,
            number,
            _scope: PhantomData,
        })
    }

    /// Waits until the operation is done that takes a trigger, even if the host has not registered it yet: what was written
    /// has left and may be overwritten, what was read may be read.
    ///
    /// # Errors
    /// [`Error::InvalidTag`] for another table's ticket; [`Error::NotRegistered`] if the host did not register it until the
    /// deadline; [`Error::Closed`] if it will not; [`Error::Untriggered`], [`Error::Timeout`] if it is not done in time; the
    /// tag's queue has failed.
    #[inline(always)]
    pub fn wait<C: Scope>(&self, ticket: JointTicket<C>, deadline: Deadline) -> Result<(), Error> {
        let (words, queue) = self.tag(ticket.tag)?;
        let mut result = Ok(0);
        if C::leads() {
            result = words.wait(&queue, ticket.number, deadline).map(|()| 0);
        }
        finish::<C, _>(result).map(drop)
    }

    /// A tag's counter and threshold, as they are now.
    ///
    /// # Errors
    /// [`Error::InvalidTag`].
    #[inline(always)]
    pub fn counter(&self, tag: Tag) -> Result<Counter, Error> {
        Ok(self.tag(tag)?.0.counter())
    }

    #[inline(always)]
    fn tag(&self, tag: Tag) -> Result<(&'a JointTag, SendQueueHandle<'a>), Error> {
        if tag >= self.table.tags {
            return Err(Error::InvalidTag { tag });
        }
        // SAFETY: there are so many (the promise of `JointHandle::new`).
        let (words, queue) = unsafe {
            let at = tag as usize;
            (&*self.table.words.add(at), &*self.table.queues.add(at))
        };
        Ok((words, queue.handle()))
    }
}
