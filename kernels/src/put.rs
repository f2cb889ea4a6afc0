//! An empty kernel with a put: sent by whoever launched it, or by the kernel, which triggers or posts it.

use warpbell::wqe::{Local, Remote, Wqe};
use warpbell::{Deadline, Exclusive, SendQueueHandle, Slice, Thread, Word64, WordExt, kernel};
use warpbell_patterns::trigger::TriggerHandle;

use crate::outcome::{Failure, Outcome};

/// What such a kernel takes. One thread runs it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Put<'a> {
    /// Tag 0 has the put, where the kernel triggers it.
    pub triggers: TriggerHandle<'a>,
    /// Where the kernel posts it.
    pub queue: SendQueueHandle<'a>,
    /// What is written.
    pub local: Local,
    /// Where.
    pub remote: Remote,
    /// [`Put::MARKS`] words that the host watches.
    pub marks: Slice<'a, Word64>,
    /// What goes there.
    pub round: u64,
    /// Microseconds that a post may take.
    pub limit_us: u64,
    /// What became of it.
    pub outcome: &'a Outcome,
}

impl Put<'_> {
    /// The mark of a kernel that has begun.
    pub const BEGUN: u64 = 0;
    /// The mark of a put that the kernel has sent.
    pub const SENT: u64 = 1;
    /// The mark of a kernel that is about to end.
    pub const ENDED: u64 = 2;
    /// How many marks there are.
    pub const MARKS: u64 = 3;

    #[inline(always)]
    fn mark(&self, which: u64) {
        if let Some(word) = self.marks.get(which) {
            word.store_relaxed(self.round);
        }
    }

    /// The kernel, which sends so.
    #[inline(always)]
    fn run(&self, send: impl FnOnce() -> Result<(), Failure>) {
        self.outcome.record(|| {
            self.mark(Self::BEGUN);
            send()?;
            self.mark(Self::ENDED);
            Ok(())
        });
    }
}

/// Sends nothing: others do.
#[kernel]
pub fn put_nothing(p: Put<'_>) {
    p.run(|| Ok(()));
}

/// Triggers the put, which the host registered.
#[kernel]
pub fn put_triggered(p: Put<'_>) {
    p.run(|| {
        p.triggers.open()?.trigger::<Thread>(0)?;
        p.mark(Put::SENT);
        Ok(())
    });
}

/// Builds the put and posts it.
#[kernel]
pub fn put_posted(p: Put<'_>) {
    p.run(|| {
        let mut queue = p.queue.open::<Exclusive>()?;
        let write = Wqe::write(p.local, p.remote).signalled();
        let _ = queue.post(write, Deadline::after_us(p.limit_us))?;
        p.mark(Put::SENT);
        Ok(())
    });
}
