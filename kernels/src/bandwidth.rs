//! One kernel for each verb that posts as fast as it can, and one that receives.

use warpbell::wqe::{Immediate, Local, Remote, Wqe};
use warpbell::{
    Deadline, Exclusive, ReceiveQueueHandle, SendQueueHandle, Slice, Word64, kernel, thread,
};

use crate::outcome::Outcome;

/// A stream of messages of the same length.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Stream<'a> {
    /// Where to post.
    pub queue: SendQueueHandle<'a>,
    /// The first message's memory here; the others follow, and after `slots` it starts again.
    pub local: Local,
    /// The first message's memory at the other end; likewise.
    pub remote: Remote,
    /// Slots of memory at each end, at least 1.
    pub slots: u64,
    /// How many messages.
    pub messages: u64,
    /// Messages under one doorbell, at least 1, at most half the queue's depth.
    pub batch: u32,
    /// Every so many messages one asks for a completion, at least 1; the last one always does.
    pub signal_every: u64,
    /// Microseconds that each wait may take.
    pub limit_us: u64,
    /// Takes the clock in nanoseconds before the first post, after the last completion, and, where there is a third word,
    /// after the last post.
    pub times: Slice<'a, Word64>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

impl Stream<'_> {
    /// Keeps when it began, and that it has ended now.
    #[inline(always)]
    pub(crate) fn keep_times(&self, begin: u64) {
        self.times.store(0, begin);
        self.times.store(1, thread::clock_ns());
    }
}

/// Posts all messages, and waits for the last one.
pub fn stream(p: &Stream<'_>, message: impl Fn(Local, Remote) -> Wqe<1>) {
    p.outcome.record(|| {
        let limit = Deadline::after_us(p.limit_us);
        let mut queue = p.queue.open::<Exclusive>()?;
        let length = u64::from(p.local.length);
        let (mut local, mut remote) = (p.local, p.remote);
        let (mut slot, mut until_signal) = (0, p.signal_every);
        let (mut left, mut last) = (p.messages, None);
        let begin = thread::clock_ns();
        while left > 0 {
            let group = left.min(u64::from(p.batch)) as u32;
            let mut batch = queue.batch(group, limit)?;
            for _ in 0..group {
                let mut wqe = message(local, remote);
                left -= 1;
                until_signal -= 1;
                if until_signal == 0 || left == 0 {
                    wqe = wqe.signalled();
                    until_signal = p.signal_every;
                }
                last = Some(batch.post(wqe)?);
                slot += 1;
                local.address += length;
                remote.address += length;
                if slot == p.slots {
                    (slot, local, remote) = (0, p.local, p.remote);
                }
            }
        }
        let posted = thread::clock_ns();
        if let Some(last) = last {
            queue.wait(last, limit)?;
        }
        p.keep_times(begin);
        p.times.store(2, posted);
        Ok(())
    });
}

/// Writes.
#[kernel]
pub fn stream_write(p: Stream<'_>) {
    stream(&p, Wqe::write);
}

/// Writes with immediate; the other end runs [`sink`].
#[kernel]
pub fn stream_write_immediate(p: Stream<'_>) {
    stream(&p, |local, remote| {
        Wqe::write_immediate(local, remote, Immediate(0))
    });
}

/// Reads.
#[kernel]
pub fn stream_read(p: Stream<'_>) {
    stream(&p, Wqe::read);
}

/// Sends; the other end runs [`sink`].
#[kernel]
pub fn stream_send(p: Stream<'_>) {
    stream(&p, |local, _| Wqe::send(local));
}

/// Adds 1 to the 8 bytes of each slot at the other end.
#[kernel]
pub fn stream_fetch_add(p: Stream<'_>) {
    stream(&p, |local, remote| Wqe::fetch_add(local, remote, 1));
}

/// The receiving end of a stream.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Sink<'a> {
    /// Where to post the buffers.
    pub queue: ReceiveQueueHandle<'a>,
    /// The first message's buffer; the others follow, and after `slots` it starts again.
    pub local: Local,
    /// Slots of memory, at least 1.
    pub slots: u64,
    /// How many messages.
    pub messages: u64,
    /// How many buffers [`sink_prepare`] has posted before.
    pub prepared: u64,
    /// Microseconds that each wait may take.
    pub limit_us: u64,
    /// What became of it.
    pub outcome: &'a Outcome,
}

impl Sink<'_> {
    /// The buffer of a message.
    fn buffer(&self, message: u64) -> Local {
        // Without slots there is but the first one: a check for 0 would be a panic.
        let slot = message.checked_rem(self.slots).unwrap_or(0);
        self.local
            .at(slot * u64::from(self.local.length), self.local.length)
    }
}

/// Posts the first `prepared` buffers, before the stream begins.
#[kernel]
pub fn sink_prepare(p: Sink<'_>) {
    p.outcome.record(|| {
        let mut queue = p.queue.open::<Exclusive>()?;
        for message in 0..p.prepared {
            queue.try_post(p.buffer(message))?;
        }
        Ok(())
    });
}

/// Takes all messages, and posts the buffers that [`sink_prepare`] has left.
#[kernel]
pub fn sink(p: Sink<'_>) {
    p.outcome.record(|| {
        let limit = Deadline::after_us(p.limit_us);
        let mut queue = p.queue.open::<Exclusive>()?;
        let mut posted = p.prepared;
        for _ in 0..p.messages {
            let _ = queue.receive(limit)?;
            if posted < p.messages {
                queue.try_post(p.buffer(posted))?;
                posted += 1;
            }
        }
        Ok(())
    });
}
