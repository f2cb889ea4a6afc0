//! A kernel that posts receives and takes messages.

use warpbell::wqe::{Arrival, Local, LocalKey};
use warpbell::{
    Deadline, PostError, ReceiveQueue, ReceiveQueueHandle, Received, Scope, Sharing, Slice, Word64,
    WordExt, kernel, thread,
};

use super::arguments::{Kernel, Output};
use super::ending::{Ending, EndingWords};
use super::mode::{Mode, by_mode};
use crate::outcome::Failure;

/// How a [`Message`] came.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MessageKind {
    /// There is no message here.
    #[default]
    None,
    /// A send.
    Send,
    /// A send with immediate.
    SendImmediate,
    /// A send with invalidate.
    SendInvalidate,
    /// A write with immediate.
    WriteImmediate,
}

/// A message that a thread took, in plain data.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// How it came.
    pub kind: MessageKind,
    /// Immediate data or the invalidated key, if any.
    pub immediate: u32,
    /// Bytes that arrived.
    pub bytes: u32,
    /// Number of the receive that it used up, modulo 2^16.
    pub receive: u32,
}

impl From<Received> for Message {
    fn from(received: Received) -> Self {
        let (kind, immediate) = match received.kind {
            Arrival::Send => (MessageKind::Send, 0),
            Arrival::SendImmediate(immediate) => (MessageKind::SendImmediate, immediate.0),
            Arrival::SendInvalidate(key) => (MessageKind::SendInvalidate, key.0),
            Arrival::WriteImmediate(immediate) => (MessageKind::WriteImmediate, immediate.0),
        };
        Self {
            kind,
            immediate,
            bytes: received.bytes,
            receive: received.index.0.into(),
        }
    }
}

/// Posts receives, then takes messages.
///
/// Thread t has `per_thread` buffers, of which number p lies at `buffers + stride · (t · per_thread + p)` and
/// consists of `segments` pieces of `length` bytes, one behind the other. Each thread (each warp, each block)
/// takes `take` messages; the leader notes them from entry t · take of `messages` on.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Receive<'a> {
    /// The queue.
    pub queue: ReceiveQueueHandle<'a>,
    /// How to open it.
    pub mode: Mode,
    /// Buffers that each thread has.
    pub per_thread: u32,
    /// How many of them it posts at first.
    pub post: u32,
    /// Messages that each scope takes.
    pub take: u32,
    /// Whether each thread posts its next buffer when as many messages were taken as the scope has threads.
    pub repost: bool,
    /// How long each post and each wait may take, in nanoseconds.
    pub patience_ns: u64,
    /// Address of the first buffer.
    pub buffers: u64,
    /// Bytes from one buffer to the next.
    pub stride: u32,
    /// Local key of the buffers.
    pub key: u32,
    /// Bytes of a piece.
    pub length: u32,
    /// Pieces of a buffer, at most 4.
    pub segments: u32,
    /// For each receive number, modulo the words that there are: which buffer it is. Two threads may store to one word.
    pub posted: Slice<'a, Word64>,
    /// What came.
    pub messages: Output<'a, Message>,
    /// How each thread fared.
    pub endings: Output<'a, EndingWords>,
}

impl Kernel for Receive<'_> {
    #[cfg(not(target_arch = "nvptx64"))]
    const ENTRY: warpbell::Entry<fn(Self)> = suite_receive::ENTRY;

    fn run(&self) {
        let ending: Ending = by_mode!(self.mode, open(self)).into();
        // SAFETY: each thread has a place of its own.
        unsafe {
            self.endings.write(thread::index().into(), ending.into());
        };
    }
}

/// Runs [`Receive`].
#[kernel]
pub fn suite_receive(kernel: Receive<'_>) {
    kernel.run();
}

fn open<S: Sharing, C: Scope>(kernel: &Receive<'_>) -> Result<(), Failure> {
    // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
    let mut queue = unsafe { kernel.queue.open_together::<S, C>() }?;
    kernel.serve(&mut queue)
}

impl Receive<'_> {
    fn serve<S: Sharing, C: Scope>(
        &self,
        queue: &mut ReceiveQueue<'_, S, C>,
    ) -> Result<(), Failure> {
        for number in 0..self.post {
            self.post(queue, number)?;
        }
        let (_, threads) = C::rank_and_count(true);
        let mut next = self.post;
        for number in 0..self.take {
            let received = queue.receive(Deadline::after_ns(self.patience_ns))?;
            if C::leads() {
                let place = u64::from(thread::index()) * u64::from(self.take) + u64::from(number);
                // SAFETY: each leader has places of its own.
                unsafe { self.messages.write(place, received.into()) };
            }
            if self.repost && (number + 1) % threads == 0 && next < self.per_thread {
                self.post(queue, next)?;
                next += 1;
            }
        }
        Ok(())
    }

    /// Posts buffer `number` of this thread, and notes which receive it became.
    fn post<S: Sharing, C: Scope>(
        &self,
        queue: &mut ReceiveQueue<'_, S, C>,
        number: u32,
    ) -> Result<(), PostError> {
        let buffer = thread::index() * self.per_thread + number;
        let start = self.buffers + u64::from(self.stride) * u64::from(buffer);
        let piece = |segment: u32| Local {
            address: start + u64::from(segment) * u64::from(self.length),
            length: self.length,
            key: LocalKey(self.key),
        };
        let pieces: [Local; 4] = core::array::from_fn(|segment| piece(segment as u32));
        let pieces = pieces.get(..self.segments as usize).unwrap_or(&pieces);
        let index = queue.try_post_scatter(pieces)?;
        let place = u64::from(index.0).checked_rem(self.posted.len());
        if let Some(posted) = place.and_then(|place| self.posted.get(place)) {
            posted.store_relaxed(buffer.into());
        }
        Ok(())
    }
}
