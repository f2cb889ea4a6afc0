//! Receives through the kernel, and what came.

use std::sync::atomic::Ordering;

use warpbell::{ReceiveQueueHandle, Slice, Word64};
use warpbell_cpu_grid::Grid;
use warpbell_host_init::{Kernels, Shared};
use warpbell_kernels::suite::{
    Ending, EndingWords, Message, Mode, Output, Receive, Request, Waiting,
};

use crate::arena::{Arena, Image};
use crate::here;
use crate::model::Delivery;
use crate::post::{ALONE, Posting, ample, endings, expect_done, requests_for};
use crate::sides::Pair;

/// How receives are posted and messages taken. Change what matters, take the rest from `default()`.
#[derive(Clone, Copy, Debug)]
pub struct Collecting {
    /// Where the kernel runs.
    pub kernels: Kernels,
    /// Its grid.
    pub grid: Grid,
    /// How the queue is opened.
    pub mode: Mode,
    /// Buffers of each thread.
    pub per_thread: u32,
    /// How many of them each thread posts at first.
    pub post: u32,
    /// Messages that each scope takes.
    pub take: u32,
    /// Whether a thread posts its next buffer when as many messages were taken as its scope has threads.
    pub repost: bool,
    /// Bytes from one buffer to the next.
    pub stride: u32,
    /// Pieces of a buffer.
    pub segments: u32,
    /// Bytes of a piece.
    pub length: u32,
}

impl Default for Collecting {
    /// One thread alone on a CPU, with no buffers yet; a buffer would be one piece of 192 bytes out of 256.
    fn default() -> Self {
        Self {
            kernels: here::kernels(),
            grid: Grid::ONE_THREAD,
            mode: ALONE,
            per_thread: 0,
            post: 0,
            take: 0,
            repost: false,
            stride: 256,
            segments: 1,
            length: 192,
        }
    }
}

/// The receive kernel's results: the buffer of each receive, the messages, and each thread's ending.
#[derive(Debug)]
pub struct Mailbox {
    posted: Shared<[Word64]>,
    messages: Shared<[Message]>,
    endings: Shared<[EndingWords]>,
}

impl Collecting {
    fn threads(&self) -> u32 {
        self.grid.blocks * self.grid.threads_per_block
    }

    /// Room for the kernel's results, with `receives` receives in all, at most 65,536.
    pub fn mailbox(&self, receives: usize) -> Mailbox {
        let threads = self.threads() as usize;
        Mailbox {
            posted: here::shared(receives.max(1), |_| Word64::new(u64::MAX)),
            messages: here::values(threads * self.take as usize, Message::default()),
            endings: here::outcomes(threads),
        }
    }

    /// The kernel, for a launch of one's own.
    pub fn kernel<'a>(
        &self,
        queue: ReceiveQueueHandle<'a>,
        buffers: &Arena,
        mailbox: &'a mut Mailbox,
    ) -> Receive<'a> {
        Receive {
            queue,
            mode: self.mode,
            per_thread: self.per_thread,
            post: self.post,
            take: self.take,
            repost: self.repost,
            patience_ns: ample().as_nanos() as u64,
            buffers: buffers.address(),
            stride: self.stride,
            key: buffers.region().lkey().0,
            length: self.length,
            segments: self.segments,
            posted: Slice::new(&mailbox.posted),
            messages: Output::new(&mut mailbox.messages),
            endings: Output::new(&mut mailbox.endings),
        }
    }

    /// Runs the kernel.
    pub fn launch(&self, queue: ReceiveQueueHandle<'_>, buffers: &Arena, mailbox: &mut Mailbox) {
        let kernel = self.kernel(queue, buffers, mailbox);
        here::launch(self.kernels, self.grid, &kernel);
    }

    /// Runs the kernel while one thread posts all requests and waits for the last. Fails the test unless every thread
    /// is done.
    #[track_caller]
    pub fn beside_sender(
        &self,
        pair: &Pair,
        requests: &[Request],
        buffers: &Arena,
        receives: usize,
        what: &str,
    ) -> Mailbox {
        let mut mailbox = self.mailbox(receives);
        let mut words = here::outcomes(requests.len());
        let rows = requests_for(requests);
        let posting = Posting::with(Waiting::Last, ample());
        let queue = pair.ours.send_queue().expect("a send queue");
        let sender = posting.kernel(queue, Slice::new(&rows), Output::new(&mut words));
        let queue = pair.theirs.receive_queue().expect("a receive queue");
        let receiver = self.kernel(queue, buffers, &mut mailbox);
        let (one, grid) = (Grid::ONE_THREAD, self.grid);
        here::launch_both(self.kernels, (one, &sender), (grid, &receiver));
        expect_done(&endings(&words), &format!("{what}: the sender"));
        expect_done(&mailbox.endings(), &format!("{what}: receivers"));
        mailbox
    }

    /// The pieces of the buffer that receive number `receive` is.
    fn pieces(
        &self,
        buffers: &Arena,
        mailbox: &Mailbox,
        receive: u32,
    ) -> Vec<warpbell::wqe::Local> {
        let number = &mailbox.posted[receive as usize % mailbox.posted.len()];
        let number = number.load(Ordering::Relaxed) as i64;
        assert!(number >= 0, "receive {receive} was never posted");
        let start = number * i64::from(self.stride);
        (0..self.segments)
            .map(|segment| buffers.local(start + i64::from(segment * self.length), self.length))
            .collect()
    }

    /// Checks that a message is the one that a request sends. Puts its bytes into the expected image.
    #[track_caller]
    pub fn deliver(
        &self,
        buffers: &Arena,
        mailbox: &Mailbox,
        message: &Message,
        delivery: &Delivery,
        expected: &mut Image,
    ) {
        let found = (message.kind, message.bytes as usize, message.immediate);
        let wanted = (delivery.kind, delivery.length, delivery.immediate);
        assert_eq!(found, wanted, "message {message:?}");
        expected.scatter(
            &self.pieces(buffers, mailbox, message.receive),
            &delivery.bytes,
        );
    }

    /// The bytes that a message brought, as they lie in its buffer now.
    pub fn bytes(&self, buffers: &Arena, mailbox: &Mailbox, message: &Message) -> Vec<u8> {
        let mut bytes = buffers
            .image()
            .gather(&self.pieces(buffers, mailbox, message.receive));
        bytes.truncate(message.bytes as usize);
        bytes
    }
}

impl Mailbox {
    /// Messages that were taken, in no particular order.
    pub fn messages(&self) -> Vec<Message> {
        let taken = |message: &&Message| **message != Message::default();
        self.messages.iter().filter(taken).copied().collect()
    }

    /// How each thread fared.
    pub fn endings(&self) -> Vec<Ending> {
        endings(&self.endings)
    }
}
